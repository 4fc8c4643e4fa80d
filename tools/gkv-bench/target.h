/* SPDX-License-Identifier: MIT */
/* The daemon and namespace under test, and what they allow. */
#ifndef BENCH_TARGET_H
#define BENCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include <gkv.h>

struct target {
	struct gkv *g;
	struct gkv_ns_info ns;
	struct gkv_limits limits;
	uint32_t mode;			/* GKV_MODE_* of memory and queue pairs; the caller's */
	uint64_t connect_ns;		/* session and namespace */
	uint64_t register_ns;		/* memory: allocation and registration */
	uint64_t qp_ns;			/* creation of the queue pairs, all of them */
};

/* What a benchmark is about to ask for. */
struct demand {
	uint64_t value_max;		/* longest value, bytes */
	uint64_t memory;		/* registered bytes per session */
	uint32_t qd;			/* commands outstanding per queue pair */
	uint32_t qps;			/* queue pairs per session */
	bool writes;
};

/*
 * Connect to @socket (NULL: the library's default) and open @ns (NULL: the first).
 * Dies with the library's reason when that fails.
 */
void target_open(struct target *t, const char *socket, const char *ns, uint32_t max_qps);
void target_close(struct target *t);

/* Die, naming the limit, when the namespace or daemon cannot serve @d. */
void target_check(const struct target *t, const struct demand *d);

/* Allocate and register memory; adds to register_ns. Dies when refused. */
struct gkv_mem *target_mem(struct target *t, uint64_t len);

/* Create a queue pair with room for @qd commands; adds to qp_ns. Dies when refused. */
struct gkv_qp *target_qp(struct target *t, uint32_t qd, uint32_t flags, uint64_t timeout_ns);

/* Completions by failed status and by end without one. One writer at a time. */
struct error_count {
	uint16_t status;
	uint16_t flags;			/* GKV_C_TIMEDOUT or GKV_C_LOST */
	uint64_t count;
};

struct errors {
	struct error_count e[32];
	uint32_t n;
	uint64_t total;
};

void errors_add(struct errors *e, uint16_t status, uint16_t flags, uint64_t count);
void errors_merge(struct errors *dst, const struct errors *src);
/* Name of an entry: the status's, or "timed out", "daemon lost". */
const char *error_name(const struct error_count *e);

#endif /* BENCH_TARGET_H */
