// SPDX-License-Identifier: MIT
/*
 * The interface keeps its word to callers of other versions and to callers that are wrong: the
 * version, capabilities, reasons, reserved fields, descriptors of another kind. What every command
 * does with the head of its argument is in gkv_head.c.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

FIXTURE(abi) {
	int gkv;
};

FIXTURE_SETUP(abi)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
}

FIXTURE_TEARDOWN(abi)
{
	close(self->gkv);
}

/* F118: another version is not mistaken for missing hardware. */
TEST_F(abi, a_mismatch_names_both_versions)
{
	static const uint32_t others[] = { 0, GKVDRV_ABI + 1, 4711 };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct gkvdrv_info a = { .abi = others[i] };
		char mine[16], theirs[16];

		EXPECT_EQ(-EPROTO, gkv_call(self->gkv, GKVDRV_INFO, &a));
		EXPECT_EQ(GKVDRV_WHY_ABI, a.head.reason);
		EXPECT_EQ(GKVDRV_ABI, a.abi);
		snprintf(mine, sizeof(mine), " %u ", others[i]);
		snprintf(theirs, sizeof(theirs), " %u", GKVDRV_ABI);
		EXPECT_NE(NULL, strstr(why.text, mine));
		EXPECT_NE(NULL, strstr(why.text, theirs));
	}
}

/* F42, F52: what it says it can do is what the kernel can do. */
TEST_F(abi, capabilities_are_those_of_the_kernel)
{
	struct gkvdrv_info a = { .abi = GKVDRV_ABI };

	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_INFO, &a));
	EXPECT_EQ(kernel_has_p2pdma() ? GKVDRV_CAP_VRAM | GKVDRV_CAP_IMPORT : 0, a.caps);
	EXPECT_EQ((uint32_t)sysconf(_SC_PAGESIZE), a.page_size);
	EXPECT_EQ(gkv_attr("max_queue_depth"), a.max_queue_depth);
	EXPECT_EQ(gkv_attr("poll_interval_ns"), (int64_t)a.poll_interval_ns);
	EXPECT_EQ(gkv_attr("max_user_objects"), a.max_user_objects);
	EXPECT_EQ(gkv_attr("abi_version"), GKVDRV_ABI);
	EXPECT_EQ(0u, a.head.reason);
	/* The newest kernel of the rig has it: were it gone, every test of VRAM would be skipped. */
	if (getenv("GKV_KERNEL") && strcmp(getenv("GKV_KERNEL"), "newest") == 0)
		EXPECT_TRUE(kernel_has_p2pdma());
}

/* What needs VRAM says what is missing, and not that there happens to be no provider. */
TEST_F(abi, without_p2pdma_vram_is_refused_with_that_reason)
{
	struct gkvdrv_import import = { .provider = 1, .dmabuf = 0 };
	struct gkvdrv_qp qp;
	const char *nvme = getenv("GKV_NVME_BDF");

	if (kernel_has_p2pdma())
		SKIP(return, "this kernel has CONFIG_PCI_P2PDMA");
	EXPECT_EQ(-EOPNOTSUPP, region_alloc(self->gkv, 1, 4096));
	EXPECT_EQ(GKVDRV_WHY_P2PDMA, why.reason);
	EXPECT_EQ(-EOPNOTSUPP, gkv_call(self->gkv, GKVDRV_IMPORT, &import));
	EXPECT_EQ(GKVDRV_WHY_P2PDMA, why.reason);
	EXPECT_EQ(-EOPNOTSUPP, provider_add(self->gkv, nvme, 0, 0, 2 * MIB));
	EXPECT_EQ(GKVDRV_WHY_P2PDMA, why.reason);
	for (uint32_t mode = 1; mode <= 15; mode++) {
		EXPECT_EQ(-EOPNOTSUPP, qp_create(self->gkv, &qp, 8, mode, 1));
		EXPECT_EQ(GKVDRV_WHY_P2PDMA, why.reason);
		EXPECT_NE(NULL, strstr(why.text, "CONFIG_PCI_P2PDMA"));
	}
	EXPECT_EQ(-ENODEV, vram_provider(self->gkv));
}

