/* SPDX-License-Identifier: MIT */
/*
 * The checksum of a Retrieve's value over client memory. It follows the requests: whatever
 * has arrived from the beginning on without a gap is taken, in slices, while later requests
 * are under way, so that little is left to do when the last has ended.
 */
#include "core/crc.h"
#include "stores/local/local.h"

/* Values up to here are checked at once, longer ones in slices of so many bytes. */
#define INLINE_MAX	(64u << 10)
#define SLICE		(128u << 10)
/* A slice counts a piece as at least this many bytes: there may be 65,536 of one byte. */
#define PIECE_MIN	128u

/* Bytes from the beginning on that no request and no copy will write to any more. */
static uint32_t arrived(const struct loc_op *lop)
{
	uint32_t n = lop->next_off;

	for (unsigned int i = 0; i < LOC_IO_SLOTS; i++) {
		if (lop->io[i].lop && lop->io[i].voff < n)
			n = lop->io[i].voff;
	}
	return n;
}

static void crc_some(struct loc_op *lop, uint32_t end, uint32_t budget)
{
	const struct kvb_op *op = lop->op;

	while (budget && lop->crc_off < end) {
		const struct iovec *v = &op->segs[lop->crc_seg];
		uint64_t len = v->iov_len - lop->crc_seg_off;
		uint32_t cost;

		if (len > budget)
			len = budget;
		if (len > end - lop->crc_off)
			len = end - lop->crc_off;
		lop->crc = kvb_crc32c(lop->crc, (char *)v->iov_base + lop->crc_seg_off, len);
		lop->crc_off += len;
		lop->crc_seg_off += len;
		if (lop->crc_seg_off == v->iov_len) {
			lop->crc_seg++;
			lop->crc_seg_off = 0;
		}
		cost = len < PIECE_MIN ? PIECE_MIN : len;
		budget -= cost < budget ? cost : budget;
	}
}

static bool crc_slice(struct kvb_work *w)
{
	struct loc_op *lop = kvb_container(w, struct loc_op, work);

	/* Never cut short, unless the value is lost already: it would condemn a good one. */
	if (!lop->err) {
		crc_some(lop, arrived(lop), SLICE);
		if (lop->crc_off < arrived(lop))
			return true;
	}
	lop->crc_busy = false;
	loc_rd_pump(lop);
	return false;
}

void loc_crc_kick(struct loc_op *lop)
{
	if (lop->crc_busy)
		return;
	lop->crc_busy = true;
	lop->work.run = crc_slice;
	kvb_op_work(lop->op, &lop->work);
}

void loc_crc_run(struct loc_op *lop)
{
	uint32_t end;

	if (lop->crc_busy || lop->err)
		return;
	end = arrived(lop);
	if (lop->crc_off == end)
		return;
	if (lop->want <= INLINE_MAX) {
		if (end == lop->want)
			crc_some(lop, end, UINT32_MAX);
		return;
	}
	loc_crc_kick(lop);
}
