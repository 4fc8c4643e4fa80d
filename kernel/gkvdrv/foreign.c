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

struct foreign {
	struct list_head node;
	struct gkv_provider *provider;
};

static DEFINE_MUTEX(foreign_lock);	/* the list */
static LIST_HEAD(foreigners);

static int add(struct pci_dev *pdev, struct gkvdrv_provider *a, struct gkv_why *why)
{
	struct gkv_provider *p;
	struct foreign *f;

	f = kzalloc_obj(*f, GFP_KERNEL);
	if (!f)
		return -ENOMEM;
	p = gkv_provider_create(pdev, a->bar, a->offset, a->len, GKVDRV_FOREIGN, why);
	if (IS_ERR(p)) {
		kfree(f);
		return PTR_ERR(p);
	}
	f->provider = p;
	a->id = p->id;
	mutex_lock(&foreign_lock);
	list_add_tail(&f->node, &foreigners);
	mutex_unlock(&foreign_lock);
	return 0;
}

int gkv_foreign_add(struct gkv_call *call)
{
	struct gkvdrv_provider *a = &call->arg.provider;
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
	if (!pdev->dev.driver)
		ret = gkv_refuse(&call->why, -ENODEV, GKVDRV_WHY_DEVICE,
				 "%s has no driver: bind it to gkvdrv, as a carve-out",
				 pci_name(pdev));
	else
		ret = add(pdev, a, &call->why);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return ret;
}

/* The first that matches, off the list. */
static struct gkv_provider *take(struct pci_dev *pdev, u32 id)
{
	struct gkv_provider *p = NULL;
	struct foreign *f;

	mutex_lock(&foreign_lock);
	list_for_each_entry(f, &foreigners, node) {
		if ((pdev && f->provider->pdev == pdev) || f->provider->id == id) {
			p = f->provider;
			list_del(&f->node);
			kfree(f);
			break;
		}
	}
	mutex_unlock(&foreign_lock);
	return p;
}

int gkv_foreign_del(struct gkv_call *call)
{
	u32 id = call->arg.provider.id;
	struct gkv_provider *p;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	p = id ? take(NULL, id) : NULL;
	if (!p)
		return gkv_refuse(&call->why, -ENOENT, GKVDRV_WHY_PROVIDER,
				  "there is no foreign provider %u", id);
	gkv_provider_destroy(p);
	return 0;
}

/* Its driver is about to let go: the pages go with its resources, right after. */
static int unbinding(struct notifier_block *nb, unsigned long action, void *data)
{
	struct device *dev = data;
	struct gkv_provider *p;

	if (action != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	while ((p = take(to_pci_dev(dev), 0)))
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
	struct gkv_provider *p;
	struct foreign *f;

	bus_unregister_notifier(&pci_bus_type, &unbind_block);
	for (;;) {
		mutex_lock(&foreign_lock);
		f = list_first_entry_or_null(&foreigners, struct foreign, node);
		p = f ? f->provider : NULL;
		if (f)
			list_del(&f->node);
		mutex_unlock(&foreign_lock);
		kfree(f);
		if (!p)
			break;
		gkv_provider_destroy(p);
	}
}
