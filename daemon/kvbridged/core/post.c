/* SPDX-License-Identifier: MIT */
/*
 * From a command's result to its client: the record entry, the completion, counters, waking.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/access.h"
#include "core/killpoint.h"
#include "core/lookups.h"
#include "core/qp.h"
#include "core/reactor_priv.h"

void (*kvb_note_error)(uint16_t qid, const struct kvb_op *op);

/* ---- The record ---- */

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

/* ---- Completions ---- */

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

void kvb_qp_tell_stopped(struct kvb_qp *qp)
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
		if (op->direct_bytes)
			kvb_count(&qp->count.store_direct_bytes, op->direct_bytes);
		if (op->tail_bytes)
			kvb_count(&qp->count.store_tail_bytes, op->tail_bytes);
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

void kvb_qp_express(struct kvb_op *op)
{
	struct kvb_qp *qp = op->qp;

	finish_result(qp, op);
	count_bytes(qp, op);
	qp_post(qp, op);
	kvb_op_put(qp->r, op);
}

void kvb_qp_answer_drain(struct kvb_qp *qp)
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
	if (qp->drop || kvb_qp_dead(qp)) {
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
		kvb_qp_tell_stopped(qp);
	kvb_qp_answer_drain(qp);
}
