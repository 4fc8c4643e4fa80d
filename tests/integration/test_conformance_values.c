/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 600 */
/*
 * Values of every size, however their buffers are described, on each store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

#define MIB (1u << 20)

/* Store and retrieve one value through @qp; true when every byte is right. */
static bool round_trip(struct suite *s, struct gkv_qp *qp, const struct suite_key *key,
		       uint32_t len, size_t src_off, size_t dst_off, uint64_t seed)
{
	uint8_t *src = s->buf + src_off, *dst = s->buf + SUITE_VALUE_MAX + MIB / 2 + dst_off;
	struct gkv_comp comp;
	struct gkv_cmd cmd;

	pattern_fill(src, len, seed);
	suite_cmd(&cmd, GKV_STORE, SUITE_NSID_MAIN, key);
	cmd.buf = src;
	cmd.len = len;
	comp = suite_run(qp, &cmd);
	if (comp.status || comp.result) {
		tap_diag("store of %u bytes: status %x, result %u", len, comp.status, comp.result);
		return false;
	}
	poison(dst, len + 64);
	suite_cmd(&cmd, GKV_RETRIEVE, SUITE_NSID_MAIN, key);
	cmd.buf = dst;
	cmd.len = len + 64;
	comp = suite_run(qp, &cmd);
	if (comp.status || comp.result != len) {
		tap_diag("retrieve of %u bytes: status %x, result %u", len, comp.status,
			 comp.result);
		return false;
	}
	return pattern_check(dst, len, seed) && poisoned(dst + len, 64);
}

static void test_every_size(struct suite *s, uint32_t flags, const char *how)
{
	struct gkv_qp *qp = suite_qp(s, 8, flags, 1);
	struct suite_key key = suite_key("size");
	bool ok = true;

	for (uint32_t len = 1; len <= 4097 && ok; len++)
		ok = round_trip(s, qp, &key, len, 0, 0, len);
	tap_ok(ok, "%s: F29: every size from 1 to 4097, %s", s->store, how);
	gkv_qp_destroy(qp);
}

static void test_sizes(struct suite *s, uint32_t flags, const char *how)
{
	static const uint32_t sizes[] = {
		4098, 8191, 8192, 8193, 12288, 65535, 65536, 65537, 131071, 131072, 131073,
		1000003, MIB - 1, MIB, MIB + 1, 2 * MIB + 1, 4 * MIB, 7654321, 16 * MIB + 511,
		33554393, 32 * MIB, SUITE_VALUE_MAX - 4097, SUITE_VALUE_MAX - 1, SUITE_VALUE_MAX,
	};
	struct gkv_qp *qp = suite_qp(s, 8, flags, 1);
	struct suite_key key = suite_key("large");
	bool ok = true;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && ok; i++)
		ok = round_trip(s, qp, &key, sizes[i], 0, 0, i);
	tap_ok(ok, "%s: F26: odd and large sizes to 64 MiB, %s", s->store, how);
	gkv_qp_destroy(qp);
}

static void test_offsets(struct suite *s, uint32_t flags, const char *how)
{
	/* PRP1 is dword aligned by the standard, an SGL starts anywhere. */
	static const uint16_t offs[] = { 0, 4, 8, 60, 64, 508, 512, 516, 2048, 4092, 1, 3, 511, 4095 };
	static const uint32_t lens[] = { 1, 63, 64, 127, 512, 4096, 4097, 8192, 20000, 300001 };
	size_t n = flags & GKV_QP_PRP ? 10 : sizeof(offs) / sizeof(offs[0]);
	struct gkv_qp *qp = suite_qp(s, 8, flags, 1);
	struct suite_key key = suite_key("offset");
	bool ok = true;

	for (size_t i = 0; i < n && ok; i++) {
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]) && ok; k++)
			ok = round_trip(s, qp, &key, lens[k], offs[i], offs[(i * 5 + k) % n], i * 64 + k);
		if (!ok)
			tap_diag("buffer at offset %u", offs[i]);
	}
	tap_ok(ok, "%s: F28: unaligned starts and lengths, %s", s->store, how);
	gkv_qp_destroy(qp);
}

static void test_empty(struct suite *s)
{
	struct suite_key key = suite_key("empty");
	struct gkv_comp comp;
	bool ok;

	/* VS = 0 must not touch the data pointer: there is none. */
	ok = suite_store(s, SUITE_NSID_MAIN, &key, NULL, 0, 0) == 0;
	ok = ok && suite_exist(s, SUITE_NSID_MAIN, &key) == 0;
	poison(s->buf, 4096);
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 4096);
	ok = ok && comp.status == 0 && comp.result == 0 && poisoned(s->buf, 4096);
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, NULL, 0);
	ok = ok && comp.status == 0 && comp.result == 0;
	tap_ok(ok, "%s: a value of 0 bytes exists and is empty", s->store);

	pattern_fill(s->buf, 5000, 1);
	ok = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 5000, 0) == 0;
	ok = ok && suite_store(s, SUITE_NSID_MAIN, &key, NULL, 0, 0) == 0;
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 4096);
	ok = ok && comp.status == 0 && comp.result == 0;
	tap_ok(ok, "%s: a value is replaced by one of 0 bytes", s->store);
}

