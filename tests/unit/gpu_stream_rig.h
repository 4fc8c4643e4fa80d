/* SPDX-License-Identifier: MIT */
/*
 * A queue pair in the order of a stream of a GPU's stand-in, on a fake daemon. Include after
 * cmocka.h, in one file of a program, with build_both() and clean() around its tests.
 */
#ifndef GPU_STREAM_RIG_H
#define GPU_STREAM_RIG_H

#include <string.h>
#include <unistd.h>

#include <gkv_device.h>

#include "fakedaemon.h"
#include "gpu_stub.h"
#include "lib_rig.h"

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

/* Compile the stand-in for runtime @rt with these flags, and load it from now on. */
static inline void build(uint32_t rt, const char *name, const char *flags)
{
	const char *env = rt == GKV_GPU_CUDA ? "GKV_LIBCUDA" : "GKV_LIBHIP";

	assert_int_equal(gpu_stub_build(env, name, flags), 0);
}

/* The usual ones. */
static inline int build_both(void **state)
{
	(void)state;
	build(GKV_GPU_CUDA, "libcuda.so.1", "");
	build(GKV_GPU_HIP, "libamdhip64.so", "-DSTUB_HIP");
	stubs[GKV_GPU_CUDA] = gpu_stub_of("GKV_LIBCUDA");
	stubs[GKV_GPU_HIP] = gpu_stub_of("GKV_LIBHIP");
	if (!stubs[GKV_GPU_CUDA] || !stubs[GKV_GPU_HIP])
		return -1;
	fresh[GKV_GPU_CUDA] = *stubs[GKV_GPU_CUDA];
	fresh[GKV_GPU_HIP] = *stubs[GKV_GPU_HIP];
	return 0;
}

static inline int clean(void **state)
{
	(void)state;
	gpu_stub_clean();
	return 0;
}

static inline void begin(uint32_t rt)
{
	stub = stubs[rt];
	*stub = fresh[rt];
	stream = stub->stream_new();
	if (gkv_gpu_open(rt, 0, &gpu))
		fail_msg("%s", gkv_error());
	assert_int_equal(gkv_mem_alloc(g, 64 << 10, &mem), 0);
}

/* Nothing is left in the library. */
static inline void end(void)
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

static inline void open_stream(uint32_t max, uint64_t timeout_ns)
{
	qp = queue_of((struct gkv_qp_opts){ .depth = DEPTH, .flags = GKV_QP_POLLED,
					    .timeout_ns = timeout_ns });
	if (gkv_gpu_stream_open(gpu, qp, stream, &s) || gkv_gpu_batch_alloc(s, max, &b))
		fail_msg("%s", gkv_error());
}

static inline void close_stream(void)
{
	assert_int_equal(gkv_gpu_stream_close(s), 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

static inline void retrieves(struct gkv_cmd *c, uint32_t n)
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

static inline struct gkv_dev_result result(uint32_t i)
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

#endif
