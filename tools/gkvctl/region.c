/* SPDX-License-Identifier: MIT */
/*
 * region: where memory lies, as the daemon tells it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gkv/control.h>

#include "drv.h"

static struct json_object *member(struct json_object *o, const char *name)
{
	struct json_object *v;

	return json_object_object_get_ex(o, name, &v) ? v : NULL;
}

/* A placement is a text, or an object whose "place" says it in a word; NULL: not told. */
static void placement_text(struct json_object *p, char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = '\0';
	if (!p)
		snprintf(buf, len, "-");
	else if (!json_object_is_type(p, json_type_object))
		snprintf(buf, len, "%s", json_object_get_string(p));
	if (!p || !json_object_is_type(p, json_type_object))
		return;
	json_object_object_foreach(p, name, v)
	{
		if (!v || used >= len)
			continue;
		used += (size_t)snprintf(buf + used, len - used, "%s%s%s%s", used ? ", " : "",
					 strcmp(name, "place") ? name : "",
					 strcmp(name, "place") ? " " : "", json_object_get_string(v));
	}
}

/* A line of the table: a copy of what @from has under @names, and the placement. */
static void add_row(struct json_object *rows, struct json_object *session, struct json_object *from,
		    const char *kind, const char *part, struct json_object *placement)
{
	static const char *const names[] = { "id", "qid", "iova", "len", "mode" };
	struct json_object *o = json_object_new_object();
	char text[120];

	json_object_object_add(o, "session", json_object_get(member(session, "id")));
	json_object_object_add(o, "pid", json_object_get(member(session, "pid")));
	json_object_object_add(o, "kind", json_object_new_string(kind));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (member(from, names[i]))
			json_object_object_add(o, strcmp(names[i], "qid") ? names[i] : "id",
					       json_object_get(member(from, names[i])));
	}
	if (part)
		json_object_object_add(o, "part", json_object_new_string(part));
	placement_text(placement, text, sizeof(text));
	json_object_object_add(o, "placement", json_object_new_string(text));
	json_object_array_add(rows, o);
}

static void add_rows(struct json_object *rows, struct json_object *session)
{
	struct json_object *list = member(session, "regions"), *placement;

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *r = json_object_array_get_idx(list, i);

		add_row(rows, session, r, "region", NULL, member(r, "placement"));
	}
	list = member(session, "qps");
	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *qp = json_object_array_get_idx(list, i);

		placement = member(qp, "placement");
		if (!placement || !json_object_is_type(placement, json_type_object)) {
			add_row(rows, session, qp, "queue pair", NULL, placement);
			continue;
		}
		json_object_object_foreach(placement, part, where)
		{
			add_row(rows, session, qp, "queue pair", part, where);
		}
	}
}

/* What concerns placement, of each session: the report has much else. */
static struct json_object *narrowed(struct json_object *sessions)
{
	static const char *const names[] = { "id", "name", "pid", "uid", "regions" };
	static const char *const qp_names[] = { "qid", "depth", "mode", "state", "reason",
						"placement" };
	struct json_object *out = json_object_new_array();

	for (size_t i = 0; i < json_object_array_length(sessions); i++) {
		struct json_object *s = json_object_array_get_idx(sessions, i);
		struct json_object *o = json_object_new_object(), *qps = json_object_new_array();
		struct json_object *list = member(s, "qps");

		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			if (member(s, names[k]))
				json_object_object_add(o, names[k],
						       json_object_get(member(s, names[k])));
		}
		for (size_t q = 0; list && q < json_object_array_length(list); q++) {
			struct json_object *qp = json_object_array_get_idx(list, q);
			struct json_object *to = json_object_new_object();

			for (size_t k = 0; k < sizeof(qp_names) / sizeof(qp_names[0]); k++) {
				if (member(qp, qp_names[k]))
					json_object_object_add(to, qp_names[k],
							       json_object_get(member(qp, qp_names[k])));
			}
			json_object_array_add(qps, to);
		}
		json_object_object_add(o, "qps", qps);
		json_object_array_add(out, o);
	}
	return out;
}

static int region_of_daemon(struct ctl *c)
{
	static const struct view_col cols[] = {
		{ "session", "SESSION", VIEW_PLAIN }, { "pid", "PID", VIEW_PLAIN },
		{ "kind", "KIND", VIEW_PLAIN },	      { "id", "ID", VIEW_PLAIN },
		{ "iova", "IOVA", VIEW_HEX },	      { "len", "LENGTH", VIEW_BYTES },
		{ "mode", "MODE", VIEW_HEX },	      { "part", "PART", VIEW_PLAIN },
		{ "placement", "PLACEMENT", VIEW_PLAIN },
	};
	struct json_object *doc, *sessions, *rows;
	int ret = ctl_report(c, GKV_QUERY_SESSIONS, &doc);

	if (ret)
		return ret;
	if (!json_object_is_type(doc, json_type_array)) {
		json_object_put(doc);
		return ctl_fail(c, "the daemon's report has no list of sessions");
	}
	sessions = narrowed(doc);
	json_object_put(doc);
	if (c->json) {
		view_json(sessions);
	} else if (!c->quiet) {
		rows = json_object_new_array();
		for (size_t i = 0; i < json_object_array_length(sessions); i++)
			add_rows(rows, json_object_array_get_idx(sessions, i));
		if (json_object_array_length(rows))
			view_table(rows, cols, sizeof(cols) / sizeof(cols[0]), "");
		else
			printf("no session that you may see has a region or queue pair\n");
		json_object_put(rows);
	}
	json_object_put(sessions);
	return EX_DONE;
}

/* ---- Command ---- */

enum { OPT_PID = OPT_CMD, OPT_PROBE };

static struct {
	int pid;
	const char *disk;
} args;

static int region_option(struct ctl *c, int val, const char *arg)
{
	uint64_t v;

	if (val == OPT_PROBE) {
		args.disk = arg;
		return EX_DONE;
	}
	if (parse_u64(arg, &v) || !v || v > INT32_MAX)
		return ctl_usage(c, "--pid \"%s\" is no process", arg);
	args.pid = (int)v;
	return EX_DONE;
}

static int region_run(struct ctl *c, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (args.pid)
		return region_of_pid(c, args.pid, args.disk);
	if (args.disk)
		return region_of_carveouts(c, args.disk);
	return region_of_daemon(c);
}

static const struct option region_opts[] = {
	{ "pid", required_argument, NULL, OPT_PID },
	{ "probe", required_argument, NULL, OPT_PROBE },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_region = {
	.name = "region",
	.args = "[--pid PID] [--probe BLOCKDEV]",
	.summary = "Show where regions and the parts of queue pairs lie",
	.help = "Without options: those of the daemon's sessions, as it was told.\n"
		"  --pid PID               those that a process has of " GKVDRV_PATH ", as the kernel\n"
		"                          module tells it; takes the right to trace the process\n"
		"  --probe BLOCKDEV        with --pid: ask whether that disk's controller can do DMA to\n"
		"                          each region; without: to each carve-out. Exit status 1 if\n"
		"                          it cannot reach one\n",
	.opts = region_opts,
	.option = region_option,
	.max_args = 0,
	.run = region_run,
};
