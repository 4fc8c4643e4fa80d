// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests only: a PCI driver that exports its function's memory BAR as dma-bufs, as a GPU's
 * would, in one piece or in many, and that fails, moves and revokes when it is told to. It
 * drives what is bound to it by driver_override.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "exporter.h"

#define BAR 2

#ifdef GKV_HAVE_INVALIDATE_MAPPINGS
#define invalidate(dmabuf) dma_buf_invalidate_mappings(dmabuf)
#else
#define invalidate(dmabuf) dma_buf_move_notify(dmabuf)
#endif

/* Freed by the core, when nobody refers to it any more. */
struct fence {
	struct dma_fence base;		/* first */
	spinlock_t lock;
};

struct buffer {
	struct list_head node;
	struct dma_buf *dmabuf;
	struct exporter_make how;
	struct page *page;		/* EXPORTER_SYSTEM */
	atomic_t attached, pinned, mapped;
	wait_queue_head_t unmapped;
	struct dma_fence *fence;	/* or NULL */
	bool revoked;			/* dma_resv */
};

static DEFINE_MUTEX(lock);		/* what follows */
static LIST_HEAD(buffers);
static struct pci_dev *function;

/* ---- dma-buf ---- */

static int op_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct buffer *b = dmabuf->priv;

	if (b->how.fail == EXPORTER_FAIL_ATTACH)
		return -EIO;
	if (!attach->peer2peer)
		return -EOPNOTSUPP;
	atomic_inc(&b->attached);
	return 0;
}

static void op_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct buffer *b = dmabuf->priv;

	atomic_dec(&b->attached);
}

static int op_pin(struct dma_buf_attachment *attach)
{
	struct buffer *b = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (b->revoked)
		return -ENODEV;
	if (b->how.fail == EXPORTER_FAIL_PIN)
		return -ENOSPC;
	atomic_inc(&b->pinned);
	return 0;
}

static void op_unpin(struct dma_buf_attachment *attach)
{
	struct buffer *b = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	atomic_dec(&b->pinned);
}

static unsigned int nr_pieces(const struct buffer *b)
{
	switch (b->how.layout) {
	case EXPORTER_REVERSED:
		return DIV_ROUND_UP_ULL(b->how.len, b->how.piece);
	case EXPORTER_TWICE:
	case EXPORTER_ODD:
		return 2;
	default:
		return 1;
	}
}

static void put_piece(struct scatterlist *sg, u64 address, u64 len)
{
	/* Without a page, as the memory of a GPU has none that its driver tells of. */
	sg->page_link &= SG_END | SG_CHAIN;
	sg->length = 0;
	sg_dma_address(sg) = address;
	sg_dma_len(sg) = len;
}

static void put_pieces(const struct buffer *b, struct sg_table *sgt)
{
	u64 start = pci_bus_address(function, BAR) + b->how.offset, len = b->how.len;
	struct scatterlist *sg = sgt->sgl;
	unsigned int i, n = sgt->nents;

	switch (b->how.layout) {
	case EXPORTER_REVERSED:
		for_each_sgtable_dma_sg(sgt, sg, i)
			put_piece(sg, start + (u64)(n - 1 - i) * b->how.piece, b->how.piece);
		break;
	case EXPORTER_TWICE:
		put_piece(sg, start, PAGE_SIZE);
		put_piece(sg_next(sg), start, len - PAGE_SIZE);
		break;
	case EXPORTER_ODD:
		put_piece(sg, start, 512);
		put_piece(sg_next(sg), start + 512, len - 512);
		break;
	case EXPORTER_SHORT:
		put_piece(sg, start, len - PAGE_SIZE);
		break;
	case EXPORTER_SYSTEM:
		put_piece(sg, page_to_phys(b->page), len);
		break;
	default:
		put_piece(sg, start, len);
		break;
	}
}

static struct sg_table *op_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct buffer *b = attach->dmabuf->priv;
	struct sg_table *sgt;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (b->revoked)
		return ERR_PTR(-ENODEV);
	if (b->how.fail == EXPORTER_FAIL_MAP)
		return ERR_PTR(-ENXIO);
	if (b->how.fail == EXPORTER_FAIL_NULL)
		return NULL;
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	if (sg_alloc_table(sgt, nr_pieces(b), GFP_KERNEL)) {
		kfree(sgt);
		return ERR_PTR(-ENOMEM);
	}
	put_pieces(b, sgt);
	atomic_inc(&b->mapped);
	return sgt;
}

static void op_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
		     enum dma_data_direction dir)
{
	struct buffer *b = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	sg_free_table(sgt);
	kfree(sgt);
	if (atomic_dec_and_test(&b->mapped))
		wake_up_all(&b->unmapped);
}

