/* SPDX-License-Identifier: MIT */
/*
 * Errors with a sentence: what was refused, why, and the limit.
 */
#ifndef KVB_ERR_H
#define KVB_ERR_H

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

void kvb_log_set_level(enum kvb_log_level level);

#endif
