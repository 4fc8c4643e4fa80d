/* SPDX-License-Identifier: MIT */
/*
 * Doorbells in VRAM that are given no place: those of a session share pages, which come and go
 * with them. The module and the daemon are played by the test.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "fakedrv.h"
#include "vram_rig.h"

static struct gkv_qp *with_doorbells(uint32_t provider)
{
	return queue_of((struct gkv_qp_opts){ .depth = 8, .mode = GKV_MODE_DB,
					      .provider = provider });
}

static uint64_t page_of(const struct gkvdrv_qp *made)
{
	struct gkvdrv_report r = { .head.size = sizeof(r), .part = GKVDRV_DB };

	assert_int_equal(ioctl(made->fd, GKVDRV_REPORT, &r), 0);
	return r.page_id;
}

/* It goes through its own doorbells, whoever else has some in the page. */
static void assert_works(struct gkv_qp *qp)
{
	uint32_t qid = gkv_qp_id(qp);
	struct gkv_comp c;

	fake_post(&fake, qid, submit(qp, exist(qid)), 0, 0, 0);
	assert_int_equal(gkv_wait(qp, &c, 1, 5000 * MS), 1);
	assert_int_equal(c.user_data, qid);
}

/* To a daemon with another stride, by a new session. */
static void connect_to(uint32_t dstrd)
{
	gkv_close(g);
	fake_stop(&fake);
	fake.hello.dstrd = dstrd;
	fake_start(&fake);
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), 0);
	fakedrv.regions = 0;
}

/* Those of a session lie side by side; a page is full when it is, and goes with the last. */
static void share_pages(uint32_t dstrd)
{
	const uint32_t stride = 4u << dstrd, per_page = 4096 / (2 * stride), n = 5;
	struct gkv_place p = { .size = sizeof(p) };
	struct gkv_qp *qps[5], *more;
	uint64_t page = 0;

	connect_to(dstrd);
	for (uint32_t i = 0; i < n; i++) {
		const struct gkvdrv_part *db = &fakedrv.qp.parts[GKVDRV_DB];

		qps[i] = with_doorbells(0);
		assert_int_equal(db->offset, i % per_page * 2 * stride);
		page = i % per_page ? page : page_of(&fakedrv.qp);
		assert_int_equal(page_of(&fakedrv.qp), page);
		assert_int_equal(gkv_qp_place(qps[i], GKV_PART_DB, &p), 0);
		assert_place(&p, GKV_PLACE_VRAM, 5);
	}
	assert_int_equal(fakedrv.regions, (n + per_page - 1) / per_page);
	for (uint32_t i = 0; i < n; i++)
		assert_works(qps[i]);
	/* The place of one that has gone is the next one's. */
	assert_int_equal(gkv_qp_destroy(qps[2]), 0);
	qps[2] = with_doorbells(0);
	assert_int_equal(fakedrv.qp.parts[GKVDRV_DB].offset,
			 2 % per_page * 2 * stride);
	assert_true(fake_qp(&fake, gkv_qp_id(qps[2]))->was_zero);
	/* One that has the other parts there as well, and one with another provider. */
	more = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = 7 });
	assert_int_equal(fakedrv.qp.parts[GKVDRV_DB].offset, n % per_page * 2 * stride);
	assert_works(more);
	assert_int_equal(gkv_qp_destroy(more), 0);
	fakedrv_provider(2, 8, GKVDRV_CARVEOUT);
	more = with_doorbells(8);
	assert_true(page_of(&fakedrv.qp) != page);
	assert_int_equal(gkv_qp_place(more, GKV_PART_DB, &p), 0);
	assert_place(&p, GKV_PLACE_VRAM, 8);
	assert_int_equal(fakedrv.qp.parts[GKVDRV_DB].offset, 0);
	assert_works(more);
	assert_int_equal(gkv_qp_destroy(more), 0);
	fakedrv_provider(2, 0, 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(gkv_qp_destroy(qps[i]), 0);
	fakedrv.regions = 0;
	assert_int_equal(gkv_qp_destroy(with_doorbells(0)), 0);
	assert_int_equal(fakedrv.regions, 1);
}

static void test_doorbells(void **state)
{
	(void)state;
	for (uint32_t dstrd = 0; dstrd < 9; dstrd += 4)
		share_pages(dstrd);
}

