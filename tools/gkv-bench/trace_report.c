/* SPDX-License-Identifier: MIT */
/* What gkv-bench trace prints. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "bench.h"
#include "plot.h"
#include "trace.h"
#include "util.h"

static const char *const step_names[N_STEPS] = { "exist", "retrieve", "store" };

struct result {
	struct sums sums;
	struct hist hist[N_STEPS];
	struct errors errors;
	uint64_t stale;
	uint64_t mismatches;
	uint64_t retries;
	uint64_t retried;
	uint64_t connect_ns;
	uint64_t register_ns;
	uint64_t qp_ns;
	double seconds;
	bool complete; /* every request was replayed */
};

struct sums replay_sums(struct client *clients, uint32_t n)
{
	struct sums s = {};

	for (uint32_t i = 0; i < n; i++) {
		s.requests += atomic_load_explicit(&clients[i].requests, memory_order_relaxed);
		s.blocks += atomic_load_explicit(&clients[i].blocks, memory_order_relaxed);
		s.hits += atomic_load_explicit(&clients[i].hit_blocks, memory_order_relaxed);
		s.stored += atomic_load_explicit(&clients[i].stored, memory_order_relaxed);
		s.retrieved += atomic_load_explicit(&clients[i].retrieved, memory_order_relaxed);
	}
	return s;
}

static uint64_t block_bytes(const struct replay *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->n_shards; i++)
		sum += r->shards[i].size;
	return sum;
}

void trace_describe(FILE *f, const struct options *o, const struct replay *r)
{
	const struct layout *l = &o->layout;
	char a[32], b[32];

	if (!l->preset) {
		fprintf(f, "layout: 1 value of %s per block\n",
			human_bytes(a, sizeof(a), (double)r->value_max));
		return;
	}
	fprintf(f, "layout: %s, tp %" PRIu32 ", pp %" PRIu32 ", ", l->preset->name, l->tp, l->pp);
	if (l->rank == LAYOUT_ALL_RANKS)
		fputs("all ranks", f);
	else
		fprintf(f, "rank %" PRId32, l->rank);
	fprintf(f, ": a block of %" PRIu32 " tokens is %" PRIu32 " value%s of %s%s",
		l->block_tokens, r->n_shards, r->n_shards == 1 ? "" : "s",
		block_bytes(r) == r->value_max * r->n_shards ? "" : "up to ",
		human_bytes(a, sizeof(a), (double)r->value_max));
	if (r->n_shards > 1)
		fprintf(f, ", %s in all", human_bytes(b, sizeof(b), (double)block_bytes(r)));
	fputc('\n', f);
}

