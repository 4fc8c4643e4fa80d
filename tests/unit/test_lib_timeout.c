/* SPDX-License-Identifier: MIT */
/* Commands that are not answered in time: timeouts, quarantine, late completions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "lib_rig.h"

static struct gkv_mem *mem, *other;

static int setup_mem(void **state)
{
	return setup(state) || gkv_mem_alloc(g, 65536, &mem) || gkv_mem_alloc(g, 4096, &other);
}

static struct gkv_qp *queue(uint64_t timeout, uint32_t max_segs)
{
	return queue_of((struct gkv_qp_opts){ .depth = 8, .timeout_ns = timeout,
					      .max_segs = max_segs });
}

static struct gkv_cmd retrieve(uint64_t user_data, uint32_t nsid)
{
	struct gkv_cmd c = { .opcode = GKV_RETRIEVE, .nsid = nsid, .key_len = 1, .key = "k",
			     .buf = gkv_mem_addr(mem), .len = 4096, .user_data = user_data };

	return c;
}

static void assert_timed_out(const struct gkv_comp *c, uint64_t user_data)
{
	assert_int_equal(c->user_data, user_data);
	assert_int_equal(c->flags, GKV_C_TIMEDOUT);
	assert_int_not_equal(c->status, 0);
	assert_int_equal(gkv_status_errno(c->status), -ETIMEDOUT);
	assert_int_equal(gkv_status_retry(c->status), 1);
}

/* By gkv_wait() asleep, and by gkv_poll() in a loop; neither early nor much too late. */
static void test_timeout(void **state)
{
	struct gkv_qp *qp = queue(50 * MS, 0);
	struct gkv_comp c[2];
	uint64_t start, took;
	int n;

	(void)state;
	for (int polling = 0; polling < 2; polling++) {
		uint16_t cid = submit(qp, retrieve(7, 1));

		start = now();
		if (polling)
			while (!(n = gkv_poll(qp, c, 2)))
				;
		else
			n = gkv_wait(qp, c, 2, 5000 * MS);
		took = now() - start;
		assert_int_equal(n, 1);
		assert_timed_out(&c[0], 7);
		assert_in_range(took, 50 * MS, 1000 * MS);
		/* Slot, CID and buffer stay taken. */
		assert_int_equal(gkv_qp_outstanding(qp), 1);
		assert_int_equal(gkv_qp_room(qp), 6);
		assert_int_equal(gkv_poll(qp, c, 2), 0);
		assert_int_equal(gkv_wait(qp, c, 2, 100 * MS), 0);
		assert_int_equal(gkv_mem_free(mem), -EBUSY);
		assert_non_null(strstr(gkv_error(), "timed out"));
		/* The late answer, reported once and as such, with all it says. */
		fake_post(&fake, 1, cid, 0, 1234, 0);
		assert_int_equal(gkv_poll(qp, c, 2), 1);
		assert_int_equal(c[0].user_data, 7);
		assert_int_equal(c[0].flags, GKV_C_LATE);
		assert_int_equal(c[0].status, 0);
		assert_int_equal(c[0].result, 1234);
		assert_int_equal(gkv_qp_outstanding(qp), 0);
		assert_int_equal(gkv_qp_room(qp), 7);
	}
	assert_int_equal(stats(qp).timeouts, 2);
	assert_int_equal(stats(qp).late, 2);
	assert_int_equal(stats(qp).bad_cid, 0);
	assert_int_equal(gkv_mem_free(mem), 0);
}

/* The others of a queue pair go on beside one that is stuck, for which time runs too. */
static void test_one_stuck(void **state)
{
	struct gkv_qp *qp = queue(30 * MS, 0);
	uint16_t stuck = submit(qp, retrieve(1, 1));
	unsigned int timed_out = 0, answered = 0;
	uint64_t end = now() + 5000 * MS;
	struct gkv_comp c[8];

	(void)state;
	while (!timed_out && now() < end) {
		struct gkv_cmd cmd = retrieve(100, 1);
		int n;

		if (gkv_qp_room(qp))
			assert_int_equal(gkv_submit(qp, &cmd, 1), 1);
		/* All but the first. */
		fake_serve(&fake, 1);
		n = gkv_poll(qp, c, 8);
		for (int i = 0; i < n; i++) {
			if (c[i].user_data == 1) {
				assert_timed_out(&c[i], 1);
				timed_out++;
			} else {
				assert_int_equal(c[i].flags, 0);
				answered++;
			}
		}
	}
	assert_int_equal(timed_out, 1);
	assert_true(answered > 100);
	fake_post(&fake, 1, stuck, 0, 0, 0);
	assert_int_equal(gkv_wait(qp, c, 8, 1000 * MS), 1);
	assert_int_equal(c[0].flags, GKV_C_LATE);
}

