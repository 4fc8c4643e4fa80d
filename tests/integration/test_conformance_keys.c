/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 300 */
/*
 * Keys, options and statuses, on each store.
 */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "rawclient.h"
#include "suite.h"

/* What fails in which namespace, by the beginning of the key. */
static const char *const rules[] = {
	"store:eio:key=eio store:enospc:key=spc store:edquot:key=quo store:eacces:key=acc "
	"store:erofs:key=rof store:etimedout:key=tim store:efbig:key=big store:enomem:key=mem",
	/* Each key may be stored once before. */
	"store:enospc:key=spc:after=1 store:etimedout:key=tim:after=1 "
	"store:lost:key=lost:after=1",
	"retrieve:eio:key=r delete:eio:key=d exist:eio:key=e store:lost:key=lost",
	NULL,
};

#define NSID_NEW	(SUITE_NSID_FAULTY + 0)
#define NSID_OLD	(SUITE_NSID_FAULTY + 1)
#define NSID_REST	(SUITE_NSID_FAULTY + 2)

static void test_options(struct suite *s)
{
	const uint8_t both = GKV_O_MUST_EXIST | GKV_O_MUST_NOT_EXIST;
	struct suite_key key = suite_key("options");
	struct gkv_comp comp;
	uint16_t st;
	bool ok;

	pattern_fill(s->buf, 3000, 1);
	st = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 3000, GKV_O_MUST_EXIST);
	ok = code(st) == GKV_SC_KEY_NOT_FOUND && dnr(st);
	ok = ok && code(suite_exist(s, SUITE_NSID_MAIN, &key)) == GKV_SC_KEY_NOT_FOUND;
	tap_ok(ok, "%s: must-exist on a missing key: 87h, nothing stored", s->store);

	st = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 3000, both);
	ok = code(st) == GKV_SC_KEY_NOT_FOUND && dnr(st) &&
	     code(suite_exist(s, SUITE_NSID_MAIN, &key)) == GKV_SC_KEY_NOT_FOUND;
	tap_ok(ok, "%s: both options on a missing key: 87h", s->store);

	st = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 3000, GKV_O_MUST_NOT_EXIST);
	tap_ok(st == 0, "%s: must-not-exist creates", s->store);

	st = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 100, GKV_O_MUST_NOT_EXIST);
	ok = code(st) == GKV_SC_KEY_EXISTS && dnr(st);
	st = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 100, both);
	ok = ok && code(st) == GKV_SC_KEY_EXISTS && dnr(st);
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf + 8192, 4096);
	ok = ok && comp.status == 0 && comp.result == 3000 &&
	     pattern_check(s->buf + 8192, 3000, 1);
	tap_ok(ok, "%s: must-not-exist, and both, on a key that exists: 89h, old value stays",
	       s->store);

	pattern_fill(s->buf, 500, 2);
	st = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 500, GKV_O_MUST_EXIST);
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf + 8192, 4096);
	ok = st == 0 && comp.status == 0 && comp.result == 500 &&
	     pattern_check(s->buf + 8192, 500, 2);
	tap_ok(ok, "%s: must-exist replaces", s->store);
}

static void test_misses(struct suite *s)
{
	struct suite_key key = suite_key("nobody");
	struct gkv_comp comp;
	uint16_t st;
	bool ok;

	st = suite_exist(s, SUITE_NSID_MAIN, &key);
	ok = code(st) == GKV_SC_KEY_NOT_FOUND && dnr(st);
	poison(s->buf, 4096);
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 4096);
	ok = ok && code(comp.status) == GKV_SC_KEY_NOT_FOUND && dnr(comp.status) &&
	     poisoned(s->buf, 4096);
	tap_ok(ok, "%s: F86: a missing key is 87h, and no buffer is touched", s->store);
}

