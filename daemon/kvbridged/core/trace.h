/* SPDX-License-Identifier: MIT */
/*
 * Built with KVB_TRACE_ACCESS, the accessors of rings and GPU memory tell a test of each access
 * that they make, in order (tests/unit/test_accesses.c); else it costs nothing.
 */
#ifndef KVB_TRACE_H
#define KVB_TRACE_H

#include <stddef.h>

enum kvb_access {
	KVB_ACCESS_LOAD,	/* @len bytes at @at, at once */
	KVB_ACCESS_STORE,
	KVB_ACCESS_FLUSH,	/* what was stored is on its way */
	KVB_ACCESS_ACQUIRE,	/* what follows is loaded anew */
};

#ifdef KVB_TRACE_ACCESS
void kvb_trace(enum kvb_access what, const volatile void *at, size_t len);
#else
#define kvb_trace(what, at, len) ((void)0)
#endif

#endif
