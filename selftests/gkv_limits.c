// SPDX-License-Identifier: MIT
/*
 * A user has so much and no more, over all processes; refusals name the limit and the present use;
 * and nobody sees or uses what is another's.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#include <sys/resource.h>

#define NOBODY	65534
#define OTHER	4711

FIXTURE(limits) {
	int gkv, provider;
	bool p2p;
};

FIXTURE_SETUP(limits)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->p2p = kernel_has_p2pdma();
	if (self->p2p) {
		self->provider = vram_provider(self->gkv);
		ASSERT_GT(self->provider, 0);
	}
}

FIXTURE_TEARDOWN(limits)
{
	EXPECT_EQ(0, gkv_set_attr("max_user_objects", 4096));
	EXPECT_EQ(0, gkv_set_attr("max_user_bytes", ~0ull));
	close(self->gkv);
}

/* What a child is told to do, and what it found: in memory of both. */
struct task {
	int gkv, provider;
	uint32_t n;
	int error;
	uint32_t reason, objects;
	uint64_t bytes;
	char text[GKVDRV_TEXT];
};

static struct task *new_task(FIXTURE_DATA(limits) *self)
{
	struct task *t = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	t->gkv = self->gkv;
	t->provider = self->provider;
	return t;
}

static void note(struct task *t)
{
	struct gkvdrv_info a = { .abi = GKVDRV_ABI };

	t->reason = why.reason;
	strcpy(t->text, why.text);
	if (gkv_call(t->gkv, GKVDRV_INFO, &a))
		_exit(99);
	t->objects = a.user_objects;
	t->bytes = a.user_bytes;
}

/* Creates queue pairs in host memory until it is refused: how many there were. */
static int qps_until_refused(void *arg)
{
	struct task *t = arg;
	struct gkvdrv_qp qp;

	for (t->n = 0; t->n < 1000; t->n++) {
		t->error = qp_create(t->gkv, &qp, 8, 0, 0);
		if (t->error < 0)
			break;
	}
	note(t);
	return 0;
}

static int regions_until_refused(void *arg)
{
	struct task *t = arg;

	for (t->n = 0; t->n < 1000; t->n++) {
		t->error = region_alloc(t->gkv, t->provider, 16384);
		if (t->error < 0)
			break;
	}
	note(t);
	return 0;
}

/* F21, F115: a queue pair in host memory is three pieces. */
TEST_F(limits, pieces_of_a_user)
{
	struct task *t = new_task(self);

	ASSERT_EQ(0, gkv_set_attr("max_user_objects", 30));
	EXPECT_EQ(0, in_child(NOBODY, qps_until_refused, t));
	EXPECT_EQ(10u, t->n);
	EXPECT_EQ(-ENOSPC, t->error);
	EXPECT_EQ(GKVDRV_WHY_LIMIT, t->reason);
	EXPECT_NE(NULL, strstr(t->text, "30"));
	EXPECT_NE(NULL, strstr(t->text, "max_user_objects"));
	/* The one that failed took back what it had. */
	EXPECT_EQ(30u, t->objects);
	/* All came back with the process, and root is held to it as well. */
	EXPECT_EQ(0, in_child(NOBODY, qps_until_refused, t));
	EXPECT_EQ(10u, t->n);
	EXPECT_EQ(0, in_child(0, qps_until_refused, t));
	EXPECT_EQ(10u, t->n);
}

TEST_F(limits, pieces_are_those_of_one_user_only)
{
	struct task *t = new_task(self);
	struct gkvdrv_qp qp;
	int last = -1;

	ASSERT_EQ(0, gkv_set_attr("max_user_objects", 9));
	for (int i = 0; i < 3; i++) {
		last = qp_create(self->gkv, &qp, 8, 0, 0);
		ASSERT_GE(last, 0);
	}
	EXPECT_EQ(-ENOSPC, qp_create(self->gkv, &qp, 8, 0, 0));
	EXPECT_EQ(0, in_child(NOBODY, qps_until_refused, t));
	EXPECT_EQ(3u, t->n);
	EXPECT_EQ(0, in_child(OTHER, qps_until_refused, t));
	EXPECT_EQ(3u, t->n);
	/* Lowering it takes nothing away, and nothing is added. */
	ASSERT_EQ(0, gkv_set_attr("max_user_objects", 1));
	EXPECT_FALSE(is_gone(last, 0));
	EXPECT_EQ(-ENOSPC, qp_create(self->gkv, &qp, 8, 0, 0));
}

TEST_F(limits, bytes_of_a_user)
{
	struct task *t = new_task(self);

	if (!self->p2p)
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	ASSERT_EQ(0, gkv_set_attr("max_user_bytes", 5 * 16384 + 100));
	EXPECT_EQ(0, in_child(NOBODY, regions_until_refused, t));
	EXPECT_EQ(5u, t->n);
	EXPECT_EQ(-ENOSPC, t->error);
	EXPECT_EQ(GKVDRV_WHY_LIMIT, t->reason);
	EXPECT_EQ(5ul * 16384, t->bytes);
	/* F54, F21: limit and present use. */
	EXPECT_NE(NULL, strstr(t->text, "max_user_bytes"));
	EXPECT_NE(NULL, strstr(t->text, "81920"));
	EXPECT_NE(NULL, strstr(t->text, "82020"));
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	ASSERT_EQ(0, gkv_set_attr("max_user_bytes", 0));
	EXPECT_EQ(-ENOSPC, region_alloc(self->gkv, self->provider, 4096));
}

