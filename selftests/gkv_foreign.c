// SPDX-License-Identifier: MIT
/*
 * A span of another driver's BAR is a provider when an administrator says so: claimed whole or not
 * at all, for imports only, and gone before its owner is. The owner here is the test exporter.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#define BAR	2

FIXTURE(foreign) {
	int gkv, exporter;
	const char *bdf;
	uint64_t bar_len;
};

FIXTURE_SETUP(foreign)
{
	uint64_t start, end;

	if (exporter_missing())
		SKIP(return, "%s", exporter_missing());
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->exporter = exporter_start(&self->bdf);
	ASSERT_GE(self->exporter, 0);
	ASSERT_EQ(0, pci_bar(self->bdf, BAR, &start, &end));
	self->bar_len = end - start + 1;
}

FIXTURE_TEARDOWN(foreign)
{
	struct gkvdrv_provider p;

	EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf));
	/* With the owner every provider on its function went. */
	EXPECT_EQ(-ENOENT, provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p));
	close(self->gkv);
}

static int add(FIXTURE_DATA(foreign) *self, uint64_t offset, uint64_t len)
{
	return provider_add(self->gkv, self->bdf, BAR, offset, len);
}

TEST_F(foreign, is_what_was_registered)
{
	struct gkvdrv_provider p;
	struct pci_id id;
	uint64_t start, end;
	int n = add(self, 4 * MIB, 8 * MIB);

	ASSERT_GT(n, 0) {
		TH_LOG("%s", why.text);
	}
	ASSERT_EQ(n, provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p));
	ASSERT_EQ(0, pci_parse(self->bdf, &id));
	ASSERT_EQ(0, pci_bar(self->bdf, BAR, &start, &end));
	EXPECT_EQ(id.domain, p.domain);
	EXPECT_EQ(id.bdf, p.bdf);
	EXPECT_EQ(BAR, (int)p.bar);
	EXPECT_EQ(4 * MIB, p.offset);
	EXPECT_EQ(8 * MIB, p.len);
	EXPECT_EQ(0ull, p.used);
	EXPECT_EQ(0u, p.nr_objects);
	EXPECT_EQ(start + 4 * MIB, p.bus);
	EXPECT_EQ(0, provider_del(self->gkv, n));
	EXPECT_EQ(-ENOENT, provider_del(self->gkv, n));
	EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
	EXPECT_EQ(-ENOENT, provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p));
}

/* Nothing is ever allocated from what another driver owns. */
TEST_F(foreign, gives_out_nothing_by_itself)
{
	int n = add(self, 4 * MIB, 8 * MIB);
	struct gkvdrv_qp qp;

	ASSERT_GT(n, 0);
	EXPECT_EQ(-EINVAL, region_alloc(self->gkv, n, 4096));
	EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
	for (uint32_t mode = 1; mode < 8; mode++) {
		EXPECT_EQ(-EINVAL, qp_create(self->gkv, &qp, 8, mode, n));
		EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
	}
	EXPECT_EQ(0, provider_used(self->gkv, n));
}