TEST_F(abi, the_reason_is_cut_to_fit)
{
	struct gkvdrv_info a;
	char whole[GKVDRV_TEXT], text[GKVDRV_TEXT + 8];
	size_t len;

	a = (struct gkvdrv_info) { .abi = 99 };
	ASSERT_EQ(-EPROTO, gkv_call(self->gkv, GKVDRV_INFO, &a));
	strcpy(whole, why.text);
	len = strlen(whole);
	ASSERT_GT(len, 20u);
	ASSERT_EQ(NULL, strchr(whole, '\n'));
	for (size_t room = 1; room <= len + 4; room++) {
		memset(text, 0x55, sizeof(text));
		a = (struct gkvdrv_info) {
			.head = { .size = sizeof(a), .text = (uintptr_t)text, .text_len = room },
			.abi = 99,
		};
		ASSERT_EQ(-1, ioctl(self->gkv, GKVDRV_INFO, &a));
		ASSERT_EQ(EPROTO, errno);
		ASSERT_EQ(room - 1 < len ? room - 1 : len, strlen(text));
		ASSERT_EQ(0, strncmp(text, whole, strlen(text)));
		/* And not a byte beyond. */
		ASSERT_EQ(0x55, text[room]);
	}
	/* A success clears what an earlier call left. */
	a = (struct gkvdrv_info) {
		.head = {
			.size = sizeof(a), .reason = 77, .text = (uintptr_t)text,
			.text_len = sizeof(text),
		},
		.abi = GKVDRV_ABI,
	};
	strcpy(text, "stale");
	ASSERT_EQ(0, ioctl(self->gkv, GKVDRV_INFO, &a));
	EXPECT_EQ(0u, a.head.reason);
	EXPECT_EQ('\0', text[0]);
}

TEST_F(abi, unknown_commands)
{
	struct gkvdrv_qp qp, arg;
	int fd = qp_create(self->gkv, &qp, 8, 0, 0);

	ASSERT_GE(fd, 0);
	for (unsigned int nr = 0; nr < 256; nr++) {
		arg = (struct gkvdrv_qp) { .head.size = sizeof(arg) };
		if (nr > 6) {
			EXPECT_EQ(-1, ioctl(self->gkv, _IO(GKVDRV_IOC, nr), &arg));
			EXPECT_EQ(ENOTTY, errno);
		}
		if (nr < 0x40 || nr > 0x42) {
			EXPECT_EQ(-1, ioctl(fd, _IO(GKVDRV_IOC, nr), &arg));
			EXPECT_EQ(ENOTTY, errno);
		}
	}
	/* The right number with a size or a direction in it is another one. */
	EXPECT_EQ(-1, ioctl(self->gkv, _IOWR(GKVDRV_IOC, 0, struct gkvdrv_info), &arg));
	EXPECT_EQ(ENOTTY, errno);
	EXPECT_EQ(-1, ioctl(self->gkv, _IO('V', 0), &arg));
	EXPECT_EQ(ENOTTY, errno);
	close(fd);
}

TEST_F(abi, reserved_fields_are_zero)
{
	struct gkvdrv_provider p;
	struct gkvdrv_notify n;
	struct gkvdrv_qp qp;
	int fd = qp_create(self->gkv, &qp, 8, 0, 0);

	ASSERT_GE(fd, 0);
	for (int bit = 0; bit < 32; bit++) {
		n = (struct gkvdrv_notify) { .eventfd = -1, .rsvd = 1u << bit };
		EXPECT_EQ(-EINVAL, gkv_call(fd, GKVDRV_NOTIFY, &n));
	}
	n = (struct gkvdrv_notify) { .eventfd = -2 };
	EXPECT_EQ(-EINVAL, gkv_call(fd, GKVDRV_NOTIFY, &n));
	/* What a provider is, the module says; the rest of the argument is zero. */
	for (int i = 0; kernel_has_p2pdma() && i < 6; i++) {
		p = (struct gkvdrv_provider) {
			.id = i == 0, .kind = i == 1, .nr_objects = i == 2, .used = i == 3,
			.bus = i == 4, .bdf = i == 5 ? 0x10000 : 0, .len = 2 * MIB,
		};
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_PROVIDER_ADD, &p));
		EXPECT_EQ(0u, why.reason);
	}
	for (int i = 0; i < (int)GKVDRV_PARTS; i++) {
		qp_init(&qp, 8, 0);
		qp.parts[i].map_offset = 4096;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp));
		qp_init(&qp, 8, 0);
		qp.parts[i].len = 64;
		EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp));
	}
	close(fd);
}

