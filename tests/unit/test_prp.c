/* SPDX-License-Identifier: MIT */
/* PRP entries and lists, compared with a second walker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dptr_model.h"

static struct gkv_sqe prp(uint64_t prp1, uint64_t prp2)
{
	struct gkv_sqe s;

	memset(&s, 0, sizeof(s));
	s.dptr.prp.prp1 = prp1;
	s.dptr.prp.prp2 = prp2;
	return s;
}

static void test_prp_sizes(void **state)
{
	static const uint64_t second[] = { 0x100000 + 7 * PG, 0x100000 + 1 * PG, 0x100000 + 40 * PG };

	(void)state;
	/* Every size up to a byte over a page, at offsets around every edge. */
	for (uint32_t len = 0; len <= 4097; len++)
		for (uint64_t off = 0; off < PG; off += off < 16 || off >= PG - 16 ? 4 : 508) {
			struct gkv_sqe s = prp(0x100000 + off, second[len % 3]);

			assert_int_equal(check(&s, len, len & 1), 0);
		}
	/* Every offset, aligned or not, at sizes around every edge. */
	for (uint64_t off = 0; off < PG; off++) {
		static const uint32_t lens[] = { 1, 2, 3, 4, 5, 511, 512, 513, 4092, 4095, 4096 };
		struct gkv_sqe s = prp(0x100000 + off, second[off % 3]);

		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
			assert_int_equal(check(&s, lens[i], true), off % 4 ? GKV_SC_PRP_OFFSET : 0);
	}
}

static void test_prp_unneeded(void **state)
{
	struct gkv_sqe s = prp(0x100000, 0xdeadbeefdeadbeefull);

	(void)state;
	assert_int_equal(check(&s, 4096, true), 0);
	assert_int_equal(check(&s, 4097, true), GKV_SC_PRP_OFFSET);
	/* No transfer: nothing is looked at. */
	s = prp(~0ull, ~0ull);
	assert_int_equal(check(&s, 0, true), 0);
	assert_int_equal(check(&s, 1, true), GKV_SC_PRP_OFFSET);
}

static void test_prp2_page(void **state)
{
	(void)state;
	for (uint64_t off = 0; off < PG; off++) {
		struct gkv_sqe s = prp(0x100000, 0x100000 + 9 * PG + off);

		assert_int_equal(check(&s, 8192, false), off ? GKV_SC_PRP_OFFSET : 0);
	}
}

/*
 * A list of @n pages that starts at @start and chains through pages of region B, or
 * @chain when the last entry of a page has to lead on.
 */
static void prp_list(uint64_t start, const uint64_t *pages, size_t n, uint64_t chain)
{
	uint64_t at = start;

	for (size_t i = 0; i < n; i++) {
		if (at % PG == PG - 8 && n - i > 1) {
			put64(at, chain);
			at = chain & ~(PG - 1);
			chain += PG;
		}
		put64(at, pages[i]);
		at += 8;
	}
}

/* A list may begin at any qword of its page, so the chain may come after any entry. */
static void test_prp_list_start(void **state)
{
	uint64_t pages[600];

	(void)state;
	for (int i = 0; i < 600; i++)
		pages[i] = layout[A].iova + rnd(40) * PG;
	for (uint64_t off = 0; off < PG; off += 8) {
		uint64_t start = layout[B].iova + off;
		size_t room = (PG - off) / 8;

		/* One entry less than fits, exactly, one more, many more. */
		for (size_t n = room > 1 ? room - 1 : 1; n <= room + 1; n++) {
			struct gkv_sqe s = prp(layout[C].iova + 4, start);

			if (n < 2)
				continue;
			prp_list(start, pages, n, layout[B].iova + 5 * PG);
			assert_int_equal(check(&s, (PG - 4) + n * PG, true), 0);
			assert_int_equal(check(&s, (PG - 4) + n * PG - 4095, true), 0);
			/* A byte more needs an entry that leads nowhere sensible. */
			if (n == room) {
				put64(layout[B].iova + 5 * PG, 0x5000);
				check(&s, (PG - 4) + n * PG + 1, true);
			}
		}
	}
}

static void test_prp_long(void **state)
{
	enum { N = 16384 + 1 };	/* 64 MiB and a page */
	uint64_t *pages = malloc(N * sizeof(*pages));
	struct gkv_sqe s = prp(layout[A].iova + 12, layout[T].iova + 8 * 100);
	uint64_t at = layout[T].iova + 8 * 100, next = layout[T].iova + PG;
	uint64_t lists = 0;

	(void)state;
	assert_non_null(pages);
	for (int i = 0; i < N; i++)
		pages[i] = layout[rnd(3)].iova + rnd(20) * PG;
	/* More list pages than region T has: they share the last one, so the data repeats. */
	for (size_t i = 0; i < N; i++) {
		if (at % PG == PG - 8 && N - i > 1) {
			put64(at, next);
			at = next;
			if (++lists < 19)
				next += PG;
			else
				next = at;
		}
		put64(at, pages[i]);
		at += 8;
	}
	for (uint32_t extra = 0; extra < 3; extra++)
		check(&s, (64u << 20) + extra, true);
	assert_int_equal(check(&s, 3u << 20, false), 0);
	free(pages);
}

