/* SPDX-License-Identifier: MIT */
/*
 * put and get: values between files and the store.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gkv/nvme_kv.h>

#include "gkvctl.h"

#define IO_CHUNK	(4u << 20)	/* progress moves in steps of this */
#define FIRST_BUFFER	(1u << 20)	/* values up to this come in one command */

enum { OPT_MUST_EXIST = OPT_CMD, OPT_MUST_NOT_EXIST, OPT_DIR, OPT_ALL };

static struct {
	uint8_t options;
	const char *dir;	/* put --dir, get --all */
} args;

static int transfer_option(struct ctl *c, int val, const char *arg)
{
	(void)c;
	switch (val) {
	case OPT_MUST_EXIST:
		args.options |= GKV_O_MUST_EXIST;
		break;
	case OPT_MUST_NOT_EXIST:
		args.options |= GKV_O_MUST_NOT_EXIST;
		break;
	default:
		args.dir = arg;
		break;
	}
	return EX_DONE;
}

/* ---- put ---- */

static int too_long(const struct ctl *c, const char *name, const char *bound, uint64_t bytes)
{
	return ctl_fail(c, "%s has %s%llu bytes, the limit of namespace %s is %u bytes", name, bound,
			(unsigned long long)bytes, c->ns.name, c->ns.value_max);
}

/* Read until @len bytes or the end; returns the count or -1 with errno. */
static ssize_t read_full(int fd, uint8_t *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		size_t want = len - done < IO_CHUNK ? len - done : IO_CHUNK;
		ssize_t n = read(fd, buf + done, want);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
		progress_update(done);
	}
	return (ssize_t)done;
}

static int load_file(struct ctl *c, int fd, const char *name, uint64_t size, uint32_t *len)
{
	ssize_t n;

	if (size > c->ns.value_max)
		return too_long(c, name, "", size);
	if (size && ctl_buffer(c, size))
		return EX_FAILED;
	progress_begin(c, "reading", size);
	n = size ? read_full(fd, gkv_mem_addr(c->mem), size) : 0;
	if (n < 0)
		return ctl_fail(c, "%s: %s", name, strerror(errno));
	if ((uint64_t)n != size)
		return ctl_fail(c, "%s changed while it was read: %zd of %llu bytes were there",
				name, n, (unsigned long long)size);
	*len = (uint32_t)size;
	return EX_DONE;
}

/* Length unknown: grow up to one byte more than may be stored. */
static int load_stream(struct ctl *c, int fd, const char *name, uint32_t *len)
{
	size_t limit = (size_t)c->ns.value_max + 1, cap = 0, used = 0;
	uint8_t *buf = NULL, *bigger;
	int ret = EX_FAILED;

	progress_begin(c, "reading", 0);
	for (;;) {
		ssize_t n;

		if (used == cap) {
			cap = cap ? cap * 2 : 64u << 10;
			if (cap > limit)
				cap = limit;
			bigger = realloc(buf, cap);
			if (!bigger) {
				ctl_fail(c, "%s: no memory for %zu bytes", name, cap);
				goto out;
			}
			buf = bigger;
		}
		n = read(fd, buf + used, cap - used < IO_CHUNK ? cap - used : IO_CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			ctl_fail(c, "%s: %s", name, strerror(errno));
			goto out;
		}
		if (n == 0)
			break;
		used += (size_t)n;
		if (used == limit) {
			ret = too_long(c, name, "at least ", used);
			goto out;
		}
		progress_update(used);
	}
	if (used && ctl_buffer(c, used))
		goto out;
	if (used)
		memcpy(gkv_mem_addr(c->mem), buf, used);
	*len = (uint32_t)used;
	ret = EX_DONE;
out:
	free(buf);
	return ret;
}

static int load(struct ctl *c, const char *name, uint32_t *len)
{
	bool is_stdin = !strcmp(name, "-");
	int fd = is_stdin ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int ret;

	if (is_stdin)
		name = "standard input";
	if (fd < 0 || fstat(fd, &st)) {
		ret = ctl_fail(c, "%s: %s", name, strerror(errno));
		goto out;
	}
	if (S_ISDIR(st.st_mode))
		ret = ctl_fail(c, "%s is a directory; see put --dir", name);
	else if (S_ISREG(st.st_mode) && !is_stdin)
		ret = load_file(c, fd, name, (uint64_t)st.st_size, len);
	else
		ret = load_stream(c, fd, name, len);
out:
	if (fd >= 0 && !is_stdin)
		close(fd);
	return ret;
}

static struct json_object *describe(struct ctl *c, const uint8_t *key, uint8_t klen, uint32_t len,
				    uint32_t crc)
{
	struct json_object *obj = json_object_new_object();
	char hex[9];

	snprintf(hex, sizeof(hex), "%08x", crc);
	key_to_json(c, obj, key, klen);
	json_object_object_add(obj, "bytes", json_object_new_int64(len));
	json_object_object_add(obj, "crc32c", json_object_new_string(hex));
	return obj;
}

