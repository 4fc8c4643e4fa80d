/* SPDX-License-Identifier: MIT */
/*
 * Admin commands: any 64 bytes, in any order, get a well-formed answer, and a client that may
 * only read changes nothing.
 *
 * Input: records of one byte (which client) and a 64-byte command.
 */
#include <endian.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/fake_stores.h"
#include "admin/admin.h"
#include "config/namespace.h"

#define CHECK(c) \
	do { \
		if (!(c)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
			abort(); \
		} \
	} while (0)

static const char text[] = "[namespace a]\nnsid = 1\nstack = null\naccess = uid:0:rw uid:1:ro\n"
			   "[namespace b]\nnsid = 9\nstack = fault,mem\naccess = uid:0:rw\n";

static char dir[] = "/dev/shm/gkv-fuzz-XXXXXX";
static struct kvb_config cfg;
static struct kvb_ns *nss[2];
static struct kvb_ctrl ctrl;

static void on_complete(struct kvb_admin_peer *peer, const struct gkv_cqe *cqe)
{
	(void)peer;
	CHECK(!(le16toh(cqe->status) & 1));
}

static void clean(void)
{
	char path[64];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s.state", dir, i ? "b" : "a");
		unlink(path);
		kvb_ns_close(nss[i]);
	}
	rmdir(dir);
	kvb_config_free(&cfg);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char option[64];
	struct kvb_err err;
	int ret;

	(void)argc;
	(void)argv;
	/* In memory where there is such a place: each change of Feature 20h is synced. */
	if (!mkdtemp(dir)) {
		strcpy(dir, "/tmp/gkv-fuzz-XXXXXX");
		CHECK(mkdtemp(dir));
	}
	fake_reset();
	fake_info.volatile_cache = true;
	snprintf(option, sizeof(option), "state_dir=%s", dir);
	kvb_config_init(&cfg);
	CHECK(!kvb_config_text(&cfg, "fuzz.conf", text, strlen(text), &err));
	CHECK(!kvb_config_option(&cfg, option, &err));
	CHECK(!kvb_config_finish(&cfg, &err));
	for (int i = 0; i < 2; i++) {
		nss[i] = kvb_ns_open(&cfg.ns[i], &cfg, &ret, &err);
		CHECK(nss[i]);
	}
	ctrl.ns = nss;
	ctrl.nns = 2;
	ctrl.max_qid = 16;
	ctrl.max_depth = 64;
	kvb_ctrl_init(&ctrl);
	atexit(clean);
	return 0;
}

static unsigned int state_bits(void)
{
	unsigned int v = 0;

	for (int i = 0; i < 2; i++)
		v = v << 2 | (unsigned int)atomic_load(&nss[i]->ednek) << 1 |
		    atomic_load(&nss[i]->vwc);
	return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvb_admin_peer peers[3] = {
		{ .privileged = true, .complete = on_complete },
		{ .uid = 1, .gid = 1 },
		{ .uid = 2, .gid = 2, .complete = on_complete },
	};
	static uint8_t out[GKV_ADMIN_DATA_SIZE + 64];

	for (int i = 0; i < 3; i++)
		kvb_admin_peer_init(&peers[i]);
	for (; size >= 65; data += 65, size -= 65) {
		struct kvb_admin_peer *peer = &peers[data[0] % 3];
		uint32_t len = data[0] & 0x80 ? 512 : GKV_ADMIN_DATA_SIZE;
		uint32_t cap = len;
		unsigned int before = state_bits();
		enum kvb_admin_result ret;
		struct gkv_admin_sqe sqe;
		struct gkv_cqe cqe;
		uint16_t st;

		memcpy(&sqe, data + 1, sizeof(sqe));
		memset(out + cap, 0x5a, sizeof(out) - cap);
		if (data[0] & 0x40)
			kvb_admin_event(peer, data[0] >> 2 & 7, 1, GKV_LOG_ERROR);
		ret = kvb_admin_exec(&ctrl, peer, &sqe, NULL, 0, &cqe, out, &len);
		CHECK(len <= cap);
		for (size_t i = cap; i < sizeof(out); i++)
			CHECK(out[i] == 0x5a);
		CHECK(peer->naer <= KVB_AERL + 1);
		CHECK(peer->complete || !peer->naer);
		if (peer != &peers[0])
			CHECK(state_bits() == before);
		if (ret == KVB_ADMIN_HELD) {
			CHECK(sqe.opcode == GKV_ADM_ASYNC_EVENT && peer->complete);
			continue;
		}
		st = le16toh(cqe.status) >> 1;
		CHECK(cqe.cid == sqe.cid && !(le16toh(cqe.status) & 1));
		CHECK(!cqe.dw1 && !cqe.sqhd && !cqe.sqid);
		CHECK(!st || (!len && !cqe.dw0));
		CHECK(st == kvb_admin_dnr(st));
	}
	return 0;
}
