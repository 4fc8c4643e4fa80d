/* SPDX-License-Identifier: MIT */
/*
 * del, exist, list, flush: commands about keys that move no values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gkv/nvme_kv.h>

#include "gkvctl.h"

#define PAGE_BYTES (256u << 10)	/* of a List: some 13,000 of the longest keys */

enum { OPT_START = OPT_CMD, OPT_PREFIX, OPT_LIMIT, OPT_LONG };

static struct {
	const char *start;
	const char *prefix;
	uint64_t limit;
	bool lengths;
} args;

/* ---- Shared with other commands ---- */

static bool same_key(const uint8_t *a, uint8_t alen, const uint8_t *b, uint8_t blen)
{
	return alen == blen && !memcmp(a, b, alen);
}

int ctl_each_key(struct ctl *c, const uint8_t *start, uint8_t start_len,
		 int (*fn)(struct ctl *c, const uint8_t *key, uint8_t len, void *arg), void *arg)
{
	uint8_t first[GKV_KEY_LEN] = { 0 }, last[GKV_KEY_LEN] = { 0 }, key[GKV_KEY_LEN];
	uint8_t first_len = 0, last_len = start_len, len;
	struct gkv_mem *page;
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	bool fresh, any = false;
	size_t pos;
	int ret;

	if (start_len)
		memcpy(last, start, start_len);
	if (gkv_mem_alloc(c->g, PAGE_BYTES, &page))
		return ctl_fail(c, "buffer of %u bytes: %s", PAGE_BYTES, gkv_error());
	do {
		ctl_cmd(c, &cmd, GKV_LIST, last, last_len);
		cmd.buf = gkv_mem_addr(page);
		cmd.len = PAGE_BYTES;
		ret = ctl_exec(c, &cmd, &comp);
		if (!ret)
			ret = ctl_check(c, "list", comp.status);
		fresh = false;
		pos = 0;
		while (!ret) {
			ret = gkv_list_next(cmd.buf, PAGE_BYTES, &pos, key, &len);
			if (ret == 0)
				break;
			if (ret < 0) {
				ret = ctl_fail(c, "the daemon returned a malformed list");
				break;
			}
			ret = 0;
			/* The start key is inclusive: from the second page on it was seen. */
			if (any && same_key(key, len, last, last_len))
				continue;
			/* A controller may wrap around instead of ending. */
			if (any && same_key(key, len, first, first_len)) {
				fresh = false;
				break;
			}
			if (!any) {
				memcpy(first, key, sizeof(first));
				first_len = len;
			}
			any = fresh = true;
			memcpy(last, key, sizeof(last));
			last_len = len;
			ret = fn(c, key, len, arg);
		}
	} while (!ret && fresh);
	if (gkv_mem_free(page) && !ret)
		ret = ctl_fail(c, "buffer: %s", gkv_error());
	return ret;
}

int ctl_value_len(struct ctl *c, const uint8_t *key, uint8_t len, uint32_t *bytes)
{
	char text[KEY_TEXT_MAX];
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	int ret;

	/* A buffer of no bytes asks for the length alone. */
	ctl_cmd(c, &cmd, GKV_RETRIEVE, key, len);
	ret = ctl_exec(c, &cmd, &comp);
	if (ret)
		return ret;
	if (GKV_STATUS_CODE(comp.status) == GKV_SC_KEY_NOT_FOUND)
		return EX_NOKEY;
	*bytes = comp.result;
	return ctl_check(c, key_print(c->key_format, key, len, text), comp.status);
}

/* ---- del, exist ---- */

