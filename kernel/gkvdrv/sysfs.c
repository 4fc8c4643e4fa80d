// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/class/misc/gkv: settings, counters, providers (docs/ABI/sysfs-class-misc-gkv).
 */
#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/sysfs.h>
#include <linux/vmalloc.h>

#include "gkvdrv.h"

u64 gkv_poll_interval_ns = 1000000;
unsigned int gkv_max_queue_depth = 4096;
unsigned int gkv_max_user_objects = 4096;
u64 gkv_max_user_bytes = U64_MAX;
struct gkv_counters gkv_counters;
struct kobject *gkv_providers_dir;

/* ---- Settings ---- */

static int parse(const char *buf, u64 min, u64 max, u64 *value)
{
	int ret = kstrtou64(buf, 0, value);

	if (ret)
		return ret;
	return *value < min || *value > max ? -ERANGE : 0;
}

#define SETTING(_name, _min, _max)							\
static ssize_t _name##_show(struct device *dev, struct device_attribute *attr, char *buf)\
{											\
	return sysfs_emit(buf, "%llu\n", (u64)READ_ONCE(gkv_##_name));			\
}											\
static ssize_t _name##_store(struct device *dev, struct device_attribute *attr,		\
			     const char *buf, size_t len)				\
{											\
	u64 v;										\
	int ret = parse(buf, _min, _max, &v);						\
											\
	if (ret)									\
		return ret;								\
	WRITE_ONCE(gkv_##_name, v);							\
	sysfs_notify(&dev->kobj, NULL, #_name);						\
	return len;									\
}											\
static DEVICE_ATTR_RW(_name)

SETTING(poll_interval_ns, 1000, 1000000000);
SETTING(max_queue_depth, GKV_DEPTH_MIN, GKV_DEPTH_MAX);
SETTING(max_user_objects, 1, 1u << 20);
SETTING(max_user_bytes, 0, U64_MAX);

static ssize_t abi_version_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", GKVDRV_ABI);
}
static DEVICE_ATTR_RO(abi_version);

static struct attribute *setting_attrs[] = {
	&dev_attr_poll_interval_ns.attr,
	&dev_attr_max_queue_depth.attr,
	&dev_attr_max_user_objects.attr,
	&dev_attr_max_user_bytes.attr,
	&dev_attr_abi_version.attr,
	NULL
};

static const struct attribute_group setting_group = { .attrs = setting_attrs };

/* ---- Counters ---- */

#define COUNTER(_name)									\
static ssize_t _name##_show(struct device *dev, struct device_attribute *attr, char *buf)\
{											\
	return sysfs_emit(buf, "%lld\n", atomic64_read(&gkv_counters._name));		\
}											\
static DEVICE_ATTR_RO(_name)

COUNTER(regions);
COUNTER(imports);
COUNTER(qps);
COUNTER(revoked);
COUNTER(refused);
COUNTER(faults);
COUNTER(sigbus);

static struct attribute *counter_attrs[] = {
	&dev_attr_regions.attr,
	&dev_attr_imports.attr,
	&dev_attr_qps.attr,
	&dev_attr_revoked.attr,
	&dev_attr_refused.attr,
	&dev_attr_faults.attr,
	&dev_attr_sigbus.attr,
	NULL
};

static const struct attribute_group counter_group = {
	.name = "counters",
	.attrs = counter_attrs,
};

const struct attribute_group *gkv_groups[] = { &setting_group, &counter_group, NULL };

/* ---- Providers ---- */

static struct gkv_provider *to_provider(struct kobject *kobj)
{
	return container_of(kobj, struct gkv_provider, kobj);
}

#define PROVIDER_ATTR(_name, _fmt, ...)							\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)\
{											\
	struct gkv_provider *p = to_provider(kobj);					\
											\
	return sysfs_emit(buf, _fmt "\n", __VA_ARGS__);					\
}											\
static struct kobj_attribute provider_##_name = __ATTR_RO(_name)

PROVIDER_ATTR(kind, "%s", p->kind == GKVDRV_CARVEOUT ? "carve-out" : "foreign");
PROVIDER_ATTR(function, "%s", pci_name(p->pdev));
PROVIDER_ATTR(bar, "%d", p->bar);
PROVIDER_ATTR(offset, "%llu", p->offset);
PROVIDER_ATTR(size, "%llu", p->len);
PROVIDER_ATTR(used, "%llu", (u64)READ_ONCE(p->nr_used) << PAGE_SHIFT);
PROVIDER_ATTR(available, "%llu", p->len - ((u64)READ_ONCE(p->nr_used) << PAGE_SHIFT));

static struct attribute *provider_attrs[] = {
	&provider_kind.attr,
	&provider_function.attr,
	&provider_bar.attr,
	&provider_offset.attr,
	&provider_size.attr,
	&provider_used.attr,
	&provider_available.attr,
	NULL
};
ATTRIBUTE_GROUPS(provider);

static void provider_release(struct kobject *kobj)
{
	struct gkv_provider *p = to_provider(kobj);

	vfree(p->used);
	pci_dev_put(p->pdev);
	kfree(p);
}

const struct kobj_type gkv_provider_ktype = {
	.release = provider_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = provider_groups,
};

int gkv_sysfs_init(struct device *dev)
{
	gkv_providers_dir = kobject_create_and_add("providers", &dev->kobj);
	return gkv_providers_dir ? 0 : -ENOMEM;
}

void gkv_sysfs_exit(void)
{
	kobject_put(gkv_providers_dir);
}
