/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * ioctls of /dev/gkv and of the descriptors it gives out.
 *
 * Every argument starts with struct gkvdrv_head. A caller sets @size to the size of
 * the struct it was compiled with: what a newer kernel adds reads as zero, what an
 * older kernel does not know must be zero (-E2BIG otherwise). Numbers do not carry
 * the size for that reason. All structs have the same layout on 32 and 64 bit.
 *
 * Errors, beyond what a command names: -EINVAL a value out of range or a reserved
 * field not zero; -EOPNOTSUPP an unknown flag, or what this kernel cannot do;
 * -EFAULT; -ENOTTY an unknown command. A refusal that depends on the machine also
 * says why: as a code in @reason and, if the caller gave a buffer, as one line of
 * text that names what was met and the limit.
 */
#ifndef _UAPI_GKV_GKVDRV_H
#define _UAPI_GKV_GKVDRV_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "assert.h"

#define GKVDRV_PATH		"/dev/gkv"
#define GKVDRV_ABI		1u
#define GKVDRV_TEXT		256u	/* no text is longer, its NUL included */

/**
 * struct gkvdrv_head - head of every argument
 * @size: bytes of the whole struct, as the caller knows it
 * @flags: zero, unless the command names flags
 * @reason: on return: GKVDRV_WHY_*, why the command was refused
 * @text_len: bytes at @text
 * @text: where to put the reason as text, NUL-terminated and cut to fit; or 0
 */
struct gkvdrv_head {
	__u32	size;
	__u32	flags;
	__u32	reason;
	__u32	text_len;
	__aligned_u64 text;
};
GKV_ASSERT_SIZE(gkvdrv_head, 24);

/* Why something was refused. Values are never used again for something else. */
#define GKVDRV_WHY_NONE		0u
#define GKVDRV_WHY_ABI		1u	/* built for another version of this interface */
#define GKVDRV_WHY_P2PDMA	2u	/* this kernel has no CONFIG_PCI_P2PDMA */
#define GKVDRV_WHY_PROVIDER	3u	/* no such provider, or none at all */
#define GKVDRV_WHY_BAR		4u	/* no such BAR, or not memory */
#define GKVDRV_WHY_ALIGN	5u	/* start or length not aligned as needed */
#define GKVDRV_WHY_SIZE		6u	/* too small, too large, or beyond the end */
#define GKVDRV_WHY_OVERLAP	7u	/* in use by something of gkvdrv */
#define GKVDRV_WHY_CLAIMED	8u	/* pages belong to somebody else already */
#define GKVDRV_WHY_MEMTYPE	9u	/* conflicting cache attributes */
#define GKVDRV_WHY_NOMEM	10u	/* no memory, or none left in the provider */
#define GKVDRV_WHY_LIMIT	11u	/* a limit of the user or of the module */
#define GKVDRV_WHY_MEMLOCK	12u	/* RLIMIT_MEMLOCK */
#define GKVDRV_WHY_EXPORTER	13u	/* the exporter refused peer-to-peer access */
#define GKVDRV_WHY_SYSTEM	14u	/* the exporter has the buffer in system memory */
#define GKVDRV_WHY_ADDRESS	15u	/* addresses are not those of the provider's BAR */
#define GKVDRV_WHY_REVOKED	16u	/* the memory is gone */
#define GKVDRV_WHY_MODE		17u	/* the placement contradicts the memory mode */
#define GKVDRV_WHY_TOPOLOGY	18u	/* no route for peer-to-peer DMA */
#define GKVDRV_WHY_IOMMU	19u	/* a translating IOMMU is in the way */
#define GKVDRV_WHY_DEVICE	20u	/* not a PCI device, or its driver cannot */

/* Capabilities. */
#define GKVDRV_CAP_VRAM		0x1u	/* providers, regions, VRAM modes */
#define GKVDRV_CAP_IMPORT	0x2u	/* dma-bufs */

