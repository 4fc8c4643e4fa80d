// SPDX-License-Identifier: MIT
/*
 * A queue pair's parts are where the bits of its memory mode say, all sixteen of them, whether they
 * are allocated or placed in a region; or there is no queue pair.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#define DEPTH	128u

static const uint64_t entry_bytes[GKVDRV_PARTS] = { 64, 16, 0 };

FIXTURE(mode) {
	int gkv, provider;
	bool p2p;
	struct gkvdrv_qp qp;
	uint64_t seed;
};

FIXTURE_VARIANT(mode) {
	uint32_t mode;
};

#define MODE(m) FIXTURE_VARIANT_ADD(mode, m) { .mode = m }
MODE(0x0); MODE(0x1); MODE(0x2); MODE(0x3); MODE(0x4); MODE(0x5); MODE(0x6); MODE(0x7);
MODE(0x8); MODE(0x9); MODE(0xa); MODE(0xb); MODE(0xc); MODE(0xd); MODE(0xe); MODE(0xf);

FIXTURE_SETUP(mode)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->p2p = kernel_has_p2pdma();
	self->seed = 0x60de000000ull + variant->mode * 16;
	if (!self->p2p)
		return;
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

FIXTURE_TEARDOWN(mode)
{
	close(self->gkv);
}

/* F35, F44: a part is where its report says: written through the descriptor, seen from outside. */
static void part_is(struct __test_metadata *_metadata, FIXTURE_DATA(mode) *self, int fd,
		    uint32_t i, bool vram, uint64_t seed)
{
	const struct gkvdrv_part *part = &self->qp.parts[i];
	struct gkvdrv_report r;
	uint64_t skip;
	char *at;

	ASSERT_EQ(0, report(fd, i, &r));
	EXPECT_EQ(vram ? GKVDRV_VRAM : GKVDRV_HOST, r.place);
	EXPECT_EQ(vram ? self->provider : 0, (int)r.provider);
	EXPECT_EQ(self->qp.mode, r.mode);
	EXPECT_EQ(part->len, r.len);
	skip = r.bar_offset % 4096;
	EXPECT_EQ((skip + part->len + 4095) / 4096, r.nr_pages);

	at = map_shared(fd, part->map_offset, r.nr_pages * 4096);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-1, differs(at + skip, 0, part->len));
	gkv_pattern_fill(at + skip, seed, 0, part->len);
	EXPECT_EQ(-1, gkv_pattern_check(at + skip, seed, 0, part->len));
	if (vram) {
		EXPECT_EQ(0, gkv_host_check("vram-has %#lx %#llx %llu", seed, r.bar_offset,
					    part->len));
		EXPECT_EQ(0, gkv_host_check("ram-lacks %#lx", seed));
	} else {
		EXPECT_EQ(0u, r.bdf);
		EXPECT_EQ(0u, r.nr_runs);
		/* What is shorter than the pattern's period cannot be searched for. */
		if (part->len >= 64) {
			EXPECT_EQ(0, gkv_host_check("ram-holds %#lx %llu", seed, part->len));
			if (self->p2p)
				EXPECT_EQ(0, gkv_host_check("vram-lacks %#lx", seed));
		}
	}
	munmap(at, r.nr_pages * 4096);
}

TEST_F(mode, allocated_parts_are_where_its_bits_say)
{
	int fd = qp_create(self->gkv, &self->qp, DEPTH, variant->mode, self->provider);

	if (!self->p2p && variant->mode) {
		EXPECT_EQ(-EOPNOTSUPP, fd);
		EXPECT_EQ(GKVDRV_WHY_P2PDMA, why.reason);
		EXPECT_NE(NULL, strstr(why.text, "CONFIG_PCI_P2PDMA"));
		return;
	}
	ASSERT_GE(fd, 0);
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++)
		part_is(_metadata, self, fd, i, variant->mode & 1u << i, self->seed + i);
	close(fd);
	if (self->p2p)
		EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

