/* SPDX-License-Identifier: MIT */
/* Region tables, and data pointers of clients that change or lose their memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "dptr_model.h"

/* ---- Tables of regions ---- */

static void test_table(void **state)
{
	uint64_t avail;

	(void)state;
	for (int i = 0; i < NREG; i++) {
		uint64_t iova = layout[i].iova, len = layout[i].pages * PG;
		bool write = i != R;

		assert_ptr_equal(kvb_regions_find(table, iova, 1, write, &avail), host(iova));
		assert_int_equal(avail, 1);
		assert_ptr_equal(kvb_regions_find(table, iova + 5, 2 * len, write, &avail),
				 host(iova + 5));
		assert_int_equal(avail, len - 5);
		assert_ptr_equal(kvb_regions_find(table, iova + len - 1, 9, write, &avail),
				 host(iova + len - 1));
		assert_int_equal(avail, 1);
	}
	assert_null(kvb_regions_find(table, layout[A].iova - 1, 1, false, &avail));
	assert_null(kvb_regions_find(table, layout[C].iova + 20 * PG, 1, false, &avail));
	assert_null(kvb_regions_find(table, layout[R].iova, 1, true, &avail));
	assert_non_null(kvb_regions_find(table, layout[R].iova, 1, false, &avail));
	assert_null(kvb_regions_find(table, 0, 1, false, &avail));
	assert_null(kvb_regions_find(table, layout[T].iova - 1, 1, false, &avail));
	assert_non_null(kvb_regions_find(table, ~0ull, 1, false, &avail));
}

static void test_table_refusals(void **state)
{
	static char mem[64] __attribute__((aligned(8)));
	struct kvb_region owner = { 0 };
	const struct kvb_span good[3] = {
		{ 0x30, 0x10, mem, 0, &owner },
		{ 0x10, 0x10, mem + 16, 0, &owner },
		{ 0x20, 0x10, mem + 32, 0, &owner },
	};
	struct kvb_span s[3];
	struct kvb_regions *t;
	uint64_t avail;

	(void)state;
	t = kvb_regions_build(NULL, 0);
	assert_non_null(t);
	assert_null(kvb_regions_find(t, 0, 1, false, &avail));
	kvb_regions_free(t);

	t = kvb_regions_build(good, 3);
	assert_non_null(t);
	assert_ptr_equal(kvb_regions_find(t, 0x15, 0x20, true, &avail), mem + 21);
	assert_int_equal(avail, 0x0b);
	kvb_regions_free(t);

	for (int i = 0; i < 5; i++) {
		memcpy(s, good, sizeof(s));
		switch (i) {
		case 0:
			s[1].len = 0;
			break;
		case 1:
			s[1].len = 0x11;	/* overlaps the next */
			break;
		case 2:
			s[0].len = 0 - s[0].iova + 1;	/* a byte past 2^64 */
			break;
		case 3:
			s[2].addr = mem + 33;
			break;
		default:
			s[2].iova = s[1].iova;
		}
		errno = 0;
		assert_null(kvb_regions_build(s, 3));
		assert_int_equal(errno, EINVAL);
	}
	memcpy(s, good, sizeof(s));
	s[0].len = 0 - s[0].iova;	/* up to 2^64 is legal */
	t = kvb_regions_build(s, 3);
	assert_non_null(t);
	kvb_regions_free(t);
}

/* ---- Hostile clients ---- */

static struct gkv_sqe prp(uint64_t prp1, uint64_t prp2)
{
	struct gkv_sqe s;

	memset(&s, 0, sizeof(s));
	s.dptr.prp.prp1 = prp1;
	s.dptr.prp.prp2 = prp2;
	return s;
}


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


static void test_dead_region(void **state)
{
	struct gkv_sqe s = prp(layout[A].iova, layout[B].iova);
	struct iovec first[8];
	struct kvb_segs out;

	(void)state;
	put64(layout[B].iova, layout[C].iova);
	put64(layout[B].iova + 8, layout[A].iova + 3 * PG);
	for (int i = 0; i < NREG; i++) {
		bool used = i == A || i == B || i == C;

		kvb_segs_init(&out, first, 8);
		assert_int_equal(kvb_dptr_walk(&s, table, 3 * PG, true, &out), 0);
		assert_int_equal(out.n, 3);
		assert_true(kvb_regions_alive(table, out.v, out.n));
		atomic_store(&owners[i].dead, true);
		/* Too late for the list, whose region is not among the pieces. */
		assert_int_equal(kvb_regions_alive(table, out.v, out.n), i != A && i != C);
		kvb_segs_init(&out, first, 8);
		assert_int_equal(kvb_dptr_walk(&s, table, 3 * PG, true, &out), used ? BAD : 0);
		atomic_store(&owners[i].dead, false);
	}
}

