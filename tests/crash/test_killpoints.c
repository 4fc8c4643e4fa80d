/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 200 */
/*
 * F83: the daemon kills itself at each labelled point of a command's life, is started again,
 * and every client carries on: one completion for each command, every acknowledged value
 * whole, nothing half visible, each mutation done once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gkv/nvme_kv.h>

#include "load.h"
#include "rig.h"
#include "suite.h"

#define MAX_LABELS 64
#define SEC 1000000000ull

static const char conf[] =
	"[daemon]\n"
	"reactors = 3\n"
	"spin_ns = 20us\n"
	"state_dir = {dir}\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = %s\n"
	"deadline = 60s\n"
	"%s";

static char labels[MAX_LABELS][64];
static unsigned int nlabels;

/* The labels stand in the sources, and nowhere else. */
static void find_labels(void)
{
	FILE *p = popen("grep -rhoE 'kvb_killpoint\\(\"[^\"]+\"' --include='*.c' daemon/kvbridged | "
			"cut -d'\"' -f2 | sort -u", "re");
	char line[128];

	while (p && nlabels < MAX_LABELS && fgets(line, sizeof(line), p)) {
		line[strcspn(line, "\n")] = '\0';
		snprintf(labels[nlabels++], sizeof(labels[0]), "%.63s", line);
	}
	if (p)
		pclose(p);
	tap_ok(nlabels >= 9, "the sources have %u kill points", nlabels);
}

static void make_conf(char *text, size_t size, const char *store)
{
	char keys[512] = "";

	if (!strcmp(store, "local"))
		snprintf(keys, sizeof(keys), "local.path = {dir}/store\nlocal.size = 256M\n"
					     "local.flush_interval = 20ms\n");
	else if (!strcmp(store, "rados"))
		suite_rados_conf(keys, sizeof(keys), "main");
	snprintf(text, size, conf, store, keys);
}

/* A point only one kind of store has. */
static bool applies(const char *label, const char *store)
{
	if (!strncmp(label, "local-", 6))
		return !strcmp(store, "local");
	if (!strncmp(label, "rados-", 6))
		return !strcmp(store, "rados");
	/* A volatile store's mutations leave nothing to resolve. */
	if (!strcmp(label, "record-handed"))
		return !!strcmp(store, "mem");
	return true;
}

/*
 * A load goes on over one kill after the other; the last daemon is judged. @again: daemons
 * are killed before every client has come back, so that one daemon takes over what two
 * before it left.
 */
