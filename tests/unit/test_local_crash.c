/* SPDX-License-Identifier: MIT */
/*
 * The local store under random operations with requests that end in any order, stopped at
 * random points: orderly, by the death of the process, by a power cut that takes any subset
 * of the sectors not flushed. GKV_LONG=1 runs more seeds; GKV_SEED=n one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "local_model.h"
#include "local_rig.h"

enum { CLOSE = 1, KILL = 2, CUT = 4 };

static void one(uint64_t seed, unsigned int how, bool sync, bool cut_in_recovery)
{
	static struct model m;

	memset(&rig, 0, sizeof(rig));
	rig.seed = seed;
	rig.reactors = 1 + seed % 3;
	rig.files = 1 + seed % 5 / 4;
	rig.file_size = seed % 7 ? 768 << 10 : 4 << 20;
	rig.unit = seed % 4 ? 4096 : 16384;
	rig.sync = sync;
	rig.verify = true;
	rig.defer_copies = seed & 1;
	rig.buf_budget = seed % 3 ? 0 : 64 << 10;
	rig.stage = seed % 4 ? 2 : 0;
	rig.stage_fail = 6;
	rig.direct = seed % 3 ? 3 : 0;
	rig.align = rig.direct ? 512 : 0;
	rig_begin();
	if (rig_open(NULL)) {
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, rig.err.text);
		abort();
	}
	/* Large ones are written in pieces while they are still arriving. */
	if (seed % 7)
		model_init(&m, 1 + rig_below(MODEL_KEYS), rig_below(3) ? 30000 : 200000);
	else
		model_init(&m, 1 + rig_below(6), 900000);
	for (int cycle = 0; cycle < 6; cycle++) {
		unsigned int end;
		bool cut = false;

		model_work(&m, rig_below(3) ? rig_below(600) : rig_below(4000));
		do {
			end = 1u << rig_below(3);
		} while (!(end & how));
		if (end == CLOSE) {
			model_drain(&m);
			rig_close();
		} else if (end == KILL) {
			rig_kill();
		} else {
			rig_power_cut();
			cut = true;
		}
		rig.reactors = 1 + rig_below(3);
		while (cut_in_recovery && rig_below(2)) {
			rig.fail_pwrite_after = 1 + rig_below(5);
			if (!rig_open(NULL)) {
				rig.fail_pwrite_after = 0;
				rig_close();
				break;
			}
			rig.fail_pwrite_after = 0;
			rig_power_cut();
			cut = true;
		}
		model_crashed(&m, cut);
		if (rig_open(NULL)) {
			fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, rig.err.text);
			abort();
		}
		model_check(&m);
	}
	rig_end();
	model_free(&m);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* At least @least seeds, then more until the time is up. */
static void seeds(unsigned int least, double seconds, unsigned int how, bool sync, bool rec)
{
	const char *one_seed = getenv("GKV_SEED");
	double end = now() + (getenv("GKV_LONG") ? 20 * seconds : seconds);
	unsigned int n = 0;

	if (one_seed) {
		one(strtoull(one_seed, NULL, 0), how, sync, rec);
		return;
	}
	while (n < least || now() < end)
		one(++n, how, sync, rec);
	print_message("%u seeds\n", n);
}

static void test_close(void **state)
{
	(void)state;
	seeds(10, 2, CLOSE, false, false);
}

static void test_kill(void **state)
{
	(void)state;
	seeds(20, 4, KILL | CLOSE, false, false);
}

static void test_power(void **state)
{
	(void)state;
	seeds(30, 8, CUT, false, false);
}

static void test_power_sync(void **state)
{
	(void)state;
	seeds(10, 3, CUT, true, false);
}

static int count_flushes(const struct rig_io *io, void *arg)
{
	*(unsigned int *)arg += io->sync;
	return RIG_OK;
}

/* A mutation that is alone makes itself durable: power may go before any flush. */
static void test_power_alone(void **state)
{
	unsigned char data[70000], back[70000];
	unsigned int flushes = 0;

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.seed = 77;
	rig.reactors = 2;
	rig.file_size = 4 << 20;
	rig.sync = rig.verify = true;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	for (int round = 0; round < 200; round++) {
		struct rig_op ro = { 0 };
		uint32_t len = rig_below(sizeof(data));

		memset(data, round, sizeof(data));
		rig.fault = count_flushes;
		rig.fault_arg = &flushes;
		rig_store(&ro, "k", 1, data, len, 0);
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, GKV_SC_SUCCESS);
		assert_int_equal(flushes, 0);
		rig_power_cut();
		assert_int_equal(rig_open(NULL), 0);
		rig_retrieve(&ro, "k", 1, back, sizeof(back));
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, GKV_SC_SUCCESS);
		assert_int_equal(ro.result, len);
		assert_memory_equal(back, data, len);
		rig_delete(&ro, "k", 1);
		assert_true(rig_wait(&ro));
		assert_int_equal(flushes, 0);
		rig_power_cut();
		assert_int_equal(rig_open(NULL), 0);
		rig_exist(&ro, "k", 1);
		assert_int_equal(ro.status, GKV_SC_KEY_NOT_FOUND);
		free(ro.data);
	}
	rig_end();
}

static void test_power_in_recovery(void **state)
{
	(void)state;
	seeds(20, 5, CUT | KILL, false, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_power),
		cmocka_unit_test(test_power_sync),
		cmocka_unit_test(test_power_alone),
		cmocka_unit_test(test_power_in_recovery),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
