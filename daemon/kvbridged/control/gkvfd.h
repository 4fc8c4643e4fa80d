/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of the kernel module, as clients send them: what they are, and where the memory
 * behind them lies. Control thread.
 */
#ifndef KVB_GKVFD_H
#define KVB_GKVFD_H

#include <stddef.h>
#include <stdint.h>

#include <gkv/gkvdrv.h>

#include "core/err.h"

enum kvb_gkvfd { KVB_GKVFD_NOT, KVB_GKVFD_REGION, KVB_GKVFD_QP };

/* Where memory is. Host memory has only @place. */
struct kvb_place {
	uint32_t place;		/* GKVDRV_HOST, GKVDRV_VRAM, GKVDRV_GONE */
	uint32_t provider;
	uint32_t domain, bdf, bar;
};

/* A part of a queue pair, or a region, in its descriptor. */
struct kvb_gkvpart {
	struct kvb_place at;
	uint64_t start;		/* offset of its first page */
	uint64_t pages;		/* bytes of its pages */
	uint64_t len;		/* bytes of its own */
	uint64_t page_id;	/* the module's number of its first page; 0: it tells none */
};

/*
 * What @fd is. Asks the kernel's own tables only: an ioctl(), or fstat() even, on what a client
 * sent may be answered by that client, when it likes.
 */
enum kvb_gkvfd kvb_gkvfd_kind(int fd);

/*
 * Where part @part, GKVDRV_SQ to GKVDRV_DB or 0 of a region, of @fd is. 0 or a negative errno
 * with text, in which @what names it.
 */
int kvb_gkvfd_part(int fd, uint32_t part, const char *what, struct kvb_gkvpart *out,
		   struct kvb_err *err);

/* Of one in VRAM: "0000:03:00.0 bar 2"; returns @buf. */
const char *kvb_place_function(const struct kvb_place *p, char *buf, size_t len);

/* "host", "gone" or "vram provider 1 0000:03:00.0 bar 2"; returns @buf. */
const char *kvb_place_text(const struct kvb_place *p, char *buf, size_t len);

#endif
