/* SPDX-License-Identifier: MIT */
/*
 * Test rig: a kvbridged of its own directory, started and watched by a test program.
 *
 * A daemon that ends in any way but the one the test asked for fails the test: rig_stop()
 * and rig_kill() insist that it was alive until then. Functions without a return value
 * print what went wrong and exit(1). One thread at a time; the thread that starts a daemon
 * must outlive it, since the kernel ends the daemon with it.
 */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct rig {
	char	dir[64];	/* made by rig_init(), removed by rig_fini() */
	char	socket[96];
	char	config[96];
	char	log[96];
	pid_t	pid;		/* 0 while no daemon runs */
};

/*
 * Make the directory and write the configuration: @text with every "{dir}" replaced by
 * the directory and the socket added to its [daemon] section (which is added if missing).
 */
void rig_init(struct rig *rig, const char *text);

/* Start the daemon and wait until its socket takes a connection. */
void rig_start(struct rig *rig);

/* The same with one environment variable ("NAME=value") added, such as GKV_KILLPOINT. */
void rig_start_env(struct rig *rig, const char *env);

/* Start the daemon without waiting for its socket. */
void rig_spawn(struct rig *rig, const char *env);

/* Whether the daemon is still running. */
bool rig_alive(struct rig *rig);

/* SIGTERM, then insist on exit status 0 within @seconds (times the sanitizer's slowdown). */
void rig_stop(struct rig *rig, unsigned int seconds);

/* SIGKILL as the test's own doing. */
void rig_kill(struct rig *rig);

/* Wait for a SIGKILL the daemon gives itself (GKV_KILLPOINT); false after @seconds. */
bool rig_wait_killed(struct rig *rig, unsigned int seconds);

/* Stop the daemon if it runs, as rig_stop() does, and remove the directory. */
void rig_fini(struct rig *rig);

/* Print the end of the daemon's log as TAP diagnostics. */
void rig_show_log(const struct rig *rig);

/* How much slower a sanitizer makes this build: 1, 3 or 6; times $GKV_SLOW, as in gkvtest.py. */
unsigned int rig_slowdown(void);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t rig_now(void);

/* ---- TAP ---- */

/* One result; returns @ok. */
bool tap_ok(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tap_skip(const char *reason, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tap_diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The plan, after the last result; returns the program's exit status. */
int tap_done(void);

#endif
