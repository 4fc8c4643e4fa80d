/* SPDX-License-Identifier: MIT */
/*
 * List. A sharded store is asked shard by shard; each shard's keys, which come in order,
 * are merged with what the shards before it found, so that memory stays at twice the
 * answer however many keys there are.
 */
#include "core/reactor_priv.h"

#define PAGE 4096u
/* An answer is no longer than this, whatever buffer the client offers. */
#define LIST_MAX ((8u << 20) - PAGE)

/* A run of entries in the format of the answer (KV Fig 16), header left out. */
struct run {
	char *base;		/* the count, then the entries: half of the List's buffer */
	char *buf;
	uint32_t len, pos;	/* bytes */
	uint32_t n;
};

struct kvb_list {
	struct run old, new;
	uint32_t cap;		/* bytes */
	bool full;
	/* The first key of any shard that did not fit: the answer ends before it. */
	bool stopped;
	uint8_t stop_len;
	uint8_t stop[GKV_KEY_MAX];
};

static uint32_t entry_len(const char *e)
{
	return GKV_LIST_ENTRY_SIZE(((const struct gkv_list_entry *)e)->klen);
}

static bool append(struct kvb_list *l, const uint8_t *key, uint8_t klen)
{
	uint32_t size = GKV_LIST_ENTRY_SIZE(klen);
	char *e = l->new.buf + l->new.len;

	/* A shorter key behind it may fit, but would leave it out for ever. */
	if (l->stopped && kvb_key_cmp(key, klen, l->stop, l->stop_len) >= 0) {
		l->full = true;
		return false;
	}
	if (l->new.len + size > l->cap) {
		l->full = true;
		l->stopped = true;
		l->stop_len = klen;
		memcpy(l->stop, key, klen);
		return false;
	}
	memset(e, 0, size);
	e[0] = (char)klen;
	memcpy(e + 2, key, klen);
	l->new.len += size;
	l->new.n++;
	return true;
}

/* Move old entries below @key (NULL: all) to the new run. */
static bool merge_below(struct kvb_list *l, const uint8_t *key, uint8_t klen)
{
	while (l->old.pos < l->old.len) {
		const char *e = l->old.buf + l->old.pos;

		if (key && kvb_key_cmp((const uint8_t *)e + 2, (uint8_t)e[0], key, klen) > 0)
			break;
		if (!append(l, (const uint8_t *)e + 2, (uint8_t)e[0]))
			return false;
		l->old.pos += entry_len(e);
	}
	return true;
}

bool kvb_list_add(struct kvb_op *op, const uint8_t *key, uint8_t klen)
{
	struct kvb_list *l = op->list;

	return !l->full && merge_below(l, key, klen) && append(l, key, klen);
}

static void list_free(struct kvb_op *op)
{
	struct kvb_list *l = op->list;

	if (!l)
		return;
	kvb_bufs_free(&op->owner->bufs, l);
	op->list = NULL;
}

static void list_end(struct kvb_op *op, uint16_t status)
{
	list_free(op);
	kvb_op_answer(op, status);
}

static void copied(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	list_end(op, GKV_SC_SUCCESS);
}

/* Back on the queue pair's reactor with the whole answer. */
static void reply(struct kvb_msg *m)
{
	struct kvb_op *op = kvb_op_of_msg(m);
	struct run *run = &op->list->new;
	uint16_t status = op->status;

	if (!status) {
		memcpy(run->base, &run->n, GKV_LIST_HDR_SIZE);
		status = kvb_op_map(op, run->len + GKV_LIST_HDR_SIZE);
	}
	if (status)
		list_end(op, status);
	else
		kvb_op_copy_out(NULL, op, run->base, 0, run->len + GKV_LIST_HDR_SIZE, copied);
}

static void visit(struct kvb_msg *m)
{
	struct kvb_op *op = kvb_op_of_msg(m);
	struct kvb_list *l = op->list;
	struct run run = l->old;

	l->old = l->new;
	l->old.pos = 0;
	run.len = run.pos = run.n = 0;
	l->new = run;
	l->full = false;
	kvb_deadline_add(op);
	kvb_op_call(op);
}

void kvb_list_shard_done(struct kvb_op *op)
{
	struct kvb_list *l = op->list;

	kvb_deadline_del(op);
	if (!op->status && !l->full)
		merge_below(l, NULL, 0);
	if (!op->status && op->ns->sharded && op->r->id + 1 < kvb_nreactors) {
		op->r = kvb_reactors[op->r->id + 1];
		kvb_op_move(op, op->r, visit);
	} else if (op->r != op->owner) {
		op->r = op->owner;
		kvb_op_move(op, op->r, reply);
	} else {
		reply(&op->msg);
	}
}

/* Room for the answer, twice: bytes. However small the budget is, it is enough. */
static uint32_t list_room(const struct kvb_op *op)
{
	uint32_t want = op->len < LIST_MAX ? op->len : LIST_MAX;
	size_t most = op->owner->bufs.budget / 8;

	if (most < PAGE)
		most = PAGE;
	want = (want + PAGE - 1) & ~(PAGE - 1);
	return want < most ? want : (uint32_t)most & ~(PAGE - 1);
}

/*
 * One buffer for all, so that a waiter is called exactly when what it needs is there: one
 * that was called for less would wait again, and be called again, for ever.
 */
static size_t list_bytes(const struct kvb_op *op)
{
	return PAGE + 2 * (size_t)list_room(op);
}

static bool list_alloc(struct kvb_op *op)
{
	struct kvb_list *l = kvb_bufs_alloc(&op->r->bufs, list_bytes(op));
	uint32_t room = list_room(op), cap = op->len < room ? op->len : room;

	if (!l)
		return false;
	*l = (struct kvb_list){ .cap = cap - GKV_LIST_HDR_SIZE };
	l->old.base = (char *)l + PAGE;
	l->old.buf = l->old.base + GKV_LIST_HDR_SIZE;
	l->new.base = l->old.base + room;
	l->new.buf = l->new.base + GKV_LIST_HDR_SIZE;
	op->list = l;
	return true;
}

static void list_go(struct kvb_op *op)
{
	if (op->ns->sharded && op->owner != kvb_reactors[0]) {
		op->r = kvb_reactors[0];
		kvb_op_move(op, op->r, visit);
	} else {
		visit(&op->msg);
	}
}

static void list_retry(struct kvb_buf_waiter *w)
{
	struct kvb_op *op = (struct kvb_op *)((char *)w - offsetof(struct kvb_op, wait));

	if (list_alloc(op)) {
		kvb_deadline_del(op);
		list_go(op);
	} else {
		kvb_buf_wait(op->r, &op->wait);
	}
}

void kvb_list_start(struct kvb_op *op)
{
	if (list_alloc(op)) {
		list_go(op);
		return;
	}
	op->wait.fn = list_retry;
	op->wait.flow = op->flow;
	op->wait.len = list_bytes(op);
	op->stage = KVB_STAGE_BUFFER;
	kvb_deadline_add(op);
	kvb_buf_wait(op->r, &op->wait);
}
