/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 300 */
/*
 * Each place of gkv_device.h that orders accesses is needed: on weak memory, nothing goes wrong
 * for any seed; with the order of one place taken away, something does for some.
 */
#include "ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Completions taken by others than those that wait for them ---- */

/*
 * One wavefront only takes completions off the CQ. One lane lets a result lie for a while,
 * two more have commands all the time: the CQ goes round while that result lies, and what gives
 * its entry back to the daemon is the doorbell alone.
 */
static void take(struct ring *r, uint32_t id, uint32_t i, uint32_t linger)
{
	struct gkv_dev_cmd c = ring_cmd(r, id, i);
	struct gkv_dev_result res;
	gkv_dev_token t;

	while ((t = gkv_dev_submit(r->q, &c)) == GKV_DEV_NONE)
		gkvd_spin(0);
	while (GKVD_STATE(gkvd_ld32_acquire_dev(&gkvd_slot(r->q, (uint32_t)t)->state)) ==
	       GKVD_BUSY)
		gkvd_spin(0);
	while (linger--)
		gkvd_spin(0);
	gkvd_take(r->q, t, &res);
	ring_result(r, id, i, &res);
}

static void roles_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;
	uint32_t lanes = r->sim_conf.lanes, role = id / lanes;

	if (role && id % lanes)
		return;
	for (uint32_t i = 0; role && i < r->conf.each; i++)
		take(r, id, i, role == 1 ? (uint32_t)sim_random(300) : 0);
	if (role)
		__atomic_fetch_add(&r->over, 1, __ATOMIC_RELAXED);
	while (!role && __atomic_load_n(&r->over, __ATOMIC_RELAXED) + 1 < r->sim_conf.waves) {
		gkvd_reap(r->q, gkvd_active());
		gkvd_spin(0);
	}
}

/* Each lane waits for its own, where the first may not have rung yet. */
static void batch_wait_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;
	uint32_t lanes = r->sim_conf.lanes, base = id / lanes * lanes, n;
	uint64_t mask = ((uint64_t)1 << lanes) - 1;
	struct ring_batch *b = &r->batches[id / lanes];

	for (uint32_t i = 0; i < r->conf.each; i++) {
		b->cmds[id - base] = ring_cmd(r, id, i);
		gkvd_sync(mask);
		n = gkv_dev_submit_batch(r->q, mask, b->cmds, lanes, b->tokens);
		if (n < lanes)
			sim_fail("no room, where fewer lanes than entries have one command each");
		gkv_dev_wait(r->q, b->tokens[id - base], 0, &b->results[id - base]);
		ring_result(r, id, i, &b->results[id - base]);
	}
}

/* ---- A daemon that goes away and comes back ---- */

#define AWAY_TIMEOUT	3000u

/* It is back about when the lanes' time is up, and answers a little later. */
static void away_agent(void *arg, uint32_t id)
{
	struct ring *r = arg;
	uint64_t back = AWAY_TIMEOUT + sim_random(500);

	(void)id;
	gkvd_st32_release_sys(&r->ctl->away, 1);
	while (sim_now_step() < back)
		sim_step();
	gkvd_st32_release_sys(&r->ctl->epoch, 1);
	gkvd_st32_release_sys(&r->ctl->away, 0);
	while (sim_now_step() < back + 1000)
		sim_step();
	__atomic_store_n(&r->hold, 0, __ATOMIC_RELAXED);
}

/* ---- All of it, for some seeds ---- */

static const struct scene {
	const char *name;
	struct sim_conf sim;
	struct ring_conf conf;
	sim_kernel *kernel;
	bool away;
} scenes[] = {
	{ "exec, depth 3", { .waves = 2, .lanes = 2 }, { .depth = 3, .each = 5 },
	  ring_exec_kernel, false },
	{ "exec, depth 4", { .waves = 4, .lanes = 1 }, { .depth = 4, .each = 6 },
	  ring_exec_kernel, false },
	{ "exec, depth 16", { .waves = 2, .lanes = 4 }, { .depth = 16, .each = 6 },
	  ring_exec_kernel, false },
	{ "wait, depth 5", { .waves = 4, .lanes = 1 }, { .depth = 5, .each = 6 },
	  ring_wait_kernel, false },
	{ "batch, depth 5", { .waves = 2, .lanes = 4 }, { .depth = 5, .each = 4 },
	  ring_batch_kernel, false },
	{ "batch and wait, depth 9", { .waves = 2, .lanes = 4 }, { .depth = 9, .each = 4 },
	  batch_wait_kernel, false },
	{ "wait together, depth 9", { .waves = 2, .lanes = 4 }, { .depth = 9, .each = 4 },
	  ring_wait_kernel, false },
	{ "full batches, depth 4", { .waves = 3, .lanes = 4, .stubborn = true },
	  { .depth = 4, .each = 6 }, ring_batch_kernel, false },
	{ "poll, depth 7", { .waves = 3, .lanes = 2 }, { .depth = 7, .each = 4 },
	  ring_poll_kernel, false },
	{ "full groups, depth 4", { .waves = 3, .lanes = 4, .stubborn = true },
	  { .depth = 4, .each = 6 }, ring_exec_kernel, false },
	{ "roles, depth 4", { .waves = 4, .lanes = 3 }, { .depth = 4, .each = 20 },
	  roles_kernel, false },
	{ "away, depth 5", { .waves = 2, .lanes = 2, .agent_share = 2 },
	  { .depth = 5, .each = 1, .timeout = AWAY_TIMEOUT },
	  ring_exec_kernel, true },
};
#define NSCENES (sizeof(scenes) / sizeof(scenes[0]))