static void under_load(const char *store, bool again)
{
	static const unsigned int nth[] = { 1, 2, 7, 40, 250 };
	const struct load_opts opts = { .threads = 3, .qps = 2, .depth = 16, .busy = 4, .keys = 24,
					.value_min = 8, .value_max = 100000, .pause_us = 500 };
	unsigned int rounds = getenv("GKV_LONG") ? 10 : 1;
	bool last_failed = false;
	uint64_t keys, used = 0;
	struct gkv *g;
	char text[1024], env[96];
	struct load *l;
	struct rig rig;

	make_conf(text, sizeof(text), store);
	rig_init(&rig, text);
	rig_start(&rig);
	if (gkv_connect(&g, rig.socket, 1, 0) || !load_usage(g, NULL, &keys, &used))
		tap_diag("no usage: %s", gkv_error());
	gkv_close(g);
	l = load_start(rig.socket, &opts);
	for (unsigned int i = 0; i < nlabels * rounds && !last_failed; i++) {
		const char *label = labels[i % nlabels];

		if (!applies(label, store))
			continue;
		for (unsigned int k = 0; k < sizeof(nth) / sizeof(nth[0]); k++) {
			unsigned int n = nth[k] + i / nlabels * 7;
			bool died, went_on;

			if (k % 2 && (again || rig_slowdown() > 1) && rounds == 1)
				continue;
			snprintf(env, sizeof(env), "GKV_KILLPOINT=%s:%u", label, n);
			if (!again && !load_settle(l, 60)) {
				last_failed = !tap_ok(false, "%s, before %s:%u: every command ends",
						      store, label, n);
				break;
			}
			rig_kill(&rig);
			rig_spawn(&rig, env);
			if (!again)
				load_resume(l);
			died = rig_wait_killed(&rig, 20);
			if (!died)
				rig_kill(&rig);
			rig_start(&rig);
			went_on = load_progress(l, 50, 30);
			if (!went_on || !died || k + 1 == sizeof(nth) / sizeof(nth[0]))
				last_failed = !tap_ok(died && went_on,
						      "%s, killed at %s:%u%s: all clients carry on",
						      store, label, n, again ? ", again" : "");
			if (last_failed) {
				tap_diag("%s; error: %s",
					 died ? "no progress" : "the point was not reached",
					 load_error(l) ? load_error(l) : "none");
				rig_show_log(&rig);
				break;
			}
		}
	}
	load_stop(l);
	snprintf(text, sizeof(text), "%s, killed at every point%s", store,
		 again ? ", again before all is taken over" : "");
	/* A volatile store begins anew each time: its history has no thread. */
	if (strcmp(store, "mem")) {
		load_judge(l, text);
		if (!again && !strcmp(store, "local"))
			tap_ok(!load_unknown(l), "%s: no outcome was left unknown", text);
		load_empty(l, used, text);
	} else {
		tap_ok(!load_error(l), "%s: no client saw an error", text);
		if (load_error(l))
			tap_diag("%s", load_error(l));
		tap_ok(!load_stop(l), "%s: each command got a completion", text);
	}
	load_free(l);
	rig_fini(&rig);
}

/* ---- One command at a time: each mutation happens once ---- */

struct once {
	struct rig rig;
	struct gkv *g;
	struct gkv_qp *qp;
	uint8_t *buf;
	uint32_t nsid;
};

static void once_open(struct once *o)
{
	struct gkv_ns_info info = { .size = sizeof(info) };
	struct gkv_mem *mem;

	if (gkv_connect(&o->g, o->rig.socket, 4, 0) || gkv_ns_open(o->g, "main", 0, &info) ||
	    gkv_mem_alloc(o->g, 1 << 20, &mem) || gkv_qp_create(o->g, NULL, &o->qp)) {
		tap_diag("session: %s", gkv_error());
		rig_show_log(&o->rig);
		exit(1);
	}
	o->nsid = info.nsid;
	o->buf = gkv_mem_addr(mem);
}

static uint16_t once_run(struct once *o, uint8_t opcode, uint8_t options,
			 const struct suite_key *key, uint32_t len)
{
	struct gkv_cmd cmd;

	suite_cmd(&cmd, opcode, o->nsid, key);
	cmd.options = options;
	cmd.buf = o->buf;
	cmd.len = len;
	return suite_run(o->qp, &cmd).status;
}

/* Submit, be killed at @label, start again, and return the command's status. */
static uint16_t once_killed(struct once *o, const char *label, uint8_t opcode, uint8_t options,
			    const struct suite_key *key, uint32_t len, bool *died)
{
	struct gkv_comp c = { .status = SUITE_NO_STATUS };
	struct gkv_cmd cmd;
	char env[96];

	/* Hand over before the command, so that it is the first to pass the point. */
	rig_kill(&o->rig);
	snprintf(env, sizeof(env), "GKV_KILLPOINT=%s:1", label);
	rig_start_env(&o->rig, env);
	suite_cmd(&cmd, opcode, o->nsid, key);
	cmd.options = options;
	cmd.buf = o->buf;
	cmd.len = len;
	if (gkv_submit(o->qp, &cmd, 1) != 1)
		return SUITE_NO_STATUS;
	*died = rig_wait_killed(&o->rig, 10);
	if (!*died)
		rig_kill(&o->rig);
	rig_start(&o->rig);
	if (gkv_wait(o->qp, &c, 1, 30 * SEC * rig_slowdown()) != 1)
		return SUITE_NO_STATUS;
	return c.status;
}

