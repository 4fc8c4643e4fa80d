/* SPDX-License-Identifier: MIT */
/*
 * Stores whose value the devices fetch from client memory. From GPU memory the CPU reads slowly;
 * but somebody must take the checksum, and what was checksummed is what is stored: so only with
 * the client's own, which travels with the command.
 */
#include "core/access.h"
#include "core/reactor_priv.h"
#include "core/regions.h"

/* Beyond this the CPU reads all of the value, in slices. */
#define REST_MAX (64u << 10)

static bool may(const struct kvb_op *op)
{
	return op->vram && op->has_client_crc && op->len && op->ns->nlayers == 1 &&
	       op->ns->top->ops->direct;
}

static bool prepare(struct kvb_op *op)
{
	struct kvb_store *st = op->ns->top;
	uint32_t rest;

	if (!kvb_regions_fetch(op->regions, op->segs, op->nsegs, op->ns->index) ||
	    !st->ops->direct(st, op, REST_MAX, &rest))
		return false;
	if (rest)
		op->data = kvb_buf_alloc(op->r, rest);
	return !rest || op->data;
}

bool kvb_op_direct(struct kvb_op *op)
{
	uint16_t status;

	op->direct = false;
	if (!may(op))
		return false;
	status = kvb_op_map(op, op->len);
	if (status) {
		kvb_op_answer(op, status);
		return true;
	}
	if (!prepare(op)) {
		kvb_segs_free(&op->map);
		kvb_op_charge_segs(op);
		op->map.v = NULL;
		return false;
	}
	op->direct = true;
	op->crc = op->client_crc;
	op->staged = op->len;
	op->stage_status = 0;
	kvb_op_call(op);
	return true;
}

uint16_t kvb_op_direct_over(const struct kvb_op *op)
{
	if (!kvb_regions_alive(op->regions, op->segs, op->nsegs))
		return GKV_SC_DATA_TRANSFER | GKV_DNR;
	/* Who does not wait any more may have put something else in its place. */
	return kvb_op_unwanted(op) ? KVB_TIMED_OUT : 0;
}
