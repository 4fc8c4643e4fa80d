/* SPDX-License-Identifier: MIT */
#include "core/reactor.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/settings.h"
#include "core/access.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/reactor_priv.h"

uint64_t kvb_hash_secret[2];

/* Cold queue pairs looked at in one turn. */
#define COLD_SCAN 32
/* A queue pair without work this long is scanned with the cold ones. */
#define COOL_NS 2000000
/* Turns of the loop between two looks at the deadlines, in time. */
#define DEADLINE_CHECK_NS 1000000
#define NAP_MIN_NS 2000
/*
 * With commands in flight a reactor spins so many times longer: their I/O ends soon. Not for a
 * store whose other threads could do with the processor.
 */
#define BUSY_SPIN 10

unsigned int kvb_reactor_id(const struct kvb_reactor *r)
{
	return r->id;
}

unsigned int kvb_reactor_count(void)
{
	return kvb_nreactors;
}

struct kvb_reactor *kvb_reactor_of(uint64_t hash)
{
	/* High bits: the low ones place the key inside a shard's table. */
	return kvb_reactors[(unsigned int)(((hash >> 32) * kvb_nreactors) >> 32)];
}

uint64_t kvb_now(const struct kvb_reactor *r)
{
	return r->now;
}

/* ---- I/O ---- */

struct io_uring_sqe *kvb_io_get(struct kvb_reactor *r, struct kvb_io *io)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	while (!sqe) {
		/* Ring full: hand over what is there. -EBUSY: the kernel wants its CQ emptied. */
		int rc = io_uring_submit(&r->ring);

		if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
			kvb_log(KVB_LOG_ERR, "io_uring_submit: %s", strerror(-rc));
			abort();
		}
		sqe = io_uring_get_sqe(&r->ring);
	}
	memset(sqe, 0, sizeof(*sqe));
	io_uring_sqe_set_data(sqe, io);
	r->to_submit++;
	r->io_inflight++;
	kvb_count(&r->count.io, 1);
	return sqe;
}

static unsigned int reap(struct kvb_reactor *r)
{
	unsigned int n = 0;
	struct io_uring_cqe *cqe;

	if (!r->io_inflight && !r->to_submit)
		return 0;
	while (n < 256 && !io_uring_peek_cqe(&r->ring, &cqe)) {
		struct kvb_io *io = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io->more = cqe->flags & IORING_CQE_F_MORE;
		io_uring_cqe_seen(&r->ring, cqe);
		if (!io->more)
			r->io_inflight--;
		io->done(io, res);
		n++;
	}
	return n;
}

