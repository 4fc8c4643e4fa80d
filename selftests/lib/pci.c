// SPDX-License-Identifier: MIT
/* PCI functions, their drivers, disks, modules. */
#include <glob.h>
#include <sys/syscall.h>

#include "gkvtest.h"

#define PCI "/sys/bus/pci/devices/"

int sysfs_read(const char *path, char *value, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = read(fd, value, size - 1);
	if (len < 0)
		len = -errno;
	close(fd);
	if (len < 0)
		return len;
	value[len] = '\0';
	if (len > 0 && value[len - 1] == '\n')
		value[len - 1] = '\0';
	return 0;
}

int sysfs_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

int64_t sysfs_number(const char *path)
{
	char value[64];
	int rc = sysfs_read(path, value, sizeof(value));

	return rc ? rc : strtoll(value, NULL, 0);
}

int64_t gkv_attr(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), GKVT_SYSFS "/%s", name);
	return sysfs_number(path);
}

int gkv_set_attr(const char *name, uint64_t value)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), GKVT_SYSFS "/%s", name);
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);
	return sysfs_write(path, text);
}

/* ---- Functions ---- */

int pci_parse(const char *bdf, struct pci_id *id)
{
	unsigned int domain, bus, device, function;

	if (!bdf || sscanf(bdf, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		return -ENODEV;
	id->domain = domain;
	id->bdf = bus << 8 | device << 3 | function;
	return 0;
}

bool pci_has_driver(const char *bdf, const char *driver)
{
	char path[128], target[256];
	const char *name;
	ssize_t len;

	snprintf(path, sizeof(path), PCI "%s/driver", bdf);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return !driver;
	target[len] = '\0';
	name = strrchr(target, '/');
	return driver && name && strcmp(name + 1, driver) == 0;
}

int pci_unbind(const char *bdf)
{
	char path[128];
	int rc;

	snprintf(path, sizeof(path), PCI "%s/driver/unbind", bdf);
	rc = sysfs_write(path, bdf);
	return rc == -ENOENT ? 0 : rc;
}

int pci_bind(const char *bdf, const char *driver)
{
	char path[128];
	int rc;

	if (pci_has_driver(bdf, driver))
		return 0;
	rc = pci_unbind(bdf);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), PCI "%s/driver_override", bdf);
	rc = sysfs_write(path, driver);
	if (rc)
		return rc;
	rc = sysfs_write("/sys/bus/pci/drivers_probe", bdf);
	/* A probe that fails says so in the driver link only. */
	if (!pci_has_driver(bdf, driver))
		return rc ? rc : -ENODEV;
	return 0;
}

int pci_bar(const char *bdf, unsigned int bar, uint64_t *start, uint64_t *end)
{
	unsigned long long from, to;
	char path[128], line[128];
	int rc = -EINVAL;
	FILE *file;

	snprintf(path, sizeof(path), PCI "%s/resource", bdf);
	file = fopen(path, "r");
	if (!file)
		return -errno;
	for (unsigned int i = 0; i <= bar && fgets(line, sizeof(line), file); i++) {
		if (i == bar && sscanf(line, "%llx %llx", &from, &to) == 2) {
			*start = from;
			*end = to;
			rc = 0;
		}
	}
	fclose(file);
	return rc;
}

int64_t pci_p2pmem(const char *bdf, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), PCI "%s/p2pmem/%s", bdf, name);
	return sysfs_number(path);
}

/* ---- Disks ---- */

int disk_path(const char *serial, char *path, size_t size)
{
	int rc = -ENOENT;
	glob_t found;

	if (glob("/sys/class/nvme/nvme*/serial", 0, NULL, &found))
		return rc;
	for (size_t i = 0; i < found.gl_pathc && rc; i++) {
		char value[64];
		int id;

		if (sysfs_read(found.gl_pathv[i], value, sizeof(value)) == 0 &&
		    strncmp(value, serial, strlen(serial)) == 0 &&
		    sscanf(found.gl_pathv[i], "/sys/class/nvme/nvme%d/", &id) == 1) {
			snprintf(path, size, "/dev/nvme%dn1", id);
			rc = 0;
		}
	}
	globfree(&found);
	return rc;
}

/* ---- The kernel and its modules ---- */

bool kernel_has_p2pdma(void)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, " pci_p2pdma_add_resource\n") != NULL;
	if (file)
		fclose(file);
	return found;
}

int module_load(const char *name, const char *arguments)
{
	char path[128];
	int fd, rc;

	snprintf(path, sizeof(path), "/modules/%s.ko", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = syscall(SYS_finit_module, fd, arguments ? arguments : "", 0) ? -errno : 0;
	close(fd);
	return rc;
}

int module_unload(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}
