/* SPDX-License-Identifier: MIT */
/*
 * Staging buffers of one reactor: size classes of powers of two from 4 KiB on, cached,
 * within a budget. See reactor.h for the interface that stores use.
 */
#ifndef KVB_BUF_H
#define KVB_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "core/count.h"
#include "core/reactor.h"

#define KVB_BUF_MIN_SHIFT 12
#define KVB_BUF_CLASSES 21	/* up to 4 GiB */

#define KVB_BUF_FLOWS 64u

struct kvb_buf_free;

struct kvb_bufs {
	struct kvb_buf_free *free[KVB_BUF_CLASSES];
	size_t cached;		/* bytes on the free lists */
	size_t out;		/* bytes lent */
	size_t budget;		/* bytes that may be lent */
	/* Who waits for memory: a queue for each flow, and which are not empty. */
	struct {
		struct kvb_buf_waiter *head, **tail;
	} flows[KVB_BUF_FLOWS];
	uint64_t busy_flows;
	unsigned int flow;	/* served last */
	bool serving;
	kvb_counter waits;
};

void kvb_bufs_init(struct kvb_bufs *b, size_t budget);
void kvb_bufs_destroy(struct kvb_bufs *b);
/* NULL also while others wait: a newcomer queues behind them. */
void *kvb_bufs_alloc(struct kvb_bufs *b, size_t len);
void kvb_bufs_free(struct kvb_bufs *b, void *buf);
void kvb_bufs_wait(struct kvb_bufs *b, struct kvb_buf_waiter *w);
/* Take a waiter off again; no-op when it is not queued. */
void kvb_bufs_unwait(struct kvb_bufs *b, struct kvb_buf_waiter *w);
/* The buffer leaves the budget: it belongs to a store from now on. */
void kvb_bufs_disown(struct kvb_bufs *b, void *buf);

#endif
