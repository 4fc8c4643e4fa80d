// SPDX-License-Identifier: MIT
/*
 * A dma-buf becomes a region when, and only when, every byte of it is in the provider's BAR, pinned
 * there and not used by another region; all of it is let go when the region goes, or when the
 * exporter wants it back.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#include <linux/udmabuf.h>

#define BAR	2
#define SLICE	(16 * MIB)	/* where the provider starts in the BAR */
#define LEN	(64 * MIB)	/* and how long it is */

FIXTURE(dmabuf) {
	int gkv, exporter, provider;
	const char *bdf;
	uint64_t bus;		/* of the BAR */
};

FIXTURE_SETUP(dmabuf)
{
	uint64_t end;

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	if (!getenv("GKV_VRAM2_BDF"))
		SKIP(return, "this machine has no second VRAM device");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->exporter = exporter_start(&self->bdf);
	ASSERT_GE(self->exporter, 0);
	ASSERT_EQ(0, pci_bar(self->bdf, BAR, &self->bus, &end));
	self->provider = provider_add(self->gkv, self->bdf, BAR, SLICE, LEN);
	ASSERT_GT(self->provider, 0);
}

FIXTURE_TEARDOWN(dmabuf)
{
	struct exporter_state s;

	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_TRUE(eventually((s = exporter_state(self->exporter, -1)).attached == 0));
	EXPECT_EQ(0u, s.mapped);
	EXPECT_EQ(0u, s.pinned);
	EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf));
	close(self->gkv);
}

static int plain(FIXTURE_DATA(dmabuf) *self, uint64_t offset, uint64_t len)
{
	return exporter_make(self->exporter, EXPORTER_PLAIN, SLICE + offset, len);
}

static int import(FIXTURE_DATA(dmabuf) *self, int buf, uint64_t offset, uint64_t len)
{
	return region_import(self->gkv, self->provider, buf, offset, len);
}

TEST_F(dmabuf, is_where_the_exporter_has_it)
{
	int buf = plain(self, 3 * MIB, 2 * MIB), fd = import(self, buf, 0, 0);
	struct gkvdrv_run runs[2] = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 2 };
	struct exporter_state s;
	char *at;

	ASSERT_GE(buf, 0);
	ASSERT_GE(fd, 0) {
		TH_LOG("%s", why.text);
	}
	s = exporter_state(self->exporter, buf);
	EXPECT_EQ(1u, s.attached);
	EXPECT_EQ(1u, s.pinned);
	EXPECT_EQ(1u, s.mapped);
	/* R7: the region holds the buffer, whoever has its descriptor. */
	close(buf);
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	EXPECT_EQ(GKVDRV_VRAM, r.place);
	EXPECT_EQ(SLICE + 3 * MIB, r.bar_offset);
	EXPECT_EQ(2 * MIB, r.len);
	EXPECT_EQ(1u, r.nr_runs);
	EXPECT_EQ(self->bus + SLICE + 3 * MIB, runs[0].bus);
	EXPECT_EQ(2 * MIB, runs[0].len);
	at = map_shared(fd, 0, 2 * MIB);
	ASSERT_NE(MAP_FAILED, at);
	gkv_pattern_fill(at, 0xdb01, 0, 2 * MIB);
	EXPECT_EQ(0, gkv_host_check("vram2-has 0xdb01 %#lx %lu", SLICE + 3 * MIB, 2 * MIB));
	EXPECT_EQ(0, gkv_host_check("ram-lacks 0xdb01"));
	munmap(at, 2 * MIB);
	close(fd);
}

