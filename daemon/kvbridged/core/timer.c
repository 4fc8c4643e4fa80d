/* SPDX-License-Identifier: MIT */
#include "core/timer.h"

#include <stdlib.h>

#include "core/err.h"

static void place(struct kvb_timers *ts, size_t i, struct kvb_timer *t)
{
	ts->heap[i] = t;
	t->slot = i + 1;
}

static void sift_up(struct kvb_timers *ts, size_t i, struct kvb_timer *t)
{
	while (i && ts->heap[(i - 1) / 2]->when > t->when) {
		place(ts, i, ts->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	place(ts, i, t);
}

static void sift_down(struct kvb_timers *ts, size_t i, struct kvb_timer *t)
{
	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= ts->n)
			break;
		if (c + 1 < ts->n && ts->heap[c + 1]->when < ts->heap[c]->when)
			c++;
		if (ts->heap[c]->when >= t->when)
			break;
		place(ts, i, ts->heap[c]);
		i = c;
	}
	place(ts, i, t);
}

void kvb_timers_cancel(struct kvb_timers *ts, struct kvb_timer *t)
{
	size_t i = t->slot;
	struct kvb_timer *last;

	if (!i--)
		return;
	t->slot = 0;
	last = ts->heap[--ts->n];
	if (last == t)
		return;
	if (i && ts->heap[(i - 1) / 2]->when > last->when)
		sift_up(ts, i, last);
	else
		sift_down(ts, i, last);
}

void kvb_timers_arm(struct kvb_timers *ts, struct kvb_timer *t, uint64_t when)
{
	kvb_timers_cancel(ts, t);
	if (ts->n == ts->cap) {
		size_t cap = ts->cap ? 2 * ts->cap : 64;
		struct kvb_timer **heap = realloc(ts->heap, cap * sizeof(*heap));

		/* A lost timer is a lost deadline; a few bytes short there is no going on. */
		if (!heap) {
			kvb_log(KVB_LOG_ERR, "out of memory for %zu timers", cap);
			abort();
		}
		ts->heap = heap;
		ts->cap = cap;
	}
	t->when = when;
	sift_up(ts, ts->n++, t);
}

unsigned int kvb_timers_run(struct kvb_timers *ts, uint64_t now)
{
	unsigned int ran = 0;

	while (ts->n && ts->heap[0]->when <= now) {
		struct kvb_timer *t = ts->heap[0];

		kvb_timers_cancel(ts, t);
		t->fn(t);
		ran++;
	}
	return ran;
}

uint64_t kvb_timers_next(const struct kvb_timers *ts)
{
	return ts->n ? ts->heap[0]->when : UINT64_MAX;
}

void kvb_timers_destroy(struct kvb_timers *ts)
{
	free(ts->heap);
}
