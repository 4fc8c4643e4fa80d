/* SPDX-License-Identifier: MIT */
/* Data path: completions, timeouts, and waiting for them. */
#include <endian.h>
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bar.h"
#include "dptr.h"
#include "reap.h"

/* Empty polls, and polls in all, between two looks at the clock. */
#define CLOCK_EMPTY	16u
#define CLOCK_BUSY	1024u

#define SPIN_MIN_NS	2000ull
#define SPIN_MAX_NS	50000ull
#define SLEEP_MAX_NS	(100 * NSEC_PER_MSEC)
#define SLEEP_POLLED_NS	50000ull

static void slot_free(struct gkv_qp *qp, struct slot *s, uint32_t idx)
{
	if (s->list)
		gkvi_list_put(qp, s);
	s->state = SLOT_FREE;
	qp->free_cids[qp->n_free++] = (uint16_t)idx;
	qp->outstanding--;
}

/* SQHD says how far the daemon has fetched. Believe it only within what was submitted. */
static inline void take_sqhd(struct gkv_qp *qp, uint32_t sqhd)
{
	uint32_t d = qp->depth;
	uint32_t used, moved;

	if (likely(sqhd < d)) {
		used = qp->sq_tail >= qp->sq_head ? qp->sq_tail - qp->sq_head :
						    qp->sq_tail + d - qp->sq_head;
		moved = sqhd >= qp->sq_head ? sqhd - qp->sq_head : sqhd + d - qp->sq_head;
		if (likely(moved <= used)) {
			qp->sq_head = sqhd;
			return;
		}
	}
	qp->stats.bad_sqhd++;
}

static inline bool read_cqe(const struct gkv_qp *qp, uint32_t head, bool vram, struct cqe_image *e)
{
	return vram ? bar_cqe_read(&qp->cq[head], qp->phase, e) :
		      cqe_read(&qp->cq[head], qp->phase, e);
}

/* Take completions off the ring, up to @max. The doorbell is left to the caller. */
static inline __attribute__((always_inline)) uint32_t take(struct gkv_qp *qp, struct gkv_comp *comps,
							   uint32_t max, const bool vram)
{
	uint32_t head = qp->cq_head, n = 0;
	struct cqe_image e;

	while (n < max && read_cqe(qp, head, vram, &e)) {
		uint32_t idx = e.cid & qp->cid_mask;
		struct slot *s = &qp->slots[idx];

		if (++head == qp->depth) {
			head = 0;
			qp->phase ^= 1;
		}
		take_sqhd(qp, e.sqhd);
		/* Not ours, or ours a second time: the generation tells. */
		if (unlikely(idx >= qp->depth - 1 || s->cid != e.cid || s->state == SLOT_FREE)) {
			qp->stats.bad_cid++;
			continue;
		}
		comps[n].user_data = s->user_data;
		comps[n].result = e.dw0;
		comps[n].crc = 0;
		comps[n].status = e.status;
		comps[n].flags = 0;
		comps[n].rsvd = 0;
		if ((qp->flags & GKV_QP_CSUM) && (e.dw0 & GKV_CQE_DW0_CSUM_VALID)) {
			comps[n].result = e.dw0 & ~GKV_CQE_DW0_CSUM_VALID;
			comps[n].crc = e.dw1;
			comps[n].flags = GKV_C_CRC;
		}
		if (unlikely(s->state == SLOT_QUARANTINE)) {
			gkvi_quarantine(qp, idx, -1);
			comps[n].flags |= GKV_C_LATE;
			qp->stats.late++;
		} else {
			qp->n_busy--;
		}
		slot_free(qp, s, idx);
		n++;
	}
	qp->cq_head = head;
	qp->stats.completed += n;
	return n;
}

