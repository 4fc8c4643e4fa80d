// SPDX-License-Identifier: MIT
/*
 * Revoked memory is gone for everyone at once: an access ends in SIGBUS in whichever process, those
 * who asked are told, and what comes after is refused. Nobody else's memory is touched.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#define LEN	(256 * 1024ul)

FIXTURE(revoke) {
	int gkv, provider;
};

FIXTURE_SETUP(revoke)
{
	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
}

FIXTURE_TEARDOWN(revoke)
{
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	close(self->gkv);
}

/* Times that the eventfd was signalled since the last look. */
static int64_t told(int event)
{
	uint64_t count;

	return read(event, &count, sizeof(count)) == sizeof(count) ? (int64_t)count : 0;
}

static short polled(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -1 : p.revents;
}

/* Another process that has the mapping, and says whether it can read it each time it is asked. */
struct other {
	pid_t pid;
	int ask, answer;
};

static int start_other(struct other *o, int fd, size_t len)
{
	int ask[2], answer[2];

	if (pipe(ask) || pipe(answer))
		return -errno;
	o->pid = fork();
	if (o->pid < 0)
		return -errno;
	if (o->pid == 0) {
		char *at = map_shared(fd, 0, len), byte = at != MAP_FAILED && can_write(at);

		close(ask[1]);
		do {
			(void)!write(answer[1], &byte, 1);
			if (read(ask[0], &byte, 1) != 1)
				_exit(0);
			byte = can_read(at);
		} while (true);
	}
	close(ask[0]);
	close(answer[1]);
	o->ask = ask[1];
	o->answer = answer[0];
	return 0;
}

static int other_says(struct other *o)
{
	char byte;

	return read(o->answer, &byte, 1) == 1 ? byte : -1;
}

static int other_can_read(struct other *o)
{
	char byte = 0;

	return write(o->ask, &byte, 1) == 1 ? other_says(o) : -1;
}

static void end_other(struct other *o)
{
	close(o->ask);
	close(o->answer);
	waitpid(o->pid, NULL, 0);
}

/* F102, R1: no mapping of what is revoked works, and no call on its descriptor reaches it. */
TEST_F(revoke, sigbus_in_every_process_and_the_holder_is_told)
{
	int fd = region_alloc(self->gkv, self->provider, LEN);
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct other other = { };
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, LEN);
	ASSERT_NE(MAP_FAILED, at);
	fill_bytes(at, 1, LEN);
	ASSERT_EQ(0, gkv_notify(fd, event));
	ASSERT_EQ(0, start_other(&other, fd, LEN));
	ASSERT_EQ(1, other_says(&other));
	ASSERT_EQ(1, other_can_read(&other));
	EXPECT_EQ(0, polled(fd));
	EXPECT_EQ(0, told(event));

	ASSERT_EQ(0, gkv_revoke(fd));
	for (size_t page = 0; page < LEN; page += 4096) {
		ASSERT_FALSE(can_read(at + page));
		ASSERT_FALSE(can_write(at + page));
	}
	EXPECT_EQ(0, other_can_read(&other));
	EXPECT_EQ(1, told(event));
	EXPECT_EQ(POLLERR | POLLHUP, polled(fd));
	EXPECT_TRUE(is_gone(fd, 0));
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 0, LEN));
	EXPECT_EQ(ENODEV, errno);
	/* The mappings are still there, and hold nothing. */
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	/* Once is enough. */
	EXPECT_EQ(0, gkv_revoke(fd));
	EXPECT_EQ(0, told(event));
	end_other(&other);
	munmap(at, LEN);
	close(fd);
	close(event);
}

TEST_F(revoke, system_calls_fail_without_a_signal)
{
	int fd = region_alloc(self->gkv, self->provider, LEN);
	int pipes[2];
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, LEN);
	ASSERT_NE(MAP_FAILED, at);
	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(4096, write(pipes[1], at, 4096));
	ASSERT_EQ(0, gkv_revoke(fd));
	EXPECT_EQ(-1, write(pipes[1], at, 4096));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, read(pipes[0], at, 4096));
	EXPECT_EQ(EFAULT, errno);
	munmap(at, LEN);
	close(fd);
}

