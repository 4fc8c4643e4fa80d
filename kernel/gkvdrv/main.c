// SPDX-License-Identifier: GPL-2.0-only
/*
 * gkvdrv: GPU memory as pages that disks can do DMA to, and queue pairs in it.
 *
 * /dev/gkv gives out descriptors of regions and queue pairs. Everything belongs to its
 * descriptor: it goes when the last of them is closed and the last mapping is gone.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "gkvdrv.h"

static int info(struct gkv_call *call)
{
	struct gkvdrv_info *a = &call->arg.info;
	u32 abi = a->abi;

	a->abi = GKVDRV_ABI;
	if (abi != GKVDRV_ABI)
		return gkv_refuse(&call->why, -EPROTO, GKVDRV_WHY_ABI,
				  "caller was built for version %u of the interface, the module has %u",
				  abi, GKVDRV_ABI);
	a->page_size = PAGE_SIZE;
	a->caps = IS_ENABLED(CONFIG_PCI_P2PDMA) ? GKVDRV_CAP_VRAM | GKVDRV_CAP_IMPORT : 0;
	a->poll_interval_ns = READ_ONCE(gkv_poll_interval_ns);
	a->max_queue_depth = READ_ONCE(gkv_max_queue_depth);
	a->nr_providers = gkv_provider_count();
	a->max_user_objects = READ_ONCE(gkv_max_user_objects);
	a->max_user_bytes = READ_ONCE(gkv_max_user_bytes);
	gkv_user_usage(&a->user_objects, &a->user_bytes);
	return 0;
}

static const struct gkv_ioctl ioctls[] = {
	/* Callers of any version learn what the module's is. */
	GKV_IOCTL(GKVDRV_INFO, info, gkvdrv_info, abi),
	GKV_IOCTL(GKVDRV_PROVIDER_INFO, gkv_provider_info, gkvdrv_provider, bus),
	GKV_IOCTL(GKVDRV_PROVIDER_ADD, gkv_foreign_add, gkvdrv_provider, bus),
	GKV_IOCTL(GKVDRV_PROVIDER_DEL, gkv_foreign_del, gkvdrv_provider, bus),
	GKV_IOCTL(GKVDRV_ALLOC, gkv_region_alloc, gkvdrv_alloc, len),
	GKV_IOCTL(GKVDRV_IMPORT, gkv_region_import, gkvdrv_import, len),
	GKV_IOCTL(GKVDRV_QP_CREATE, gkv_qp_create, gkvdrv_qp, parts),
};

static long gkv_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return gkv_ioctl_run(ioctls, ARRAY_SIZE(ioctls), file, cmd, arg);
}

/* The device is there before everything behind it is, and may go again. */
static bool ready;

static int gkv_open(struct inode *inode, struct file *file)
{
	/* Pairs with the release in gkv_init(). */
	return smp_load_acquire(&ready) ? 0 : -EAGAIN;
}

static const struct file_operations gkv_fops = {
	.owner = THIS_MODULE,
	.open = gkv_open,
	.unlocked_ioctl = gkv_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice gkv_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "gkv",
	.fops = &gkv_fops,
	.groups = gkv_groups,
	.mode = 0660,
};

static int __init gkv_init(void)
{
	int ret = gkv_mem_init();

	if (ret)
		return ret;
	gkv_report_init();
	ret = misc_register(&gkv_misc);
	if (ret)
		goto mem;
	ret = gkv_sysfs_init(gkv_misc.this_device);
	if (ret)
		goto misc;
	ret = gkv_foreign_init();
	if (ret)
		goto sysfs;
	ret = gkv_carveout_init();
	if (ret)
		goto foreign;
	if (!IS_ENABLED(CONFIG_PCI_P2PDMA))
		pr_info("this kernel is built without CONFIG_PCI_P2PDMA: host memory only\n");
	/* Whoever may open it sees all that was set up. */
	smp_store_release(&ready, true);
	return 0;

foreign:
	gkv_foreign_exit();
sysfs:
	gkv_sysfs_exit();
misc:
	misc_deregister(&gkv_misc);
mem:
	gkv_mem_exit();
	return ret;
}

static void __exit gkv_exit(void)
{
	gkv_carveout_exit();
	gkv_foreign_exit();
	gkv_sysfs_exit();
	misc_deregister(&gkv_misc);
	gkv_mem_exit();
}

module_init(gkv_init);
module_exit(gkv_exit);

MODULE_DESCRIPTION("GPU memory and queue pairs for key-value storage");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
