/* SPDX-License-Identifier: MIT */
/* /dev/gkv: opening it, and calls to it that say why they were refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "impl.h"

/*
 * GKVDRV_... @cmd on @fd with @arg, @size bytes whose first is a struct gkvdrv_head.
 * Returns 0 or a negative errno; gkv_error() then has the module's reason, or @what and
 * the error's name if it gave none. head.reason tells the former from the latter.
 */
int gkvi_drv_call(int fd, unsigned long cmd, void *arg, uint32_t size, const char *what)
{
	struct gkvdrv_head *head = arg;
	char text[GKVDRV_TEXT] = "";
	int ret;

	head->size = size;
	head->reason = GKVDRV_WHY_NONE;
	head->text = (uintptr_t)text;
	head->text_len = sizeof(text);
	if (!ioctl(fd, cmd, arg))
		return 0;
	ret = -errno;
	text[sizeof(text) - 1] = 0;
	if (text[0])
		return gkvi_err(ret, "%s: %s", what, text);
	return gkvi_err(ret, "%s: %s", what, strerror(-ret));
}

static const char *device(void)
{
	const char *path = secure_getenv("GKV_DEVICE");

	return path && *path ? path : GKVDRV_PATH;
}

static int no_device(const char *path, int err)
{
	switch (err) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return gkvi_err(-ENODEV, "there is no %s: memory of GPUs needs the kernel module "
					 "(modprobe gkvdrv)", path);
	case EACCES:
	case EPERM:
		return gkvi_err(-EACCES, "no access to %s: it is for members of its group (gkv)",
				path);
	default:
		return gkvi_err(-err, "cannot open %s: %s", path, strerror(err));
	}
}

static int handshake(int fd, const char *path, uint64_t caps)
{
	struct gkvdrv_info info = { .abi = GKVDRV_ABI };
	int ret;

	ret = gkvi_drv_call(fd, GKVDRV_INFO, &info, sizeof(info), path);
	if (ret == -EPROTO)
		return gkvi_err(ret, "%s: the module has interface version %u, the library was "
				     "built for %u", path, info.abi, GKVDRV_ABI);
	if (ret == -ENOTTY)
		return gkvi_err(-ENODEV, "%s is not a device of gkvdrv", path);
	if (ret)
		return ret;
	if (caps & ~info.caps & GKVDRV_CAP_VRAM)
		return gkvi_err(-EOPNOTSUPP, "%s: this kernel has no peer-to-peer memory "
					     "(CONFIG_PCI_P2PDMA)", path);
	if (caps & ~info.caps)
		return gkvi_err(-EOPNOTSUPP, "%s: this kernel cannot import dma-bufs", path);
	return 0;
}

/*
 * A descriptor of /dev/gkv ($GKV_DEVICE, if set) whose module can do all of @caps,
 * GKVDRV_CAP_*; or a negative errno. The caller closes it: an open one keeps the module
 * from being unloaded.
 */
int gkvi_drv_open(uint64_t caps)
{
	const char *path = device();
	int fd, ret;

	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return no_device(path, errno);
	ret = handshake(fd, path, caps);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

/* GKVDRV_REPORT of part @part of @fd. -ENOTTY if that is no descriptor of the module's. */
int gkvi_drv_report(int fd, uint32_t part, struct gkvdrv_report *r)
{
	memset(r, 0, sizeof(*r));
	r->part = part;
	return gkvi_drv_call(fd, GKVDRV_REPORT, r, sizeof(*r), "placement");
}