/* Queue pairs that lie in the region go with it; others stay. */
TEST_F(revoke, queue_pairs_in_a_region_go_with_it)
{
	int region = region_alloc(self->gkv, self->provider, LEN);
	int other = region_alloc(self->gkv, self->provider, LEN);
	int event = eventfd(0, EFD_NONBLOCK), beside = eventfd(0, EFD_NONBLOCK), placed;
	char *cq, *sq, *at, *elsewhere;
	struct gkvdrv_qp in, out;

	ASSERT_GE(region, 0);
	ASSERT_GE(other, 0);
	/* Its CQ only is in the region: the SQ is in another one, the doorbells in host memory. */
	qp_init(&in, 256, 3);
	in.parts[GKVDRV_CQ].region = region;
	in.parts[GKVDRV_SQ].region = other;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &in));
	placed = in.fd;
	ASSERT_GE(qp_create(self->gkv, &out, 256, 7, self->provider), 0);
	ASSERT_EQ(0, gkv_notify(in.fd, event));
	ASSERT_EQ(0, gkv_notify(out.fd, beside));
	cq = map_shared(in.fd, in.parts[GKVDRV_CQ].map_offset, 4096);
	sq = map_shared(in.fd, in.parts[GKVDRV_SQ].map_offset, 4096);
	at = map_shared(out.fd, 0, 4096);
	elsewhere = map_shared(other, 0, LEN);
	ASSERT_TRUE(can_write(cq) && can_write(sq) && can_write(at) && can_write(elsewhere));

	ASSERT_EQ(0, gkv_revoke(region));
	/* A queue pair without its CQ is none. */
	EXPECT_FALSE(can_read(cq));
	EXPECT_FALSE(can_read(sq));
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++)
		EXPECT_TRUE(is_gone(in.fd, i));
	EXPECT_EQ(POLLERR | POLLHUP, polled(in.fd));
	EXPECT_EQ(1, told(event));
	/* And nothing else went. */
	EXPECT_TRUE(can_write(at));
	EXPECT_TRUE(can_write(elsewhere));
	EXPECT_EQ(0, polled(out.fd));
	EXPECT_EQ(0, polled(other));
	EXPECT_EQ(0, told(beside));
	EXPECT_FALSE(is_gone(other, 0));

	/* No queue pair in what is revoked. */
	qp_init(&in, 8, 1);
	in.parts[GKVDRV_SQ].region = region;
	EXPECT_EQ(-ENODEV, gkv_call(self->gkv, GKVDRV_QP_CREATE, &in));
	EXPECT_EQ(GKVDRV_WHY_REVOKED, why.reason);
	close(placed);
	close(out.fd);
	close(region);
	close(other);
	munmap(at, 4096);
	munmap(cq, 4096);
	munmap(sq, 4096);
	munmap(elsewhere, LEN);
}

/* A queue pair gives up what is its own, and a region it lies in stays. */
TEST_F(revoke, a_queue_pair_gives_its_own_memory_up)
{
	int region = region_alloc(self->gkv, self->provider, LEN);
	struct gkvdrv_qp own, placed;
	char *a, *b, *view, *host;

	ASSERT_GE(region, 0);
	ASSERT_GE(qp_create(self->gkv, &own, 256, 3, self->provider), 0);
	qp_init(&placed, 256, 1);
	placed.parts[GKVDRV_SQ].region = region;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_QP_CREATE, &placed));
	a = map_shared(own.fd, 0, 4096);
	host = map_shared(own.fd, own.parts[GKVDRV_DB].map_offset, 4096);
	b = map_shared(placed.fd, 0, 4096);
	view = map_shared(region, 0, 4096);
	ASSERT_TRUE(can_write(a) && can_write(b) && can_write(view) && can_write(host));
	ASSERT_EQ((int64_t)LEN + 5 * 4096, provider_used(self->gkv, self->provider));

	ASSERT_EQ(0, gkv_revoke(own.fd));
	EXPECT_FALSE(can_read(a));
	EXPECT_FALSE(can_read(host));
	EXPECT_TRUE(is_gone(own.fd, GKVDRV_SQ));
	EXPECT_TRUE(is_gone(own.fd, GKVDRV_DB));
	/* It is free, though its descriptor is open. */
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, LEN));

	ASSERT_EQ(0, gkv_revoke(placed.fd));
	EXPECT_FALSE(can_read(b));
	EXPECT_TRUE(can_write(view));
	EXPECT_FALSE(is_gone(region, 0));
	EXPECT_EQ((int64_t)LEN, provider_used(self->gkv, self->provider));
	close(own.fd);
	close(placed.fd);
	close(region);
	munmap(a, 4096);
	munmap(b, 4096);
	munmap(host, 4096);
	munmap(view, 4096);
}

