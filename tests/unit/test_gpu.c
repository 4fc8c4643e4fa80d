/* SPDX-License-Identifier: MIT */
/*
 * GPU runtimes without a GPU: a stand-in for each vendor's library, device code that runs in
 * this process on the queue that a kernel would get, and every refusal.
 */
#include <errno.h>
#include <fcntl.h>
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
#include "gpu_stub.h"
#include "fakedrv.h"
#include "vram_rig.h"

/* The numbers are the vendor's, where its header is there to ask. */
#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
_Static_assert(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY == 19 &&
	       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == 75 &&
	       CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED == 99 &&
	       CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING == 118 &&
	       CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED == 124 &&
	       CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER == 100 &&
	       CU_MEMHOSTREGISTER_PORTABLE == 1 && CU_MEMHOSTREGISTER_DEVICEMAP == 2 &&
	       CU_POINTER_ATTRIBUTE_SYNC_MEMOPS == 6 && CU_STREAM_NON_BLOCKING == 1 &&
	       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD == 1 &&
	       CUDA_ERROR_INVALID_VALUE == 1 && CUDA_ERROR_OUT_OF_MEMORY == 2 &&
	       CUDA_ERROR_NO_DEVICE == 100 && CUDA_ERROR_INVALID_DEVICE == 101 &&
	       CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED == 712 &&
	       CUDA_ERROR_NOT_PERMITTED == 800 && CUDA_ERROR_NOT_SUPPORTED == 801,
	       "numbers of cuda.h");
#endif

#define DEPTH 8u

static struct gpu_stub *stub, *stubs[3];	/* of each runtime */
static struct gpu_stub fresh[3];

#define assert_says(call, err, text) do {					\
	assert_int_equal(call, err);						\
	if (!strstr(gkv_error(), text))						\
		fail_msg("'%s' does not say '%s'", gkv_error(), text);		\
} while (0)

/* ---- Loading; in this order, since a library that is loaded stays ---- */

