/* SPDX-License-Identifier: MIT */
#include "hist.h"

#include <math.h>
#include <string.h>

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

void hist_merge(struct hist *dst, const struct hist *src)
{
	if (!src->count)
		return;
	dst->count += src->count;
	dst->sum += src->sum;
	if (src->min < dst->min)
		dst->min = src->min;
	if (src->max > dst->max)
		dst->max = src->max;
	for (uint32_t i = 0; i < HIST_BUCKETS; i++)
		dst->bucket[i] += src->bucket[i];
}

uint64_t hist_low(uint32_t index)
{
	uint32_t shift;

	if (index < 2 * HIST_SUB)
		return index;
	/* hist_index() leaves the value's leading one in the upper part. */
	shift = (index >> HIST_SUB_BITS) - 1;
	return (uint64_t)(index - (shift << HIST_SUB_BITS)) << shift;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	uint64_t rank, seen = 0;

	if (!h->count)
		return 0;
	if (q >= 1)
		return h->max;
	rank = (uint64_t)ceil(q * (double)h->count);
	if (!rank)
		rank = 1;
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		uint64_t low, width, v;

		seen += h->bucket[i];
		if (seen < rank)
			continue;
		low = hist_low(i);
		width = i + 1 < HIST_BUCKETS ? hist_low(i + 1) - low : 1;
		v = low + width / 2;
		if (v > h->max)
			v = h->max;
		if (v < h->min)
			v = h->min;
		return v;
	}
	return h->max;
}

double hist_mean(const struct hist *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0;
}