/* F50, F37, F27, R8: the reason says what was met, such as a BAR smaller than the VRAM. */
TEST_F(foreign, refusals_name_what_they_met)
{
	const uint64_t len = self->bar_len;
	const struct {
		uint32_t bar;
		uint64_t offset, len;
		int error;
		uint32_t reason;
	} bad[] = {
		{ 2, 4 * MIB, 0, EINVAL, GKVDRV_WHY_SIZE },
		{ 2, len, 2 * MIB, EINVAL, GKVDRV_WHY_SIZE },
		{ 2, len - 2 * MIB, 4 * MIB, EINVAL, GKVDRV_WHY_SIZE },
		{ 2, 2 * MIB, -(2 * MIB), EINVAL, GKVDRV_WHY_SIZE },
		{ 2, -(2 * MIB), 4 * MIB, EINVAL, GKVDRV_WHY_SIZE },
		{ 2, 0, -1ull, EINVAL, GKVDRV_WHY_SIZE },
		{ 2, 1 * MIB, 2 * MIB, EINVAL, GKVDRV_WHY_ALIGN },
		{ 2, 2 * MIB, 1 * MIB, EINVAL, GKVDRV_WHY_ALIGN },
		{ 2, 2 * MIB + 4096, 2 * MIB, EINVAL, GKVDRV_WHY_ALIGN },
		{ 0, 0, 4096, EINVAL, 0 },
		{ 1, 0, 2 * MIB, EINVAL, GKVDRV_WHY_BAR },
		{ 3, 0, 2 * MIB, EINVAL, GKVDRV_WHY_BAR },
		{ 6, 0, 2 * MIB, EINVAL, GKVDRV_WHY_BAR },
		{ ~0u, 0, 2 * MIB, EINVAL, GKVDRV_WHY_BAR },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT_EQ(-bad[i].error, provider_add(self->gkv, self->bdf, bad[i].bar,
						      bad[i].offset, bad[i].len)) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_NE(0u, why.reason);
		if (bad[i].reason)
			EXPECT_EQ(bad[i].reason, why.reason) {
				TH_LOG("case %zu: %s", i, why.text);
			}
		EXPECT_NE(NULL, strstr(why.text, self->bdf));
		/* Both of the numbers that do not go together. */
		if (bad[i].reason == GKVDRV_WHY_SIZE && bad[i].len) {
			char asked[32], has[32];

			snprintf(asked, sizeof(asked), " %#lx bytes", bad[i].len);
			snprintf(has, sizeof(has), " of %#lx bytes", len);
			EXPECT_TRUE(strstr(why.text, asked) && strstr(why.text, has)) {
				TH_LOG("case %zu: %s", i, why.text);
			}
		}
	}
}

/*
 * F51, F53: a part of the span is mapped with other cache attributes than the rest. That is refused
 * with the reason, without a warning of the kernel; one that is the same all over is adopted.
 */
TEST_F(foreign, a_conflict_of_memory_types_is_named)
{
	static const char * const files[] = { "resource2_wc", "resource2" };
	char path[128], *at[2];

	for (int i = 0; i < 2; i++) {
		int fd;

		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", self->bdf, files[i]);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0 && i == 0 && errno == ENOENT &&
		    strcmp(getenv("GKV_KERNEL") ?: "", "newest"))
			SKIP(return, "this kernel has no memory types (CONFIG_X86_PAT)");
		ASSERT_GE(fd, 0);
		at[i] = map_shared(fd, (4 + 4 * i) * MIB, 4 * MIB);
		ASSERT_NE(MAP_FAILED, at[i]);
		close(fd);
	}
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(-EBUSY, add(self, 4 * MIB, 8 * MIB));
		EXPECT_EQ(GKVDRV_WHY_MEMTYPE, why.reason);
		EXPECT_NE(NULL, strstr(why.text, self->bdf));
		EXPECT_NE(NULL, strstr(why.text, "memory type")) {
			TH_LOG("%s", why.text);
		}
	}
	/* The core keeps an empty pool. */
	EXPECT_LE(pci_p2pmem(self->bdf, "size"), 0);
	/* Each half by itself has one type. */
	EXPECT_GT(add(self, 4 * MIB, 4 * MIB), 0) {
		TH_LOG("%s", why.text);
	}
	munmap(at[0], 4 * MIB);
	munmap(at[1], 4 * MIB);
	EXPECT_GT(add(self, 8 * MIB, 4 * MIB), 0) {
		TH_LOG("%s", why.text);
	}
}

/* R4, R8: the function is the one that was named, domain and all. */
TEST_F(foreign, a_function_is_named_in_full)
{
	EXPECT_EQ(-ENODEV, provider_add(self->gkv, "0001:00:00.0", BAR, 0, 2 * MIB));
	EXPECT_EQ(GKVDRV_WHY_DEVICE, why.reason);
	EXPECT_NE(NULL, strstr(why.text, "0001:00:00.0"));
	EXPECT_EQ(-ENODEV, provider_add(self->gkv, "0000:ff:1f.7", BAR, 0, 2 * MIB));
	EXPECT_EQ(GKVDRV_WHY_DEVICE, why.reason);
	/* One that nobody drives is a carve-out's business. */
	ASSERT_EQ(0, pci_unbind(self->bdf));
	EXPECT_EQ(-ENODEV, add(self, 0, 2 * MIB));
	EXPECT_EQ(GKVDRV_WHY_DEVICE, why.reason);
	ASSERT_EQ(0, pci_bind(self->bdf, "gkv-exporter"));
}

