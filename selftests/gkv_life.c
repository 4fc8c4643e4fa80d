// SPDX-License-Identifier: MIT
/*
 * Memory lives as long as a descriptor or a mapping of it, in whatever order and in whichever
 * process these go, and not a moment of use longer.
 */
#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#include <sys/socket.h>

#define LEN	(64 * 1024ul)

FIXTURE(life) {
	int gkv, provider;
	bool p2p;
};

FIXTURE_SETUP(life)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->p2p = kernel_has_p2pdma();
	if (!self->p2p)
		return;
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

FIXTURE_TEARDOWN(life)
{
	struct gkvdrv_info a = { .abi = GKVDRV_ABI };

	/* Whatever a test did, nothing of it is left. */
	if (self->p2p)
		EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_TRUE(eventually(gkv_call(self->gkv, GKVDRV_INFO, &a) == 0 && a.user_objects == 0));
	EXPECT_EQ(0ull, a.user_bytes);
	close(self->gkv);
}

#define NEEDS_P2P() do {							\
	if (!self->p2p)								\
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");		\
} while (0)

/* ---- Orders of closing ---- */

struct things {
	int region, qp;
	char *region_map, *qp_map;
};

enum { REGION, QP, REGION_MAP, QP_MAP, THINGS };

/* A queue pair in host memory has no region: the other two of its things. */
static int make(int gkv, int provider, struct things *t)
{
	struct gkvdrv_qp qp;

	*t = (struct things) { .region = -1, .region_map = MAP_FAILED };
	if (provider) {
		t->region = region_alloc(gkv, provider, LEN);
		if (t->region < 0)
			return t->region;
		t->region_map = map_shared(t->region, 0, LEN);
		if (t->region_map == MAP_FAILED)
			return -errno;
	}
	qp_init(&qp, 256, provider ? 7 : 0);
	for (int i = 0; provider && i < (int)GKVDRV_PARTS; i++) {
		qp.parts[i].region = t->region;
		qp.parts[i].offset = i * 0x5000;
	}
	t->qp = gkv_call(gkv, GKVDRV_QP_CREATE, &qp);
	if (t->qp)
		return t->qp;
	t->qp = qp.fd;
	t->qp_map = map_shared(t->qp, 0, 256 * 64);
	return t->qp_map == MAP_FAILED ? -errno : 0;
}

static void drop(struct things *t, int which)
{
	switch (which) {
	case REGION:
		close(t->region);
		t->region = -1;
		break;
	case QP:
		close(t->qp);
		t->qp = -1;
		break;
	case REGION_MAP:
		munmap(t->region_map, LEN);
		t->region_map = MAP_FAILED;
		break;
	case QP_MAP:
		munmap(t->qp_map, 256 * 64);
		t->qp_map = MAP_FAILED;
		break;
	}
}

/* What is left of them works: both mappings are of the same bytes. */
static bool works(const struct things *t, uint8_t value)
{
	struct gkvdrv_report r;

	if (t->region_map != MAP_FAILED)
		fill_bytes(t->region_map, value, 8);
	if (t->qp_map != MAP_FAILED) {
		if (t->region_map == MAP_FAILED)
			fill_bytes(t->qp_map, value, 8);
		if (differs(t->qp_map, value, 8) != -1)
			return false;
	}
	if (t->region >= 0 && (report(t->region, 0, &r) || r.place != GKVDRV_VRAM))
		return false;
	return t->qp < 0 || (!report(t->qp, GKVDRV_SQ, &r) && r.place != GKVDRV_GONE);
}

/* F110, F14: all 24 orders. */
TEST_F(life, close_in_every_order)
{
	unsigned int orders = 0;

	for (unsigned int code = 0; code < 256; code++) {
		int order[THINGS] = { code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 };
		unsigned int seen = 0;
		struct things t;

		for (int i = 0; i < THINGS; i++)
			seen |= 1u << order[i];
		if (seen != 15)
			continue;
		orders++;
		ASSERT_EQ(0, make(self->gkv, self->provider, &t));
		for (int i = 0; i < THINGS; i++) {
			ASSERT_TRUE(works(&t, code + i));
			if (self->p2p)
				ASSERT_EQ((int64_t)LEN, provider_used(self->gkv, self->provider));
			if (self->p2p || order[i] == QP || order[i] == QP_MAP)
				drop(&t, order[i]);
		}
		if (self->p2p)
			ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
	}
	EXPECT_EQ(24u, orders);
}

/* The mapping is all that is left, and it has its bytes. */
TEST_F(life, a_mapping_outlives_its_descriptor)
{
	struct gkvdrv_qp qp;
	int fd = qp_create(self->gkv, &qp, 1024, self->p2p ? 7 : 0, self->provider);
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, 65536);
	ASSERT_NE(MAP_FAILED, at);
	fill_bytes(at, 0x11, 32768);
	close(fd);
	fill_bytes(at + 32768, 0x11, 32768);
	EXPECT_EQ(-1, differs(at, 0x11, 65536));
	munmap(at, 32768);
	EXPECT_EQ(-1, differs(at + 32768, 0x11, 32768));
	munmap(at + 32768, 32768);
}

TEST_F(life, dup_is_the_same_memory)
{
	struct gkvdrv_qp qp;
	int fd = qp_create(self->gkv, &qp, 64, self->p2p ? 1 : 0, self->provider);
	char *a, *b;
	int other;

	ASSERT_GE(fd, 0);
	other = dup(fd);
	a = map_shared(fd, 0, 4096);
	close(fd);
	b = map_shared(other, 0, 4096);
	close(other);
	ASSERT_NE(MAP_FAILED, a);
	ASSERT_NE(MAP_FAILED, b);
	fill_bytes(a, 0x22, 4096);
	EXPECT_EQ(-1, differs(b, 0x22, 4096));
	munmap(a, 4096);
	munmap(b, 4096);
}

