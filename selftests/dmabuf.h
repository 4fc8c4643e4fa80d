/* SPDX-License-Identifier: MIT */
/*
 * For tests of imports: the test exporter on the second VRAM device, a provider in its BAR, and the
 * check that nothing of an import is left at the end.
 */
#ifndef GKVTEST_DMABUF_H
#define GKVTEST_DMABUF_H

#include "gkvtest.h"
#include "hostcheck.h"
#include "kselftest_harness.h"

#define BAR	2
#define SLICE	(16 * MIB)	/* where the provider starts in the BAR */
#define LEN	(64 * MIB)	/* and how long it is */

FIXTURE(dmabuf) {
	int gkv, exporter, provider;
	const char *bdf;
	uint64_t bus;		/* of the BAR */
};

FIXTURE_SETUP(dmabuf)
{
	uint64_t end;

	if (exporter_missing())
		SKIP(return, "%s", exporter_missing());
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->exporter = exporter_start(&self->bdf);
	ASSERT_GE(self->exporter, 0);
	ASSERT_EQ(0, pci_bar(self->bdf, BAR, &self->bus, &end));
	self->provider = provider_add(self->gkv, self->bdf, BAR, SLICE, LEN);
	ASSERT_GT(self->provider, 0);
}

FIXTURE_TEARDOWN(dmabuf)
{
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_TRUE(exporter_idle(self->exporter));
	EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf));
	close(self->gkv);
}

static inline int plain(FIXTURE_DATA(dmabuf) *self, uint64_t offset, uint64_t len)
{
	return exporter_make(self->exporter, EXPORTER_PLAIN, SLICE + offset, len);
}

static inline int import(FIXTURE_DATA(dmabuf) *self, int buf, uint64_t offset, uint64_t len)
{
	return region_import(self->gkv, self->provider, buf, offset, len);
}

#endif
