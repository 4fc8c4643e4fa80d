/* SPDX-License-Identifier: MIT */
/* Client memory that a request reads or writes directly. */
#include "stores/local/local.h"

#define MAX_SEGS 256u	/* of one vectored request */

bool loc_direct_ok(const struct loc_file *f, const void *base, uint64_t off)
{
	return !((uintptr_t)base & f->mem_mask) && !(off & (f->lbs - 1));
}

void loc_seg_step(const struct kvb_op *op, uint32_t *seg, uint32_t *off, uint32_t n)
{
	*off += n;
	while (*seg < op->nsegs && *off >= op->segs[*seg].iov_len)
		*off -= op->segs[(*seg)++].iov_len;
}

void loc_seg_advance(struct loc_op *lop, uint32_t n)
{
	lop->next_off += n;
	loc_seg_step(lop->op, &lop->seg, &lop->seg_off, n);
}

uint32_t loc_plan_vector(struct loc_op *lop, const struct loc_file *f, uint64_t off, uint32_t max,
			 uint32_t *n)
{
	const struct kvb_op *op = lop->op;
	uint32_t len = 0;

	*n = 0;
	while (lop->seg + *n < op->nsegs && *n < MAX_SEGS) {
		const struct iovec *v = &op->segs[lop->seg + *n];

		if (!v->iov_base || !loc_direct_ok(f, v->iov_base, off + len) ||
		    (v->iov_len & (f->lbs - 1)) || v->iov_len > max - len)
			break;
		len += v->iov_len;
		++*n;
	}
	return len;
}
