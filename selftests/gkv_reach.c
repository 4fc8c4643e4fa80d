// SPDX-License-Identifier: MIT
/*
 * "Can that disk reach this region?" is answered as the machine is, with the kind of route or with
 * the reason; and where the answer is yes, a transfer arrives.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#include <linux/blkpg.h>
#include <limits.h>
#include <linux/loop.h>
#include <linux/pci_regs.h>
#include <sys/sysmacros.h>

FIXTURE(reach) {
	int gkv, provider, region, disk;
	char path[32];
	char *at;
	uint64_t offset;
};

FIXTURE_SETUP(reach)
{
	struct gkvdrv_report r;

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	if (!getenv("GKV_VRAM_BDF"))
		SKIP(return, "this machine has no VRAM device");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	self->region = region_alloc(self->gkv, self->provider, MIB);
	ASSERT_GE(self->region, 0);
	ASSERT_EQ(0, report(self->region, 0, &r));
	self->offset = r.bar_offset;
	self->at = map_shared(self->region, 0, MIB);
	ASSERT_NE(MAP_FAILED, self->at);
	ASSERT_EQ(0, disk_path("gkv0", self->path, sizeof(self->path)));
	self->disk = open(self->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
}

FIXTURE_TEARDOWN(reach)
{
	munmap(self->at, MIB);
	close(self->disk);
	close(self->region);
	close(self->gkv);
}

/* GKVDRV_MAP_*, or a negative errno. */
static int ask(int region, int disk, uint32_t *distance)
{
	struct gkvdrv_reach a = { .blkdev = disk };
	int rc = gkv_call(region, GKVDRV_REACH, &a);

	if (distance)
		*distance = a.distance;
	return rc ? rc : (int)a.map;
}

static bool is(const char *name, const char *value)
{
	const char *have = getenv(name);

	return have && strcmp(have, value) == 0;
}

/* What the machine is, as the rig has made it. */
struct expected {
	int answer;
	uint32_t reason;
};

static struct expected expected(void)
{
	if (is("GKV_TOPOLOGY", "switch") && is("GKV_IOMMU", "translate"))
		return (struct expected) { -EXDEV, GKVDRV_WHY_IOMMU };
	if (is("GKV_TOPOLOGY", "switch"))
		return (struct expected) { GKVDRV_MAP_BUS, 0 };
	if (is("GKV_TOPOLOGY", "root") && is("GKV_CPU", "EPYC"))
		return (struct expected) { GKVDRV_MAP_BRIDGE, 0 };
	return (struct expected) { -EXDEV, GKVDRV_WHY_TOPOLOGY };
}

/* By the identity that the kernel's list of bridges has it under. */
static bool names_the_host_bridge(void)
{
	static const char bridge[] = "/sys/bus/pci/devices/0000:00:00.0/";
	char path[64], vendor[16], device[16], want[48];

	snprintf(path, sizeof(path), "%svendor", bridge);
	if (sysfs_read(path, vendor, sizeof(vendor)))
		return false;
	snprintf(path, sizeof(path), "%sdevice", bridge);
	if (sysfs_read(path, device, sizeof(device)))
		return false;
	/* "0x8086" */
	snprintf(want, sizeof(want), "host bridge %s:%s ", vendor + 2, device + 2);
	return strstr(why.text, want) != NULL;
}

/* F38, F40, F41, F56: what is in the way is named, whichever of it could be changed. */
TEST_F(reach, is_as_the_machine_is)
{
	struct expected want = expected();
	uint32_t distance = 0;
	int answer = ask(self->region, self->disk, &distance);

	EXPECT_EQ(want.answer, answer) {
		TH_LOG("%s", why.text);
	}
	EXPECT_EQ(want.reason, why.reason);
	if (answer > 0) {
		EXPECT_GT(distance, 0u);
		EXPECT_EQ('\0', why.text[0]);
	} else {
		/* Who and who. */
		EXPECT_NE(NULL, strstr(why.text, "nvme"));
		EXPECT_NE(NULL, strstr(why.text, getenv("GKV_NVME_BDF")));
		EXPECT_NE(NULL, strstr(why.text, getenv("GKV_VRAM_BDF")));
	}
	if (want.reason == GKVDRV_WHY_TOPOLOGY) {
		EXPECT_NE(NULL, strstr(why.text, "no common switch"));
		EXPECT_TRUE(names_the_host_bridge());
	}
}

