// SPDX-License-Identifier: MIT
/*
 * A dma-buf becomes a region that is where the exporter has it, to the byte, whatever its segments;
 * and all of it is let go when the region goes.
 */
#include "dmabuf.h"

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

/* F47, R6: a region starts where it is said to, to the byte, over the ends of segments. */
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

/* F8: a queue's pages may be scattered: those of what a GPU's driver exported are. */
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
