/* SPDX-License-Identifier: MIT */
/*
 * Weak memory. Each 32-bit location keeps its last stores. A load returns the newest or,
 * for a while, an older one that is not older than what its lane has seen of that location; a
 * store made with release order carries its lane's view along, which a load with acquire order
 * takes over: that is C11 without loads that see the future. What those would do (a load done
 * after a later store) mem_watch() finds in another way. Memory itself always has the newest.
 *
 * A scope narrower than the two sides need orders nothing between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_priv.h"
#include "view.h"

#define HISTORY 16u

struct msg {
	uint32_t val;
	uint32_t ts;
	uint32_t peer_ts;	/* of the other half of a 64-bit store, or 0 */
	bool sys, agent;	/* scope it was released with; by whom */
	uint64_t step;
	struct snap *snap;
};

struct cell {
	uint32_t *p;
	uint32_t id;
	uint32_t mark;		/* in views: loads seen of a watched cell; 0: not watched */
	uint32_t loads;
	uint32_t n;
	const char *name;
	const struct lane *loader, *storer;
	const struct sim_site *load_at, *store_at;
	struct msg msgs[HISTORY];	/* the newest last */
};

struct mem {
	struct sim *sim;
	struct cell **tab;	/* by address */
	uint32_t ntab, ncells;
	uint32_t nids;
	uint64_t stale;		/* one load in so many may see an older store */
	bool stubborn;		/* each sees the oldest it may, until its lane spins again */
	struct vec sc;
	struct msg rmw[2];	/* what the read-modify-write under way has read */
};

struct mem *mem_new(struct sim *s)
{
	static const uint64_t stale[] = { 1, 2, 2, 4, 16 };
	struct mem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->sim = s;
	m->ntab = 1024;
	m->tab = calloc(m->ntab, sizeof(struct cell *));
	m->nids = 1;
	m->stale = stale[sim_below(&s->rnd, 5)];
	m->stubborn = !sim_below(&s->rnd, 4) || s->conf.stubborn;
	if (m->tab)
		return m;
	free(m);
	return NULL;
}

void mem_free(struct mem *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->ntab; i++) {
		if (!m->tab[i])
			continue;
		for (uint32_t k = 0; k < m->tab[i]->n; k++)
			snap_put(m->tab[i]->msgs[k].snap);
		free(m->tab[i]);
	}
	free(m->tab);
	free(m->sc.ts);
	free(m);
}

int mem_view_new(struct lane *l)
{
	l->view = calloc(1, sizeof(*l->view));
	return l->view ? 0 : -1;
}

void mem_view_free(struct lane *l)
{
	if (!l->view)
		return;
	free(l->view->cur.ts);
	free(l->view->acq.ts);
	snap_put(l->view->rel);
	free(l->view);
	l->view = NULL;
}

static uint32_t slot_of(const struct mem *m, const void *p)
{
	return (uint32_t)((uintptr_t)p / 4 * 0x9e3779b97f4a7c15u >> 32) & (m->ntab - 1);
}

static void insert(struct mem *m, struct cell *c)
{
	uint32_t i = slot_of(m, c->p);

	while (m->tab[i])
		i = (i + 1) & (m->ntab - 1);
	m->tab[i] = c;
}

static void grow(struct mem *m)
{
	struct cell **old = m->tab;
	uint32_t n = m->ntab;

	m->ntab *= 2;
	m->tab = calloc(m->ntab, sizeof(struct cell *));
	if (!m->tab)
		abort();
	for (uint32_t i = 0; i < n; i++) {
		if (old[i])
			insert(m, old[i]);
	}
	free(old);
}

/* Somebody stored without telling, such as a test between two runs: everyone has seen it. */
static void take_plain(struct cell *c)
{
	struct msg *last = &c->msgs[c->n - 1];

	if (last->val == *c->p)
		return;
	last->val = *c->p;
	snap_put(last->snap);
	last->snap = NULL;
	last->peer_ts = 0;
	for (uint32_t i = 0; i + 1 < c->n; i++)
		snap_put(c->msgs[i].snap);
	c->msgs[0] = *last;
	c->n = 1;
}

static struct cell *cell_of(struct mem *m, const void *p)
{
	uint32_t i = slot_of(m, p);
	struct cell *c;

	for (; m->tab[i]; i = (i + 1) & (m->ntab - 1)) {
		if (m->tab[i]->p == p) {
			take_plain(m->tab[i]);
			return m->tab[i];
		}
	}
	if (++m->ncells * 2 > m->ntab)
		grow(m);
	c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	c->p = (uint32_t *)(uintptr_t)p;
	c->id = m->nids++;
	c->n = 1;
	c->msgs[0].val = *c->p;
	insert(m, c);
	return c;
}

