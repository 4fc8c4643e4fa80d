/* SPDX-License-Identifier: MIT */
/* gkv-bench trace: options, set-up, report. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "replay.h"
#include "trace.h"
#include "util.h"

/* Registered memory per client when the queue depth is not given. */
#define DEFAULT_MEMORY (256ull << 20)

static const char usage[] =
	"usage: gkv-bench trace FILE [options]\n"
	"\n"
	"Replays a Mooncake request trace (JSON lines with hash_ids): for each request Exist on\n"
	"its blocks, Retrieve of the stored prefix, Store of the rest, every byte verified.\n"
	"  --model NAME         KV-cache size by model preset (default Llama-3-8B; list: "
	"--models)\n"
	"  --tp N, --pp N       tensor and pipeline parallel ranks (default 1)\n"
	"  --rank R|all         replay one rank of tp x pp, or all (default all)\n"
	"  --layers-per-value N cut a rank's block into values of N layers (default: all layers)\n"
	"  --elem-bytes N       bytes per KV element: 2 for bf16, 1 for fp8 (default 2)\n"
	"  --block-tokens N     tokens per hash_id (default 512)\n"
	"  --value-size SIZE    one value of SIZE per block instead of a model\n"
	"  --salt TEXT          goes into every key, to keep replays apart\n"
	"  --skip N, --limit N  requests to leave out at the start, and to replay\n"
	"  --clients N          threads, each with a session of its own (default 1)\n"
	"  --qd N               commands outstanding per client (default: 32, or less so that\n"
	"                       buffers stay within 256 MiB)\n"
	"  --speed X            keep to the time stamps, X times as fast (default: no waiting)\n"
	"  --verify on|off      compare retrieved bytes (default on)\n"
	"  --seed N             seed of the values (default 1)\n"
	"  --socket PATH, --ns NAME, --cpus LIST, --timeout T, --prp, --csum, --polled,\n"
	"  --mode N             as for \"run\"\n"
	"  --plot FILE.svg      draw the latency distribution\n"
	"  --dry-run            no daemon: print the layout and the ideal hit ratio\n"
	"  -o, --output FORMAT  text or json\n"
	"  -q, --quiet          no progress\n";

static void list_models(void)
{
	printf("%-16s %7s %9s %9s %14s %16s\n", "model", "layers", "KV heads", "head size",
	       "per token", "512-token block");
	for (size_t i = 0; i < n_presets; i++) {
		const struct preset *p = &presets[i];
		uint64_t bytes = preset_token_bytes(p, 2);
		char a[32], b[32];

		printf("%-16s %7" PRIu32 " %9" PRIu32 " %9" PRIu32 " %14s %16s%s\n", p->name,
		       p->layers, p->kv_heads, p->latent ? p->latent : p->head_dim,
		       human_bytes(a, sizeof(a), (double)bytes),
		       human_bytes(b, sizeof(b), 512.0 * (double)bytes),
		       p->latent ? "  (MLA)" : "");
	}
}

