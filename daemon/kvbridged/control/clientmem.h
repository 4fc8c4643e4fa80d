/* SPDX-License-Identifier: MIT */
/*
 * Client memory mapped into the daemon. It can vanish at any moment in spite of its
 * seals (a hole punched in a huge page, a revoked region): the SIGBUS handler then puts
 * anonymous pages in its place and raises the flag that its user gave.
 */
#ifndef KVB_CLIENTMEM_H
#define KVB_CLIENTMEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct kvb_clientmem {
	void *addr;		/* NULL: not mapped */
	size_t len;		/* bytes, whole pages */
	void *map;		/* with a guard page on either side */
	size_t map_len;
	void *guard;		/* entry of the handler's table */
};

/* Install the handler. Once, before any mapping. */
int kvb_clientmem_init(struct kvb_err *err);

/*
 * Map @len bytes at @offset of @fd, a memfd sealed against shrinking and growing; the
 * descriptor stays the caller's. @what names it in errors. *@dead is set when the memory
 * vanishes and must outlive the mapping. Control thread.
 */
int kvb_clientmem_map(struct kvb_clientmem *m, int fd, uint64_t offset, uint64_t len, bool write,
		      const char *what, _Atomic bool *dead, struct kvb_err *err);

/* No thread uses the memory any more. Not mapped: no-op. Control thread. */
void kvb_clientmem_unmap(struct kvb_clientmem *m);

#endif
