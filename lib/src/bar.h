/* SPDX-License-Identifier: MIT */
/*
 * Access to queues in the BAR of a device. SQs and doorbells are mapped write-combining:
 * stores leave the processor in any order until a fence, and perhaps not before. CQs are
 * mapped uncached; a load is a round trip over the bus, so that few wide ones are wanted.
 */
#ifndef GKVI_BAR_H
#define GKVI_BAR_H

#include <endian.h>

#include "cqe.h"

/* Stores before it have left for the device before any that follow it. */
static inline void bar_store_fence(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("sfence" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* The same for all accesses, loads included. */
static inline void bar_fence(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("mfence" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void bar_load_fence(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("lfence" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A whole SQE, in the order of its bytes. */
static inline void bar_put_sqe(struct gkv_sqe *to, const struct gkv_sqe *from)
{
	typedef uint64_t __attribute__((may_alias)) qword;
	volatile qword *t = (volatile qword *)to;
	const qword *f = (const qword *)from;

	for (unsigned int i = 0; i < sizeof(*to) / sizeof(*t); i++)
		t[i] = f[i];
}

/* A doorbell, after everything that was stored before. */
static inline void bar_ring(uint32_t *db, uint32_t v)
{
	bar_store_fence();
	*(volatile uint32_t *)db = htole32(v);
	bar_fence();
}

/* cqe_read() of a CQ in a BAR. */
static inline bool bar_cqe_read(const struct gkv_cqe *e, uint32_t phase, struct cqe_image *out)
{
	const volatile uint64_t *q = (const volatile uint64_t *)e;
	uint32_t dw3 = le32toh(((const volatile uint32_t *)e)[3]);
	uint64_t lo, hi;

	if (((dw3 >> 16) & 1) != phase)
		return false;
	bar_load_fence();
	lo = le64toh(q[0]);
	hi = le64toh(q[1]);
	out->dw0 = (uint32_t)lo;
	out->dw1 = (uint32_t)(lo >> 32);
	out->sqhd = hi & 0xffff;
	out->sqid = (hi >> 16) & 0xffff;
	out->cid = (hi >> 32) & 0xffff;
	out->status = (uint16_t)(hi >> 49);
	return true;
}

#endif
