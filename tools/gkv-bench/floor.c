/* SPDX-License-Identifier: MIT */
#include "floor.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "bench.h"
#include "util.h"

struct floor_result *floor_add(struct floor_report *r, const char *fmt, ...)
{
	struct floor_result *res;
	va_list ap;

	if (r->n == ARRAY_SIZE(r->results))
		die("floor: more than %zu results", ARRAY_SIZE(r->results));
	res = &r->results[r->n++];
	memset(res, 0, sizeof(*res));
	va_start(ap, fmt);
	vsnprintf(res->name, sizeof(res->name), fmt, ap);
	va_end(ap);
	return res;
}

static void print_text(const struct floor_report *r)
{
	printf("%-34s %10s %10s %10s %10s %12s\n", "floor", "p50", "p99", "p99.9", "per s",
	       "bandwidth");
	for (size_t i = 0; i < r->n; i++) {
		const struct floor_result *x = &r->results[i];
		char p50[32] = "-", p99[32] = "-", p999[32] = "-", rate[32] = "-", bw[40] = "-";

		if (x->skipped || x->failed) {
			printf("%-34s %s: %s\n", x->name, x->skipped ? "skipped" : "FAILED",
			       x->why);
			continue;
		}
		if (x->p50_ns > 0) {
			human_ns(p50, sizeof(p50), x->p50_ns);
			human_ns(p99, sizeof(p99), x->p99_ns);
			human_ns(p999, sizeof(p999), x->p999_ns);
		}
		if (x->per_s > 0)
			human_count(rate, sizeof(rate), x->per_s);
		if (x->bytes_per_s > 0)
			snprintf(bw, sizeof(bw), "%.2f GB/s", x->bytes_per_s / 1e9);
		if (x->cores > 0)
			snprintf(bw, sizeof(bw), "%.2f %% core", 100 * x->cores);
		printf("%-34s %10s %10s %10s %10s %12s\n", x->name, p50, p99, p999, rate, bw);
	}
}

static void print_json(const struct floor_report *r)
{
	struct json_object *doc = json_object_new_object(), *list = json_object_new_array();

	json_object_object_add(doc, "floors", list);
	for (size_t i = 0; i < r->n; i++) {
		const struct floor_result *x = &r->results[i];
		struct json_object *o = json_object_new_object();

		json_object_array_add(list, o);
		json_object_object_add(o, "name", json_object_new_string(x->name));
		if (x->skipped || x->failed) {
			json_object_object_add(o, x->skipped ? "skipped" : "failed",
					       json_object_new_string(x->why));
			continue;
		}
		if (x->p50_ns > 0) {
			json_add_double(o, "p50_ns", x->p50_ns);
			json_add_double(o, "p99_ns", x->p99_ns);
			json_add_double(o, "p999_ns", x->p999_ns);
		}
		if (x->per_s > 0)
			json_add_double(o, "per_s", x->per_s);
		if (x->bytes_per_s > 0)
			json_add_double(o, "bytes_per_s", x->bytes_per_s);
		if (x->cores > 0)
			json_add_double(o, "cores", x->cores);
	}
	json_print(doc);
	json_object_put(doc);
}

static const char usage[] =
	"usage: gkv-bench floor [ring] [ring-copy] [pingpong] [memcpy] [sleep] [fio] [options]\n"
	"\n"
	"What the machine itself gives, for comparison. Without names: all of them.\n"
	"  ring        entries, doorbells and completions between two processes\n"
	"  ring-copy   the same with 4 KiB copied per entry\n"
	"  pingpong    one cache line between two processors, round trip\n"
	"  memcpy      4 KiB, 1 MiB, 32 MiB\n"
	"  sleep       a thread that wakes up every millisecond: processor time\n"
	"  fio         io_uring, O_DIRECT, on --file\n"
	"\n"
	"  --cpus A,B           run the client on processor A, the server on B\n"
	"  --time T             of each measurement (default 1s)\n"
	"  --depth N            entries of the deep ring, 2 to 4096 (default 256)\n"
	"  --working-set SIZE   memory the 4 KiB copies come from (default 16M)\n"
	"  --file FILE          file for fio; must exist and have data in it\n"
	"  --file-size SIZE     use only the first SIZE bytes of it\n"
	"  --write              fio also overwrites FILE: its content is lost\n"
	"  --write-only         no reads\n"
	"  --sync               fio's writes are durable one by one (O_DSYNC)\n"
	"  --sizes LIST         fio's block sizes (default 4K,128K,1M,4M)\n"
	"  --qds LIST           fio's queue depths (default 1,32)\n"
	"  -o, --output FORMAT  text or json\n";