static void test_short_buffers(struct suite *s, uint32_t flags, const char *how)
{
	struct gkv_qp *qp = suite_qp(s, 4, flags, 1);
	static const uint32_t lens[] = { 1, 100, 512, 4096, 4097, 10000, 65536, 1000001 };
	struct suite_key key = suite_key("short");
	bool ok = true;

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]) && ok; i++) {
		const uint32_t len = lens[i];
		const uint32_t hbs[] = { 0, 1, len / 2, len - 1, len, len + 1, len + 5000,
					 3 * MIB + 77 };

		pattern_fill(s->buf, len, i + 77);
		ok = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, len, 0) == 0;
		for (size_t k = 0; k < sizeof(hbs) / sizeof(hbs[0]) && ok; k++) {
			uint8_t *dst = s->buf + 8 * MIB;
			uint32_t got = hbs[k] < len ? hbs[k] : len;
			size_t room = hbs[k] + 16384;
			struct gkv_comp comp;
			struct gkv_cmd cmd;

			poison(dst, room);
			suite_cmd(&cmd, GKV_RETRIEVE, SUITE_NSID_MAIN, &key);
			cmd.buf = hbs[k] ? dst : NULL;
			cmd.len = hbs[k];
			comp = suite_run(qp, &cmd);
			ok = comp.status == 0 && comp.result == len &&
			     pattern_check(dst, got, i + 77) &&
			     poisoned(dst + got, room - got);
			if (!ok)
				tap_diag("value of %u bytes into %u: status %x, result %u", len,
					 hbs[k], comp.status, comp.result);
		}
	}
	tap_ok(ok, "%s: F7, F73: short, exact, longer and no buffer, %s: true length, nothing past",
	       s->store, how);
	gkv_qp_destroy(qp);
}

/* A value scattered over @n pieces of uneven length that lie in backward order. */
static bool scattered(struct suite *s, struct gkv_qp *qp, uint32_t n, uint64_t seed)
{
	struct suite_key key = suite_key("scattered");
	struct gkv_seg *segs = calloc(n, sizeof(*segs));
	uint8_t *plain = s->buf + 64 * MIB, *area = s->buf;
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	uint32_t len = 0;
	bool ok;

	for (uint32_t i = 0; i < n; i++) {
		segs[i].len = 1 + (i * 2654435761u + (uint32_t)seed) % 9000;
		segs[i].addr = area + (size_t)(n - 1 - i) * 9100 + (i * 7) % 64;
		len += (uint32_t)segs[i].len;
	}
	pattern_fill(plain, len, seed);
	for (uint32_t i = 0, off = 0; i < n; off += (uint32_t)segs[i].len, i++)
		memcpy(segs[i].addr, plain + off, segs[i].len);

	suite_cmd(&cmd, GKV_STORE, SUITE_NSID_MAIN, &key);
	cmd.segs = segs;
	cmd.nsegs = n;
	cmd.len = len;
	comp = suite_run(qp, &cmd);
	ok = comp.status == 0;

	poison(area, (size_t)n * 9100 + 64);
	cmd.opcode = GKV_RETRIEVE;
	comp = suite_run(qp, &cmd);
	ok = ok && comp.status == 0 && comp.result == len;
	for (uint32_t i = 0, off = 0; i < n && ok; off += (uint32_t)segs[i].len, i++) {
		ok = !memcmp(segs[i].addr, plain + off, segs[i].len) &&
		     poisoned((uint8_t *)segs[i].addr + segs[i].len, 32);
	}
	if (!ok)
		tap_diag("%u pieces, %u bytes: status %x, result %u", n, len, comp.status,
			 comp.result);
	free(segs);
	return ok;
}

static void test_scattered(struct suite *s)
{
	static const uint32_t counts[] = { 1, 2, 3, 5, 16, 63, 64, 255, 256, 257, 1000 };
	struct gkv_qp *qp = suite_qp(s, 4, 0, 1000);
	bool ok = true;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && ok; i++)
		ok = scattered(s, qp, counts[i], i + 1);
	tap_ok(ok, "%s: scatter lists of 1 to 1,000 pieces, unaligned", s->store);
	gkv_qp_destroy(qp);
}

