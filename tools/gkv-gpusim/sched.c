/* SPDX-License-Identifier: MIT */
/* The lockstep way: a scheduler that runs one lane for one access to memory at a time. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "sim_priv.h"

struct sched {
	struct wave **run;	/* wavefronts that have not ended */
	uint32_t nrun;
	struct wave **agents;
	uint32_t nagents;
	uint64_t agent_share;	/* one step of so many is an agent's */
	uint64_t burst;		/* a wavefront goes on for so many steps on average */
	struct wave *now;
};

static void lane_main(void *arg)
{
	struct lane *l = arg;
	struct sim *s = sim_now;

	if (l->wave->agent)
		l->wave->fn(l->wave->arg, 0);
	else
		s->fn(s->arg, l->id);
	access_late(l);
	s->left -= !l->wave->agent;
	s->progress = s->step;
	lane_to(l, LANE_DONE);
	coro_end(&l->coro);
}

void lockstep_yield(struct sim_site *at)
{
	struct lane *l = sim_self;

	if (at) {
		l->at = at;
		at->seen++;
	}
	coro_yield(&l->coro);
	if (sim_now->ending)
		coro_end(&l->coro);
}

uint64_t lockstep_active(struct sim_site *at)
{
	struct lane *l = sim_self;

	if (l->wave->agent)
		return 1;
	access_late(l);
	if (sim_now->conf.choose && l->wave->n == 1)
		return 1;
	lane_to(l, LANE_ACTIVE);
	lockstep_yield(at);
	choose_told(l, l->group);
	return l->group;
}

void lockstep_spin(struct sim_site *at)
{
	access_late(sim_self);
	if (!sim_self->wave->agent || sim_now->conf.choose)
		lane_to(sim_self, LANE_SPIN);
	choose_spun(sim_self);
	sim_self->turn = sim_now->step;
	/* Who is waited for may need this processor. */
	if (sim_now->conf.real_time && !(++sim_now->spins % 64))
		sched_yield();
	lockstep_yield(at);
}

void lockstep_meet(struct lane *l)
{
	struct wave *w = l->wave;
	uint64_t mask = l->meet.mask;
	const char *wrong;

	lane_to(l, LANE_MEET);
	wrong = meet_wrong(l);
	if (wrong) {
		sim_fail("%s", wrong);
	} else if (meet_all(l)) {
		meet_complete(w, mask);
		if (sim_now->mem && l->meet.kind == MEET_SYNC)
			mem_join(w, mask);
		for (uint64_t rest = mask; rest; rest &= rest - 1)
			lane_to(&w->lanes[__builtin_ctzll(rest)], LANE_READY);
	}
	/* Who comes last need not wait; others may run before its next access. */
	if (!sim_now->conf.choose || l->state == LANE_MEET)
		lockstep_yield(NULL);
	choose_told(l, l->meet.result);
}

static struct wave *pick(struct sim *s, struct sched *d)
{
	if (d->nagents && (!d->nrun || !sim_below(&s->rnd, d->agent_share)))
		return d->agents[sim_below(&s->rnd, d->nagents)];
	if (!d->now || !sim_below(&s->rnd, d->burst))
		d->now = d->run[sim_below(&s->rnd, d->nrun)];
	return d->now;
}

static void drop(struct wave **v, uint32_t *n, const struct wave *w)
{
	for (uint32_t i = 0; i < *n; i++) {
		if (v[i] == w) {
			v[i] = v[--*n];
			return;
		}
	}
}

static struct lane *pick_lane(struct sim *s, struct sched *d)
{
	struct wave *w = pick(s, d);
	int i = policy_lane(s, w);

	if (i >= 0)
		return &w->lanes[i];
	sim_fail("deadlock: the lanes of wavefront %u wait for one another in collectives",
		 w->lanes[0].id / w->n);
	return NULL;
}

static void step(struct sim *s, struct sched *d)
{
	struct lane *l = s->conf.choose ? choose_lane(s) : pick_lane(s, d);
	struct wave *w;

	if (!l)
		return;
	w = l->wave;
	s->step++;
	if (!l->coro.fn) {
		coro_make(&l->coro, &s->stacks, l->id, lane_main, l);
		s->progress = s->step;
	}
	sim_self = l;
	coro_resume(&l->coro);
	sim_self = NULL;
	if (w->in[LANE_DONE] != (w->n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << w->n) - 1))
		return;
	if (d->now == w)
		d->now = NULL;
	if (w->agent)
		drop(d->agents, &d->nagents, w);
	else
		drop(d->run, &d->nrun, w);
}

