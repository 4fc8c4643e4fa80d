/* SPDX-License-Identifier: MIT */
/* gkv-bench run: options, set-up, the phases. */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "daemon.h"
#include "util.h"

const char *const kind_names[N_KINDS] = { "retrieve", "store", "exist", "delete", "list", "flush" };

/* Spin for so long without a completion before sleeping. */
#define SPIN_NS 200000

static const char usage[] =
	"usage: gkv-bench run [options]\n"
	"\n"
	"Runs a mix of commands and reports latency and rates.\n"
	"  --socket PATH        control socket of the daemon (default $GKV_SOCKET)\n"
	"  --ns NAME            namespace (default: the first one)\n"
	"  --mix LIST           e.g. retrieve:70,store:20,exist:10; also delete, list, flush\n"
	"                       (default retrieve)\n"
	"  --sizes S            value size: 4K; a choice 4K,64K; any size in 1K-64K (default 4K)\n"
	"  --keys N             key space (default 10000)\n"
	"  --dist D             uniform, zipf, or zipf:THETA with 0 < THETA < 1 (default uniform)\n"
	"  --qd N               commands outstanding per queue pair (default 1)\n"
	"  --qps N              queue pairs in all (default: one a thread)\n"
	"  --threads N          client threads (default 1)\n"
	"  --batch N            ring the doorbell once N places are free (default: QD/4 above\n"
	"                       QD 32, else 1)\n"
	"  --time T             duration (default 5s)\n"
	"  --count N            stop after N commands instead\n"
	"  --warm T             run for T first without counting (default: not at all)\n"
	"  --fill yes|no        store every key first (default: if the mix reads or deletes)\n"
	"  --verify on|off      stored values are patterns, retrieved ones are compared byte by\n"
	"                       byte (default on)\n"
	"  --seed N             seed of the patterns (default 1)\n"
	"  --prp                describe buffers with PRPs\n"
	"  --csum               crc32c travels with the values\n"
	"  --polled             never wake the daemon: act as a GPU does\n"
	"  --mode N             memory mode, 0x0 to 0xf: what lies in VRAM (0)\n"
	"  --spin, --no-spin    never sleep while waiting for completions, or sleep at once\n"
	"                       (default: after 200 us)\n"
	"  --idle-qps N         N further queue pairs, polled and idle (default 0)\n"
	"  --idle-depth N       entries of each (default 1024)\n"
	"  --timeout T          deadline of a command (default: follows the namespace)\n"
	"  --list-len SIZE      buffer of a List (default 4K)\n"
	"  --cpus LIST          processors for the threads, in order\n"
	"  --plot FILE.svg      draw the latency distribution\n"
	"  -o, --output FORMAT  text or json\n"
	"  -q, --quiet          no progress\n";

static void parse_mix(struct run_cfg *c, const char *arg)
{
	char *copy = strdup(arg), *save = NULL;

	memset(c->weight, 0, sizeof(c->weight));
	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		char *colon = strchr(t, ':');
		uint64_t weight = 1;
		int k;

		if (colon) {
			*colon = 0;
			if (parse_count(colon + 1, &weight) || weight > 1000000)
				die("run: --mix: weight of %s must be 0 to 1000000", t);
		}
		for (k = 0; k < N_KINDS; k++)
			if (!strcmp(t, kind_names[k]))
				break;
		if (k == N_KINDS)
			die("run: --mix: %s: not one of retrieve, store, exist, delete, list, "
			    "flush",
			    t);
		c->weight[k] += weight;
	}
	free(copy);
	c->mix_text = arg;
}

