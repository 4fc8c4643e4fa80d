/* SPDX-License-Identifier: MIT */
/* gkv-bench: measure a kvbridged, and the machine beside it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "bench.h"
#include "util.h"

#ifndef GKV_BUILD_VERSION
#define GKV_BUILD_VERSION "unknown"
#endif

bool output_is_json(const char *arg)
{
	if (!strcmp(arg, "json"))
		return true;
	if (strcmp(arg, "text"))
		die("-o %s: must be text or json", arg);
	return false;
}

void json_add_double(struct json_object *o, const char *name, double v)
{
	char text[40];

	if (!isfinite(v))
		v = 0;
	snprintf(text, sizeof(text), "%.7g", v);
	json_object_object_add(o, name, json_object_new_double_s(v, text));
}

void json_add_int(struct json_object *o, const char *name, long long v)
{
	json_object_object_add(o, name, json_object_new_int64(v));
}

void json_print(struct json_object *doc)
{
	puts(json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PRETTY |
							 JSON_C_TO_STRING_NOSLASHESCAPE));
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} commands[] = {
	{ "floor", cmd_floor, "what the machine itself gives: bare ring, memcpy, fio" },
	{ "run", cmd_run, "a mix of commands: latency percentiles and rates" },
	{ "trace", cmd_trace, "replay a Mooncake request trace as KV-cache blocks" },
	{ "idle", cmd_idle, "what idle queue pairs cost the daemon" },
};

static void usage(FILE *f)
{
	fputs("usage: gkv-bench COMMAND [options]\n\n", f);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(f, "  %-8s %s\n", commands[i].name, commands[i].what);
	fputs("\ngkv-bench COMMAND --help lists the options. Exit status: 0 all well, 1 errors or\n"
	      "values that do not match, 2 wrong use or no daemon.\n",
	      f);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("gkv-bench " GKV_BUILD_VERSION);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	warn("%s: no such command", argv[1]);
	usage(stderr);
	return 2;
}
