// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests only: a PCI driver that exports its function's memory BAR as dma-bufs (buffer.c), as a
 * GPU's would. It drives what is bound to it by driver_override, and does what /dev/gkv-exporter is
 * told (exporter.h).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/uaccess.h>

#include "buffer.h"

/* ---- /dev/gkv-exporter ---- */

static int ioctl_make(struct exporter_make __user *arg)
{
	struct exporter_make how;
	struct dma_buf *dmabuf;

	if (copy_from_user(&how, arg, sizeof(how)))
		return -EFAULT;
	dmabuf = buffer_make(&how);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
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

static int ioctl_state(struct exporter_state __user *arg)
{
	struct exporter_state s, out = { };
	struct dma_buf *dmabuf;
	struct buffer *b;

	if (copy_from_user(&s, arg, sizeof(s)))
		return -EFAULT;
	out.fd = s.fd;
	if (s.fd >= 0) {
		dmabuf = buffer_get(s.fd);
		if (IS_ERR(dmabuf))
			return PTR_ERR(dmabuf);
		add_state(&out, dmabuf->priv);
		dma_buf_put(dmabuf);
	} else {
		mutex_lock(&exporter_lock);
		list_for_each_entry(b, &exporter_buffers, node)
			add_state(&out, b);
		mutex_unlock(&exporter_lock);
	}
	return copy_to_user(arg, &out, sizeof(out)) ? -EFAULT : 0;
}

static int ioctl_on_buffer(unsigned int cmd, int fd)
{
	struct dma_buf *dmabuf = buffer_get(fd);
	struct buffer *b;
	int ret = 0;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	b = dmabuf->priv;
	switch (cmd) {
	case EXPORTER_REVOKE:
		ret = buffer_take_back(b);
		break;
	case EXPORTER_MOVE:
		buffer_move(b);
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
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	mutex_lock(&exporter_lock);
	if (exporter_function)
		ret = -EBUSY;
	else
		exporter_function = pdev;
	mutex_unlock(&exporter_lock);
	return ret;
}

/* As a GPU's driver: what it exported goes before it does. */
static void exporter_remove(struct pci_dev *pdev)
{
	struct dma_buf *dmabuf;
	struct buffer *b;

	do {
		dmabuf = NULL;
		mutex_lock(&exporter_lock);
		exporter_function = NULL;
		list_for_each_entry(b, &exporter_buffers, node) {
			/* One that is on its way out needs nothing. */
			if (!READ_ONCE(b->revoked) && get_file_active(&b->dmabuf->file)) {
				dmabuf = b->dmabuf;
				break;
			}
		}
		mutex_unlock(&exporter_lock);
		if (dmabuf) {
			if (buffer_take_back(dmabuf->priv))
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
