/* SPDX-License-Identifier: MIT */
/*
 * Messages to a thread: any thread puts them in, without locks; the owner takes them out
 * in order. Waking the owner is the sender's business.
 */
#ifndef KVB_MAILBOX_H
#define KVB_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/reactor.h"

struct kvb_mailbox {
	_Atomic(struct kvb_msg *) head;	/* a stack: the last one in is first */
};

/* Returns whether the mailbox was empty. Sequentially consistent. */
static inline bool kvb_mailbox_put(struct kvb_mailbox *b, struct kvb_msg *m)
{
	struct kvb_msg *head = atomic_load_explicit(&b->head, memory_order_relaxed);

	do {
		m->next = head;
	} while (!atomic_compare_exchange_weak(&b->head, &head, m));
	return !head;
}

/* A hint, for a loop that comes by again. */
static inline bool kvb_mailbox_empty(struct kvb_mailbox *b)
{
	return !atomic_load_explicit(&b->head, memory_order_relaxed);
}

/* Run all that is there, oldest first. Returns how many. Owner only. */
static inline unsigned int kvb_mailbox_run(struct kvb_mailbox *b)
{
	struct kvb_msg *m = atomic_exchange(&b->head, NULL), *list = NULL;
	unsigned int n = 0;

	/* Senders rely on order: turn the stack round. */
	while (m) {
		struct kvb_msg *next = m->next;

		m->next = list;
		list = m;
		m = next;
	}
	for (; list; n++) {
		m = list;
		list = m->next;
		m->fn(m);
	}
	return n;
}

#endif
