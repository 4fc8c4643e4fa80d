/* SPDX-License-Identifier: MIT */
/*
 * The processor's side of one queue pair in a simulation: it fetches, executes in any
 * order and late, posts completions as a daemon does, and checks what the device code does.
 * Whatever is wrong with the protocol fails the run:
 *
 *  - a tail that claims more entries than may be outstanding (as one that goes back does),
 *  - a command identifier that is outstanding already,
 *  - an entry that is the one of a pass before,
 *  - a CQ head that goes beyond what was posted.
 */
#ifndef GKV_GPUSIM_DEVICE_H
#define GKV_GPUSIM_DEVICE_H

#include <gkv/nvme_kv.h>

#include "sim.h"

struct sim_result {
	uint32_t dw0, dw1;
	uint16_t status;	/* without the phase bit */
};

#define SIM_NEVER	(~(uint64_t)0)

struct sim_device_conf {
	void *sq, *cq;
	uint32_t *sq_db, *cq_db;
	uint32_t depth;
	uint16_t qid;

	/*
	 * How many steps from now a command that was just fetched is answered, or SIM_NEVER.
	 * NULL: at random, up to 500.
	 */
	uint64_t (*plan)(void *ctx, const struct gkv_sqe *sqe);
	/* Execute; what it stores into a value's memory is seen with the completion. */
	void (*exec)(void *ctx, const struct gkv_sqe *sqe, struct sim_result *res);
	void *ctx;

	/* Once in about so many of its own turns (0: never) it does nothing for @stall_for steps. */
	uint32_t stall_every;
	uint64_t stall_for;
	/* The same, but it dies, between any two accesses, and goes on from its record. */
	uint32_t kill_every;
	uint64_t down_for;
	bool phase_first;	/* wrong on purpose: stores DW3 before the rest of a completion */
	const uint32_t *hold;	/* answers nothing while this is not 0; may be NULL */
};

struct sim_device;

/* NULL when out of memory. Counts are plain: read them when the run is over. */
struct sim_device *sim_device_new(struct sim *s, const struct sim_device_conf *conf);
void sim_device_free(struct sim_device *d);

struct sim_device_counts {
	uint64_t doorbells;	/* changes of the tail that were seen */
	uint64_t fetched, posted;
	uint64_t stalls, kills;
	uint32_t most;		/* outstanding at a time */
	uint32_t outstanding;
};

const struct sim_device_counts *sim_device_counts(const struct sim_device *d);

#endif
