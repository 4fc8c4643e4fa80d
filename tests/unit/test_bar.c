/* SPDX-License-Identifier: MIT */
/*
 * Access to memory behind a BAR: the same bytes as by the plain way, at every alignment and
 * nothing beside them; spans of VRAM in tables of regions and under data pointers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/access.h"
#include "core/bar.h"
#include "core/dptr.h"

#define PG 4096u
#define ROOM 1024u
#define GUARD 0xc3

static unsigned char from[ROOM] __attribute__((aligned(64)));
static unsigned char to[ROOM] __attribute__((aligned(64)));

static void fill(void)
{
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (unsigned char)(i * 7 + i / 256);
	memset(to, GUARD, ROOM);
}

static void check(size_t src, size_t dst, size_t n)
{
	assert_memory_equal(to + dst, from + src, n);
	for (size_t i = 0; i < ROOM; i++) {
		if (i < dst || i >= dst + n)
			assert_int_equal(to[i], GUARD);
	}
}

static void test_copies(void **state)
{
	static const size_t lens[] = { 0, 1, 7, 8, 9, 15, 16, 63, 64, 65, 127, 128, 200, 512, 513 };

	(void)state;
	for (size_t src = 64; src < 64 + 70; src++) {
		for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
			size_t dst = 64 + src * 5 % 67;

			fill();
			kvb_bar_read(to + dst, from + src, lens[l]);
			check(src, dst, lens[l]);
			fill();
			kvb_bar_write(to + src, from + dst, lens[l]);
			check(dst, src, lens[l]);
		}
	}
}

static void test_zero(void **state)
{
	(void)state;
	memset(to, GUARD, ROOM);
	kvb_bar_zero(to + 64, 128);
	for (size_t i = 0; i < ROOM; i++)
		assert_int_equal(to[i], i >= 64 && i < 192 ? 0 : GUARD);
}

static void test_entries(void **state)
{
	struct gkv_cqe host, bar;
	struct gkv_sqe sqe;

	(void)state;
	fill();
	kvb_bar_read_sqe(&sqe, from + 128);
	assert_memory_equal(&sqe, from + 128, sizeof(sqe));
	for (unsigned int phase = 0; phase < 2; phase++) {
		memset(&host, 0xff, sizeof(host));
		memset(&bar, 0xff, sizeof(bar));
		kvb_write_cqe(&host, 0x11223344, 0x55667788, 0x99aa, 0xbbcc, 0xddee, 0x4087, phase);
		kvb_write_cqe_bar(&bar, 0x11223344, 0x55667788, 0x99aa, 0xbbcc, 0xddee, 0x4087,
				  phase);
		assert_memory_equal(&host, &bar, sizeof(bar));
		assert_int_equal(kvb_read_cqe_phase(&bar), phase);
	}
}

/* ---- Data pointers ---- */

#define HOST_IOVA 0x100000u
#define VRAM_IOVA 0x200000u

static char host_mem[4 * PG] __attribute__((aligned(4096)));
static char vram_mem[4 * PG] __attribute__((aligned(4096)));
static struct kvb_region owners[2];

static struct kvb_regions *make(void)
{
	const struct kvb_span spans[] = {
		{ HOST_IOVA, sizeof(host_mem), host_mem, 0, &owners[0] },
		{ VRAM_IOVA, sizeof(vram_mem), vram_mem, KVB_SPAN_VRAM, &owners[1] },
	};
	struct kvb_regions *t = kvb_regions_build(spans, 2);

	assert_non_null(t);
	return t;
}

/* The status of a walk over two pages, whose list is at @list, and the number of pieces. */
static uint16_t walk(const struct kvb_regions *t, uint32_t place, uint64_t list, uint64_t first,
		     uint64_t second, uint32_t *n)
{
	char *at = list >= VRAM_IOVA ? vram_mem + (list - VRAM_IOVA) : host_mem + (list - HOST_IOVA);
	struct gkv_sqe sqe = { .cdw10 = 3 * PG };
	uint64_t rest[2] = { second, second + PG };
	struct iovec v[8];
	struct kvb_segs out;
	struct kvb_dptr w;
	uint16_t status;

	memcpy(at, rest, sizeof(rest));
	sqe.dptr.prp.prp1 = first;
	sqe.dptr.prp.prp2 = list;
	kvb_segs_init(&out, v, 8);
	kvb_dptr_init(&w, &sqe, t, 3 * PG, true);
	w.place = place;
	status = kvb_dptr_next(&w, &out, UINT32_MAX);
	*n = out.n;
	kvb_segs_free(&out);
	return status;
}

static void test_places(void **state)
{
	const uint64_t hosts = HOST_IOVA, vram = VRAM_IOVA;
	const uint16_t bad = GKV_SC_INVALID_CMB | GKV_DNR;
	struct kvb_regions *t = make();
	uint32_t n;

	(void)state;
	/* Lists are at home in both. */
	for (int i = 0; i < 2; i++) {
		uint64_t list = (i ? vram : hosts) + 3 * PG;

		assert_int_equal(walk(t, 0, list, hosts, hosts + PG, &n), 0);
		assert_int_equal(n, 1);
		assert_int_equal(walk(t, KVB_SPAN_VRAM, list, vram, vram + PG, &n), 0);
		assert_int_equal(n, 1);
		/* The first page, and a later one. */
		assert_int_equal(walk(t, 0, list, vram, hosts + PG, &n), bad);
		assert_int_equal(n, 0);
		assert_int_equal(walk(t, 0, list, hosts, vram + PG, &n), bad);
		assert_int_equal(n, 1);
		assert_int_equal(walk(t, KVB_SPAN_VRAM, list, hosts, vram + PG, &n), bad);
		assert_int_equal(walk(t, KVB_SPAN_VRAM, list, vram, hosts + PG, &n), bad);
	}
	/* No region, or a dead one, is 04h first. */
	assert_int_equal(walk(t, 0, hosts + 3 * PG, 0x900000, hosts + PG, &n),
			 GKV_SC_DATA_TRANSFER | GKV_DNR);
	atomic_store(&owners[1].dead, true);
	assert_int_equal(walk(t, 0, hosts + 3 * PG, vram, hosts + PG, &n),
			 GKV_SC_DATA_TRANSFER | GKV_DNR);
	atomic_store(&owners[1].dead, false);
	kvb_regions_free(t);
}

static void test_bounce(void **state)
{
	struct kvb_regions *t = make();
	struct iovec v[] = { { NULL, 512 }, { vram_mem + 16, 100 }, { host_mem, 4 } };

	(void)state;
	assert_false(kvb_regions_bounce(t, v, 3, 5));
	atomic_store(&owners[1].bounce, UINT64_C(1) << 63 | 1u << 5);
	assert_true(kvb_regions_bounce(t, v, 3, 5));
	assert_true(kvb_regions_bounce(t, v, 3, 63));
	assert_false(kvb_regions_bounce(t, v, 3, 4));
	assert_false(kvb_regions_bounce(t, v, 1, 5));
	assert_false(kvb_regions_bounce(t, v + 2, 1, 5));
	atomic_store(&owners[1].bounce, 0);
	kvb_regions_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies), cmocka_unit_test(test_zero),
		cmocka_unit_test(test_entries), cmocka_unit_test(test_places),
		cmocka_unit_test(test_bounce),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
