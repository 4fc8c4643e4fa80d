// SPDX-License-Identifier: MIT
/* The test exporter of dma-bufs (exporter/), on the second VRAM device. */
#include "gkvtest.h"

const char *exporter_missing(void)
{
	if (!kernel_has_p2pdma())
		return "this kernel has no CONFIG_PCI_P2PDMA";
	return getenv("GKV_VRAM2_BDF") ? NULL : "this machine has no second VRAM device";
}

int exporter_start(const char **bdf)
{
	int rc, fd;

	*bdf = getenv("GKV_VRAM2_BDF");
	if (!*bdf)
		return -ENODEV;
	rc = module_load("exporter", NULL);
	if (rc && rc != -EEXIST)
		return rc;
	rc = pci_bind(*bdf, "gkv-exporter");
	if (rc)
		return rc;
	fd = open("/dev/gkv-exporter", O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int exporter_stop(int exporter, const char *bdf)
{
	int rc;

	close(exporter);
	rc = pci_unbind(bdf);
	/* What was closed a moment ago may not be gone yet. */
	return rc ? rc : eventually(!(rc = module_unload("exporter"))) ? 0 : rc;
}

int exporter_make(int exporter, uint32_t layout, uint64_t offset, uint64_t len)
{
	struct exporter_make how = { .layout = layout, .offset = offset, .len = len };

	return exporter_make_as(exporter, &how);
}

int exporter_make_as(int exporter, struct exporter_make *how)
{
	if (!how->flags)
		how->flags = O_RDWR | O_CLOEXEC;
	return ioctl(exporter, EXPORTER_MAKE, how) ? -errno : how->fd;
}

struct exporter_state exporter_state(int exporter, int fd)
{
	struct exporter_state s = { .fd = fd };

	if (ioctl(exporter, EXPORTER_STATE, &s))
		s.buffers = s.attached = s.pinned = s.mapped = ~0u;
	return s;
}

static bool idle_now(int exporter)
{
	struct exporter_state s = exporter_state(exporter, -1);

	return s.attached + s.pinned + s.mapped == 0;
}

bool exporter_idle(int exporter)
{
	return eventually(idle_now(exporter));
}

int region_import(int gkv, uint32_t provider, int dmabuf, uint64_t offset, uint64_t len)
{
	struct gkvdrv_import a = {
		.provider = provider, .dmabuf = dmabuf, .offset = offset, .len = len,
	};
	int rc = gkv_call(gkv, GKVDRV_IMPORT, &a);

	return rc ? rc : a.fd;
}
