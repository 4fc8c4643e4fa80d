/* SPDX-License-Identifier: MIT */
/* GPUs of the process: opening them, and memory that both they and the daemon use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

pthread_mutex_t gkvi_gpu_lock = PTHREAD_MUTEX_INITIALIZER;

/* Caller holds gkvi_gpu_lock. */
void gkvi_gpu_put(struct gkv_gpu *gpu)
{
	if (--gpu->refs)
		return;
	gpu->rt->close(gpu);
	free(gpu);
}

int gkv_gpu_open(uint32_t runtime, int device, struct gkv_gpu **out)
{
	struct gkv_gpu *gpu;
	int ret;

	if (!out)
		return gkvi_err(-EINVAL, "no place for the GPU handle");
	*out = NULL;
	if (runtime != GKV_GPU_CUDA && runtime != GKV_GPU_HIP)
		return gkvi_err(-EINVAL, "runtime %u: there are GKV_GPU_CUDA and GKV_GPU_HIP",
				runtime);
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return gkvi_err(-ENOMEM, "out of memory");
	gpu->rt = runtime == GKV_GPU_CUDA ? &gkvi_gpu_cuda : &gkvi_gpu_hip;
	gpu->device = device;
	gpu->refs = 1;
	pthread_mutex_lock(&gkvi_gpu_lock);
	ret = gpu->rt->open(gpu);
	pthread_mutex_unlock(&gkvi_gpu_lock);
	if (ret) {
		free(gpu);
		return ret;
	}
	*out = gpu;
	return 0;
}

int gkv_gpu_close(struct gkv_gpu *gpu)
{
	uint32_t maps = 0, queues = 0;
	int ret = 0;

	if (!gpu)
		return 0;
	pthread_mutex_lock(&gkvi_gpu_lock);
	for (struct gpu_obj *o = gpu->objs; o; o = o->next)
		*(o->queue ? &queues : &maps) += 1;
	if (maps || queues)
		ret = gkvi_err(-EBUSY, "%s device %d still has %u queues and %u mappings of memory",
			       gpu->rt->name, gpu->device, queues, maps);
	else
		gkvi_gpu_put(gpu);
	pthread_mutex_unlock(&gkvi_gpu_lock);
	return ret;
}

int gkv_gpu_info(const struct gkv_gpu *gpu, struct gkv_gpu_info *info)
{
	struct gkv_gpu_info i = { 0 };

	if (!info || info->size < sizeof(uint32_t))
		return gkvi_err(-EINVAL, "struct gkv_gpu_info: size is not set");
	i.size = info->size;
	i.flags = gpu->flags;
	i.ticks_per_us = gpu->ticks_per_us;
	memcpy(info, &i, info->size < sizeof(i) ? info->size : sizeof(i));
	return 0;
}

/* ---- What a device has been given ---- */

struct gpu_obj **gkvi_gpu_find(struct gkv_gpu *gpu, const void *key)
{
	struct gpu_obj **o = &gpu->objs;

	while (*o && (*o)->key != key)
		o = &(*o)->next;
	return o;
}

int gkvi_gpu_obj_pin(struct gkv_gpu *gpu, struct gpu_obj *o, unsigned int i, void *addr,
		     size_t len)
{
	int ret = gkvi_gpu_pin(gpu, addr, len, &o->dev[i]);

	if (!ret)
		o->pins[i] = addr;
	return ret;
}

/* @o is in no list. Caller holds gkvi_gpu_lock and has entered the device. */
void gkvi_gpu_obj_free(struct gkv_gpu *gpu, struct gpu_obj *o)
{
	for (int i = 0; i < 3; i++)
		if (o->pins[i])
			gkvi_gpu_unpin(gpu->rt, o->pins[i]);
	if (o->block)
		gpu->rt->free(o->block);
	free(o);
}