/* R11, F35: a disk reaches it, and the data is nowhere else. */
TEST_F(dmabuf, dma_of_a_disk_goes_there)
{
	int buf = plain(self, 5 * MIB, 4 * MIB), fd = import(self, buf, MIB, 2 * MIB), disk;
	char path[32], *at;

	ASSERT_GE(fd, 0);
	close(buf);
	ASSERT_EQ(0, disk_path("gkv0", path, sizeof(path)));
	disk = open(path, O_RDWR | O_DIRECT);
	ASSERT_GE(disk, 0);
	at = map_shared(fd, 0, 2 * MIB);
	ASSERT_NE(MAP_FAILED, at);
	gkv_pattern_fill(at, 0xdb02, 0, 2 * MIB);
	ASSERT_EQ(0, gkv_host_check("disk-fill 0xdb03 0 %lu", 2 * MIB));
	ASSERT_EQ((ssize_t)(2 * MIB), pread(disk, at, 2 * MIB, 0));
	EXPECT_EQ(0, gkv_host_check("vram2-has 0xdb03 %#lx %lu", SLICE + 6 * MIB, 2 * MIB));
	EXPECT_EQ(0, gkv_host_check("ram-lacks 0xdb03"));
	EXPECT_EQ(-1, gkv_pattern_check(at, 0xdb03, 0, 2 * MIB));
	munmap(at, 2 * MIB);
	close(disk);
	close(fd);
}

/* A region starts where it is said to, to the byte, over the ends of segments. */
TEST_F(dmabuf, many_segments_and_parts_of_them)
{
	struct exporter_make how = {
		.layout = EXPORTER_REVERSED, .offset = SLICE, .len = 64 * 4096, .piece = 4 * 4096,
	};
	static const struct {
		unsigned int first, n;		/* pages */
	} parts[] = { { 0, 64 }, { 0, 1 }, { 3, 2 }, { 4, 4 }, { 5, 11 }, { 63, 1 }, { 10, 0 } };
	int buf = exporter_make_as(self->exporter, &how);

	ASSERT_GE(buf, 0);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		unsigned int n = parts[i].n ? parts[i].n : 64 - parts[i].first;
		struct gkvdrv_run runs[16] = { };
		struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 16 };
		uint64_t at = 0;
		int fd = import(self, buf, parts[i].first * 4096, parts[i].n * 4096);
		char *map;

		ASSERT_GE(fd, 0) {
			TH_LOG("%s", why.text);
		}
		ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
		ASSERT_EQ(n * 4096, r.len);
		map = map_shared(fd, 0, r.len);
		ASSERT_NE(MAP_FAILED, map);
		gkv_pattern_fill(map, 0xdb10 + i, 0, r.len);
		for (unsigned int page = 0; page < n; page++) {
			unsigned int in = parts[i].first + page;
			uint64_t place = SLICE + (15 - in / 4) * 16384 + in % 4 * 4096;

			if (page == 0 || page + 1 == n || in % 4 == 0)
				ASSERT_EQ(0, gkv_host_check("vram2-has %#zx %#lx 4096 %u",
							    0xdb10 + i, place, page * 4096));
			if (page == 0)
				ASSERT_EQ(place, r.bar_offset);
		}
		/* The runs say the same. */
		ASSERT_EQ((parts[i].first + n - 1) / 4 - parts[i].first / 4 + 1, r.nr_runs);
		for (unsigned int k = 0; k < r.nr_runs; k++) {
			uint64_t in = parts[i].first * 4096 + at;
			uint64_t place = SLICE + (15 - in / 16384) * 16384 + in % 16384;

			ASSERT_EQ(self->bus + place, runs[k].bus);
			at += runs[k].len;
		}
		ASSERT_EQ(r.len, at);
		munmap(map, r.len);
		close(fd);
		ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
	}
	close(buf);
}

/* A report says how many runs there are, and writes no more than there is room for. */
TEST_F(dmabuf, more_runs_than_room)
{
	struct exporter_make how = {
		.layout = EXPORTER_REVERSED, .offset = SLICE, .len = 8 * 4096, .piece = 4096,
	};
	struct gkvdrv_run runs[4] = { };
	struct gkvdrv_report r = { .runs = (uintptr_t)runs, .nr_runs = 2 };
	int buf = exporter_make_as(self->exporter, &how), fd = import(self, buf, 0, 0);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, gkv_call(fd, GKVDRV_REPORT, &r));
	EXPECT_EQ(8u, r.nr_runs);
	EXPECT_EQ(self->bus + SLICE + 7 * 4096, runs[0].bus);
	EXPECT_EQ(self->bus + SLICE + 6 * 4096, runs[1].bus);
	EXPECT_EQ(0ull, runs[2].bus);
	r = (struct gkvdrv_report) { .runs = 8, .nr_runs = 2 };
	EXPECT_EQ(-EFAULT, gkv_call(fd, GKVDRV_REPORT, &r));
	close(buf);
	close(fd);
}