/* ---- Processes ---- */

struct forked {
	char *at;
	int fd;
};

static int not_inherited(void *arg)
{
	struct forked *f = arg;
	char *again;

	/* Not even an accident of the child reaches it. */
	if (can_read(f->at))
		return 1;
	again = map_shared(f->fd, 0, 4096);
	if (again == MAP_FAILED)
		return 2;
	if (differs(again, 0x33, 4096) != -1)
		return 3;
	fill_bytes(again, 0x44, 4096);
	return 0;
}

TEST_F(life, fork_inherits_the_descriptor_and_not_the_mapping)
{
	struct forked f;
	struct gkvdrv_qp qp;

	f.fd = qp_create(self->gkv, &qp, 64, self->p2p ? 1 : 0, self->provider);
	ASSERT_GE(f.fd, 0);
	f.at = map_shared(f.fd, 0, 4096);
	ASSERT_NE(MAP_FAILED, f.at);
	fill_bytes(f.at, 0x33, 4096);
	EXPECT_EQ(0, in_child(0, not_inherited, &f));
	EXPECT_EQ(-1, differs(f.at, 0x44, 4096));
	munmap(f.at, 4096);
	close(f.fd);
}

/* A child that lives on keeps it, and its end gives it back. */
TEST_F(life, the_last_of_several_processes_gives_it_back)
{
	int fd, pipes[2];
	char byte;
	pid_t pid;

	NEEDS_P2P();
	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, pipe(pipes));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (pid == 0) {
		close(pipes[1]);
		(void)!read(pipes[0], &byte, 1);
		_exit(0);
	}
	close(pipes[0]);
	close(fd);
	sleep_ms(200);
	EXPECT_EQ((int64_t)LEN, provider_used(self->gkv, self->provider));
	close(pipes[1]);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

struct passed {
	int socket[2];
	uint64_t seed;
};

static int use_passed(void *arg)
{
	struct passed *p = arg;
	int fd = receive_fd(p->socket[1]);
	char *at;

	if (fd < 0)
		return 1;
	at = map_shared(fd, 0, LEN);
	close(fd);
	if (at == MAP_FAILED)
		return 2;
	gkv_pattern_fill(at, p->seed, 0, LEN);
	return gkv_pattern_check(at, p->seed, 0, LEN) == -1 ? 0 : 3;
}

/* As a client hands its memory to kvbridged: the sender has nothing of it any more. */
TEST_F(life, passed_by_scm_rights)
{
	struct passed p = { .seed = 0x5c3a11 };
	struct gkvdrv_report r;
	int fd;

	NEEDS_P2P();
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p.socket));
	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, report(fd, 0, &r));
	ASSERT_EQ(0, send_fd(p.socket[0], fd));
	close(fd);
	sleep_ms(100);
	/* In flight in a socket it is still there. */
	EXPECT_EQ((int64_t)LEN, provider_used(self->gkv, self->provider));
	EXPECT_EQ(0, in_child(65534, use_passed, &p));
	EXPECT_EQ(0, gkv_host_check("vram-has %#lx %#llx %lu", p.seed, r.bar_offset, LEN));
	close(p.socket[0]);
	close(p.socket[1]);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

/* Nobody receives it. */
TEST_F(life, lost_in_a_socket)
{
	int socket[2], fd;

	NEEDS_P2P();
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socket));
	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, send_fd(socket[0], fd));
	close(fd);
	close(socket[0]);
	close(socket[1]);
}

/* F69, F95, F107: kill -9 at any moment of making, using and mapping. */
static void busy_until_killed(int gkv, int provider, bool p2p)
{
	struct {
		int fd;
		char *at;
	} kept[16] = { };

	/* Some stay open, some stay mapped, some both, until their turn comes again. */
	for (unsigned int i = 0; ; i++) {
		unsigned int slot = i % 16;
		struct gkvdrv_qp qp;
		int fd = qp_create(gkv, &qp, 256, p2p ? 7 : 0, provider);
		char *at = fd < 0 ? MAP_FAILED : map_shared(fd, 0, 16384);

		if (at == MAP_FAILED)
			_exit(1);
		fill_bytes(at, 1, 16384);
		if (kept[slot].fd)
			close(kept[slot].fd);
		if (kept[slot].at)
			munmap(kept[slot].at, 16384);
		kept[slot].fd = i & 1 ? fd : 0;
		kept[slot].at = i & 2 || !(i & 1) ? at : NULL;
		if (!kept[slot].fd)
			close(fd);
		if (!kept[slot].at)
			munmap(at, 16384);
	}
}

TEST_F(life, kill_9_leaves_nothing)
{
	for (int round = 0; round < 30; round++) {
		pid_t pid = fork();
		int status;

		ASSERT_GE(pid, 0);
		if (pid == 0)
			busy_until_killed(self->gkv, self->provider, self->p2p);
		sleep_ms(round * 7);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		if (self->p2p)
			ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
	}
}

/* F69, F98: the same thousand times over, and nothing grows. */
TEST_F(life, a_thousand_times)
{
	int first = open("/dev/null", O_RDONLY), last;

	close(first);
	for (int i = 0; i < 1000; i++) {
		struct things t;

		ASSERT_EQ(0, make(self->gkv, self->provider, &t));
		ASSERT_TRUE(works(&t, i));
		for (int k = 0; k < THINGS; k++)
			if (self->p2p || k == QP || k == QP_MAP)
				drop(&t, k);
	}
	last = open("/dev/null", O_RDONLY);
	EXPECT_EQ(first, last);
	close(last);
}

TEST_HARNESS_MAIN
