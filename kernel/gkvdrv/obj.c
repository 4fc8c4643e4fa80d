// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors of regions and queue pairs: mapping them, being told of their end.
 *
 * Each object has an address_space of its own, so that zapping hits its mappings and no
 * others, in whichever processes they are.
 */
#include <linux/anon_inodes.h>
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/poll.h>

#include "gkvdrv.h"
#include "trace.h"

static const struct file_operations region_fops, qp_fops;

struct gkv_obj *gkv_obj_alloc(void)
{
	struct gkv_obj *obj = kzalloc_obj(*obj, GFP_KERNEL_ACCOUNT);

	if (!obj)
		return NULL;
	address_space_init_once(&obj->mapping);
	init_waitqueue_head(&obj->poll);
	init_rwsem(&obj->sem);
	return obj;
}

void gkv_obj_free(struct gkv_obj *obj)
{
	/* A revocation that found the object holds the lock of a mem that is detached here. */
	for (unsigned int i = 0; i < obj->nr_parts; i++)
		gkv_part_detach(&obj->parts[i]);
	if (obj->notify)
		eventfd_ctx_put(obj->notify);
	kfree(obj);
}

struct file *gkv_obj_file(struct gkv_obj *obj)
{
	struct file *file;

	file = anon_inode_getfile(obj->is_qp ? "[gkv-qp]" : "[gkv-region]",
				  obj->is_qp ? &qp_fops : &region_fops, obj, O_RDWR | O_CLOEXEC);
	if (IS_ERR(file)) {
		gkv_obj_free(obj);
		return file;
	}
	obj->mapping.host = file_inode(file);
	obj->mapping.a_ops = &empty_aops;
	file->f_mapping = &obj->mapping;
	/* Mappings need it; there is nothing to be read or written. */
	file->f_mode &= ~(FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE);
	return file;
}

struct gkv_obj *gkv_region_of(struct file *file)
{
	return file->f_op == &region_fops ? file->private_data : NULL;
}

void gkv_obj_kill(struct gkv_obj *obj)
{
	bool was_dead;

	down_write(&obj->sem);
	was_dead = obj->dead;
	obj->dead = true;
	if (!was_dead && obj->notify)
		eventfd_signal(obj->notify);
	up_write(&obj->sem);
	/*
	 * A fault that came first has its page in place; later ones see that it is dead. Whoever
	 * comes second zaps as well: it must not return before the first is done.
	 */
	unmap_mapping_range(&obj->mapping, 0, 0, 1);
	wake_up_all(&obj->poll);
}

/* ---- Mappings ---- */

static struct gkv_part *part_at(struct gkv_obj *obj, unsigned long pgoff, unsigned long npages)
{
	for (unsigned int i = 0; i < obj->nr_parts; i++) {
		struct gkv_part *part = &obj->parts[i];

		if (pgoff >= part->pgoff && pgoff - part->pgoff < part->npages)
			return npages <= part->npages - (pgoff - part->pgoff) ? part : NULL;
	}
	return NULL;
}

static struct page *part_page(const struct gkv_part *part, unsigned long pgoff)
{
	return gkv_mem_page(part->mem, PFN_DOWN(part->offset) + pgoff - part->pgoff);
}

/*
 * The pages after the one that faulted, as far as its page table, its mapping and its part go: one
 * by one, a region of a GiB would fault 262144 times. What is not put in place here will fault.
 */
static void fault_ahead(struct vm_fault *vmf, const struct gkv_part *part)
{
	unsigned long addr = (vmf->address & PAGE_MASK) + PAGE_SIZE, pgoff = vmf->pgoff + 1;
	unsigned long left = (min(ALIGN(addr, PMD_SIZE), vmf->vma->vm_end) - addr) >> PAGE_SHIFT;
	struct page *pages[32];

	left = min(left, part->pgoff + part->npages - pgoff);
	while (left) {
		unsigned long n = min(left, ARRAY_SIZE(pages)), missing = n;

		for (unsigned long i = 0; i < n; i++)
			pages[i] = part_page(part, pgoff + i);
		/* It stops at one that is in place. */
		if (vm_insert_pages(vmf->vma, addr, pages, &missing))
			break;
		addr += n << PAGE_SHIFT;
		pgoff += n;
		left -= n;
	}
}

