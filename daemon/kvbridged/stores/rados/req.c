/* SPDX-License-Identifier: MIT */
/*
 * A request's life. librados knows neither the operation nor the client's memory, so a deadline
 * ends the operation at once; the request stays until librados has called back, and the bytes of
 * a Store until no message refers to them.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/killpoint.h"
#include "stores/rados/rados.h"

#define MS 1000000ull

/* ---- Generations of the connection ---- */

void rd_lease_put(struct rd_shard *sh, struct rd_lease *g)
{
	if (--g->users)
		return;
	rd_io_put(sh->rs->pool, g->io);
	free(g);
}

static void req_run(struct rd_req *q);

static void connection_changed(struct rd_sub *sub, struct rd_io *io)
{
	struct rd_shard *sh = kvb_container(sub, struct rd_shard, sub);
	struct rd_lease *g = NULL;

	if (sh->lease)
		rd_lease_put(sh, sh->lease);
	if (io) {
		g = malloc(sizeof(*g));
		if (g)
			*g = (struct rd_lease){ .io = io, .users = 1 };
		else
			rd_io_put(sh->rs->pool, io);
	}
	sh->lease = g;
	while (sh->lease && !kvb_link_empty(&sh->parked)) {
		struct rd_req *q = kvb_container(sh->parked.next, struct rd_req, queue);

		kvb_link_del(&q->queue);
		q->queued = false;
		q->lease = sh->lease;
		q->lease->users++;
		req_run(q);
	}
}

/* ---- Errors ---- */

uint16_t rd_status(struct rd_req *q, int rc, bool write)
{
	struct rd_pool *pool = q->sh->rs->pool;
	char name[8];

	switch (rc) {
	case 0:
		return GKV_SC_SUCCESS;
	case -ENOENT:
		/* Of every object, when the pool is gone; the map at hand tells. */
		if (rados_pool_reverse_lookup(q->lease->io->cluster, q->lease->io->pool_id, name,
					      sizeof(name)) != -ENOENT)
			return GKV_SC_KEY_NOT_FOUND;
		rd_pool_failed(pool, q->lease->io, rc);
		return GKV_SC_NS_NOT_READY;
	case -EEXIST:
		return GKV_SC_KEY_EXISTS;
	case -ENOSPC:
	case -EDQUOT:
		return GKV_SC_CAPACITY;
	case -EACCES:
	case -EPERM:
		return GKV_SC_ACCESS_DENIED;
	case -EROFS:
		return GKV_SC_WRITE_PROTECTED;
	case -EIO:
		return write ? GKV_SC_WRITE_FAULT : GKV_SC_UNRECOVERED;
	case -EMSGSIZE:
	case -EFBIG:
	case -E2BIG:
		return GKV_SC_VALUE_SIZE;
	case -ESHUTDOWN:
		rd_pool_failed(pool, q->lease->io, rc);
		return GKV_SC_TRANSIENT;
	case -ETIMEDOUT:
	case -ECANCELED:
	case -ENOTCONN:
	case -EAGAIN:
		return GKV_SC_TRANSIENT;
	default:
		return GKV_SC_INTERNAL;
	}
}

/* ---- The budget ---- */

static bool is_large(const struct rd_req *q)
{
	return q->charged > RD_SMALL;
}

static void req_run(struct rd_req *q)
{
	if (is_large(q))
		q->sh->bytes += q->charged;
	q->go(q);
}

/* One that is larger than the whole budget goes when it is alone. */
static bool fits(const struct rd_shard *sh, const struct rd_req *q)
{
	return !is_large(q) || !sh->bytes || sh->bytes + q->charged <= sh->rs->shard_bytes;
}

static void run_waiters(struct rd_shard *sh)
{
	if (sh->running_waiters)
		return;
	sh->running_waiters = true;
	while (!kvb_link_empty(&sh->waiting)) {
		struct rd_req *q = kvb_container(sh->waiting.next, struct rd_req, queue);

		if (!fits(sh, q))
			break;
		kvb_link_del(&q->queue);
		q->queued = false;
		req_run(q);
	}
	sh->running_waiters = false;
}

static void uncharge(struct rd_req *q)
{
	if (is_large(q))
		q->sh->bytes -= q->charged;
	q->charged = 0;
}

/* ---- Letting go ---- */

static void req_free(struct rd_req *q)
{
	struct rd_shard *sh = q->sh;

	if (q->write)
		rsh_write_free(q->write);
	if (q->data)
		kvb_buf_free(sh->r, q->data);
	for (uint32_t i = 0; i < q->nparts; i++) {
		if (q->parts[i].read)
			rsh_read_free(q->parts[i].read);
	}
	if (q->parts != &q->one)
		free(q->parts);
	kvb_link_del(&q->link);
	q->next_free = sh->free;
	sh->free = q;
}

