/* SPDX-License-Identifier: MIT */
/*
 * A reactor's insides: for the core and the control thread only.
 */
#ifndef KVB_REACTOR_PRIV_H
#define KVB_REACTOR_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/buf.h"
#include "core/count.h"
#include "core/dbline.h"
#include "core/mailbox.h"
#include "core/qp.h"
#include "core/reactor.h"
#include "core/store.h"
#include "core/timer.h"

#define KVB_FLOWS 64u
/* Scatter lists in flight on one reactor, beyond which no more long ones are begun. */
#define KVB_SEG_BYTES_MAX (64u << 20)

struct kvb_deadline_list {
	struct kvb_op *head, *tail;	/* oldest first: one deadline per namespace */
};

/* What the control thread tells each reactor before it starts. */
struct kvb_reactor_conf {
	unsigned int id;
	int cpu;			/* -1: not pinned */
	struct gkv_reactor_state *state;	/* its line of the state page */
	size_t buffer_bytes;
	uint32_t max_ops;
	struct kvb_ns **nss;
	unsigned int nns;
};

struct kvb_reactor {
	unsigned int id;
	uint64_t now;
	struct io_uring ring;
	unsigned int to_submit;		/* SQEs prepared this turn */
	unsigned int io_inflight;

	struct kvb_qp **qps;		/* all, hot ones first */
	unsigned int nqps, nhot, cap;
	unsigned int cold_pos;
	uint64_t cold_round;		/* when the walk over the cold ones began */
	unsigned int hot_pos;		/* where the next scan begins */
	struct kvb_dblines dblines;	/* doorbells in VRAM */
	unsigned int npolled;		/* queue pairs nobody wakes us for */
	unsigned int nstalled;		/* ones whose client must first read completions */
	unsigned int ndeadlines;	/* operations on the deadline lists */
	unsigned int nremote;		/* of them, ones of stores with KVB_STORE_REMOTE */

	struct kvb_mailbox inbox;
	/* Work in slices: a queue for each flow, and which are not empty. */
	struct {
		struct kvb_work *head, **tail;
	} flows[KVB_FLOWS];
	uint64_t busy_flows;
	unsigned int flow;		/* whose turn was last */
	struct kvb_timers timers;
	struct kvb_bufs bufs;

	struct kvb_op *free_ops;
	uint32_t nops, max_ops;
	uint32_t used_ops;
	size_t op_bytes;
	size_t seg_bytes;		/* scatter lists of operations in flight */
	struct kvb_deadline_list *deadlines;	/* by namespace index */
	uint64_t deadline_check;

	struct gkv_reactor_state *state;
	int wake_fd;
	struct kvb_io wake_io;
	uint64_t idle_since;
	uint64_t nap_ns;
	bool stop;

	struct kvb_ns **nss;
	unsigned int nns;
	int cpu;
	pthread_t thread;
	_Atomic bool up;
	bool running, stores_up;
	struct kvb_err start_err;
	int start_rc;

	struct {
		kvb_counter turns, sleeps, ops, io, msgs, late, slices, op_waits;
	} count;
};

extern struct kvb_reactor *kvb_reactors[KVB_MAX_REACTORS];
extern unsigned int kvb_nreactors;

/* Make @n reactors that do not run yet: stores lay out their shards by them. */
int kvb_reactors_create(unsigned int n, struct kvb_err *err);
/* Start a reactor's thread. Control thread. Returns 0 or a negative errno. */
int kvb_reactor_start(const struct kvb_reactor_conf *conf, struct kvb_err *err);
/* Start the stores on each reactor, once all can be reached by message. Control thread. */
int kvb_reactors_start_stores(struct kvb_err *err);
/* Stop stores and threads, once all queue pairs are gone. Control thread. */
void kvb_reactors_stop(void);

/* Control's own mailbox: run @m->fn on the control thread. Any thread. */
void kvb_control_send(struct kvb_msg *m);

