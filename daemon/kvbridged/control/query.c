/* SPDX-License-Identifier: MIT */
/*
 * Reports as JSON documents, read page by page.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/settings.h"
#include "control/hits.h"
#include "control/server.h"
#include "control/session.h"
#include "core/clock.h"

typedef struct json_object jobj;

static void add_u64(jobj *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static void add_str(jobj *o, const char *key, const char *v)
{
	json_object_object_add(o, key, json_object_new_string(v));
}

static void add_bool(jobj *o, const char *key, bool v)
{
	json_object_object_add(o, key, json_object_new_boolean(v));
}

static void add_uuid(jobj *o, const char *key, const uint8_t u[16])
{
	char text[40];

	snprintf(text, sizeof(text),
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		 u[15]);
	add_str(o, key, text);
}

static void add_place(jobj *o, const char *key, const struct kvb_place *p)
{
	char text[64];

	add_str(o, key, kvb_place_text(p, text, sizeof(text)));
}

static jobj *totals_json(const struct kvb_totals *t)
{
	jobj *o = json_object_new_object(), *ops = json_object_new_object();

	for (int i = 0; i < KVB_NTOTALS; i++)
		add_u64(o, kvb_total_names[i], t->v[i]);
	for (int i = 0; i < KVB_NCLASSES; i++)
		add_u64(ops, kvb_class_names[i], t->ops[i]);
	json_object_object_add(o, "commands", ops);
	return o;
}

/* ---- Documents ---- */

static jobj *reactor_json(const struct kvb_reactor *r, unsigned int qps)
{
	jobj *o = json_object_new_object();

	add_u64(o, "id", r->id);
	json_object_object_add(o, "cpu", json_object_new_int(r->cpu));
	add_u64(o, "qps", qps);
	add_u64(o, "turns", kvb_counted(&r->count.turns));
	add_u64(o, "sleeps", kvb_counted(&r->count.sleeps));
	add_u64(o, "io", kvb_counted(&r->count.io));
	add_u64(o, "messages", kvb_counted(&r->count.msgs));
	add_u64(o, "slices", kvb_counted(&r->count.slices));
	add_u64(o, "late", kvb_counted(&r->count.late));
	add_u64(o, "buffer_waits", kvb_counted(&r->bufs.waits));
	add_u64(o, "op_waits", kvb_counted(&r->count.op_waits));
	return o;
}

/* What an operator should look at; left out when there is nothing. */
static void add_warnings(jobj *o, const struct kvb_server *srv)
{
	jobj *list = NULL;

	for (unsigned int i = 0; i < srv->nns; i++) {
		struct kvb_hits h;
		char text[256];

		kvb_hits_of(srv->nss[i], &h);
		if (!h.cold)
			continue;
		if (!list)
			list = json_object_new_array();
		kvb_hits_warning(srv->nss[i], &h, text, sizeof(text));
		json_object_array_add(list, json_object_new_string(text));
	}
	if (list)
		json_object_object_add(o, "warnings", list);
}

static jobj *status_json(const struct kvb_server *srv)
{
	jobj *o = json_object_new_object(), *rs = json_object_new_array();
	struct kvb_totals t;

	add_str(o, "version", GKV_BUILD_VERSION);
	add_u64(o, "pid", (uint64_t)getpid());
	add_uuid(o, "instance", srv->instance);
	add_u64(o, "uptime_s", (kvb_clock_ns() - srv->started_ns) / 1000000000u);
	add_u64(o, "sessions", srv->nsessions);
	kvb_server_totals(srv, &t);
	for (unsigned int i = 0; i < kvb_nreactors; i++)
		json_object_array_add(rs, reactor_json(kvb_reactors[i], srv->qps_on[i]));
	json_object_object_add(o, "reactors", rs);
	json_object_object_add(o, "counters", totals_json(&t));
	add_warnings(o, srv);
	return o;
}

static void report_number(const struct kvb_report *to, const char *name, uint64_t v)
{
	add_u64(to->arg, name, v);
}

