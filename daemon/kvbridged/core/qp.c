/* SPDX-License-Identifier: MIT */
/* Fetching a queue pair's commands, its predecessor's, and the end of that. */
#include "core/qp.h"

#include "core/access.h"
#include "core/killpoint.h"
#include "core/reactor_priv.h"

/* A queue pair with fewer commands outstanding has a claim on the last part of the pools. */
#define MODEST 16u
#define OPS_RESERVED 8u	/* one in so many */

const char *kvb_qp_error_name(int reason)
{
	switch (reason) {
	case KVB_QP_OK:
		return "none";
	case KVB_QP_BAD_TAIL:
		return "SQ tail doorbell claims more entries than may be outstanding";
	case KVB_QP_BAD_CQ_HEAD:
		return "CQ head doorbell is beyond what was posted";
	case KVB_QP_MEMORY_GONE:
		return "memory of the queue pair is gone";
	}
	return "unknown";
}

/* Its client must read completions first, and rings no bell when it does. */
static void set_stalled(struct kvb_qp *qp, bool stalled)
{
	if (qp->stalled == stalled)
		return;
	qp->stalled = stalled;
	if (stalled) {
		qp->r->nstalled++;
		kvb_count(&qp->count.cq_full, 1);
	} else {
		qp->r->nstalled--;
	}
}

static void qp_error(struct kvb_qp *qp, enum kvb_qp_error reason)
{
	if (qp->state != KVB_QP_RUNNING)
		return;
	qp->state = KVB_QP_ERROR;
	set_stalled(qp, false);
	qp->error_reason = reason;
	kvb_log_client("stopped queue pairs", KVB_LOG_WARN, "queue pair %u stopped: %s", qp->qid,
		       kvb_qp_error_name(reason));
	qp->untold = true;
	kvb_qp_tell_stopped(qp);
}

static int class_of(uint8_t opcode)
{
	switch (opcode) {
	case GKV_OP_STORE:
		return KVB_CLASS_STORE;
	case GKV_OP_RETRIEVE:
		return KVB_CLASS_RETRIEVE;
	case GKV_OP_LIST:
		return KVB_CLASS_LIST;
	case GKV_OP_DELETE:
		return KVB_CLASS_DELETE;
	case GKV_OP_EXIST:
		return KVB_CLASS_EXIST;
	}
	return KVB_CLASS_FLUSH;
}

/* Fill in a fresh operation around an SQE. */
static void op_init(struct kvb_op *op, struct kvb_qp *qp, uint64_t seq)
{
	op->qp = qp;
	op->owner = op->r = qp->r;
	op->cid = op->sqe.cid;
	op->rec = KVB_NO_REC;
	op->id.uid = qp->uid;
	op->id.seq = seq;
	op->start_ns = qp->r->now;
	op->regions = qp->regions->tbl;
	op->data = NULL;
	op->nsegs = 0;
	op->map.v = NULL;
	op->seg_bytes = 0;
	op->flow = qp->flow;
	op->status = 0;
	op->result = 0;
	op->has_crc = op->has_client_crc = false;
	op->direct_bytes = op->tail_bytes = op->copy_bytes = op->bounce_bytes = 0;
	op->vram = qp->mode & GKV_MODE_DATA;
	op->client_verifies = qp->env.csum;
	op->nframes = 0;
	op->stage = KVB_STAGE_NONE;
	op->completed = op->late = op->listed = op->resolving = false;
	op->list = NULL;
	op->layer = 0;
}

/* Copy an SQE, once, and decode the copy. */
static void op_fetch(struct kvb_qp *qp, struct kvb_op *op, uint32_t slot, uint64_t seq)
{
	const char *sqe = qp->sq + (size_t)slot * sizeof(struct gkv_sqe);

	if (__builtin_expect(qp->mode & GKV_MODE_SQ, 0))
		kvb_bar_read_sqe(&op->sqe, sqe);
	else
		kvb_read_sqe(&op->sqe, sqe);
	op_init(op, qp, seq);
	op->sync = true;
	op->status = kvb_decode(&op->sqe, &qp->env, op);
	if (__builtin_expect(!op->status, 1)) {
		kvb_count(&qp->count.ops[class_of(op->opcode)], 1);
		op->client_crc = op->crc;
		op->has_client_crc = op->has_crc;
		op->has_crc = false;
		kvb_op_prepare(op);
	}
}

