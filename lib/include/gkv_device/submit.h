/* SPDX-License-Identifier: MIT */
/* From commands to entries of the SQ and one doorbell. */
#ifndef GKV_DEVICE_SUBMIT_H
#define GKV_DEVICE_SUBMIT_H

#include "command.h"

/* Take up to @n credits; returns how many. */
GKV_DEV_FN uint32_t gkvd_credits_take(struct gkv_dev_queue *q, uint32_t n)
{
	uint32_t have = gkvd_ld32_relaxed_dev(&q->credits), was, take;

	/* Another turn only because somebody else got on. */
	while (have) {
		take = n < have ? n : have;
		/* Sees the slots that were freed before these credits were given back. */
		was = gkvd_cas32_acquire_dev(&q->credits, have, have - take);
		if (was == have)
			return take;
		have = was;
	}
	return 0;
}

/* Take up to @n entries of the SQ: how many in bits 63:32, and the first of them. */
GKV_DEV_FN uint64_t gkvd_reserve(struct gkv_dev_queue *q, uint32_t n)
{
	n = gkvd_credits_take(q, n);
	if (!n)
		return 0;
	return (uint64_t)n << 32 | gkvd_ring_slot(q, gkvd_add64_relaxed_dev(&q->sq_next, n));
}

/*
 * Find a free slot. The caller has a credit, so there is one. The search starts at @hint, so
 * that lanes which search at the same time do not meet.
 */
GKV_DEV_FN uint32_t gkvd_slot_claim(struct gkv_dev_queue *q, uint32_t hint)
{
	uint32_t *bits = gkvd_free_bits(q), w = hint / 32, r = hint % 32, m, b;

	for (;; w = w + 1 < q->n_words ? w + 1 : 0, r = 0) {
		m = gkvd_ld32_relaxed_dev(&bits[w]);
		while (m) {
			/* The first at or behind bit @r. */
			b = m >> r ? r + gkvd_ctz32(m >> r) : gkvd_ctz32(m);
			m = gkvd_and32_acquire_dev(&bits[w], ~(1u << b));
			if (m & 1u << b)
				return w * 32 + b;
		}
	}
}

/* Give slot @idx back, whose generation was @gen, and its credit. */
GKV_DEV_FN void gkvd_slot_free(struct gkv_dev_queue *q, uint32_t idx, uint32_t gen)
{
	gkvd_st32_relaxed_dev(&gkvd_slot(q, idx)->state, GKVD_MAKE(gen, GKVD_FREE));
	/* What was read from the slot was read before; the credit comes after the slot. */
	gkvd_or32_release_dev(&gkvd_free_bits(q)[idx / 32], 1u << (idx % 32));
	gkvd_add32_release_dev(&q->credits, 1);
}

/* Put @c into entry @s of the SQ. The caller has a credit and the entry. */
GKV_DEV_FN gkv_dev_token gkvd_pack(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c, uint32_t s)
{
	uint32_t idx = gkvd_slot_claim(q, s == q->depth - 1 ? 0 : s);
	uint32_t *state = &gkvd_slot(q, idx)->state;
	uint32_t gen = (GKVD_GEN(gkvd_ld32_relaxed_dev(state)) + 1) & 0x3fffffff;

	gkvd_st32_relaxed_dev(state, GKVD_MAKE(gen, GKVD_BUSY));
	gkvd_put_entry(q, q->sq + (size_t)s * sizeof(struct gkv_sqe), c, gkvd_cid(q, idx, gen));
	return (uint64_t)gen << 32 | idx;
}

/*
 * Ring the doorbell for all runs that are filled. Called by one lane of a group. Returns at
 * once when another does so: that one will see what the caller has marked.
 */
