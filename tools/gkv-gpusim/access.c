/* SPDX-License-Identifier: MIT */
/* The primitives of port_sim.h. Outside lanes and agents they act as on a processor. */
#include <time.h>

#include "sim_priv.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the simulator is for little-endian machines"
#endif

/* The processor's accesses: its builtins want constants. */
static uint64_t native_load(const void *p, unsigned int size, unsigned int order)
{
#define LOAD(o) (size == 8 ? __atomic_load_n((const uint64_t *)p, o) : \
			     __atomic_load_n((const uint32_t *)p, o))
	if (order & GKV_SIM_SC)
		return LOAD(__ATOMIC_SEQ_CST);
	if (order & GKV_SIM_ACQUIRE)
		return LOAD(__ATOMIC_ACQUIRE);
	return LOAD(__ATOMIC_RELAXED);
}

static void native_store(void *p, unsigned int size, uint64_t v, unsigned int order)
{
#define STORE(o) (size == 8 ? __atomic_store_n((uint64_t *)p, v, o) : \
			      __atomic_store_n((uint32_t *)p, (uint32_t)v, o))
	if (order & GKV_SIM_SC)
		STORE(__ATOMIC_SEQ_CST);
	else if (order & GKV_SIM_RELEASE)
		STORE(__ATOMIC_RELEASE);
	else
		STORE(__ATOMIC_RELAXED);
}

/* One that compares and fails is an acquire, as in port_c.h, unless it is relaxed. */
#define DO_RMW(type, o, failed) \
	do { \
		type *t = p, was = (type)old; \
		switch (op) { \
		case GKV_SIM_EXCH: \
			return __atomic_exchange_n(t, (type)v, o); \
		case GKV_SIM_CAS: \
			__atomic_compare_exchange_n(t, &was, (type)v, 0, o, failed); \
			return was; \
		case GKV_SIM_ADD: \
			return __atomic_fetch_add(t, (type)v, o); \
		case GKV_SIM_AND: \
			return __atomic_fetch_and(t, (type)v, o); \
		case GKV_SIM_OR: \
			return __atomic_fetch_or(t, (type)v, o); \
		} \
	} while (0)
#define RMW(o, failed) \
	do { \
		if (size == 8) \
			DO_RMW(uint64_t, o, failed); \
		else \
			DO_RMW(uint32_t, o, failed); \
	} while (0)

