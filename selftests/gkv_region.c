// SPDX-License-Identifier: MIT
/*
 * A region of a carve-out: zeroed, where its report says, mapped exactly or not at all, and back
 * in the provider when it is closed.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

FIXTURE(region) {
	const char *bdf;
	int gkv, provider;
	uint64_t len;		/* of the provider */
};

FIXTURE_SETUP(region)
{
	struct gkvdrv_provider p = { };

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	self->bdf = getenv("GKV_VRAM_BDF");
	ASSERT_NE(NULL, self->bdf);
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	p.id = self->provider;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p));
	self->len = p.len;
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

FIXTURE_TEARDOWN(region)
{
	close(self->gkv);
}

/* The line of /proc/iomem that a bus address lies in names the function. */
static bool iomem_has(const char *bdf, uint64_t start, uint64_t len)
{
	FILE *file = fopen("/proc/iomem", "r");
	bool found = false;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		unsigned long long from, to;
		int name;

		if (sscanf(line, " %llx-%llx : %n", &from, &to, &name) == 2 &&
		    strncmp(line + name, bdf, strlen(bdf)) == 0 && start >= from &&
		    start + len - 1 <= to)
			found = true;
	}
	if (file)
		fclose(file);
	return found;
}

TEST_F(region, report_agrees_with_the_bar_and_iomem)
{
	int skipped = region_alloc(self->gkv, self->provider, 3 * 4096);
	int fd = region_alloc(self->gkv, self->provider, 5 * MIB);
	struct gkvdrv_run runs[4] = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 4 };
	struct pci_id id;
	uint64_t start, end;

	ASSERT_GE(skipped, 0);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	EXPECT_EQ(GKVDRV_VRAM, r.place);
	EXPECT_EQ(5 * MIB, r.len);
	EXPECT_EQ(5 * MIB / 4096, r.nr_pages);
	EXPECT_EQ(0u, r.mode);
	EXPECT_EQ(self->provider, (int)r.provider);
	ASSERT_EQ(0, pci_parse(self->bdf, &id));
	EXPECT_EQ(id.domain, r.domain);
	EXPECT_EQ(id.bdf, r.bdf);
	ASSERT_EQ(0, pci_bar(self->bdf, r.bar, &start, &end));
	ASSERT_EQ(1u, r.nr_runs);
	EXPECT_EQ(start + r.bar_offset, runs[0].bus);
	EXPECT_EQ(r.len, runs[0].len);
	EXPECT_LE(runs[0].bus + runs[0].len - 1, end);
	EXPECT_TRUE(iomem_has(self->bdf, runs[0].bus, runs[0].len));
	EXPECT_FALSE(iomem_has(self->bdf, end + 1, 1));
	/* The address that init read before gkvdrv was there. */
	EXPECT_EQ(strtoull(getenv("GKV_VRAM_ADDR"), NULL, 0), start);
	close(fd);
	close(skipped);
}

/* Addresses of a bus are for those that could read /proc/iomem. */
static int ask_for_runs(void *arg)
{
	struct gkvdrv_run run = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)&run, .nr_runs = 1 };

	if (gkv_call(*(int *)arg, GKVDRV_REPORT, &r) != -EPERM || run.bus)
		return 1;
	r = (struct gkvdrv_report) { };
	return gkv_call(*(int *)arg, GKVDRV_REPORT, &r) != 0 || r.place != GKVDRV_VRAM ||
	       r.bar_offset || !r.page_id;
}

TEST_F(region, bus_addresses_are_for_the_administrator)
{
	int skipped = region_alloc(self->gkv, self->provider, MIB);
	int fd = region_alloc(self->gkv, self->provider, MIB);

	ASSERT_GE(fd, 0);
	EXPECT_EQ(0, in_child(65534, ask_for_runs, &fd));
	close(skipped);
	close(fd);
}

/* R1, F102: what an earlier owner left is not to be seen. */
TEST_F(region, is_zeroed)
{
	struct gkvdrv_report a, b;
	int fd = region_alloc(self->gkv, self->provider, 2 * MIB);
	char *at;

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, report(fd, 0, &a));
	at = map_shared(fd, 0, 2 * MIB);
	ASSERT_NE(MAP_FAILED, at);
	fill_bytes(at, 0xa5, 2 * MIB);
	munmap(at, 2 * MIB);
	close(fd);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));

	fd = region_alloc(self->gkv, self->provider, 2 * MIB);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, report(fd, 0, &b));
	/* The same pages, or this would show nothing. */
	ASSERT_EQ(a.bar_offset, b.bar_offset);
	at = map_shared(fd, 0, 2 * MIB);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-1, differs(at, 0, 2 * MIB));
	munmap(at, 2 * MIB);
	close(fd);
}

TEST_F(region, lengths_are_whole_pages)
{
	EXPECT_EQ(-EINVAL, region_alloc(self->gkv, self->provider, 0));
	EXPECT_EQ(GKVDRV_WHY_ALIGN, why.reason);
	EXPECT_EQ(-EINVAL, region_alloc(self->gkv, self->provider, 4095));
	EXPECT_EQ(GKVDRV_WHY_ALIGN, why.reason);
	/* F34: the text names what was met and what is needed. */
	EXPECT_NE(NULL, strstr(why.text, "4095"));
	EXPECT_NE(NULL, strstr(why.text, "4096"));
	EXPECT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, self->len + 4096));
	EXPECT_EQ(GKVDRV_WHY_SIZE, why.reason);
	EXPECT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, ~4095ull));
	EXPECT_EQ(GKVDRV_WHY_SIZE, why.reason);
	EXPECT_EQ(-ENOENT, region_alloc(self->gkv, self->provider + 1, 4096));
	EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
}