static void submit(struct kvb_reactor *r)
{
	int rc;

	if (!r->to_submit)
		return;
	rc = io_uring_submit_and_get_events(&r->ring);
	if (rc >= 0)
		r->to_submit = io_uring_sq_ready(&r->ring);
	else if (rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
		kvb_log(KVB_LOG_ERR, "io_uring_submit: %s", strerror(-rc));
}

/* ---- Timers, work, buffers ---- */

void kvb_timer_arm(struct kvb_reactor *r, struct kvb_timer *t, uint64_t when)
{
	kvb_timers_arm(&r->timers, t, when);
}

void kvb_timer_cancel(struct kvb_reactor *r, struct kvb_timer *t)
{
	kvb_timers_cancel(&r->timers, t);
}

void kvb_work_add(struct kvb_reactor *r, struct kvb_work *w)
{
	unsigned int flow = w->flow % KVB_FLOWS;

	w->next = NULL;
	*r->flows[flow].tail = w;
	r->flows[flow].tail = &w->next;
	r->busy_flows |= 1ull << flow;
}

/* The first flow with work after the one that had the last turn. */
static unsigned int next_flow(const struct kvb_reactor *r)
{
	uint64_t later = r->flow + 1 < KVB_FLOWS ? r->busy_flows >> (r->flow + 1) : 0;

	if (later)
		return r->flow + 1 + (unsigned int)__builtin_ctzll(later);
	return (unsigned int)__builtin_ctzll(r->busy_flows);
}

/* One slice: however much work one session has, another's waits for one of its slices only. */
static unsigned int work_slice(struct kvb_reactor *r)
{
	struct kvb_work *w;

	if (!r->busy_flows)
		return 0;
	r->flow = next_flow(r);
	w = r->flows[r->flow].head;
	r->flows[r->flow].head = w->next;
	if (!w->next) {
		r->flows[r->flow].tail = &r->flows[r->flow].head;
		r->busy_flows &= ~(1ull << r->flow);
	}
	kvb_count(&r->count.slices, 1);
	if (w->run(w))
		kvb_work_add(r, w);
	return 1;
}

void *kvb_buf_alloc(struct kvb_reactor *r, size_t len)
{
	return kvb_bufs_alloc(&r->bufs, len);
}

void kvb_buf_free(struct kvb_reactor *r, void *buf)
{
	kvb_bufs_free(&r->bufs, buf);
}

void kvb_buf_wait(struct kvb_reactor *r, struct kvb_buf_waiter *w)
{
	kvb_bufs_wait(&r->bufs, w);
}

/* ---- Messages ---- */

void kvb_reactor_send(struct kvb_reactor *r, struct kvb_msg *m)
{
	uint64_t one = 1;

	kvb_mailbox_put(&r->inbox, m);
	/* Put is sequentially consistent, as is the sleeper's store before its check. */
	if (__atomic_load_n(&r->state->sleeping, __ATOMIC_SEQ_CST) &&
	    write(r->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		kvb_log(KVB_LOG_ERR, "eventfd: %s", strerror(errno));
}

static unsigned int run_inbox(struct kvb_reactor *r)
{
	unsigned int n;

	if (kvb_mailbox_empty(&r->inbox))
		return 0;
	n = kvb_mailbox_run(&r->inbox);
	kvb_count(&r->count.msgs, n);
	return n;
}

/* ---- Operations ---- */

struct kvb_op *kvb_op_get(struct kvb_reactor *r)
{
	struct kvb_op *op = r->free_ops;

	if (op) {
		r->free_ops = op->next;
		r->used_ops++;
		return op;
	}
	if (r->nops == r->max_ops)
		return NULL;
	op = aligned_alloc(64, r->op_bytes);
	if (!op)
		return NULL;
	memset(op, 0, sizeof(*op));
	r->nops++;
	r->used_ops++;
	return op;
}

void kvb_op_put(struct kvb_reactor *r, struct kvb_op *op)
{
	op->next = r->free_ops;
	r->free_ops = op;
	r->used_ops--;
}

/* ---- Queue pairs: hot ones are scanned every turn, cold ones in rotation ---- */

static void swap_qps(struct kvb_reactor *r, unsigned int a, unsigned int b)
{
	struct kvb_qp *x = r->qps[a], *y = r->qps[b];

	r->qps[a] = y;
	y->slot = a;
	r->qps[b] = x;
	x->slot = b;
}

void kvb_reactor_heat(struct kvb_reactor *r, struct kvb_qp *qp)
{
	if (qp->hot)
		return;
	qp->hot = true;
	swap_qps(r, qp->slot, r->nhot++);
}

static void cool(struct kvb_reactor *r, struct kvb_qp *qp)
{
	qp->hot = false;
	swap_qps(r, qp->slot, --r->nhot);
}

int kvb_reactor_add_qp(struct kvb_reactor *r, struct kvb_qp *qp)
{
	if (r->nqps == r->cap) {
		unsigned int cap = r->cap ? 2 * r->cap : 64;
		struct kvb_qp **qps = realloc(r->qps, cap * sizeof(*qps));

		if (!qps)
			return -ENOMEM;
		r->qps = qps;
		r->cap = cap;
	}
	if (qp->mode & GKV_MODE_DB && kvb_db_join(r, qp))
		return -ENOMEM;
	qp->r = r;
	qp->hot = false;
	qp->active_ns = r->now;
	qp->slot = r->nqps;
	r->qps[r->nqps++] = qp;
	if (!qp->host)
		r->npolled++;
	kvb_reactor_heat(r, qp);
	return 0;
}

void kvb_reactor_del_qp(struct kvb_reactor *r, struct kvb_qp *qp)
{
	if (qp->hot)
		cool(r, qp);
	if (!qp->host)
		r->npolled--;
	kvb_db_leave(qp);
	swap_qps(r, qp->slot, --r->nqps);
	if (r->cold_pos >= r->nqps)
		r->cold_pos = r->nhot;
}

/* The hot ones from @i up to @end. */
static unsigned int scan_hot(struct kvb_reactor *r, unsigned int i, unsigned int end)
{
	unsigned int n = 0;

	while (i < end && i < r->nhot) {
		struct kvb_qp *qp = r->qps[i];

		if (qp->state != KVB_QP_RUNNING) {
			if (!qp->outstanding) {
				cool(r, qp);
				continue;
			}
		} else if (kvb_qp_rung(qp) || qp->nrecover) {
			n += kvb_qp_poll(qp, KVB_FETCH_MAX);
		} else if (r->now - qp->active_ns > COOL_NS && !qp->outstanding) {
			cool(r, qp);
			continue;	/* another stands here now */
		}
		i++;
	}
	return n;
}

static unsigned int scan(struct kvb_reactor *r)
{
	unsigned int n, left, end, first = 0;

	kvb_db_look(&r->dblines);
	/* Begin elsewhere each time: what is scarce must not always go to the same. */
	if (r->nhot)
		first = r->hot_pos++ % r->nhot;
	n = scan_hot(r, first, r->nhot);
	n += scan_hot(r, 0, first);
	left = r->nqps - r->nhot;
	if (!left)
		return n;
	if (r->cold_pos < r->nhot || r->cold_pos >= r->nqps) {
		r->cold_pos = r->nhot;
		r->cold_round = r->now;
	}
	end = r->cold_pos + COLD_SCAN;
	/* However busy we are, a round over all of them must not outlast the poll interval. */
	if (r->now - r->cold_round > atomic_load_explicit(&kvb_live.poll_interval_ns,
							  memory_order_relaxed) / 4)
		end = r->nqps;
	if (end > r->nqps)
		end = r->nqps;
	for (unsigned int i = r->cold_pos; i < end; i++) {
		struct kvb_qp *qp = r->qps[i];

		if (qp->state == KVB_QP_RUNNING && kvb_qp_rung(qp)) {
			qp->active_ns = r->now;
			kvb_reactor_heat(r, qp);	/* takes the place of one already seen */
			n += kvb_qp_poll(qp, KVB_FETCH_MAX);
		}
	}
	r->cold_pos = end;
	return n;
}

/* ---- Sleeping ---- */

static bool any_rung(struct kvb_reactor *r)
{
	kvb_db_look(&r->dblines);
	for (unsigned int i = 0; i < r->nqps; i++) {
		struct kvb_qp *qp = r->qps[i];

		if (qp->state == KVB_QP_RUNNING && kvb_qp_rung(qp) && !qp->stalled)
			return true;
	}
	return false;
}

/*
 * Nothing to do for a while: widen the poll step by step up to the interval, and block
 * when everyone who could have work for us would wake us.
 */
static void nap(struct kvb_reactor *r)
{
	uint64_t interval = atomic_load_explicit(&kvb_live.poll_interval_ns, memory_order_relaxed);
	uint64_t next = kvb_timers_next(&r->timers), wait = UINT64_MAX;
	struct __kernel_timespec ts;
	struct io_uring_cqe *cqe;

	if (r->npolled || r->nstalled) {
		r->nap_ns = r->nap_ns ? 2 * r->nap_ns : NAP_MIN_NS;
		if (r->nap_ns > interval)
			r->nap_ns = interval;
		wait = r->nap_ns;
	}
	if (r->ndeadlines && wait > DEADLINE_CHECK_NS)
		wait = DEADLINE_CHECK_NS;
	if (next != UINT64_MAX) {
		uint64_t until = next > r->now ? next - r->now : 0;

		if (until < wait)
			wait = until;
	}
	__atomic_store_n(&r->state->sleeping, 1, __ATOMIC_SEQ_CST);
	/* Pairs with the barrier between doorbell and look at this flag. */
	kvb_full_barrier();
	if (!atomic_load(&r->inbox.head) && !r->busy_flows && !any_rung(r) && wait) {
		kvb_count(&r->count.sleeps, 1);
		if (wait == UINT64_MAX) {
			io_uring_wait_cqe(&r->ring, &cqe);
		} else {
			ts.tv_sec = (long long)(wait / 1000000000u);
			ts.tv_nsec = (long long)(wait % 1000000000u);
			io_uring_wait_cqe_timeout(&r->ring, &cqe, &ts);
		}
	}
	__atomic_store_n(&r->state->sleeping, 0, __ATOMIC_RELEASE);
}

static void arm_wake(struct kvb_reactor *r);

static void woken(struct kvb_io *io, int res)
{
	struct kvb_reactor *r = (struct kvb_reactor *)((char *)io -
						       offsetof(struct kvb_reactor, wake_io));
	uint64_t n;

	(void)res;
	/* Ours alone and non-blocking. */
	if (read(r->wake_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		kvb_log(KVB_LOG_ERR, "eventfd: %s", strerror(errno));
	if (!r->stop)
		arm_wake(r);
}

static void arm_wake(struct kvb_reactor *r)
{
	struct io_uring_sqe *sqe = kvb_io_get(r, &r->wake_io);

	io_uring_prep_poll_add(sqe, r->wake_fd, POLLIN);
	io_uring_sqe_set_data(sqe, &r->wake_io);
}

/* ---- The loop ---- */

static void turn(struct kvb_reactor *r)
{
	unsigned int n;
	uint64_t spin;

	r->now = kvb_clock_ns();
	n = run_inbox(r);
	n += scan(r);
	n += reap(r);
	n += work_slice(r);
	if (r->timers.n)
		n += kvb_timers_run(&r->timers, r->now);
	if (r->now - r->deadline_check >= DEADLINE_CHECK_NS) {
		r->deadline_check = r->now;
		kvb_deadlines_run(r);
	}
	submit(r);
	kvb_count(&r->count.turns, 1);
	if (n) {
		r->idle_since = 0;
		r->nap_ns = 0;
		return;
	}
	if (!r->idle_since)
		r->idle_since = r->now;
	spin = atomic_load_explicit(&kvb_live.spin_ns, memory_order_relaxed);
	if (r->ndeadlines > r->nremote)
		spin *= BUSY_SPIN;
	if (r->now - r->idle_since < spin)
		kvb_cpu_relax();
	else
		nap(r);
}

void kvb_reactor_loop(struct kvb_reactor *r)
{
	r->wake_io.done = woken;
	arm_wake(r);
	r->now = kvb_clock_ns();
	atomic_store(&r->up, true);
	while (!r->stop)
		turn(r);
}
