/* SPDX-License-Identifier: MIT */
#include "util.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

double ticks_per_ns(void)
{
	static double rate;
	uint64_t n0, n1, t0, t1;

	if (rate > 0)
		return rate;
	n0 = now_ns();
	t0 = ticks();
	do {
		n1 = now_ns();
		t1 = ticks();
	} while (n1 - n0 < 20000000u);
	rate = (double)(t1 - t0) / (double)(n1 - n0);
	return rate;
}

static void vwarn(const char *fmt, va_list ap)
{
	fflush(stdout);
	fputs("gkv-bench: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vwarn(fmt, ap);
	va_end(ap);
	exit(2);
}

void warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vwarn(fmt, ap);
	va_end(ap);
}

/* A non-negative number and the unit after it. Returns the unit, or NULL. */
static const char *parse_number(const char *s, double *out)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	if (!isdigit((unsigned char)*s) && *s != '.')
		return NULL;
	errno = 0;
	*out = strtod(s, &end);
	if (errno || end == s || !isfinite(*out))
		return NULL;
	return end;
}

int parse_size(const char *s, uint64_t *out)
{
	static const char units[] = "KMGT";
	double v;
	const char *unit = parse_number(s, &v);
	const char *u;

	if (!unit)
		return -1;
	if (*unit && (u = strchr(units, toupper((unsigned char)*unit)))) {
		v = ldexp(v, 10 * (int)(u - units + 1));
		unit++;
		if (*unit == 'i')
			unit++;
	}
	if (*unit == 'B')
		unit++;
	if (*unit || v >= 0x1p63 || v != floor(v))
		return -1;
	*out = (uint64_t)v;
	return 0;
}

int parse_count(const char *s, uint64_t *out)
{
	double v;
	const char *unit = parse_number(s, &v);

	if (!unit)
		return -1;
	if (*unit) {
		switch (tolower((unsigned char)*unit)) {
		case 'k':
			v *= 1e3;
			break;
		case 'm':
			v *= 1e6;
			break;
		case 'g':
			v *= 1e9;
			break;
		default:
			return -1;
		}
		if (unit[1])
			return -1;
	}
	if (v >= 0x1p63 || v != floor(v))
		return -1;
	*out = (uint64_t)v;
	return 0;
}

int parse_duration(const char *s, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {
		{ "", 1e9 }, { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 }, { "m", 60e9 },
	};
	double v;
	const char *unit = parse_number(s, &v);

	if (!unit)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (!strcmp(unit, units[i].unit)) {
			v *= units[i].ns;
			if (v >= 0x1p63)
				return -1;
			*ns = (uint64_t)v;
			return 0;
		}
	}
	return -1;
}

int parse_cpus(const char *s, int *cpus, int max)
{
	int n = 0;

	while (*s) {
		char *end;
		long a, b;

		if (!isdigit((unsigned char)*s))
			return -1;
		a = b = strtol(s, &end, 10);
		if (*end == '-') {
			s = end + 1;
			if (!isdigit((unsigned char)*s))
				return -1;
			b = strtol(s, &end, 10);
		}
		if (b < a || b >= CPU_SETSIZE)
			return -1;
		for (; a <= b; a++) {
			if (n == max)
				return -1;
			cpus[n++] = (int)a;
		}
		if (*end == ',')
			end++;
		else if (*end)
			return -1;
		s = end;
	}
	return n;
}

int pin_to(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return 0;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

char *human_bytes(char *buf, size_t n, double bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t u = 0;

	while (bytes >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		bytes /= 1024;
		u++;
	}
	snprintf(buf, n, u && bytes < 100 && bytes != floor(bytes) ? "%.2f %s" : "%.0f %s", bytes,
		 units[u]);
	return buf;
}

char *human_count(char *buf, size_t n, double count)
{
	if (count >= 1e9)
		snprintf(buf, n, "%.2f G", count / 1e9);
	else if (count >= 1e6)
		snprintf(buf, n, "%.2f M", count / 1e6);
	else if (count >= 1e4)
		snprintf(buf, n, "%.1f k", count / 1e3);
	else
		snprintf(buf, n, count < 100 && count != floor(count) ? "%.2f" : "%.0f", count);
	return buf;
}

char *human_ns(char *buf, size_t n, double ns)
{
	if (ns >= 1e9)
		snprintf(buf, n, "%.2f s", ns / 1e9);
	else if (ns >= 1e6)
		snprintf(buf, n, "%.2f ms", ns / 1e6);
	else if (ns >= 1e3)
		snprintf(buf, n, "%.2f us", ns / 1e3);
	else
		snprintf(buf, n, "%.0f ns", ns);
	return buf;
}

void progress_init(struct progress *p, bool quiet)
{
	memset(p, 0, sizeof(*p));
	p->tty = isatty(STDERR_FILENO) == 1;
	p->quiet = quiet;
	p->next_ns = now_ns() + (p->tty ? 200000000u : 2000000000u);
}

bool progress_due(struct progress *p)
{
	return !p->quiet && now_ns() >= p->next_ns;
}

void progress_show(struct progress *p, const char *fmt, ...)
{
	va_list ap;

	if (p->quiet)
		return;
	p->next_ns = now_ns() + (p->tty ? 200000000u : 3000000000u);
	p->shown = true;
	if (p->tty)
		fputs("\r\033[K", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	if (!p->tty)
		fputc('\n', stderr);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->shown && p->tty) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
	p->shown = false;
}
