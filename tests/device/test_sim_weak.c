/* SPDX-License-Identifier: MIT */
/*
 * The simulator's weak memory, by the litmus tests of the literature: what C11 allows
 * happens for some seed, and what it forbids for none.
 */
#include "sims.h"

#include <stdio.h>
#include <string.h>

#define SEEDS	(SIMS_TSAN ? 200u : 400u)

struct litmus {
	uint32_t x, pad0[31], y, pad1[31], z, pad2[31];
	uint64_t w;
	uint32_t r[3];
	uint64_t rw[2], got[2];
};

/* How many seeds end with @bad. */
static unsigned int count_bad(sim_kernel *fn, uint32_t waves, bool (*bad)(const struct litmus *l),
			      bool weak)
{
	unsigned int n = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct litmus l;

		memset(&l, 0, sizeof(l));
		sims_good((struct sim_conf){ .waves = waves, .lanes = 1, .lockstep = true,
					     .seed = seed, .weak = weak }, fn, &l);
		n += bad(&l);
	}
	return n;
}

#define happens(fn, waves, bad)	do { \
		assert_true(count_bad(fn, waves, bad, true) > 0); \
		assert_int_equal(count_bad(fn, waves, bad, false), 0); \
	} while (0)
#define never(fn, waves, bad)	assert_int_equal(count_bad(fn, waves, bad, true), 0)

/* ---- Message passing: data, then a flag ---- */

#define MP(name, put, get) \
	static void name(void *arg, uint32_t id) \
	{ \
		struct litmus *l = arg; \
		\
		if (id) { \
			l->r[0] = get(&l->y); \
			l->r[1] = gkvd_ld32_relaxed_dev(&l->x); \
		} else { \
			gkvd_st32_relaxed_dev(&l->x, 1); \
			put(&l->y, 1); \
		} \
	}

MP(mp_none, gkvd_st32_relaxed_dev, gkvd_ld32_relaxed_dev)
MP(mp_release, gkvd_st32_release_dev, gkvd_ld32_relaxed_dev)
MP(mp_acquire, gkvd_st32_relaxed_dev, gkvd_ld32_acquire_dev)
MP(mp_both, gkvd_st32_release_dev, gkvd_ld32_acquire_dev)
MP(mp_rmw, gkvd_add32_release_dev, gkvd_ld32_acquire_dev)

static void mp_fences(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	if (id) {
		l->r[0] = gkvd_ld32_relaxed_dev(&l->y);
		gkvd_fence_sc_dev();
		l->r[1] = gkvd_ld32_relaxed_dev(&l->x);
	} else {
		gkvd_st32_relaxed_dev(&l->x, 1);
		gkvd_fence_sc_dev();
		gkvd_st32_relaxed_dev(&l->y, 1);
	}
}

/* Through an exchange of a third lane that orders nothing: a release sequence. */
static void mp_sequence(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	if (id == 2) {
		l->r[0] = gkvd_ld32_acquire_dev(&l->y) == 2;
		l->r[1] = gkvd_ld32_relaxed_dev(&l->x);
	} else if (id) {
		gkvd_cas32_relaxed_dev(&l->y, 1, 2);
	} else {
		gkvd_st32_relaxed_dev(&l->x, 1);
		gkvd_st32_release_dev(&l->y, 1);
	}
}

/* The same by a store: what the first lane released is not what the third one sees. */
static void mp_broken_sequence(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	if (id == 2) {
		while (gkvd_ld32_acquire_dev(&l->y) != 2)
			gkvd_spin(0);
		l->r[0] = 1;
		l->r[1] = gkvd_ld32_relaxed_dev(&l->x);
	} else if (id) {
		while (gkvd_ld32_relaxed_dev(&l->y) != 1)
			gkvd_spin(0);
		gkvd_st32_relaxed_dev(&l->y, 2);
	} else {
		gkvd_st32_relaxed_dev(&l->x, 1);
		gkvd_st32_release_dev(&l->y, 1);
	}
}

static bool mp_bad(const struct litmus *l)
{
	return l->r[0] && !l->r[1];
}

static void test_message_passing(void **state)
{
	(void)state;
	happens(mp_none, 2, mp_bad);
	happens(mp_release, 2, mp_bad);
	happens(mp_acquire, 2, mp_bad);
	never(mp_both, 2, mp_bad);
	never(mp_rmw, 2, mp_bad);
	never(mp_fences, 2, mp_bad);
	never(mp_sequence, 3, mp_bad);
	happens(mp_broken_sequence, 3, mp_bad);
}

/* ---- Store buffering: each stores, then looks at what the other stored ---- */

static void sb_none(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	gkvd_st32_release_dev(id ? &l->x : &l->y, 1);
	l->r[id] = gkvd_ld32_acquire_dev(id ? &l->y : &l->x);
}

static void sb_fences(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	gkvd_st32_relaxed_dev(id ? &l->x : &l->y, 1);
	gkvd_fence_sc_dev();
	l->r[id] = gkvd_ld32_relaxed_dev(id ? &l->y : &l->x);
}