/* Feature 20h of the main namespace; returns the status. */
static uint16_t set_ednek(struct suite *s, uint32_t on)
{
	struct gkv_admin_sqe sqe = { .opcode = GKV_ADM_SET_FEATURES };
	struct gkv_cqe cqe = { 0 };
	uint32_t len = 0;

	sqe.nsid = htole32(SUITE_NSID_MAIN);
	sqe.cdw10 = htole32(GKV_FEAT_KV);
	sqe.cdw11 = htole32(on);
	if (gkv_admin(s->g, &sqe, &cqe, s->buf, &len))
		return SUITE_NO_STATUS;
	return (uint16_t)(le16toh(cqe.status) >> 1);
}

static void test_delete(struct suite *s)
{
	struct suite_key key = suite_key("doomed");
	uint16_t st;
	bool ok;

	ok = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 5000, 0) == 0 &&
	     suite_delete(s, SUITE_NSID_MAIN, &key) == 0 &&
	     code(suite_exist(s, SUITE_NSID_MAIN, &key)) == GKV_SC_KEY_NOT_FOUND &&
	     code(suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 10).status) ==
		     GKV_SC_KEY_NOT_FOUND;
	tap_ok(ok, "%s: a deleted key is gone", s->store);

	st = suite_delete(s, SUITE_NSID_MAIN, &key);
	tap_ok(st == 0, "%s: Delete of a missing key succeeds while EDNEK is 0", s->store);
	ok = set_ednek(s, 1) == 0;
	st = suite_delete(s, SUITE_NSID_MAIN, &key);
	ok = ok && code(st) == GKV_SC_KEY_NOT_FOUND && dnr(st);
	ok = ok && suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 1, 0) == 0 &&
	     suite_delete(s, SUITE_NSID_MAIN, &key) == 0;
	tap_ok(ok, "%s: with EDNEK 1 it fails with 87h, and a key that exists is deleted", s->store);
	ok = set_ednek(s, 0) == 0 && suite_delete(s, SUITE_NSID_MAIN, &key) == 0;
	tap_ok(ok, "%s: EDNEK goes back to 0", s->store);
}

/* Keys that differ in length, in NULs or in one byte only. */
static unsigned int odd_keys(struct suite_key *keys)
{
	unsigned int n = 0;

	for (uint8_t len = 1; len <= 16; len++) {
		memset(&keys[n], 0, sizeof(keys[n]));
		keys[n++].len = len;			/* all NULs */
		memset(&keys[n], 0, sizeof(keys[n]));
		keys[n].len = len;
		keys[n].bytes[len - 1] = 1;		/* NULs, then 1 */
		n++;
		memset(&keys[n], 0, sizeof(keys[n]));
		keys[n].len = len;
		memset(keys[n].bytes, 0xff, len);
		n++;
		memset(&keys[n], 0, sizeof(keys[n]));
		keys[n].len = len;
		memset(keys[n].bytes, 'k', len);	/* prefixes of each other */
		n++;
	}
	return n;
}

static void test_binary_keys(struct suite *s)
{
	struct suite_key keys[64];
	unsigned int n = odd_keys(keys);
	struct gkv_comp comp;
	bool ok = true;

	for (unsigned int i = 0; i < n && ok; i++) {
		pattern_fill(s->buf, 20 + i, i);
		ok = suite_store(s, SUITE_NSID_MAIN, &keys[i], s->buf, 20 + i,
				 GKV_O_MUST_NOT_EXIST) == 0;
	}
	for (unsigned int i = 0; i < n && ok; i++) {
		comp = suite_retrieve(s, SUITE_NSID_MAIN, &keys[i], s->buf, 4096);
		ok = comp.status == 0 && comp.result == 20 + i && pattern_check(s->buf, 20 + i, i);
	}
	for (unsigned int i = 0; i < n && ok; i += 2)
		ok = suite_delete(s, SUITE_NSID_MAIN, &keys[i]) == 0;
	for (unsigned int i = 0; i < n && ok; i++) {
		uint16_t st = suite_exist(s, SUITE_NSID_MAIN, &keys[i]);

		ok = i % 2 ? st == 0 : code(st) == GKV_SC_KEY_NOT_FOUND;
	}
	tap_ok(ok, "%s: F81: %u binary keys of 1 to 16 bytes, NULs included, are all distinct",
	       s->store, n);
}

