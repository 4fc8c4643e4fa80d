/* SPDX-License-Identifier: MIT */
/*
 * Moving values between client memory and the daemon's, in slices: a 64 MiB value must
 * not hold up the 4 KiB one behind it.
 */
#include <string.h>

#include "core/access.h"
#include "core/crc.h"
#include "core/dptr.h"
#include "core/killpoint.h"
#include "core/reactor_priv.h"

/* Copied at once up to here; longer values go in slices of this many bytes. */
#define INLINE_MAX (64u << 10)
#define SLICE (128u << 10)
/* From here on a store that can begins with the first slice: core/store.h, staged(). */
#define EARLY_MIN (512u << 10)
/* List entries of a data pointer walked in one slice. */
#define WALK_SLICE 1024
/* A slice counts a piece as at least this many bytes: there may be 65,536 of one byte. */
#define PIECE_MIN 128

static size_t padded(uint32_t len)
{
	return ((size_t)len + 4095) & ~(size_t)4095;
}

/* Values from here on go past the caches: they would only push out what is needed... */
#define STREAM_MIN (4u << 20)
/* ... if they lie in pieces long enough to be worth it. */
#define STREAM_PIECE_MIN (64u << 10)

static uint64_t charge(uint64_t budget, uint64_t len)
{
	if (len < PIECE_MIN)
		len = PIECE_MIN;
	return len < budget ? len : budget;
}

/* ---- Into daemon memory: Store ---- */

static void stage_done(struct kvb_op *op)
{
	bool alive = kvb_regions_alive(op->regions, op->map.v, op->map.n);

	kvb_op_charge_segs(op);
	memset((char *)op->data + op->len, 0, padded(op->len) - op->len);
	op->staged = op->len;
	kvb_op_staged(op, alive ? GKV_SC_SUCCESS : GKV_SC_DATA_TRANSFER | GKV_DNR);
}

/* Part of it has arrived: a store that can begins with that. */
static void stage_early(struct kvb_op *op)
{
	struct kvb_store *st = op->ns->top;

	op->staged = op->len - (uint32_t)op->copy.left;
	if (op->staging) {
		st->ops->staged(st, op);
	} else if (op->len >= EARLY_MIN && op->ns->nlayers == 1 && st->ops->staged) {
		op->staging = true;
		op->answered = false;
		kvb_op_call(op);
	}
}

/* Copy up to @n bytes more. */
static void stage_some(struct kvb_op *op, uint64_t n)
{
	struct kvb_copy *c = &op->copy;

	kvb_client_read_begin();
	while (n && c->left) {
		struct iovec *v = &op->map.v[c->seg];
		uint64_t len = v->iov_len - c->seg_off;
		char *to;

		if (len > n)
			len = n;
		to = (char *)op->data + op->len - c->left;
		if (op->vram) {
			kvb_bar_read(to, (char *)v->iov_base + c->seg_off, len);
			op->crc = kvb_crc32c(op->crc, to, len);
		} else {
			op->crc = kvb_copy_crc32c(to, (char *)v->iov_base + c->seg_off, len,
						  op->crc);
		}
		c->left -= len;
		n -= charge(n, len);
		c->seg_off += len;
		if (c->seg_off == v->iov_len) {
			c->seg++;
			c->seg_off = 0;
		}
	}
	kvb_client_read_end();
}

static bool stage_slice(struct kvb_work *w)
{
	struct kvb_op *op = (struct kvb_op *)((char *)w - offsetof(struct kvb_op, copy.work));

	if ((op->staging && op->answered) || kvb_op_unwanted(op)) {
		kvb_op_staged(op, KVB_TIMED_OUT);
		return false;
	}
	if (op->copy.walk.left) {
		uint16_t status = kvb_dptr_next(&op->copy.walk, &op->map, WALK_SLICE);

		if (status) {
			kvb_op_answer(op, status);
			return false;
		}
		return true;
	}
	stage_some(op, SLICE);
	if (!op->copy.left) {
		stage_done(op);
		return false;
	}
	stage_early(op);
	return true;
}

