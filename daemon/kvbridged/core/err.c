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

void kvb_log(enum kvb_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "error: ", "warning: ", "", "debug: " };
	static const char prio[] = { '3', '4', '6', '7' };
	/* 0: not looked yet. Racing threads find the same answer. */
	static _Atomic int journal;
	char line[1024];
	size_t len;
	va_list ap;
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
	va_start(ap, fmt);
	n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n : sizeof(line) - len - 2;
	line[len++] = '\n';
	/* One write a line, so that the lines of several threads do not mix. */
	while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
		;
}

void kvb_log_set_level(enum kvb_log_level level)
{
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}
