/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that gkvdrv builds on. Kbuild compiles a probe for each
 * GKV_HAVE_*: distributions move features between versions, so versions say nothing.
 */
#ifndef GKVDRV_COMPAT_H
#define GKVDRV_COMPAT_H

#include <linux/memremap.h>
#include <linux/slab.h>

#ifdef GKV_HAVE_INVALIDATE_MAPPINGS
#define gkv_invalidate_op	invalidate_mappings
#else
#define gkv_invalidate_op	move_notify
#endif

#ifndef kzalloc_obj
#define kzalloc_obj(P, gfp)	kzalloc(sizeof(P), gfp)
#endif

static inline struct dev_pagemap *gkv_dev_pagemap(unsigned long pfn)
{
#ifdef GKV_HAVE_DEV_PAGEMAP_PFN_ONLY
	return get_dev_pagemap(pfn);
#else
	return get_dev_pagemap(pfn, NULL);
#endif
}

#endif
