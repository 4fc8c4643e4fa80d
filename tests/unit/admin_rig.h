/* SPDX-License-Identifier: MIT */
/*
 * Three namespaces, a subsystem and two clients for the tests of the admin module, and short
 * ways to run commands. Include after cmocka.h, in one file of a program.
 */
#ifndef ADMIN_RIG_H
#define ADMIN_RIG_H

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "admin/admin.h"
#include "config/namespace.h"
#include "fake_stores.h"

#define OK 0
#define BAD_OPCODE (GKV_SC_INVALID_OPCODE | GKV_DNR)
#define BAD_FIELD (GKV_SC_INVALID_FIELD | GKV_DNR)
#define BAD_NS (GKV_SC_INVALID_NS | GKV_DNR)
#define BAD_IOCS (GKV_SC_INVALID_IOCS | GKV_DNR)
#define DENIED (GKV_SC_OPERATION_DENIED | GKV_DNR)
#define ALL GKV_NSID_ALL

/* Namespaces: 1 for everybody, 3 read-only for uid 1000, 5 for root alone. */
static const char conf[] = "[namespace one]\nnsid = 1\nstack = null\naccess = *:rw\n"
			   "[namespace five]\nnsid = 5\nstack = null\naccess = uid:0:rw\n"
			   "[namespace three]\nnsid = 3\nstack = null\n"
			   "access = uid:1000:ro uid:0:rw\nvalue_max = 96M\n"
			   "uuid = 00112233-4455-6677-8899-aabbccddeeff\n";

static char dir[] = "/tmp/gkv-admin-XXXXXX";
static struct kvb_config cfg;
static struct kvb_ns *nss[3];
static struct kvb_ctrl ctrl;
static struct kvb_admin_peer root, user;
static struct kvb_admin_counters counters;

static uint8_t data[8192];
static uint32_t data_len;
static struct gkv_cqe cqe;
static struct gkv_cqe held[8];
static unsigned int nheld;

static inline void on_complete(struct kvb_admin_peer *peer, const struct gkv_cqe *c)
{
	(void)peer;
	held[nheld++] = *c;
}

static inline bool on_abort(struct kvb_admin_peer *peer, uint16_t sqid, uint16_t cid)
{
	(void)peer;
	return sqid == 2 && cid == 77;
}

static inline void get_counters(void *ctx, struct kvb_admin_counters *c)
{
	assert_ptr_equal(ctx, &counters);
	*c = counters;
}

static inline int setup(void **state)
{
	char option[64];
	struct kvb_err err;
	int ret;

	(void)state;
	fake_reset();
	snprintf(option, sizeof(option), "state_dir=%s", dir);
	kvb_config_init(&cfg);
	if (kvb_config_text(&cfg, "t.conf", conf, strlen(conf), &err) ||
	    kvb_config_option(&cfg, option, &err) || kvb_config_finish(&cfg, &err))
		return -1;
	memset(&ctrl, 0, sizeof(ctrl));
	for (int i = 0; i < 3; i++) {
		nss[i] = kvb_ns_open(&cfg.ns[i], &cfg, &ret, &err);
		if (!nss[i])
			return -1;
	}
	ctrl.ns = nss;
	ctrl.nns = 3;
	memset(ctrl.uuid, 0xa5, 16);
	ctrl.max_qid = 1024;
	ctrl.max_depth = 4096;
	ctrl.counters = get_counters;
	ctrl.ctx = &counters;
	kvb_ctrl_init(&ctrl);
	memset(&counters, 0, sizeof(counters));
	root = (struct kvb_admin_peer){ .privileged = true, .complete = on_complete,
					.abort = on_abort };
	user = (struct kvb_admin_peer){ .uid = 1000, .gid = 1000 };
	kvb_admin_peer_init(&root);
	kvb_admin_peer_init(&user);
	nheld = 0;
	return 0;
}

static inline int teardown(void **state)
{
	static const char *const names[] = { "one", "three", "five" };
	char path[64];

	(void)state;
	for (int i = 0; i < 3; i++) {
		kvb_ns_close(nss[i]);
		snprintf(path, sizeof(path), "%s/%s.state", dir, names[i]);
		unlink(path);
	}
	kvb_config_free(&cfg);
	return 0;
}

