// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of queue pairs: each part where its bit of the memory mode says.
 */
#include <linux/cleanup.h>
#include <linux/file.h>

#include "gkvdrv.h"
#include "trace.h"

#define SQE_SIZE 64u
#define CQE_SIZE 16u

static const char * const part_names[GKVDRV_PARTS] = { "SQ", "CQ", "doorbells" };

static u64 part_len(const struct gkvdrv_qp *a, unsigned int i)
{
	switch (i) {
	case GKVDRV_SQ:
		return (u64)a->depth * SQE_SIZE;
	case GKVDRV_CQ:
		return (u64)a->depth * CQE_SIZE;
	default:
		return 2ull * (4u << a->dstrd);
	}
}

/* A part in a region that its caller has. */
static int place(struct gkv_obj *obj, unsigned int i, const struct gkvdrv_part *a, u64 len,
		 struct gkv_why *why)
{
	u64 align = i == GKVDRV_DB ? 8 : PAGE_SIZE, end;
	struct gkv_part *region;
	struct gkv_obj *target;
	int ret;

	CLASS(fd, f)(a->region);
	target = fd_file(f) ? gkv_region_of(fd_file(f)) : NULL;
	if (!target)
		return gkv_refuse(why, -EBADF, GKVDRV_WHY_MODE,
				  "%s: descriptor %d is not a region of gkvdrv", part_names[i],
				  a->region);
	region = &target->parts[0];
	if (!IS_ALIGNED(a->offset, align))
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_ALIGN,
				  "%s: offset %llu is no multiple of %llu", part_names[i],
				  a->offset, align);
	if (check_add_overflow(a->offset, len, &end) || end > region->len)
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_SIZE,
				  "%s: %llu bytes at %llu are not within the region of %llu",
				  part_names[i], len, a->offset, region->len);
	ret = gkv_obj_attach(obj, i, region->mem, a->offset, len);
	if (ret == -EBUSY)
		return gkv_refuse(why, ret, GKVDRV_WHY_OVERLAP,
				  "%s: some of the %llu bytes at %llu are in a queue pair",
				  part_names[i], len, a->offset);
	return ret ? gkv_refuse(why, ret, GKVDRV_WHY_REVOKED, "%s: the region is revoked",
				part_names[i]) : 0;
}

static struct gkv_mem *part_mem(const struct gkvdrv_part *a, bool vram, unsigned long npages,
				struct gkv_why *why)
{
	struct gkv_provider *p;
	struct gkv_mem *mem;

	if (!vram)
		return gkv_mem_host(npages, why);
	p = gkv_provider_get(a->provider, why);
	if (IS_ERR(p))
		return ERR_CAST(p);
	mem = gkv_mem_vram(p, npages, why);
	gkv_provider_put(p);
	return mem;
}

static int make_part(struct gkv_obj *obj, unsigned int i, const struct gkvdrv_qp *qp,
		     struct gkv_why *why)
{
	const struct gkvdrv_part *a = &qp->parts[i];
	/* The bits of the mode are in the order of the parts. */
	bool vram = qp->mode & BIT(i);
	u64 len = part_len(qp, i);
	struct gkv_mem *mem;
	int ret;

	if (a->map_offset || a->len || a->region < -1 || (a->region >= 0 && a->provider))
		return -EINVAL;
	if (!vram && (a->region >= 0 || a->provider || a->offset))
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_MODE,
				  "%s: memory mode %#x has it in host memory, but a place in VRAM is given",
				  part_names[i], qp->mode);
	if (a->region >= 0)
		return place(obj, i, a, len, why);
	if (a->offset)
		return -EINVAL;
	mem = part_mem(a, vram, PFN_UP(len), why);
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	ret = gkv_obj_attach(obj, i, mem, 0, len);
	if (ret) {
		gkv_mem_abandon(mem);
		return ret;
	}
	obj->parts[i].own = true;
	gkv_mem_put(mem);
	return 0;
}

static int check(const struct gkvdrv_qp *a, struct gkv_why *why)
{
	unsigned int max = READ_ONCE(gkv_max_queue_depth);

	if (a->depth < GKV_DEPTH_MIN || a->depth > max)
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_LIMIT,
				  "depth %u is not within %u to %u (max_queue_depth)", a->depth,
				  GKV_DEPTH_MIN, max);
	if (a->mode & ~GKV_MODE_MASK)
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_MODE, "memory mode %#x is above %#x",
				  a->mode, GKV_MODE_MASK);
	if (a->dstrd > 15)
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_SIZE, "doorbell stride %u is above 15",
				  a->dstrd);
	return a->mode ? gkv_need_p2pdma(why) : 0;
}

int gkv_qp_create(struct gkv_call *call)
{
	struct gkvdrv_qp *a = &call->arg.qp;
	struct gkv_obj *obj;
	int ret = check(a, &call->why);

	if (ret)
		return ret;
	obj = gkv_obj_alloc();
	if (!obj)
		return -ENOMEM;
	obj->is_qp = true;
	obj->mode = a->mode;
	for (unsigned int i = 0; i < GKVDRV_PARTS && !ret; i++)
		ret = make_part(obj, i, a, &call->why);
	/* The memory of an earlier part went while a later one was made. */
	if (!ret && READ_ONCE(obj->dead))
		ret = gkv_refuse(&call->why, -ENODEV, GKVDRV_WHY_REVOKED,
				 "a part of the queue pair was revoked meanwhile");
	if (ret) {
		gkv_obj_free(obj);
		return ret;
	}
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		obj->parts[i].uncached = i == GKVDRV_CQ;
		a->parts[i].map_offset = (u64)obj->parts[i].pgoff << PAGE_SHIFT;
		a->parts[i].len = obj->parts[i].len;
	}
	ret = gkv_call_give(call, gkv_obj_file(obj));
	if (ret)
		return ret;
	a->fd = call->new_fd;
	atomic64_inc(&gkv_counters.qps);
	trace_gkv_qp(a->depth, a->mode);
	return 0;
}
