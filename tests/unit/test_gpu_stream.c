/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs in the order of a GPU's stream, on a fake daemon: every refusal, every function of
 * the runtime failing in turn, answers in any order, and what happens when they do not come.
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

#include <gkv_device.h>

#include "fakedaemon.h"
#include "fakedrv.h"
#include "gpu_stub.h"
#include "vram_rig.h"

/* The numbers are the vendor's, where its header is there to ask. */
#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
_Static_assert(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR == 123 &&
	       CU_STREAM_WAIT_VALUE_AND == 2 && CU_STREAM_WAIT_VALUE_NOR == 3 &&
	       CU_STREAM_WRITE_VALUE_DEFAULT == 0 && CUDA_ERROR_NOT_READY == 600,
	       "numbers of cuda.h");
#endif

#define DEPTH 4u

static struct gpu_stub *stub, *stubs[3];	/* of each runtime */
static struct gpu_stub fresh[3];
static struct gkv_gpu *gpu;
static struct gkv_mem *mem;
static struct gkv_qp *qp;
static struct gkv_gpu_stream *s;
static struct gkv_gpu_batch *b;
static void *stream;

#define assert_says(call, err, text) do {					\
	assert_int_equal(call, err);						\
	if (!strstr(gkv_error(), text))						\
		fail_msg("'%s' does not say '%s'", gkv_error(), text);		\
} while (0)

#define assert_soon(cond) do {							\
	uint64_t until_ = now() + 60000 * MS;					\
										\
	while (!(cond)) {							\
		if (now() > until_)						\
			fail_msg("not within a minute: %s", #cond);		\
		usleep(500);							\
	}									\
} while (0)

/* ---- Set-up ---- */

static void begin(uint32_t rt)
{
	stub = stubs[rt];
	*stub = fresh[rt];
	stream = stub->stream_new();
	if (gkv_gpu_open(rt, 0, &gpu))
		fail_msg("%s", gkv_error());
	assert_int_equal(gkv_mem_alloc(g, 64 << 10, &mem), 0);
}

/* Nothing is left in the library. */
static void end(void)
{
	assert_int_equal(gkv_gpu_close(gpu), 0);
	stub->stream_free(stream);
	assert_int_equal(stub->registered, 0);
	assert_int_equal(stub->allocated, 0);
	assert_int_equal(stub->streams, 0);
	assert_int_equal(stub->contexts, 0);
	assert_int_equal(stub->entered, 0);
	assert_int_equal(gkv_mem_free(mem), 0);
}

static void open_stream(uint32_t max, uint64_t timeout_ns)
{
	qp = queue_of((struct gkv_qp_opts){ .depth = DEPTH, .flags = GKV_QP_POLLED,
					    .timeout_ns = timeout_ns });
	if (gkv_gpu_stream_open(gpu, qp, stream, &s) || gkv_gpu_batch_alloc(s, max, &b))
		fail_msg("%s", gkv_error());
}

