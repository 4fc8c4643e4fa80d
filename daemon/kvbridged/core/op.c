/* SPDX-License-Identifier: MIT */
/*
 * The life of an operation: to its reactor, through the layers, and back.
 */
#include "core/op.h"

#include <endian.h>

#include "core/hash.h"
#include "core/killpoint.h"
#include "core/reactor_priv.h"

/* Entries of a scatter list that is walked at once, wherever the operation is. */
#define SHORT_LIST 512u

static bool is_mutation(const struct kvb_op *op)
{
	return op->opcode == GKV_OP_STORE || op->opcode == GKV_OP_DELETE;
}

/* ---- Deadlines: one list per namespace and reactor, oldest first ---- */

void kvb_deadline_add(struct kvb_op *op)
{
	struct kvb_deadline_list *l = &op->r->deadlines[op->ns->index];

	op->listed = true;
	op->r->ndeadlines++;
	op->r->nremote += op->ns->remote;
	op->dl_next = NULL;
	op->dl_prev = l->tail;
	if (l->tail)
		l->tail->dl_next = op;
	else
		l->head = op;
	l->tail = op;
}

void kvb_deadline_del(struct kvb_op *op)
{
	struct kvb_deadline_list *l = &op->r->deadlines[op->ns->index];

	if (!op->listed)
		return;
	op->listed = false;
	op->r->ndeadlines--;
	op->r->nremote -= op->ns->remote;
	if (op->dl_prev)
		op->dl_prev->dl_next = op->dl_next;
	else
		l->head = op->dl_next;
	if (op->dl_next)
		op->dl_next->dl_prev = op->dl_prev;
	else
		l->tail = op->dl_prev;
}

/* The deadline has passed: end the operation if nothing can touch its buffers. */
static void op_expire(struct kvb_op *op)
{
	struct kvb_store *st;

	kvb_deadline_del(op);
	op->late = true;
	kvb_count(&op->r->count.late, 1);
	switch (op->stage) {
	case KVB_STAGE_BUFFER:
		kvb_bufs_unwait(&op->r->bufs, &op->wait);
		kvb_op_answer(op, KVB_TIMED_OUT);
		break;
	case KVB_STAGE_STORE:
		st = &op->ns->layers[op->layer];
		if (st->ops->cancel)
			st->ops->cancel(st, op);
		break;
	default:
		/* A copy under way looks at op->late between slices. */
		break;
	}
}

void kvb_deadlines_run(struct kvb_reactor *r)
{
	for (unsigned int i = 0; i < r->nns; i++) {
		struct kvb_deadline_list *l = &r->deadlines[i];
		uint64_t limit = atomic_load_explicit(&r->nss[i]->deadline_ns,
						      memory_order_relaxed);

		/* Signed: an operation may come from a reactor whose clock reading is newer. */
		while (l->head && (int64_t)(r->now - l->head->start_ns) >= (int64_t)limit)
			op_expire(l->head);
	}
}

/* ---- Layers ---- */

