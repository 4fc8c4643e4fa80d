/* SPDX-License-Identifier: MIT */
/*
 * Filter "fault": makes the layer below appear to fail.
 *
 * Keys:
 *   rules	rules separated by blanks; the first that strikes an operation counts
 *   seed	a number; the same seed gives the same series of chances
 *
 * A rule is an operation (store, retrieve, delete, exist, list, flush, * for all) and
 * any of the following, separated by colons:
 *
 *   eio enospc edquot eacces eperm erofs etimedout enotconn eagain efbig efault enomem
 *			fail as if the store had met that error; nothing happens below
 *   status=N		fail with this NVMe status: SC, SCT << 8, DNR 0x4000
 *   slow=TIME		wait first
 *   slow-after=TIME	answer later than the store did
 *   lost		never happens, never completes: only the deadline ends it
 *   lost-after		happens, but never completes: only the deadline ends it
 *   flip		one bit of the value stored or returned is wrong
 *   p=0.01		by chance
 *   every=N		each n-th
 *   after=N		not the first N
 *   times=N		N times at most
 *   key=PREFIX		keys that begin so; hexadecimal after 0x
 *
 * For example "retrieve:eio:p=0.01 store:slow=50ms:enospc:every=10 *:lost:p=0.001".
 *
 * A mutation that fails here has not happened, one whose answer is lost ends as every
 * late one does: indeterminate but whole. Short and torn I/O arise below the store, and
 * are injected there.
 */
#include "filters/fault.h"

#include <errno.h>
#include <stdlib.h>

#include "core/decode.h"
#include "core/store.h"
#include "filters/filter.h"

enum fault_where {
	FAULT_BELOW,		/* the layer below has it, or had */
	FAULT_BEFORE,		/* waits to go on */
	FAULT_AFTER,		/* waits to be answered */
	FAULT_LOST,		/* waits for its deadline */
};

struct fault_op {
	struct kvb_timer timer;
	struct kvb_store *st;
	struct kvb_op *op;
	const struct kvb_fault_rule *rule;
	enum fault_where where;
};

static int fault_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	struct kvb_fault *f = calloc(1, sizeof(*f));
	const char *rules;
	int ret;

	if (!f)
		return kvb_fail(err, ENOMEM, "fault: out of memory");
	ret = kvb_conf_u64(conf, "seed", 1, 0, UINT64_MAX, &f->seed, err);
	if (!ret)
		ret = kvb_conf_str(conf, "rules", "", &rules, err);
	if (!ret)
		ret = kvb_fault_parse(f, rules, err);
	if (ret) {
		free(f);
		return ret;
	}
	st->priv = f;
	return 0;
}

static void fault_close(struct kvb_store *st)
{
	free(st->priv);
	st->priv = NULL;
}

static bool is_write(const struct kvb_op *op)
{
	return op->opcode == GKV_OP_STORE || op->opcode == GKV_OP_DELETE;
}

/* Any bit, but the same one for the same key and length. */
static void flip_bit(const struct kvb_op *op, uint8_t *p, uint64_t len)
{
	uint64_t x = kvb_filter_random(op->hash ^ op->len, len);

	p[x / 8 % len] ^= 1u << x % 8;
}

static void flip_returned(const struct kvb_op *op)
{
	uint64_t len = op->len < op->result ? op->len : op->result;

	if (op->status || !len)
		return;
	for (uint32_t i = 0; i < op->nsegs; i++) {
		if (!op->segs[i].iov_base)
			continue;
		/* Only the first piece is sure to hold part of the value. */
		flip_bit(op, op->segs[i].iov_base,
			 op->segs[i].iov_len < len ? op->segs[i].iov_len : len);
		return;
	}
}

/*
 * The deadline passed while the layer below had the operation, and comes only once: to
 * hold it now would be for ever.
 */
static bool fault_too_late(struct fault_op *o)
{
	if (!o->op->late)
		return false;
	o->where = FAULT_BELOW;
	kvb_op_complete(o->op, KVB_TIMED_OUT);
	return true;
}

static void fault_lose(struct fault_op *o)
{
	if (!fault_too_late(o))
		o->where = FAULT_LOST;
}

static void fault_timer(struct kvb_timer *t);

static void fault_sleep(struct fault_op *o, enum fault_where where, uint64_t ns)
{
	if (fault_too_late(o))
		return;
	o->where = where;
	o->timer = (struct kvb_timer){ .fn = fault_timer };
	kvb_timer_arm(o->op->r, &o->timer, kvb_now(o->op->r) + ns);
}

/* The layer below has finished. */
static void fault_done(struct kvb_store *st, struct kvb_op *op)
{
	struct fault_op *o = kvb_op_priv(op, st->op_offset);

	if (o->rule->flip && op->opcode == GKV_OP_RETRIEVE)
		flip_returned(op);
	if (o->rule->lost_after)
		fault_lose(o);
	else if (o->rule->slow_after_ns)
		fault_sleep(o, FAULT_AFTER, o->rule->slow_after_ns);
	else
		kvb_op_complete(op, op->status);
}

/* Waiting is over, or there was none. */
static void fault_go(struct fault_op *o)
{
	const struct kvb_fault_rule *r = o->rule;
	struct kvb_op *op = o->op;

	o->where = FAULT_BELOW;
	if (r->lost) {
		fault_lose(o);
		return;
	}
	if (r->err || r->status) {
		kvb_op_complete(op, r->err ? kvb_status_from_errno(r->err, is_write(op)) :
					     r->status);
		return;
	}
	if (r->flip && op->opcode == GKV_OP_STORE && op->len)
		flip_bit(op, op->data, op->len);
	kvb_op_forward(o->st, op, fault_done);
}

static void fault_timer(struct kvb_timer *t)
{
	struct fault_op *o = (struct fault_op *)((char *)t - offsetof(struct fault_op, timer));

	if (o->where == FAULT_BEFORE)
		fault_go(o);
	else
		kvb_op_complete(o->op, o->op->status);
}

static void fault_any(struct kvb_store *st, struct kvb_op *op)
{
	struct fault_op *o = kvb_op_priv(op, st->op_offset);

	o->where = FAULT_BELOW;
	o->rule = kvb_fault_strike(st->priv, op);
	if (!o->rule) {
		kvb_op_forward(st, op, NULL);
		return;
	}
	o->st = st;
	o->op = op;
	if (o->rule->slow_ns)
		fault_sleep(o, FAULT_BEFORE, o->rule->slow_ns);
	else
		fault_go(o);
}

static bool fault_cancel(struct kvb_store *st, struct kvb_op *op)
{
	struct fault_op *o = kvb_op_priv(op, st->op_offset);

	switch (o->where) {
	case FAULT_BELOW:
		return kvb_filter_cancel_below(st, op);
	case FAULT_BEFORE:
	case FAULT_AFTER:
		kvb_timer_cancel(op->r, &o->timer);
		break;
	case FAULT_LOST:
		break;
	}
	o->where = FAULT_BELOW;
	kvb_op_complete(op, KVB_TIMED_OUT);
	return true;
}

const struct kvb_store_ops kvb_fault_ops = {
	.name = "fault",
	.flags = KVB_STORE_FILTER,
	.op_size = sizeof(struct fault_op),
	.open = fault_open,
	.close = fault_close,
	.store = fault_any,
	.retrieve = fault_any,
	.delete = fault_any,
	.exist = fault_any,
	.list = fault_any,
	.flush = fault_any,
	.cancel = fault_cancel,
};