/* In a region that was used before: what is there of it is zeroed, what is beside it is not. */
TEST_F(mode, placed_parts_are_in_the_region)
{
	static const uint64_t places[GKVDRV_PARTS] = { 0x10000, 0x7000, 0x3028 };
	const uint64_t len = 0x20000;
	struct gkvdrv_report whole;
	int region, fd;
	char *view;

	if (!self->p2p)
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	/* So that offsets in BAR and region differ. */
	ASSERT_GE(region_alloc(self->gkv, self->provider, 3 * 4096), 0);
	region = region_alloc(self->gkv, self->provider, len);
	ASSERT_GE(region, 0);
	ASSERT_EQ(0, report(region, 0, &whole));
	view = map_shared(region, 0, len);
	ASSERT_NE(MAP_FAILED, view);
	fill_bytes(view, 0xa5, len);

	qp_init(&self->qp, DEPTH, variant->mode);
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++) {
		if (!(variant->mode & 1u << i))
			continue;
		self->qp.parts[i].region = region;
		self->qp.parts[i].offset = places[i];
	}
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp)) {
		TH_LOG("%s", why.text);
	}
	fd = self->qp.fd;
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++) {
		uint64_t bytes = self->qp.parts[i].len;
		struct gkvdrv_report r;

		if (!(variant->mode & 1u << i)) {
			part_is(_metadata, self, fd, i, false, self->seed + 8 + i);
			continue;
		}
		EXPECT_EQ(-1, differs(view + places[i] - 8, 0xa5, 8));
		EXPECT_EQ(-1, differs(view + places[i] + bytes, 0xa5, 8));
		ASSERT_EQ(0, report(fd, i, &r));
		EXPECT_EQ(whole.bar_offset + places[i], r.bar_offset);
		part_is(_metadata, self, fd, i, true, self->seed + 8 + i);
		EXPECT_EQ(-1, gkv_pattern_check(view + places[i], self->seed + 8 + i, 0, bytes));
	}
	/* It stays when nobody has the region any more. */
	munmap(view, len);
	close(region);
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++) {
		struct gkvdrv_report r;

		ASSERT_EQ(0, report(fd, i, &r));
		EXPECT_EQ(variant->mode & 1u << i ? GKVDRV_VRAM : GKVDRV_HOST, r.place);
	}
	close(fd);
}

/* ---- What every mode has in common ---- */

FIXTURE(qp) {
	int gkv, provider, region;
	bool p2p;
	struct gkvdrv_qp qp;
};

FIXTURE_SETUP(qp)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->p2p = kernel_has_p2pdma();
	self->region = -1;
	if (!self->p2p)
		return;
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	self->region = region_alloc(self->gkv, self->provider, 64 * 4096);
	ASSERT_GE(self->region, 0);
}

FIXTURE_TEARDOWN(qp)
{
	gkv_set_attr("max_queue_depth", 4096);
	if (self->region >= 0)
		close(self->region);
	close(self->gkv);
}

#define NEEDS_P2P() do {							\
	if (!self->p2p)								\
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");		\
} while (0)

/* Which parts begin in the same page of VRAM, and of none of them where that is. */
TEST_F(qp, parts_in_one_page_have_its_number)
{
	static const uint64_t places[] = { 0x3000, 0x3ff8, 0x4000, 0 };
	struct gkvdrv_report region, r[4], again;
	int fds[4];

	NEEDS_P2P();
	for (int i = 0; i < 4; i++) {
		qp_init(&self->qp, 8, GKV_MODE_DB);
		self->qp.parts[GKVDRV_DB].region = self->region;
		self->qp.parts[GKVDRV_DB].offset = places[i];
		ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp)) {
			TH_LOG("%s", why.text);
		}
		fds[i] = self->qp.fd;
		ASSERT_EQ(0, report(fds[i], GKVDRV_SQ, &r[i]));
		EXPECT_EQ(0ull, r[i].page_id);
		ASSERT_EQ(0, report(fds[i], GKVDRV_DB, &r[i]));
		EXPECT_NE(0ull, r[i].page_id);
	}
	ASSERT_EQ(0, report(self->region, 0, &region));
	EXPECT_EQ(r[0].page_id, r[1].page_id);
	EXPECT_NE(r[0].page_id, r[2].page_id);
	EXPECT_NE(r[0].page_id, r[3].page_id);
	EXPECT_EQ(region.page_id, r[3].page_id);
	/* Pages that follow each other have numbers that do not. */
	EXPECT_NE(r[2].page_id - r[0].page_id, 1ull);
	/* One of them goes, the page stays. */
	ASSERT_EQ(0, gkv_revoke(fds[0]));
	EXPECT_TRUE(is_gone(fds[0], GKVDRV_DB));
	ASSERT_EQ(0, report(fds[1], GKVDRV_DB, &again));
	EXPECT_EQ(r[1].page_id, again.page_id);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	/* Whoever comes later finds the same number. */
	ASSERT_EQ(0, report(self->region, 0, &again));
	EXPECT_EQ(region.page_id, again.page_id);
}