static void parse_sizes(struct run_cfg *c, const char *arg)
{
	char *copy = strdup(arg), *dash = strchr(copy, '-'), *save = NULL;

	c->n_sizes = 0;
	c->range = false;
	if (dash) {
		*dash = 0;
		if (parse_size(copy, &c->size[0]) || parse_size(dash + 1, &c->size[1]) ||
		    c->size[0] > c->size[1])
			die("run: --sizes %s: not a range such as 4K-64K", arg);
		c->range = true;
		c->n_sizes = 2;
	} else {
		for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save))
			if (c->n_sizes == MAX_SIZES || parse_size(t, &c->size[c->n_sizes++]))
				die("run: --sizes %s: not a list of at most %d sizes", arg,
				    MAX_SIZES);
	}
	if (!c->n_sizes)
		die("run: --sizes: no size given");
	c->size_max = 0;
	for (uint32_t i = 0; i < c->n_sizes; i++)
		if (c->size[i] > c->size_max)
			c->size_max = c->size[i];
	if (c->size_max > UINT32_MAX)
		die("run: --sizes %s: a value has at most 4294967295 bytes", arg);
	free(copy);
	c->sizes_text = arg;
}

static void parse_dist(struct run_cfg *c, const char *arg)
{
	char *end;

	if (!strcmp(arg, "uniform")) {
		c->theta = 0;
		return;
	}
	c->theta = 0.99;
	if (!strcmp(arg, "zipf"))
		return;
	if (!strncmp(arg, "zipf:", 5)) {
		c->theta = strtod(arg + 5, &end);
		if (!*end && end != arg + 5 && c->theta > 0 && c->theta < 1)
			return;
	}
	die("run: --dist %s: must be uniform, zipf or zipf:THETA with 0 < THETA < 1", arg);
}

