/* SPDX-License-Identifier: MIT */
/*
 * From a submission queue entry to an operation, and from a store's result to an
 * NVMe status.
 */
#ifndef KVB_DECODE_H
#define KVB_DECODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gkv/nvme_kv.h>

struct kvb_ns;
struct kvb_op;

/* A namespace as one session has it open. Constant while published. */
struct kvb_ns_open {
	struct kvb_ns *ns;
	uint32_t value_max;	/* bytes */
	uint8_t key_max;	/* bytes, at most GKV_KEY_MAX */
	bool read_only;		/* the namespace is, or the session opened it so */
};

/* What a queue pair's commands are judged by. */
struct kvb_decode_env {
	uint32_t nn;		/* highest valid NSID */
	bool csum;		/* GKV_QP_F_CSUM is in force */
	/* Slot NSID - 1, of nn; NULL what the session did not open. May grow meanwhile. */
	const struct kvb_ns_open *_Atomic const *open;
};

/*
 * Check @sqe, a private copy, and fill @op's input: ns, opcode, options, klen, key, len
 * and, for a Store, crc; has_crc says whether the client sent one. Every other member is
 * left alone. Returns 0 or a status without DNR; then only @op->ns may have been set.
 *
 * The first of these that applies wins:
 *
 *  1. FUSE or a reserved bit of byte 1 set, PSDT 11b		02h
 *  2. NSID FFFFFFFFh						02h
 *  3. NSID 0 or above nn					0Bh
 *  4. NSID not opened by the session				02h
 *  5. unknown opcode						01h
 *  6. key length above 16					02h
 *  7. key length 0, except List				86h
 *  8. key length above the namespace's maximum			86h
 *  9. reserved options, CDW11[31:16], CDW10 of Exist, Delete	02h
 * 10. CDW12, CDW13 other than a negotiated checksum of a Store	02h
 * 11. Store: value above the maximum				85h
 * 12. List: buffer below 4 bytes				02h
 * 13. Store, Delete on a read-only namespace			20h
 *
 * Flush has no key: after 5, its CDW10 to CDW13 must be zero (02h). MPTR, the data
 * pointer of commands without data and key bytes past the key length are ignored.
 */
uint16_t kvb_decode(const struct gkv_sqe *sqe, const struct kvb_decode_env *env,
		    struct kvb_op *op);

/*
 * The status to post: DNR is set or cleared as the code demands; for 04h, 88h and codes
 * without a rule it stays as the store left it.
 */
uint16_t kvb_status_finish(uint16_t status);

/* The status for an errno, of either sign, from below; without DNR. @write: Store, Delete. */
uint16_t kvb_status_from_errno(int err, bool write);

#endif