/* A GPU's memory may be in as many pieces as it has pages. */
TEST_F(dmabuf, sixteen_thousand_segments)
{
	struct exporter_make how = {
		.layout = EXPORTER_REVERSED, .offset = SLICE, .len = LEN, .piece = 4096,
	};
	int buf = exporter_make_as(self->exporter, &how), fd;
	uint64_t start = now_ms();
	struct gkvdrv_report r;
	char *at;

	ASSERT_GE(buf, 0);
	fd = import(self, buf, 0, 0);
	ASSERT_GE(fd, 0);
	EXPECT_LT(now_ms() - start, 5000u);
	close(buf);
	ASSERT_EQ(0, report(fd, 0, &r));
	EXPECT_EQ(SLICE + LEN - 4096, r.bar_offset);
	at = map_shared(fd, 0, LEN);
	ASSERT_NE(MAP_FAILED, at);
	for (uint64_t page = 0; page < LEN / 4096; page += 1021) {
		gkv_pattern_fill(at + page * 4096, 0xdb80, page * 4096, 4096);
		ASSERT_EQ(0, gkv_host_check("vram2-has 0xdb80 %#lx 4096 %#lx",
					    SLICE + LEN - (page + 1) * 4096, page * 4096));
	}
	munmap(at, LEN);
	close(fd);
}

/* Parts of a queue pair may lie in what a GPU's driver exported: as they must on a real one. */
TEST_F(dmabuf, queue_pairs_lie_in_it)
{
	struct exporter_make how = {
		.layout = EXPORTER_REVERSED, .offset = SLICE, .len = 16 * 4096, .piece = 4096,
	};
	int buf = exporter_make_as(self->exporter, &how), fd = import(self, buf, 0, 0);
	struct gkvdrv_qp qp;
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, 16 * 4096);
	ASSERT_NE(MAP_FAILED, at);
	fill_bytes(at, 0xee, 16 * 4096);
	qp_init(&qp, 256, 7);
	for (int i = 0; i < (int)GKVDRV_PARTS; i++)
		qp.parts[i].region = fd;
	qp.parts[GKVDRV_CQ].offset = 6 * 4096;
	qp.parts[GKVDRV_DB].offset = 9 * 4096 + 4088;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp));
	/* Zeroed through all segments. */
	EXPECT_EQ(-1, differs(at, 0, 4 * 4096));
	EXPECT_EQ(-1, differs(at + 4 * 4096, 0xee, 2 * 4096));
	EXPECT_EQ(-1, differs(at + 6 * 4096, 0, 4096));
	EXPECT_EQ(-1, differs(at + 9 * 4096, 0xee, 4088));
	EXPECT_EQ(-1, differs(at + 9 * 4096 + 4088, 0, 8));
	munmap(at, 16 * 4096);
	close(fd);
	close(buf);
	at = map_shared(qp.fd, 0, 4 * 4096);
	ASSERT_NE(MAP_FAILED, at);
	gkv_pattern_fill(at, 0xdb90, 0, 4 * 4096);
	EXPECT_EQ(0, gkv_host_check("vram2-has 0xdb90 %#lx 4096 4096", SLICE + 14 * 4096));
	munmap(at, 4 * 4096);
	close(qp.fd);
}