static void report_text(const struct kvb_report *to, const char *name, const char *v)
{
	add_str(to->arg, name, v);
}

/* What the store says of itself, beyond what every store has. */
static void add_store_report(jobj *o, const struct kvb_ns *ns)
{
	struct kvb_report to = { .number = report_number, .text = report_text };

	if (!ns->bottom->ops->report)
		return;
	to.arg = json_object_new_object();
	ns->bottom->ops->report(ns->bottom, &to);
	json_object_object_add(o, "store", to.arg);
}

/* Who looks up keys here, and finds them? */
static void add_hits(jobj *o, const struct kvb_ns *ns)
{
	jobj *c = json_object_new_object();
	struct kvb_hits h;
	char text[256];

	kvb_hits_of(ns, &h);
	add_u64(c, "hits", h.hits);
	add_u64(c, "misses", h.misses);
	add_u64(c, "misses_in_a_row", h.missed);
	json_object_object_add(o, "counters", c);
	if (h.cold)
		add_str(o, "warning", kvb_hits_warning(ns, &h, text, sizeof(text)));
}

static jobj *namespaces_json(const struct kvb_server *srv)
{
	jobj *a = json_object_new_array();

	for (unsigned int i = 0; i < srv->nns; i++) {
		const struct kvb_ns *ns = srv->nss[i];
		jobj *o = json_object_new_object(), *stack = json_object_new_array();
		struct kvb_store_info info;

		kvb_ns_info(ns, &info);
		add_str(o, "name", ns->name);
		add_u64(o, "nsid", ns->nsid);
		add_uuid(o, "uuid", ns->uuid);
		for (unsigned int l = 0; l < ns->nlayers; l++)
			json_object_array_add(stack,
					      json_object_new_string(ns->layers[l].ops->name));
		json_object_object_add(o, "stack", stack);
		if (!info.uncounted) {
			add_u64(o, "capacity", info.capacity);
			add_u64(o, "used", info.used);
			add_u64(o, "keys", info.keys);
		}
		add_u64(o, "key_max", info.key_max);
		add_u64(o, "value_max", ns->value_max);
		add_u64(o, "block_size", info.block_size);
		add_u64(o, "deadline_ns", ns->deadline_ns);
		add_str(o, "durability", ns->sync ? "sync" : "async");
		add_bool(o, "verify", ns->verify);
		add_bool(o, "read_only", ns->read_only || info.read_only);
		add_bool(o, "volatile", ns->volatile_store);
		add_bool(o, "ready", info.ready);
		add_store_report(o, ns);
		add_hits(o, ns);
		json_object_array_add(a, o);
	}
	return a;
}

static jobj *qp_json(const struct kvb_session_qp *q)
{
	jobj *o = json_object_new_object(), *p = json_object_new_object();
	const uint32_t mode = q->qp.mode;
	struct kvb_totals t = { 0 };
	int reason = q->qp.error_reason;
	uint64_t left, ended;

	add_u64(o, "qid", q->qp.qid);
	add_u64(o, "depth", q->qp.depth);
	add_u64(o, "mode", mode);
	add_u64(o, "reactor", q->qp.r->id);
	add_bool(o, "host", q->flags & GKV_QP_F_HOST);
	add_bool(o, "checksums", q->flags & GKV_QP_F_CSUM);
	add_place(p, "sq", &q->sq.m.at);
	add_place(p, "cq", &q->cq.m.at);
	add_place(p, "db", mode & GKV_MODE_DB ? &q->db.m.at : &q->s->db.at);
	/* Where it is, its regions say; this is where it must be. */
	add_str(p, "data", mode & GKV_MODE_DATA ? "vram" : "host");
	json_object_object_add(o, "placement", p);
	add_str(o, "state", q->draining ? "draining" : reason ? "error" : "running");
	if (reason)
		add_str(o, "reason", kvb_qp_error_name(reason));
	kvb_totals_add(&t, &q->qp.count);
	/* Three counters of a moving thing: never below zero. */
	left = t.v[KVB_T_FETCHED] + q->qp.nresumed;
	ended = t.v[KVB_T_POSTED] + t.v[KVB_T_DROPPED];
	add_u64(o, "outstanding", left > ended ? left - ended : 0);
	json_object_object_add(o, "counters", totals_json(&t));
	return o;
}

