// SPDX-License-Identifier: MIT
/*
 * Machines that cannot: a BAR that is too small to be made into pages, no VRAM at all. Refused with
 * the reason, without a warning of the kernel; and what needs no VRAM works.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

static bool is(const char *name, const char *value)
{
	const char *have = getenv(name);

	return have && strcmp(have, value) == 0;
}

/* Whether the kernel's log has the text. */
static bool logged(const char *text)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char line[8192];
	bool found = false;
	ssize_t len;

	while (!found && (len = read(fd, line, sizeof(line) - 1)) > 0) {
		line[len] = '\0';
		found = strstr(line, text) != NULL;
	}
	close(fd);
	return found;
}

/* A queue pair in host memory, from end to end. */
static bool host_memory_works(int gkv)
{
	struct gkvdrv_qp qp;
	int fd = qp_create(gkv, &qp, 1024, 0, 0);
	char *at = fd < 0 ? MAP_FAILED : map_shared(fd, 0, 65536);
	bool good;

	if (at == MAP_FAILED)
		return false;
	good = differs(at, 0, 65536) == -1 && can_write(at + 65535);
	munmap(at, 65536);
	close(fd);
	return good;
}

/* F37, F41: the text in the log is all there is to go by when a driver does not bind. */
TEST(a_bar_of_one_mib_is_refused_with_the_reason)
{
	const char *bdf = getenv("GKV_VRAM_BDF");
	int gkv = gkv_open();

	if (!is("GKV_TOPOLOGY", "switch-1m"))
		SKIP(return, "this machine's BAR is large enough");
	ASSERT_GE(gkv, 0);
	for (int i = 0; i < 3; i++)
		EXPECT_LT(pci_bind(bdf, "gkvdrv"), 0);
	EXPECT_TRUE(pci_has_driver(bdf, NULL));
	EXPECT_EQ(0, access("/dev/gkv", F_OK));
	EXPECT_TRUE(logged(kernel_has_p2pdma() ? "both must be multiples of 0x200000" :
						 "CONFIG_PCI_P2PDMA"));
	EXPECT_TRUE(host_memory_works(gkv));
	close(gkv);
}

/* F42: the option that is missing is named. */
TEST(without_p2pdma_binding_names_it)
{
	const char *bdf = getenv("GKV_VRAM_BDF");

	if (kernel_has_p2pdma())
		SKIP(return, "this kernel has CONFIG_PCI_P2PDMA");
	if (!bdf)
		SKIP(return, "this machine has no VRAM device");
	EXPECT_LT(pci_bind(bdf, "gkvdrv"), 0);
	EXPECT_TRUE(pci_has_driver(bdf, NULL));
	EXPECT_TRUE(logged("CONFIG_PCI_P2PDMA"));
}

/* F60: nothing there is no reason to fail at what does not need it. */
TEST(without_vram_host_memory_works)
{
	struct gkvdrv_provider p = { };
	struct gkvdrv_qp qp;
	int gkv = gkv_open();

	ASSERT_GE(gkv, 0);
	EXPECT_TRUE(host_memory_works(gkv));
	if (!is("GKV_TOPOLOGY", "none"))
		SKIP(return, "this machine has VRAM");
	EXPECT_EQ(-ENOENT, gkv_call(gkv, GKVDRV_PROVIDER_INFO, &p));
	if (kernel_has_p2pdma()) {
		EXPECT_EQ(-ENOENT, region_alloc(gkv, 1, 4096));
		EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
		EXPECT_EQ(-ENOENT, qp_create(gkv, &qp, 8, 7, 1));
		EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
		/* The mode of data alone needs no provider. */
		EXPECT_GE(qp_create(gkv, &qp, 8, 8, 0), 0);
		close(qp.fd);
	}
	close(gkv);
}

/* A BAR that the administrator names is the one that is taken, or none. */
TEST(a_bar_that_is_not_memory_is_refused)
{
	const char *bdf = getenv("GKV_VRAM_BDF");

	if (!kernel_has_p2pdma() || !bdf)
		SKIP(return, "this machine has no VRAM");
	ASSERT_EQ(0, pci_unbind(bdf));
	ASSERT_EQ(0, module_unload("gkvdrv"));
	for (int bar = 1; bar <= 7; bar++) {
		char arguments[32];

		if (bar == 2)
			continue;
		snprintf(arguments, sizeof(arguments), "carveout_bar=%d", bar);
		ASSERT_EQ(0, module_load("gkvdrv", arguments));
		EXPECT_LT(pci_bind(bdf, "gkvdrv"), 0);
		ASSERT_EQ(0, module_unload("gkvdrv"));
	}
	ASSERT_EQ(0, module_load("gkvdrv", "carveout_bar=2"));
	if (!is("GKV_TOPOLOGY", "switch-1m"))
		EXPECT_EQ(0, pci_bind(bdf, "gkvdrv"));
	ASSERT_EQ(0, module_unload("gkvdrv"));
	ASSERT_EQ(0, module_load("gkvdrv", NULL));
}

TEST_HARNESS_MAIN