/* A page that was revoked is used no more; those that are not go on. */
static void test_doorbells_gone(void **state)
{
	struct gkv_qp *a, *b, *c;
	int fd;

	(void)state;
	a = with_doorbells(0);
	fd = fakedrv.qp.fd;
	b = with_doorbells(0);
	/* One queue pair is. */
	fake_stop_qp(&fake, gkv_qp_id(a), GKV_STOPPED_MEMORY);
	fakedrv_revoke(fd);
	assert_works(b);
	assert_int_equal(fakedrv.regions, 1);
	/* The page is, with its provider. */
	fake_stop_qp(&fake, gkv_qp_id(b), GKV_STOPPED_MEMORY);
	fakedrv_revoke(fakedrv.qp.parts[GKVDRV_DB].region);
	c = with_doorbells(0);
	assert_int_equal(fakedrv.regions, 2);
	assert_works(c);
	assert_int_equal(gkv_qp_destroy(a), 0);
	assert_int_equal(gkv_qp_destroy(b), 0);
	assert_works(c);
	assert_int_equal(gkv_qp_destroy(c), 0);
}

/* The daemon may still have the queue pair that was there; and refusals are the module's. */
static void test_doorbells_refused(void **state)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = 8, .mode = GKV_MODE_DB };
	const uint32_t slot = 2 * (4u << fake.hello.dstrd);
	struct gkv_qp *a, *b, *qp;
	struct gkv_mem *mem;

	(void)state;
	a = with_doorbells(0);
	fakedrv.overlaps = 2;
	b = with_doorbells(0);
	assert_int_equal(fakedrv.qp.parts[GKVDRV_DB].offset, 3 * slot);
	assert_int_equal(fakedrv.regions, 1);
	assert_int_equal(gkv_qp_destroy(b), 0);
	/* Too many: another page. */
	fakedrv.overlaps = 8;
	b = with_doorbells(0);
	assert_int_equal(fakedrv.overlaps, 0);
	assert_int_equal(fakedrv.regions, 2);
	assert_int_equal(fakedrv.qp.parts[GKVDRV_DB].offset, 0);
	assert_works(a);
	assert_works(b);
	assert_int_equal(gkv_qp_destroy(b), 0);
	/* Another part's fault, which no place for doorbells mends. */
	mem = vram(65536);
	fakedrv.overlaps = 1000;
	o.mode = 5;
	o.sq = (struct gkv_qp_part){ mem, 0 };
	assert_says(gkv_qp_create(g, &o, &qp), -EBUSY, "in a queue pair");
	assert_int_equal(fakedrv.overlaps, 1000 - 9);
	fakedrv.overlaps = 0;
	assert_int_equal(gkv_mem_free(mem), 0);
	/* No page to be had, which is said as it was of the doorbells alone. */
	assert_int_equal(gkv_qp_destroy(a), 0);
	o = (struct gkv_qp_opts){ .size = sizeof(o), .depth = 8, .mode = GKV_MODE_DB };
	fakedrv.providers[1].err = EDQUOT;
	fakedrv.providers[1].why = GKVDRV_WHY_LIMIT;
	fakedrv.providers[1].text = "user has 64 objects (max_user_objects)";
	assert_says(gkv_qp_create(g, &o, &qp), -EDQUOT, "cannot make a queue pair: user has 64");
	o.provider = 5;
	assert_says(gkv_qp_create(g, &o, &qp), -EDQUOT, "cannot make a queue pair: user has 64");
	o.provider = 9;
	assert_says(gkv_qp_create(g, &o, &qp), -ENOENT, "no such provider");
}

/* Doorbells so far apart that a page holds those of one have one of their own. */
static void test_doorbells_apart(void **state)
{
	struct gkv_qp *a, *b;

	(void)state;
	connect_to(9);
	a = with_doorbells(0);
	b = with_doorbells(0);
	assert_int_equal(fakedrv.qp.parts[GKVDRV_DB].region, -1);
	assert_int_equal(fakedrv.regions, 0);
	assert_works(a);
	assert_works(b);
	assert_int_equal(gkv_qp_destroy(a), 0);
	assert_int_equal(gkv_qp_destroy(b), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup_vram, teardown_vram)
	const struct CMUnitTest tests[] = {
		T(test_doorbells), T(test_doorbells_gone), T(test_doorbells_refused),
		T(test_doorbells_apart),
	};

	return cmocka_run_group_tests_name("lib_doorbells", tests, NULL, NULL);
}
