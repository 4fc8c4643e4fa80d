/* SPDX-License-Identifier: MIT */
/* Completions: taking them off the CQ, and waiting for one's own, not for ever. */
#ifndef GKV_DEVICE_WAIT_H
#define GKV_DEVICE_WAIT_H

#include "submit.h"

/* How a command ended, or a wait for it. */
#define GKV_DEV_PENDING		0	/* not yet (poll) */
#define GKV_DEV_DONE		1	/* answered; the result has its status */
#define GKV_DEV_TIMEDOUT	2	/* no answer in time: the buffer stays in use */
#define GKV_DEV_STOPPED		3	/* the daemon serves the queue no more: likewise */
#define GKV_DEV_LOST		4	/* nobody will answer: likewise, until the host resets it */
#define GKV_DEV_INVALID		5	/* GKV_DEV_NONE, or a command whose result was taken */
#define GKV_DEV_FULL		6	/* never submitted: there was no room in time */

struct gkv_dev_result {
	uint32_t len;		/* Retrieve: full length of the value; List: as Base says */
	uint32_t crc;		/* crc32c of the value as stored, if @has_crc */
	uint16_t status;	/* NVMe status without the phase bit: 0 is success */
	uint8_t end;		/* GKV_DEV_* */
	uint8_t has_crc;
};

/* Completions that one visit takes at most, so that no wavefront reaps for all for long. */
#define GKVD_REAP_MAX	64u
/* Turns of a waiting loop between two looks at what the host says. */
#define GKVD_CTL_TURNS	64u
/* How long a wait that follows the queue's timeout goes on while the daemon is away. */
#define GKV_DEV_AWAY_NS	30000000000ull

/* An entry of the CQ, if it is there in this pass of the ring. */
GKV_DEV_FN int gkvd_get_entry(const uint8_t *e, uint32_t phase, uint64_t *lo, uint64_t *hi)
{
	uint32_t dw3 = gkvd_ld32_acquire_sys((const uint32_t *)(const void *)(e + 12));

	if ((dw3 >> 16 & 1) != phase)
		return 0;
	/* Only now: what was loaded with the phase, or before, may be of a pass ago. */
	gkvd_get16(e, lo, hi);
	return 1;
}

/* Give the completion @lo, @hi to its command. */
GKV_DEV_FN void gkvd_complete(struct gkv_dev_queue *q, uint64_t lo, uint64_t hi)
{
	uint32_t cid = (uint32_t)(hi >> 32) & 0xffff, status = (uint32_t)(hi >> 49);
	uint32_t idx = cid & ((1u << q->cid_bits) - 1), s;
	struct gkvd_slot *slot;

	if (idx >= q->depth - 1) {
		gkvd_add32_relaxed_dev(&q->stats.bad_cid, 1);
		return;
	}
	slot = gkvd_slot(q, idx);
	s = gkvd_ld32_relaxed_dev(&slot->state);
	if (gkvd_cid(q, idx, GKVD_GEN(s)) != cid ||
	    (GKVD_STATE(s) != GKVD_BUSY && GKVD_STATE(s) != GKVD_QUARANTINED)) {
		gkvd_add32_relaxed_dev(&q->stats.bad_cid, 1);
		return;
	}
	if (GKVD_STATE(s) == GKVD_BUSY) {
		gkvd_st32_relaxed_dev(&slot->dw0, (uint32_t)lo);
		gkvd_st32_relaxed_dev(&slot->dw1, (uint32_t)(lo >> 32));
		gkvd_st32_relaxed_dev(&slot->status, status);
		if (gkvd_cas32_release_dev(&slot->state, s,
					   GKVD_MAKE(GKVD_GEN(s), GKVD_DONE)) == s)
			return;
		/* Its lane gave up in this moment. */
	}
	gkvd_add32_relaxed_dev(&q->stats.late, 1);
	gkvd_slot_free(q, idx, GKVD_GEN(s));
}

/* @i of fewer than 2^31 entries behind @head: a slot, and the phase expected there. */
GKV_DEV_FN uint32_t gkvd_cq_add(const struct gkv_dev_queue *q, uint32_t head, uint32_t i)
{
	uint32_t s = (head & ~GKVD_PHASE) + i, phase = head & GKVD_PHASE;

	for (; s >= q->depth; s -= q->depth)
		phase ^= GKVD_PHASE;
	return s | phase;
}

