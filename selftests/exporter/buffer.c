// SPDX-License-Identifier: GPL-2.0-only
/*
 * dma-bufs of a function's BAR, in one piece or in many, or of system memory; with steps that fail,
 * a fence, and an end that comes when it is asked for.
 */
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>

#include "buffer.h"

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

DEFINE_MUTEX(exporter_lock);
LIST_HEAD(exporter_buffers);
struct pci_dev *exporter_function;

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
	u64 start = b->start, len = b->how.len;
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

	mutex_lock(&exporter_lock);
	list_del(&b->node);
	mutex_unlock(&exporter_lock);
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

int buffer_take_back(struct buffer *b)
{
	struct dma_resv *resv = b->dmabuf->resv;

	dma_resv_lock(resv, NULL);
	b->revoked = true;
	invalidate(b->dmabuf);
	dma_resv_unlock(resv);
	return wait_event_timeout(b->unmapped, !atomic_read(&b->mapped), 10 * HZ) ? 0 : -ETIMEDOUT;
}

void buffer_move(struct buffer *b)
{
	dma_resv_lock(b->dmabuf->resv, NULL);
	invalidate(b->dmabuf);
	dma_resv_unlock(b->dmabuf->resv);
}

/* ---- Making one ---- */

static int check(const struct exporter_make *how)
{
	if (!exporter_function)
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

static int make_buffer(const struct exporter_make *how, struct dma_buf **dmabuf)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct buffer *b;
	int ret;

	lockdep_assert_held(&exporter_lock);
	ret = check(how);
	if (ret)
		return ret;
	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	b->how = *how;
	b->start = pci_bus_address(exporter_function, BAR) + how->offset;
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
	list_add(&b->node, &exporter_buffers);
	*dmabuf = b->dmabuf;
	return 0;
}

struct dma_buf *buffer_make(const struct exporter_make *how)
{
	struct dma_buf *dmabuf;
	int ret;

	mutex_lock(&exporter_lock);
	ret = make_buffer(how, &dmabuf);
	mutex_unlock(&exporter_lock);
	if (ret)
		return ERR_PTR(ret);
	ret = add_fence(dmabuf->priv);
	if (ret) {
		dma_buf_put(dmabuf);
		return ERR_PTR(ret);
	}
	return dmabuf;
}

struct dma_buf *buffer_get(int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);

	if (IS_ERR(dmabuf) || dmabuf->ops == &ops)
		return dmabuf;
	dma_buf_put(dmabuf);
	return ERR_PTR(-EINVAL);
}
