/* SPDX-License-Identifier: MIT */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>
#include <uuid/uuid.h>

#include "config/nsconf.h"
#include "config/text.h"

#define FILE_MAX (1 << 20)

/* What the daemon's derived UUIDs are derived under. */
static const uint8_t uuid_space[16] = { 0x5c, 0x1e, 0x6a, 0x0b, 0x91, 0x44, 0x4d, 0x36,
					0xa7, 0x5e, 0x0c, 0x67, 0x6b, 0x76, 0x00, 0x01 };

/*
 * The parse as libinih drives it: it takes lines from next_line() and hands keys to
 * on_key(). Sections are noted in next_line(), because libinih does not tell of empty ones.
 */
struct parse {
	struct kvb_config *cfg;
	struct kvb_err *err;
	const char *pos, *end;	/* unread text */
	unsigned int line;
	struct kvb_conf *section; /* NULL before the first */
	struct kvb_conf_key *key; /* the last one, which an indented line continues */
	bool indented;
	int ret;
};

static int bad_line(struct parse *p, const char *why)
{
	if (!p->ret)
		p->ret = kvb_fail(p->err, EINVAL, "%s:%u: %s", p->cfg->file, p->line, why);
	return p->ret;
}

static void open_section(struct parse *p, const char *line)
{
	struct kvb_config *cfg = p->cfg;
	const char *end = strchr(line, ']');
	struct kvb_conf *c;
	char name[sizeof(c->section)];
	size_t len;

	p->key = NULL;
	if (!end) {
		bad_line(p, "a section ends in ]");
		return;
	}
	len = (size_t)(end - line) - 1;
	if (len > 49) { /* longer ones libinih would cut */
		bad_line(p, "the section's name is longer than 49 bytes");
		return;
	}
	memcpy(name, line + 1, len);
	name[len] = '\0';
	if (!strcmp(name, "daemon")) {
		c = &cfg->daemon;
		if (c->line) {
			bad_line(p, "[daemon] twice");
			return;
		}
	} else {
		if (strncmp(name, "namespace ", 10)) {
			bad_line(p, "unknown section; there are [daemon] and [namespace NAME]");
			return;
		}
		if (!kvb_nsconf_name(name)) {
			bad_line(p, "a namespace's name is 1 to 32 letters, digits, - and _");
			return;
		}
		for (size_t i = 0; i < cfg->nns; i++) {
			if (!strcmp(cfg->ns[i].section, name)) {
				bad_line(p, "a second namespace of this name");
				return;
			}
		}
		if (cfg->nns == KVB_MAX_NAMESPACES) {
			bad_line(p, "more than 64 namespaces");
			return;
		}
		c = &cfg->ns[cfg->nns++];
	}
	strcpy(c->section, name);
	c->file = cfg->file;
	c->line = p->line;
	p->section = c;
}

static char *next_line(char *buf, int size, void *stream)
{
	struct parse *p = stream;
	const char *nl;
	size_t len;

	if (p->ret || p->pos == p->end)
		return NULL;
	p->line++;
	nl = memchr(p->pos, '\n', (size_t)(p->end - p->pos));
	len = (size_t)((nl ? nl : p->end) - p->pos);
	/* libinih would take the rest for another line. */
	if (len + 2 > (size_t)size) {
		bad_line(p, "the line is too long; indent the rest of the value on the next one");
		return NULL;
	}
	memcpy(buf, p->pos, len);
	buf[len] = '\0';
	p->pos = nl ? nl + 1 : p->end;
	if (strlen(buf) != len) {
		bad_line(p, "the line contains a NUL byte");
		return NULL;
	}
	while (len && (buf[len - 1] == '\r' || buf[len - 1] == ' ' || buf[len - 1] == '\t'))
		buf[--len] = '\0';
	p->indented = *buf == ' ' || *buf == '\t';
	if (*buf == '[')
		open_section(p, buf);
	return p->ret ? NULL : buf;
}

static const struct kvb_key *daemon_key(const char *name)
{
	for (size_t i = 0; i < kvb_daemon_nkeys; i++)
		if (!strcmp(kvb_daemon_keys[i].name, name))
			return &kvb_daemon_keys[i];
	return NULL;
}

/* A key that somebody indented for looks, and not the rest of a value. */
static bool looks_like_key(const char *line)
{
	size_t len = strcspn(line, "=: \t");
	char name[64];

	if (!len || len >= sizeof(name) || !strchr(line, '='))
		return false;
	memcpy(name, line, len);
	name[len] = '\0';
	return daemon_key(name) || kvb_nsconf_known(name);
}

/* An indented line: libinih repeats the key's name and gives the line as the value. */
static int continue_key(struct parse *p, const char *value)
{
	char *joined;

	if (!p->key || looks_like_key(value))
		return bad_line(p, "an indented line continues the value above it");
	if (asprintf(&joined, "%s %s", p->key->value, value) < 0)
		return bad_line(p, "out of memory");
	free(p->key->value);
	p->key->value = joined;
	return 0;
}