/* F48, F55: the answer and what happens agree: the pattern arrives, or the read is refused. */
TEST_F(reach, a_transfer_agrees)
{
	struct expected want = expected();
	const uint64_t seed = 0x4eac0;
	int error;
	ssize_t got;

	/* The emulated switch does what the kernel does not expect: the refusal is right. */
	if (want.reason == GKVDRV_WHY_IOMMU)
		SKIP(return, "this machine's switch reports success for what goes elsewhere");
	gkv_pattern_fill(self->at, seed + 1, 0, MIB);
	ASSERT_EQ(0, gkv_host_check("disk-fill %#lx 0 %lu", seed, MIB));
	got = pread(self->disk, self->at, MIB, 0);
	error = errno;
	if (ask(self->region, self->disk, NULL) > 0) {
		EXPECT_EQ((ssize_t)MIB, got);
		EXPECT_EQ(0, gkv_host_check("vram-has %#lx %#lx %lu", seed, self->offset, MIB));
		EXPECT_EQ(0, gkv_host_check("ram-lacks %#lx", seed));
	} else {
		EXPECT_EQ(-1, got);
		EXPECT_EQ(EINVAL, error);
		EXPECT_EQ(0, gkv_host_check("vram-has %#lx %#lx %lu", seed + 1, self->offset, MIB));
	}
}

/* The port above a disk's function. */
static int port_above(const char *disk, char *port, size_t size)
{
	char link[64], path[PATH_MAX], *end;

	snprintf(link, sizeof(link), "/sys/block/%s/device/device", strrchr(disk, '/') + 1);
	if (!realpath(link, path))
		return -errno;
	end = strrchr(path, '/');
	*end = '\0';
	snprintf(port, size, "%s", strrchr(path, '/') + 1);
	return 0;
}

/* Where in a function's configuration space the control register of ACS is, or -ENOENT. */
static int find_acs(int config)
{
	uint32_t header;

	for (int at = 256, n = 0; at && n < 64; at = header >> 20, n++) {
		if (pread(config, &header, 4, at) != 4)
			return -EIO;
		if ((header & 0xffff) == PCI_EXT_CAP_ID_ACS)
			return at + PCI_ACS_CTRL;
	}
	return -ENOENT;
}

/* F39: a port that redirects to the root is seen, and named if that is what is wrong. */
TEST_F(reach, a_port_that_redirects_is_named)
{
	const uint16_t redirect = PCI_ACS_RR | PCI_ACS_CR;
	char path[32], port[32], name[96];
	int disk, config, at, answer;
	uint16_t was, now;

	if (disk_path("acs", path, sizeof(path)))
		SKIP(return, "no port of this machine can redirect below a switch");
	disk = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(disk, 0);
	ASSERT_EQ(0, port_above(path, port, sizeof(port)));
	snprintf(name, sizeof(name), "/sys/bus/pci/devices/%s/config", port);
	config = open(name, O_RDWR | O_CLOEXEC);
	ASSERT_GE(config, 0);
	at = find_acs(config);
	ASSERT_GT(at, 0);
	ASSERT_EQ(2, pread(config, &was, 2, at));
	EXPECT_EQ(0, was & redirect);
	EXPECT_EQ((int)GKVDRV_MAP_BUS, ask(self->region, disk, NULL));

	now = was | redirect;
	ASSERT_EQ(2, pwrite(config, &now, 2, at));
	answer = ask(self->region, disk, NULL);
	if (is("GKV_CPU", "EPYC")) {
		EXPECT_EQ((int)GKVDRV_MAP_BRIDGE, answer);
	} else {
		EXPECT_EQ(-EXDEV, answer);
		EXPECT_EQ(GKVDRV_WHY_TOPOLOGY, why.reason);
		snprintf(name, sizeof(name), "ACS redirection at port %s,", port);
		EXPECT_NE(NULL, strstr(why.text, name)) {
			TH_LOG("%s", why.text);
		}
		EXPECT_TRUE(names_the_host_bridge());
	}
	/* The other disk's way is as it was. */
	EXPECT_EQ(expected().answer, ask(self->region, self->disk, NULL));
	ASSERT_EQ(2, pwrite(config, &was, 2, at));
	EXPECT_EQ((int)GKVDRV_MAP_BUS, ask(self->region, disk, NULL));
	close(config);
	close(disk);
}

