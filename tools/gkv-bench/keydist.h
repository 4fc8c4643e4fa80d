/* SPDX-License-Identifier: MIT */
/* Random numbers and the choice of keys. */
#ifndef BENCH_KEYDIST_H
#define BENCH_KEYDIST_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

/* splitmix64: one step and one mix, the state may start anywhere. */
static inline uint64_t rng_next(uint64_t *state)
{
	return mix64(*state += 0x9e3779b97f4a7c15u);
}

/* Uniform in [0, n), n below 2^32. */
static inline uint64_t below(uint64_t r, uint64_t n)
{
	return ((r >> 32) * n) >> 32;
}

struct keydist {
	uint64_t keys;
	bool zipf;
	double theta;
	double alpha;
	double zetan;
	double eta;
	double half_pow;		/* 1 + 0.5^theta */
};

/*
 * Uniform over @keys (below 2^32), or Zipf with exponent @theta (0 < theta < 1) when
 * @theta is not 0. Takes time in the number of keys for Zipf.
 */
void keydist_init(struct keydist *d, uint64_t keys, double theta);

/* Zipf's rank for the random number @r; ranks are scattered over the keys. */
uint64_t keydist_zipf(const struct keydist *d, uint64_t r);

static inline uint64_t keydist_next(const struct keydist *d, uint64_t r)
{
	return d->zipf ? keydist_zipf(d, r) : below(r, d->keys);
}

/* Key number @i as 16 bytes. */
static inline void key_bytes(uint64_t i, uint8_t key[16])
{
	uint64_t w[2] = { mix64(i + 0x2545f4914f6cdd1du), i };

	__builtin_memcpy(key, w, 16);
}

/* What values of key number @i are seeded with. */
static inline uint64_t key_seed(uint64_t i, uint64_t seed)
{
	return mix64(mix64(i + 1) ^ seed);
}

#endif /* BENCH_KEYDIST_H */
