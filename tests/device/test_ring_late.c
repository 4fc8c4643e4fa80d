/* SPDX-License-Identifier: MIT */
/* Deadlines that pass, completions that come after them, daemons that do not come back. */
#include "ring.h"

#include <string.h>

/* Waits until everything that timed out is settled, so that its late completion was taken. */
static void settle(struct ring *r, gkv_dev_token t)
{
	for (uint32_t i = 0; !gkv_dev_settled(r->q, t); i++)
		gkvd_spin(i);
}

/* Each lane uses its buffer again only when its last command is settled. */
static void late_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;

	for (uint32_t i = 0; i < r->conf.each; i++) {
		struct gkv_dev_cmd c = ring_cmd(r, id, i);
		struct gkv_dev_result res;
		gkv_dev_token t;

		/* A slot is settled a little before there is room again. */
		for (uint32_t k = 0; (t = gkv_dev_submit(r->q, &c)) == GKV_DEV_NONE; k++)
			gkvd_spin(k);
		gkv_dev_wait(r->q, t, 0, &res);
		ring_result(r, id, i, &res);
		if (res.end == GKV_DEV_TIMEDOUT && gkv_dev_poll(r->q, t, &res) == GKV_DEV_DONE)
			sim_fail("a result after the timeout");
		settle(r, t);
	}
}

static void late_all(struct sim_conf sim, struct ring_conf conf)
{
	uint32_t timedout = 0, done = 0;

	for (sim.seed = 0; sim.seed < SIMS_RUNS(4); sim.seed++) {
		for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p)) {
			struct ring *r;

			sim.policy = p;
			r = ring_new(sim, conf);
			ring_run(r, late_kernel);
			for (uint32_t i = 0; i < r->nlanes; i++) {
				timedout += r->lanes[i].timedout;
				done += r->lanes[i].done;
				assert_int_equal(r->lanes[i].other, 0);
			}
			/* All is settled: nothing is in quarantine. */
			assert_int_equal(r->q->credits, conf.depth - 1);
			assert_int_equal(r->q->stats.late, r->q->stats.timeouts);
			assert_int_equal(sim_device_counts(r->dev)->posted,
					 (uint64_t)r->nlanes * conf.each);
			ring_free(r);
		}
	}
	assert_true(timedout > 0 && done > 0);
}

static void test_late(void **state)
{
	struct ring_conf conf = { .each = 8, .timeout = 3000, .late_every = 3, .late_by = 6000 };

	(void)state;
	conf.depth = 2;
	late_all((struct sim_conf){ .waves = 1, .lanes = 1, .lockstep = true }, conf);
	conf.depth = 17;
	late_all((struct sim_conf){ .waves = 4, .lanes = 4, .lockstep = true }, conf);
	/* About when the deadline is: each may win. */
	conf.timeout = 600;
	conf.late_every = 0;
	conf.delay = 1200;
	late_all((struct sim_conf){ .waves = 4, .lanes = 4, .lockstep = true }, conf);
	conf.depth = 2;
	late_all((struct sim_conf){ .waves = 1, .lanes = 1, .lockstep = true }, conf);
}

/* The same where lanes find no room while others' commands are in quarantine. */
static void test_full(void **state)
{
	struct sim_conf sim = { .waves = 4, .lanes = 8, .lockstep = true };
	struct ring_conf conf = { .depth = 8, .each = 5, .timeout = 8000, .late_every = 4,
				  .late_by = 16000 };
	uint32_t timedout = 0, full = 0;

	(void)state;
	for (sim.seed = 0; sim.seed < SIMS_RUNS(4); sim.seed++) {
		for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p)) {
			struct ring *r;

			sim.policy = p;
			r = ring_new(sim, conf);
			ring_run(r, ring_exec_kernel);
			for (uint32_t i = 0; i < r->nlanes * conf.each; i++) {
				full += r->ended[i] == GKV_DEV_FULL;
				timedout += r->ended[i] == GKV_DEV_TIMEDOUT;
				if (r->ended[i] == GKV_DEV_FULL)
					assert_int_equal(r->executed[i], 0);
			}
			ring_free(r);
		}
	}
	assert_true(timedout > 0 && full > 0);
}

