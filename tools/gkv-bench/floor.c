/* SPDX-License-Identifier: MIT */
#include "floor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "args.h"
#include "bench.h"
#include "floor_rados.h"
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
	if (r->note[0])
		printf("%s\n", r->note);
	printf("%-34s %10s %10s %10s %10s %10s %12s %10s\n", "floor", "p50", "p99", "p99.9",
	       "max", "per s", "bandwidth", "CPU/op");
	for (size_t i = 0; i < r->n; i++) {
		const struct floor_result *x = &r->results[i];
		char p50[32] = "-", p99[32] = "-", p999[32] = "-", max[32] = "-";
		char rate[32] = "-", bw[40] = "-", cpu[32] = "-";

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
		if (x->max_ns > 0)
			human_ns(max, sizeof(max), x->max_ns);
		if (x->cpu_ns_per_op > 0)
			human_ns(cpu, sizeof(cpu), x->cpu_ns_per_op);
		if (x->per_s > 0)
			human_count(rate, sizeof(rate), x->per_s);
		if (x->bytes_per_s > 0)
			snprintf(bw, sizeof(bw), "%.2f GB/s", x->bytes_per_s / 1e9);
		if (x->cores > 0)
			snprintf(bw, sizeof(bw), "%.2f %% core", 100 * x->cores);
		printf("%-34s %10s %10s %10s %10s %10s %12s %10s\n", x->name, p50, p99, p999, max,
		       rate, bw, cpu);
	}
}

static void print_json(const struct floor_report *r)
{
	struct json_object *doc = json_object_new_object(), *list = json_object_new_array();

	if (r->note[0])
		json_object_object_add(doc, "note", json_object_new_string(r->note));
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
		if (x->max_ns > 0)
			json_add_double(o, "max_ns", x->max_ns);
		if (x->ops)
			json_add_int(o, "ops", (long long)x->ops);
		if (x->cpu_ns_per_op > 0)
			json_add_double(o, "cpu_ns_per_op", x->cpu_ns_per_op);
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

int floor_print(const struct floor_report *r, bool json)
{
	bool failed = false;

	if (json)
		print_json(r);
	else
		print_text(r);
	for (size_t i = 0; i < r->n; i++)
		failed |= r->results[i].failed;
	return failed;
}

static const char usage[] =
	"usage: gkv-bench floor [ring] [ring-copy] [pingpong] [memcpy] [sleep] [fio] [options]\n"
	"       gkv-bench floor rados [options]\n"
	"\n"
	"What the machine itself gives, for comparison. Without names: all but rados.\n"
	"  ring        entries, doorbells and completions between two processes\n"
	"  ring-copy   the same with 4 KiB copied per entry\n"
	"  pingpong    one cache line between two processors, round trip\n"
	"  memcpy      4 KiB, 1 MiB, 32 MiB\n"
	"  sleep       a thread that wakes up every millisecond: processor time\n"
	"  fio         io_uring, O_DIRECT, on --file\n"
	"  rados       a direct librados client; alone, and with options of its own: see\n"
	"              gkv-bench floor rados --help\n"
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
	bool json = false;
	int opt, cpus[2];

	if (argc > 1 && !strcmp(argv[1], "rados"))
		return cmd_floor_rados(argc - 1, argv + 1);
	while ((opt = getopt_long(argc, argv, "o:h", longopts, NULL)) != -1) {
		switch (opt) {
		case O_CPUS:
			if (parse_cpus(optarg, cpus, 2) != 2)
				die("floor: --cpus takes two processors, e.g. 0,1");
			o.cpu_client = cpus[0];
			o.cpu_server = cpus[1];
			break;
		case O_TIME:
			o.time_ns = duration_arg("floor", "time", optarg, 1000000);
			break;
		case O_DEPTH:
			o.depth = (uint32_t)count_arg("floor", "depth", optarg, 2, 4096);
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
			o.n_sizes = sizes_arg("floor", "sizes", optarg, o.sizes,
					      ARRAY_SIZE(o.sizes));
			break;
		case O_QDS:
			o.n_qds = sizes_arg("floor", "qds", optarg, o.qds, ARRAY_SIZE(o.qds));
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
	return floor_print(&report, json);
}
