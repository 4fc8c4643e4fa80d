// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions made of dma-bufs: attach, pin, verify; and let go when the exporter says so.
 *
 * The buffer is attached for the provider's own function: what comes back then are the
 * addresses by which the memory is known on the bus, whatever lies between that function
 * and the disks. Who may reach them is decided later, by the block layer, for each disk.
 *
 * An address is believed only if it lies in the provider's span of the BAR, and for as
 * long as the buffer is pinned, which is the life of the region.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/ioport.h>
#include <linux/overflow.h>
#include <linux/scatterlist.h>

#include "gkvdrv.h"
#include "import.h"
#include "trace.h"

/* How often a wait for the exporter's fences looks whether there is something left to wait for. */
#define FENCE_SLICE	(HZ / 10 + 1)

/*
 * Under dma_resv, with the exporter waiting for us to unmap. DMA that is under way may go
 * on; the drain unmaps when it is over.
 */
static void invalidated(struct dma_buf_attachment *attach)
{
	struct gkv_mem *mem = attach->importer_priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	/* While it is pinned it may move yet, to VRAM. */
	if (mem->sgt)
		gkv_mem_revoke(mem);
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
	.gkv_invalidate_op = invalidated,
};

void gkv_import_release(struct gkv_mem *mem)
{
	dma_resv_lock(mem->dmabuf->resv, NULL);
	if (mem->sgt) {
		dma_buf_unmap_attachment(mem->attach, mem->sgt, DMA_BIDIRECTIONAL);
		dma_buf_unpin(mem->attach);
	}
	dma_resv_unlock(mem->dmabuf->resv);
	dma_buf_detach(mem->dmabuf, mem->attach);
	dma_buf_put(mem->dmabuf);
	mem->sgt = NULL;
	mem->attach = NULL;
	mem->dmabuf = NULL;
}

/* Attach, pin and map. What is done so far is undone by gkv_import_release(). */
static int map_buffer(struct gkv_mem *mem, struct dma_buf *dmabuf, struct gkv_why *why)
{
	struct device *dev = &mem->provider->pdev->dev;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
	int ret;

	attach = dma_buf_dynamic_attach(dmabuf, dev, &attach_ops, mem);
	if (IS_ERR(attach))
		return gkv_refuse(why, PTR_ERR(attach), GKVDRV_WHY_EXPORTER,
				  "%s does not let %s attach: error %ld", dmabuf->exp_name,
				  dev_name(dev), PTR_ERR(attach));
	get_dma_buf(dmabuf);
	mem->dmabuf = dmabuf;
	mem->attach = attach;

	dma_resv_lock(dmabuf->resv, NULL);
	ret = dma_buf_pin(attach);
	if (ret) {
		dma_resv_unlock(dmabuf->resv);
		return gkv_refuse(why, ret, GKVDRV_WHY_EXPORTER, "%s does not pin: error %d",
				  dmabuf->exp_name, ret);
	}
	sgt = dma_buf_map_attachment(attach, DMA_BIDIRECTIONAL);
	if (IS_ERR_OR_NULL(sgt))
		dma_buf_unpin(attach);
	else
		mem->sgt = sgt;
	dma_resv_unlock(dmabuf->resv);
	if (mem->sgt)
		return 0;
	ret = sgt ? PTR_ERR(sgt) : -ENOMEM;
	return gkv_refuse(why, ret, GKVDRV_WHY_EXPORTER, "%s does not map for %s: error %d",
			  dmabuf->exp_name, dev_name(dev), ret);
}

/*
 * The exporter may be copying the buffer into VRAM yet, or clearing what its last owner left.
 * Without the lock, so that it can change its mind meanwhile.
 */
static int wait_for_content(struct gkv_mem *mem, struct gkv_why *why)
{
	long left;

	do {
		if (READ_ONCE(mem->dead))
			return gkv_refuse(why, -ENODEV, GKVDRV_WHY_REVOKED,
					  "the exporter took the buffer back meanwhile");
		left = dma_resv_wait_timeout(mem->dmabuf->resv, DMA_RESV_USAGE_KERNEL, true,
					     FENCE_SLICE);
	} while (!left);
	return left < 0 ? left : 0;
}

