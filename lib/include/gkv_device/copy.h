/* SPDX-License-Identifier: MIT */
/*
 * Values between host memory and the device's, by the device: the way where no disk reaches
 * memory of the GPU. Nobody goes it unasked, and what goes it is counted.
 */
#ifndef GKV_DEVICE_COPY_H
#define GKV_DEVICE_COPY_H

#include "queue.h"

/* As wide as a lane can; it may hold values of any type. */
typedef struct {
	uint64_t lo, hi;
} __attribute__((aligned(16), may_alias)) gkvd_wide;

/*
 * Copy @len bytes from @from to @to, which do not overlap; widest where both are multiples of
 * 16. To be called by all lanes of @mask together and with the same arguments; when it returns,
 * each of them sees all bytes. For a Retrieve: after its result is known; for a Store: before it
 * is submitted. Adds to gkv_dev_stats.copied.
 */
GKV_DEV_FN void gkv_dev_copy(struct gkv_dev_queue *q, uint64_t mask, void *to, const void *from,
			     uint64_t len)
{
	uint32_t lanes = (uint32_t)gkvd_popc64(mask), rank = gkvd_rank(mask);
	uint64_t wide = ((uintptr_t)to | (uintptr_t)from) & 15 ? 0 : len / 16, i;

	for (i = rank; i < wide; i += lanes)
		((gkvd_wide *)to)[i] = ((const gkvd_wide *)from)[i];
	for (i = wide * 16 + rank; i < len; i += lanes)
		((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
	gkvd_sync(mask);
	if (!rank)
		gkvd_add64_relaxed_dev(&q->stats.copied, len);
}

#endif