/* ---- RLIMIT_MEMLOCK ---- */

static int qps_under_memlock(void *arg)
{
	struct rlimit limit = { .rlim_cur = 20 * 4096, .rlim_max = 20 * 4096 };

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return 1;
	return qps_until_refused(arg);
}

/* F66: pinned memory is accounted for as such; a queue pair of 8 entries is three pages. */
TEST_F(limits, host_memory_counts_against_memlock)
{
	struct task *t = new_task(self);

	EXPECT_EQ(0, in_child(NOBODY, qps_under_memlock, t));
	EXPECT_EQ(6u, t->n);
	EXPECT_EQ(-ENOMEM, t->error);
	EXPECT_EQ(GKVDRV_WHY_MEMLOCK, t->reason);
	EXPECT_NE(NULL, strstr(t->text, "RLIMIT_MEMLOCK"));
	EXPECT_EQ(18u, t->objects);
	/* It all came back. */
	EXPECT_EQ(0, in_child(NOBODY, qps_under_memlock, t));
	EXPECT_EQ(6u, t->n);
	/* Who may lock what he likes is not held to it. */
	EXPECT_EQ(0, in_child(0, qps_under_memlock, t));
	EXPECT_GT(t->n, 100u);
}

static int vram_under_memlock(void *arg)
{
	struct task *t = arg;
	struct rlimit limit = { };
	struct gkvdrv_qp qp;

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return 1;
	if (region_alloc(t->gkv, t->provider, MIB) < 0)
		return 2;
	if (qp_create(t->gkv, &qp, 256, 7, t->provider) < 0)
		return 3;
	return qp_create(t->gkv, &qp, 256, 6, t->provider) == -ENOMEM &&
	       why.reason == GKVDRV_WHY_MEMLOCK ? 0 : 4;
}

static int one_after_the_other(void *arg)
{
	struct task *t = arg;
	struct rlimit limit = { .rlim_cur = 5 * 4096, .rlim_max = 5 * 4096 };

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return 1;
	for (t->n = 0; t->n < 500; t->n++) {
		struct gkvdrv_qp qp, other;

		if (qp_create(t->gkv, &qp, 8, 0, 0) < 0)
			return 2;
		/* One too many, which is refused when it is half made. */
		if (t->n & 1 && qp_create(t->gkv, &other, 8, 0, 0) != -ENOMEM)
			return 3;
		close(qp.fd);
	}
	return 0;
}

/* What is closed is given back when close() returns: the next one must not be refused for it. */
TEST_F(limits, what_is_closed_is_there_at_once)
{
	struct task *t = new_task(self);

	EXPECT_EQ(0, in_child(NOBODY, one_after_the_other, t));
	EXPECT_EQ(500u, t->n);
}

TEST_F(limits, vram_does_not)
{
	struct task *t = new_task(self);

	if (!self->p2p)
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	EXPECT_EQ(0, in_child(NOBODY, vram_under_memlock, t));
}

/* ---- Who may what ---- */

static int open_node(void *arg)
{
	int fd = open(GKVDRV_PATH, O_RDWR);

	return fd < 0 && errno == EACCES ? 0 : 1;
}

/* R13, F8: not for the world. */
TEST_F(limits, the_node_is_not_for_everyone)
{
	struct stat st;

	ASSERT_EQ(0, stat(GKVDRV_PATH, &st));
	EXPECT_TRUE(S_ISCHR(st.st_mode));
	EXPECT_EQ(0u, st.st_mode & 0007);
	EXPECT_EQ(0660u, st.st_mode & 0777);
	EXPECT_EQ(0, in_child(NOBODY, open_node, NULL));
}

static int write_settings(void *arg)
{
	static const char * const names[] = {
		"max_user_objects", "max_user_bytes", "max_queue_depth", "poll_interval_ns",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (gkv_set_attr(names[i], 4096) != -EACCES)
			return 1 + i;
	return 0;
}

TEST_F(limits, settings_are_for_the_administrator)
{
	EXPECT_EQ(0, in_child(NOBODY, write_settings, NULL));
}

/* R2: a second process finds nothing of the first one's. */
static int look_for_others(void *arg)
{
	struct task *t = arg;

	note(t);
	/* Numbers of descriptors mean one's own only. */
	for (int fd = 3; fd < 100; fd++) {
		struct gkvdrv_qp qp;

		if (fd == t->gkv)
			continue;
		close(fd);
		qp_init(&qp, 8, 1);
		qp.parts[0].region = fd;
		if (gkv_call(t->gkv, GKVDRV_QP_CREATE, &qp) == 0)
			return 1;
	}
	return 0;
}

TEST_F(limits, nothing_of_another_is_reached)
{
	struct task *t = new_task(self);
	struct gkvdrv_qp qp;

	ASSERT_GE(qp_create(self->gkv, &qp, 8, 0, 0), 0);
	if (self->p2p)
		ASSERT_GE(region_alloc(self->gkv, self->provider, MIB), 0);
	EXPECT_EQ(0, in_child(NOBODY, look_for_others, t));
	EXPECT_EQ(0u, t->objects);
	EXPECT_EQ(0ul, t->bytes);
}

TEST_HARNESS_MAIN