/*
 * "Outcome unknown, retry" is an answer on a cluster that does not show what became of a command.
 * Whoever gets it does what it says.
 */
static uint16_t or_retried(struct once *o, uint16_t status, uint8_t opcode,
			   const struct suite_key *key, uint32_t len, unsigned int *unknown)
{
	if (code(status) != code(GKV_SC_TRANSIENT) || status & GKV_DNR)
		return status;
	++*unknown;
	return once_run(o, opcode, 0, key, len);
}

static void exactly_once(const char *store)
{
	struct once o = { 0 };
	char text[1024];

	make_conf(text, sizeof(text), store);
	rig_init(&o.rig, text);
	rig_start(&o.rig);
	once_open(&o);
	for (unsigned int i = 0; i < nlabels; i++) {
		struct suite_key key = suite_key("once-%u", i);
		uint16_t create, replace, del, gone, create_gone;
		unsigned int unknown = 0;
		bool died[3] = { false };

		if (!applies(labels[i], store))
			continue;
		pattern_fill(o.buf, 50000, i);
		create = once_killed(&o, labels[i], GKV_STORE, GKV_O_MUST_NOT_EXIST, &key, 50000,
				     &died[0]);
		create = or_retried(&o, create, GKV_STORE, &key, 50000, &unknown);
		create_gone = once_run(&o, GKV_STORE, GKV_O_MUST_NOT_EXIST, &key, 10);
		tap_ok(died[0] && create == 0 && code(create_gone) == code(GKV_SC_KEY_EXISTS),
		       "%s, killed at %s: a Store that must not replace succeeds, once", store,
		       labels[i]);
		memset(o.buf, 0, 50000);
		tap_ok(once_run(&o, GKV_RETRIEVE, 0, &key, 60000) == 0 &&
			       pattern_check(o.buf, 50000, i),
		       "%s, killed at %s: and its value is whole", store, labels[i]);

		pattern_fill(o.buf, 3000, 1000 + i);
		replace = once_killed(&o, labels[i], GKV_STORE, GKV_O_MUST_EXIST, &key, 3000,
				      &died[1]);
		replace = or_retried(&o, replace, GKV_STORE, &key, 3000, &unknown);
		memset(o.buf, 0, 3000);
		tap_ok(died[1] && replace == 0 &&
			       once_run(&o, GKV_RETRIEVE, 0, &key, 60000) == 0 &&
			       pattern_check(o.buf, 3000, 1000 + i),
		       "%s, killed at %s: a Store that must replace succeeds", store, labels[i]);

		del = once_killed(&o, labels[i], GKV_DELETE, 0, &key, 0, &died[2]);
		del = or_retried(&o, del, GKV_DELETE, &key, 0, &unknown);
		gone = once_run(&o, GKV_EXIST, 0, &key, 0);
		tap_ok(died[2] && del == 0 && code(gone) == code(GKV_SC_KEY_NOT_FOUND),
		       "%s, killed at %s: a Delete succeeds", store, labels[i]);
		/* An answer that came is kept: nothing is in doubt after it. */
		if (!strcmp(store, "local") || !strcmp(labels[i], "rados-answered"))
			tap_ok(!unknown, "%s, killed at %s: no outcome was left unknown", store,
			       labels[i]);
		if (create || replace || del || !died[0] || !died[1] || !died[2])
			tap_diag("create %#x (%d), replace %#x (%d), delete %#x (%d)", create,
				 died[0], replace, died[1], del, died[2]);
	}
	gkv_close(o.g);
	rig_fini(&o.rig);
}

int main(void)
{
	const char *store;

	find_labels();
	while ((store = suite_next_store())) {
		under_load(store, false);
		/* On a cluster it takes a minute. */
		if (strcmp(store, "rados") || getenv("GKV_LONG"))
			under_load(store, true);
		if (strcmp(store, "mem"))
			exactly_once(store);
	}
	return tap_done();
}
