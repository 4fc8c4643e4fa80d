/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GKVDRV_IMPORT_H
#define GKVDRV_IMPORT_H

struct gkv_mem;

/* Unmap, unpin, detach and let go of the dma-buf. Nobody uses its pages any more. Sleeps. */
void gkv_import_release(struct gkv_mem *mem);

#endif
