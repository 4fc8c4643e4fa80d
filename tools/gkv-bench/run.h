/* SPDX-License-Identifier: MIT */
/* gkv-bench run: configuration, workers, report. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "args.h"
#include "hist.h"
#include "keydist.h"
#include "target.h"

enum kind { K_RETRIEVE, K_STORE, K_EXIST, K_DELETE, K_LIST, K_FLUSH, N_KINDS };

extern const char *const kind_names[N_KINDS];

#define MAX_SIZES	16
#define MIX_TABLE	1024

struct run_cfg {
	struct client_opts client;
	const char *mix_text;
	const char *sizes_text;
	uint64_t weight[N_KINDS];
	uint64_t size[MAX_SIZES];	/* value sizes to choose from, bytes */
	uint32_t n_sizes;
	bool range;			/* any size from size[0] to size[1] */
	uint64_t size_max;
	uint32_t qd;
	uint32_t qps;
	uint32_t threads;
	uint32_t idle_qps;
	uint32_t idle_depth;		/* entries */
	uint32_t batch;			/* free places before a doorbell */
	uint32_t list_len;		/* bytes */
	uint64_t time_ns;
	uint64_t warm_ns;		/* run for so long before anything counts */
	uint64_t count;			/* commands; 0: by time */
	uint64_t keys;
	double theta;
	bool fill;
	uint64_t spin_ns;		/* before a thread sleeps; UINT64_MAX: never sleep */
};

/* One queue pair and its buffers. */
struct lane {
	struct gkv_qp *qp;
	uint8_t *buf;			/* qd registered buffers of stride bytes; NULL: none */
	struct slot *slots;
	uint32_t *free_slots;
	uint32_t *retry;		/* slots to submit again */
	uint32_t n_free;
	uint32_t n_retry;
	uint32_t in_flight;
	uint32_t lost;			/* timed out: slot and buffer stay taken */
};

struct slot {
	uint64_t start;			/* ticks */
	uint64_t key;			/* key number */
	uint32_t len;			/* of a value stored */
	uint8_t kind;
	uint8_t tries;			/* beyond the first */
};

struct worker {
	struct run *run;
	pthread_t thread;
	int cpu;
	struct lane *lanes;
	uint32_t n_lanes;
	uint64_t quota;			/* commands left to submit when counting */
	uint64_t rng;
	bool lost;			/* the session: nothing can be submitted any more */
	_Atomic uint64_t done;		/* for the progress line */
	/* Read by others after the thread ended. */
	uint64_t begin_ns;
	uint64_t end_ns;
	struct hist hist[N_KINDS];
	uint64_t bytes[N_KINDS];
	uint64_t misses;
	uint64_t mismatches;
	uint64_t late;			/* timed out, answered later */
	uint64_t retried;		/* outcome unknown, submitted again */
	struct errors errors;
} __attribute__((aligned(128)));

struct run {
	struct run_cfg cfg;
	struct target target;
	struct keydist dist;
	uint64_t stride;		/* bytes per buffer */
	uint8_t mix[MIX_TABLE];
	bool misses_expected;
	struct worker *workers;
	uint64_t fill_ns;
	uint64_t fill_bytes;
	uint64_t run_ns;
	uint64_t daemon_ns;		/* processor time of the daemon during the run; 0: unknown */
	_Atomic bool stop;
	_Atomic uint32_t running;	/* threads */
	pthread_barrier_t start;	/* of a phase: threads and main */
	_Atomic uint64_t next_fill;
	_Atomic uint32_t complaints;
};

/* Thread bodies; the argument is a struct worker. */
void *worker_fill(void *arg);
void *worker_run(void *arg);

/* Print the result; returns the exit status. */
int run_report(const struct run *r);

#endif /* BENCH_RUN_H */
