/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * Concurrent clients on the same few keys, from several queue pairs on more reactors than
 * there are processors: each key's history must be linearizable. The checker itself is
 * tried first, on histories made by hand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lin.h"
#include "load.h"
#include "rig.h"
#include "suite.h"

#define SEC 1000000000ull
#define LIMIT 1000000

/* ---- The checker ---- */

#define OP(k, o, v, from, to) \
	{ .call = (from), .ret = (to), .value = (v), .key = 0, .kind = LIN_##k, .outcome = LIN_##o }
#define NEVER LIN_NEVER

struct example {
	const char *name;
	bool good;
	struct lin_op ops[8];
	size_t n;
};

static const struct example examples[] = {
	{ "nothing at all", true, { { 0 } }, 0 },
	{ "one after the other", true,
	  { OP(RETRIEVE, NO_KEY, 0, 0, 1), OP(STORE, OK, 7, 2, 3), OP(RETRIEVE, OK, 7, 4, 5),
	    OP(EXIST, OK, 0, 6, 7), OP(DELETE, OK, 0, 8, 9), OP(EXIST, NO_KEY, 0, 10, 11) }, 6 },
	{ "a lost update", false,
	  { OP(STORE, OK, 7, 0, 1), OP(RETRIEVE, NO_KEY, 0, 2, 3) }, 2 },
	{ "a stale read", false,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, OK, 8, 2, 3), OP(RETRIEVE, OK, 7, 4, 5) }, 3 },
	{ "a value out of nowhere", false,
	  { OP(STORE, OK, 7, 0, 1), OP(RETRIEVE, OK, 9, 2, 3) }, 2 },
	{ "a read beside a store sees the old value", true,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, OK, 8, 2, 9), OP(RETRIEVE, OK, 7, 4, 5) }, 3 },
	{ "or the new one", true,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, OK, 8, 2, 9), OP(RETRIEVE, OK, 8, 4, 5) }, 3 },
	{ "but not the new one and then the old one", false,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, OK, 8, 2, 9), OP(RETRIEVE, OK, 8, 3, 4),
	    OP(RETRIEVE, OK, 7, 5, 6) }, 4 },
	{ "two readers disagree on the order of two stores", false,
	  { OP(STORE, OK, 7, 0, 20), OP(STORE, OK, 8, 0, 20), OP(RETRIEVE, OK, 7, 1, 2),
	    OP(RETRIEVE, OK, 8, 3, 4), OP(RETRIEVE, OK, 7, 5, 6) }, 5 },
	{ "two creators, one wins", true,
	  { OP(CREATE, OK, 7, 0, 9), OP(CREATE, KEY_EXISTS, 8, 0, 9), OP(RETRIEVE, OK, 7, 10, 11) },
	  3 },
	{ "two creators, both win", false,
	  { OP(CREATE, OK, 7, 0, 9), OP(CREATE, OK, 8, 0, 9) }, 2 },
	{ "two creators, both win, a delete between them", true,
	  { OP(CREATE, OK, 7, 0, 9), OP(CREATE, OK, 8, 0, 9), OP(DELETE, OK, 0, 0, 9) }, 3 },
	{ "a creator refused although nobody created", false,
	  { OP(CREATE, KEY_EXISTS, 7, 0, 1) }, 1 },
	{ "a creator refused by its own store", false,
	  { OP(CREATE, KEY_EXISTS, 7, 0, 1), OP(RETRIEVE, OK, 7, 2, 3) }, 2 },
	{ "a store over nothing", false, { OP(REPLACE, OK, 7, 0, 1) }, 1 },
	{ "a store over nothing is refused", true, { OP(REPLACE, NO_KEY, 7, 0, 1) }, 1 },
	{ "a delete undone", false,
	  { OP(STORE, OK, 7, 0, 1), OP(DELETE, OK, 0, 2, 3), OP(RETRIEVE, OK, 7, 4, 5) }, 3 },
	{ "two strict deletes of one store", false,
	  { OP(STORE, OK, 7, 0, 1), OP(DELETE_EXISTING, OK, 0, 2, 9),
	    OP(DELETE_EXISTING, OK, 0, 2, 9) }, 3 },
	{ "an unknown store happened", true,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, UNKNOWN, 8, 2, NEVER), OP(RETRIEVE, OK, 8, 4, 5) },
	  3 },
	{ "an unknown store did not happen", true,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, UNKNOWN, 8, 2, NEVER), OP(RETRIEVE, OK, 7, 4, 5) },
	  3 },
	{ "an unknown store happened late", true,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, UNKNOWN, 8, 2, NEVER), OP(RETRIEVE, OK, 7, 4, 5),
	    OP(RETRIEVE, OK, 8, 6, 7) }, 4 },
	{ "an unknown store happened and was undone", false,
	  { OP(STORE, OK, 7, 0, 1), OP(STORE, UNKNOWN, 8, 2, NEVER), OP(RETRIEVE, OK, 8, 4, 5),
	    OP(RETRIEVE, OK, 7, 6, 7) }, 4 },
	{ "an unknown store happened before it was asked for", false,
	  { OP(RETRIEVE, OK, 8, 0, 1), OP(STORE, UNKNOWN, 8, 2, NEVER) }, 2 },
	{ "an unknown creator explains a refusal", true,
	  { OP(CREATE, UNKNOWN, 7, 0, NEVER), OP(CREATE, KEY_EXISTS, 8, 2, 3) }, 2 },
	{ "an unknown read explains nothing", true,
	  { OP(RETRIEVE, UNKNOWN, 0, 0, NEVER), OP(RETRIEVE, NO_KEY, 0, 2, 3) }, 2 },
};

