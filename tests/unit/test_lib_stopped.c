/* SPDX-License-Identifier: MIT */
/* Queue pairs that the daemon serves no more while it goes on with others. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "lib_rig.h"

static struct gkv_mem *mem;

static int setup_mem(void **state)
{
	return setup(state) || gkv_mem_alloc(g, 65536, &mem);
}

static struct gkv_cmd retrieve(uint64_t user_data)
{
	struct gkv_cmd c = { .opcode = GKV_RETRIEVE, .nsid = 1, .key_len = 1, .key = "k",
			     .buf = gkv_mem_addr(mem), .len = 4096, .user_data = user_data };

	return c;
}

static void assert_lost(const struct gkv_comp *c, uint64_t user_data)
{
	assert_int_equal(c->user_data, user_data);
	assert_int_equal(c->flags, GKV_C_LOST | GKV_C_STOPPED);
	assert_int_equal(gkv_status_errno(c->status), -ENOTCONN);
}

/*
 * What is outstanding is reported once, with buffers held; submitting fails and says why;
 * a reset makes the queue pair anew, and another queue pair notices nothing.
 */
static void test_reset(void **state)
{
	static const struct { uint32_t why; const char *text; } t[] = {
		{ GKV_STOPPED_DOORBELL, "doorbell" }, { GKV_STOPPED_RECORD, "record" },
		{ 77, "stopped" },
	};
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8 });
	struct gkv_qp *other = queue_of((struct gkv_qp_opts){ .depth = 8 });

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		struct gkv_comp c[8];
		uint64_t start;

		assert_int_equal(gkv_qp_stopped(qp), GKV_STOPPED_NOT);
		submit(qp, retrieve(1));
		submit(qp, retrieve(2));
		submit(qp, retrieve(3));
		fake_stop_qp(&fake, 1, t[i].why);
		assert_int_equal(gkv_qp_stopped(qp), t[i].why);
		start = now();
		/* Fewer at a time than there are. */
		assert_int_equal(gkv_wait(qp, c, 2, 60000 * MS), 2);
		assert_true(now() - start < 1000 * MS);
		assert_lost(&c[0], 1);
		assert_lost(&c[1], 2);
		assert_int_equal(gkv_poll(qp, c, 8), 1);
		assert_lost(&c[0], 3);
		/* Nothing more is to come, and nobody waits for it. */
		assert_int_equal(gkv_poll(qp, c, 8), 0);
		start = now();
		assert_int_equal(gkv_wait(qp, c, 8, 60000 * MS), 0);
		assert_true(now() - start < 1000 * MS);
		assert_int_equal(gkv_qp_outstanding(qp), 3);
		assert_int_equal(gkv_qp_room(qp), 0);
		assert_int_equal(gkv_submit(qp, (struct gkv_cmd[]){ exist(4) }, 1), -EIO);
		assert_non_null(strstr(gkv_error(), t[i].text));
		assert_int_equal(gkv_exec(qp, (struct gkv_cmd[]){ exist(4) }, NULL), -EIO);
		assert_int_equal(gkv_mem_free(mem), -EBUSY);

		fake_post(&fake, 2, submit(other, exist(9)), 0, 0, 0);
		assert_int_equal(gkv_poll(other, c, 8), 1);
		assert_int_equal(c[0].user_data, 9);
		assert_int_equal(c[0].flags, 0);
		assert_int_equal(gkv_qp_stopped(other), GKV_STOPPED_NOT);

		assert_int_equal(gkv_qp_reset(qp), 0);
		assert_int_equal(gkv_qp_stopped(qp), GKV_STOPPED_NOT);
		assert_int_equal(gkv_qp_outstanding(qp), 0);
		assert_int_equal(gkv_qp_room(qp), 7);
		submit(qp, retrieve(5));
		assert_int_equal(gkv_poll(qp, c, 8), 0);
		assert_int_equal(gkv_qp_reset(qp), 0);
	}
	assert_int_equal(stats(qp).lost, 9);
	assert_int_equal(stats(qp).timeouts, 0);
	assert_int_equal(gkv_mem_free(mem), 0);
}

/* Lost memory does not come back: destroying is what is left, and frees the buffers. */
static void test_memory(void **state)
{
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8 });
	struct gkv_comp c[8];

	(void)state;
	submit(qp, retrieve(1));
	fake_stop_qp(&fake, 1, GKV_STOPPED_MEMORY);
	assert_int_equal(gkv_wait(qp, c, 8, 60000 * MS), 1);
	assert_lost(&c[0], 1);
	assert_int_equal(gkv_submit(qp, (struct gkv_cmd[]){ exist(4) }, 1), -ENODEV);
	assert_non_null(strstr(gkv_error(), "memory"));
	assert_int_equal(gkv_qp_reset(qp), -ENODEV);
	assert_non_null(strstr(gkv_error(), "destroy"));
	assert_int_equal(gkv_mem_free(mem), -EBUSY);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	assert_int_equal(gkv_mem_free(mem), 0);
}

