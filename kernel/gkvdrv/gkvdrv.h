/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * gkvdrv: what its files share.
 *
 * Objects, from the bottom up:
 *
 *   provider	a span of a BAR whose pages gkvdrv has claimed, all of them
 *   mem	pages: of system memory, or runs of a provider's pages
 *   obj	what a descriptor stands for: a region (one part) or a queue pair
 *		(three); each part is a span of a mem
 *
 * A mem lives as long as a part uses it. Its pages may go before that, when it is
 * revoked: mappings are zapped first, then gkv_mem waits until nobody refers to the
 * pages any more (DMA under way), and only then gives them back.
 *
 * Lock order:
 *
 *   mmap_lock -> dma_resv -> gkv_mem.lock -> gkv_obj.sem -> (fs_reclaim, i_mmap_rwsem)
 *   device lock -> gkv_providers_lock -> gkv_provider.lock
 *
 * Nothing that takes mmap_lock (user copies included) runs under any of them, except
 * that the fault handler takes gkv_obj.sem under mmap_lock.
 */
#ifndef GKVDRV_H
#define GKVDRV_H

#include <linux/fs.h>
#include <linux/kobject.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include <gkv/gkvdrv.h>
#include <gkv/queue.h>

#include "compat.h"

struct dma_buf;
struct dma_buf_attachment;
struct eventfd_ctx;
struct gkv_obj;
struct sg_table;
struct user_struct;

/* ---- why.c: reasons of refusals ---- */

struct gkv_why {
	u32 reason;
	char text[GKVDRV_TEXT];
};

/* Note why; returns @err, a negative errno. */
__printf(4, 5)
int gkv_refuse(struct gkv_why *why, int err, u32 reason, const char *fmt, ...);
/* Comes before what else may be wrong with VRAM: nothing will help. */
int gkv_need_p2pdma(struct gkv_why *why);

/* ---- ioctl.c: arguments in, results out ---- */

union gkv_arg {
	struct gkvdrv_head head;
	struct gkvdrv_info info;
	struct gkvdrv_provider provider;
	struct gkvdrv_alloc alloc;
	struct gkvdrv_import import;
	struct gkvdrv_qp qp;
	struct gkvdrv_report report;
	struct gkvdrv_notify notify;
	struct gkvdrv_revoke revoke;
	struct gkvdrv_reach reach;
};

struct gkv_call {
	struct file *file;		/* what the ioctl was called on */
	union gkv_arg arg;
	struct gkv_why why;
	/* A descriptor that the call gives out: installed when nothing can fail any more. */
	struct file *new_file;
	int new_fd;
};

struct gkv_ioctl {
	unsigned int cmd;
	u32 min_size;
	u32 size;
	int (*fn)(struct gkv_call *call);
};

#define GKV_IOCTL(_cmd, _fn, _type, _last) {				\
	.cmd = _cmd, .fn = _fn, .size = sizeof(struct _type),		\
	.min_size = offsetofend(struct _type, _last) }

long gkv_ioctl_run(const struct gkv_ioctl *table, size_t n, struct file *file, unsigned int cmd,
		   unsigned long uarg);
/* Make @file the call's new descriptor. Consumes @file, also when it fails. */
int gkv_call_give(struct gkv_call *call, struct file *file);

/* ---- user.c: what one user may have ---- */

struct gkv_charge;

/*
 * Charge the current user one object and @vram bytes of VRAM, and @host pages to its
 * RLIMIT_MEMLOCK. An ERR_PTR with a reason when a limit is met.
 */
struct gkv_charge *gkv_charge(u64 vram, unsigned long host, struct gkv_why *why);
void gkv_uncharge(struct gkv_charge *charge);
void gkv_user_usage(u32 *objects, u64 *bytes);

/* ---- provider.c ---- */

struct gkv_provider {
	struct kobject kobj;		/* its reference count; sysfs */
	struct list_head node;		/* of the list; gkv_providers_lock */
	u32 id, kind;
	struct pci_dev *pdev;
	int bar;
	u64 offset, len, bus;
	void *kva;			/* in the kernel's map of these pages */
	unsigned long pfn, npages;
	int rest;			/* reference count of a page that nobody has claimed */
	struct mutex lock;		/* what follows */
	bool dead;			/* gives out nothing any more */
	unsigned long *used;		/* a bit for each page */
	unsigned long nr_used;
	u32 nr_mems;
	struct list_head mems;
	wait_queue_head_t idle;		/* no mems left */
};

/*
 * Claim a span of a BAR. Caller holds the device lock of @pdev, which has a driver. An
 * ERR_PTR with a reason when the span cannot be had whole.
 */
struct gkv_provider *gkv_provider_create(struct pci_dev *pdev, int bar, u64 offset, u64 len,
					 u32 kind, struct gkv_why *why);
/* Revoke what is in use, wait for it, and give the pages back. Sleeps. */
void gkv_provider_destroy(struct gkv_provider *p);
/* With a reference; an ERR_PTR with a reason if there is none. */
struct gkv_provider *gkv_provider_get(u32 id, struct gkv_why *why);
/* The function of the foreign provider @id, or of any (0), with a reference; or NULL. */
struct pci_dev *gkv_provider_foreign(u32 id);
/* Off the list, to be destroyed: a foreign provider of @pdev, whose device lock is held. */
struct gkv_provider *gkv_provider_take(struct pci_dev *pdev, u32 id);
void gkv_provider_put(struct gkv_provider *p);
int gkv_provider_info(struct gkv_call *call);
u32 gkv_provider_count(void);

