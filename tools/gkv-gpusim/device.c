/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <stdlib.h>
#include <string.h>

struct pending {
	struct gkv_sqe sqe;
	uint64_t due;
	struct sim_result res;
	bool executed;
	struct pending *next;	/* free */
};

struct sim_device {
	struct sim_device_conf c;
	struct sim_device_counts n;

	/* The record: what outlives a daemon. */
	struct pending *all, **out;	/* n.outstanding of them, in no order */
	struct gkv_sqe *last;		/* fetched from each slot */
	bool *fetched;
	uint32_t sq_head, sq_tail;	/* tail: as last seen */
	uint32_t cq_tail, cq_head, cq_used;
	uint32_t phase;
	struct pending *posting;
	struct pending *free;
};

/* Does nothing for a while; the lanes go on. */
static void idle(uint64_t n)
{
	uint64_t until = sim_now_step() + n;

	while (sim_now_step() < until && !sim_stopping()) {
		sim_progress();
		sim_step();
	}
}

/* Whether it dies here: then the caller must go back to the loop without another access. */
static bool dies(struct sim_device *d)
{
	if (!d->c.kill_every || sim_stopping() || sim_random(d->c.kill_every))
		return false;
	d->n.kills++;
	idle(d->c.down_for);
	return true;
}

static bool outstanding(const struct sim_device *d, uint16_t cid)
{
	for (uint32_t i = 0; i < d->n.outstanding; i++) {
		if (d->out[i]->sqe.cid == cid)
			return true;
	}
	return false;
}

static void check_entry(struct sim_device *d, uint32_t slot, const struct gkv_sqe *sqe)
{
	if (outstanding(d, sqe->cid))
		sim_fail("command identifier %#x is outstanding already", sqe->cid);
	/* Its generation makes each differ from the one before, where a slot is used again. */
	if (d->fetched[slot] && !memcmp(&d->last[slot], sqe, sizeof(*sqe)))
		sim_fail("entry %u is fetched twice: identifier %#x", slot, sqe->cid);
	d->fetched[slot] = true;
	d->last[slot] = *sqe;
}

static void fetch_one(struct sim_device *d)
{
	const uint64_t *from = (const uint64_t *)d->c.sq + (size_t)d->sq_head * 8;
	struct pending *p;
	uint64_t w[8];

	for (unsigned int i = 0; i < 8; i++)
		w[i] = gkvd_ld64_relaxed_sys(&from[i]);
	if (dies(d))
		return;
	p = d->free;
	d->free = p->next;
	memcpy(&p->sqe, w, sizeof(w));
	p->executed = false;
	check_entry(d, d->sq_head, &p->sqe);
	p->due = d->c.plan ? d->c.plan(d->c.ctx, &p->sqe) : sim_random(500);
	if (p->due != SIM_NEVER)
		p->due += sim_now_step();
	d->out[d->n.outstanding++] = p;
	if (d->n.most < d->n.outstanding)
		d->n.most = d->n.outstanding;
	d->sq_head = (d->sq_head + 1) % d->c.depth;
	d->n.fetched++;
}

/* How many more completions the CQ has room for. */
static uint32_t cq_room(struct sim_device *d)
{
	uint32_t head = gkvd_ld32_acquire_sys(d->c.cq_db);
	uint32_t read = (head + d->c.depth - d->cq_head) % d->c.depth;

	if (head >= d->c.depth || read > d->cq_used) {
		sim_fail("CQ head %u is beyond what was posted: it was %u, and %u posted since",
			 head, d->cq_head, d->cq_used);
		return 0;
	}
	d->cq_head = head;
	d->cq_used -= read;
	return d->c.depth - 1 - d->cq_used - d->n.outstanding;
}

static void fetch(struct sim_device *d)
{
	uint32_t tail = gkvd_ld32_acquire_sys(d->c.sq_db), n, room;

	n = (tail + d->c.depth - d->sq_head) % d->c.depth;
	if (tail >= d->c.depth || n > d->c.depth - 1 - d->n.outstanding) {
		sim_fail("tail %u claims %u entries behind head %u, with %u outstanding (was %u)",
			 tail, n, d->sq_head, d->n.outstanding, d->sq_tail);
		return;
	}
	d->n.doorbells += tail != d->sq_tail;
	d->sq_tail = tail;
	if (!n)
		return;
	room = cq_room(d);
	n = n < room ? n : room;
	/* Some, or all. */
	if (n && !sim_random(3))
		n = 1 + (uint32_t)sim_random(n);
	while (n-- && !sim_failed())
		fetch_one(d);
}

