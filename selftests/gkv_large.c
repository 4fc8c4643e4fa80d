// SPDX-License-Identifier: MIT
/*
 * Lengths and offsets beyond 4 GiB are what they are: a provider, an import and a part of one, the
 * mapping and a disk's DMA at either end. On a machine whose second BAR has 8 GiB.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#define BAR	2
#define GIB	(1ul << 30)
#define SLICE	GIB		/* where the provider starts in the BAR */
#define LEN	(6 * GIB)
#define BUFFER	(5 * GIB)	/* in pieces of a GiB, the last one first */

/* Where in the BAR a byte of the buffer is. */
static uint64_t place_of(uint64_t byte)
{
	return SLICE + (BUFFER / GIB - 1 - byte / GIB) * GIB + byte % GIB;
}

FIXTURE(large) {
	int gkv, exporter, provider, buf;
	const char *bdf;
	uint64_t bus;
	int64_t limit;
};

FIXTURE_SETUP(large)
{
	const char *size = getenv("GKV_VRAM2_SIZE");
	uint64_t end;

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	if (!size || strtoull(size, NULL, 0) < 8 * GIB)
		SKIP(return, "this machine has no second VRAM device of 8 GiB");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->limit = gkv_attr("max_user_bytes");
	ASSERT_EQ(0, gkv_set_attr("max_user_bytes", 1ull << 40));
	self->exporter = exporter_start(&self->bdf);
	ASSERT_GE(self->exporter, 0);
	ASSERT_EQ(0, pci_bar(self->bdf, BAR, &self->bus, &end));
	self->provider = provider_add(self->gkv, self->bdf, BAR, SLICE, LEN);
	ASSERT_GT(self->provider, 0) {
		TH_LOG("%s", why.text);
	}
	self->buf = exporter_make_as(self->exporter, &(struct exporter_make) {
		.layout = EXPORTER_REVERSED, .offset = SLICE, .len = BUFFER, .piece = GIB,
		.flags = O_RDWR | O_CLOEXEC,
	});
	ASSERT_GE(self->buf, 0);
}

FIXTURE_TEARDOWN(large)
{
	close(self->buf);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf));
	gkv_set_attr("max_user_bytes", self->limit);
	close(self->gkv);
}

/* Writes there as the processor does, and reads there as a disk does; the host sees both. */
static int check_bytes(int fd, uint64_t at, uint64_t in_bar, uint64_t seed)
{
	char path[32], *map = map_shared(fd, at, MIB);
	int disk, bad = 0;

	if (map == MAP_FAILED || disk_path("gkv0", path, sizeof(path)))
		return -1;
	gkv_pattern_fill(map, seed, 0, MIB);
	bad |= gkv_host_check("vram2-has %#lx %#lx %lu", seed, in_bar, MIB);
	disk = open(path, O_RDWR | O_DIRECT);
	bad |= gkv_host_check("disk-fill %#lx 0 %lu", seed + 1, MIB);
	bad |= pread(disk, map, MIB, 0) != (ssize_t)MIB;
	bad |= gkv_host_check("vram2-has %#lx %#lx %lu", seed + 1, in_bar, MIB);
	bad |= gkv_host_check("ram-lacks %#lx", seed + 1);
	close(disk);
	munmap(map, MIB);
	return bad;
}

/* F30: lengths are of 64 bits from end to end. */
TEST_F(large, an_import_of_five_gib)
{
	int fd = region_import(self->gkv, self->provider, self->buf, 0, 0);
	struct gkvdrv_run runs[8] = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 8 };

	ASSERT_GE(fd, 0) {
		TH_LOG("%s", why.text);
	}
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	EXPECT_EQ(BUFFER, r.len);
	EXPECT_EQ(BUFFER / sysconf(_SC_PAGESIZE), r.nr_pages);
	EXPECT_EQ(place_of(0), r.bar_offset);
	ASSERT_EQ(BUFFER / GIB, r.nr_runs);
	for (unsigned int i = 0; i < r.nr_runs; i++) {
		EXPECT_EQ(self->bus + place_of(i * GIB), runs[i].bus);
		EXPECT_EQ(GIB, runs[i].len);
	}
	EXPECT_EQ((int64_t)BUFFER, provider_used(self->gkv, self->provider));
	EXPECT_EQ(0, check_bytes(fd, 0, place_of(0), 0x1a01));
	EXPECT_EQ(0, check_bytes(fd, BUFFER - MIB, place_of(BUFFER - MIB), 0x1a03));
	/* Across a border of pieces at 4 GiB, where 32 bits end. */
	EXPECT_EQ(0, check_bytes(fd, 4 * GIB, place_of(4 * GIB), 0x1a05));
	EXPECT_EQ(0, check_bytes(fd, 4 * GIB - MIB, place_of(4 * GIB - MIB), 0x1a07));
	EXPECT_EQ(MAP_FAILED, map_shared(fd, BUFFER, MIB));
	close(fd);
}

TEST_F(large, a_part_beyond_four_gib)
{
	uint64_t offset = 4 * GIB + 512 * MIB, len = 256 * MIB;
	int fd = region_import(self->gkv, self->provider, self->buf, offset, len);
	struct gkvdrv_run run = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)&run, .nr_runs = 1 };

	ASSERT_GE(fd, 0) {
		TH_LOG("%s", why.text);
	}
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	EXPECT_EQ(len, r.len);
	EXPECT_EQ(1u, r.nr_runs);
	EXPECT_EQ(self->bus + place_of(offset), run.bus);
	EXPECT_EQ(len, run.len);
	EXPECT_EQ(0, check_bytes(fd, len - MIB, place_of(offset + len - MIB), 0x1a11));
	close(fd);
	/* Ends that only 64 bits tell from good ones. */
	EXPECT_EQ(-EINVAL, region_import(self->gkv, self->provider, self->buf, 4 * GIB,
					 4 * GIB + MIB));
	EXPECT_EQ(-EINVAL, region_import(self->gkv, self->provider, self->buf, 8 * GIB, MIB));
	EXPECT_EQ(-EINVAL, region_import(self->gkv, self->provider, self->buf, MIB, -MIB));
}

TEST_HARNESS_MAIN
