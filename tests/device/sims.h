/* SPDX-License-Identifier: MIT */
/* Runs of the simulator in the tests of device code. */
#ifndef TESTS_DEVICE_SIMS_H
#define TESTS_DEVICE_SIMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim.h"

#if defined(__SANITIZE_THREAD__)
#define SIMS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMS_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SIMS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMS_ASAN 1
#endif
#endif
#ifndef SIMS_ASAN
#define SIMS_ASAN 0
#endif
#ifndef SIMS_TSAN
#define SIMS_TSAN 0
#endif

/* ThreadSanitizer takes a megabyte and more for each coroutine or thread. */
#define SIMS_MANY	(SIMS_TSAN ? 256u : 4096u)
/* So many seeds; a switch of coroutines takes it a hundred times as long. */
#define SIMS_RUNS(n)	(SIMS_TSAN ? ((n) + 9u) / 10u : (n))

/* The next policy to try; that sanitizer has nothing to say on lockstep. */
#define SIMS_NEXT(p)	((p) + (SIMS_TSAN ? SIM_NPOLICIES - 1u : 1u))

/* A simulation of @conf; ends the test when there is none. */
struct sim *sims_new(struct sim_conf conf);

/* Run and free it; fails the test with the report and the seed when the run fails. */
void sims_run(struct sim *s, const struct sim_conf *conf, sim_kernel *fn, void *arg);

/* Without an agent: sims_new() and sims_run(). */
void sims_good(struct sim_conf conf, sim_kernel *fn, void *arg);

/* Run and free it; whether it failed with @part in its report. Any other failure ends the test. */
bool sims_fails(struct sim *s, sim_kernel *fn, void *arg, const char *part);

#endif