/* Namespaces share nothing but the daemon. */
static void test_namespaces(struct suite *s)
{
	struct suite_key key = suite_key("everywhere");
	struct gkv_comp a, b;
	uint16_t st;
	bool ok;

	pattern_fill(s->buf, 100, 1);
	pattern_fill(s->buf + 4096, 200, 2);
	ok = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 100, 0) == 0 &&
	     code(suite_exist(s, SUITE_NSID_OTHER, &key)) == GKV_SC_KEY_NOT_FOUND &&
	     suite_store(s, SUITE_NSID_OTHER, &key, s->buf + 4096, 200, 0) == 0;
	a = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 4096);
	ok = ok && a.status == 0 && a.result == 100 && pattern_check(s->buf, 100, 1);
	b = suite_retrieve(s, SUITE_NSID_OTHER, &key, s->buf, 4096);
	ok = ok && b.status == 0 && b.result == 200 && pattern_check(s->buf, 200, 2);
	ok = ok && suite_delete(s, SUITE_NSID_OTHER, &key) == 0 &&
	     suite_exist(s, SUITE_NSID_MAIN, &key) == 0;
	tap_ok(ok, "%s: F113: one key in two namespaces is two keys", s->store);

	st = suite_store(s, SUITE_NSID_FROZEN, &key, s->buf, 100, 0);
	ok = code(st) == GKV_SC_WRITE_PROTECTED && dnr(st);
	st = suite_delete(s, SUITE_NSID_FROZEN, &key);
	ok = ok && code(st) == GKV_SC_WRITE_PROTECTED && dnr(st);
	st = suite_exist(s, SUITE_NSID_FROZEN, &key);
	ok = ok && code(st) == GKV_SC_KEY_NOT_FOUND;
	tap_ok(ok, "%s: a read-only namespace refuses Store and Delete with 20h", s->store);
}

/* F71, F79: what failed is not there; what was there before stays. */
static void test_failed_stores(struct suite *s)
{
	static const struct {
		const char *name;
		uint16_t status;
		bool dnr;
	} fresh[] = {
		{ "spc", GKV_SC_CAPACITY, false },
		{ "quo", GKV_SC_CAPACITY, false },
		{ "acc", GKV_SC_ACCESS_DENIED, true },
		{ "rof", GKV_SC_WRITE_PROTECTED, true },
		{ "tim", GKV_SC_TRANSIENT, false },
		{ "big", GKV_SC_VALUE_SIZE, true },
		{ "mem", GKV_SC_INTERNAL, false },
	}, old[] = {
		{ "spc", GKV_SC_CAPACITY, false },
		{ "tim", GKV_SC_TRANSIENT, false },
		{ "lost", GKV_SC_TRANSIENT, false },
	};
	struct gkv_comp comp;
	struct suite_key key;
	bool ok = true;
	uint16_t st;

	key = suite_key("eio");
	st = suite_store(s, NSID_NEW, &key, s->buf, 9000, 0);
	ok = st != 0 && st != SUITE_NO_STATUS &&
	     code(suite_exist(s, NSID_NEW, &key)) == GKV_SC_KEY_NOT_FOUND;
	for (size_t i = 0; i < sizeof(fresh) / sizeof(fresh[0]); i++) {
		bool right;

		key = suite_key("%s", fresh[i].name);
		st = suite_store(s, NSID_NEW, &key, s->buf, 9000, 0);
		right = code(st) == fresh[i].status && dnr(st) == fresh[i].dnr;
		comp = suite_retrieve(s, NSID_NEW, &key, s->buf + 16384, 9000);
		right = right && code(comp.status) == GKV_SC_KEY_NOT_FOUND &&
			code(suite_exist(s, NSID_NEW, &key)) == GKV_SC_KEY_NOT_FOUND;
		if (!right)
			tap_diag("%s: Store %x, then Retrieve %x", fresh[i].name, st, comp.status);
		ok = ok && right;
	}
	tap_ok(ok, "%s: F71, F87: a failed Store of a new key has its status, and is 87h after",
	       s->store);

	ok = true;
	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		bool right;

		key = suite_key("%s", old[i].name);
		pattern_fill(s->buf, 7000, i);
		right = suite_store(s, NSID_OLD, &key, s->buf, 7000, 0) == 0;
		pattern_fill(s->buf, 9000, i + 50);
		st = suite_store(s, NSID_OLD, &key, s->buf, 9000, 0);
		right = right && code(st) == old[i].status && dnr(st) == old[i].dnr;
		comp = suite_retrieve(s, NSID_OLD, &key, s->buf + 16384, 16384);
		right = right && comp.status == 0 && comp.result == 7000 &&
			pattern_check(s->buf + 16384, 7000, i);
		if (!right)
			tap_diag("%s: Store %x, then Retrieve %x, %u bytes", old[i].name, st,
				 comp.status, comp.result);
		ok = ok && right;
	}
	tap_ok(ok, "%s: F71: a failed Store of an old key leaves the old value", s->store);

	key = suite_key("r-eio");
	ok = suite_store(s, NSID_REST, &key, s->buf, 100, 0) == 0;
	comp = suite_retrieve(s, NSID_REST, &key, s->buf, 4096);
	ok = ok && code(comp.status) == GKV_SC_UNRECOVERED;
	key = suite_key("d-eio");
	ok = ok && suite_store(s, NSID_REST, &key, s->buf, 100, 0) == 0 &&
	     suite_delete(s, NSID_REST, &key) != 0 &&
	     suite_exist(s, NSID_REST, &key) == 0;
	key = suite_key("e-eio");
	st = suite_exist(s, NSID_REST, &key);
	ok = ok && st && st != SUITE_NO_STATUS && code(st) != GKV_SC_KEY_NOT_FOUND;
	key = suite_key("lost");
	st = suite_store(s, NSID_REST, &key, s->buf, 9000, 0);
	ok = ok && code(st) == GKV_SC_TRANSIENT && !dnr(st) &&
	     code(suite_exist(s, NSID_REST, &key)) == GKV_SC_KEY_NOT_FOUND;
	tap_ok(ok, "%s: F77, F88, F92: errors of the other commands are statuses, not 87h",
	       s->store);
}

