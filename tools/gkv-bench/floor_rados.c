/* SPDX-License-Identifier: MIT */
/* gkv-bench floor rados: options, the cluster handle, the report. */
#include "floor_rados.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "bench.h"
#include "floor.h"
#include "util.h"

static const char usage[] =
	"usage: gkv-bench floor rados --pool P [options]\n"
	"\n"
	"A direct librados client: what the cluster gives without gkv. Objects are named after\n"
	"the keys of gkv-bench run, so that both can work on the same ones.\n"
	"  --conf FILE          of the cluster (default: librados's search path)\n"
	"  --id NAME            user without \"client.\" (default admin)\n"
	"  --keyring FILE       with that user's key (default: as FILE of --conf says)\n"
	"  --pool P, --namespace N\n"
	"  --mode LIST          read: one operation, stat and read; slice: reads of 1 MiB in\n"
	"                       parallel; write: write_full, which overwrites (default read)\n"
	"  --sizes LIST         of the objects (default 4K); also --size\n"
	"  --depth LIST         operations outstanding (default 1)\n"
	"  --keys N             objects to choose from (default 64)\n"
	"  --fill               write them all first\n"
	"  --seconds T          of each measurement (default 1); also --time\n"
	"  --count N            stop after N operations instead\n"
	"  --set OPTION=VALUE   a configuration option of Ceph; may be repeated\n"
	"  -o, --output FORMAT  text or json\n";

struct rados_opts {
	const char *conf;
	const char *id;
	const char *keyring;
	const char *pool;
	const char *nspace;
	const char *set[16];
	size_t n_set;
	uint64_t sizes[8];
	size_t n_sizes;
	uint64_t depths[8];
	size_t n_depths;
	unsigned int modes;		/* bit per mode */
	uint64_t keys;
	uint64_t time_ns;
	uint64_t count;
	bool fill;
	bool json;
};

static unsigned int modes_arg(const char *arg)
{
	char *copy = strdup(arg), *save = NULL;
	unsigned int modes = 0;

	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		int m;

		for (m = 0; m < N_RADOS_MODES; m++)
			if (!strcmp(t, rados_mode_names[m]))
				break;
		if (m == N_RADOS_MODES)
			die("floor: --mode %s: not one of read, slice, write", t);
		modes |= 1u << m;
	}
	free(copy);
	if (!modes)
		die("floor: --mode: none given");
	return modes;
}