static void check_examples(void)
{
	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		const struct example *x = &examples[i];
		struct lin_op ops[8];
		enum lin_verdict v;

		memcpy(ops, x->ops, sizeof(ops));
		v = lin_check_key(ops, x->n, LIMIT, NULL);
		tap_ok(v == (x->good ? LIN_GOOD : LIN_BAD), "checker: %s: %s", x->name,
		       x->good ? "accepted" : "refused");
	}
}

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/*
 * A history that is right by construction: operations of @width threads that happen at a
 * moment within their interval.
 */
static void make_history(struct lin_op *ops, size_t n, unsigned int width, uint64_t seed)
{
	uint64_t value = LIN_ABSENT_VALUE, now = 1000000;

	for (size_t i = 0; i < n; i++) {
		struct lin_op *op = &ops[i];

		*op = (struct lin_op){ .outcome = LIN_OK };
		now += 10;
		op->call = now - next_random(&seed) % (10 * width);
		op->ret = now + next_random(&seed) % (10 * width);
		op->kind = (uint8_t)(next_random(&seed) % LIN_NKINDS);
		op->value = i + 1;
		switch (op->kind) {
		case LIN_CREATE:
			if (value)
				op->outcome = LIN_KEY_EXISTS;
			else
				value = op->value;
			break;
		case LIN_REPLACE:
			if (!value)
				op->outcome = LIN_NO_KEY;
			else
				value = op->value;
			break;
		case LIN_STORE:
			value = op->value;
			break;
		case LIN_RETRIEVE:
			op->value = value;
			op->outcome = value ? LIN_OK : LIN_NO_KEY;
			break;
		case LIN_EXIST:
			op->outcome = value ? LIN_OK : LIN_NO_KEY;
			break;
		case LIN_DELETE_EXISTING:
			op->outcome = value ? LIN_OK : LIN_NO_KEY;
			value = LIN_ABSENT_VALUE;
			break;
		default:
			value = LIN_ABSENT_VALUE;
			break;
		}
		if ((op->kind == LIN_STORE || op->kind == LIN_DELETE) &&
		    !(next_random(&seed) % 500)) {
			op->outcome = LIN_UNKNOWN;
			op->ret = LIN_NEVER;
		}
	}
}

