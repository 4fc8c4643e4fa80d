/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 240 */
/*
 * F106: kill -9 of the daemon at random moments under a load of every command, on a disk that is
 * throttled so that direct I/O of the dead process lands late. GKV_LONG: 120 kills.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "rig.h"
#include "suite.h"
#include "throttle.h"

#define SEC 1000000000ull
/* Fast enough for some hundred commands a second, slow enough to have I/O always waiting. */
#define RATE (24u << 20)

static const char conf[] =
	"[daemon]\n"
	"reactors = 3\n"
	"spin_ns = 20us\n"
	"state_dir = {dir}\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = local\n"
	"deadline = 120s\n"
	"local.path = {dir}/store\n"
	"local.size = 256M\n"
	"durability = %s\n";

static void start(struct rig *rig, struct throttle *t)
{
	rig_spawn(rig, NULL);
	if (t->group[0] && !throttle_add(t, rig->pid))
		tap_diag("the daemon runs unthrottled");
	/* It recovers meanwhile; the clients wait for it themselves. */
}

static void run(const char *durability, unsigned int kills, const struct load_opts *opts,
		struct throttle *t)
{
	uint64_t seed = rig_now(), x = seed | 1, keys, used = 0, slowest = 0;
	unsigned int i;
	struct load *l;
	struct rig rig;
	struct gkv *g;
	char text[512];

	snprintf(text, sizeof(text), conf, durability);
	rig_init(&rig, text);
	rig_start(&rig);
	if (gkv_connect(&g, rig.socket, 1, 0) || !load_usage(g, NULL, &keys, &used))
		tap_diag("no usage: %s", gkv_error());
	gkv_close(g);
	if (t->group[0])
		throttle_add(t, rig.pid);
	tap_diag("seed %llu", (unsigned long long)seed);
	l = load_start(rig.socket, opts);
	for (i = 0; i < kills; i++) {
		uint64_t since = rig_now();

		/* Now and then a daemon takes over what two before it left. */
		if (i % 4 && (!load_settle(l, 60) || (load_resume(l), false)))
			break;
		if (!load_progress(l, 20, 60))
			break;
		if (rig_now() - since > slowest)
			slowest = rig_now() - since;
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		usleep((useconds_t)(x % 150000));
		rig_kill(&rig);
		start(&rig, t);
	}
	snprintf(text, sizeof(text), "durability %s, %u kills%s", durability, kills,
		 t->group[0] ? ", throttled disk" : "");
	tap_ok(i == kills && load_progress(l, 20, 60), "%s: the load goes on after each", text);
	tap_diag("longest wait for 20 commands after a restart: %llu ms",
		 (unsigned long long)(slowest / 1000000));
	if (t->group[0])
		throttle_set(t, 0);
	load_judge(l, text);
	load_empty(l, used, text);
	load_free(l);
	rig_fini(&rig);
}

int main(void)
{
	static const struct load_opts opts = {
		.threads = 2, .qps = 2, .depth = 32, .busy = 6, .keys = 20,
		.value_min = 8, .value_max = 600000, .pause_us = 300,
	};
	static const struct load_opts small = {
		.threads = 3, .qps = 2, .depth = 32, .busy = 8, .keys = 40,
		.value_min = 8, .value_max = 9000, .pause_us = 300, .mutations = true,
	};
	bool is_long = getenv("GKV_LONG");
	struct throttle t;

	if (!throttle_make(&t, getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", RATE))
		tap_skip(t.text, "the disk is throttled");
	run("async", is_long ? 120 : 12, &opts, &t);
	if (t.group[0])
		throttle_set(&t, RATE / 4);
	run("sync", is_long ? 40 : 5, &small, &t);
	throttle_free(&t);
	return tap_done();
}
