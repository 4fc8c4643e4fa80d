/* SPDX-License-Identifier: MIT */
/*
 * One queue pair, device code on it and a daemon's stand-in: what the tests of the ring protocol
 * share. Each command has a key of its own, from which follows all that its entry must hold
 * and its result must be; each must be executed exactly once.
 */
#ifndef TESTS_DEVICE_RING_H
#define TESTS_DEVICE_RING_H

#include <gkv_device.h>

#include "device.h"
#include "sims.h"

#define RING_VALUE	16u		/* bytes, of a Retrieve */
#define RING_NSID	7u

struct ring_conf {
	uint32_t depth;
	uint32_t each;			/* commands of each lane */
	uint64_t timeout;		/* of the queue, in steps; 0: never, in practice */
	uint32_t delay;			/* the daemon takes up to so many steps (500) */
	uint32_t late_every;		/* one in so many takes @late_by steps more; 0: none */
	uint64_t late_by;
	uint32_t never_every;		/* one in so many is never answered; 0: none */
	uint32_t stall_every, kill_every;
	uint64_t down;			/* steps of a stall or a death (5000) */
	bool phase_first;		/* a daemon that stores completions in the wrong order */
	bool watch;			/* weak memory: sim_watch() the rings and buffers */
};

struct ring_lane {
	uint32_t done, timedout, other, wrong;
};

/* Of one wavefront. */
struct ring_batch {
	struct gkv_dev_cmd *cmds;
	gkv_dev_token *tokens;
	struct gkv_dev_result *results;
};

struct ring {
	struct ring_conf conf;
	struct sim_conf sim_conf;
	struct sim *sim;
	struct sim_device *dev;
	struct gkv_dev_queue *q;
	struct gkv_dev_ctl *ctl;
	uint64_t *sq, *cq;
	uint32_t *dbs;			/* SQ tail and CQ head, side by side as in a BAR */
	uint32_t *stopped;
	uint32_t nlanes;
	struct ring_lane *lanes;
	uint64_t (*values)[2];		/* of each command */
	uint8_t *executed;		/* times, of each command */
	uint8_t *ended;			/* how, of each command */
	struct ring_batch *batches;
	uint32_t hold;			/* the daemon answers nothing while it is set */
	uint32_t over;			/* lanes that have ended, where a kernel counts them */
};

/* Ends the test when there is no memory. */
struct ring *ring_new(struct sim_conf sim, struct ring_conf conf);
/* sims_run() it, then ring_check(). */
void ring_run(struct ring *r, sim_kernel *fn);
/* Each command was executed once and the queue is whole again. */
void ring_check(struct ring *r);
void ring_free(struct ring *r);

/* Command @i of lane @id. */
struct gkv_dev_cmd ring_cmd(struct ring *r, uint32_t id, uint32_t i);
/* Whether the result and the value are those of this command. Counts in the lane. */
void ring_result(struct ring *r, uint32_t id, uint32_t i, const struct gkv_dev_result *res);

/* Kernels; their argument is the ring. */
void ring_exec_kernel(void *arg, uint32_t id);		/* gkv_dev_exec(), one after the other */
void ring_wait_kernel(void *arg, uint32_t id);		/* submit, wait; lanes <= depth - 1 */
void ring_poll_kernel(void *arg, uint32_t id);		/* submit, poll; likewise */
void ring_batch_kernel(void *arg, uint32_t id);		/* batches of a wavefront's lanes together */

#endif
