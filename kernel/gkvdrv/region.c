// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions in a carve-out, and what imports share with them.
 */
#include "gkvdrv.h"
#include "trace.h"

int gkv_region_give(struct gkv_call *call, struct gkv_mem *mem, u64 len, s32 *fd)
{
	struct gkv_obj *obj = gkv_obj_alloc();
	int ret = obj ? gkv_obj_attach(obj, 0, mem, 0, len) : -ENOMEM;

	if (ret) {
		gkv_mem_abandon(mem);
		kfree(obj);
		return ret;
	}
	gkv_mem_put(mem);
	ret = gkv_call_give(call, gkv_obj_file(obj));
	if (!ret)
		*fd = call->new_fd;
	return ret;
}

int gkv_region_alloc(struct gkv_call *call)
{
	struct gkvdrv_alloc *a = &call->arg.alloc;
	struct gkv_provider *p;
	struct gkv_mem *mem;
	int ret = gkv_need_p2pdma(&call->why);

	if (ret)
		return ret;
	if (!a->len || !PAGE_ALIGNED(a->len))
		return gkv_refuse(&call->why, -EINVAL, GKVDRV_WHY_ALIGN,
				  "%llu bytes are no multiple of the page size, %lu", a->len,
				  PAGE_SIZE);
	p = gkv_provider_get(a->provider, &call->why);
	if (IS_ERR(p))
		return PTR_ERR(p);
	if (a->len > p->len)
		ret = gkv_refuse(&call->why, -ENOMEM, GKVDRV_WHY_SIZE,
				 "%llu bytes asked for, provider %u has %llu", a->len, p->id,
				 p->len);
	else
		ret = 0;
	mem = ret ? ERR_PTR(ret) : gkv_mem_vram(p, a->len >> PAGE_SHIFT, &call->why);
	gkv_provider_put(p);
	if (IS_ERR(mem))
		return PTR_ERR(mem);

	ret = gkv_region_give(call, mem, a->len, &a->fd);
	if (ret)
		return ret;
	atomic64_inc(&gkv_counters.regions);
	trace_gkv_region(a->provider, a->len);
	return 0;
}
