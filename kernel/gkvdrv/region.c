// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions in a carve-out.
 */
#include "gkvdrv.h"
#include "trace.h"

int gkv_region_alloc(struct gkv_call *call)
{
	struct gkvdrv_alloc *a = &call->arg.alloc;
	struct gkv_provider *p;
	struct gkv_mem *mem;
	struct gkv_obj *obj;
	int ret = gkv_need_p2pdma(&call->why);

	if (ret)
		return ret;
	if (!a->len || !PAGE_ALIGNED(a->len))
		return gkv_refuse(&call->why, -EINVAL, GKVDRV_WHY_ALIGN,
				  "%llu bytes are no multiple of the page size, %lu", a->len,
				  PAGE_SIZE);
	p = gkv_provider_get(a->provider);
	if (!p)
		return gkv_refuse(&call->why, -ENOENT, GKVDRV_WHY_PROVIDER,
				  "there is no provider %u, of %u", a->provider,
				  gkv_provider_count());
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

	obj = gkv_obj_alloc();
	ret = obj ? gkv_obj_attach(obj, 0, mem, 0, a->len) : -ENOMEM;
	if (ret) {
		gkv_mem_abandon(mem);
		kfree(obj);
		return ret;
	}
	gkv_mem_put(mem);
	ret = gkv_call_give(call, gkv_obj_file(obj));
	if (ret)
		return ret;
	a->fd = call->new_fd;
	atomic64_inc(&gkv_counters.regions);
	trace_gkv_region(a->provider, a->len);
	return 0;
}
