/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA's driver, by its driver API. Programs that use the runtime API are on the same, the
 * primary, context.
 */
#include <errno.h>
#include <string.h>

#include "gpu.h"

/* What cuda.h calls CU_DEVICE_ATTRIBUTE_..., and so on. */
#define ATTR_CAN_MAP_HOST_MEMORY		19
#define ATTR_COMPUTE_CAPABILITY_MAJOR		75
#define ATTR_HOST_REGISTER_SUPPORTED		99
#define ATTR_GPU_DIRECT_RDMA_WRITES_ORDERING	118
#define ATTR_CAN_USE_STREAM_WAIT_VALUE_NOR	123
#define ATTR_DMA_BUF_SUPPORTED			124
#define WRITES_ORDERING_OWNER			100
#define MEMHOSTREGISTER_PORTABLE		0x1
#define MEMHOSTREGISTER_DEVICEMAP		0x2
#define POINTER_ATTRIBUTE_SYNC_MEMOPS		6
#define MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD	1
#define STREAM_NON_BLOCKING			1
#define STREAM_WAIT_VALUE_AND			2
#define STREAM_WAIT_VALUE_NOR			3
#define STREAM_WRITE_VALUE_DEFAULT		0
#define ERROR_NOT_READY				600

static struct {
	int (*init)(unsigned int flags);
	int (*error_name)(int code, const char **name);
	int (*device_count)(int *n);
	int (*device)(int *dev, int ordinal);
	int (*attribute)(int *value, int attr, int dev);
	int (*ctx_retain)(void **ctx, int dev);
	int (*ctx_release)(int dev);
	int (*ctx_push)(void *ctx);
	int (*ctx_pop)(void **ctx);
	int (*stream_new)(void **stream, unsigned int flags);
	int (*stream_free)(void *stream);
	int (*stream_sync)(void *stream);
	int (*host_register)(void *p, size_t len, unsigned int flags);
	int (*host_unregister)(void *p);
	int (*host_address)(uint64_t *dev, void *p, unsigned int flags);
	int (*alloc)(uint64_t *dev, size_t len);
	int (*free)(uint64_t dev);
	int (*copy)(uint64_t to, const void *from, size_t len, void *stream);
	int (*set_attribute)(const void *value, int attr, uint64_t dev);
	int (*export)(void *handle, uint64_t dev, size_t len, int type, unsigned long long flags);
	/* Where the driver has them all. */
	int (*copy_back)(void *to, uint64_t from, size_t len, void *stream);
	int (*write_value)(void *stream, uint64_t dev, uint32_t v, unsigned int flags);
	int (*wait_value)(void *stream, uint64_t dev, uint32_t v, unsigned int flags);
	int (*stream_query)(void *stream);
	int (*capturing)(void *stream, int *status);
} cu;

static const struct gpu_symbol symbols[] = {
	{ "cuInit", &cu.init },
	{ "cuGetErrorName", &cu.error_name },
	{ "cuDeviceGetCount", &cu.device_count },
	{ "cuDeviceGet", &cu.device },
	{ "cuDeviceGetAttribute", &cu.attribute },
	{ "cuDevicePrimaryCtxRetain", &cu.ctx_retain },
	{ "cuDevicePrimaryCtxRelease_v2", &cu.ctx_release },
	{ "cuCtxPushCurrent_v2", &cu.ctx_push },
	{ "cuCtxPopCurrent_v2", &cu.ctx_pop },
	{ "cuStreamCreate", &cu.stream_new },
	{ "cuStreamDestroy_v2", &cu.stream_free },
	{ "cuStreamSynchronize", &cu.stream_sync },
	{ "cuMemHostRegister_v2", &cu.host_register },
	{ "cuMemHostUnregister", &cu.host_unregister },
	{ "cuMemHostGetDevicePointer_v2", &cu.host_address },
	{ "cuMemAlloc_v2", &cu.alloc },
	{ "cuMemFree_v2", &cu.free },
	{ "cuMemcpyHtoDAsync_v2", &cu.copy },
	{ "cuPointerSetAttribute", &cu.set_attribute },
	{ "cuMemGetHandleForAddressRange", &cu.export },
	{ NULL, NULL },
};

static const struct gpu_symbol order_symbols[] = {
	{ "cuMemcpyDtoHAsync_v2", &cu.copy_back },
	{ "cuStreamWriteValue32_v2", &cu.write_value },
	{ "cuStreamWaitValue32_v2", &cu.wait_value },
	{ "cuStreamQuery", &cu.stream_query },
	{ "cuStreamIsCapturing", &cu.capturing },
	{ NULL, NULL },
};

