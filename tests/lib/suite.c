/* SPDX-License-Identifier: MIT */
/*
 * Shorthands for command-level tests of a store.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "suite.h"

#define POISON 0xa5

/* More reactors than this project's smallest machine has CPUs. */
static const char daemon_conf[] =
	"[daemon]\n"
	"reactors = 3\n"
	"state_dir = {dir}\n"
	"max_queue_depth = 4096\n"
	"buffer_memory = 768M\n";

/* The daemon's deadline is generous: only tests of deadlines want to see one. */
static const char ns_conf[] =
	"\n[namespace %s]\n"
	"nsid = %u\n"
	"stack = %s%s\n"
	"value_max = 64M\n"
	"deadline = %s\n"
	"access = *:rw\n"
	"%s";

static void __attribute__((noreturn)) give_up(struct suite *s, const char *what)
{
	tap_diag("suite: %s: %s", what, gkv_error());
	rig_show_log(&s->rig);
	rig_kill(&s->rig);
	rig_fini(&s->rig);
	exit(1);
}

const char *suite_next_store(void)
{
	static char names[128];
	static bool begun;
	const char *env;

	if (begun)
		return strtok(NULL, " ");
	begun = true;
	env = getenv("GKV_STORES");
	if (env)
		tap_diag("only on these stores: %s", env);
	snprintf(names, sizeof(names), "%s", env ? env : "mem local");
	return strtok(names, " ");
}

int suite_rados_conf(char *text, size_t size, const char *name)
{
	static unsigned int times;
	const char *conf = getenv("GKV_CEPH_CONF"), *pool = getenv("GKV_CEPH_POOL");

	if (!conf || !pool) {
		tap_diag("rados: name a cluster with GKV_CEPH_CONF and GKV_CEPH_POOL");
		exit(1);
	}
	return snprintf(text, size,
			"rados.conf = %s\nrados.pool = %s\nrados.namespace = %s-%d-%u\n", conf,
			pool, name, (int)getpid(), ++times);
}

static size_t add_ns(char *conf, size_t size, const char *name, unsigned int nsid,
		     const char *filter, const char *store, const char *deadline, const char *more)
{
	size_t used = strlen(conf);
	int n = snprintf(conf + used, size - used, ns_conf, name, nsid, filter, store, deadline,
			 more);

	used += (size_t)n;
	if (!strcmp(store, "local"))
		used += (size_t)snprintf(conf + used, size - used,
					 "local.path = {dir}/%s\nlocal.size = 2G\n", name);
	else if (!strcmp(store, "rados"))
		used += (size_t)suite_rados_conf(conf + used, size - used, name);
	return used;
}

static void open_ns(struct suite *s, const char *name, uint32_t flags)
{
	s->ns = (struct gkv_ns_info){ .size = sizeof(s->ns) };
	if (gkv_ns_open(s->g, name, flags, &s->ns))
		give_up(s, name);
}

void suite_start(struct suite *s, const char *store, const char *const *rules)
{
	char conf[8192], rule[256], name[16];

	memset(s, 0, sizeof(*s));
	s->store = store;
	snprintf(conf, sizeof(conf), "%s", daemon_conf);
	add_ns(conf, sizeof(conf), "main", SUITE_NSID_MAIN, "", store, "60s", "");
	add_ns(conf, sizeof(conf), "other", SUITE_NSID_OTHER, "", store, "60s", "");
	add_ns(conf, sizeof(conf), "frozen", SUITE_NSID_FROZEN, "", store, "60s",
	       "read_only = yes\n");
	for (unsigned int i = 0; rules && rules[i]; i++) {
		snprintf(name, sizeof(name), "faulty%u", i);
		snprintf(rule, sizeof(rule), "fault.rules = %s\n", rules[i]);
		add_ns(conf, sizeof(conf), name, SUITE_NSID_FAULTY + i, "fault, ", store, "500ms",
		       rule);
	}
	rig_init(&s->rig, conf);
	rig_start(&s->rig);
	if (gkv_connect(&s->g, s->rig.socket, 0, 0))
		give_up(s, "connect");
	for (unsigned int i = 0; rules && rules[i]; i++) {
		snprintf(name, sizeof(name), "faulty%u", i);
		open_ns(s, name, 0);
	}
	open_ns(s, "frozen", GKV_NS_RDONLY);
	open_ns(s, "other", 0);
	open_ns(s, "main", 0);
	if (gkv_mem_alloc(s->g, SUITE_BUF, &s->mem))
		give_up(s, "memory");
	s->buf = gkv_mem_addr(s->mem);
	s->qp = suite_qp(s, 64, 0, 1);
}

