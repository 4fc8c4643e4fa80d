/* SPDX-License-Identifier: MIT */
/*
 * Errors with a sentence: what was refused, why, and the limit.
 */
#ifndef KVB_ERR_H
#define KVB_ERR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvb_err {
	char text[192];
};

/* Set the text and return -@errnum, so that callers can write return kvb_fail(...). */
int kvb_fail(struct kvb_err *err, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

enum kvb_log_level { KVB_LOG_ERR, KVB_LOG_WARN, KVB_LOG_INFO, KVB_LOG_DEBUG };

/* One line to stderr, with an <N> priority prefix when the journal reads it. Any thread. */
void kvb_log(enum kvb_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * For what a client can provoke as often as it likes: so many lines in a while from one place,
 * and later one that says how many were left out.
 */
struct kvb_log_limit {
	const char *what;		/* in the plural */
	uint32_t lines;
	uint64_t window_ns;
	_Atomic uint64_t since;		/* when the window began, ns */
	_Atomic uint32_t count;		/* lines in it, written or not */
	atomic_bool known;
	struct kvb_log_limit *next;
};

/* Any thread; @lim lives for ever. Never waits for others. */
void kvb_log_limited(struct kvb_log_limit *lim, enum kvb_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define kvb_log_client(what_, ...)                                                       \
	do {                                                                             \
		static struct kvb_log_limit limit_ = { .what = (what_), .lines = 10,     \
						       .window_ns = 10000000000ull };    \
		kvb_log_limited(&limit_, __VA_ARGS__);                                   \
	} while (0)

/* Now and then: say what was left out in windows that are over. False: there is nothing more. */
bool kvb_log_limits_run(void);

void kvb_log_set_level(enum kvb_log_level level);

#endif