static const char *const files[] = { "libcuda.so.1", NULL };
static bool loaded, have_order;

static int failed(int code, const char *what)
{
	const char *name = NULL;

	cu.error_name(code, &name);
	return gkvi_gpu_err(code, name, "CUDA: %s", what);
}

/* An attribute that the driver does not know is one that the device does not have. */
static int attribute(int attr, int dev)
{
	int v = 0;

	return cu.attribute(&v, attr, dev) ? 0 : v;
}

static int check(struct gkv_gpu *gpu, int dev)
{
	int major = attribute(ATTR_COMPUTE_CAPABILITY_MAJOR, dev);

	if (major < 7)
		return gkvi_err(-EOPNOTSUPP, "CUDA device %d has compute capability %d.x; device "
					     "code needs 7.0", gpu->device, major);
	if (!attribute(ATTR_CAN_MAP_HOST_MEMORY, dev) ||
	    !attribute(ATTR_HOST_REGISTER_SUPPORTED, dev))
		return gkvi_err(-EOPNOTSUPP, "CUDA device %d cannot use registered memory of the "
					     "host", gpu->device);
	if (attribute(ATTR_DMA_BUF_SUPPORTED, dev))
		gpu->flags |= GKV_GPU_DMABUF;
	if (attribute(ATTR_GPU_DIRECT_RDMA_WRITES_ORDERING, dev) >= WRITES_ORDERING_OWNER)
		gpu->flags |= GKV_GPU_ORDERED;
	if (!have_order)
		gpu->no_order = "the driver is too old: it has no cuStreamWaitValue32_v2";
	else if (!attribute(ATTR_CAN_USE_STREAM_WAIT_VALUE_NOR, dev))
		gpu->no_order = "CAN_USE_STREAM_WAIT_VALUE_NOR is 0";
	/* %globaltimer counts nanoseconds. */
	gpu->ticks_per_us = 1000;
	return 0;
}

static int cuda_enter(struct gkv_gpu *gpu, void **was)
{
	int code = cu.ctx_push(gpu->ctx);

	*was = NULL;
	return code ? failed(code, "cannot use the device") : 0;
}

static void cuda_leave(struct gkv_gpu *gpu, void *was)
{
	(void)gpu;
	cu.ctx_pop(&was);
}

static int make_stream(struct gkv_gpu *gpu)
{
	void *was;
	int code, ret = cuda_enter(gpu, &was);

	if (ret)
		return ret;
	code = cu.stream_new(&gpu->stream, STREAM_NON_BLOCKING);
	if (code)
		ret = failed(code, "cannot make a stream");
	cuda_leave(gpu, was);
	return ret;
}

static int cuda_open(struct gkv_gpu *gpu)
{
	int n = 0, dev = 0, code, ret;

	if (!loaded) {
		ret = gkvi_gpu_load("GKV_LIBCUDA", files, "driver of NVIDIA's GPUs", symbols);
		if (ret)
			return ret;
		loaded = true;
		have_order = !gkvi_gpu_load("GKV_LIBCUDA", files, "driver of NVIDIA's GPUs",
					    order_symbols);
	}
	code = cu.init(0);
	if (!code)
		code = cu.device_count(&n);
	if (code)
		return failed(code, "the driver does not start");
	if (gpu->device < 0 || gpu->device >= n)
		return gkvi_err(-ENODEV, "CUDA device %d: there are %d", gpu->device, n);
	code = cu.device(&dev, gpu->device);
	if (code)
		return failed(code, "no such device");
	ret = check(gpu, dev);
	if (ret)
		return ret;
	code = cu.ctx_retain(&gpu->ctx, dev);
	if (code)
		return failed(code, "no context on the device");
	ret = make_stream(gpu);
	if (ret)
		cu.ctx_release(dev);
	return ret;
}

static void cuda_close(struct gkv_gpu *gpu)
{
	void *was;
	int dev;

	if (!cuda_enter(gpu, &was)) {
		cu.stream_free(gpu->stream);
		cuda_leave(gpu, was);
	}
	if (!cu.device(&dev, gpu->device))
		cu.ctx_release(dev);
}

static int cuda_pin(void *addr, size_t len)
{
	const unsigned int flags = MEMHOSTREGISTER_PORTABLE | MEMHOSTREGISTER_DEVICEMAP;
	int code = cu.host_register(addr, len, flags);

	return code ? failed(code, "cannot register memory of the host") : 0;
}

static void cuda_unpin(void *addr)
{
	cu.host_unregister(addr);
}

