/* SPDX-License-Identifier: MIT */
/* gkv-gpusim: gkv_device.h on a stand-in for a GPU, against a kvbridged. */
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "killer.h"
#include "work.h"

#ifndef GKV_BUILD_VERSION
#define GKV_BUILD_VERSION "unknown"
#endif

#define LOCKSTEP_TIMEOUT_NS	600000000000ull

enum { EX_DONE, EX_FAILED, EX_BADUSE };

struct options {
	const char *socket, *ns;
	uint32_t depth;
	struct killer killer;
	struct work work;
};

static void __attribute__((noreturn, format(printf, 2, 3))) die(int code, const char *fmt, ...)
{
	va_list ap;

	fputs("gkv-gpusim: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(code);
}

static const char help[] =
	"usage: gkv-gpusim [options]\n\n"
	"Runs gkv_device.h without a GPU, against a kvbridged, and verifies every value.\n\n"
	"  -s, --socket PATH     the daemon's socket\n"
	"  -n, --ns NAME         namespace (the lowest one)\n"
	"  -y, --way WAY         threads, or lockstep: lanes as coroutines under a scheduler\n"
	"  -p, --policy NAME     of lockstep: random worst its first together starve\n"
	"  -S, --seed N          of the schedule, the keys and the values (1)\n"
	"  -w, --waves N         wavefronts (4)\n"
	"  -l, --lanes N         lanes of each, 1 to 64 (32)\n"
	"  -d, --depth N         of the queue pair that all lanes share (128)\n"
	"  -r, --rounds N        store, retrieve, exist, list, delete of each key (4)\n"
	"  -b, --batch N         keys of a wavefront, which its lanes submit together;\n"
	"                        0: each lane has one and goes alone (0)\n"
	"  -v, --value BYTES     longest value (4096)\n"
	"  -t, --timeout MS      of each wait (the queue pair's)\n"
	"  -D, --daemon COMMAND  start the daemon with it, and end it\n"
	"  -k, --kills N         kill that daemon and start it again; rounds go on until then\n"
	"      --stalls N        stop it for a while\n"
	"      --every MS        between two of these (200)\n"
	"  -h, --help\n"
	"  -V, --version\n";

static uint64_t number(const char *name, const char *arg, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t v = strtoull(arg, &end, 0);

	if (*arg < '0' || *arg > '9' || *end || v < min || v > max)
		die(EX_BADUSE, "--%s %s: must be %" PRIu64 " to %" PRIu64, name, arg, min, max);
	return v;
}

static enum sim_policy policy(const char *arg)
{
	for (unsigned int p = 0; p < SIM_NPOLICIES; p++) {
		if (!strcmp(arg, sim_policy_names[p]))
			return (enum sim_policy)p;
	}
	die(EX_BADUSE, "--policy %s: not one of random worst its first together starve", arg);
}

static bool lockstep(const char *arg)
{
	if (strcmp(arg, "lockstep") && strcmp(arg, "threads"))
		die(EX_BADUSE, "--way %s: must be threads or lockstep", arg);
	return !strcmp(arg, "lockstep");
}

enum { OPT_STALLS = 256, OPT_EVERY };

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "ns", required_argument, NULL, 'n' },
		{ "way", required_argument, NULL, 'y' },
		{ "policy", required_argument, NULL, 'p' },
		{ "seed", required_argument, NULL, 'S' },
		{ "waves", required_argument, NULL, 'w' },
		{ "lanes", required_argument, NULL, 'l' },
		{ "depth", required_argument, NULL, 'd' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "batch", required_argument, NULL, 'b' },
		{ "value", required_argument, NULL, 'v' },
		{ "timeout", required_argument, NULL, 't' },
		{ "daemon", required_argument, NULL, 'D' },
		{ "kills", required_argument, NULL, 'k' },
		{ "stalls", required_argument, NULL, OPT_STALLS },
		{ "every", required_argument, NULL, OPT_EVERY },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	struct work *w = &o->work;
	int c;

	while ((c = getopt_long(argc, argv, "s:n:y:p:S:w:l:d:r:b:v:t:D:k:hV", opts, NULL)) != -1) {
		switch (c) {
		case 's':
			o->socket = optarg;
			break;
		case 'n':
			o->ns = optarg;
			break;
		case 'y':
			w->sim.lockstep = lockstep(optarg);
			break;
		case 'p':
			w->sim.policy = policy(optarg);
			break;
		case 'S':
			w->seed = number("seed", optarg, 0, UINT64_MAX);
			break;
		case 'w':
			w->sim.waves = (uint32_t)number("waves", optarg, 1, 65536);
			break;
		case 'l':
			w->sim.lanes = (uint32_t)number("lanes", optarg, 1, SIM_LANES_MAX);
			break;
		case 'd':
			o->depth = (uint32_t)number("depth", optarg, 2, 65536);
			break;
		case 'r':
			w->rounds = (uint32_t)number("rounds", optarg, 1, 1u << 30);
			break;
		case 'b':
			w->batch = (uint32_t)number("batch", optarg, 0, 65535);
			break;
		case 'v':
			w->value = (uint32_t)number("value", optarg, 1, 64u << 20);
			break;
		case 't':
			w->timeout_ns = number("timeout", optarg, 1, 1u << 30) * 1000000;
			break;
		case 'D':
			o->killer.command = optarg;
			break;
		case 'k':
			o->killer.kills = (uint32_t)number("kills", optarg, 0, 1u << 20);
			break;
		case OPT_STALLS:
			o->killer.stalls = (uint32_t)number("stalls", optarg, 0, 1u << 20);
			break;
		case OPT_EVERY:
			o->killer.every_ns = number("every", optarg, 1, 1u << 20) * 1000000;
			break;
		case 'h':
			fputs(help, stdout);
			exit(EX_DONE);
		case 'V':
			puts("gkv-gpusim " GKV_BUILD_VERSION);
			exit(EX_DONE);
		default:
			exit(EX_BADUSE);
		}
	}
	if (optind < argc)
		die(EX_BADUSE, "%s: there are no arguments", argv[optind]);
	if ((o->killer.kills || o->killer.stalls) && !o->killer.command)
		die(EX_BADUSE, "--kills, --stalls: only with --daemon");
}

