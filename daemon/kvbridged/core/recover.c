/* SPDX-License-Identifier: MIT */
/*
 * The in-flight record of a queue pair: making a fresh one, taking over the one a dead
 * predecessor left. The record is client memory: nothing in it is believed that could
 * harm anyone but the client.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "core/access.h"
#include "core/qp.h"
#include "core/reactor_priv.h"

/*
 * Zero client memory by giving its whole pages back: an idle queue pair then costs none,
 * and only as much of the record comes back as there are commands in flight.
 */
static void zero_pages(void *addr, size_t len)
{
	size_t whole = len & ~(size_t)4095;

	if (whole && madvise(addr, whole, MADV_REMOVE))
		whole = 0;
	memset((char *)addr + whole, 0, len - whole);
}

void kvb_qp_init_record(struct kvb_qp *qp)
{
	if (qp->mode & GKV_MODE_CQ)
		kvb_bar_zero(qp->cq, (size_t)qp->depth * sizeof(struct gkv_cqe));
	else
		zero_pages(qp->cq, (size_t)qp->depth * sizeof(struct gkv_cqe));
	zero_pages(qp->rec, GKV_REC_LEN(qp->depth));
	kvb_write_doorbell(qp->sq_db, 0);
	kvb_write_doorbell(qp->cq_db, 0);
	while (getrandom(&qp->uid, sizeof(qp->uid), 0) != sizeof(qp->uid))
		;
	qp->rec->version = GKV_REC_VERSION;
	qp->rec->qid = qp->qid;
	qp->rec->depth = qp->depth;
	qp->rec->entry_size = sizeof(struct gkv_rec_entry);
	qp->rec->uid = qp->uid;
	__atomic_store_n(&qp->rec->magic, GKV_REC_MAGIC, __ATOMIC_RELEASE);

	qp->sq_head = qp->cq_tail = qp->cq_head = qp->cq_used = 0;
	qp->outstanding = 0;
	qp->phase = 1;
	qp->sq_seq = qp->cq_seq = 0;
	qp->nrecover = qp->nresumed = 0;
	qp->nfree_rec = qp->depth;
	for (uint32_t i = 0; i < qp->depth; i++)
		qp->free_rec[i] = (uint16_t)(qp->depth - 1 - i);
	qp->state = KVB_QP_RUNNING;
	qp->drop = false;
	qp->untold = false;
	qp->error_reason = KVB_QP_OK;
	if (qp->mode & GKV_MODE_DB) {
		kvb_bar_flush();
		kvb_db_forget(qp);
	}
	atomic_thread_fence(memory_order_seq_cst);
}

/* Completions posted: the header's count and the CQ slots after it that show their phase. */
static uint64_t count_posted(const struct kvb_qp *qp, uint64_t seq)
{
	for (uint32_t i = 0; i < qp->depth; i++, seq++) {
		const char *cqe = qp->cq + (size_t)(seq % qp->depth) * sizeof(struct gkv_cqe);

		if (kvb_read_cqe_phase(cqe) != kvb_cqe_phase(seq, qp->depth))
			break;
	}
	return seq;
}

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* No two live entries may be the same command. */
static bool seqs_unique(uint64_t *seqs, uint32_t n)
{
	qsort(seqs, n, sizeof(*seqs), cmp_u64);
	for (uint32_t i = 1; i < n; i++) {
		if (seqs[i] == seqs[i - 1])
			return false;
	}
	return true;
}

