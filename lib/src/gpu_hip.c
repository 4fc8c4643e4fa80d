/* SPDX-License-Identifier: MIT */
/*
 * AMD's runtime: HIP, and HSA below it for what HIP does not tell in all its versions alike,
 * which is how memory is cached, and its dma-buf.
 */
#include <errno.h>
#include <string.h>

#include "gpu.h"

/* hipDeviceAttribute..., and so on. */
#define ATTR_CAN_MAP_HOST_MEMORY	3
#define ATTR_IS_LARGE_BAR		10011
#define ATTR_CAN_USE_STREAM_WAIT_VALUE	10013
#define ATTR_WALL_CLOCK_RATE		10017	/* kHz */
#define HOST_REGISTER_PORTABLE		0x1
#define HOST_REGISTER_MAPPED		0x2
#define MEMCPY_HOST_TO_DEVICE		1
#define MEMCPY_DEVICE_TO_HOST		2
#define STREAM_NON_BLOCKING		1
#define STREAM_WAIT_VALUE_EQ		1
#define ERROR_NOT_READY			600
/* HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_... */
#define POOL_FINE_GRAINED		2u
#define POOL_EXTENDED_FINE_GRAINED	8u

/* hsa_amd_pointer_info_t; it only grows, and says how far it was filled in. */
struct pointer_info {
	uint32_t size;
	int type;
	void *agent_base, *host_base;
	size_t len;
	void *user_data;
	uint64_t agent;
	uint32_t global_flags;
	bool registered;
};

static struct {
	int (*init)(unsigned int flags);
	const char *(*error_name)(int code);
	int (*device_count)(int *n);
	int (*get_device)(int *dev);
	int (*set_device)(int dev);
	int (*attribute)(int *value, int attr, int dev);
	int (*stream_new)(void **stream, unsigned int flags);
	int (*stream_free)(void *stream);
	int (*stream_sync)(void *stream);
	int (*host_register)(void *p, size_t len, unsigned int flags);
	int (*host_unregister)(void *p);
	int (*host_address)(void **dev, void *p, unsigned int flags);
	int (*alloc)(void **dev, size_t len);
	int (*free)(void *dev);
	int (*copy)(void *to, const void *from, size_t len, int kind, void *stream);
	/* Where the runtime has them all. */
	int (*write_value)(void *stream, void *dev, uint32_t v, unsigned int flags);
	int (*wait_value)(void *stream, void *dev, uint32_t v, unsigned int flags, uint32_t mask);
	int (*stream_query)(void *stream);
	int (*capturing)(void *stream, int *status);
} hip;

static struct {
	int (*pointer_info)(const void *p, struct pointer_info *info, void *(*alloc)(size_t),
			    uint32_t *n, void **agents);
	int (*export)(const void *p, size_t len, int *fd, uint64_t *offset);
} hsa;

static const struct gpu_symbol hip_symbols[] = {
	{ "hipInit", &hip.init },
	{ "hipGetErrorName", &hip.error_name },
	{ "hipGetDeviceCount", &hip.device_count },
	{ "hipGetDevice", &hip.get_device },
	{ "hipSetDevice", &hip.set_device },
	{ "hipDeviceGetAttribute", &hip.attribute },
	{ "hipStreamCreateWithFlags", &hip.stream_new },
	{ "hipStreamDestroy", &hip.stream_free },
	{ "hipStreamSynchronize", &hip.stream_sync },
	{ "hipHostRegister", &hip.host_register },
	{ "hipHostUnregister", &hip.host_unregister },
	{ "hipHostGetDevicePointer", &hip.host_address },
	{ "hipMalloc", &hip.alloc },
	{ "hipFree", &hip.free },
	{ "hipMemcpyAsync", &hip.copy },
	{ NULL, NULL },
};

static const struct gpu_symbol order_symbols[] = {
	{ "hipStreamWriteValue32", &hip.write_value },
	{ "hipStreamWaitValue32", &hip.wait_value },
	{ "hipStreamQuery", &hip.stream_query },
	{ "hipStreamIsCapturing", &hip.capturing },
	{ NULL, NULL },
};

static const struct gpu_symbol hsa_symbols[] = {
	{ "hsa_amd_pointer_info", &hsa.pointer_info },
	{ "hsa_amd_portable_export_dmabuf", &hsa.export },
	{ NULL, NULL },
};

static const char *const hip_files[] = { "libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6",
					 "libamdhip64.so.5", NULL };
static const char *const hsa_files[] = { "libhsa-runtime64.so.1", "libhsa-runtime64.so", NULL };
static bool loaded, have_hsa, have_order;

