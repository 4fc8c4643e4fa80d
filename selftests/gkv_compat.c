// SPDX-License-Identifier: MIT
/*
 * The interface is the same for 32-bit programs: no argument has a hole that another compiler would
 * fill otherwise, and the commands work through the 32-bit entry of the kernel.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#include <stddef.h>

/* ---- Layout ---- */

struct field {
	const char *name;
	size_t offset, size;
};

#define F(type, field) { #type "." #field, offsetof(struct type, field), \
			 sizeof(((struct type *)0)->field) }
#define END(type) { NULL, sizeof(struct type), 0 }

static const struct field fields[] = {
	F(gkvdrv_head, size), F(gkvdrv_head, flags), F(gkvdrv_head, reason),
	F(gkvdrv_head, text_len), F(gkvdrv_head, text), END(gkvdrv_head),

	F(gkvdrv_info, head), F(gkvdrv_info, abi), F(gkvdrv_info, page_size), F(gkvdrv_info, caps),
	F(gkvdrv_info, poll_interval_ns), F(gkvdrv_info, max_queue_depth),
	F(gkvdrv_info, nr_providers), F(gkvdrv_info, max_user_objects),
	F(gkvdrv_info, user_objects), F(gkvdrv_info, max_user_bytes), F(gkvdrv_info, user_bytes),
	END(gkvdrv_info),

	F(gkvdrv_provider, head), F(gkvdrv_provider, id), F(gkvdrv_provider, kind),
	F(gkvdrv_provider, domain), F(gkvdrv_provider, bdf), F(gkvdrv_provider, bar),
	F(gkvdrv_provider, nr_objects), F(gkvdrv_provider, offset), F(gkvdrv_provider, len),
	F(gkvdrv_provider, used), F(gkvdrv_provider, bus), END(gkvdrv_provider),

	F(gkvdrv_alloc, head), F(gkvdrv_alloc, provider), F(gkvdrv_alloc, fd),
	F(gkvdrv_alloc, len), END(gkvdrv_alloc),

	F(gkvdrv_import, head), F(gkvdrv_import, provider), F(gkvdrv_import, dmabuf),
	F(gkvdrv_import, fd), F(gkvdrv_import, rsvd), F(gkvdrv_import, offset),
	F(gkvdrv_import, len), END(gkvdrv_import),

	F(gkvdrv_part, region), F(gkvdrv_part, provider), F(gkvdrv_part, offset),
	F(gkvdrv_part, map_offset), F(gkvdrv_part, len), END(gkvdrv_part),

	F(gkvdrv_qp, head), F(gkvdrv_qp, depth), F(gkvdrv_qp, mode), F(gkvdrv_qp, fd),
	F(gkvdrv_qp, dstrd), F(gkvdrv_qp, parts), END(gkvdrv_qp),

	F(gkvdrv_run, bus), F(gkvdrv_run, len), END(gkvdrv_run),

	F(gkvdrv_report, head), F(gkvdrv_report, part), F(gkvdrv_report, place),
	F(gkvdrv_report, provider), F(gkvdrv_report, domain), F(gkvdrv_report, bdf),
	F(gkvdrv_report, bar), F(gkvdrv_report, bar_offset), F(gkvdrv_report, len),
	F(gkvdrv_report, nr_pages), F(gkvdrv_report, mode), F(gkvdrv_report, nr_runs),
	F(gkvdrv_report, runs), F(gkvdrv_report, page_id), END(gkvdrv_report),

	F(gkvdrv_notify, head), F(gkvdrv_notify, eventfd), F(gkvdrv_notify, rsvd),
	END(gkvdrv_notify),

	F(gkvdrv_revoke, head), END(gkvdrv_revoke),

	F(gkvdrv_reach, head), F(gkvdrv_reach, blkdev), F(gkvdrv_reach, map),
	F(gkvdrv_reach, distance), F(gkvdrv_reach, rsvd), END(gkvdrv_reach),
};

/* R17: each field follows the one before it and is at a multiple of its size, nothing is hidden. */
TEST(layout_has_no_holes)
{
	size_t at = 0;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const struct field *f = &fields[i];

		EXPECT_EQ(at, f->offset) {
			TH_LOG("before %s", f->name ? f->name : "the end");
		}
		EXPECT_EQ(0u, f->offset % (f->name && f->size < 8 ? f->size : 8));
		at = f->name ? f->offset + f->size : 0;
	}
}

/* ---- The 32-bit entry ---- */

#ifdef __x86_64__

#define NR32_ioctl	54
#define NR32_getpid	20

/* A system call as a 32-bit program makes it; arguments are below 4 GiB. */
static int call32(unsigned int nr, unsigned int a, unsigned int b, unsigned int c)
{
	int result;

	asm volatile("int $0x80" : "=a" (result) : "a" (nr), "b" (a), "c" (b), "d" (c)
		     : "memory", "r8", "r9", "r10", "r11");
	return result;
}

