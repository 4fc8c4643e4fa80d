/* SPDX-License-Identifier: MIT */
/*
 * The thread beside a queue pair in stream order. It looks whether the daemon gets on with what
 * the stream rings, and answers in its place once nobody else will. All it reads and writes is
 * memory of the host: the runtime's functions may be waiting for the very stream.
 *
 * While the stream waits, nothing moves that it does not find: the run is from the CQ's head to
 * the SQ's tail, in slots of either ring, and the slot before the head tells the phase.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "gpu_stream.h"
#include "reap.h"

#define LOOK_NS		(10 * NSEC_PER_MSEC)	/* while something is enqueued */
#define ANSWER_MIN_NS	50000ull		/* after the end, likewise */
#define ANSWER_MAX_NS	(5 * NSEC_PER_MSEC)
#define STACK_SIZE	(256u << 10)

/* What the stream waits for: @n commands from slot @head on, @posted of them answered. */
struct run {
	uint32_t head, n, posted;
	uint64_t cq_seq;
};

struct look {
	struct run last;
	uint64_t since;			/* CLOCK_MONOTONIC ns: it has been like that */
	uint32_t epoch;
};

void gkvi_watch_kick(struct gkv_gpu_stream *s)
{
	eventfd_write(s->kick, 1);
}

static uint32_t dw3(const struct gkv_qp *qp, uint32_t slot)
{
	return le32toh(load_acquire((const uint32_t *)&qp->cq[slot] + 3));
}

static uint32_t phase_at(const struct gkv_qp *qp, uint32_t slot)
{
	return dw3(qp, slot) / CQE_PHASE & 1;
}

/* The @i-th slot from @head on; *@phase is turned when it is in the next pass. */
static uint32_t slot_at(const struct gkv_qp *qp, uint32_t head, uint32_t i, uint32_t *phase)
{
	if (head + i < qp->depth)
		return head + i;
	*phase ^= 1;
	return head + i - qp->depth;
}

/* The phase of completions from slot @head on, of which the one before has been taken. */
static uint32_t phase_from(const struct gkv_qp *qp, uint32_t head)
{
	return head ? phase_at(qp, head - 1) : !phase_at(qp, qp->depth - 1);
}

/*
 * False when the doorbells are being rung, or make no sense. A run begins only after the
 * CQ's doorbell: what is between two equal readings of that belongs to one run.
 */
static bool find_run(const struct gkv_qp *qp, struct run *r)
{
	uint32_t head = le32toh(load_acquire(qp->cq_db)), tail = le32toh(load_acquire(qp->sq_db));
	uint32_t phase;

	if (head >= qp->depth || tail >= qp->depth || le32toh(load_acquire(qp->cq_db)) != head)
		return false;
	r->head = head;
	r->n = tail >= head ? tail - head : tail + qp->depth - head;
	r->cq_seq = le64toh(load_relaxed(&qp->rec->cq_seq));
	phase = phase_from(qp, head);
	for (r->posted = 0; r->posted < r->n; r->posted++) {
		uint32_t p = phase, slot = slot_at(qp, head, r->posted, &p);

		if (phase_at(qp, slot) != p)
			break;
	}
	return true;
}

static bool same(const struct run *a, const struct run *b)
{
	return a->head == b->head && a->n == b->n && a->posted == b->posted &&
	       a->cq_seq == b->cq_seq;
}

/* Does the daemon get on? Time counts from its last answer, as for commands of the host. */
static enum stream_end look(struct gkv_gpu_stream *s, struct look *w)
{
	struct gkv_qp *qp = s->qp;
	/* In this order: a daemon that is seen to be up has begun its epoch. */
	bool up = load_acquire(&qp->g->up), found;
	uint32_t epoch = load_acquire(&qp->g->epoch);
	uint64_t now = gkvi_now(), limit = gkvi_timeout(qp, 0);
	struct run r;

	if (load_acquire(&qp->link) != QP_LIVE)
		return STREAM_LOST;
	if (gkv_qp_stopped(qp))
		return STREAM_STOPPED;
	found = find_run(qp, &r);
	if (!found || r.posted == r.n || !same(&r, &w->last) ||
	    (epoch != w->epoch && !qp->timeout_ns)) {
		w->since = now;
		w->epoch = epoch;
		if (found)
			w->last = r;
		return STREAM_ALIVE;
	}
	/* The daemon that comes back needs time; a timeout the caller set is the caller's. */
	if (!qp->timeout_ns && !up)
		limit += AWAY_GRACE_NS;
	return now - w->since > limit ? STREAM_SILENT : STREAM_ALIVE;
}