/*
 * Take completions off the CQ, the lanes of @mask one each at a time. Called by all of them.
 * Does nothing when others are at it.
 */
GKV_DEV_FN void gkvd_reap(struct gkv_dev_queue *q, uint64_t mask)
{
	uint32_t first = gkvd_first(mask), rank = gkvd_rank(mask);
	uint32_t group = (uint32_t)gkvd_popc64(mask), head, at, n, taken = 0;
	uint64_t ok, lo = 0, hi = 0, lock = 0;

	if (!rank && !gkvd_ld32_relaxed_dev(&q->cq_lock) &&
	    !gkvd_exch32_acquire_dev(&q->cq_lock, 1))
		lock = (uint64_t)1 << 32 | gkvd_ld32_relaxed_dev(&q->cq_head);
	lock = gkvd_shfl(mask, lock, first);
	if (!(lock >> 32))
		return;
	/* What earlier holders have seen in the ring, all lanes know from here on. */
	gkvd_sync(mask);
	head = (uint32_t)lock;
	do {
		/*
		 * One pass at most: what lanes have seen of this one, they do not know of each
		 * other, and the pass before the last has the phase of the next. A daemon that
		 * posts nothing to a full CQ does not let it come that far.
		 */
		at = gkvd_cq_add(q, head, rank);
		ok = gkvd_ballot(mask, taken + rank < q->depth &&
				 gkvd_get_entry(q->cq + (size_t)(at & ~GKVD_PHASE) *
						sizeof(struct gkv_cqe), at / GKVD_PHASE, &lo, &hi));
		/* Those before the first that is missing. */
		n = mask & ~ok ? gkvd_rank_of(mask, gkvd_first(mask & ~ok)) : group;
		if (rank < n)
			gkvd_complete(q, lo, hi);
		head = gkvd_cq_add(q, head, n);
		taken += n;
	} while (n == group && taken + group <= GKVD_REAP_MAX);
	/* All have read their entries before the doorbell gives the entries back. */
	gkvd_sync(mask);
	if (!rank) {
		if (taken) {
			gkvd_st32_relaxed_dev(&q->cq_head, head);
			gkvd_st32_release_sys(q->cq_db, head & ~GKVD_PHASE);
		}
		gkvd_st32_release_dev(&q->cq_lock, 0);
	}
	gkvd_sync(mask);
}

/* The result, if it is there. Returns GKV_DEV_DONE, _PENDING or _INVALID. */
GKV_DEV_FN uint32_t gkvd_take(struct gkv_dev_queue *q, gkv_dev_token token,
			      struct gkv_dev_result *r)
{
	uint32_t idx = (uint32_t)token, gen = (uint32_t)(token >> 32), s;
	struct gkvd_slot *slot;

	r->len = 0;
	r->crc = 0;
	r->status = 0;
	r->has_crc = 0;
	r->end = GKV_DEV_INVALID;
	if (idx >= q->depth - 1)
		return GKV_DEV_INVALID;
	slot = gkvd_slot(q, idx);
	s = gkvd_ld32_acquire_dev(&slot->state);
	if (GKVD_GEN(s) != gen || GKVD_STATE(s) == GKVD_FREE ||
	    GKVD_STATE(s) == GKVD_QUARANTINED)
		return GKV_DEV_INVALID;
	if (GKVD_STATE(s) == GKVD_BUSY) {
		r->end = GKV_DEV_PENDING;
		return GKV_DEV_PENDING;
	}
	r->len = gkvd_ld32_relaxed_dev(&slot->dw0);
	r->status = (uint16_t)gkvd_ld32_relaxed_dev(&slot->status);
	if ((q->flags & GKV_DEV_CSUM) && (r->len & GKV_CQE_DW0_CSUM_VALID)) {
		r->len &= ~GKV_CQE_DW0_CSUM_VALID;
		r->crc = gkvd_ld32_relaxed_dev(&slot->dw1);
		r->has_crc = 1;
	}
	r->end = GKV_DEV_DONE;
	gkvd_slot_free(q, idx, gen);
	return GKV_DEV_DONE;
}

/*
 * End the command without a result, as @end says; its slot is in quarantine from now on.
 * r->end stays GKV_DEV_PENDING if it was answered in this moment.
 */