static void check_generated(void)
{
	enum { N = 2000, WIDTH = 5, SEEDS = 10 };
	struct lin_op *ops = calloc(N, sizeof(*ops));
	unsigned int good = 0, caught = 0, tried = 0;

	for (uint64_t seed = 1; seed <= SEEDS && ops; seed++) {
		make_history(ops, N, WIDTH, seed);
		good += lin_check_key(ops, N, 20 * LIMIT, NULL) == LIN_GOOD;
		/* One read in the middle goes back to a value of long ago. */
		make_history(ops, N, WIDTH, seed);
		for (size_t i = N / 2; i < N; i++) {
			if (ops[i].kind != LIN_RETRIEVE || ops[i].outcome != LIN_OK)
				continue;
			for (size_t k = 10; k < i; k++) {
				if (ops[k].kind != LIN_STORE || ops[k].outcome != LIN_OK)
					continue;
				ops[i].value = ops[k].value;
				break;
			}
			break;
		}
		tried++;
		caught += lin_check_key(ops, N, 20 * LIMIT, NULL) == LIN_BAD;
	}
	tap_ok(good == SEEDS, "checker: %u of 10 long right histories accepted", good);
	tap_ok(tried && caught == tried, "checker: %u of %u long wrong histories refused", caught,
	       tried);
	free(ops);
}

/* ---- The daemon ---- */

static const char conf[] =
	"[daemon]\n"
	"reactors = %u\n"
	"state_dir = {dir}\n"
	"spin_ns = 20us\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = %s\n"
	"deadline = 30s\n"
	"%s";

static void start(struct rig *rig, const char *store, unsigned int reactors)
{
	char text[1024], keys[512] = "";

	if (!strcmp(store, "local"))
		snprintf(keys, sizeof(keys), "local.path = {dir}/store\nlocal.size = 512M\n");
	else if (!strcmp(store, "rados"))
		suite_rados_conf(keys, sizeof(keys), "main");
	snprintf(text, sizeof(text), conf, reactors, store, keys);
	rig_init(rig, text);
	rig_start(rig);
}

static void run(const char *store, unsigned int reactors, const struct load_opts *opts,
		unsigned int ms, const char *what)
{
	bool is_long = getenv("GKV_LONG");
	struct load *l;
	struct rig rig;

	start(&rig, store, reactors);
	l = load_start(rig.socket, opts);
	if (!load_progress(l, 1000, 60))
		tap_diag("%s: less than 1000 commands a minute", what);
	usleep((is_long ? 20 : 1) * 1000 * ms);
	load_judge(l, what);
	load_free(l);
	rig_fini(&rig);
}

/* The daemon goes away in the middle of it, again and again. */
static void run_with_kills(const char *store, unsigned int kills)
{
	const struct load_opts opts = { .threads = 3, .qps = 2, .depth = 16, .busy = 4, .keys = 6,
					.value_min = 8, .value_max = 20000, .pause_us = 200 };
	unsigned int i;
	struct load *l;
	struct rig rig;
	char what[64];

	start(&rig, store, 3);
	l = load_start(rig.socket, &opts);
	for (i = 0; i < kills && load_progress(l, 300 + 37 * i, 60); i++) {
		rig_kill(&rig);
		rig_start(&rig);
	}
	snprintf(what, sizeof(what), "%s, %u daemon kills", store, kills);
	tap_ok(i == kills && load_progress(l, 300, 60), "%s: the load goes on after each", what);
	load_judge(l, what);
	load_free(l);
	rig_fini(&rig);
}

int main(void)
{
	static const struct load_opts small = {
		.threads = 3, .qps = 2, .depth = 16, .busy = 5, .keys = 4,
		.value_min = 8, .value_max = 3000, .pause_us = 50,
	};
	static const struct load_opts large = {
		.threads = 2, .qps = 3, .depth = 8, .busy = 3, .keys = 3,
		.value_min = 8, .value_max = 400000,
	};
	static const struct load_opts csum = {
		.threads = 2, .qps = 2, .depth = 4, .busy = 3, .keys = 3, .flags = GKV_QP_CSUM,
		.value_min = 8, .value_max = 70000,
	};
	const char *store;
	char what[64];

	check_examples();
	check_generated();
	while ((store = suite_next_store())) {
		snprintf(what, sizeof(what), "%s, 3 reactors, small values", store);
		run(store, 3, &small, 800, what);
		snprintf(what, sizeof(what), "%s, 4 reactors, values copied in slices", store);
		run(store, 4, &large, 800, what);
		snprintf(what, sizeof(what), "%s, 3 reactors, checksums", store);
		run(store, 3, &csum, 500, what);
		/* What ends with the process has no history beyond it. */
		if (strcmp(store, "mem"))
			run_with_kills(store, getenv("GKV_LONG") ? 60 : 5);
	}
	return tap_done();
}
