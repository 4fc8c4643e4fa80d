/* SPDX-License-Identifier: MIT */
/*
 * The ring protocol of gkv_device.h: any number of lanes on one queue pair, in both ways of the
 * simulator, under each policy.
 */
#include "ring.h"

#include <string.h>

struct shape {
	uint32_t waves, lanes, depth, each;
};

static void run_one(struct sim_conf sim, struct ring_conf conf, sim_kernel *fn)
{
	struct ring *r = ring_new(sim, conf);
	const struct sim_device_counts *n = sim_device_counts(r->dev);

	ring_run(r, fn);
	assert_int_equal(n->posted, (uint64_t)r->nlanes * conf.each);
	assert_int_equal(n->outstanding, 0);
	ring_free(r);
}

static void run_all(struct shape s, struct ring_conf conf, sim_kernel *fn, uint64_t seeds)
{
	struct sim_conf sim = { .waves = s.waves, .lanes = s.lanes };

	conf.depth = s.depth;
	conf.each = s.each;
	sim.lockstep = true;
	for (sim.seed = 0; sim.seed < seeds; sim.seed++) {
		for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p)) {
			sim.policy = p;
			run_one(sim, conf, fn);
		}
	}
	sim.lockstep = false;
	sim.jitter = true;
	run_one(sim, conf, fn);
}

/* Depths that are and are not powers of two; queues that are full and rings that wrap. */
static void test_exec(void **state)
{
	static const struct shape shapes[] = {
		{ 1, 1, 2, 20 }, { 1, 1, 16, 40 }, { 1, 32, 16, 4 }, { 4, 8, 2, 3 },
		{ 4, 8, 3, 3 }, { 3, 5, 7, 6 }, { 8, 4, 100, 5 }, { 2, 64, 64, 3 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		run_all(shapes[i], (struct ring_conf){ 0 }, ring_exec_kernel, SIMS_RUNS(3));
}

static void test_wait(void **state)
{
	static const struct shape shapes[] = {
		{ 1, 1, 2, 20 }, { 1, 8, 9, 6 }, { 4, 4, 17, 8 }, { 2, 32, 65, 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		run_all(shapes[i], (struct ring_conf){ 0 }, ring_wait_kernel, SIMS_RUNS(3));
		run_all(shapes[i], (struct ring_conf){ 0 }, ring_poll_kernel, SIMS_RUNS(3));
	}
}

static void test_batch(void **state)
{
	static const struct shape shapes[] = {
		{ 1, 1, 2, 20 }, { 1, 32, 16, 4 }, { 4, 8, 2, 3 }, { 4, 8, 33, 10 },
		{ 2, 64, 100, 5 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		run_all(shapes[i], (struct ring_conf){ 0 }, ring_batch_kernel, SIMS_RUNS(3));
}

/* One doorbell for all that the queue holds. */
static void test_1023(void **state)
{
	struct sim_conf sim = { .waves = 1, .lanes = 33, .lockstep = true };
	struct ring *r = ring_new(sim, (struct ring_conf){ .depth = 1024, .each = 31 });

	(void)state;
	ring_run(r, ring_batch_kernel);
	assert_int_equal(r->q->stats.doorbells, 1);
	assert_int_equal(sim_device_counts(r->dev)->posted, 1023);
	ring_free(r);
}

/* The daemon pauses, or is killed between any two accesses and goes on from its record. */
static void test_stalls_and_kills(void **state)
{
	static const struct shape shapes[] = { { 4, 8, 16, 6 }, { 1, 1, 2, 20 }, { 2, 8, 5, 5 } };

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		run_all(shapes[i], (struct ring_conf){ .stall_every = 100 }, ring_exec_kernel,
			SIMS_RUNS(3));
		run_all(shapes[i], (struct ring_conf){ .kill_every = 30 }, ring_exec_kernel,
			SIMS_RUNS(3));
		run_all(shapes[i], (struct ring_conf){ .kill_every = 30 }, ring_batch_kernel,
			SIMS_RUNS(3));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_1023),
		cmocka_unit_test(test_stalls_and_kills),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