/* ---- Commands that libgkv would not send ---- */

static void spoil_fuse(struct gkv_sqe *q)
{
	q->flags |= 1;
}

static void spoil_psdt(struct gkv_sqe *q)
{
	q->flags = 3 << GKV_SQE_PSDT_SHIFT;
}

static void spoil_options(struct gkv_sqe *q)
{
	q->options = 0x80;
}

static void spoil_csum(struct gkv_sqe *q)
{
	q->cdw13 = htole32(GKV_CDW13_CSUM_VALID);
}

static void spoil_address(struct gkv_sqe *q)
{
	q->dptr.sgl.addr = htole64(0xdead000000000000u);
}

static void spoil_region_end(struct gkv_sqe *q)
{
	q->dptr.sgl.addr = htole64(le64toh(q->dptr.sgl.addr) + RAW_DATA_LEN - 8);
}

static void spoil_sgl_type(struct gkv_sqe *q)
{
	q->dptr.sgl.type = 0x70;
}

static void spoil_sgl_length(struct gkv_sqe *q)
{
	q->dptr.sgl.len = htole32(le32toh(q->cdw10) - 1);
}

static void spoil_prp2(struct gkv_sqe *q)
{
	/* Two pages by PRP: the second one's address has an offset. */
	uint64_t iova = le64toh(q->dptr.sgl.addr);

	q->flags = 0;
	q->dptr.prp.prp1 = htole64(iova);
	q->dptr.prp.prp2 = htole64(iova + 4096 + 8);
	q->cdw10 = htole32(8192);
}

static void spoil_prp1_region(struct gkv_sqe *q)
{
	q->flags = 0;
	q->dptr.prp.prp1 = htole64(0x1000);
	q->dptr.prp.prp2 = 0;
}

