// SPDX-License-Identifier: MIT
/*
 * A real exporter: dma-bufs of vfio-pci, which has no pages and no mmap of them, refuses importers
 * that cannot be told to let go, and takes the memory back when its user turns it off.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#include <linux/pci_regs.h>
#include <linux/vfio.h>

#define BAR	2
#define LEN	(32 * MIB)

FIXTURE(vfio) {
	int gkv, container, group, device, provider;
	const char *bdf;
	uint64_t bus, config;
};

static int set_command(FIXTURE_DATA(vfio) *self, uint16_t set, uint16_t clear)
{
	uint16_t value;

	if (pread(self->device, &value, 2, self->config + PCI_COMMAND) != 2)
		return -errno;
	value = (value | set) & ~clear;
	return pwrite(self->device, &value, 2, self->config + PCI_COMMAND) == 2 ? 0 : -errno;
}

/* /dev/vfio/GROUP of a function. */
static int open_group(const char *bdf)
{
	char path[128], target[256];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", bdf);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return -errno;
	target[len] = '\0';
	snprintf(path, sizeof(path), "/dev/vfio/%s", strrchr(target, '/') + 1);
	/* The node is made a moment after the driver was bound. */
	return eventually((fd = open(path, O_RDWR | O_CLOEXEC)) >= 0) ? fd : -errno;
}

FIXTURE_SETUP(vfio)
{
	struct vfio_region_info info = {
		.argsz = sizeof(info), .index = VFIO_PCI_CONFIG_REGION_INDEX,
	};
	uint64_t end;

	self->device = self->group = self->container = -1;
	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	if (!getenv("GKV_IOMMU") || strcmp(getenv("GKV_IOMMU"), "off") == 0)
		SKIP(return, "vfio-pci binds to nothing on a machine without an IOMMU");
	if (access("/dev/vfio/vfio", F_OK))
		SKIP(return, "vfio is not loaded in this machine");
	self->bdf = getenv("GKV_VRAM_BDF");
	ASSERT_NE(NULL, self->bdf);
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	ASSERT_EQ(0, pci_bind(self->bdf, "vfio-pci"));
	self->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	self->group = open_group(self->bdf);
	ASSERT_GE(self->group, 0);
	ASSERT_EQ(0, ioctl(self->group, VFIO_GROUP_SET_CONTAINER, &self->container));
	ASSERT_EQ(0, ioctl(self->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU));
	self->device = ioctl(self->group, VFIO_GROUP_GET_DEVICE_FD, self->bdf);
	ASSERT_GE(self->device, 0);
	ASSERT_EQ(0, ioctl(self->device, VFIO_DEVICE_GET_REGION_INFO, &info));
	self->config = info.offset;
	ASSERT_EQ(0, set_command(self, PCI_COMMAND_MEMORY, 0));
	ASSERT_EQ(0, pci_bar(self->bdf, BAR, &self->bus, &end));
	self->provider = provider_add(self->gkv, self->bdf, BAR, 0, LEN);
	ASSERT_GT(self->provider, 0) {
		TH_LOG("%s", why.text);
	}
}

FIXTURE_TEARDOWN(vfio)
{
	/* Nothing in use, or no provider any more. */
	EXPECT_TRUE(eventually(provider_used(self->gkv, self->provider) <= 0));
	if (self->device >= 0)
		close(self->device);
	if (self->group >= 0)
		close(self->group);
	if (self->container >= 0)
		close(self->container);
	EXPECT_EQ(0, pci_bind(self->bdf, "gkvdrv"));
	close(self->gkv);
}

/* A dma-buf of one or two ranges of the BAR. */
static int export(int device, uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	struct {
		struct vfio_device_feature head;
		uint32_t region_index, open_flags, flags, nr_ranges;
		struct vfio_region_dma_range ranges[2];
	} arg = {
		.head = {
			.argsz = sizeof(arg),
			.flags = VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_DMA_BUF,
		},
		.region_index = BAR,
		.open_flags = O_RDWR | O_CLOEXEC,
		.nr_ranges = b_len ? 2 : 1,
		.ranges = { { a, a_len }, { b, b_len } },
	};
	int fd = ioctl(device, VFIO_DEVICE_FEATURE, &arg);

	return fd < 0 ? -errno : fd;
}

