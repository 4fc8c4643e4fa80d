// SPDX-License-Identifier: MIT
/*
 * Every command treats the head of its argument alike: sizes of older and newer callers, flags, bad
 * pointers, its number. The rest of each argument is in gkv_abi.c.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#include <stddef.h>

/* Large enough for every argument and what a newer one may add. */
union argument {
	struct gkvdrv_head head;
	struct gkvdrv_info info;
	struct gkvdrv_provider provider;
	struct gkvdrv_alloc alloc;
	struct gkvdrv_import import;
	struct gkvdrv_qp qp;
	struct gkvdrv_report report;
	struct gkvdrv_notify notify;
	struct gkvdrv_revoke revoke;
	struct gkvdrv_reach reach;
	uint8_t bytes[8192];
};

FIXTURE(command) {
	int gkv, fd;
	union argument arg;
};

/* On what the command is called. */
enum { NODE, QP };

FIXTURE_VARIANT(command) {
	unsigned int cmd;
	uint32_t size, min;
	int on;
};

/* The first version is the least; INFO tells callers of any version what the module's is. */
#define COMMAND(name, number, type, target)						\
	FIXTURE_VARIANT_ADD(command, name) {						\
		.cmd = number, .size = sizeof(struct type), .on = target,		\
		.min = number == GKVDRV_INFO ? offsetof(struct gkvdrv_info, page_size) :\
		       number == GKVDRV_REPORT ? offsetof(struct gkvdrv_report, page_id) : \
						 sizeof(struct type),			\
	}
COMMAND(info, GKVDRV_INFO, gkvdrv_info, NODE);
COMMAND(provider_info, GKVDRV_PROVIDER_INFO, gkvdrv_provider, NODE);
COMMAND(provider_add, GKVDRV_PROVIDER_ADD, gkvdrv_provider, NODE);
COMMAND(provider_del, GKVDRV_PROVIDER_DEL, gkvdrv_provider, NODE);
COMMAND(alloc, GKVDRV_ALLOC, gkvdrv_alloc, NODE);
COMMAND(import, GKVDRV_IMPORT, gkvdrv_import, NODE);
COMMAND(qp_create, GKVDRV_QP_CREATE, gkvdrv_qp, NODE);
COMMAND(report, GKVDRV_REPORT, gkvdrv_report, QP);
COMMAND(notify, GKVDRV_NOTIFY, gkvdrv_notify, QP);
COMMAND(revoke, GKVDRV_REVOKE, gkvdrv_revoke, QP);
/* GKVDRV_REACH is a region's only: with the others of a region, below. */

FIXTURE_SETUP(command)
{
	struct gkvdrv_qp qp;

	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->fd = variant->on == QP ? qp_create(self->gkv, &qp, 8, 0, 0) : dup(self->gkv);
	ASSERT_GE(self->fd, 0);
}

FIXTURE_TEARDOWN(command)
{
	close(self->fd);
	close(self->gkv);
}

/* Arguments that the command takes, or at least finds no fault with that comes before the head. */
static void valid(union argument *arg, unsigned int cmd, uint32_t size)
{
	/* Not more than is asked for: it may lie at the end of a page. */
	size_t clear = size < sizeof(*arg) ? size : sizeof(*arg);

	memset(arg, 0, clear < sizeof(struct gkvdrv_qp) ? sizeof(struct gkvdrv_qp) : clear);
	arg->head.size = size;
	switch (cmd) {
	case GKVDRV_INFO:
		arg->info.abi = GKVDRV_ABI;
		break;
	case GKVDRV_QP_CREATE:
		qp_init(&arg->qp, 8, 0);
		arg->head.size = size;
		break;
	case GKVDRV_NOTIFY:
		arg->notify.eventfd = -1;
		break;
	}
}

/* What it says to those, which depends on the machine for some. */
static int plain(int fd, unsigned int cmd, uint32_t size)
{
	union argument arg;
	int rc;

	valid(&arg, cmd, size);
	rc = ioctl(fd, cmd, &arg) ? -errno : 0;
	if (!rc && cmd == GKVDRV_QP_CREATE)
		close(arg.qp.fd);
	return rc;
}

#define CALL() (ioctl(self->fd, variant->cmd, &self->arg) ? -errno : 0)

TEST_F(command, size_below_the_minimum)
{
	static const uint32_t sizes[] = { 0, 1, 4, 23 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		valid(&self->arg, variant->cmd, sizes[i]);
		EXPECT_EQ(-EINVAL, CALL());
	}
	for (uint32_t size = 24; size < variant->min; size++) {
		valid(&self->arg, variant->cmd, size);
		EXPECT_EQ(-EINVAL, CALL());
	}
	/* An older caller gets what it knows of, and not a byte more. */
	for (uint32_t size = variant->min; size < variant->size; size += 4) {
		valid(&self->arg, variant->cmd, size);
		memset(self->arg.bytes + size, 0x55, 8);
		EXPECT_EQ(0, CALL());
		EXPECT_EQ(0x55, self->arg.bytes[size]);
	}
}