/* ---- A fence ---- */

static const char *fence_name(struct dma_fence *fence)
{
	return KBUILD_MODNAME;
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
};

static int add_fence(struct buffer *b)
{
	struct dma_resv *resv = b->dmabuf->resv;
	struct fence *fence;
	int ret;

	if (!b->how.fence)
		return 0;
	fence = kzalloc(sizeof(*fence), GFP_KERNEL);
	if (!fence)
		return -ENOMEM;
	spin_lock_init(&fence->lock);
	dma_fence_init(&fence->base, &fence_ops, &fence->lock, dma_fence_context_alloc(1), 1);
	b->fence = &fence->base;
	dma_resv_lock(resv, NULL);
	ret = dma_resv_reserve_fences(resv, 1);
	if (!ret)
		dma_resv_add_fence(resv, b->fence,
				   b->how.fence == EXPORTER_FENCE_KERNEL ? DMA_RESV_USAGE_KERNEL :
									   DMA_RESV_USAGE_WRITE);
	dma_resv_unlock(resv);
	return ret;
}

static void op_release(struct dma_buf *dmabuf)
{
	struct buffer *b = dmabuf->priv;

	mutex_lock(&lock);
	list_del(&b->node);
	mutex_unlock(&lock);
	if (b->fence) {
		dma_fence_signal(b->fence);
		dma_fence_put(b->fence);
	}
	if (b->page)
		__free_pages(b->page, get_order(b->how.len));
	kfree(b);
}

static const struct dma_buf_ops ops = {
	.attach = op_attach,
	.detach = op_detach,
	.pin = op_pin,
	.unpin = op_unpin,
	.map_dma_buf = op_map,
	.unmap_dma_buf = op_unmap,
	.release = op_release,
};

static int take_back(struct buffer *b)
{
	struct dma_resv *resv = b->dmabuf->resv;

	dma_resv_lock(resv, NULL);
	b->revoked = true;
	invalidate(b->dmabuf);
	dma_resv_unlock(resv);
	return wait_event_timeout(b->unmapped, !atomic_read(&b->mapped), 10 * HZ) ? 0 : -ETIMEDOUT;
}

/* ---- /dev/gkv-exporter ---- */

static int check(const struct exporter_make *how)
{
	if (!function)
		return -ENODEV;
	if (!how->len || !PAGE_ALIGNED(how->offset | how->len) || how->len > 1ull << 40 ||
	    how->layout > EXPORTER_SHORT || how->fail > EXPORTER_FAIL_NULL ||
	    how->fence > EXPORTER_FENCE_WRITE ||
	    how->flags & ~(O_ACCMODE | O_CLOEXEC))
		return -EINVAL;
	if (how->layout == EXPORTER_REVERSED && (!how->piece || how->len % how->piece))
		return -EINVAL;
	if (how->layout >= EXPORTER_TWICE && (how->len < 2 * PAGE_SIZE || how->len > 1 << 20))
		return -EINVAL;
	return 0;
}

/* Caller holds the lock. */
static int make(struct exporter_make *how)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct buffer *b;
	int ret;

	ret = check(how);
	if (ret)
		return ret;
	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	b->how = *how;
	init_waitqueue_head(&b->unmapped);
	if (how->layout == EXPORTER_SYSTEM) {
		b->page = alloc_pages(GFP_KERNEL | __GFP_ZERO, get_order(how->len));
		if (!b->page) {
			kfree(b);
			return -ENOMEM;
		}
	}
	info.ops = &ops;
	info.size = how->len;
	info.flags = how->flags;
	info.priv = b;
	b->dmabuf = dma_buf_export(&info);
	if (IS_ERR(b->dmabuf)) {
		ret = PTR_ERR(b->dmabuf);
		if (b->page)
			__free_pages(b->page, get_order(how->len));
		kfree(b);
		return ret;
	}
	list_add(&b->node, &buffers);
	return 0;
}

static int ioctl_make(struct exporter_make __user *arg)
{
	struct exporter_make how;
	struct dma_buf *dmabuf = NULL;
	int ret;

	if (copy_from_user(&how, arg, sizeof(how)))
		return -EFAULT;
	mutex_lock(&lock);
	ret = make(&how);
	if (!ret)
		dmabuf = list_first_entry(&buffers, struct buffer, node)->dmabuf;
	mutex_unlock(&lock);
	if (ret)
		return ret;
	ret = add_fence(dmabuf->priv);
	if (ret) {
		dma_buf_put(dmabuf);
		return ret;
	}
	how.fd = dma_buf_fd(dmabuf, how.flags & O_CLOEXEC);
	if (how.fd < 0) {
		dma_buf_put(dmabuf);
		return how.fd;
	}
	return copy_to_user(arg, &how, sizeof(how)) ? -EFAULT : 0;
}

