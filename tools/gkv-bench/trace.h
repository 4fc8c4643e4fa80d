/* SPDX-License-Identifier: MIT */
/* gkv-bench trace: options and report. */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdio.h>

#include "args.h"
#include "replay.h"

struct options {
	struct client_opts client;
	const char *file;
	struct layout layout;
	size_t skip;
	size_t limit;
	uint32_t clients;
	uint32_t qd;
	bool dry_run;
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
