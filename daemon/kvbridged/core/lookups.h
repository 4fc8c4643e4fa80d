/* SPDX-License-Identifier: MIT */
/*
 * What became of the commands of a namespace that ask for a key, and whether any was ever
 * stored: of one reactor's queue pairs. Written by that reactor, read by any thread.
 */
#ifndef KVB_LOOKUPS_H
#define KVB_LOOKUPS_H

#include "core/count.h"

struct kvb_lookups {
	kvb_counter hits, misses;	/* Retrieve and Exist */
	kvb_counter stores;		/* that succeeded */
};

/* By reactor, then by namespace index; NULL until the reactor is started. */
extern struct kvb_lookups *kvb_lookups[];

#endif