int mem_watch(struct mem *m, const void *p, size_t len, const char *name)
{
	for (size_t i = 0; i < len / 4; i++) {
		struct cell *c = cell_of(m, (const char *)p + i * 4);

		if (!c->mark)
			c->mark = m->nids++;
		c->name = name;
	}
	return 0;
}

static void note_load(struct cell *c, struct lane *l)
{
	/* A load that polls, whatever the order it was weakened to, uses nothing it reads. */
	if (!c->mark || l->at->order & GKV_SIM_ACQUIRE)
		return;
	c->loads++;
	c->loader = l;
	c->load_at = l->at;
	vec_raise(&l->view->cur, c->mark, c->loads);
	vec_raise(&l->view->acq, c->mark, c->loads);
}

static void check_store(struct cell *c, struct lane *l)
{
	const struct vec *cur = &l->view->cur;

	if (!c->mark)
		return;
	if (c->storer && c->storer != l && vec_get(cur, c->id) < c->msgs[c->n - 1].ts)
		sim_fail("%s: store at %s is not ordered after the one at %s by another lane",
			 c->name, sim_site_name(l->at), sim_site_name(c->store_at));
	if (c->loader && c->loader != l && vec_get(cur, c->mark) < c->loads)
		sim_fail("%s: store at %s is not ordered after the load at %s by another lane",
			 c->name, sim_site_name(l->at), sim_site_name(c->load_at));
	c->storer = l;
	c->store_at = l->at;
}

/* Index of the store a load by @l sees. */
static uint32_t choose(struct mem *m, struct cell *c, struct lane *l)
{
	bool stubborn = m->stubborn && !l->wave->agent;
	uint32_t seen = vec_get(&l->view->cur, c->id), first = 0;
	uint64_t now = m->sim->step, since;

	/* Stores before this step have arrived. */
	since = stubborn ? l->turn : now - (now < m->sim->conf.stale_steps ? now :
									m->sim->conf.stale_steps);
	while (first + 1 < c->n && (c->msgs[first].ts < seen || c->msgs[first + 1].step < since))
		first++;
	if (stubborn)
		return first;
	if (first + 1 == c->n || sim_below(&m->sim->rnd, m->stale))
		return c->n - 1;
	return first + (uint32_t)sim_below(&m->sim->rnd, c->n - first);
}

/* At least the store numbered @ts. */
static uint32_t at_least(const struct cell *c, uint32_t i, uint32_t ts)
{
	while (i + 1 < c->n && c->msgs[i].ts < ts)
		i++;
	return i;
}

static void observe(struct cell *c, struct lane *l, const struct msg *msg, unsigned int order)
{
	struct view *v = l->view;
	bool agent = l->wave->agent, acquires = order & (GKV_SIM_ACQUIRE | GKV_SIM_SC);

	vec_raise(&v->cur, c->id, msg->ts);
	vec_raise(&v->acq, c->id, msg->ts);
	if (!msg->snap)
		return;
	/* The processor is beyond the scope of the device. */
	if ((agent && !msg->agent && !msg->sys) || (!agent && msg->agent && !(order & GKV_SIM_SYS)))
		return;
	vec_join(&v->acq, msg->snap->ts, msg->snap->n);
	if (acquires)
		vec_join(&v->cur, msg->snap->ts, msg->snap->n);
}

/* Add a store; its order's view is filled in by the caller. */
static struct msg *append(struct mem *m, struct cell *c, struct lane *l, uint32_t val)
{
	uint32_t ts = c->msgs[c->n - 1].ts + 1;
	struct msg *msg;

	check_store(c, l);
	if (c->n == HISTORY) {
		snap_put(c->msgs[0].snap);
		memmove(c->msgs, c->msgs + 1, (HISTORY - 1) * sizeof(*msg));
		c->n--;
	}
	msg = &c->msgs[c->n++];
	*msg = (struct msg){ .val = val, .ts = ts, .step = m->sim->step,
			     .agent = l->wave->agent };
	__atomic_store_n(c->p, val, __ATOMIC_RELAXED);
	vec_raise(&l->view->cur, c->id, ts);
	vec_raise(&l->view->acq, c->id, ts);
	return msg;
}

static struct snap *snap_for(struct lane *l, unsigned int order)
{
	if (order & (GKV_SIM_RELEASE | GKV_SIM_SC))
		return snap_of(l->view->cur.ts, l->view->cur.n);
	return snap_get(l->view->rel);
}

