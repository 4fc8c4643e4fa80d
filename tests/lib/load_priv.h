/* SPDX-License-Identifier: MIT */
/*
 * Shared by the parts of load.h: the threads (load.c) and the judgement (load_judge.c).
 */
#ifndef TESTS_LOAD_PRIV_H
#define TESTS_LOAD_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "lin.h"
#include "load.h"

/* Where a command stands. */
enum { LOAD_RUNNING, LOAD_TIMEDOUT, LOAD_OVER };

struct load_qp {
	struct gkv_qp *qp;
	uint16_t *free_slots;	/* buffers */
	unsigned int nfree;
};

struct load_thread {
	struct load *load;
	unsigned int id;
	pthread_t thread;
	struct gkv *g;
	struct gkv_mem *mem;
	uint8_t *buf;
	size_t stride;		/* bytes from one buffer to the next */
	uint32_t nsid;
	struct load_qp *qps;
	uint64_t random;
	uint64_t nvalues;	/* made so far */

	/* The history, by user_data. */
	struct lin_op *ops;
	uint16_t *slot_of;	/* buffer */
	uint8_t *over;
	uint64_t nops, max_ops;

	uint64_t left;		/* commands without a completion after all */
};

struct load {
	struct load_opts opts;
	char socket[108];
	struct load_thread *threads;
	_Atomic uint64_t done, unknown, timeouts;
	_Atomic bool stop, hold;
	_Atomic unsigned int held;	/* threads with nothing outstanding */
	bool stopped;
	pthread_mutex_t lock;	/* error */
	_Atomic bool failed;
	char error[256];
};

/* Keep the first failure. */
void load_fail(struct load *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

uint64_t load_random(uint64_t *state);

#endif
