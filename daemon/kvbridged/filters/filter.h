/* SPDX-License-Identifier: MIT */
/*
 * What filters share.
 */
#ifndef KVB_FILTER_H
#define KVB_FILTER_H

#include "core/op.h"
#include "core/store.h"

/* Cancel an operation that @st has forwarded: ask the layer that got it. */
static inline bool kvb_filter_cancel_below(struct kvb_store *st, struct kvb_op *op)
{
	struct kvb_store *below = st->next;

	while (below && !kvb_store_entry(below->ops, op->opcode))
		below = below->next;
	return below && below->ops->cancel && below->ops->cancel(below, op);
}

/*
 * The @n-th of a reproducible series of random numbers (splitmix64). Drawn by index, so
 * that reactors share nothing but a count.
 */
static inline uint64_t kvb_filter_random(uint64_t seed, uint64_t n)
{
	uint64_t x = seed + (n + 1) * 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

#endif
