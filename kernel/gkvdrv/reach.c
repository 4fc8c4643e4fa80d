// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether a disk's controller can do DMA to a region.
 *
 * The kernel's own rule decides (pci_p2pdma_distance), as it will for each request. One case
 * it allows is refused here: below one switch it takes the bus address even when an IOMMU
 * translates for the controller, and whether such an access goes straight to its peer or up to the
 * IOMMU is up to the switch; DMA has been seen to succeed with wrong data.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/iommu.h>
#include <linux/pci-p2pdma.h>

#include "gkvdrv.h"

/* The PCI function that does the DMA of a disk, or NULL. */
static struct pci_dev *controller_of(struct block_device *bdev)
{
	for (struct device *dev = disk_to_dev(bdev->bd_disk)->parent; dev; dev = dev->parent) {
		if (dev_is_pci(dev))
			return to_pci_dev(dev);
	}
	return NULL;
}

/* A bridge that both are behind, or NULL: they meet at the host bridge. */
static struct pci_dev *common_bridge(struct pci_dev *a, struct pci_dev *b)
{
	for (struct pci_dev *up = pci_upstream_bridge(a); up; up = pci_upstream_bridge(up)) {
		for (struct pci_dev *o = pci_upstream_bridge(b); o; o = pci_upstream_bridge(o)) {
			if (up == o)
				return up;
		}
	}
	return NULL;
}

/* The port on the way up to @common that sends peer requests to the root, by the kernel's rule. */
static struct pci_dev *redirecting(struct pci_dev *pdev, const struct pci_dev *common)
{
	struct pci_dev *up;

	for (up = pci_upstream_bridge(pdev); up && up != common; up = pci_upstream_bridge(up)) {
		int at = pci_find_ext_capability(up, PCI_EXT_CAP_ID_ACS);
		u16 ctrl = 0;

		if (at)
			pci_read_config_word(up, at + PCI_ACS_CTRL, &ctrl);
		if (ctrl & (PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC))
			return up;
	}
	return NULL;
}

static u32 map_type(struct pci_dev *a, struct pci_dev *b)
{
	struct pci_dev *common = common_bridge(a, b);

	if (!common || redirecting(a, common) || redirecting(b, common))
		return GKVDRV_MAP_BRIDGE;
	return GKVDRV_MAP_BUS;
}

/* All that stands between them, by name: what to look for in lspci and in the kernel's own list. */
static int no_way(struct gkv_provider *p, struct pci_dev *pdev, struct block_device *bdev,
		  struct gkv_why *why)
{
	struct pci_dev *common = common_bridge(p->pdev, pdev), *port = NULL, *bridge;
	struct pci_bus *root = pdev->bus;
	u16 vendor = 0, device = 0;

	if (common) {
		port = redirecting(pdev, common);
		if (!port)
			port = redirecting(p->pdev, common);
	}
	while (root->parent)
		root = root->parent;
	bridge = pci_get_slot(root, PCI_DEVFN(0, 0));
	if (bridge) {
		vendor = bridge->vendor;
		device = bridge->device;
	}
	pci_dev_put(bridge);
	return gkv_refuse(why, -EXDEV, GKVDRV_WHY_TOPOLOGY,
			  "%s at %s cannot reach %s: %s%s, and host bridge %04x:%04x is not known to route peer-to-peer",
			  bdev->bd_disk->disk_name, pci_name(pdev), pci_name(p->pdev),
			  port ? "ACS redirection at port " : "no common switch",
			  port ? pci_name(port) : "", vendor, device);
}

static bool is_translated(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	return domain && domain->type & __IOMMU_DOMAIN_PAGING;
}

static int find_way(struct gkv_provider *p, struct block_device *bdev, struct gkvdrv_reach *a,
		    struct gkv_why *why)
{
	struct pci_dev *pdev;
	int distance;

	if (!blk_queue_pci_p2pdma(bdev_get_queue(bdev)))
		return gkv_refuse(why, -EXDEV, GKVDRV_WHY_DEVICE,
				  "%s: its driver does no peer-to-peer DMA",
				  bdev->bd_disk->disk_name);
	pdev = controller_of(bdev);
	if (!pdev)
		return gkv_refuse(why, -EXDEV, GKVDRV_WHY_DEVICE,
				  "%s is on no PCI function of its own (multipath: ask for a path)",
				  bdev->bd_disk->disk_name);
	distance = pci_p2pdma_distance(p->pdev, &pdev->dev, false);
	if (distance < 0)
		return no_way(p, pdev, bdev, why);
	a->distance = distance;
	a->map = map_type(p->pdev, pdev);
	if (a->map == GKVDRV_MAP_BUS && is_translated(pdev))
		return gkv_refuse(why, -EXDEV, GKVDRV_WHY_IOMMU,
				  "%s at %s and %s are below one switch, and an IOMMU translates for the disk: whether it reaches the right memory cannot be told (iommu=pt helps)",
				  bdev->bd_disk->disk_name, pci_name(pdev), pci_name(p->pdev));
	return 0;
}

int gkv_reach(struct gkv_call *call)
{
	struct gkv_obj *obj = call->file->private_data;
	struct gkvdrv_reach *a = &call->arg.reach;
	struct inode *inode;

	if (a->rsvd)
		return -EINVAL;
	/* One argument may be used for one disk after the other. */
	a->map = 0;
	a->distance = 0;
	if (READ_ONCE(obj->parts[0].mem->dead))
		return gkv_refuse(&call->why, -ENODEV, GKVDRV_WHY_REVOKED, "the region is revoked");
	CLASS(fd, f)(a->blkdev);
	if (!fd_file(f))
		return -EBADF;
	inode = fd_file(f)->f_mapping->host;
	if (!S_ISBLK(inode->i_mode))
		return -ENOTBLK;
	return find_way(obj->parts[0].mem->provider, I_BDEV(inode), a, &call->why);
}
