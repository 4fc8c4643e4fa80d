// SPDX-License-Identifier: GPL-2.0-only
/*
 * Carve-outs: functions that gkvdrv drives itself. None is claimed by its identity; bind one
 * by driver_override.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "gkvdrv.h"

static int carveout_bar = -1;
module_param(carveout_bar, int, 0444);
MODULE_PARM_DESC(carveout_bar, "BAR of a carve-out (-1: the largest that is memory)");

static int largest_bar(struct pci_dev *pdev)
{
	int best = -1;

	for (int i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (pci_resource_flags(pdev, i) & IORESOURCE_MEM &&
		    (best < 0 || pci_resource_len(pdev, i) > pci_resource_len(pdev, best)))
			best = i;
	}
	return best;
}

static int carveout_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int bar = carveout_bar < 0 ? largest_bar(pdev) : carveout_bar, ret;
	struct gkv_why why = { };
	struct gkv_provider *p;

	if (bar < 0 || bar >= PCI_STD_NUM_BARS)
		return dev_err_probe(&pdev->dev, -EINVAL, "gkvdrv: there is no BAR %d\n", bar);
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	/* Nobody else maps it, not even through sysfs. */
	ret = pci_request_region(pdev, bar, KBUILD_MODNAME);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "gkvdrv: BAR %d is taken\n", bar);
	/* Whatever a dma-buf is cut into: addresses are looked at here, and nothing is moved. */
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	p = gkv_provider_create(pdev, bar, 0, pci_resource_len(pdev, bar), GKVDRV_CARVEOUT, &why);
	if (IS_ERR(p)) {
		pci_release_region(pdev, bar);
		return dev_err_probe(&pdev->dev, PTR_ERR(p), "gkvdrv: %s\n", why.text);
	}
	pci_set_drvdata(pdev, p);
	return 0;
}

static void carveout_remove(struct pci_dev *pdev)
{
	struct gkv_provider *p = pci_get_drvdata(pdev);
	int bar = p->bar;

	gkv_provider_destroy(p);
	pci_release_region(pdev, bar);
}

static const struct pci_device_id carveout_ids[] = {
	{ }
};

static struct pci_driver carveout_driver = {
	.name = "gkvdrv",
	.id_table = carveout_ids,
	.probe = carveout_probe,
	.remove = carveout_remove,
};

int gkv_carveout_init(void)
{
	return pci_register_driver(&carveout_driver);
}

void gkv_carveout_exit(void)
{
	pci_unregister_driver(&carveout_driver);
}