TEST_F(abi, reserved_fields_of_a_region_are_zero)
{
	struct gkvdrv_import import = { .rsvd = 1, .provider = 1, .dmabuf = 0 };
	struct gkvdrv_reach reach;
	int provider, fd, disk;
	char path[32];

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	EXPECT_EQ(-EINVAL, gkv_call(self->gkv, GKVDRV_IMPORT, &import));
	provider = vram_provider(self->gkv);
	ASSERT_GT(provider, 0);
	fd = region_alloc(self->gkv, provider, 4096);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, disk_path("gkv0", path, sizeof(path)));
	disk = open(path, O_RDONLY);
	ASSERT_GE(disk, 0);
	reach = (struct gkvdrv_reach) { .blkdev = disk, .rsvd = 1 };
	EXPECT_EQ(-EINVAL, gkv_call(fd, GKVDRV_REACH, &reach));
	for (int i = 0; i < 2; i++) {
		/* Called again with what the last call returned. */
		reach.rsvd = 0;
		reach.map = 3;
		EXPECT_EQ(0,
			  gkv_call(fd, GKVDRV_REACH, &reach));
	}
	reach.head = (struct gkvdrv_head) { .size = 24 };
	EXPECT_EQ(-1, ioctl(fd, GKVDRV_REACH, &reach));
	EXPECT_EQ(EINVAL, errno);
	close(disk);
	close(fd);
}

/* R1, R2: what is not the descriptor asked for is refused, whatever else it is. */
TEST_F(abi, descriptors_of_another_kind)
{
	struct gkvdrv_qp qp;
	int qpfd = qp_create(self->gkv, &qp, 8, 0, 0);
	int others[] = {
		memfd_create("x", 0), open("/dev/null", O_RDWR), open("/proc/self/exe", O_RDONLY),
		self->gkv, qpfd, 999,
	};

	ASSERT_GE(qpfd, 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct gkvdrv_notify notify = { .eventfd = others[i] };
		struct gkvdrv_import import = { .dmabuf = others[i], .provider = 1 };
		int rc = gkv_call(qpfd, GKVDRV_NOTIFY, &notify);

		EXPECT_TRUE(rc == -EINVAL || rc == -EBADF);
		if (!kernel_has_p2pdma())
			continue;
		rc = gkv_call(self->gkv, GKVDRV_IMPORT, &import);
		EXPECT_TRUE(rc == -EINVAL || rc == -EBADF);
	}
	/* The queue pair told nobody, and still works. */
	EXPECT_NE(MAP_FAILED, map_shared(qpfd, 0, 4096));
	close(qpfd);
}

/* R16: an object belongs to its descriptor, which any thread and any process may use. */
static int map_it(void *arg)
{
	char *at = map_shared(*(int *)arg, 0, 4096);

	if (at == MAP_FAILED)
		return 1;
	fill_bytes(at, 0x77, 4096);
	return 0;
}

TEST_F(abi, descriptors_work_in_another_process)
{
	struct gkvdrv_qp qp;
	int fd = qp_create(self->gkv, &qp, 64, 0, 0);
	char *at;

	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, 4096);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(0, in_child(65534, map_it, &fd));
	EXPECT_EQ(-1, differs(at, 0x77, 4096));
	munmap(at, 4096);
	close(fd);
}

TEST_HARNESS_MAIN
