/* SPDX-License-Identifier: MIT */
/*
 * Labelled points at which a test kills the daemon: GKV_KILLPOINT=name[:n] raises
 * SIGKILL at the n-th pass of that point.
 */
#ifndef KVB_KILLPOINT_H
#define KVB_KILLPOINT_H

extern const char *kvb_killpoint_name;	/* NULL: none */

void kvb_killpoint_init(void);
void kvb_killpoint_hit(const char *name);

#define kvb_killpoint(name)                                  \
	do {                                                 \
		if (__builtin_expect(!!kvb_killpoint_name, 0)) \
			kvb_killpoint_hit(name);             \
	} while (0)

#endif