/* F35, F47, R11: what it exports is found in the BAR, and the data is there. */
TEST_F(vfio, is_where_the_bar_is)
{
	int buf = export(self->device, 4 * MIB, 2 * MIB, 0, 0), fd;
	struct gkvdrv_run runs[2] = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 2 };
	char *at;

	ASSERT_GE(buf, 0);
	fd = region_import(self->gkv, self->provider, buf, 0, 0);
	ASSERT_GE(fd, 0) {
		TH_LOG("%s", why.text);
	}
	close(buf);
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	EXPECT_EQ(GKVDRV_VRAM, r.place);
	EXPECT_EQ(4 * MIB, r.bar_offset);
	EXPECT_EQ(1u, r.nr_runs);
	EXPECT_EQ(self->bus + 4 * MIB, runs[0].bus);
	at = map_shared(fd, 0, 2 * MIB);
	ASSERT_NE(MAP_FAILED, at);
	gkv_pattern_fill(at, 0xf101, 0, 2 * MIB);
	EXPECT_EQ(0, gkv_host_check("vram-has 0xf101 %#lx %lu", 4 * MIB, 2 * MIB));
	EXPECT_EQ(0, gkv_host_check("ram-lacks 0xf101"));
	munmap(at, 2 * MIB);
	close(fd);
}

TEST_F(vfio, two_ranges_and_a_part_of_them)
{
	int buf = export(self->device, 8 * MIB, MIB, 2 * MIB, MIB), fd;
	struct gkvdrv_run runs[3] = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 3 };
	char *at;

	ASSERT_GE(buf, 0);
	fd = region_import(self->gkv, self->provider, buf, MIB - 8192, 16384);
	ASSERT_GE(fd, 0) {
		TH_LOG("%s", why.text);
	}
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	ASSERT_EQ(2u, r.nr_runs);
	EXPECT_EQ(self->bus + 9 * MIB - 8192, runs[0].bus);
	EXPECT_EQ(self->bus + 2 * MIB, runs[1].bus);
	at = map_shared(fd, 0, 16384);
	ASSERT_NE(MAP_FAILED, at);
	gkv_pattern_fill(at, 0xf102, 0, 16384);
	EXPECT_EQ(0, gkv_host_check("vram-has 0xf102 %#lx 8192", 9 * MIB - 8192));
	EXPECT_EQ(0, gkv_host_check("vram-has 0xf102 %#lx 8192 8192", 2 * MIB));
	munmap(at, 16384);
	close(fd);
	close(buf);
}

/* Where the answer to REACH is yes, DMA arrives; where it is not, it is not tried. F48. */
TEST_F(vfio, dma_of_a_disk_goes_there)
{
	int buf = export(self->device, 4 * MIB, 2 * MIB, 0, 0), fd, disk;
	struct gkvdrv_reach reach;
	char path[32], *at;

	fd = region_import(self->gkv, self->provider, buf, 0, 0);
	ASSERT_GE(fd, 0);
	close(buf);
	ASSERT_EQ(0, disk_path("gkv0", path, sizeof(path)));
	disk = open(path, O_RDWR | O_DIRECT);
	ASSERT_GE(disk, 0);
	reach = (struct gkvdrv_reach) { .blkdev = disk };
	if (gkv_call(fd, GKVDRV_REACH, &reach)) {
		close(fd);
		SKIP(return, "%s", why.text);
	}
	at = map_shared(fd, 0, 2 * MIB);
	ASSERT_NE(MAP_FAILED, at);
	ASSERT_EQ(0, gkv_host_check("disk-fill 0xf103 0 %lu", 2 * MIB));
	ASSERT_EQ((ssize_t)(2 * MIB), pread(disk, at, 2 * MIB, 0));
	EXPECT_EQ(0, gkv_host_check("vram-has 0xf103 %#lx %lu", 4 * MIB, 2 * MIB));
	EXPECT_EQ(0, gkv_host_check("ram-lacks 0xf103"));
	gkv_pattern_fill(at, 0xf104, 0, MIB);
	ASSERT_EQ((ssize_t)MIB, pwrite(disk, at, MIB, 16 * MIB));
	EXPECT_EQ(0, gkv_host_check("disk-has 0xf104 %#lx %lu", 16 * MIB, MIB));
	munmap(at, 2 * MIB);
	close(disk);
	close(fd);
}