static void close_stream(void)
{
	assert_int_equal(gkv_gpu_stream_close(s), 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

static void retrieves(struct gkv_cmd *c, uint32_t n)
{
	memset(c, 0, n * sizeof(*c));
	for (uint32_t i = 0; i < n; i++) {
		c[i].opcode = GKV_RETRIEVE;
		c[i].nsid = 1;
		c[i].key_len = 3;
		memcpy(c[i].key, "key", 3);
		c[i].buf = (char *)gkv_mem_addr(mem) + 64 * i;
		c[i].len = 64;
	}
}

static struct gkv_dev_result result(uint32_t i)
{
	struct gkv_dev_answers host = { .size = sizeof(host) }, dev = { .size = sizeof(dev) };
	struct gkv_dev_result r, d;

	/* What the stream has written is here. */
	stub->stream_sync(stream);
	assert_int_equal(gkv_gpu_batch_answers(b, &dev, &host), 0);
	assert_ptr_not_equal(host.cqes, dev.cqes);
	gkv_dev_answer(&host, i, &r);
	gkv_dev_answer(&dev, i, &d);
	assert_int_equal(d.end, r.end);
	assert_int_equal(d.status, r.status);
	assert_int_equal(d.len, r.len);
	return r;
}

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
static void test_load(void **state)
{
	static const struct {
		uint32_t rt;
		const char *env, *name, *old, *flags, *file, *says;
	} libs[] = {
		{ GKV_GPU_CUDA, "GKV_LIBCUDA", "libcuda.so.1", "-DSTUB_NO_MEMOPS", "",
		  "old-cuda.so", "no cuStreamWaitValue32_v2" },
		{ GKV_GPU_HIP, "GKV_LIBHIP", "libamdhip64.so", "-DSTUB_HIP -DSTUB_NO_MEMOPS",
		  "-DSTUB_HIP", "old-hip.so", "no hipStreamWaitValue32" },
	};

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		struct gkv_gpu_stream *no;
		struct gkv_gpu *old;
		int status;
		pid_t pid;

		qp = queue_of((struct gkv_qp_opts){ .flags = GKV_QP_POLLED });
		assert_int_equal(gpu_stub_build(libs[i].env, libs[i].file, libs[i].old), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(gkv_gpu_open(libs[i].rt, 0, &old) ||
			      gkv_gpu_stream_open(old, qp, NULL, &no) != -EOPNOTSUPP ||
			      !strstr(gkv_error(), libs[i].says));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(gpu_stub_build(libs[i].env, libs[i].name, libs[i].flags), 0);
		stubs[libs[i].rt] = gpu_stub_of(libs[i].env);
		assert_non_null(stubs[libs[i].rt]);
		fresh[libs[i].rt] = *stubs[libs[i].rt];
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
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

/* ---- Nobody answers ---- */

static void mark(void *arg)
{
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

/* Two of seven are answered. What the daemon then does not do, the library does. */
static void two_of_seven(uint32_t *behind)
{
	struct gkv_sqe sqe;
	struct gkv_cmd c[7];

	retrieves(c, 7);
	assert_int_equal(gkv_gpu_batch_enqueue(b, c, 7), 0);
	*behind = 0;
	stub->launch(stream, mark, behind);
	for (int i = 0; i < 3; i++)
		fake_fetch_wait(&fake, gkv_qp_id(qp), &sqe);
	fake_post(&fake, gkv_qp_id(qp), 2, 0, 22, 0);
	fake_post(&fake, gkv_qp_id(qp), 0, 0, 20, 0);
}

static void all_over(uint32_t *behind, int err, const char *says)
{
	struct gkv_cmd c[1];

	assert_soon(gkv_gpu_batch_done(b) && __atomic_load_n(behind, __ATOMIC_ACQUIRE));
	for (uint32_t i = 0; i < 7; i++) {
		struct gkv_dev_result r = result(i);

		if (i == 0 || i == 2) {
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
	two_of_seven(&behind);
	fake_stop_qp(&fake, gkv_qp_id(qp), GKV_STOPPED_RECORD);
	all_over(&behind, -EIO, "record");
	/* Each time it was taken from the daemon, and at the end. */
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_DEL), 2);
	end();
}

static void test_silent(void **state)
{
	uint32_t behind;

	(void)state;
	begin(GKV_GPU_HIP);
	open_stream(7, 300 * MS);
	two_of_seven(&behind);
	all_over(&behind, -EIO, "no answer for 300 ms");
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_DEL), 2);
	end();
}

/* Away for too long: nobody can be asked, and no successor is given it. */
static void test_away(void **state)
{
	uint32_t behind;

	(void)state;
	begin(GKV_GPU_HIP);
	open_stream(7, 300 * MS);
	two_of_seven(&behind);
	fake_stop(&fake);
	assert_soon(gkv_gpu_batch_done(b));
	fake_start(&fake);
	assert_soon(gkv_connected(g));
	assert_false(fake_live(&fake, gkv_qp_id(qp)));
	all_over(&behind, -EIO, "no answer for 300 ms");
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
	two_of_seven(&behind);
	fake_stop(&fake);
	fake_refuse(&fake, GKV_MSG_QP_ADD, EINVAL, "not this one");
	fake_start(&fake);
	assert_soon(gkv_connected(g) && gkv_gpu_batch_done(b));
	fake_refuse(&fake, GKV_MSG_QP_ADD, 0, NULL);
	all_over(&behind, -ENOTCONN, "lost");
	end();
}

static int clean(void **state)
{
	(void)state;
	gpu_stub_clean();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_load, setup, teardown),
		cmocka_unit_test_setup_teardown(test_open_cuda, setup_vram, teardown_vram),
		cmocka_unit_test_setup_teardown(test_open_hip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overtaken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_runtime_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stopped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_delay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_resumed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, clean);
}
