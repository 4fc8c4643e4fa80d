/* SPDX-License-Identifier: MIT */
/*
 * Client memory mapped into the daemon: of a memfd, or of the kernel module. It can vanish at
 * any moment (a hole punched in a huge page, a revoked region): the SIGBUS handler then puts
 * anonymous pages in its place and raises the flag that its user gave.
 */
#ifndef KVB_CLIENTMEM_H
#define KVB_CLIENTMEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/gkvfd.h"
#include "core/err.h"

/* What the memory is for, which decides what descriptor it may come with. */
enum kvb_memuse {
	KVB_MEM_SQ,	/* these three: a memfd, or that part of a queue pair of /dev/gkv */
	KVB_MEM_CQ,
	KVB_MEM_DB,
	KVB_MEM_DATA,	/* a memfd, or a region of /dev/gkv */
	KVB_MEM_OWN,	/* doorbells of a session, records: a memfd */
};

/* What to map. */
struct kvb_memreq {
	int fd;			/* stays the caller's */
	uint64_t offset, len;	/* bytes */
	bool write;
	enum kvb_memuse use;
	uint32_t mode;		/* queue pair: GKV_MODE_*, its part must be where its bit says */
	const char *what;	/* names it in errors */
	_Atomic bool *dead;	/* set when the memory vanishes; must outlive the mapping */
};

struct kvb_clientmem {
	void *addr;		/* NULL: not mapped */
	size_t len;		/* bytes, whole pages */
	void *map;		/* with a guard page on either side */
	size_t map_len;
	void *guard;		/* entry of the handler's table */
	_Atomic bool *dead;
	struct kvb_place at;
	uint64_t page_id;	/* of the module's: the number of its first page; 0: not known */
	int fd;			/* of the module's, a copy to see its end by; else -1 */
};

/* Install the handler. Once, before any mapping. */
int kvb_clientmem_init(struct kvb_err *err);

/*
 * Map what @q says: a memfd sealed against shrinking and growing, or memory of the module where
 * it reports it to be. -EINVAL, -EPERM: not that; -ENODEV: revoked; -ENOSPC: too many.
 * Control thread.
 */
int kvb_clientmem_map(struct kvb_clientmem *m, const struct kvb_memreq *q, struct kvb_err *err);

/*
 * Its memory was taken away: raise the flag and put anonymous pages in its place, before anybody
 * touches it. Control thread.
 */
void kvb_clientmem_gone(struct kvb_clientmem *m);

/*
 * No thread uses the memory any more. Not mapped: no-op. What of a descriptor is to be closed
 * was sent by a client of user @uid. Control thread.
 */
void kvb_clientmem_unmap(struct kvb_clientmem *m, uid_t uid);

#endif