static int failed(int code, const char *what)
{
	return gkvi_gpu_err(code, hip.error_name(code), "HIP: %s", what);
}

static int attribute(int attr, int dev)
{
	int v = 0;

	return hip.attribute(&v, attr, dev) ? 0 : v;
}

static int check(struct gkv_gpu *gpu)
{
	int khz = attribute(ATTR_WALL_CLOCK_RATE, gpu->device);

	if (!attribute(ATTR_CAN_MAP_HOST_MEMORY, gpu->device))
		return gkvi_err(-EOPNOTSUPP, "HIP device %d cannot use registered memory of the "
					     "host", gpu->device);
	if (khz < 500)
		return gkvi_err(-EOPNOTSUPP, "HIP device %d does not say how fast its clock runs "
					     "(WallClockRate), by which timeouts are measured",
				gpu->device);
	gpu->ticks_per_us = ((uint32_t)khz + 500) / 1000;
	/* Others reach all of its memory only through a BAR of that size. */
	if (have_hsa && attribute(ATTR_IS_LARGE_BAR, gpu->device))
		gpu->flags |= GKV_GPU_DMABUF;
	if (!have_order)
		gpu->no_order = "the runtime is too old: it has no hipStreamWaitValue32";
	else if (!attribute(ATTR_CAN_USE_STREAM_WAIT_VALUE, gpu->device))
		gpu->no_order = "CanUseStreamWaitValue is 0";
	/* GKV_GPU_ORDERED depends on the memory: hip_visible(). */
	return 0;
}

static int hip_enter(struct gkv_gpu *gpu, void **was)
{
	int dev = 0, code = hip.get_device(&dev);

	if (!code)
		code = hip.set_device(gpu->device);
	*was = (void *)(intptr_t)dev;
	return code ? failed(code, "cannot use the device") : 0;
}

static void hip_leave(struct gkv_gpu *gpu, void *was)
{
	(void)gpu;
	hip.set_device((int)(intptr_t)was);
}

static int hip_open(struct gkv_gpu *gpu)
{
	int n = 0, code, ret;
	void *was;

	if (!loaded) {
		ret = gkvi_gpu_load("GKV_LIBHIP", hip_files, "HIP runtime of AMD's GPUs",
				    hip_symbols);
		if (ret)
			return ret;
		loaded = true;
		have_order = !gkvi_gpu_load("GKV_LIBHIP", hip_files, "HIP runtime of AMD's GPUs",
					    order_symbols);
		/* For memory of the device only; what is missing is told then. */
		have_hsa = !gkvi_gpu_load("GKV_LIBHSA", hsa_files, "HSA runtime of AMD's GPUs",
					  hsa_symbols);
	}
	code = hip.init(0);
	if (!code)
		code = hip.device_count(&n);
	if (code)
		return failed(code, "the runtime does not start");
	if (gpu->device < 0 || gpu->device >= n)
		return gkvi_err(-ENODEV, "HIP device %d: there are %d", gpu->device, n);
	ret = check(gpu);
	if (!ret)
		ret = hip_enter(gpu, &was);
	if (ret)
		return ret;
	code = hip.stream_new(&gpu->stream, STREAM_NON_BLOCKING);
	if (code)
		ret = failed(code, "cannot make a stream");
	hip_leave(gpu, was);
	return ret;
}

static void hip_close(struct gkv_gpu *gpu)
{
	void *was;

	if (hip_enter(gpu, &was))
		return;
	hip.stream_free(gpu->stream);
	hip_leave(gpu, was);
}

static int hip_pin(void *addr, size_t len)
{
	int code = hip.host_register(addr, len, HOST_REGISTER_PORTABLE | HOST_REGISTER_MAPPED);

	return code ? failed(code, "cannot register memory of the host") : 0;
}

static void hip_unpin(void *addr)
{
	hip.host_unregister(addr);
}

static int hip_address(void *addr, uint64_t *dev)
{
	void *p = NULL;
	int code = hip.host_address(&p, addr, 0);

	*dev = (uintptr_t)p;
	return code ? failed(code, "registered memory has no address on the device") : 0;
}

static int hip_alloc(size_t len, uint64_t *dev)
{
	void *p = NULL;
	int code = hip.alloc(&p, len);

	*dev = (uintptr_t)p;
	return code ? failed(code, "cannot allocate device memory for a queue") : 0;
}

static void hip_free(uint64_t dev)
{
	hip.free((void *)(uintptr_t)dev);
}

