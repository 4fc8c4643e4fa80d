/* SPDX-License-Identifier: MIT */
/*
 * Scenes of the ring protocol that are small enough to go through all of their runs: a few lanes
 * with a command or two each, on a queue of two or three entries, beside a daemon, a clock
 * and a host that do what they do at any moment.
 */
#ifndef TESTS_DEVICE_SMALL_H
#define TESTS_DEVICE_SMALL_H

#include <gkv_device.h>

#include "explore.h"
#include "sims.h"

#define SMALL_DEPTH	4u		/* at most */
#define SMALL_CMDS	8u		/* of all lanes, at most */

struct small_scene {
	const char *name;
	uint32_t waves, lanes;
	uint32_t depth, each;		/* commands of each lane */
	sim_kernel *kernel;
	uint32_t deadlines;		/* times that the deadline of all commands passes */
	uint32_t never;			/* commands that the daemon may leave without an answer */
	uint32_t deaths;		/* of the daemon, each longer than the deadline */
	bool lost;			/* there may be no daemon any more */
	bool quick;			/* for tests that run many of them */
	uint32_t interrupts;		/* so many that all runs take seconds */
	uint64_t floor;			/* of runs: fewer would show nothing */
	uint32_t must;			/* ends that some run must show, bits of GKV_DEV_* */
};

#define SMALL_NSCENES	22u
extern const struct small_scene small_scenes[];

/* Wrong on purpose, beside what sim_split() and sim_late() do. */
struct small_mistakes {
	uint32_t credits;	/* too many */
	bool no_quarantine;	/* a slot is free again when its time is up */
	bool cq_first;		/* the daemon stores the phase before the rest */
	bool cq_full;		/* ... and does not look whether there is room */
};

struct small_result {
	struct explore e;
	uint32_t ends;		/* that were seen: bits of GKV_DEV_* */
	bool failed;
};

/*
 * All runs of @scene. @show: if one fails, print its steps. Frees what it needs but the
 * counts.
 */
struct small_result small_run(const struct small_scene *scene, uint32_t interrupts,
			      const struct small_mistakes *mistakes, uint64_t max_runs, bool show);

#endif
