// SPDX-License-Identifier: MIT
/*
 * Does this machine move data between disk and VRAM without the guest's RAM? With the pages that
 * p2pbar.ko makes and nothing of gkv, so that a failure here is the rig's or the kernel's.
 * $RIG_P2P says what the topology must do: works, refused, or wrong (reports success, and the data
 * is somewhere else: what only a look from outside finds).
 */
#include "hostcheck.h"
#include "kselftest_harness.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define LEN	(2 << 20)
#define POISON	0xdead0000ull

FIXTURE(p2p) {
	int disk;
	char *vram;
	bool refused;
	bool wrong;
};

FIXTURE_SETUP(p2p)
{
	const char *expect = getenv("RIG_P2P");
	char path[128];
	int fd;

	ASSERT_NE(expect, NULL);
	self->refused = strcmp(expect, "refused") == 0;
	self->wrong = strcmp(expect, "wrong") == 0;
	ASSERT_TRUE(self->refused || self->wrong || strcmp(expect, "works") == 0);

	self->disk = open(getenv("GKV_DISK"), O_RDWR | O_DIRECT);
	ASSERT_GE(self->disk, 0);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/p2pmem/allocate",
		 getenv("GKV_VRAM_BDF"));
	fd = open(path, O_RDWR);
	ASSERT_GE(fd, 0);
	self->vram = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(self->vram, MAP_FAILED);
	close(fd);
	gkv_pattern_fill(self->vram, POISON, 0, LEN);
	/* The pool is empty and gives its first pages: the BAR's first bytes. */
	ASSERT_EQ(gkv_host_check("vram-has %#llx 0 %d", POISON, LEN), 0);
}

FIXTURE_TEARDOWN(p2p)
{
	munmap(self->vram, LEN);
	close(self->disk);
}

TEST_F(p2p, disk_to_vram)
{
	const uint64_t seed = 0x1001, offset = 8 << 20;
	ssize_t got;

	ASSERT_EQ(gkv_host_check("disk-fill %#lx %#lx %d", seed, offset, LEN), 0);
	got = pread(self->disk, self->vram, LEN, offset);
	if (self->refused) {
		EXPECT_EQ(got, -1);
		EXPECT_EQ(errno, EINVAL);
		EXPECT_EQ(gkv_pattern_check(self->vram, POISON, 0, LEN), -1);
		EXPECT_EQ(gkv_host_check("vram-lacks %#lx", seed), 0);
		return;
	}
	EXPECT_EQ(got, LEN);
	if (self->wrong) {
		EXPECT_EQ(gkv_host_check("vram-lacks %#lx", seed), 0);
		return;
	}
	EXPECT_EQ(gkv_pattern_check(self->vram, seed, 0, LEN), -1);
	EXPECT_EQ(gkv_host_check("vram-has %#lx 0 %d", seed, LEN), 0);
	EXPECT_EQ(gkv_host_check("ram-lacks %#lx", seed), 0);
}

TEST_F(p2p, vram_to_disk)
{
	const uint64_t seed = 0x1002, offset = 16 << 20;
	ssize_t put;

	gkv_pattern_fill(self->vram, seed, 0, LEN);
	put = pwrite(self->disk, self->vram, LEN, offset);
	if (self->refused) {
		EXPECT_EQ(put, -1);
		EXPECT_EQ(errno, EINVAL);
		EXPECT_EQ(gkv_host_check("disk-lacks %#lx", seed), 0);
		return;
	}
	EXPECT_EQ(put, LEN);
	if (self->wrong) {
		EXPECT_EQ(gkv_host_check("disk-lacks %#lx", seed), 0);
		return;
	}
	EXPECT_EQ(gkv_host_check("disk-has %#lx %#lx %d", seed, offset, LEN), 0);
	EXPECT_EQ(gkv_host_check("ram-lacks %#lx", seed), 0);
}

/* The searches find what is there: without this, "lacks" would prove nothing. */
TEST_F(p2p, searches_find)
{
	const uint64_t seed = 0x1003, offset = 24 << 20;
	char *buffer;

	ASSERT_EQ(posix_memalign((void **)&buffer, 4096, LEN), 0);
	ASSERT_EQ(gkv_host_check("disk-fill %#lx %#lx %d", seed, offset, LEN), 0);
	EXPECT_EQ(gkv_host_check("ram-lacks %#lx", seed), 0);
	ASSERT_EQ(pread(self->disk, buffer, LEN, offset), LEN);
	EXPECT_EQ(gkv_pattern_check(buffer, seed, 0, LEN), -1);
	EXPECT_EQ(gkv_host_check("ram-holds %#lx %d", seed, LEN), 0);
	EXPECT_EQ(gkv_host_ask("ram-lacks %#lx", seed), -EIO);
	gkv_pattern_fill(self->vram, seed, 0, LEN);
	EXPECT_EQ(gkv_host_check("vram-holds %#lx %d", seed, LEN), 0);
	EXPECT_EQ(gkv_host_ask("vram-lacks %#lx", seed), -EIO);
	/* And the host writes where the guest reads, as a GPU would. */
	EXPECT_EQ(gkv_host_check("vram-fill %#lx 4096 4096 1048576", seed + 1), 0);
	EXPECT_EQ(gkv_pattern_check(self->vram + 4096, seed + 1, 1048576, 4096), -1);
	free(buffer);
}

TEST_HARNESS_MAIN
