/* SPDX-License-Identifier: MIT */
/* gkv-bench trace: options and report. */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdio.h>

#include "replay.h"

#define MAX_CLIENTS	64

struct options {
	const char *file;
	const char *socket;
	const char *ns;
	const char *plot;
	struct layout layout;
	size_t skip;
	size_t limit;
	uint32_t clients;
	uint32_t qd;
	uint32_t qp_flags;
	uint64_t timeout_ns;
	bool dry_run;
	bool json;
	bool quiet;
	int cpus[MAX_CLIENTS];
	int n_cpus;
};

/* Print one line on how a block becomes values. */
void trace_describe(FILE *f, const struct options *o, const struct replay *r);

/*
 * Print the result; @clients is NULL after a dry run. Returns the exit status: 1 when
 * anything failed or did not match.
 */
int trace_report(const struct options *o, const struct replay *r, const struct trace_ideal *ideal,
		 struct client *clients, uint64_t spent_ns);

#endif /* BENCH_TRACE_H */