static vm_fault_t obj_fault(struct vm_fault *vmf)
{
	struct gkv_obj *obj = vmf->vma->vm_file->private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	struct gkv_part *part;
	struct page *page;

	down_read(&obj->sem);
	/* After mremap() and partial unmapping only pgoff says what is meant. */
	part = obj->dead ? NULL : part_at(obj, vmf->pgoff, 1);
	if (part) {
		page = part_page(part, vmf->pgoff);
		if (page)
			ret = vmf_insert_page(vmf->vma, vmf->address, page);
		if (ret == VM_FAULT_NOPAGE)
			fault_ahead(vmf, part);
	}
	up_read(&obj->sem);
	atomic64_inc(ret & VM_FAULT_SIGBUS ? &gkv_counters.sigbus : &gkv_counters.faults);
	return ret;
}

static const struct vm_operations_struct obj_vm_ops = {
	.fault = obj_fault,
};

static int obj_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct gkv_obj *obj = file->private_data;
	struct gkv_part *part = part_at(obj, vma->vm_pgoff, vma_pages(vma));

	/* A private copy of a queue would be no queue. */
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	/* Beyond the end, or over two parts, which may need different attributes. */
	if (!part)
		return -ENXIO;
	if (READ_ONCE(obj->dead))
		return -ENODEV;
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vm_flags_clear(vma, VM_MAYEXEC);
	if (part->mem->provider)
		vma->vm_page_prot = part->uncached ? pgprot_noncached(vma->vm_page_prot) :
						     pgprot_writecombine(vma->vm_page_prot);
	vma->vm_ops = &obj_vm_ops;
	return 0;
}

/* ---- Other operations ---- */

static __poll_t obj_poll(struct file *file, poll_table *wait)
{
	struct gkv_obj *obj = file->private_data;
	__poll_t events;

	poll_wait(file, &obj->poll, wait);
	down_read(&obj->sem);
	events = obj->dead ? EPOLLERR | EPOLLHUP : 0;
	up_read(&obj->sem);
	return events;
}

static int obj_notify(struct gkv_call *call)
{
	struct gkv_obj *obj = call->file->private_data;
	const struct gkvdrv_notify *a = &call->arg.notify;
	struct eventfd_ctx *ctx = NULL;

	if (a->rsvd || a->eventfd < -1)
		return -EINVAL;
	if (a->eventfd >= 0) {
		ctx = eventfd_ctx_fdget(a->eventfd);
		if (IS_ERR(ctx))
			return PTR_ERR(ctx);
	}
	down_write(&obj->sem);
	swap(obj->notify, ctx);
	if (obj->dead && obj->notify)
		eventfd_signal(obj->notify);
	up_write(&obj->sem);
	if (ctx)
		eventfd_ctx_put(ctx);
	return 0;
}

/* A queue pair gives up itself and what is its own; a region everything that lies in it. */
static int obj_revoke(struct gkv_call *call)
{
	struct gkv_obj *obj = call->file->private_data;

	gkv_obj_kill(obj);
	for (unsigned int i = 0; i < obj->nr_parts; i++) {
		if (!obj->is_qp || obj->parts[i].own)
			gkv_mem_revoke(obj->parts[i].mem);
	}
	return 0;
}

static int obj_release(struct inode *inode, struct file *file)
{
	struct gkv_obj *obj = file->private_data;

	trace_gkv_close(obj->is_qp);
	gkv_obj_free(obj);
	return 0;
}

static const struct gkv_ioctl region_ioctls[] = {
	GKV_IOCTL(GKVDRV_REPORT, gkv_report, gkvdrv_report, runs),
	GKV_IOCTL(GKVDRV_NOTIFY, obj_notify, gkvdrv_notify, rsvd),
	GKV_IOCTL(GKVDRV_REVOKE, obj_revoke, gkvdrv_revoke, head),
	GKV_IOCTL(GKVDRV_REACH, gkv_reach, gkvdrv_reach, rsvd),
};

static const struct gkv_ioctl qp_ioctls[] = {
	GKV_IOCTL(GKVDRV_REPORT, gkv_report, gkvdrv_report, runs),
	GKV_IOCTL(GKVDRV_NOTIFY, obj_notify, gkvdrv_notify, rsvd),
	GKV_IOCTL(GKVDRV_REVOKE, obj_revoke, gkvdrv_revoke, head),
};

static long region_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return gkv_ioctl_run(region_ioctls, ARRAY_SIZE(region_ioctls), file, cmd, arg);
}

static long qp_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return gkv_ioctl_run(qp_ioctls, ARRAY_SIZE(qp_ioctls), file, cmd, arg);
}

static const struct file_operations region_fops = {
	.owner = THIS_MODULE,
	.mmap = obj_mmap,
	.poll = obj_poll,
	.release = obj_release,
	.unlocked_ioctl = region_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static const struct file_operations qp_fops = {
	.owner = THIS_MODULE,
	.mmap = obj_mmap,
	.poll = obj_poll,
	.release = obj_release,
	.unlocked_ioctl = qp_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
