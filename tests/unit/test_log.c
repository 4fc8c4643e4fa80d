/* SPDX-License-Identifier: MIT */
/*
 * Log lines that clients provoke: only so many in a while, and later how many were left out.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/err.h"

#define WINDOW_MS 500u

static int saved_stderr, capture;

/* What is written to the log from here on, until log_end(). */
static void log_begin(void)
{
	char path[] = "/tmp/gkv-log-XXXXXX";

	capture = mkstemp(path);
	assert_true(capture >= 0);
	unlink(path);
	saved_stderr = dup(STDERR_FILENO);
	dup2(capture, STDERR_FILENO);
}

static const char *log_end(void)
{
	static char text[1 << 16];
	ssize_t n;

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	n = pread(capture, text, sizeof(text) - 1, 0);
	close(capture);
	assert_true(n >= 0);
	text[n] = 0;
	return text;
}

static unsigned int count(const char *text, const char *what)
{
	unsigned int n = 0;

	for (const char *p = text; (p = strstr(p, what)); p++)
		n++;
	return n;
}

static void wait_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

static void flood(struct kvb_log_limit *lim, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		kvb_log_limited(lim, KVB_LOG_WARN, "bad thing %u", i);
}

static void test_left_out(void **state)
{
	static struct kvb_log_limit lim = { .what = "bad things", .lines = 5,
					    .window_ns = WINDOW_MS * 1000000ull };
	const char *text;
	bool left[4];

	(void)state;
	log_begin();
	flood(&lim, 5);
	left[0] = kvb_log_limits_run();		/* all of them were written */
	flood(&lim, 100);
	left[1] = kvb_log_limits_run();		/* not yet: the window goes on */
	wait_ms(2 * WINDOW_MS);
	left[2] = kvb_log_limits_run();
	flood(&lim, 7);
	wait_ms(2 * WINDOW_MS);
	flood(&lim, 1);				/* tells of the others first */
	left[3] = kvb_log_limits_run();
	text = log_end();
	assert_true(!left[0] && left[1] && !left[2] && !left[3]);
	assert_int_equal(count(text, "warning: bad thing"), 5 + 5 + 1);
	assert_int_equal(count(text, "100 more lines about bad things in the last"), 1);
	assert_int_equal(count(text, "2 more lines about bad things in the last"), 1);
	assert_int_equal(count(text, "\n"), 5 + 1 + 5 + 1 + 1);
}

/* Places do not share: one client's noise does not hide another matter. */
static void test_apart(void **state)
{
	static struct kvb_log_limit a = { .what = "a", .lines = 3, .window_ns = WINDOW_MS * 1000000ull };
	static struct kvb_log_limit b = { .what = "b", .lines = 3, .window_ns = WINDOW_MS * 1000000ull };
	const char *text;

	(void)state;
	log_begin();
	flood(&a, 100);
	flood(&b, 2);
	kvb_log(KVB_LOG_ERR, "our own");
	text = log_end();
	assert_int_equal(count(text, "bad thing"), 5);
	assert_int_equal(count(text, "error: our own"), 1);
}

/* A line that the level leaves out counts for nothing. */
static void test_level(void **state)
{
	static struct kvb_log_limit lim = { .what = "x", .lines = 2, .window_ns = WINDOW_MS * 1000000ull };
	const char *text;

	(void)state;
	log_begin();
	kvb_log_set_level(KVB_LOG_ERR);
	flood(&lim, 100);
	kvb_log_set_level(KVB_LOG_INFO);
	flood(&lim, 2);
	text = log_end();
	assert_int_equal(count(text, "bad thing"), 2);
}

static struct kvb_log_limit shared = { .what = "races", .lines = 10,
				       .window_ns = WINDOW_MS * 1000000ull };

static void *flooder(void *arg)
{
	(void)arg;
	flood(&shared, 5000);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[4];
	const char *text;
	unsigned long told = 0;
	bool left;

	(void)state;
	log_begin();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, flooder, NULL))
			abort();
	for (int i = 0; i < 20; i++) {
		kvb_log_limits_run();
		wait_ms(10);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	wait_ms(2 * WINDOW_MS);
	left = kvb_log_limits_run();
	text = log_end();
	assert_false(left);
	/* Every line was written, or is among those that were left out. */
	told = count(text, "bad thing ");
	for (const char *p = text; (p = strstr(p, " more lines about races")); p++) {
		const char *digits = p;

		while (digits[-1] != ' ')
			digits--;
		told += strtoul(digits, NULL, 10);
	}
	assert_int_equal(told, 20000);
	assert_true(count(text, "bad thing") < 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_level),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
