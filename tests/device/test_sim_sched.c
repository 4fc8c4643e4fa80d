/* SPDX-License-Identifier: MIT */
/* The simulator itself: lanes, groups, collectives, and finding what hardware would hang in. */
#include "sims.h"

#include <string.h>

#define LANES 8u

/* ---- Many lanes ---- */

struct count {
	uint32_t n, again;
	uint8_t ran[4096];
};

static void count_kernel(void *arg, uint32_t id)
{
	struct count *c = arg;

	c->ran[id]++;
	gkvd_add32_relaxed_dev(&c->n, 1);
	gkvd_spin(0);
	gkvd_add32_relaxed_dev(&c->again, 1);
}

static void count_all(struct sim_conf conf)
{
	static struct count c;

	memset(&c, 0, sizeof(c));
	sims_good(conf, count_kernel, &c);
	assert_int_equal(c.n, conf.waves * conf.lanes);
	assert_int_equal(c.again, conf.waves * conf.lanes);
	for (uint32_t i = 0; i < c.n; i++)
		assert_int_equal(c.ran[i], 1);
}

static void test_many(void **state)
{
	(void)state;
	count_all((struct sim_conf){ .waves = SIMS_MANY / 32, .lanes = 32 });
	count_all((struct sim_conf){ .waves = 4, .lanes = 64, .jitter = true });
	for (unsigned int p = 0; p < SIM_NPOLICIES; p++) {
		count_all((struct sim_conf){ .waves = SIMS_MANY / 64, .lanes = 64,
					     .lockstep = true, .policy = p });
		count_all((struct sim_conf){ .waves = 1, .lanes = 1, .lockstep = true,
					     .policy = p });
	}
}