/**
 * struct gkvdrv_info - GKVDRV_INFO: the handshake, limits and what is in use
 * @head: argument head
 * @abi: the caller's GKVDRV_ABI; returns the module's
 * @page_size: bytes of a page: unit of offsets, lengths and mappings
 * @caps: GKVDRV_CAP_*
 * @poll_interval_ns: how long a doorbell may go unseen
 * @max_queue_depth: deepest queue pair
 * @nr_providers: providers of VRAM
 * @max_user_objects: most pieces of memory of one user: a region, a part of a queue
 *	pair that does not lie in one
 * @user_objects: those of the caller's user
 * @max_user_bytes: most VRAM of one user, bytes
 * @user_bytes: that of the caller's user
 *
 * -EPROTO if the versions differ; @abi and the text tell which they are.
 */
struct gkvdrv_info {
	struct gkvdrv_head head;
	__u32	abi;
	__u32	page_size;
	__aligned_u64 caps;
	__aligned_u64 poll_interval_ns;
	__u32	max_queue_depth;
	__u32	nr_providers;
	__u32	max_user_objects;
	__u32	user_objects;
	__aligned_u64 max_user_bytes;
	__aligned_u64 user_bytes;
};
GKV_ASSERT_SIZE(gkvdrv_info, 80);
GKV_ASSERT_OFFSET(gkvdrv_info, max_user_bytes, 64);

#define GKVDRV_CARVEOUT		1u	/* gkvdrv drives the function, and may allocate */
#define GKVDRV_FOREIGN		2u	/* another driver's: imports only */

/**
 * struct gkvdrv_provider - a span of a BAR that serves as VRAM
 * @head: argument head
 * @id: identifier
 * @kind: GKVDRV_CARVEOUT or GKVDRV_FOREIGN
 * @domain: PCI domain of the function
 * @bdf: bus << 8 | device << 3 | function
 * @bar: index of the BAR, 0 to 5
 * @nr_objects: pieces in use
 * @offset: where in the BAR it starts
 * @len: bytes
 * @used: bytes in use
 * @bus: bus address of its start; 0 unless the caller has CAP_SYS_ADMIN
 *
 * GKVDRV_PROVIDER_INFO: the provider with the lowest identifier that is not below
 * @id; -ENOENT after the last.
 * GKVDRV_PROVIDER_ADD: register a span of a function that another driver owns, from
 * @domain, @bdf, @bar, @offset and @len; the rest must be zero. Returns @id.
 * CAP_SYS_ADMIN. -EBUSY when pages of it are taken.
 * GKVDRV_PROVIDER_DEL: withdraw a foreign one, @id; what was imported is revoked.
 * CAP_SYS_ADMIN.
 */
struct gkvdrv_provider {
	struct gkvdrv_head head;
	__u32	id;
	__u32	kind;
	__u32	domain;
	__u32	bdf;
	__u32	bar;
	__u32	nr_objects;
	__aligned_u64 offset;
	__aligned_u64 len;
	__aligned_u64 used;
	__aligned_u64 bus;
};
GKV_ASSERT_SIZE(gkvdrv_provider, 80);
GKV_ASSERT_OFFSET(gkvdrv_provider, offset, 48);

/**
 * struct gkvdrv_alloc - GKVDRV_ALLOC: a region in a carve-out, zeroed
 * @head: argument head
 * @provider: its identifier
 * @fd: returns the region's descriptor, close-on-exec
 * @len: bytes, a multiple of the page size
 */
struct gkvdrv_alloc {
	struct gkvdrv_head head;
	__u32	provider;
	__s32	fd;
	__aligned_u64 len;
};
GKV_ASSERT_SIZE(gkvdrv_alloc, 40);

/**
 * struct gkvdrv_import - GKVDRV_IMPORT: a region made of a dma-buf, or of a part of it
 * @head: argument head
 * @provider: whose memory it must be
 * @dmabuf: descriptor of the dma-buf; it may be closed afterwards
 * @fd: returns the region's descriptor, close-on-exec
 * @rsvd: zero
 * @offset: where in the dma-buf the region starts, a multiple of the page size
 * @len: bytes, a multiple of the page size; 0: to the end
 *
 * The buffer stays pinned for the life of the region. A page can be in one region
 * at a time.
 */
