// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory behind regions and queue pairs: system pages, or pages of a provider.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/cleanup.h>
#include <linux/io.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>

#include "gkvdrv.h"
#include "import.h"
#include "trace.h"

/* How often pages that must go are looked at, and when their use is worth a line. */
#define DRAIN_MIN	1
#define DRAIN_MAX	(HZ / 10 + 1)
#define DRAIN_WARN	(10 * HZ)

static struct workqueue_struct *wq;
static atomic_t nr_mems;
static DECLARE_WAIT_QUEUE_HEAD(none_left);

static void drain(struct work_struct *work);

/* ---- References ---- */

static void mem_free(struct kref *ref)
{
	struct gkv_mem *mem = container_of(ref, struct gkv_mem, ref);

	if (mem->provider)
		gkv_provider_put(mem->provider);
	kvfree(mem->runs);
	kvfree(mem->pages);
	kfree(mem);
	if (atomic_dec_and_test(&nr_mems))
		wake_up(&none_left);
}

void gkv_mem_get(struct gkv_mem *mem)
{
	kref_get(&mem->ref);
}

void gkv_mem_put(struct gkv_mem *mem)
{
	kref_put(&mem->ref, mem_free);
}

struct gkv_mem *gkv_mem_alloc(struct gkv_provider *p)
{
	struct gkv_mem *mem = kzalloc_obj(*mem, GFP_KERNEL);

	if (!mem)
		return NULL;
	kref_init(&mem->ref);
	kref_get(&mem->ref);
	INIT_LIST_HEAD(&mem->node);
	INIT_LIST_HEAD(&mem->users);
	INIT_DELAYED_WORK(&mem->drain, drain);
	mutex_init(&mem->lock);
	if (p)
		kobject_get(&p->kobj);
	mem->provider = p;
	atomic_inc(&nr_mems);
	return mem;
}

/* ---- Pages ---- */

struct page *gkv_mem_page(const struct gkv_mem *mem, unsigned long index)
{
	unsigned int low = 0, high = mem->nr_runs;

	if (index >= mem->npages)
		return NULL;
	if (!mem->provider)
		return mem->pages[index];
	while (high - low > 1) {
		unsigned int mid = low + (high - low) / 2;

		if (mem->runs[mid].start <= index)
			low = mid;
		else
			high = mid;
	}
	index += mem->runs[low].first - mem->runs[low].start;
	return gkv_provider_page(mem->provider, index);
}

static void free_host_pages(struct gkv_mem *mem)
{
	for (unsigned long i = 0; i < mem->npages && mem->pages[i]; i++) {
		put_page(mem->pages[i]);
		mem->pages[i] = NULL;
	}
}

struct gkv_mem *gkv_mem_host(unsigned long npages, struct gkv_why *why)
{
	struct gkv_mem *mem = gkv_mem_alloc(NULL);

	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->charge = gkv_charge(0, npages, why);
	if (IS_ERR(mem->charge)) {
		int ret = PTR_ERR(mem->charge);

		mem->charge = NULL;
		gkv_mem_abandon(mem);
		return ERR_PTR(ret);
	}
	mem->npages = npages;
	mem->pages = kvcalloc(npages, sizeof(*mem->pages), GFP_KERNEL_ACCOUNT);
	for (unsigned long i = 0; mem->pages && i < npages; i++) {
		mem->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!mem->pages[i])
			break;
	}
	if (!mem->pages || !mem->pages[npages - 1]) {
		gkv_mem_abandon(mem);
		gkv_refuse(why, -ENOMEM, GKVDRV_WHY_NOMEM, "no memory for %lu pages", npages);
		return ERR_PTR(-ENOMEM);
	}
	return mem;
}

/* Caller holds p->lock, and has set the bits of the pages. */
static void settle(struct gkv_mem *mem)
{
	struct gkv_provider *p = mem->provider;

	p->nr_used += mem->npages;
	WRITE_ONCE(p->nr_mems, p->nr_mems + 1);
	list_add_tail(&mem->node, &p->mems);
}

/* Caller holds p->lock. */
static void clear_used(struct gkv_mem *mem, unsigned int nr_runs)
{
	for (unsigned int i = 0; i < nr_runs; i++)
		bitmap_clear(mem->provider->used, mem->runs[i].first, mem->runs[i].npages);
}

static int gone(const struct gkv_provider *p, struct gkv_why *why)
{
	return gkv_refuse(why, -ENODEV, GKVDRV_WHY_REVOKED, "provider %u is going", p->id);
}