static const struct bad {
	const char *what;
	uint8_t opcode;
	uint32_t nsid;
	uint8_t klen;
	uint32_t len;
	void (*spoil)(struct gkv_sqe *q);
	uint16_t status;
} bad_commands[] = {
	{ "opcode 03h", 0x03, 1, 4, 16, NULL, GKV_SC_INVALID_OPCODE },
	{ "opcode 0dh", 0x0d, 1, 4, 16, NULL, GKV_SC_INVALID_OPCODE },
	{ "opcode 7fh", 0x7f, 1, 4, 16, NULL, GKV_SC_INVALID_OPCODE },
	{ "opcode ffh", 0xff, 1, 4, 16, NULL, GKV_SC_INVALID_OPCODE },
	{ "Store, key of 17 bytes", GKV_OP_STORE, 1, 17, 16, NULL, GKV_SC_INVALID_FIELD },
	{ "Retrieve, key of 17 bytes", GKV_OP_RETRIEVE, 1, 17, 16, NULL, GKV_SC_INVALID_FIELD },
	{ "Delete, key of 17 bytes", GKV_OP_DELETE, 1, 17, 0, NULL, GKV_SC_INVALID_FIELD },
	{ "Exist, key of 255 bytes", GKV_OP_EXIST, 1, 255, 0, NULL, GKV_SC_INVALID_FIELD },
	{ "List, key of 17 bytes", GKV_OP_LIST, 1, 17, 4096, NULL, GKV_SC_INVALID_FIELD },
	{ "Store, no key", GKV_OP_STORE, 1, 0, 16, NULL, GKV_SC_KEY_SIZE },
	{ "Retrieve, no key", GKV_OP_RETRIEVE, 1, 0, 16, NULL, GKV_SC_KEY_SIZE },
	{ "Delete, no key", GKV_OP_DELETE, 1, 0, 0, NULL, GKV_SC_KEY_SIZE },
	{ "Exist, no key", GKV_OP_EXIST, 1, 0, 0, NULL, GKV_SC_KEY_SIZE },
	{ "Store, namespace 0", GKV_OP_STORE, 0, 4, 16, NULL, GKV_SC_INVALID_NS },
	{ "Exist, namespace 0", GKV_OP_EXIST, 0, 4, 0, NULL, GKV_SC_INVALID_NS },
	{ "Exist, namespace past the last", GKV_OP_EXIST, 70000, 4, 0, NULL, GKV_SC_INVALID_NS },
	{ "Store, all namespaces", GKV_OP_STORE, GKV_NSID_ALL, 4, 16, NULL, GKV_SC_INVALID_FIELD },
	{ "List, all namespaces", GKV_OP_LIST, GKV_NSID_ALL, 0, 64, NULL, GKV_SC_INVALID_FIELD },
	{ "fused Store", GKV_OP_STORE, 1, 4, 16, spoil_fuse, GKV_SC_INVALID_FIELD },
	{ "reserved PSDT", GKV_OP_STORE, 1, 4, 16, spoil_psdt, GKV_SC_INVALID_FIELD },
	{ "reserved store option", GKV_OP_STORE, 1, 4, 16, spoil_options, GKV_SC_INVALID_FIELD },
	{ "reserved retrieve option", GKV_OP_RETRIEVE, 1, 4, 16, spoil_options,
	  GKV_SC_INVALID_FIELD },
	{ "checksum that was not negotiated", GKV_OP_STORE, 1, 4, 16, spoil_csum,
	  GKV_SC_INVALID_FIELD },
	{ "List into 3 bytes", GKV_OP_LIST, 1, 0, 3, NULL, GKV_SC_INVALID_FIELD },
	{ "value above the limit", GKV_OP_STORE, 1, 4, SUITE_VALUE_MAX + 1, NULL,
	  GKV_SC_VALUE_SIZE },
	{ "value of 4 GiB - 1", GKV_OP_STORE, 1, 4, UINT32_MAX, NULL, GKV_SC_VALUE_SIZE },
	{ "SGL address in no region", GKV_OP_STORE, 1, 4, 16, spoil_address,
	  GKV_SC_DATA_TRANSFER },
	{ "SGL that runs out of its region", GKV_OP_STORE, 1, 4, 16, spoil_region_end,
	  GKV_SC_DATA_TRANSFER },
	{ "SGL descriptor type 7", GKV_OP_STORE, 1, 4, 16, spoil_sgl_type, GKV_SC_SGL_TYPE },
	{ "SGL shorter than the value", GKV_OP_STORE, 1, 4, 16, spoil_sgl_length,
	  GKV_SC_SGL_LENGTH },
	{ "PRP2 with an offset", GKV_OP_STORE, 1, 4, 16, spoil_prp2, GKV_SC_PRP_OFFSET },
	{ "PRP1 in no region", GKV_OP_STORE, 1, 4, 16, spoil_prp1_region, GKV_SC_DATA_TRANSFER },
};

