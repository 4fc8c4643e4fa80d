/* SPDX-License-Identifier: MIT */
/*
 * What to make of a load: do all views of the keys agree, is the history linearizable, is
 * the space given back?
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gkv/control.h>
#include <gkv/nvme_kv.h>
#include <json-c/json.h>

#include "load_priv.h"
#include "rig.h"
#include "suite.h"

#define SEC 1000000000ull
#define LIST_LEN 4096u

struct reader {
	struct gkv *g;
	struct gkv_qp *qp;
	struct gkv_mem *mem;
	uint8_t *buf;
	uint32_t nsid;
	uint32_t len;
};

static const char *ns_name(const char *name)
{
	return name ? name : "main";
}

bool load_usage(struct gkv *g, const char *name, uint64_t *keys, uint64_t *used)
{
	struct json_object *doc, *o, *v;
	bool found = false;
	char *text;

	if (gkv_query(g, GKV_QUERY_NAMESPACES, &text))
		return false;
	doc = json_tokener_parse(text);
	free(text);
	for (size_t i = 0; doc && i < json_object_array_length(doc); i++) {
		o = json_object_array_get_idx(doc, i);
		if (!json_object_object_get_ex(o, "name", &v) ||
		    strcmp(json_object_get_string(v), ns_name(name)))
			continue;
		*keys = UINT64_MAX;	/* a store that does not count */
		if (json_object_object_get_ex(o, "keys", &v))
			*keys = json_object_get_uint64(v);
		if (json_object_object_get_ex(o, "used", &v))
			*used = json_object_get_uint64(v);
		found = true;
	}
	json_object_put(doc);
	return found;
}

static bool reader_open(struct load *l, struct reader *r)
{
	struct gkv_ns_info info = { .size = sizeof(info) };

	r->len = l->opts.value_max < LIST_LEN ? LIST_LEN : l->opts.value_max;
	if (gkv_connect(&r->g, l->socket, 1, 0)) {
		load_fail(l, "connect: %s", gkv_error());
		return false;
	}
	if (gkv_ns_open(r->g, ns_name(l->opts.ns), 0, &info) ||
	    gkv_mem_alloc(r->g, ((size_t)r->len + 4095) & ~(size_t)4095, &r->mem) ||
	    gkv_qp_create(r->g, NULL, &r->qp)) {
		load_fail(l, "session: %s", gkv_error());
		gkv_close(r->g);
		return false;
	}
	r->nsid = info.nsid;
	r->buf = gkv_mem_addr(r->mem);
	return true;
}

static struct gkv_comp reader_run(struct load *l, struct reader *r, uint8_t opcode,
				  const uint8_t *key, uint8_t len)
{
	struct gkv_cmd cmd = { .opcode = opcode, .nsid = r->nsid, .key_len = len };
	struct gkv_comp c = { .status = SUITE_NO_STATUS };

	memcpy(cmd.key, key, 16);
	if (opcode == GKV_RETRIEVE || opcode == GKV_LIST) {
		cmd.buf = r->buf;
		cmd.len = opcode == GKV_LIST ? LIST_LEN : r->len;
	}
	if (gkv_exec(r->qp, &cmd, &c) < 0)
		load_fail(l, "%s", gkv_error());
	return c;
}

/* ---- All keys ---- */

/* Mark the keys a List of everything has; false when it has one that is none of ours. */
static bool list_keys(struct load *l, struct reader *r, uint8_t *listed)
{
	uint8_t start[16] = { 0 }, key[16], mine[16], len, start_len = 0;
	bool first = true;

	for (;;) {
		struct gkv_comp c = reader_run(l, r, GKV_LIST, start, start_len);
		unsigned int n = 0;
		size_t pos = 0;

		if (c.status) {
			load_fail(l, "List: %s", gkv_status_name(c.status));
			return false;
		}
		while (gkv_list_next(r->buf, LIST_LEN, &pos, key, &len) == 1) {
			uint32_t i;

			/* The start key is the last one of the page before. */
			if (!first && !n && len == start_len && !memcmp(key, start, len)) {
				n++;
				continue;
			}
			n++;
			memcpy(&i, key + 1, sizeof(i));
			if (i >= l->opts.keys || load_key(i, mine) != len ||
			    memcmp(mine, key, len)) {
				load_fail(l, "List has a key of %u bytes that was never stored",
					  len);
				return false;
			}
			if (listed[i]++) {
				load_fail(l, "List has key %u twice", i);
				return false;
			}
			memset(start, 0, sizeof(start));
			memcpy(start, key, len);
			start_len = len;
		}
		if (n <= !first)
			return true;
		first = false;
	}
}

