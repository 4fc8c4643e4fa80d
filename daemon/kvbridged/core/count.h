/* SPDX-License-Identifier: MIT */
/*
 * Counters with one writer: cheap to bump, safe to read from any thread.
 */
#ifndef KVB_COUNT_H
#define KVB_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t kvb_counter;

static inline void kvb_count(kvb_counter *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline uint64_t kvb_counted(const kvb_counter *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

#endif