static void test_prp_entry_offset(void **state)
{
	uint64_t pages[8];

	(void)state;
	for (int bit = 0; bit < 12; bit++) {
		for (int bad = 0; bad < 8; bad++) {
			struct gkv_sqe s = prp(layout[A].iova, layout[B].iova);

			for (int i = 0; i < 8; i++)
				pages[i] = layout[A].iova + i * PG;
			pages[bad] |= 1u << bit;
			prp_list(layout[B].iova, pages, 8, 0);
			assert_int_equal(check(&s, 9 * PG, true), GKV_SC_PRP_OFFSET);
			/* Behind the transfer it does not matter. */
			if (bad > 1)
				assert_int_equal(check(&s, (bad + 1) * PG, true), 0);
		}
	}
	for (uint64_t off = 1; off < 8; off++) {
		struct gkv_sqe s = prp(layout[A].iova, layout[B].iova + off);

		assert_int_equal(check(&s, 3 * PG, true), GKV_SC_PRP_OFFSET);
	}
}

static void test_prp_chain_offset(void **state)
{
	uint64_t start = layout[B].iova + PG - 16;

	(void)state;
	for (unsigned int bit = 0; bit < 12; bit++) {
		struct gkv_sqe s = prp(layout[A].iova, start);

		put64(start, layout[A].iova + PG);
		put64(start + 8, (layout[B].iova + 3 * PG) | 1u << bit);
		assert_int_equal(check(&s, 4 * PG, true), GKV_SC_PRP_OFFSET);
	}
}

static void test_prp_addresses(void **state)
{
	struct gkv_sqe s;

	(void)state;
	s = prp(layout[R].iova, 0);
	assert_int_equal(check(&s, 100, true), BAD);
	assert_int_equal(check(&s, 100, false), 0);
	s = prp(0x5000, 0);
	assert_int_equal(check(&s, 1, true), BAD);
	assert_int_equal(check(&s, 1, false), BAD);
	s = prp(layout[T].iova + 19 * PG + 4092, 0);
	assert_int_equal(check(&s, 4, true), 0);
	assert_int_equal(check(&s, 5, true), BAD);
	/* A list may lie in read-only memory, but not outside. */
	put64(layout[R].iova, layout[A].iova);
	put64(layout[R].iova + 8, layout[A].iova);
	s = prp(layout[A].iova, layout[R].iova);
	assert_int_equal(check(&s, 3 * PG, true), 0);
	s = prp(layout[A].iova, 0x5000);
	assert_int_equal(check(&s, 3 * PG, true), BAD);
}

static void test_prp_random(void **state)
{
	unsigned int ok = 0, failed = 0;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		bool sound = rnd(3);
		uint64_t start = layout[T].iova + rnd(4) * PG + rnd(512) * 8;
		size_t n = rnd(4) ? rnd(20) : rnd(1200);
		uint64_t at = start, page = 0;
		struct gkv_sqe s;
		uint32_t len;

		for (size_t i = 0; i < n + 2; i++) {
			if (at % PG == PG - 8 && rnd(8)) {
				uint64_t next = layout[T].iova + (4 + rnd(15)) * PG;

				put64(at, next);
				at = next;
			}
			page = page && rnd(2) ? page + PG : random_page(sound);
			put64(at, page + (sound || rnd(200) ? 0 : 4));
			at += 8;
			if (at % PG == 0)
				break;
		}
		s = prp(random_page(sound) + rnd(1024) * 4 + (!sound && !rnd(20)), start);
		if (n == 1)
			s.dptr.prp.prp2 = random_page(sound);
		len = rnd(n * PG + PG) + rnd(3);
		if (check(&s, len, rnd(2)))
			failed++;
		else
			ok++;
	}
	/* Both kinds must have been seen in numbers. */
	assert_true(ok > 2000);
	assert_true(failed > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prp_sizes),
		cmocka_unit_test(test_prp_unneeded),
		cmocka_unit_test(test_prp2_page),
		cmocka_unit_test(test_prp_list_start),
		cmocka_unit_test(test_prp_long),
		cmocka_unit_test(test_prp_entry_offset),
		cmocka_unit_test(test_prp_chain_offset),
		cmocka_unit_test(test_prp_addresses),
		cmocka_unit_test(test_prp_random),
	};

	return cmocka_run_group_tests(tests, dptr_setup, dptr_teardown);
}
