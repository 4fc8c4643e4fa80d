/* SPDX-License-Identifier: MIT */
/* The host's part: what a queue's block of device memory holds at first. */
#ifndef GKV_DEVICE_INIT_H
#define GKV_DEVICE_INIT_H

#include <errno.h>
#include <string.h>

#include "queue.h"

/*
 * A queue pair, in addresses of the device. gkv_qp_device() fills it for one of libgkv's;
 * memory of the host is to be mapped into the device first, and its addresses there put here.
 */
struct gkv_dev_desc {
	uint32_t size;			/* sizeof(struct gkv_dev_desc), set by the caller */
	uint32_t depth;			/* entries of both rings, 2 to 65536 */
	void *sq, *cq;			/* rings of 64 and 16 byte entries; the CQ is zero */
	uint32_t *sq_db, *cq_db;	/* doorbells of 32 bits; zero */
	const uint32_t *stopped;	/* word of the in-flight record, or NULL */
	const struct gkv_dev_ctl *ctl;	/* in host memory, or NULL */
	uint64_t timeout_ns;		/* of waits that give none; not 0 */
	uint32_t flags;			/* GKV_DEV_* */
	uint32_t page;			/* of PRPs in bytes: 4096, or what the daemon says */
	uint32_t ticks_per_us;		/* of the device's clock: CUDA and C 1000, HIP 100 */
	uint32_t rsvd;
};

/* @n bytes, to the end of the last line of them. */
static inline size_t gkvd_lines(size_t n)
{
	return (n + GKVD_LINE - 1) / GKVD_LINE * GKVD_LINE;
}

/* Say in @q, of which the depth is set, where its arrays are; returns the size of it all. */
static inline size_t gkvd_lay_out(struct gkv_dev_queue *q)
{
	size_t at = sizeof(*q);

	q->n_words = (q->depth - 1 + 31) / 32;
	q->bits_off = (uint32_t)at;
	at += gkvd_lines(q->n_words * sizeof(uint32_t));
	q->runs_off = (uint32_t)at;
	at += gkvd_lines(q->depth * sizeof(uint32_t));
	q->slots_off = (uint32_t)at;
	at += gkvd_lines(q->depth * sizeof(struct gkvd_slot));
	q->crc_off = (uint32_t)at;
	return at + gkvd_lines(GKVD_CRC_WORDS * sizeof(uint32_t));
}

/* Bytes of device memory that a queue of @depth takes, a multiple of 128. */
static inline size_t gkv_dev_queue_size(uint32_t depth)
{
	struct gkv_dev_queue q;

	q.depth = depth;
	return gkvd_lay_out(&q);
}

GKV_DEV_BOTH_FN void gkvd_crc_init(uint32_t *t)
{
	uint32_t i, k, c;

	for (i = 0; i < 256; i++) {
		for (c = i, k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? GKVD_CRC_POLY : 0);
		t[i] = c;
	}
	for (i = 256; i < GKVD_CRC_POWERS; i++)
		t[i] = t[i - 256] >> 8 ^ t[t[i - 256] & 255];
	/* x^8, and then each the square of the one before. */
	for (t += GKVD_CRC_POWERS, t[0] = 1u << 23, i = 1; i < 32; i++)
		t[i] = gkvd_crc_mul(t[i - 1], t[i - 1]);
}

/*
 * Fill @image, gkv_dev_queue_size() bytes, which the caller copies to device memory that is
 * aligned to 128 bytes; on a device that shares the host's memory it is that memory. Any
 * token of the queue from before is void. Returns 0, or -EINVAL.
 */
static inline int gkv_dev_queue_init(void *image, const struct gkv_dev_desc *d)
{
	struct gkv_dev_queue *q = (struct gkv_dev_queue *)image;
	uint32_t n = d->depth - 1, *bits, i;

	if (d->size != sizeof(*d) || d->depth < 2 || d->depth > 65536 || !d->sq || !d->cq ||
	    !d->sq_db || !d->cq_db || !d->timeout_ns || d->flags & ~GKV_DEV_CSUM ||
	    !d->ticks_per_us || d->page < 4096 || d->page & (d->page - 1) || d->rsvd)
		return -EINVAL;
	memset(image, 0, gkv_dev_queue_size(d->depth));
	q->sq = (uint8_t *)d->sq;
	q->cq = (const uint8_t *)d->cq;
	q->sq_db = d->sq_db;
	q->cq_db = d->cq_db;
	q->stopped = d->stopped;
	q->ctl = d->ctl;
	q->recip = ~(uint64_t)0 / d->depth;
	q->timeout_ns = d->timeout_ns;
	q->depth = d->depth;
	q->flags = d->flags;
	while ((1u << q->cid_bits) < d->depth)
		q->cid_bits++;
	q->ticks_per_us = d->ticks_per_us;
	q->page = d->page;
	gkvd_lay_out(q);
	gkvd_crc_init((uint32_t *)((uint8_t *)image + q->crc_off));
	q->credits = n;
	q->cq_head = GKVD_PHASE;
	bits = (uint32_t *)((uint8_t *)image + q->bits_off);
	for (i = 0; i < n; i++)
		bits[i / 32] |= 1u << (i % 32);
	return 0;
}

#endif
