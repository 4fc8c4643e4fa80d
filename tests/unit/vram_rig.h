/* SPDX-License-Identifier: MIT */
/*
 * lib_rig.h with a fake /dev/gkv: a provider of each kind. Include after cmocka.h, in one file
 * of a program.
 */
#ifndef VRAM_RIG_H
#define VRAM_RIG_H

#include "fakedrv.h"
#include "lib_rig.h"

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