static int on_key(void *user, const char *section, const char *name, const char *value)
{
	struct parse *p = user;
	struct kvb_conf *c = p->section;
	int ret;

	(void)section;
	if (p->ret)
		return 0;
	if (!c)
		return !bad_line(p, "a key before the first section");
	if (p->indented)
		return !continue_key(p, value ? value : "");
	if (!*name)
		return !bad_line(p, "a value without a key");
	for (size_t i = 0; i < c->nkeys; i++) {
		if (c->keys[i].origin == KVB_ORIGIN_FILE && !strcmp(c->keys[i].name, name)) {
			p->ret = kvb_fail(p->err, EINVAL,
					  "%s:%u: [%s] %.40s: the key was set in line %u",
					  p->cfg->file, p->line, c->section, name,
					  c->keys[i].line);
			return 0;
		}
	}
	ret = kvb_conf_add(c, name, value ? value : "", p->line, KVB_ORIGIN_FILE, p->err);
	if (ret) {
		p->ret = ret;
		return 0;
	}
	p->key = &c->keys[c->nkeys - 1];
	return 1;
}

void kvb_config_init(struct kvb_config *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	strcpy(cfg->daemon.section, "daemon");
}

void kvb_config_free(struct kvb_config *cfg)
{
	kvb_conf_clear(&cfg->daemon);
	for (size_t i = 0; i < cfg->nns; i++)
		kvb_conf_clear(&cfg->ns[i]);
	free(cfg->ns);
	free(cfg->file);
	kvb_config_init(cfg);
}

int kvb_config_text(struct kvb_config *cfg, const char *name, const char *text, size_t len,
		    struct kvb_err *err)
{
	struct parse p = { .cfg = cfg, .err = err, .pos = text, .end = text + len };
	int line;

	if (cfg->file)
		return kvb_fail(err, EINVAL, "a configuration was read before");
	cfg->file = strdup(name);
	cfg->ns = calloc(KVB_MAX_NAMESPACES, sizeof(*cfg->ns));
	if (!cfg->file || !cfg->ns)
		return kvb_fail(err, ENOMEM, "out of memory for the configuration");
	cfg->daemon.file = cfg->file;
	line = ini_parse_stream(next_line, &p, on_key, &p);
	if (p.ret)
		return p.ret;
	if (line > 0)
		return kvb_fail(err, EINVAL, "%s:%d: neither a key = value nor a [section]", name,
				line);
	if (line < 0)
		return kvb_fail(err, ENOMEM, "%s: cannot be parsed: out of memory", name);
	return 0;
}

int kvb_config_file(struct kvb_config *cfg, const char *path, struct kvb_err *err)
{
	size_t len = 0;
	ssize_t n = -1;
	struct stat st;
	char *text;
	int fd, ret;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return kvb_fail(err, errno, "%s: %s", path, strerror(errno));
	if (!fstat(fd, &st) && !S_ISREG(st.st_mode)) {
		close(fd);
		return kvb_fail(err, EINVAL, "%s: not a regular file", path);
	}
	text = malloc(FILE_MAX + 1);
	while (text && len <= FILE_MAX && (n = read(fd, text + len, FILE_MAX + 1 - len)) > 0)
		len += (size_t)n;
	ret = n < 0 ? errno : 0;
	close(fd);
	if (!text)
		ret = kvb_fail(err, ENOMEM, "%s: out of memory", path);
	else if (ret)
		ret = kvb_fail(err, ret, "%s: %s", path, strerror(ret));
	else if (len > FILE_MAX)
		ret = kvb_fail(err, EFBIG, "%s: larger than %d bytes", path, FILE_MAX);
	else
		ret = kvb_config_text(cfg, path, text, len, err);
	free(text);
	return ret;
}

int kvb_config_option(struct kvb_config *cfg, const char *option, struct kvb_err *err)
{
	const char *eq = strchr(option, '=');
	char name[64];

	if (!eq || eq == option || (size_t)(eq - option) >= sizeof(name))
		return kvb_fail(err, EINVAL, "option \"%.40s\": must be key=value", option);
	memcpy(name, option, (size_t)(eq - option));
	name[eq - option] = '\0';
	if (!daemon_key(name))
		return kvb_fail(err, EINVAL, "option %s: the daemon has no such key", name);
	for (size_t i = 0; i < cfg->daemon.nkeys; i++)
		if (cfg->daemon.keys[i].origin == KVB_ORIGIN_CMDLINE &&
		    !strcmp(cfg->daemon.keys[i].name, name))
			return kvb_fail(err, EINVAL, "option %s: given twice", name);
	return kvb_conf_add(&cfg->daemon, name, eq + 1, 0, KVB_ORIGIN_CMDLINE, err);
}