static void collect(struct result *x, const struct options *o, const struct replay *r,
		    struct client *clients, uint64_t spent_ns)
{
	x->sums = replay_sums(clients, o->clients);
	for (int s = 0; s < N_STEPS; s++)
		hist_init(&x->hist[s]);
	for (uint32_t i = 0; i < o->clients; i++) {
		const struct client *c = &clients[i];

		for (int s = 0; s < N_STEPS; s++)
			hist_merge(&x->hist[s], &c->hist[s]);
		errors_merge(&x->errors, &c->errors);
		x->stale += c->stale;
		x->mismatches += c->mismatches;
		x->retries += c->retries;
		x->retried += c->retried;
		x->connect_ns += c->target.connect_ns;
		x->register_ns += c->target.register_ns;
		x->qp_ns += c->target.qp_ns;
	}
	x->seconds = (double)spent_ns / 1e9;
	x->complete = x->sums.requests == r->trace.n_reqs;
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double ns_at(const struct hist *h, double q)
{
	return (double)hist_quantile(h, q) / ticks_per_ns();
}

static void print_ideal(const struct replay *r, const struct trace_ideal *ideal)
{
	char a[32];

	printf("requests             %zu\n"
	       "blocks               %" PRIu64 ", %" PRIu64 " distinct\n"
	       "bytes if all stored  %s\n"
	       "ideal hit ratio      %.1f %%\n",
	       r->trace.n_reqs, ideal->blocks, ideal->distinct,
	       human_bytes(a, sizeof(a), (double)ideal->distinct * (double)block_bytes(r)),
	       share(ideal->hits, ideal->blocks));
}

static void print_text(const struct options *o, const struct replay *r,
		       const struct trace_ideal *ideal, const struct result *x)
{
	const uint64_t bytes[N_STEPS] = { 0, x->sums.retrieved, x->sums.stored };
	char a[32], b[32], c[32], d[32], bw[40];

	printf("requests      %" PRIu64 " of %zu in %.2f s (%.1f/s), %" PRIu32
	       " client%s, QD %" PRIu32 "\n",
	       x->sums.requests, r->trace.n_reqs, x->seconds, (double)x->sums.requests / x->seconds,
	       o->clients, o->clients == 1 ? "" : "s", r->qd);
	printf("set-up        connect %s, register memory %s, queue pairs %s\n",
	       human_ns(a, sizeof(a), (double)x->connect_ns),
	       human_ns(b, sizeof(b), (double)x->register_ns),
	       human_ns(c, sizeof(c), (double)x->qp_ns));
	printf("blocks        %" PRIu64 ", hit ratio %.1f %% (%.1f %% with unlimited space)\n",
	       x->sums.blocks, share(x->sums.hits, x->sums.blocks),
	       share(ideal->hits, ideal->blocks));
	printf("moved         %s: stored %s, retrieved %s%s\n",
	       human_bytes(a, sizeof(a), (double)(x->sums.stored + x->sums.retrieved)),
	       human_bytes(b, sizeof(b), (double)x->sums.stored),
	       human_bytes(c, sizeof(c), (double)x->sums.retrieved),
	       r->verify ? " and verified" : ", not verified");
	printf("\n%-9s %10s %12s %10s %10s %10s %10s\n", "command", "count", "bandwidth", "p50",
	       "p99", "p99.9", "max");
	for (int s = 0; s < N_STEPS; s++) {
		const struct hist *h = &x->hist[s];

		if (!h->count)
			continue;
		snprintf(bw, sizeof(bw), "-");
		if (bytes[s])
			snprintf(bw, sizeof(bw), "%.2f GB/s", (double)bytes[s] / 1e9 / x->seconds);
		printf("%-9s %10" PRIu64 " %12s %10s %10s %10s %10s\n", step_names[s], h->count, bw,
		       human_ns(a, sizeof(a), ns_at(h, 0.5)),
		       human_ns(b, sizeof(b), ns_at(h, 0.99)),
		       human_ns(c, sizeof(c), ns_at(h, 0.999)),
		       human_ns(d, sizeof(d), ns_at(h, 1)));
	}
	printf("\nmismatches %" PRIu64 ", errors %" PRIu64 ", retries %" PRIu64
	       " (%" PRIu64 " with unknown outcome), gone between Exist and Retrieve %" PRIu64 "\n",
	       x->mismatches, x->errors.total, x->retries, x->retried, x->stale);
	for (uint32_t i = 0; i < x->errors.n; i++)
		printf("  %s: %" PRIu64 "\n", error_name(&x->errors.e[i]), x->errors.e[i].count);
}

static void print_json(const struct options *o, const struct replay *r,
		       const struct trace_ideal *ideal, const struct result *x)
{
	struct json_object *doc = json_object_new_object(), *obj, *list;
	const uint64_t bytes[N_STEPS] = { 0, x ? x->sums.retrieved : 0, x ? x->sums.stored : 0 };

	obj = json_object_new_object();
	json_object_object_add(doc, "trace", obj);
	json_object_object_add(obj, "file", json_object_new_string(o->file));
	json_add_int(obj, "requests", (long long)r->trace.n_reqs);
	json_add_int(obj, "blocks", (long long)ideal->blocks);
	json_add_int(obj, "distinct_blocks", (long long)ideal->distinct);
	json_add_double(obj, "ideal_hit_ratio", share(ideal->hits, ideal->blocks) / 100);
	obj = json_object_new_object();
	json_object_object_add(doc, "layout", obj);
	json_object_object_add(obj, "model",
			       o->layout.preset ? json_object_new_string(o->layout.preset->name)
						: NULL);
	json_add_int(obj, "tp", o->layout.tp);
	json_add_int(obj, "pp", o->layout.pp);
	json_add_int(obj, "rank", o->layout.rank);
	json_add_int(obj, "values_per_block", r->n_shards);
	json_add_int(obj, "value_max", (long long)r->value_max);
	json_add_int(obj, "block_bytes", (long long)block_bytes(r));
	if (!x)
		goto print;
	obj = json_object_new_object();
	json_object_object_add(doc, "setup", obj);
	json_add_int(obj, "connect_ns", (long long)x->connect_ns);
	json_add_int(obj, "register_ns", (long long)x->register_ns);
	json_add_int(obj, "queue_pairs_ns", (long long)x->qp_ns);
	json_add_int(doc, "clients", o->clients);
	json_add_int(doc, "qd", r->qd);
	json_add_double(doc, "seconds", x->seconds);
	json_add_int(doc, "requests", (long long)x->sums.requests);
	json_add_int(doc, "blocks", (long long)x->sums.blocks);
	json_add_int(doc, "hit_blocks", (long long)x->sums.hits);
	json_add_double(doc, "hit_ratio", share(x->sums.hits, x->sums.blocks) / 100);
	json_add_int(doc, "stored_bytes", (long long)x->sums.stored);
	json_add_int(doc, "retrieved_bytes", (long long)x->sums.retrieved);
	list = json_object_new_object();
	json_object_object_add(doc, "by_command", list);
	for (int s = 0; s < N_STEPS; s++) {
		const struct hist *h = &x->hist[s];

		obj = json_object_new_object();
		json_object_object_add(list, step_names[s], obj);
		json_add_int(obj, "count", (long long)h->count);
		json_add_double(obj, "bytes_per_s", (double)bytes[s] / x->seconds);
		json_add_double(obj, "p50_ns", ns_at(h, 0.5));
		json_add_double(obj, "p99_ns", ns_at(h, 0.99));
		json_add_double(obj, "p999_ns", ns_at(h, 0.999));
		json_add_double(obj, "max_ns", ns_at(h, 1));
	}
	json_object_object_add(doc, "verified", json_object_new_boolean(r->verify));
	json_add_int(doc, "mismatches", (long long)x->mismatches);
	json_add_int(doc, "retries", (long long)x->retries);
	json_add_int(doc, "retried", (long long)x->retried);
	json_add_int(doc, "gone_after_exist", (long long)x->stale);
	json_add_int(doc, "errors", (long long)x->errors.total);
	obj = json_object_new_object();
	json_object_object_add(doc, "errors_by_status", obj);
	for (uint32_t i = 0; i < x->errors.n; i++)
		json_add_int(obj, error_name(&x->errors.e[i]), (long long)x->errors.e[i].count);
print:
	json_print(doc);
	json_object_put(doc);
}

static void plot(const struct options *o, const struct replay *r, const struct result *x)
{
	struct plot_series s[N_STEPS];
	char subtitle[256], a[32];
	const char *slash = strrchr(o->file, '/');
	int err;

	for (int i = 0; i < N_STEPS; i++)
		s[i] = (struct plot_series){ step_names[i], &x->hist[i], 1 / ticks_per_ns() };
	snprintf(subtitle, sizeof(subtitle),
		 "%s, %" PRIu64 " requests, values of %s, QD %" PRIu32 " x %" PRIu32 " clients",
		 slash ? slash + 1 : o->file, x->sums.requests,
		 human_bytes(a, sizeof(a), (double)r->value_max), r->qd, o->clients);
	err = plot_write(o->client.plot, "Latency by command, trace replay", subtitle, s, N_STEPS);
	if (err)
		die("plot %s: %s", o->client.plot, strerror(-err));
}

int trace_report(const struct options *o, const struct replay *r, const struct trace_ideal *ideal,
		 struct client *clients, uint64_t spent_ns)
{
	struct result *x;
	int rc;

	if (!clients) {
		if (o->client.json) {
			print_json(o, r, ideal, NULL);
		} else {
			trace_describe(stdout, o, r);
			print_ideal(r, ideal);
		}
		return 0;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		die("out of memory");
	collect(x, o, r, clients, spent_ns);
	if (o->client.json)
		print_json(o, r, ideal, x);
	else
		print_text(o, r, ideal, x);
	if (o->client.plot && x->sums.requests)
		plot(o, r, x);
	rc = x->errors.total || x->mismatches || !x->complete;
	free(x);
	return rc;
}