GKV_DEV_FN void gkvd_end(struct gkv_dev_queue *q, gkv_dev_token token, uint32_t end,
			 struct gkv_dev_result *r)
{
	uint32_t gen = (uint32_t)(token >> 32), busy = GKVD_MAKE(gen, GKVD_BUSY);

	if (token == GKV_DEV_NONE) {
		r->end = (uint8_t)(end == GKV_DEV_TIMEDOUT ? GKV_DEV_FULL : end);
		return;
	}
	if (gkvd_cas32_relaxed_dev(&gkvd_slot(q, (uint32_t)token)->state, busy,
				   GKVD_MAKE(gen, GKVD_QUARANTINED)) != busy)
		return;
	if (end == GKV_DEV_TIMEDOUT)
		gkvd_add32_relaxed_dev(&q->stats.timeouts, 1);
	r->end = (uint8_t)end;
}

/* ---- Deadlines ---- */

struct gkvd_deadline {
	uint64_t start, ticks, grace;
	uint32_t epoch;
	uint32_t follows;	/* the queue's timeout: stands still while the daemon is away */
};

GKV_DEV_FN struct gkvd_deadline gkvd_deadline(const struct gkv_dev_queue *q, uint64_t timeout_ns)
{
	struct gkvd_deadline d = { 0, 0, 0, 0, timeout_ns == 0 };
	uint64_t ns = timeout_ns ? timeout_ns : q->timeout_ns;

	d.ticks = ns / 1000 * q->ticks_per_us + ns % 1000 * q->ticks_per_us / 1000;
	if (d.follows && q->ctl)
		d.epoch = gkvd_ld32_acquire_sys(&q->ctl->epoch);
	/* Not before: a restart in between would count as none, and its time as waited. */
	d.start = gkvd_clock();
	return d;
}

/* Is the time up? Turn @i of a loop. Returns GKV_DEV_PENDING or how the wait ends. */
GKV_DEV_FN uint32_t gkvd_expired(const struct gkv_dev_queue *q, struct gkvd_deadline *d, uint32_t i)
{
	uint64_t now = gkvd_clock();
	uint32_t epoch;

	if (i % GKVD_CTL_TURNS == GKVD_CTL_TURNS - 1) {
		if (q->stopped && gkvd_ld32_acquire_sys(q->stopped))
			return GKV_DEV_STOPPED;
		if (q->ctl && gkvd_ld32_acquire_sys(&q->ctl->lost))
			return GKV_DEV_LOST;
	}
	if (now - d->start < d->ticks + d->grace)
		return GKV_DEV_PENDING;
	if (!d->follows || !q->ctl)
		return GKV_DEV_TIMEDOUT;
	/* In this order: a daemon that is seen to be back has begun its epoch. */
	if (gkvd_ld32_acquire_sys(&q->ctl->away) && !d->grace) {
		d->grace = GKV_DEV_AWAY_NS / 1000 * q->ticks_per_us;
		return GKV_DEV_PENDING;
	}
	epoch = gkvd_ld32_acquire_sys(&q->ctl->epoch);
	if (epoch == d->epoch)
		return GKV_DEV_TIMEDOUT;
	d->epoch = epoch;
	d->start = gkvd_clock();	/* anew, for the same reason */
	d->grace = 0;
	return GKV_DEV_PENDING;
}

/* ---- For users ---- */

/*
 * Look once whether the command is done; others' completions are taken on the way. Returns
 * GKV_DEV_DONE with *@r, once for each token; GKV_DEV_PENDING; or GKV_DEV_INVALID.
 */
GKV_DEV_FN uint32_t gkv_dev_poll(struct gkv_dev_queue *q, gkv_dev_token token,
				 struct gkv_dev_result *r)
{
	uint32_t end = gkvd_take(q, token, r);

	if (end != GKV_DEV_PENDING)
		return end;
	gkvd_reap(q, gkvd_active());
	return gkvd_take(q, token, r);
}

/*
 * Wait for a command, @timeout_ns at most; 0: as long as the queue says. When it is seen to
 * be done, what the daemon or a device put into the buffer is there to be read. Returns
 * r->end: GKV_DEV_DONE, or why there is no result; then the buffer is in use until
 * gkv_dev_settled(), or until the host has reset the queue.
 */