/* In a process that has loaded nothing: how the open ends, and what it says. */
static void open_in_child(uint32_t rt, int want, const char *says, uint32_t flags)
{
	struct gkv_gpu_info i = { .size = sizeof(i) };
	struct gkv_gpu *gpu;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		int ret = gkv_gpu_open(rt, 0, &gpu);

		if (ret != want || (ret && !strstr(gkv_error(), says))) {
			fprintf(stderr, "# returned %d: %s\n", ret, gkv_error());
			_exit(1);
		}
		if (!ret && (gkv_gpu_info(gpu, &i) || i.flags != flags))
			_exit(2);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As usual: what the loader finds under the library's own name. */
static void open_by_name(void)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		unsetenv("GKV_LIBCUDA");
		setenv("LD_LIBRARY_PATH", gpu_stub_dir, 1);
		execl("/proc/self/exe", "test_gpu", "open", NULL);
		_exit(3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int just_open(void)
{
	struct gkv_gpu *gpu;

	if (!gkv_gpu_open(GKV_GPU_CUDA, 0, &gpu) && !gkv_gpu_close(gpu))
		return 0;
	fprintf(stderr, "# %s\n", gkv_error());
	return 1;
}

static void test_load(void **state)
{
	char lib[96];

	(void)state;
	setenv("GKV_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	open_in_child(GKV_GPU_CUDA, -ENODEV, "/nonexistent/libcuda.so.1", 0);
	setenv("GKV_LIBHIP", "/nonexistent/libamdhip64.so", 1);
	open_in_child(GKV_GPU_HIP, -ENODEV, "/nonexistent/libamdhip64.so", 0);
	assert_int_equal(gpu_stub_build("GKV_LIBCUDA", "old.so", "-DSTUB_OLD"), 0);
	open_in_child(GKV_GPU_CUDA, -EOPNOTSUPP, "has no cuMemGetHandleForAddressRange", 0);
	assert_int_equal(gpu_stub_build("GKV_LIBCUDA", "libcuda.so.1", ""), 0);
	open_in_child(GKV_GPU_CUDA, 0, "", GKV_GPU_DMABUF | GKV_GPU_ORDERED);
	assert_int_equal(gpu_stub_build("GKV_LIBHIP", "libamdhip64.so", "-DSTUB_HIP"), 0);
	setenv("GKV_LIBHSA", "/nonexistent/libhsa-runtime64.so.1", 1);
	/* Queues in host memory work without it. */
	open_in_child(GKV_GPU_HIP, 0, "", 0);
	snprintf(lib, sizeof(lib), "%s", getenv("GKV_LIBHIP"));
	setenv("GKV_LIBHSA", lib, 1);
	open_in_child(GKV_GPU_HIP, 0, "", GKV_GPU_DMABUF);
	open_by_name();
	stubs[GKV_GPU_HIP] = gpu_stub_of("GKV_LIBHIP");
	stubs[GKV_GPU_CUDA] = gpu_stub_of("GKV_LIBCUDA");
	assert_non_null(stubs[GKV_GPU_CUDA]);
	assert_non_null(stubs[GKV_GPU_HIP]);
	fresh[GKV_GPU_CUDA] = *stubs[GKV_GPU_CUDA];
	fresh[GKV_GPU_HIP] = *stubs[GKV_GPU_HIP];
}

/* ---- Both runtimes ---- */

/* Nothing of the last test is left in the library. */
static void choose(uint32_t rt)
{
	stub = stubs[rt];
	*stub = fresh[rt];
}

static void assert_clean(void)
{
	assert_int_equal(stub->registered, 0);
	assert_int_equal(stub->allocated, 0);
	assert_int_equal(stub->streams, 0);
	assert_int_equal(stub->contexts, 0);
	assert_int_equal(stub->entered, 0);
	assert_int_equal(stub->device, 0);
}

static struct gkv_gpu *open_gpu(uint32_t rt, int device)
{
	struct gkv_gpu *gpu;

	if (gkv_gpu_open(rt, device, &gpu))
		fail_msg("%s", gkv_error());
	return gpu;
}

static void refuse_open(uint32_t rt, int device, int err, const char *says)
{
	struct gkv_gpu *gpu = (void *)1;

	assert_says(gkv_gpu_open(rt, device, &gpu), err, says);
	assert_null(gpu);
	assert_clean();
	*stub = fresh[rt];
}

static void refuse_call(uint32_t rt, const char *call, int code, int err, const char *says)
{
	stub->fail = call;
	stub->code = code;
	refuse_open(rt, 0, err, says);
}

static void test_open(void **state)
{
	struct gkv_gpu_info i = { .size = sizeof(i) };
	struct gkv_gpu *gpu;

	(void)state;
	assert_says(gkv_gpu_open(0, 0, &gpu), -EINVAL, "runtime 0");
	assert_says(gkv_gpu_open(3, 0, &gpu), -EINVAL, "runtime 3");
	assert_int_equal(gkv_gpu_open(GKV_GPU_CUDA, 0, NULL), -EINVAL);
	assert_int_equal(gkv_gpu_close(NULL), 0);
	for (uint32_t rt = GKV_GPU_CUDA; rt <= GKV_GPU_HIP; rt++) {
		choose(rt);
		refuse_open(rt, 2, -ENODEV, "there are 2");
		refuse_open(rt, -1, -ENODEV, "there are 2");
		stub->map_host = 0;
		refuse_open(rt, 0, -EOPNOTSUPP, "registered memory");
		gpu = open_gpu(rt, 1);
		assert_int_equal(gkv_gpu_info(gpu, &i), 0);
		assert_int_equal(i.ticks_per_us, rt == GKV_GPU_CUDA ? 1000 : 100);
		i.size = 0;
		assert_int_equal(gkv_gpu_info(gpu, &i), -EINVAL);
		i.size = sizeof(i);
		assert_int_equal(gkv_gpu_close(gpu), 0);
		assert_clean();
	}
	choose(GKV_GPU_CUDA);
	refuse_call(GKV_GPU_CUDA, "cuInit", 100, -ENODEV, "does not start: error 100");
	refuse_call(GKV_GPU_CUDA, "cuDeviceGetCount", 999, -EIO, "error 999");
	refuse_call(GKV_GPU_CUDA, "cuDeviceGet", 101, -ENODEV, "error 101");
	refuse_call(GKV_GPU_CUDA, "cuDevicePrimaryCtxRetain", 2, -ENOMEM, "OUT_OF_MEMORY");
	refuse_call(GKV_GPU_CUDA, "cuCtxPushCurrent_v2", 801, -EOPNOTSUPP, "error 801");
	refuse_call(GKV_GPU_CUDA, "cuStreamCreate", 800, -EACCES, "stream");
	/* Attributes that it does not know are not there. */
	refuse_call(GKV_GPU_CUDA, "cuDeviceGetAttribute", 1, -EOPNOTSUPP, "capability 0");
	stub->major = 6;
	refuse_open(GKV_GPU_CUDA, 0, -EOPNOTSUPP, "capability 6");
	choose(GKV_GPU_HIP);
	refuse_call(GKV_GPU_HIP, "hipInit", 100, -ENODEV, "does not start");
	refuse_call(GKV_GPU_HIP, "hipGetDeviceCount", 100, -ENODEV, "does not start");
	refuse_call(GKV_GPU_HIP, "hipSetDevice", 101, -ENODEV, "cannot use the device");
	refuse_call(GKV_GPU_HIP, "hipStreamCreateWithFlags", 2, -ENOMEM, "stream");
	stub->khz = 0;
	refuse_open(GKV_GPU_HIP, 0, -EOPNOTSUPP, "WallClockRate");
	stub->khz = 99600;
	gpu = open_gpu(GKV_GPU_HIP, 0);
	assert_int_equal(gkv_gpu_info(gpu, &i), 0);
	assert_int_equal(i.ticks_per_us, 100);
	assert_int_equal(gkv_gpu_close(gpu), 0);
}

/* ---- Memory of the host ---- */

static void map_on(uint32_t rt, const char *reg, const char *addr)
{
	struct gkv_gpu *gpu, *other;
	struct gkv_mem *mem;
	void *dev, *dev2;

	choose(rt);
	gpu = open_gpu(rt, 0);
	other = open_gpu(rt, 1);
	stub->device = 0;
	assert_int_equal(gkv_mem_alloc(g, 3 << 20, &mem), 0);
	assert_int_equal(gkv_gpu_map(gpu, mem, &dev), 0);
	/* Another address of the same memory. */
	assert_ptr_not_equal(dev, gkv_mem_addr(mem));
	strcpy(dev, "from the device");
	assert_string_equal(gkv_mem_addr(mem), "from the device");
	assert_says(gkv_gpu_map(gpu, mem, &dev2), -EEXIST, "already");
	assert_null(dev2);
	/* Of two devices the one that has it goes first. */
	assert_int_equal(gkv_gpu_map(other, mem, &dev2), 0);
	assert_int_equal(stub->registered, 1);
	assert_says(gkv_gpu_close(gpu), -EBUSY, "0 queues and 1 mappings");
	assert_int_equal(gkv_gpu_unmap(gpu, mem), 0);
	assert_says(gkv_gpu_unmap(gpu, mem), -ENOENT, "no such memory");
	assert_int_equal(gkv_gpu_close(gpu), 0);
	assert_int_equal(stub->registered, 1);
	strcpy(dev2, "still");
	assert_string_equal(gkv_mem_addr(mem), "still");
	assert_int_equal(gkv_gpu_unmap(other, mem), 0);
	assert_int_equal(stub->registered, 0);
	stub->fail = reg;
	stub->code = 712;
	assert_says(gkv_gpu_map(other, mem, &dev), -EEXIST, "cannot register");
	stub->fail = addr;
	stub->code = 1;
	assert_says(gkv_gpu_map(other, mem, &dev), -EINVAL, "no address on the device");
	assert_null(dev);
	stub->fail = NULL;
	assert_int_equal(gkv_gpu_map(other, NULL, &dev), -EINVAL);
	assert_int_equal(gkv_gpu_map(other, mem, NULL), -EINVAL);
	assert_int_equal(gkv_gpu_close(other), 0);
	assert_int_equal(gkv_mem_free(mem), 0);
	assert_clean();
}

static void test_map(void **state)
{
	(void)state;
	map_on(GKV_GPU_CUDA, "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2");
	map_on(GKV_GPU_HIP, "hipHostRegister", "hipHostGetDevicePointer");
}

/* ---- Queues ---- */

static struct gkv_qp *polled(uint32_t mode)
{
	struct gkv_qp_opts o = { .depth = DEPTH, .flags = GKV_QP_POLLED, .mode = mode };

	return queue_of(o);
}

/* Commands from "device code", answered by the fake daemon, around the ring and over. */
static void exchange(struct gkv_dev_queue *q, struct gkv_qp *qp, unsigned int n)
{
	struct gkv_dev_cmd c;
	struct gkv_dev_result r;
	struct gkv_sqe sqe;
	gkv_dev_token t;

	for (unsigned int i = 0; i < n; i++) {
		c = gkv_dev_exist(1, i, 77, 16);
		t = gkv_dev_submit(q, &c);
		assert_int_not_equal(t, GKV_DEV_NONE);
		assert_true(fake_fetch(&fake, gkv_qp_id(qp), &sqe));
		assert_int_equal(sqe.opcode, GKV_EXIST);
		assert_int_equal(gkv_dev_poll(q, t, &r), GKV_DEV_PENDING);
		fake_post(&fake, gkv_qp_id(qp), sqe.cid, 0, 1000 + i, 0);
		assert_int_equal(gkv_dev_wait(q, t, 5000 * MS, &r), GKV_DEV_DONE);
		assert_int_equal(r.len, 1000 + i);
	}
}

static void refuse_queue(struct gkv_gpu *gpu, struct gkv_qp *qp, const char *call, const char *says)
{
	struct gkv_dev_queue *q = (void *)1;
	struct gkv_cmd c = exist(1);
	struct gkv_sqe sqe;
	struct gkv_comp comp;

	stub->fail = call;
	stub->code = 2;
	assert_says(gkv_gpu_queue(gpu, qp, NULL, &q), -ENOMEM, says);
	assert_null(q);
	stub->fail = NULL;
	assert_int_equal(stub->registered, 0);
	assert_int_equal(stub->allocated, 0);
	/* The host has it as before. */
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, gkv_qp_id(qp), &sqe));
	fake_post(&fake, gkv_qp_id(qp), sqe.cid, 0, 0, 0);
	assert_int_equal(gkv_poll(qp, &comp, 1), 1);
	assert_int_equal(gkv_qp_reset(qp), 0);
}

static void queue_on(uint32_t rt, const char *const calls[4])
{
	struct gkv_gpu *gpu, *other;
	struct gkv_dev_queue *q, *q2, *again;
	struct gkv_cmd c = exist(1);
	struct gkv_qp *qp, *qp2, *wakes;

	choose(rt);
	gpu = open_gpu(rt, 0);
	qp = polled(0);
	qp2 = polled(0);
	wakes = queue_of((struct gkv_qp_opts){ .depth = DEPTH });
	assert_says(gkv_gpu_queue(gpu, wakes, NULL, &q), -EINVAL, "GKV_QP_POLLED");
	assert_null(q);
	assert_int_equal(stub->registered, 0);
	/* F19: what the device cannot have mapped is refused at set-up. */
	refuse_queue(gpu, qp, calls[0], "cannot register");
	refuse_queue(gpu, qp, calls[1], "no address");
	refuse_queue(gpu, qp, calls[2], "device memory for a queue");
	refuse_queue(gpu, qp, calls[3], "cannot copy");

	assert_int_equal(gkv_gpu_queue(gpu, qp, NULL, &q), 0);
	assert_int_equal(q->ticks_per_us, rt == GKV_GPU_CUDA ? 1000 : 100);
	assert_true(stub->has(q->sq) && stub->has(q->cq) && stub->has(q->sq_db) &&
		    stub->has(q->cq_db) && stub->has(q->stopped) && stub->has(q->ctl));
	/* The clock here is that of C. */
	q->ticks_per_us = 1000;
	exchange(q, qp, 3 * DEPTH);
	assert_int_equal(gkv_submit(qp, &c, 1), -EBUSY);
	assert_says(gkv_gpu_queue(gpu, qp, NULL, &again), -EBUSY, "until it is reset");
	/* Its doorbells are those of the session: mapped once, for both. */
	assert_int_equal(stub->registered, 2);
	other = open_gpu(rt, 1);
	stub->device = 0;
	assert_int_equal(gkv_gpu_queue(other, qp2, NULL, &q2), 0);
	assert_int_equal(stub->registered, 3);
	q2->ticks_per_us = 1000;
	exchange(q2, qp2, DEPTH);
	/* What the daemon and the keeper tell a kernel gets there. */
	fake_stop_qp(&fake, gkv_qp_id(qp2), GKV_STOPPED_RECORD);
	assert_int_equal(*q2->stopped, GKV_STOPPED_RECORD);
	assert_false(q2->ctl->lost || q2->ctl->away);

	/* F11: after a reset it is as new, in the same place. */
	assert_int_equal(gkv_qp_reset(qp), 0);
	assert_int_equal(gkv_gpu_queue(gpu, qp, NULL, &again), 0);
	assert_ptr_equal(again, q);
	assert_int_equal(stub->registered, 3);
	q->ticks_per_us = 1000;
	exchange(q, qp, DEPTH + 1);
	assert_says(gkv_gpu_close(gpu), -EBUSY, "1 queues and 0 mappings");
	assert_int_equal(gkv_gpu_queue_free(gpu, qp), 0);
	assert_says(gkv_gpu_queue_free(gpu, qp), -ENOENT, "no such queue pair");
	/* The doorbells were mapped through the device that is closed first. */
	assert_int_equal(gkv_gpu_close(gpu), 0);
	assert_int_equal(stub->registered, 2);
	assert_int_equal(gkv_gpu_queue_free(other, qp2), 0);
	assert_int_equal(gkv_gpu_close(other), 0);
	assert_clean();
	assert_int_equal(gkv_gpu_queue(NULL, NULL, NULL, &q), -EINVAL);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	assert_int_equal(gkv_qp_destroy(qp2), 0);
	assert_int_equal(gkv_qp_destroy(wakes), 0);
}

static void test_queue(void **state)
{
	static const char *const cuda[] = { "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2",
					    "cuMemAlloc_v2", "cuStreamSynchronize" };
	static const char *const hip[] = { "hipHostRegister", "hipHostGetDevicePointer",
					   "hipMalloc", "hipMemcpyAsync" };

	(void)state;
	queue_on(GKV_GPU_CUDA, cuda);
	queue_on(GKV_GPU_HIP, hip);
}

/* ---- Memory of the device ---- */

/* Parts in VRAM: the caller has their addresses, and the rest is mapped. */
static void test_parts(void **state)
{
	struct gkv_gpu_parts parts = { .size = sizeof(parts) };
	struct gkv_dev_queue *q;
	struct gkv_qp *qp, *plain;
	struct gkv_gpu *gpu;
	struct fake_qp *fq;

	(void)state;
	choose(GKV_GPU_CUDA);
	gpu = open_gpu(GKV_GPU_CUDA, 0);
	qp = polled(GKV_MODE_SQ | GKV_MODE_CQ | GKV_MODE_DB);
	fq = fake_qp(&fake, gkv_qp_id(qp));
	assert_says(gkv_gpu_queue(gpu, qp, NULL, &q), -EINVAL, "SQ: in VRAM");
	parts.sq = fq->sq;
	parts.cq = fq->cq;
	assert_says(gkv_gpu_queue(gpu, qp, &parts, &q), -EINVAL, "doorbells: in VRAM");
	parts.db = fq->sq_db;
	parts.size--;
	assert_says(gkv_gpu_queue(gpu, qp, &parts, &q), -EINVAL, "size is not set");
	parts.size++;
	plain = polled(0);
	assert_says(gkv_gpu_queue(gpu, plain, &parts, &q), -EINVAL, "SQ: in host memory");
	assert_int_equal(stub->registered, 0);
	assert_int_equal(gkv_gpu_queue(gpu, qp, &parts, &q), 0);
	/* Only the record and the control words. */
	assert_int_equal(stub->registered, 1);
	assert_ptr_equal(q->sq, fq->sq);
	assert_ptr_equal(q->cq_db, fq->cq_db);
	exchange(q, qp, 2 * DEPTH);
	assert_int_equal(gkv_gpu_queue_free(gpu, qp), 0);
	assert_int_equal(gkv_gpu_close(gpu), 0);
	assert_clean();
	assert_int_equal(gkv_qp_destroy(qp), 0);
	assert_int_equal(gkv_qp_destroy(plain), 0);
}

static void test_import_cuda(void **state)
{
	char *const dev = (char *)0x7f1230200000;
	struct gkv_mem *mem = (void *)1;
	struct gkv_gpu *gpu;

	(void)state;
	choose(GKV_GPU_CUDA);
	gpu = open_gpu(GKV_GPU_CUDA, 0);
	assert_int_equal(gkv_gpu_import(gpu, g, dev, 1 << 20, 0, &mem), 0);
	assert_int_equal(gkv_mem_iova(mem), (uintptr_t)dev);
	assert_int_equal(stub->sync_memops, (uintptr_t)dev);
	assert_int_equal(stub->exported, (uintptr_t)dev);
	assert_int_equal(stub->export_len, 1 << 20);
	assert_int_equal(fakedrv.import.offset, 0);
	assert_int_equal(fakedrv.import.len, 1 << 20);
	/* It is no longer open here: the number is free again. */
	assert_true(fcntl(fakedrv.import.dmabuf, F_GETFD) < 0 || fakedrv_is(fakedrv.import.dmabuf));
	/* It is the GPU's already. */
	assert_says(gkv_gpu_map(gpu, mem, (void **)&mem), -EINVAL, "region of /dev/gkv");
	assert_says(gkv_gpu_import(gpu, g, dev + 1, 4096, 0, &mem), -EINVAL, "page size");
	assert_null(mem);
	assert_says(gkv_gpu_import(gpu, g, dev, 5000, 0, &mem), -EINVAL, "page size");
	assert_says(gkv_gpu_import(gpu, g, NULL, 4096, 0, &mem), -EINVAL, "page size");
	assert_says(gkv_gpu_import(gpu, g, dev, 0, 0, &mem), -EINVAL, "0 bytes");
	stub->fail = "cuPointerSetAttribute";
	stub->code = 1;
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EINVAL, "SYNC_MEMOPS");
	stub->fail = "cuMemGetHandleForAddressRange";
	stub->code = 801;
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "as a dma-buf");
	stub->fail = NULL;
	fakedrv.providers[0].err = fakedrv.providers[1].err = EREMOTEIO;
	fakedrv.providers[0].why = fakedrv.providers[1].why = GKVDRV_WHY_ADDRESS;
	fakedrv.providers[0].text = fakedrv.providers[1].text = "lies elsewhere";
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EREMOTEIO, "lies elsewhere");
	assert_int_equal(gkv_gpu_close(gpu), 0);
	/* A device whose kernels could read too early, and one that cannot export. */
	stub->ordering = 0;
	gpu = open_gpu(GKV_GPU_CUDA, 0);
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "WRITES_ORDERING");
	assert_int_equal(gkv_gpu_close(gpu), 0);
	stub->dmabuf = 0;
	gpu = open_gpu(GKV_GPU_CUDA, 0);
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "DMA_BUF_SUPPORTED");
	assert_null(mem);
	assert_int_equal(gkv_gpu_close(gpu), 0);
	assert_clean();
}