static bool parse_args(struct rados_opts *o, int argc, char **argv)
{
	enum {
		O_CONF = 256,
		O_ID,
		O_KEYRING,
		O_POOL,
		O_NSPACE,
		O_MODE,
		O_SIZES,
		O_DEPTH,
		O_KEYS,
		O_FILL,
		O_SECONDS,
		O_COUNT,
		O_SET
	};
	static const struct option longopts[] = {
		{ "conf", required_argument, NULL, O_CONF },
		{ "id", required_argument, NULL, O_ID },
		{ "keyring", required_argument, NULL, O_KEYRING },
		{ "pool", required_argument, NULL, O_POOL },
		{ "namespace", required_argument, NULL, O_NSPACE },
		{ "mode", required_argument, NULL, O_MODE },
		{ "sizes", required_argument, NULL, O_SIZES },
		{ "size", required_argument, NULL, O_SIZES },
		{ "depth", required_argument, NULL, O_DEPTH },
		{ "qds", required_argument, NULL, O_DEPTH },
		{ "keys", required_argument, NULL, O_KEYS },
		{ "fill", no_argument, NULL, O_FILL },
		{ "seconds", required_argument, NULL, O_SECONDS },
		{ "time", required_argument, NULL, O_SECONDS },
		{ "count", required_argument, NULL, O_COUNT },
		{ "set", required_argument, NULL, O_SET },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	int opt;

	*o = (struct rados_opts){ .id = "admin",
				  .sizes = { 4096 },
				  .n_sizes = 1,
				  .depths = { 1 },
				  .n_depths = 1,
				  .modes = 1u << RADOS_READ,
				  .keys = 64,
				  .time_ns = 1000000000u };
	while ((opt = getopt_long(argc, argv, "o:h", longopts, NULL)) != -1) {
		switch (opt) {
		case O_CONF:
			o->conf = optarg;
			break;
		case O_ID:
			o->id = optarg;
			break;
		case O_KEYRING:
			o->keyring = optarg;
			break;
		case O_POOL:
			o->pool = optarg;
			break;
		case O_NSPACE:
			o->nspace = optarg;
			break;
		case O_MODE:
			o->modes = modes_arg(optarg);
			break;
		case O_SIZES:
			o->n_sizes = sizes_arg("floor", "sizes", optarg, o->sizes,
					       ARRAY_SIZE(o->sizes));
			break;
		case O_DEPTH:
			o->n_depths = sizes_arg("floor", "depth", optarg, o->depths,
						ARRAY_SIZE(o->depths));
			break;
		case O_KEYS:
			o->keys = count_arg("floor", "keys", optarg, 1, UINT32_MAX);
			break;
		case O_FILL:
			o->fill = true;
			break;
		case O_SECONDS:
			o->time_ns = duration_arg("floor", "seconds", optarg, 1000000);
			break;
		case O_COUNT:
			o->count = count_arg("floor", "count", optarg, 1, INT64_MAX);
			break;
		case O_SET:
			if (o->n_set == ARRAY_SIZE(o->set) || !strchr(optarg, '='))
				die("floor: --set %s: not OPTION=VALUE, or more than %zu of them",
				    optarg, ARRAY_SIZE(o->set));
			o->set[o->n_set++] = optarg;
			break;
		case 'o':
			o->json = output_is_json(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			return false;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (optind < argc)
		die("floor: rados does not go together with other floors (%s)", argv[optind]);
	if (!o->pool)
		die("floor: rados needs --pool");
	for (size_t i = 0; i < o->n_sizes; i++)
		if (o->sizes[i] > 90u << 20)
			die("floor: an OSD takes objects of at most 90 MiB at once");
	for (size_t i = 0; i < o->n_depths; i++)
		if (o->depths[i] > 1024)
			die("floor: --depth %" PRIu64 ": must be 1 to 1024", o->depths[i]);
	return true;
}

static void set_option(const struct rados_api *api, rados_handle cluster, const char *name,
		       const char *value)
{
	int err = api->conf_set(cluster, name, value);

	if (err)
		die("floor: option %s = %s: %s", name, value, strerror(-err));
}

static rados_handle open_cluster(const struct rados_api *api, const struct rados_opts *o)
{
	rados_handle cluster;
	int err = api->create(&cluster, o->id);

	if (err)
		die("floor: librados: %s", strerror(-err));
	err = api->conf_read_file(cluster, o->conf);
	if (err)
		die("floor: configuration %s: %s", o->conf ? o->conf : "of Ceph", strerror(-err));
	if (o->keyring)
		set_option(api, cluster, "keyring", o->keyring);
	/* With the defaults the fourth 32 MiB operation would block in its submission. */
	set_option(api, cluster, "objecter_inflight_op_bytes", "17179869184");
	set_option(api, cluster, "objecter_inflight_ops", "65536");
	set_option(api, cluster, "client_mount_timeout", "10");
	for (size_t i = 0; i < o->n_set; i++) {
		char name[64];
		const char *eq = strchr(o->set[i], '=');

		snprintf(name, sizeof(name), "%.*s", (int)(eq - o->set[i]), o->set[i]);
		set_option(api, cluster, name, eq + 1);
	}
	err = api->connect(cluster);
	if (err)
		die("floor: connect to the cluster as client.%s: %s", o->id, strerror(-err));
	return cluster;
}

/* Large receive buffers make the allocator count: both sides of a comparison need the same. */
static const char *allocator(void)
{
	return dlsym(RTLD_DEFAULT, "tc_version") ? "tcmalloc" : "the C library's";
}

static bool measure(const struct rados_job *job, struct floor_report *report)
{
	static struct rados_outcome out;
	struct floor_result *res;
	double per_ns = 1 / ticks_per_ns();
	char size[32];
	bool ok = rados_run(job, &out);

	res = floor_add(report, "rados %s %s, QD %" PRIu32, rados_mode_names[job->mode],
			human_bytes(size, sizeof(size), (double)job->size), job->depth);
	if (!ok || !out.ops) {
		res->failed = true;
		snprintf(res->why, sizeof(res->why), "%s", ok ? "nothing completed" : out.why);
		return false;
	}
	res->ops = out.ops;
	res->p50_ns = (double)hist_quantile(&out.hist, 0.5) * per_ns;
	res->p99_ns = (double)hist_quantile(&out.hist, 0.99) * per_ns;
	res->p999_ns = (double)hist_quantile(&out.hist, 0.999) * per_ns;
	res->max_ns = (double)out.hist.max * per_ns;
	res->per_s = (double)out.ops * 1e9 / (double)out.spent_ns;
	res->bytes_per_s = res->per_s * (double)job->size;
	res->cpu_ns_per_op = (double)out.cpu_ns / (double)out.ops;
	return true;
}

static bool measure_size(struct rados_job job, const struct rados_opts *o,
			 struct floor_report *report)
{
	if (o->fill) {
		static struct rados_outcome filled;
		struct rados_job fill = job;

		fill.mode = RADOS_WRITE;
		fill.depth = 4;
		fill.count = o->keys;
		fill.in_order = true;
		if (!rados_run(&fill, &filled))
			die("floor: fill: %s", filled.why);
	}
	for (size_t d = 0; d < o->n_depths; d++) {
		job.depth = (uint32_t)o->depths[d];
		for (int m = 0; m < N_RADOS_MODES; m++) {
			job.mode = (enum rados_mode)m;
			if (o->modes & 1u << m && !measure(&job, report))
				return false;
		}
	}
	return true;
}

int cmd_floor_rados(int argc, char **argv)
{
	static struct floor_report report;
	struct rados_opts o;
	struct rados_job job;
	const struct rados_api *api;
	rados_handle cluster, ioctx;
	int err, major, minor, extra, rc;
	char why[256];
	bool ok = true;

	if (!parse_args(&o, argc, argv))
		return 0;
	api = rados_api_load(why, sizeof(why));
	if (!api)
		die("floor: %s", why);
	ticks_per_ns();
	cluster = open_cluster(api, &o);
	err = api->ioctx_create(cluster, o.pool, &ioctx);
	if (err)
		die("floor: pool %s: %s", o.pool, strerror(-err));
	api->ioctx_set_namespace(ioctx, o.nspace ? o.nspace : "");
	api->version(&major, &minor, &extra);
	snprintf(report.note, sizeof(report.note), "librados API %d.%d.%d, allocator %s", major,
		 minor, extra, allocator());
	job = (struct rados_job){ .api = api,
				  .ioctx = ioctx,
				  .keys = o.keys,
				  .time_ns = o.time_ns,
				  .count = o.count,
				  .limit_ns = 30000000000u };
	for (size_t s = 0; ok && s < o.n_sizes; s++) {
		job.size = o.sizes[s];
		ok = measure_size(job, &o, &report);
	}
	rc = floor_print(&report, o.json);
	if (!ok) {
		/* What is still out would keep a shutdown waiting, perhaps for ever. */
		fflush(stdout);
		_exit(rc);
	}
	api->ioctx_destroy(ioctx);
	api->shutdown(cluster);
	return rc;
}
