/* SPDX-License-Identifier: MIT */
/*
 * status, namespaces, sessions, watch: what the daemon reports about itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gkv/control.h>

#include "gkvctl.h"

#define COLS(a) (a), sizeof(a) / sizeof((a)[0])

int ctl_report(struct ctl *c, uint32_t what, struct json_object **obj)
{
	char *text;
	int ret;

	if (!c->g) {
		ret = ctl_connect(c, GKV_CONNECT_CONTROL | GKV_CONNECT_NO_RECONNECT);
		if (ret)
			return ret;
	}
	if (gkv_query(c->g, what, &text))
		return ctl_fail(c, "report: %s", gkv_error());
	*obj = json_tokener_parse(text);
	free(text);
	return *obj ? EX_DONE : ctl_fail(c, "the daemon's report is no JSON");
}

/* The member as an array of objects, or NULL. */
static struct json_object *rows(struct json_object *obj, const char *name)
{
	struct json_object *v;

	if (!json_object_object_get_ex(obj, name, &v) || !json_object_is_type(v, json_type_array) ||
	    json_object_array_length(v) == 0)
		return NULL;
	return v;
}

/* A report is an array, or an object with the array under @name. */
static struct json_object *list_of(struct json_object *doc, const char *name)
{
	struct json_object *v;

	if (json_object_is_type(doc, json_type_array))
		return doc;
	if (json_object_object_get_ex(doc, name, &v) && json_object_is_type(v, json_type_array))
		return v;
	return NULL;
}

static struct json_object *counters_of(struct json_object *obj)
{
	struct json_object *v;

	if (!json_object_object_get_ex(obj, "counters", &v) ||
	    !json_object_is_type(v, json_type_object))
		return NULL;
	return v;
}

static void view_counters(struct json_object *obj, const char *title, const char *indent)
{
	struct json_object *v = counters_of(obj);

	if (!v)
		return;
	printf("%s\n", title);
	view_object(v, indent, true);
}

/* ---- status ---- */

static void status_text(struct json_object *doc)
{
	struct json_object *reactors = rows(doc, "reactors"), *head = json_object_new_object();
	struct json_object *warnings;
	char text[64];

	json_object_object_foreach(doc, name, v)
	{
		if (v && (json_object_is_type(v, json_type_array) ||
			  json_object_is_type(v, json_type_object)))
			continue;
		if (!strcmp(name, "uptime_s") && v) {
			view_time_ns((uint64_t)(json_object_get_double(v) * 1e9), text,
				     sizeof(text));
			json_object_object_add(head, "uptime", json_object_new_string(text));
		} else {
			json_object_object_add(head, name, json_object_get(v));
		}
	}
	view_object(head, "", false);
	json_object_put(head);
	if (json_object_object_get_ex(doc, "warnings", &warnings)) {
		putchar('\n');
		for (size_t i = 0; i < json_object_array_length(warnings); i++)
			printf("warning: %s\n", json_object_get_string(
				json_object_array_get_idx(warnings, i)));
	}
	if (reactors) {
		printf("\nReactors\n");
		view_rows(reactors, "  ");
	}
	view_counters(doc, "\nCounters (those that are not 0)", "  ");
}

static int status_run(struct ctl *c, int argc, char **argv)
{
	struct json_object *doc;
	int ret = ctl_report(c, GKV_QUERY_STATUS, &doc);

	(void)argc;
	(void)argv;
	if (ret)
		return ret;
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		status_text(doc);
	json_object_put(doc);
	return EX_DONE;
}

const struct command cmd_status = {
	.name = "status",
	.args = "",
	.summary = "Show the daemon, its reactors and counters",
	.help = "",
	.max_args = 0,
	.run = status_run,
};

/* ---- namespaces ---- */