static int not_in_bar(const struct gkv_provider *p, u64 addr, u64 len, struct gkv_why *why)
{
	if (region_intersects(addr, len, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	    REGION_DISJOINT)
		return gkv_refuse(why, -EREMOTEIO, GKVDRV_WHY_SYSTEM,
				  "the exporter has the buffer in system memory, not in VRAM");
	return gkv_refuse(why, -EREMOTEIO, GKVDRV_WHY_ADDRESS,
			  "the buffer's addresses are not in provider %u: another function's memory, or an IOMMU translates",
			  p->id);
}

/* The segments as runs of the provider's pages: those of @offset and @len. */
static int find_runs(struct gkv_mem *mem, u64 offset, u64 len, struct gkv_why *why)
{
	struct gkv_provider *p = mem->provider;
	unsigned long npages = 0;
	struct scatterlist *sg;
	u64 at = 0;
	int i;

	mem->runs = kvcalloc(mem->sgt->nents, sizeof(*mem->runs), GFP_KERNEL_ACCOUNT);
	if (!mem->runs)
		return -ENOMEM;
	for_each_sgtable_dma_sg(mem->sgt, sg, i) {
		u64 addr = sg_dma_address(sg), n = sg_dma_len(sg), skip;
		struct gkv_run *last;

		skip = offset > at ? min(offset - at, n) : 0;
		at += n;
		if (skip == n)
			continue;
		addr += skip;
		n = min(n - skip, len - ((u64)npages << PAGE_SHIFT));
		if (!n)
			break;
		if (!PAGE_ALIGNED(addr | n))
			return gkv_refuse(why, -EREMOTEIO, GKVDRV_WHY_ALIGN,
					  "segment %d: %llu bytes that are not whole pages", i, n);
		if (addr < p->bus || n > p->len || addr - p->bus > p->len - n)
			return not_in_bar(p, addr, n, why);
		last = mem->nr_runs ? &mem->runs[mem->nr_runs - 1] : NULL;
		if (last && last->first + last->npages == PHYS_PFN(addr - p->bus))
			last->npages += n >> PAGE_SHIFT;
		else
			mem->runs[mem->nr_runs++] = (struct gkv_run){
				.start = npages,
				.first = PHYS_PFN(addr - p->bus),
				.npages = n >> PAGE_SHIFT,
			};
		npages += n >> PAGE_SHIFT;
	}
	if (npages != len >> PAGE_SHIFT)
		return gkv_refuse(why, -EREMOTEIO, GKVDRV_WHY_SIZE,
				  "the exporter mapped %lu of %llu pages", npages,
				  len >> PAGE_SHIFT);
	mem->npages = npages;
	return 0;
}

static int check_range(struct gkvdrv_import *a, u64 size, struct gkv_why *why)
{
	u64 end;

	if (!a->len && a->offset < size)
		a->len = size - a->offset;
	if (!a->len || check_add_overflow(a->offset, a->len, &end) || end > size)
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_SIZE,
				  "%llu bytes at %llu are not within the buffer of %llu", a->len,
				  a->offset, size);
	if (!PAGE_ALIGNED(a->offset | a->len))
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_ALIGN,
				  "%llu bytes at %llu: both must be multiples of the page size, %lu",
				  a->len, a->offset, PAGE_SIZE);
	return 0;
}

static struct gkv_mem *import(struct gkv_provider *p, struct dma_buf *dmabuf,
			      struct gkvdrv_import *a, struct gkv_why *why)
{
	struct gkv_mem *mem = gkv_mem_alloc(p);
	int ret;

	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->charge = gkv_charge(a->len, 0, why);
	if (IS_ERR(mem->charge)) {
		ret = PTR_ERR(mem->charge);
		mem->charge = NULL;
		goto fail;
	}
	ret = map_buffer(mem, dmabuf, why);
	if (!ret)
		ret = find_runs(mem, a->offset, a->len, why);
	/* Before pages are taken: who unbinds the provider need not wait for the exporter. */
	if (!ret)
		ret = wait_for_content(mem, why);
	if (!ret)
		ret = gkv_mem_claim(mem, why);
	if (!ret)
		return mem;
fail:
	gkv_mem_abandon(mem);
	return ERR_PTR(ret);
}

int gkv_region_import(struct gkv_call *call)
{
	struct gkvdrv_import *a = &call->arg.import;
	struct gkv_provider *p;
	struct dma_buf *dmabuf;
	struct gkv_mem *mem;
	unsigned int nr_runs;
	int ret;

	if (a->rsvd)
		return -EINVAL;
	ret = gkv_need_p2pdma(&call->why);
	if (ret)
		return ret;
	dmabuf = dma_buf_get(a->dmabuf);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (!(dmabuf->file->f_mode & FMODE_WRITE)) {
		ret = gkv_refuse(&call->why, -EACCES, GKVDRV_WHY_EXPORTER,
				 "the buffer is exported for reading only");
		goto put;
	}
	ret = check_range(a, dmabuf->size, &call->why);
	if (ret)
		goto put;
	p = gkv_provider_get(a->provider, &call->why);
	if (IS_ERR(p)) {
		ret = PTR_ERR(p);
		goto put;
	}
	mem = import(p, dmabuf, a, &call->why);
	gkv_provider_put(p);
	if (IS_ERR(mem)) {
		ret = PTR_ERR(mem);
		goto put;
	}
	nr_runs = mem->nr_runs;
	ret = gkv_region_give(call, mem, a->len, &a->fd);
	if (ret)
		goto put;
	atomic64_inc(&gkv_counters.imports);
	trace_gkv_import(a->provider, a->len, nr_runs);
put:
	dma_buf_put(dmabuf);
	return ret;
}

MODULE_INFO(import_ns, "DMA_BUF");
