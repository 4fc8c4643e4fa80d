/* SPDX-License-Identifier: MIT */
/* The local store's index against a plain bitmap of the keys that are in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/op.h"
#include "stores/local/btree.h"

#define KEYS 40000u

static uint64_t rng = 88172645463325252ull;

static uint64_t below(uint64_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % n;
}

/* Key @i: in order of @i, of two lengths, the shorter a prefix of the longer. */
static struct loc_key key_of(uint32_t i)
{
	uint8_t b[16] = { 'k', i >> 17, i >> 9, i >> 1 };

	return loc_key_make(b, i & 1 ? 5 + i % 12 : 4);
}

static void check(const struct loc_btree *t, const bool *in, uint32_t from, unsigned int max)
{
	struct loc_bt_iter it;
	struct loc_key k = key_of(from);
	struct loc_ent *e = loc_bt_seek(t, &k, false, &it);

	for (uint32_t i = from; i < KEYS && max; i++) {
		if (!in[i])
			continue;
		assert_non_null(e);
		assert_int_equal(e->vlen, i);
		e = loc_bt_next(&it);
		max--;
	}
	if (max)
		assert_null(e);
}

static void churn(unsigned int rounds, unsigned int grow, bool sorted)
{
	static bool in[KEYS];
	struct loc_btree t = { 0 };
	size_t most = 0;

	memset(in, 0, sizeof(in));
	for (unsigned int n = 0; n < rounds; n++) {
		/* Fill, then empty: the tree grows and shrinks through every height. */
		bool up = n < rounds / 2;
		uint32_t i = sorted ? (up ? n : n - rounds / 2) % KEYS : below(KEYS);
		struct loc_key k = key_of(i);
		struct loc_ent *e = loc_bt_find(&t, &k);

		assert_int_equal(e != NULL, in[i]);
		if (!e && (up || below(10) == 0) && below(10) < grow) {
			e = loc_bt_insert(&t, &k);
			assert_non_null(e);
			assert_int_equal(e->flags, 0);
			e->vlen = i;
			in[i] = true;
		} else if (e && (!up || below(10) >= grow)) {
			assert_int_equal(e->vlen, i);
			loc_bt_remove(&t, &k);
			in[i] = false;
		}
		if (t.bytes > most)
			most = t.bytes;
		if (n % 97 == 0)
			check(&t, in, below(KEYS), 200);
	}
	check(&t, in, 0, UINT32_MAX);
	for (uint32_t i = 0; i < KEYS; i++) {
		struct loc_key k = key_of(i);

		if (in[i])
			loc_bt_remove(&t, &k);
	}
	assert_int_equal(t.count, 0);
	assert_int_equal(t.bytes, 0);	/* every node has gone */
	assert_true(most > 0);
	loc_bt_destroy(&t);
}

static void test_random(void **state)
{
	(void)state;
	churn(400000, 9, false);
	churn(400000, 6, false);
}

static void test_sorted(void **state)
{
	(void)state;
	churn(2 * KEYS, 10, true);
}

/* A run in order must leave full nodes: bytes a key. */
static void test_density(void **state)
{
	struct loc_btree t = { 0 };

	(void)state;
	for (uint32_t i = 0; i < KEYS; i++) {
		struct loc_key k = key_of(i);

		assert_non_null(loc_bt_insert(&t, &k));
	}
	assert_true(t.bytes / KEYS < 48);
	loc_bt_destroy(&t);
	for (uint32_t i = 0; i < 1000000; i++) {
		struct loc_key k = { .hi = below(UINT64_MAX), .lo = i, .klen = 16 };

		assert_non_null(loc_bt_insert(&t, &k));
	}
	assert_true(t.bytes / 1000000 < 66);
	loc_bt_destroy(&t);
}

/* The order is that of kvb_key_cmp(). */
static void test_order(void **state)
{
	(void)state;
	for (int n = 0; n < 200000; n++) {
		uint8_t a[16], b[16], al = below(17), bl = below(17), back[16];
		struct loc_key x, y;
		int want, got;

		for (int i = 0; i < 16; i++) {
			a[i] = below(3) * 0x7f;
			b[i] = below(4) ? a[i] : below(3) * 0x7f;
		}
		x = loc_key_make(a, al);
		y = loc_key_make(b, bl);
		want = kvb_key_cmp(a, al, b, bl);
		got = loc_key_order(x.hi, x.lo, x.klen, y.hi, y.lo, y.klen);
		assert_int_equal(want < 0, got < 0);
		assert_int_equal(want > 0, got > 0);
		loc_key_bytes(x.hi, x.lo, back);
		assert_memory_equal(a, back, al);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_sorted),
		cmocka_unit_test(test_density),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
