/* SPDX-License-Identifier: MIT */
/* A daemon of the tool's own, that is killed, started again and stopped for a while. */
#ifndef GKV_GPUSIM_KILLER_H
#define GKV_GPUSIM_KILLER_H

#include <stdbool.h>
#include <stdint.h>

struct killer {
	const char *command;	/* run by the shell; the daemon is what it becomes */
	uint32_t kills, stalls;	/* asked for */
	uint64_t every_ns;	/* one after the other */
	uint32_t killed, stalled; /* done */
};

/* Start the daemon. Returns 0 or -1 with errno. One at a time in a process. */
int killer_start(struct killer *k);
/* From now on, in a thread of its own. Returns 0 or -1. */
int killer_begin(void);
/* Whether there is something left to do. Any thread. */
bool killer_busy(void);
/* No more of it; returns when the daemon runs. */
void killer_end(void);
/* End the daemon. */
void killer_stop(void);

#endif
