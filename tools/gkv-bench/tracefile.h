/* SPDX-License-Identifier: MIT */
/* Mooncake request traces: one JSON object a line. */
#ifndef BENCH_TRACEFILE_H
#define BENCH_TRACEFILE_H

#include <stddef.h>
#include <stdint.h>

struct trace_req {
	double timestamp_ms;		/* since the start of the trace */
	uint64_t input_length;		/* tokens */
	uint64_t output_length;		/* tokens */
	size_t first;			/* index of the first block in trace.ids */
	size_t blocks;
};

struct trace {
	struct trace_req *reqs;
	size_t n_reqs;
	uint64_t *ids;			/* hash_ids of all requests, in order */
	size_t n_ids;
};

/*
 * Read at most @limit requests (0: all) after skipping @skip. Returns 0, or -1
 * with one line in @err that names file and line. Free with trace_free().
 */
int trace_load(const char *path, size_t skip, size_t limit, struct trace *t, char *err,
	       size_t err_len);
void trace_free(struct trace *t);

/* What a store that never forgets would do with the requests one after another. */
struct trace_ideal {
	uint64_t blocks;
	uint64_t distinct;
	uint64_t hits;			/* blocks of the longest stored prefix of each request */
};

/* Returns 0, or -1 when out of memory. */
int trace_ideal(const struct trace *t, struct trace_ideal *ideal);

#endif /* BENCH_TRACEFILE_H */