/* With parts in VRAM, which may be gone, or in the hands of device code. */
static __attribute__((noinline)) uint32_t reap_vram(struct gkv_qp *qp, struct gkv_comp *comps,
						    uint32_t max)
{
	bool gone = gkv_qp_stopped(qp) == GKV_STOPPED_MEMORY ||
		    (load_acquire(&qp->link) != QP_LIVE && gkvi_qp_gone(qp));
	uint32_t head = qp->cq_head, n;

	if (qp->odd & ODD_DEVICE)
		return 0;
	if (!(qp->mode & GKV_MODE_CQ))
		n = take(qp, comps, max, false);
	else if (!gone)
		n = take(qp, comps, max, true);
	else
		return 0;
	if (head != qp->cq_head && !gone)
		bar_ring(qp->cq_db, qp->cq_head);
	return n;
}

static uint32_t reap(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max)
{
	uint32_t head = qp->cq_head, n;

	if (unlikely(qp->odd & (GKV_MODE_CQ | GKV_MODE_DB | ODD_DEVICE)))
		return reap_vram(qp, comps, max);
	n = take(qp, comps, max, false);
	if (head != qp->cq_head)
		store_release(qp->cq_db, htole32(qp->cq_head));
	return n;
}

/* ---- Timeouts ---- */

uint64_t gkvi_timeout(const struct gkv_qp *qp, uint32_t nsid)
{
	const struct gkv *g = qp->g;
	uint32_t n;

	if (qp->timeout_ns)
		return qp->timeout_ns;
	n = load_acquire(&g->n_ns);
	for (uint32_t i = 0; i < n; i++)
		if (g->ns[i].nsid == nsid)
			return load_relaxed(&g->ns[i].deadline_ns) + TIMEOUT_MARGIN_NS;
	return load_relaxed(&g->max_deadline_ns) + TIMEOUT_MARGIN_NS;
}

static void end_without_cqe(struct gkv_comp *c, const struct slot *s, uint16_t status,
			    uint16_t flags)
{
	memset(c, 0, sizeof(*c));
	c->user_data = s->user_data;
	c->status = status;
	c->flags = flags;
}

/* ---- Queue pairs that the daemon has stopped ---- */

uint32_t gkv_qp_stopped(const struct gkv_qp *qp)
{
	return le32toh(load_acquire(&qp->rec->stopped));
}

int gkvi_qp_stopped_err(const struct gkv_qp *qp)
{
	switch (gkv_qp_stopped(qp)) {
	case GKV_STOPPED_MEMORY:
		return gkvi_err(-ENODEV, "queue pair %u is stopped: memory of its rings or doorbells "
					 "is gone; destroy it", qp->qid);
	case GKV_STOPPED_DOORBELL:
		return gkvi_err(-EIO, "queue pair %u is stopped: a doorbell claimed more commands "
				      "than there can be; reset it", qp->qid);
	case GKV_STOPPED_RECORD:
		return gkvi_err(-EIO, "queue pair %u is stopped: its in-flight record is not what "
				      "kvbridged wrote; reset it", qp->qid);
	default:
		return gkvi_err(-EIO, "queue pair %u is stopped; reset it", qp->qid);
	}
}

/*
 * Report what was completed before the queue pair was stopped, then the rest as lost. That
 * goes into quarantine: the daemon may still be at it, until a reset or removal.
 */
static uint32_t stopped(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max)
{
	uint32_t n = reap(qp, comps, max);

	qp->odd |= ODD_STOPPED;
	for (uint32_t i = 0; i < qp->depth - 1 && qp->n_busy && n < max; i++) {
		struct slot *s = &qp->slots[i];

		if (s->state != SLOT_BUSY)
			continue;
		s->state = SLOT_QUARANTINE;
		qp->n_busy--;
		qp->stats.lost++;
		gkvi_quarantine(qp, i, 1);
		end_without_cqe(&comps[n++], s, GKV_SC_HOST_PATH, GKV_C_LOST | GKV_C_STOPPED);
	}
	return n;
}

/*
 * Look at every command: give a deadline to those that have none yet, report those
 * past it. Done every few milliseconds at most, which is what lets gkv_submit() do
 * without the clock; a timeout comes late by an eighth of itself at most.
 */
