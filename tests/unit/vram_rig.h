/* SPDX-License-Identifier: MIT */
/*
 * lib_rig.h with a fake /dev/gkv: a provider of each kind. Include after cmocka.h, in one file
 * of a program.
 */
#ifndef VRAM_RIG_H
#define VRAM_RIG_H

#include "fakedrv.h"
#include "lib_rig.h"

#define assert_says(call, err, text) do {					\
	assert_int_equal(call, err);						\
	if (!strstr(gkv_error(), text))						\
		fail_msg("'%s' does not say '%s'", gkv_error(), text);		\
} while (0)

static inline void assert_place(const struct gkv_place *p, uint32_t where, uint32_t provider)
{
	assert_int_equal(p->where, where);
	assert_int_equal(p->provider, provider);
	assert_int_equal(p->domain, provider ? 1 : 0);
	assert_int_equal(p->bdf, provider ? 0x0300 + provider : 0);
	assert_int_equal(p->bar, provider ? 2 : 0);
}

static inline struct gkv_mem *vram(size_t len)
{
	struct gkv_mem *mem;

	if (gkv_mem_alloc_vram(g, 0, len, &mem))
		fail_msg("%s", gkv_error());
	return mem;
}

static inline int setup_vram(void **state)
{
	(void)state;
	fakedrv_init();
	fakedrv_provider(0, 3, GKVDRV_FOREIGN);
	fakedrv_provider(1, 5, GKVDRV_CARVEOUT);
	fake_init(&fake);
	fake.is_drv = fakedrv_is;
	fake_stop(&fake);
	fake.hello.features |= GKV_FEATURE_VRAM;
	fake_start(&fake);
	return gkv_connect(&g, fake.path, 0, 0);
}

static inline int teardown_vram(void **state)
{
	teardown(state);
	fakedrv_fini();
	return 0;
}

#endif
