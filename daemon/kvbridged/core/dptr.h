/* SPDX-License-Identifier: MIT */
/*
 * Data pointers: PRP entries and SGL descriptors (Base 4.3) to pieces of memory.
 *
 * The lists lie in client memory, which may change at any moment: each entry is read
 * once, judged and used from the copy. No more of a list is read than the transfer
 * needs, and errors behind that go unnoticed, as the standard allows.
 */
#ifndef KVB_DPTR_H
#define KVB_DPTR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <gkv/nvme_kv.h>

#include "regions.h"

#define KVB_PRP_PAGE		4096u
/* 64 MiB in pieces of 1 KiB, and the segment descriptors of its lists. */
#define KVB_SGL_MAX_DESCS	(65536u + 1024u)

/*
 * Most descriptors of a transfer of @len bytes: enough for a block and a link for each
 * byte, but a short command must not buy a long walk with empty ones.
 */
static inline uint32_t kvb_sgl_max_descs(uint32_t len)
{
	return len < KVB_SGL_MAX_DESCS / 2 - 512 ? 1024 + 2 * len : KVB_SGL_MAX_DESCS;
}

/* A growing array of pieces. It starts in memory of the caller's and moves to the heap. */
struct kvb_segs {
	struct iovec *v;
	uint32_t n;
	uint32_t cap;
	struct iovec *first;	/* the caller's */
};

static inline void kvb_segs_init(struct kvb_segs *s, struct iovec *first, uint32_t cap)
{
	s->v = first;
	s->n = 0;
	s->cap = cap;
	s->first = first;
}

/* Return what is on the heap; s->v is invalid afterwards. */
void kvb_segs_free(struct kvb_segs *s);

/* A walk. All members are dptr.c's, but @left may be read, @place set. */
struct kvb_dptr {
	const struct kvb_regions *regions;
	uint64_t left;		/* bytes of the transfer not yet described */
	uint64_t beyond;	/* bytes of the client's buffer behind the transfer */
	bool to_client;
	uint32_t place;		/* the caller's: what spans of data must have of KVB_SPAN_VRAM */
	uint8_t state;
	bool last;		/* inside a Last Segment */
	uint32_t descs;		/* that may still come */
	uint64_t next;		/* address of the next list entry or descriptor */
	uint64_t in_seg;	/* PRP: entries before the page ends; SGL: descriptors */
	const struct kvb_span *list;	/* where the list was read last */
	const struct kvb_span *data;	/* where the last piece lies */
	struct gkv_sgl_desc desc;	/* SGL1 */
	uint64_t prp1, prp2;
};

/*
 * Begin to walk the data pointer of @sqe, a private copy whose PSDT is not 11b, for the
 * first @len bytes of the CDW10 that it describes. @to_client: Retrieve and List;
 * otherwise Store. @regions must last as long as the walk and the pieces.
 *
 * Data must lie in host memory, or, when w->place is set to KVB_SPAN_VRAM afterwards, all of it in
 * VRAM: a queue pair's GKV_MODE_DATA says which. PRP lists and SGL segments may lie in either;
 * GPU code has them at hand in VRAM, libgkv keeps them in host memory, which is read faster.
 */
void kvb_dptr_init(struct kvb_dptr *w, const struct gkv_sqe *sqe,
		   const struct kvb_regions *regions, uint32_t len, bool to_client);

/*
 * Go on, for at most @budget list entries, and append the pieces found to @out, each
 * inside one region, neighbours merged; bit buckets of a transfer to the client have
 * iov_base NULL. Done when it returns 0 and w->left is 0. Otherwise returns
 *
 * 04h|DNR	an address in no region, or in a read-only one for a transfer to the client,
 *		or in a region that is dead
 * 06h		out of memory
 * 0Dh		segment of a length not a positive multiple of 16 or not qword aligned;
 *		segment descriptor inside a Last Segment
 * 0Eh		segment descriptor elsewhere than last in its segment; more than
 *		kvb_sgl_max_descs() descriptors
 * 0Fh		descriptors end before the transfer; address + length above 2^64
 * 11h		unknown type or subtype; SGL1 neither data block nor (last) segment
 * 12h|DNR	data in VRAM that must be in host memory, or the other way round
 * 13h		PRP1 not dword aligned, list not qword aligned, any other offset not 0
 *
 * Entries are judged in order: form (alignment; or 11h, then 0Dh for a Last Segment, 0Eh,
 * 0Dh for length and alignment, 0Fh), then address. Pieces found before an error stay
 * in @out.
 */
uint16_t kvb_dptr_next(struct kvb_dptr *w, struct kvb_segs *out, uint32_t budget);

/* The whole walk at once. */
uint16_t kvb_dptr_walk(const struct gkv_sqe *sqe, const struct kvb_regions *regions,
		       uint32_t len, bool to_client, struct kvb_segs *out);

#endif