/* F8, F9: lengths on both sides of a page's end; the first and the last entry are there. */
TEST_F(qp, any_depth_up_to_the_limit)
{
	static const uint32_t depths[] = {
		2, 3, 7, 63, 64, 65, 127, 128, 255, 256, 257, 1000, 1024, 2049, 4095, 4096,
	};

	for (size_t d = 0; d < 2 * sizeof(depths) / sizeof(depths[0]); d++) {
		uint32_t depth = depths[d / 2];
		/* Even rounds in host memory, odd ones in VRAM. */
		uint32_t mode = d & 1 && self->p2p ? 7 : 0;
		int fd = qp_create(self->gkv, &self->qp, depth, mode, self->provider);

		ASSERT_GE(fd, 0);
		for (int i = 0; i < 2; i++) {
			uint64_t len = entry_bytes[i] * depth;
			uint64_t pages = (len + 4095) / 4096;
			char *at;

			ASSERT_EQ(len, self->qp.parts[i].len);
			EXPECT_EQ(MAP_FAILED, map_shared(fd, self->qp.parts[i].map_offset,
							 (pages + 1) * 4096));
			at = map_shared(fd, self->qp.parts[i].map_offset, pages * 4096);
			ASSERT_NE(MAP_FAILED, at);
			EXPECT_EQ(-1, differs(at, 0, pages * 4096));
			fill_bytes(at, i + 1, len);
			EXPECT_EQ(-1, differs(at, i + 1, len));
			munmap(at, pages * 4096);
		}
		close(fd);
	}
}

/* F13, R5: the limit is a setting, and the refusal names it. */
TEST_F(qp, depth_beyond_the_limit_is_refused_with_the_limit)
{
	static const uint32_t bad[] = { 0, 1, 4097, 65536, 65537, ~0u };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT_EQ(-EINVAL, qp_create(self->gkv, &self->qp, bad[i], 0, 0));
		EXPECT_EQ(GKVDRV_WHY_LIMIT, why.reason);
		EXPECT_NE(NULL, strstr(why.text, "4096"));
		EXPECT_NE(NULL, strstr(why.text, "max_queue_depth"));
	}
	ASSERT_EQ(0, gkv_set_attr("max_queue_depth", 64));
	EXPECT_EQ(-EINVAL, qp_create(self->gkv, &self->qp, 65, 0, 0));
	EXPECT_NE(NULL, strstr(why.text, "64"));
}

TEST_F(qp, the_deepest_there_is)
{
	ASSERT_EQ(0, gkv_set_attr("max_queue_depth", 65536));
	for (uint32_t mode = 0; mode < (self->p2p ? 8 : 1); mode += 7) {
		int fd = qp_create(self->gkv, &self->qp, 65536, mode, self->provider);
		uint64_t len = 65536 * 64;
		char *at;

		ASSERT_GE(fd, 0);
		ASSERT_EQ(len, self->qp.parts[GKVDRV_SQ].len);
		at = map_shared(fd, self->qp.parts[GKVDRV_SQ].map_offset, len);
		ASSERT_NE(MAP_FAILED, at);
		fill_bytes(at + len - 64, 9, 64);
		EXPECT_EQ(-1, differs(at, 0, len - 64));
		munmap(at, len);
		close(fd);
	}
	EXPECT_EQ(-EINVAL, qp_create(self->gkv, &self->qp, 65537, 0, 0));
	EXPECT_EQ(-ERANGE, gkv_set_attr("max_queue_depth", 65537));
}

TEST_F(qp, doorbells_are_as_far_apart_as_asked)
{
	for (uint32_t dstrd = 0; dstrd <= 17; dstrd++) {
		qp_init(&self->qp, 8, 0);
		self->qp.dstrd = dstrd;
		if (dstrd > 15) {
			EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
			EXPECT_EQ(GKVDRV_WHY_SIZE, why.reason);
			continue;
		}
		ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
		EXPECT_EQ(8ull << dstrd, self->qp.parts[GKVDRV_DB].len);
		close(self->qp.fd);
	}
}