int gkv_mem_claim(struct gkv_mem *mem, struct gkv_why *why)
{
	struct gkv_provider *p = mem->provider;

	guard(mutex)(&p->lock);
	if (p->dead)
		return gone(p, why);
	for (unsigned int i = 0; i < mem->nr_runs; i++) {
		const struct gkv_run *r = &mem->runs[i];
		unsigned long at = find_next_bit(p->used, r->first + r->npages, r->first);

		if (at < r->first + r->npages) {
			clear_used(mem, i);
			/* Where that is in the BAR is not for everyone. */
			return gkv_refuse(why, -EBUSY, GKVDRV_WHY_OVERLAP,
					  "page %lu of the %lu asked for is in another region, or twice in this one",
					  r->start + at - r->first, mem->npages);
		}
		bitmap_set(p->used, r->first, r->npages);
		cond_resched();
	}
	settle(mem);
	return 0;
}

/*
 * What the last owner left is nobody's business. The pages stay meanwhile: the caller makes the
 * mem, or holds its lock and saw that it lives.
 */
static int zero(struct gkv_mem *mem, u64 at, u64 len)
{
	u64 end = at + len;

	for (unsigned int i = 0; i < mem->nr_runs && at < end; i++) {
		const struct gkv_run *r = &mem->runs[i];
		u64 start = (u64)r->start << PAGE_SHIFT;
		u64 stop = start + ((u64)r->npages << PAGE_SHIFT);

		if (at >= stop)
			continue;
		/* Slow for the processor, and there may be a hundred gigabytes of it. */
		for (u64 n; at < min(stop, end); at += n) {
			n = min(min(stop, end) - at, PAGE_SIZE - offset_in_page(at));
			memset_io((void __iomem __force *)mem->provider->kva +
				  ((u64)r->first << PAGE_SHIFT) + at - start, 0, n);
			cond_resched();
			if (READ_ONCE(mem->dead))
				return -ENODEV;
			if (fatal_signal_pending(current))
				return -EINTR;
		}
	}
	return 0;
}

struct gkv_mem *gkv_mem_vram(struct gkv_provider *p, unsigned long npages, struct gkv_why *why)
{
	struct gkv_mem *mem;
	unsigned long at;
	int ret;

	if (p->kind != GKVDRV_CARVEOUT)
		return ERR_PTR(gkv_refuse(why, -EINVAL, GKVDRV_WHY_PROVIDER,
					  "provider %u belongs to another driver: only its dma-bufs can be used",
					  p->id));
	mem = gkv_mem_alloc(p);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->npages = npages;
	mem->nr_runs = 1;
	mem->runs = kvcalloc(1, sizeof(*mem->runs), GFP_KERNEL_ACCOUNT);
	if (!mem->runs) {
		ret = -ENOMEM;
		goto fail;
	}
	mem->charge = gkv_charge((u64)npages << PAGE_SHIFT, 0, why);
	if (IS_ERR(mem->charge)) {
		ret = PTR_ERR(mem->charge);
		mem->charge = NULL;
		goto fail;
	}
	mutex_lock(&p->lock);
	at = bitmap_find_next_zero_area(p->used, p->npages, 0, npages, 0);
	if (p->dead) {
		ret = gone(p, why);
	} else if (at >= p->npages) {
		ret = gkv_refuse(why, -ENOMEM, GKVDRV_WHY_NOMEM,
				 "provider %u has no %lu pages in a row free, %lu of %lu are used",
				 p->id, npages, p->nr_used, p->npages);
	} else {
		mem->runs[0] = (struct gkv_run){ .first = at, .npages = npages };
		bitmap_set(p->used, at, npages);
		settle(mem);
		ret = 0;
	}
	mutex_unlock(&p->lock);
	if (!ret)
		ret = zero(mem, 0, (u64)npages << PAGE_SHIFT);
	if (!ret)
		return mem;
fail:
	gkv_mem_abandon(mem);
	return ERR_PTR(ret);
}

/* ---- The end ---- */

static bool in_use(const struct gkv_mem *mem)
{
	for (unsigned long i = 0; i < mem->npages; i++) {
		if (page_ref_count(gkv_mem_page(mem, i)) != 1)
			return true;
		if (!(i % 65536))
			cond_resched();
	}
	return false;
}