/* Run @opcode on one key; adds to @report, returns an exit code. */
static int one_key(struct ctl *c, uint8_t opcode, const char *text, struct json_object *report)
{
	uint8_t key[GKV_KEY_LEN], len;
	struct json_object *obj;
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	bool missing;
	int ret;

	ret = ctl_key(c, text, key, &len);
	if (ret)
		return ret;
	ctl_cmd(c, &cmd, opcode, key, len);
	ret = ctl_exec(c, &cmd, &comp);
	if (ret)
		return ret;
	missing = GKV_STATUS_CODE(comp.status) == GKV_SC_KEY_NOT_FOUND;
	obj = json_object_new_object();
	key_to_json(c, obj, key, len);
	json_object_object_add(obj, "status", json_object_new_int(comp.status));
	json_object_object_add(obj, "text", json_object_new_string(gkv_status_name(comp.status)));
	if (opcode == GKV_EXIST && (missing || !comp.status))
		json_object_object_add(obj, "exists", json_object_new_boolean(!missing));
	json_object_array_add(report, obj);
	/* That a key is missing is an answer of exist, not a failure. */
	if (opcode == GKV_EXIST && missing)
		return EX_NOKEY;
	return ctl_check(c, text, comp.status);
}

static int run_each(struct ctl *c, int argc, char **argv, uint8_t opcode,
		    struct json_object *report)
{
	int ret = EX_DONE;

	/* One bad key does not keep the others from being served; the worst code counts. */
	for (int i = 0; i < argc; i++) {
		int one = one_key(c, opcode, argv[i], report);

		if (one && (!ret || ret == EX_NOKEY))
			ret = one;
	}
	return ret;
}

static int del_run(struct ctl *c, int argc, char **argv)
{
	struct json_object *report;
	int ret = ctl_open(c, 0);

	if (ret)
		return ret;
	report = json_object_new_array();
	ret = run_each(c, argc, argv, GKV_DELETE, report);
	if (c->json && !c->quiet)
		view_json(report);
	json_object_put(report);
	return ret;
}

static int exist_run(struct ctl *c, int argc, char **argv)
{
	struct json_object *report;
	int ret = ctl_open(c, GKV_NS_RDONLY);

	if (ret)
		return ret;
	report = json_object_new_array();
	ret = run_each(c, argc, argv, GKV_EXIST, report);
	if (!c->quiet && c->json)
		view_json(report);
	for (size_t i = 0; !c->quiet && !c->json && i < json_object_array_length(report); i++) {
		struct json_object *obj = json_object_array_get_idx(report, i), *key, *exists;

		if (!json_object_object_get_ex(obj, "exists", &exists))
			continue;
		json_object_object_get_ex(obj, "key", &key);
		printf("%-7s %s\n", json_object_get_boolean(exists) ? "present" : "missing",
		       json_object_get_string(key));
	}
	json_object_put(report);
	return ret;
}

const struct command cmd_del = {
	.name = "del",
	.args = "KEY...",
	.summary = "Delete keys",
	.help = "Deleting a missing key succeeds, unless the namespace's Feature 20h (EDNEK) is\n"
		"set: then the exit status is 3.\n",
	.min_args = 1,
	.max_args = -1,
	.run = del_run,
};

const struct command cmd_exist = {
	.name = "exist",
	.args = "KEY...",
	.summary = "Tell whether keys exist",
	.help = "The exit status is 0 when all of them do, 3 when one does not.\n",
	.min_args = 1,
	.max_args = -1,
	.run = exist_run,
};

/* ---- list ---- */

#define LIST_FULL (-1)	/* the limit is reached */

struct list {
	const uint8_t *prefix;
	size_t prefix_len;
	uint64_t count;
};