static uint32_t scan(struct gkv_qp *qp, uint64_t now, struct gkv_comp *comps, uint32_t max)
{
	/* In this order: a daemon that is seen to be up has begun its epoch. */
	bool up = load_acquire(&qp->g->up);
	uint32_t epoch = load_acquire(&qp->g->epoch), n = 0;
	bool restart = epoch != qp->epoch;
	uint64_t next = now + 50 * NSEC_PER_MSEC, grace = 0;

	if (unlikely(gkv_qp_stopped(qp)))
		return stopped(qp, comps, max);
	/* The daemon that comes back needs time; a timeout the caller set is the caller's. */
	if (!qp->timeout_ns && !up)
		grace = AWAY_GRACE_NS;
	qp->epoch = epoch;
	for (uint32_t i = 0; i < qp->depth - 1; i++) {
		struct slot *s = &qp->slots[i];

		if (s->state != SLOT_BUSY)
			continue;
		if (!s->deadline || (restart && !qp->timeout_ns)) {
			uint64_t t = gkvi_timeout(qp, s->nsid), step = t / 8;

			if (step < NSEC_PER_MSEC)
				step = NSEC_PER_MSEC;
			s->deadline = now + t;
			if (next > now + step)
				next = now + step;
		}
		if (s->deadline + grace > now) {
			if (next > s->deadline + grace)
				next = s->deadline + grace;
			continue;
		}
		if (n == max) {
			next = now;
			continue;
		}
		s->state = SLOT_QUARANTINE;
		qp->n_busy--;
		qp->stats.timeouts++;
		gkvi_quarantine(qp, i, 1);
		end_without_cqe(&comps[n++], s, GKV_SC_HOST_ABORTED, GKV_C_TIMEDOUT);
	}
	qp->next_scan = next;
	return n;
}

/* ---- Queue pairs that are not served ---- */

/* The owner has reported everything: the keeper may make a new one of it. */
static void drained(struct gkv_qp *qp)
{
	struct gkv *g = qp->g;

	int ret = gkvi_qp_wipe(qp);

	gkvi_qp_fresh(qp);
	store_release(&qp->link, ret ? QP_DEAD : QP_DRAINED);
	gkvi_kick(g);
}

/* Report commands of a queue pair that was not resumed as lost. */
static uint32_t lost(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < qp->depth - 1 && qp->outstanding && n < max; i++) {
		struct slot *s = &qp->slots[i];
		uint16_t flags = GKV_C_LOST;

		if (s->state == SLOT_FREE)
			continue;
		if (s->state == SLOT_QUARANTINE) {
			gkvi_quarantine(qp, i, -1);
			flags |= GKV_C_LATE;
		} else {
			qp->n_busy--;
		}
		end_without_cqe(&comps[n++], s, GKV_SC_HOST_PATH, flags);
		slot_free(qp, s, i);
		qp->stats.lost++;
	}
	if (!qp->outstanding && load_acquire(&qp->link) == QP_LOST)
		drained(qp);
	return n;
}

int gkvi_qp_unlinked(struct gkv_qp *qp)
{
	if (qp->odd & ODD_DEVICE)
		return gkvi_qp_device_err(qp);
	switch (load_acquire(&qp->link)) {
	case QP_DEAD:
		return gkvi_err(-ENOTCONN, "queue pair %u was lost with its daemon or its memory",
				qp->qid);
	case QP_LOST:
		lost(qp, NULL, 0);
		break;
	}
	return 0;
}

/* ---- Polling and waiting ---- */

int gkv_poll(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max)
{
	uint32_t n = reap(qp, comps, max);
	uint64_t now;

	qp->polls++;
	if (likely(n)) {
		if (likely(qp->polls % CLOCK_BUSY || n == max))
			return (int)n;
	} else if (unlikely(qp->odd & ODD_DEVICE)) {
		return gkvi_qp_device_err(qp);
	} else if (unlikely(load_acquire(&qp->link) == QP_LOST)) {
		/* What was posted before has been reaped above, or is there now. */
		n = reap(qp, comps, max);
		return (int)(n + lost(qp, comps + n, max - n));
	} else if (unlikely(qp->odd & ODD_STOPPED)) {
		return (int)stopped(qp, comps, max);
	} else if (likely(qp->polls % CLOCK_EMPTY || !qp->n_busy)) {
		return 0;
	}
	now = gkvi_now();
	if (now < qp->next_scan)
		return (int)n;
	return (int)(n + scan(qp, now, comps + n, max - n));
}