static void look_at_unsent(struct kvb_timer *t)
{
	struct rd_shard *sh = kvb_container(t, struct rd_shard, unsent_timer);
	struct kvb_link *l = sh->unsent.next, *next;

	for (; l != &sh->unsent; l = next) {
		struct rd_req *q = kvb_container(l, struct rd_req, queue);

		next = l->next;
		if (!rsh_write_idle(q->write))
			continue;
		kvb_link_del(l);
		uncharge(q);
		req_free(q);
	}
	if (!kvb_link_empty(&sh->unsent))
		kvb_timer_arm(sh->r, t, kvb_now(sh->r) + MS);
	run_waiters(sh);
}

/* Nothing of librados will call for this request any more. */
static void req_release(struct rd_req *q)
{
	struct rd_shard *sh = q->sh;

	if (q->large) {
		q->large = false;
		sh->large_reads--;
	}
	if (q->lease) {
		rd_lease_put(sh, q->lease);
		q->lease = NULL;
	}
	if (q->write && q->data && !rsh_write_idle(q->write)) {
		/* Its bytes stay charged: a hung OSD must not make us collect without end. */
		kvb_link_add(&sh->unsent, &q->queue);
		if (!sh->unsent_timer.slot)
			kvb_timer_arm(sh->r, &sh->unsent_timer, kvb_now(sh->r) + MS);
		return;
	}
	uncharge(q);
	req_free(q);
	run_waiters(sh);
}

static void stamp(struct rd_req *q, uint64_t now, uint64_t back_ns)
{
	const struct kvb_op *op = q->op;
	uint64_t added = now - back_ns;

	if (op->opcode != GKV_OP_RETRIEVE && op->opcode != GKV_OP_STORE)
		return;
	if (q->send_ns > op->start_ns)
		added += q->send_ns - op->start_ns;
	rd_hist_add(&q->sh->added[op->opcode == GKV_OP_STORE], added);
}

void rd_req_end(struct rd_req *q, uint16_t status)
{
	struct kvb_op *op = q->op;
	uint64_t back = 0;

	for (uint32_t i = 0; i < q->nparts; i++) {
		if (q->parts[i].over && q->parts[i].back_ns > back)
			back = q->parts[i].back_ns;
	}
	if (!status && back)
		stamp(q, kvb_clock_ns(), back);
	q->op = NULL;
	/* First what librados has of it: the answer may bring the next command. */
	if (!q->npending)
		req_release(q);
	kvb_op_complete(op, status);
}

/* ---- Callbacks ---- */

static void part_over(struct kvb_msg *m)
{
	struct rd_part *p = kvb_container(m, struct rd_part, msg);
	struct rd_req *q = p->req;

	p->pending = false;
	p->over = true;
	q->npending--;
	if (p->read)
		rsh_read_result(p->read, &p->res);
	else
		p->res.rc = rsh_write_result(q->write);
	if (q->op)
		q->over(q, p);
	else if (!q->npending)
		req_release(q);
}

/* On librados's thread. */
static void called_back(void *arg)
{
	struct rd_part *p = arg;

	p->back_ns = kvb_clock_ns();
	p->msg.fn = part_over;
	kvb_reactor_send(p->req->sh->r, &p->msg);
}

int rd_read_send(struct rd_req *q, struct rd_part *p, bool first)
{
	struct rsh_read_args a = {
		.oid = q->oid,
		.off = p->off,
		.len = p->len,
		.stat = first,
		.attr = first ? RD_ATTR_NAME : NULL,
	};
	int rc = 0;

	if (!q->send_ns)
		q->send_ns = kvb_clock_ns();
	p->req = q;
	p->pending = true;
	p->over = false;
	q->npending++;
	p->read = rsh_read_start(q->lease->io->ioctx, &a, called_back, p, &rc);
	if (p->read)
		return 0;
	p->pending = false;
	q->npending--;
	return rc ? rc : -ENOMEM;
}

int rd_write_send(struct rd_req *q, const struct rsh_write_args *a)
{
	struct rd_part *p = &q->one;
	int rc = 0;

	q->send_ns = kvb_clock_ns();
	q->parts = p;
	q->nparts = 1;
	p->req = q;
	p->pending = true;
	q->npending++;
	q->write = rsh_write_start(q->lease->io->ioctx, a, called_back, p, &rc);
	if (q->write) {
		kvb_killpoint("rados-sent");
		return 0;
	}
	p->pending = false;
	q->npending--;
	return rc ? rc : -ENOMEM;
}

/* ---- Starting ---- */

static void req_admit(struct rd_req *q)
{
	struct rd_shard *sh = q->sh;

	/* Whoever comes later does not overtake, unless it is small. */
	if (!is_large(q) || (kvb_link_empty(&sh->waiting) && fits(sh, q))) {
		req_run(q);
		return;
	}
	kvb_count(&sh->count.waits, 1);
	q->queued = true;
	kvb_link_add(&sh->waiting, &q->queue);
}

static struct rd_req *req_alloc(struct rd_shard *sh)
{
	struct rd_req *q = sh->free;

	if (q)
		sh->free = q->next_free;
	else
		q = malloc(sizeof(*q));
	if (q)
		memset(q, 0, sizeof(*q));
	return q;
}

static void name_object(char oid[RD_OID_LEN + 1], const uint8_t *key, uint8_t klen)
{
	static const char hex[] = "0123456789abcdef";

	for (uint8_t i = 0; i < klen; i++) {
		*oid++ = hex[key[i] >> 4];
		*oid++ = hex[key[i] & 15];
	}
	*oid = '\0';
}

