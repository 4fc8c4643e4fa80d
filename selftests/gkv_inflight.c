// SPDX-License-Identifier: MIT
/*
 * DMA cannot be recalled: as long as a disk may write to pages, they are nobody else's, whatever
 * became of the region, its holder and its provider. The disk is one that takes its time (serial
 * number "slow").
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#define LEN	(4 * MIB)

FIXTURE(inflight) {
	int gkv, provider, filler, region, disk;
	struct uring ring;
	uint64_t total;
	char *at;
};

FIXTURE_SETUP(inflight)
{
	struct gkvdrv_provider p = { };
	char path[32];

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	if (disk_path("slow", path, sizeof(path)))
		SKIP(return, "this machine has no slow disk");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
	p.id = self->provider;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p));
	self->total = p.len;
	self->disk = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	ASSERT_EQ(0, uring_open(&self->ring));
	/* The pages of the region are the only ones that could be given out again. */
	self->filler = region_alloc(self->gkv, self->provider, self->total - LEN);
	ASSERT_GE(self->filler, 0);
	self->region = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(self->region, 0);
	self->at = map_shared(self->region, 0, LEN);
	ASSERT_NE(MAP_FAILED, self->at);
	fill_bytes(self->at, 0x99, LEN);
}

FIXTURE_TEARDOWN(inflight)
{
	uring_close(&self->ring);
	munmap(self->at, LEN);
	if (self->region >= 0)
		close(self->region);
	close(self->filler);
	close(self->disk);
	EXPECT_TRUE(eventually(provider_used(self->gkv, self->provider) <= 0));
	close(self->gkv);
}

static int start(FIXTURE_DATA(inflight) *self)
{
	int rc = uring_submit(&self->ring, IORING_OP_READ, self->disk, self->at, LEN, 0);

	sleep_ms(150);
	return rc;
}

static bool under_way(FIXTURE_DATA(inflight) *self)
{
	return uring_reap(&self->ring, false) == -EAGAIN;
}

/* The pages are kept until the read has ended; then they are given out, and stay as they are. */
static void kept_till_the_end(struct __test_metadata *_metadata, FIXTURE_DATA(inflight) *self)
{
	char *at;
	int fd;

	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, LEN));
		ASSERT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, 4096));
		ASSERT_EQ((int64_t)self->total, provider_used(self->gkv, self->provider));
		sleep_ms(100);
	}
	/* Or it would have shown nothing. */
	ASSERT_TRUE(under_way(self));
	EXPECT_EQ((int)LEN, uring_reap(&self->ring, true));
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, self->total - LEN));
	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, LEN);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-1, differs(at, 0, LEN));
	fill_bytes(at, 0x66, LEN);
	sleep_ms(500);
	EXPECT_EQ(-1, differs(at, 0x66, LEN));
	munmap(at, LEN);
	close(fd);
}

/* F108: what is taken away under DMA is nobody else's before the DMA has ended. */
TEST_F(inflight, revoked_under_dma)
{
	ASSERT_EQ(0, start(self));
	ASSERT_TRUE(under_way(self));
	ASSERT_EQ(0, gkv_revoke(self->region));
	/* For the processor it is gone at once. */
	EXPECT_FALSE(can_read(self->at));
	EXPECT_TRUE(is_gone(self->region, 0));
	kept_till_the_end(_metadata, self);
}

/* F110: neither descriptor nor mapping is left. */
TEST_F(inflight, closed_under_dma)
{
	ASSERT_EQ(0, start(self));
	ASSERT_EQ(0, munmap(self->at, LEN));
	close(self->region);
	self->region = -1;
	ASSERT_TRUE(under_way(self));
	kept_till_the_end(_metadata, self);
}

/* F95, F106: kill -9 in the middle of it. */
TEST_F(inflight, killed_under_dma)
{
	int pipes[2], status;
	char byte;
	pid_t pid;

	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(0, munmap(self->at, LEN));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (pid == 0) {
		struct uring ring;
		char *at = map_shared(self->region, 0, LEN);

		if (at == MAP_FAILED || uring_open(&ring) ||
		    uring_submit(&ring, IORING_OP_READ, self->disk, at, LEN, 0))
			_exit(1);
		(void)!write(pipes[1], "x", 1);
		pause();
		_exit(2);
	}
	close(self->region);
	self->region = -1;
	ASSERT_EQ(1, read(pipes[0], &byte, 1));
	sleep_ms(100);
	ASSERT_EQ(0, kill(pid, SIGKILL));
	/* For as long as pages are in use, they are counted, and not given out. */
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ((int64_t)self->total, provider_used(self->gkv, self->provider));
		ASSERT_EQ(-ENOMEM, region_alloc(self->gkv, self->provider, 4096));
		sleep_ms(50);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, self->total - LEN));
}

