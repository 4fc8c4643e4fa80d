/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 300 */
/*
 * Going through all runs of small scenes finds each way in which the ring protocol can be
 * got wrong: or that they find nothing would prove nothing.
 */
#include <stdio.h>
#include <string.h>

#include "small.h"

static const struct spoil {
	const char *what;
	const char *text;	/* of the line of gkv_device.h ... */
	uint32_t late;		/* ... whose store comes after so many more accesses */
	struct small_mistakes mistakes;
} spoils[] = {
	{ "a credit is given back before its slot", "gkvd_or32_release_dev(&gkvd_free_bits", 1,
	  {0} },
	{ "a slot is free before its state says so", "GKVD_MAKE(gen, GKVD_FREE));", 2, {0} },
	{ "a slot is in use when its command is under way", "GKVD_MAKE(gen, GKVD_BUSY));", 17,
	  {0} },
	{ "a doorbell is rung before the entry is there", "gkvd_put16(to, ", 16, {0} },
	{ "a run is marked after a look at the lock", "gkvd_st32_release_dev(&gkvd_runs(q)[s]", 1,
	  {0} },
	{ "the lock is released before the doorbell is rung", "gkvd_st32_release_sys(q->sq_db", 2,
	  {0} },
	{ "the lock is released before the tail is noted", "(&q->sq_tail, tail)", 4, {0} },
	{ "the lock is released after the last look at the runs",
	  "gkvd_st32_release_dev(&q->db_lock, 0)", 1, {0} },
	{ "a slot is done before its status is there", "(&slot->status, status)", 1, {0} },
	{ "a slot is done before its result is there", "(&slot->dw0, (uint32_t)lo)", 3, {0} },
	{ "the CQ's lock is released before the head is noted", "(&q->cq_head, head)", 2, {0} },
	{ "the CQ's lock is released before its doorbell is rung",
	  "gkvd_st32_release_sys(q->cq_db", 1, {0} },
	{ "as many credits as entries", NULL, 0, { .credits = 1 } },
	{ "a slot whose time is up is free", NULL, 0, { .no_quarantine = true } },
	{ "a daemon that stores the phase first", NULL, 0, { .cq_first = true } },
};
#define NSPOILS (sizeof(spoils) / sizeof(spoils[0]))

static bool found(const char *what, const struct small_mistakes *mistakes, uint32_t interrupts)
{
	for (uint32_t i = 0; i < SMALL_NSCENES; i++) {
		struct small_result r;

		if (!small_scenes[i].quick || (interrupts > 1 && small_scenes[i].depth < 3))
			continue;
		r = small_run(&small_scenes[i], interrupts, mistakes, 0, false);
		if (!r.failed)
			continue;
		r.e.why[strcspn(r.e.why, "\n")] = 0;
		print_message("# %s: %s, at most %u interruptions, run %llu: %s\n", what,
			      small_scenes[i].name, interrupts, (unsigned long long)r.e.runs,
			      r.e.why);
		return true;
	}
	return false;
}

static bool noticed(const char *what, const struct small_mistakes *mistakes)
{
	/* Two that hold one lock have both been interrupted. */
	if (found(what, mistakes, 0) || found(what, mistakes, 1) || found(what, mistakes, 2))
		return true;
	print_message("# %s: nothing is noticed\n", what);
	return false;
}

/* The line, and those before it that belong to the statement: compilers tell either as its line. */
static const char *text_of(const struct sim_site *site)
{
	static char text[1024];
	size_t len = 0, end;
	FILE *f = fopen(site->file, "r");
	int n = 0;

	assert_non_null(f);
	while (n < site->line && fgets(text + len, (int)(sizeof(text) - len), f)) {
		n++;
		end = strcspn(text + len, "\n");
		len = n < site->line && strchr(";{}:/", end ? text[len + end - 1] : ';') ? 0 :
											 len + end;
		assert_true(len < sizeof(text) / 2);
	}
	fclose(f);
	assert_int_equal(n, site->line);
	return text;
}

/* Of those that runs have come to. */
static struct sim_site *next_site(struct sim_site *site, bool *relaxed)
{
	if (site && site->next)
		return site->next;
	if (*relaxed)
		return NULL;
	*relaxed = true;
	return sim_relaxed_sites();
}

static struct sim_site *find_site(const char *text)
{
	struct sim_site *found = NULL, *site = sim_sites();

	for (bool relaxed = false; site; site = next_site(site, &relaxed)) {
		if ((site->kind != SIM_STORE && site->kind != SIM_RMW) ||
		    !strstr(site->file, "gkv_device/") || !strstr(text_of(site), text))
			continue;
		assert_null(found);
		found = site;
	}
	if (!found)
		print_message("# no such line: %s\n", text);
	assert_non_null(found);
	return found;
}

/* Nothing is wrong yet; and runs come to each line. */
static void test_right(void **state)
{
	const struct small_mistakes cq_full = { .cq_full = true };

	(void)state;
	assert_false(found("nothing spoilt", NULL, 0));
	/* There is always room in the CQ: lanes give credits back when they have read theirs. */
	assert_false(found("a daemon that does not look whether the CQ is full", &cq_full,
			   SIMS_TSAN ? 0 : 1));
}

static void skip_with_sanitizer(void)
{
	if (SIMS_TSAN || SIMS_ASAN) {
		print_message("# SKIP a sanitizer takes minutes for these, and sees one thread\n");
		skip();
	}
}

static void test_spoilt(void **state)
{
	unsigned int missed = 0;

	(void)state;
	skip_with_sanitizer();
	for (size_t i = 0; i < NSPOILS; i++) {
		if (spoils[i].text)
			sim_late(find_site(spoils[i].text), spoils[i].late);
		missed += !noticed(spoils[i].what, &spoils[i].mistakes);
		sim_restore_all();
	}
	assert_int_equal(missed, 0);
}

/* Each read-modify-write must be one. (Those of statistics are made under locks or not exact.) */
static void test_split(void **state)
{
	struct sim_site *site = sim_sites();
	unsigned int sites = 0, missed = 0;

	(void)state;
	skip_with_sanitizer();
	for (bool relaxed = false; site; site = next_site(site, &relaxed)) {
		char what[128];

		if (site->kind != SIM_RMW || !strstr(site->file, "gkv_device/") ||
		    strstr(text_of(site), "stats."))
			continue;
		snprintf(what, sizeof(what), "%s in two steps", sim_site_name(site));
		sites++;
		sim_split(site);
		missed += !noticed(what, NULL);
		sim_restore_all();
	}
	assert_true(sites >= 9);
	assert_int_equal(missed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),
		cmocka_unit_test(test_spoilt),
		cmocka_unit_test(test_split),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
