/* SPDX-License-Identifier: MIT */
#include "core/qp.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/access.h"
#include "core/killpoint.h"
#include "core/lookups.h"
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

void (*kvb_note_error)(uint16_t qid, const struct kvb_op *op);

static void wake_client(struct kvb_qp *qp)
{
	uint32_t *word = (uint32_t *)&qp->rec->waiting;

	/* Pairs with the client's: set waiting, barrier, look at the CQ, sleep. */
	kvb_full_barrier();
	if (!__atomic_load_n(word, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(word, 0, __ATOMIC_RELAXED);
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Say in the record why nothing comes any more, once that is so, and wake who waits for it. */
static void tell_stopped(struct kvb_qp *qp)
{
	if (qp->outstanding && qp->error_reason != KVB_QP_MEMORY_GONE)
		return;		/* their completions still come */
	qp->untold = false;
	__atomic_store_n(&qp->rec->stopped,
			 qp->error_reason == KVB_QP_MEMORY_GONE ? GKV_STOPPED_MEMORY :
								  GKV_STOPPED_DOORBELL,
			 __ATOMIC_RELEASE);
	wake_client(qp);
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
	tell_stopped(qp);
}

static bool qp_dead(const struct kvb_qp *qp)
{
	for (int i = 0; i < 3; i++) {
		if (qp->dead[i] && atomic_load_explicit(qp->dead[i], memory_order_relaxed))
			return true;
	}
	return false;
}

static void set_rec_state(struct gkv_rec_entry *e, uint32_t state)
{
	/* Release: what the state vouches for was stored before it. */
	__atomic_store_n(&e->state, state, __ATOMIC_RELEASE);
}

void kvb_qp_record(struct kvb_op *op)
{
	struct kvb_qp *qp = op->qp;
	struct gkv_rec_entry *e;

	if (op->rec != KVB_NO_REC)
		return;
	/* Outstanding commands never exceed depth - 1, so an entry is always free. */
	op->rec = qp->free_rec[--qp->nfree_rec];
	e = &qp->entries[op->rec];
	e->sqe = op->sqe;
	e->seq = op->id.seq;
	e->cq_seq = 0;
	kvb_killpoint("record-before-fetched");
	set_rec_state(e, GKV_REC_FETCHED);
	kvb_killpoint("record-fetched");
}

void kvb_qp_record_handed(struct kvb_op *op)
{
	struct gkv_rec_entry *e = &op->qp->entries[op->rec];

	e->run = (uint16_t)op->ns->run;
	set_rec_state(e, GKV_REC_HANDED);
	kvb_killpoint("record-handed");
}

static void set_rec_result(struct gkv_rec_entry *e, const struct kvb_op *op)
{
	e->dw0 = op->result;
	e->dw1 = op->has_crc ? op->value_crc : 0;
	e->status = op->status;
}

void kvb_qp_record_done(struct kvb_op *op)
{
	struct gkv_rec_entry *e = &op->qp->entries[op->rec];

	kvb_killpoint("record-before-done");
	set_rec_result(e, op);
	set_rec_state(e, GKV_REC_DONE);
	kvb_killpoint("record-done");
}

/* Post the completion. The slot was reserved when the command was fetched. */
static void qp_post(struct kvb_qp *qp, struct kvb_op *op)
{
	struct gkv_rec_entry *e = NULL;
	uint32_t dw0 = op->result, dw1 = 0;
	char *slot;

	if (op->has_crc) {
		dw0 |= GKV_CQE_DW0_CSUM_VALID;
		dw1 = op->value_crc;
	}
	if (op->rec != KVB_NO_REC) {
		e = &qp->entries[op->rec];
		e->cq_seq = qp->cq_seq;
		/* Reads come here without having been done: whoever takes over posts this. */
		set_rec_result(e, op);
		set_rec_state(e, GKV_REC_POSTING);
		kvb_killpoint("post-before-cqe");
	}
	slot = qp->cq + (size_t)qp->cq_tail * sizeof(struct gkv_cqe);
	if (__builtin_expect(qp->mode & GKV_MODE_CQ, 0))
		kvb_write_cqe_bar(slot, dw0, dw1, qp->sq_head, qp->qid, op->cid, op->status,
				  qp->phase);
	else
		kvb_write_cqe(slot, dw0, dw1, qp->sq_head, qp->qid, op->cid, op->status,
			      qp->phase);
	if (e) {
		kvb_killpoint("post-after-cqe");
		set_rec_state(e, GKV_REC_FREE);
		qp->free_rec[qp->nfree_rec++] = op->rec;
		kvb_killpoint("post-free");
	}
	qp->cq_seq++;
	qp->cq_used++;
	if (++qp->cq_tail == qp->depth) {
		qp->cq_tail = 0;
		qp->phase ^= 1;
	}
	__atomic_store_n(&qp->rec->cq_seq, qp->cq_seq, __ATOMIC_RELAXED);
	qp->posted = true;
	kvb_count(&qp->count.posted, 1);
	if (op->status)
		kvb_count(&qp->count.errors, 1);
}

void kvb_qp_wake(struct kvb_qp *qp)
{
	if (!qp->posted)
		return;
	qp->posted = false;
	if (qp->host)
		wake_client(qp);
}

static void unuse_regions(struct kvb_op *op)
{
	struct kvb_region_set *set = op->regions->priv;
	unsigned int id = op->owner->id;

	if (--set->by_reactor[id].users == 0 && set->by_reactor[id].drained) {
		struct kvb_msg *m = set->by_reactor[id].drained;

		set->by_reactor[id].drained = NULL;
		kvb_control_send(m);
	}
}

static void count_bytes(struct kvb_qp *qp, const struct kvb_op *op)
{
	if (op->status)
		return;
	if (op->opcode == GKV_OP_STORE) {
		kvb_count(&qp->count.store_bytes, op->len);
	} else if (op->opcode == GKV_OP_RETRIEVE) {
		uint32_t n = op->result < op->len ? op->result : op->len;

		kvb_count(&qp->count.retrieve_bytes, n);
		if (op->direct_bytes)
			kvb_count(&qp->count.direct_bytes, op->direct_bytes);
		if (op->tail_bytes)
			kvb_count(&qp->count.tail_bytes, op->tail_bytes);
		if (op->copy_bytes)
			kvb_count(&qp->count.copy_bytes, op->copy_bytes);
		if (op->bounce_bytes)
			kvb_count(&qp->count.bounce_bytes, op->bounce_bytes);
	}
}

static void count_lookup(const struct kvb_op *op)
{
	struct kvb_lookups *l;

	/* A record that is taken over may claim success where no namespace is open. */
	if (!op->ns || (op->status && GKV_STATUS_CODE(op->status) != GKV_SC_KEY_NOT_FOUND))
		return;
	l = &kvb_lookups[op->owner->id][op->ns->index];
	if (op->opcode == GKV_OP_STORE)
		kvb_count(&l->stores, 1);
	else if (op->opcode == GKV_OP_RETRIEVE || op->opcode == GKV_OP_EXIST)
		kvb_count(op->status ? &l->misses : &l->hits, 1);
}

/* A session without the negotiated format gets no checksum; nor does a failure. */
static void finish_result(struct kvb_qp *qp, struct kvb_op *op)
{
	op->status = kvb_status_finish(op->status);
	count_lookup(op);
	if (op->status && kvb_note_error)
		kvb_note_error(qp->qid, op);
	if (op->opcode != GKV_OP_RETRIEVE || op->status) {
		op->result = 0;
		op->has_crc = false;
	} else if (!qp->env.csum) {
		op->has_crc = false;
	}
}

static void answer_drain(struct kvb_qp *qp)
{
	struct kvb_msg *m = qp->drain;

	if (qp->outstanding || !m || qp->fetching)
		return;
	qp->drain = NULL;
	kvb_control_send(m);
}

void kvb_qp_finish(struct kvb_op *op)
{
	struct kvb_qp *qp = op->qp;
	struct kvb_reactor *r = qp->r;

	finish_result(qp, op);
	count_bytes(qp, op);
	qp->outstanding--;
	qp->active_ns = r->now;
	if (op->late)
		kvb_count(&qp->count.late, 1);
	if (qp->drop || qp_dead(qp)) {
		kvb_count(&qp->count.dropped, 1);
		if (op->rec != KVB_NO_REC)
			qp->free_rec[qp->nfree_rec++] = op->rec;
	} else {
		qp_post(qp, op);
		kvb_qp_wake(qp);
	}
	unuse_regions(op);
	kvb_op_put(r, op);
	if (__builtin_expect(qp->untold, 0))
		tell_stopped(qp);
	answer_drain(qp);
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
static void op_run(struct kvb_qp *qp, struct kvb_op *op)
{
	if (op->status || kvb_op_submit(op)) {
		finish_result(qp, op);
		count_bytes(qp, op);
		qp_post(qp, op);
		kvb_op_put(qp->r, op);
	}
}

/* Read the client's CQ head; returns false when it makes no sense. */
static bool update_cq_head(struct kvb_qp *qp)
{
	uint32_t head = kvb_read_doorbell(qp->cq_db), read;

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
		qp_error(qp, KVB_QP_BAD_CQ_HEAD);
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
	if (qp_dead(qp)) {
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
	qp->fetching = true;
	for (i = 0; i < n && qp->state == KVB_QP_RUNNING; i++) {
		if (++qp->sq_head == qp->depth)
			qp->sq_head = 0;
		qp->sq_seq++;
		op_run(qp, ops[i]);
	}
	qp->fetching = false;
	while (n > i)
		kvb_op_put(r, ops[--n]);
	if (i) {
		kvb_count(&qp->count.fetched, i);
		qp->active_ns = r->now;
		kvb_qp_wake(qp);
	}
	answer_drain(qp);
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
	answer_drain(qp);
}

void kvb_qp_set_regions(struct kvb_qp *qp, struct kvb_region_set *set)
{
	qp->regions = set;
}