static void futex_wait(uint32_t *word, uint32_t val, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	/* Shared: the waker is another process. */
	syscall(SYS_futex, word, FUTEX_WAIT, val, &ts, NULL, 0);
}

/* Sleep until the daemon posts or @ns have passed. */
static void sleep_on(struct gkv_qp *qp, uint64_t ns)
{
	uint32_t *word = &qp->rec->waiting;
	struct cqe_image e;

	store_relaxed(word, htole32(1));
	/* The daemon posts, then looks at the word; this sets it, then looks at the ring. */
	full_barrier();
	if (!gkv_qp_stopped(qp) && load_relaxed(&qp->link) != QP_LOST &&
	    !read_cqe(qp, qp->cq_head, qp->mode & GKV_MODE_CQ, &e)) {
		qp->stats.sleeps++;
		futex_wait(word, htole32(1), ns);
	}
	store_relaxed(word, 0);
}

int gkv_wait(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max, uint64_t timeout_ns)
{
	uint64_t start, now, until, slice;
	int n;

	n = gkv_poll(qp, comps, max);
	if (n || !max || !qp->outstanding || !timeout_ns)
		return n;
	start = now = gkvi_now();
	until = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
	do {
		for (int i = 0; i < 32; i++) {
			n = gkv_poll(qp, comps, max);
			if (n)
				goto spun;
			cpu_relax();
		}
		now = gkvi_now();
	} while (now < start + qp->spin_ns && now < until && load_relaxed(&qp->g->up));
	/* Spinning was no use: spin less next time. */
	if (qp->spin_ns > SPIN_MIN_NS)
		qp->spin_ns /= 2;
	while (qp->outstanding) {
		n = gkv_poll(qp, comps, max);
		if (n)
			return n;
		if (unlikely(gkv_qp_stopped(qp)))
			return (int)stopped(qp, comps, max);
		now = gkvi_now();
		if (now >= until)
			return 0;
		if (qp->n_busy && now >= qp->next_scan) {
			n = (int)scan(qp, now, comps, max);
			if (n)
				return n;
		}
		slice = until - now;
		if (slice > SLEEP_MAX_NS)
			slice = SLEEP_MAX_NS;
		if (qp->n_busy && slice > qp->next_scan - now)
			slice = qp->next_scan - now;
		/* A poller's daemon owes no wake-up. */
		if ((qp->flags & GKV_QP_POLLED) && slice > SLEEP_POLLED_NS)
			slice = SLEEP_POLLED_NS;
		sleep_on(qp, slice);
	}
	return 0;
spun:
	if (qp->spin_ns < SPIN_MAX_NS)
		qp->spin_ns += qp->spin_ns / 2;
	return n;
}

int gkv_exec(struct gkv_qp *qp, const struct gkv_cmd *cmd, struct gkv_comp *comp)
{
	uint64_t until = gkvi_now() + AWAY_CALL_NS;
	struct gkv_comp c;
	int n;

	if (!comp)
		comp = &c;
	/* Only answers to earlier commands that timed out may be on their way. */
	while (!qp->n_busy && qp->outstanding && gkv_poll(qp, &c, 1) == 1)
		;
	if (qp->odd & ODD_STOPPED)
		return gkvi_qp_stopped_err(qp);
	if (qp->outstanding)
		return gkvi_err(-EBUSY,
				"queue pair %u has %u commands outstanding; reap them or reset it",
				qp->qid, qp->outstanding);
	while (!(n = gkv_submit(qp, cmd, 1))) {
		/* Being set up again after a hand-over. */
		if (gkvi_now() >= until)
			return gkvi_err(-ENOTCONN, "queue pair %u is not served", qp->qid);
		usleep(1000);
	}
	if (n < 0)
		return n;
	do {
		n = gkv_wait(qp, comp, 1, NSEC_PER_SEC);
	} while (!n);
	return n < 0 ? n : 0;
}