void rd_req_start(struct kvb_store *st, struct kvb_op *op, uint32_t bytes,
		  void (*go)(struct rd_req *q), bool park)
{
	struct rd_shard *sh = rd_shard_of(st, op);
	struct rd_req *q;

	if (!sh->lease && !park) {
		kvb_op_complete(op, GKV_SC_NS_NOT_READY);
		return;
	}
	q = req_alloc(sh);
	if (!q) {
		kvb_op_complete(op, GKV_SC_INTERNAL);
		return;
	}
	q->sh = sh;
	q->op = op;
	q->go = go;
	q->charged = bytes;
	q->parts = &q->one;
	kvb_link_add(&sh->reqs, &q->link);
	name_object(q->oid, op->key, op->klen);
	rd_op_of(st, op)->req = q;
	if (!sh->lease) {
		q->queued = true;
		kvb_link_add(&sh->parked, &q->queue);
		return;
	}
	q->lease = sh->lease;
	q->lease->users++;
	req_admit(q);
}

void rd_req_again(struct rd_req *q, uint32_t bytes)
{
	uncharge(q);
	q->charged = bytes;
	req_admit(q);
}

/* ---- Ending before its time ---- */

static void cancel_parts(struct rd_req *q)
{
	rados_ioctx_t io = q->lease->io->ioctx;

	for (uint32_t i = 0; i < q->nparts; i++) {
		struct rd_part *p = &q->parts[i];

		if (!p->pending)
			continue;
		if (p->read)
			rsh_read_cancel(io, p->read);
		else
			rsh_write_cancel(io, q->write);
	}
	kvb_count(&q->sh->count.cancelled, 1);
}

void rd_req_cancel(struct rd_req *q)
{
	if (q->queued) {
		/* It was never handed to anyone, and counts for nothing yet. */
		kvb_link_del(&q->queue);
		q->queued = false;
		q->charged = 0;
	} else {
		cancel_parts(q);
		/* A mutation may happen all the same: whoever comes after us must fence it. */
		if (q->write)
			rd_pool_failed(q->sh->rs->pool, q->lease->io, -ETIMEDOUT);
	}
	rd_req_end(q, KVB_TIMED_OUT);
}

bool rd_cancel(struct kvb_store *st, struct kvb_op *op)
{
	struct rd_op *ro = rd_op_of(st, op);

	if (op->opcode == GKV_OP_LIST) {
		if (!rd_list_cancel(ro->list))
			return false;
		kvb_op_complete(op, KVB_TIMED_OUT);
		return true;
	}
	if (ro->req->busy)
		return false;	/* looked at again when the copy is done */
	rd_req_cancel(ro->req);
	return true;
}

/* ---- A reactor's part of the store ---- */

void rd_shard_start(struct kvb_store *st, struct kvb_reactor *r)
{
	struct rd_shard *sh = kvb_store_shard(st, r);

	sh->rs = st->priv;
	sh->st = st;
	sh->r = r;
	kvb_link_init(&sh->reqs);
	kvb_link_init(&sh->waiting);
	kvb_link_init(&sh->parked);
	kvb_link_init(&sh->unsent);
	sh->unsent_timer.fn = look_at_unsent;
	sh->sub.changed = connection_changed;
	sh->rs->sh[kvb_reactor_id(r)] = sh;
	rd_pool_attach(sh->rs->pool, r, &sh->sub);
}

void rd_shard_stop(struct rd_shard *sh)
{
	rd_pool_detach(&sh->sub);
	if (sh->lease)
		rd_lease_put(sh, sh->lease);
	sh->lease = NULL;
	/* Their operations are over; cancelling brings the callbacks. */
	for (struct kvb_link *l = sh->reqs.next; l != &sh->reqs; l = l->next) {
		struct rd_req *q = kvb_container(l, struct rd_req, link);

		if (q->lease)
			cancel_parts(q);
	}
}

bool rd_shard_busy(struct rd_shard *sh)
{
	struct rd_req *q;

	for (const struct kvb_link *l = sh->reqs.next; l != &sh->reqs; l = l->next) {
		if (kvb_container(l, struct rd_req, link)->npending)
			return true;
	}
	/* No more calls will come. What is unsent goes with the connection, after the shard. */
	while (!kvb_link_empty(&sh->unsent)) {
		q = kvb_container(sh->unsent.next, struct rd_req, queue);
		kvb_link_del(&q->queue);
		kvb_link_del(&q->link);
		q->next_free = sh->rs->orphans;
		sh->rs->orphans = q;
	}
	kvb_timer_cancel(sh->r, &sh->unsent_timer);
	while ((q = sh->free)) {
		sh->free = q->next_free;
		free(q);
	}
	return false;
}

void rd_orphans_free(struct rd_store *rs)
{
	struct rd_req *q;

	while ((q = rs->orphans)) {
		rs->orphans = q->next_free;
		rsh_write_free(q->write);
		kvb_buf_unmap(q->data);
		free(q);
	}
}