/* F35, F52: what contradicts the mode is refused, and nothing is moved. */
TEST_F(qp, bits_are_binding)
{
	for (int i = 0; i < (int)GKVDRV_PARTS; i++) {
		/* In host memory by its bit, and a place in VRAM is given. */
		qp_init(&self->qp, 8, 0);
		self->qp.parts[i].provider = 1;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
		EXPECT_EQ(GKVDRV_WHY_MODE, why.reason);
		qp_init(&self->qp, 8, 0);
		self->qp.parts[i].offset = 4096;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
		qp_init(&self->qp, 8, 0);
		self->qp.parts[i].region = self->region >= 0 ? self->region : 0;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
		EXPECT_EQ(GKVDRV_WHY_MODE, why.reason);
		if (!self->p2p)
			continue;
		/* In VRAM by its bit, and no place is given. */
		qp_init(&self->qp, 8, 1u << i);
		EXPECT_EQ(-ENOENT, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
		EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
		/* Two places. */
		qp_init(&self->qp, 8, 1u << i);
		self->qp.parts[i].region = self->region;
		self->qp.parts[i].provider = self->provider;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
	}
	EXPECT_EQ(-EINVAL, qp_create(self->gkv, &self->qp, 8, 0x10, 0));
	EXPECT_EQ(GKVDRV_WHY_MODE, why.reason);
	EXPECT_EQ(-EINVAL, qp_create(self->gkv, &self->qp, 8, ~0u, 0));
}

/* F27, F34, F59, R9: a place that does not fit is refused, and the text says how it would. */
TEST_F(qp, places_are_aligned_and_within_the_region)
{
	static const struct {
		uint32_t part;
		uint64_t offset;
		uint32_t reason;
		const char *text;
	} bad[] = {
		{ GKVDRV_SQ, 64, GKVDRV_WHY_ALIGN, "4096" },
		{ GKVDRV_CQ, 2048, GKVDRV_WHY_ALIGN, "4096" },
		{ GKVDRV_DB, 4, GKVDRV_WHY_ALIGN, "8" },
		{ GKVDRV_SQ, 63 * 4096, GKVDRV_WHY_SIZE, "262144" },
		{ GKVDRV_CQ, 64 * 4096, GKVDRV_WHY_SIZE, "262144" },
		{ GKVDRV_DB, 64 * 4096, GKVDRV_WHY_SIZE, "262144" },
		{ GKVDRV_SQ, -4096ull, GKVDRV_WHY_SIZE, "262144" },
		{ GKVDRV_DB, -8ull, GKVDRV_WHY_SIZE, "262144" },
	};

	NEEDS_P2P();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		qp_init(&self->qp, DEPTH, 1u << bad[i].part);
		self->qp.parts[bad[i].part].region = self->region;
		self->qp.parts[bad[i].part].offset = bad[i].offset;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp)) {
			TH_LOG("part %u at %#lx", bad[i].part, bad[i].offset);
		}
		EXPECT_EQ(bad[i].reason, why.reason);
		EXPECT_NE(NULL, strstr(why.text, bad[i].text));
	}
	/* The last that do fit. */
	qp_init(&self->qp, 64, 5);
	self->qp.parts[GKVDRV_SQ].region = self->region;
	self->qp.parts[GKVDRV_SQ].offset = 62 * 4096;
	self->qp.parts[GKVDRV_DB].region = self->region;
	self->qp.parts[GKVDRV_DB].offset = 64 * 4096 - 8;
	EXPECT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
	close(self->qp.fd);
}

/* F10: one owner for every byte of a queue. */
TEST_F(qp, no_byte_is_in_two_queues)
{
	struct gkvdrv_qp other;

	NEEDS_P2P();
	/* SQ and CQ of the same queue pair. */
	qp_init(&self->qp, DEPTH, 3);
	self->qp.parts[GKVDRV_SQ].region = self->region;
	self->qp.parts[GKVDRV_CQ].region = self->region;
	self->qp.parts[GKVDRV_CQ].offset = 4096;
	EXPECT_EQ(-EBUSY, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);

	self->qp.parts[GKVDRV_CQ].offset = 8192;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
	qp_init(&other, 8, 4);
	other.parts[GKVDRV_DB].region = self->region;
	other.parts[GKVDRV_DB].offset = 8192 - 8;
	EXPECT_EQ(-EBUSY, gkv_call(self->gkv, GKVDRV_QP_CREATE, &other));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	/* Beside it, on the same page: 128 CQEs are 2048 bytes. */
	other.parts[GKVDRV_DB].offset = 8192 + 2048;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &other));
	close(other.fd);
	/* F11: it is free again when its owner is gone. */
	close(self->qp.fd);
	qp_init(&self->qp, DEPTH, 1);
	self->qp.parts[GKVDRV_SQ].region = self->region;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
	close(self->qp.fd);
}

