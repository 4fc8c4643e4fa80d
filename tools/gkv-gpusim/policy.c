/* SPDX-License-Identifier: MIT */
/*
 * What SIMT hardware may run next. The lanes of a wavefront's group go on until each of them
 * waits; then some of those that wait become the group: lanes that wait at one gkvd_active(),
 * lanes that have not started, or lanes that spin. Nothing says that lanes left behind run
 * before a spinning lane has what it waits for.
 */
#include "sim_priv.h"

const char *const sim_policy_names[SIM_NPOLICIES] = {
	[SIM_RANDOM] = "random", [SIM_WORST] = "worst", [SIM_ITS] = "its",
	[SIM_FIRST] = "first", [SIM_TOGETHER] = "together", [SIM_STARVE] = "starve",
};

void lane_to(struct lane *l, enum lane_state state)
{
	uint64_t bit = (uint64_t)1 << l->idx;

	l->wave->in[l->state] &= ~bit;
	l->wave->in[state] |= bit;
	l->state = state;
}

/* The @n'th lane of a mask. */
static uint32_t nth(uint64_t mask, uint64_t n)
{
	while (n--)
		mask &= mask - 1;
	return (uint32_t)__builtin_ctzll(mask);
}

static uint32_t any_of(struct sim *s, uint64_t mask)
{
	return nth(mask, sim_below(&s->rnd, (uint64_t)__builtin_popcountll(mask)));
}

/* All, one, or any of @mask, but not none. */
static uint64_t some_of(struct sim *s, uint64_t mask)
{
	uint64_t sub;

	switch (sim_below(&s->rnd, 3)) {
	case 0:
		return mask;
	case 1:
		return (uint64_t)1 << any_of(s, mask);
	}
	sub = mask & sim_rnd(&s->rnd);
	return sub ? sub : mask;
}

/* Lanes that wait in @state at the place where lane @i does. */
static uint64_t beside(const struct wave *w, enum lane_state state, uint32_t i)
{
	uint64_t mask = 0;

	for (uint64_t rest = w->in[state]; rest; rest &= rest - 1) {
		uint32_t j = (uint32_t)__builtin_ctzll(rest);

		if (w->lanes[j].at == w->lanes[i].at)
			mask |= (uint64_t)1 << j;
	}
	return mask;
}

static void form(struct wave *w, uint64_t mask)
{
	for (uint64_t rest = mask; rest; rest &= rest - 1) {
		struct lane *l = &w->lanes[__builtin_ctzll(rest)];

		/* Lanes that spin are still together with those they were together with. */
		if (l->state != LANE_SPIN)
			l->group = mask;
		lane_to(l, LANE_READY);
	}
}

/* Lane @i goes on, together with some that wait where it does. */
static void form_with(struct sim *s, struct wave *w, uint32_t i)
{
	enum lane_state state = w->lanes[i].state;
	uint64_t mask = some_of(s, beside(w, state, i)) | (uint64_t)1 << i;

	form(w, mask);
}

static bool choose_random(struct sim *s, struct wave *w)
{
	uint64_t can = w->in[LANE_NEW] | w->in[LANE_ACTIVE] | w->in[LANE_SPIN];

	if (!can)
		return false;
	form_with(s, w, any_of(s, can));
	return true;
}

/* Those that spin and came there together go on until they spin no more. */
static bool choose_worst(struct sim *s, struct wave *w)
{
	uint64_t spin = w->in[LANE_SPIN];

	if (!spin)
		return choose_random(s, w);
	if (!(spin & w->sticky))
		w->sticky = w->lanes[any_of(s, spin)].group;
	form(w, s->alone ? (uint64_t)1 << __builtin_ctzll(spin & w->sticky) : spin & w->sticky);
	return true;
}

static bool choose_first(struct wave *w)
{
	uint64_t can = w->in[LANE_NEW] | w->in[LANE_ACTIVE] | w->in[LANE_SPIN];

	if (!can)
		return false;
	form(w, can & -can);
	return true;
}

static bool choose_together(struct wave *w)
{
	static const enum lane_state turn[] = { LANE_NEW, LANE_ACTIVE, LANE_SPIN };

	for (unsigned int i = 0; i < 3; i++) {
		if (w->in[turn[i]]) {
			form(w, beside(w, turn[i], (uint32_t)__builtin_ctzll(w->in[turn[i]])));
			return true;
		}
	}
	return false;
}

static bool choose(struct sim *s, struct wave *w)
{
	switch (s->conf.policy) {
	case SIM_WORST:
		w->serial = sim_below(&s->rnd, 2);
		return choose_worst(s, w);
	case SIM_FIRST:
		w->serial = true;
		return choose_first(w);
	case SIM_TOGETHER:
		w->serial = false;
		return choose_together(w);
	default:
		w->serial = sim_below(&s->rnd, 2);
		return choose_random(s, w);
	}
}

/*
 * Hardware without independent scheduling may take either side of a branch first, and stay on
 * it as long as it does not come to where the sides meet. So a lane that spins can starve those
 * that it came with, too; only a collective makes them go on.
 */
static int starve_lane(struct sim *s, struct wave *w)
{
	struct lane *l = &w->lanes[w->last];
	uint64_t can = w->in[LANE_READY] | w->in[LANE_NEW] | w->in[LANE_ACTIVE] |
		       w->in[LANE_SPIN];

	if (l->state == LANE_MEET && !w->in[LANE_READY] && can & l->meet.mask)
		can &= l->meet.mask;
	else if (l->state == LANE_MEET && w->in[LANE_READY] & l->meet.mask)
		can = w->in[LANE_READY] & l->meet.mask;
	/* Before it has spun, those it came with may come to the same place. */
	else if (l->state == LANE_ACTIVE && !w->spun && w->in[LANE_READY] &&
		 sim_below(&s->rnd, 4))
		can = w->in[LANE_READY];
	else if (can >> w->last & 1)
		can = (uint64_t)1 << w->last;
	if (!can)
		return -1;
	if (!(can >> w->last & 1)) {
		w->last = any_of(s, can);
		w->spun = false;
	}
	l = &w->lanes[w->last];
	w->spun |= l->state == LANE_SPIN;
	if (l->state == LANE_SPIN)
		lane_to(l, LANE_READY);
	else if (l->state != LANE_READY)
		form_with(s, w, w->last);
	return (int)w->last;
}

int policy_lane(struct sim *s, struct wave *w)
{
	uint64_t ready = w->in[LANE_READY], after;

	if (s->conf.policy == SIM_ITS) {
		uint64_t can = ready | w->in[LANE_NEW] | w->in[LANE_ACTIVE] | w->in[LANE_SPIN];
		uint32_t i;

		if (!can)
			return -1;
		i = any_of(s, can);
		if (w->lanes[i].state == LANE_ACTIVE)
			form_with(s, w, i);
		else
			lane_to(&w->lanes[i], LANE_READY);
		return (int)i;
	}
	if (s->conf.policy == SIM_STARVE && !w->agent)
		return starve_lane(s, w);
	if (!ready) {
		if (!choose(s, w))
			return -1;
		ready = w->in[LANE_READY];
		w->last = any_of(s, ready);
	}
	if (w->serial && ready >> w->last & 1)
		return (int)w->last;
	after = w->last == 63 ? 0 : ready & ~(uint64_t)0 << (w->last + 1);
	w->last = (uint32_t)__builtin_ctzll(after ? after : ready);
	return (int)w->last;
}
