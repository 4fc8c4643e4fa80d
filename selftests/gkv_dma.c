// SPDX-License-Identifier: MIT
/*
 * Data goes between disk and VRAM straight: by O_DIRECT and by io_uring, any whole number of
 * blocks, into any part of a region. It is judged from both sides, in the guest through the
 * mapping and from outside in the files behind BAR, disk and RAM.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#include <sys/uio.h>

#define LEN	(36 * MIB)
#define POISON	0x5eed0000ull

FIXTURE(dma) {
	int gkv, region, disk;
	struct uring ring;
	char *vram;
	uint64_t at;		/* of the region, in the file behind the BAR */
	uint64_t seed;		/* of this test */
};

FIXTURE_SETUP(dma)
{
	struct gkvdrv_report r;
	int provider;
	char disk[32];

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	provider = vram_provider(self->gkv);
	ASSERT_GT(provider, 0);
	/* Not at the start of the BAR. */
	self->region = region_alloc(self->gkv, provider, 4096);
	ASSERT_GE(self->region, 0);
	self->region = region_alloc(self->gkv, provider, LEN);
	ASSERT_GE(self->region, 0);
	ASSERT_EQ(report(self->region, 0, &r), 0);
	ASSERT_NE(0ull, r.bar_offset);
	self->at = r.bar_offset;
	self->vram = map_shared(self->region, 0, LEN);
	ASSERT_NE(self->vram, MAP_FAILED);
	ASSERT_EQ(disk_path("gkv0", disk, sizeof(disk)), 0);
	self->disk = open(disk, O_RDWR | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	ASSERT_EQ(uring_open(&self->ring), 0);
	self->seed = 0xd3a00000ull + now_ms() % 4096 * 16;
}

FIXTURE_TEARDOWN(dma)
{
	uring_close(&self->ring);
	munmap(self->vram, LEN);
	close(self->region);
	close(self->disk);
	close(self->gkv);
}

/* Reads @len bytes of the disk to @to of the region, and looks at all that could have changed. */
static void read_into(struct __test_metadata *_metadata, FIXTURE_DATA(dma) *self, bool ring,
		      uint64_t to, uint32_t len, uint64_t seed)
{
	const uint64_t offset = 64 * MIB;
	uint64_t page = to & ~4095ull;
	uint64_t end = (to + len + 4095) & ~4095ull;
	ssize_t done;

	gkv_pattern_fill(self->vram + page, POISON, page, end - page);
	ASSERT_EQ(gkv_host_check("disk-fill %#lx %#lx %u", seed, offset, len), 0);
	if (ring)
		done = uring_io(&self->ring, IORING_OP_READ, self->disk, self->vram + to, len,
				offset);
	else
		done = pread(self->disk, self->vram + to, len, offset);
	ASSERT_EQ((ssize_t)len, done);
	EXPECT_EQ(gkv_pattern_check(self->vram + to, seed, 0, len), -1);
	EXPECT_EQ(gkv_host_check("vram-has %#lx %#lx %u", seed, self->at + to, len), 0);
	EXPECT_EQ(gkv_host_check("ram-lacks %#lx", seed), 0);
	/* Nothing beside it. */
	EXPECT_EQ(gkv_pattern_check(self->vram + page, POISON, page, to - page), -1);
	EXPECT_EQ(gkv_pattern_check(self->vram + to + len, POISON, to + len, end - to - len), -1);
}

static void write_from(struct __test_metadata *_metadata, FIXTURE_DATA(dma) *self, bool ring,
		       uint64_t from, uint32_t len, uint64_t seed)
{
	const uint64_t offset = 128 * MIB;
	ssize_t done;

	gkv_pattern_fill(self->vram + from, seed, 0, len);
	ASSERT_EQ(gkv_host_check("disk-fill %#llx %#lx %u", POISON, offset, len + 4096), 0);
	if (ring)
		done = uring_io(&self->ring, IORING_OP_WRITE, self->disk, self->vram + from, len,
				offset);
	else
		done = pwrite(self->disk, self->vram + from, len, offset);
	ASSERT_EQ((ssize_t)len, done);
	EXPECT_EQ(gkv_host_check("disk-has %#lx %#lx %u", seed, offset, len), 0);
	EXPECT_EQ(gkv_host_check("disk-has %#llx %#lx 4096 %u", POISON, offset + len, len), 0);
	EXPECT_EQ(gkv_host_check("ram-lacks %#lx", seed), 0);
	EXPECT_EQ(gkv_pattern_check(self->vram + from, seed, 0, len), -1);
}

TEST_F(dma, pread_lands_in_the_bar_and_not_in_ram)
{
	read_into(_metadata, self, false, 0, 2 * MIB, self->seed);
}

TEST_F(dma, pwrite_leaves_from_the_bar_and_not_through_ram)
{
	write_from(_metadata, self, false, 0, 2 * MIB, self->seed + 1);
}

TEST_F(dma, io_uring_read_lands_in_the_bar_and_not_in_ram)
{
	read_into(_metadata, self, true, 4096, 2 * MIB, self->seed + 2);
}

TEST_F(dma, io_uring_write_leaves_from_the_bar_and_not_through_ram)
{
	write_from(_metadata, self, true, 4096, 2 * MIB, self->seed + 3);
}

/* One block, blocks over a page's end, many commands of the controller. F27, F28. */
TEST_F(dma, any_number_of_blocks_at_any_block)
{
	static const struct {
		uint32_t to, len;
	} cases[] = {
		{ 0, 512 }, { 512, 512 }, { 3584, 1024 }, { 4096 + 512, 4096 }, { 4096 * 3, 4096 },
		{ 512, 64 * 1024 }, { 4096, 132 * 1024 + 512 }, { 8192, 4 * MIB + 4096 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		read_into(_metadata, self, i & 1, cases[i].to, cases[i].len, self->seed + 4);
		write_from(_metadata, self, i & 1, cases[i].to, cases[i].len, self->seed + 5);
	}
}

TEST_F(dma, thirty_two_mib_in_one_call)
{
	read_into(_metadata, self, true, 4096, 32 * MIB, self->seed + 6);
	write_from(_metadata, self, false, 8192, 32 * MIB, self->seed + 7);
}

/* A length or an address that no disk can do is refused, and nothing is written. */
TEST_F(dma, part_of_a_block_is_refused)
{
	gkv_pattern_fill(self->vram, POISON, 0, 8192);
	EXPECT_EQ(pread(self->disk, self->vram, 100, 0), -1);
	EXPECT_EQ(errno, EINVAL);
	EXPECT_EQ(pread(self->disk, self->vram + 1, 512, 0), -1);
	EXPECT_EQ(errno, EINVAL);
	EXPECT_EQ(gkv_pattern_check(self->vram, POISON, 0, 8192), -1);
}

/* Beyond the region there is nothing to be written: the pages of others are not reached. F17. */
TEST_F(dma, beyond_the_mapping_is_refused)
{
	gkv_pattern_fill(self->vram, POISON, 0, 8192);
	ASSERT_EQ(munmap(self->vram + 4096, LEN - 4096), 0);
	EXPECT_EQ(pread(self->disk, self->vram + 4096, 4096, 0), -1);
	EXPECT_EQ(errno, EFAULT);
	EXPECT_NE(pread(self->disk, self->vram, 8192, 0), 8192);
	EXPECT_EQ(gkv_host_check("vram-has %#llx %#lx 4096 4096", POISON, self->at + 4096), 0);
}

/* What the CPU and what a GPU writes, both see. */
TEST_F(dma, guest_and_gpu_see_each_others_stores)
{
	gkv_pattern_fill(self->vram + 8192, self->seed + 8, 0, 65536);
	EXPECT_EQ(gkv_host_check("vram-has %#lx %#lx 65536", self->seed + 8, self->at + 8192), 0);
	ASSERT_EQ(gkv_host_check("vram-fill %#lx %#lx 65536", self->seed + 9, self->at + MIB), 0);
	EXPECT_EQ(gkv_pattern_check(self->vram + MIB, self->seed + 9, 0, 65536), -1);
}

/*
 * F63: no way to hold the pages for good: what pins for long is refused, or a provider could never
 * be taken away. One call of the kernel's pins for io_uring's registered buffers and for RDMA.
 */
TEST_F(dma, nothing_pins_vram_for_long)
{
	struct iovec local = { .iov_base = self->vram, .iov_len = 4096 };
	int pipes[2];

	EXPECT_LT(uring_register_buffer(&self->ring, self->vram, MIB), 0);
	ASSERT_EQ(pipe(pipes), 0);
	EXPECT_EQ(vmsplice(pipes[1], &local, 1, 0), -1);
	EXPECT_NE(mlock(self->vram, 4096), 0);
	close(pipes[0]);
	close(pipes[1]);
}

/* A mapping may be cut, moved and dropped: an address means the same bytes all along. */
TEST_F(dma, after_munmap_and_mremap_the_right_bytes_are_reached)
{
	char *to = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *moved;

	ASSERT_NE(to, MAP_FAILED);
	gkv_pattern_fill(self->vram, self->seed + 10, 0, 8 * MIB);
	ASSERT_EQ(munmap(self->vram, 2 * MIB), 0);
	moved = mremap(self->vram + 2 * MIB, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ASSERT_EQ(moved, to);
	ASSERT_EQ(madvise(moved, MIB, MADV_DONTNEED), 0);
	EXPECT_EQ(gkv_pattern_check(moved, self->seed + 10, 2 * MIB, 4 * MIB), -1);
	ASSERT_EQ(gkv_host_check("disk-fill %#lx 0 4096", self->seed + 11), 0);
	ASSERT_EQ(pread(self->disk, moved + MIB, 4096, 0), 4096);
	EXPECT_EQ(gkv_host_check("vram-has %#lx %#lx 4096", self->seed + 11, self->at + 3 * MIB),
		  0);
	EXPECT_EQ(mremap(moved, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE), MAP_FAILED);
	munmap(moved, 8 * MIB);
}

/* Rings in VRAM are memory as well: what is stored in them is in the BAR. */
TEST_F(dma, parts_of_a_queue_pair_are_in_the_bar)
{
	struct gkvdrv_qp qp;
	int fd = qp_create(self->gkv, &qp, 1024, GKV_MODE_SQ | GKV_MODE_CQ | GKV_MODE_DB,
			   vram_provider(self->gkv));

	ASSERT_GE(fd, 0);
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++) {
		struct gkvdrv_report r;
		char *part;

		ASSERT_EQ(report(fd, i, &r), 0);
		part = map_shared(fd, qp.parts[i].map_offset, qp.parts[i].len);
		ASSERT_NE(part, MAP_FAILED);
		gkv_pattern_fill(part, self->seed + 12 + i, 0, qp.parts[i].len);
		EXPECT_EQ(gkv_host_check("vram-has %#lx %#llx %llu", self->seed + 12 + i,
					 r.bar_offset, qp.parts[i].len), 0);
		munmap(part, qp.parts[i].len);
	}
	close(fd);
}

TEST_HARNESS_MAIN