/* A list like "0,2-5": which CPUs the reactors run on, in that order. */
static int parse_cpus(struct kvb_config *cfg, const char *text, struct kvb_err *err)
{
	const struct kvb_conf *c = &cfg->daemon;
	const char *p = text;

	do {
		unsigned int a, b;
		int n = 0;

		p += strspn(p, " ");
		if (sscanf(p, "%4u%n", &a, &n) != 1 || *p == '-' || *p == '+')
			return kvb_conf_fail(c, "cpus", err, EINVAL,
					     "must be a list of CPUs like 0,2-5");
		p += n;
		b = a;
		if (*p == '-') {
			if (sscanf(p, "-%4u%n", &b, &n) != 1 || b < a)
				return kvb_conf_fail(c, "cpus", err, EINVAL,
						     "must be a list of CPUs like 0,2-5");
			p += n;
		}
		for (; a <= b; a++) {
			if (cfg->ncpus == KVB_MAX_REACTORS || a >= 1024)
				return kvb_conf_fail(c, "cpus", err, ERANGE,
						     "at most %d CPUs, numbered 0 to 1023",
						     KVB_MAX_REACTORS);
			cfg->cpus[cfg->ncpus++] = a;
		}
		p += strspn(p, " ");
	} while (*p == ',' && p++);
	if (*p)
		return kvb_conf_fail(c, "cpus", err, EINVAL, "must be a list of CPUs like 0,2-5");
	return 0;
}

/* Stable as long as machine and socket are; two daemons differ. */
static void derive_uuids(struct kvb_config *cfg)
{
	char id[64] = "";
	FILE *f = fopen("/etc/machine-id", "re");

	if (f) {
		if (!fgets(id, sizeof(id), f))
			*id = '\0';
		fclose(f);
	}
	uuid_generate_sha1(cfg->host_uuid, uuid_space, id, strlen(id));
	uuid_generate_sha1(cfg->uuid, cfg->host_uuid, cfg->socket, strlen(cfg->socket));
}

static int set_key(struct kvb_config *cfg, const struct kvb_key *k, struct kvb_err *err)
{
	struct kvb_conf *c = &cfg->daemon;
	const char *text = kvb_conf_get(c, k->name);
	void *field = (char *)cfg + k->offset;
	struct kvb_err why;
	int ret;

	switch (k->kind) {
	case KVB_KEY_TEXT:
		return kvb_conf_str(c, k->name, k->dflt, field, err);
	case KVB_KEY_CPUS:
		return text ? parse_cpus(cfg, text, err) : 0;
	case KVB_KEY_UUID:
		derive_uuids(cfg);
		if (text && uuid_parse(text, field))
			return kvb_conf_fail(c, k->name, err, EINVAL, "must be a UUID");
		return 0;
	default:
		break;
	}
	if (!text && !k->dflt) { /* reactors: one a CPU given */
		*(uint64_t *)field = cfg->ncpus ? cfg->ncpus : 1;
		return 0;
	}
	ret = kvb_key_parse(k, text ? text : k->dflt, field, &why);
	return ret ? kvb_conf_fail(c, k->name, err, -ret, "%s", why.text) : 0;
}

int kvb_config_finish(struct kvb_config *cfg, struct kvb_err *err)
{
	uint32_t nsids[KVB_MAX_NAMESPACES];
	uint64_t share;
	int ret;

	for (size_t i = 0; i < kvb_daemon_nkeys; i++) {
		ret = set_key(cfg, &kvb_daemon_keys[i], err);
		if (ret)
			return ret;
	}
	ret = kvb_conf_all_used(&cfg->daemon, err);
	if (ret)
		return ret;
	share = cfg->buffer_memory / cfg->reactors;
	for (size_t i = 0; i < cfg->nns; i++) {
		struct kvb_nsconf ns;

		ret = kvb_nsconf_parse(&cfg->ns[i], &ns, err);
		if (ret)
			return ret;
		nsids[i] = ns.nsid;
		for (size_t j = 0; j < i; j++)
			if (nsids[j] == ns.nsid)
				return kvb_conf_fail(&cfg->ns[i], "nsid", err, EINVAL,
						     "[%s] has it too", cfg->ns[j].section);
		if (ns.value_max > share)
			return kvb_conf_fail(&cfg->ns[i], "value_max", err, ERANGE,
					     "value_max is %u, but a reactor's share of "
					     "buffer_memory is %" PRIu64 " bytes",
					     ns.value_max, share);
	}
	return 0;
}

int kvb_config_load(struct kvb_config *cfg, const char *path, const char *const *options,
		    size_t noptions, struct kvb_err *err)
{
	int ret = 0;

	kvb_config_init(cfg);
	if (path)
		ret = kvb_config_file(cfg, path, err);
	for (size_t i = 0; !ret && i < noptions; i++)
		ret = kvb_config_option(cfg, options[i], err);
	if (!ret)
		ret = kvb_config_finish(cfg, err);
	if (ret)
		kvb_config_free(cfg);
	return ret;
}
