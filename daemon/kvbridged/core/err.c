/* SPDX-License-Identifier: MIT */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Atomic int log_level = KVB_LOG_INFO;

int kvb_fail(struct kvb_err *err, int errnum, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
	}
	return -errnum;
}

/* True when stderr is the stream that the service manager connected to the journal. */
static bool journal_reads_stderr(void)
{
	const char *env = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return env && sscanf(env, "%llu:%llu", &dev, &ino) == 2 && !fstat(STDERR_FILENO, &st) &&
	       st.st_dev == dev && st.st_ino == ino;
}

static void log_line(enum kvb_log_level level, const char *fmt, va_list ap)
{
	static const char *const names[] = { "error: ", "warning: ", "", "debug: " };
	static const char prio[] = { '3', '4', '6', '7' };
	/* 0: not looked yet. Racing threads find the same answer. */
	static _Atomic int journal;
	char line[1024];
	size_t len;
	int n;

	if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
		return;
	n = atomic_load_explicit(&journal, memory_order_relaxed);
	if (!n) {
		n = journal_reads_stderr() ? 2 : 1;
		atomic_store_explicit(&journal, n, memory_order_relaxed);
	}
	if (n == 2)
		n = snprintf(line, sizeof(line), "<%c>", prio[level]);
	else
		n = snprintf(line, sizeof(line), "kvbridged: %s", names[level]);
	len = (size_t)n;
	n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	if (n < 0)
		return;
	len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n : sizeof(line) - len - 2;
	line[len++] = '\n';
	/* One write a line, so that the lines of several threads do not mix. */
	while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
		;
}

void kvb_log(enum kvb_log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}

/* ---- Lines that clients provoke ---- */

static struct kvb_log_limit *_Atomic limits;

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Begin a new window if this one is over: one thread does. */
static void renew(struct kvb_log_limit *lim, uint64_t now)
{
	uint64_t since = atomic_load(&lim->since);
	uint32_t n;

	/* Another thread's clock may have been read later than this one's. */
	if ((int64_t)(now - since) < (int64_t)lim->window_ns ||
	    !atomic_compare_exchange_strong(&lim->since, &since, now))
		return;
	n = atomic_exchange(&lim->count, 0);
	if (n > lim->lines)
		kvb_log(KVB_LOG_WARN, "%u more lines about %s in the last %llu s were left out",
			n - lim->lines, lim->what, (unsigned long long)(now - since) / 1000000000u);
}

void kvb_log_limited(struct kvb_log_limit *lim, enum kvb_log_level level, const char *fmt, ...)
{
	va_list ap;

	if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
		return;
	if (!atomic_exchange(&lim->known, true)) {
		lim->next = atomic_load(&limits);
		while (!atomic_compare_exchange_weak(&limits, &lim->next, lim))
			;
	}
	renew(lim, clock_ns());
	if (atomic_fetch_add(&lim->count, 1) >= lim->lines)
		return;
	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}

bool kvb_log_limits_run(void)
{
	uint64_t now = clock_ns();
	bool left = false;

	for (struct kvb_log_limit *lim = atomic_load(&limits); lim; lim = lim->next) {
		if (atomic_load(&lim->count) <= lim->lines)
			continue;
		renew(lim, now);
		left |= atomic_load(&lim->count) > lim->lines;
	}
	return left;
}

void kvb_log_set_level(enum kvb_log_level level)
{
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}
