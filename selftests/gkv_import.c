// SPDX-License-Identifier: MIT
/*
 * A dma-buf becomes a region only if every byte of it is in the provider's BAR, pinned there and not
 * used by another region; what fails or is refused leaves nothing behind.
 */
#include "dmabuf.h"

#include <linux/udmabuf.h>

/* R6, R9, R11: an address is in the provider's part of the BAR, or it is refused. */
TEST_F(dmabuf, what_is_not_in_the_provider_is_refused)
{
	static const struct {
		uint32_t layout;
		uint64_t offset;	/* in the BAR */
		int error;
		uint32_t reason;
	} bad[] = {
		{ EXPORTER_PLAIN, SLICE - 65536, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, SLICE - 4096, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, SLICE + LEN, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, SLICE + LEN - 4096, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, 1ull << 40, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_PLAIN, -65536ull, EREMOTEIO, GKVDRV_WHY_ADDRESS },
		{ EXPORTER_SYSTEM, SLICE, EREMOTEIO, GKVDRV_WHY_SYSTEM },
		{ EXPORTER_ODD, SLICE, EREMOTEIO, GKVDRV_WHY_ALIGN },
		{ EXPORTER_SHORT, SLICE, EREMOTEIO, GKVDRV_WHY_SIZE },
		{ EXPORTER_TWICE, SLICE, EBUSY, GKVDRV_WHY_OVERLAP },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int buf = exporter_make(self->exporter, bad[i].layout, bad[i].offset, 65536);
		struct exporter_state s;

		ASSERT_GE(buf, 0);
		EXPECT_EQ(-bad[i].error, import(self, buf, 0, 0)) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_EQ(bad[i].reason, why.reason) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_NE('\0', why.text[0]);
		s = exporter_state(self->exporter, buf);
		EXPECT_EQ(0u, s.attached + s.pinned + s.mapped);
		EXPECT_EQ(0, provider_used(self->gkv, self->provider));
		close(buf);
	}
}

/* R11, F36: memory of the system is not mistaken for VRAM. */
TEST_F(dmabuf, udmabuf_is_system_memory)
{
	int mem = memfd_create("host", MFD_ALLOW_SEALING), dev = open("/dev/udmabuf", O_RDWR), buf;
	struct udmabuf_create create = { .memfd = mem, .size = MIB };

	if (dev < 0)
		SKIP(return, "this kernel has no udmabuf");
	ASSERT_EQ(0, ftruncate(mem, MIB));
	ASSERT_EQ(0, fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK));
	buf = ioctl(dev, UDMABUF_CREATE, &create);
	ASSERT_GE(buf, 0);
	EXPECT_EQ(-EREMOTEIO, import(self, buf, 0, 0));
	EXPECT_EQ(strcmp(getenv("GKV_IOMMU"), "translate") ? GKVDRV_WHY_SYSTEM :
							     GKVDRV_WHY_ADDRESS, why.reason);
	close(buf);
	close(mem);
	close(dev);
}

/*
 * F43, F49, F62, F67: each step that fails takes those before it back, as often as one likes; the
 * text names the exporter, what it did not do, and its error.
 */
TEST_F(dmabuf, each_step_fails_cleanly)
{
	static const struct {
		uint32_t fail;
		int error;
		const char *says;
	} steps[] = {
		{ EXPORTER_FAIL_ATTACH, EIO, "does not let" },
		{ EXPORTER_FAIL_PIN, ENOSPC, "does not pin" },
		{ EXPORTER_FAIL_MAP, ENXIO, "does not map" },
		{ EXPORTER_FAIL_NULL, ENOMEM, "does not map" },
	};

	for (int i = 0; i < 200; i++) {
		struct exporter_make how = {
			.offset = SLICE, .len = MIB, .fail = steps[i % 4].fail,
		};
		int buf = exporter_make_as(self->exporter, &how);
		struct exporter_state s;
		char error[32];

		ASSERT_GE(buf, 0);
		ASSERT_EQ(-steps[i % 4].error, import(self, buf, 0, 0)) {
			TH_LOG("step %u: %s", steps[i % 4].fail, why.text);
		}
		ASSERT_EQ(GKVDRV_WHY_EXPORTER, why.reason);
		snprintf(error, sizeof(error), "error -%d", steps[i % 4].error);
		ASSERT_TRUE(strstr(why.text, "exporter ") && strstr(why.text, steps[i % 4].says) &&
			    strstr(why.text, error)) {
			TH_LOG("%s", why.text);
		}
		s = exporter_state(self->exporter, buf);
		ASSERT_EQ(0u, s.attached + s.pinned + s.mapped);
		close(buf);
	}
	EXPECT_TRUE(eventually(exporter_state(self->exporter, -1).buffers == 0));
}

TEST_F(dmabuf, ranges_are_whole_pages_within_the_buffer)
{
	static const struct {
		uint64_t offset, len;
		uint32_t reason;
	} bad[] = {
		{ MIB, 0, GKVDRV_WHY_SIZE }, { MIB, 4096, GKVDRV_WHY_SIZE },
		{ 0, MIB + 4096, GKVDRV_WHY_SIZE }, { 4096, MIB, GKVDRV_WHY_SIZE },
		{ -4096ull, 8192, GKVDRV_WHY_SIZE }, { 4096, -4096ull, GKVDRV_WHY_SIZE },
		{ 512, 4096, GKVDRV_WHY_ALIGN }, { 0, 100, GKVDRV_WHY_ALIGN },
		{ 100, 0, GKVDRV_WHY_ALIGN },
	};
	int buf = plain(self, 0, MIB);

	ASSERT_GE(buf, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT_EQ(-EINVAL, import(self, buf, bad[i].offset, bad[i].len)) {
			TH_LOG("case %zu: %s", i, why.text);
		}
		EXPECT_EQ(bad[i].reason, why.reason);
	}
	EXPECT_EQ(-ENOENT, region_import(self->gkv, 0, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_PROVIDER, why.reason);
	close(buf);
}

TEST_F(dmabuf, a_page_is_in_one_region)
{
	int buf = plain(self, 0, MIB), other = plain(self, MIB - 4096, MIB), fd, again;

	ASSERT_GE(buf, 0);
	ASSERT_GE(other, 0);
	fd = import(self, buf, 0, 0);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(-EBUSY, import(self, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	EXPECT_EQ(-EBUSY, import(self, other, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_OVERLAP, why.reason);
	/* The text names the caller's page, not its place in the BAR, which is kept from users. */
	EXPECT_NE(NULL, strstr(why.text, "page 0 of the 256 asked for")) {
		TH_LOG("%s", why.text);
	}
	again = import(self, other, 4096, 0);
	ASSERT_GE(again, 0);
	close(fd);
	/* F11: a moment later it is free again. */
	EXPECT_TRUE(eventually((fd = import(self, buf, 0, 0)) >= 0));
	close(fd);
	close(again);
	close(buf);
	close(other);
}

/* Stores would go past what its owner allowed. */
TEST_F(dmabuf, one_for_reading_only_is_refused)
{
	struct exporter_make how = { .offset = SLICE, .len = MIB, .flags = O_RDONLY | O_CLOEXEC };
	int buf = exporter_make_as(self->exporter, &how);

	ASSERT_GE(buf, 0);
	EXPECT_EQ(-EACCES, import(self, buf, 0, 0));
	EXPECT_EQ(GKVDRV_WHY_EXPORTER, why.reason);
	close(buf);
}

TEST_HARNESS_MAIN
