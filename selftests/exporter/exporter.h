/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * /dev/gkv-exporter: dma-bufs of the BAR of a function that is bound to the driver
 * "gkv-exporter". For tests only.
 */
#ifndef GKV_EXPORTER_H
#define GKV_EXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* How the buffer's bytes lie in the BAR. */
#define EXPORTER_PLAIN		0u	/* in one piece, at @offset */
#define EXPORTER_REVERSED	1u	/* pieces of @piece bytes, the last one first */
#define EXPORTER_TWICE		2u	/* its second page is its first one */
#define EXPORTER_SYSTEM		3u	/* not in the BAR at all: system memory */
#define EXPORTER_ODD		4u	/* a piece that is not whole pages */
#define EXPORTER_SHORT		5u	/* a page less is mapped than it has */

/* Where it fails. */
#define EXPORTER_FAIL_NONE	0u
#define EXPORTER_FAIL_ATTACH	1u
#define EXPORTER_FAIL_PIN	2u
#define EXPORTER_FAIL_MAP	3u	/* an error */
#define EXPORTER_FAIL_NULL	4u	/* NULL, as some drivers do */

/* What its reservation holds until EXPORTER_SIGNAL. */
#define EXPORTER_FENCE_NONE	0u
#define EXPORTER_FENCE_KERNEL	1u	/* the exporter itself still moves or clears it */
#define EXPORTER_FENCE_WRITE	2u	/* somebody's program writes to it */

/**
 * struct exporter_make - EXPORTER_MAKE: a dma-buf
 * @offset: where in the BAR
 * @len: bytes
 * @layout: EXPORTER_PLAIN, ...
 * @piece: bytes of a piece
 * @fail: EXPORTER_FAIL_*
 * @flags: O_RDWR, O_CLOEXEC, of the descriptor
 * @fd: returns it
 * @fence: EXPORTER_FENCE_*
 */
struct exporter_make {
	__aligned_u64 offset;
	__aligned_u64 len;
	__u32	layout;
	__u32	piece;
	__u32	fail;
	__u32	flags;
	__s32	fd;
	__u32	fence;
};

/**
 * struct exporter_state - EXPORTER_STATE: of a dma-buf, or of all of them
 * @fd: which; -1: all that there are
 * @buffers: dma-bufs
 * @attached: attachments
 * @pinned: pins
 * @mapped: mappings
 * @rsvd: zero
 */
struct exporter_state {
	__s32	fd;
	__u32	buffers;
	__u32	attached;
	__u32	pinned;
	__u32	mapped;
	__u32	rsvd;
};

#define EXPORTER_MAKE	_IOWR(0xba, 0, struct exporter_make)
#define EXPORTER_STATE	_IOWR(0xba, 1, struct exporter_state)
/* Takes a dma-buf back, argument its descriptor: waits until nobody has it mapped, -ETIMEDOUT. */
#define EXPORTER_REVOKE	_IO(0xba, 2)
/* Says that it moved, and waits for nobody. */
#define EXPORTER_MOVE	_IO(0xba, 3)
/* Signals its fence. */
#define EXPORTER_SIGNAL	_IO(0xba, 4)

#endif
