/* SPDX-License-Identifier: MIT */
/* SGL descriptors and segments, compared with a second walker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dptr_model.h"

static struct gkv_sqe sgl(uint64_t addr, uint32_t len, uint8_t type)
{
	struct gkv_sqe s;

	memset(&s, 0, sizeof(s));
	s.flags = rnd(2) ? 0x40 : 0x80;
	s.dptr.sgl.addr = addr;
	s.dptr.sgl.len = len;
	s.dptr.sgl.type = type;
	return s;
}

static void test_sgl_inline(void **state)
{
	(void)state;
	for (uint32_t len = 0; len <= 4097; len++) {
		uint64_t addr = layout[A].iova + len * 3;
		struct gkv_sqe s = sgl(addr, len, GKV_SGL_DATA_BLOCK);

		assert_int_equal(check(&s, len, true), 0);
		assert_int_equal(check(&s, len + 1, true), GKV_SC_SGL_LENGTH);
		s = sgl(addr, len + 1, GKV_SGL_DATA_BLOCK);
		assert_int_equal(check(&s, len, false), 0);
	}
	/* Over the borders of A, B and C, and no further. */
	for (uint32_t len = 80 * PG - 2; len <= 80 * PG + 2; len++) {
		struct gkv_sqe s = sgl(layout[A].iova, len, GKV_SGL_DATA_BLOCK);

		assert_int_equal(check(&s, len, true), len <= 80 * PG ? 0 : BAD);
		/* Only what is transferred must be there. */
		assert_int_equal(check(&s, 80 * PG - 2, true), 0);
	}
}

static void test_sgl_types(void **state)
{
	(void)state;
	for (unsigned int type = 0; type < 256; type++) {
		struct gkv_sqe s = sgl(layout[A].iova, 16, type);
		bool seg = type == 0x20 || type == 0x30;

		put_desc(layout[A].iova, layout[C].iova, 8, 0);
		assert_int_equal(check(&s, 8, true), type == 0 || seg ? 0 : GKV_SC_SGL_TYPE);

		put_desc(layout[A].iova, layout[C].iova, 16, type);
		put_desc(layout[A].iova + 16, layout[C].iova, 16, 0);
		s = sgl(layout[A].iova, 32, GKV_SGL_LAST_SEGMENT);
		assert_int_equal(check(&s, 24, true), type == 0 || type == 0x10 ? 0 :
				 seg ? GKV_SC_SGL_SEGMENT : GKV_SC_SGL_TYPE);
		s = sgl(layout[A].iova, 32, GKV_SGL_SEGMENT);
		assert_int_equal(check(&s, 24, true), type == 0 || type == 0x10 ? 0 :
				 seg ? GKV_SC_SGL_COUNT : GKV_SC_SGL_TYPE);
	}
}

static void test_sgl_segment_form(void **state)
{
	uint64_t at = layout[A].iova;

	(void)state;
	for (uint32_t len = 0; len < 80; len++) {
		struct gkv_sqe s = sgl(at, len, GKV_SGL_LAST_SEGMENT);

		for (int i = 0; i < 5; i++)
			put_desc(at + 16 * i, layout[C].iova, 1, 0);
		assert_int_equal(check(&s, 1, true), len && len % 16 == 0 ? 0 :
				 GKV_SC_SGL_SEGMENT);
	}
	for (uint64_t off = 0; off < 16; off++) {
		struct gkv_sqe s = sgl(at + off, 16, GKV_SGL_SEGMENT);

		put_desc(at, layout[C].iova, 1, 0);
		if (off == 8)
			put_desc(at + 8, layout[C].iova, 1, 0);
		assert_int_equal(check(&s, 1, true), off % 8 ? GKV_SC_SGL_SEGMENT : 0);
	}
	/* A descriptor may lie across two regions. */
	at = layout[B].iova - 8;
	put_desc(at, layout[C].iova + 3, 77, 0);
	{
		struct gkv_sqe s = sgl(at, 16, GKV_SGL_LAST_SEGMENT);

		assert_int_equal(check(&s, 77, true), 0);
	}
	/* ... but not out of the last one. */
	at = layout[C].iova + 20 * PG - 8;
	{
		struct gkv_sqe s = sgl(at, 16, GKV_SGL_LAST_SEGMENT);

		assert_int_equal(check(&s, 77, true), BAD);
	}
}

static void test_sgl_overflow(void **state)
{
	struct gkv_sqe s;

	(void)state;
	s = sgl(0 - 16ull, 16, GKV_SGL_DATA_BLOCK);
	assert_int_equal(check(&s, 16, true), 0);
	s = sgl(0 - 16ull, 17, GKV_SGL_DATA_BLOCK);
	assert_int_equal(check(&s, 16, true), GKV_SC_SGL_LENGTH);
	s = sgl(~0ull, UINT32_MAX, GKV_SGL_DATA_BLOCK);
	assert_int_equal(check(&s, 1, true), GKV_SC_SGL_LENGTH);
	put_desc(0 - 16ull, layout[A].iova, 5, 0);
	s = sgl(0 - 16ull, 16, GKV_SGL_LAST_SEGMENT);
	assert_int_equal(check(&s, 5, true), 0);
	s = sgl(0 - 16ull, 32, GKV_SGL_LAST_SEGMENT);
	assert_int_equal(check(&s, 5, true), GKV_SC_SGL_LENGTH);
}

