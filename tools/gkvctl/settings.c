/* SPDX-License-Identifier: MIT */
/*
 * settings, get-setting, set: the daemon's settings, each with its origin.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gkv/control.h>

#include "gkvctl.h"

static const struct view_col cols[] = {
	{ "name", "NAME", VIEW_PLAIN }, { "value", "VALUE", VIEW_PLAIN },
	{ "unit", "UNIT", VIEW_PLAIN }, { "origin", "ORIGIN", VIEW_PLAIN },
	{ "min", "MIN", VIEW_PLAIN },	{ "max", "MAX", VIEW_PLAIN },
	{ "live", "LIVE", VIEW_PLAIN },
};

/* *@list belongs to *@doc, which the caller frees with json_object_put(). */
static int read_settings(struct ctl *c, struct json_object **doc, struct json_object **list)
{
	char *text;

	if (gkv_query(c->g, GKV_QUERY_SETTINGS, &text))
		return ctl_fail(c, "report: %s", gkv_error());
	*doc = json_tokener_parse(text);
	free(text);
	*list = *doc;
	if (json_object_is_type(*doc, json_type_object))
		json_object_object_get_ex(*doc, "settings", list);
	if (json_object_is_type(*list, json_type_array))
		return EX_DONE;
	json_object_put(*doc);
	return ctl_fail(c, "the daemon's report has no list of settings");
}

static struct json_object *find_setting(struct json_object *list, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *s = json_object_array_get_idx(list, i), *v;

		if (json_object_object_get_ex(s, "name", &v) &&
		    !strcmp(json_object_get_string(v), name))
			return s;
	}
	return NULL;
}

static int connect_control(struct ctl *c)
{
	return ctl_connect(c, GKV_CONNECT_CONTROL | GKV_CONNECT_NO_RECONNECT);
}

static int settings_run(struct ctl *c, int argc, char **argv)
{
	struct json_object *doc, *list;
	int ret = connect_control(c);

	(void)argc;
	(void)argv;
	if (!ret)
		ret = read_settings(c, &doc, &list);
	if (ret)
		return ret;
	if (c->json)
		view_json(list);
	else if (!c->quiet)
		view_table(list, cols, sizeof(cols) / sizeof(cols[0]), "");
	json_object_put(doc);
	return EX_DONE;
}

static const char *text_of(struct json_object *s, const char *field)
{
	struct json_object *v;

	return json_object_object_get_ex(s, field, &v) && v ? json_object_get_string(v) : "";
}

/* NAME on stdout: the value alone for scripts, everything with -o json. */
static int show_setting(struct ctl *c, const char *name, bool with_origin)
{
	struct json_object *doc, *list, *s;
	int ret = read_settings(c, &doc, &list);

	if (ret)
		return ret;
	s = find_setting(list, name);
	if (!s)
		ret = ctl_fail(c, "there is no setting \"%s\"; see gkvctl settings", name);
	else if (c->json)
		view_json(s);
	else if (!c->quiet && with_origin)
		printf("%s = %s (%s)\n", name, text_of(s, "value"), text_of(s, "origin"));
	else if (!c->quiet)
		printf("%s\n", text_of(s, "value"));
	json_object_put(doc);
	return ret;
}

static int get_setting_run(struct ctl *c, int argc, char **argv)
{
	int ret = connect_control(c);

	(void)argc;
	return ret ? ret : show_setting(c, argv[0], false);
}

static int set_run(struct ctl *c, int argc, char **argv)
{
	int ret = connect_control(c);

	(void)argc;
	if (ret)
		return ret;
	if (strlen(argv[0]) >= GKV_CTL_NAME)
		return ctl_usage(c, "setting name has %zu bytes, the limit is %d", strlen(argv[0]),
				 GKV_CTL_NAME - 1);
	if (strlen(argv[1]) >= 2 * GKV_CTL_NAME)
		return ctl_usage(c, "value has %zu bytes, the limit is %d", strlen(argv[1]),
				 2 * GKV_CTL_NAME - 1);
	if (gkv_set(c->g, argv[0], argv[1]))
		return ctl_fail(c, "%s = %s: %s", argv[0], argv[1], gkv_error());
	return show_setting(c, argv[0], true);
}

const struct command cmd_settings = {
	.name = "settings",
	.args = "",
	.summary = "Show the daemon's settings with their origin and limits",
	.help = "",
	.max_args = 0,
	.run = settings_run,
};

const struct command cmd_get_setting = {
	.name = "get-setting",
	.args = "NAME",
	.summary = "Print the value of one setting",
	.help = "",
	.min_args = 1,
	.max_args = 1,
	.run = get_setting_run,
};

const struct command cmd_set = {
	.name = "set",
	.args = "NAME VALUE",
	.summary = "Change a live setting until the daemon stops",
	.help = "Precedence: command line of the daemon, live, configuration file, default.\n",
	.min_args = 2,
	.max_args = 2,
	.run = set_run,
};