TEST_F(foreign, no_page_is_in_two_providers)
{
	int n = add(self, 4 * MIB, 8 * MIB), other;

	ASSERT_GT(n, 0);
	EXPECT_EQ(-EBUSY, add(self, 4 * MIB, 8 * MIB));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	EXPECT_EQ(-EBUSY, add(self, 2 * MIB, 4 * MIB));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	EXPECT_EQ(-EBUSY, add(self, 10 * MIB, 4 * MIB));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	EXPECT_EQ(-EBUSY, add(self, 0, self->bar_len));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	/* Beside it on both sides. */
	other = add(self, 2 * MIB, 2 * MIB);
	EXPECT_GT(other, n);
	other = add(self, 12 * MIB, 2 * MIB);
	EXPECT_GT(other, n);
}

/*
 * F64: only the slice that was registered has pages, and what is beside it none. Fact: the core
 * offers them to root through sysfs, so all of them are claimed.
 */
TEST_F(foreign, nobody_else_gets_its_pages)
{
	int n = add(self, 4 * MIB, 8 * MIB), fd;
	char path[128];

	ASSERT_GT(n, 0);
	EXPECT_EQ((int64_t)(8 * MIB), pci_p2pmem(self->bdf, "size"));
	EXPECT_EQ(0, pci_p2pmem(self->bdf, "available"));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/p2pmem/allocate", self->bdf);
	fd = open(path, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(MAP_FAILED, map_shared(fd, 0, 4096));
	EXPECT_EQ(0, provider_del(self->gkv, n));
	EXPECT_EQ((int64_t)(8 * MIB), pci_p2pmem(self->bdf, "available"));
	close(fd);
}

/* What the core has given to somebody else is not taken from him. */
TEST_F(foreign, claimed_whole_or_not_at_all)
{
	int n = add(self, 4 * MIB, 8 * MIB), fd;
	char path[128], *at;

	ASSERT_GT(n, 0);
	ASSERT_EQ(0, provider_del(self->gkv, n));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/p2pmem/allocate", self->bdf);
	fd = open(path, O_RDWR);
	ASSERT_GE(fd, 0);
	at = map_shared(fd, 0, 4096);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-EBUSY, add(self, 4 * MIB, 8 * MIB));
	EXPECT_EQ(GKVDRV_WHY_CLAIMED, why.reason);
	EXPECT_NE(NULL, strstr(why.text, "available"));
	/* Some of it has pages, some has none. */
	EXPECT_EQ(-EBUSY, add(self, 10 * MIB, 4 * MIB));
	EXPECT_EQ(GKVDRV_WHY_CLAIMED, why.reason);
	fill_bytes(at, 7, 4096);
	EXPECT_EQ(-1, differs(at, 7, 4096));
	munmap(at, 4096);
	close(fd);
	n = add(self, 4 * MIB, 8 * MIB);
	EXPECT_GT(n, 0);
}

/* F46: pages that were made once are adopted, with their references as they should be. */
TEST_F(foreign, added_again_and_again)
{
	int a, b;

	for (int round = 0; round < 10; round++) {
		a = add(self, 4 * MIB, 2 * MIB);
		ASSERT_GT(a, 0);
		ASSERT_EQ(0, provider_del(self->gkv, a));
	}
	/* Several spans of one size, in every order. */
	for (int round = 0; round < 6; round++) {
		a = add(self, 4 * MIB, 2 * MIB);
		ASSERT_GT(a, 0);
		b = add(self, 8 * MIB, 2 * MIB);
		ASSERT_GT(b, 0) {
			TH_LOG("%s", why.text);
		}
		ASSERT_EQ(0, provider_del(self->gkv, round & 1 ? a : b));
		ASSERT_EQ(0, provider_del(self->gkv, round & 1 ? b : a));
		b = add(self, 8 * MIB, 2 * MIB);
		ASSERT_GT(b, 0) {
			TH_LOG("%s", why.text);
		}
		ASSERT_EQ(0, provider_del(self->gkv, b));
	}
	EXPECT_EQ((int64_t)(4 * MIB), pci_p2pmem(self->bdf, "available"));
}