static void test_bad_conf(void **state)
{
	static const struct sim_conf bad[] = {
		{ .waves = 0, .lanes = 1 },
		{ .waves = 1, .lanes = 0 },
		{ .waves = 1, .lanes = 65 },
		{ .waves = 1, .lanes = 1, .policy = SIM_NPOLICIES },
		{ .waves = 1, .lanes = 1, .weak = true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_null(sim_new(&bad[i]));
}

/* ---- Collectives ---- */

struct meeting {
	uint32_t before[LANES], wrong;
};

/* All lanes of a wavefront, which know that they are together. */
static void meeting_kernel(void *arg, uint32_t id)
{
	struct meeting *m = (struct meeting *)arg + id / LANES;
	uint64_t all = (1u << LANES) - 1, even = 0x55, mine;
	uint32_t lane = gkvd_lane(), wrong = lane != id % LANES;

	for (uint32_t i = 0; i < 20; i++) {
		gkvd_st32_relaxed_dev(&m->before[lane], i + 1);
		gkvd_sync(all);
		for (uint32_t k = 0; k < LANES; k++)
			wrong += gkvd_ld32_relaxed_dev(&m->before[k]) != i + 1;
		wrong += gkvd_ballot(all, lane % 3 == i % 3) != (0x49249249u << i % 3 & 0xff);
		wrong += gkvd_shfl(all, (uint64_t)lane << 40 | i, (i + 3) % LANES) !=
			 ((uint64_t)((i + 3) % LANES) << 40 | i);
		/* Two groups at a time. */
		mine = lane % 2 ? ~even & all : even;
		wrong += gkvd_ballot(mine, 1) != mine;
		wrong += gkvd_shfl(mine, lane, gkvd_first(mine)) != gkvd_first(mine);
		wrong += gkvd_rank(mine) != lane / 2;
		wrong += gkvd_ballot((uint64_t)1 << lane, 1) != (uint64_t)1 << lane;
	}
	gkvd_add32_relaxed_dev(&m->wrong, wrong);
}

static void meet_all(struct sim_conf conf)
{
	static struct meeting m[16];

	memset(m, 0, sizeof(m));
	conf.lanes = LANES;
	sims_good(conf, meeting_kernel, m);
	for (uint32_t i = 0; i < conf.waves; i++)
		assert_int_equal(m[i].wrong, 0);
}

static void test_collectives(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < SIMS_RUNS(20); seed++) {
		for (unsigned int p = 0; p < SIM_NPOLICIES; p++)
			meet_all((struct sim_conf){ .waves = 4, .lockstep = true, .policy = p,
						    .seed = seed, .weak = seed & 1 });
	}
	meet_all((struct sim_conf){ .waves = 16, .jitter = true });
}

static void absent_kernel(void *arg, uint32_t id)
{
	(void)arg;
	if (id)
		gkvd_sync(0x3);
}

static void apart_kernel(void *arg, uint32_t id)
{
	(void)arg;
	if (id)
		gkvd_sync(0x3);
	else
		gkvd_ballot(0x3, 1);
}

/* Lane 1 waits for lane 0, which waits for lane 2, which waits for lane 1. */
static void ring_kernel(void *arg, uint32_t id)
{
	static const uint64_t masks[] = { 0x5, 0x3, 0x6 };

	(void)arg;
	gkvd_sync(masks[id]);
}

static void outside_kernel(void *arg, uint32_t id)
{
	(void)arg;
	gkvd_ballot(id ? 0x1 : 0x3, 1);
}

static void test_wrong_collectives(void **state)
{
	struct sim_conf c = { .waves = 1, .lanes = 2, .lockstep = true, .policy = SIM_FIRST };
	struct sim_conf three = { .waves = 1, .lanes = 3, .lockstep = true };

	(void)state;
	assert_true(sims_fails(sims_new(c), absent_kernel, NULL, "has ended"));
	assert_true(sims_fails(sims_new(c), outside_kernel, NULL, "without it"));
	assert_true(sims_fails(sims_new(c), apart_kernel, NULL, "different collectives"));
	assert_true(sims_fails(sims_new(three), ring_kernel, NULL, "deadlock"));
	c.lockstep = false;
	assert_true(sims_fails(sims_new(c), outside_kernel, NULL, "without it"));
}

/* ---- Groups ---- */

struct groups {
	uint32_t sizes[LANES + 1];	/* how often a group had that many lanes */
	uint32_t sum, wrong;
};

static void groups_kernel(void *arg, uint32_t id)
{
	struct groups *g = arg;

	(void)id;
	for (uint32_t i = 0; i < 50; i++) {
		uint64_t mask = gkvd_active();

		if (!(mask >> gkvd_lane() & 1))
			gkvd_add32_relaxed_dev(&g->wrong, 1);
		gkvd_sync(mask);
		if (gkvd_lane() == gkvd_first(mask)) {
			uint32_t n = (uint32_t)gkvd_popc64(mask);

			gkvd_add32_relaxed_dev(&g->sizes[n], 1);
			gkvd_add32_relaxed_dev(&g->sum, n);
		}
		gkvd_sync(mask);
	}
}

static void test_groups(void **state)
{
	struct sim_conf c = { .waves = 2, .lanes = LANES, .lockstep = true };
	struct groups g;

	(void)state;
	for (unsigned int p = 0; p < SIM_NPOLICIES; p++) {
		memset(&g, 0, sizeof(g));
		c.policy = p;
		sims_good(c, groups_kernel, &g);
		assert_int_equal(g.wrong, 0);
		assert_int_equal(g.sum, 2 * LANES * 50);
		if (p == SIM_TOGETHER) {
			assert_int_equal(g.sizes[LANES], 100);
		} else if (p == SIM_FIRST) {
			assert_int_equal(g.sizes[1], 2 * LANES * 50);
		} else {
			/* Alone, all together, and in between. */
			assert_true(g.sizes[1] > 0 && g.sizes[3] > 0);
			assert_true(p == SIM_ITS || p == SIM_STARVE || g.sizes[LANES] > 0);
		}
	}
	memset(&g, 0, sizeof(g));
	c.lockstep = false;
	sims_good(c, groups_kernel, &g);
	assert_int_equal(g.sizes[1], 2 * LANES * 50);
}

/* ---- What must not be done ---- */

struct lock {
	uint32_t word, inside, wrong, sum;
};

/* A lane that waits for a lock which its own wavefront may hold. */
static void spinlock_kernel(void *arg, uint32_t id)
{
	struct lock *l = arg;

	(void)id;
	for (uint32_t i = 0; gkvd_exch32_acquire_dev(&l->word, 1); i++)
		gkvd_spin(i);
	if (gkvd_add32_relaxed_dev(&l->inside, 1))
		gkvd_add32_relaxed_dev(&l->wrong, 1);
	gkvd_active();
	gkvd_add32_relaxed_dev(&l->inside, (uint32_t)-1);
	gkvd_add32_relaxed_dev(&l->sum, 1);
	gkvd_st32_release_dev(&l->word, 0);
}

static bool spinlock_hangs(uint32_t waves, uint32_t lanes, enum sim_policy policy, uint64_t seed)
{
	struct lock l = { 0 };
	bool hangs = sims_fails(sims_new((struct sim_conf){ .waves = waves, .lanes = lanes,
				.lockstep = true, .policy = policy, .seed = seed,
				.watchdog = 20000 }), spinlock_kernel, &l, "livelock");

	assert_int_equal(l.wrong, 0);
	assert_true(hangs || l.sum == waves * lanes);
	return hangs;
}

static void test_spinlock(void **state)
{
	struct lock l = { 0 };

	(void)state;
	for (uint64_t seed = 0; seed < SIMS_RUNS(10); seed++) {
		/* Within a wavefront it hangs, unless the hardware is fair to each lane. */
		assert_true(spinlock_hangs(1, 2, SIM_WORST, seed));
		assert_true(spinlock_hangs(4, 8, SIM_WORST, seed));
		assert_false(spinlock_hangs(4, 8, SIM_ITS, seed));
		/* Between wavefronts it is well. */
		assert_false(spinlock_hangs(16, 1, SIM_WORST, seed));
	}
	sims_good((struct sim_conf){ .waves = 8, .lanes = 4 }, spinlock_kernel, &l);
	assert_int_equal(l.sum, 32);
	assert_int_equal(l.wrong, 0);
}

/* The first lane of a group tells the others, which wait for it, perhaps without it. */
static void branch_kernel(void *arg, uint32_t id)
{
	uint32_t *told = arg;
	uint64_t mask = gkvd_active();

	(void)id;
	if (gkvd_lane() == gkvd_first(mask))
		gkvd_st32_release_dev(told, 1);
	for (uint32_t i = 0; !gkvd_ld32_acquire_dev(told); i++)
		gkvd_spin(i);
}

static void met_kernel(void *arg, uint32_t id)
{
	uint32_t *told = arg;
	uint64_t mask = gkvd_active();

	(void)id;
	if (gkvd_lane() == gkvd_first(mask))
		gkvd_st32_release_dev(told, 1);
	gkvd_sync(mask);
	for (uint32_t i = 0; !gkvd_ld32_acquire_dev(told); i++)
		gkvd_spin(i);
}

static void test_branch(void **state)
{
	struct sim_conf c = { .waves = 1, .lanes = 4, .lockstep = true, .policy = SIM_STARVE,
			      .watchdog = 10000 };
	unsigned int hangs = 0;

	(void)state;
	for (c.seed = 0; c.seed < 50; c.seed++) {
		uint32_t told = 0;

		hangs += sims_fails(sims_new(c), branch_kernel, &told, "livelock");
		told = 0;
		sims_good(c, met_kernel, &told);
	}
	assert_true(hangs > 0);
}

static void report_kernel(void *arg, uint32_t id)
{
	(void)arg;
	if (id == 3)
		sim_fail("the %s fails", "third");
	gkvd_spin(0);
}

static void test_report(void **state)
{
	struct sim_conf c = { .waves = 2, .lanes = 2, .lockstep = true };

	(void)state;
	assert_true(sims_fails(sims_new(c), report_kernel, NULL, "lane 3: the third fails"));
	c.lockstep = false;
	assert_true(sims_fails(sims_new(c), report_kernel, NULL, "lane 3: the third fails"));
}

/* ---- Determinism, the clock, agents ---- */

struct trace {
	uint64_t hash;
	uint64_t clock;
	uint32_t word;
	uint32_t bells;
};

static void trace_kernel(void *arg, uint32_t id)
{
	struct trace *t = arg;

	for (uint32_t i = 0; i < 30; i++) {
		uint32_t was = gkvd_ld32_relaxed_dev(&t->word);
		uint64_t now;

		gkvd_st32_relaxed_dev(&t->word, was * 33 + id);
		t->hash = (t->hash ^ was ^ gkvd_active()) * 0x9e3779b97f4a7c15u;
		now = gkvd_clock();
		if (now < t->clock)
			sim_fail("the clock goes back");
		t->clock = now;
	}
}

static void bell_agent(void *arg, uint32_t id)
{
	struct trace *t = arg;

	(void)id;
	while (!sim_stopping()) {
		if (gkvd_active() != 1 || gkvd_lane())
			sim_fail("an agent is not alone");
		gkvd_add32_relaxed_dev(&t->bells, 1);
		gkvd_spin(100);
	}
}

static uint64_t traced(uint64_t seed, enum sim_policy policy, bool weak)
{
	struct sim_conf c = { .waves = 3, .lanes = 5, .lockstep = true, .policy = policy,
			      .seed = seed, .weak = weak };
	struct sim *s = sims_new(c);
	struct trace t = { 0 };

	assert_int_equal(sim_agent(s, bell_agent, &t, "bell"), 0);
	sims_run(s, &c, trace_kernel, &t);
	assert_true(t.bells > 0);
	return t.hash ^ t.clock ^ t.word ^ t.bells;
}

static void test_seeds(void **state)
{
	unsigned int differ = 0;

	(void)state;
	for (unsigned int p = 0; p < SIM_NPOLICIES; p++) {
		for (uint64_t seed = 0; seed < 10; seed++) {
			uint64_t h = traced(seed, p, seed & 1);

			assert_true(h == traced(seed, p, seed & 1));
			differ += h != traced(seed + 1, p, seed & 1);
		}
	}
	assert_int_equal(differ, SIM_NPOLICIES * 10);
}

static void test_agent_threads(void **state)
{
	struct sim_conf c = { .waves = 2, .lanes = 4 };
	struct sim *s = sims_new(c);
	struct trace t = { 0 };
	struct lock l = { 0 };

	(void)state;
	assert_int_equal(sim_agent(s, bell_agent, &t, "bell"), 0);
	sims_run(s, &c, spinlock_kernel, &l);
	assert_int_equal(l.sum, 8);
}

/* Without a lane, the primitives are a processor's. */
static void test_outside(void **state)
{
	uint64_t lo, hi, v[2] __attribute__((aligned(16)));
	uint32_t w = 5;

	(void)state;
	assert_int_equal(gkvd_add32_release_dev(&w, 2), 5);
	assert_int_equal(gkvd_cas32_acquire_dev(&w, 6, 9), 7);
	assert_int_equal(gkvd_cas32_acquire_dev(&w, 7, 9), 7);
	assert_int_equal(gkvd_exch32_acquire_dev(&w, 12), 9);
	assert_int_equal(gkvd_and32_acquire_dev(&w, 8), 12);
	assert_int_equal(gkvd_or32_release_dev(&w, 3), 8);
	assert_int_equal(gkvd_ld32_acquire_sys(&w), 11);
	gkvd_put16(v, 1, 2);
	gkvd_get16(v, &lo, &hi);
	assert_true(lo == 1 && hi == 2);
	assert_int_equal(gkvd_active(), 1);
	assert_int_equal(gkvd_ballot(1, 4), 1);
	assert_int_equal(gkvd_shfl(1, 4, 0), 4);
	assert_true(gkvd_clock() > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_bad_conf),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_wrong_collectives),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_spinlock),
		cmocka_unit_test(test_branch),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_agent_threads),
		cmocka_unit_test(test_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