/* A region that ends inside a list entry. Control only makes whole pages; the walker copes. */
static void test_cut_entry(void **state)
{
	static uint64_t mem[2];
	struct kvb_region owner = { 0 };
	const struct kvb_span span = { 0x1000, 12, mem, 0, &owner };
	struct kvb_regions *t = kvb_regions_build(&span, 1);
	struct gkv_sqe s = sgl(0x1000, 16, GKV_SGL_LAST_SEGMENT);
	struct kvb_segs out;

	(void)state;
	assert_non_null(t);
	mem[0] = 0x1000;
	mem[1] = 4;
	kvb_segs_init(&out, NULL, 0);
	assert_int_equal(kvb_dptr_walk(&s, t, 4, true, &out), BAD);
	assert_int_equal(out.n, 0);
	kvb_segs_free(&out);
	kvb_regions_free(t);
}

struct writer {
	_Atomic bool stop;
	uint64_t from;
	size_t words;
};

static void *rewrite(void *arg)
{
	struct writer *w = arg;
	uint64_t x = 1;

	while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		for (size_t i = 0; i < w->words; i++) {
			uint64_t *p = (uint64_t *)host(w->from + 8 * i);
			uint64_t v;

			x = x * 6364136223846793005ull + 1442695040888963407ull;
			switch (x >> 61) {
			case 0:
				v = x;
				break;
			case 1:
				v = (x >> 32 & 0xff) | (x >> 40 & 0x30) << 56;
				break;
			case 2:
				v = w->from + (x >> 40 & 0xff8);
				break;
			default:
				v = layout[A].iova + (x >> 40 & 31) * PG;
			}
			__atomic_store_n(p, v, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

/* Lists that change while they are read may give anything, but nothing outside. */
static void test_rewritten_lists(void **state)
{
	struct writer w = { .from = layout[T].iova, .words = 1024 };
	unsigned int ok = 0, refused = 0;
	struct iovec first[4];
	struct kvb_segs out;
	pthread_t t;

	(void)state;
	for (uint64_t i = 0; i < w.words; i++)
		put64(w.from + 8 * i, layout[A].iova);
	assert_int_equal(pthread_create(&t, NULL, rewrite, &w), 0);
	for (int round = 0; round < 200000 && (round < 20000 || !ok || !refused); round++) {
		struct gkv_sqe s = round & 1 ? prp(layout[C].iova, w.from + rnd(100) * 8) :
					       sgl(w.from + rnd(100) * 8, 4096, GKV_SGL_SEGMENT);
		uint32_t len = 1 + rnd(6 * PG);
		uint64_t sum = 0;
		uint16_t st;

		kvb_segs_init(&out, first, 4);
		st = kvb_dptr_walk(&s, table, len, true, &out);
		for (uint32_t i = 0; i < out.n; i++) {
			uint8_t *p = out.v[i].iov_base;

			sum += out.v[i].iov_len;
			if (!p)
				continue;
			if (region_at(p) < 0 || region_at(p) == R ||
			    region_at(p) != region_at(p + out.v[i].iov_len - 1))
				fail_msg("a piece outside the regions");
		}
		if (sum > len || (!st && sum != len))
			fail_msg("%lu bytes of %u", (unsigned long)sum, len);
		ok += !st;
		refused += !!st;
		kvb_segs_free(&out);
	}
	atomic_store(&w.stop, true);
	pthread_join(t, NULL);
	assert_true(ok > 0);
	assert_true(refused > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_table_refusals),
		cmocka_unit_test(test_dead_region),
		cmocka_unit_test(test_cut_entry),
		cmocka_unit_test(test_rewritten_lists),
	};

	return cmocka_run_group_tests(tests, dptr_setup, dptr_teardown);
}