/* A queue pair whose every slot is in quarantine takes nothing; a reset frees it all. */
static void test_full_quarantine(void **state)
{
	struct gkv_qp *qp = queue(20 * MS, 0);
	struct gkv_cmd cmd = retrieve(9, 1);
	struct gkv_comp c[8];
	uint16_t cid = 0;
	int n = 0;

	(void)state;
	for (int i = 0; i < 7; i++)
		cid = submit(qp, retrieve(i, 1));
	/* Two at a time, each once. */
	while (n < 7) {
		int r = gkv_wait(qp, c, 2, 1000 * MS);

		assert_in_range(r, 1, 2);
		for (int i = 0; i < r; i++)
			assert_int_equal(c[i].flags, GKV_C_TIMEDOUT);
		n += r;
	}
	assert_int_equal(n, 7);
	assert_int_equal(gkv_submit(qp, &cmd, 1), 0);
	assert_int_equal(gkv_qp_room(qp), 0);
	assert_int_equal(gkv_exec(qp, &cmd, c), -EBUSY);
	assert_int_equal(gkv_mem_free(mem), -EBUSY);
	/* Other memory is not concerned. */
	assert_int_equal(gkv_mem_free(other), 0);
	assert_int_equal(gkv_qp_reset(qp), 0);
	assert_int_equal(gkv_qp_room(qp), 7);
	/* What comes for a command of before is a stranger. */
	submit(qp, retrieve(1, 1));
	fake_post(&fake, 1, cid, 0, 0, 0);
	assert_int_equal(gkv_poll(qp, c, 8), 0);
	assert_int_equal(stats(qp).bad_cid, 1);
	assert_int_equal(gkv_mem_free(mem), 0);
}

/* Destroying the queue pair ends quarantine too. */
static void test_destroy(void **state)
{
	struct gkv_qp *qp = queue(20 * MS, 0);
	struct gkv_comp c;

	(void)state;
	submit(qp, retrieve(1, 1));
	assert_int_equal(gkv_wait(qp, &c, 1, 1000 * MS), 1);
	assert_int_equal(gkv_mem_free(mem), -EBUSY);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	assert_int_equal(gkv_mem_free(mem), 0);
}

/* Every memory that a scattered command touches is held. */
static void test_segments(void **state)
{
	struct gkv_qp *qp = queue(20 * MS, 5);
	struct gkv_mem *third;
	struct gkv_seg segs[5];
	struct gkv_cmd cmd = { .opcode = GKV_RETRIEVE, .nsid = 1, .key_len = 1, .nsegs = 5,
			       .segs = segs, .len = 5 };
	struct gkv_comp c;
	struct gkv_sqe sqe;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 4096, &third), 0);
	for (int i = 0; i < 5; i++)
		segs[i] = (struct gkv_seg){ gkv_mem_addr(mem), 1 };
	segs[1].addr = gkv_mem_addr(other);
	segs[4].addr = gkv_mem_addr(third);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(gkv_submit(qp, &cmd, 1), 1);
		assert_true(fake_fetch(&fake, 1, &sqe));
		assert_int_equal(gkv_wait(qp, &c, 1, 1000 * MS), 1);
		assert_int_equal(c.flags, GKV_C_TIMEDOUT);
		assert_int_equal(gkv_mem_free(mem), -EBUSY);
		assert_int_equal(gkv_mem_free(other), -EBUSY);
		assert_int_equal(gkv_mem_free(third), -EBUSY);
		fake_post(&fake, 1, sqe.cid, 0, 0, 0);
		assert_int_equal(gkv_poll(qp, &c, 1), 1);
	}
	assert_int_equal(gkv_mem_free(mem), 0);
	assert_int_equal(gkv_mem_free(other), 0);
	assert_int_equal(gkv_mem_free(third), 0);
}

/* gkv_exec() gives the timeout as a completion, then puts up with the late answer. */
static void test_exec(void **state)
{
	struct gkv_qp *qp = queue(20 * MS, 0);
	struct gkv_cmd cmd = retrieve(3, 1);
	struct gkv_sqe sqe;
	struct gkv_comp c;

	(void)state;
	assert_int_equal(gkv_exec(qp, &cmd, &c), 0);
	assert_timed_out(&c, 3);
	assert_true(fake_fetch(&fake, 1, &sqe));
	fake_post(&fake, 1, sqe.cid, 0, 0, 0);
	/* Times out again, but is let in. */
	assert_int_equal(gkv_exec(qp, &cmd, &c), 0);
	assert_timed_out(&c, 3);
	assert_int_equal(stats(qp).late, 1);
}

/* Without one of its own, a queue pair follows the namespace: its deadline and 2 s. */
static void test_namespace_deadline(void **state)
{
	struct gkv_ns_info info = { .size = sizeof(info) };
	struct gkv_qp *qp = queue(0, 0);
	struct gkv_comp c;
	uint64_t start;

	(void)state;
	fake.deadline_ns = 100 * MS;
	assert_int_equal(gkv_ns_open(g, "main", 0, &info), 0);
	assert_int_equal(info.deadline_ns, 100 * MS);
	submit(qp, retrieve(1, info.nsid));
	/* One of another namespace: the longest deadline there is, 5 s. */
	submit(qp, retrieve(2, 77));
	start = now();
	assert_int_equal(gkv_wait(qp, &c, 1, 10000 * MS), 1);
	assert_timed_out(&c, 1);
	assert_in_range(now() - start, 2100 * MS, 3000 * MS);
	assert_int_equal(gkv_wait(qp, &c, 1, 100 * MS), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup_mem, teardown)
	const struct CMUnitTest tests[] = {
		T(test_timeout),
		T(test_one_stuck),
		T(test_full_quarantine),
		T(test_destroy),
		T(test_segments),
		T(test_exec),
		T(test_namespace_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