static void test_import_hip(void **state)
{
	char *const dev = (char *)0x7f1230200000;
	struct gkv_mem *mem;
	struct gkv_gpu *gpu;

	(void)state;
	choose(GKV_GPU_HIP);
	gpu = open_gpu(GKV_GPU_HIP, 1);
	stub->device = 0;
	/* The dma-buf is of the whole allocation: the offset is the runtime's. */
	assert_int_equal(gkv_gpu_import(gpu, g, dev + 0x4000, 0x8000, 0, &mem), 0);
	assert_int_equal(gkv_mem_iova(mem), (uintptr_t)dev + 0x4000);
	assert_int_equal(fakedrv.import.offset, 0x3000);
	assert_int_equal(fakedrv.import.len, 0x8000);
	assert_says(gkv_gpu_import(gpu, g, dev + 0xff000, 0x2000, 0, &mem), -EINVAL,
		    "not one allocation");
	stub->pool_flags = 4;
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "coarse-grained");
	stub->pool_flags = 8;
	assert_int_equal(gkv_gpu_import(gpu, g, dev + 0x10000, 4096, 0, &mem), 0);
	/* A runtime of before it told that. */
	stub->info_size = 48;
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "how the memory is");
	stub->info_size = 64;
	stub->no_info = 1;
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "how the memory is");
	stub->no_info = 0;
	stub->fail = "hsa_amd_portable_export_dmabuf";
	stub->code = 0x1000;
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "HSA error 0x1000");
	stub->fail = NULL;
	assert_int_equal(gkv_gpu_close(gpu), 0);
	stub->large_bar = 0;
	gpu = open_gpu(GKV_GPU_HIP, 0);
	assert_says(gkv_gpu_import(gpu, g, dev, 4096, 0, &mem), -EOPNOTSUPP, "no BAR");
	assert_int_equal(gkv_gpu_close(gpu), 0);
	assert_clean();
}

static int end(void **state)
{
	(void)state;
	gpu_stub_clean();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_open),
		cmocka_unit_test_setup_teardown(test_map, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(test_parts, setup_vram, teardown_vram),
		cmocka_unit_test_setup_teardown(test_import_cuda, setup_vram, teardown_vram),
		cmocka_unit_test_setup_teardown(test_import_hip, setup_vram, teardown_vram),
	};

	(void)argv;
	if (argc > 1)
		return just_open();
	return cmocka_run_group_tests(tests, NULL, end);
}
