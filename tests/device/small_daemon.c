/* SPDX-License-Identifier: MIT */
/*
 * It fetches all that a doorbell tells of, answers in any order, and is killed and started again
 * between any two of its accesses. Its own accesses are few, so that there are not too many
 * runs: it reads what is there of the SQ in one step.
 */
#include "small_daemon.h"

#include <string.h>

void small_daemon_begin(struct small *s)
{
	memset(&s->rec, 0, sizeof(s->rec));
	s->rec.phase = 1;
	s->rec.deaths = s->scene->deaths;
	s->rec.silent = s->scene->never;
}

/* Whether it is killed here; then its successor goes on, after the deadline of all commands. */
static bool dies(struct small *s)
{
	if (!s->rec.deaths || !sim_random(2))
		return false;
	s->rec.deaths--;
	gkvd_st32_release_sys(&s->ctl.away, 1);
	sim_step();
	sim_set_clock(gkvd_clock() + 2 * SMALL_TIMEOUT);
	gkvd_st32_release_sys(&s->ctl.epoch, s->ctl.epoch + 1);
	gkvd_st32_release_sys(&s->ctl.away, 0);
	return true;
}

static void check_entry(struct small *s, const struct gkv_sqe *sqe, uint64_t key)
{
	uint32_t mask = (1u << s->q->cid_bits) - 1;

	if (sqe->opcode != GKV_OP_EXIST || !key || key > SMALL_CMDS || sqe->klen != 8) {
		sim_fail("an entry that was never written");
		return;
	}
	if (s->executed[key - 1])
		sim_fail("command %u is there again", (unsigned int)key);
	for (uint32_t i = 0; i < s->rec.n; i++) {
		if (((s->rec.out[i].cid ^ sqe->cid) & mask) == 0)
			sim_fail("slot %u is in use already", sqe->cid & mask);
	}
}

static void fetch_one(struct small *s)
{
	struct small_record *r = &s->rec;
	struct gkv_sqe sqe;
	uint64_t w[8], key;

	for (uint32_t i = 0; i < 8; i++)
		w[i] = gkvd_ld64_relaxed_sys(&s->sq[r->sq_head * 8 + i]);
	memcpy(&sqe, w, sizeof(sqe));
	memcpy(&key, sqe.key_lo, sizeof(key));
	check_entry(s, &sqe, key);
	if (sim_failed())
		return;
	s->executed[key - 1]++;
	r->out[r->n++] = (struct small_pending){ .cid = sqe.cid, .key = (uint32_t)key };
	r->sq_head = (r->sq_head + 1) % s->scene->depth;
}

/* More completions that the CQ has room for, beside those of what is fetched. */
static uint32_t room(struct small *s)
{
	struct small_record *r = &s->rec;
	uint32_t depth = s->scene->depth, head, taken;

	if (s->mistakes.cq_full)
		return depth - 1;
	if (r->cq_used + r->n) {
		head = gkvd_ld32_acquire_sys(&s->cq_db);
		taken = (head + depth - r->cq_head) % depth;
		if (head >= depth || taken > r->cq_used)
			sim_fail("CQ head %u is beyond what was posted", head);
		r->cq_head = head;
		r->cq_used -= taken;
	}
	return depth - 1 - r->cq_used - r->n;
}

/* Returns whether there was something. */
static bool fetch(struct small *s)
{
	struct small_record *r = &s->rec;
	uint32_t depth = s->scene->depth, tail = gkvd_ld32_acquire_sys(&s->sq_db), n, free;

	n = (tail + depth - r->sq_head) % depth;
	if (tail >= depth || n > depth - 1 - r->n)
		sim_fail("tail %u claims %u entries, with %u outstanding", tail, n, r->n);
	if (!n || sim_failed())
		return false;
	free = room(s);
	n = n < free ? n : free;
	if (!n)
		return false;
	sim_step();
	sim_at_once(true);
	for (uint32_t i = 0; i < n && !sim_failed(); i++)
		fetch_one(s);
	sim_at_once(false);
	dies(s);
	return true;
}

static bool written(struct small *s)
{
	uint64_t hi = gkvd_ld64_acquire_sys(&s->cq[s->rec.cq_tail * 2 + 1]);

	return (hi >> 48 & 1) == s->rec.phase;
}

/* Returns whether it lives on. */
static bool post(struct small *s)
{
	struct small_record *r = &s->rec;
	uint64_t *e = &s->cq[r->cq_tail * 2];
	uint64_t lo = small_dw0(r->posting.key);
	uint64_t hi = (uint64_t)small_status(r->posting.key) << 49 | (uint64_t)r->phase << 48 |
		      (uint64_t)r->posting.cid << 32 | r->sq_head;
	bool first = s->mistakes.cq_first;

	s->answered[r->posting.key - 1]++;
	gkvd_st64_release_sys(&e[first], first ? hi : lo);
	if (dies(s))
		return false;
	gkvd_st64_release_sys(&e[!first], first ? lo : hi);
	return !dies(s);
}

static void note(struct small *s)
{
	struct small_record *r = &s->rec;

	r->posting.key = 0;
	r->cq_used++;
	if (++r->cq_tail == s->scene->depth) {
		r->cq_tail = 0;
		r->phase ^= 1;
	}
}

/* Index of one that is to be answered, or SMALL_DEPTH. */
static uint32_t pick(const struct small_record *r)
{
	uint32_t at[SMALL_DEPTH], n = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		if (!r->out[i].silent)
			at[n++] = i;
	}
	return n ? at[sim_random(n)] : SMALL_DEPTH;
}

static bool answer(struct small *s)
{
	struct small_record *r = &s->rec;
	uint32_t i;

	if (r->posting.key) {
		/* One that was killed meanwhile: only the phase can tell. */
		if (written(s) || post(s))
			note(s);
		return true;
	}
	i = pick(r);
	if (i == SMALL_DEPTH)
		return false;
	/* A deadline that is yet to pass ends the wait for it. */
	if (r->silent && gkvd_clock() < s->scene->deadlines * 2 * SMALL_TIMEOUT && sim_random(2)) {
		r->silent--;
		r->out[i].silent = 1;
		return true;
	}
	r->posting = r->out[i];
	r->out[i] = r->out[--r->n];
	if (post(s))
		note(s);
	return true;
}

/* What it knows is in the record and nowhere else. */
static void forget(const struct small *s)
{
	const uint8_t *p = (const uint8_t *)&s->rec;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(s->rec); i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	for (size_t i = 0; i < SMALL_CMDS; i++)
		h = (h ^ s->executed[i] ^ s->answered[i] << 4) * 0x100000001b3u;
	sim_forget(h);
}

void small_daemon(void *arg, uint32_t id)
{
	struct small *s = arg;

	(void)id;
	while (!sim_stopping()) {
		/* A successor finds out first what its predecessor has left. */
		bool did = !s->rec.posting.key && fetch(s);

		if (!sim_failed())
			did |= answer(s);
		forget(s);
		if (!did)
			gkvd_spin(0);
	}
}