/*
 * Run one command as far as it goes. Commands that are over at once are answered here,
 * without a record entry ("express"); the others go on alone.
 */
static void op_run(struct kvb_op *op)
{
	if (op->status || kvb_op_submit(op))
		kvb_qp_express(op);
}

/* Read the client's CQ head; returns false when it makes no sense. */
static bool update_cq_head(struct kvb_qp *qp)
{
	uint32_t head, read;

	if (__builtin_expect(qp->mode & GKV_MODE_DB, 0))
		head = kvb_db_read(&qp->db[1]);
	else
		head = kvb_read_doorbell(qp->cq_db);
	if (head >= qp->depth)
		return false;
	read = head >= qp->cq_head ? head - qp->cq_head : head + qp->depth - qp->cq_head;
	if (read > qp->cq_used)
		return false;
	qp->cq_head = head;
	qp->cq_used -= read;
	return true;
}

/* How many commands may be fetched: each needs a completion slot. */
static uint32_t cq_room(struct kvb_qp *qp, uint32_t want)
{
	uint32_t limit = qp->depth - 1;

	if (qp->cq_used + qp->outstanding + want <= limit)
		return want;
	if (!update_cq_head(qp)) {
		qp_error(qp, kvb_qp_dead(qp) ? KVB_QP_MEMORY_GONE : KVB_QP_BAD_CQ_HEAD);
		return 0;
	}
	if (qp->cq_used + qp->outstanding >= limit) {
		set_stalled(qp, true);
		return 0;
	}
	limit -= qp->cq_used + qp->outstanding;
	return want < limit ? want : limit;
}

/*
 * An operation for a queue pair that has already fetched @more. What is left of the pools
 * when they run out is for those that hold little of them: a hoarder waits for its own.
 */
static struct kvb_op *op_get(struct kvb_qp *qp, uint32_t more)
{
	struct kvb_reactor *r = qp->r;
	bool modest = qp->outstanding + more < MODEST;

	if (r->seg_bytes >= KVB_SEG_BYTES_MAX &&
	    !(modest && !atomic_load_explicit(&qp->seg_bytes, memory_order_relaxed)))
		return NULL;
	if (r->used_ops >= r->max_ops - r->max_ops / OPS_RESERVED && !modest)
		return NULL;
	return kvb_op_get(r);
}