int kvb_qp_load_record(struct kvb_qp *qp, struct kvb_err *err)
{
	/* One read of each field; the client may be writing. */
	union {
		struct gkv_rec_hdr h;
		uint64_t w[sizeof(struct gkv_rec_hdr) / 8];
	} rec;
	struct gkv_rec_hdr hdr;
	uint32_t live = 0, head;
	uint64_t posted, *seqs;
	int rc = -EINVAL;

	for (size_t i = 0; i < sizeof(rec.w) / 8; i++)
		rec.w[i] = __atomic_load_n((const uint64_t *)qp->rec + i, __ATOMIC_ACQUIRE);
	hdr = rec.h;
	if (hdr.magic != GKV_REC_MAGIC || hdr.version != GKV_REC_VERSION)
		return kvb_fail(err, EINVAL,
				"queue pair %u: no in-flight record (magic %#x, version %u)",
				qp->qid, hdr.magic, hdr.version);
	if (hdr.depth != qp->depth || hdr.qid != qp->qid ||
	    hdr.entry_size != sizeof(struct gkv_rec_entry))
		return kvb_fail(err, EINVAL,
				"queue pair %u of depth %u: record is of queue pair %u, depth %u, entries of %u bytes",
				qp->qid, qp->depth, hdr.qid, hdr.depth, hdr.entry_size);
	if (hdr.cq_seq > UINT64_MAX / 4)
		return kvb_fail(err, EINVAL, "queue pair %u: record counts %llu completions",
				qp->qid, (unsigned long long)hdr.cq_seq);

	qp->uid = hdr.uid;
	posted = count_posted(qp, hdr.cq_seq);
	if (posted - hdr.cq_seq >= qp->depth)
		return kvb_fail(err, EINVAL,
				"queue pair %u: every CQ entry looks newer than the record", qp->qid);

	qp->recover = calloc(qp->depth, sizeof(*qp->recover));
	seqs = calloc(qp->depth, sizeof(*seqs));
	if (!qp->recover || !seqs) {
		rc = kvb_fail(err, ENOMEM, "queue pair %u: out of memory", qp->qid);
		goto fail;
	}
	qp->nfree_rec = 0;
	for (uint32_t i = 0; i < qp->depth; i++) {
		struct gkv_rec_entry *e = &qp->entries[i];
		uint32_t state = __atomic_load_n(&e->state, __ATOMIC_ACQUIRE);
		uint64_t cq_seq = __atomic_load_n(&e->cq_seq, __ATOMIC_RELAXED);

		if (state > GKV_REC_POSTING) {
			rc = kvb_fail(err, EINVAL, "queue pair %u: record entry %u in state %u",
				      qp->qid, i, state);
			goto fail;
		}
		/* Being posted, and the completion is there. */
		if (state == GKV_REC_POSTING && cq_seq < posted)
			state = GKV_REC_FREE;
		else if (state == GKV_REC_POSTING)
			state = GKV_REC_DONE;
		__atomic_store_n(&e->state, state, __ATOMIC_RELEASE);
		if (state == GKV_REC_FREE) {
			qp->free_rec[qp->nfree_rec++] = (uint16_t)i;
			continue;
		}
		seqs[live] = __atomic_load_n(&e->seq, __ATOMIC_RELAXED);
		qp->recover[live++] = i;
	}
	if (live > qp->depth - 1 || !seqs_unique(seqs, live)) {
		rc = kvb_fail(err, EINVAL,
			      "queue pair %u: record has %u live entries, some twice or more than %u",
			      qp->qid, live, qp->depth - 1);
		goto fail;
	}
	qp->nrecover = qp->nresumed = live;
	qp->outstanding = live;
	qp->cq_seq = posted;
	qp->cq_tail = posted % qp->depth;
	qp->phase = kvb_cqe_phase(posted, qp->depth);
	qp->sq_seq = posted + live;
	qp->sq_head = qp->sq_seq % qp->depth;
	if (live && seqs[live - 1] >= qp->sq_seq) {
		rc = kvb_fail(err, EINVAL,
			      "queue pair %u: record holds command %llu, but only %llu were submitted",
			      qp->qid, (unsigned long long)seqs[live - 1],
			      (unsigned long long)qp->sq_seq);
		goto fail;
	}
	/* What the client has not read of the CQ: everything since its head. */
	head = kvb_read_doorbell(qp->cq_db);
	if (head >= qp->depth) {
		rc = kvb_fail(err, EINVAL, "queue pair %u: CQ head doorbell %u, depth %u", qp->qid,
			      head, qp->depth);
		goto fail;
	}
	qp->cq_head = head;
	qp->cq_used = (qp->cq_tail + qp->depth - head) % qp->depth;
	if (qp->cq_used + live > qp->depth - 1) {
		rc = kvb_fail(err, EINVAL,
			      "queue pair %u: %u completions unread and %u commands in flight, depth %u",
			      qp->qid, qp->cq_used, live, qp->depth);
		goto fail;
	}
	__atomic_store_n(&qp->rec->cq_seq, posted, __ATOMIC_RELAXED);
	/* Whoever slept through the restart looks again. */
	qp->posted = true;
	qp->state = KVB_QP_RUNNING;
	free(seqs);
	return 0;

fail:
	free(seqs);
	free(qp->recover);
	qp->recover = NULL;
	qp->nrecover = 0;
	return rc;
}