/* ---- Running commands ---- */

static inline enum kvb_admin_result submit(struct kvb_admin_peer *peer,
					   const struct gkv_admin_sqe *sqe)
{
	enum kvb_admin_result ret;

	memset(data, 0xee, sizeof(data));
	memset(&cqe, 0xee, sizeof(cqe));
	data_len = GKV_ADMIN_DATA_SIZE;
	ret = kvb_admin_exec(&ctrl, peer, sqe, NULL, 0, &cqe, data, &data_len);
	/* Never past what the front end has room for. */
	for (size_t i = GKV_ADMIN_DATA_SIZE; i < sizeof(data); i++)
		assert_int_equal(data[i], 0xee);
	return ret;
}

/* Status without the phase, after looking at what holds for every completion. */
static inline uint16_t exec(struct kvb_admin_peer *peer, const struct gkv_admin_sqe *sqe)
{
	uint16_t status;

	assert_int_equal(submit(peer, sqe), KVB_ADMIN_DONE);
	assert_int_equal(cqe.cid, sqe->cid);
	assert_int_equal(cqe.dw1, 0);
	assert_int_equal(cqe.sqhd, 0);
	assert_int_equal(cqe.sqid, 0);
	assert_int_equal(le16toh(cqe.status) & 1, 0);
	status = le16toh(cqe.status) >> 1;
	if (status) {
		assert_int_equal(data_len, 0);
		assert_int_equal(cqe.dw0, 0);
	}
	return status;
}

static inline uint16_t cmd(struct kvb_admin_peer *peer, uint8_t op, uint32_t nsid, uint32_t dw10,
		    uint32_t dw11)
{
	struct gkv_admin_sqe sqe = {
		.opcode = op,
		.cid = htole16(0x1234),
		.nsid = htole32(nsid),
		.cdw10 = htole32(dw10),
		.cdw11 = htole32(dw11),
	};

	return exec(peer, &sqe);
}

static inline uint16_t identify(struct kvb_admin_peer *peer, uint32_t nsid, uint32_t cns,
				uint8_t csi)
{
	uint16_t st = cmd(peer, GKV_ADM_IDENTIFY, nsid, cns, (uint32_t)csi << 24);

	if (!st)
		assert_int_equal(data_len, 4096);
	return st;
}

static inline uint16_t get_feature(struct kvb_admin_peer *peer, uint32_t nsid, uint32_t fid,
				   uint32_t dw11)
{
	return cmd(peer, GKV_ADM_GET_FEATURES, nsid, fid, dw11);
}

static inline uint16_t set_feature(struct kvb_admin_peer *peer, uint32_t nsid, uint32_t fid,
				   uint32_t dw11)
{
	return cmd(peer, GKV_ADM_SET_FEATURES, nsid, fid, dw11);
}

static inline uint16_t get_log(struct kvb_admin_peer *peer, uint8_t lid, uint32_t bytes,
			       uint64_t off)
{
	uint32_t numd = bytes / 4 - 1;
	struct gkv_admin_sqe sqe = {
		.opcode = GKV_ADM_GET_LOG_PAGE,
		.nsid = htole32(ALL),
		.cdw10 = htole32(lid | numd << 16),
		.cdw11 = htole32(numd >> 16),
		.cdw12 = htole32((uint32_t)off),
		.cdw13 = htole32((uint32_t)(off >> 32)),
	};
	uint16_t st = exec(peer, &sqe);

	if (!st)
		assert_int_equal(data_len, bytes);
	return st;
}

static inline uint16_t u16(size_t at)
{
	return (uint16_t)(data[at] | data[at + 1] << 8);
}

static inline uint32_t u32(size_t at)
{
	return u16(at) | (uint32_t)u16(at + 2) << 16;
}

static inline uint64_t u64(size_t at)
{
	return u32(at) | (uint64_t)u32(at + 4) << 32;
}

static inline void zero(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (data[i])
			fail_msg("byte %zu is %02x", i, data[i]);
}

static inline int rig_start(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static inline int rig_end(void **state)
{
	(void)state;
	return rmdir(dir);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
