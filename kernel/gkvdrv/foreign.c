// SPDX-License-Identifier: GPL-2.0-only
/*
 * Spans of BARs that belong to another driver: registered by an administrator, given up
 * before that driver lets go of its function.
 *
 * Nothing of gkvdrv is left with the function. The pages that the kernel made at our request
 * stay with it until its driver is unbound; registering the span again adopts them.
 */
#include <linux/capability.h>
#include <linux/pci.h>

#include "gkvdrv.h"

int gkv_foreign_add(struct gkv_call *call)
{
	struct gkvdrv_provider *a = &call->arg.provider;
	struct gkv_provider *p;
	struct pci_dev *pdev;
	int ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (a->id || a->kind || a->nr_objects || a->used || a->bus || a->bdf > 0xffff)
		return -EINVAL;
	ret = gkv_need_p2pdma(&call->why);
	if (ret)
		return ret;
	pdev = pci_get_domain_bus_and_slot(a->domain, a->bdf >> 8, a->bdf & 0xff);
	if (!pdev)
		return gkv_refuse(&call->why, -ENODEV, GKVDRV_WHY_DEVICE,
				  "there is no PCI function %04x:%02x:%02x.%x", a->domain,
				  a->bdf >> 8, PCI_SLOT(a->bdf & 0xff), PCI_FUNC(a->bdf & 0xff));
	/* Its driver neither comes nor goes meanwhile. */
	device_lock(&pdev->dev);
	if (!pdev->dev.driver) {
		ret = gkv_refuse(&call->why, -ENODEV, GKVDRV_WHY_DEVICE,
				 "%s has no driver: bind it to gkvdrv, as a carve-out",
				 pci_name(pdev));
	} else {
		p = gkv_provider_create(pdev, a->bar, a->offset, a->len, GKVDRV_FOREIGN,
					&call->why);
		ret = PTR_ERR_OR_ZERO(p);
		if (!ret)
			a->id = p->id;
	}
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return ret;
}

/* Its driver is not unbound meanwhile: pages would go under us. */
static bool withdraw(struct pci_dev *pdev, u32 id)
{
	struct gkv_provider *p;

	device_lock(&pdev->dev);
	p = gkv_provider_take(pdev, id);
	if (p)
		gkv_provider_destroy(p);
	device_unlock(&pdev->dev);
	return p;
}

int gkv_foreign_del(struct gkv_call *call)
{
	u32 id = call->arg.provider.id;
	struct pci_dev *pdev;
	bool found = false;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	pdev = id ? gkv_provider_foreign(id) : NULL;
	if (pdev) {
		found = withdraw(pdev, id);
		pci_dev_put(pdev);
	}
	if (!found)
		return gkv_refuse(&call->why, -ENOENT, GKVDRV_WHY_PROVIDER,
				  "there is no foreign provider %u", id);
	return 0;
}

/* Its driver is about to let go: the pages go with its resources, right after. */
static int unbinding(struct notifier_block *nb, unsigned long action, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct gkv_provider *p;

	if (action != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	while ((p = gkv_provider_take(pdev, 0)))
		gkv_provider_destroy(p);
	return NOTIFY_OK;
}

static struct notifier_block unbind_block = { .notifier_call = unbinding };

int gkv_foreign_init(void)
{
	return bus_register_notifier(&pci_bus_type, &unbind_block);
}

void gkv_foreign_exit(void)
{
	struct pci_dev *pdev;

	while ((pdev = gkv_provider_foreign(0))) {
		withdraw(pdev, 0);
		pci_dev_put(pdev);
	}
	bus_unregister_notifier(&pci_bus_type, &unbind_block);
}
