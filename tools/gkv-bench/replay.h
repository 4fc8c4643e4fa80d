/* SPDX-License-Identifier: MIT */
/* gkv-bench trace: clients that replay requests against a daemon. */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hist.h"
#include "layout.h"
#include "target.h"
#include "tracefile.h"

enum step { STEP_EXIST, STEP_RETRIEVE, STEP_STORE, N_STEPS };

struct replay;

/* A value of the request in hand. */
struct item {
	uint8_t key[16];
	uint32_t block;			/* within the request */
	uint32_t shard;
	uint8_t tries;
	bool found;
};

struct inflight {
	uint64_t start;			/* ticks */
	uint32_t item;
};

struct client {
	struct replay *replay;
	pthread_t thread;
	int cpu;
	struct target target;		/* each client is a session of its own */
	struct gkv_qp *qp;
	uint8_t *buf;			/* qd buffers of replay->stride bytes */
	struct item *items;		/* the values of one request */
	uint32_t *retry;		/* items to submit again */
	struct inflight *slots;
	uint32_t *free_slots;
	uint32_t n_free;
	/* For the progress line. */
	_Atomic uint64_t requests;
	_Atomic uint64_t blocks;
	_Atomic uint64_t hit_blocks;
	_Atomic uint64_t stored;	/* bytes */
	_Atomic uint64_t retrieved;	/* bytes */
	/* Read by others after the thread ended. */
	struct hist hist[N_STEPS];
	uint64_t stale;			/* Retrieves of a value that Exist had seen */
	uint64_t mismatches;
	uint64_t retries;		/* of whatever may pass by itself */
	uint64_t retried;		/* of these: outcome unknown */
	struct errors errors;
} __attribute__((aligned(128)));

struct replay {
	struct trace trace;
	struct shard *shards;
	uint32_t n_shards;		/* values per block */
	uint64_t value_max;		/* bytes of the largest shard */
	uint64_t stride;		/* bytes per buffer */
	size_t max_items;		/* values of the longest request */
	uint32_t qd;
	double speed;			/* trace time per real time; 0: as fast as possible */
	uint64_t seed;
	bool verify;
	uint64_t start_ns;
	_Atomic size_t next;		/* request */
	_Atomic bool abort;
	_Atomic uint32_t running;	/* clients */
	_Atomic uint32_t complaints;
};

struct sums {
	uint64_t requests;
	uint64_t blocks;
	uint64_t hits;
	uint64_t stored;		/* bytes */
	uint64_t retrieved;		/* bytes */
};

/* Counters of all clients; may be called while they run. */
struct sums replay_sums(struct client *clients, uint32_t n);

/* Thread body; the argument is a struct client. */
void *client_main(void *arg);

#endif /* BENCH_REPLAY_H */