static void test_bad_commands(struct suite *s)
{
	static const uint8_t key[16] = "badkbadkbadkbadk";
	struct gkv_sqe sqe;
	struct raw_qp qp;
	struct raw raw;
	uint32_t dw0;
	uint16_t st;
	int ret;

	ret = raw_open(&raw, s->rig.socket);
	ret = ret ? ret : raw_ns_open(&raw, SUITE_NSID_MAIN, 0);
	ret = ret ? ret : raw_data(&raw, 0x7000000000);
	ret = ret ? ret : raw_qp_open(&raw, &qp, 1, 64, 0);
	if (!tap_ok(ret == 0, "%s: a client without libgkv gets a queue pair", s->store)) {
		tap_diag("error %d: %s", ret, raw.text);
		return;
	}
	for (size_t i = 0; i < sizeof(bad_commands) / sizeof(bad_commands[0]); i++) {
		const struct bad *b = &bad_commands[i];

		raw_sqe(&raw, &sqe, b->opcode, b->nsid, key, b->klen, b->len);
		if (b->spoil)
			b->spoil(&sqe);
		st = raw_exec(&raw, &qp, &sqe, NULL);
		if (!tap_ok(code(st) == b->status && dnr(st), "%s: %s: %02xh, DNR", s->store,
			    b->what, b->status & 0xff))
			tap_diag("status is %x", st);
	}
	/* None of them stored anything, and the queue goes on. */
	raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, key, 4, 0);
	st = raw_exec(&raw, &qp, &sqe, NULL);
	tap_ok(code(st) == GKV_SC_KEY_NOT_FOUND, "%s: no refused Store left anything", s->store);

	raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_OTHER, key, 4, 0);
	st = raw_exec(&raw, &qp, &sqe, NULL);
	tap_ok(st != 0 && st != SUITE_NO_STATUS && code(st) != GKV_SC_KEY_NOT_FOUND,
	       "%s: a namespace that was not opened is refused", s->store);

	raw_sqe(&raw, &sqe, GKV_OP_FLUSH, SUITE_NSID_MAIN, NULL, 0, 0);
	st = raw_exec(&raw, &qp, &sqe, NULL);
	tap_ok(st == 0, "%s: Flush succeeds", s->store);

	/* Key bytes past the key's length are nobody's. */
	raw_sqe(&raw, &sqe, GKV_OP_STORE, SUITE_NSID_MAIN, key, 16, 16);
	sqe.klen = 4;
	st = raw_exec(&raw, &qp, &sqe, &dw0);
	raw_sqe(&raw, &sqe, GKV_OP_RETRIEVE, SUITE_NSID_MAIN, key, 4, 64);
	tap_ok(st == 0 && dw0 == 0 && raw_exec(&raw, &qp, &sqe, &dw0) == 0 && dw0 == 16,
	       "%s: key bytes past KL do not count; DW0 is 0 for Store, the length for Retrieve",
	       s->store);
	raw_sqe(&raw, &sqe, GKV_OP_DELETE, SUITE_NSID_MAIN, key, 4, 0);
	raw_exec(&raw, &qp, &sqe, NULL);
	raw_close(&raw);
	raw_qp_free(&qp);
}

int main(void)
{
	const char *store;

	while ((store = suite_next_store())) {
		struct suite s;

		suite_start(&s, store, rules);
		test_misses(&s);
		test_options(&s);
		test_delete(&s);
		test_binary_keys(&s);
		test_namespaces(&s);
		test_failed_stores(&s);
		test_bad_commands(&s);
		suite_stop(&s);
	}
	return tap_done();
}
