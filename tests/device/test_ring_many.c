/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 300 */
/* Thousands of lanes share one queue pair: nothing is lost, done twice or stuck. */
#include "ring.h"

static void run_many(struct sim_conf sim, uint32_t depth, sim_kernel *fn)
{
	struct ring *r;

	sim.waves = SIMS_MANY / 32;
	sim.lanes = 32;
	r = ring_new(sim, (struct ring_conf){ .depth = depth, .each = 1 });
	ring_run(r, fn);
	assert_int_equal(sim_device_counts(r->dev)->posted, SIMS_MANY);
	ring_free(r);
}

static void test_lockstep(void **state)
{
	(void)state;
	for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p))
		run_many((struct sim_conf){ .lockstep = true, .policy = p, .seed = p,
					    .agent_share = 3 }, 256, ring_exec_kernel);
	run_many((struct sim_conf){ .lockstep = true, .policy = SIM_WORST, .agent_share = 3 },
		 1024, ring_batch_kernel);
}

static void test_threads(void **state)
{
	(void)state;
	run_many((struct sim_conf){ .lockstep = false }, 256, ring_exec_kernel);
	run_many((struct sim_conf){ .lockstep = false }, 1024, ring_batch_kernel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lockstep),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