unsigned int kvb_qp_poll(struct kvb_qp *qp, unsigned int budget)
{
	struct kvb_reactor *r = qp->r;
	struct kvb_op *ops[KVB_FETCH_MAX];
	uint32_t tail, claimed, slot, n, i;

	if (qp->state != KVB_QP_RUNNING)
		return 0;
	if (kvb_qp_dead(qp)) {
		qp_error(qp, KVB_QP_MEMORY_GONE);
		return 0;
	}
	if (qp->nrecover)
		return kvb_qp_recover(qp);

	tail = qp->tail;
	if (tail == qp->sq_head)
		return 0;
	claimed = tail > qp->sq_head ? tail - qp->sq_head : tail + qp->depth - qp->sq_head;
	if (tail >= qp->depth || claimed + qp->outstanding > qp->depth - 1) {
		qp_error(qp, KVB_QP_BAD_TAIL);
		return 0;
	}
	n = cq_room(qp, claimed < budget ? claimed : budget);
	if (n)
		set_stalled(qp, false);
	/* The doorbell came first, whatever the processor would rather do. */
	if (__builtin_expect(qp->mode & GKV_MODE_SQ, 0))
		kvb_bar_acquire();

	/*
	 * All are fetched before the first runs, so that their cache misses overlap. An entry
	 * counts as consumed only when it runs: up to then a successor would fetch it again,
	 * and the client must not be told that its slot is free.
	 */
	for (i = 0, slot = qp->sq_head; i < n; i++) {
		if (__builtin_expect(!(qp->mode & GKV_MODE_SQ), 1))
			__builtin_prefetch(qp->sq + (size_t)(slot + 8 < qp->depth ? slot + 8 : 0) *
							    sizeof(struct gkv_sqe));
		ops[i] = op_get(qp, i);
		if (!ops[i]) {
			kvb_count(&r->count.op_waits, 1);
			break;
		}
		op_fetch(qp, ops[i], slot, qp->sq_seq + i);
		if (++slot == qp->depth)
			slot = 0;
		kvb_killpoint("fetched");
	}
	n = i;
	/* What was read in the place of memory that is gone is no command. */
	i = 0;
	if (__builtin_expect(kvb_qp_dead(qp), 0))
		qp_error(qp, KVB_QP_MEMORY_GONE);
	qp->fetching = true;
	for (; i < n && qp->state == KVB_QP_RUNNING; i++) {
		if (++qp->sq_head == qp->depth)
			qp->sq_head = 0;
		qp->sq_seq++;
		op_run(ops[i]);
	}
	qp->fetching = false;
	while (n > i)
		kvb_op_put(r, ops[--n]);
	if (i) {
		kvb_count(&qp->count.fetched, i);
		qp->active_ns = r->now;
		kvb_qp_wake(qp);
	}
	kvb_qp_answer_drain(qp);
	return i;
}

unsigned int kvb_qp_recover(struct kvb_qp *qp)
{
	unsigned int n = 0;

	while (qp->nrecover && n < 32) {
		uint32_t rec = qp->recover[qp->nrecover - 1];
		struct gkv_rec_entry *e = &qp->entries[rec];
		struct kvb_op *op;
		uint32_t state;

		/* Outstanding ones are all of the record: only the pools bound them. */
		op = op_get(qp, MODEST);
		if (!op)
			break;
		qp->nrecover--;
		n++;
		kvb_read_sqe(&op->sqe, &e->sqe);
		state = __atomic_load_n(&e->state, __ATOMIC_ACQUIRE);
		op_init(op, qp, __atomic_load_n(&e->seq, __ATOMIC_RELAXED));
		op->rec = rec;
		op->run = __atomic_load_n(&e->run, __ATOMIC_RELAXED);
		op->sync = false;
		((struct kvb_region_set *)op->regions->priv)->by_reactor[qp->r->id].users++;
		op->status = kvb_decode(&op->sqe, &qp->env, op);
		op->client_crc = op->crc;
		op->has_client_crc = op->has_crc;
		op->has_crc = false;
		if (state == GKV_REC_DONE) {
			op->status = __atomic_load_n(&e->status, __ATOMIC_RELAXED) & 0x7fff;
			op->result = __atomic_load_n(&e->dw0, __ATOMIC_RELAXED);
			op->value_crc = __atomic_load_n(&e->dw1, __ATOMIC_RELAXED);
			op->has_crc = qp->env.csum && op->opcode == GKV_OP_RETRIEVE && op->value_crc;
			kvb_qp_finish(op);
		} else if (op->status) {
			kvb_qp_finish(op);
		} else {
			kvb_op_prepare(op);
			kvb_op_resume(op, state);
		}
	}
	return n;
}

void kvb_qp_memory_gone(struct kvb_qp *qp)
{
	qp_error(qp, KVB_QP_MEMORY_GONE);
}

void kvb_qp_drain(struct kvb_qp *qp, struct kvb_msg *m, bool drop)
{
	qp->state = KVB_QP_DRAINING;
	qp->drop = drop;
	set_stalled(qp, false);
	qp->outstanding -= qp->nrecover;
	qp->nrecover = 0;
	qp->drain = m;
	kvb_qp_answer_drain(qp);
}

void kvb_qp_set_regions(struct kvb_qp *qp, struct kvb_region_set *set)
{
	qp->regions = set;
}
