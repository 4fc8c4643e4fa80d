/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs in the order of a GPU's stream, on a fake daemon: every refusal, every function of
 * the runtime failing in turn, and answers in any order.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "fakedrv.h"
#include "gpu_stream_rig.h"
#include "vram_rig.h"

/* The numbers are the vendor's, where its header is there to ask. */
#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
_Static_assert(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR == 123 &&
	       CU_STREAM_WAIT_VALUE_AND == 2 && CU_STREAM_WAIT_VALUE_NOR == 3 &&
	       CU_STREAM_WRITE_VALUE_DEFAULT == 0 && CUDA_ERROR_NOT_READY == 600,
	       "numbers of cuda.h");
#endif

/* ---- Opening ---- */

static void refuse(struct gkv_qp *q, int err, const char *says)
{
	struct gkv_gpu_stream *no = (void *)1;

	assert_says(gkv_gpu_stream_open(gpu, q, stream, &no), err, says);
	assert_null(no);
	assert_int_equal(stub->registered, 0);
	assert_int_equal(stub->entered, 0);
}

static void refuse_qp(uint32_t flags, uint32_t mode, const char *says)
{
	struct gkv_qp *q = queue_of((struct gkv_qp_opts){ .depth = DEPTH, .flags = flags,
							  .mode = mode });

	refuse(q, -EINVAL, says);
	assert_int_equal(gkv_qp_destroy(q), 0);
}