/* R8: asked of the disk that was given, by whichever of its nodes. */
TEST_F(reach, a_partition_is_on_its_disk)
{
	struct blkpg_partition part = { .start = MIB, .length = 8 * MIB, .pno = 3 };
	struct blkpg_ioctl_arg arg = {
		.op = BLKPG_ADD_PARTITION, .datalen = sizeof(part), .data = &part,
	};
	char path[40];
	int fd;

	ASSERT_EQ(0, ioctl(self->disk, BLKPG, &arg));
	snprintf(path, sizeof(path), "%sp3", self->path);
	ASSERT_TRUE(eventually((fd = open(path, O_RDONLY)) >= 0));
	EXPECT_EQ(expected().answer, ask(self->region, fd, NULL));
	close(fd);
	arg.op = BLKPG_DEL_PARTITION;
	EXPECT_EQ(0, ioctl(self->disk, BLKPG, &arg));
}

TEST_F(reach, a_queue_of_no_pci_function_is_refused)
{
	int mem = memfd_create("loop", 0), control = open("/dev/loop-control", O_RDWR), n, loop;
	struct loop_config config = { .fd = mem };
	char path[32];

	if (control < 0)
		SKIP(return, "there is no loop device in this machine");
	ASSERT_EQ(0, ftruncate(mem, MIB));
	n = ioctl(control, LOOP_CTL_GET_FREE);
	ASSERT_GE(n, 0);
	snprintf(path, sizeof(path), "/dev/loop%d", n);
	loop = open(path, O_RDWR);
	ASSERT_GE(loop, 0);
	ASSERT_EQ(0, ioctl(loop, LOOP_CONFIGURE, &config));
	EXPECT_EQ(-EXDEV, ask(self->region, loop, NULL));
	EXPECT_EQ(GKVDRV_WHY_DEVICE, why.reason);
	EXPECT_NE(NULL, strstr(why.text, "loop"));
	ioctl(loop, LOOP_CLR_FD);
	close(loop);
	close(control);
	close(mem);
}

TEST_F(reach, only_block_devices_are_asked_for)
{
	int file = open("/proc/self/exe", O_RDONLY), mem = memfd_create("x", 0);
	int event = eventfd(0, 0), path_only = open(self->path, O_PATH);

	EXPECT_EQ(-ENOTBLK, ask(self->region, file, NULL));
	EXPECT_EQ(-ENOTBLK, ask(self->region, mem, NULL));
	EXPECT_EQ(-ENOTBLK, ask(self->region, event, NULL));
	EXPECT_EQ(-ENOTBLK, ask(self->region, self->region, NULL));
	EXPECT_EQ(-ENOTBLK, ask(self->region, self->gkv, NULL));
	/* That names a file, and is no right to it. */
	EXPECT_EQ(-EBADF, ask(self->region, path_only, NULL));
	EXPECT_EQ(-EBADF, ask(self->region, -1, NULL));
	EXPECT_EQ(-EBADF, ask(self->region, 999, NULL));
	close(file);
	close(mem);
	close(event);
	close(path_only);
}

TEST_F(reach, what_is_revoked_is_out_of_reach)
{
	ASSERT_EQ(0, gkv_revoke(self->region));
	EXPECT_EQ(-ENODEV, ask(self->region, self->disk, NULL));
	EXPECT_EQ(GKVDRV_WHY_REVOKED, why.reason);
}

TEST_HARNESS_MAIN