TEST_F(revoke, who_is_told)
{
	int fd = region_alloc(self->gkv, self->provider, LEN);
	int a = eventfd(0, EFD_NONBLOCK), b = eventfd(0, EFD_NONBLOCK);

	ASSERT_GE(fd, 0);
	/* The later one takes the place of the former, and -1 that of the later one. */
	ASSERT_EQ(0, gkv_notify(fd, a));
	ASSERT_EQ(0, gkv_notify(fd, b));
	ASSERT_EQ(0, gkv_revoke(fd));
	EXPECT_EQ(0, told(a));
	EXPECT_EQ(1, told(b));
	/* Who asks late is told at once. */
	ASSERT_EQ(0, gkv_notify(fd, a));
	EXPECT_EQ(1, told(a));
	ASSERT_EQ(0, gkv_notify(fd, -1));
	close(fd);

	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_EQ(0, gkv_notify(fd, a));
	ASSERT_EQ(0, gkv_notify(fd, -1));
	ASSERT_EQ(0, gkv_revoke(fd));
	EXPECT_EQ(0, told(a));
	EXPECT_EQ(0, told(b));
	close(fd);
	/* Closing is no revocation. */
	fd = region_alloc(self->gkv, self->provider, LEN);
	ASSERT_EQ(0, gkv_notify(fd, a));
	close(fd);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_EQ(0, told(a));
}

/* A thread that waits in poll() wakes. */
static int wait_in_poll(void *arg)
{
	struct pollfd p = { .fd = *(int *)arg, .events = POLLIN };

	return poll(&p, 1, 8000) == 1 && p.revents == (POLLERR | POLLHUP) ? 0 : 1;
}

TEST_F(revoke, poll_wakes)
{
	int fd = region_alloc(self->gkv, self->provider, LEN);
	pid_t pid;
	int status;

	ASSERT_GE(fd, 0);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (pid == 0)
		_exit(wait_in_poll(&fd));
	sleep_ms(300);
	ASSERT_EQ(0, gkv_revoke(fd));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	close(fd);
}

/* Stores that go on all the while: each lands in the region, or ends in SIGBUS. */
TEST_F(revoke, under_stores_of_another_process)
{
	for (int round = 0; round < 40; round++) {
		int fd = region_alloc(self->gkv, self->provider, LEN), status, next;
		int begun = eventfd(0, EFD_CLOEXEC);
		uint64_t one = 1;
		pid_t pid;
		char *at;

		ASSERT_GE(fd, 0);
		ASSERT_GE(begun, 0);
		pid = fork();
		ASSERT_GE(pid, 0);
		if (pid == 0) {
			at = map_shared(fd, 0, LEN);
			(void)!write(begun, &one, sizeof(one));
			for (;;)
				fill_bytes(at, 0xff, LEN);
		}
		ASSERT_EQ((ssize_t)sizeof(one), read(begun, &one, sizeof(one)));
		close(begun);
		sleep_ms(round);
		ASSERT_EQ(0, gkv_revoke(fd));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		ASSERT_EQ(SIGBUS, WTERMSIG(status));
		close(fd);
		ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
		/* Its pages have a new owner, and no store of the old one. */
		next = region_alloc(self->gkv, self->provider, LEN);
		ASSERT_GE(next, 0);
		at = map_shared(next, 0, LEN);
		ASSERT_NE(MAP_FAILED, at);
		ASSERT_EQ(-1, differs(at, 0, LEN));
		munmap(at, LEN);
		close(next);
		ASSERT_EQ(0, wait_used(self->gkv, self->provider, 0));
	}
}

/* F111: mapping, faulting, creating and revoking at once: whoever comes late is refused. */
TEST_F(revoke, races_with_everything)
{
	uint64_t until = now_ms() + 4000;
	int rounds = 0;

	while (rounds <= 3 || now_ms() < until) {
		int fd = region_alloc(self->gkv, self->provider, LEN);
		pid_t pids[3];

		ASSERT_GE(fd, 0);
		for (int i = 0; i < 3; i++) {
			pids[i] = fork();
			ASSERT_GE(pids[i], 0);
			if (pids[i])
				continue;
			for (int k = 0; k < 50; k++) {
				struct gkvdrv_qp qp;
				char *at = map_shared(fd, 0, LEN);

				if (at != MAP_FAILED) {
					can_write(at + k % 64 * 4096);
					munmap(at, LEN);
				}
				qp_init(&qp, 64, 1);
				qp.parts[0].region = fd;
				qp.parts[0].offset = i * 4096;
				if (gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp) == 0)
					close(qp.fd);
				if (i == 0 && k == 10 + rounds % 30)
					gkv_revoke(fd);
			}
			_exit(0);
		}
		for (int i = 0; i < 3; i++)
			waitpid(pids[i], NULL, 0);
		ASSERT_TRUE(is_gone(fd, 0));
		close(fd);
		rounds++;
	}
}

TEST_HARNESS_MAIN
