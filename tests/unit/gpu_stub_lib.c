/* SPDX-License-Identifier: MIT */
/*
 * libcuda.so.1, or with STUB_HIP libamdhip64.so and libhsa-runtime64.so, as far as libgkv uses
 * them; see gpu_stub.h. With STUB_OLD without the newest function, with STUB_NO_MEMOPS without
 * those by which streams wait for memory.
 */
#define GPU_STUB_LIB
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu_stub.h"

#define MAX 64
#define PUBLIC __attribute__((visibility("default")))
#define FAILS(f) (gpu_stub.fail && !strcmp(gpu_stub.fail, f) && !gpu_stub.skip)
/* The name of the function that it is in. */
#define FAIL() do {							\
	if (gpu_stub.fail && !strcmp(gpu_stub.fail, __func__) &&	\
	    !(gpu_stub.skip && gpu_stub.skip--))			\
		return gpu_stub.code;					\
} while (0)

static int has(const void *p);
static void *program_stream(void);
static void program_free(void *stream);
static void program_sync(void *stream);
static void launch(void *stream, void (*kernel)(void *), void *arg);

PUBLIC struct gpu_stub gpu_stub = {
	.has = has,
	.devices = 2, .major = 9, .map_host = 1, .dmabuf = 1, .ordering = 100,
	.khz = 100000, .large_bar = 1, .pool_flags = 2, .info_size = 64, .can_wait = 1,
	.stream_new = program_stream, .stream_free = program_free, .stream_sync = program_sync,
	.launch = launch,
};

static struct range {
	char *addr, *dev;
	size_t len;
} ranges[MAX], blocks[MAX];

static int has(const void *p)
{
	for (int i = 0; i < MAX; i++)
		if (ranges[i].addr && (const char *)p >= ranges[i].dev &&
		    (const char *)p < ranges[i].dev + ranges[i].len)
			return 1;
	return 0;
}

static struct range *find(struct range *t, const void *addr)
{
	for (int i = 0; i < MAX; i++)
		if (t[i].addr == addr)
			return &t[i];
	return NULL;
}

static int reg(void *p, size_t len)
{
	struct range *r = find(ranges, NULL);

	if ((uintptr_t)p % 4096 || len % 4096 || !len)
		return 1;
	for (int i = 0; i < MAX; i++)
		if (ranges[i].addr && ranges[i].addr < (char *)p + len &&
		    (char *)p < ranges[i].addr + ranges[i].len)
			return 712;
	/* The same memory a second time: a mapping of it that is shared is not moved. */
	r->dev = mremap(p, 0, len, MREMAP_MAYMOVE);
	if (r->dev == MAP_FAILED)
		return 1;
	r->addr = p;
	r->len = len;
	gpu_stub.registered++;
	return 0;
}

static int unreg(void *p)
{
	struct range *r = find(ranges, p);

	if (!p || !r)
		return 713;
	munmap(r->dev, r->len);
	r->addr = NULL;
	gpu_stub.registered--;
	return 0;
}

static int address(void **dev, const void *p)
{
	const struct range *r = find(ranges, p);

	if (!p || !r)
		return 713;
	*dev = r->dev;
	return 0;
}

static int new_block(void **dev, size_t len)
{
	struct range *r = find(blocks, NULL);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 2;
	memset(p, 0xee, len);
	r->addr = p;
	r->len = len;
	gpu_stub.allocated++;
	*dev = p;
	return 0;
}

static int free_block(void *p)
{
	struct range *r = find(blocks, p);

	if (!p || !r)
		return 1;
	munmap(p, r->len);
	r->addr = NULL;
	gpu_stub.allocated--;
	return 0;
}

#include "gpu_stub_stream.h"

static int export(uint64_t dev, size_t len, int *fd)
{
	gpu_stub.exported = dev;
	gpu_stub.export_len = (uint32_t)len;
	*fd = memfd_create("stub", 0);
	return *fd < 0 || ftruncate(*fd, (off_t)len);
}

#ifndef STUB_HIP

/* Calls that need a current context. */
#define FAIL_CTX() do { FAIL(); if (!gpu_stub.entered) return 201; } while (0)

PUBLIC int cuInit(unsigned int flags)
{
	FAIL();
	return flags ? 1 : 0;
}

PUBLIC int cuGetErrorName(int code, const char **name)
{
	*name = code == 712 ? "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" :
		code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
	return *name ? 0 : 1;
}

PUBLIC int cuDeviceGetCount(int *n)
{
	FAIL();
	*n = gpu_stub.devices;
	return 0;
}

PUBLIC int cuDeviceGet(int *dev, int ordinal)
{
	FAIL();
	*dev = 10 + ordinal;
	return 0;
}