static void test_sgl_bucket(void **state)
{
	uint64_t at = layout[A].iova;
	struct gkv_sqe s = sgl(at, 5 * 16, GKV_SGL_LAST_SEGMENT);
	struct iovec first[8];
	struct kvb_segs out;

	(void)state;
	put_desc(at, layout[C].iova, 10, 0);
	put_desc(at + 16, ~0ull, 20, GKV_SGL_BIT_BUCKET);
	put_desc(at + 32, 0, 0, GKV_SGL_BIT_BUCKET);
	put_desc(at + 48, 0, 30, GKV_SGL_BIT_BUCKET);
	put_desc(at + 64, layout[C].iova + 10, 40, 0);
	for (uint32_t len = 0; len <= 100; len++) {
		assert_int_equal(check(&s, len, true), 0);
		assert_int_equal(check(&s, len, false), len <= 50 ? 0 : GKV_SC_SGL_LENGTH);
	}
	kvb_segs_init(&out, first, 8);
	assert_int_equal(kvb_dptr_walk(&s, table, 100, true, &out), 0);
	assert_int_equal(out.n, 3);
	assert_null(out.v[1].iov_base);
	assert_int_equal(out.v[1].iov_len, 50);
	/* From the client they are nothing, so the blocks around them are neighbours. */
	kvb_segs_init(&out, first, 8);
	assert_int_equal(kvb_dptr_walk(&s, table, 50, false, &out), 0);
	assert_int_equal(out.n, 1);
	assert_int_equal(out.v[0].iov_len, 50);
	/* Alone it describes no transfer. */
	s = sgl(0, 100, GKV_SGL_BIT_BUCKET);
	assert_int_equal(check(&s, 100, true), GKV_SC_SGL_TYPE);
}

static void test_sgl_null(void **state)
{
	uint64_t at = layout[A].iova;
	struct gkv_sqe s = sgl(0, 0, 0);

	(void)state;
	assert_int_equal(check(&s, 0, true), 0);
	assert_int_equal(check(&s, 1, true), GKV_SC_SGL_LENGTH);
	/* Empty blocks anywhere, even at addresses of nobody. */
	put_desc(at, 0, 0, 0);
	put_desc(at + 16, layout[C].iova, 9, 0);
	put_desc(at + 32, ~0ull, 0, 0);
	put_desc(at + 48, layout[C].iova + 9, 9, 0);
	s = sgl(at, 64, GKV_SGL_LAST_SEGMENT);
	assert_int_equal(check(&s, 18, true), 0);
	assert_int_equal(model.n, 2);
}

/* Lists that never end must, and exactly at the limit. */
static void test_sgl_limit(void **state)
{
	enum { PER = 100 };	/* the limit does not fall on a link */
	uint64_t at = layout[A].iova;
	struct gkv_sqe s = sgl(at, PER * 16, GKV_SGL_SEGMENT);
	uint32_t blocks;

	(void)state;
	for (int i = 0; i < PER - 1; i++)
		put_desc(at + 16 * i, 0, 0, 0);
	put_desc(at + 16 * (PER - 1), at, PER * 16, GKV_SGL_SEGMENT);
	assert_int_equal(check(&s, 1, true), GKV_SC_SGL_COUNT);
	assert_int_equal(check(&s, 1, false), GKV_SC_SGL_COUNT);

	/* A segment of one descriptor that points at itself. */
	put_desc(at, at, 16, GKV_SGL_SEGMENT);
	s = sgl(at, 16, GKV_SGL_SEGMENT);
	assert_int_equal(check(&s, 1, true), GKV_SC_SGL_COUNT);

	/* One byte a block: SGL1 and one link a round count too. */
	for (int i = 0; i < PER - 1; i++)
		put_desc(at + 16 * i, layout[C].iova, 1, 0);
	put_desc(at + 16 * (PER - 1), at, PER * 16, GKV_SGL_SEGMENT);
	s = sgl(at, PER * 16, GKV_SGL_SEGMENT);
	blocks = KVB_SGL_MAX_DESCS - 1;
	blocks -= blocks / PER;
	assert_int_equal(check(&s, blocks, true), 0);
	assert_int_equal(check(&s, blocks + 1, true), GKV_SC_SGL_COUNT);

	/* A short transfer has less room for blocks that transfer nothing. */
	for (int empty = 1024; empty <= 1025; empty++) {
		for (int i = 0; i < empty; i++)
			put_desc(at + 16 * i, 0, 0, 0);
		put_desc(at + 16 * empty, layout[C].iova, 1, 0);
		s = sgl(at, (empty + 1) * 16, GKV_SGL_LAST_SEGMENT);
		assert_int_equal(check(&s, 1, true), empty == 1024 ? 0 : GKV_SC_SGL_COUNT);
	}
	/* A link for each byte is not too many. */
	for (int i = 0; i < 4096; i += 2) {
		put_desc(at + 16 * i, layout[C].iova + i, 1, 0);
		put_desc(at + 16 * i + 16, at + 16 * (i + 2), 32, GKV_SGL_SEGMENT);
	}
	s = sgl(at, 32, GKV_SGL_SEGMENT);
	assert_int_equal(check(&s, 2048, true), 0);

	/* A Last Segment of 4 GiB ends where its region ends. */
	s = sgl(at, 0xfffffff0u, GKV_SGL_LAST_SEGMENT);
	for (uint64_t i = 0; i < 80 * PG; i += 16)
		put_desc(at + i, layout[C].iova, 0, 0);
	assert_int_equal(check(&s, 100000, true), BAD);
}

