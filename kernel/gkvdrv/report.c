// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where memory is: what a client and a test can hold against /proc/iomem.
 */
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/uaccess.h>

#include "gkvdrv.h"

static siphash_key_t page_key;

void gkv_report_init(void)
{
	get_random_bytes(&page_key, sizeof(page_key));
}

/* Tells pages apart, and not where they are. */
static u64 page_id(unsigned long pfn)
{
	return siphash_1u64(pfn, &page_key) ?: 1;
}

struct runs {
	struct gkvdrv_run __user *to;
	u32 room, n;
};

static int put_run(struct runs *r, u64 bus, u64 len)
{
	struct gkvdrv_run run = { .bus = bus, .len = len };

	if (r->n < r->room && copy_to_user(&r->to[r->n], &run, sizeof(run)))
		return -EFAULT;
	r->n++;
	return 0;
}

/* The part's bytes, as runs of bus addresses. */
static int put_runs(const struct gkv_part *part, struct runs *r)
{
	const struct gkv_mem *mem = part->mem;
	u64 at = part->offset, end = part->offset + part->len;

	for (unsigned int i = 0; i < mem->nr_runs && at < end; i++) {
		const struct gkv_run *run = &mem->runs[i];
		u64 start = (u64)run->start << PAGE_SHIFT;
		u64 stop = start + ((u64)run->npages << PAGE_SHIFT);
		int ret;

		if (at >= stop)
			continue;
		ret = put_run(r, mem->provider->bus + ((u64)run->first << PAGE_SHIFT) + at - start,
			      min(stop, end) - at);
		if (ret)
			return ret;
		at = min(stop, end);
	}
	return 0;
}

int gkv_report(struct gkv_call *call)
{
	struct gkv_obj *obj = call->file->private_data;
	struct gkvdrv_report *a = &call->arg.report;
	struct runs runs = { .to = u64_to_user_ptr(a->runs), .room = a->runs ? a->nr_runs : 0 };
	const struct gkv_provider *p;
	const struct gkv_part *part;
	u64 first;

	if (a->part >= obj->nr_parts)
		return gkv_refuse(&call->why, -EINVAL, GKVDRV_WHY_SIZE, "part %u of %u", a->part,
				  obj->nr_parts);
	if (a->runs && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	part = &obj->parts[a->part];
	p = part->mem->provider;
	a->len = part->len;
	a->nr_pages = part->npages;
	a->mode = obj->mode;
	a->nr_runs = 0;
	a->provider = 0;
	a->domain = 0;
	a->bdf = 0;
	a->bar = 0;
	a->bar_offset = 0;
	a->page_id = 0;
	/* What is gone may be somebody else's by the time it is told. */
	if (READ_ONCE(obj->dead) || READ_ONCE(part->mem->dead)) {
		a->place = GKVDRV_GONE;
		return 0;
	}
	if (!p) {
		a->place = GKVDRV_HOST;
		return 0;
	}
	a->place = GKVDRV_VRAM;
	a->provider = p->id;
	a->domain = pci_domain_nr(p->pdev->bus);
	a->bdf = pci_dev_id(p->pdev);
	a->bar = p->bar;
	first = page_to_pfn(gkv_mem_page(part->mem, PFN_DOWN(part->offset)));
	a->page_id = page_id(first);
	/* With the address of the BAR, which is no secret, it is one. */
	if (capable(CAP_SYS_ADMIN))
		a->bar_offset = p->offset + ((first - p->pfn) << PAGE_SHIFT) +
				offset_in_page(part->offset);
	if (put_runs(part, &runs))
		return -EFAULT;
	a->nr_runs = runs.n;
	return 0;
}
