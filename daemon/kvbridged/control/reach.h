/* SPDX-License-Identifier: MIT */
/*
 * Can the disks of a session's namespaces do DMA to its GPU memory? Found out when the second of
 * the two comes, so that no command meets a way that does not exist. A disk may never answer:
 * stores are asked on threads, while the session's request waits and other sessions go on.
 * Control thread.
 */
#ifndef KVB_REACH_H
#define KVB_REACH_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/err.h"

struct kvb_ns;
struct kvb_probe;
struct kvb_session;
struct kvb_session_region;

/* How long a request waits for disks at most; tests make it short. Any thread. */
extern _Atomic uint64_t kvb_reach_limit_ns;

/* The result, with its text in @err if it is not 0. */
typedef void (*kvb_reach_fn)(struct kvb_session *s, int rc, const struct kvb_err *err);

/* A session's request that waits for disks. */
struct kvb_asking {
	kvb_reach_fn then;		/* NULL: there is none */
	struct kvb_session_region *region;	/* the new one, or the next to be asked about */
	struct kvb_ns *ns;		/* the one to open, or NULL */
	uint32_t next;			/* index of the next open namespace to be asked */
	uint64_t until, limit;		/* ns: when it has waited too long, and how long that is */
	struct kvb_probe *probe;	/* not over yet, even if nothing waits for it any more */
};

/*
 * Can the disks of all open namespaces reach the new region @g; or those of @ns, which is to be
 * opened, all regions of the session? Calls @then, now or later: 0 also when they need not,
 * because it is host memory, or a store copies, or "allow_bounce". -EXDEV if not. -ETIMEDOUT:
 * no answer within the limit; a transfer may still be under way then, so the memory stays
 * mapped, and an older region is dead. -EBUSY: for that reason no more can be asked.
 */
void kvb_reach_region(struct kvb_session *s, struct kvb_session_region *g, kvb_reach_fn then);
void kvb_reach_ns(struct kvb_session *s, struct kvb_ns *ns, kvb_reach_fn then);

/*
 * The session is closing. Its request ends with -ECANCELED; the session must stay for as long
 * as it has a probe, which calls kvb_session_try_free() when it is over.
 */
void kvb_reach_cancel(struct kvb_session *s);

/* End requests that have waited too long. */
void kvb_reach_tick(uint64_t now_ns);
/* Milliseconds until that is to be looked at again, -1: not by itself. */
int kvb_reach_patience(uint64_t now_ns);

#endif
