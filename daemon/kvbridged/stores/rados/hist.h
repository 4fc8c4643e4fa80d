/* SPDX-License-Identifier: MIT */
/*
 * A histogram of times with one writer, readable from any thread: eight steps to each power of
 * two, so that a percentile is right to 12 %.
 */
#ifndef KVB_RADOS_HIST_H
#define KVB_RADOS_HIST_H

#include "core/count.h"

#define RD_HIST_STEPS 8u
#define RD_HIST_SLOTS (38u * RD_HIST_STEPS)	/* up to some 270 s in ns */

struct rd_hist {
	kvb_counter n[RD_HIST_SLOTS];
};

static inline unsigned int rd_hist_slot(uint64_t ns)
{
	unsigned int log, slot;

	if (ns < RD_HIST_STEPS)
		return (unsigned int)ns;
	log = 63u - (unsigned int)__builtin_clzll(ns);
	slot = (log - 2) * RD_HIST_STEPS + (unsigned int)(ns >> (log - 3) & (RD_HIST_STEPS - 1));
	return slot < RD_HIST_SLOTS ? slot : RD_HIST_SLOTS - 1;
}

static inline void rd_hist_add(struct rd_hist *h, uint64_t ns)
{
	kvb_count(&h->n[rd_hist_slot(ns)], 1);
}

/* The middle of a slot, ns. */
static inline uint64_t rd_hist_value(unsigned int slot)
{
	unsigned int log = slot / RD_HIST_STEPS + 2;
	uint64_t step;

	if (slot < RD_HIST_STEPS)
		return slot;
	step = 1ull << (log - 3);
	return (1ull << log) + (slot % RD_HIST_STEPS) * step + step / 2;
}

#endif