static bool parse_args(struct options *o, struct replay *r, int argc, char **argv)
{
	enum {
		O_MODEL = 256,
		O_MODELS,
		O_TP,
		O_PP,
		O_RANK,
		O_LPV,
		O_ELEM,
		O_TOKENS,
		O_VSIZE,
		O_SALT,
		O_SKIP,
		O_LIMIT,
		O_CLIENTS,
		O_QD,
		O_SPEED,
		O_DRY,
	};
	static const struct option longopts[] = {
		{ "model", required_argument, NULL, O_MODEL },
		{ "models", no_argument, NULL, O_MODELS },
		{ "tp", required_argument, NULL, O_TP },
		{ "pp", required_argument, NULL, O_PP },
		{ "rank", required_argument, NULL, O_RANK },
		{ "layers-per-value", required_argument, NULL, O_LPV },
		{ "elem-bytes", required_argument, NULL, O_ELEM },
		{ "block-tokens", required_argument, NULL, O_TOKENS },
		{ "value-size", required_argument, NULL, O_VSIZE },
		{ "salt", required_argument, NULL, O_SALT },
		{ "skip", required_argument, NULL, O_SKIP },
		{ "limit", required_argument, NULL, O_LIMIT },
		{ "clients", required_argument, NULL, O_CLIENTS },
		{ "threads", required_argument, NULL, O_CLIENTS },
		{ "qd", required_argument, NULL, O_QD },
		{ "speed", required_argument, NULL, O_SPEED },
		{ "dry-run", no_argument, NULL, O_DRY },
		CLIENT_LONGOPTS,
		{},
	};
	char *end;
	int opt;

	*o = (struct options){ .clients = 1,
			       .layout = { .block_tokens = 512,
					   .elem_bytes = 2,
					   .tp = 1,
					   .pp = 1,
					   .salt = "",
					   .rank = LAYOUT_ALL_RANKS } };
	o->layout.preset = preset_find("Llama-3-8B");
	client_opts_init(&o->client);
	while ((opt = getopt_long(argc, argv, CLIENT_SHORTOPTS, longopts, NULL)) != -1) {
		if (client_opt(&o->client, "trace", opt, optarg))
			continue;
		switch (opt) {
		case O_MODEL:
			o->layout.preset = preset_find(optarg);
			if (!o->layout.preset)
				die("trace: --model %s: no such preset (list: gkv-bench trace "
				    "--models)",
				    optarg);
			break;
		case O_MODELS:
			list_models();
			return false;
		case O_TP:
			o->layout.tp = (uint32_t)count_arg("trace", "tp", optarg, 1, 1024);
			break;
		case O_PP:
			o->layout.pp = (uint32_t)count_arg("trace", "pp", optarg, 1, 1024);
			break;
		case O_RANK:
			o->layout.rank = LAYOUT_ALL_RANKS;
			if (strcmp(optarg, "all"))
				o->layout.rank = (int32_t)count_arg("trace", "rank", optarg, 0, 1 << 20);
			break;
		case O_LPV:
			o->layout.layers_per_value =
				(uint32_t)count_arg("trace", "layers-per-value", optarg, 1, 1024);
			break;
		case O_ELEM:
			o->layout.elem_bytes = (uint32_t)count_arg("trace", "elem-bytes", optarg, 1, 8);
			break;
		case O_TOKENS:
			o->layout.block_tokens =
				(uint32_t)count_arg("trace", "block-tokens", optarg, 1, 1 << 20);
			break;
		case O_VSIZE:
			if (parse_size(optarg, &o->layout.value_size) ||
			    o->layout.value_size > UINT32_MAX)
				die("trace: --value-size %s: not a size below 4 GiB", optarg);
			o->layout.preset = NULL;
			break;
		case O_SALT:
			o->layout.salt = optarg;
			break;
		case O_SKIP:
			o->skip = count_arg("trace", "skip", optarg, 0, UINT32_MAX);
			break;
		case O_LIMIT:
			o->limit = count_arg("trace", "limit", optarg, 1, UINT32_MAX);
			break;
		case O_CLIENTS:
			o->clients = (uint32_t)count_arg("trace", "clients", optarg, 1, MAX_THREADS);
			break;
		case O_QD:
			o->qd = (uint32_t)count_arg("trace", "qd", optarg, 1, 4095);
			break;
		case O_SPEED:
			r->speed = strtod(optarg, &end);
			if (*end || end == optarg || !(r->speed > 0) || r->speed > 1e9)
				die("trace: --speed %s: not a factor above 0", optarg);
			break;
		case O_DRY:
			o->dry_run = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return false;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (optind + 1 != argc)
		die("trace: one trace file is needed (see gkv-bench trace --help)");
	o->file = argv[optind];
	r->verify = o->client.verify;
	r->seed = o->client.seed;
	return true;
}

static void load(struct options *o, struct replay *r)
{
	char err[512];
	int n;

	if (trace_load(o->file, o->skip, o->limit, &r->trace, err, sizeof(err)))
		die("trace: %s", err);
	n = layout_shards(&o->layout, &r->shards, err, sizeof(err));
	if (n < 0)
		die("trace: %s", err);
	r->n_shards = (uint32_t)n;
	for (uint32_t i = 0; i < r->n_shards; i++)
		if (r->shards[i].size > r->value_max)
			r->value_max = r->shards[i].size;
	for (size_t i = 0; i < r->trace.n_reqs; i++)
		if (r->trace.reqs[i].blocks * r->n_shards > r->max_items)
			r->max_items = r->trace.reqs[i].blocks * r->n_shards;
	if (r->max_items > UINT32_MAX / 2)
		die("trace: a request of %zu values is too long", r->max_items);
	r->stride = (r->value_max + 4095) & ~4095ull;
}

/* Never truncate: refuse, and say what would fit. */
static void check_value_size(const struct options *o, const struct replay *r,
			     const struct gkv_ns_info *ns)
{
	const struct layout *l = &o->layout;
	char a[32], b[32];
	uint64_t layer = 0, fit;

	if (r->value_max <= ns->value_max)
		return;
	for (uint32_t i = 0; i < r->n_shards; i++)
		if (r->shards[i].size == r->value_max)
			layer = r->value_max /
				(r->shards[i].last_layer - r->shards[i].first_layer + 1);
	fit = l->preset && layer ? ns->value_max / layer : 0;
	human_bytes(a, sizeof(a), (double)r->value_max);
	human_bytes(b, sizeof(b), ns->value_max);
	if (fit)
		die("trace: values of %s exceed the largest value of namespace %s, %s: use "
		    "--layers-per-value %" PRIu64 " or less",
		    a, ns->name, b, fit);
	die("trace: values of %s exceed the largest value of namespace %s, %s", a, ns->name, b);
}

static void set_up_client(const struct options *o, struct replay *r, struct client *c, uint32_t i)
{
	uint32_t qd = r->qd;
	struct gkv_mem *mem;

	c->replay = r;
	c->cpu = o->client.n_cpus ? o->client.cpus[i % (uint32_t)o->client.n_cpus] : -1;
	if (i)
		target_open(&c->target, o->client.socket, o->client.ns, 1);
	c->target.mode = o->client.mode;
	mem = target_mem(&c->target, r->stride ? r->stride * qd : 4096);
	c->buf = gkv_mem_addr(mem);
	memset(c->buf, 0x5a, gkv_mem_len(mem));
	c->qp = target_qp(&c->target, qd, o->client.qp_flags, o->client.timeout_ns);
	c->items = calloc(r->max_items + 1, sizeof(*c->items));
	c->retry = calloc(r->max_items + qd, sizeof(*c->retry));
	c->slots = calloc(qd, sizeof(*c->slots));
	c->free_slots = calloc(qd, sizeof(*c->free_slots));
	if (!c->items || !c->retry || !c->slots || !c->free_slots)
		die("out of memory");
	for (c->n_free = 0; c->n_free < qd; c->n_free++)
		c->free_slots[c->n_free] = qd - 1 - c->n_free;
}

/* Connect the first client, and settle what its namespace decides. */
static void open_first(const struct options *o, struct replay *r, struct client *c)
{
	target_open(&c->target, o->client.socket, o->client.ns, 1);
	check_value_size(o, r, &c->target.ns);
	r->qd = o->qd;
	if (!r->qd) {
		uint64_t fit = DEFAULT_MEMORY / (r->stride ? r->stride : 1);

		r->qd = fit < 1 ? 1 : fit > 32 ? 32 : (uint32_t)fit;
	}
	target_check(&c->target, &(struct demand){ .value_max = r->value_max,
						   .memory = r->stride * r->qd,
						   .qd = r->qd,
						   .qps = 1,
						   .writes = true });
	if (c->target.ns.key_max < 16)
		die("namespace %s takes keys of at most %" PRIu32 " bytes; the trace's have 16",
		    c->target.ns.name, c->target.ns.key_max);
}

static void show(struct progress *p, const struct replay *r, struct client *clients, uint32_t n)
{
	struct sums s = replay_sums(clients, n);
	double seconds = (double)(now_ns() - r->start_ns) / 1e9;
	char a[32], b[32];

	progress_show(p,
		      "replay %3.0f %%  %" PRIu64 "/%zu requests, hit ratio %.1f %%, stored %s, "
		      "retrieved %s, %.2f GB/s",
		      100.0 * (double)s.requests / (double)r->trace.n_reqs, s.requests,
		      r->trace.n_reqs, s.blocks ? 100.0 * (double)s.hits / (double)s.blocks : 0,
		      human_bytes(a, sizeof(a), (double)s.stored),
		      human_bytes(b, sizeof(b), (double)s.retrieved),
		      (double)(s.stored + s.retrieved) / 1e9 / seconds);
}

static uint64_t replay(const struct options *o, struct replay *r, struct client *clients)
{
	struct progress p;

	progress_init(&p, o->client.quiet);
	atomic_store(&r->running, o->clients);
	r->start_ns = now_ns();
	for (uint32_t i = 0; i < o->clients; i++)
		if (pthread_create(&clients[i].thread, NULL, client_main, &clients[i]))
			die("cannot start a thread");
	while (atomic_load(&r->running)) {
		if (progress_due(&p))
			show(&p, r, clients, o->clients);
		usleep(2000);
	}
	for (uint32_t i = 0; i < o->clients; i++)
		pthread_join(clients[i].thread, NULL);
	progress_end(&p);
	return now_ns() - r->start_ns;
}

static void tear_down(const struct options *o, struct replay *r, struct client *clients)
{
	for (uint32_t i = 0; clients && i < o->clients; i++) {
		target_close(&clients[i].target);
		free(clients[i].items);
		free(clients[i].retry);
		free(clients[i].slots);
		free(clients[i].free_slots);
	}
	free(clients);
	free(r->shards);
	trace_free(&r->trace);
}

int cmd_trace(int argc, char **argv)
{
	static struct options o;
	static struct replay r;
	struct client *clients = NULL;
	struct trace_ideal ideal;
	int rc;

	if (!parse_args(&o, &r, argc, argv))
		return 0;
	ticks_per_ns();
	load(&o, &r);
	if (trace_ideal(&r.trace, &ideal))
		die("out of memory");
	if (!o.dry_run) {
		uint64_t spent;

		clients = aligned_alloc(128, sizeof(*clients) * o.clients);
		if (!clients)
			die("out of memory");
		memset(clients, 0, sizeof(*clients) * o.clients);
		open_first(&o, &r, &clients[0]);
		if (!o.client.quiet)
			trace_describe(stderr, &o, &r);
		for (uint32_t i = 0; i < o.clients; i++)
			set_up_client(&o, &r, &clients[i], i);
		spent = replay(&o, &r, clients);
		rc = trace_report(&o, &r, &ideal, clients, spent);
	} else {
		rc = trace_report(&o, &r, &ideal, NULL, 0);
	}
	tear_down(&o, &r, clients);
	return rc;
}
