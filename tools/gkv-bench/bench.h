/* SPDX-License-Identifier: MIT */
/* What the subcommands of gkv-bench share. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>

struct json_object;

/* "text" or "json"; dies on anything else. */
bool output_is_json(const char *arg);

/* Add a number with six significant digits or so, never NaN or infinity. */
void json_add_double(struct json_object *o, const char *name, double v);
void json_add_int(struct json_object *o, const char *name, long long v);

/* Print a document and a newline on stdout. */
void json_print(struct json_object *doc);

/* Subcommands: main()-like, argv[0] is the subcommand's name; return the exit status. */
int cmd_floor(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_idle(int argc, char **argv);

#endif /* BENCH_BENCH_H */
