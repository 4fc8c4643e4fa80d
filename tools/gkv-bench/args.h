/* SPDX-License-Identifier: MIT */
/* Options that more than one subcommand takes, parsed in one place. */
#ifndef BENCH_ARGS_H
#define BENCH_ARGS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_THREADS 64

/* What every client of a daemon takes. */
struct client_opts {
	const char *socket;		/* NULL: the library's default */
	const char *ns;			/* NULL: the first namespace */
	const char *plot;		/* NULL: none */
	uint64_t timeout_ns;		/* of a command; 0: follows the namespace */
	uint64_t seed;			/* of the values */
	uint32_t qp_flags;		/* GKV_QP_* */
	uint32_t mode;			/* GKV_MODE_* */
	bool verify;			/* compare retrieved bytes */
	bool json;
	bool quiet;
	int cpus[MAX_THREADS];
	int n_cpus;			/* 0: threads are not bound */
};

/* Values of getopt's val; the subcommands' own begin at 256. */
enum {
	ARG_SOCKET = 1024,
	ARG_NS,
	ARG_PLOT,
	ARG_TIMEOUT,
	ARG_SEED,
	ARG_VERIFY,
	ARG_PRP,
	ARG_CSUM,
	ARG_POLLED,
	ARG_MODE,
	ARG_CPUS,
};

#define CLIENT_SHORTOPTS "o:qh"

/* For a subcommand's table of options; it handles 'h' itself. */
/* clang-format off */
#define CLIENT_LONGOPTS						\
	{ "socket", required_argument, NULL, ARG_SOCKET },	\
	{ "ns", required_argument, NULL, ARG_NS },		\
	{ "plot", required_argument, NULL, ARG_PLOT },		\
	{ "timeout", required_argument, NULL, ARG_TIMEOUT },	\
	{ "seed", required_argument, NULL, ARG_SEED },		\
	{ "verify", required_argument, NULL, ARG_VERIFY },	\
	{ "prp", no_argument, NULL, ARG_PRP },			\
	{ "csum", no_argument, NULL, ARG_CSUM },		\
	{ "polled", no_argument, NULL, ARG_POLLED },		\
	{ "mode", required_argument, NULL, ARG_MODE },		\
	{ "cpus", required_argument, NULL, ARG_CPUS },		\
	{ "output", required_argument, NULL, 'o' },		\
	{ "quiet", no_argument, NULL, 'q' },			\
	{ "help", no_argument, NULL, 'h' }
/* clang-format on */

/* Before the first client_opt(): nothing bound, seed 1, values verified. */
void client_opts_init(struct client_opts *c);

/*
 * Take option @opt with argument @arg when it is one of the above; @cmd names the
 * subcommand in complaints. False when it is not; dies when @arg is wrong. Strings
 * are kept, not copied.
 */
bool client_opt(struct client_opts *c, const char *cmd, int opt, const char *arg);

/* A count (see parse_count()) from @min to @max; dies naming --@name otherwise. */
uint64_t count_arg(const char *cmd, const char *name, const char *arg, uint64_t min, uint64_t max);

/* A duration of at least @min_ns; dies naming --@name otherwise. Result in ns. */
uint64_t duration_arg(const char *cmd, const char *name, const char *arg, uint64_t min_ns);

/* "yes", "on", "no" or "off"; dies on anything else. */
bool switch_arg(const char *cmd, const char *name, const char *arg);

/* A list of at most @max sizes above 0, separated by commas. Returns how many. */
size_t sizes_arg(const char *cmd, const char *name, const char *arg, uint64_t *out, size_t max);

#endif /* BENCH_ARGS_H */