static void parse_list(const char *arg, const char *what, uint64_t *out, size_t *n, size_t max)
{
	char *copy = strdup(arg), *save = NULL;

	*n = 0;
	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		if (*n == max || parse_size(t, &out[*n]) || !out[*n])
			die("floor: %s %s: not a list of at most %zu sizes", what, arg, max);
		(*n)++;
	}
	free(copy);
}

int cmd_floor(int argc, char **argv)
{
	enum {
		O_CPUS = 256,
		O_TIME,
		O_DEPTH,
		O_SET,
		O_FILE,
		O_FSIZE,
		O_WRITE,
		O_WRITEONLY,
		O_SYNC,
		O_SIZES,
		O_QDS
	};
	static const struct option longopts[] = {
		{ "cpus", required_argument, NULL, O_CPUS },
		{ "time", required_argument, NULL, O_TIME },
		{ "depth", required_argument, NULL, O_DEPTH },
		{ "working-set", required_argument, NULL, O_SET },
		{ "file", required_argument, NULL, O_FILE },
		{ "file-size", required_argument, NULL, O_FSIZE },
		{ "write", no_argument, NULL, O_WRITE },
		{ "write-only", no_argument, NULL, O_WRITEONLY },
		{ "sync", no_argument, NULL, O_SYNC },
		{ "sizes", required_argument, NULL, O_SIZES },
		{ "qds", required_argument, NULL, O_QDS },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	static const char *const names[] = { "ring",   "ring-copy", "pingpong",
					     "memcpy", "sleep",	    "fio" };
	static struct floor_report report;
	struct floor_opts o = {
		.cpu_client = -1,
		.cpu_server = -1,
		.time_ns = 1000000000u,
		.depth = 256,
		.working_set = 16u << 20,
		.sizes = { 4096, 128u << 10, 1u << 20, 4u << 20 },
		.n_sizes = 4,
		.qds = { 1, 32 },
		.n_qds = 2,
	};
	unsigned int wanted = 0;
	bool json = false, failed = false;
	uint64_t v, list[8];
	int opt, cpus[2];

	while ((opt = getopt_long(argc, argv, "o:h", longopts, NULL)) != -1) {
		switch (opt) {
		case O_CPUS:
			if (parse_cpus(optarg, cpus, 2) != 2)
				die("floor: --cpus takes two processors, e.g. 0,1");
			o.cpu_client = cpus[0];
			o.cpu_server = cpus[1];
			break;
		case O_TIME:
			if (parse_duration(optarg, &o.time_ns) || o.time_ns < 1000000)
				die("floor: --time %s: not a duration of 1ms or more", optarg);
			break;
		case O_DEPTH:
			if (parse_count(optarg, &v) || v < 2 || v > 4096)
				die("floor: --depth %s: must be 2 to 4096", optarg);
			o.depth = (uint32_t)v;
			break;
		case O_SET:
			if (parse_size(optarg, &o.working_set) || o.working_set < 4096)
				die("floor: --working-set %s: not a size of 4 KiB or more", optarg);
			break;
		case O_FILE:
			o.file = optarg;
			break;
		case O_FSIZE:
			if (parse_size(optarg, &o.file_size))
				die("floor: --file-size %s: not a size", optarg);
			break;
		case O_WRITE:
			o.write = true;
			break;
		case O_WRITEONLY:
			o.write = o.write_only = true;
			break;
		case O_SYNC:
			o.sync = true;
			break;
		case O_SIZES:
			parse_list(optarg, "--sizes", o.sizes, &o.n_sizes, ARRAY_SIZE(o.sizes));
			break;
		case O_QDS:
			parse_list(optarg, "--qds", list, &o.n_qds, ARRAY_SIZE(list));
			for (size_t i = 0; i < o.n_qds; i++)
				o.qds[i] = (uint32_t)list[i];
			break;
		case 'o':
			json = output_is_json(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	for (; optind < argc; optind++) {
		size_t i;

		for (i = 0; i < ARRAY_SIZE(names); i++)
			if (!strcmp(argv[optind], names[i]))
				break;
		if (i == ARRAY_SIZE(names))
			die("floor: %s: no such floor (see gkv-bench floor --help)", argv[optind]);
		wanted |= 1u << i;
	}
	if (!wanted)
		wanted = (1u << ARRAY_SIZE(names)) - 1;
	ticks_per_ns();
	if (wanted & 1)
		floor_ring(&o, 0, &report);
	if (wanted & 2)
		floor_ring(&o, 4096, &report);
	if (wanted & 4)
		floor_pingpong(&o, &report);
	if (wanted & 8)
		floor_memcpy(&o, &report);
	if (wanted & 16)
		floor_sleep(&o, &report);
	if (wanted & 32)
		floor_fio(&o, &report);
	if (json)
		print_json(&report);
	else
		print_text(&report);
	for (size_t i = 0; i < report.n; i++)
		failed |= report.results[i].failed;
	return failed;
}
