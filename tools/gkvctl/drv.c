/* SPDX-License-Identifier: MIT */
/*
 * /dev/gkv and /sys/class/misc/gkv.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drv.h"

bool drv_loaded(void)
{
	return !access("/sys/module/" DRV_NAME, F_OK);
}

int drv_missing(const struct ctl *c)
{
	return ctl_fail(c, "the kernel module " DRV_NAME " is not loaded: gkvctl module load");
}

int drv_open(const struct ctl *c, int *fd)
{
	*fd = open(GKVDRV_PATH, O_RDWR | O_CLOEXEC);
	if (*fd >= 0)
		return EX_DONE;
	switch (errno) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		if (!drv_loaded())
			return drv_missing(c);
		return ctl_fail(c, "the module is loaded, but there is no " GKVDRV_PATH
				   ": is udev running, or is this a container?");
	case EACCES:
	case EPERM:
		return ctl_fail(c, "access to " GKVDRV_PATH " denied: are you in the group that "
				   "owns it (see gkvctl module status)?");
	case EAGAIN:
		return ctl_fail(c, "the module is just being loaded or unloaded: try again");
	default:
		return ctl_fail(c, GKVDRV_PATH ": %s", strerror(errno));
	}
}

int drv_ioctl(int fd, unsigned long cmd, void *arg, char text[GKVDRV_TEXT])
{
	struct gkvdrv_head *head = arg;
	int err;

	text[0] = '\0';
	head->text = (uintptr_t)text;
	head->text_len = GKVDRV_TEXT;
	if (!ioctl(fd, cmd, arg))
		return 0;
	err = errno;
	if (!text[0])
		snprintf(text, GKVDRV_TEXT, "%s", strerror(err));
	return -err;
}

const char *drv_why(uint32_t reason)
{
	static const char *const words[] = {
		[GKVDRV_WHY_NONE] = "none",	    [GKVDRV_WHY_ABI] = "abi",
		[GKVDRV_WHY_P2PDMA] = "p2pdma",	    [GKVDRV_WHY_PROVIDER] = "provider",
		[GKVDRV_WHY_BAR] = "bar",	    [GKVDRV_WHY_ALIGN] = "align",
		[GKVDRV_WHY_SIZE] = "size",	    [GKVDRV_WHY_OVERLAP] = "overlap",
		[GKVDRV_WHY_CLAIMED] = "claimed",   [GKVDRV_WHY_MEMTYPE] = "memtype",
		[GKVDRV_WHY_NOMEM] = "nomem",	    [GKVDRV_WHY_LIMIT] = "limit",
		[GKVDRV_WHY_MEMLOCK] = "memlock",   [GKVDRV_WHY_EXPORTER] = "exporter",
		[GKVDRV_WHY_SYSTEM] = "system",	    [GKVDRV_WHY_ADDRESS] = "address",
		[GKVDRV_WHY_REVOKED] = "revoked",   [GKVDRV_WHY_MODE] = "mode",
		[GKVDRV_WHY_TOPOLOGY] = "topology", [GKVDRV_WHY_IOMMU] = "iommu",
		[GKVDRV_WHY_DEVICE] = "device",
	};

	return reason < sizeof(words) / sizeof(words[0]) ? words[reason] : "unknown";
}

const char *drv_bdf(uint32_t domain, uint32_t bdf, char buf[DRV_BDF])
{
	snprintf(buf, DRV_BDF, "%04x:%02x:%02x.%x", domain, bdf >> 8 & 0xff, bdf >> 3 & 0x1f,
		 bdf & 7);
	return buf;
}

/* A hex number of at most @max, ended by @end; NULL if there is none. */
static const char *parse_hex(const char *text, unsigned long max, char end, uint32_t *v)
{
	char *stop;
	unsigned long n;

	/* strtoul() would take a sign, blanks and 0x. */
	if (!strspn(text, "0123456789abcdefABCDEF") || text[1] == 'x' || text[1] == 'X')
		return NULL;
	errno = 0;
	n = strtoul(text, &stop, 16);
	if (errno || n > max || *stop != end)
		return NULL;
	*v = (uint32_t)n;
	return end ? stop + 1 : stop;
}

int drv_parse_bdf(const char *text, uint32_t *domain, uint32_t *bdf)
{
	uint32_t bus, device, function;
	const char *colon = strchr(text, ':');

	*domain = 0;
	if (colon && strchr(colon + 1, ':'))
		text = parse_hex(text, UINT32_MAX, ':', domain);
	if (text)
		text = parse_hex(text, 0xff, ':', &bus);
	if (text)
		text = parse_hex(text, 0x1f, '.', &device);
	if (text)
		text = parse_hex(text, 7, '\0', &function);
	if (!text)
		return -EINVAL;
	*bdf = bus << 8 | device << 3 | function;
	return 0;
}

int drv_read(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;
	ssize_t n;

	buf[0] = '\0';
	if (fd < 0)
		return -errno;
	n = read(fd, buf, len - 1);
	err = errno;
	close(fd);
	if (n < 0)
		return -err;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

int drv_attr(const char *name, uint64_t *v)
{
	char path[128], text[32], *end;
	int ret;

	snprintf(path, sizeof(path), DRV_SYSFS "/%s", name);
	ret = drv_read(path, text, sizeof(text));
	if (ret)
		return ret;
	errno = 0;
	*v = strtoull(text, &end, 10);
	return errno || end == text || *end ? -EINVAL : 0;
}

bool drv_capable(int cap)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &head, data))
		return false;
	return data[cap / 32].effective >> cap % 32 & 1;
}
