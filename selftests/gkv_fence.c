// SPDX-License-Identifier: MIT
/*
 * An exporter may hand out a buffer that it still moves or clears, with a fence that says when it has
 * done so: until then nobody gets to see the memory. Whoever waits can be interrupted and killed, and
 * what the buffer's other users do with it is their own business.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#define BAR	2
#define LEN	(16 * MIB)	/* of the provider, from the start of the BAR */

FIXTURE(fence) {
	int gkv, exporter, provider, buf;
	const char *bdf;
};

FIXTURE_SETUP(fence)
{
	struct exporter_make how = { .len = MIB, .fence = EXPORTER_FENCE_KERNEL };

	if (exporter_missing())
		SKIP(return, "%s", exporter_missing());
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->exporter = exporter_start(&self->bdf);
	ASSERT_GE(self->exporter, 0);
	self->provider = provider_add(self->gkv, self->bdf, BAR, 0, LEN);
	ASSERT_GT(self->provider, 0);
	self->buf = exporter_make_as(self->exporter, &how);
	ASSERT_GE(self->buf, 0);
}

FIXTURE_TEARDOWN(fence)
{
	close(self->buf);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_TRUE(exporter_idle(self->exporter));
	EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf));
	close(self->gkv);
}

static int import(FIXTURE_DATA(fence) *self)
{
	return region_import(self->gkv, self->provider, self->buf, 0, 0);
}

/* A child that imports the buffer: ends with 0, or with the error. */
static pid_t importer(FIXTURE_DATA(fence) *self)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = import(self);

		_exit(fd < 0 ? -fd : 0);
	}
	return pid;
}

/* Its result, or -1 as long as it is at it. */
static int result_of(pid_t pid, int flags)
{
	int status;

	if (waitpid(pid, &status, flags) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* It waits: has the buffer mapped, and does not end for a while. */
static bool waits(FIXTURE_DATA(fence) *self, pid_t pid)
{
	return eventually(exporter_state(self->exporter, self->buf).mapped == 1) &&
	       (sleep_ms(500), result_of(pid, WNOHANG) == -1);
}

static bool let_go(FIXTURE_DATA(fence) *self)
{
	struct exporter_state s = exporter_state(self->exporter, self->buf);

	return s.attached + s.pinned + s.mapped == 0;
}

TEST_F(fence, of_the_exporter_is_waited_for)
{
	pid_t pid = importer(self);

	ASSERT_GT(pid, 0);
	ASSERT_TRUE(waits(self, pid));
	/* Nothing of it is used yet. */
	EXPECT_EQ(0, provider_used(self->gkv, self->provider));
	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_SIGNAL, self->buf));
	EXPECT_EQ(0, result_of(pid, 0));
}

/* Programs arrange among themselves who writes when. */
TEST_F(fence, of_a_program_is_not)
{
	struct exporter_make how = {
		.offset = MIB, .len = MIB, .fence = EXPORTER_FENCE_WRITE,
	};
	int buf = exporter_make_as(self->exporter, &how), fd;

	ASSERT_GE(buf, 0);
	fd = region_import(self->gkv, self->provider, buf, 0, 0);
	EXPECT_GE(fd, 0);
	EXPECT_EQ(0, ioctl(self->exporter, EXPORTER_SIGNAL, buf));
	close(fd);
	close(buf);
}

/* Once it is signalled nobody waits any more. */
TEST_F(fence, that_is_signalled_costs_nothing)
{
	uint64_t start;
	int fd;

	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_SIGNAL, self->buf));
	start = now_ms();
	fd = import(self);
	ASSERT_GE(fd, 0);
	EXPECT_LT(now_ms() - start, 2000u);
	close(fd);
}

/* F94: what waits for another driver can be killed, and lets go of all it had. */
TEST_F(fence, killed_while_waiting)
{
	pid_t pid;

	pid = importer(self);
	ASSERT_GT(pid, 0);
	ASSERT_TRUE(waits(self, pid));
	ASSERT_EQ(0, kill(pid, SIGKILL));
	EXPECT_EQ(128 + SIGKILL, result_of(pid, 0));
	EXPECT_TRUE(let_go(self));
	EXPECT_EQ(0, provider_used(self->gkv, self->provider));
}

static void on_signal(int number)
{
	(void)number;
}

/* F94, F93 */
TEST_F(fence, interrupted_while_waiting)
{
	struct sigaction action = { .sa_handler = on_signal };
	pid_t pid;

	/* Without SA_RESTART: the call ends. */
	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	pid = importer(self);
	ASSERT_GT(pid, 0);
	ASSERT_TRUE(waits(self, pid));
	ASSERT_EQ(0, kill(pid, SIGUSR1));
	EXPECT_EQ(EINTR, result_of(pid, 0));
	EXPECT_TRUE(let_go(self));

	/* With it: it begins again. */
	action.sa_flags = SA_RESTART;
	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	pid = importer(self);
	ASSERT_GT(pid, 0);
	ASSERT_TRUE(waits(self, pid));
	ASSERT_EQ(0, kill(pid, SIGUSR1));
	ASSERT_TRUE(waits(self, pid));
	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_SIGNAL, self->buf));
	EXPECT_EQ(0, result_of(pid, 0));
}

/* The exporter gets its buffer back although nobody signals anything. */
TEST_F(fence, revoked_while_waiting)
{
	uint64_t start;
	pid_t pid;

	pid = importer(self);
	ASSERT_GT(pid, 0);
	ASSERT_TRUE(waits(self, pid));
	start = now_ms();
	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_REVOKE, self->buf));
	EXPECT_LT(now_ms() - start, 5000u);
	EXPECT_EQ(ENODEV, result_of(pid, 0));
	EXPECT_TRUE(let_go(self));
}

/* So does whoever withdraws the provider; the import finds out when it goes on. */
TEST_F(fence, provider_withdrawn_while_waiting)
{
	uint64_t start;
	pid_t pid;

	pid = importer(self);
	ASSERT_GT(pid, 0);
	ASSERT_TRUE(waits(self, pid));
	start = now_ms();
	ASSERT_EQ(0, provider_del(self->gkv, self->provider));
	EXPECT_LT(now_ms() - start, 5000u);
	ASSERT_EQ(0, ioctl(self->exporter, EXPORTER_SIGNAL, self->buf));
	EXPECT_EQ(ENODEV, result_of(pid, 0));
	EXPECT_TRUE(let_go(self));
	self->provider = provider_add(self->gkv, self->bdf, BAR, 0, LEN);
	ASSERT_GT(self->provider, 0);
}

TEST_HARNESS_MAIN
