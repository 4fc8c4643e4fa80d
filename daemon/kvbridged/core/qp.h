/* SPDX-License-Identifier: MIT */
/*
 * A queue pair, as its reactor sees it. Built by the control thread, then touched only
 * by its reactor until kvb_qp_drain() has answered.
 */
#ifndef KVB_QP_H
#define KVB_QP_H

#include <stdbool.h>
#include <stdint.h>

#include <gkv/queue.h>

#include "core/access.h"
#include "core/count.h"
#include "core/dbline.h"
#include "core/decode.h"
#include "core/err.h"
#include "core/op.h"
#include "core/reactor.h"
#include "core/regions.h"

enum kvb_qp_state {
	KVB_QP_RUNNING,
	KVB_QP_ERROR,		/* wild doorbell or dead memory: fetches no more */
	KVB_QP_DRAINING,	/* fetches no more */
};

enum kvb_op_class {
	KVB_CLASS_FLUSH, KVB_CLASS_STORE, KVB_CLASS_RETRIEVE, KVB_CLASS_LIST, KVB_CLASS_DELETE,
	KVB_CLASS_EXIST, KVB_NCLASSES,
};

struct kvb_qp_counters {
	kvb_counter fetched, posted, errors, late, dropped;
	kvb_counter store_bytes, retrieve_bytes;
	kvb_counter direct_bytes, tail_bytes, copy_bytes, bounce_bytes;	/* of Retrieves */
	kvb_counter store_direct_bytes, store_tail_bytes;
	kvb_counter cq_full;	/* times the client's unread completions held up fetching */
	kvb_counter ops[KVB_NCLASSES];
};

/* A session's regions, and how many operations of each reactor use this version of them. */
struct kvb_region_set {
	struct kvb_regions *tbl;
	struct {
		uint64_t users;			/* that reactor's only */
		struct kvb_msg *drained;	/* sent to control when users is 0 */
	} by_reactor[64];
};

struct kvb_qp {
	/* Doorbells and rings: client memory. */
	void *sq_db, *cq_db;
	char *sq, *cq;
	struct gkv_rec_hdr *rec;
	struct gkv_rec_entry *entries;

	uint32_t depth;
	uint32_t sq_head;	/* next slot to fetch */
	uint32_t tail;		/* the doorbell, as last read */
	uint32_t cq_tail;	/* next slot to post */
	uint32_t cq_head;	/* last seen of the client's */
	uint32_t cq_used;	/* posted and not known to be read */
	uint32_t outstanding;	/* fetched and not posted */
	uint16_t phase;
	uint16_t qid;
	uint8_t state;		/* enum kvb_qp_state */
	uint8_t mode;		/* GKV_MODE_*: what is in BAR memory; constant */
	bool untold;		/* in the error state, and the record does not say so yet */
	bool host;		/* its client may sleep on the record's futex */
	bool hot;
	_Atomic bool drop;	/* post nothing any more; read on other reactors too */
	bool posted;		/* since the client was last woken */
	bool fetching;		/* inside kvb_qp_poll() */
	bool stalled;		/* rung, but the client has not read its completions */
	uint64_t sq_seq, cq_seq;
	uint64_t uid;
	uint64_t active_ns;	/* when it last had work */
	struct kvb_region_set *regions;
	struct kvb_decode_env env;
	struct kvb_reactor *r;
	uint8_t flow;			/* of the session */
	_Atomic size_t seg_bytes;	/* scatter lists of its operations, on any reactor */

	uint16_t *free_rec;	/* stack of free record entries */
	uint32_t nfree_rec;

	/* Commands found in the record of a predecessor, still to be taken up. */
	uint32_t *recover;
	uint32_t nrecover;
	uint32_t nresumed;	/* how many there were */

	struct kvb_msg *drain;	/* answer when nothing is outstanding */
	_Atomic bool *dead[3];	/* rings, doorbells, record: set when memory vanishes */
	uint32_t slot;		/* place in the reactor's table */
	/* Doorbells in VRAM. */
	struct kvb_db db[2];	/* SQ tail, CQ head */
	uint64_t session;	/* whose neighbours may share a line with it */
	uint64_t db_page;	/* number of the page that the SQ tail is in; 0: not known */
	struct kvb_qp_counters count;
	_Atomic int error_reason;	/* enum kvb_qp_error */
	struct kvb_qp *next;	/* session's list, control thread */
};

