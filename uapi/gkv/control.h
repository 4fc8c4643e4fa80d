/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Messages of kvbridged's control socket (AF_UNIX, SOCK_SEQPACKET).
 *
 * A client sends one request and waits for its reply. Both start with struct
 * gkv_msg_hdr; each type has one fixed size per direction. Descriptors travel as
 * SCM_RIGHTS in the order the message names them. All integers little-endian,
 * all reserved fields zero (refused otherwise).
 *
 * The daemon accepts two kinds of memory descriptor: memfds sealed with at least
 * F_SEAL_SHRINK and F_SEAL_GROW, and those of /dev/gkv (GKV_FEATURE_VRAM): regions as
 * data, queue pairs as rings and doorbells.
 */
#ifndef _UAPI_GKV_CONTROL_H
#define _UAPI_GKV_CONTROL_H

#include "queue.h"

#define GKV_CTL_MAGIC		0x43564b47u	/* "GKVC" */
#define GKV_CTL_VERSION		1
#define GKV_CTL_MAX_FDS		4
#define GKV_CTL_TEXT		192
#define GKV_CTL_NAME		64
#define GKV_CTL_DATA		4096

#define GKV_MSG_HELLO		1
#define GKV_MSG_NS_OPEN		2
#define GKV_MSG_REGION_ADD	3
#define GKV_MSG_REGION_DEL	4
#define GKV_MSG_QP_ADD		5
#define GKV_MSG_QP_DEL		6
#define GKV_MSG_QP_RESET	7
#define GKV_MSG_ADMIN		8
#define GKV_MSG_QUERY		9
#define GKV_MSG_SET		10
#define GKV_MSG_REPLY		0x8000	/* or'ed into the type of a reply */

/**
 * struct gkv_msg_hdr - head of every message
 * @magic: GKV_CTL_MAGIC
 * @version: GKV_CTL_VERSION of the sender's choice; the hello settles it
 * @type: GKV_MSG_*
 * @size: bytes of the whole message
 * @seq: chosen by the client, returned in the reply
 * @error: reply: 0 or a positive errno
 * @rsvd: zero
 */
struct gkv_msg_hdr {
	__le32	magic;
	__le16	version;
	__le16	type;
	__le32	size;
	__le32	seq;
	__le32	error;
	__le32	rsvd;
};
GKV_ASSERT_SIZE(gkv_msg_hdr, 24);

/**
 * struct gkv_msg_reply - head of every reply
 * @hdr: message head
 * @text: when @hdr.error is set, what was refused, why and the limit, in one
 *	NUL-terminated line
 */
struct gkv_msg_reply {
	struct gkv_msg_hdr hdr;
	char	text[GKV_CTL_TEXT];
};
GKV_ASSERT_SIZE(gkv_msg_reply, 216);

/* Feature bits of the hello. */
#define GKV_FEATURE_CSUM	0x00000001u	/* GKV_QP_F_CSUM */
#define GKV_FEATURE_RESUME	0x00000002u	/* GKV_QP_F_RESUME */
#define GKV_FEATURE_VRAM	0x00000004u	/* memory of /dev/gkv, memory modes but 0x0 */

/**
 * struct gkv_msg_hello - first message on a connection
 * @hdr: message head
 * @version_min: lowest version the client speaks
 * @version_max: highest version the client speaks
 * @rsvd28: zero
 * @features: feature bits the client wants
 * @session: random identity of the session, kept over reconnections
 * @db_offset: where the doorbells start in the descriptor; a multiple of 4096
 * @db_len: bytes of doorbells; 0 for a session without queue pairs
 * @name: what to call the client in reports, NUL-terminated
 *
 * Descriptors: the doorbell memory, unless @db_len is 0.
 */
struct gkv_msg_hello {
	struct gkv_msg_hdr hdr;
	__le16	version_min;
	__le16	version_max;
	__le32	rsvd28;
	__le64	features;
	__u8	session[16];
	__le64	db_offset;
	__le64	db_len;
	char	name[GKV_CTL_NAME];
};
GKV_ASSERT_SIZE(gkv_msg_hello, 136);
GKV_ASSERT_OFFSET(gkv_msg_hello, session, 40);

/**
 * struct gkv_msg_hello_reply - the daemon's limits
 * @r: reply head
 * @version: version in force
 * @dstrd: doorbell stride: doorbells are 4 << dstrd bytes apart
 * @page_size: PRP page in bytes
 * @features: feature bits in force
 * @instance: random identity of this run of the daemon
 * @max_depth: deepest queue pair
 * @max_qid: highest queue identifier; the lowest is 1
 * @max_regions: most regions of a session
 * @reactors: lines in the reactor state page
 * @max_region_bytes: most registered bytes of a session
 * @poll_interval_ns: longest time until a doorbell is seen
 * @max_deadline_ns: longest deadline of any namespace
 * @nn: number of namespaces
 * @rsvd: zero
 *
 * Descriptors: the reactor state page, to be mapped read-only.
 */
