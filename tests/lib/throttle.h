/* SPDX-License-Identifier: MIT */
/*
 * Slow down one process's disk, by the kernel's block throttling (control group version 1
 * "blkio" or version 2 "io"): direct I/O waits in the kernel and goes on landing after the
 * process was killed.
 */
#ifndef TESTS_THROTTLE_H
#define TESTS_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct throttle {
	char group[160];	/* directory of the control group; empty: none */
	char text[160];		/* why there is none */
	unsigned int major, minor;
	bool v2;
};

/*
 * Make a group that reads and writes @bytes a second (0: without limit) on the disk under
 * @path. Returns false, with the reason in @t->text, where that cannot be had.
 */
bool throttle_make(struct throttle *t, const char *path, uint64_t bytes);

/* Change the rate; 0 lifts the limit. Waiting I/O goes on at the new rate. */
bool throttle_set(struct throttle *t, uint64_t bytes);

/* Move process @pid, with all its threads, into the group. */
bool throttle_add(struct throttle *t, pid_t pid);

/* Remove the group, which must have no process any more. */
void throttle_free(struct throttle *t);

#endif
