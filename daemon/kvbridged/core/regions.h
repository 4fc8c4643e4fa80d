/* SPDX-License-Identifier: MIT */
/*
 * From a session's addresses to memory. A table is immutable once built, so that
 * reactors read it without locks; adding or removing a region makes a new one.
 */
#ifndef KVB_REGIONS_H
#define KVB_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define KVB_SPAN_RDONLY 0x1u	/* the daemon may only read it */
#define KVB_SPAN_VRAM	0x2u	/* GPU memory behind a BAR */

/* What a table needs to know of a region; embed it. Outlives every table that names it. */
struct kvb_region {
	_Atomic bool dead;	/* its memory vanished; set before anyone can use a replacement */
	_Atomic uint64_t bounce;	/* namespaces, by index, whose disks cannot reach it */
	_Atomic uint64_t fetch;	/* namespaces, by index, whose disks were seen to read it */
};

/* One run of addresses in one mapping. */
struct kvb_span {
	uint64_t iova;
	uint64_t len;		/* bytes, not 0; iova + len is at most 2^64 */
	void *addr;		/* where iova is mapped; congruent to it modulo 8 */
	uint32_t flags;		/* KVB_SPAN_* */
	struct kvb_region *owner;
};

struct kvb_regions {
	_Atomic uint32_t refs;	/* starts at 1; counted by those who own tables */
	uint32_t n;
	const uint32_t *by_addr;	/* indices of spans, ascending by addr */
	void *priv;		/* the owner's, NULL at first */
	struct kvb_span spans[];	/* ascending by iova, disjoint */
};

/*
 * A table of the @n spans at @spans, in any order, or NULL with errno ENOMEM, or EINVAL
 * when spans are empty, wrap, overlap or are misaligned. Any thread. Freed with
 * kvb_regions_free().
 */
struct kvb_regions *kvb_regions_build(const struct kvb_span *spans, uint32_t n);
void kvb_regions_free(struct kvb_regions *t);

/* The span that holds the byte at @iova, or NULL. Remembers the last answer per thread. */
const struct kvb_span *kvb_regions_span(const struct kvb_regions *t, uint64_t iova);

/*
 * Where @iova is mapped, or NULL when it is in no region or, for @write, in a read-only
 * one. *@avail is the number of bytes, at most @len, that follow in the same region.
 */
void *kvb_regions_find(const struct kvb_regions *t, uint64_t iova, uint64_t len, bool write,
		       uint64_t *avail);

/*
 * Whether every region that the pieces at @v (each inside one region of @t, or NULL) lie
 * in is still alive. To be asked after the last access, before the result is believed.
 */
bool kvb_regions_alive(const struct kvb_regions *t, const struct iovec *v, uint32_t n);

/* Whether a piece at @v lies in a region that the disks of the namespace @index cannot reach. */
bool kvb_regions_bounce(const struct kvb_regions *t, const struct iovec *v, uint32_t n,
			unsigned int index);

/* Whether the disks of the namespace @index can read all of the pieces at @v. */
bool kvb_regions_fetch(const struct kvb_regions *t, const struct iovec *v, uint32_t n,
		       unsigned int index);

#endif
