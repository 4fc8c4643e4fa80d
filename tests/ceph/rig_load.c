/* SPDX-License-Identifier: MIT */
/*
 * The load of tests/lib/load.h as a program, so that a script can make faults while it runs
 * (rig.py): rig_load SOCKET NAME=NUMBER..., the names being those of struct load_opts.
 *
 * Commands on standard input, a line each; a line "= ..." answers each:
 *
 *   done            how many completions so far
 *   unknown         how many outcomes are unknown
 *   progress N S    wait for N more completions, at most S seconds
 *   settle S        hold back new commands until none is outstanding
 *   resume          go on
 *   judge WHAT      stop, and print a TAP result for each promise
 *
 * The end of the input ends the program.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"
#include "rig.h"

static bool option(struct load_opts *o, const char *arg)
{
	const struct {
		const char *name;
		unsigned int *value;
	} known[] = {
		{ "threads", &o->threads }, { "qps", &o->qps }, { "depth", &o->depth },
		{ "busy", &o->busy }, { "keys", &o->keys }, { "value_min", &o->value_min },
		{ "value_max", &o->value_max }, { "pause_us", &o->pause_us },
		{ "flags", &o->flags },
	};
	const char *number = strchr(arg, '=');

	if (!number++)
		return false;
	if (!strncmp(arg, "mutations=", 10)) {
		o->mutations = strtoul(number, NULL, 0);
		return true;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t len = strlen(known[i].name);

		if (!strncmp(arg, known[i].name, len) && arg[len] == '=') {
			*known[i].value = (unsigned int)strtoul(number, NULL, 0);
			return true;
		}
	}
	return false;
}

static void answer(const struct load *l, bool ok)
{
	const char *error = load_error(l);

	printf("= %s%s%s\n", ok ? "ok" : "no", error ? ": " : "", error ? error : "");
}

static void obey(struct load *l, char *line)
{
	unsigned int seconds;
	uint64_t n;

	line[strcspn(line, "\n")] = '\0';
	if (!strcmp(line, "done")) {
		printf("= %" PRIu64 "\n", load_done(l));
	} else if (!strcmp(line, "unknown")) {
		printf("= %" PRIu64 "\n", load_unknown(l));
	} else if (sscanf(line, "progress %" SCNu64 " %u", &n, &seconds) == 2) {
		answer(l, load_progress(l, n, seconds));
	} else if (sscanf(line, "settle %u", &seconds) == 1) {
		answer(l, load_settle(l, seconds));
	} else if (!strcmp(line, "resume")) {
		load_resume(l);
		answer(l, true);
	} else if (!strncmp(line, "judge ", 6)) {
		load_judge(l, line + 6);
		printf("= ok\n");
	} else {
		printf("= no: what is \"%s\"?\n", line);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct load_opts opts = { .threads = 2, .qps = 2, .depth = 32, .busy = 8, .keys = 16,
				  .value_min = 8, .value_max = 128 << 10 };
	struct load *l;
	char line[256];

	for (int i = 2; i < argc; i++) {
		if (!option(&opts, argv[i])) {
			fprintf(stderr, "rig_load: what is \"%s\"?\n", argv[i]);
			return 2;
		}
	}
	if (argc < 2) {
		fprintf(stderr, "usage: rig_load SOCKET NAME=NUMBER...\n");
		return 2;
	}
	l = load_start(argv[1], &opts);
	printf("= ok\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(l, line);
	load_stop(l);
	load_free(l);
	return 0;
}