TEST_F(vfio, what_is_beyond_the_provider_is_refused)
{
	int buf = export(self->device, LEN - MIB, 2 * MIB, 0, 0), fd;

	ASSERT_GE(buf, 0);
	EXPECT_EQ(-EREMOTEIO, region_import(self->gkv, self->provider, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_ADDRESS, why.reason);
	/* The part that is within it is not. */
	fd = region_import(self->gkv, self->provider, buf, 0, MIB);
	EXPECT_GE(fd, 0);
	close(fd);
	close(buf);
}

/* ---- It takes the memory back ---- */

static void ended(struct __test_metadata *_metadata, int fd, char *at, int event)
{
	uint64_t count = 0;

	EXPECT_FALSE(can_read(at));
	EXPECT_TRUE(is_gone(fd, 0));
	EXPECT_EQ(8, read(event, &count, 8));
	EXPECT_EQ(1ul, count);
	munmap(at, MIB);
	close(fd);
	close(event);
}

/* F57: a processor that touches it then gets SIGBUS, and no page of somebody else's. */
TEST_F(vfio, memory_decoding_is_turned_off)
{
	int buf = export(self->device, 4 * MIB, MIB, 0, 0), event = eventfd(0, EFD_NONBLOCK), fd;
	uint64_t start;
	char *at;

	fd = region_import(self->gkv, self->provider, buf, 0, 0);
	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	ASSERT_TRUE(can_write(at));
	ASSERT_EQ(0, gkv_notify(fd, event));
	start = now_ms();
	ASSERT_EQ(0, set_command(self, 0, PCI_COMMAND_MEMORY));
	EXPECT_LT(now_ms() - start, 3000u);
	ended(_metadata, fd, at, event);
	/* Created revoked, or refused: no region of what cannot be reached. */
	EXPECT_LT(region_import(self->gkv, self->provider, buf, 0, 0), 0);
	EXPECT_EQ(GKVDRV_WHY_EXPORTER, why.reason);
	close(buf);
	ASSERT_EQ(0, set_command(self, PCI_COMMAND_MEMORY, 0));
}

TEST_F(vfio, its_user_closes_the_device)
{
	int buf = export(self->device, 4 * MIB, MIB, 0, 0), event = eventfd(0, EFD_NONBLOCK), fd;
	char *at;

	fd = region_import(self->gkv, self->provider, buf, 0, 0);
	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	ASSERT_TRUE(can_write(at));
	ASSERT_EQ(0, gkv_notify(fd, event));
	close(self->device);
	self->device = -1;
	ended(_metadata, fd, at, event);
	close(buf);
}

/* With the driver goes the provider, first of all. */
TEST_F(vfio, the_driver_is_unbound)
{
	int buf = export(self->device, 4 * MIB, MIB, 0, 0), event = eventfd(0, EFD_NONBLOCK), fd;
	struct gkvdrv_provider p;
	char *at;

	fd = region_import(self->gkv, self->provider, buf, 0, 0);
	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	ASSERT_TRUE(can_write(at));
	ASSERT_EQ(0, gkv_notify(fd, event));
	close(buf);
	/* It waits for its user, who is this process: only the device's descriptor holds it. */
	close(self->device);
	self->device = -1;
	ASSERT_EQ(0, pci_unbind(self->bdf));
	ended(_metadata, fd, at, event);
	EXPECT_EQ(-ENOENT, provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p));
}

TEST_HARNESS_MAIN
