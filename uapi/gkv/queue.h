/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Memory shared by a client and kvbridged: doorbells, rings and the in-flight
 * record of a queue pair, and the daemon's reactor state page.
 *
 * All of it but the reactor state page belongs to the client, so that it
 * outlives the daemon; the daemon treats every byte of it as untrusted input.
 */
#ifndef _UAPI_GKV_QUEUE_H
#define _UAPI_GKV_QUEUE_H

#include "nvme_kv.h"

/* Memory mode: which parts of a queue pair live in VRAM. */
#define GKV_MODE_SQ		0x1
#define GKV_MODE_CQ		0x2
#define GKV_MODE_DB		0x4
#define GKV_MODE_DATA		0x8
#define GKV_MODE_MASK		0xf

#define GKV_DEPTH_MIN		2u
#define GKV_DEPTH_MAX		65536u	/* protocol maximum; the daemon's limit is lower */

/* Bytes from the doorbell base (Base 3.1.4; dstrd comes from the daemon's hello). */
#define GKV_SQ_TAIL_DB(qid, dstrd)	((2u * (qid)) * (4u << (dstrd)))
#define GKV_CQ_HEAD_DB(qid, dstrd)	((2u * (qid) + 1u) * (4u << (dstrd)))
#define GKV_DB_LEN(max_qid, dstrd)	((2u * ((max_qid) + 1u)) * (4u << (dstrd)))

/*
 * In-flight record. Always in host memory, one beside each queue pair. The
 * daemon writes it so that its successor can tell, for each submitted command,
 * whether its completion was posted.
 *
 * Sequence numbers count entries since the queue pair was created or reset:
 * entry n of the SQ ring is slot n % depth; completion n is CQ slot n % depth
 * and carries phase !((n / depth) & 1).
 */
#define GKV_REC_MAGIC		0x52564b47u	/* "GKVR" */
#define GKV_REC_VERSION		1

/* States of a record entry. */
#define GKV_REC_FREE		0	/* unused, or its completion is posted */
#define GKV_REC_FETCHED		1	/* nothing handed to a store yet: run again */
#define GKV_REC_HANDED		2	/* a mutation may have happened: resolve */
#define GKV_REC_DONE		3	/* result below is final */
#define GKV_REC_POSTING		4	/* result is being posted as completion @cq_seq */

/**
 * struct gkv_rec_entry - one command in flight
 * @sqe: the command as fetched
 * @seq: its SQ sequence number
 * @cq_seq: completion number, valid in GKV_REC_POSTING
 * @state: GKV_REC_*; written last
 * @dw0: result
 * @dw1: result
 * @status: status without the phase bit
 * @run: which opening of the store the mutation was handed to, modulo 65536
 */
struct gkv_rec_entry {
	struct gkv_sqe sqe;
	__le64	seq;
	__le64	cq_seq;
	__le32	state;
	__le32	dw0;
	__le32	dw1;
	__le16	status;
	__le16	run;
};
GKV_ASSERT_SIZE(gkv_rec_entry, 96);
GKV_ASSERT_OFFSET(gkv_rec_entry, seq, 64);
GKV_ASSERT_OFFSET(gkv_rec_entry, state, 80);
GKV_ASSERT_OFFSET(gkv_rec_entry, status, 92);

/* Why the daemon serves a queue pair no more. */
#define GKV_STOPPED_NOT		0
#define GKV_STOPPED_DOORBELL	1	/* a doorbell claimed more entries than there can be */
#define GKV_STOPPED_MEMORY	2	/* memory of its rings or doorbells is gone */
#define GKV_STOPPED_RECORD	3	/* the record is not what the daemon wrote */

/**
 * struct gkv_rec_hdr - head of the in-flight record
 * @magic: GKV_REC_MAGIC, written last when the daemon initialises the record
 * @version: GKV_REC_VERSION
 * @qid: queue identifier
 * @depth: entries of SQ, CQ and record
 * @entry_size: sizeof(struct gkv_rec_entry)
 * @uid: random number that, with a sequence number, names an operation for ever
 * @cq_seq: every completion before this one has been posted
 *
 * Recovery rests on one invariant: an SQ entry the daemon has consumed either has a
 * completion posted or has a record entry that is not GKV_REC_FREE. The number of
 * completions posted is @cq_seq plus the run of CQ slots from there on that carry the
 * phase of their pass; @cq_seq may lag, but by less than @depth. An entry in
 * GKV_REC_POSTING whose completion number is below that is free. The next SQ entry to
 * consume is then the number of completions plus the number of live entries. Commands
 * that complete at once therefore need no entry at all.
 *
 * @stopped: GKV_STOPPED_*, for the client to read; the daemon does not look at it. No
 *	completion comes any more once it is set; a reset, or removal, ends it
 * @waiting: set to 1 by a client about to sleep on this word as a futex; the
 *	daemon clears it and wakes the futex after it has posted
 */
struct gkv_rec_hdr {
	__le32	magic;
	__le16	version;
	__le16	qid;
	__le32	depth;
	__le32	entry_size;
	__le64	uid;
	__u8	rsvd24[40];
	__le64	cq_seq;
	__u8	rsvd72[52];
	__le32	stopped;
	__le32	waiting;
	__u8	rsvd132[60];
};
GKV_ASSERT_SIZE(gkv_rec_hdr, 192);
GKV_ASSERT_OFFSET(gkv_rec_hdr, uid, 16);
GKV_ASSERT_OFFSET(gkv_rec_hdr, cq_seq, 64);
GKV_ASSERT_OFFSET(gkv_rec_hdr, stopped, 124);
GKV_ASSERT_OFFSET(gkv_rec_hdr, waiting, 128);

#define GKV_REC_LEN(depth) \
	(sizeof(struct gkv_rec_hdr) + (size_t)(depth) * sizeof(struct gkv_rec_entry))

/**
 * struct gkv_reactor_state - one reactor's line in the reactor state page
 * @sleeping: non-zero while the reactor may be blocked; a host client that sees it
 *	after it has rung a doorbell (store, full barrier, load) writes the eventfd
 *	that came with the queue pair
 *
 * The daemon owns the page; clients map it read-only.
 */
struct gkv_reactor_state {
	__le32	sleeping;
	__u8	rsvd[60];
};
GKV_ASSERT_SIZE(gkv_reactor_state, 64);

#endif /* _UAPI_GKV_QUEUE_H */