static int hip_copy(struct gkv_gpu *gpu, uint64_t dev, const void *from, size_t len)
{
	int code = hip.copy((void *)(uintptr_t)dev, from, len, MEMCPY_HOST_TO_DEVICE, gpu->stream);

	if (!code)
		code = hip.stream_sync(gpu->stream);
	return code ? failed(code, "cannot copy a queue to the device") : 0;
}

/*
 * Writes over the bus go past the caches of the device. Lines of coarse-grained memory stay
 * in them until a kernel ends: one that runs would read what was there before.
 */
static int hip_visible(struct gkv_gpu *gpu, uint64_t dev, size_t len)
{
	struct pointer_info info = { .size = sizeof(info) };
	int code = hsa.pointer_info((void *)(uintptr_t)dev, &info, NULL, NULL, NULL);

	if (code || info.size < offsetof(struct pointer_info, global_flags) + sizeof(uint32_t))
		return gkvi_err(-EOPNOTSUPP, "HIP device %d: the HSA runtime does not say how the "
					     "memory is cached (error 0x%x)", gpu->device, code);
	if (dev - (uintptr_t)info.agent_base + len > info.len)
		return gkvi_err(-EINVAL, "device memory at 0x%llx, 0x%zx bytes, is not one "
					 "allocation", (unsigned long long)dev, len);
	if (!(info.global_flags & (POOL_FINE_GRAINED | POOL_EXTENDED_FINE_GRAINED)))
		return gkvi_err(-EOPNOTSUPP, "device memory at 0x%llx is coarse-grained: kernels "
					     "would not see what others write; allocate it with "
					     "hipExtMallocWithFlags(hipDeviceMallocUncached)",
				(unsigned long long)dev);
	return 0;
}

static int hip_export(struct gkv_gpu *gpu, uint64_t dev, size_t len, int *fd, uint64_t *offset)
{
	int code;

	*fd = -1;
	*offset = 0;
	code = hsa.export((void *)(uintptr_t)dev, len, fd, offset);
	if (code)
		return gkvi_err(-EOPNOTSUPP, "HIP device %d: cannot export the memory as a dma-buf "
					     "(HSA error 0x%x)", gpu->device, code);
	return 0;
}

/* ---- In stream order ---- */

static int hip_to_device(void *stream, uint64_t dev, const void *host, size_t len)
{
	int code = hip.copy((void *)(uintptr_t)dev, host, len, MEMCPY_HOST_TO_DEVICE, stream);

	return code ? failed(code, "cannot enqueue a copy to the device") : 0;
}

static int hip_to_host(void *stream, void *host, uint64_t dev, size_t len)
{
	int code = hip.copy(host, (void *)(uintptr_t)dev, len, MEMCPY_DEVICE_TO_HOST, stream);

	return code ? failed(code, "cannot enqueue a copy to the host") : 0;
}

static int hip_write32(void *stream, uint64_t dev, uint32_t v)
{
	int code = hip.write_value(stream, (void *)(uintptr_t)dev, v, 0);

	return code ? failed(code, "cannot enqueue a doorbell") : 0;
}

static int hip_wait_bit(void *stream, uint64_t dev, uint32_t bit, bool set)
{
	/* With a mask, equality does for both; what NOR does with one depends on the version. */
	int code = hip.wait_value(stream, (void *)(uintptr_t)dev, set ? bit : 0,
				  STREAM_WAIT_VALUE_EQ, bit);

	return code ? failed(code, "cannot enqueue a wait") : 0;
}

static int hip_idle(void *stream)
{
	int code = hip.stream_query(stream);

	if (code == ERROR_NOT_READY)
		return 0;
	return code ? failed(code, "the stream has failed") : 1;
}

static int hip_capturing(void *stream)
{
	int status = 0, code = hip.capturing(stream, &status);

	return code ? failed(code, "the stream does not say whether it is being captured") :
		      status != 0;
}

static int hip_sync(void *stream)
{
	int code = hip.stream_sync(stream);

	return code ? failed(code, "cannot wait for a stream") : 0;
}

const struct gpu_runtime gkvi_gpu_hip = {
	.name = "HIP",
	.no_dmabuf = "it has no BAR for all of its memory, or the HSA runtime is not there",
	.open = hip_open,
	.close = hip_close,
	.enter = hip_enter,
	.leave = hip_leave,
	.pin = hip_pin,
	.unpin = hip_unpin,
	.address = hip_address,
	.alloc = hip_alloc,
	.free = hip_free,
	.copy = hip_copy,
	.visible = hip_visible,
	.export = hip_export,
	.to_device = hip_to_device,
	.to_host = hip_to_host,
	.write32 = hip_write32,
	.wait_bit = hip_wait_bit,
	.idle = hip_idle,
	.capturing = hip_capturing,
	.sync = hip_sync,
};