/* Nobody refers to its pages. */
static void give_back(struct gkv_mem *mem)
{
	struct gkv_provider *p = mem->provider;

	if (mem->attach)
		gkv_import_release(mem);
	if (p) {
		mutex_lock(&p->lock);
		if (!list_empty(&mem->node)) {
			clear_used(mem, mem->nr_runs);
			p->nr_used -= mem->npages;
			list_del_init(&mem->node);
			WRITE_ONCE(p->nr_mems, p->nr_mems - 1);
		}
		mutex_unlock(&p->lock);
		wake_up(&p->idle);
	} else if (mem->pages) {
		free_host_pages(mem);
	}
	gkv_uncharge(mem->charge);
	mem->charge = NULL;
	gkv_mem_put(mem);
}

void gkv_mem_abandon(struct gkv_mem *mem)
{
	/* Nobody drains what has not been made. */
	mutex_lock(&mem->lock);
	WRITE_ONCE(mem->dead, true);
	mutex_unlock(&mem->lock);
	give_back(mem);
	gkv_mem_put(mem);
}

/* No mapping is left, and none will come. */
static void drain(struct work_struct *work)
{
	struct gkv_mem *mem = container_of(to_delayed_work(work), struct gkv_mem, drain);
	struct gkv_provider *p = mem->provider;
	unsigned long waited = jiffies - mem->drain_since;

	if (p && in_use(mem)) {
		if (waited > DRAIN_WARN)
			pr_warn_ratelimited("%lu pages of provider %u are in use %lu s after they were given up\n",
					    mem->npages, p->id, waited / HZ);
		queue_delayed_work(wq, &mem->drain, clamp(waited, DRAIN_MIN, DRAIN_MAX));
		return;
	}
	give_back(mem);
}

static void retire(struct gkv_mem *mem)
{
	lockdep_assert_held(&mem->lock);
	if (mem->dead)
		return;
	WRITE_ONCE(mem->dead, true);
	/* Whoever makes it finds out. */
	if (!mem->made)
		return;
	mem->drain_since = jiffies;
	queue_delayed_work(wq, &mem->drain, 0);
}

void gkv_mem_revoke(struct gkv_mem *mem)
{
	struct gkv_part *part;

	mutex_lock(&mem->lock);
	if (!mem->dead) {
		trace_gkv_revoke(mem->npages);
		atomic64_inc(&gkv_counters.revoked);
		/* Nobody can map it any more before its pages are looked at. */
		list_for_each_entry(part, &mem->users, node)
			gkv_obj_kill(part->obj);
		retire(mem);
	}
	mutex_unlock(&mem->lock);
}

/* Is any of these bytes a queue pair's? They have one owner. */
static bool in_queue(const struct gkv_mem *mem, u64 offset, u64 len)
{
	const struct gkv_part *part;

	list_for_each_entry(part, &mem->users, node) {
		if (part->obj->is_qp && offset < part->offset + part->len &&
		    part->offset < offset + len)
			return true;
	}
	return false;
}

int gkv_obj_attach(struct gkv_obj *obj, unsigned int index, struct gkv_mem *mem, u64 offset,
		   u64 len)
{
	struct gkv_part *part = &obj->parts[index];

	guard(mutex)(&mem->lock);
	if (mem->dead)
		return -ENODEV;
	if (obj->is_qp) {
		if (in_queue(mem, offset, len))
			return -EBUSY;
		if (mem->provider && mem->made) {
			int ret = zero(mem, offset, len);

			if (ret)
				return ret;
		}
	}
	mem->made = true;
	part->obj = obj;
	part->mem = mem;
	part->offset = offset;
	part->len = len;
	part->pgoff = index ? part[-1].pgoff + part[-1].npages : 0;
	part->npages = PFN_UP(offset_in_page(offset) + len);
	list_add_tail(&part->node, &mem->users);
	gkv_mem_get(mem);
	obj->nr_parts = index + 1;
	return 0;
}

/* The object has no mappings any more. */
void gkv_part_detach(struct gkv_part *part)
{
	struct gkv_mem *mem = part->mem;
	bool at_once = false;

	mutex_lock(&mem->lock);
	list_del(&part->node);
	if (list_empty(&mem->users)) {
		/*
		 * What nobody uses is there for the next one when close() returns. System pages
		 * outlive it by themselves.
		 */
		at_once = !mem->dead && !(mem->provider && in_use(mem));
		if (at_once)
			WRITE_ONCE(mem->dead, true);
		else
			retire(mem);
	}
	mutex_unlock(&mem->lock);
	if (at_once)
		give_back(mem);
	gkv_mem_put(mem);
}

int gkv_mem_init(void)
{
	wq = alloc_workqueue("gkvdrv", WQ_UNBOUND, 0);
	return wq ? 0 : -ENOMEM;
}

void gkv_mem_exit(void)
{
	wait_event(none_left, !atomic_read(&nr_mems));
	destroy_workqueue(wq);
}