static uint64_t native_rmw(void *p, unsigned int size, enum gkv_sim_rmw op, uint64_t old,
			   uint64_t v, unsigned int order)
{
	if (order & GKV_SIM_SC)
		RMW(__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else if (order & GKV_SIM_ACQUIRE)
		RMW(__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
	else if (order & GKV_SIM_RELEASE)
		RMW(__ATOMIC_RELEASE, __ATOMIC_ACQUIRE);
	else
		RMW(__ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return 0;
}

static unsigned int effective(const struct sim_site *at)
{
	return at->weakened ? at->order & GKV_SIM_SYS : at->order;
}

static uint64_t after(uint64_t was, enum gkv_sim_rmw op, uint64_t old, uint64_t v)
{
	switch (op) {
	case GKV_SIM_EXCH:
		return v;
	case GKV_SIM_CAS:
		return was == old ? v : was;
	case GKV_SIM_ADD:
		return was + v;
	case GKV_SIM_AND:
		return was & v;
	case GKV_SIM_OR:
		return was | v;
	}
	return v;
}

/* ---- Chosen runs ---- */

static void chosen_store(struct lane *l, void *p, unsigned int size, uint64_t v)
{
	uint64_t was = native_load(p, size, 0);

	native_store(p, size, v, 0);
	if (was != native_load(p, size, 0))
		choose_changed(l, p, was, native_load(p, size, 0));
}

void access_late(struct lane *l)
{
	struct late late = l->late;

	if (!late.at)
		return;
	l->late.at = NULL;
	lockstep_yield(late.at);
	choose_told(l, 1);
	if (late.rmw)
		late.v = after(native_load(late.p, late.size, 0), late.op, 0, late.v);
	chosen_store(l, late.p, late.size, late.v);
}

static void chosen_access(struct sim_site *at)
{
	struct lane *l = sim_self;

	/* Nothing to be seen, where all accesses come in order. */
	if (at->kind == SIM_FENCE)
		return;
	if (l->late.at && !l->late.left--)
		access_late(l);
	if (!l->at_once)
		lockstep_yield(at);
}

static uint64_t chosen_rmw(void *p, unsigned int size, enum gkv_sim_rmw op, uint64_t old,
			   uint64_t v, struct sim_site *at)
{
	struct lane *l = sim_self;
	uint64_t was = native_load(p, size, 0);

	choose_told(l, was);
	if (at->late && (op == GKV_SIM_ADD || op == GKV_SIM_AND || op == GKV_SIM_OR) &&
	    !l->late.at) {
		l->late = (struct late){ .at = at, .p = p, .size = size, .v = v, .rmw = true,
					 .op = op, .left = at->late };
		return was;
	}
	if (at->split) {
		lockstep_yield(at);
		choose_told(l, 1);
	}
	chosen_store(l, p, size, after(was, op, old, v));
	return was;
}

/* Before each access: others may run now. True in lockstep. */
static bool step_to(struct sim_site *at)
{
	if (!sim_self)
		return false;
	if (!sim_now->conf.lockstep) {
		threads_access(sim_self);
		return false;
	}
	if (sim_now->conf.choose)
		chosen_access(at);
	else
		lockstep_yield(at);
	return true;
}

static uint64_t load(const void *p, unsigned int size, struct sim_site *at)
{
	uint64_t v;

	if (step_to(at) && sim_now->mem)
		return mem_load(sim_now->mem, sim_self, p, size, effective(at));
	v = native_load(p, size, effective(at));
	if (sim_self && sim_now->conf.choose)
		choose_loaded(sim_self, p, v);
	return v;
}

static void store(void *p, unsigned int size, uint64_t v, struct sim_site *at)
{
	if (step_to(at)) {
		if (sim_now->conf.choose) {
			choose_told(sim_self, 0);
			if (!at->late || sim_self->late.at)
				chosen_store(sim_self, p, size, v);
			else
				sim_self->late = (struct late){ .at = at, .p = p, .size = size,
								.v = v, .left = at->late };
			return;
		}
		if (sim_self->wave->agent && native_load(p, size, 0) != v)
			sim_now->progress = sim_now->step;
		if (sim_now->mem) {
			mem_store(sim_now->mem, sim_self, p, size, v, effective(at));
			return;
		}
	}
	native_store(p, size, v, effective(at));
}

uint64_t gkv_sim_load(const void *p, unsigned int size, unsigned int order, GKV_SIM_AT)
{
	return load(p, size, site_get(file, line, SIM_LOAD, order));
}

void gkv_sim_store(void *p, unsigned int size, uint64_t v, unsigned int order, GKV_SIM_AT)
{
	store(p, size, size == 4 ? (uint32_t)v : v, site_get(file, line, SIM_STORE, order));
}

uint64_t gkv_sim_rmw(void *p, unsigned int size, enum gkv_sim_rmw op, uint64_t old, uint64_t v,
		     unsigned int order, GKV_SIM_AT)
{
	struct sim_site *at = site_get(file, line, SIM_RMW, order);
	uint64_t was;

	if (!step_to(at))
		return native_rmw(p, size, op, old, v, effective(at));
	if (sim_now->conf.choose)
		return chosen_rmw(p, size, op, old, v, at);
	if (sim_now->mem) {
		uint64_t now;

		was = mem_rmw_begin(sim_now->mem, sim_self, p, size, effective(at));
		/* One that fails stores nothing, and is a load. */
		if (op == GKV_SIM_CAS && was != old)
			return was;
		now = after(was, op, old, v);
		mem_rmw_end(sim_now->mem, sim_self, p, size, size == 4 ? (uint32_t)now : now,
			    effective(at));
	} else {
		was = native_rmw(p, size, op, old, v, effective(at));
	}
	return was;
}

void gkv_sim_fence(unsigned int order, GKV_SIM_AT)
{
	struct sim_site *at = site_get(file, line, SIM_FENCE, order);

	if (step_to(at)) {
		if (sim_now->mem && !at->weakened)
			mem_fence(sim_now->mem, sim_self);
	} else if (!at->weakened) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
}

/* Nothing says that the halves go together, nor which goes first. */
static bool high_first(void)
{
	return sim_self && sim_now->conf.lockstep && !sim_now->conf.choose &&
	       sim_below(&sim_now->rnd, 2);
}

/* In chosen runs they do go together: the second is no step of its own. Returns what was set. */
static bool together(bool on)
{
	bool was;

	if (!sim_self || !sim_now->conf.choose)
		return false;
	was = sim_self->at_once;
	sim_self->at_once = on;
	return was;
}

void gkv_sim_put16(void *p, uint64_t lo, uint64_t hi, GKV_SIM_AT)
{
	struct sim_site *at = site_get(file, line, SIM_STORE, GKV_SIM_RELAXED);
	bool swap = high_first(), was;

	store((uint64_t *)p + swap, 8, swap ? hi : lo, at);
	was = together(true);
	store((uint64_t *)p + !swap, 8, swap ? lo : hi, at);
	together(was);
}

void gkv_sim_get16(const void *p, uint64_t *lo, uint64_t *hi, GKV_SIM_AT)
{
	struct sim_site *at = site_get(file, line, SIM_LOAD, GKV_SIM_RELAXED);
	bool swap = high_first(), was;
	uint64_t v[2];

	v[swap] = load((const uint64_t *)p + swap, 8, at);
	was = together(true);
	v[!swap] = load((const uint64_t *)p + !swap, 8, at);
	together(was);
	*lo = v[0];
	*hi = v[1];
}

uint32_t gkv_sim_lane(void)
{
	return sim_self ? sim_self->idx : 0;
}

uint64_t gkv_sim_active(GKV_SIM_AT)
{
	struct sim_site *at = site_get(file, line, SIM_WAIT, GKV_SIM_RELAXED);

	if (!sim_self)
		return 1;
	if (sim_now->conf.lockstep)
		return lockstep_active(at);
	return (uint64_t)1 << sim_self->idx;
}

static uint64_t meet(struct meet m, struct sim_site *at)
{
	struct lane *l = sim_self;

	if (!l)
		return m.value;
	/* Without it, lanes neither order their accesses nor wait. */
	if (at->weakened)
		return 0;
	l->meet = m;
	l->at = at;
	if (sim_now->conf.lockstep)
		lockstep_meet(l);
	else
		threads_meet(l);
	return l->meet.result;
}

void gkv_sim_sync(uint64_t mask, GKV_SIM_AT)
{
	meet((struct meet){ .kind = MEET_SYNC, .mask = mask },
	     site_get(file, line, SIM_COLLECTIVE, GKV_SIM_SC));
}

uint64_t gkv_sim_ballot(uint64_t mask, int pred, GKV_SIM_AT)
{
	return meet((struct meet){ .kind = MEET_BALLOT, .mask = mask, .value = !!pred },
		    site_get(file, line, SIM_COLLECTIVE, GKV_SIM_RELAXED));
}

uint64_t gkv_sim_shfl(uint64_t mask, uint64_t v, uint32_t src, GKV_SIM_AT)
{
	return meet((struct meet){ .kind = MEET_SHFL, .mask = mask, .value = v, .src = src },
		    site_get(file, line, SIM_COLLECTIVE, GKV_SIM_RELAXED));
}

void gkv_sim_spin(uint32_t i, GKV_SIM_AT)
{
	struct sim_site *at = site_get(file, line, SIM_WAIT, GKV_SIM_RELAXED);

	if (sim_self && sim_now->conf.lockstep)
		lockstep_spin(at);
	else
		threads_spin(i);
}

uint64_t gkv_sim_clock(void)
{
	struct timespec ts;

	if (sim_self && sim_now->conf.choose) {
		choose_told_kept(sim_self, sim_now->clock);
		return sim_now->clock;
	}
	if (sim_self && sim_now->conf.lockstep && !sim_now->conf.real_time)
		return sim_now->step * sim_now->conf.tick;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
