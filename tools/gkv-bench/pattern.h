/* SPDX-License-Identifier: MIT */
/*
 * Seeded values that can be checked byte by byte faster than memory delivers them.
 *
 * Word i (64 bits, little endian) of a body is w ^ (w >> 32) with
 * w = seed + i * PATTERN_STEP, a Weyl sequence: cheap, and since the map is a
 * bijection every word names seed and position, so a shifted, swapped, stale or
 * foreign sector cannot pass.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define PATTERN_STEP	0x9e3779b97f4a7c15u

/* Write @len bytes at @buf; any alignment. */
void pattern_fill(void *buf, size_t len, uint64_t seed);

/* First byte that differs, or -1 when all @len bytes match. */
int64_t pattern_check(const void *buf, size_t len, uint64_t seed);

/*
 * Values that say themselves what they are: a value of 16 bytes or more starts
 * with its version and a check word of key, version and length; the rest is a
 * body seeded by key and version. Shorter ones are a body seeded by the key.
 */
#define VALUE_HDR	16u

void value_fill(void *buf, size_t len, uint64_t key_seed, uint64_t version);

enum value_error {
	VALUE_OK,
	VALUE_BAD_HEADER,	/* wrong key, wrong length or damaged */
	VALUE_BAD_BODY,
};

/*
 * Check a value of @len bytes. On VALUE_OK *@version is its version (0 when it
 * is too short to have one); otherwise *@where is the first bad byte.
 */
enum value_error value_check(const void *buf, size_t len, uint64_t key_seed, uint64_t *version,
			     size_t *where);

#endif /* BENCH_PATTERN_H */
