// SPDX-License-Identifier: MIT
/*
 * A page fault brings in what follows, so that a large region costs few of them; but never a page
 * that is not of the same mapping and the same part, and never one after its end.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#define PAGE	4096ul
#define TABLE	(2 * MIB)	/* what one page table maps */
#define LEN	(64 * MIB)

FIXTURE(faults) {
	int gkv, provider, fd, pagemap;
};

FIXTURE_SETUP(faults)
{
	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	self->fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(self->fd, 0);
	self->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ASSERT_GE(self->pagemap, 0);
}

FIXTURE_TEARDOWN(faults)
{
	close(self->fd);
	close(self->pagemap);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	close(self->gkv);
}

/* Pages of @len bytes that are in place; -1 if it cannot be told. */
static long in_place(FIXTURE_DATA(faults) *self, const void *at, size_t len)
{
	long n = 0;

	for (uintptr_t page = (uintptr_t)at / PAGE; page < ((uintptr_t)at + len) / PAGE; page++) {
		uint64_t entry;

		if (pread(self->pagemap, &entry, 8, page * 8) != 8)
			return -1;
		n += entry >> 63;
	}
	return n;
}

/* Address space whose start is @skew bytes past the start of a page table. */
static char *reserve(size_t len, size_t skew)
{
	char *at = mmap(NULL, len + 2 * TABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return at;
	return (char *)(((uintptr_t)at + TABLE - 1) / TABLE * TABLE) + skew;
}

static char *map_at(int fd, char *at, size_t len, uint64_t offset)
{
	return mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset);
}

static int64_t count(void)
{
	return gkv_attr("counters/faults");
}

TEST_F(faults, are_few_for_a_large_region)
{
	char *at = reserve(LEN, 0);
	int64_t before = count();
	uint64_t start = now_ms();

	ASSERT_NE(MAP_FAILED, at);
	at = map_at(self->fd, at, LEN, 0);
	ASSERT_NE(MAP_FAILED, at);
	for (size_t i = 0; i < LEN; i += PAGE)
		*(volatile uint64_t *)(at + i) = i;
	TH_LOG("%zu MiB: %lld faults, %llu ms", LEN / MIB, (long long)(count() - before),
	       (unsigned long long)(now_ms() - start));
	EXPECT_EQ((int64_t)(LEN / TABLE), count() - before);
	for (size_t i = 0; i < LEN; i += PAGE)
		ASSERT_EQ(i, *(volatile uint64_t *)(at + i));
	EXPECT_EQ(0, munmap(at, LEN));
}

/* Each brings its own page, and stops at one that is in place. */
TEST_F(faults, in_any_order_bring_the_right_pages)
{
	char *at = reserve(TABLE, 0), *other = map_shared(self->fd, TABLE, TABLE);
	uint64_t random = 1;

	ASSERT_NE(MAP_FAILED, at);
	ASSERT_NE(MAP_FAILED, other);
	for (size_t i = 0; i < TABLE; i += PAGE)
		*(volatile uint64_t *)(other + i) = ~i;
	at = map_at(self->fd, at, TABLE, TABLE);
	ASSERT_NE(MAP_FAILED, at);
	for (int k = 0; k < 3000; k++) {
		size_t page = (random = random * 6364136223846793005ull + 1) >> 33 & 511;

		ASSERT_EQ(~(page * PAGE), *(volatile uint64_t *)(at + page * PAGE));
		/* Holes to be filled again. */
		if (k % 16 == 0)
			ASSERT_NE(MAP_FAILED, map_at(self->fd, at + page * PAGE,
						     PAGE * (1 + page % (512 - page)),
						     TABLE + page * PAGE));
	}
	munmap(at, TABLE);
	munmap(other, TABLE);
}

TEST_F(faults, keep_to_their_page_table_and_mapping)
{
	char *at = reserve(2 * TABLE, TABLE - 3 * PAGE), *map;

	ASSERT_NE(MAP_FAILED, at);
	map = map_at(self->fd, at, 8 * PAGE, 5 * PAGE);
	ASSERT_NE(MAP_FAILED, map);
	ASSERT_TRUE(can_read(map + PAGE));
	/* The second and the third; then another page table begins. */
	EXPECT_EQ(0, in_place(self, map, PAGE));
	EXPECT_EQ(2, in_place(self, map + PAGE, 2 * PAGE));
	EXPECT_EQ(0, in_place(self, map + 3 * PAGE, 5 * PAGE));
	ASSERT_TRUE(can_read(map + 4 * PAGE));
	EXPECT_EQ(4, in_place(self, map + 3 * PAGE, 5 * PAGE));
	/* What was cut off is nobody's. */
	ASSERT_NE(MAP_FAILED, map_at(self->fd, map, 8 * PAGE, 5 * PAGE));
	ASSERT_EQ(0, munmap(map + 6 * PAGE, PAGE));
	ASSERT_TRUE(can_read(map + 3 * PAGE));
	EXPECT_EQ(3, in_place(self, map + 3 * PAGE, 3 * PAGE));
	EXPECT_EQ(0, in_place(self, map + 6 * PAGE, 2 * PAGE));
	/* Moved, it is the same page of the region. */
	ASSERT_EQ(map + 6 * PAGE, mremap(map + 7 * PAGE, PAGE, PAGE,
					 MREMAP_MAYMOVE | MREMAP_FIXED, map + 6 * PAGE));
	fill_bytes(map + 6 * PAGE, 0x5a, PAGE);
	munmap(map, 7 * PAGE);
	map = map_shared(self->fd, 12 * PAGE, PAGE);
	ASSERT_NE(MAP_FAILED, map);
	EXPECT_EQ(-1, differs(map, 0x5a, PAGE));
	munmap(map, PAGE);
}

/* A part has its own attributes, and what lies behind it is another's. */
TEST_F(faults, keep_to_their_part)
{
	struct gkvdrv_qp qp;
	char *at;

	ASSERT_GE(qp_create(self->gkv, &qp, 256, 7, self->provider), 0);
	for (int i = 0; i < (int)GKVDRV_PARTS; i++) {
		size_t pages = (qp.parts[i].len + PAGE - 1) / PAGE;

		EXPECT_EQ(MAP_FAILED, map_shared(qp.fd, qp.parts[i].map_offset, (pages + 1) * PAGE));
		at = map_shared(qp.fd, qp.parts[i].map_offset, pages * PAGE);
		ASSERT_NE(MAP_FAILED, at);
		ASSERT_TRUE(can_write(at));
		EXPECT_LE(in_place(self, at, pages * PAGE), (long)pages);
		EXPECT_GE(in_place(self, at, pages * PAGE), 1);
		munmap(at, pages * PAGE);
	}
	close(qp.fd);
}

/* F102: not one page of it is left in the page tables. */
TEST_F(faults, leave_nothing_after_a_revocation)
{
	char *at = reserve(LEN, 0);

	ASSERT_NE(MAP_FAILED, at);
	at = map_at(self->fd, at, LEN, 0);
	ASSERT_NE(MAP_FAILED, at);
	for (size_t i = 0; i < LEN; i += TABLE)
		ASSERT_TRUE(can_read(at + i));
	EXPECT_EQ((long)(LEN / PAGE), in_place(self, at, LEN));
	ASSERT_EQ(0, gkv_revoke(self->fd));
	EXPECT_EQ(0, in_place(self, at, LEN));
	EXPECT_FALSE(can_read(at));
	EXPECT_EQ(0, in_place(self, at, LEN));
	munmap(at, LEN);
}

TEST_HARNESS_MAIN
