/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs in the order of a GPU's stream, when the daemon does not answer what the stream waits
 * for: the stream goes on all the same, and says so truthfully.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "gpu_stream_rig.h"

#define TIMEOUT_MS 3000		/* a test that is kept from running does not run into it */

static void mark(void *arg)
{
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

/*
 * Of seven commands, of which the first three are rung, the daemon answers those in @mask, the
 * last one first. What it then does not do, the library does.
 */
static void begin_seven(uint32_t mask, uint32_t *behind)
{
	struct gkv_sqe sqe;
	struct gkv_cmd c[7];

	retrieves(c, 7);
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
	*behind = 0;
	stub->launch(stream, mark, behind);
	for (int i = 0; i < 3; i++)
		fake_fetch_wait(&fake, gkv_qp_id(qp), &sqe);
	for (int i = 2; i >= 0; i--)
		if (mask & 1u << i)
			fake_post(&fake, gkv_qp_id(qp), (uint16_t)i, 0, 20 + (uint32_t)i, 0);
}

static void all_over(uint32_t mask, uint32_t *behind, int err, const char *says)
{
	struct gkv_cmd c[1];

	assert_soon(gkv_gpu_batch_done(b) && __atomic_load_n(behind, __ATOMIC_ACQUIRE));
	for (uint32_t i = 0; i < 7; i++) {
		struct gkv_dev_result r = result(i);

		if (mask & 1u << i) {
			assert_int_equal(r.end, GKV_DEV_DONE);
			assert_int_equal(r.len, 20 + i);
		} else {
			assert_int_equal(r.end, GKV_DEV_LOST);
			assert_int_equal(r.status, 0x370);
		}
	}
	retrieves(c, 1);
	assert_says(gkv_gpu_batch_enqueue(b, c, 1), err, says);
	/* It can be used again, once the daemon has been told. */
	assert_int_equal(gkv_gpu_stream_close(s), 0);
	assert_int_equal(gkv_qp_reset(qp), 0);
	assert_int_equal(gkv_gpu_stream_open(gpu, qp, stream, &s), 0);
	assert_int_equal(gkv_gpu_batch_alloc(s, 1, &b), 0);
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 1), 0);
	assert_soon(fake_serve(&fake, gkv_qp_id(qp)));
	assert_soon(gkv_gpu_batch_done(b));
	assert_int_equal(result(0).end, GKV_DEV_DONE);
	close_stream();
}

static void test_stopped(void **state)
{
	uint32_t behind;

	(void)state;
	begin(GKV_GPU_CUDA);
	open_stream(7, 0);
	begin_seven(5, &behind);
	fake_stop_qp(&fake, gkv_qp_id(qp), GKV_STOPPED_RECORD);
	all_over(5, &behind, -EIO, "record");
	/* Each time it was taken from the daemon, and at the end. */
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_DEL), 2);
	end();
}

static void test_silent(void **state)
{
	uint32_t behind;

	(void)state;
	begin(GKV_GPU_HIP);
	open_stream(7, TIMEOUT_MS * MS);
	begin_seven(4, &behind);
	all_over(4, &behind, -EIO, "no answer for 3000 ms");
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_DEL), 2);
	end();
}

/* Away for too long: nobody can be asked, and no successor is given it. */
static void test_away(void **state)
{
	uint32_t behind;

	(void)state;
	begin(GKV_GPU_HIP);
	open_stream(7, TIMEOUT_MS * MS);
	begin_seven(2, &behind);
	fake_stop(&fake);
	assert_soon(gkv_gpu_batch_done(b));
	fake_start(&fake);
	assert_soon(gkv_connected(g));
	assert_false(fake_live(&fake, gkv_qp_id(qp)));
	all_over(2, &behind, -EIO, "no answer for 3000 ms");
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_DEL), 1);
	end();
}

/* Timeouts that follow the namespaces stand still meanwhile, and start anew with the next one. */
static void test_delay(void **state)
{
	struct gkv_sqe sqe;
	struct gkv_cmd c[1];

	(void)state;
	begin(GKV_GPU_CUDA);
	open_stream(1, 0);
	retrieves(c, 1);
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 1), 0);
	fake_fetch_wait(&fake, gkv_qp_id(qp), &sqe);
	fake_stop(&fake);
	assert_soon(!gkv_connected(g));
	fake_start(&fake);
	assert_soon(gkv_connected(g));
	assert_true(fake_live(&fake, gkv_qp_id(qp)));
	assert_false(gkv_gpu_batch_done(b));
	fake_post(&fake, gkv_qp_id(qp), sqe.cid, 0, 5, 0);
	assert_soon(gkv_gpu_batch_done(b));
	assert_int_equal(result(0).len, 5);
	close_stream();
	end();
}

/* The successor does not take it over. */
static void test_not_resumed(void **state)
{
	uint32_t behind;

	(void)state;
	begin(GKV_GPU_CUDA);
	open_stream(7, 0);
	begin_seven(5, &behind);
	fake_stop(&fake);
	fake_refuse(&fake, GKV_MSG_QP_ADD, EINVAL, "not this one");
	fake_start(&fake);
	assert_soon(gkv_connected(g) && gkv_gpu_batch_done(b));
	fake_refuse(&fake, GKV_MSG_QP_ADD, 0, NULL);
	all_over(5, &behind, -ENOTCONN, "lost");
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stopped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_delay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_resumed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, build_both, clean);
}
