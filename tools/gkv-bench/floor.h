/* SPDX-License-Identifier: MIT */
/*
 * Floors: what the machine itself gives, measured without any of gkv's logic, so
 * that gkv's figures can be read as ratios.
 */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct floor_opts {
	int cpu_client;			/* -1: not bound */
	int cpu_server;
	uint64_t time_ns;		/* of each measurement */
	uint32_t depth;			/* entries of the deep ring */
	uint64_t working_set;		/* bytes the copied values come from */
	const char *file;		/* for fio; NULL: none given */
	uint64_t file_size;		/* bytes of it to use; 0: all */
	bool write;			/* fio may overwrite it */
	bool write_only;
	bool sync;			/* fio's writes are durable one by one */
	uint64_t sizes[16];		/* fio's block sizes, bytes */
	size_t n_sizes;
	uint64_t qds[8];		/* fio's queue depths */
	size_t n_qds;
};

struct floor_result {
	char name[48];
	bool skipped;
	bool failed;
	char why[160];			/* of a skip or failure */
	/* Zero where a floor has no such figure. */
	double p50_ns;
	double p99_ns;
	double p999_ns;
	double max_ns;
	double per_s;			/* operations */
	double bytes_per_s;
	double cpu_ns_per_op;		/* processor time of this process */
	uint64_t ops;			/* measured */
	double cores;			/* processor time per time */
};

struct floor_report {
	struct floor_result results[128];
	size_t n;
	char note[160];			/* on all of them; may be empty */
};

/* Append a result; die when there is no room. */
struct floor_result *floor_add(struct floor_report *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Print the results; returns the exit status, 1 when one of them failed. */
int floor_print(const struct floor_report *r, bool json);

/*
 * Two processes exchange 64-byte entries, doorbells and 16-byte completions, at
 * queue depth 1 and deep; with @copy_len each entry also has so many bytes copied
 * into the client's memory.
 */
void floor_ring(const struct floor_opts *o, uint32_t copy_len, struct floor_report *r);

/* Two processes bounce a cache line; the figure is the round trip. */
void floor_pingpong(const struct floor_opts *o, struct floor_report *r);

/* memcpy() from private into shared memory at 4 KiB, 1 MiB and 32 MiB. */
void floor_memcpy(const struct floor_opts *o, struct floor_report *r);

/* A thread that sleeps 1 ms again and again: the processor time it takes. */
void floor_sleep(const struct floor_opts *o, struct floor_report *r);

/* fio, io_uring, O_DIRECT, on the file given. */
void floor_fio(const struct floor_opts *o, struct floor_report *r);

#endif /* BENCH_FLOOR_H */