static int list_each(struct ctl *c, const uint8_t *key, uint8_t len, void *arg)
{
	struct list *l = arg;
	struct json_object *obj;
	char text[KEY_TEXT_MAX];
	uint32_t bytes = 0;
	int ret;

	if (len < l->prefix_len || (l->prefix_len && memcmp(key, l->prefix, l->prefix_len)))
		return 0;
	if (args.limit && l->count == args.limit)
		return LIST_FULL;
	if (args.lengths) {
		ret = ctl_value_len(c, key, len, &bytes);
		if (ret == EX_NOKEY)
			return 0;	/* deleted since it was listed */
		if (ret)
			return ret;
	}
	if (c->json) {
		obj = json_object_new_object();
		key_to_json(c, obj, key, len);
		if (args.lengths)
			json_object_object_add(obj, "bytes", json_object_new_int64(bytes));
		printf("%s%s", l->count ? "," : "",
		       json_object_to_json_string_ext(obj, JSON_C_TO_STRING_NOSLASHESCAPE));
		json_object_put(obj);
	} else {
		if (args.lengths)
			printf("%10u ", bytes);
		/* Text keys may hold NULs. */
		key_print(c->key_format, key, len, text);
		fwrite(text, 1, c->key_format == KEY_TEXT ? len : strlen(text), stdout);
		putchar('\n');
	}
	l->count++;
	return 0;
}

static int list_run(struct ctl *c, int argc, char **argv)
{
	uint8_t start[GKV_KEY_LEN], prefix[GKV_KEY_LEN], start_len = 0, prefix_len = 0;
	struct list l = { .prefix = prefix };
	int ret = ctl_open(c, GKV_NS_RDONLY);

	(void)argc;
	(void)argv;
	if (!ret && args.start)
		ret = ctl_key(c, args.start, start, &start_len);
	if (!ret && args.prefix)
		ret = ctl_key(c, args.prefix, prefix, &prefix_len);
	if (ret)
		return ret;
	l.prefix_len = prefix_len;
	if (c->json)
		printf("{\"keys\":[");
	ret = ctl_each_key(c, start, start_len, list_each, &l);
	/* Cut short by an error the document stays open, so that nobody takes it for whole. */
	if (c->json && ret <= 0)
		printf("],\"count\":%llu,\"more\":%s}\n", (unsigned long long)l.count,
		       ret == LIST_FULL ? "true" : "false");
	return ret == LIST_FULL ? EX_DONE : ret;
}

static int list_option(struct ctl *c, int val, const char *arg)
{
	switch (val) {
	case OPT_START:
		args.start = arg;
		break;
	case OPT_PREFIX:
		args.prefix = arg;
		break;
	case OPT_LIMIT:
		if (parse_u64(arg, &args.limit) || !args.limit)
			return ctl_usage(c, "--limit \"%s\" is no number from 1 on", arg);
		break;
	case OPT_LONG:
		args.lengths = true;
		break;
	}
	return EX_DONE;
}

static const struct option list_opts[] = {
	{ "start", required_argument, NULL, OPT_START },
	{ "prefix", required_argument, NULL, OPT_PREFIX },
	{ "limit", required_argument, NULL, OPT_LIMIT },
	{ "long", no_argument, NULL, OPT_LONG },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_list = {
	.name = "list",
	.args = "[--start KEY] [--prefix KEY] [--limit N] [--long]",
	.summary = "List keys, in the store's order",
	.help = "  --start KEY             begin at KEY, or at the next one when it is missing\n"
		"  --prefix KEY            only keys that begin so; sorted out by gkvctl, as the\n"
		"                          command set has no prefixes\n"
		"  --limit N               stop after N keys\n"
		"  --long                  with the length of each value, in bytes\n",
	.opts = list_opts,
	.option = list_option,
	.max_args = 0,
	.run = list_run,
};

/* ---- flush ---- */

static int flush_run(struct ctl *c, int argc, char **argv)
{
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	int ret = ctl_open(c, 0);

	(void)argc;
	(void)argv;
	if (ret)
		return ret;
	ctl_cmd(c, &cmd, GKV_FLUSH, NULL, 0);
	progress_begin(c, "flushing", 0);
	ret = ctl_exec(c, &cmd, &comp);
	progress_end();
	return ret ? ret : ctl_check(c, c->ns.name, comp.status);
}

const struct command cmd_flush = {
	.name = "flush",
	.args = "",
	.summary = "Make everything acknowledged so far survive a power loss",
	.help = "",
	.max_args = 0,
	.run = flush_run,
};
