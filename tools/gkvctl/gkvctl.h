/* SPDX-License-Identifier: MIT */
/*
 * gkvctl: operate kvbridged from a shell.
 *
 * main.c parses the command line and dispatches; each command lives in the file of
 * its subject. Everything that prints builds a JSON document first; the text views
 * are made from it, so that both always say the same.
 */
#ifndef GKVCTL_H
#define GKVCTL_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "gkv.h"

/* Exit codes; documented in gkvctl.1. */
enum {
	EX_DONE = 0,
	EX_FAILED = 1,
	EX_BADUSE = 2,
	EX_NOKEY = 3,
};

enum key_format { KEY_AUTO, KEY_HEX, KEY_TEXT };

struct ctl {
	const char *socket;	/* NULL: the library's default */
	const char *ns_name;	/* NULL: the lowest namespace */
	enum key_format key_format;
	bool json;
	bool quiet;
	const char *cmd;	/* name of the running command */

	struct gkv *g;
	struct gkv_ns_info ns;
	struct gkv_qp *qp;
	struct gkv_mem *mem;	/* transfer buffer, see ctl_buffer() */
};

struct command {
	const char *name;
	const char *args;	/* synopsis */
	const char *summary;	/* one line */
	const char *help;	/* option lines and notes, may be "" */
	const struct option *opts;	/* NULL: none of its own; .val from OPT_CMD on */
	/* Take one of the command's options; returns an exit code. */
	int (*option)(struct ctl *c, int val, const char *arg);
	int min_args, max_args;	/* max_args < 0: any number */
	int (*run)(struct ctl *c, int argc, char **argv);
};

#define OPT_CMD 0x100

extern const struct command cmd_status, cmd_namespaces, cmd_sessions, cmd_settings,
	cmd_get_setting, cmd_set, cmd_watch, cmd_put, cmd_get, cmd_del, cmd_exist, cmd_list,
	cmd_flush, cmd_identify, cmd_features, cmd_log, cmd_module, cmd_provider, cmd_region;

/* ---- Messages (main.c): one line on stderr; both return the exit code ---- */

int ctl_fail(const struct ctl *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int ctl_usage(const struct ctl *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parse an unsigned number with optional 0x and suffix k, m, g (binary). -1 if it is none. */
int parse_u64(const char *text, uint64_t *out);

/* ---- Session (conn.c) ---- */

/* Each returns an exit code, having printed what went wrong. */
int ctl_connect(struct ctl *c, uint32_t flags);
int ctl_open_ns(struct ctl *c, uint32_t ns_flags);
/* Connect, open the namespace and create a queue pair. */
int ctl_open(struct ctl *c, uint32_t ns_flags);
void ctl_close(struct ctl *c);

/* Make c->mem at least @len bytes; its contents are undefined. */
int ctl_buffer(struct ctl *c, size_t len);

/*
 * Run one command to its completion. Returns EX_DONE whatever the status in @comp,
 * EX_FAILED when there is none.
 */
int ctl_exec(struct ctl *c, const struct gkv_cmd *cmd, struct gkv_comp *comp);

/* Fill in @cmd for a command on the open namespace. */
void ctl_cmd(const struct ctl *c, struct gkv_cmd *cmd, uint8_t opcode, const uint8_t *key,
	     uint8_t key_len);

/* The exit code for a status; prints unless it is success. @subject: what it was about. */
int ctl_check(const struct ctl *c, const char *subject, uint16_t status);

/* Connect and read a report; *@obj is freed by the caller with json_object_put(). */
int ctl_report(struct ctl *c, uint32_t what, struct json_object **obj);

/* Run an admin command; prints and returns an exit code unless it succeeded. */
int ctl_admin(struct ctl *c, const void *sqe, void *cqe, void *data, uint32_t *len);

/* ---- Keys (key.c) ---- */

#define KEY_TEXT_MAX (4 + 2 * GKV_KEY_LEN + 1)

/* Returns NULL, or why @text is no key. */
const char *key_parse(enum key_format format, const char *text, uint8_t key[GKV_KEY_LEN],
		      uint8_t *len);

/* What key_parse() with the same format turns into the key again. */
const char *key_print(enum key_format format, const uint8_t *key, uint8_t len,
		      char buf[KEY_TEXT_MAX]);

/* Like key_print(), for use as a file name. */
const char *key_file_name(const uint8_t *key, uint8_t len, char buf[KEY_TEXT_MAX]);

/* Parse an argument and check it against the open namespace; prints on failure. */
int ctl_key(const struct ctl *c, const char *text, uint8_t key[GKV_KEY_LEN], uint8_t *len);

/* Add "key" and "hex" to @obj. */
void key_to_json(const struct ctl *c, struct json_object *obj, const uint8_t *key, uint8_t len);

/*
 * Call @fn for every key of the namespace from @start on (@start_len 0: the first),
 * until it returns non-zero; returns that, or an exit code.
 */
int ctl_each_key(struct ctl *c, const uint8_t *start, uint8_t start_len,
		 int (*fn)(struct ctl *c, const uint8_t *key, uint8_t len, void *arg), void *arg);

/* Length of a value without its bytes; an exit code, EX_NOKEY silently when missing. */
int ctl_value_len(struct ctl *c, const uint8_t *key, uint8_t len, uint32_t *bytes);

/* ---- Output (view.c) ---- */

enum view_kind { VIEW_PLAIN, VIEW_BYTES, VIEW_TIME_NS, VIEW_TIME_S, VIEW_LIST, VIEW_HEX };

struct view_col {
	const char *field;
	const char *title;
	enum view_kind kind;
};

/* Print a document as JSON on stdout, for people on a terminal and on one line otherwise. */
void view_json(struct json_object *obj);

/* As -o, -q and the terminal want it: as JSON, as text, or not at all. */
void view_doc(const struct ctl *c, struct json_object *doc);

/* Bytes on stdout, but never on a terminal: an exit code. */
int view_raw(const struct ctl *c, const void *data, uint32_t len);

/* Add a member: a number; ASCII padded with spaces, as NVMe has it. */
void add_int(struct json_object *obj, const char *name, uint64_t v);
void add_ascii(struct json_object *obj, const char *name, const char *p, size_t len);

/* One row per object of @array; a missing field is printed as "-". */
void view_table(struct json_object *array, const struct view_col *cols, size_t ncols,
		const char *indent);

/* The same with every scalar field of the first object as a column. */
void view_rows(struct json_object *array, const char *indent);

/* Every member as "name value", nested objects indented, zero counters left out on request. */
void view_object(struct json_object *obj, const char *indent, bool skip_zero);

void view_size(uint64_t bytes, char *buf, size_t len);
void view_time_ns(uint64_t ns, char *buf, size_t len);

/* ---- Progress (progress.c) ---- */

/*
 * A line on stderr for what lasts longer than a second, on a terminal only. @total 0:
 * not known, or nothing to measure it by.
 */
void progress_begin(const struct ctl *c, const char *verb, uint64_t total);
void progress_update(uint64_t done);
void progress_end(void);

#endif
