/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 1800 */
/*
 * The ring protocol of gkv_device.h in each order in which some lanes, a daemon, a clock and a host
 * can take their steps, up to a number of interruptions: nothing is lost or done twice, no
 * entry is overwritten before it was fetched, doorbells do not go back, quarantine holds, each
 * command ends as it must, and the queue is whole afterwards. test_ring_spoilt.c proves that
 * what is wrong is found. With GKV_LONG=1 also with one more interruption, as far as it goes.
 */
#include <stdlib.h>

#include "small.h"

/* How far GKV_LONG goes. */
#define LONG_RUNS	1000000u

static void run(const struct small_scene *scene, uint32_t interrupts, uint64_t max_runs)
{
	struct small_result r = small_run(scene, interrupts, NULL, max_runs, true);

	print_message("# %s: at most %u interruptions: %llu runs, %llu of them to states that "
		      "others had come to; %llu states, %llu steps%s\n",
		      scene->name, interrupts, (unsigned long long)r.e.runs,
		      (unsigned long long)r.e.cut, (unsigned long long)r.e.states,
		      (unsigned long long)r.e.steps, r.e.whole ? "" : "; there are more");
	if (r.failed) {
		print_message("# %s: %s\n", scene->name, r.e.why);
		fail();
	}
	if (max_runs)
		return;
	assert_true(r.e.whole);
	assert_int_equal(r.ends & scene->must, scene->must);
	if (interrupts == scene->interrupts)
		assert_true(r.e.runs > scene->floor);
}

static void test_scene(void **state)
{
	const struct small_scene *scene = *state;
	uint32_t interrupts = scene->interrupts;

	if (!scene->quick && (SIMS_TSAN || SIMS_ASAN)) {
		print_message("# SKIP a sanitizer takes minutes for these, and sees one thread\n");
		skip();
	}
	/* Fewer, for the same reason. */
	if (SIMS_ASAN && interrupts > 1)
		interrupts = 1;
	if (SIMS_TSAN)
		interrupts = 0;
	run(scene, interrupts, 0);
	if (getenv("GKV_LONG"))
		run(scene, interrupts + 1, LONG_RUNS);
}

int main(void)
{
	struct CMUnitTest tests[SMALL_NSCENES];

	for (uint32_t i = 0; i < SMALL_NSCENES; i++)
		tests[i] = (struct CMUnitTest){ .name = small_scenes[i].name,
						.test_func = test_scene,
						.initial_state = (void *)&small_scenes[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