static int put_one(struct ctl *c, const uint8_t *key, uint8_t klen, const char *file)
{
	char text[KEY_TEXT_MAX];
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	uint32_t len = 0;
	int ret;

	ret = load(c, file, &len);
	if (ret)
		return ret;
	ctl_cmd(c, &cmd, GKV_STORE, key, klen);
	cmd.options = args.options;
	cmd.len = len;
	if (len) {
		cmd.buf = gkv_mem_addr(c->mem);
		cmd.crc = gkv_crc32c(0, cmd.buf, len);
	}
	progress_begin(c, "storing", 0);
	ret = ctl_exec(c, &cmd, &comp);
	progress_end();
	if (!ret)
		ret = ctl_check(c, key_print(c->key_format, key, klen, text), comp.status);
	if (!ret && c->json && !c->quiet) {
		struct json_object *obj = describe(c, key, klen, len, cmd.crc);

		view_json(obj);
		json_object_put(obj);
	}
	return ret;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int put_dir(struct ctl *c)
{
	struct dirent **list;
	int n = scandir(args.dir, &list, NULL, by_name);
	unsigned int stored = 0;
	int ret = EX_DONE;

	if (n < 0)
		return ctl_fail(c, "%s: %s", args.dir, strerror(errno));
	c->key_format = KEY_AUTO;	/* what key_file_name() writes */
	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;
		uint8_t key[GKV_KEY_LEN], klen;
		struct stat st;
		char *path;
		int one;

		if (asprintf(&path, "%s/%s", args.dir, name) < 0) {
			ret = ctl_fail(c, "no memory");
			break;
		}
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
			/* One bad file does not keep the others from being stored. */
			one = ctl_key(c, name, key, &klen) ? EX_FAILED :
							     put_one(c, key, klen, path);
			if (one)
				ret = one;
			else
				stored++;
		}
		free(path);
	}
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
	if (!c->quiet && !c->json)
		printf("%u stored\n", stored);
	return ret;
}

static int put_run(struct ctl *c, int argc, char **argv)
{
	uint8_t key[GKV_KEY_LEN], klen;
	int ret;

	if (args.dir && argc)
		return ctl_usage(c, "argument \"%s\" is one too many: --dir names keys and files",
				 argv[0]);
	if (!args.dir && !argc)
		return ctl_usage(c, "an argument is missing; usage: gkvctl put %s", cmd_put.args);
	ret = ctl_open(c, 0);
	if (ret)
		return ret;
	if (args.dir)
		return put_dir(c);
	ret = ctl_key(c, argv[0], key, &klen);
	return ret ? ret : put_one(c, key, klen, argc > 1 ? argv[1] : "-");
}

/* ---- get ---- */

/* Retrieve into c->mem, coming again with a larger buffer while the value is longer. */
static int retrieve(struct ctl *c, const uint8_t *key, uint8_t klen, uint32_t *len, uint32_t *crc)
{
	size_t want = c->ns.value_max < FIRST_BUFFER ? c->ns.value_max : FIRST_BUFFER;
	char text[KEY_TEXT_MAX];
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	int ret;

	progress_begin(c, "retrieving", 0);
	for (;;) {
		if (ctl_buffer(c, want ? want : 1))
			return EX_FAILED;
		ctl_cmd(c, &cmd, GKV_RETRIEVE, key, klen);
		cmd.buf = gkv_mem_addr(c->mem);
		cmd.len = (uint32_t)(gkv_mem_len(c->mem) < UINT32_MAX ? gkv_mem_len(c->mem) :
									 UINT32_MAX);
		ret = ctl_exec(c, &cmd, &comp);
		if (!ret)
			ret = ctl_check(c, key_print(c->key_format, key, klen, text), comp.status);
		if (ret)
			return ret;
		if (comp.result <= cmd.len)
			break;
		want = comp.result;
	}
	progress_end();
	*len = comp.result;
	*crc = gkv_crc32c(0, cmd.buf, comp.result);
	if ((comp.flags & GKV_C_CRC) && comp.crc != *crc)
		return ctl_fail(c, "%s: the bytes that arrived have crc32c %08x, the stored value "
				   "has %08x", key_print(c->key_format, key, klen, text), *crc,
				comp.crc);
	return EX_DONE;
}

static int write_full(struct ctl *c, int fd, const char *name, const uint8_t *buf, size_t len)
{
	size_t done = 0;

	progress_begin(c, "writing", len);
	while (done < len) {
		size_t want = len - done < IO_CHUNK ? len - done : IO_CHUNK;
		ssize_t n = write(fd, buf + done, want);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ctl_fail(c, "%s: %s (%zu of %zu bytes written)", name,
					strerror(errno), done, len);
		done += (size_t)n;
		progress_update(done);
	}
	progress_end();
	return EX_DONE;
}