/* R6, R9, R11: an address is in the provider's part of the BAR, or it is refused. */
TEST_F(dmabuf, what_is_not_in_the_provider_is_refused)
{
	static const struct {
		uint32_t layout;
		uint64_t offset;	/* in the BAR */
		int error;
		uint32_t reason;
	} bad[] = {
		{ EXPORTER_PLAIN, SLICE - 65536, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, SLICE - 4096, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, SLICE + LEN, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, SLICE + LEN - 4096, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, 1ull << 40, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, -65536ull, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_SYSTEM, SLICE, EREMOTEIO, GKVDRV_WHY_SYSTEM },
		{ EXPORTER_ODD, SLICE, EREMOTEIO, GKVDRV_WHY_ALIGN },
		{ EXPORTER_SHORT, SLICE, EREMOTEIO, GKVDRV_WHY_SIZE },
		{ EXPORTER_TWICE, SLICE, EBUSY, GKVDRV_WHY_OVERLAP },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int buf = exporter_make(self->exporter, bad[i].layout, bad[i].offset, 65536);
		struct exporter_state s;

		ASSERT_GE(buf, 0);
		EXPECT_EQ(-bad[i].error, import(self, buf, 0, 0)) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_EQ(bad[i].reason, why.reason) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_NE('\0', why.text[0]);
		s = exporter_state(self->exporter, buf);
		EXPECT_EQ(0u, s.attached + s.pinned + s.mapped);
		EXPECT_EQ(0, provider_used(self->gkv, self->provider));
		close(buf);
	}
}

/* R11, F36: memory of the system is not mistaken for VRAM. */
TEST_F(dmabuf, udmabuf_is_system_memory)
{
	int mem = memfd_create("host", MFD_ALLOW_SEALING), dev = open("/dev/udmabuf", O_RDWR), buf;
	struct udmabuf_create create = { .memfd = mem, .size = MIB };

	if (dev < 0)
		SKIP(return, "this kernel has no udmabuf");
	ASSERT_EQ(0, ftruncate(mem, MIB));
	ASSERT_EQ(0, fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK));
	buf = ioctl(dev, UDMABUF_CREATE, &create);
	ASSERT_GE(buf, 0);
	EXPECT_EQ(-EREMOTEIO, import(self, buf, 0, 0));
	EXPECT_EQ(strcmp(getenv("GKV_IOMMU"), "translate") ? GKVDRV_WHY_SYSTEM :
							     GKVDRV_WHY_ADDRESS, why.reason);
	close(buf);
	close(mem);
	close(dev);
}

/* F49, F67: each step that fails takes those before it back; as often as one likes. */
TEST_F(dmabuf, each_step_fails_cleanly)
{
	static const struct {
		uint32_t fail;
		int error;
	} steps[] = {
		{ EXPORTER_FAIL_ATTACH, EIO }, { EXPORTER_FAIL_PIN, ENOSPC },
		{ EXPORTER_FAIL_MAP, ENXIO }, { EXPORTER_FAIL_NULL, ENOMEM },
	};

	for (int i = 0; i < 200; i++) {
		struct exporter_make how = {
			.offset = SLICE, .len = MIB, .fail = steps[i % 4].fail,
		};
		int buf = exporter_make_as(self->exporter, &how);
		struct exporter_state s;

		ASSERT_GE(buf, 0);
		ASSERT_EQ(-steps[i % 4].error, import(self, buf, 0, 0)) {
			TH_LOG("step %u: %s", steps[i % 4].fail, why.text);
		}
		ASSERT_EQ(GKVDRV_WHY_EXPORTER, why.reason);
		s = exporter_state(self->exporter, buf);
		ASSERT_EQ(0u, s.attached + s.pinned + s.mapped);
		close(buf);
	}
	EXPECT_TRUE(eventually(exporter_state(self->exporter, -1).buffers == 0));
}