static inline struct page *gkv_provider_page(const struct gkv_provider *p, unsigned long i)
{
	return pfn_to_page(p->pfn + i);
}

/* foreign.c, carveout.c */
int gkv_foreign_add(struct gkv_call *call);
int gkv_foreign_del(struct gkv_call *call);
int gkv_foreign_init(void);
void gkv_foreign_exit(void);
int gkv_carveout_init(void);
void gkv_carveout_exit(void);

/* ---- mem.c ---- */

/* Pages @first ... of the provider, which are pages @start ... of the mem. */
struct gkv_run {
	unsigned long start, first, npages;
};

struct gkv_mem {
	struct kref ref;		/* each part's, its maker's, one until its pages are gone */
	unsigned long npages;
	struct gkv_charge *charge;

	struct gkv_provider *provider;	/* NULL: system memory */
	struct list_head node;		/* of the provider's; provider->lock */
	struct gkv_run *runs;
	unsigned int nr_runs;
	struct page **pages;		/* system memory */

	/* import.c */
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;

	struct mutex lock;		/* what follows */
	struct list_head users;		/* struct gkv_part.node */
	bool made;			/* a part has used it; before, its maker cleans up */
	bool dead;			/* they go, or are gone */
	struct delayed_work drain;
	unsigned long drain_since;	/* jiffies */
};

/*
 * Making one: the maker has a reference, and drops it when a part is attached. A revocation
 * meanwhile only marks the mem; the maker finds out and abandons it.
 */
struct gkv_mem *gkv_mem_host(unsigned long npages, struct gkv_why *why);
/* Zeroed pages of a carve-out. */
struct gkv_mem *gkv_mem_vram(struct gkv_provider *p, unsigned long npages, struct gkv_why *why);
/* A mem without pages yet, for an import. */
struct gkv_mem *gkv_mem_alloc(struct gkv_provider *p);
/* Claim the pages that @runs names, and put the mem on the provider's list. */
int gkv_mem_claim(struct gkv_mem *mem, struct gkv_why *why);
/* Undo any of the above, when no part was ever attached; drops the maker's reference. */
void gkv_mem_abandon(struct gkv_mem *mem);
void gkv_mem_get(struct gkv_mem *mem);
void gkv_mem_put(struct gkv_mem *mem);
/* Zap all mappings, tell the holders, and give the pages back when nobody uses them. */
void gkv_mem_revoke(struct gkv_mem *mem);
struct page *gkv_mem_page(const struct gkv_mem *mem, unsigned long index);
/* Wait until all mems are gone: at exit. */
int gkv_mem_init(void);
void gkv_mem_exit(void);

/* ---- obj.c ---- */

/* @len bytes from @offset of a mem, which is what a region or a part of a queue pair is. */
struct gkv_part {
	struct gkv_obj *obj;
	struct gkv_mem *mem;
	struct list_head node;		/* of mem->users; mem->lock */
	u64 offset, len;
	unsigned long pgoff, npages;	/* of the object's mappings */
	bool uncached;			/* in VRAM: not even write-combining */
	bool own;			/* a queue pair's, allocated with it */
};

struct gkv_obj {
	bool is_qp;
	u32 mode;
	unsigned int nr_parts;
	struct gkv_part parts[GKVDRV_PARTS];
	struct address_space mapping;
	wait_queue_head_t poll;
	struct rw_semaphore sem;	/* what follows; read by faults */
	bool dead;
	struct eventfd_ctx *notify;
};

struct gkv_obj *gkv_obj_alloc(void);
/*
 * Make @part a span of @mem; a queue pair's is zeroed. -ENODEV when @mem is revoked, -EBUSY when
 * some of it is in a queue pair. Takes a reference.
 */
int gkv_obj_attach(struct gkv_obj *obj, unsigned int part, struct gkv_mem *mem, u64 offset,
		   u64 len);
/* A file for it, which owns it from then on, also when this fails. */
struct file *gkv_obj_file(struct gkv_obj *obj);
void gkv_obj_free(struct gkv_obj *obj);
void gkv_part_detach(struct gkv_part *part);
/*
 * Zap its mappings, for good, and tell its holder. Caller holds its file, or the lock of a
 * mem that it uses.
 */
void gkv_obj_kill(struct gkv_obj *obj);
/* The object behind a file that is a region's; NULL for any other. */
struct gkv_obj *gkv_region_of(struct file *file);

/* report.c, reach.c */
void gkv_report_init(void);
int gkv_report(struct gkv_call *call);
int gkv_reach(struct gkv_call *call);

/* Make a region of all of @mem, consumed also when this fails: its descriptor in *@fd. */
int gkv_region_give(struct gkv_call *call, struct gkv_mem *mem, u64 len, s32 *fd);
int gkv_region_alloc(struct gkv_call *call);
int gkv_region_import(struct gkv_call *call);
int gkv_qp_create(struct gkv_call *call);

/* ---- sysfs.c ---- */

/* Settings: read without a lock, written through sysfs. */
extern u64 gkv_poll_interval_ns;
extern unsigned int gkv_max_queue_depth;
extern unsigned int gkv_max_user_objects;
extern u64 gkv_max_user_bytes;

/* Since the module was loaded. @revoked: descriptors. */
struct gkv_counters {
	atomic64_t regions, imports, qps, revoked, refused, faults, sigbus;
};

extern struct gkv_counters gkv_counters;
extern const struct attribute_group *gkv_groups[];
extern const struct kobj_type gkv_provider_ktype;

/* The directory that providers appear in. */
int gkv_sysfs_init(struct device *dev);
void gkv_sysfs_exit(void);
extern struct kobject *gkv_providers_dir;

#endif