enum kvb_qp_error { KVB_QP_OK, KVB_QP_BAD_TAIL, KVB_QP_BAD_CQ_HEAD, KVB_QP_MEMORY_GONE };
const char *kvb_qp_error_name(int reason);

/* Most commands taken from a queue pair before the next has its turn. */
#define KVB_FETCH_MAX 32

/*
 * Fetch and start up to @budget commands of those that kvb_qp_rung() saw last. Returns how
 * many.
 */
unsigned int kvb_qp_poll(struct kvb_qp *qp, unsigned int budget);

/*
 * Read the doorbell: does it differ from what was fetched? The one access for each look at a
 * queue pair, since a doorbell in BAR memory takes a round trip over the bus; and then one for
 * all doorbells of its line.
 */
static inline bool kvb_qp_rung(struct kvb_qp *qp);

/* Memory of its rings or doorbells is gone: stop it, unless nobody fetches from it anyway. */
void kvb_qp_memory_gone(struct kvb_qp *qp);

/* Start commands of a predecessor. Returns how many. */
unsigned int kvb_qp_recover(struct kvb_qp *qp);

/*
 * Stop fetching; @m is sent to control once nothing is outstanding. With @drop, what
 * completes from now on is not posted.
 */
void kvb_qp_drain(struct kvb_qp *qp, struct kvb_msg *m, bool drop);

/* Use the session's current regions from now on; on the queue pair's reactor. */
void kvb_qp_set_regions(struct kvb_qp *qp, struct kvb_region_set *set);

/* ---- post.c ---- */

/* An operation of the queue pair is over, on the queue pair's reactor. */
void kvb_qp_finish(struct kvb_op *op);

/* Give the operation a record entry. */
void kvb_qp_record(struct kvb_op *op);

/* A mutation is about to reach a store; on the operation's reactor. */
void kvb_qp_record_handed(struct kvb_op *op);

/* The result is final; on the operation's reactor. */
void kvb_qp_record_done(struct kvb_op *op);

/* An operation that was over at once and has no record entry; not counted as outstanding. */
void kvb_qp_express(struct kvb_op *op);

/* Say in the record why nothing comes any more, once that is so, and wake who waits for it. */
void kvb_qp_tell_stopped(struct kvb_qp *qp);

/* If nothing is outstanding, send the message of kvb_qp_drain(). */
void kvb_qp_answer_drain(struct kvb_qp *qp);

/* Called with every command that fails, on its reactor; set before any runs. */
extern void (*kvb_note_error)(uint16_t qid, const struct kvb_op *op);

/* Wake a client that sleeps on the futex, if anything was posted. */
void kvb_qp_wake(struct kvb_qp *qp);

/* ---- recover.c ---- */

/*
 * Take over a record. Control thread. Checks it like any input and
 * computes where its rings stand. Returns 0 or a negative errno with text.
 */
int kvb_qp_load_record(struct kvb_qp *qp, struct kvb_err *err);

/* Fresh record, zeroed rings and doorbells. */
void kvb_qp_init_record(struct kvb_qp *qp);

static inline bool kvb_qp_rung(struct kvb_qp *qp)
{
	if (__builtin_expect(qp->mode & GKV_MODE_DB, 0))
		qp->tail = kvb_db_read(&qp->db[0]);
	else
		qp->tail = kvb_read_doorbell(qp->sq_db);
	return qp->tail != qp->sq_head;
}

/* Is memory that it needs gone? After accesses: was it there for all of them? */
static inline bool kvb_qp_dead(const struct kvb_qp *qp)
{
	/* The flag was raised before anything else was put in the memory's place. */
	atomic_thread_fence(memory_order_acquire);
	for (int i = 0; i < 3; i++) {
		if (qp->dead[i] && atomic_load_explicit(qp->dead[i], memory_order_relaxed))
			return true;
	}
	return false;
}

#endif
