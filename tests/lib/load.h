/* SPDX-License-Identifier: MIT */
/*
 * A load of Store, Retrieve, Delete and Exist commands on few keys from several threads,
 * each with a session of its own, that keeps the whole history for the linearizability
 * check and looks at every byte that comes back.
 *
 * A value starts with its number; its length and all other bytes follow from that, so that
 * half of one value, or half of each of two, is told from any whole one.
 *
 * What is wrong is kept, not fatal: load_error() and load_judge() tell.
 */
#ifndef TESTS_LOAD_H
#define TESTS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gkv.h"

struct load;

struct load_opts {
	unsigned int threads;
	unsigned int qps;		/* of each thread */
	unsigned int depth;		/* entries of each queue pair */
	unsigned int busy;		/* commands kept outstanding on each; below depth */
	unsigned int keys;
	uint32_t value_min, value_max;	/* bytes, at least 8 */
	uint32_t flags;			/* GKV_QP_* */
	uint32_t pause_us;		/* a thread rests this long between two rounds */
	uint64_t timeout_ns;		/* of a command; 0: the library's */
	bool mutations;			/* Stores and Deletes only */
	uint64_t max_ops;		/* commands of a thread; 0: until stopped, 4 M at most */
	const char *ns;			/* NULL: main */
};

/* Connect, prepare and run. The daemon must be there. Set-up failures end the program. */
struct load *load_start(const char *socket, const struct load_opts *opts);

/* Completions so far; also those whose outcome is unknown, and timeouts reported. */
uint64_t load_done(const struct load *l);
uint64_t load_unknown(const struct load *l);
uint64_t load_timeouts(const struct load *l);

/* Wait for @n more completions; false after @seconds (times the sanitizer's slowdown). */
bool load_progress(const struct load *l, uint64_t n, unsigned int seconds);

/*
 * Hold back new commands and wait until none is outstanding: nothing is left to be taken up
 * by a later daemon. False after @seconds (times the sanitizer's slowdown). load_resume()
 * goes on.
 */
bool load_settle(struct load *l, unsigned int seconds);
void load_resume(struct load *l);

/* The first thing that went wrong, or NULL. */
const char *load_error(const struct load *l);

/*
 * Issue no more commands and wait until every one has its completion. Returns 0 or the
 * number of commands that never got theirs. Sessions stay open.
 */
uint64_t load_stop(struct load *l);

/*
 * After load_stop(): read every key, list them all and ask how many there are; then check
 * the history. Prints one TAP result for each of: no error, one completion for each
 * command, all views of the keys agree, linearizable. @what names the load.
 */
void load_judge(struct load *l, const char *what);

/*
 * Delete every key of the namespace and wait until the space in use is back at @used
 * bytes and no key is counted: one TAP result.
 */
void load_empty(struct load *l, uint64_t used, const char *what);

void load_free(struct load *l);

/* Keys and bytes in use of namespace @name (NULL: main), as the daemon reports them. */
bool load_usage(struct gkv *g, const char *name, uint64_t *keys, uint64_t *used);

/* The key of number @i. Returns its length. */
uint8_t load_key(uint32_t i, uint8_t key[16]);

/* Length and bytes of value number @id, at least 8 bytes. */
uint32_t load_value_len(uint64_t id, uint32_t min, uint32_t max);
void load_value_fill(void *buf, uint32_t len, uint64_t id);
/* The number of the value in @buf, or 0 when the bytes are no whole value. */
uint64_t load_value_id(const void *buf, uint32_t len, uint32_t min, uint32_t max);

#endif