/* A function fails after some calls; the host has the queue pair as before. */
static void refuse_call(const char *call, int skip, const char *says)
{
	struct gkv_cmd c = exist(1);
	struct gkv_comp comp;

	qp = queue_of((struct gkv_qp_opts){ .depth = DEPTH, .flags = GKV_QP_POLLED });
	stub->fail = call;
	stub->skip = skip;
	stub->code = 2;
	refuse(qp, -ENOMEM, says);
	stub->fail = NULL;
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_int_equal(fake_serve(&fake, gkv_qp_id(qp)), 1);
	assert_int_equal(gkv_poll(qp, &comp, 1), 1);
	refuse(qp, -EINVAL, "has been used");
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

static void test_open_cuda(void **state)
{
	struct gkv_gpu_stream *other;
	struct gkv_gpu *cannot;
	struct gkv_qp *q;

	(void)state;
	begin(GKV_GPU_CUDA);
	refuse_qp(0, 0, "GKV_QP_POLLED");
	refuse_qp(GKV_QP_POLLED | GKV_QP_CSUM, 0, "GKV_QP_CSUM");
	refuse_qp(GKV_QP_POLLED | GKV_QP_PRP, 0, "GKV_QP_PRP");
	refuse_qp(GKV_QP_POLLED, GKV_MODE_SQ, "parts in VRAM");
	refuse_qp(GKV_QP_POLLED, GKV_MODE_CQ, "parts in VRAM");
	refuse_qp(GKV_QP_POLLED, GKV_MODE_DB, "parts in VRAM");
	refuse(NULL, -EINVAL, "no queue pair");
	refuse_call("cuMemHostRegister_v2", 0, "cannot register");
	refuse_call("cuMemHostRegister_v2", 1, "cannot register");
	refuse_call("cuMemHostRegister_v2", 2, "cannot register");
	refuse_call("cuMemHostGetDevicePointer_v2", 2, "no address");
	refuse_call("cuStreamWriteValue32_v2", 0, "a doorbell");
	refuse_call("cuStreamWriteValue32_v2", 1, "a doorbell");
	refuse_call("cuStreamWaitValue32_v2", 0, "a wait");
	refuse_call("cuStreamWaitValue32_v2", 1, "a wait");
	refuse_call("cuStreamSynchronize", 0, "wait for a stream");
	refuse_call("cuCtxPushCurrent_v2", 0, "use the device");
	stub->can_wait = 0;
	assert_int_equal(gkv_gpu_open(GKV_GPU_CUDA, 1, &cannot), 0);
	q = queue_of((struct gkv_qp_opts){ .flags = GKV_QP_POLLED });
	assert_says(gkv_gpu_stream_open(cannot, q, stream, &s), -EOPNOTSUPP,
		    "CAN_USE_STREAM_WAIT_VALUE_NOR is 0");
	assert_int_equal(gkv_gpu_close(cannot), 0);
	assert_int_equal(gkv_qp_destroy(q), 0);
	open_stream(1, 0);
	assert_says(gkv_gpu_stream_open(gpu, qp, stream, &other), -EBUSY, "device code");
	assert_null(other);
	assert_says(gkv_gpu_close(gpu), -EBUSY, "1 queues and 1 mappings");
	assert_int_equal(gkv_gpu_stream_close(NULL), 0);
	assert_int_equal(gkv_gpu_batch_free(NULL), 0);
	close_stream();
	end();
}

static void test_open_hip(void **state)
{
	struct gkv_gpu *cannot;
	struct gkv_qp *q;

	(void)state;
	begin(GKV_GPU_HIP);
	refuse_call("hipHostRegister", 1, "cannot register");
	refuse_call("hipStreamWriteValue32", 0, "a doorbell");
	refuse_call("hipStreamWaitValue32", 0, "a wait");
	refuse_call("hipStreamSynchronize", 0, "wait for a stream");
	stub->can_wait = 0;
	assert_int_equal(gkv_gpu_open(GKV_GPU_HIP, 1, &cannot), 0);
	q = queue_of((struct gkv_qp_opts){ .flags = GKV_QP_POLLED });
	assert_says(gkv_gpu_stream_open(cannot, q, stream, &s), -EOPNOTSUPP,
		    "CanUseStreamWaitValue is 0");
	assert_int_equal(gkv_gpu_close(cannot), 0);
	assert_int_equal(gkv_qp_destroy(q), 0);
	end();
}

/* A library from before streams could wait: everything else works. */
static void old_library(uint32_t rt, const char *name, const char *flags, const char *says)
{
	struct gkv_gpu_stream *no;
	struct gkv_gpu *old;
	int status;
	pid_t pid;

	qp = queue_of((struct gkv_qp_opts){ .flags = GKV_QP_POLLED });
	build(rt, name, flags);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(gkv_gpu_open(rt, 0, &old) ||
		      gkv_gpu_stream_open(old, qp, NULL, &no) != -EOPNOTSUPP ||
		      !strstr(gkv_error(), says));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

static void test_old_library(void **state)
{
	/* Before the usual ones are loaded, which then stay. */
	old_library(GKV_GPU_CUDA, "old-cuda.so", "-DSTUB_NO_MEMOPS", "no cuStreamWaitValue32_v2");
	old_library(GKV_GPU_HIP, "old-hip.so", "-DSTUB_HIP -DSTUB_NO_MEMOPS",
		    "no hipStreamWaitValue32");
	assert_int_equal(build_both(state), 0);
}

/* ---- Batches ---- */

static void refuse_cmd(struct gkv_cmd c, const char *says)
{
	struct gkv_cmd two[2];

	retrieves(two, 1);
	two[1] = c;
	assert_says(gkv_gpu_batch_enqueue(b, two, 2), -EINVAL, says);
	assert_int_equal(gkv_gpu_batch_done(b), 1);
}

static void test_refused(void **state)
{
	struct gkv_dev_answers a = { .size = sizeof(a) - 1 };
	struct gkv_gpu_batch *no;
	struct gkv_cmd c[8], x;
	struct gkv_seg seg;

	(void)state;
	begin(GKV_GPU_CUDA);
	open_stream(7, 0);
	assert_says(gkv_gpu_batch_alloc(s, 0, &no), -EINVAL, "1 to 1048576");
	assert_null(no);
	assert_says(gkv_gpu_batch_alloc(s, (1u << 20) + 1, &no), -EINVAL, "1 to 1048576");
	assert_int_equal(gkv_gpu_batch_alloc(s, 1, NULL), -EINVAL);
	stub->code = 2;
	stub->fail = "cuMemAlloc_v2";
	assert_says(gkv_gpu_batch_alloc(s, 7, &no), -ENOMEM, "device memory");
	stub->fail = "cuMemHostRegister_v2";
	assert_says(gkv_gpu_batch_alloc(s, 7, &no), -ENOMEM, "cannot register");
	stub->fail = NULL;
	assert_int_equal(stub->registered, 4);
	assert_int_equal(stub->allocated, 1);

	retrieves(c, 8);
	assert_says(gkv_gpu_batch_enqueue(b, c, 8), -E2BIG, "8 commands for a batch of 7");
	assert_says(gkv_gpu_batch_enqueue(b, c, 0), -EINVAL, "no commands");
	assert_says(gkv_gpu_batch_enqueue(b, NULL, 1), -EINVAL, "no commands");
	x = c[0];
	x.opcode = 0x55;
	refuse_cmd(x, "command 1 of the batch: unknown opcode");
	x = c[0];
	x.key_len = 0;
	refuse_cmd(x, "1 to 16 bytes");
	x.key_len = 17;
	refuse_cmd(x, "1 to 16 bytes");
	x = c[0];
	x.rsvd2 = 1;
	refuse_cmd(x, "reserved fields");
	x = c[0];
	x.nsegs = 1;
	x.segs = &seg;
	refuse_cmd(x, "in one piece");
	x = c[0];
	x.buf = &x;
	refuse_cmd(x, "inside one gkv_mem");
	x = c[0];
	x.len = 65 << 10;
	refuse_cmd(x, "inside one gkv_mem");
	stub->capturing = 1;
	assert_says(gkv_gpu_batch_enqueue(b, c, 1), -EBUSY, "captured");
	stub->capturing = 0;
	assert_says(gkv_gpu_batch_answers(b, &a, NULL), -EINVAL, "size is not set");
	assert_says(gkv_gpu_batch_answers(b, NULL, &a), -EINVAL, "size is not set");
	/* Nothing of all that has got to the stream. */
	assert_int_equal(stub->copied + stub->written + stub->waited, 0);
	assert_int_equal(fake_sq_tail(&fake, gkv_qp_id(qp)), 0);
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
	assert_soon((fake_serve(&fake, gkv_qp_id(qp)), gkv_gpu_batch_done(b)));
	/* Runs of 3, 3 and 1, as docs/device.md counts. */
	assert_int_equal(stub->waited, 3);
	assert_int_equal(stub->written, 7);
	assert_int_equal(stub->bytes, 7 * (64 + 16) * 2);
	assert_int_equal(gkv_gpu_batch_free(b), 0);
	close_stream();
	end();
}

/* Answers overtake each other, and each command gets its own. */
static void overtaken(uint32_t rt)
{
	static const uint32_t order[] = { 2, 0, 1 };
	struct gkv_sqe sqe[3];
	struct gkv_cmd c[7];
	uint32_t id;

	begin(rt);
	open_stream(7, 0);
	id = gkv_qp_id(qp);
	retrieves(c, 7);
	c[1].opcode = GKV_STORE;
	c[1].options = GKV_O_MUST_EXIST;
	for (uint32_t round = 0; round < 5; round++) {
		assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
		for (uint32_t first = 0; first < 7; first += 3) {
			uint32_t n = first == 6 ? 1 : 3;

			for (uint32_t i = 0; i < n; i++) {
				fake_fetch_wait(&fake, id, &sqe[i]);
				assert_int_equal(sqe[i].cid, i);
				assert_int_equal(sqe[i].opcode, c[first + i].opcode);
			}
			/* What is behind waits for all of them. */
			assert_false(fake_fetch(&fake, id, &sqe[2]) && n == 3);
			for (uint32_t k = 0; k < n; k++) {
				uint32_t i = n == 3 ? order[k] : 0;

				assert_false(gkv_gpu_batch_done(b));
				fake_post(&fake, id, (uint16_t)i, i == 1 ? 0x87 : 0,
					  1000 * round + first + i, 0);
			}
		}
		assert_soon(gkv_gpu_batch_done(b));
		for (uint32_t i = 0; i < 7; i++) {
			struct gkv_dev_result r = result(i);

			assert_int_equal(r.end, GKV_DEV_DONE);
			assert_int_equal(r.len, 1000 * round + i);
			assert_int_equal(r.status, i % 3 == 1 ? 0x87 : 0);
		}
		assert_int_equal(result(7).end, GKV_DEV_INVALID);
	}
	close_stream();
	end();
}

static void test_overtaken(void **state)
{
	(void)state;
	overtaken(GKV_GPU_CUDA);
	overtaken(GKV_GPU_HIP);
}

/* ---- The runtime fails ---- */

/* Close it, while the daemon answers what the stream has rung. */
static void close_broken(void)
{
	int ret;

	assert_soon((fake_serve(&fake, gkv_qp_id(qp)), ret = gkv_gpu_stream_close(s)) != -EBUSY);
	assert_int_equal(ret, 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

/* @call fails every time that it is made for a batch of @calls such calls. */
static void fails_in_turn(const char *call, int calls, bool first_is_first)
{
	struct gkv_cmd c[7];

	retrieves(c, 7);
	for (int i = 0; i < calls; i++) {
		open_stream(7, 0);
		stub->fail = call;
		stub->skip = i;
		stub->code = 719;
		assert_says(gkv_gpu_batch_enqueue(b, c, 7), -EIO, "error 719");
		stub->fail = NULL;
		if (!i && first_is_first) {
			/* Nothing was enqueued: as if it had not been. */
			assert_int_equal(gkv_gpu_batch_done(b), 1);
			assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
		} else {
			assert_says(gkv_gpu_batch_enqueue(b, c, 1), -EIO, "half way");
		}
		close_broken();
	}
	/* There was no further call. */
	open_stream(7, 0);
	stub->fail = call;
	stub->skip = calls;
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
	assert_int_equal(stub->skip, 0);
	stub->fail = NULL;
	close_broken();
}

/* Nothing of the time before is taken for an answer. */
static void test_no_answers(void **state)
{
	struct gkv_cmd c[7];
	struct gkv_dev_answers a = { .size = sizeof(a) };
	struct gkv_dev_result r;

	(void)state;
	begin(GKV_GPU_CUDA);
	open_stream(7, 0);
	retrieves(c, 7);
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
	assert_soon((fake_serve(&fake, gkv_qp_id(qp)), gkv_gpu_batch_done(b)));
	assert_int_equal(result(6).end, GKV_DEV_DONE);
	/* What brings the completions to the host. */
	stub->fail = "cuMemcpyDtoHAsync_v2";
	stub->skip = 4;
	stub->code = 719;
	assert_says(gkv_gpu_batch_enqueue(b, c, 7), -EIO, "error 719");
	stub->fail = NULL;
	assert_soon((fake_serve(&fake, gkv_qp_id(qp)), gkv_gpu_batch_done(b)));
	assert_int_equal(gkv_gpu_batch_answers(b, NULL, &a), 0);
	for (uint32_t i = 0; i < 7; i++)
		assert_int_equal(gkv_dev_answer(&a, i, &r), GKV_DEV_LOST);
	close_stream();
	end();
}

static void test_runtime_fails(void **state)
{
	(void)state;
	begin(GKV_GPU_CUDA);
	/* Three runs, one of which goes around the end of the rings. */
	fails_in_turn("cuStreamIsCapturing", 1, true);
	fails_in_turn("cuMemcpyHtoDAsync_v2", 5, true);
	fails_in_turn("cuMemcpyDtoHAsync_v2", 5, false);
	fails_in_turn("cuStreamWriteValue32_v2", 7, false);
	fails_in_turn("cuStreamWaitValue32_v2", 3, false);
	end();
	begin(GKV_GPU_HIP);
	fails_in_turn("hipStreamIsCapturing", 1, true);
	fails_in_turn("hipMemcpyAsync", 10, true);
	fails_in_turn("hipStreamWriteValue32", 7, false);
	fails_in_turn("hipStreamWaitValue32", 3, false);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_old_library, setup, teardown),
		cmocka_unit_test_setup_teardown(test_open_cuda, setup_vram, teardown_vram),
		cmocka_unit_test_setup_teardown(test_open_hip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overtaken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_runtime_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_answers, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, clean);
}
