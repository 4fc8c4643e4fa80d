/* SPDX-License-Identifier: MIT */
/* The command line of gkv-gpusim. */
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

#ifndef GKV_BUILD_VERSION
#define GKV_BUILD_VERSION "unknown"
#endif

void die(int code, const char *fmt, ...)
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
	"  -m, --mode N          memory mode, 0x0 to 0xf: what lies in VRAM (0)\n"
	"      --dmabuf FD       what lies in VRAM lies in the dma-buf of this open descriptor\n"
	"      --prp             describe values with PRPs instead of SGLs\n"
	"      --csum            checksums travel with values, computed and verified by lanes\n"
	"      --offset BYTES    values begin so far behind whole pages (0)\n"
	"      --may-stop        a queue pair that the daemon stops, or whose memory goes, is no error\n"
	"      --offer           make the queue pair for another gkv-gpusim, which has this\n"
	"                        machine's memory; print where it is described, wait for the\n"
	"                        end of the input\n"
	"      --attach ADDRESS  be that one\n"
	"      --bus FILE@ADDRESS  of it: memory of that machine and where its bus has it\n"
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

/* "FILE@ADDRESS". */
static void add_file(struct options *o, char *arg)
{
	char *at = strrchr(arg, '@');

	if (!at || at == arg)
		die(EX_BADUSE, "--bus %s: must be FILE@ADDRESS", arg);
	if (o->nfiles == BUS_FILES_MAX)
		die(EX_BADUSE, "--bus: at most %u", BUS_FILES_MAX);
	*at = '\0';
	o->files[o->nfiles].at = number("bus", at + 1, 0, UINT64_MAX);
	o->files[o->nfiles++].path = arg;
}

static void check(const struct options *o)
{
	if ((o->killer.kills || o->killer.stalls) && !o->killer.command)
		die(EX_BADUSE, "--kills, --stalls: only with --daemon");
	if (o->offer && o->attach)
		die(EX_BADUSE, "--offer and --attach are for two different machines");
	if (o->attach && (o->killer.command || o->socket || o->ns || o->mode))
		die(EX_BADUSE, "--attach: daemon, namespace and memory mode are the other machine's");
	if (!o->attach != !o->nfiles)
		die(EX_BADUSE, "--attach and --bus: only together");
	if (o->dmabuf >= 0 && !o->mode)
		die(EX_BADUSE, "--dmabuf: the memory mode puts nothing into VRAM");
	if (o->work.prp && o->work.offset % 4)
		die(EX_BADUSE, "--offset %u: PRPs need a multiple of 4", o->work.offset);
}

enum {
	OPT_STALLS = 256, OPT_EVERY, OPT_DMABUF, OPT_PRP, OPT_CSUM, OPT_OFFSET, OPT_MAY_STOP,
	OPT_OFFER, OPT_ATTACH, OPT_BUS,
};

void options_parse(struct options *o, int argc, char **argv)
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
		{ "mode", required_argument, NULL, 'm' },
		{ "dmabuf", required_argument, NULL, OPT_DMABUF },
		{ "prp", no_argument, NULL, OPT_PRP },
		{ "csum", no_argument, NULL, OPT_CSUM },
		{ "offset", required_argument, NULL, OPT_OFFSET },
		{ "may-stop", no_argument, NULL, OPT_MAY_STOP },
		{ "offer", no_argument, NULL, OPT_OFFER },
		{ "attach", required_argument, NULL, OPT_ATTACH },
		{ "bus", required_argument, NULL, OPT_BUS },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	struct work *w = &o->work;
	int c;

	while ((c = getopt_long(argc, argv, "s:n:y:p:S:w:l:d:r:b:v:t:D:k:m:hV", opts, NULL)) != -1) {
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
		case 'm':
			o->mode = (uint32_t)number("mode", optarg, 0, 15);
			break;
		case OPT_DMABUF:
			o->dmabuf = (int)number("dmabuf", optarg, 0, INT_MAX);
			break;
		case OPT_PRP:
			w->prp = true;
			break;
		case OPT_CSUM:
			o->csum = true;
			break;
		case OPT_OFFSET:
			w->offset = (uint32_t)number("offset", optarg, 0, WORK_PAGE - 1);
			break;
		case OPT_MAY_STOP:
			w->may_stop = true;
			break;
		case OPT_OFFER:
			o->offer = true;
			break;
		case OPT_ATTACH:
			o->attach = number("attach", optarg, 1, UINT64_MAX);
			break;
		case OPT_BUS:
			add_file(o, optarg);
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
	check(o);
}