TEST_F(command, a_newer_caller_is_served_while_what_it_adds_is_zero)
{
	static const uint32_t more[] = { 1, 8, 100, 1000 };
	int rc = plain(self->fd, variant->cmd, variant->size);

	EXPECT_NE(-E2BIG, rc);
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		uint32_t size = variant->size + more[i];

		EXPECT_EQ(rc, plain(self->fd, variant->cmd, size));
		for (uint32_t at = variant->size; at < size; at += more[i] > 8 ? 99 : 1) {
			valid(&self->arg, variant->cmd, size);
			self->arg.bytes[at] = 1;
			EXPECT_EQ(-E2BIG, CALL());
		}
	}
	/* No argument will ever be that large. */
	valid(&self->arg, variant->cmd, sizeof(self->arg));
	EXPECT_EQ(-E2BIG, CALL());
	valid(&self->arg, variant->cmd, ~0u);
	EXPECT_EQ(-E2BIG, CALL());
}

TEST_F(command, unknown_flags)
{
	for (int bit = 0; bit < 32; bit++) {
		valid(&self->arg, variant->cmd, variant->size);
		self->arg.head.flags = 1u << bit;
		EXPECT_EQ(-EOPNOTSUPP, CALL());
	}
}

TEST_F(command, bad_pointers)
{
	long page = sysconf(_SC_PAGESIZE);
	char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int64_t objects = gkv_attr("counters/qps");
	union argument *edge;
	int fds = open("/dev/null", O_RDONLY);

	ASSERT_NE(MAP_FAILED, map);
	ASSERT_EQ(0, munmap(map + page, page));
	EXPECT_EQ(-1, ioctl(self->fd, variant->cmd, NULL));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, ioctl(self->fd, variant->cmd, -8ul));
	EXPECT_EQ(EFAULT, errno);
	/* The size can be read, the rest cannot. */
	edge = (void *)(map + page - 8);
	edge->head.size = variant->size;
	edge->head.flags = 0;
	EXPECT_EQ(-1, ioctl(self->fd, variant->cmd, edge));
	EXPECT_EQ(EFAULT, errno);
	/* Results cannot be written: it is as if it had not been called. */
	valid((void *)map, variant->cmd, variant->size);
	ASSERT_EQ(0, mprotect(map, page, PROT_READ));
	EXPECT_EQ(-1, ioctl(self->fd, variant->cmd, map));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(objects, gkv_attr("counters/qps"));
	/* Nor the reason. */
	valid(&self->arg, variant->cmd, variant->size);
	self->arg.head.text = (uintptr_t)map + page;
	self->arg.head.text_len = 100;
	EXPECT_EQ(-EFAULT, CALL());
	EXPECT_EQ(objects, gkv_attr("counters/qps"));
	/* No descriptor was left behind by any of it. */
	close(fds);
	ASSERT_EQ(fds, open("/dev/null", O_RDONLY));
	close(fds);
	/* A revocation that could not be answered has not happened either. */
	if (variant->on == QP) {
		struct gkvdrv_report r;

		ASSERT_EQ(0, report(self->fd, 0, &r));
		EXPECT_EQ(GKVDRV_HOST, r.place);
	}
	munmap(map, page);
}

TEST_F(command, a_buffer_without_length_is_no_buffer)
{
	int rc = plain(self->fd, variant->cmd, variant->size);

	valid(&self->arg, variant->cmd, variant->size);
	self->arg.head.text = 8;
	EXPECT_EQ(rc, CALL());
	valid(&self->arg, variant->cmd, variant->size);
	self->arg.head.text_len = 100;
	EXPECT_EQ(rc, CALL());
}

/* R17: numbers stand for the command, not for the size of what was compiled. */
TEST_F(command, numbers_carry_no_size)
{
	EXPECT_EQ(0u, _IOC_SIZE(variant->cmd));
	EXPECT_EQ((unsigned int)_IOC_NONE, _IOC_DIR(variant->cmd));
	EXPECT_EQ(0xb9u, _IOC_TYPE(variant->cmd));
	/* And are those of one kind of descriptor only. */
	if (variant->on == NODE) {
		struct gkvdrv_qp qp;
		int fd = qp_create(self->gkv, &qp, 8, 0, 0);

		ASSERT_GE(fd, 0);
		valid(&self->arg, variant->cmd, variant->size);
		EXPECT_EQ(-1, ioctl(fd, variant->cmd, &self->arg));
		EXPECT_EQ(ENOTTY, errno);
		close(fd);
	} else {
		valid(&self->arg, variant->cmd, variant->size);
		EXPECT_EQ(-1, ioctl(self->gkv, variant->cmd, &self->arg));
		EXPECT_EQ(ENOTTY, errno);
	}
}

TEST_HARNESS_MAIN
