/* SPDX-License-Identifier: MIT */
/* What gkv-gpusim's lanes do to a real daemon, and what is checked. */
#ifndef GKV_GPUSIM_WORK_H
#define GKV_GPUSIM_WORK_H

#include <signal.h>

#include <gkv.h>
#include <gkv_device.h>

#include "sim.h"

/* A batch of one wavefront, in memory that its lanes share. */
struct batch {
	struct gkv_dev_cmd *cmds;
	gkv_dev_token *tokens;
	struct gkv_dev_result *results;
};

struct work {
	struct sim_conf sim;
	uint32_t nsid;
	uint32_t rounds;		/* at least, and as long as ... */
	bool (*go_on)(void);		/* ... this says so, */
	volatile sig_atomic_t ended;	/* unless this is set, by a signal handler too */
	uint32_t batch;			/* keys of a wavefront; 0: each lane for itself */
	uint32_t value;			/* longest, bytes */
	uint32_t offset;		/* of values, behind whole pages of WORK_PAGE */
	bool prp;			/* instead of SGLs */
	bool may_stop;			/* a queue that is stopped, lost, or without memory is no error */
	uint64_t timeout_ns;		/* of a wait; 0: the queue's */
	uint64_t seed;

	struct gkv_dev_queue *q;
	uint8_t *mem;			/* what each key under way needs, page by page ... */
	uint64_t iova;			/* ... and how commands call it */
	struct batch *batches;		/* of each wavefront */

	/* Counted by all lanes. */
	uint64_t stores, retrieves, exists, deletes, lists, bytes, retries, stopped;
	struct gkv_dev_result stop;	/* the first of those stopped */
};

#define WORK_PAGE	4096u
#define LIST_BYTES	4096u

/* Bytes of memory that @w needs for values; its settings are there. */
size_t work_mem(const struct work *w);
/* Room for the batches. Returns 0 or -1. */
int work_begin(struct work *w);
void work_end(struct work *w);
/* The kernel. Whatever is wrong is told by sim_fail(). */
void work_kernel(void *arg, uint32_t id);

#endif
