/* SPDX-License-Identifier: MIT */
/*
 * Filter "delay": holds operations back before they reach the layer below.
 *
 * Keys, all times:
 *   store, retrieve, delete, exist, list, flush	default 0: not at all
 *   jitter	a random time up to this is added to each delayed operation
 *   seed	a number; the same seed gives the same series of jitters
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "filters/filter.h"

#define DELAY_MAX	(3600ull * 1000 * 1000 * 1000)	/* ns */

struct delay {
	uint64_t ns[32];	/* by opcode */
	uint64_t jitter;
	uint64_t seed;
	_Atomic uint64_t drawn;
};

struct delay_op {
	struct kvb_timer timer;
	struct kvb_store *st;
	struct kvb_op *op;
	bool sleeping;
};

static const struct {
	const char *key;
	uint8_t opcode;
} keys[] = {
	{ "store", GKV_OP_STORE },
	{ "retrieve", GKV_OP_RETRIEVE },
	{ "delete", GKV_OP_DELETE },
	{ "exist", GKV_OP_EXIST },
	{ "list", GKV_OP_LIST },
	{ "flush", GKV_OP_FLUSH },
};

static int delay_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	struct delay *d = calloc(1, sizeof(*d));
	int ret = 0;

	if (!d)
		return kvb_fail(err, ENOMEM, "delay: out of memory");
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !ret; i++)
		ret = kvb_conf_time(conf, keys[i].key, 0, 0, DELAY_MAX, &d->ns[keys[i].opcode],
				    err);
	if (!ret)
		ret = kvb_conf_time(conf, "jitter", 0, 0, DELAY_MAX, &d->jitter, err);
	if (!ret)
		ret = kvb_conf_u64(conf, "seed", 1, 0, UINT64_MAX, &d->seed, err);
	if (ret) {
		free(d);
		return ret;
	}
	st->priv = d;
	return 0;
}

static void delay_close(struct kvb_store *st)
{
	free(st->priv);
	st->priv = NULL;
}

static void delay_over(struct kvb_timer *t)
{
	struct delay_op *o = (struct delay_op *)((char *)t - offsetof(struct delay_op, timer));

	o->sleeping = false;
	kvb_op_forward(o->st, o->op, NULL);
}

static void delay_any(struct kvb_store *st, struct kvb_op *op)
{
	struct delay_op *o = kvb_op_priv(op, st->op_offset);
	struct delay *d = st->priv;
	uint64_t ns = d->ns[op->opcode & 31];

	o->sleeping = false;
	/* The deadline has come and will not come again: held now, it could not be ended. */
	if (!ns || op->late) {
		kvb_op_forward(st, op, NULL);
		return;
	}
	if (d->jitter)
		ns += kvb_filter_random(d->seed, atomic_fetch_add_explicit(&d->drawn, 1,
				memory_order_relaxed)) % (d->jitter + 1);
	o->timer = (struct kvb_timer){ .fn = delay_over };
	o->st = st;
	o->op = op;
	o->sleeping = true;
	kvb_timer_arm(op->r, &o->timer, kvb_now(op->r) + ns);
}

static bool delay_cancel(struct kvb_store *st, struct kvb_op *op)
{
	struct delay_op *o = kvb_op_priv(op, st->op_offset);

	if (!o->sleeping)
		return kvb_filter_cancel_below(st, op);
	o->sleeping = false;
	kvb_timer_cancel(op->r, &o->timer);
	kvb_op_complete(op, KVB_TIMED_OUT);
	return true;
}

const struct kvb_store_ops kvb_delay_ops = {
	.name = "delay",
	.flags = KVB_STORE_FILTER,
	.op_size = sizeof(struct delay_op),
	.open = delay_open,
	.close = delay_close,
	.store = delay_any,
	.retrieve = delay_any,
	.delete = delay_any,
	.exist = delay_any,
	.list = delay_any,
	.flush = delay_any,
	.cancel = delay_cancel,
};
