// SPDX-License-Identifier: MIT
/*
 * A carve-out can be taken away at any time, and the module unloaded whenever nobody has anything
 * of it: whoever still does is told, and the function is as it was.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#include <sys/socket.h>

#define LEN	(256 * 1024ul)

FIXTURE(unbind) {
	int gkv, provider;
	const char *bdf;
	bool p2p;
};

FIXTURE_SETUP(unbind)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->p2p = kernel_has_p2pdma();
	self->bdf = getenv("GKV_VRAM_BDF");
	if (!self->p2p)
		return;
	ASSERT_NE(NULL, self->bdf);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
}

FIXTURE_TEARDOWN(unbind)
{
	if (self->p2p)
		EXPECT_GT(vram_provider(self->gkv), 0);
	close(self->gkv);
}

#define NEEDS_P2P() do {							\
	if (!self->p2p)								\
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");		\
} while (0)

TEST_F(unbind, with_live_mappings)
{
	int fd, event = eventfd(0, EFD_NONBLOCK);
	struct gkvdrv_provider p;
	struct gkvdrv_qp qp;
	uint64_t count = 0;
	char *at, *ring;

	NEEDS_P2P();
	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(fd, 0);
	ASSERT_GE(qp_create(self->gkv, &qp, 64, 7, self->provider), 0);
	at = map_shared(fd, 0, LEN);
	ring = map_shared(qp.fd, 0, 4096);
	ASSERT_TRUE(can_write(at) && can_write(ring));
	ASSERT_EQ(0, gkv_notify(fd, event));

	ASSERT_EQ(0, pci_unbind(self->bdf));
	EXPECT_FALSE(can_read(at));
	EXPECT_FALSE(can_write(ring));
	EXPECT_TRUE(is_gone(fd, 0));
	EXPECT_TRUE(is_gone(qp.fd, 0));
	EXPECT_EQ(8, read(event, &count, 8));
	EXPECT_EQ(1ul, count);
	EXPECT_EQ(-ENOENT, provider_of(self->gkv, self->bdf, GKVDRV_CARVEOUT, &p));
	EXPECT_EQ(-ENOENT, region_alloc(self->gkv, self->provider, LEN));
	EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
	/* Nothing is left with the function. */
	EXPECT_EQ(-ENOENT, pci_p2pmem(self->bdf, "size"));

	/* What is gone stays gone when the function comes back. */
	ASSERT_EQ(0, pci_bind(self->bdf, "gkvdrv"));
	EXPECT_FALSE(can_read(at));
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 0, LEN));
	EXPECT_TRUE(is_gone(fd, 0));
	munmap(at, LEN);
	munmap(ring, 4096);
	close(fd);
	close(qp.fd);
	close(event);
}

/* F46: what the core keeps of the pages is as it was: all in its pool, none in use. */
TEST_F(unbind, the_pool_of_the_core_is_claimed_whole)
{
	uint64_t start, end;
	char path[128];
	int fd;

	NEEDS_P2P();
	ASSERT_EQ(0, pci_bar(self->bdf, 2, &start, &end));
	EXPECT_EQ((int64_t)(end - start + 1), pci_p2pmem(self->bdf, "size"));
	EXPECT_EQ(0, pci_p2pmem(self->bdf, "available"));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/p2pmem/allocate", self->bdf);
	fd = open(path, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 0, 4096));
	close(fd);
}

TEST_F(unbind, and_bind_again_fifty_times)
{
	NEEDS_P2P();
	for (int i = 0; i < 50; i++) {
		int fd = region_alloc(self->gkv, self->provider, LEN);
		char *at;

		ASSERT_GE(fd, 0);
		at = map_shared(fd, 0, LEN);
		ASSERT_TRUE(can_write(at + i * 4096));
		/* Every other time it is closed before. */
		if (i & 1)
			close(fd);
		if (i & 2)
			munmap(at, LEN);
		ASSERT_EQ(0, pci_unbind(self->bdf));
		if (!(i & 2)) {
			ASSERT_FALSE(can_read(at));
			munmap(at, LEN);
		}
		if (!(i & 1))
			close(fd);
		self->provider = vram_provider(self->gkv);
		ASSERT_GT(self->provider, 0);
	}
}

