/* SPDX-License-Identifier: MIT */
/*
 * All runs of a small simulation: each order in which lanes and agents can take their steps, each
 * way in which lanes can be together and each value of sim_random(), one run after the other,
 * depth first. What is left out:
 *
 *  - orders that interrupt lanes more often than a bound says. A lane is interrupted when it could
 *    take its next step and another does; what follows a wait or the coming together of
 *    lanes costs nothing;
 *  - what follows a state that was seen before with as many interruptions left.
 */
#ifndef GKV_GPUSIM_EXPLORE_H
#define GKV_GPUSIM_EXPLORE_H

#include "sim.h"

struct explore {
	/* Set by the caller. */
	uint32_t interrupts;	/* of lanes in one run, at most */
	uint64_t max_runs;	/* 0: no limit */
	bool every_run;		/* also those that go on from states seen before */

	/* Afterwards. */
	uint64_t runs;		/* all */
	uint64_t cut;		/* of them: ended where a state was seen before */
	uint64_t steps;
	uint64_t states;
	bool whole;		/* max_runs was enough */
	char why[4096];		/* what failed first, and in which run */

	/* Its own. */
	struct explore_trail *trail;
	uint32_t len, room, at, used;
	struct explore_state *known;
	uint64_t nknown, size;
};

/* Of one simulation: what to run and how to judge. */
struct explore_subject {
	struct sim *sim;	/* made with .choose = explore_choose and the struct explore */
	sim_kernel *kernel;
	void *arg;		/* of all three */
	void (*prepare)(void *arg);	/* before each run: memory as it was before the first */
	const char *(*check)(void *arg);	/* after each that came to its end; NULL: good */
};

uint32_t explore_choose(void *ctx, const struct sim_choice *c);

/* Returns 0, or -1 when a run failed, which is the last then. Results are added up. */
int explore_run(struct explore *e, const struct explore_subject *on);
/* The run that failed once more, with each of its steps on stdout. */
void explore_show(struct explore *e, const struct explore_subject *on);
void explore_end(struct explore *e);

#endif
