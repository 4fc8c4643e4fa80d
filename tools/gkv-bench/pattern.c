/* SPDX-License-Identifier: MIT */
#include "pattern.h"

#include <string.h>

#include "util.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "patterns are defined in little-endian words"
#endif

/* Two words at a time: the widest vector that every 64-bit target has. */
typedef uint64_t vec __attribute__((vector_size(16)));
#define VEC_WORDS 2u
#define UNROLL 4u

static vec vec_start(uint64_t seed)
{
	return (vec){ seed, seed + PATTERN_STEP };
}

static uint64_t word_at(uint64_t seed, size_t i)
{
	uint64_t w = seed + i * PATTERN_STEP;

	return w ^ (w >> 32);
}

void pattern_fill(void *buf, size_t len, uint64_t seed)
{
	uint8_t *p = buf;
	const vec step = (vec){ 0, 0 } + VEC_WORDS * PATTERN_STEP;
	vec w = vec_start(seed);
	size_t i = 0;

	for (; len - i >= UNROLL * sizeof(vec); i += UNROLL * sizeof(vec)) {
		for (unsigned int k = 0; k < UNROLL; k++) {
			vec v = w ^ (w >> 32);

			memcpy(p + i + k * sizeof(v), &v, sizeof(v));
			w += step;
		}
	}
	for (; i < len; i += 8) {
		uint64_t v = word_at(seed, i / 8);

		memcpy(p + i, &v, len - i < 8 ? len - i : 8);
	}
}

int64_t pattern_check(const void *buf, size_t len, uint64_t seed)
{
	const uint8_t *p = buf;
	const vec step = (vec){ 0, 0 } + VEC_WORDS * PATTERN_STEP;
	vec w = vec_start(seed);
	size_t i = 0;

	while (len - i >= UNROLL * sizeof(vec)) {
		vec bad = { 0, 0 };

		for (unsigned int k = 0; k < UNROLL; k++) {
			vec v;

			memcpy(&v, p + i + k * sizeof(v), sizeof(v));
			bad |= v ^ w ^ (w >> 32);
			w += step;
		}
		if (unlikely(bad[0] | bad[1]))
			break;
		i += UNROLL * sizeof(vec);
	}
	/* The tail, or the stretch that holds the difference. */
	for (; i < len; i += 8) {
		uint64_t v = word_at(seed, i / 8);
		size_t n = len - i < 8 ? len - i : 8;
		const uint8_t *e = (const uint8_t *)&v;

		if (!memcmp(p + i, e, n))
			continue;
		for (size_t k = 0; k < n; k++)
			if (p[i + k] != e[k])
				return (int64_t)(i + k);
	}
	return -1;
}

static uint64_t header_check(uint64_t key_seed, uint64_t version, size_t len)
{
	return mix64(key_seed ^ mix64(version + 0x5851f42d4c957f2du) ^ mix64(len + 1));
}

static uint64_t body_seed(uint64_t key_seed, uint64_t version)
{
	return mix64(key_seed + 0x14057b7ef767814fu * (version + 1));
}

void value_fill(void *buf, size_t len, uint64_t key_seed, uint64_t version)
{
	uint64_t hdr[2] = { version, header_check(key_seed, version, len) };

	if (len < VALUE_HDR) {
		pattern_fill(buf, len, key_seed);
		return;
	}
	memcpy(buf, hdr, VALUE_HDR);
	pattern_fill((uint8_t *)buf + VALUE_HDR, len - VALUE_HDR, body_seed(key_seed, version));
}

enum value_error value_check(const void *buf, size_t len, uint64_t key_seed, uint64_t *version,
			     size_t *where)
{
	uint64_t hdr[2];
	int64_t at;

	*version = 0;
	*where = 0;
	if (len < VALUE_HDR) {
		at = pattern_check(buf, len, key_seed);
		if (at >= 0)
			*where = (size_t)at;
		return at < 0 ? VALUE_OK : VALUE_BAD_BODY;
	}
	memcpy(hdr, buf, VALUE_HDR);
	if (hdr[1] != header_check(key_seed, hdr[0], len))
		return VALUE_BAD_HEADER;
	*version = hdr[0];
	at = pattern_check((const uint8_t *)buf + VALUE_HDR, len - VALUE_HDR,
			   body_seed(key_seed, hdr[0]));
	if (at < 0)
		return VALUE_OK;
	*where = VALUE_HDR + (size_t)at;
	return VALUE_BAD_BODY;
}
