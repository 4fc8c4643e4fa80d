/* SPDX-License-Identifier: MIT */
/*
 * The admin module as a controller: every Identify structure by byte offset, features, log
 * pages, statuses with their DNR, and who may see and change what.
 */
#include <endian.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

static void on_complete(struct kvb_admin_peer *peer, const struct gkv_cqe *c)
{
	(void)peer;
	held[nheld++] = *c;
}

static bool on_abort(struct kvb_admin_peer *peer, uint16_t sqid, uint16_t cid)
{
	(void)peer;
	return sqid == 2 && cid == 77;
}

static void get_counters(void *ctx, struct kvb_admin_counters *c)
{
	assert_ptr_equal(ctx, &counters);
	*c = counters;
}

static int setup(void **state)
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

static int teardown(void **state)
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

static enum kvb_admin_result submit(struct kvb_admin_peer *peer, const struct gkv_admin_sqe *sqe)
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
static uint16_t exec(struct kvb_admin_peer *peer, const struct gkv_admin_sqe *sqe)
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

static uint16_t cmd(struct kvb_admin_peer *peer, uint8_t op, uint32_t nsid, uint32_t dw10,
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

static uint16_t identify(struct kvb_admin_peer *peer, uint32_t nsid, uint32_t cns, uint8_t csi)
{
	uint16_t st = cmd(peer, GKV_ADM_IDENTIFY, nsid, cns, (uint32_t)csi << 24);

	if (!st)
		assert_int_equal(data_len, 4096);
	return st;
}

static uint16_t get_feature(struct kvb_admin_peer *peer, uint32_t nsid, uint32_t fid, uint32_t dw11)
{
	return cmd(peer, GKV_ADM_GET_FEATURES, nsid, fid, dw11);
}

static uint16_t set_feature(struct kvb_admin_peer *peer, uint32_t nsid, uint32_t fid, uint32_t dw11)
{
	return cmd(peer, GKV_ADM_SET_FEATURES, nsid, fid, dw11);
}

static uint16_t get_log(struct kvb_admin_peer *peer, uint8_t lid, uint32_t bytes, uint64_t off)
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

static uint16_t u16(size_t at)
{
	return (uint16_t)(data[at] | data[at + 1] << 8);
}

static uint32_t u32(size_t at)
{
	return u16(at) | (uint32_t)u16(at + 2) << 16;
}

static uint64_t u64(size_t at)
{
	return u32(at) | (uint64_t)u32(at + 4) << 32;
}

static void zero(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (data[i])
			fail_msg("byte %zu is %02x", i, data[i]);
}

/* ---- Identify ---- */

static void test_id_ctrl(void **state)
{
	(void)state;
	assert_int_equal(identify(&user, 0, 0x01, 0), OK);
	assert_memory_equal(data + 4, "a5a5a5a5a5a5a5a5a5a5", 20);
	assert_memory_equal(data + 24, "gkv kvbridged                           ", 40);
	assert_int_equal(data[76], 0);			/* CMIC */
	assert_int_equal(data[77], 0);			/* MDTS: no limit */
	assert_int_equal(u16(78), KVB_CNTLID);
	assert_int_equal(u32(80), 0x00020000);		/* VER */
	assert_int_equal(u32(92), 0);			/* OAES */
	assert_int_equal(data[111], 1);			/* CNTRLTYPE: I/O */
	assert_int_equal(u16(256), 0);			/* OACS */
	assert_int_equal(data[258], 3);			/* ACL */
	assert_int_equal(data[259], 3);			/* AERL */
	assert_int_equal(data[261] & 0x2, 0x2);		/* LPA: effects log */
	assert_int_equal(data[261] & 0x4, 0x4);		/* LPA: offsets */
	assert_int_equal(data[262], 63);		/* ELPE */
	assert_int_equal(data[512], 0x66);		/* SQES */
	assert_int_equal(data[513], 0x44);		/* CQES */
	assert_int_equal(u16(514), 4096);		/* MAXCMD */
	assert_int_equal(u32(516), 5);			/* NN */
	assert_int_equal(u16(520), 0x10);		/* ONCS: save and select */
	assert_int_equal(data[525], 0x4);		/* VWC: none */
	assert_int_equal(u32(536), 0x00050001);		/* SGLS */
	assert_string_equal((char *)data + 768, "nqn.2014-08.org.nvmexpress:uuid:"
						"a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5");
	fake_info.volatile_cache = true;
	assert_int_equal(identify(&user, 0, 0x01, 0), OK);
	assert_int_equal(data[525], 0x5);
}

static void test_id_ns(void **state)
{
	(void)state;
	/* The dummy that keeps foreign clients from taking it for inactive. */
	assert_int_equal(identify(&user, 1, 0x00, 0), OK);
	assert_int_equal(u64(0), (1 << 30) / 512);
	assert_int_equal(u64(8), u64(0));
	fake_info.capacity = 0;
	assert_int_equal(identify(&user, 1, 0x00, 0), OK);
	assert_int_equal(u64(8), 1);
	zero(24, 4096);
}

static void test_id_ns_kv(void **state)
{
	(void)state;
	assert_int_equal(identify(&user, 3, 0x05, 1), OK);
	assert_int_equal(u64(0), 1 << 30);		/* NSZE, bytes */
	zero(8, 16);
	assert_int_equal(u64(16), 4096);		/* NUSE */
	zero(24, 32);					/* NSFEAT, NKVF (0's based) to KVFC */
	assert_int_equal(u32(32), 4096);		/* NOVG */
	zero(36, 43);
	assert_int_equal(data[43], 1);			/* NSATTR: this peer only reads */
	zero(44, 72);
	assert_int_equal(u16(72), 16);			/* KVF 0: key */
	zero(74, 76);
	assert_int_equal(u32(76), 64 << 20);		/* value: the store's limit is lower */
	assert_int_equal(u32(80), 0);			/* keys: no maximum */
	zero(84, 4096);
	assert_int_equal(identify(&root, 3, 0x05, 1), OK);
	assert_int_equal(data[43], 0);
	/* NUSE never exceeds NSZE. */
	fake_info.used = UINT64_C(1) << 40;
	assert_int_equal(identify(&root, 3, 0x05, 1), OK);
	assert_int_equal(u64(16), 1 << 30);
	fake_info.read_only = true;
	assert_int_equal(identify(&root, 3, 0x05, 1), OK);
	assert_int_equal(data[43], 1);
}

static void test_id_lists(void **state)
{
	static const uint8_t descs[] = { 3, 16, 0, 0, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
					 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
					 4, 1, 0, 0, 1, 0, 0, 0, 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {	/* CNS 02h, and 07h with CSI 1: the same list */
		uint32_t cns = i ? 0x07 : 0x02;
		uint8_t csi = i ? 1 : 0;

		assert_int_equal(identify(&root, 0, cns, csi), OK);
		assert_int_equal(u32(0), 1);
		assert_int_equal(u32(4), 3);
		assert_int_equal(u32(8), 5);
		zero(12, 4096);
		assert_int_equal(identify(&root, 3, cns, csi), OK);
		assert_int_equal(u32(0), 5);
		zero(4, 4096);
		/* What a peer may not open is not there. */
		assert_int_equal(identify(&user, 0, cns, csi), OK);
		assert_int_equal(u32(0), 1);
		assert_int_equal(u32(4), 3);
		zero(8, 4096);
		assert_int_equal(identify(&root, 5, cns, csi), OK);
		zero(0, 4096);
		assert_int_equal(identify(&root, ALL, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, ALL - 1, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, ALL - 2, cns, csi), OK);
	}
	assert_int_equal(identify(&root, 3, 0x03, 0), OK);
	assert_memory_equal(data, descs, sizeof(descs));
	zero(sizeof(descs), 4096);
}

static void test_id_others(void **state)
{
	(void)state;
	assert_int_equal(identify(&user, 0, 0x06, 1), OK);
	zero(0, 4096);
	assert_int_equal(identify(&user, 3, 0x08, 0), OK);
	zero(0, 8);
	assert_int_equal(data[8], 1);			/* NSATTR */
	assert_int_equal(data[14], 1);			/* NSTAT: ready */
	zero(15, 4096);
	fake_info.ready = false;
	assert_int_equal(identify(&user, 1, 0x08, 0), OK);
	zero(0, 4096);
	assert_int_equal(identify(&user, 0, 0xffff001c, 0), OK);
	assert_int_equal(u64(0), 0x2);			/* vector 0: KV alone */
	zero(8, 4096);
	assert_int_equal(identify(&user, 0, KVB_CNTLID << 16 | 0x1c, 0), OK);
	assert_int_equal(identify(&user, 0, 0x0002001c, 0), BAD_FIELD);
}

static void test_id_refused(void **state)
{
	static const uint8_t per_ns[][2] = { { 0x00, 0 }, { 0x03, 0 }, { 0x05, 1 }, { 0x08, 0 } };
	struct gkv_admin_sqe sqe;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		uint8_t cns = per_ns[i][0], csi = per_ns[i][1];

		assert_int_equal(identify(&root, 0, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, 6, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, 2, cns, csi), BAD_FIELD);	/* inactive */
		assert_int_equal(identify(&root, ALL, cns, csi), BAD_FIELD);
		assert_int_equal(identify(&user, 5, cns, csi), BAD_FIELD);	/* not for them */
		assert_int_equal(identify(&root, 5, cns, csi), OK);
	}
	for (int csi = 0; csi < 256; csi++) {
		if (csi == 1)
			continue;
		assert_int_equal(identify(&root, 1, 0x05, (uint8_t)csi), BAD_IOCS);
		assert_int_equal(identify(&root, 0, 0x06, (uint8_t)csi), BAD_IOCS);
		assert_int_equal(identify(&root, 0, 0x07, (uint8_t)csi), BAD_IOCS);
	}
	for (unsigned int cns = 0; cns < 256; cns++)
		if (cns > 0x08 && cns != 0x1c)
			assert_int_equal(identify(&root, 1, cns, 1), BAD_FIELD);
	assert_int_equal(identify(&root, 1, 0x04, 0), BAD_FIELD);
	assert_int_equal(identify(&root, 1, 0x01, 0), BAD_FIELD);	/* takes no NSID */
	assert_int_equal(identify(&root, 0, 0x0101, 0), BAD_FIELD);	/* reserved */
	assert_int_equal(identify(&root, 0, 0x10001, 0), BAD_FIELD);	/* CNTID not used */
	assert_int_equal(identify(&root, 0, 0x01, 1), BAD_FIELD);	/* CSI not used */
	/* Each reserved dword, and the flags. */
	for (size_t off = 0; off < 64; off += 4) {
		static const uint64_t used = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 |
					     1 << 8 | 1 << 9 | 1 << 10 | 1 << 11;

		if (used >> off / 4 & 1)
			continue;
		memset(&sqe, 0, sizeof(sqe));
		sqe.opcode = GKV_ADM_IDENTIFY;
		sqe.cdw10 = htole32(1);
		((uint8_t *)&sqe)[off + 3] = 0x80;
		assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	}
	memset(&sqe, 0, sizeof(sqe));
	sqe.opcode = GKV_ADM_IDENTIFY;
	sqe.cdw10 = htole32(1);
	sqe.flags = 1;				/* fused */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.flags = 0;
	data_len = 4095;			/* no room for the structure */
	assert_int_equal(kvb_admin_exec(&ctrl, &root, &sqe, NULL, 0, &cqe, data, &data_len),
			 KVB_ADMIN_DONE);
	assert_int_equal(le16toh(cqe.status) >> 1, BAD_FIELD);
	assert_int_equal(data_len, 0);
}

static void test_opcodes(void **state)
{
	(void)state;
	for (unsigned int op = 0; op < 256; op++) {
		if (op == 0x02 || op == 0x06 || (op >= 0x08 && op <= 0x0a) || op == 0x0c)
			continue;
		assert_int_equal(cmd(&root, (uint8_t)op, 0, 0, 0), BAD_OPCODE);
	}
}

/* ---- Features ---- */

static void test_features(void **state)
{
	static const struct {
		uint8_t fid;
		uint32_t dflt, value, caps;
	} f[] = {
		{ 0x01, 0x7, 0x03020104, 4 },
		{ 0x02, 0, 0xe0, 4 },
		{ 0x04, 0xffff, 0x0150, 4 },
		{ 0x07, 0x03ff03ff, 0x00070007, 4 },
		{ 0x08, 0, 0x0a05, 4 },
		{ 0x09, 0, 0x10000, 4 },
		{ 0x0b, 0, 0x1f, 4 },
		{ 0x19, 0, 0, 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); i++) {
		uint32_t now = f[i].value;

		if (f[i].fid == 0x02)		/* the workload hint is not kept */
			now = 0;
		if (f[i].fid == 0x07)		/* all of them, whatever is asked for */
			now = f[i].dflt;
		assert_int_equal(get_feature(&root, 0, f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		assert_int_equal(data_len, 0);
		assert_int_equal(set_feature(&root, 0, f[i].fid, f[i].value), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].fid == 0x07 ? f[i].dflt : 0);
		assert_int_equal(get_feature(&root, 0, f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), now);
		assert_int_equal(get_feature(&root, 0, 0x100 | f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		assert_int_equal(get_feature(&root, 0, 0x200 | f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		assert_int_equal(get_feature(&root, 0, 0x300 | f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].caps);
		assert_int_equal(get_feature(&root, 0, 0x400 | f[i].fid, 0), BAD_FIELD);
		assert_int_equal(get_feature(&root, 0, 0x800 | f[i].fid, 0), BAD_FIELD);
		/* Another client keeps its own. */
		assert_int_equal(get_feature(&user, 0, f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		/* The controller's: not saveable, and of no one namespace. */
		assert_int_equal(set_feature(&root, 0, 0x80000000 | f[i].fid, f[i].value),
				 GKV_SC_FEAT_NOT_SAVEABLE | GKV_DNR);
		assert_int_equal(set_feature(&root, 1, f[i].fid, f[i].value),
				 GKV_SC_FEAT_NOT_NS | GKV_DNR);
		assert_int_equal(set_feature(&root, ALL, f[i].fid, f[i].value), OK);
		assert_int_equal(set_feature(&root, 0, 0x100 | f[i].fid, f[i].value), BAD_FIELD);
	}
}

static void test_feature_values(void **state)
{
	static const struct {
		uint8_t fid;
		uint32_t value;
		uint16_t status;
	} f[] = {
		{ 0x01, 0x08, BAD_FIELD },
		{ 0x02, 0x01, BAD_FIELD },
		{ 0x02, 0x100, BAD_FIELD },
		{ 0x04, 0x00010000, BAD_FIELD },
		{ 0x04, 0x00200000, BAD_FIELD },
		{ 0x04, 0x000f0123, OK },
		{ 0x07, 0x0000ffff, BAD_FIELD },
		{ 0x07, 0xffff0000, BAD_FIELD },
		{ 0x08, 0x10000, BAD_FIELD },
		{ 0x09, 0x00001, BAD_FIELD },
		{ 0x0b, 0x100, BAD_FIELD },
		{ 0x19, 1, GKV_SC_IOCS_COMBINATION | GKV_DNR },
		{ 0x19, 0x200, BAD_FIELD },
		{ 0x06, 0, BAD_FIELD },		/* no write cache here */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); i++)
		if (set_feature(&root, 0, f[i].fid, f[i].value) != f[i].status)
			fail_msg("feature %02x = %x: %x", f[i].fid, f[i].value,
				 le16toh(cqe.status) >> 1);
	/* Both thresholds. */
	assert_int_equal(set_feature(&root, 0, 0x04, 0x00100111), OK);
	assert_int_equal(get_feature(&root, 0, 0x04, 0x00100000), OK);
	assert_int_equal(cqe.dw0, htole32(0x111));
	assert_int_equal(get_feature(&root, 0, 0x04, 0), OK);
	assert_int_equal(cqe.dw0, htole32(0x123));
	assert_int_equal(get_feature(&root, 0, 0x04, 0x00010000), BAD_FIELD);
	for (unsigned int fid = 0; fid < 256; fid++) {
		if (fid == 1 || fid == 2 || fid == 4 || (fid >= 6 && fid <= 9) || fid == 0x0b ||
		    fid == 0x19 || fid == 0x20)
			continue;
		assert_int_equal(get_feature(&root, 0, fid, 0), BAD_FIELD);
		assert_int_equal(set_feature(&root, 0, fid, 0), BAD_FIELD);
	}
}

static void test_vwc(void **state)
{
	(void)state;
	assert_int_equal(get_feature(&root, 0, 0x06, 0), BAD_FIELD);
	fake_info.volatile_cache = true;
	for (int i = 0; i < 3; i++)
		atomic_store(&nss[i]->vwc, true);
	assert_int_equal(get_feature(&root, 0, 0x06, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(set_feature(&user, 0, 0x06, 0), DENIED);
	assert_true(atomic_load(&nss[0]->vwc));
	assert_int_equal(set_feature(&root, 0, 0x06, 2), BAD_FIELD);
	assert_int_equal(set_feature(&root, 0, 0x06, 0), OK);
	for (int i = 0; i < 3; i++)
		assert_false(atomic_load(&nss[i]->vwc));
	assert_int_equal(get_feature(&root, 0, 0x06, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(get_feature(&root, 0, 0x106, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
}

static void test_ednek(void **state)
{
	struct kvb_err err;
	int ret;

	(void)state;
	assert_int_equal(get_feature(&root, 1, 0x20, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(set_feature(&root, 1, 0x20, 1), OK);
	assert_true(atomic_load(&nss[0]->ednek));
	assert_false(atomic_load(&nss[1]->ednek));
	assert_int_equal(get_feature(&root, 1, 0x20, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(get_feature(&root, 1, 0x120, 0), OK);		/* default */
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(get_feature(&root, 1, 0x220, 0), OK);		/* saved */
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(get_feature(&root, 1, 0x320, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 7);
	assert_int_equal(set_feature(&root, 1, 0x80000020, 0), OK);	/* with SV */
	assert_false(atomic_load(&nss[0]->ednek));
	assert_int_equal(set_feature(&root, 1, 0x20, 2), BAD_FIELD);
	/* NSIDs. */
	assert_int_equal(get_feature(&root, 0, 0x20, 0), BAD_NS);
	assert_int_equal(get_feature(&root, 6, 0x20, 0), BAD_NS);
	assert_int_equal(get_feature(&root, 2, 0x20, 0), BAD_FIELD);
	assert_int_equal(get_feature(&root, ALL, 0x20, 0), BAD_FIELD);
	assert_int_equal(set_feature(&root, 0, 0x20, 1), BAD_NS);
	assert_int_equal(set_feature(&user, 5, 0x20, 1), BAD_FIELD);
	/* Reading is not writing. */
	assert_int_equal(get_feature(&user, 3, 0x20, 0), OK);
	assert_int_equal(set_feature(&user, 3, 0x20, 1), DENIED);
	assert_int_equal(set_feature(&user, 1, 0x20, 1), OK);
	/* Broadcast: all that are active for the peer, or none. */
	assert_int_equal(set_feature(&user, ALL, 0x20, 0), DENIED);
	assert_true(atomic_load(&nss[0]->ednek));
	assert_int_equal(set_feature(&root, ALL, 0x20, 1), OK);
	for (int i = 0; i < 3; i++)
		assert_true(atomic_load(&nss[i]->ednek));
	/* Across a restart. */
	kvb_ns_close(nss[1]);
	nss[1] = kvb_ns_open(&cfg.ns[1], &cfg, &ret, &err);
	assert_non_null(nss[1]);
	assert_int_equal(get_feature(&root, 5, 0x20, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
}

/* ---- Log pages ---- */

static void test_log_pages(void **state)
{
	(void)state;
	assert_int_equal(get_log(&user, 0x00, 1024, 0), OK);
	for (unsigned int lid = 0; lid < 256; lid++)
		assert_int_equal(u32(4 * lid), lid < 4 || lid == 5);
	assert_int_equal(get_log(&user, 0x03, 512, 0), OK);
	assert_int_equal(data[0], 1);			/* AFI */
	assert_int_equal(memchr(data + 8, 0, 8) == NULL, 1);
	zero(16, 512);
	for (unsigned int lid = 0; lid < 256; lid++)
		if (lid == 4 || lid > 5)
			assert_int_equal(get_log(&user, (uint8_t)lid, 512, 0),
					 GKV_SC_INVALID_LOG_PAGE | GKV_DNR);
}

static void test_log_effects(void **state)
{
	struct gkv_admin_sqe sqe = {
		.opcode = GKV_ADM_GET_LOG_PAGE,
		.cdw10 = htole32(5 | 1023 << 16),
		.cdw14 = htole32(1u << 24),
	};

	(void)state;
	/* What Linux asks before it takes a KV namespace: NSID 0, CSI 1, 4096 bytes. */
	assert_int_equal(exec(&user, &sqe), OK);
	assert_int_equal(data_len, 4096);
	for (unsigned int op = 0; op < 256; op++) {
		bool adm = op == 2 || op == 6 || (op >= 8 && op <= 10) || op == 12;
		bool io = op <= 2 || op == 6 || op == 0x10 || op == 0x14;

		assert_int_equal(u32(4 * op), adm);
		assert_int_equal(u32(1024 + 4 * op),
				 (uint32_t)io | (op == 1 || op == 0x10 ? 2u : 0u));
	}
	zero(2048, 4096);
	sqe.cdw14 = 0;				/* NVM: no I/O command of that set */
	assert_int_equal(exec(&user, &sqe), OK);
	assert_int_equal(u32(4 * 6), 1);
	zero(1024, 4096);
	sqe.cdw14 = htole32(2u << 24);
	assert_int_equal(exec(&user, &sqe), BAD_IOCS);
}

static void test_log_smart(void **state)
{
	(void)state;
	counters = (struct kvb_admin_counters){
		.read_bytes = 512001, .written_bytes = 512000, .reads = 11, .writes = 12,
		.busy_ns = UINT64_C(120000000000), .power_cycles = 3, .power_on_seconds = 7201,
		.unsafe_shutdowns = 2, .media_errors = 9,
	};
	assert_int_equal(get_log(&root, 0x7f, 512, 0), GKV_SC_INVALID_LOG_PAGE | GKV_DNR);
	assert_int_equal(get_log(&user, 0x02, 512, 0), OK);
	assert_int_equal(data[0], 0);
	assert_int_equal(u64(32), 2);			/* data units, rounded up */
	assert_int_equal(u64(48), 1);
	assert_int_equal(u64(64), 11);
	assert_int_equal(u64(80), 12);
	assert_int_equal(u64(96), 2);			/* busy minutes */
	assert_int_equal(u64(112), 3);
	assert_int_equal(u64(128), 2);			/* hours */
	assert_int_equal(u64(144), 2);
	assert_int_equal(u64(160), 9);
	assert_int_equal(u64(176), 1);			/* the refusal above */
	counters.degraded = true;
	counters.read_only = true;
	assert_int_equal(get_log(&user, 0x02, 4, 0), OK);
	assert_int_equal(data[0], 0x0c);
}

static void test_log_ranges(void **state)
{
	struct gkv_admin_sqe sqe = { .opcode = GKV_ADM_GET_LOG_PAGE, .cdw10 = htole32(2) };

	(void)state;
	counters.reads = 0x1122334455667788;
	assert_int_equal(get_log(&user, 0x02, 8, 64), OK);
	assert_int_equal(u64(0), 0x1122334455667788);
	/* Longer than the page: zeros after it. At its end: nothing but zeros. */
	assert_int_equal(get_log(&user, 0x02, 4096, 64), OK);
	assert_int_equal(u64(0), 0x1122334455667788);
	zero(512 - 64, 4096);
	assert_int_equal(get_log(&user, 0x02, 4, 512), OK);
	zero(0, 4);
	assert_int_equal(get_log(&user, 0x02, 4, 516), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 4, UINT64_C(1) << 32), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 4, 2), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 4100, 0), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 1 << 20, 0), BAD_FIELD);
	sqe.nsid = htole32(1);			/* no page is a namespace's */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.nsid = 0;
	sqe.cdw10 = htole32(2 | 1 << 8);	/* LSP */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw10 = htole32(2);
	sqe.cdw11 = htole32(1 << 16);		/* LSI */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw11 = 0;
	sqe.cdw14 = htole32(1 << 23);		/* offset by entry */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw14 = 0;
	sqe.cdw15 = htole32(1);
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw15 = 0;
	assert_int_equal(exec(&root, &sqe), OK);
}

static void test_error_log(void **state)
{
	(void)state;
	assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
	zero(0, 4096);
	kvb_admin_log_error(&ctrl, 2, 0x55, GKV_SC_VALUE_SIZE | GKV_DNR, 1, GKV_OP_STORE, 40);
	/* Answers, no errors. */
	kvb_admin_log_error(&ctrl, 2, 1, GKV_SC_KEY_NOT_FOUND | GKV_DNR, 1, GKV_OP_RETRIEVE, 0);
	kvb_admin_log_error(&ctrl, 2, 1, GKV_SC_KEY_EXISTS | GKV_DNR, 1, GKV_OP_STORE, 0);
	kvb_admin_log_error(&ctrl, 3, 0x56, GKV_SC_UNRECOVERED, 5, GKV_OP_RETRIEVE,
			    KVB_PARAM_NONE);
	assert_int_equal(cmd(&root, 0x99, 0, 0, 0), BAD_OPCODE);
	assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
	assert_int_equal(u64(0), 3);			/* newest first */
	assert_int_equal(u16(8), 0);			/* SQID: admin */
	assert_int_equal(u16(10), 0x1234);
	assert_int_equal(u16(12), BAD_OPCODE << 1);
	assert_int_equal(u16(14), 0);			/* byte 0: the opcode */
	assert_int_equal(data[31], 0x99);
	assert_int_equal(u64(64), 2);
	assert_int_equal(u16(64 + 14), 0xffff);
	assert_int_equal(u32(64 + 24), 5);
	assert_int_equal(data[64 + 30], 1);		/* CSI */
	assert_int_equal(u64(128), 1);
	assert_int_equal(u16(128 + 8), 2);
	assert_int_equal(u16(128 + 10), 0x55);
	assert_int_equal(u16(128 + 12), (GKV_SC_VALUE_SIZE | GKV_DNR) << 1);
	assert_int_equal(u16(128 + 14), 40);
	assert_int_equal(data[128 + 31], GKV_OP_STORE);
	zero(192, 4096);
	/* Others' errors stay theirs. */
	assert_int_equal(get_log(&user, 0x01, 4096, 0), OK);
	assert_int_equal(u64(0), 1);
	zero(64, 4096);
	/* The ring turns; counts go on. */
	for (int i = 0; i < 200; i++)
		kvb_admin_log_error(&ctrl, 1, (uint16_t)i, GKV_SC_INTERNAL, 1, 0, 0);
	assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
	for (int i = 0; i < 64; i++)
		assert_int_equal(u64(64 * (size_t)i), 203 - i);
}

static void *log_many(void *arg)
{
	for (int i = 0; i < 5000; i++)
		kvb_admin_log_error(&ctrl, *(uint16_t *)arg, (uint16_t)i, GKV_SC_INTERNAL, 1, 0,
				    *(uint16_t *)arg);
	return NULL;
}

/* Writers on any thread, a reader beside them: every entry seen is whole. */
static void test_error_log_threads(void **state)
{
	uint16_t ids[3] = { 1, 2, 3 };
	pthread_t t[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, log_many, &ids[i]), 0);
	for (int n = 0; n < 500; n++) {
		assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
		for (size_t i = 0; i < 4096 && u64(i); i += 64)
			assert_int_equal(u16(i + 8), u16(i + 14));
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&ctrl.errors), 15000);
}

/* ---- Abort and events ---- */

static struct gkv_admin_sqe aer(uint16_t cid)
{
	return (struct gkv_admin_sqe){ .opcode = GKV_ADM_ASYNC_EVENT, .cid = htole16(cid) };
}

static void test_aer(void **state)
{
	struct gkv_admin_sqe sqe;

	(void)state;
	for (uint16_t i = 0; i < 4; i++) {
		sqe = aer(10 + i);
		assert_int_equal(submit(&root, &sqe), KVB_ADMIN_HELD);
		assert_int_equal(data_len, 0);
	}
	sqe = aer(14);
	assert_int_equal(exec(&root, &sqe), GKV_SC_AER_LIMIT);		/* no DNR */
	assert_int_equal(nheld, 0);
	/* The oldest is used up by an event; the same type is masked until its page is read. */
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(nheld, 1);
	assert_int_equal(le16toh(held[0].cid), 10);
	assert_int_equal(held[0].status, 0);
	assert_int_equal(le32toh(held[0].dw0), 0x00010100);
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(nheld, 1);
	assert_int_equal(cmd(&root, GKV_ADM_GET_LOG_PAGE, 0, 0x01 | 1 << 15, 0), OK);	/* RAE */
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(nheld, 1);
	assert_int_equal(cmd(&root, GKV_ADM_GET_LOG_PAGE, 0, 0x01, 0), OK);
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DOORBELL, GKV_LOG_ERROR);
	assert_int_equal(nheld, 2);
	assert_int_equal(le16toh(held[1].cid), 11);
	/* Health events only when asked for. */
	kvb_admin_event(&root, KVB_EVENT_SMART, 0, GKV_LOG_SMART);
	assert_int_equal(nheld, 2);
	assert_int_equal(set_feature(&root, 0, 0x0b, 1), OK);
	kvb_admin_event(&root, KVB_EVENT_SMART, 0, GKV_LOG_SMART);
	assert_int_equal(nheld, 3);
	assert_int_equal(le32toh(held[2].dw0), 0x00020001);
}

static void test_aer_pending(void **state)
{
	struct gkv_admin_sqe sqe = aer(1);

	(void)state;
	/* A front end that cannot hold: over the limit at once, unless there is an event. */
	assert_int_equal(exec(&user, &sqe), GKV_SC_AER_LIMIT);
	kvb_admin_event(&user, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(exec(&user, &sqe), OK);
	assert_int_equal(le32toh(cqe.dw0), 0x00010100);
	assert_int_equal(exec(&user, &sqe), GKV_SC_AER_LIMIT);
	sqe.cdw10 = htole32(1);
	assert_int_equal(exec(&user, &sqe), BAD_FIELD);
}

static void test_abort(void **state)
{
	struct gkv_admin_sqe sqe = aer(20);

	(void)state;
	assert_int_equal(submit(&root, &sqe), KVB_ADMIN_HELD);
	sqe = aer(21);
	assert_int_equal(submit(&root, &sqe), KVB_ADMIN_HELD);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 20u << 16, 0), OK);
	assert_int_equal(cqe.dw0, 0);
	assert_int_equal(nheld, 1);
	assert_int_equal(le16toh(held[0].cid), 20);
	assert_int_equal(le16toh(held[0].status) >> 1, GKV_SC_ABORT_REQUESTED);
	/* Unknown, or not to be aborted: success, and bit 0 says that it was not. */
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 20u << 16, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 76u << 16 | 2, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 77u << 16 | 2, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(cmd(&user, GKV_ADM_ABORT, 0, 77u << 16 | 2, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 1, 20u << 16, 0), BAD_FIELD);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 20u << 16, 1), BAD_FIELD);
}

static void test_dnr(void **state)
{
	static const uint16_t retry[] = { GKV_SC_SUCCESS, GKV_SC_INTERNAL, GKV_SC_ABORT_REQUESTED,
					  GKV_SC_ABORTED_SQ_DELETION, GKV_SC_TRANSIENT,
					  GKV_SC_ABORT_LIMIT, GKV_SC_AER_LIMIT };
	static const uint16_t final[] = { GKV_SC_INVALID_OPCODE, GKV_SC_INVALID_FIELD,
					  GKV_SC_INVALID_NS, GKV_SC_OPERATION_DENIED,
					  GKV_SC_INVALID_LOG_PAGE, GKV_SC_FEAT_NOT_SAVEABLE,
					  GKV_SC_FEAT_NOT_CHANGEABLE, GKV_SC_FEAT_NOT_NS,
					  GKV_SC_IOCS_COMBINATION, GKV_SC_INVALID_IOCS };

	(void)state;
	for (size_t i = 0; i < sizeof(retry) / sizeof(retry[0]); i++)
		assert_int_equal(kvb_admin_dnr(retry[i]), retry[i]);
	for (size_t i = 0; i < sizeof(final) / sizeof(final[0]); i++)
		assert_int_equal(kvb_admin_dnr(final[i]), final[i] | GKV_DNR);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_id_ctrl), TEST(test_id_ns), TEST(test_id_ns_kv), TEST(test_id_lists),
		TEST(test_id_others), TEST(test_id_refused), TEST(test_opcodes),
		TEST(test_features), TEST(test_feature_values), TEST(test_vwc),
		TEST(test_ednek), TEST(test_log_pages), TEST(test_log_effects),
		TEST(test_log_smart), TEST(test_log_ranges), TEST(test_error_log),
		TEST(test_error_log_threads), TEST(test_aer), TEST(test_aer_pending),
		TEST(test_abort), TEST(test_dnr),
	};
	int ret;

	if (!mkdtemp(dir))
		return 1;
	ret = cmocka_run_group_tests_name("admin", tests, NULL, NULL);
	rmdir(dir);
	return ret;
}
