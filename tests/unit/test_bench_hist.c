/* SPDX-License-Identifier: MIT */
/* gkv-bench's histogram against exact quantiles, and the numbers of its command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tools/gkv-bench/hist.c"
#include "../../tools/gkv-bench/keydist.c"
#include "../../tools/gkv-bench/util.c"

static void test_buckets(void **state)
{
	uint64_t v;

	(void)state;
	/* Every bucket starts where the one before it ends. */
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		assert_int_equal(hist_index(hist_low(i)), i);
		if (i)
			assert_int_equal(hist_index(hist_low(i) - 1), i - 1);
	}
	assert_int_equal(hist_index(UINT64_MAX), HIST_BUCKETS - 1);
	/* A bucket is at most 1/128 of its values wide. */
	for (v = 1000; v < UINT64_MAX / 3; v *= 3) {
		uint32_t i = hist_index(v);
		uint64_t low = hist_low(i), high = hist_low(i + 1);

		assert_true(low <= v && v < high);
		assert_true((high - low) * HIST_SUB <= low);
	}
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void test_quantiles(void **state)
{
	enum { N = 20000 };
	static const double qs[] = { 0, 0.01, 0.5, 0.9, 0.99, 0.999, 1 };
	struct hist *h = malloc(sizeof(*h)), *half = malloc(sizeof(*half));
	uint64_t *v = malloc(N * sizeof(*v)), sum = 0, rng = 7;

	(void)state;
	assert_non_null(h);
	assert_non_null(half);
	assert_non_null(v);
	hist_init(h);
	hist_init(half);
	assert_int_equal(hist_quantile(h, 0.5), 0);
	for (int i = 0; i < N; i++) {
		v[i] = rng_next(&rng) >> (40 + i % 20);
		sum += v[i];
		hist_add(i % 2 ? h : half, v[i]);
	}
	hist_merge(h, half);
	assert_int_equal(h->count, N);
	qsort(v, N, sizeof(*v), by_value);
	assert_int_equal(h->min, v[0]);
	assert_int_equal(h->max, v[N - 1]);
	assert_true(hist_mean(h) == (double)sum / N);
	for (size_t i = 0; i < ARRAY_SIZE(qs); i++) {
		double at = qs[i] * N;
		uint64_t want = v[at < 1 ? 0 : (size_t)(at + 0.5) - 1];
		uint64_t got = hist_quantile(h, qs[i]);

		assert_true(got <= want + want / HIST_SUB + 1);
		assert_true(got + want / HIST_SUB + 1 >= want);
	}
	assert_int_equal(hist_quantile(h, 1), v[N - 1]);
	free(v);
	free(half);
	free(h);
}

static void test_sizes(void **state)
{
	uint64_t v;

	(void)state;
	assert_int_equal(parse_size("4096", &v), 0);
	assert_int_equal(v, 4096);
	assert_int_equal(parse_size("4K", &v), 0);
	assert_int_equal(v, 4096);
	assert_int_equal(parse_size("1.5M", &v), 0);
	assert_int_equal(v, 3u << 19);
	assert_int_equal(parse_size("64MiB", &v), 0);
	assert_int_equal(v, 64u << 20);
	assert_int_equal(parse_size("0", &v), 0);
	assert_int_equal(v, 0);
	assert_int_equal(parse_size("", &v), -1);
	assert_int_equal(parse_size("-1", &v), -1);
	assert_int_equal(parse_size("1.3", &v), -1);
	assert_int_equal(parse_size("4Kx", &v), -1);
	assert_int_equal(parse_size("inf", &v), -1);
	assert_int_equal(parse_size("99999999T", &v), -1);
	assert_int_equal(parse_count("10k", &v), 0);
	assert_int_equal(v, 10000);
	assert_int_equal(parse_count("10K1", &v), -1);
	assert_int_equal(parse_duration("5", &v), 0);
	assert_int_equal(v, 5000000000u);
	assert_int_equal(parse_duration("250us", &v), 0);
	assert_int_equal(v, 250000);
	assert_int_equal(parse_duration("3h", &v), -1);
}

static void test_cpus(void **state)
{
	int cpus[4];

	(void)state;
	assert_int_equal(parse_cpus("0,2-3", cpus, 4), 3);
	assert_int_equal(cpus[0], 0);
	assert_int_equal(cpus[1], 2);
	assert_int_equal(cpus[2], 3);
	assert_int_equal(parse_cpus("0-9", cpus, 4), -1);
	assert_int_equal(parse_cpus("3-1", cpus, 4), -1);
	assert_int_equal(parse_cpus("a", cpus, 4), -1);
	assert_int_equal(parse_cpus("1;2", cpus, 4), -1);
}

/* Of 1000 keys, each as often as its rank says: share of rank r is r^-theta / zeta. */
static void test_zipf(void **state)
{
	enum { KEYS = 1000, N = 400000 };
	uint32_t *seen = calloc(KEYS, sizeof(*seen));
	struct keydist d;
	uint64_t rng = 1, first, second, distinct = 0;

	(void)state;
	assert_non_null(seen);
	keydist_init(&d, KEYS, 0.99);
	for (int i = 0; i < N; i++) {
		uint64_t k = keydist_next(&d, rng_next(&rng));

		assert_true(k < KEYS);
		seen[k]++;
	}
	first = below(mix64(1), KEYS);
	second = below(mix64(2), KEYS);
	assert_true(seen[first] > 0.95 * N / d.zetan);
	assert_true(seen[second] > 0.95 * N / d.zetan * 0.5034);
	for (int i = 0; i < KEYS; i++) {
		assert_true(seen[i] <= seen[first]);
		distinct += seen[i] > 0;
	}
	assert_true(distinct > KEYS / 2);
	keydist_init(&d, KEYS, 0);
	memset(seen, 0, KEYS * sizeof(*seen));
	for (int i = 0; i < N; i++)
		seen[keydist_next(&d, rng_next(&rng))]++;
	for (int i = 0; i < KEYS; i++)
		assert_in_range(seen[i], N / KEYS / 2, N / KEYS * 2);
	free(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets), cmocka_unit_test(test_quantiles),
		cmocka_unit_test(test_sizes),	cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_zipf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
