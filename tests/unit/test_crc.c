/* SPDX-License-Identifier: MIT */
/* CRC-32C: known answers, every length and alignment, and copies of changing memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include <stdatomic.h>
#include <stdbool.h>

#include "core/crc.h"

#if defined(__has_feature)
#define KVB_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define KVB_TSAN 1
#else
#define KVB_TSAN 0
#endif

/* Bit by bit from the polynomial. */
static uint32_t slow_crc(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static void fill(uint8_t *p, size_t n)
{
	uint32_t x = 12345;

	while (n--) {
		x = x * 1664525 + 1013904223;
		*p++ = x >> 24;
	}
}

static void test_known(void **state)
{
	uint8_t buf[32];

	(void)state;
	assert_int_equal(kvb_crc32c(0, "123456789", 9), 0xe3069283u);
	assert_int_equal(kvb_crc32c(0, "", 0), 0);
	assert_int_equal(kvb_crc32c(0, NULL, 0), 0);
	/* RFC 3720 B.4 */
	memset(buf, 0, 32);
	assert_int_equal(kvb_crc32c(0, buf, 32), 0x8a9136aau);
	memset(buf, 0xff, 32);
	assert_int_equal(kvb_crc32c(0, buf, 32), 0x62a8ab43u);
	for (int i = 0; i < 32; i++)
		buf[i] = i;
	assert_int_equal(kvb_crc32c(0, buf, 32), 0x46dd794eu);
}

static void test_lengths(void **state)
{
	enum { N = 5000 };
	uint8_t *buf = malloc(N + 16), *dst = malloc(N + 16);
	uint32_t want[N + 1];

	(void)state;
	assert_non_null(buf);
	assert_non_null(dst);
	for (size_t off = 0; off < 16; off += 5) {
		fill(buf + off, N);
		want[0] = 0;
		for (size_t n = 0; n < N; n++)
			want[n + 1] = slow_crc(want[n], buf + off + n, 1);
		for (size_t n = 0; n <= N; n++) {
			assert_int_equal(kvb_crc32c(0, buf + off, n), want[n]);
			memset(dst, 0xee, N + 16);
			assert_int_equal(kvb_copy_crc32c(dst + 3, buf + off, n, 0), want[n]);
			assert_memory_equal(dst + 3, buf + off, n);
			assert_int_equal(dst[3 + n], 0xee);
		}
	}
	free(buf);
	free(dst);
}

static void test_pieces(void **state)
{
	enum { N = 200000 };
	uint8_t *buf = malloc(N), *dst = malloc(N);
	uint32_t whole, x = 1;

	(void)state;
	assert_non_null(buf);
	assert_non_null(dst);
	fill(buf, N);
	whole = slow_crc(0, buf, N);
	assert_int_equal(kvb_crc32c(0, buf, N), whole);
	assert_int_equal(kvb_copy_crc32c(dst, buf, N, 0), whole);
	assert_memory_equal(dst, buf, N);
	for (int round = 0; round < 50; round++) {
		uint32_t crc = 0, copied = 0;
		size_t at = 0;

		while (at < N) {
			size_t n;

			x = x * 1664525 + 1013904223;
			n = (x >> 8) % 40000;
			if (n > N - at)
				n = N - at;
			crc = kvb_crc32c(crc, buf + at, n);
			copied = kvb_copy_crc32c(dst + at, buf + at, n, copied);
			at += n;
		}
		assert_int_equal(crc, whole);
		assert_int_equal(copied, whole);
	}
	free(buf);
	free(dst);
}

struct scribbler {
	uint8_t *buf;
	size_t len;
	_Atomic bool stop;
};

/* The race is the point: a client rewrites its buffer while it is copied. */
static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	volatile uint8_t *p = s->buf;

	while (!atomic_load_explicit(&s->stop, memory_order_relaxed))
		for (size_t i = 0; i < s->len; i += 61)
			p[i]++;
	return NULL;
}

static void test_changing_source(void **state)
{
	struct scribbler s = { .len = 1 << 20 };
	uint8_t *dst = malloc(s.len);
	unsigned int changed = 0;
	uint32_t last = 0;
	pthread_t t;

	(void)state;
#if KVB_TSAN
	print_message("the copy races with the client on purpose, which TSan would report\n");
	skip();
#endif
	s.buf = malloc(s.len);
	assert_non_null(s.buf);
	assert_non_null(dst);
	fill(s.buf, s.len);
	assert_int_equal(pthread_create(&t, NULL, scribble, &s), 0);
	for (int i = 0; i < 300 || (!changed && i < 100000); i++) {
		uint32_t crc = kvb_copy_crc32c(dst, s.buf, s.len, 0);

		/* Whatever was copied, the checksum is that of the copy. */
		if (crc != kvb_crc32c(0, dst, s.len))
			fail_msg("round %d: the checksum is not the copy's", i);
		changed += i && crc != last;
		last = crc;
	}
	atomic_store(&s.stop, true);
	pthread_join(t, NULL);
	/* Otherwise nothing has been tested. */
	assert_true(changed > 0);
	free(s.buf);
	free(dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_changing_source),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