/* F16, R14, R16: some commands are never answered: every lane ends all the same, others go on. */
static void test_never(void **state)
{
	struct sim_conf sim = { .waves = 2, .lanes = 8, .lockstep = true };
	struct ring_conf conf = { .depth = 64, .each = 4, .timeout = 20000, .never_every = 8 };

	(void)state;
	for (sim.seed = 0; sim.seed < SIMS_RUNS(4); sim.seed++) {
		for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p)) {
			const struct sim_device_counts *n;
			uint32_t done = 0, unread;
			struct ring *r;

			sim.policy = p;
			r = ring_new(sim, conf);
			ring_run(r, ring_exec_kernel);
			n = sim_device_counts(r->dev);
			assert_true(n->outstanding > 0);
			for (uint32_t i = 0; i < r->nlanes; i++)
				done += r->lanes[i].done;
			unread = (uint32_t)n->posted - done - r->q->stats.late;
			assert_int_equal(r->q->stats.timeouts - r->q->stats.late,
					 n->outstanding + unread);
			assert_int_equal(r->q->credits, conf.depth - 1 - n->outstanding - unread);
			ring_free(r);
		}
	}
}

/* ---- What the host says ---- */

struct host {
	struct ring *r;
	uint64_t after, away_for;
	uint32_t how;		/* of GKV_DEV_* */
};

static void host_agent(void *arg, uint32_t id)
{
	struct host *h = arg;

	(void)id;
	while (sim_now_step() < h->after && !sim_stopping())
		sim_step();
	if (h->how == GKV_DEV_STOPPED)
		gkvd_st32_release_sys(h->r->stopped, 1);
	else if (h->how == GKV_DEV_LOST)
		gkvd_st32_release_sys(&h->r->ctl->lost, 1);
	if (h->how != GKV_DEV_DONE)
		return;
	/* A restart: away, back with a new epoch. */
	gkvd_st32_release_sys(&h->r->ctl->away, 1);
	while (sim_now_step() < h->after + h->away_for && !sim_stopping())
		sim_step();
	gkvd_st32_release_sys(&h->r->ctl->epoch, 1);
	gkvd_st32_release_sys(&h->r->ctl->away, 0);
	gkvd_st32_release_sys(&h->r->hold, 0);
}

static struct ring *host_says(struct sim_conf sim, struct ring_conf conf, struct host h)
{
	h.r = ring_new(sim, conf);
	h.r->hold = 1;
	assert_int_equal(sim_agent(h.r->sim, host_agent, &h, "host"), 0);
	ring_run(h.r, ring_exec_kernel);
	return h.r;
}

static void test_host(void **state)
{
	struct sim_conf sim = { .waves = 2, .lanes = 8, .lockstep = true };
	struct ring_conf conf = { .depth = 8, .each = 1 };

	(void)state;
	for (uint32_t how = GKV_DEV_STOPPED; how <= GKV_DEV_LOST; how++) {
		for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p)) {
			struct ring *r;

			sim.policy = p;
			r = host_says(sim, conf, (struct host){ .after = 5000, .how = how });
			for (uint32_t i = 0; i < r->nlanes; i++)
				assert_int_equal(r->ended[i], how);
			ring_free(r);
		}
	}
}

/* The daemon is away for longer than the timeout, which then begins anew. */
static void test_restart(void **state)
{
	struct sim_conf sim = { .waves = 2, .lanes = 8, .lockstep = true };
	struct ring_conf conf = { .depth = 8, .each = 2, .timeout = 100000 };
	struct host h = { .after = 1000, .away_for = 300000, .how = GKV_DEV_DONE };

	(void)state;
	for (unsigned int p = 0; p < SIM_NPOLICIES; p = SIMS_NEXT(p)) {
		struct ring *r;

		sim.policy = p;
		r = host_says(sim, conf, h);
		for (uint32_t i = 0; i < r->nlanes; i++)
			assert_int_equal(r->lanes[i].done, 2);
		assert_int_equal(r->q->stats.timeouts, 0);
		ring_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