/* R12: larger than the part, over two of them, private, executable. */
TEST_F(qp, a_mapping_is_of_one_part)
{
	for (uint32_t mode = 0; mode < (self->p2p ? 8 : 1); mode += 7) {
		int fd = qp_create(self->gkv, &self->qp, DEPTH, mode, self->provider);
		uint64_t cq;
		char *at;

		ASSERT_GE(fd, 0);
		cq = self->qp.parts[GKVDRV_CQ].map_offset;
		ASSERT_EQ(2 * 4096ul, cq);
		ASSERT_EQ(3 * 4096ul, self->qp.parts[GKVDRV_DB].map_offset);
		EXPECT_EQ(MAP_FAILED, map_shared(fd, 0, 4 * 4096));
		EXPECT_EQ(ENXIO, errno);
		EXPECT_EQ(MAP_FAILED, map_shared(fd, 4096, 2 * 4096));
		EXPECT_EQ(MAP_FAILED, map_shared(fd, cq, 2 * 4096));
		EXPECT_EQ(MAP_FAILED, map_shared(fd, 4 * 4096, 4096));
		EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, cq));
		EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, cq));
		/* Smaller is exact. */
		at = map_shared(fd, 4096, 4096);
		ASSERT_NE(MAP_FAILED, at);
		fill_bytes(at, 3, 4096);
		munmap(at, 4096);
		at = map_shared(fd, 0, 2 * 4096);
		ASSERT_NE(MAP_FAILED, at);
		EXPECT_EQ(-1, differs(at, 0, 4096));
		EXPECT_EQ(-1, differs(at + 4096, 3, 4096));
		munmap(at, 2 * 4096);
		close(fd);
	}
}

/* F49: the part that does not fit takes those before it away again. */
TEST_F(qp, no_room_for_one_part_leaves_nothing)
{
	struct gkvdrv_info before = { .abi = GKVDRV_ABI }, after = { .abi = GKVDRV_ABI };
	struct gkvdrv_provider p = { };
	int fill;

	NEEDS_P2P();
	p.id = self->provider;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p));
	/* Four pages stay: SQ takes two, CQ would take three. */
	fill = region_alloc(self->gkv, self->provider, p.len - p.used - 4 * 4096);
	ASSERT_GE(fill, 0);
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_INFO, &before));
	for (int i = 0; i < 50; i++) {
		EXPECT_EQ(-ENOMEM, qp_create(self->gkv, &self->qp, 200, 7, self->provider));
		EXPECT_EQ(GKVDRV_WHY_NOMEM, why.reason);
		ASSERT_EQ(0, wait_used(self->gkv, self->provider, p.len - 4 * 4096));
	}
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_INFO, &after));
	EXPECT_EQ(before.user_objects, after.user_objects);
	EXPECT_EQ(before.user_bytes, after.user_bytes);
	close(fill);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, p.used));
}

/* Only a region is a place; nothing is guessed from what else a descriptor may be. */
TEST_F(qp, only_a_region_is_a_place)
{
	int fds[6], n = 0;

	NEEDS_P2P();
	fds[n++] = eventfd(0, EFD_CLOEXEC);
	fds[n++] = memfd_create("x", MFD_CLOEXEC);
	fds[n++] = open("/proc/self/exe", O_RDONLY);
	fds[n++] = self->gkv;
	fds[n++] = qp_create(self->gkv, &self->qp, 1024, 0, 0);
	fds[n++] = 999;
	for (int i = 0; i < n; i++) {
		ASSERT_GE(fds[i], 0);
		qp_init(&self->qp, 8, 1);
		self->qp.parts[GKVDRV_SQ].region = fds[i];
		EXPECT_EQ(-EBADF, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
		EXPECT_EQ(GKVDRV_WHY_MODE, why.reason);
	}
	qp_init(&self->qp, 8, 1);
	self->qp.parts[GKVDRV_SQ].region = -2;
	EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &self->qp));
}

TEST_HARNESS_MAIN