static int cuda_address(void *addr, uint64_t *dev)
{
	int code = cu.host_address(dev, addr, 0);

	return code ? failed(code, "registered memory has no address on the device") : 0;
}

static int cuda_alloc(size_t len, uint64_t *dev)
{
	int code = cu.alloc(dev, len);

	return code ? failed(code, "cannot allocate device memory for a queue") : 0;
}

static void cuda_free(uint64_t dev)
{
	cu.free(dev);
}

/* On a stream of its own: others may be waiting for kernels that never end. */
static int cuda_copy(struct gkv_gpu *gpu, uint64_t dev, const void *from, size_t len)
{
	int code = cu.copy(dev, from, len, gpu->stream);

	if (!code)
		code = cu.stream_sync(gpu->stream);
	return code ? failed(code, "cannot copy a queue to the device") : 0;
}

/*
 * What a disk writes into the device's memory has to be there for a kernel that has seen the
 * completion in host memory, without a flush, which only the host could do.
 */
static int cuda_visible(struct gkv_gpu *gpu, uint64_t dev, size_t len)
{
	(void)dev;
	(void)len;
	if (gpu->flags & GKV_GPU_ORDERED)
		return 0;
	return gkvi_err(-EOPNOTSUPP, "CUDA device %d does not order writes of other devices before "
				     "what a kernel reads next (GPU_DIRECT_RDMA_WRITES_ORDERING is "
				     "below OWNER): use host memory", gpu->device);
}

static int cuda_export(struct gkv_gpu *gpu, uint64_t dev, size_t len, int *fd, uint64_t *offset)
{
	unsigned int on = 1;
	int code;

	(void)gpu;
	*fd = -1;
	*offset = 0;
	/* Without it, a cudaMemcpy() may return before it is done, and a Store read too early. */
	code = cu.set_attribute(&on, POINTER_ATTRIBUTE_SYNC_MEMOPS, dev);
	if (code)
		return failed(code, "cannot set SYNC_MEMOPS of the memory");
	code = cu.export(fd, dev, len, MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	return code ? failed(code, "cannot export the memory as a dma-buf") : 0;
}

/* ---- In stream order ---- */

static int cuda_to_device(void *stream, uint64_t dev, const void *host, size_t len)
{
	int code = cu.copy(dev, host, len, stream);

	return code ? failed(code, "cannot enqueue a copy to the device") : 0;
}

static int cuda_to_host(void *stream, void *host, uint64_t dev, size_t len)
{
	int code = cu.copy_back(host, dev, len, stream);

	return code ? failed(code, "cannot enqueue a copy to the host") : 0;
}

static int cuda_write32(void *stream, uint64_t dev, uint32_t v)
{
	/* Not NO_MEMORY_BARRIER: what was written before is there first. */
	int code = cu.write_value(stream, dev, v, STREAM_WRITE_VALUE_DEFAULT);

	return code ? failed(code, "cannot enqueue a doorbell") : 0;
}

static int cuda_wait_bit(void *stream, uint64_t dev, uint32_t bit, bool set)
{
	/* Until (word & value) is not 0, and until ~(word | value) is not. */
	int code = set ? cu.wait_value(stream, dev, bit, STREAM_WAIT_VALUE_AND) :
			 cu.wait_value(stream, dev, ~bit, STREAM_WAIT_VALUE_NOR);

	return code ? failed(code, "cannot enqueue a wait") : 0;
}

static int cuda_idle(void *stream)
{
	int code = cu.stream_query(stream);

	if (code == ERROR_NOT_READY)
		return 0;
	return code ? failed(code, "the stream has failed") : 1;
}

static int cuda_capturing(void *stream)
{
	int status = 0, code = cu.capturing(stream, &status);

	return code ? failed(code, "the stream does not say whether it is being captured") :
		      status != 0;
}

static int cuda_sync(void *stream)
{
	int code = cu.stream_sync(stream);

	return code ? failed(code, "cannot wait for a stream") : 0;
}

const struct gpu_runtime gkvi_gpu_cuda = {
	.name = "CUDA",
	.no_dmabuf = "DMA_BUF_SUPPORTED is 0 (NVIDIA's open kernel modules can)",
	.open = cuda_open,
	.close = cuda_close,
	.enter = cuda_enter,
	.leave = cuda_leave,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.address = cuda_address,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.copy = cuda_copy,
	.visible = cuda_visible,
	.export = cuda_export,
	.to_device = cuda_to_device,
	.to_host = cuda_to_host,
	.write32 = cuda_write32,
	.wait_bit = cuda_wait_bit,
	.idle = cuda_idle,
	.capturing = cuda_capturing,
	.sync = cuda_sync,
};