/* Read every key into @ops, and compare with List and with the daemon's count. */
static size_t read_all(struct load *l, struct lin_op *ops)
{
	uint8_t *listed = calloc(l->opts.keys, 1), key[16];
	uint64_t found = 0, keys = 0, used = 0;
	struct reader r;
	size_t n = 0;

	if (!listed || !reader_open(l, &r)) {
		free(listed);
		return 0;
	}
	list_keys(l, &r, listed);
	for (uint32_t i = 0; i < l->opts.keys; i++) {
		struct lin_op *op = &ops[n];
		uint8_t len = load_key(i, key);
		struct gkv_comp c, e;

		*op = (struct lin_op){ .key = i, .kind = LIN_RETRIEVE, .call = rig_now() };
		c = reader_run(l, &r, GKV_RETRIEVE, key, len);
		op->ret = rig_now();
		e = reader_run(l, &r, GKV_EXIST, key, len);
		if (c.status == 0) {
			found++;
			op->value = load_value_id(r.buf, c.result, l->opts.value_min,
						  l->opts.value_max);
			if (!op->value)
				load_fail(l, "key %u: %u bytes that are no whole value", i,
					  c.result);
		} else if (code(c.status) == code(GKV_SC_KEY_NOT_FOUND)) {
			op->outcome = LIN_NO_KEY;
		} else {
			/* It says nothing: neither does the history for it. */
			op->outcome = LIN_UNKNOWN;
			op->ret = LIN_NEVER;
			load_fail(l, "key %u: %s", i, gkv_status_name(c.status));
		}
		if (e.status != c.status)
			load_fail(l, "key %u: Retrieve says %s, Exist %s", i,
				  gkv_status_name(c.status), gkv_status_name(e.status));
		if (!!listed[i] != (c.status == 0))
			load_fail(l, "key %u: Retrieve says %s, List has it %s", i,
				  gkv_status_name(c.status), listed[i] ? "" : "not");
		n++;
	}
	if (!load_usage(r.g, l->opts.ns, &keys, &used) || (keys != found && keys != UINT64_MAX))
		load_fail(l, "%llu keys are there, the daemon counts %llu",
			  (unsigned long long)found, (unsigned long long)keys);
	gkv_close(r.g);
	free(listed);
	return n;
}

/* ---- Verdicts ---- */

static uint64_t bad_completions(const struct load *l)
{
	uint64_t bad = 0;

	for (unsigned int i = 0; i < l->opts.threads; i++) {
		for (unsigned int q = 0; q < l->opts.qps; q++) {
			struct gkv_qp_stats s = { .size = sizeof(s) };

			gkv_qp_stats(l->threads[i].qps[q].qp, &s);
			bad += s.bad_cid + s.bad_sqhd + s.lost;
		}
	}
	return bad;
}

void load_judge(struct load *l, const char *what)
{
	uint64_t left = load_stop(l), bad = bad_completions(l), total = 0, once = 0;
	const char *error = load_error(l);
	struct lin_op *all;
	size_t n;

	if (!tap_ok(!error, "%s: no client saw an error", what))
		tap_diag("%s", error);
	for (unsigned int i = 0; i < l->opts.threads; i++) {
		total += l->threads[i].nops;
		for (uint64_t k = 0; k < l->threads[i].nops; k++)
			once += l->threads[i].over[k] == LOAD_OVER;
	}
	if (!tap_ok(!left && !bad && once == total,
		    "%s: each of %llu commands got exactly one completion", what,
		    (unsigned long long)total))
		tap_diag("%llu have none, %llu completions belong to no command",
			 (unsigned long long)(total - once), (unsigned long long)bad);
	tap_diag("%llu outcomes unknown, %llu timeouts", (unsigned long long)load_unknown(l),
		 (unsigned long long)load_timeouts(l));

	all = calloc(total + l->opts.keys, sizeof(*all));
	if (!all) {
		tap_ok(false, "%s: memory for the history", what);
		return;
	}
	atomic_store(&l->failed, false);
	n = read_all(l, all);
	error = load_error(l);
	if (!tap_ok(!error, "%s: Retrieve, Exist, List and the count of keys agree", what))
		tap_diag("%s", error);
	for (unsigned int i = 0; i < l->opts.threads; i++) {
		memcpy(all + n, l->threads[i].ops, l->threads[i].nops * sizeof(*all));
		n += l->threads[i].nops;
	}
	tap_ok(lin_check(all, n) == LIN_GOOD, "%s: the history is linearizable", what);
	free(all);
}

/* How many keys a List of everything has. */
static uint64_t list_all(struct load *l, struct reader *r)
{
	uint8_t *listed = calloc(l->opts.keys, 1);
	uint64_t n = 0;

	if (!listed || !list_keys(l, r, listed))
		n = UINT64_MAX - 1;
	for (uint32_t i = 0; listed && i < l->opts.keys; i++)
		n += listed[i];
	free(listed);
	return n;
}

void load_empty(struct load *l, uint64_t used, const char *what)
{
	uint64_t end = rig_now() + 10 * SEC * rig_slowdown(), now_used = 0, keys = 0;
	struct reader r;
	uint8_t key[16];

	atomic_store(&l->failed, false);
	if (!reader_open(l, &r)) {
		tap_ok(false, "%s: %s", what, load_error(l));
		return;
	}
	for (uint32_t i = 0; i < l->opts.keys; i++) {
		uint8_t len = load_key(i, key);
		struct gkv_comp c = reader_run(l, &r, GKV_DELETE, key, len);

		if (c.status && code(c.status) != code(GKV_SC_KEY_NOT_FOUND))
			load_fail(l, "Delete of key %u: %s", i, gkv_status_name(c.status));
	}
	do {
		if (!load_usage(r.g, l->opts.ns, &keys, &now_used))
			break;
		if (keys == UINT64_MAX)	/* nobody counts, List has to do */
			keys = list_all(l, &r);
		if (!keys && now_used <= used)
			break;
		usleep(20000);
	} while (rig_now() < end);
	if (!tap_ok(!load_error(l) && !keys && now_used <= used,
		    "%s: with every key deleted, all space is free again", what))
		tap_diag("%s; %llu keys, %llu bytes used, %llu at the start",
			 load_error(l) ? load_error(l) : "no error", (unsigned long long)keys,
			 (unsigned long long)now_used, (unsigned long long)used);
	gkv_close(r.g);
}
