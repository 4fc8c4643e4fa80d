/* SPDX-License-Identifier: MIT */
/*
 * Doubly linked lists whose head is no element. A link that is in no list points to itself and may be
 * removed again.
 */
#ifndef KVB_LINK_H
#define KVB_LINK_H

#include <stdbool.h>
#include <stddef.h>

#define kvb_container(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

struct kvb_link {
	struct kvb_link *prev, *next;
};

static inline void kvb_link_init(struct kvb_link *h)
{
	h->prev = h->next = h;
}

static inline bool kvb_link_empty(const struct kvb_link *h)
{
	return h->next == h;
}

/* At the tail. */
static inline void kvb_link_add(struct kvb_link *h, struct kvb_link *l)
{
	l->prev = h->prev;
	l->next = h;
	h->prev->next = l;
	h->prev = l;
}

static inline void kvb_link_del(struct kvb_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	l->next = l->prev = l;
}

#endif
