/* SPDX-License-Identifier: MIT */
/*
 * Memory of the process that GPUs may use. A runtime takes a range once, while several queue
 * pairs share the doorbells of their session: ranges are counted.
 */
#include <errno.h>
#include <stdlib.h>

#include "gpu.h"

struct pin {
	struct pin *next;
	struct gkv_gpu *gpu;		/* that it was made through; a reference */
	void *addr;
	size_t len;
	uint32_t refs;
};

static struct pin *pins;		/* under gkvi_gpu_lock */

static struct pin **find(const struct gpu_runtime *rt, const void *addr)
{
	struct pin **p = &pins;

	while (*p && ((*p)->addr != addr || (*p)->gpu->rt != rt))
		p = &(*p)->next;
	return p;
}

/* Give @len bytes at @addr, whole pages, to the devices of @gpu's runtime: *@dev, there. */
int gkvi_gpu_pin(struct gkv_gpu *gpu, void *addr, size_t len, uint64_t *dev)
{
	struct pin *p = *find(gpu->rt, addr);
	int ret;

	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return gkvi_err(-ENOMEM, "out of memory");
		ret = gpu->rt->pin(addr, len);
		if (ret) {
			free(p);
			return ret;
		}
		p->gpu = gpu;
		gpu->refs++;
		p->addr = addr;
		p->len = len;
		p->next = pins;
		pins = p;
	}
	p->refs++;
	ret = gpu->rt->address(addr, dev);
	if (ret)
		gkvi_gpu_unpin(gpu->rt, addr);
	return ret;
}

void gkvi_gpu_unpin(const struct gpu_runtime *rt, const void *addr)
{
	struct pin **at = find(rt, addr), *p = *at;
	void *was;

	if (!p || --p->refs)
		return;
	*at = p->next;
	/* It belongs to the device that it was made through. */
	if (!rt->enter(p->gpu, &was)) {
		rt->unpin(p->addr);
		rt->leave(p->gpu, was);
	}
	gkvi_gpu_put(p->gpu);
	free(p);
}
