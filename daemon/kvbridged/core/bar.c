/* SPDX-License-Identifier: MIT */
#include "core/bar.h"

#include <string.h>

#if defined(__x86_64__)
#include <smmintrin.h>

/* Streaming loads bring a whole line in one transfer where plain ones take eight. */
__attribute__((target("sse4.1"))) static void load_line(char *dst, const char *src)
{
	__m128i *s = (__m128i *)src;
	__m128i a = _mm_stream_load_si128(s), b = _mm_stream_load_si128(s + 1);
	__m128i c = _mm_stream_load_si128(s + 2), d = _mm_stream_load_si128(s + 3);

	_mm_storeu_si128((__m128i *)dst, a);
	_mm_storeu_si128((__m128i *)dst + 1, b);
	_mm_storeu_si128((__m128i *)dst + 2, c);
	_mm_storeu_si128((__m128i *)dst + 3, d);
}

__attribute__((target("sse4.1"))) static void load_lines(char *dst, const char *src, size_t n)
{
	for (; n; dst += 64, src += 64, n -= 64) {
		kvb_trace(KVB_ACCESS_LOAD, src, 64);
		load_line(dst, src);
	}
}

static inline int have_stream_loads(void)
{
	return __builtin_cpu_supports("sse4.1");
}
#else
static void load_lines(char *dst, const char *src, size_t n)
{
	(void)dst;
	(void)src;
	(void)n;
}

static inline int have_stream_loads(void)
{
	return 0;
}
#endif

/* @src and @n are multiples of 8. */
static void load_words(char *dst, const char *src, size_t n)
{
	for (; n; dst += 8, src += 8, n -= 8) {
		uint64_t w;

		kvb_trace(KVB_ACCESS_LOAD, src, 8);
		w = __atomic_load_n((const uint64_t *)src, __ATOMIC_RELAXED);
		memcpy(dst, &w, 8);
	}
}

static void load_bytes(char *dst, const char *src, size_t n)
{
	while (n--) {
		kvb_trace(KVB_ACCESS_LOAD, src, 1);
		*dst++ = __atomic_load_n(src++, __ATOMIC_RELAXED);
	}
}

void kvb_bar_read_sqe(struct gkv_sqe *dst, const void *src)
{
	if (have_stream_loads())
		load_lines((char *)dst, src, sizeof(*dst));
	else
		load_words((char *)dst, src, sizeof(*dst));
}

unsigned int kvb_bar_line(void)
{
	return have_stream_loads() ? KVB_BAR_LINE_MAX : sizeof(uint64_t);
}

void kvb_bar_read_line(void *dst, const void *src, unsigned int n)
{
	kvb_bar_acquire();
	if (n == KVB_BAR_LINE_MAX)
		load_lines(dst, src, n);
	else
		load_words(dst, src, n);
	kvb_bar_acquire();
}

static inline size_t at_most(size_t a, size_t b)
{
	return a < b ? a : b;
}

void kvb_bar_read(void *to, const void *from, size_t n)
{
	const char *src = from;
	char *dst = to;
	size_t part;

	kvb_bar_acquire();
	part = at_most(n, -(uintptr_t)src & 7);
	load_bytes(dst, src, part);
	dst += part;
	src += part;
	n -= part;
	if (have_stream_loads()) {
		part = at_most(n, -(uintptr_t)src & 63) & ~(size_t)7;
		load_words(dst, src, part);
		dst += part;
		src += part;
		n -= part;
		part = n & ~(size_t)63;
		load_lines(dst, src, part);
		dst += part;
		src += part;
		n -= part;
	}
	part = n & ~(size_t)7;
	load_words(dst, src, part);
	load_bytes(dst + part, src + part, n - part);
}

void kvb_bar_write(void *to, const void *from, size_t n)
{
	const char *src = from;
	char *dst = to;

	kvb_trace(KVB_ACCESS_STORE, dst, n);
#if defined(__x86_64__)
	size_t head = at_most(n, -(uintptr_t)dst & 15);

	memcpy(dst, src, head);
	for (dst += head, src += head, n -= head; n >= 64; dst += 64, src += 64, n -= 64) {
		const __m128i *s = (const __m128i *)src;
		__m128i *d = (__m128i *)dst;
		__m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
		__m128i e = _mm_loadu_si128(s + 2), f = _mm_loadu_si128(s + 3);

		_mm_stream_si128(d, a);
		_mm_stream_si128(d + 1, b);
		_mm_stream_si128(d + 2, e);
		_mm_stream_si128(d + 3, f);
	}
#endif
	memcpy(dst, src, n);
	kvb_bar_flush();
}

void kvb_bar_zero(void *to, size_t n)
{
	uint64_t *p = to;

	for (; n; n -= 8)
		__atomic_store_n(p++, 0, __ATOMIC_RELAXED);
	kvb_bar_flush();
}
