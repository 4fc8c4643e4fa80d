/* SPDX-License-Identifier: MIT */
/* What both ways share: the simulation, failures, random numbers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_priv.h"

struct sim *sim_now;
_Thread_local struct lane *sim_self;

uint64_t sim_mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t sim_rnd(uint64_t *state)
{
	return sim_mix(*state += 0x9e3779b97f4a7c15u);
}

static void set_defaults(struct sim_conf *c)
{
	if (!c->stale_steps)
		c->stale_steps = 2000;
	if (!c->watchdog)
		c->watchdog = 2000000;
	if (!c->max_steps)
		c->max_steps = (uint64_t)1 << 40;
	if (!c->tick)
		c->tick = 1;
}

static struct wave *wave_new(struct sim *s, struct lane *lanes, uint32_t n, uint32_t id)
{
	struct wave *w = calloc(1, sizeof(*w));
	struct wave **v = w ? realloc(s->waves, (s->nwaves + s->nagents + 1) * sizeof(*v)) : NULL;

	if (!v) {
		free(w);
		return NULL;
	}
	s->waves = v;
	w->n = n;
	w->lanes = lanes;
	w->in[LANE_NEW] = n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	for (uint32_t i = 0; i < n; i++) {
		lanes[i].wave = w;
		lanes[i].idx = i;
		lanes[i].id = id + i;
	}
	s->waves[s->nwaves + s->nagents] = w;
	return w;
}

struct sim *sim_new(const struct sim_conf *conf)
{
	struct sim *s;

	if (!conf->waves || !conf->lanes || conf->lanes > SIM_LANES_MAX ||
	    conf->policy >= SIM_NPOLICIES || (conf->weak && !conf->lockstep) ||
	    (conf->choose && (conf->weak || !conf->lockstep || conf->real_time)))
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->conf = *conf;
	set_defaults(&s->conf);
	s->rnd = conf->seed;
	s->alone = sim_below(&s->rnd, 2);
	pthread_mutex_init(&s->report_lock, NULL);
	s->nlanes = conf->waves * conf->lanes;
	s->left = s->nlanes;
	s->lanes = calloc(s->nlanes, sizeof(*s->lanes));
	if (!s->lanes)
		goto fail;
	for (uint32_t k = 0; k < conf->waves; k++) {
		if (!wave_new(s, s->lanes + (size_t)k * conf->lanes, conf->lanes,
			      k * conf->lanes))
			goto fail;
		s->nwaves++;
	}
	if (conf->weak) {
		s->mem = mem_new(s);
		if (!s->mem)
			goto fail;
	}
	return s;
fail:
	sim_free(s);
	return NULL;
}

int sim_agent(struct sim *s, sim_kernel *fn, void *arg, const char *name)
{
	struct lane *l = calloc(1, sizeof(*l));
	struct wave *w = l ? wave_new(s, l, 1, s->nlanes + s->nagents) : NULL;

	if (!w) {
		free(l);
		return -1;
	}
	w->agent = true;
	w->name = name;
	w->fn = fn;
	w->arg = arg;
	s->nagents++;
	return 0;
}

void sim_free(struct sim *s)
{
	if (!s)
		return;
	for (uint32_t k = 0; k < s->nwaves + s->nagents; k++) {
		struct wave *w = s->waves[k];

		for (uint32_t i = 0; i < w->n; i++)
			mem_view_free(&w->lanes[i]);
		if (w->agent)
			free(w->lanes);
		pthread_mutex_destroy(&w->lock);
		pthread_cond_destroy(&w->cond);
		free(w);
	}
	mem_free(s->mem);
	stacks_free(&s->stacks);
	free(s->waves);
	free(s->lanes);
	pthread_mutex_destroy(&s->report_lock);
	free(s);
}

int sim_run(struct sim *s, sim_kernel *fn, void *arg)
{
	int ret = 0;

	if (s->fn)
		return -1;
	s->fn = fn;
	s->arg = arg;
	for (uint32_t k = 0; s->mem && k < s->nwaves + s->nagents; k++) {
		for (uint32_t i = 0; i < s->waves[k]->n; i++)
			ret |= mem_view_new(&s->waves[k]->lanes[i]);
	}
	if (ret)
		return -1;
	sim_now = s;
	ret = s->conf.lockstep ? lockstep_run(s) : threads_run(s);
	sim_now = NULL;
	return ret;
}

void sim_again(struct sim *s)
{
	for (uint32_t k = 0; k < s->nwaves + s->nagents; k++) {
		struct wave *w = s->waves[k];

		memset(w->in, 0, sizeof(w->in));
		w->in[LANE_NEW] = w->n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << w->n) - 1;
		for (uint32_t i = 0; i < w->n; i++)
			w->lanes[i] = (struct lane){ .wave = w, .idx = i, .id = w->lanes[i].id };
	}
	s->fn = NULL;
	s->left = s->nlanes;
	s->step = s->progress = s->spins = 0;
	s->failed = s->cut = s->idle = false;
	s->report[0] = 0;
	s->content = s->clock = s->idled = s->idle_content = 0;
	s->ran = NULL;
}

bool sim_cut(const struct sim *s)
{
	return s->cut;
}

const char *sim_report(const struct sim *s)
{
	return s->report;
}

uint64_t sim_steps(const struct sim *s)
{
	return s->step;
}

int sim_watch(struct sim *s, const void *p, size_t len, const char *name)
{
	return s->mem ? mem_watch(s->mem, p, len, name) : 0;
}

/* Only what went wrong first: the rest follows from it. */
void sim_fail(const char *fmt, ...)
{
	struct sim *s = sim_now;
	const struct lane *l = sim_self;
	size_t len = 0;
	va_list ap;

	pthread_mutex_lock(&s->report_lock);
	if (!s->failed) {
		if (l && l->wave->agent)
			len = (size_t)snprintf(s->report, sizeof(s->report), "%s: ",
					       l->wave->name);
		else if (l)
			len = (size_t)snprintf(s->report, sizeof(s->report), "lane %u: ", l->id);
		va_start(ap, fmt);
		vsnprintf(s->report + len, sizeof(s->report) - len, fmt, ap);
		va_end(ap);
		__atomic_store_n(&s->failed, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&s->report_lock);
}

bool sim_failed(void)
{
	return __atomic_load_n(&sim_now->failed, __ATOMIC_ACQUIRE);
}

bool sim_stopping(void)
{
	return !__atomic_load_n(&sim_now->left, __ATOMIC_ACQUIRE) || sim_failed();
}

void sim_progress(void)
{
	if (sim_now->conf.lockstep)
		sim_now->progress = sim_now->step;
}

uint64_t sim_random(uint64_t n)
{
	if (sim_now->conf.choose)
		return choose_value(sim_now, (uint32_t)n);
	return sim_below(sim_now->conf.lockstep ? &sim_now->rnd : &sim_self->rnd, n);
}

void sim_step(void)
{
	if (!sim_now->conf.lockstep) {
		threads_spin(8);
		return;
	}
	lockstep_yield(NULL);
	choose_told(sim_self, 0);
}

/* A step of a thread is taken to be this long. */
#define NS_PER_STEP 100u

uint64_t sim_now_step(void)
{
	return sim_now->conf.lockstep ? sim_now->step : gkv_sim_clock() / NS_PER_STEP;
}