TEST_F(foreign, unbind_and_rebind_of_the_owner)
{
	for (int round = 0; round < 10; round++) {
		int n = add(self, 4 * MIB, 8 * MIB);
		struct gkvdrv_provider p;

		ASSERT_GT(n, 0);
		ASSERT_EQ(0, pci_unbind(self->bdf));
		EXPECT_EQ(-ENOENT, provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p));
		EXPECT_EQ(-ENOENT, pci_p2pmem(self->bdf, "size"));
		/* "Resources present before probing" would be what gkvdrv left behind. */
		ASSERT_EQ(0, pci_bind(self->bdf, "gkv-exporter"));
	}
}

/* The module goes and comes again: what it left with the function is used again. */
TEST_F(foreign, over_a_reload_of_the_module)
{
	int n = add(self, 4 * MIB, 8 * MIB);

	ASSERT_GT(n, 0);
	close(self->gkv);
	ASSERT_EQ(0, module_unload("gkvdrv"));
	EXPECT_EQ((int64_t)(8 * MIB), pci_p2pmem(self->bdf, "available"));
	ASSERT_EQ(0, module_load("gkvdrv", NULL));
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	EXPECT_GT(add(self, 4 * MIB, 8 * MIB), 0) {
		TH_LOG("%s", why.text);
	}
}

static int may_not(void *arg)
{
	struct gkvdrv_provider p = { .id = 1 };
	int gkv = ((int *)arg)[0], n = ((int *)arg)[1];

	if (provider_add(gkv, getenv("GKV_VRAM2_BDF"), BAR, 0, 2 * MIB) != -EPERM)
		return 1;
	if (provider_del(gkv, n) != -EPERM)
		return 2;
	/* What there is anyone who has the node may see, but no bus addresses. */
	p.id = n;
	if (gkv_call(gkv, GKVDRV_PROVIDER_INFO, &p) || (int)p.id != n || p.bus)
		return 3;
	return 0;
}

/* R13 */
TEST_F(foreign, is_for_the_administrator)
{
	int args[2] = { self->gkv, add(self, 4 * MIB, 8 * MIB) };

	ASSERT_GT(args[1], 0);
	EXPECT_EQ(0, in_child(65534, may_not, args));
}

/* F103, F111: registering, withdrawing and unbinding at once. */
TEST_F(foreign, races_with_its_owners_unbind)
{
	pid_t pid = fork();
	uint64_t until;
	int status;

	ASSERT_GE(pid, 0);
	until = now_ms() + 4000;
	if (pid == 0) {
		while (now_ms() < until) {
			int n = add(self, 4 * MIB, 2 * MIB);

			if (n > 0)
				provider_del(self->gkv, n);
			else if (n != -ENODEV && n != -EBUSY)
				_exit(1);
		}
		_exit(0);
	}
	while (now_ms() < until) {
		ASSERT_EQ(0, pci_unbind(self->bdf));
		ASSERT_EQ(0, pci_bind(self->bdf, "gkv-exporter"));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* A carve-out is given up by unbinding it, and by nothing else. */
TEST_F(foreign, a_carve_out_cannot_be_withdrawn)
{
	int n = vram_provider(self->gkv);

	ASSERT_GT(n, 0);
	EXPECT_EQ(-ENOENT, provider_del(self->gkv, n));
	EXPECT_EQ(0, provider_used(self->gkv, n));
	EXPECT_EQ(-EBUSY, provider_add(self->gkv, getenv("GKV_VRAM_BDF"), BAR, 0, 2 * MIB));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
}

TEST_HARNESS_MAIN