GKV_DEV_FN void gkvd_publish(struct gkv_dev_queue *q)
{
	uint32_t *runs = gkvd_runs(q), tail, n, moved;

	do {
		if (gkvd_ld32_relaxed_dev(&q->db_lock) ||
		    gkvd_exch32_acquire_dev(&q->db_lock, 1))
			return;
		tail = gkvd_ld32_relaxed_dev(&q->sq_tail);
		moved = 0;
		while (moved < q->depth && (n = gkvd_ld32_acquire_dev(&runs[tail])) != 0) {
			gkvd_st32_relaxed_dev(&runs[tail], 0);
			tail = gkvd_ring_add(q, tail, n);
			moved += n;
		}
		if (moved) {
			gkvd_st32_relaxed_dev(&q->sq_tail, tail);
			/* All that the runs' lanes have stored goes before it. */
			gkvd_st32_release_sys(q->sq_db, tail);
			gkvd_add32_relaxed_dev(&q->stats.doorbells, 1);
		}
		gkvd_st32_release_dev(&q->db_lock, 0);
		/*
		 * A lane that found the lock taken has marked its run before it looked at the
		 * lock, and this one lets go of the lock before it looks at the run: one of
		 * them sees what the other did.
		 */
		gkvd_fence_sc_dev();
	} while (gkvd_ld32_relaxed_dev(&runs[tail]));
}

/* The group's @n entries from @s on are filled. Called by one lane, after gkvd_sync(). */
GKV_DEV_FN void gkvd_mark(struct gkv_dev_queue *q, uint32_t s, uint32_t n)
{
	gkvd_st32_release_dev(&gkvd_runs(q)[s], n);
	gkvd_fence_sc_dev();
	gkvd_publish(q);
}

/* gkv_dev_submit() by the lanes of @mask together, each with its own @c. */
GKV_DEV_FN gkv_dev_token gkvd_submit(struct gkv_dev_queue *q, uint64_t mask,
				     const struct gkv_dev_cmd *c)
{
	uint32_t rank = gkvd_rank(mask), s, n;
	gkv_dev_token token = GKV_DEV_NONE;
	uint64_t got = 0;

	if (!rank)
		got = gkvd_reserve(q, (uint32_t)gkvd_popc64(mask));
	got = gkvd_shfl(mask, got, gkvd_first(mask));
	/* Each finds the free slots that the first has seen the credits of. */
	gkvd_sync(mask);
	n = (uint32_t)(got >> 32);
	s = (uint32_t)got;
	if (rank < n)
		token = gkvd_pack(q, c, gkvd_ring_add(q, s, rank));
	gkvd_sync(mask);
	if (!rank && n)
		gkvd_mark(q, s, n);
	/* None goes on to wait for what the first of them has not told the daemon yet. */
	gkvd_sync(mask);
	return token;
}

/*
 * Submit @c. Lanes that call it together share one doorbell. Returns a token for
 * gkv_dev_wait() or gkv_dev_poll(), or GKV_DEV_NONE when the queue is full: completions have
 * to be taken first. Never waits. @c is not looked at after the return.
 */
GKV_DEV_FN gkv_dev_token gkv_dev_submit(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c)
{
	return gkvd_submit(q, gkvd_active(), c);
}

/*
 * Submit the first of @n commands, as many as there is room for, with one doorbell; returns
 * how many. To be called by all lanes of @mask together and with the same arguments; each
 * fills its share. @tokens[i] is set for each of the @n, to GKV_DEV_NONE where there was no
 * room. The arrays are in memory of the device.
 */
GKV_DEV_FN uint32_t gkv_dev_submit_batch(struct gkv_dev_queue *q, uint64_t mask,
					 const struct gkv_dev_cmd *cmds, uint32_t n,
					 gkv_dev_token *tokens)
{
	uint32_t rank = gkvd_rank(mask), step = (uint32_t)gkvd_popc64(mask), i, s, k;
	uint64_t got = 0;

	if (!rank)
		got = gkvd_reserve(q, n);
	got = gkvd_shfl(mask, got, gkvd_first(mask));
	/* Each finds the free slots that the first has seen the credits of. */
	gkvd_sync(mask);
	k = (uint32_t)(got >> 32);
	s = (uint32_t)got;
	for (i = rank; i < k; i += step)
		tokens[i] = gkvd_pack(q, &cmds[i], gkvd_ring_add(q, s, i));
	for (; i < n; i += step)
		tokens[i] = GKV_DEV_NONE;
	gkvd_sync(mask);
	if (!rank && k)
		gkvd_mark(q, s, k);
	gkvd_sync(mask);
	return k;
}

#endif