static void test_checksums(struct suite *s)
{
	struct gkv_qp *qp = suite_qp(s, 8, GKV_QP_CSUM, 1);
	static const uint32_t lens[] = { 0, 1, 9, 4096, 70001, 3 * MIB };
	struct suite_key key = suite_key("checksum");
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	bool ok = true;

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]) && ok; i++) {
		uint32_t crc;

		pattern_fill(s->buf, lens[i], i);
		crc = gkv_crc32c(0, s->buf, lens[i]);
		suite_cmd(&cmd, GKV_STORE, SUITE_NSID_MAIN, &key);
		cmd.buf = s->buf;
		cmd.len = lens[i];
		cmd.crc = crc;
		ok = suite_run(qp, &cmd).status == 0;
		cmd.opcode = GKV_RETRIEVE;
		cmd.crc = 0;
		cmd.buf = s->buf + 4 * MIB;
		comp = suite_run(qp, &cmd);
		ok = ok && comp.status == 0 && comp.result == lens[i] &&
		     (comp.flags & GKV_C_CRC) && comp.crc == crc;
		if (!ok)
			tap_diag("%u bytes: status %x, flags %x, crc %08x, not %08x", lens[i],
				 comp.status, comp.flags, comp.crc, crc);
	}
	tap_ok(ok, "%s: F70: the checksum travels both ways", s->store);

	/* A wrong one means the bytes are not those that were meant: nothing is stored. */
	suite_cmd(&cmd, GKV_STORE, SUITE_NSID_MAIN, &key);
	cmd.buf = s->buf;
	cmd.len = 4096;
	cmd.crc = gkv_crc32c(0, s->buf, 4096) ^ 1;
	comp = suite_run(qp, &cmd);
	ok = comp.status != 0 && comp.status != SUITE_NO_STATUS;
	comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 4096);
	ok = ok && comp.status == 0 && comp.result == 3 * MIB;
	tap_ok(ok, "%s: F70: a Store with a wrong checksum fails and leaves the old value",
	       s->store);
	gkv_qp_destroy(qp);
}

static void test_replaced(struct suite *s)
{
	struct suite_key key = suite_key("replaced");
	static const uint32_t lens[] = { 10, 5000, 100, 300000, 1, 4096, 0, 65536 };
	bool ok = true;

	for (unsigned int i = 0; i < 200 && ok; i++)
		ok = round_trip(s, s->qp, &key, lens[i % 8], 0, 0, i);
	tap_ok(ok, "%s: a value replaced 200 times, longer and shorter", s->store);
}

/* F75: what was acknowledged is there after the daemon was stopped, and after a kill. */
static void test_restart(struct suite *s)
{
	static const uint32_t lens[] = { 0, 1, 511, 4096, 4097, 65536, 1000000, 5 * MIB + 3 };
	bool persistent = strcmp(s->store, "mem");
	uint64_t handovers = gkv_reconnects(s->g);
	struct suite_key key;
	bool ok = true;

	for (unsigned int i = 0; i < 64 && ok; i++) {
		uint32_t len = lens[i % 8];

		key = suite_key("kept%u", i);
		pattern_fill(s->buf, len, 1000 + i);
		ok = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, len, 0) == 0;
	}
	for (int round = 0; round < 2 && ok; round++) {
		if (round == 0)
			rig_stop(&s->rig, 30);
		else
			rig_kill(&s->rig);
		rig_start(&s->rig);
		suite_reconnected(s, ++handovers);
		for (unsigned int i = 0; i < 64 && ok; i++) {
			uint32_t len = lens[i % 8];
			struct gkv_comp comp;

			key = suite_key("kept%u", i);
			comp = suite_retrieve(s, SUITE_NSID_MAIN, &key, s->buf, 6 * MIB);
			if (persistent)
				ok = comp.status == 0 && comp.result == len &&
				     pattern_check(s->buf, len, 1000 + i);
			else
				ok = code(comp.status) == GKV_SC_KEY_NOT_FOUND;
			if (!ok)
				tap_diag("round %d, key kept%u: status %x, result %u", round, i,
					 comp.status, comp.result);
		}
	}
	tap_ok(ok, "%s: F75: %s", s->store,
	       persistent ? "values persist over a stop and over SIGKILL" :
			    "a volatile store is empty after a restart, and the session lives on");
	/* And it is a working store. */
	key = suite_key("after");
	tap_ok(round_trip(s, s->qp, &key, 70000, 0, 0, 5), "%s: the session works after restarts",
	       s->store);
}

int main(void)
{
	const char *store;

	while ((store = suite_next_store())) {
		struct suite s;

		suite_start(&s, store, NULL);
		tap_ok(s.ns.value_max == SUITE_VALUE_MAX, "%s: the value limit is the configured one",
		       s.store);
		test_empty(&s);
		test_every_size(&s, 0, "SGL");
		test_every_size(&s, GKV_QP_PRP, "PRP");
		test_offsets(&s, 0, "SGL");
		test_offsets(&s, GKV_QP_PRP, "PRP");
		test_sizes(&s, 0, "SGL");
		test_sizes(&s, GKV_QP_PRP, "PRP");
		test_scattered(&s);
		test_short_buffers(&s, 0, "SGL");
		test_short_buffers(&s, GKV_QP_PRP, "PRP");
		test_checksums(&s);
		test_replaced(&s);
		test_restart(&s);
		suite_stop(&s);
	}
	return tap_done();
}
