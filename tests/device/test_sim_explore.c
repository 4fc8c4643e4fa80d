/* SPDX-License-Identifier: MIT */
/* Exploring: it goes through all runs there are, once, and finds what few of them show. */
#include <string.h>

#include "explore.h"
#include "sims.h"

#define MANY (~(uint32_t)0 >> 24)	/* interruptions: as many as there are steps */

struct scene {
	uint32_t word[4];
	uint32_t seen[16];	/* runs that ended so */
	uint32_t (*outcome)(const struct scene *s);
	bool bad[16];		/* outcomes that must not be */
	uint32_t local[4];
};

static void prepare(void *arg)
{
	struct scene *s = arg;

	memset(s->word, 0, sizeof(s->word));
	memset(s->local, 0, sizeof(s->local));
}

static const char *check(void *arg)
{
	struct scene *s = arg;
	uint32_t o = s->outcome(s);

	s->seen[o]++;
	return s->bad[o] ? "an outcome that must not be" : NULL;
}

static int explore(struct explore *e, struct sim_conf conf, sim_kernel *fn, struct scene *s,
		   sim_kernel *agent)
{
	struct explore_subject on = { .kernel = fn, .arg = s, .prepare = prepare, .check = check };
	int ret;

	conf.lockstep = true;
	conf.choose = explore_choose;
	conf.choose_ctx = e;
	conf.max_steps = 10000;
	on.sim = sims_new(conf);
	if (agent)
		assert_int_equal(sim_agent(on.sim, agent, s, "agent"), 0);
	ret = explore_run(e, &on);
	explore_end(e);
	sim_free(on.sim);
	return ret;
}

/* ---- The number of runs ---- */

static void three_stores(void *arg, uint32_t id)
{
	struct scene *s = arg;

	for (uint32_t i = 1; i <= 3; i++)
		gkvd_st32_relaxed_dev(&s->word[id], i);
}

static uint32_t nothing(const struct scene *s)
{
	return s->word[0] != 3 || s->word[1] != 3;
}

/*
 * Two lanes of four steps, the first of which is to begin, and which stores nothing: eight steps
 * of which four are one lane's.
 */
static void test_number(void **state)
{
	struct sim_conf conf = { .waves = 2, .lanes = 1 };
	struct scene s = { .outcome = nothing, .bad = { [1] = true } };
	struct explore e = { .interrupts = MANY, .every_run = true };

	(void)state;
	assert_int_equal(explore(&e, conf, three_stores, &s, NULL), 0);
	assert_true(e.whole && !e.cut);
	assert_int_equal(e.runs, 70);

	/* One after the other. */
	e = (struct explore){ .interrupts = 0, .every_run = true };
	assert_int_equal(explore(&e, conf, three_stores, &s, NULL), 0);
	assert_int_equal(e.runs, 2);

	/*
	 * Either interrupts the other once, before any but its first step; then the rest of
	 * both follows without another.
	 */
	e = (struct explore){ .interrupts = 1, .every_run = true };
	assert_int_equal(explore(&e, conf, three_stores, &s, NULL), 0);
	assert_int_equal(e.runs, 2 + 2 * 3);

	/* Each state once: (0 to 4) * (0 to 4) of them, and which lane ran last. */
	e = (struct explore){ .interrupts = MANY };
	assert_int_equal(explore(&e, conf, three_stores, &s, NULL), 0);
	assert_true(e.whole && e.cut && e.runs < 70 && e.states <= 50);

	e = (struct explore){ .interrupts = MANY, .every_run = true, .max_runs = 69 };
	assert_int_equal(explore(&e, conf, three_stores, &s, NULL), 0);
	assert_false(e.whole);
}

static void values(void *arg, uint32_t id)
{
	struct scene *s = arg;

	s->local[id] = (uint32_t)sim_random(3) * 4 + (uint32_t)sim_random(4);
}

static uint32_t first_value(const struct scene *s)
{
	return s->local[0];
}

static void test_values(void **state)
{
	struct scene s = { .outcome = first_value };
	struct explore e = { 0 };

	(void)state;
	assert_int_equal(explore(&e, (struct sim_conf){ .waves = 1, .lanes = 1 }, values, &s,
				 NULL), 0);
	assert_int_equal(e.runs, 12);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(s.seen[i], 1);
}

/* ---- What only some runs show ---- */

static void count_up(void *arg, uint32_t id)
{
	struct scene *s = arg;

	(void)id;
	gkvd_st32_relaxed_dev(&s->word[0], gkvd_ld32_relaxed_dev(&s->word[0]) + 1);
}

static unsigned int add_line;

static void count_atomically(void *arg, uint32_t id)
{
	struct scene *s = arg;

	(void)id;
	add_line = __LINE__ + 1;
	gkvd_add32_relaxed_dev(&s->word[0], 1);
}

static uint32_t first_word(const struct scene *s)
{
	return s->word[0];
}