TEST_F(dmabuf, ranges_are_whole_pages_within_the_buffer)
{
	static const struct {
		uint64_t offset, len;
		uint32_t reason;
	} bad[] = {
		{ MIB, 0, GKVDRV_WHY_SIZE }, { MIB, 4096, GKVDRV_WHY_SIZE },
		{ 0, MIB + 4096, GKVDRV_WHY_SIZE }, { 4096, MIB, GKVDRV_WHY_SIZE },
		{ -4096ull, 8192, GKVDRV_WHY_SIZE }, { 4096, -4096ull, GKVDRV_WHY_SIZE },
		{ 512, 4096, GKVDRV_WHY_ALIGN }, { 0, 100, GKVDRV_WHY_ALIGN },
		{ 100, 0, GKVDRV_WHY_ALIGN },
	};
	int buf = plain(self, 0, MIB);

	ASSERT_GE(buf, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT_EQ(-EINVAL, import(self, buf, bad[i].offset, bad[i].len)) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_EQ(bad[i].reason, why.reason);
	}
	EXPECT_EQ(-ENOENT, region_import(self->gkv, 0, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
	close(buf);
}

TEST_F(dmabuf, a_page_is_in_one_region)
{
	int buf = plain(self, 0, MIB), other = plain(self, MIB - 4096, MIB), fd, again;

	ASSERT_GE(buf, 0);
	ASSERT_GE(other, 0);
	fd = import(self, buf, 0, 0);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(-EBUSY, import(self, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	EXPECT_EQ(-EBUSY, import(self, other, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	again = import(self, other, 4096, 0);
	ASSERT_GE(again, 0);
	close(fd);
	/* F11: a moment later it is free again. */
	EXPECT_TRUE(eventually((fd = import(self, buf, 0, 0)) >= 0));
	close(fd);
	close(again);
	close(buf);
	close(other);
}

/* Stores would go past what its owner allowed. */
TEST_F(dmabuf, one_for_reading_only_is_refused)
{
	struct exporter_make how = { .offset = SLICE, .len = MIB, .flags = O_RDONLY | O_CLOEXEC };
	int buf = exporter_make_as(self->exporter, &how);

	ASSERT_GE(buf, 0);
	EXPECT_EQ(-EACCES, import(self, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_EXPORTER, why.reason);
	close(buf);
}

/* ---- The exporter wants it back ---- */

TEST_F(dmabuf, revoked_by_its_exporter)
{
	int buf = plain(self, 0, MIB), fd = import(self, buf, 0, 0), event = eventfd(0, EFD_NONBLOCK);
	struct gkvdrv_qp qp;
	uint64_t count = 0, start;
	char *at, *sq;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	qp_init(&qp, 64, 1);
	qp.parts[0].region = fd;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp));
	sq = map_shared(qp.fd, 0, 4096);
	ASSERT_TRUE(can_write(at) && can_write(sq));
	ASSERT_EQ(0, gkv_notify(fd, event));
	start = now_ms();
	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_REVOKE, buf));
	EXPECT_LT(now_ms() - start, 2000u);
	EXPECT_FALSE(can_read(at));
	EXPECT_FALSE(can_read(sq));
	EXPECT_TRUE(is_gone(fd, 0));
	EXPECT_TRUE(is_gone(qp.fd, 0));
	EXPECT_EQ(8, read(event, &count, 8));
	EXPECT_EQ(1ul, count);
	EXPECT_TRUE(eventually(exporter_state(self->exporter, buf).attached == 0));
	/* It is not to be had again. */
	EXPECT_LT(import(self, buf, 0, 0), 0);
	EXPECT_EQ(GKVDRV_WHY_EXPORTER, why.reason);
	munmap(at, MIB);
	munmap(sq, 4096);
	close(qp.fd);
	close(fd);
	close(buf);
	close(event);
}

/* What moves is not where its pages are: the region ends, and the buffer may be imported anew. */
TEST_F(dmabuf, moved_by_its_exporter)
{
	int buf = plain(self, 0, MIB), fd = import(self, buf, 0, 0);
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	ASSERT_TRUE(can_write(at));
	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_MOVE, buf));
	EXPECT_FALSE(can_read(at));
	EXPECT_TRUE(is_gone(fd, 0));
	munmap(at, MIB);
	close(fd);
	EXPECT_TRUE(eventually((fd = import(self, buf, 0, 0)) >= 0));
	/* A buffer that nobody has imported moves as well. */
	close(fd);
	ASSERT_TRUE(eventually(exporter_state(self->exporter, buf).attached == 0));
	EXPECT_EQ(0, ioctl(self->exporter, EXPORTER_MOVE, buf));
	close(buf);
}

/* Revocation of one, of many, while others are made and closed. */
TEST_F(dmabuf, revocation_races_with_everything)
{
	uint64_t until = now_ms() + 4000;

	while (now_ms() < until) {
		int buf = plain(self, 0, MIB);
		pid_t pids[2];

		ASSERT_GE(buf, 0);
		for (int i = 0; i < 2; i++) {
			pids[i] = fork();
			ASSERT_GE(pids[i], 0);
			if (pids[i])
				continue;
			for (int k = 0; k < 30; k++) {
				int fd = import(self, buf, i * 65536, 65536);
				char *at = fd < 0 ? MAP_FAILED : map_shared(fd, 0, 65536);

				if (at != MAP_FAILED)
					can_write(at);
				if (k == 15 && i)
					gkv_revoke(fd);
				if (fd >= 0)
					close(fd);
				if (at != MAP_FAILED)
					munmap(at, 65536);
			}
			_exit(0);
		}
		sleep_ms(until % 7 * 5);
		EXPECT_EQ(0, ioctl(self->exporter, EXPORTER_REVOKE, buf));
		for (int i = 0; i < 2; i++)
			waitpid(pids[i], NULL, 0);
		EXPECT_TRUE(eventually(exporter_state(self->exporter, buf).attached == 0));
		close(buf);
	}
}

/* ---- Its owner, its provider ---- */

TEST_F(dmabuf, withdrawing_the_provider_ends_its_regions)
{
	int buf = plain(self, 0, MIB), fd = import(self, buf, 0, 0);
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	ASSERT_TRUE(can_write(at));
	ASSERT_EQ(0, provider_del(self->gkv, self->provider));
	EXPECT_FALSE(can_read(at));
	EXPECT_TRUE(is_gone(fd, 0));
	EXPECT_EQ(0u, exporter_state(self->exporter, buf).attached);
	munmap(at, MIB);
	close(fd);
	/* Back again, on the pages that are there. */
	self->provider = provider_add(self->gkv, self->bdf, BAR, SLICE, LEN);
	ASSERT_GT(self->provider, 0);
	fd = import(self, buf, 0, 0);
	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, MIB);
	ASSERT_TRUE(can_write(at));
	munmap(at, MIB);
	close(fd);
	close(buf);
}