static bool sb_bad(const struct litmus *l)
{
	return !l->r[0] && !l->r[1];
}

static void test_store_buffering(void **state)
{
	(void)state;
	happens(sb_none, 2, sb_bad);
	never(sb_fences, 2, sb_bad);
}

/* ---- One location ---- */

static void corr(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	if (!id) {
		for (uint32_t i = 1; i < 6; i++)
			gkvd_st32_relaxed_dev(&l->x, i);
		return;
	}
	for (uint32_t i = 0; i < 6; i++) {
		l->r[1] = gkvd_ld32_relaxed_dev(&l->x);
		if (l->r[1] < l->r[0])
			l->r[2] = 1;
		l->r[0] = l->r[1];
	}
}

static bool third(const struct litmus *l)
{
	return l->r[2];
}

/* A lane sees what it stored itself, whatever else it could see. */
static void own(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	gkvd_st32_relaxed_dev(&l->x, id + 1);
	if (!gkvd_ld32_relaxed_dev(&l->x))
		l->r[2] = 1;
}

/* No value is lost or seen twice by read-modify-writes. */
static void adds(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	(void)id;
	for (uint32_t i = 0; i < 10; i++) {
		gkvd_add32_relaxed_dev(&l->x, 1);
		gkvd_add64_relaxed_dev(&l->w, 0xffffffff);
	}
}

static bool adds_bad(const struct litmus *l)
{
	return l->x != 40 || l->w != 40ull * 0xffffffff;
}

static void test_coherence(void **state)
{
	(void)state;
	never(corr, 2, third);
	never(own, 3, third);
	never(adds, 4, adds_bad);
}

/* ---- Widths ---- */

/* 64 bits are stored and seen at once. */
static void wide(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	for (uint64_t i = 1; i < 6; i++) {
		uint64_t v;

		if (id)
			gkvd_st64_relaxed_dev(&l->w, i << 32 | i);
		v = gkvd_ld64_relaxed_dev(&l->w);
		if (v >> 32 != (uint32_t)v)
			l->r[2] = 1;
	}
}

/* 128 bits are not. */
static void wider(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	if (id)
		gkvd_put16(l->rw, 1, 1);
	else
		gkvd_get16(l->rw, &l->got[0], &l->got[1]);
}

static bool low_first(const struct litmus *l)
{
	return l->got[0] && !l->got[1];
}

static bool high_first(const struct litmus *l)
{
	return !l->got[0] && l->got[1];
}

/* Halves of a word, stored one by one, are two locations. */
static void halves(void *arg, uint32_t id)
{
	struct litmus *l = arg;
	uint32_t *half = (uint32_t *)&l->w;
	uint64_t v;

	if (!id) {
		gkvd_st32_relaxed_dev(&half[0], 1);
		gkvd_st32_relaxed_dev(&half[1], 1);
		return;
	}
	v = gkvd_ld64_relaxed_dev(&l->w);
	l->r[2] = v >> 32 && !(uint32_t)v;
}

static void test_widths(void **state)
{
	(void)state;
	never(wide, 3, third);
	assert_true(count_bad(wider, 2, low_first, true) > 0);
	assert_true(count_bad(wider, 2, high_first, true) > 0);
	happens(halves, 2, third);
}

/* ---- Scopes: what orders lanes need not order the processor ---- */

struct scope {
	struct litmus l;
	bool sys;
};

static void scope_lane(void *arg, uint32_t id)
{
	struct scope *s = arg;

	(void)id;
	gkvd_st32_relaxed_dev(&s->l.x, 1);
	if (s->sys)
		gkvd_st32_release_sys(&s->l.y, 1);
	else
		gkvd_st32_release_dev(&s->l.y, 1);
}

static void scope_agent(void *arg, uint32_t id)
{
	struct scope *s = arg;

	(void)id;
	for (uint32_t i = 0; !(s->l.r[0] = gkvd_ld32_acquire_sys(&s->l.y)); i++)
		gkvd_spin(i);
	s->l.r[1] = gkvd_ld32_relaxed_sys(&s->l.x);
}

static unsigned int count_scope(bool sys)
{
	unsigned int n = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_conf c = { .waves = 1, .lanes = 1, .lockstep = true, .seed = seed,
				      .weak = true };
		struct sim *s = sims_new(c);
		struct scope scope = { .sys = sys };

		assert_int_equal(sim_agent(s, scope_agent, &scope, "processor"), 0);
		sims_run(s, &c, scope_lane, &scope);
		n += mp_bad(&scope.l);
	}
	return n;
}

static void test_scopes(void **state)
{
	(void)state;
	assert_true(count_scope(false) > 0);
	assert_int_equal(count_scope(true), 0);
}

/* ---- Groups ---- */

