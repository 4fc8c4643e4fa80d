/* SPDX-License-Identifier: MIT */
/*
 * Admin commands, answered as an NVMe controller with the Key Value command set would.
 * Knows nothing of the front end that brings them: the control socket is one.
 *
 * Each client (peer) meets a controller of its own: features of controller scope, held
 * event requests and the list of active namespaces are per peer. What is shared is the
 * subsystem behind it, struct kvb_ctrl.
 *
 * Queue pairs are made by the front end's own means, so the commands that create and delete
 * them are invalid opcodes here; a front end with an admin queue handles them itself.
 *
 * Control thread, but for kvb_admin_log_error().
 */
#ifndef KVB_ADMIN_H
#define KVB_ADMIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gkv/nvme_kv.h>

#include "config/config.h"
#include "core/store.h"

#define KVB_AERL 3	/* held event requests, 0's based */
#define KVB_ACL 3	/* concurrent Aborts, 0's based; they end before the next is read */
#define KVB_ELPE 63	/* error log entries, 0's based */
#define KVB_CNTLID 1

/* Feeds the SMART log. Sums since the daemon started, or longer if the owner keeps them. */
struct kvb_admin_counters {
	uint64_t read_bytes, written_bytes;	/* of values */
	uint64_t reads, writes;			/* commands completed */
	uint64_t busy_ns;
	uint64_t power_cycles;
	uint64_t power_on_seconds;
	uint64_t unsafe_shutdowns;
	uint64_t media_errors;
	bool degraded;		/* a store has lost reliability */
	bool read_only;		/* a store has gone read-only on its own */
};

/* One error; eight words so that readers and writers on any thread agree word by word. */
struct kvb_error_slot {
	_Atomic uint64_t seq;	/* odd while being written */
	_Atomic uint64_t w[8];	/* struct gkv_error_log_entry */
};

/* The subsystem. Fill in the first part, then kvb_ctrl_init(). */
struct kvb_ctrl {
	struct kvb_ns *const *ns;	/* any order */
	unsigned int nns;
	uint8_t uuid[16];
	uint32_t max_qid;
	uint32_t max_depth;
	void (*counters)(void *ctx, struct kvb_admin_counters *c); /* NULL: all zero */
	void *ctx;

	/* The module's. */
	uint32_t nn;		/* highest nsid */
	_Atomic uint64_t errors; /* ever logged */
	_Atomic uint64_t media_errors; /* among them: values that could not be read, or were bad */
	struct kvb_error_slot ring[KVB_ELPE + 1];
};

struct kvb_admin_event {
	bool pending;
	bool masked;		/* reported, and its log page not read since */
	uint8_t info;
	uint8_t lid;
};

/* One client. Fill in the first part, then kvb_admin_peer_init(). */
struct kvb_admin_peer {
	uid_t uid;
	gid_t gid;
	const gid_t *groups;
	int ngroups;
	bool privileged;	/* sees errors of every namespace */
	/*
	 * Posts the completion of a command that was held. NULL when the front end answers
	 * each request before it takes the next, as the control socket does: it can hold no
	 * Asynchronous Event Request, so each is over its limit unless an event is pending.
	 */
	void (*complete)(struct kvb_admin_peer *peer, const struct gkv_cqe *cqe);
	/* Tries to abort an I/O command; true if it will end with 07h. NULL: never. */
	bool (*abort)(struct kvb_admin_peer *peer, uint16_t sqid, uint16_t cid);
	void *ctx;

	/* The module's. */
	uint32_t arbitration;
	uint32_t temp_over, temp_under;
	uint32_t irq_coalesce, irq_config;
	uint32_t event_config;
	uint16_t aer[KVB_AERL + 1];
	unsigned int naer;
	struct kvb_admin_event events[8]; /* by event type */
};

void kvb_ctrl_init(struct kvb_ctrl *ctrl);
void kvb_admin_peer_init(struct kvb_admin_peer *peer);

/* Event types and errors (Base, Asynchronous Event Request). */
#define KVB_EVENT_ERROR 0
#define KVB_EVENT_SMART 1
#define KVB_EVENT_BAD_DOORBELL 0	/* write to a doorbell of no queue */
#define KVB_EVENT_BAD_DB_VALUE 1
#define KVB_EVENT_PERSISTENT_ERROR 3

/*
 * Tell the peer of an event: completes a held request now, or the next one. Dropped while an
 * earlier one of the type has not been acknowledged by reading its log page @lid.
 */
void kvb_admin_event(struct kvb_admin_peer *peer, uint8_t type, uint8_t info, uint8_t lid);

enum kvb_admin_result {
	KVB_ADMIN_DONE,		/* *cqe is to be posted */
	KVB_ADMIN_HELD,		/* peer->complete() will post it, unless the peer goes */
};

/*
 * Run one command. @sqe has been copied from the client. @in holds @in_len bytes that came
 * with it. @out takes *@out_len bytes at most; on return *@out_len is how many go to the
 * client. A command that asks for more than fits is refused with Invalid Field. *@cqe has
 * phase and SQHD zero. Changing Feature 20h waits for the disk; all else is quick.
 */
enum kvb_admin_result kvb_admin_exec(struct kvb_ctrl *ctrl, struct kvb_admin_peer *peer,
				     const struct gkv_admin_sqe *sqe, const void *in,
				     uint32_t in_len, struct gkv_cqe *cqe, void *out,
				     uint32_t *out_len);

/* @status with DNR as the same command would fail again or not; admin statuses. Any thread. */
uint16_t kvb_admin_dnr(uint16_t status);

#define KVB_PARAM_NONE 0xffff	/* the error is of no one field */

/*
 * Note a failed command in the error log. @status without the phase bit, @param its byte
 * in bits 7:0 and bit in 10:8. Answers that are no faults (87h, 89h) are left out; 88h counts as
 * a media error, too. Any thread; never blocks.
 */
void kvb_admin_log_error(struct kvb_ctrl *ctrl, uint16_t sqid, uint16_t cid, uint16_t status,
			 uint32_t nsid, uint8_t opcode, uint16_t param);

#endif