/* F111: the function is not let go before the last access to it has ended. */
TEST_F(inflight, unbound_under_dma)
{
	uint64_t begin = now_ms();

	ASSERT_EQ(0, start(self));
	ASSERT_TRUE(under_way(self));
	ASSERT_EQ(0, pci_unbind(getenv("GKV_VRAM_BDF")));
	/* It ended before. */
	EXPECT_EQ((int)LEN, uring_reap(&self->ring, false));
	EXPECT_GT(now_ms() - begin, 500u);
	EXPECT_FALSE(can_read(self->at));
	EXPECT_TRUE(is_gone(self->region, 0));
	EXPECT_TRUE(is_gone(self->filler, 0));
	ASSERT_GT(vram_provider(self->gkv), self->provider);
}

/* The same with a buffer of the exporter's. */
struct import {
	const char *bdf;
	int exporter, buf, fd;
	char *at;
	uint64_t begin;
};

static int start_import(FIXTURE_DATA(inflight) *self, struct import *im)
{
	int provider;

	im->exporter = exporter_start(&im->bdf);
	if (im->exporter < 0)
		return im->exporter;
	provider = provider_add(self->gkv, im->bdf, 2, 0, 16 * MIB);
	if (provider < 0)
		return provider;
	im->buf = exporter_make(im->exporter, EXPORTER_PLAIN, 0, LEN);
	im->fd = region_import(self->gkv, provider, im->buf, 0, 0);
	if (im->fd < 0)
		return im->fd;
	im->at = map_shared(im->fd, 0, LEN);
	if (im->at == MAP_FAILED)
		return -errno;
	im->begin = now_ms();
	if (uring_submit(&self->ring, IORING_OP_READ, self->disk, im->at, LEN, 0))
		return -EIO;
	sleep_ms(150);
	return 0;
}

/* The exporter gets its buffer back when the disk has done with it. */
TEST_F(inflight, exporter_revokes_under_dma)
{
	struct import im;

	if (!getenv("GKV_VRAM2_BDF"))
		SKIP(return, "this machine has no second VRAM device");
	ASSERT_EQ(0, start_import(self, &im));
	ASSERT_TRUE(under_way(self));
	ASSERT_EQ(0, ioctl(im.exporter, EXPORTER_REVOKE, im.buf));
	EXPECT_EQ((int)LEN, uring_reap(&self->ring, false));
	EXPECT_GT(now_ms() - im.begin, 500u);
	EXPECT_FALSE(can_read(im.at));
	munmap(im.at, LEN);
	close(im.fd);
	close(im.buf);
	EXPECT_EQ(0, exporter_stop(im.exporter, im.bdf));
}

/*
 * R3, F108: nobody has a descriptor, but the exporter's buffer is attached and the disk still at it
 * when the module is unloaded: that takes until the disk is done, and lets the buffer go.
 */
TEST_F(inflight, unloaded_under_dma)
{
	struct import im;

	if (!getenv("GKV_VRAM2_BDF"))
		SKIP(return, "this machine has no second VRAM device");
	ASSERT_EQ(0, start_import(self, &im));
	munmap(im.at, LEN);
	close(im.fd);
	munmap(self->at, LEN);
	close(self->region);
	close(self->filler);
	close(self->gkv);
	ASSERT_TRUE(under_way(self));
	EXPECT_EQ(1u, exporter_state(im.exporter, im.buf).attached);
	EXPECT_EQ(0, module_unload("gkvdrv"));
	EXPECT_EQ((int)LEN, uring_reap(&self->ring, false));
	EXPECT_GT(now_ms() - im.begin, 500u);
	EXPECT_EQ(0u, exporter_state(im.exporter, im.buf).attached);
	EXPECT_EQ(0u, exporter_state(im.exporter, im.buf).mapped);
	close(im.buf);
	EXPECT_EQ(0, exporter_stop(im.exporter, im.bdf));

	/* For the end of the test. */
	ASSERT_EQ(0, module_load("gkvdrv", NULL));
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	self->filler = region_alloc(self->gkv, self->provider, 4096);
	self->region = region_alloc(self->gkv, self->provider, LEN);
	self->at = map_shared(self->region, 0, LEN);
}

TEST_HARNESS_MAIN