FIXTURE(compat) {
	int gkv;
	union {
		struct gkvdrv_head head;
		struct gkvdrv_info info;
		struct gkvdrv_provider provider;
		struct gkvdrv_alloc alloc;
		struct gkvdrv_qp qp;
		struct gkvdrv_report report;
		struct gkvdrv_notify notify;
		struct gkvdrv_revoke revoke;
	} *arg;
	char *text;
};

FIXTURE_SETUP(compat)
{
	char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
			 -1, 0);

	ASSERT_NE(MAP_FAILED, low);
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->arg = (void *)low;
	self->text = low + 4096;
	if (call32(NR32_getpid, 0, 0, 0) != getpid())
		SKIP(return, "this kernel runs no 32-bit programs");
}

FIXTURE_TEARDOWN(compat)
{
	munmap(self->arg, 8192);
	close(self->gkv);
}

static int ioctl32(FIXTURE_DATA(compat) *self, int fd, unsigned int cmd, uint32_t size)
{
	self->arg->head = (struct gkvdrv_head) {
		.size = size, .text = (uintptr_t)self->text, .text_len = GKVDRV_TEXT,
	};
	return call32(NR32_ioctl, fd, cmd, (uintptr_t)self->arg);
}

TEST_F(compat, the_same_answers)
{
	struct gkvdrv_info wide = { .abi = GKVDRV_ABI };

	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_INFO, &wide));
	self->arg->info = (struct gkvdrv_info) { .abi = GKVDRV_ABI };
	ASSERT_EQ(0, ioctl32(self, self->gkv, GKVDRV_INFO, sizeof(self->arg->info)));
	EXPECT_EQ(0, memcmp(&wide.abi, &self->arg->info.abi,
			    sizeof(wide) - offsetof(struct gkvdrv_info, abi)));
	self->arg->info.abi = 99;
	EXPECT_EQ(-EPROTO, ioctl32(self, self->gkv, GKVDRV_INFO, sizeof(self->arg->info)));
	EXPECT_NE(NULL, strstr(self->text, "99"));
	EXPECT_EQ(-ENOTTY, ioctl32(self, self->gkv, _IO(GKVDRV_IOC, 0x3f), 136));
}

TEST_F(compat, a_queue_pair_from_its_making_to_its_end)
{
	char *at;
	int fd;

	qp_init(&self->arg->qp, 100, 0);
	ASSERT_EQ(0, ioctl32(self, self->gkv, GKVDRV_QP_CREATE, sizeof(self->arg->qp)));
	fd = self->arg->qp.fd;
	EXPECT_EQ(6400ull, self->arg->qp.parts[GKVDRV_SQ].len);
	at = map_shared(fd, self->arg->qp.parts[GKVDRV_CQ].map_offset, 4096);
	ASSERT_TRUE(can_write(at));
	self->arg->report = (struct gkvdrv_report) { .part = GKVDRV_CQ };
	ASSERT_EQ(0, ioctl32(self, fd, GKVDRV_REPORT, sizeof(self->arg->report)));
	EXPECT_EQ(GKVDRV_HOST, self->arg->report.place);
	EXPECT_EQ(1600ull, self->arg->report.len);
	self->arg->notify = (struct gkvdrv_notify) { .eventfd = -1 };
	EXPECT_EQ(0, ioctl32(self, fd, GKVDRV_NOTIFY, sizeof(self->arg->notify)));
	EXPECT_EQ(0, ioctl32(self, fd, GKVDRV_REVOKE, sizeof(self->arg->revoke)));
	EXPECT_FALSE(can_read(at));
	munmap(at, 4096);
	close(fd);
}

TEST_F(compat, a_region)
{
	int provider, fd;

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	provider = vram_provider(self->gkv);
	ASSERT_GT(provider, 0);
	self->arg->alloc = (struct gkvdrv_alloc) { .provider = provider, .len = 8 * MIB };
	ASSERT_EQ(0, ioctl32(self, self->gkv, GKVDRV_ALLOC, sizeof(self->arg->alloc)));
	fd = self->arg->alloc.fd;
	self->arg->report = (struct gkvdrv_report) { };
	ASSERT_EQ(0, ioctl32(self, fd, GKVDRV_REPORT, sizeof(self->arg->report)));
	EXPECT_EQ(GKVDRV_VRAM, self->arg->report.place);
	EXPECT_EQ(8 * MIB, self->arg->report.len);
	/* F30: a length beyond what 32 bits hold is one of 64 bits. */
	self->arg->alloc = (struct gkvdrv_alloc) { .provider = provider, .len = (4ull << 30) + 4096 };
	EXPECT_EQ(-ENOMEM, ioctl32(self, self->gkv, GKVDRV_ALLOC, sizeof(self->arg->alloc)));
	EXPECT_EQ(GKVDRV_WHY_SIZE, self->arg->head.reason);
	EXPECT_NE(NULL, strstr(self->text, "4294971392"));
	close(fd);
}

#endif

TEST_HARNESS_MAIN