static int namespaces_run(struct ctl *c, int argc, char **argv)
{
	static const struct view_col cols[] = {
		{ "nsid", "NSID", VIEW_PLAIN },	      { "name", "NAME", VIEW_PLAIN },
		{ "stack", "STACK", VIEW_LIST },      { "used", "USED", VIEW_BYTES },
		{ "capacity", "CAPACITY", VIEW_BYTES }, { "keys", "KEYS", VIEW_PLAIN },
		{ "value_max", "VALUE MAX", VIEW_BYTES }, { "deadline_ns", "DEADLINE", VIEW_TIME_NS },
		{ "durability", "DURABILITY", VIEW_PLAIN }, { "verify", "VERIFY", VIEW_PLAIN },
		{ "read_only", "READ ONLY", VIEW_PLAIN }, { "ready", "READY", VIEW_PLAIN },
		{ "uuid", "UUID", VIEW_PLAIN },
	};
	struct json_object *doc, *list;
	int ret = ctl_report(c, GKV_QUERY_NAMESPACES, &doc);

	(void)argc;
	(void)argv;
	if (ret)
		return ret;
	list = list_of(doc, "namespaces");
	if (c->json) {
		view_json(doc);
	} else if (!list) {
		ret = ctl_fail(c, "the daemon's report has no list of namespaces");
	} else if (!c->quiet) {
		view_table(list, COLS(cols), "");
		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *ns = json_object_array_get_idx(list, i), *name = NULL;
			struct json_object *warning;
			char title[128];

			json_object_object_get_ex(ns, "name", &name);
			snprintf(title, sizeof(title), "\nCounters of %s (those that are not 0)",
				 name ? json_object_get_string(name) : "?");
			view_counters(ns, title, "  ");
			if (json_object_object_get_ex(ns, "warning", &warning))
				printf("  warning: %s\n", json_object_get_string(warning));
		}
	}
	json_object_put(doc);
	return ret;
}

const struct command cmd_namespaces = {
	.name = "namespaces",
	.args = "",
	.summary = "Show namespaces: stack, space, policy, counters",
	.help = "",
	.max_args = 0,
	.run = namespaces_run,
};

/* ---- sessions ---- */

static void placement_text(struct json_object *qp)
{
	struct json_object *p;

	if (!json_object_object_get_ex(qp, "placement", &p) ||
	    !json_object_is_type(p, json_type_object))
		return;
	printf("      placement");
	json_object_object_foreach(p, part, where)
	{
		printf("  %s: %s", part, where ? json_object_get_string(where) : "-");
	}
	putchar('\n');
}

static void session_text(struct json_object *s)
{
	static const struct view_col region_cols[] = {
		{ "id", "REGION", VIEW_PLAIN },
		{ "iova", "IOVA", VIEW_HEX },
		{ "len", "LENGTH", VIEW_BYTES },
		{ "flags", "FLAGS", VIEW_HEX },
		{ "dead", "DEAD", VIEW_PLAIN },
		{ "placement", "PLACEMENT", VIEW_PLAIN },
	};
	static const struct view_col qp_cols[] = {
		{ "qid", "QUEUE", VIEW_PLAIN },	      { "depth", "DEPTH", VIEW_PLAIN },
		{ "mode", "MODE", VIEW_HEX },	      { "state", "STATE", VIEW_PLAIN },
		{ "outstanding", "OUTSTANDING", VIEW_PLAIN }, { "reactor", "REACTOR", VIEW_PLAIN },
		{ "host", "HOST", VIEW_PLAIN },	      { "checksums", "CHECKSUMS", VIEW_PLAIN },
		{ "reason", "REASON", VIEW_PLAIN },
	};
	struct json_object *list;

	json_object_object_foreach(s, name, v)
	{
		if (v && json_object_is_type(v, json_type_array) && strcmp(name, "access"))
			continue;
		if (v && json_object_is_type(v, json_type_object) && strcmp(name, "access"))
			continue;
		printf("%s%s %s", strcmp(name, "id") ? "  " : "session ", strcmp(name, "id") ? name : "",
		       v ? json_object_get_string(v) : "-");
	}
	putchar('\n');
	list = rows(s, "regions");
	if (list)
		view_table(list, COLS(region_cols), "  ");
	list = rows(s, "qps");
	if (!list)
		return;
	view_table(list, COLS(qp_cols), "  ");
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *qp = json_object_array_get_idx(list, i), *qid = NULL;

		json_object_object_get_ex(qp, "qid", &qid);
		printf("    queue %s\n", qid ? json_object_get_string(qid) : "?");
		placement_text(qp);
		if (counters_of(qp))
			view_object(counters_of(qp), "      ", true);
	}
}