void suite_stop(struct suite *s)
{
	gkv_close(s->g);
	s->g = NULL;
	rig_stop(&s->rig, 20);
	rig_fini(&s->rig);
}

void suite_reconnected(struct suite *s, uint64_t times)
{
	uint64_t end = rig_now() + 20 * rig_slowdown() * 1000000000ull;
	const struct timespec nap = { .tv_nsec = 5000000 };

	while (gkv_reconnects(s->g) < times || !gkv_connected(s->g)) {
		if (rig_now() > end)
			give_up(s, "no reconnection");
		nanosleep(&nap, NULL);
	}
}

struct gkv_qp *suite_qp(struct suite *s, uint32_t depth, uint32_t flags, uint32_t max_segs)
{
	struct gkv_qp_opts opts = { .size = sizeof(opts), .depth = depth, .flags = flags,
				    .max_segs = max_segs };
	struct gkv_qp *qp;

	if (gkv_qp_create(s->g, &opts, &qp))
		give_up(s, "queue pair");
	return qp;
}

struct suite_key suite_key(const char *fmt, ...)
{
	struct suite_key key = { 0 };
	char text[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	key.len = (uint8_t)strnlen(text, sizeof(key.bytes));
	memcpy(key.bytes, text, key.len);
	return key;
}

void suite_cmd(struct gkv_cmd *cmd, uint8_t opcode, uint32_t nsid, const struct suite_key *key)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = opcode;
	cmd->nsid = nsid;
	if (!key)
		return;
	cmd->key_len = key->len;
	memcpy(cmd->key, key->bytes, sizeof(cmd->key));
}

struct gkv_comp suite_run(struct gkv_qp *qp, const struct gkv_cmd *cmd)
{
	struct gkv_comp comp = { .status = SUITE_NO_STATUS };
	int ret = gkv_exec(qp, cmd, &comp);

	if (!ret && !(comp.flags & (GKV_C_TIMEDOUT | GKV_C_LOST)))
		return comp;
	tap_diag("command %02xh: %s (flags %xh)", cmd->opcode, ret ? gkv_error() : "no answer",
		 comp.flags);
	comp.status = SUITE_NO_STATUS;
	return comp;
}

uint16_t suite_store(struct suite *s, uint32_t nsid, const struct suite_key *key, void *buf,
		     uint32_t len, uint8_t options)
{
	struct gkv_cmd cmd;

	suite_cmd(&cmd, GKV_STORE, nsid, key);
	cmd.options = options;
	cmd.buf = buf;
	cmd.len = len;
	return suite_run(s->qp, &cmd).status;
}

struct gkv_comp suite_retrieve(struct suite *s, uint32_t nsid, const struct suite_key *key,
			       void *buf, uint32_t len)
{
	struct gkv_cmd cmd;

	suite_cmd(&cmd, GKV_RETRIEVE, nsid, key);
	cmd.buf = buf;
	cmd.len = len;
	return suite_run(s->qp, &cmd);
}

uint16_t suite_delete(struct suite *s, uint32_t nsid, const struct suite_key *key)
{
	struct gkv_cmd cmd;

	suite_cmd(&cmd, GKV_DELETE, nsid, key);
	return suite_run(s->qp, &cmd).status;
}

uint16_t suite_exist(struct suite *s, uint32_t nsid, const struct suite_key *key)
{
	struct gkv_cmd cmd;

	suite_cmd(&cmd, GKV_EXIST, nsid, key);
	return suite_run(s->qp, &cmd).status;
}

/* splitmix64 of seed and word number. */
static uint64_t pattern_word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xd1342543de82ef95u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void pattern_fill(void *buf, size_t len, uint64_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t w = pattern_word(seed, i / 8);

		memcpy(p + i, &w, len - i < 8 ? len - i : 8);
	}
}

bool pattern_check(const void *buf, size_t len, uint64_t seed)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t w = pattern_word(seed, i / 8);

		if (memcmp(p + i, &w, len - i < 8 ? len - i : 8)) {
			tap_diag("byte %zu or one of the next 7 of %zu is wrong", i, len);
			return false;
		}
	}
	return true;
}

void poison(void *buf, size_t len)
{
	memset(buf, POISON, len);
}

bool poisoned(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++) {
		if (p[i] != POISON) {
			tap_diag("byte %zu past the data was written", i);
			return false;
		}
	}
	return true;
}