void report_lanes(struct sim *s)
{
	static const char *const names[] = { "not started", "running, last", "gkvd_active() at",
					     "gkvd_spin() at", "collective at", "ended" };
	size_t len = strlen(s->report);
	uint32_t shown = 0;

	for (uint32_t k = 0; k < s->nwaves + s->nagents; k++) {
		const struct wave *w = s->waves[k];
		uint64_t rest = ~w->in[LANE_DONE] & (w->n == 64 ? ~(uint64_t)0 :
							   ((uint64_t)1 << w->n) - 1);

		while (rest && len < sizeof(s->report)) {
			const struct lane *l = &w->lanes[__builtin_ctzll(rest)];
			uint64_t same = 0;

			for (uint32_t i = 0; i < w->n; i++) {
				if (rest >> i & 1 && w->lanes[i].state == l->state &&
				    w->lanes[i].at == l->at)
					same |= (uint64_t)1 << i;
			}
			rest &= ~same;
			if (++shown > 24) {
				snprintf(s->report + len, sizeof(s->report) - len, "\n  ...");
				return;
			}
			if (w->agent)
				len += (size_t)snprintf(s->report + len, sizeof(s->report) - len,
							"\n  %s: %s", w->name,
							sim_site_name(l->at));
			else
				len += (size_t)snprintf(s->report + len, sizeof(s->report) - len,
							"\n  wavefront %u lanes %#llx: %s %s", k,
							(unsigned long long)same, names[l->state],
							l->state == LANE_NEW ? "" :
									       sim_site_name(l->at));
		}
	}
}

#define REAL_SECONDS	120u	/* without progress, beside another process */

static void check_progress(struct sim *s)
{
	if (s->step > s->conf.max_steps)
		sim_fail("no end after %llu steps", (unsigned long long)s->step);
	if (s->step - s->progress <= s->conf.watchdog)
		return;
	if (!s->conf.real_time) {
		sim_fail("livelock: nothing changed for %llu steps",
			 (unsigned long long)s->conf.watchdog);
		return;
	}
	/* Steps do not tell how much time another process has had. */
	if (!s->waiting)
		s->waiting = gkv_sim_clock();
	else if (s->waited == s->progress &&
		 gkv_sim_clock() - s->waiting > REAL_SECONDS * 1000000000ull)
		sim_fail("nothing changed for %u s", REAL_SECONDS);
	if (s->waited != s->progress)
		s->waiting = 0;
	s->waited = s->progress;
}

static void end_lane(struct lane *l)
{
	if (!l->coro.fn)
		return;
	sim_self = l;
	if (l->state != LANE_DONE)
		coro_resume(&l->coro);
	sim_self = NULL;
	coro_drop(&l->coro);
}

int lockstep_run(struct sim *s)
{
	static const uint64_t shares[] = { 2, 4, 16, 64 }, bursts[] = { 1, 1, 4, 64 };
	struct wave *run[s->nwaves], *agents[s->nagents + 1];
	struct sched d = { .run = run, .nrun = s->nwaves, .agents = agents,
			   .nagents = s->nagents };

	if (!s->stacks.base && stacks_make(&s->stacks, (size_t)s->nlanes + s->nagents))
		return -1;
	memcpy(run, s->waves, sizeof(run));
	memcpy(agents, s->waves + s->nwaves, s->nagents * sizeof(agents[0]));
	d.agent_share = shares[sim_below(&s->rnd, 4)];
	if (s->conf.agent_share)
		d.agent_share = s->conf.agent_share;
	d.burst = bursts[sim_below(&s->rnd, 4)];
	while ((d.nrun || d.nagents) && !s->failed && !s->cut) {
		step(s, &d);
		check_progress(s);
	}
	if (s->failed)
		report_lanes(s);
	/* Those that have not come to their end do so where they are. */
	s->ending = true;
	for (uint32_t k = 0; k < s->nwaves + s->nagents; k++) {
		for (uint32_t i = 0; i < s->waves[k]->n; i++)
			end_lane(&s->waves[k]->lanes[i]);
	}
	s->ending = false;
	return s->failed ? -1 : 0;
}