static int sessions_run(struct ctl *c, int argc, char **argv)
{
	struct json_object *doc, *list;
	int ret = ctl_report(c, GKV_QUERY_SESSIONS, &doc);

	(void)argc;
	(void)argv;
	if (ret)
		return ret;
	list = list_of(doc, "sessions");
	if (c->json)
		view_json(doc);
	else if (!list)
		ret = ctl_fail(c, "the daemon's report has no list of sessions");
	for (size_t i = 0; list && !c->json && !c->quiet && i < json_object_array_length(list); i++)
		session_text(json_object_array_get_idx(list, i));
	json_object_put(doc);
	return ret;
}

const struct command cmd_sessions = {
	.name = "sessions",
	.args = "",
	.summary = "Show sessions with their regions and queue pairs",
	.help = "",
	.max_args = 0,
	.run = sessions_run,
};

/* ---- watch ---- */

enum { OPT_INTERVAL = OPT_CMD, OPT_COUNT };

static struct {
	uint64_t interval_s;
	uint64_t count;	/* 0: until interrupted */
} watch_args = { .interval_s = 1 };

static int watch_option(struct ctl *c, int val, const char *arg)
{
	uint64_t *out = val == OPT_INTERVAL ? &watch_args.interval_s : &watch_args.count;

	if (parse_u64(arg, out) || !*out || *out > 86400)
		return ctl_usage(c, "--%s \"%s\" is no number from 1 to 86400",
				 val == OPT_INTERVAL ? "interval" : "count", arg);
	return EX_DONE;
}

/* What changed between two sets of counters, some in groups, per second. */
static void add_rates(struct json_object *out, struct json_object *before,
		      struct json_object *after, double seconds)
{
	json_object_object_foreach(after, name, v)
	{
		struct json_object *old, *group;

		if (!json_object_object_get_ex(before, name, &old) || !v || !old)
			continue;
		if (json_object_is_type(v, json_type_object) &&
		    json_object_is_type(old, json_type_object)) {
			group = json_object_new_object();
			add_rates(group, old, v, seconds);
			json_object_object_add(out, name, group);
		} else if (json_object_is_type(v, json_type_int)) {
			double delta = (double)(json_object_get_int64(v) -
						json_object_get_int64(old));

			json_object_object_add(out, name, json_object_new_double(delta / seconds));
		}
	}
}

static struct json_object *rates(struct json_object *before, struct json_object *after,
				 double seconds)
{
	struct json_object *out = json_object_new_object();

	if (counters_of(before) && counters_of(after))
		add_rates(out, counters_of(before), counters_of(after), seconds);
	return out;
}

static double seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void watch_text(struct json_object *per_s)
{
	char when[16];
	time_t t = time(NULL);
	struct tm tm;

	strftime(when, sizeof(when), "%H:%M:%S", localtime_r(&t, &tm));
	if (isatty(STDOUT_FILENO))
		printf("\033[H\033[J");
	printf("%s, per second (what is not 0)\n", when);
	view_object(per_s, "  ", true);
	fflush(stdout);
}

static int watch_run(struct ctl *c, int argc, char **argv)
{
	struct json_object *before, *after, *per_s;
	double t0, t1;
	int ret = ctl_report(c, GKV_QUERY_STATUS, &before);

	(void)argc;
	(void)argv;
	if (ret)
		return ret;
	t0 = seconds_now();
	for (uint64_t i = 0; !watch_args.count || i < watch_args.count; i++) {
		sleep((unsigned int)watch_args.interval_s);
		ret = ctl_report(c, GKV_QUERY_STATUS, &after);
		if (ret)
			break;
		t1 = seconds_now();
		per_s = rates(before, after, t1 - t0);
		if (c->json) {
			puts(json_object_to_json_string_ext(per_s, JSON_C_TO_STRING_PLAIN));
			fflush(stdout);
		} else {
			watch_text(per_s);
		}
		json_object_put(per_s);
		json_object_put(before);
		before = after;
		t0 = t1;
	}
	json_object_put(before);
	return ret;
}

static const struct option watch_opts[] = {
	{ "interval", required_argument, NULL, OPT_INTERVAL },
	{ "count", required_argument, NULL, OPT_COUNT },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_watch = {
	.name = "watch",
	.args = "[--interval SECONDS] [--count N]",
	.summary = "Show the daemon's counters as rates, again and again",
	.help = "  --interval SECONDS      between two reports (1)\n"
		"  --count N               stop after N reports\n",
	.opts = watch_opts,
	.option = watch_option,
	.max_args = 0,
	.run = watch_run,
};