/* What was posted before the stop is the answer, in whichever order it is noticed. */
static void test_answered_before(void **state)
{
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8 });
	struct gkv_comp c[8];
	uint16_t cid;
	int n;

	(void)state;
	submit(qp, exist(1));
	cid = submit(qp, exist(2));
	fake_post(&fake, 1, cid, 0, 42, 0);
	fake_stop_qp(&fake, 1, GKV_STOPPED_DOORBELL);
	n = gkv_wait(qp, c, 8, 60000 * MS);
	assert_true(n >= 1);
	assert_int_equal(c[0].user_data, 2);
	assert_int_equal(c[0].flags, 0);
	assert_int_equal(c[0].result, 42);
	if (n == 1)
		assert_int_equal(gkv_wait(qp, c + 1, 7, 60000 * MS), 1);
	assert_lost(&c[1], 1);
}

/* gkv_poll() alone notices too, soon; one that was timed out is not reported twice. */
static void test_polling(void **state)
{
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8, .timeout_ns = 20 * MS });
	struct gkv_comp c[8];
	uint64_t start;
	int n;

	(void)state;
	submit(qp, exist(1));
	assert_int_equal(gkv_wait(qp, c, 8, 5000 * MS), 1);
	assert_int_equal(c[0].flags, GKV_C_TIMEDOUT);
	submit(qp, exist(2));
	fake_stop_qp(&fake, 1, GKV_STOPPED_DOORBELL);
	start = now();
	while (!(n = gkv_poll(qp, c, 8)))
		assert_true(now() - start < 2000 * MS);
	assert_int_equal(n, 1);
	assert_lost(&c[0], 2);
	assert_int_equal(gkv_qp_outstanding(qp), 2);
	assert_int_equal(gkv_qp_reset(qp), 0);
	assert_int_equal(gkv_qp_outstanding(qp), 0);
}

static void *stop_later(void *arg)
{
	(void)arg;
	usleep(50000);
	fake_stop_qp(&fake, 1, GKV_STOPPED_DOORBELL);
	return NULL;
}

/* A sleeper is woken, and gkv_exec() ends. */
static void test_asleep(void **state)
{
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8 });
	struct gkv_comp c;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, stop_later, NULL), 0);
	assert_int_equal(gkv_exec(qp, (struct gkv_cmd[]){ exist(6) }, &c), 0);
	assert_lost(&c, 6);
	pthread_join(thread, NULL);
}

/* The daemon's successor refuses it: now the buffers are free, and it is made anew. */
static void test_restart(void **state)
{
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8 });
	struct gkv_comp c[8];

	(void)state;
	submit(qp, retrieve(1));
	fake_stop_qp(&fake, 1, GKV_STOPPED_RECORD);
	assert_int_equal(gkv_wait(qp, c, 8, 60000 * MS), 1);
	assert_lost(&c[0], 1);
	fake_stop(&fake);
	fake_refuse(&fake, GKV_MSG_QP_ADD, EINVAL, "no");
	fake.refuse[GKV_MSG_QP_ADD].times = 1;
	assert_int_equal(gkv_wait(qp, c, 8, 20000 * MS), 0);	/* all was reported */
	fake_start(&fake);
	for (int i = 0; !gkv_reconnects(g) && i < 5000; i++)
		usleep(1000);
	assert_int_equal(gkv_poll(qp, c, 8), 1);
	assert_int_equal(c[0].user_data, 1);
	assert_int_equal(c[0].flags, GKV_C_LOST | GKV_C_LATE);
	for (int i = 0; !gkv_qp_room(qp) && i < 5000; i++)
		usleep(1000);
	assert_int_equal(gkv_qp_room(qp), 7);
	assert_int_equal(gkv_qp_stopped(qp), GKV_STOPPED_NOT);
	assert_int_equal(gkv_mem_free(mem), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reset, setup_mem, teardown),
		cmocka_unit_test_setup_teardown(test_memory, setup_mem, teardown),
		cmocka_unit_test_setup_teardown(test_answered_before, setup_mem, teardown),
		cmocka_unit_test_setup_teardown(test_polling, setup_mem, teardown),
		cmocka_unit_test_setup_teardown(test_asleep, setup_mem, teardown),
		cmocka_unit_test_setup_teardown(test_restart, setup_mem, teardown),
	};

	return cmocka_run_group_tests_name("lib_stopped", tests, NULL, NULL);
}