static char why[4096];

/* Returns whether something went wrong, and what in why[]. */
static bool fails(const struct scene *scene, uint64_t seed)
{
	struct sim_conf sim = scene->sim;
	struct ring_conf conf = scene->conf;
	bool failed;
	struct ring *r;

	sim.lockstep = sim.weak = true;
	sim.seed = seed;
	sim.policy = (enum sim_policy)(seed % SIM_NPOLICIES);
	if (seed % 2)
		sim.agent_share = 2;
	sim.watchdog = 30000;
	sim.max_steps = 3000000;
	conf.watch = true;
	conf.delay = seed % 3 || scene->away ? 50 : 500;
	r = ring_new(sim, conf);
	if (scene->away) {
		r->hold = 1;
		assert_int_equal(sim_agent(r->sim, away_agent, r, "host"), 0);
	}
	failed = sim_run(r->sim, scene->kernel, r);
	snprintf(why, sizeof(why), "%s", sim_report(r->sim));
	if (!failed && r->q->stats.timeouts) {
		snprintf(why, sizeof(why), "a timeout");
		failed = true;
	}
	ring_free(r);
	return failed;
}

static void test_whole(void **state)
{
	uint64_t seeds = SIMS_RUNS(getenv("GKV_LONG") ? 1000u : 30u);

	(void)state;
	for (size_t i = 0; i < NSCENES; i++) {
		for (uint64_t seed = 0; seed < seeds; seed++) {
			if (!fails(&scenes[i], seed))
				continue;
			print_message("# %s, seed %llu: %s\n", scenes[i].name,
				      (unsigned long long)seed, why);
			fail();
		}
	}
}

static bool notices(const struct sim_site *site)
{
	uint64_t seeds = SIMS_RUNS(60);

	for (uint64_t seed = 0; seed < seeds; seed++) {
		for (size_t i = 0; i < NSCENES; i++) {
			if (!fails(&scenes[i], seed))
				continue;
			why[strcspn(why, "\n")] = 0;
			print_message("# without %s: %s, seed %llu: %s\n", sim_site_name(site),
				      scenes[i].name, (unsigned long long)seed, why);
			return true;
		}
	}
	print_message("# without %s: nothing is noticed\n", sim_site_name(site));
	return false;
}

/*
 * What the simulator has no say in, by the text of the line or of the one before: words that the
 * host sets for the lanes to see and that nothing else hangs on (but what is seen of the epoch
 * follows from what is seen of the daemon's being away), and results, which are plain memory.
 */
static const char *exempt(const struct sim_site *site)
{
	static const char *const texts[] = {
		"&q->ctl->epoch", "&q->ctl->lost", "(q->stopped)", "may read all results",
	};
	char line[2][256] = { "", "" };
	FILE *f = fopen(site->file, "r");
	int n = 0;

	if (!f)
		return NULL;
	while (n < site->line && fgets(line[n % 2], sizeof(line[0]), f))
		n++;
	fclose(f);
	for (size_t i = 0; n == site->line && i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strstr(line[0], texts[i]) || strstr(line[1], texts[i]))
			return texts[i];
	}
	return NULL;
}

static void test_each(void **state)
{
	unsigned int sites = 0, missed = 0;

	(void)state;
	if (SIMS_TSAN) {
		print_message("# SKIP in lockstep ThreadSanitizer sees one thread, and takes minutes\n");
		skip();
	}
	for (struct sim_site *site = sim_sites(); site; site = site->next) {
		if (!strstr(site->file, "gkv_device/"))
			continue;
		if (exempt(site)) {
			print_message("# not tried: %s (%s)\n", sim_site_name(site),
				      exempt(site));
			continue;
		}
		sites++;
		sim_weaken(site);
		missed += !notices(site);
		sim_restore_all();
	}
	assert_true(sites > 20);
	assert_int_equal(missed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