struct gkvdrv_import {
	struct gkvdrv_head head;
	__u32	provider;
	__s32	dmabuf;
	__s32	fd;
	__u32	rsvd;
	__aligned_u64 offset;
	__aligned_u64 len;
};
GKV_ASSERT_SIZE(gkvdrv_import, 56);

#define GKVDRV_SQ		0u
#define GKVDRV_CQ		1u
#define GKVDRV_DB		2u
#define GKVDRV_PARTS		3u

/**
 * struct gkvdrv_part - a part of a queue pair
 * @region: descriptor of the region it lies in, or -1
 * @provider: with @region -1, for a part in VRAM: the carve-out to allocate it from
 * @offset: with @region: where it starts there. SQ and CQ: a multiple of the page
 *	size; doorbells: a multiple of 8
 * @map_offset: returns the mmap() offset of the page it starts in, in the queue pair's
 *	descriptor
 * @len: returns its bytes
 *
 * A part whose bit in the memory mode is not set lies in host memory: @region is -1
 * and the rest is zero.
 */
struct gkvdrv_part {
	__s32	region;
	__u32	provider;
	__aligned_u64 offset;
	__aligned_u64 map_offset;
	__aligned_u64 len;
};
GKV_ASSERT_SIZE(gkvdrv_part, 32);

/**
 * struct gkvdrv_qp - GKVDRV_QP_CREATE: the memory of a queue pair, zeroed
 * @head: argument head
 * @depth: entries of SQ and of CQ
 * @mode: GKV_MODE_*: what lies in VRAM
 * @fd: returns its descriptor, close-on-exec
 * @dstrd: doorbells are 4 << @dstrd bytes apart, 0 to 15
 * @parts: by GKVDRV_SQ, GKVDRV_CQ, GKVDRV_DB
 *
 * The bits are binding: a part is where its bit says, or the call fails. Host memory
 * counts against RLIMIT_MEMLOCK. The part for doorbells holds those of one queue pair.
 */
struct gkvdrv_qp {
	struct gkvdrv_head head;
	__u32	depth;
	__u32	mode;
	__s32	fd;
	__u32	dstrd;
	struct gkvdrv_part parts[GKVDRV_PARTS];
};
GKV_ASSERT_SIZE(gkvdrv_qp, 136);
GKV_ASSERT_OFFSET(gkvdrv_qp, parts, 40);

/**
 * struct gkvdrv_run - bytes that lie one after the other
 * @bus: bus address of the first
 * @len: how many
 */
struct gkvdrv_run {
	__aligned_u64 bus;
	__aligned_u64 len;
};
GKV_ASSERT_SIZE(gkvdrv_run, 16);

#define GKVDRV_HOST		1u	/* system memory */
#define GKVDRV_VRAM		2u	/* a provider's BAR */
#define GKVDRV_GONE		3u	/* revoked */

/**
 * struct gkvdrv_report - GKVDRV_REPORT, on a region or a queue pair: where a part is
 * @head: argument head
 * @part: GKVDRV_SQ, ... of a queue pair; 0 of a region
 * @place: returns GKVDRV_HOST, GKVDRV_VRAM or GKVDRV_GONE
 * @provider: returns its identifier; like the next four, 0 for host memory
 * @domain: returns the PCI domain of its function
 * @bdf: returns bus << 8 | device << 3 | function
 * @bar: returns the BAR
 * @bar_offset: returns where in the BAR its first byte is; 0 unless the caller has
 *	CAP_SYS_ADMIN
 * @len: returns its bytes
 * @nr_pages: returns the pages that it touches
 * @mode: returns the memory mode of the queue pair, 0 for a region
 * @nr_runs: runs that fit into @runs; returns how many there are
 * @runs: where to put struct gkvdrv_run, by order of bytes; or 0. CAP_SYS_ADMIN, else
 *	-EPERM: addresses of a bus are not for everyone
 * @page_id: returns an opaque number, the same for all parts whose first byte lies in the
 *	same page of VRAM, for as long as the module is loaded; it tells nothing of where
 *	that is. 0 for host memory, and for what is gone
 */