/* The file is touched only once the whole value has arrived. */
static int save(struct ctl *c, const char *file, uint32_t len)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int ret;

	if (fd < 0)
		return ctl_fail(c, "%s: %s", file, strerror(errno));
	ret = write_full(c, fd, file, gkv_mem_addr(c->mem), len);
	if (close(fd) && !ret)
		ret = ctl_fail(c, "%s: %s", file, strerror(errno));
	return ret;
}

static struct json_object *base64(const uint8_t *p, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t out = 0;
	struct json_object *obj;
	char *text = malloc((len + 2) / 3 * 4 + 1);

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16;

		if (i + 1 < len)
			v |= (uint32_t)p[i + 1] << 8;
		if (i + 2 < len)
			v |= p[i + 2];
		text[out++] = digits[v >> 18];
		text[out++] = digits[v >> 12 & 63];
		text[out++] = i + 1 < len ? digits[v >> 6 & 63] : '=';
		text[out++] = i + 2 < len ? digits[v & 63] : '=';
	}
	text[out] = '\0';
	obj = json_object_new_string(text);
	free(text);
	return obj;
}

static int get_one(struct ctl *c, const uint8_t *key, uint8_t klen, const char *file)
{
	bool to_stdout = !strcmp(file, "-");
	struct json_object *obj;
	uint32_t len, crc;
	int ret;

	ret = retrieve(c, key, klen, &len, &crc);
	if (!ret && !to_stdout)
		ret = save(c, file, len);
	else if (!ret && !c->json)
		ret = write_full(c, STDOUT_FILENO, "standard output", gkv_mem_addr(c->mem), len);
	if (ret || !c->json)
		return ret;
	if (c->quiet && !to_stdout)
		return ret;
	obj = describe(c, key, klen, len, crc);
	if (to_stdout)
		json_object_object_add(obj, "value", base64(gkv_mem_addr(c->mem), len));
	else
		json_object_object_add(obj, "file", json_object_new_string(file));
	view_json(obj);
	json_object_put(obj);
	return EX_DONE;
}

struct get_all {
	unsigned int fetched;
	int ret;
};

static int get_each(struct ctl *c, const uint8_t *key, uint8_t klen, void *arg)
{
	struct get_all *all = arg;
	char name[KEY_TEXT_MAX], *path;
	int ret;

	if (asprintf(&path, "%s/%s", args.dir, key_file_name(key, klen, name)) < 0)
		return ctl_fail(c, "no memory");
	ret = get_one(c, key, klen, path);
	free(path);
	if (ret)
		all->ret = ret;
	else
		all->fetched++;
	return 0;
}

static int get_dir(struct ctl *c)
{
	struct get_all all = { 0 };
	int ret;

	if (mkdir(args.dir, 0777) && errno != EEXIST)
		return ctl_fail(c, "%s: %s", args.dir, strerror(errno));
	ret = ctl_each_key(c, NULL, 0, get_each, &all);
	if (!c->quiet && !c->json)
		printf("%u fetched\n", all.fetched);
	return ret ? ret : all.ret;
}

static int get_run(struct ctl *c, int argc, char **argv)
{
	uint8_t key[GKV_KEY_LEN], klen;
	int ret;

	if (args.dir && argc)
		return ctl_usage(c, "argument \"%s\" is one too many: --all names keys and files",
				 argv[0]);
	if (!args.dir && !argc)
		return ctl_usage(c, "an argument is missing; usage: gkvctl get %s", cmd_get.args);
	ret = ctl_open(c, GKV_NS_RDONLY);
	if (ret)
		return ret;
	if (args.dir)
		return get_dir(c);
	ret = ctl_key(c, argv[0], key, &klen);
	return ret ? ret : get_one(c, key, klen, argc > 1 ? argv[1] : "-");
}

static const struct option put_opts[] = {
	{ "must-exist", no_argument, NULL, OPT_MUST_EXIST },
	{ "must-not-exist", no_argument, NULL, OPT_MUST_NOT_EXIST },
	{ "dir", required_argument, NULL, OPT_DIR },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_put = {
	.name = "put",
	.args = "KEY [FILE|-] | --dir DIR",
	.summary = "Store a file, or standard input, under a key",
	.help = "  --must-exist            only replace: exit 3 when the key is missing\n"
		"  --must-not-exist        only create: fail when the key exists\n"
		"  --dir DIR               store every file of DIR under its name\n",
	.opts = put_opts,
	.option = transfer_option,
	.max_args = 2,
	.run = put_run,
};

static const struct option get_opts[] = {
	{ "all", required_argument, NULL, OPT_ALL },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_get = {
	.name = "get",
	.args = "KEY [FILE|-] | --all DIR",
	.summary = "Retrieve a value into a file, or to standard output",
	.help = "  --all DIR               write every value of the namespace to DIR, in a file\n"
		"                          named like its key; put --dir takes it back\n",
	.opts = get_opts,
	.option = transfer_option,
	.max_args = 2,
	.run = get_run,
};