static jobj *session_json(const struct kvb_session *s)
{
	jobj *o = json_object_new_object(), *rs = json_object_new_array(),
	     *qs = json_object_new_array();

	add_u64(o, "id", s->id);
	add_str(o, "name", s->name);
	json_object_object_add(o, "pid", json_object_new_int(s->peer.pid));
	add_u64(o, "uid", s->peer.uid);
	add_str(o, "state", s->closing ? "closing" : s->hello ? "open" : "new");
	for (const struct kvb_session_region *g = s->regions; g; g = g->next) {
		jobj *r = json_object_new_object();

		add_u64(r, "id", g->id);
		add_u64(r, "iova", g->iova);
		add_u64(r, "len", g->len);
		add_u64(r, "flags", g->flags);
		add_bool(r, "dead", atomic_load(&g->r.dead));
		add_place(r, "placement", &g->mem.m.at);
		json_object_array_add(rs, r);
	}
	add_u64(o, "region_bytes", s->region_bytes);
	json_object_object_add(o, "regions", rs);
	for (const struct kvb_session_qp *q = s->qps; q; q = q->next)
		json_object_array_add(qs, qp_json(q));
	json_object_object_add(o, "qps", qs);
	return o;
}

/* Other users' processes and addresses are no client's business. */
static jobj *sessions_json(const struct kvb_session *asking)
{
	jobj *a = json_object_new_array();

	for (const struct kvb_session *s = asking->srv->sessions; s; s = s->next) {
		if (kvb_session_privileged(asking) || s->peer.uid == asking->peer.uid)
			json_object_array_add(a, session_json(s));
	}
	return a;
}

/* ---- Pages ---- */

static int take_report(struct kvb_session *s, uint32_t what)
{
	jobj *doc;
	const char *text;

	switch (what) {
	case GKV_QUERY_STATUS:
		doc = status_json(s->srv);
		break;
	case GKV_QUERY_NAMESPACES:
		doc = namespaces_json(s->srv);
		break;
	case GKV_QUERY_SESSIONS:
		doc = sessions_json(s);
		break;
	case GKV_QUERY_SETTINGS:
		doc = kvb_settings_json();
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (!doc)
		return -ENOMEM;
	text = json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PLAIN);
	free(s->report);
	s->report = strdup(text);
	s->report_len = s->report ? strlen(text) : 0;
	json_object_put(doc);
	return s->report ? 0 : -ENOMEM;
}

void kvb_session_query(struct kvb_session *s, const struct gkv_msg_query *m)
{
	struct gkv_msg_query_reply reply = { 0 };
	char text[96];
	size_t n;

	if (m->rsvd) {
		kvb_session_error(s, EINVAL, "reserved field is not 0");
		return;
	}
	if (!m->offset) {
		int rc = take_report(s, m->what);

		if (rc) {
			snprintf(text, sizeof(text), "report %u: %s", m->what, strerror(-rc));
			kvb_session_error(s, -rc, text);
			return;
		}
	}
	if (m->offset > s->report_len) {
		snprintf(text, sizeof(text), "offset %llu, the report has %zu bytes",
			 (unsigned long long)m->offset, s->report_len);
		kvb_session_error(s, EINVAL, text);
		return;
	}
	n = s->report_len - m->offset;
	if (n > sizeof(reply.data))
		n = sizeof(reply.data);
	memcpy(reply.data, s->report + m->offset, n);
	reply.total = s->report_len;
	reply.len = (uint32_t)n;
	kvb_session_reply(s, &reply, sizeof(reply), NULL, 0);
}
