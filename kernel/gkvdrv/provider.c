// SPDX-License-Identifier: GPL-2.0-only
/*
 * Providers: spans of a BAR whose pages gkvdrv has, every one of them.
 *
 * Pages of the P2PDMA kind can be made in one way only, pci_p2pdma_add_resource(), which
 * leaves them with the function until its driver is unbound. The core puts them into a pool
 * that root can take from through sysfs, so the whole span is taken out of the pool before
 * anything else. Each page then has one reference, the provider's, and must never lose it:
 * a page without references goes back to the pool.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cleanup.h>
#include <linux/pci-p2pdma.h>
#include <linux/vmalloc.h>

#include "gkvdrv.h"
#include "trace.h"

static DEFINE_MUTEX(gkv_providers_lock);	/* the list, identifiers */
static LIST_HEAD(providers);
static u32 next_id = 1;

/* ---- Whether the span can be had ---- */

static int check_span(struct pci_dev *pdev, int bar, u64 offset, u64 len, struct gkv_why *why)
{
	u64 size, start, end, align = memremap_compat_align();

	if (bar < 0 || bar >= PCI_STD_NUM_BARS ||
	    !(pci_resource_flags(pdev, bar) & IORESOURCE_MEM))
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_BAR, "%s: BAR %d is not memory",
				  pci_name(pdev), bar);
	if (pci_resource_flags(pdev, bar) & IORESOURCE_UNSET || !pci_resource_start(pdev, bar))
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_BAR, "%s: BAR %d has no address",
				  pci_name(pdev), bar);
	size = pci_resource_len(pdev, bar);
	if (check_add_overflow(offset, len, &end) || !len || end > size)
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_SIZE,
				  "%s: %#llx bytes at %#llx are not within BAR %d of %#llx bytes",
				  pci_name(pdev), len, offset, bar, size);
	start = pci_resource_start(pdev, bar) + offset;
	if (!IS_ALIGNED(start | len, align))
		return gkv_refuse(why, -EINVAL, GKVDRV_WHY_ALIGN,
				  "%s: BAR %d, %#llx bytes at address %#llx: both must be multiples of %#llx",
				  pci_name(pdev), bar, len, start, align);
	return 0;
}

static int check_overlap(struct pci_dev *pdev, int bar, u64 offset, u64 len, struct gkv_why *why)
{
	struct gkv_provider *p;

	list_for_each_entry(p, &providers, node) {
		if (p->pdev == pdev && p->bar == bar && offset < p->offset + p->len &&
		    p->offset < offset + len)
			return gkv_refuse(why, -EBUSY, GKVDRV_WHY_OVERLAP,
					  "%s: BAR %d from %#llx overlaps provider %u (%#llx bytes at %#llx)",
					  pci_name(pdev), bar, offset, p->id, p->len, p->offset);
	}
	return 0;
}

/*
 * Does the span have pages already? Their hotplug unit is the alignment that was checked, so
 * one look at each is enough. 1: all of it, as P2PDMA; 0: none of it.
 */
static int find_pages(struct gkv_provider *p, struct gkv_why *why)
{
	unsigned long step = PHYS_PFN(memremap_compat_align()), have = 0;

	for (unsigned long i = 0; i < p->npages; i += step) {
		struct dev_pagemap *map = gkv_dev_pagemap(p->pfn + i);
		bool p2p;

		if (!map)
			continue;
		/* A module that put operations of its own there counts references its way. */
		p2p = map->type == MEMORY_DEVICE_PCI_P2PDMA &&
		      !is_vmalloc_or_module_addr(map->ops);
		put_dev_pagemap(map);
		if (!p2p)
			return gkv_refuse(why, -EBUSY, GKVDRV_WHY_CLAIMED,
					  "%s: page %#lx of BAR %d belongs to a driver, and not as plain P2PDMA memory",
					  pci_name(p->pdev), i, p->bar);
		have += step;
		if (!(i % 65536))
			cond_resched();
	}
	if (have && have < p->npages)
		return gkv_refuse(why, -EBUSY, GKVDRV_WHY_CLAIMED,
				  "%s: %#lx of %#lx pages of BAR %d are somebody's P2PDMA memory",
				  pci_name(p->pdev), have, p->npages, p->bar);
	return have != 0;
}