/* A daemon that was just started may need a moment. */
static struct gkv *open_session(const struct options *o)
{
	struct gkv *g;

	for (unsigned int i = 0; gkv_connect(&g, o->socket, 0, 0); i++) {
		if (!o->killer.command || i == 100)
			die(EX_FAILED, "%s", gkv_error());
		usleep(100000);
	}
	return g;
}

static void report(const struct options *o, const struct sim *s, uint64_t ns)
{
	const struct work *w = &o->work;
	const struct gkv_dev_stats *d = &w->q->stats;
	uint64_t all = w->stores + w->retrieves + w->exists + w->lists + w->deletes;

	printf("%u wavefronts of %u lanes, %s%s%s, depth %u, seed %" PRIu64 "\n", w->sim.waves,
	       w->sim.lanes, w->sim.lockstep ? "lockstep" : "threads",
	       w->sim.lockstep ? ", policy " : "",
	       w->sim.lockstep ? sim_policy_names[w->sim.policy] : "", o->depth, w->seed);
	printf("%" PRIu64 " commands in %.3f s: %" PRIu64 " stores, %" PRIu64 " retrieves, %" PRIu64
	       " exists, %" PRIu64 " lists, %" PRIu64 " deletes; %" PRIu64 " bytes verified\n",
	       all, (double)ns / 1e9, w->stores, w->retrieves, w->exists, w->lists, w->deletes,
	       w->bytes / 2);
	printf("%u doorbells, %.1f commands each; %u timeouts, %u late, %u of unknown identifier\n",
	       d->doorbells, d->doorbells ? (double)all / d->doorbells : 0.0, d->timeouts, d->late,
	       d->bad_cid);
	if (o->killer.command)
		printf("%u kills, %u stalls; %" PRIu64 " commands done again\n", o->killer.killed,
		       o->killer.stalled, w->retries);
	if (w->sim.lockstep)
		printf("%" PRIu64 " steps\n", sim_steps(s));
}

static int run(struct options *o)
{
	struct sim *s = sim_new(&o->work.sim);
	uint64_t start = gkv_sim_clock();
	int ret;

	if (!s || work_begin(&o->work))
		die(EX_FAILED, "out of memory");
	if (o->killer.command && killer_begin())
		die(EX_FAILED, "no thread");
	ret = sim_run(s, work_kernel, &o->work);
	killer_end();
	if (ret)
		fprintf(stderr, "gkv-gpusim: %s\n", sim_report(s));
	report(o, s, gkv_sim_clock() - start);
	work_end(&o->work);
	sim_free(s);
	return ret || o->work.q->stats.bad_cid ? EX_FAILED : EX_DONE;
}

int main(int argc, char **argv)
{
	struct options o = {
		.depth = 128,
		.killer.every_ns = 200000000,
		.work = { .sim = { .waves = 4, .lanes = 32 }, .rounds = 4, .go_on = killer_busy,
			  .value = 4096, .seed = 1 },
	};
	struct gkv_qp_opts qo = { .size = sizeof(qo), .flags = GKV_QP_POLLED };
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv *g;
	int ret;

	parse(&o, argc, argv);
	if (o.killer.command && killer_start(&o.killer))
		die(EX_FAILED, "%s: %m", o.killer.command);
	g = open_session(&o);
	qo.depth = o.depth;
	if (gkv_ns_open(g, o.ns, 0, &ns) || gkv_mem_alloc(g, work_mem(&o.work), &mem) ||
	    gkv_qp_create(g, &qo, &qp) || gkv_qp_device(qp, &d))
		die(EX_FAILED, "%s", gkv_error());
	/* In lockstep all lanes together have the time of one. */
	if (o.work.sim.lockstep)
		d.timeout_ns = LOCKSTEP_TIMEOUT_NS;
	o.work.q = aligned_alloc(GKVD_LINE, gkv_dev_queue_size(o.depth));
	if (!o.work.q || gkv_dev_queue_init(o.work.q, &d))
		die(EX_FAILED, "out of memory");
	o.work.mem = gkv_mem_addr(mem);
	o.work.nsid = ns.nsid;
	o.work.sim.seed = o.work.seed;
	o.work.sim.real_time = o.work.sim.lockstep;
	ret = run(&o);
	/* What timed out is the daemon's until then. */
	if (gkv_qp_destroy(qp))
		die(EX_FAILED, "%s", gkv_error());
	gkv_close(g);
	free(o.work.q);
	killer_stop();
	return ret;
}