GKV_DEV_FN uint32_t gkv_dev_wait(struct gkv_dev_queue *q, gkv_dev_token token, uint64_t timeout_ns,
				 struct gkv_dev_result *r)
{
	struct gkvd_deadline d = gkvd_deadline(q, timeout_ns);
	uint32_t i, end;

	for (i = 0;; i++) {
		if (gkvd_take(q, token, r) != GKV_DEV_PENDING)
			return r->end;
		gkvd_reap(q, gkvd_active());
		end = gkvd_expired(q, &d, i);
		if (end != GKV_DEV_PENDING) {
			gkvd_end(q, token, end, r);
			if (r->end != GKV_DEV_PENDING)
				return r->end;
		}
		gkvd_spin(i);
	}
}

/*
 * Wait for @n commands, which may include GKV_DEV_NONE. To be called by all lanes of @mask
 * together and with the same arguments; the time is for all of them. Each @results[i] is set
 * as by gkv_dev_wait(). Returns how many ended with GKV_DEV_DONE.
 */
GKV_DEV_FN uint32_t gkv_dev_wait_batch(struct gkv_dev_queue *q, uint64_t mask,
				       const gkv_dev_token *tokens, uint32_t n,
				       uint64_t timeout_ns, struct gkv_dev_result *results)
{
	struct gkvd_deadline d = gkvd_deadline(q, timeout_ns);
	uint32_t step = (uint32_t)gkvd_popc64(mask), i = gkvd_rank(mask), turn, end;
	uint32_t done = 0, total = 0;
	uint64_t left;

	for (turn = 0;; turn++) {
		while (i < n && gkvd_take(q, tokens[i], &results[i]) != GKV_DEV_PENDING) {
			done += results[i].end == GKV_DEV_DONE;
			i += step;
		}
		if (!gkvd_ballot(mask, i < n))
			break;
		gkvd_reap(q, mask);
		end = gkvd_expired(q, &d, turn);
		if (i < n && end != GKV_DEV_PENDING) {
			gkvd_end(q, tokens[i], end, &results[i]);
			i += results[i].end != GKV_DEV_PENDING ? step : 0;
		}
		gkvd_spin(turn);
	}
	for (left = mask; left; left &= left - 1)
		total += (uint32_t)gkvd_shfl(mask, done, gkvd_first(left));
	/* Each lane may read all results. */
	gkvd_sync(mask);
	return total;
}

/*
 * Submit @c when there is room, and wait for it: @timeout_ns as for gkv_dev_wait(), for both.
 * Returns r->end. Lanes that call it together go on together until all are done: those that
 * find no room need what others of them hold.
 */
GKV_DEV_FN uint32_t gkv_dev_exec(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c,
				 uint64_t timeout_ns, struct gkv_dev_result *r)
{
	struct gkvd_deadline d = gkvd_deadline(q, timeout_ns);
	uint64_t mask = gkvd_active(), none;
	gkv_dev_token t = GKV_DEV_NONE;
	uint32_t i, end;

	r->end = GKV_DEV_PENDING;
	for (i = 0;; i++) {
		none = gkvd_ballot(mask, t == GKV_DEV_NONE && r->end == GKV_DEV_PENDING);
		if (t == GKV_DEV_NONE && r->end == GKV_DEV_PENDING)
			t = gkvd_submit(q, none, c);
		if (t != GKV_DEV_NONE && r->end == GKV_DEV_PENDING)
			gkvd_take(q, t, r);
		if (!gkvd_ballot(mask, r->end == GKV_DEV_PENDING))
			return r->end;
		gkvd_reap(q, mask);
		end = gkvd_expired(q, &d, i);
		if (end != GKV_DEV_PENDING && r->end == GKV_DEV_PENDING)
			gkvd_end(q, t, end, r);
		gkvd_spin(i);
	}
}

/* Is the buffer of a command that ended without a result free again? Takes completions. */
GKV_DEV_FN int gkv_dev_settled(struct gkv_dev_queue *q, gkv_dev_token token)
{
	uint32_t s;

	if ((uint32_t)token >= q->depth - 1)
		return 1;
	gkvd_reap(q, gkvd_active());
	s = gkvd_ld32_acquire_dev(&gkvd_slot(q, (uint32_t)token)->state);
	return GKVD_GEN(s) != (uint32_t)(token >> 32) || GKVD_STATE(s) == GKVD_FREE;
}

#endif
