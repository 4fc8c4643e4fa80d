/* SPDX-License-Identifier: MIT */
/* A queue pair for kernels: in addresses of the device, with its block of device memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gkv_device/init.h>

#include "gpu.h"

static const char *const part_names[] = { "SQ", "CQ", "doorbells" };

/* Parts in VRAM have their addresses from the caller, who has the device's own. */
static int check_parts(const struct gkv_qp *qp, const struct gkv_gpu_parts *parts)
{
	const struct gkv_gpu_parts none = { 0 };
	void *const *given;

	if (parts && parts->size != sizeof(*parts))
		return gkvi_err(-EINVAL, "struct gkv_gpu_parts: size is not set");
	given = parts ? &parts->sq : &none.sq;
	for (uint32_t i = 0; i < 3; i++) {
		if (!given[i] && qp->mode & (1u << i))
			return gkvi_err(-EINVAL, "%s: in VRAM by memory mode 0x%x, but no address "
						 "on the device is given", part_names[i], qp->mode);
		if (given[i] && !(qp->mode & (1u << i)))
			return gkvi_err(-EINVAL, "%s: in host memory by memory mode 0x%x, but an "
						 "address on the device is given", part_names[i],
					qp->mode);
	}
	return 0;
}

/* Make its memory the device's. Caller holds gkvi_gpu_lock and has entered the device. */
static int give(struct gkv_gpu *gpu, struct gkv_qp *qp, struct gpu_obj *o)
{
	int ret;

	/* The lists behind it are the host's. */
	ret = gkvi_gpu_obj_pin(gpu, o, 0, qp->map, qp->list_off);
	if (!ret && !(qp->mode & GKV_MODE_DB))
		ret = gkvi_gpu_obj_pin(gpu, o, 1, qp->g->db, qp->g->db_len);
	if (!ret)
		ret = gpu->rt->alloc(gkv_dev_queue_size(qp->depth), &o->block);
	return ret;
}

/* Where the device has @p, which lies in what it was given; NULL stays. */
static void *moved(const struct gpu_obj *o, unsigned int i, const void *p)
{
	if (!p)
		return NULL;
	return (void *)(uintptr_t)(o->dev[i] + ((uintptr_t)p - (uintptr_t)o->pins[i]));
}

static int fill(struct gkv_gpu *gpu, struct gkv_qp *qp, const struct gkv_gpu_parts *parts,
		const struct gpu_obj *o, struct gkv_dev_desc *d)
{
	size_t len = gkv_dev_queue_size(qp->depth);
	void *image;
	int ret;

	d->sq = qp->mode & GKV_MODE_SQ ? parts->sq : moved(o, 0, d->sq);
	d->cq = qp->mode & GKV_MODE_CQ ? parts->cq : moved(o, 0, d->cq);
	if (qp->mode & GKV_MODE_DB) {
		d->sq_db = parts->db;
		d->cq_db = (uint32_t *)((char *)parts->db + (4u << qp->dstrd));
	} else {
		d->sq_db = moved(o, 1, d->sq_db);
		d->cq_db = moved(o, 1, d->cq_db);
	}
	d->stopped = moved(o, 0, d->stopped);
	d->ctl = moved(o, 0, d->ctl);
	d->ticks_per_us = gpu->ticks_per_us;
	image = malloc(len);
	if (!image)
		return gkvi_err(-ENOMEM, "out of memory");
	ret = gkv_dev_queue_init(image, d);
	if (ret)
		gkvi_err(ret, "queue pair %u: the device's clock or addresses make no sense",
			 qp->qid);
	else
		ret = gpu->rt->copy(gpu, o->block, image, len);
	free(image);
	return ret;
}

/* Caller holds gkvi_gpu_lock and has entered the device. */
static int queue(struct gkv_gpu *gpu, struct gkv_qp *qp, const struct gkv_gpu_parts *parts,
		 uint64_t *block)
{
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct gpu_obj *o = *gkvi_gpu_find(gpu, qp);
	bool fresh = !o;
	int ret = 0;

	if (fresh) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return gkvi_err(-ENOMEM, "out of memory");
		ret = give(gpu, qp, o);
	}
	if (!ret)
		ret = gkv_qp_device(qp, &d);
	if (!ret) {
		ret = fill(gpu, qp, parts, o, &d);
		if (ret)
			gkvi_device_take_back(qp);
	}
	if (ret) {
		if (fresh)
			gkvi_gpu_obj_free(gpu, o);
		return ret;
	}
	if (fresh) {
		o->key = qp;
		o->queue = true;
		o->next = gpu->objs;
		gpu->objs = o;
	}
	*block = o->block;
	return 0;
}

int gkv_gpu_queue(struct gkv_gpu *gpu, struct gkv_qp *qp, const struct gkv_gpu_parts *parts,
		  struct gkv_dev_queue **out)
{
	uint64_t block = 0;
	void *was;
	int ret;

	if (!qp || !out)
		return gkvi_err(-EINVAL, "no queue pair, or no place for the queue's address");
	*out = NULL;
	ret = check_parts(qp, parts);
	if (ret)
		return ret;
	pthread_mutex_lock(&gkvi_gpu_lock);
	ret = gpu->rt->enter(gpu, &was);
	if (!ret) {
		ret = queue(gpu, qp, parts, &block);
		gpu->rt->leave(gpu, was);
	}
	pthread_mutex_unlock(&gkvi_gpu_lock);
	if (!ret)
		*out = (struct gkv_dev_queue *)(uintptr_t)block;
	return ret;
}