static int make_pages(struct gkv_provider *p, struct gkv_why *why)
{
	int ret = pci_p2pdma_add_resource(p->pdev, p->bar, p->len, p->offset);

	switch (ret) {
	case 0:
		return 0;
	case -EBUSY:
	case -EINVAL:
		return gkv_refuse(why, -EBUSY, GKVDRV_WHY_MEMTYPE,
				  "%s: the kernel makes no pages of BAR %d (error %d): its memory type may conflict with a mapping of its driver",
				  pci_name(p->pdev), p->bar, ret);
	case -ENOMEM:
		return gkv_refuse(why, ret, GKVDRV_WHY_NOMEM,
				  "%s: no memory to describe the pages of BAR %d",
				  pci_name(p->pdev), p->bar);
	case -EEXIST:
		/* The core adds section by section, and keeps those before one that fails. */
		return gkv_refuse(why, ret, GKVDRV_WHY_CLAIMED,
				  "%s: the kernel ran out of memory for BAR %d before, and left some of it behind until the next boot (error %d)",
				  pci_name(p->pdev), p->bar, ret);
	default:
		return gkv_refuse(why, ret, GKVDRV_WHY_CLAIMED,
				  "%s: the kernel makes no pages of BAR %d: error %d",
				  pci_name(p->pdev), p->bar, ret);
	}
}

/* Where the pool has spans of other slices as well, it offers what it likes. */
static void *take_span(struct gkv_provider *p)
{
	void *aside[16], *found = NULL;
	unsigned int n = 0;

	while (n < ARRAY_SIZE(aside)) {
		void *kva = pci_alloc_p2pmem(p->pdev, p->len);

		if (!kva)
			break;
		if (pci_p2pmem_virt_to_bus(p->pdev, kva) == p->bus) {
			found = kva;
			break;
		}
		aside[n++] = kva;
	}
	while (n)
		pci_free_p2pmem(p->pdev, aside[--n], p->len);
	return found;
}

/* Take the whole span out of the pool, and one reference on each page. */
static int claim_pages(struct gkv_provider *p, struct gkv_why *why)
{
	p->kva = take_span(p);
	if (!p->kva)
		return gkv_refuse(why, -EBUSY, GKVDRV_WHY_CLAIMED,
				  "%s: some of the P2PDMA memory of BAR %d is in use (see p2pmem/available)",
				  pci_name(p->pdev), p->bar);
	/* One up to 6.14, none since. */
	p->rest = page_ref_count(gkv_provider_page(p, 0));
	for (unsigned long i = 0; i < p->npages; i++) {
		if (!p->rest)
			set_page_count(gkv_provider_page(p, i), 1);
		if (!(i % 65536))
			cond_resched();
	}
	return 0;
}

static void release_pages_of(struct gkv_provider *p)
{
	for (unsigned long i = 0; i < p->npages; i++) {
		struct page *page = gkv_provider_page(p, i);

		/* Every mem has waited for its own. */
		if (page_ref_freeze(page, 1))
			set_page_count(page, p->rest);
		else
			pr_err_ratelimited("%s: page %#lx of BAR %d has %d references\n",
					   pci_name(p->pdev), i, p->bar, page_ref_count(page));
		if (!(i % 65536))
			cond_resched();
	}
	pci_free_p2pmem(p->pdev, p->kva, p->len);
}

/* ---- Life ---- */

void gkv_provider_put(struct gkv_provider *p)
{
	kobject_put(&p->kobj);
}

static u32 count(void)
{
	lockdep_assert_held(&gkv_providers_lock);
	return list_count_nodes(&providers);
}

u32 gkv_provider_count(void)
{
	guard(mutex)(&gkv_providers_lock);
	return count();
}

struct gkv_provider *gkv_provider_get(u32 id, struct gkv_why *why)
{
	struct gkv_provider *p;

	guard(mutex)(&gkv_providers_lock);
	list_for_each_entry(p, &providers, node) {
		if (p->id == id) {
			kobject_get(&p->kobj);
			return p;
		}
	}
	return ERR_PTR(gkv_refuse(why, -ENOENT, GKVDRV_WHY_PROVIDER,
				  "there is no provider %u, of %u", id, count()));
}

struct pci_dev *gkv_provider_foreign(u32 id)
{
	struct gkv_provider *p;

	guard(mutex)(&gkv_providers_lock);
	list_for_each_entry(p, &providers, node) {
		if (p->kind == GKVDRV_FOREIGN && (!id || p->id == id))
			return pci_dev_get(p->pdev);
	}
	return NULL;
}

struct gkv_provider *gkv_provider_take(struct pci_dev *pdev, u32 id)
{
	struct gkv_provider *p;

	device_lock_assert(&pdev->dev);
	guard(mutex)(&gkv_providers_lock);
	list_for_each_entry(p, &providers, node) {
		if (p->kind == GKVDRV_FOREIGN && p->pdev == pdev && (!id || p->id == id)) {
			list_del_init(&p->node);
			return p;
		}
	}
	return NULL;
}