/* Caller has entered the device. */
static int map(struct gkv_gpu *gpu, struct gkv_mem *m, uint64_t *dev)
{
	struct gpu_obj *o;
	int ret;

	if (*gkvi_gpu_find(gpu, m))
		return gkvi_err(-EEXIST, "the memory at %p is mapped into %s device %d already",
				m->addr, gpu->rt->name, gpu->device);
	o = calloc(1, sizeof(*o));
	if (!o)
		return gkvi_err(-ENOMEM, "out of memory");
	ret = gkvi_gpu_obj_pin(gpu, o, 0, m->addr, m->len);
	if (ret) {
		free(o);
		return ret;
	}
	o->key = m;
	o->next = gpu->objs;
	gpu->objs = o;
	*dev = o->dev[0];
	return 0;
}

int gkv_gpu_map(struct gkv_gpu *gpu, struct gkv_mem *m, void **device_ptr)
{
	uint64_t dev = 0;
	void *was;
	int ret;

	if (!m || !device_ptr)
		return gkvi_err(-EINVAL, "no memory to map, or no place for its address");
	*device_ptr = NULL;
	if (m->vram)
		return gkvi_err(-EINVAL, "the memory at %p is a region of /dev/gkv: its GPU has it "
					 "already, and others have no use for it", m->addr);
	if (m->flags & GKV_REGION_F_RDONLY)
		return gkvi_err(-EACCES, "the memory at %p may only be read", m->addr);
	pthread_mutex_lock(&gkvi_gpu_lock);
	ret = gpu->rt->enter(gpu, &was);
	if (!ret) {
		ret = map(gpu, m, &dev);
		gpu->rt->leave(gpu, was);
	}
	pthread_mutex_unlock(&gkvi_gpu_lock);
	if (!ret)
		*device_ptr = (void *)(uintptr_t)dev;
	return ret;
}

/* What gkv_gpu_map() or gkv_gpu_queue() gave. */
static int take_back(struct gkv_gpu *gpu, const void *key, const char *what)
{
	struct gpu_obj **at, *o;
	void *was;
	int ret;

	pthread_mutex_lock(&gkvi_gpu_lock);
	at = gkvi_gpu_find(gpu, key);
	o = *at;
	ret = o ? gpu->rt->enter(gpu, &was) :
		  gkvi_err(-ENOENT, "%s device %d has no such %s", gpu->rt->name, gpu->device,
			   what);
	if (!ret) {
		*at = o->next;
		gkvi_gpu_obj_free(gpu, o);
		gpu->rt->leave(gpu, was);
	}
	pthread_mutex_unlock(&gkvi_gpu_lock);
	return ret;
}

int gkv_gpu_unmap(struct gkv_gpu *gpu, struct gkv_mem *m)
{
	return take_back(gpu, m, "memory");
}

int gkv_gpu_queue_free(struct gkv_gpu *gpu, struct gkv_qp *qp)
{
	return take_back(gpu, qp, "queue pair");
}

int gkv_gpu_import(struct gkv_gpu *gpu, struct gkv *g, void *device_ptr, size_t len,
		   uint32_t provider, struct gkv_mem **mem)
{
	uint64_t dev = (uintptr_t)device_ptr, offset = 0;
	size_t page = gkvi_page_size();
	int fd = -1, ret;
	void *was;

	ret = gkvi_mem_check(g, mem, len);
	if (ret)
		return ret;
	if (!dev || (dev | len) & (page - 1))
		return gkvi_err(-EINVAL, "device memory at %p, 0x%zx bytes: both must be multiples "
					 "of the page size of 0x%zx bytes", device_ptr, len, page);
	if (!(gpu->flags & GKV_GPU_DMABUF))
		return gkvi_err(-EOPNOTSUPP, "%s device %d cannot export memory as a dma-buf: %s",
				gpu->rt->name, gpu->device, gpu->rt->no_dmabuf);
	ret = gpu->rt->enter(gpu, &was);
	if (ret)
		return ret;
	ret = gpu->rt->visible(gpu, dev, len);
	if (!ret)
		ret = gpu->rt->export(gpu, dev, len, &fd, &offset);
	gpu->rt->leave(gpu, was);
	if (ret)
		return ret;
	ret = gkv_mem_import(g, fd, offset, len, provider, dev, mem);
	/* The region holds the dma-buf. */
	close(fd);
	return ret;
}