/* F103, F111: while others allocate, map, store and close. */
TEST_F(unbind, races_with_everything)
{
	uint64_t until = now_ms() + 5000;
	volatile bool *enough;
	pid_t pids[3];
	int status, rounds = 0;

	NEEDS_P2P();
	/* A slow machine takes longer for as many rounds. */
	enough = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, enough);
	for (int i = 0; i < 3; i++) {
		pids[i] = fork();
		ASSERT_GE(pids[i], 0);
		if (pids[i])
			continue;
		while (!*enough && now_ms() < until + 60000) {
			struct gkvdrv_provider p = { };
			struct gkvdrv_qp qp;
			char *at;
			int fd;

			if (gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p))
				continue;
			fd = i ? region_alloc(self->gkv, p.id, LEN << i) :
				 qp_create(self->gkv, &qp, 256, 7, p.id);
			if (fd < 0) {
				if (fd != -ENOENT && fd != -ENODEV)
					_exit(-fd);
				continue;
			}
			at = map_shared(fd, 0, 16384);
			if (at != MAP_FAILED) {
				can_write(at);
				can_write(at + 8192);
				munmap(at, 16384);
			}
			close(fd);
		}
		_exit(0);
	}
	while (rounds <= 10 || now_ms() < until) {
		ASSERT_EQ(0, pci_unbind(self->bdf));
		ASSERT_EQ(0, pci_bind(self->bdf, "gkvdrv"));
		rounds++;
	}
	*enough = true;
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		EXPECT_EQ(0, status);
	}
	munmap((void *)enough, 4096);
}

/* ---- The module ---- */

/* F103: a descriptor, a mapping or a message in a socket is use enough. */
TEST_F(unbind, no_unload_while_anything_is_open)
{
	struct gkvdrv_qp qp;
	int sockets[2];
	char *at;

	EXPECT_EQ(-EAGAIN, module_unload("gkvdrv"));
	ASSERT_GE(qp_create(self->gkv, &qp, 64, 0, 0), 0);
	close(self->gkv);
	EXPECT_EQ(-EAGAIN, module_unload("gkvdrv"));
	at = map_shared(qp.fd, 0, 4096);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets));
	ASSERT_EQ(0, send_fd(sockets[0], qp.fd));
	close(qp.fd);
	EXPECT_EQ(-EAGAIN, module_unload("gkvdrv"));
	close(sockets[0]);
	close(sockets[1]);
	sleep_ms(100);
	EXPECT_EQ(-EAGAIN, module_unload("gkvdrv"));
	ASSERT_TRUE(can_write(at));
	munmap(at, 4096);
	/* And then it goes, with a carve-out bound to it. */
	EXPECT_EQ(0, module_unload("gkvdrv"));
	EXPECT_EQ(-1, access(GKVDRV_PATH, F_OK));
	ASSERT_EQ(0, module_load("gkvdrv", NULL));
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
}

TEST_F_TIMEOUT(unbind, a_hundred_loads_and_unloads, 200)
{
	close(self->gkv);
	for (int i = 0; i < 100; i++) {
		struct gkvdrv_qp qp;
		char *at;
		int fd;

		ASSERT_EQ(0, module_unload("gkvdrv"));
		if (self->p2p)
			ASSERT_TRUE(pci_has_driver(self->bdf, NULL));
		ASSERT_EQ(0, module_load("gkvdrv", NULL));
		self->gkv = gkv_open();
		ASSERT_GE(self->gkv, 0);
		if (self->p2p) {
			/* driver_override is still there: it was bound when the module came. */
			self->provider = vram_provider(self->gkv);
			ASSERT_GT(self->provider, 0);
			ASSERT_EQ(0, pci_p2pmem(self->bdf, "available"));
		}
		fd = qp_create(self->gkv, &qp, 64, self->p2p ? 7 : 0, self->provider);
		ASSERT_GE(fd, 0);
		at = map_shared(fd, 0, 4096);
		ASSERT_TRUE(can_write(at));
		munmap(at, 4096);
		close(fd);
		close(self->gkv);
	}
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
}

TEST_HARNESS_MAIN
