/* SPDX-License-Identifier: MIT */
/*
 * A queue pair as device code sees it: one block of device memory that all lanes share.
 *
 * Who may do what, and what orders it:
 *
 *  - A command holds a credit and a slot from submission to the end of its completion's
 *    reader. There are depth - 1 of both, so that whoever has them also has room in the SQ:
 *    entries that are not fetched yet are commands without a completion. A credit is taken
 *    first; then a free slot is certain to be found. Neither ever waits.
 *  - Places in the SQ are given out by one addition per group. The group fills its run of
 *    entries, then marks it with its length.
 *  - The holder of db_lock hops over the marked runs from the tail on and rings the doorbell
 *    once. Whoever has marked a run tries for the lock and goes on if it is held: the holder
 *    looks again after it has let go.
 *  - The holder of cq_lock takes completions off the CQ and puts them into the slots, where
 *    their lanes find them.
 *  - A lane whose time is up changes its slot from BUSY to QUARANTINED; who takes the late
 *    completion off the CQ then frees the slot.
 */
#ifndef GKV_DEVICE_QUEUE_H
#define GKV_DEVICE_QUEUE_H

#include <gkv/nvme_kv.h>

#include "port.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "gkv_device.h is for little-endian processors"
#endif

/* What different lanes write lies in different lines. */
#define GKVD_LINE	128

/* State of a slot: its low bits. The generation is above them. */
#define GKVD_FREE	0u
#define GKVD_BUSY	1u
#define GKVD_DONE	2u
#define GKVD_QUARANTINED 3u
#define GKVD_STATE(s)	((s) & 3u)
#define GKVD_GEN(s)	((s) >> 2)
#define GKVD_MAKE(gen, state) ((gen) << 2 | (state))

struct gkvd_slot {
	uint32_t state;
	uint32_t dw0, dw1, status;	/* of the completion, in DONE */
};

/* What the host tells the device while kernels run; in host memory that is mapped. */
struct gkv_dev_ctl {
	uint32_t lost;		/* 1: no daemon will answer what is outstanding */
	uint32_t away;		/* 1: the daemon is being restarted */
	uint32_t epoch;		/* restarts so far */
	uint32_t rsvd;
};

/* Counts since gkv_dev_queue_init(). */
struct gkv_dev_stats {
	uint32_t doorbells;	/* SQ doorbells rung */
	uint32_t timeouts;	/* commands that ended with GKV_DEV_TIMEDOUT */
	uint32_t late;		/* of them: answered since */
	uint32_t bad_cid;	/* completions of no outstanding command */
	uint64_t copied;	/* bytes that gkv_dev_copy() moved */
};

struct gkv_dev_queue {
	/* Set once; all addresses are those of the device. */
	uint8_t *sq;
	const uint8_t *cq;
	uint32_t *sq_db, *cq_db;
	const uint32_t *stopped;	/* of the in-flight record; or NULL */
	const struct gkv_dev_ctl *ctl;	/* or NULL */
	uint64_t recip;			/* (2^64 - 1) / depth */
	uint64_t timeout_ns;		/* of a wait that gives none */
	uint32_t depth;
	uint32_t flags;			/* GKV_DEV_CSUM */
	uint32_t cid_bits;		/* of a command identifier, that are the slot */
	uint32_t ticks_per_us;		/* of gkvd_clock() */
	uint32_t n_words;		/* of the bitmap of free slots */
	uint32_t page;			/* of PRPs, in bytes */
	uint32_t bits_off, runs_off, slots_off, crc_off;	/* of the arrays behind, in bytes */
	uint8_t pad0[2 * GKVD_LINE - 7 * 8 - 10 * 4 - 8];

	uint32_t credits;
	uint8_t pad1[GKVD_LINE - 4];
	uint64_t sq_next;		/* entries given out */
	uint8_t pad2[GKVD_LINE - 8];

	uint32_t db_lock;
	uint32_t sq_tail;		/* slot; under db_lock */
	uint8_t pad3[GKVD_LINE - 8];
	uint32_t cq_lock;
	uint32_t cq_head;		/* slot, and GKVD_PHASE if it expects that; under cq_lock */
	uint8_t pad4[GKVD_LINE - 8];

	struct gkv_dev_stats stats;
	uint8_t pad5[GKVD_LINE - sizeof(struct gkv_dev_stats)];
};

#define GKVD_PHASE	0x80000000u	/* the phase bit, beside a slot of the CQ */

#define GKV_DEV_CSUM	0x1u		/* crc32c travels with values */

/* A command in flight: its slot, and above that the slot's generation. */
typedef uint64_t gkv_dev_token;
#define GKV_DEV_NONE	(~(gkv_dev_token)0)

GKV_DEV_FN uint32_t *gkvd_free_bits(struct gkv_dev_queue *q)
{
	return (uint32_t *)((uint8_t *)q + q->bits_off);
}

/* One for each entry of the SQ: how many entries from there on are filled. */
GKV_DEV_FN uint32_t *gkvd_runs(struct gkv_dev_queue *q)
{
	return (uint32_t *)((uint8_t *)q + q->runs_off);
}

GKV_DEV_FN struct gkvd_slot *gkvd_slot(struct gkv_dev_queue *q, uint32_t idx)
{
	return (struct gkvd_slot *)((uint8_t *)q + q->slots_off) + idx;
}

/*
 * Tables of crc32c: remainders of each byte with 0 to 3 zero bytes behind it, then x^(8 * 2^k)
 * for each k below 32.
 */
#define GKVD_CRC_POLY	0x82f63b78u
#define GKVD_CRC_POWERS	1024u
#define GKVD_CRC_WORDS	(GKVD_CRC_POWERS + 32u)

/* @a * @b modulo the polynomial; bit 31 is x^0. */
GKV_DEV_BOTH_FN uint32_t gkvd_crc_mul(uint32_t a, uint32_t b)
{
	uint32_t r = 0;

	for (; a; a <<= 1) {
		r ^= a & 0x80000000 ? b : 0;
		b = b >> 1 ^ (b & 1 ? GKVD_CRC_POLY : 0);
	}
	return r;
}

GKV_DEV_FN const uint32_t *gkvd_crc_tables(const struct gkv_dev_queue *q)
{
	return (const uint32_t *)((const uint8_t *)q + q->crc_off);
}

/* Where entry @pos of all entries ever lies in a ring. */
GKV_DEV_FN uint32_t gkvd_ring_slot(const struct gkv_dev_queue *q, uint64_t pos)
{
	uint64_t r = pos - gkvd_mulhi64(pos, q->recip) * q->depth;

	/* The reciprocal is rounded down: the quotient is right or one too small. */
	return (uint32_t)(r >= q->depth ? r - q->depth : r);
}

/* @i of fewer than depth entries behind slot @s. */
GKV_DEV_FN uint32_t gkvd_ring_add(const struct gkv_dev_queue *q, uint32_t s, uint32_t i)
{
	uint32_t r = s + i;

	return r >= q->depth ? r - q->depth : r;
}

GKV_DEV_FN uint16_t gkvd_cid(const struct gkv_dev_queue *q, uint32_t idx, uint32_t gen)
{
	return (uint16_t)(idx | gen << q->cid_bits);
}

#endif