/* 64 MiB in 1-KiB blocks through chained segments is a legal command. */
static void test_sgl_long(void **state)
{
	uint64_t at = layout[A].iova;
	struct gkv_sqe s = sgl(at, 4096, GKV_SGL_SEGMENT);

	(void)state;
	for (int page = 0; page < 20; page++) {
		for (int i = 0; i < 255; i++)
			put_desc(at + page * PG + 16 * i, layout[C].iova + 64 * i, 1024, 0);
		put_desc(at + page * PG + 16 * 255, at + (page + 1) % 20 * PG, 4096,
			 GKV_SGL_SEGMENT);
	}
	assert_int_equal(check(&s, 64u << 20, true), 0);
	assert_int_equal(check(&s, 64u << 20, false), 0);
}

static void random_segment(uint64_t at, unsigned int n, bool sound, unsigned int depth)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t addr = random_page(sound) + rnd(4096);
		uint32_t len = rnd(4) ? rnd(300) : rnd(9000);
		unsigned int type = rnd(6) ? 0x00 : 0x10;

		if (!rnd(10))
			len = 0;
		if (sound && addr % PG + len > PG)
			len = PG - addr % PG;
		if (i && !rnd(3) && type == 0) {
			/* The neighbour of the one before. */
			uint64_t a = 0, b = 0;

			model_get64(at + 16 * (i - 1), &a);
			model_get64(at + 16 * (i - 1) + 8, &b);
			if (!(b >> 56))
				addr = a + (uint32_t)b;
			if (sound && !host(addr + len))
				len = 0;
		}
		if (i == n - 1 && depth < 6 && rnd(4)) {
			unsigned int m = 1 + rnd(12);

			addr = layout[T].iova + (depth + 1) * PG + rnd(100) * 8;
			type = rnd(2) ? 0x20 : 0x30;
			len = m * 16;
			random_segment(addr, m, sound, type == 0x30 ? 99 : depth + 1);
		}
		if (!sound && !rnd(30)) {
			switch (rnd(5)) {
			case 0:
				type = rnd(256);
				break;
			case 1:
				len ^= 1u << rnd(32);
				break;
			case 2:
				addr ^= 1ull << rnd(64);
				break;
			case 3:
				type = rnd(2) ? 0x20 : 0x30;
				break;
			default:
				addr = ~0ull - rnd(300);
			}
		}
		put_desc(at + 16 * i, addr, len, type);
	}
}

static void test_sgl_random(void **state)
{
	unsigned int ok = 0, seen[0x20] = { 0 };

	(void)state;
	for (int round = 0; round < 60000; round++) {
		bool sound = rnd(3);
		unsigned int n = 1 + rnd(12), type = rnd(2) ? 0x20 : 0x30;
		uint64_t at = layout[T].iova + rnd(100) * 8;
		struct gkv_sqe s = sgl(at, n * 16, type);
		uint16_t st;

		random_segment(at, n, sound, type == 0x30 ? 99 : 0);
		st = check(&s, rnd(4) ? rnd(2000) : rnd(30000), rnd(2));
		if (st)
			seen[st & 0x1f]++;
		else
			ok++;
	}
	assert_true(ok > 5000);
	assert_true(seen[0x04] > 100);
	assert_true(seen[0x0d] > 100);
	assert_true(seen[0x0e] > 100);
	assert_true(seen[0x0f] > 100);
	assert_true(seen[0x11] > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sgl_inline),
		cmocka_unit_test(test_sgl_types),
		cmocka_unit_test(test_sgl_segment_form),
		cmocka_unit_test(test_sgl_overflow),
		cmocka_unit_test(test_sgl_bucket),
		cmocka_unit_test(test_sgl_null),
		cmocka_unit_test(test_sgl_limit),
		cmocka_unit_test(test_sgl_long),
		cmocka_unit_test(test_sgl_random),
	};

	return cmocka_run_group_tests(tests, dptr_setup, dptr_teardown);
}