/* Lane 1 has seen a flag; lane 0 relies on it after they met. */
static void group_sync(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	if (id == 2) {
		gkvd_st32_relaxed_dev(&l->x, 1);
		gkvd_st32_release_dev(&l->y, 1);
	} else if (id < 2) {
		uint32_t seen = id ? gkvd_ld32_acquire_dev(&l->y) : 0;

		gkvd_sync(3);
		seen = (uint32_t)gkvd_shfl(3, seen, 1);
		if (!id) {
			l->r[0] = seen;
			l->r[1] = gkvd_ld32_relaxed_dev(&l->x);
		}
	}
}

static unsigned int count_groups(void)
{
	unsigned int n = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct litmus l;

		memset(&l, 0, sizeof(l));
		sims_good((struct sim_conf){ .waves = 2, .lanes = 2, .lockstep = true,
					     .seed = seed, .weak = true }, group_sync, &l);
		n += mp_bad(&l);
	}
	return n;
}

static void test_sync(void **state)
{
	unsigned int syncs = 0;

	(void)state;
	assert_int_equal(count_groups(), 0);
	for (struct sim_site *site = sim_sites(); site; site = site->next) {
		if (site->kind != SIM_COLLECTIVE || !strstr(site->file, "test_sim_weak.c"))
			continue;
		syncs++;
		sim_weaken(site);
		assert_true(count_groups() > 0);
		sim_restore_all();
	}
	assert_int_equal(syncs, 1);
}

/* ---- Weakening one place at a time ---- */

static void test_weaken(void **state)
{
	static const struct {
		sim_kernel *fn;
		bool (*bad)(const struct litmus *l);
		unsigned int sites;
	} all[] = {
		{ mp_both, mp_bad, 2 },
		{ mp_rmw, mp_bad, 2 },
		{ sb_fences, sb_bad, 1 },
		{ mp_fences, mp_bad, 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		unsigned int found = 0;

		for (struct sim_site *site = sim_sites(); site; site = site->next) {
			uint64_t seen = site->seen;

			sim_weaken(site);
			if (count_bad(all[i].fn, 2, all[i].bad, true))
				found++;
			else
				assert_true(site->seen == seen);
			sim_restore_all();
		}
		assert_int_equal(found, all[i].sites);
		never(all[i].fn, 2, all[i].bad);
	}
}

/* ---- Memory that belongs to one lane at a time ---- */

struct owned {
	uint32_t turn, data, seen;
	bool release, acquire, load;
};

static void owned_kernel(void *arg, uint32_t id)
{
	struct owned *o = arg;

	if (!id) {
		/* A load that a device may do after the store below it, if that is relaxed. */
		if (o->load)
			o->seen = gkvd_ld32_relaxed_dev(&o->data);
		else
			gkvd_st32_relaxed_dev(&o->data, 1);
		if (o->release)
			gkvd_st32_release_dev(&o->turn, 1);
		else
			gkvd_st32_relaxed_dev(&o->turn, 1);
		return;
	}
	for (uint32_t i = 0;; i++) {
		if (o->acquire ? gkvd_ld32_acquire_dev(&o->turn) : gkvd_ld32_relaxed_dev(&o->turn))
			break;
		gkvd_spin(i);
	}
	gkvd_st32_relaxed_dev(&o->data, 2);
}

static bool owned_fails(struct owned o, const char *part)
{
	struct sim *s = sims_new((struct sim_conf){ .waves = 2, .lanes = 1, .lockstep = true,
						    .weak = true });

	assert_int_equal(sim_watch(s, &o.data, sizeof(o.data), "data"), 0);
	return sims_fails(s, owned_kernel, &o, part);
}

static void test_watch(void **state)
{
	(void)state;
	for (int load = 0; load < 2; load++) {
		const char *part = load ? "not ordered after the load" : "after the one at";

		assert_false(owned_fails((struct owned){ 0, 0, 0, true, true, load }, part));
		assert_true(owned_fails((struct owned){ 0, 0, 0, true, false, load }, part));
		assert_true(owned_fails((struct owned){ 0, 0, 0, false, true, load }, part));
	}
}

/* What was there before, or is stored by other means, is seen. */
static void plain_kernel(void *arg, uint32_t id)
{
	struct litmus *l = arg;

	(void)id;
	l->r[0] = gkvd_ld32_relaxed_dev(&l->x);
	l->x = 6;
	l->r[1] = gkvd_ld32_relaxed_dev(&l->x);
	gkvd_st32_relaxed_dev(&l->x, 7);
	l->r[2] = l->x;
}

static void test_plain(void **state)
{
	struct litmus l = { .x = 5 };

	(void)state;
	sims_good((struct sim_conf){ .waves = 1, .lanes = 1, .lockstep = true, .weak = true },
		  plain_kernel, &l);
	assert_int_equal(l.r[0], 5);
	assert_int_equal(l.r[1], 6);
	assert_int_equal(l.r[2], 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_passing),
		cmocka_unit_test(test_store_buffering),
		cmocka_unit_test(test_coherence),
		cmocka_unit_test(test_widths),
		cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_sync),
		cmocka_unit_test(test_weaken),
		cmocka_unit_test(test_watch),
		cmocka_unit_test(test_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
