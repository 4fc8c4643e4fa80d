// SPDX-License-Identifier: MIT
/*
 * A region made of a dma-buf ends when the exporter wants the buffer back, when its owner is unbound
 * or when its provider is withdrawn; nobody waits for ever, and nothing is used after.
 */
#include "dmabuf.h"

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

/* F111: revocation of one, of many, while others are made and closed. */
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

TEST_HARNESS_MAIN