struct gkv_msg_hello_reply {
	struct gkv_msg_reply r;
	__le16	version;
	__le16	dstrd;
	__le32	page_size;
	__le64	features;
	__u8	instance[16];
	__le32	max_depth;
	__le32	max_qid;
	__le32	max_regions;
	__le32	reactors;
	__le64	max_region_bytes;
	__le64	poll_interval_ns;
	__le64	max_deadline_ns;
	__le32	nn;
	__le32	rsvd;
};
GKV_ASSERT_SIZE(gkv_msg_hello_reply, 296);
GKV_ASSERT_OFFSET(gkv_msg_hello_reply, max_region_bytes, 264);

/* Flags of a namespace. */
#define GKV_NS_F_RDONLY		0x00000001u	/* asked for, or all the client may have */
#define GKV_NS_F_VERIFY		0x00000002u	/* reply: values are verified on Retrieve */
#define GKV_NS_F_SYNC		0x00000004u	/* reply: acknowledged means durable */
#define GKV_NS_F_VWC		0x00000008u	/* reply: Flush has work to do */

/**
 * struct gkv_msg_ns_open - gain access to a namespace
 * @hdr: message head
 * @name: configured name, or empty to open by @nsid
 * @nsid: namespace identifier, used when @name is empty
 * @flags: GKV_NS_F_RDONLY
 */
struct gkv_msg_ns_open {
	struct gkv_msg_hdr hdr;
	char	name[GKV_CTL_NAME];
	__le32	nsid;
	__le32	flags;
};
GKV_ASSERT_SIZE(gkv_msg_ns_open, 96);

/**
 * struct gkv_msg_ns_open_reply - what the namespace is
 * @r: reply head
 * @nsid: namespace identifier for SQEs
 * @flags: GKV_NS_F_*
 * @key_max: longest key in bytes
 * @value_max: longest value in bytes
 * @block_size: granularity, in bytes, at which values move without a host copy
 * @rsvd: zero
 * @deadline_ns: deadline of a command
 * @name: configured name
 */
struct gkv_msg_ns_open_reply {
	struct gkv_msg_reply r;
	__le32	nsid;
	__le32	flags;
	__le32	key_max;
	__le32	value_max;
	__le32	block_size;
	__le32	rsvd;
	__le64	deadline_ns;
	char	name[GKV_CTL_NAME];
};
GKV_ASSERT_SIZE(gkv_msg_ns_open_reply, 312);

#define GKV_REGION_F_RDONLY	0x00000001u	/* the daemon may only read it */

/**
 * struct gkv_msg_region_add - register a span of client memory
 * @hdr: message head
 * @id: identifier, chosen by the client, unique in the session
 * @flags: GKV_REGION_F_*
 * @iova: address by which commands name the span; a multiple of the page size
 * @len: bytes; a multiple of the page size
 * @offset: where the span starts in the descriptor; a multiple of the page size
 *
 * Descriptors: the memory: a memfd, or a region of /dev/gkv. -EXDEV when a disk that a
 * namespace of the session lies on cannot do DMA to it, -ENODEV when it is revoked.
 * -ETIMEDOUT when such a disk does not answer: it may still write to the first page. -EBUSY
 * when that is so of an earlier request. GKV_MSG_NS_OPEN asks the same, the other way round.
 */
struct gkv_msg_region_add {
	struct gkv_msg_hdr hdr;
	__le32	id;
	__le32	flags;
	__le64	iova;
	__le64	len;
	__le64	offset;
};
GKV_ASSERT_SIZE(gkv_msg_region_add, 56);

/**
 * struct gkv_msg_id - a message that names one object: GKV_MSG_REGION_DEL,
 * GKV_MSG_QP_DEL, GKV_MSG_QP_RESET
 * @hdr: message head
 * @id: region or queue identifier
 * @rsvd: zero
 *
 * The reply comes once nothing in flight uses the object any more. Deleting or
 * resetting a queue pair drops its outstanding commands; after a reset its rings,
 * doorbells and record are zero and numbering starts afresh.
 */
struct gkv_msg_id {
	struct gkv_msg_hdr hdr;
	__le32	id;
	__le32	rsvd;
};
GKV_ASSERT_SIZE(gkv_msg_id, 32);

#define GKV_QP_F_CSUM		0x00000001u	/* values carry crc32c end to end */
#define GKV_QP_F_RESUME		0x00000002u	/* memory of a queue pair served before */
#define GKV_QP_F_HOST		0x00000004u	/* the submitter writes the eventfd */