struct gkvdrv_report {
	struct gkvdrv_head head;
	__u32	part;
	__u32	place;
	__u32	provider;
	__u32	domain;
	__u32	bdf;
	__u32	bar;
	__aligned_u64 bar_offset;
	__aligned_u64 len;
	__aligned_u64 nr_pages;
	__u32	mode;
	__u32	nr_runs;
	__aligned_u64 runs;
	__aligned_u64 page_id;
};
GKV_ASSERT_SIZE(gkvdrv_report, 96);
GKV_ASSERT_OFFSET(gkvdrv_report, bar_offset, 48);
GKV_ASSERT_OFFSET(gkvdrv_report, page_id, 88);

/**
 * struct gkvdrv_notify - GKVDRV_NOTIFY, on a region or a queue pair: tell of revocation
 * @head: argument head
 * @eventfd: one is added to it when the memory goes; at once if it is gone already.
 *	-1: nobody is told. One an object: a later one takes the place of the former
 * @rsvd: zero
 *
 * poll() on the region or queue pair reports POLLERR | POLLHUP as well.
 */
struct gkvdrv_notify {
	struct gkvdrv_head head;
	__s32	eventfd;
	__u32	rsvd;
};
GKV_ASSERT_SIZE(gkvdrv_notify, 32);

/**
 * struct gkvdrv_revoke - GKVDRV_REVOKE, on a region or a queue pair: give the memory up
 * @head: argument head
 *
 * From here on an access through any mapping of it ends in SIGBUS, in every process;
 * queue pairs with a part in a region go with it. Its pages are used again when DMA
 * under way has ended.
 */
struct gkvdrv_revoke {
	struct gkvdrv_head head;
};
GKV_ASSERT_SIZE(gkvdrv_revoke, 24);

#define GKVDRV_MAP_BUS		1u	/* straight to the bus address, below one switch */
#define GKVDRV_MAP_BRIDGE	2u	/* through the host bridge */

/**
 * struct gkvdrv_reach - GKVDRV_REACH, on a region: can this disk's controller reach it?
 * @head: argument head
 * @blkdev: descriptor of the block device
 * @map: returns GKVDRV_MAP_*
 * @distance: returns the number of hops between the functions
 * @rsvd: zero
 *
 * -EXDEV if not, with the reason. What the kernel believes: the caller had better
 * check with a transfer of a pattern.
 */
struct gkvdrv_reach {
	struct gkvdrv_head head;
	__s32	blkdev;
	__u32	map;
	__u32	distance;
	__u32	rsvd;
};
GKV_ASSERT_SIZE(gkvdrv_reach, 40);

#define GKVDRV_IOC		0xb9

/* On /dev/gkv. */
#define GKVDRV_INFO		_IO(GKVDRV_IOC, 0x00)
#define GKVDRV_PROVIDER_INFO	_IO(GKVDRV_IOC, 0x01)
#define GKVDRV_PROVIDER_ADD	_IO(GKVDRV_IOC, 0x02)
#define GKVDRV_PROVIDER_DEL	_IO(GKVDRV_IOC, 0x03)
#define GKVDRV_ALLOC		_IO(GKVDRV_IOC, 0x04)
#define GKVDRV_IMPORT		_IO(GKVDRV_IOC, 0x05)
#define GKVDRV_QP_CREATE	_IO(GKVDRV_IOC, 0x06)

/* On the descriptor of a region or a queue pair. */
#define GKVDRV_REPORT		_IO(GKVDRV_IOC, 0x40)
#define GKVDRV_NOTIFY		_IO(GKVDRV_IOC, 0x41)
#define GKVDRV_REVOKE		_IO(GKVDRV_IOC, 0x42)
#define GKVDRV_REACH		_IO(GKVDRV_IOC, 0x43)

#endif /* _UAPI_GKV_GKVDRV_H */