/* DW0 to DW2 and then DW3, or two halves; DW3 is stored last either way. */
static void write_entry(struct sim_device *d, const struct pending *p)
{
	uint32_t *to = (uint32_t *)d->c.cq + (size_t)d->cq_tail * 4;
	uint32_t dw2 = (uint32_t)d->c.qid << 16 | d->sq_head;
	uint32_t dw3 = (uint32_t)(uint16_t)(p->res.status << 1 | d->phase) << 16 | p->sqe.cid;

	if (d->c.phase_first)
		gkvd_st32_release_sys(to + 3, dw3);
	if (!d->c.phase_first && sim_random(2)) {
		gkvd_st64_relaxed_sys((uint64_t *)(void *)to,
				      (uint64_t)p->res.dw1 << 32 | p->res.dw0);
		gkvd_st64_release_sys((uint64_t *)(void *)(to + 2), (uint64_t)dw3 << 32 | dw2);
		return;
	}
	gkvd_st32_relaxed_sys(to, p->res.dw0);
	gkvd_st32_relaxed_sys(to + 1, p->res.dw1);
	gkvd_st32_relaxed_sys(to + 2, dw2);
	if (dies(d))
		return;
	gkvd_st32_release_sys(to + 3, dw3);
}

/* Whether the entry of d->posting is in the CQ: after a death only its phase can tell. */
static bool written(const struct sim_device *d)
{
	const uint32_t *dw3 = (const uint32_t *)d->c.cq + (size_t)d->cq_tail * 4 + 3;

	return (gkvd_ld32_acquire_sys(dw3) >> 16 & 1) == d->phase;
}

static void post(struct sim_device *d)
{
	struct pending *p = d->posting;

	if (!written(d)) {
		write_entry(d, p);
		if (dies(d) || !written(d))
			return;
	}
	d->posting = NULL;
	p->next = d->free;
	d->free = p;
	d->n.posted++;
	d->cq_used++;
	if (++d->cq_tail == d->c.depth) {
		d->cq_tail = 0;
		d->phase ^= 1;
	}
}

/* One of those whose time has come. */
static void complete(struct sim_device *d)
{
	uint32_t i = (uint32_t)sim_random(d->n.outstanding), k;
	struct pending *p;

	for (k = 0; k < d->n.outstanding && d->out[i]->due > sim_now_step(); k++)
		i = (i + 1) % d->n.outstanding;
	if (k == d->n.outstanding)
		return;
	p = d->out[i];
	if (!p->executed) {
		p->res = (struct sim_result){ 0 };
		d->c.exec(d->c.ctx, &p->sqe, &p->res);
		p->executed = true;
		if (dies(d))
			return;
	}
	d->out[i] = d->out[--d->n.outstanding];
	d->posting = p;
	post(d);
}

static bool held(const struct sim_device *d)
{
	return d->c.hold && __atomic_load_n(d->c.hold, __ATOMIC_RELAXED);
}

static void run(void *arg, uint32_t id)
{
	struct sim_device *d = arg;

	(void)id;
	while (!sim_stopping()) {
		if (d->c.stall_every && !sim_random(d->c.stall_every)) {
			d->n.stalls++;
			idle(d->c.stall_for);
		}
		if (d->posting)
			post(d);
		else if (d->n.outstanding && sim_random(2) && !held(d))
			complete(d);
		else
			fetch(d);
	}
	/* The lanes may have seen what it has not noted yet. */
	if (d->posting && !sim_failed())
		post(d);
}

struct sim_device *sim_device_new(struct sim *s, const struct sim_device_conf *conf)
{
	struct sim_device *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->c = *conf;
	d->phase = 1;
	d->all = calloc(conf->depth, sizeof(*d->all));
	d->out = calloc(conf->depth, sizeof(struct pending *));
	d->last = calloc(conf->depth, sizeof(*d->last));
	d->fetched = calloc(conf->depth, sizeof(*d->fetched));
	if (!d->all || !d->out || !d->last || !d->fetched ||
	    sim_agent(s, run, d, "daemon")) {
		sim_device_free(d);
		return NULL;
	}
	for (uint32_t i = 0; i < conf->depth; i++) {
		d->all[i].next = d->free;
		d->free = &d->all[i];
	}
	return d;
}

void sim_device_free(struct sim_device *d)
{
	if (!d)
		return;
	free(d->all);
	free(d->out);
	free(d->last);
	free(d->fetched);
	free(d);
}

const struct sim_device_counts *sim_device_counts(const struct sim_device *d)
{
	return &d->n;
}
