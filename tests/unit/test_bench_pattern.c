/* SPDX-License-Identifier: MIT */
/* gkv-bench's values: what was stored passes, whatever else comes back does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tools/gkv-bench/pattern.c"

static void test_definition(void **state)
{
	uint8_t buf[8 * 40];

	(void)state;
	pattern_fill(buf, sizeof(buf), 42);
	for (uint64_t i = 0; i < 40; i++) {
		uint64_t w = 42 + i * PATTERN_STEP, got;

		memcpy(&got, buf + 8 * i, 8);
		assert_int_equal(got, w ^ (w >> 32));
	}
}

/* Every length and alignment: nothing outside is written, any flipped byte is found. */
static void test_lengths(void **state)
{
	enum { MAX = 300 };
	uint8_t buf[MAX + 64], longest[MAX];

	(void)state;
	pattern_fill(longest, MAX, 9);
	for (size_t off = 8; off < 16; off += 3) {
		for (size_t len = 0; len <= MAX; len++) {
			memset(buf, 0xee, sizeof(buf));
			pattern_fill(buf + off, len, 9);
			assert_int_equal(buf[off - 1], 0xee);
			assert_int_equal(buf[off + len], 0xee);
			assert_memory_equal(buf + off, longest, len);
			assert_int_equal(pattern_check(buf + off, len, 9), -1);
			for (size_t i = 0; i < len; i++) {
				buf[off + i] ^= 0x10;
				assert_int_equal(pattern_check(buf + off, len, 9), (int64_t)i);
				buf[off + i] ^= 0x10;
			}
		}
	}
}

static void test_values(void **state)
{
	static const size_t lens[] = { 1, 7, 15, 16, 17, 100, 4096, 65536 };
	uint8_t *buf = malloc(65536), *other = malloc(65536);
	uint64_t version;
	size_t where;

	(void)state;
	assert_non_null(buf);
	assert_non_null(other);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		size_t len = lens[i];

		value_fill(buf, len, 1234, 77);
		assert_int_equal(value_check(buf, len, 1234, &version, &where), VALUE_OK);
		assert_int_equal(version, len < VALUE_HDR ? 0 : 77);
		/* Another key's value, another seed. */
		assert_int_not_equal(value_check(buf, len, 1235, &version, &where), VALUE_OK);
		for (size_t k = 0; k < len; k += 1 + len / 50) {
			buf[k] ^= 1;
			assert_int_not_equal(value_check(buf, len, 1234, &version, &where),
					     VALUE_OK);
			buf[k] ^= 1;
		}
		if (len > VALUE_HDR) {
			/* Cut short. */
			assert_int_equal(value_check(buf, len - 1, 1234, &version, &where),
					 VALUE_BAD_HEADER);
			/* One byte is of another version. */
			value_fill(other, len, 1234, 78);
			other[len - 1] ^= other[len - 1] == buf[len - 1];
			buf[len - 1] = other[len - 1];
			assert_int_equal(value_check(buf, len, 1234, &version, &where),
					 VALUE_BAD_BODY);
			assert_int_equal(where, len - 1);
		}
	}
	free(buf);
	free(other);
}

/* Swapped and shifted sectors, zeros, and a sector of an older version. */
static void test_sectors(void **state)
{
	enum { LEN = 16384 };
	uint8_t *buf = malloc(LEN), *old = malloc(LEN), *ref = malloc(LEN);
	uint64_t version;
	size_t where;

	(void)state;
	assert_non_null(buf);
	assert_non_null(old);
	assert_non_null(ref);
	value_fill(ref, LEN, 5, 2);
	value_fill(old, LEN, 5, 1);

	memcpy(buf, ref, LEN);
	memcpy(buf + 4096, ref + 8192, 4096);
	memcpy(buf + 8192, ref + 4096, 4096);
	assert_int_equal(value_check(buf, LEN, 5, &version, &where), VALUE_BAD_BODY);
	assert_in_range(where, 4096, 4096 + 8);

	memcpy(buf, ref, LEN);
	memset(buf + 12288, 0, 512);
	assert_int_equal(value_check(buf, LEN, 5, &version, &where), VALUE_BAD_BODY);
	assert_in_range(where, 12288, 12288 + 8);

	memcpy(buf, ref, LEN);
	memcpy(buf + 8192, old + 8192, 512);
	assert_int_equal(value_check(buf, LEN, 5, &version, &where), VALUE_BAD_BODY);
	assert_in_range(where, 8192, 8192 + 8);

	memcpy(buf, ref, LEN);
	memmove(buf + 16, ref + 24, LEN - 24);
	assert_int_equal(value_check(buf, LEN, 5, &version, &where), VALUE_BAD_BODY);
	free(buf);
	free(old);
	free(ref);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_definition),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_sectors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