static struct gkv_provider *provider_alloc(struct pci_dev *pdev, int bar, u64 offset, u64 len,
					   u32 kind)
{
	struct gkv_provider *p = kzalloc_obj(*p, GFP_KERNEL);

	if (!p)
		return NULL;
	kobject_init(&p->kobj, &gkv_provider_ktype);
	INIT_LIST_HEAD(&p->node);
	INIT_LIST_HEAD(&p->mems);
	mutex_init(&p->lock);
	init_waitqueue_head(&p->idle);
	p->kind = kind;
	p->pdev = pci_dev_get(pdev);
	p->bar = bar;
	p->offset = offset;
	p->len = len;
	p->bus = pci_bus_address(pdev, bar) + offset;
	p->pfn = PHYS_PFN(pci_resource_start(pdev, bar) + offset);
	p->npages = len >> PAGE_SHIFT;
	p->used = vzalloc(BITS_TO_LONGS(p->npages) * sizeof(long));
	if (!p->used) {
		gkv_provider_put(p);
		return NULL;
	}
	return p;
}

struct gkv_provider *gkv_provider_create(struct pci_dev *pdev, int bar, u64 offset, u64 len,
					 u32 kind, struct gkv_why *why)
{
	struct gkv_provider *p;
	int ret;

	device_lock_assert(&pdev->dev);
	ret = gkv_need_p2pdma(why);
	if (!ret)
		ret = check_span(pdev, bar, offset, len, why);
	if (ret)
		return ERR_PTR(ret);
	p = provider_alloc(pdev, bar, offset, len, kind);
	if (!p)
		return ERR_PTR(-ENOMEM);

	mutex_lock(&gkv_providers_lock);
	ret = check_overlap(pdev, bar, offset, len, why);
	if (!ret)
		ret = find_pages(p, why);
	if (!ret)
		ret = make_pages(p, why);
	else if (ret > 0)
		ret = 0;
	if (!ret)
		ret = claim_pages(p, why);
	if (!ret) {
		p->id = next_id++;
		ret = kobject_add(&p->kobj, gkv_providers_dir, "%u", p->id);
		if (ret)
			release_pages_of(p);
	}
	if (!ret)
		list_add_tail(&p->node, &providers);
	mutex_unlock(&gkv_providers_lock);

	if (ret) {
		gkv_provider_put(p);
		return ERR_PTR(ret);
	}
	trace_gkv_provider_add(p->id, pci_name(pdev), bar, offset, len);
	dev_info(&pdev->dev, "gkvdrv: provider %u: %llu MiB of BAR %d at %#llx (%s)\n", p->id,
		 len >> 20, bar, offset, kind == GKVDRV_CARVEOUT ? "carve-out" : "foreign");
	return p;
}

static struct gkv_mem *first_alive(struct gkv_provider *p)
{
	struct gkv_mem *mem;

	guard(mutex)(&p->lock);
	p->dead = true;
	list_for_each_entry(mem, &p->mems, node) {
		if (!READ_ONCE(mem->dead)) {
			gkv_mem_get(mem);
			return mem;
		}
	}
	return NULL;
}

void gkv_provider_destroy(struct gkv_provider *p)
{
	struct gkv_mem *mem;

	mutex_lock(&gkv_providers_lock);
	list_del_init(&p->node);
	mutex_unlock(&gkv_providers_lock);
	kobject_del(&p->kobj);

	while ((mem = first_alive(p))) {
		gkv_mem_revoke(mem);
		gkv_mem_put(mem);
	}
	/* DMA under way is short, and the memory is not ours to keep: no way but to wait. */
	while (!wait_event_timeout(p->idle, !READ_ONCE(p->nr_mems), 10 * HZ))
		dev_warn(&p->pdev->dev, "gkvdrv: provider %u: waiting for DMA to end\n", p->id);
	/* Whoever gave the last back has let go of the lock. */
	mutex_lock(&p->lock);
	mutex_unlock(&p->lock);
	release_pages_of(p);
	trace_gkv_provider_del(p->id);
	dev_info(&p->pdev->dev, "gkvdrv: provider %u is gone\n", p->id);
	gkv_provider_put(p);
}

/* ---- GKVDRV_PROVIDER_INFO ---- */

int gkv_provider_info(struct gkv_call *call)
{
	struct gkvdrv_provider *a = &call->arg.provider;
	struct gkv_provider *p;

	/* Identifiers only grow, so the list is in their order. */
	guard(mutex)(&gkv_providers_lock);
	list_for_each_entry(p, &providers, node) {
		if (p->id < a->id)
			continue;
		a->id = p->id;
		a->kind = p->kind;
		a->domain = pci_domain_nr(p->pdev->bus);
		a->bdf = pci_dev_id(p->pdev);
		a->bar = p->bar;
		a->offset = p->offset;
		a->len = p->len;
		a->bus = capable(CAP_SYS_ADMIN) ? p->bus : 0;
		guard(mutex)(&p->lock);
		a->nr_objects = p->nr_mems;
		a->used = (u64)p->nr_used << PAGE_SHIFT;
		return 0;
	}
	return -ENOENT;
}
