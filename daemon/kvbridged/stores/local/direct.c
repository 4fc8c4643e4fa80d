/* SPDX-License-Identifier: MIT */
/*
 * A Store's value straight from GPU memory: whole blocks by DMA. What is less, the tail or a
 * piece that lies askew, the CPU gathers in a buffer. The client's checksum is taken at its
 * word, since nobody here sees the bytes.
 */
#include <string.h>

#include "core/access.h"
#include "stores/local/local.h"

/* Where a walk over the value has got to. */
struct at {
	uint32_t seg;
	uint32_t seg_off;
	uint32_t left;		/* bytes */
};

static void step(const struct kvb_op *op, struct at *at, uint32_t n)
{
	at->left -= n;
	loc_seg_step(op, &at->seg, &at->seg_off, n);
}

/* Is there a block that a device can fetch? On the disk, pieces begin where blocks do. */
static bool whole(const struct loc_store *ls, const struct kvb_op *op, const struct at *at)
{
	const struct iovec *v = &op->segs[at->seg];

	return at->left >= ls->block && v->iov_len - at->seg_off >= ls->block &&
	       !(((uintptr_t)v->iov_base + at->seg_off) & ls->mem_mask);
}

/*
 * The next piece, all of it direct or none: its bytes on the disk, whole blocks, at most @max,
 * which is so, too.
 */
static uint32_t piece(const struct loc_store *ls, const struct kvb_op *op, struct at *at,
		      uint32_t max, bool *direct)
{
	uint32_t n = 0;

	*direct = whole(ls, op, at);
	if (*direct) {
		size_t here = op->segs[at->seg].iov_len - at->seg_off;

		n = here < at->left ? (uint32_t)here : at->left;
		n = (n < max ? n : max) & ~(ls->block - 1);
		step(op, at, n);
		return n;
	}
	do {
		step(op, at, at->left < ls->block ? at->left : ls->block);
		n += ls->block;
	} while (n < max && at->left && !whole(ls, op, at));
	return n;
}

/* Bytes of the buffer that a gathered piece of @n takes: the next is aligned like memory. */
static uint32_t room(const struct loc_store *ls, uint32_t n)
{
	return (n + ls->mem_mask) & ~ls->mem_mask;
}

bool loc_direct(struct kvb_store *st, const struct kvb_op *op, uint32_t most, uint32_t *rest)
{
	const struct loc_store *ls = st->priv;
	struct at at = { .left = op->len };
	bool direct, any = false;

	*rest = 0;
	if (!ls->block)
		return false;
	while (at.left) {
		uint32_t n = piece(ls, op, &at, LOC_MAX_IO, &direct);

		any |= direct;
		if (!direct)
			*rest += room(ls, n);
		if (*rest > most)
			return false;
	}
	return any;
}

static void gather(const struct loc_op *lop, char *to, uint32_t n)
{
	struct at at = { lop->seg, lop->seg_off, n };

	kvb_client_read_begin();
	while (at.left) {
		const struct iovec *v = &lop->op->segs[at.seg];
		size_t here = v->iov_len - at.seg_off;
		uint32_t len = here < at.left ? (uint32_t)here : at.left;

		kvb_bar_read(to, (char *)v->iov_base + at.seg_off, len);
		to += len;
		step(lop->op, &at, len);
	}
	kvb_client_read_end();
}

/* Short neighbours go with one request. */
static uint32_t more_segs(struct loc_op *lop, struct loc_io *io, uint32_t n)
{
	const struct loc_store *ls = lop->sh->ls;
	uint32_t nsegs, len;

	len = loc_plan_vector(lop, &ls->file[io->file], io->off, n, &nsegs);
	if (nsegs < 2 || len & (ls->block - 1))
		return 0;
	io->buf = NULL;
	io->seg = lop->seg;
	io->nsegs = nsegs;
	return len;
}

void loc_direct_next(struct loc_op *lop, struct loc_io *io, uint32_t n)
{
	const struct loc_store *ls = lop->sh->ls;
	struct kvb_op *op = lop->op;
	struct at at = { lop->seg, lop->seg_off, op->len - lop->next_off };
	uint32_t left = at.left, len;
	bool direct;

	io->len = piece(ls, op, &at, n, &direct);
	if (direct) {
		io->buf = (char *)op->segs[lop->seg].iov_base + lop->seg_off;
		len = 0;
		if (!lop->seg_off && io->len == op->segs[lop->seg].iov_len && io->len < n)
			len = more_segs(lop, io, n < left ? n : left);
		if (len)
			io->len = len;
		op->direct_bytes += io->len;
		loc_seg_advance(lop, io->len);
		return;
	}
	len = io->len < left ? io->len : left;
	io->buf = (char *)op->data + lop->gathered;
	gather(lop, io->buf, len);
	memset((char *)io->buf + len, 0, io->len - len);
	lop->gathered += room(ls, io->len);
	op->tail_bytes += len;
	loc_seg_advance(lop, len);
	lop->next_off += io->len - len;
}