/**
 * struct gkv_msg_qp_add - create a queue pair, or hand one over again
 * @hdr: message head
 * @qid: queue identifier, 1 to the hello's max_qid
 * @depth: entries of SQ and of CQ
 * @flags: GKV_QP_F_*
 * @mode: memory mode
 * @sq_offset: where the SQ starts in its descriptor; a multiple of 4096
 * @cq_offset: where the CQ starts; a multiple of 4096
 * @rec_offset: where the record starts; a multiple of 4096
 * @db_offset: with GKV_MODE_DB: where the SQ's doorbell is, a multiple of 8; that of the
 *	CQ is one stride behind it. Else zero
 *
 * Descriptors: SQ, CQ and record memory, with GKV_MODE_DB the doorbells'; the same one
 * may be sent several times. The record's is a memfd. The others are memfds, or a queue
 * pair of /dev/gkv with offsets by its struct gkvdrv_part; what has its bit in @mode must
 * be the latter, and lie in VRAM. Without GKV_MODE_DB the doorbells are those of the
 * hello. All of it must be zero unless GKV_QP_F_RESUME is set; the daemon zeroes CQ and
 * record.
 *
 * With GKV_MODE_DATA every data pointer must lie in VRAM, without it none may.
 */
struct gkv_msg_qp_add {
	struct gkv_msg_hdr hdr;
	__le32	qid;
	__le32	depth;
	__le32	flags;
	__le32	mode;
	__le64	sq_offset;
	__le64	cq_offset;
	__le64	rec_offset;
	__le64	db_offset;
};
GKV_ASSERT_SIZE(gkv_msg_qp_add, 72);

/**
 * struct gkv_msg_qp_add_reply - the queue pair is live
 * @r: reply head
 * @reactor: line of the reactor state page that concerns the queue pair
 * @resumed: commands found in the record and taken up again
 *
 * Descriptors: with GKV_QP_F_HOST, the eventfd that wakes the reactor.
 */
struct gkv_msg_qp_add_reply {
	struct gkv_msg_reply r;
	__le32	reactor;
	__le32	resumed;
};
GKV_ASSERT_SIZE(gkv_msg_qp_add_reply, 224);

/**
 * struct gkv_msg_admin - an NVMe admin command
 * @hdr: message head
 * @sqe: the command; PRPs unused
 * @data_len: bytes of @data that go with the command
 * @rsvd: zero
 * @data: data to the controller
 */
struct gkv_msg_admin {
	struct gkv_msg_hdr hdr;
	struct gkv_admin_sqe sqe;
	__le32	data_len;
	__le32	rsvd;
	__u8	data[GKV_CTL_DATA];
};
GKV_ASSERT_SIZE(gkv_msg_admin, 4192);

/**
 * struct gkv_msg_admin_reply - its completion
 * @r: reply head
 * @cqe: completion; its phase bit is zero
 * @data_len: bytes of @data that the controller returned
 * @rsvd: zero
 * @data: data from the controller
 */
struct gkv_msg_admin_reply {
	struct gkv_msg_reply r;
	struct gkv_cqe cqe;
	__le32	data_len;
	__le32	rsvd;
	__u8	data[GKV_CTL_DATA];
};
GKV_ASSERT_SIZE(gkv_msg_admin_reply, 4336);

/* What a query reports, each as one JSON document. */
#define GKV_QUERY_STATUS	1	/* daemon, reactors, counters */
#define GKV_QUERY_NAMESPACES	2
#define GKV_QUERY_SESSIONS	3	/* sessions, regions, queue pairs */
#define GKV_QUERY_SETTINGS	4	/* each with value, origin, limits */

/**
 * struct gkv_msg_query - read a report
 * @hdr: message head
 * @what: GKV_QUERY_*
 * @rsvd: zero
 * @offset: first byte wanted; 0 takes a new snapshot, which later offsets read
 */
struct gkv_msg_query {
	struct gkv_msg_hdr hdr;
	__le32	what;
	__le32	rsvd;
	__le64	offset;
};
GKV_ASSERT_SIZE(gkv_msg_query, 40);

/**
 * struct gkv_msg_query_reply - a piece of a report
 * @r: reply head
 * @total: bytes of the whole document
 * @len: bytes of @data
 * @rsvd: zero
 * @data: UTF-8 JSON text, not NUL-terminated
 */
struct gkv_msg_query_reply {
	struct gkv_msg_reply r;
	__le64	total;
	__le32	len;
	__le32	rsvd;
	char	data[GKV_CTL_DATA];
};
GKV_ASSERT_SIZE(gkv_msg_query_reply, 4328);

/**
 * struct gkv_msg_set - change a live setting
 * @hdr: message head
 * @name: setting, NUL-terminated
 * @value: new value as in the configuration file, NUL-terminated
 */
struct gkv_msg_set {
	struct gkv_msg_hdr hdr;
	char	name[GKV_CTL_NAME];
	char	value[2 * GKV_CTL_NAME];
};
GKV_ASSERT_SIZE(gkv_msg_set, 216);

#endif /* _UAPI_GKV_CONTROL_H */