/* A short call on a reactor's thread that the control thread waits for. */
struct kvb_call {
	struct kvb_msg m;
	struct kvb_reactor *r;
	void (*fn)(struct kvb_call *c);
	void *arg;
	_Atomic uint32_t done;
};

/* Run @fn on @r's thread and wait for it. Control thread. */
void kvb_reactor_call(struct kvb_reactor *r, struct kvb_call *c, void (*fn)(struct kvb_call *c));

/* A reactor's thread: serve until r->stop. */
void kvb_reactor_loop(struct kvb_reactor *r);

/* On the reactor's thread. */
int kvb_reactor_add_qp(struct kvb_reactor *r, struct kvb_qp *qp);
void kvb_reactor_del_qp(struct kvb_reactor *r, struct kvb_qp *qp);
void kvb_reactor_heat(struct kvb_reactor *r, struct kvb_qp *qp);
struct kvb_op *kvb_op_get(struct kvb_reactor *r);	/* NULL: none left */
void kvb_op_put(struct kvb_reactor *r, struct kvb_op *op);

/* ---- op.c ---- */

/* A decoded operation will be submitted or resumed soon: its hash, and cache lines. */
void kvb_op_prepare(struct kvb_op *op);
/*
 * Start a decoded and prepared operation; on the queue pair's reactor. Returns true when op->sync was
 * set and the operation is over already: the caller answers. Otherwise it goes on alone,
 * and may be gone on return.
 */
bool kvb_op_submit(struct kvb_op *op);
/* Resume an operation found in a record. */
void kvb_op_resume(struct kvb_op *op, uint32_t rec_state);
void kvb_deadline_add(struct kvb_op *op);
void kvb_deadline_del(struct kvb_op *op);
/* End operations whose deadline has passed, as far as they can be ended. */
void kvb_deadlines_run(struct kvb_reactor *r);
/* Hand to the top layer. */
void kvb_op_call(struct kvb_op *op);

/*
 * Nobody waits for the operation's end any more: its deadline has passed, or its queue pair
 * is being dropped. What has not reached a store then need not go on.
 */
static inline bool kvb_op_unwanted(const struct kvb_op *op)
{
	return op->late || atomic_load_explicit(&op->qp->drop, memory_order_relaxed);
}

/* ---- direct.c ---- */

/*
 * Leave a Store's value where it is, for the devices to fetch, and go on to the layers. False:
 * it is to be staged.
 */
bool kvb_op_direct(struct kvb_op *op);

/* ---- copy.c ---- */

/* Bring a Store's value into daemon memory, then kvb_op_staged(). */
void kvb_op_stage(struct kvb_op *op);
/* All of it is there, or, with @status, will never be. */
void kvb_op_staged(struct kvb_op *op, uint16_t status);

enum kvb_op_stage { KVB_STAGE_NONE, KVB_STAGE_BUFFER, KVB_STAGE_COPY, KVB_STAGE_STORE };

/* ---- list.c ---- */

/* Start a List on its queue pair's reactor. */
void kvb_list_start(struct kvb_op *op);
/* One shard has had its turn: go to the next, or hand the result to the client. */
void kvb_list_shard_done(struct kvb_op *op);

/* ---- op.c, for list.c and copy.c ---- */

/* Account op->map once it is complete; until then op->seg_bytes is 0. */
void kvb_op_charge_segs(struct kvb_op *op);
/* Go on at @r: run @fn there. */
void kvb_op_move(struct kvb_op *op, struct kvb_reactor *r, void (*fn)(struct kvb_msg *m));
/* The operation is over and nothing is left to do but answer. */
void kvb_op_answer(struct kvb_op *op, uint16_t status);
/* Op embedded around its message. */
#define kvb_op_of_msg(m) ((struct kvb_op *)((char *)(m) - offsetof(struct kvb_op, msg)))

#endif