static void post(struct gkv_qp *qp, uint32_t slot, uint32_t phase, uint32_t cid, uint32_t tail)
{
	uint32_t *dw = (uint32_t *)&qp->cq[slot];

	store_relaxed(&dw[0], 0);
	store_relaxed(&dw[1], 0);
	store_relaxed(&dw[2], htole32(tail | qp->qid << 16));
	store_release(&dw[3], htole32(cid | phase * CQE_PHASE | (uint32_t)GKV_SC_HOST_PATH << 17));
}

/* Nobody else posts any more. Answer what the stream waits for and did not get, if anything. */
static bool answer(struct gkv_gpu_stream *s)
{
	struct gkv_qp *qp = s->qp;
	uint32_t phase, tail, cid = 0;
	struct run r;

	if (!find_run(qp, &r) || r.posted == r.n)
		return false;
	phase = phase_from(qp, r.head);
	tail = (r.head + r.n) % qp->depth;
	memset(s->seen, 0, (qp->depth + 7) / 8);
	for (uint32_t i = 0; i < r.posted; i++) {
		uint32_t p = phase, id = dw3(qp, slot_at(qp, r.head, i, &p)) & 0xffff;

		if (id < r.n)
			s->seen[id / 8] |= 1u << id % 8;
	}
	for (uint32_t i = r.posted; i < r.n; i++) {
		uint32_t p = phase, slot = slot_at(qp, r.head, i, &p);

		while (cid < r.n && s->seen[cid / 8] & 1u << cid % 8)
			cid++;
		post(qp, slot, p, cid++, tail);
	}
	return true;
}

/* Sleep until kicked, or for @ns; 0: no limit. */
static void doze(struct gkv_gpu_stream *s, uint64_t ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };
	struct pollfd p = { .fd = s->kick, .events = POLLIN };
	eventfd_t n;

	if (ppoll(&p, 1, ns ? &ts : NULL, NULL) > 0 && eventfd_read(s->kick, &n)) {
		/* A signal: what it is for is in memory. */
	}
}

static void *watch(void *arg)
{
	struct gkv_gpu_stream *s = arg;
	enum stream_end end = STREAM_ALIVE;
	struct look w = { .since = 0 };
	uint64_t ns = ANSWER_MIN_NS;
	bool fresh = true;

	while (!load_acquire(&s->stop)) {
		if (load_acquire(s->done) == load_acquire(&s->enqueued)) {
			fresh = true;
			doze(s, 0);
			continue;
		}
		if (end == STREAM_ALIVE) {
			/* Nothing from before it slept counts. */
			if (fresh)
				w.since = gkvi_now();
			fresh = false;
			end = look(s, &w);
			if (end != STREAM_ALIVE) {
				gkvi_device_withdraw(s->qp);
				store_release(&s->end, end);
			}
		}
		if (end == STREAM_ALIVE) {
			doze(s, LOOK_NS);
			continue;
		}
		/* A kernel may run for long before the next doorbell. */
		ns = answer(s) ? ANSWER_MIN_NS : ns * 2 > ANSWER_MAX_NS ? ANSWER_MAX_NS : ns * 2;
		doze(s, ns);
	}
	return NULL;
}

int gkvi_watch_start(struct gkv_gpu_stream *s)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int ret;

	s->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->kick < 0)
		return gkvi_err(-errno, "cannot make an eventfd: %s", strerror(errno));
	/* Signals are the application's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	ret = pthread_create(&s->watcher, &attr, watch, s);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret) {
		close(s->kick);
		return gkvi_err(-ret, "cannot start a thread for the stream: %s", strerror(ret));
	}
	return 0;
}

/* Waits for it, which may be asking the daemon. */
void gkvi_watch_stop(struct gkv_gpu_stream *s)
{
	store_release(&s->stop, 1);
	gkvi_watch_kick(s);
	pthread_join(s->watcher, NULL);
	close(s->kick);
}

/* 0 while the queue pair is served; why not otherwise. */
int gkvi_watch_err(const struct gkv_gpu_stream *s)
{
	const struct gkv_qp *qp = s->qp;
	uint32_t end = load_acquire(&s->end);

	if (end == STREAM_SILENT)
		return gkvi_err(-EIO, "queue pair %u has had no answer for %llu ms and was taken "
				      "from kvbridged", qp->qid,
				(unsigned long long)(gkvi_timeout(qp, 0) / NSEC_PER_MSEC));
	if (end == STREAM_STOPPED || (end == STREAM_ALIVE && gkv_qp_stopped(qp)))
		return gkvi_qp_stopped_err(qp);
	if (end == STREAM_LOST || load_acquire(&qp->link) != QP_LIVE)
		return gkvi_err(-ENOTCONN, "queue pair %u was lost with its daemon or its memory",
				qp->qid);
	return 0;
}