static void test_lost_update(void **state)
{
	struct sim_conf conf = { .waves = 3, .lanes = 1 };
	struct scene s = { .outcome = first_word };
	struct explore e = { .interrupts = 0 };

	(void)state;
	assert_int_equal(explore(&e, conf, count_up, &s, NULL), 0);
	assert_true(!s.seen[1] && !s.seen[2] && s.seen[3]);
	e = (struct explore){ .interrupts = 2 };
	assert_int_equal(explore(&e, conf, count_up, &s, NULL), 0);
	assert_true(s.seen[1] && s.seen[2] && s.seen[3]);

	memset(s.seen, 0, sizeof(s.seen));
	e = (struct explore){ .interrupts = MANY };
	assert_int_equal(explore(&e, conf, count_atomically, &s, NULL), 0);
	assert_true(!s.seen[1] && !s.seen[2] && s.seen[3]);
}

static struct sim_site *site(unsigned int line, enum sim_site_kind kind)
{
	for (int relaxed = 0; relaxed < 2; relaxed++) {
		struct sim_site *at = relaxed ? sim_relaxed_sites() : sim_sites();

		for (; at; at = at->next) {
			if (at->line == (int)line && at->kind == kind && strstr(at->file, __FILE__))
				return at;
		}
	}
	fail();
	return NULL;
}

/* One that is split loses counts as well. */
static void test_split(void **state)
{
	struct sim_conf conf = { .waves = 2, .lanes = 1 };
	struct scene s = { .outcome = first_word, .bad = { [1] = true } };
	struct explore e = { .interrupts = 1 };

	(void)state;
	assert_int_equal(explore(&e, conf, count_atomically, &s, NULL), 0);
	sim_split(site(add_line, SIM_RMW));
	e = (struct explore){ .interrupts = 1 };
	assert_int_equal(explore(&e, conf, count_atomically, &s, NULL), -1);
	sim_restore_all();
	e = (struct explore){ .interrupts = 1 };
	assert_int_equal(explore(&e, conf, count_atomically, &s, NULL), 0);
}

/* A message: its flag must not be seen before it. */
static unsigned int message_line;

static void send_message(struct scene *s)
{
	message_line = __LINE__ + 1;
	gkvd_st32_relaxed_dev(&s->word[0], 7);
	gkvd_st32_release_dev(&s->word[1], 1);
}

static void message(void *arg, uint32_t id)
{
	struct scene *s = arg;

	if (!id) {
		send_message(s);
		return;
	}
	while (!gkvd_ld32_acquire_dev(&s->word[1]))
		gkvd_spin(0);
	s->local[0] = gkvd_ld32_relaxed_dev(&s->word[0]);
}

static void test_late(void **state)
{
	struct sim_conf conf = { .waves = 2, .lanes = 1 };
	struct scene s = { .outcome = first_value, .bad = { true } };
	struct explore e = { .interrupts = 1 };

	(void)state;
	assert_int_equal(explore(&e, conf, message, &s, NULL), 0);
	assert_true(s.seen[7] && e.whole);
	sim_late(site(message_line, SIM_STORE), 1);
	e = (struct explore){ .interrupts = 1 };
	assert_int_equal(explore(&e, conf, message, &s, NULL), -1);
	sim_restore_all();
}

/* ---- Lanes that come together, wait, and get stuck ---- */

static void groups(void *arg, uint32_t id)
{
	struct scene *s = arg;

	(void)id;
	if (gkvd_popc64(gkvd_active()) == 3)
		s->local[0] = 1;
}

static void test_groups(void **state)
{
	struct scene s = { .outcome = first_value };
	struct explore e = { .interrupts = 0 };

	(void)state;
	assert_int_equal(explore(&e, (struct sim_conf){ .waves = 1, .lanes = 3 }, groups, &s,
				 NULL), 0);
	assert_true(s.seen[0] && s.seen[1]);
}

static void wait_for_time(void *arg, uint32_t id)
{
	struct scene *s = arg;

	while (gkvd_clock() < 5)
		gkvd_spin(id);
	s->local[0] = (uint32_t)gkvd_clock();
}

static void time_passes(void *arg, uint32_t id)
{
	(void)arg;
	(void)id;
	sim_step();
	sim_set_clock(5);
	sim_step();
	sim_set_clock(6);
}

static void wait_in_vain(void *arg, uint32_t id)
{
	struct scene *s = arg;

	while (!gkvd_ld32_acquire_dev(&s->word[0]))
		gkvd_spin(id);
}

/* Lanes that look at something only now and then get their turns. */
static void wait_long(void *arg, uint32_t id)
{
	struct scene *s = arg;

	for (uint32_t i = 0; i < 80; i++)
		gkvd_spin(i);
	s->local[id] = 1;
}

static uint32_t both(const struct scene *s)
{
	return s->local[0] + s->local[1];
}

static void test_waits(void **state)
{
	struct sim_conf conf = { .waves = 2, .lanes = 1 };
	struct scene s = { .outcome = first_value, .bad = { true } };
	struct explore e = { .interrupts = 1 };

	(void)state;
	assert_int_equal(explore(&e, conf, wait_for_time, &s, time_passes), 0);
	assert_true(s.seen[5] && s.seen[6]);
	e = (struct explore){ .interrupts = 1 };
	assert_int_equal(explore(&e, conf, wait_in_vain, &s, NULL), -1);
	assert_non_null(strstr(e.why, "livelock"));
	e = (struct explore){ .interrupts = 1 };
	s.outcome = both;
	assert_int_equal(explore(&e, conf, wait_long, &s, NULL), 0);
	assert_true(s.seen[2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_number),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_lost_update),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
