/* SPDX-License-Identifier: MIT */
/* Parts of libgkv that need no daemon: checksums, List results, statuses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gkv.h>
#include <gkv/nvme_kv.h>

static uint32_t bitwise(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? 0x82f63b78u ^ (crc >> 1) : crc >> 1;
	}
	return ~crc;
}

/* RFC 3720, B.4, and the check value of the catalogue. */
static void test_crc_vectors(void **state)
{
	uint8_t buf[32];

	(void)state;
	assert_int_equal(gkv_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(gkv_crc32c(0, "", 0), 0);
	memset(buf, 0, 32);
	assert_int_equal(gkv_crc32c(0, buf, 32), 0x8a9136aa);
	memset(buf, 0xff, 32);
	assert_int_equal(gkv_crc32c(0, buf, 32), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	assert_int_equal(gkv_crc32c(0, buf, 32), 0x46dd794e);
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)(31 - i);
	assert_int_equal(gkv_crc32c(0, buf, 32), 0x113fdb5c);
}

/* F29: every length, across the sizes at which the loops change, and unaligned. */
static void test_crc_lengths(void **state)
{
	size_t max = 60000;
	uint8_t *buf = malloc(max + 16);
	uint32_t x = 1;

	(void)state;
	assert_non_null(buf);
	for (size_t i = 0; i < max + 16; i++) {
		x = x * 1664525 + 1013904223;
		buf[i] = (uint8_t)(x >> 24);
	}
	for (size_t n = 0; n < 1700; n++)
		assert_int_equal(gkv_crc32c(0, buf + n % 9, n), bitwise(0, buf + n % 9, n));
	for (size_t n = 24570; n < 24590; n++)
		assert_int_equal(gkv_crc32c(7, buf + 3, n), bitwise(7, buf + 3, n));
	for (size_t cut = 0; cut <= max; cut += 4999)
		assert_int_equal(gkv_crc32c(gkv_crc32c(0, buf, cut), buf + cut, max - cut),
				 bitwise(0, buf, max));
	free(buf);
}

/* The reference's example of a List result. */
static const uint8_t four_keys[44] = {
	4, 0, 0, 0, 1, 0, 'a', 0, 3, 0, 'b', 'c', 'd', 0, 0, 0, 5, 0, 'h', 'e', 'l', 'l', 'o', 0,
	16, 0, '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 0, 0,
};

static void test_list(void **state)
{
	static const char *const want[] = { "a", "bcd", "hello", "0123456789abcdef" };
	uint8_t key[16], len;
	size_t pos = 0;

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(gkv_list_next(four_keys, sizeof(four_keys), &pos, key, &len), 1);
		assert_int_equal(len, strlen(want[i]));
		assert_memory_equal(key, want[i], len);
	}
	assert_int_equal(gkv_list_next(four_keys, sizeof(four_keys), &pos, key, &len), 0);
	assert_int_equal(gkv_list_next(four_keys, sizeof(four_keys), &pos, key, &len), 0);
	pos = 0;
	assert_int_equal(gkv_list_next("\0\0\0\0", 4, &pos, key, &len), 0);
}

/* A buffer longer than the result is the normal case; its rest is not read. */
static void test_list_in_larger_buffer(void **state)
{
	uint8_t buf[4096], key[16], len;
	size_t pos = 0;
	int n = 0;

	(void)state;
	memset(buf, 0xa5, sizeof(buf));
	memcpy(buf, four_keys, sizeof(four_keys));
	while (gkv_list_next(buf, sizeof(buf), &pos, key, &len) == 1)
		n++;
	assert_int_equal(n, 4);
}

static void test_list_malformed(void **state)
{
	uint8_t buf[64], key[16], len;
	size_t pos;

	(void)state;
	for (size_t n = 0; n < sizeof(four_keys); n++) {
		/* An exact copy, so that a sanitizer sees a read past it. */
		uint8_t *cut = malloc(n ? n : 1);
		int ret;

		memcpy(cut, four_keys, n);
		pos = 0;
		while ((ret = gkv_list_next(cut, n, &pos, key, &len)) == 1)
			;
		assert_int_equal(ret, -EBADMSG);
		assert_string_not_equal(gkv_error(), "");
		free(cut);
	}
	memcpy(buf, four_keys, sizeof(four_keys));
	buf[4] = 17;
	pos = 0;
	assert_int_equal(gkv_list_next(buf, sizeof(buf), &pos, key, &len), -EBADMSG);
	buf[4] = 0;
	pos = 0;
	assert_int_equal(gkv_list_next(buf, sizeof(buf), &pos, key, &len), -EBADMSG);
	memset(buf, 0xff, sizeof(buf));
	pos = 0;
	assert_int_equal(gkv_list_next(buf, sizeof(buf), &pos, key, &len), -EBADMSG);
}

static void test_status(void **state)
{
	(void)state;
	assert_string_equal(gkv_status_name(0), "Success");
	assert_int_equal(gkv_status_errno(0), 0);
	assert_int_equal(gkv_status_retry(0), 0);
	assert_string_equal(gkv_status_name(GKV_SC_KEY_NOT_FOUND | GKV_DNR),
			    "KV Key Does Not Exist");
	assert_int_equal(gkv_status_errno(GKV_SC_KEY_NOT_FOUND | GKV_DNR), -ENOENT);
	assert_int_equal(gkv_status_retry(GKV_SC_KEY_NOT_FOUND | GKV_DNR), 0);
	assert_int_equal(gkv_status_retry(GKV_SC_TRANSIENT), 1);
	assert_int_equal(gkv_status_errno(GKV_SC_CAPACITY), -ENOSPC);
	assert_int_equal(gkv_status_errno(0x371), -ETIMEDOUT);
	for (unsigned int s = 0; s < 0x8000; s++) {
		assert_non_null(gkv_status_name((uint16_t)s));
		assert_true((gkv_status_errno((uint16_t)s) == 0) == ((s & 0x7ff) == 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc_vectors),
		cmocka_unit_test(test_crc_lengths),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_list_in_larger_buffer),
		cmocka_unit_test(test_list_malformed),
		cmocka_unit_test(test_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
