/* SPDX-License-Identifier: MIT */
/*
 * A reactor's timers: a binary heap. See reactor.h for the interface that stores use.
 */
#ifndef KVB_TIMER_H
#define KVB_TIMER_H

#include "core/reactor.h"

struct kvb_timers {
	struct kvb_timer **heap;
	size_t n, cap;
};

void kvb_timers_arm(struct kvb_timers *ts, struct kvb_timer *t, uint64_t when);
void kvb_timers_cancel(struct kvb_timers *ts, struct kvb_timer *t);
/* Run what is due at @now; returns how many ran. */
unsigned int kvb_timers_run(struct kvb_timers *ts, uint64_t now);
/* When the next one is due; UINT64_MAX when none is armed. */
uint64_t kvb_timers_next(const struct kvb_timers *ts);
void kvb_timers_destroy(struct kvb_timers *ts);

#endif
