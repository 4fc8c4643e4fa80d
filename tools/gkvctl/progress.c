/* SPDX-License-Identifier: MIT */
/*
 * Progress of transfers. What is shown is what gkvctl itself has read or written; a
 * command under way in the daemon has no measurable part, so only its age is shown.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gkvctl.h"

#define SHOW_AFTER_NS	1000000000ull
#define REDRAW_NS	200000000ull
#define BAR_WIDTH	30

static struct {
	bool on;
	bool drawn;
	const char *verb;
	uint64_t total;
	uint64_t start_ns;
	uint64_t last_ns;
} pg;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void progress_begin(const struct ctl *c, const char *verb, uint64_t total)
{
	progress_end();
	pg.on = !c->quiet && isatty(STDERR_FILENO);
	pg.verb = verb;
	pg.total = total;
	pg.start_ns = now_ns();
	pg.last_ns = 0;
}

static void draw(uint64_t done, uint64_t now)
{
	double s = (double)(now - pg.start_ns) / 1e9;
	char size[32], rate[32], bar[BAR_WIDTH + 1];
	unsigned int filled;

	view_size(done, size, sizeof(size));
	view_size((uint64_t)((double)done / s), rate, sizeof(rate));
	if (pg.total) {
		filled = (unsigned int)(done * BAR_WIDTH / pg.total);
		memset(bar, '.', BAR_WIDTH);
		memset(bar, '#', filled > BAR_WIDTH ? BAR_WIDTH : filled);
		bar[BAR_WIDTH] = '\0';
		fprintf(stderr, "\r%s [%s] %3u %%  %s  %s/s\033[K", pg.verb, bar,
			(unsigned int)(done * 100 / pg.total), size, rate);
	} else if (done) {
		fprintf(stderr, "\r%s  %s  %s/s\033[K", pg.verb, size, rate);
	} else {
		fprintf(stderr, "\r%s  %.0f s\033[K", pg.verb, s);
	}
	fflush(stderr);
	pg.drawn = true;
}

void progress_update(uint64_t done)
{
	uint64_t now;

	if (!pg.on)
		return;
	now = now_ns();
	if (now - pg.start_ns < SHOW_AFTER_NS || now - pg.last_ns < REDRAW_NS)
		return;
	pg.last_ns = now;
	draw(done, now);
}

void progress_end(void)
{
	if (pg.drawn)
		fprintf(stderr, "\r\033[K");
	pg.on = false;
	pg.drawn = false;
}
