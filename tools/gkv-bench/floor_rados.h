/* SPDX-License-Identifier: MIT */
/*
 * A direct librados client in the shape that a daemon has: librados's callback pushes
 * to a ring and wakes the one thread that reaps and submits. Its latency runs from the
 * submitting call to the callback.
 */
#ifndef BENCH_FLOOR_RADOS_H
#define BENCH_FLOOR_RADOS_H

#include <stdbool.h>
#include <stdint.h>

#include "hist.h"
#include "rados_api.h"

enum rados_mode {
	RADOS_READ,			/* one read op, stat and read */
	RADOS_SLICE,			/* parallel reads of RADOS_SLICE_LEN each */
	RADOS_WRITE,			/* write_full */
	N_RADOS_MODES
};

extern const char *const rados_mode_names[N_RADOS_MODES];

#define RADOS_SLICE_LEN (1u << 20)

struct rados_job {
	const struct rados_api *api;
	rados_handle ioctx;
	enum rados_mode mode;
	uint64_t size;			/* of an object, bytes */
	uint32_t depth;			/* operations outstanding */
	uint64_t keys;			/* objects named after keys 0 to keys - 1 */
	uint64_t time_ns;		/* how long, or */
	uint64_t count;			/* how many operations when not 0 */
	uint64_t limit_ns;		/* give up when nothing completes for so long */
	bool in_order;			/* keys one after the other, no warm-up */
};

struct rados_outcome {
	uint64_t ops;
	uint64_t spent_ns;
	uint64_t cpu_ns;		/* of this process, librados's threads included */
	char why[128];			/* it failed */
	struct hist hist;		/* ticks */
};

/* Run @job; the calling thread submits and reaps. False when it failed: see why. */
bool rados_run(const struct rados_job *job, struct rados_outcome *out);

/* gkv-bench floor rados: main()-like, returns the exit status. */
int cmd_floor_rados(int argc, char **argv);

#endif /* BENCH_FLOOR_RADOS_H */