static void add_state(struct exporter_state *s, struct buffer *b)
{
	s->buffers++;
	s->attached += atomic_read(&b->attached);
	s->pinned += atomic_read(&b->pinned);
	s->mapped += atomic_read(&b->mapped);
}

/* The dma-buf behind a descriptor, with a reference, if it is one of these. */
static struct dma_buf *ours(int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);

	if (IS_ERR(dmabuf) || dmabuf->ops == &ops)
		return dmabuf;
	dma_buf_put(dmabuf);
	return ERR_PTR(-EINVAL);
}

static int ioctl_state(struct exporter_state __user *arg)
{
	struct exporter_state s, out = { };
	struct dma_buf *dmabuf;
	struct buffer *b;

	if (copy_from_user(&s, arg, sizeof(s)))
		return -EFAULT;
	out.fd = s.fd;
	if (s.fd >= 0) {
		dmabuf = ours(s.fd);
		if (IS_ERR(dmabuf))
			return PTR_ERR(dmabuf);
		add_state(&out, dmabuf->priv);
		dma_buf_put(dmabuf);
	} else {
		mutex_lock(&lock);
		list_for_each_entry(b, &buffers, node)
			add_state(&out, b);
		mutex_unlock(&lock);
	}
	return copy_to_user(arg, &out, sizeof(out)) ? -EFAULT : 0;
}

static int ioctl_on_buffer(unsigned int cmd, int fd)
{
	struct dma_buf *dmabuf = ours(fd);
	struct buffer *b;
	int ret = 0;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	b = dmabuf->priv;
	switch (cmd) {
	case EXPORTER_REVOKE:
		ret = take_back(b);
		break;
	case EXPORTER_MOVE:
		dma_resv_lock(dmabuf->resv, NULL);
		invalidate(dmabuf);
		dma_resv_unlock(dmabuf->resv);
		break;
	default:
		if (b->fence)
			dma_fence_signal(b->fence);
		else
			ret = -EINVAL;
		break;
	}
	dma_buf_put(dmabuf);
	return ret;
}

static long exporter_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case EXPORTER_MAKE:
		return ioctl_make((void __user *)arg);
	case EXPORTER_STATE:
		return ioctl_state((void __user *)arg);
	case EXPORTER_REVOKE:
	case EXPORTER_MOVE:
	case EXPORTER_SIGNAL:
		return ioctl_on_buffer(cmd, arg);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations exporter_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = exporter_ioctl,
};

static struct miscdevice exporter_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "gkv-exporter",
	.fops = &exporter_fops,
	.mode = 0600,
};

/* ---- The function ---- */

static int exporter_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int ret = pcim_enable_device(pdev);

	if (ret)
		return ret;
	mutex_lock(&lock);
	if (function)
		ret = -EBUSY;
	else
		function = pdev;
	mutex_unlock(&lock);
	return ret;
}

/* As a GPU's driver: what it exported goes before it does. */
static void exporter_remove(struct pci_dev *pdev)
{
	struct dma_buf *dmabuf;
	struct buffer *b;

	do {
		dmabuf = NULL;
		mutex_lock(&lock);
		function = NULL;
		list_for_each_entry(b, &buffers, node) {
			/* One that is on its way out needs nothing. */
			if (!READ_ONCE(b->revoked) && get_file_active(&b->dmabuf->file)) {
				dmabuf = b->dmabuf;
				break;
			}
		}
		mutex_unlock(&lock);
		if (dmabuf) {
			if (take_back(dmabuf->priv))
				dev_err(&pdev->dev, "an importer does not unmap\n");
			dma_buf_put(dmabuf);
		}
	} while (dmabuf);
}

static const struct pci_device_id exporter_ids[] = {
	{ }
};

static struct pci_driver exporter_driver = {
	.name = "gkv-exporter",
	.id_table = exporter_ids,
	.probe = exporter_probe,
	.remove = exporter_remove,
};

static int __init exporter_init(void)
{
	int ret = misc_register(&exporter_misc);

	if (ret)
		return ret;
	ret = pci_register_driver(&exporter_driver);
	if (ret)
		misc_deregister(&exporter_misc);
	return ret;
}

static void __exit exporter_exit(void)
{
	pci_unregister_driver(&exporter_driver);
	misc_deregister(&exporter_misc);
}

module_init(exporter_init);
module_exit(exporter_exit);

MODULE_DESCRIPTION("Test exporter of dma-bufs");
MODULE_LICENSE("GPL");
MODULE_INFO(import_ns, "DMA_BUF");
