/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histogram in the manner of HdrHistogram: each power of two is cut
 * into 128 equal buckets, so that a value read back is within 0.8 % of the one
 * recorded, over the whole of 64 bits, in 59 KiB.
 *
 * Not locked: one writer at a time; merge when the writers are done.
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS	7u
#define HIST_SUB	(1u << HIST_SUB_BITS)
#define HIST_BUCKETS	((64u - HIST_SUB_BITS + 1u) * HIST_SUB)

struct hist {
	uint64_t count;
	uint64_t sum;
	uint64_t min;			/* UINT64_MAX while empty */
	uint64_t max;
	uint64_t bucket[HIST_BUCKETS];
};

static inline uint32_t hist_index(uint64_t v)
{
	uint32_t shift;

	if (v < HIST_SUB)
		return (uint32_t)v;
	shift = 63u - (uint32_t)__builtin_clzll(v) - HIST_SUB_BITS;
	return (shift << HIST_SUB_BITS) + (uint32_t)(v >> shift);
}

static inline void hist_add_n(struct hist *h, uint64_t v, uint64_t n)
{
	h->count += n;
	h->sum += v * n;
	if (v < h->min)
		h->min = v;
	if (v > h->max)
		h->max = v;
	h->bucket[hist_index(v)] += n;
}

static inline void hist_add(struct hist *h, uint64_t v)
{
	hist_add_n(h, v, 1);
}

void hist_init(struct hist *h);
void hist_merge(struct hist *dst, const struct hist *src);

/* Lowest value that falls into bucket @index. */
uint64_t hist_low(uint32_t index);

/*
 * Value below or at which the fraction @q (0 to 1) of the recorded values lies:
 * the middle of its bucket, bounded by min and max. 0 when empty.
 */
uint64_t hist_quantile(const struct hist *h, double q);

double hist_mean(const struct hist *h);

#endif /* BENCH_HIST_H */
