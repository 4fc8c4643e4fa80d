/* SPDX-License-Identifier: MIT */
/*
 * Small helpers of gkv-bench: time, numbers on the command line and in tables,
 * processors, the progress line.
 */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Ticks of the cheapest clock there is; ticks_per_ns() gives their rate. */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#else
	return now_ns();
#endif
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/* Finaliser of splitmix64: every bit of @x reaches every bit of the result. */
static inline uint64_t mix64(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/*
 * Rate of ticks(). The first call measures for about 20 ms; make it before
 * threads start.
 */
double ticks_per_ns(void);

/* Print a line to stderr, prefixed with the program's name, and exit with 2. */
void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Parse "4096", "4K", "1.5M", "64MiB" (powers of 1024). Returns 0, or -1 when
 * @s is no size or does not fit.
 */
int parse_size(const char *s, uint64_t *out);

/* Parse a decimal count, with an optional k, m or g (powers of 1000). */
int parse_count(const char *s, uint64_t *out);

/* Parse a duration: "5" and "5s" are seconds; also ms, us, ns, m. Result in ns. */
int parse_duration(const char *s, uint64_t *ns);

/*
 * Parse "0,2-3" into at most @max processor numbers. Returns how many, or -1.
 */
int parse_cpus(const char *s, int *cpus, int max);

/* Bind the calling thread to @cpu (no effect when negative). Returns 0 or -errno. */
int pin_to(int cpu);

/* "12.3 MiB", "1.20 M/s"-style text in a buffer of the caller's. Return @buf. */
char *human_bytes(char *buf, size_t n, double bytes);
char *human_count(char *buf, size_t n, double count);
char *human_ns(char *buf, size_t n, double ns);

/*
 * Progress on stderr: one line rewritten in place on a terminal, else a line
 * every few seconds. @quiet turns it off.
 */
struct progress {
	bool tty;
	bool quiet;
	bool shown;
	uint64_t next_ns;
};

void progress_init(struct progress *p, bool quiet);
/* True when it is time to show something. */
bool progress_due(struct progress *p);
void progress_show(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Clear the line on a terminal. */
void progress_end(struct progress *p);

#endif /* BENCH_UTIL_H */