static bool parse_args(struct run_cfg *c, int argc, char **argv)
{
	enum {
		O_MIX = 256,
		O_SIZES,
		O_KEYS,
		O_DIST,
		O_QD,
		O_QPS,
		O_THREADS,
		O_BATCH,
		O_TIME,
		O_WARM,
		O_COUNT,
		O_FILL,
		O_SPIN,
		O_NOSPIN,
		O_IDLEQPS,
		O_IDLEDEPTH,
		O_LISTLEN,
	};
	static const struct option longopts[] = {
		{ "mix", required_argument, NULL, O_MIX },
		{ "size", required_argument, NULL, O_SIZES },
		{ "sizes", required_argument, NULL, O_SIZES },
		{ "keys", required_argument, NULL, O_KEYS },
		{ "dist", required_argument, NULL, O_DIST },
		{ "qd", required_argument, NULL, O_QD },
		{ "qps", required_argument, NULL, O_QPS },
		{ "threads", required_argument, NULL, O_THREADS },
		{ "batch", required_argument, NULL, O_BATCH },
		{ "time", required_argument, NULL, O_TIME },
		{ "warm", required_argument, NULL, O_WARM },
		{ "count", required_argument, NULL, O_COUNT },
		{ "fill", required_argument, NULL, O_FILL },
		{ "spin", no_argument, NULL, O_SPIN },
		{ "no-spin", no_argument, NULL, O_NOSPIN },
		{ "idle-qps", required_argument, NULL, O_IDLEQPS },
		{ "idle-depth", required_argument, NULL, O_IDLEDEPTH },
		{ "list-len", required_argument, NULL, O_LISTLEN },
		CLIENT_LONGOPTS,
		{},
	};
	bool fill_given = false;
	uint64_t v;
	int opt;

	*c = (struct run_cfg){ .qd = 1,
			       .threads = 1,
			       .time_ns = 5000000000u,
			       .keys = 10000,
			       .spin_ns = SPIN_NS,
			       .list_len = 4096,
			       .idle_depth = 1024 };
	client_opts_init(&c->client);
	parse_mix(c, "retrieve");
	parse_sizes(c, "4K");
	while ((opt = getopt_long(argc, argv, CLIENT_SHORTOPTS, longopts, NULL)) != -1) {
		if (client_opt(&c->client, "run", opt, optarg))
			continue;
		switch (opt) {
		case O_MIX:
			parse_mix(c, optarg);
			break;
		case O_SIZES:
			parse_sizes(c, optarg);
			break;
		case O_KEYS:
			c->keys = count_arg("run", "keys", optarg, 1, UINT32_MAX);
			break;
		case O_DIST:
			parse_dist(c, optarg);
			break;
		case O_QD:
			c->qd = (uint32_t)count_arg("run", "qd", optarg, 1, 65535);
			break;
		case O_QPS:
			c->qps = (uint32_t)count_arg("run", "qps", optarg, 1, 65535);
			break;
		case O_THREADS:
			c->threads = (uint32_t)count_arg("run", "threads", optarg, 1, MAX_THREADS);
			break;
		case O_BATCH:
			c->batch = (uint32_t)count_arg("run", "batch", optarg, 1, 256);
			break;
		case O_TIME:
			c->time_ns = duration_arg("run", "time", optarg, 1);
			break;
		case O_WARM:
			c->warm_ns = duration_arg("run", "warm", optarg, 1);
			break;
		case O_COUNT:
			c->count = count_arg("run", "count", optarg, 1, INT64_MAX);
			break;
		case O_FILL:
			c->fill = switch_arg("run", "fill", optarg);
			fill_given = true;
			break;
		case O_SPIN:
			c->spin_ns = UINT64_MAX;
			break;
		case O_NOSPIN:
			c->spin_ns = 0;
			break;
		case O_IDLEQPS:
			c->idle_qps = (uint32_t)count_arg("run", "idle-qps", optarg, 0, 65535);
			break;
		case O_IDLEDEPTH:
			c->idle_depth = (uint32_t)count_arg("run", "idle-depth", optarg, 2, 65536);
			break;
		case O_LISTLEN:
			if (parse_size(optarg, &v) || v < 64 || v > (64u << 20))
				die("run: --list-len %s: must be 64 bytes to 64 MiB", optarg);
			c->list_len = (uint32_t)v;
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
		die("run: %s: unexpected argument", argv[optind]);
	if (!c->qps)
		c->qps = c->threads;
	if (c->qps < c->threads)
		die("run: --qps %" PRIu32 " with --threads %" PRIu32
		    ": a queue pair belongs to one thread, so there must be one for each",
		    c->qps, c->threads);
	if (!c->batch)
		c->batch = c->qd > 32 ? c->qd / 4 : 1;
	if (c->batch > 256)
		c->batch = 256;
	if (c->batch > c->qd)
		die("run: --batch %" PRIu32 " exceeds --qd %" PRIu32, c->batch, c->qd);
	if (!fill_given)
		c->fill = c->weight[K_RETRIEVE] || c->weight[K_EXIST] || c->weight[K_DELETE];
	return true;
}

/* Spread the mix over a table, so that choosing is one load. */
static void build_mix(struct run *r)
{
	uint64_t total = 0, seen = 0;
	uint32_t at = 0;

	for (int k = 0; k < N_KINDS; k++)
		total += r->cfg.weight[k];
	if (!total)
		die("run: --mix: no command has a weight");
	for (int k = 0; k < N_KINDS; k++) {
		uint32_t end;

		seen += r->cfg.weight[k];
		end = (uint32_t)(seen * MIX_TABLE / total);
		/* Rare is not never. */
		if (r->cfg.weight[k] && end == at && end < MIX_TABLE)
			end++;
		while (at < end)
			r->mix[at++] = (uint8_t)k;
	}
}

static void set_up(struct run *r)
{
	struct run_cfg *c = &r->cfg;
	bool values = c->fill || c->weight[K_RETRIEVE] || c->weight[K_STORE];
	uint64_t len = values ? c->size_max : 0;
	struct gkv_mem *mem = NULL;
	uint8_t *base = NULL;
	uint32_t next = 0;

	if (c->weight[K_LIST] && c->list_len > len)
		len = c->list_len;
	r->stride = (len + 4095) & ~4095ull;
	target_open(&r->target, c->client.socket, c->client.ns, c->qps + c->idle_qps);
	r->target.mode = c->client.mode;
	target_check(&r->target,
		     &(struct demand){
			     .value_max = values ? c->size_max : 0,
			     .memory = r->stride * c->qd * c->qps,
			     .qd = c->idle_qps && c->idle_depth > c->qd ? c->idle_depth - 1 : c->qd,
			     .qps = c->qps + c->idle_qps,
			     .writes = c->fill || c->weight[K_STORE] || c->weight[K_DELETE] });
	if (r->target.ns.key_max < 16)
		die("namespace %s takes keys of at most %" PRIu32 " bytes; the benchmark's have 16",
		    r->target.ns.name, r->target.ns.key_max);
	if (r->stride) {
		mem = target_mem(&r->target, r->stride * c->qd * c->qps);
		base = gkv_mem_addr(mem);
		/* Not the page of zeros, whatever --verify says. */
		memset(base, 0x5a, gkv_mem_len(mem));
	}
	for (uint32_t i = 0; i < c->idle_qps; i++)
		target_qp(&r->target, c->idle_depth - 1, GKV_QP_POLLED, 0);
	r->workers = aligned_alloc(128, sizeof(*r->workers) * c->threads);
	if (!r->workers)
		die("out of memory");
	memset(r->workers, 0, sizeof(*r->workers) * c->threads);
	for (uint32_t t = 0; t < c->threads; t++) {
		struct worker *w = &r->workers[t];

		w->run = r;
		w->cpu = c->client.n_cpus ? c->client.cpus[t % (uint32_t)c->client.n_cpus] : -1;
		w->n_lanes = c->qps / c->threads + (t < c->qps % c->threads);
		w->lanes = calloc(w->n_lanes, sizeof(*w->lanes));
		if (!w->lanes)
			die("out of memory");
		for (uint32_t i = 0; i < w->n_lanes; i++, next++) {
			struct lane *lane = &w->lanes[i];

			lane->qp = target_qp(&r->target, c->qd, c->client.qp_flags,
					     c->client.timeout_ns);
			lane->buf = base ? base + r->stride * c->qd * next : NULL;
			lane->slots = calloc(c->qd, sizeof(*lane->slots));
			lane->free_slots = calloc(c->qd, sizeof(*lane->free_slots));
			lane->retry = calloc(c->qd, sizeof(*lane->retry));
			if (!lane->slots || !lane->free_slots || !lane->retry)
				die("out of memory");
			for (lane->n_free = 0; lane->n_free < c->qd; lane->n_free++)
				lane->free_slots[lane->n_free] = c->qd - 1 - lane->n_free;
		}
	}
}

static uint64_t total_done(const struct run *r)
{
	uint64_t done = 0;

	for (uint32_t t = 0; t < r->cfg.threads; t++)
		done += atomic_load_explicit(&r->workers[t].done, memory_order_relaxed);
	return done;
}

static void show(struct progress *p, const struct run *r, bool fill, uint64_t start)
{
	uint64_t done = total_done(r), spent = now_ns() - start;
	uint64_t goal = fill ? r->cfg.keys : r->cfg.count;
	double part = goal ? (double)done / (double)goal : (double)spent / (double)r->cfg.time_ns;
	char count[32], rate[32];

	progress_show(p, "%s %3.0f %%  %s commands, %s/s", fill ? "fill" : "run ",
		      part > 1 ? 100 : part * 100, human_count(count, sizeof(count), (double)done),
		      human_count(rate, sizeof(rate), (double)done * 1e9 / (double)(spent + 1)));
}

/* Run one phase on all threads. Returns its duration. */
static uint64_t phase(struct run *r, bool fill)
{
	struct run_cfg *c = &r->cfg;
	struct progress p;
	uint64_t start, end;

	for (uint32_t t = 0; t < c->threads; t++) {
		struct worker *w = &r->workers[t];

		for (int k = 0; k < N_KINDS; k++)
			hist_init(&w->hist[k]);
		memset(w->bytes, 0, sizeof(w->bytes));
		w->quota = c->count / c->threads + (t < c->count % c->threads);
		/* Fill and run store different versions. */
		w->rng = mix64(now_ns()) + t;
		atomic_store(&w->done, 0);
	}
	progress_init(&p, c->client.quiet);
	atomic_store(&r->running, c->threads);
	if (pthread_barrier_init(&r->start, NULL, c->threads + 1))
		die("out of memory");
	for (uint32_t t = 0; t < c->threads; t++)
		if (pthread_create(&r->workers[t].thread, NULL, fill ? worker_fill : worker_run,
				   &r->workers[t]))
			die("cannot start a thread");
	pthread_barrier_wait(&r->start);
	start = now_ns();
	end = fill || c->count ? UINT64_MAX : start + c->time_ns;
	while (atomic_load(&r->running) && now_ns() < end) {
		if (progress_due(&p))
			show(&p, r, fill, start);
		usleep(end - now_ns() < 2000000 ? 200 : 2000);
	}
	if (!fill)
		atomic_store(&r->stop, true);
	/* The threads' own clocks count: this one may have been kept waiting. */
	start = UINT64_MAX;
	end = 0;
	for (uint32_t t = 0; t < c->threads; t++) {
		struct worker *w = &r->workers[t];

		pthread_join(w->thread, NULL);
		start = w->begin_ns < start ? w->begin_ns : start;
		end = w->end_ns > end ? w->end_ns : end;
	}
	pthread_barrier_destroy(&r->start);
	progress_end(&p);
	return end - start;
}

/* Run by time without counting; what fails counts all the same. */
static void warm_up(struct run *r)
{
	struct run_cfg *c = &r->cfg;
	uint64_t time_ns = c->time_ns, count = c->count;
	bool lost = false;

	c->time_ns = c->warm_ns;
	c->count = 0;
	phase(r, false);
	c->time_ns = time_ns;
	c->count = count;
	for (uint32_t t = 0; t < c->threads; t++)
		lost |= r->workers[t].lost;
	atomic_store(&r->stop, lost);
}

static void measure(struct run *r)
{
	pid_t pid = daemon_pid(r->cfg.client.socket);
	uint64_t before = pid > 0 ? daemon_cpu_ns(pid) : 0, after;

	r->run_ns = phase(r, false);
	/* Unknown when the daemon was started anew meanwhile. */
	after = before && daemon_pid(r->cfg.client.socket) == pid ? daemon_cpu_ns(pid) : 0;
	r->daemon_ns = after > before ? after - before : 0;
}

static void tear_down(struct run *r)
{
	target_close(&r->target);
	for (uint32_t t = 0; t < r->cfg.threads; t++) {
		struct worker *w = &r->workers[t];

		for (uint32_t i = 0; i < w->n_lanes; i++) {
			free(w->lanes[i].slots);
			free(w->lanes[i].free_slots);
			free(w->lanes[i].retry);
		}
		free(w->lanes);
	}
	free(r->workers);
}

int cmd_run(int argc, char **argv)
{
	static struct run r;
	int rc;

	if (!parse_args(&r.cfg, argc, argv))
		return 0;
	ticks_per_ns();
	build_mix(&r);
	keydist_init(&r.dist, r.cfg.keys, r.cfg.theta);
	set_up(&r);
	if (r.cfg.fill) {
		r.fill_ns = phase(&r, true);
		for (uint32_t t = 0; t < r.cfg.threads; t++)
			r.fill_bytes += r.workers[t].bytes[K_STORE];
	}
	/* Without Deletes, every key that was filled must be there. */
	r.misses_expected = r.cfg.weight[K_DELETE] || !r.cfg.fill;
	if (r.cfg.warm_ns && !atomic_load(&r.stop))
		warm_up(&r);
	if (!atomic_load(&r.stop))
		measure(&r);
	rc = run_report(&r);
	tear_down(&r);
	return rc;
}
