/* SPDX-License-Identifier: MIT */
/* What gkv-bench run prints. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "bench.h"
#include "plot.h"
#include "run.h"

struct totals {
	struct hist hist[N_KINDS];
	uint64_t bytes[N_KINDS];
	uint64_t commands;
	uint64_t misses;
	uint64_t mismatches;
	uint64_t late;
	uint64_t retried;
	struct errors errors;
};

static void add_up(const struct run *r, struct totals *t)
{
	for (int k = 0; k < N_KINDS; k++)
		hist_init(&t->hist[k]);
	for (uint32_t i = 0; i < r->cfg.threads; i++) {
		const struct worker *w = &r->workers[i];

		for (int k = 0; k < N_KINDS; k++) {
			hist_merge(&t->hist[k], &w->hist[k]);
			t->bytes[k] += w->bytes[k];
		}
		t->misses += w->misses;
		t->mismatches += w->mismatches;
		t->late += w->late;
		t->retried += w->retried;
		errors_merge(&t->errors, &w->errors);
	}
	for (int k = 0; k < N_KINDS; k++)
		t->commands += t->hist[k].count;
}

static double ns_at(const struct hist *h, double q)
{
	return (double)hist_quantile(h, q) / ticks_per_ns();
}

static void print_text(const struct run *r, const struct totals *t)
{
	const struct run_cfg *c = &r->cfg;
	double seconds = (double)r->run_ns / 1e9;
	char a[32], b[32], d[32], e[32], f[32], g[32], bw[40];

	printf("namespace %s: %s, %s values, %" PRIu64 " keys, %s, QD %" PRIu32 " x %" PRIu32
	       " queue pairs, %" PRIu32 " threads, verify %s\n",
	       r->target.ns.name, c->mix_text, c->sizes_text, c->keys,
	       c->theta > 0 ? "zipf" : "uniform", c->qd, c->qps, c->threads,
	       c->client.verify ? "on" : "off");
	printf("set-up: connect %s, register memory %s, queue pairs %s\n",
	       human_ns(a, sizeof(a), (double)r->target.connect_ns),
	       human_ns(b, sizeof(b), (double)r->target.register_ns),
	       human_ns(d, sizeof(d), (double)r->target.qp_ns));
	if (c->fill)
		printf("fill: %s in %s, %.2f GB/s\n",
		       human_bytes(a, sizeof(a), (double)r->fill_bytes),
		       human_ns(b, sizeof(b), (double)r->fill_ns),
		       (double)r->fill_bytes / (double)r->fill_ns);
	printf("\n%-9s %12s %10s %12s %10s %10s %10s %10s\n", "command", "count", "per s",
	       "bandwidth", "p50", "p99", "p99.9", "max");
	for (int k = 0; k < N_KINDS; k++) {
		const struct hist *h = &t->hist[k];

		if (!h->count)
			continue;
		snprintf(bw, sizeof(bw), "-");
		if (t->bytes[k])
			snprintf(bw, sizeof(bw), "%.3f GB/s", (double)t->bytes[k] / 1e9 / seconds);
		printf("%-9s %12" PRIu64 " %10s %12s %10s %10s %10s %10s\n", kind_names[k],
		       h->count, human_count(a, sizeof(a), (double)h->count / seconds), bw,
		       human_ns(b, sizeof(b), ns_at(h, 0.5)),
		       human_ns(d, sizeof(d), ns_at(h, 0.99)),
		       human_ns(e, sizeof(e), ns_at(h, 0.999)),
		       human_ns(f, sizeof(f), ns_at(h, 1)));
	}
	printf("\ntotal %" PRIu64 " commands in %s, %s/s; misses %" PRIu64 "\n", t->commands,
	       human_ns(a, sizeof(a), (double)r->run_ns),
	       human_count(g, sizeof(g), (double)t->commands / seconds), t->misses);
	if (r->daemon_ns && t->commands)
		printf("processor time of the daemon: %s a command\n",
		       human_ns(a, sizeof(a), (double)r->daemon_ns / (double)t->commands));
	if (t->late)
		printf("answers after the deadline: %" PRIu64 "\n", t->late);
	if (t->retried)
		printf("outcome unknown, tried again: %" PRIu64 "\n", t->retried);
	if (c->client.verify)
		printf("values that did not match: %" PRIu64 "\n", t->mismatches);
	printf("errors: %" PRIu64 "\n", t->errors.total);
	for (uint32_t i = 0; i < t->errors.n; i++)
		printf("  %s: %" PRIu64 "\n", error_name(&t->errors.e[i]), t->errors.e[i].count);
}

static void print_json(const struct run *r, const struct totals *t)
{
	const struct run_cfg *c = &r->cfg;
	struct json_object *doc = json_object_new_object(), *o, *list;
	double seconds = (double)r->run_ns / 1e9;

	o = json_object_new_object();
	json_object_object_add(doc, "config", o);
	json_object_object_add(o, "namespace", json_object_new_string(r->target.ns.name));
	json_object_object_add(o, "mix", json_object_new_string(c->mix_text));
	json_object_object_add(o, "sizes", json_object_new_string(c->sizes_text));
	json_add_int(o, "keys", (long long)c->keys);
	json_add_double(o, "zipf_theta", c->theta);
	json_add_int(o, "qd", c->qd);
	json_add_int(o, "qps", c->qps);
	json_add_int(o, "threads", c->threads);
	json_add_int(o, "batch", c->batch);
	json_add_int(o, "idle_qps", c->idle_qps);
	json_object_object_add(o, "verify", json_object_new_boolean(c->client.verify));
	json_object_object_add(o, "csum",
			       json_object_new_boolean(!!(c->client.qp_flags & GKV_QP_CSUM)));
	json_object_object_add(o, "prp",
			       json_object_new_boolean(!!(c->client.qp_flags & GKV_QP_PRP)));
	json_object_object_add(o, "polled",
			       json_object_new_boolean(!!(c->client.qp_flags & GKV_QP_POLLED)));
	json_add_int(o, "mode", c->client.mode);
	o = json_object_new_object();
	json_object_object_add(doc, "setup", o);
	json_add_int(o, "connect_ns", (long long)r->target.connect_ns);
	json_add_int(o, "register_ns", (long long)r->target.register_ns);
	json_add_int(o, "queue_pairs_ns", (long long)r->target.qp_ns);
	if (c->fill) {
		o = json_object_new_object();
		json_object_object_add(doc, "fill", o);
		json_add_int(o, "bytes", (long long)r->fill_bytes);
		json_add_int(o, "ns", (long long)r->fill_ns);
	}
	json_add_double(doc, "seconds", seconds);
	json_add_int(doc, "commands", (long long)t->commands);
	json_add_double(doc, "per_s", (double)t->commands / seconds);
	if (r->daemon_ns && t->commands)
		json_add_double(doc, "daemon_cpu_ns_per_command",
				(double)r->daemon_ns / (double)t->commands);
	list = json_object_new_object();
	json_object_object_add(doc, "by_command", list);
	for (int k = 0; k < N_KINDS; k++) {
		const struct hist *h = &t->hist[k];

		if (!h->count)
			continue;
		o = json_object_new_object();
		json_object_object_add(list, kind_names[k], o);
		json_add_int(o, "count", (long long)h->count);
		json_add_double(o, "per_s", (double)h->count / seconds);
		json_add_int(o, "bytes", (long long)t->bytes[k]);
		json_add_double(o, "bytes_per_s", (double)t->bytes[k] / seconds);
		json_add_double(o, "mean_ns", hist_mean(h) / ticks_per_ns());
		json_add_double(o, "p50_ns", ns_at(h, 0.5));
		json_add_double(o, "p99_ns", ns_at(h, 0.99));
		json_add_double(o, "p999_ns", ns_at(h, 0.999));
		json_add_double(o, "max_ns", ns_at(h, 1));
	}
	json_add_int(doc, "misses", (long long)t->misses);
	json_add_int(doc, "mismatches", (long long)t->mismatches);
	json_add_int(doc, "late", (long long)t->late);
	json_add_int(doc, "retried", (long long)t->retried);
	json_add_int(doc, "errors", (long long)t->errors.total);
	o = json_object_new_object();
	json_object_object_add(doc, "errors_by_status", o);
	for (uint32_t i = 0; i < t->errors.n; i++)
		json_add_int(o, error_name(&t->errors.e[i]), (long long)t->errors.e[i].count);
	json_print(doc);
	json_object_put(doc);
}

static void plot(const struct run *r, const struct totals *t)
{
	struct plot_series s[N_KINDS];
	char subtitle[256];
	int err;

	for (int k = 0; k < N_KINDS; k++)
		s[k] = (struct plot_series){ kind_names[k], &t->hist[k], 1 / ticks_per_ns() };
	snprintf(subtitle, sizeof(subtitle),
		 "namespace %s, %s values, QD %" PRIu32 " x %" PRIu32 " queue pairs, %" PRIu64
		 " commands",
		 r->target.ns.name, r->cfg.sizes_text, r->cfg.qd, r->cfg.qps, t->commands);
	err = plot_write(r->cfg.client.plot, "Latency by command", subtitle, s, N_KINDS);
	if (err)
		die("plot %s: %s", r->cfg.client.plot, strerror(-err));
}

int run_report(const struct run *r)
{
	struct totals *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		die("out of memory");
	add_up(r, t);
	if (r->cfg.client.json)
		print_json(r, t);
	else
		print_text(r, t);
	if (r->cfg.client.plot && t->commands)
		plot(r, t);
	rc = t->errors.total || t->mismatches;
	free(t);
	return rc;
}