PUBLIC int cuDeviceGetAttribute(int *v, int attr, int dev)
{
	FAIL();
	if (dev < 10 || dev >= 10 + gpu_stub.devices)
		return 101;
	switch (attr) {
	case 75:
		*v = gpu_stub.major;
		return 0;
	case 19:
	case 99:
		*v = gpu_stub.map_host;
		return 0;
	case 118:
		*v = gpu_stub.ordering;
		return 0;
	case 123:
		*v = gpu_stub.can_wait;
		return 0;
	case 124:
		*v = gpu_stub.dmabuf;
		return 0;
	}
	return 1;
}

PUBLIC int cuDevicePrimaryCtxRetain(void **ctx, int dev)
{
	FAIL();
	gpu_stub.contexts++;
	*ctx = (void *)(uintptr_t)(0x1000 + dev);
	return 0;
}

PUBLIC int cuDevicePrimaryCtxRelease_v2(int dev)
{
	(void)dev;
	gpu_stub.contexts--;
	return 0;
}

PUBLIC int cuCtxPushCurrent_v2(void *ctx)
{
	FAIL();
	if ((uintptr_t)ctx < 0x1000)
		return 201;
	gpu_stub.entered++;
	return 0;
}

PUBLIC int cuCtxPopCurrent_v2(void **ctx)
{
	*ctx = NULL;
	gpu_stub.entered--;
	return 0;
}

PUBLIC int cuStreamCreate(void **stream, unsigned int flags)
{
	FAIL_CTX();
	gpu_stub.streams++;
	*stream = new_stream(flags != 1);
	return flags > 1;
}

PUBLIC int cuStreamDestroy_v2(void *stream)
{
	FAIL_CTX();
	gpu_stub.streams--;
	return free_stream(stream);
}

PUBLIC int cuStreamSynchronize(void *stream)
{
	if (FAILS(__func__))
		give_up(stream);
	FAIL_CTX();
	return sync_stream(stream);
}

PUBLIC int cuMemHostRegister_v2(void *p, size_t len, unsigned int flags)
{
	FAIL_CTX();
	return flags == 3 ? reg(p, len) : 1;
}

PUBLIC int cuMemHostUnregister(void *p)
{
	FAIL_CTX();
	return unreg(p);
}

PUBLIC int cuMemHostGetDevicePointer_v2(uint64_t *dev, void *p, unsigned int flags)
{
	void *at = NULL;
	int ret;

	FAIL_CTX();
	ret = flags ? 1 : address(&at, p);
	*dev = (uintptr_t)at;
	return ret;
}

PUBLIC int cuMemAlloc_v2(uint64_t *dev, size_t len)
{
	void *at = NULL;
	int ret;

	FAIL_CTX();
	ret = new_block(&at, len);
	*dev = (uintptr_t)at;
	return ret;
}

PUBLIC int cuMemFree_v2(uint64_t dev)
{
	FAIL_CTX();
	return free_block((void *)(uintptr_t)dev);
}

PUBLIC int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream)
{
	FAIL_CTX();
	return copy_to(stream, (void *)(uintptr_t)to, from, len);
}

PUBLIC int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream)
{
	FAIL_CTX();
	return copy_from(stream, to, (void *)(uintptr_t)from, len);
}

PUBLIC int cuMemsetD8Async(uint64_t dev, unsigned char c, size_t len, void *stream)
{
	FAIL_CTX();
	return set_memory(stream, (void *)(uintptr_t)dev, c, len);
}

PUBLIC int cuStreamWriteValue32_v2(void *stream, uint64_t dev, uint32_t v, unsigned int flags)
{
	FAIL_CTX();
	return write_value(stream, (void *)(uintptr_t)dev, v, flags);
}

#ifdef STUB_NO_MEMOPS
#define cuStreamWaitValue32_v2 cuSomethingElse2
#endif
PUBLIC int cuStreamWaitValue32_v2(void *stream, uint64_t dev, uint32_t v, unsigned int flags)
{
	FAIL_CTX();
	return wait_value(stream, (void *)(uintptr_t)dev, v, flags, ~0u);
}

PUBLIC int cuStreamQuery(void *stream)
{
	FAIL_CTX();
	return query(stream);
}

PUBLIC int cuStreamIsCapturing(void *stream, int *status)
{
	FAIL_CTX();
	*status = gpu_stub.capturing;
	return is_stream(stream) ? 0 : 400;
}

PUBLIC int cuPointerSetAttribute(const void *value, int attr, uint64_t dev)
{
	FAIL_CTX();
	if (attr != 6 || *(const unsigned int *)value != 1)
		return 1;
	gpu_stub.sync_memops = dev;
	return 0;
}