uint64_t mem_load(struct mem *m, struct lane *l, const void *p, unsigned int size,
		  unsigned int order)
{
	struct cell *lo = cell_of(m, p), *hi = size == 8 ? cell_of(m, (const char *)p + 4) : NULL;
	uint32_t i = choose(m, lo, l), j, was;
	uint64_t v;

	if (hi) {
		/* What one access stored in both halves is seen in both. */
		j = choose(m, hi, l);
		do {
			was = i + j;
			j = at_least(hi, j, lo->msgs[i].peer_ts);
			i = at_least(lo, i, hi->msgs[j].peer_ts);
		} while (i + j != was);
		note_load(hi, l);
		observe(hi, l, &hi->msgs[j], order);
	}
	note_load(lo, l);
	observe(lo, l, &lo->msgs[i], order);
	v = lo->msgs[i].val;
	return hi ? v | (uint64_t)hi->msgs[j].val << 32 : v;
}

/* @read: what a read-modify-write has read of each half; a store it follows goes on in it. */
static void add(struct mem *m, struct lane *l, void *p, unsigned int size, uint64_t v,
		unsigned int order, const struct msg *read)
{
	struct cell *c[2] = { cell_of(m, p), NULL };
	uint32_t n = size / 4;
	struct msg *msg[2];
	struct snap *snap;

	if (n == 2)
		c[1] = cell_of(m, (char *)p + 4);
	for (uint32_t i = 0; i < n; i++)
		msg[i] = append(m, c[i], l, (uint32_t)(v >> 32 * i));
	snap = snap_for(l, order);
	for (uint32_t i = 0; i < n; i++) {
		msg[i]->snap = snap_get(snap);
		msg[i]->sys = (order & GKV_SIM_SYS) || l->wave->agent;
		if (n == 2)
			msg[i]->peer_ts = msg[!i]->ts;
		if (read && read[i].snap) {
			struct vec both = { 0 };

			if (snap)
				vec_join(&both, snap->ts, snap->n);
			else
				msg[i]->sys = read[i].sys;
			vec_join(&both, read[i].snap->ts, read[i].snap->n);
			snap_put(msg[i]->snap);
			msg[i]->snap = snap_of(both.ts, both.n);
			free(both.ts);
		}
	}
	snap_put(snap);
}

void mem_store(struct mem *m, struct lane *l, void *p, unsigned int size, uint64_t v,
	       unsigned int order)
{
	add(m, l, p, size, v, order, NULL);
}

uint64_t mem_rmw_begin(struct mem *m, struct lane *l, void *p, unsigned int size,
		       unsigned int order)
{
	uint64_t v = 0;

	m->rmw[1].snap = NULL;
	for (uint32_t i = 0; i < size / 4; i++) {
		struct cell *c = cell_of(m, (char *)p + 4 * i);

		m->rmw[i] = c->msgs[c->n - 1];
		observe(c, l, &m->rmw[i], order);
		v |= (uint64_t)m->rmw[i].val << 32 * i;
	}
	return v;
}

void mem_rmw_end(struct mem *m, struct lane *l, void *p, unsigned int size, uint64_t v,
		 unsigned int order)
{
	for (uint32_t i = 0; i < 2; i++)
		snap_get(m->rmw[i].snap);
	add(m, l, p, size, v, order, m->rmw);
	for (uint32_t i = 0; i < 2; i++) {
		snap_put(m->rmw[i].snap);
		m->rmw[i].snap = NULL;
	}
}

void mem_fence(struct mem *m, struct lane *l)
{
	struct view *v = l->view;

	vec_join(&v->cur, v->acq.ts, v->acq.n);
	vec_join(&m->sc, v->cur.ts, v->cur.n);
	vec_join(&v->cur, m->sc.ts, m->sc.n);
	vec_join(&v->acq, v->cur.ts, v->cur.n);
	snap_put(v->rel);
	v->rel = snap_of(v->cur.ts, v->cur.n);
}

void mem_join(struct wave *w, uint64_t mask)
{
	struct vec all = { 0 };

	for (uint64_t rest = mask; rest; rest &= rest - 1) {
		const struct vec *cur = &w->lanes[__builtin_ctzll(rest)].view->cur;

		vec_join(&all, cur->ts, cur->n);
	}
	for (uint64_t rest = mask; rest; rest &= rest - 1) {
		struct view *v = w->lanes[__builtin_ctzll(rest)].view;

		vec_join(&v->cur, all.ts, all.n);
		vec_join(&v->acq, all.ts, all.n);
	}
	free(all.ts);
}