/* R3: the owner goes with buffers imported, mapped and in queue pairs. */
TEST_F(dmabuf, unbinding_the_owner_ends_its_regions)
{
	for (int round = 0; round < 5; round++) {
		int buf = plain(self, 0, MIB), fd = import(self, buf, 0, 0);
		struct gkvdrv_qp qp;
		char *at;

		ASSERT_GE(fd, 0);
		at = map_shared(fd, 0, MIB);
		ASSERT_TRUE(can_write(at));
		qp_init(&qp, 64, 1);
		qp.parts[0].region = fd;
		ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp));
		ASSERT_EQ(0, pci_unbind(self->bdf));
		EXPECT_FALSE(can_read(at));
		EXPECT_TRUE(is_gone(fd, 0));
		EXPECT_TRUE(is_gone(qp.fd, 0));
		munmap(at, MIB);
		close(fd);
		close(qp.fd);
		close(buf);
		ASSERT_EQ(0, pci_bind(self->bdf, "gkv-exporter"));
		self->provider = provider_add(self->gkv, self->bdf, BAR, SLICE, LEN);
		ASSERT_GT(self->provider, 0);
	}
}

/* F69, F11: a thousand imports of the same, one as soon as the other is closed. */
TEST_F(dmabuf, a_thousand_times)
{
	int buf = plain(self, 0, MIB);

	ASSERT_GE(buf, 0);
	for (int i = 0; i < 1000; i++) {
		int fd = import(self, buf, i % 2 * 4096, 8192);

		ASSERT_GE(fd, 0) {
			TH_LOG("%d: %s", i, why.text);
		}
		close(fd);
	}
	close(buf);
	EXPECT_TRUE(eventually(exporter_state(self->exporter, -1).buffers == 0));
}

TEST_HARNESS_MAIN