#ifdef STUB_OLD
#define cuMemGetHandleForAddressRange cuSomethingElse
#endif
PUBLIC int cuMemGetHandleForAddressRange(void *handle, uint64_t dev, size_t len, int type,
					 unsigned long long flags)
{
	FAIL_CTX();
	return type == 1 && !flags ? export(dev, len, handle) : 1;
}

#else

PUBLIC int hipInit(unsigned int flags)
{
	FAIL();
	return flags ? 1 : 0;
}

PUBLIC const char *hipGetErrorName(int code)
{
	return code == 712 ? "hipErrorHostMemoryAlreadyRegistered" : "hipErrorUnknown";
}

PUBLIC int hipGetDeviceCount(int *n)
{
	FAIL();
	*n = gpu_stub.devices;
	return 0;
}

PUBLIC int hipGetDevice(int *dev)
{
	FAIL();
	*dev = gpu_stub.device;
	return 0;
}

PUBLIC int hipSetDevice(int dev)
{
	FAIL();
	gpu_stub.device = dev;
	return 0;
}

PUBLIC int hipDeviceGetAttribute(int *v, int attr, int dev)
{
	FAIL();
	if (dev < 0 || dev >= gpu_stub.devices)
		return 101;
	switch (attr) {
	case 3:
		*v = gpu_stub.map_host;
		return 0;
	case 10011:
		*v = gpu_stub.large_bar;
		return 0;
	case 10013:
		*v = gpu_stub.can_wait;
		return 0;
	case 10017:
		*v = gpu_stub.khz;
		return 0;
	}
	return 1;
}

PUBLIC int hipStreamCreateWithFlags(void **stream, unsigned int flags)
{
	FAIL();
	gpu_stub.streams++;
	*stream = new_stream(flags != 1);
	return flags > 1;
}

PUBLIC int hipStreamDestroy(void *stream)
{
	gpu_stub.streams--;
	return free_stream(stream);
}

PUBLIC int hipStreamSynchronize(void *stream)
{
	if (FAILS(__func__))
		give_up(stream);
	FAIL();
	return sync_stream(stream);
}

PUBLIC int hipHostRegister(void *p, size_t len, unsigned int flags)
{
	FAIL();
	return flags == 3 ? reg(p, len) : 1;
}

PUBLIC int hipHostUnregister(void *p)
{
	return unreg(p);
}

PUBLIC int hipHostGetDevicePointer(void **dev, void *p, unsigned int flags)
{
	FAIL();
	return flags ? 1 : address(dev, p);
}

PUBLIC int hipMalloc(void **dev, size_t len)
{
	FAIL();
	return new_block(dev, len);
}

PUBLIC int hipFree(void *dev)
{
	return free_block(dev);
}

PUBLIC int hipMemcpyAsync(void *to, const void *from, size_t len, int kind, void *stream)
{
	FAIL();
	return kind == 1 ? copy_to(stream, to, from, len) :
	       kind == 2 ? copy_from(stream, to, from, len) : 1;
}

PUBLIC int hipStreamWriteValue32(void *stream, void *dev, uint32_t v, unsigned int flags)
{
	FAIL();
	return write_value(stream, dev, v, flags);
}

#ifdef STUB_NO_MEMOPS
#define hipStreamWaitValue32 hipSomethingElse
#endif
PUBLIC int hipStreamWaitValue32(void *stream, void *dev, uint32_t v, unsigned int flags,
				uint32_t mask)
{
	FAIL();
	return wait_value(stream, dev, v, flags, mask);
}

PUBLIC int hipStreamQuery(void *stream)
{
	FAIL();
	return query(stream);
}

PUBLIC int hipStreamIsCapturing(void *stream, int *status)
{
	FAIL();
	*status = gpu_stub.capturing;
	return is_stream(stream) ? 0 : 400;
}

struct info {
	uint32_t size;
	int type;
	void *agent_base, *host_base;
	size_t len;
	void *user_data;
	uint64_t agent;
	uint32_t flags;
	_Bool registered;
};

/* Everything there is, up to 16 MiB, is one allocation of 1 MiB pieces. */
PUBLIC int hsa_amd_pointer_info(const void *p, struct info *i, void *(*alloc)(size_t),
				uint32_t *n, void **agents)
{
	if (alloc || n || agents || i->size != sizeof(*i) || gpu_stub.no_info)
		return 0x1001;
	i->size = gpu_stub.info_size;
	i->agent_base = (void *)((uintptr_t)p & ~(uintptr_t)0xfffff);
	i->len = 0x100000;
	i->flags = gpu_stub.pool_flags;
	return 0;
}

PUBLIC int hsa_amd_portable_export_dmabuf(const void *p, size_t len, int *fd, uint64_t *offset)
{
	FAIL();
	*offset = 0x3000;
	return export((uintptr_t)p, len, fd);
}

#endif
