/* SPDX-License-Identifier: MIT */
/*
 * Watches for namespaces that hold keys and where nobody finds any: the clients that store and
 * those that look up then make their keys in different ways, or open different namespaces, and
 * all that anybody would notice is that nothing gets faster. Control thread.
 */
#ifndef KVB_HITS_H
#define KVB_HITS_H

#include <stdbool.h>
#include <stdint.h>

struct kvb_ns;
struct kvb_server;

/* So many look-ups in a row without a hit are worth a warning. */
#define KVB_HITS_COLD 10000

struct kvb_hits {
	uint64_t hits, misses;
	uint64_t missed;	/* in a row, by and large: since a look that saw a new hit */
	bool cold;		/* KVB_HITS_COLD of them, though it holds something */
};

/* Look at all namespaces, now and then; a warning goes to the log, once until there is a hit. */
void kvb_hits_tick(struct kvb_server *srv, uint64_t now_ns);

/* As of now. */
void kvb_hits_of(const struct kvb_ns *ns, struct kvb_hits *h);
/* One sentence for a namespace that is cold; returns @buf. */
const char *kvb_hits_warning(const struct kvb_ns *ns, const struct kvb_hits *h, char *buf,
			     unsigned int len);

#endif