static void call_layer(struct kvb_store *st, struct kvb_op *op)
{
	for (; st; st = st->next) {
		kvb_op_fn fn = op->resolving ? st->ops->resolve :
					       kvb_store_entry(st->ops, op->opcode);

		if (!fn)
			continue;
		op->layer = (uint8_t)st->layer;
		fn(st, op);
		return;
	}
	/* No layer has it: a store that needs no flush, or that keeps no operation ids. */
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

void kvb_op_forward(struct kvb_store *st, struct kvb_op *op, kvb_op_fn done)
{
	if (done) {
		op->frames[op->nframes].st = st;
		op->frames[op->nframes++].done = done;
	}
	call_layer(st->next, op);
}

void kvb_op_call(struct kvb_op *op)
{
	op->stage = KVB_STAGE_STORE;
	op->outcome = KVB_UNKNOWN;
	if (is_mutation(op) && !op->ns->volatile_store && !op->resolving) {
		kvb_qp_record(op);
		kvb_qp_record_handed(op);
	}
	call_layer(op->ns->top, op);
}

void *kvb_op_take_data(struct kvb_op *op)
{
	void *data = op->data;

	if (data)
		kvb_bufs_disown(&op->r->bufs, data);
	op->data = NULL;
	return data;
}

/* On the operation's reactor: its scatter list takes @bytes now. */
static void charge_segs(struct kvb_op *op, size_t bytes)
{
	if (bytes == op->seg_bytes)
		return;
	op->r->seg_bytes += bytes - op->seg_bytes;
	atomic_fetch_add_explicit(&op->qp->seg_bytes, bytes - op->seg_bytes,
				  memory_order_relaxed);
	op->seg_bytes = bytes;
}

void kvb_op_charge_segs(struct kvb_op *op)
{
	charge_segs(op, op->map.v == op->inline_segs ? 0 : op->map.cap * sizeof(struct iovec));
}

uint16_t kvb_op_map(struct kvb_op *op, uint32_t len)
{
	struct kvb_dptr walk;
	uint16_t status;

	/* A second call, for another length, begins anew. */
	if (op->map.v)
		kvb_segs_free(&op->map);
	kvb_segs_init(&op->map, op->inline_segs, KVB_INLINE_SEGS);
	if (len) {
		kvb_dptr_init(&walk, &op->sqe, op->regions, len, op->opcode != GKV_OP_STORE);
		walk.place = op->vram ? KVB_SPAN_VRAM : 0;
		do {
			status = kvb_dptr_next(&walk, &op->map, UINT32_MAX);
			if (status)
				return status;
		} while (walk.left);
	}
	kvb_op_charge_segs(op);
	op->segs = op->map.v;
	op->nsegs = op->map.n;
	op->bounce = op->vram && op->ns->allow_bounce &&
		     kvb_regions_bounce(op->regions, op->segs, op->nsegs, op->ns->index);
	return 0;
}

/* ---- Ending ---- */

static void finish_msg(struct kvb_msg *m)
{
	kvb_qp_finish(kvb_op_of_msg(m));
}

void kvb_op_move(struct kvb_op *op, struct kvb_reactor *r, void (*fn)(struct kvb_msg *m))
{
	op->msg.fn = fn;
	kvb_reactor_send(r, &op->msg);
}

void kvb_op_answer(struct kvb_op *op, uint16_t status)
{
	/* The slice that copies its value finds that out. */
	if (op->staging) {
		op->answered = true;
		op->status = status;
		return;
	}
	kvb_deadline_del(op);
	if (status == GKV_SC_KEY_NOT_FOUND && op->opcode == GKV_OP_DELETE &&
	    !atomic_load_explicit(&op->ns->ednek, memory_order_relaxed))
		status = GKV_SC_SUCCESS;
	/*
	 * Memory that vanished meanwhile was replaced by zeroes: the copy proves nothing. What a
	 * Store read was looked at before it took effect; that its source goes later is no failure.
	 */
	if (op->map.v) {
		if (!status && op->map.n && op->opcode != GKV_OP_STORE &&
		    !kvb_regions_alive(op->regions, op->map.v, op->map.n))
			status = GKV_SC_DATA_TRANSFER | GKV_DNR;
		kvb_segs_free(&op->map);
		op->map.v = NULL;
	}
	charge_segs(op, 0);
	op->status = status;
	if (op->data) {
		kvb_bufs_free(&op->r->bufs, op->data);
		op->data = NULL;
	}
	if (op->sync) {
		op->completed = true;
		return;
	}
	if (op->rec != KVB_NO_REC && is_mutation(op))
		kvb_qp_record_done(op);
	if (op->r == op->owner)
		kvb_qp_finish(op);
	else
		kvb_op_move(op, op->owner, finish_msg);
}

static void op_begin(struct kvb_op *op);

/* The store has said what became of a mutation its predecessor was handed. */
static void op_resolved(struct kvb_op *op)
{
	op->resolving = false;
	if (op->status || op->outcome == KVB_UNKNOWN)
		kvb_op_answer(op, GKV_SC_TRANSIENT);
	else if (op->outcome == KVB_APPLIED)
		kvb_op_answer(op, GKV_SC_SUCCESS);
	else
		op_begin(op);
}

/* Arrived at another reactor, with nothing to bring along: on to the layers. */
static void call_msg(struct kvb_msg *m)
{
	struct kvb_op *op = kvb_op_of_msg(m);

	kvb_deadline_add(op);
	kvb_op_call(op);
}

void kvb_op_complete(struct kvb_op *op, uint16_t status)
{
	op->status = status;
	if (op->nframes) {
		op->nframes--;
		op->layer = (uint8_t)op->frames[op->nframes].st->layer;
		op->frames[op->nframes].done(op->frames[op->nframes].st, op);
		return;
	}
	if (op->resolving) {
		op_resolved(op);
	} else if (op->opcode == GKV_OP_LIST) {
		kvb_list_shard_done(op);
	} else if (op->opcode == GKV_OP_FLUSH && op->ns->sharded && !status &&
		   op->r->id + 1 < kvb_nreactors) {
		/* A flush visits every shard in turn. */
		kvb_deadline_del(op);
		op->r = kvb_reactors[op->r->id + 1];
		kvb_op_move(op, op->r, call_msg);
	} else {
		kvb_op_answer(op, status);
	}
}

/* ---- Starting ---- */

/* A command that is not over at once: it gets a record entry and goes on alone. */
static void op_detach(struct kvb_op *op)
{
	struct kvb_region_set *set = op->regions->priv;

	op->sync = false;
	kvb_qp_record(op);
	op->qp->outstanding++;
	set->by_reactor[op->owner->id].users++;
}

static void op_begin(struct kvb_op *op)
{
	if (kvb_op_unwanted(op))
		kvb_op_answer(op, KVB_TIMED_OUT);
	else if (op->opcode == GKV_OP_STORE)
		kvb_op_stage(op);
	else
		kvb_op_call(op);
}

void kvb_op_staged(struct kvb_op *op, uint16_t status)
{
	struct kvb_store *st = op->ns->top;

	if (!status && op->has_client_crc && op->crc != op->client_crc)
		status = GKV_SC_DATA_TRANSFER;
	if (op->staging) {
		/* The store has it already, or has refused it meanwhile. */
		op->staging = false;
		op->stage_status = status;
		if (op->answered)
			kvb_op_answer(op, op->status);
		else
			st->ops->staged(st, op);
	} else if (status) {
		kvb_op_answer(op, status);
	} else {
		kvb_op_call(op);
	}
}

/*
 * How much memory the scatter list of a Store or Retrieve may come to take, as its data
 * pointer says; 0 when it is short. A long one takes time to walk, too.
 */
static size_t long_list(const struct kvb_op *op)
{
	const struct gkv_sgl_desc *d = &op->sqe.dptr.sgl;
	uint32_t most = kvb_sgl_max_descs(op->len), n = op->len / KVB_PRP_PAGE;

	if (op->opcode != GKV_OP_STORE && op->opcode != GKV_OP_RETRIEVE)
		return 0;
	if (op->sqe.flags >> GKV_SQE_PSDT_SHIFT != GKV_PSDT_PRP) {
		n = 1;
		if (d->type == GKV_SGL_LAST_SEGMENT)
			n = le32toh(d->len) / sizeof(*d);
		else if (d->type == GKV_SGL_SEGMENT)
			n = most;
		if (n > most)
			n = most;
	}
	return n > SHORT_LIST ? n * sizeof(struct iovec) : 0;
}

static bool begin_slice(struct kvb_work *w)
{
	struct kvb_op *op = (struct kvb_op *)((char *)w - offsetof(struct kvb_op, copy.work));

	if (kvb_op_unwanted(op)) {
		kvb_op_answer(op, KVB_TIMED_OUT);
		return false;
	}
	/* Whoever holds nothing yet goes on: it does not wait for others. */
	if (op->r->seg_bytes >= KVB_SEG_BYTES_MAX &&
	    atomic_load_explicit(&op->qp->seg_bytes, memory_order_relaxed))
		return true;
	charge_segs(op, long_list(op));
	op_begin(op);
	return false;
}

/* Not inside its first submission. A long list is walked when its session has its turn. */
static void begin_in_turn(struct kvb_op *op)
{
	kvb_deadline_add(op);
	if (!long_list(op)) {
		op_begin(op);
		return;
	}
	op->copy.work.run = begin_slice;
	kvb_op_work(op, &op->copy.work);
}

static void begin_msg(struct kvb_msg *m)
{
	begin_in_turn(kvb_op_of_msg(m));
}

void kvb_op_prepare(struct kvb_op *op)
{
	struct kvb_store *st = op->ns->bottom;

	if (!op->ns->sharded)
		return;
	op->hash = kvb_hash_key(op->key, op->klen);
	if (st->ops->prefetch && kvb_reactor_of(op->hash) == op->r)
		st->ops->prefetch(st, op);
}

bool kvb_op_submit(struct kvb_op *op)
{
	struct kvb_reactor *home = op->owner;

	if (op->ns->sharded)
		home = op->opcode == GKV_OP_FLUSH ? kvb_reactors[0] : kvb_reactor_of(op->hash);
	/* What leaves this thread is never answered on the spot. */
	if (op->opcode == GKV_OP_LIST || (op->opcode == GKV_OP_FLUSH && op->ns->sharded) ||
	    home != op->owner) {
		if (op->sync)
			op_detach(op);
		if (op->opcode == GKV_OP_LIST) {
			kvb_list_start(op);
		} else {
			op->r = home;
			kvb_op_move(op, home, begin_msg);
		}
		return false;
	}
	if (op->sync && long_list(op))
		op_detach(op);
	if (!op->sync) {
		begin_in_turn(op);
		return false;
	}
	op_begin(op);
	if (op->completed)
		return true;
	op_detach(op);
	kvb_deadline_add(op);
	return false;
}

void kvb_op_resume(struct kvb_op *op, uint32_t rec_state)
{
	if (rec_state != GKV_REC_HANDED || !is_mutation(op) || op->ns->volatile_store) {
		kvb_op_submit(op);
		return;
	}
	op->resolving = true;
	if (op->ns->sharded)
		op->r = kvb_reactor_of(op->hash);
	if (op->r == op->owner)
		call_msg(&op->msg);
	else
		kvb_op_move(op, op->r, call_msg);
}
