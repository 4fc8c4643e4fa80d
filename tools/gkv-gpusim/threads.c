/* SPDX-License-Identifier: MIT */
/*
 * The threads way: each lane is a thread, so that ThreadSanitizer sees what orders accesses
 * and what does not. A lane knows of no other that is with it, so a group is one lane;
 * collectives over a mask that the caller knows do meet. Wavefronts that there are no threads
 * for start when earlier ones have ended, as on a GPU that is full.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sim_priv.h"

#define THREADS_MAX	4096u
#define STACK_SIZE	(256u << 10)	/* touched only as far as used */
#define MEET_SECONDS	60

static bool failed(const struct sim *s)
{
	return __atomic_load_n(&s->failed, __ATOMIC_RELAXED);
}

void threads_access(struct lane *l)
{
	if (sim_now->conf.jitter && !sim_below(&l->rnd, 32))
		sched_yield();
}

void threads_spin(uint32_t i)
{
	struct timespec ts = { 0, 100000 };

	if (i < 8) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
		return;
	}
	/* There are more lanes than processors: the one waited for may need this one's. */
	if (i < 64) {
		sched_yield();
		return;
	}
	/* Thousands of threads that only yield leave the machine to nobody else. */
	ts.tv_nsec *= i - 63 < 50 ? i - 63 : 50;
	nanosleep(&ts, NULL);
}

/* With the wavefront's lock held. */
static void wait_met(struct lane *l, uint64_t mask)
{
	struct wave *w = l->wave;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += MEET_SECONDS;
	while (!l->met && !failed(sim_now)) {
		if (pthread_cond_timedwait(&w->cond, &w->lock, &until) == ETIMEDOUT && !l->met)
			sim_fail("lanes %#llx did not meet at %s", (unsigned long long)mask,
				 sim_site_name(l->at));
	}
	l->met = false;
}

void threads_meet(struct lane *l)
{
	struct wave *w = l->wave;
	uint64_t mask = l->meet.mask;
	const char *wrong;

	pthread_mutex_lock(&w->lock);
	lane_to(l, LANE_MEET);
	wrong = meet_wrong(l);
	if (wrong) {
		sim_fail("%s", wrong);
		pthread_cond_broadcast(&w->cond);
	} else if (meet_all(l)) {
		meet_complete(w, mask);
		for (uint64_t rest = mask; rest; rest &= rest - 1) {
			struct lane *o = &w->lanes[__builtin_ctzll(rest)];

			o->met = o != l;
			lane_to(o, LANE_READY);
		}
		pthread_cond_broadcast(&w->cond);
	} else {
		wait_met(l, mask);
	}
	pthread_mutex_unlock(&w->lock);
}

static void *lane_main(void *arg)
{
	struct lane *l = arg;
	struct wave *w = l->wave;
	struct sim *s = sim_now;

	sim_self = l;
	if (w->agent)
		w->fn(w->arg, 0);
	else
		s->fn(s->arg, l->id);
	pthread_mutex_lock(&w->lock);
	lane_to(l, LANE_DONE);
	pthread_mutex_unlock(&w->lock);
	if (!w->agent)
		__atomic_fetch_sub(&s->left, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void start_wave(struct sim *s, struct wave *w, const pthread_attr_t *attr)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct lane *l = &w->lanes[i];

		l->rnd = s->conf.seed * 0x9e3779b97f4a7c15u + l->id;
		l->created = !pthread_create(&l->thread, attr, lane_main, l);
		if (!l->created) {
			sim_fail("no thread for lane %u", l->id);
			return;
		}
	}
}

static void join_wave(struct wave *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->lanes[i].created)
			pthread_join(w->lanes[i].thread, NULL);
	}
}

int threads_run(struct sim *s)
{
	uint32_t running = 0, joined = 0;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	for (uint32_t k = 0; k < s->nagents; k++)
		start_wave(s, s->waves[s->nwaves + k], &attr);
	for (uint32_t k = 0; k < s->nwaves && !failed(s); k++) {
		for (; running + s->conf.lanes > THREADS_MAX; joined++) {
			join_wave(s->waves[joined]);
			running -= s->conf.lanes;
		}
		start_wave(s, s->waves[k], &attr);
		running += s->conf.lanes;
	}
	for (; joined < s->nwaves; joined++)
		join_wave(s->waves[joined]);
	for (uint32_t k = 0; k < s->nagents; k++)
		join_wave(s->waves[s->nwaves + k]);
	pthread_attr_destroy(&attr);
	return failed(s) ? -1 : 0;
}
