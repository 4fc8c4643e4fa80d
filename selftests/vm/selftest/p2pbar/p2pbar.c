// SPDX-License-Identifier: GPL-2.0-only
/*
 * For the rig's own test: makes the memory BAR of the test device into peer-to-peer pages, which
 * the PCI core hands out through sysfs (p2pmem/allocate). It shows that a topology moves data
 * between disk and BAR with nothing but the kernel's own code in between.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>

#define P2PBAR_BAR	2

static int p2pbar_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int rc;

	rc = pcim_enable_device(pdev);
	if (rc)
		return rc;
	rc = pci_p2pdma_add_resource(pdev, P2PBAR_BAR, 0, 0);
	if (rc)
		return dev_err_probe(&pdev->dev, rc, "no peer-to-peer pages\n");
	pci_p2pmem_publish(pdev, true);
	return 0;
}

static const struct pci_device_id p2pbar_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, p2pbar_ids);

static struct pci_driver p2pbar_driver = {
	.name = KBUILD_MODNAME,
	.id_table = p2pbar_ids,
	.probe = p2pbar_probe,
};
module_pci_driver(p2pbar_driver);

MODULE_DESCRIPTION("Test device's memory BAR as peer-to-peer pages");
MODULE_LICENSE("GPL");