static void stage_buffer(struct kvb_op *op)
{
	struct kvb_copy *c = &op->copy;

	op->stage = KVB_STAGE_COPY;
	kvb_segs_init(&op->map, op->inline_segs, KVB_INLINE_SEGS);
	kvb_dptr_init(&c->walk, &op->sqe, op->regions, op->len, false);
	c->walk.place = op->vram ? KVB_SPAN_VRAM : 0;
	c->seg = 0;
	c->seg_off = 0;
	c->left = op->len;
	op->crc = 0;
	if (op->len <= INLINE_MAX) {
		do {
			uint16_t status = kvb_dptr_next(&c->walk, &op->map, UINT32_MAX);

			if (status) {
				kvb_op_answer(op, status);
				return;
			}
		} while (c->walk.left);
		stage_some(op, UINT64_MAX);
		stage_done(op);
		return;
	}
	c->work.run = stage_slice;
	kvb_op_work(op, &c->work);
}

static void stage_retry(struct kvb_buf_waiter *w)
{
	struct kvb_op *op = (struct kvb_op *)((char *)w - offsetof(struct kvb_op, wait));

	op->data = kvb_buf_alloc(op->r, padded(op->len));
	if (op->data)
		stage_buffer(op);
	else
		kvb_buf_wait(op->r, &op->wait);
}

void kvb_op_stage(struct kvb_op *op)
{
	if (kvb_op_direct(op))
		return;
	op->crc = 0;
	op->staged = 0;
	op->stage_status = 0;
	if (!op->len) {
		kvb_op_staged(op, GKV_SC_SUCCESS);
		return;
	}
	op->data = kvb_buf_alloc(op->r, padded(op->len));
	if (op->data) {
		stage_buffer(op);
		return;
	}
	op->stage = KVB_STAGE_BUFFER;
	op->wait.fn = stage_retry;
	op->wait.flow = op->flow;
	op->wait.len = padded(op->len);
	kvb_buf_wait(op->r, &op->wait);
}

/* ---- Into client memory: Retrieve, List ---- */

static void out_some(struct kvb_op *op, uint64_t n)
{
	struct kvb_copy *c = &op->copy;

	kvb_client_write_begin();
	while (n && c->left) {
		struct iovec *v = &op->segs[c->seg];
		uint64_t len = v->iov_len - c->seg_off;

		if (len > n)
			len = n;
		if (len > c->left)
			len = c->left;
		if (c->src) {
			if (v->iov_base && (op->vram || (c->stream && len >= STREAM_PIECE_MIN)))
				kvb_bar_write((char *)v->iov_base + c->seg_off, c->src, len);
			else if (v->iov_base)
				memcpy((char *)v->iov_base + c->seg_off, c->src, len);
			c->src += len;
		} else if (v->iov_base) {
			memset((char *)v->iov_base + c->seg_off, 0, len);
		}
		c->left -= len;
		n -= charge(n, len);
		c->seg_off += len;
		if (c->seg_off == v->iov_len) {
			c->seg++;
			c->seg_off = 0;
		}
	}
	/* Zeroes are stored plainly. All before the completion, which another thread may post. */
	if (op->vram)
		kvb_bar_flush();
	kvb_client_write_end();
}

static bool out_slice(struct kvb_work *w)
{
	struct kvb_op *op = (struct kvb_op *)((char *)w - offsetof(struct kvb_op, copy.work));

	/* The copy of a late command is finished, its client may still want it. */
	if (atomic_load_explicit(&op->qp->drop, memory_order_relaxed))
		op->copy.left = 0;
	else
		out_some(op, SLICE);
	if (op->copy.left)
		return true;
	op->copy.done(op->copy.st, op);
	return false;
}

static void out_start(struct kvb_store *st, struct kvb_op *op, uint32_t off, uint32_t len,
		      kvb_op_fn done)
{
	struct kvb_copy *c = &op->copy;

	c->st = st;
	c->done = done;
	c->left = len;
	c->stream = len >= STREAM_MIN;
	c->seg = 0;
	c->seg_off = off;
	while (c->seg < op->nsegs && c->seg_off >= op->segs[c->seg].iov_len)
		c->seg_off -= op->segs[c->seg++].iov_len;
	if (len <= INLINE_MAX) {
		out_some(op, UINT64_MAX);
		done(st, op);
		return;
	}
	c->work.run = out_slice;
	kvb_op_work(op, &c->work);
}

void kvb_op_copy_out(struct kvb_store *st, struct kvb_op *op, const void *src, uint32_t off,
		     uint32_t len, kvb_op_fn done)
{
	op->copy.src = src;
	op->copy_bytes += len;
	out_start(st, op, off, len, done);
}

void kvb_op_clear_out(struct kvb_store *st, struct kvb_op *op, uint32_t len, kvb_op_fn done)
{
	op->copy.src = NULL;
	out_start(st, op, 0, len, done);
}
