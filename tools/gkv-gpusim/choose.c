/* SPDX-License-Identifier: MIT */
/* Chosen runs: who can run, whom that interrupts, and what tells one state from another. */
#include <stdio.h>

#include "sim_priv.h"

#define IDLE_TURNS 100u		/* of each lane, without anything that changes */

void choose_told(struct lane *l, uint64_t v)
{
	l->past = sim_mix(l->past + v + 0x9e3779b97f4a7c15u);
}

void choose_told_kept(struct lane *l, uint64_t v)
{
	choose_told(l, v);
	l->kept = sim_mix(l->kept + v + 1);
}

void choose_loaded(struct lane *l, const void *p, uint64_t v)
{
	const struct sim_conf *c = &sim_now->conf;

	if ((uintptr_t)p - (uintptr_t)c->kept < c->kept_len)
		choose_told_kept(l, v);
	else
		choose_told(l, v);
}

void sim_forget(uint64_t v)
{
	sim_self->past = sim_mix(v);
	sim_self->turned = false;
}

void choose_spun(struct lane *l)
{
	if (l->turned && l->own == l->turn_own)
		l->past = l->kept == l->last_kept ? l->turn_past :
						    sim_mix(l->turn_past + l->kept);
	l->last_kept = l->kept;
	l->kept = 0;
	l->turned = !l->wave->agent;
	l->turn_past = l->past;
	l->turn_own = l->own;
}

static uint64_t at_place(const void *p, uint64_t v)
{
	return sim_mix(sim_mix((uintptr_t)p) + v);
}

void choose_changed(struct lane *l, const void *p, uint64_t was, uint64_t is)
{
	uint64_t change = at_place(p, was) ^ at_place(p, is);

	sim_now->content ^= change;
	l->own ^= change;
}

void sim_set_clock(uint64_t ticks)
{
	struct sim *s = sim_now;

	choose_told(sim_self, 0);
	choose_changed(sim_self, &s->clock, s->clock, ticks);
	s->clock = ticks;
}

void sim_at_once(bool on)
{
	sim_self->at_once = on && sim_now->conf.choose;
}

static struct lane *lane_at(const struct sim *s, uint32_t i)
{
	return i < s->nlanes ? &s->lanes[i] : s->waves[s->nwaves + i - s->nlanes]->lanes;
}

static bool can_run(const struct sim *s, const struct lane *l)
{
	/* One that spins would do the same once more as long as others have changed nothing. */
	if (l->state == LANE_SPIN)
		return (s->content ^ l->own) != l->base;
	return l->state != LANE_DONE && l->state != LANE_MEET;
}

uint64_t sim_state(void)
{
	const struct sim *s = sim_now;
	uint64_t h = sim_mix(s->content + (s->ran ? s->ran->id + 1 : 0));

	for (uint32_t i = 0; i < s->nlanes + s->nagents; i++) {
		const struct lane *l = lane_at(s, i);

		h = sim_mix(h + l->past);
		h = sim_mix(h + (l->base ^ l->own) + l->state);
	}
	return h;
}

static uint32_t ask(struct sim *s, const struct sim_choice *c)
{
	uint32_t i = s->conf.choose(s->conf.choose_ctx, c);

	if (i < c->n)
		return i;
	s->cut = true;
	return 0;
}

uint32_t choose_value(struct sim *s, uint32_t n)
{
	struct sim_choice c = { .kind = SIM_VALUE, .n = n };
	uint32_t v = n > 1 ? ask(s, &c) : 0;

	choose_told(sim_self, v);
	return v;
}

/* All wait: who has waited longest has a turn. */
static struct lane *idle_lane(struct sim *s)
{
	uint64_t now = s->content + s->left;
	struct lane *first = NULL;

	for (uint32_t i = 0; i < s->nlanes + s->nagents; i++) {
		struct lane *l = lane_at(s, i);

		if (l->state == LANE_SPIN && (!first || l->turn < first->turn))
			first = l;
	}
	if (!first) {
		sim_fail("deadlock: lanes wait for one another in collectives");
		return NULL;
	}
	if (now != s->idle_content)
		s->idled = 0;
	s->idle_content = now;
	if (++s->idled > IDLE_TURNS * (s->nlanes + s->nagents)) {
		sim_fail("livelock: all wait, and nothing changes");
		return NULL;
	}
	s->idle = true;
	return first;
}

/* Of the lanes that came to one gkvd_active(), @l goes on, alone or with the others. */
static void go_together(struct sim *s, struct lane *l)
{
	struct sim_choice c = { .kind = SIM_WITH, .n = 2 };
	struct wave *w = l->wave;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		if (w->lanes[i].state == LANE_ACTIVE && w->lanes[i].at == l->at)
			mask |= (uint64_t)1 << i;
	}
	if (mask & (mask - 1) && !s->idle && !ask(s, &c))
		mask = (uint64_t)1 << l->idx;
	for (uint64_t rest = mask; rest; rest &= rest - 1) {
		struct lane *o = &w->lanes[__builtin_ctzll(rest)];

		o->group = mask;
		lane_to(o, LANE_READY);
	}
}

static struct lane *go(struct sim *s, struct lane *l)
{
	if (l->state == LANE_ACTIVE)
		go_together(s, l);
	else if (l->state != LANE_READY)
		l->base = s->content ^ l->own;
	lane_to(l, LANE_READY);
	s->ran = l;
	if (s->conf.trace)
		printf("#   %s %u: %s\n", l->wave->agent ? l->wave->name : "lane", l->id,
		       sim_site_name(l->at));
	return l;
}

/* Those that can run, in an order that is the same each time: @ran, then those of its wavefront. */
static uint32_t who_can(const struct sim *s, struct lane *ran, struct lane **can, uint32_t *beside)
{
	uint32_t n = 0;

	if (ran && can_run(s, ran))
		can[n++] = ran;
	for (uint32_t i = 0; ran && i < ran->wave->n; i++) {
		if (&ran->wave->lanes[i] != ran && can_run(s, &ran->wave->lanes[i]))
			can[n++] = &ran->wave->lanes[i];
	}
	*beside = n;
	for (uint32_t i = 0; i < s->nlanes + s->nagents; i++) {
		struct lane *l = lane_at(s, i);

		if ((!ran || l->wave != ran->wave) && can_run(s, l))
			can[n++] = l;
	}
	return n;
}

struct lane *choose_lane(struct sim *s)
{
	struct lane *can[s->nlanes + s->nagents], *ran = (struct lane *)s->ran;
	struct sim_choice c = { .kind = SIM_WHO };
	uint32_t beside, pick = 0;

	if (s->idle && ran->state == LANE_READY)
		return go(s, ran);
	s->idle = false;
	c.n = who_can(s, ran, can, &beside);
	if (!c.n) {
		struct lane *l = idle_lane(s);

		return l ? go(s, l) : NULL;
	}
	/* At gkvd_active() lanes of one wavefront wait for each other, or do not. */
	c.free = c.n;
	if (ran && ran->state == LANE_READY)
		c.free = 1;
	else if (ran && ran->state == LANE_ACTIVE)
		c.free = beside;
	/* When all lanes have ended, what agents do is of no interest. */
	if (c.n > 1 && s->left)
		pick = ask(s, &c);
	return s->cut ? NULL : go(s, can[pick]);
}