/* F54: full is full, said with figures, and nothing is left of the attempt. */
TEST_F(region, the_whole_provider_and_not_a_page_more)
{
	int64_t objects = gkv_attr("counters/regions");
	int fd = region_alloc(self->gkv, self->provider, self->len - 8192), other, i;

	ASSERT_GE(fd, 0);
	for (i = 0; i < 100; i++) {
		EXPECT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, 12288));
		EXPECT_EQ(GKVDRV_WHY_NOMEM, why.reason);
	}
	EXPECT_NE(NULL, strstr(why.text, "3 pages"));
	EXPECT_EQ((int64_t)(self->len - 8192), provider_used(self->gkv, self->provider));
	other = region_alloc(self->gkv, self->provider, 8192);
	ASSERT_GE(other, 0);
	EXPECT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, 4096));
	EXPECT_EQ(objects + 2, gkv_attr("counters/regions"));
	close(fd);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 8192));
	close(other);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

/* What is closed is there when close() returns. */
TEST_F(region, is_free_when_it_is_closed)
{
	for (int i = 0; i < 5; i++) {
		int fd = region_alloc(self->gkv, self->provider, self->len / 64);
		int rest = region_alloc(self->gkv, self->provider, self->len - self->len / 64);

		ASSERT_GE(fd, 0);
		ASSERT_GE(rest, 0);
		close(rest);
		close(fd);
		ASSERT_EQ(0, provider_used(self->gkv, self->provider));
	}
}

/* Neighbours do not overlap, whatever was freed in between. */
TEST_F(region, no_two_share_a_page)
{
	struct {
		uint64_t from, to;
		int fd;
	} got[32];
	unsigned int n = 32, seed = 7;

	for (unsigned int i = 0; i < n; i++)
		got[i].fd = -1;
	for (unsigned int round = 0; round < 400; round++) {
		unsigned int i = rand_r(&seed) % n;
		struct gkvdrv_report r;

		if (got[i].fd >= 0) {
			close(got[i].fd);
			got[i].fd = -1;
			continue;
		}
		got[i].fd = region_alloc(self->gkv, self->provider, (rand_r(&seed) % 64 + 1) * 4096);
		ASSERT_GE(got[i].fd, 0);
		ASSERT_EQ(0, report(got[i].fd, 0, &r));
		got[i].from = r.bar_offset;
		got[i].to = r.bar_offset + r.len;
		ASSERT_LE(got[i].to, self->len);
		for (unsigned int k = 0; k < n; k++)
			if (k != i && got[k].fd >= 0)
				ASSERT_TRUE(got[i].to <= got[k].from || got[k].to <= got[i].from);
	}
	for (unsigned int i = 0; i < n; i++)
		if (got[i].fd >= 0)
			close(got[i].fd);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

/* R12, F17: a mapping is within the region, or it is refused. */
TEST_F(region, mapping_is_within_it)
{
	int fd = region_alloc(self->gkv, self->provider, 8 * 4096);
	char *at, *part;

	ASSERT_GE(fd, 0);
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 0, 9 * 4096));
	EXPECT_EQ(ENXIO, errno);
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 7 * 4096, 2 * 4096));
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 8 * 4096, 4096));
	EXPECT_EQ(MAP_FAILED, map_shared(fd, (off_t)((1ull << 63) - 4096), 4096));
	at = map_shared(fd, 0, 8 * 4096);
	ASSERT_NE(MAP_FAILED, at);
	part = map_shared(fd, 5 * 4096, 4096);
	ASSERT_NE(MAP_FAILED, part);
	fill_bytes(at, 1, 8 * 4096);
	fill_bytes(part, 2, 4096);
	EXPECT_EQ(-1, differs(at + 5 * 4096, 2, 4096));
	EXPECT_EQ(-1, differs(at + 6 * 4096, 1, 4096));
	EXPECT_EQ(-1, differs(at, 1, 5 * 4096));
	munmap(at, 8 * 4096);
	munmap(part, 4096);
	close(fd);
}

TEST_F(region, mapping_is_shared_and_holds_no_code)
{
	int fd = region_alloc(self->gkv, self->provider, 4096);
	void *at;

	ASSERT_GE(fd, 0);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0));
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-1, mprotect(at, 4096, PROT_READ | PROT_EXEC));
	EXPECT_TRUE(can_read(at));
	EXPECT_FALSE(can_write(at));
	EXPECT_EQ(0, mprotect(at, 4096, PROT_READ | PROT_WRITE));
	EXPECT_TRUE(can_write(at));
	munmap(at, 4096);
	close(fd);
}

/* It is memory to map, not a file. */
TEST_F(region, is_no_file)
{
	int fd = region_alloc(self->gkv, self->provider, 4096);
	char byte = 0;

	ASSERT_GE(fd, 0);
	EXPECT_EQ(-1, read(fd, &byte, 1));
	EXPECT_EQ(-1, write(fd, &byte, 1));
	EXPECT_EQ(-1, pread(fd, &byte, 1, 0));
	EXPECT_EQ(-1, lseek(fd, 0, SEEK_END));
	EXPECT_EQ(-1, ftruncate(fd, 0));
	EXPECT_EQ(-1, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	close(fd);
}

TEST_HARNESS_MAIN
