/* SPDX-License-Identifier: MIT */
/*
 * Every access to memory shared with a client's rings goes through here: single,
 * ordered, of a stated width.
 *
 * In host RAM: plain loads and stores with acquire and release order. Entries and doorbells in
 * BAR memory have accessors of their own (core/bar.h, core/dbline.h).
 */
#ifndef KVB_ACCESS_H
#define KVB_ACCESS_H

#include <stdint.h>

#include <gkv/queue.h>

#include "core/bar.h"

/*
 * Around copies from and to a client's memory. Two commands that name the same memory may run on
 * two reactors; it is the client, another process, that puts one after the other (or does not, and
 * has what it asked for). ThreadSanitizer sees neither.
 */
#if defined(__SANITIZE_THREAD__)
#define KVB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVB_TSAN 1
#endif
#endif
#ifdef KVB_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define kvb_client_read_begin() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define kvb_client_read_end() AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#define kvb_client_write_begin() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#define kvb_client_write_end() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#else
#define kvb_client_read_begin() ((void)0)
#define kvb_client_read_end() ((void)0)
#define kvb_client_write_begin() ((void)0)
#define kvb_client_write_end() ((void)0)
#endif

/* A doorbell: one 32-bit acquire load, so that entries written before it are seen. */
static inline uint32_t kvb_read_doorbell(const void *db)
{
	kvb_trace(KVB_ACCESS_LOAD, db, 4);
	return __atomic_load_n((const uint32_t *)db, __ATOMIC_ACQUIRE);
}

static inline void kvb_write_doorbell(void *db, uint32_t val)
{
	kvb_trace(KVB_ACCESS_STORE, db, 4);
	__atomic_store_n((uint32_t *)db, val, __ATOMIC_RELEASE);
}

/*
 * An SQE: eight 64-bit loads, each word read exactly once. The submitter may rewrite
 * it meanwhile; what is used is what was copied.
 */
static inline void kvb_read_sqe(struct gkv_sqe *dst, const void *src)
{
	const uint64_t *s = src;
	uint64_t w[8];

	for (int i = 0; i < 8; i++) {
		kvb_trace(KVB_ACCESS_LOAD, s + i, 8);
		w[i] = __atomic_load_n(s + i, __ATOMIC_RELAXED);
	}
	__builtin_memcpy(dst, w, sizeof(w));
}

static inline unsigned int kvb_cqe_phase(uint64_t seq, uint32_t depth)
{
	return !((seq / depth) & 1);
}

/*
 * A CQE: DW0-1, then DW2-3 with release order; DW3 carries the phase. Both are aligned
 * 64-bit stores, so that no reader sees the phase before the rest.
 */
static inline void kvb_write_cqe(void *dst, uint32_t dw0, uint32_t dw1, uint16_t sqhd,
				 uint16_t sqid, uint16_t cid, uint16_t status, unsigned int phase)
{
	uint64_t lo = (uint64_t)dw1 << 32 | dw0;
	uint64_t hi = (uint64_t)(uint16_t)(status << 1 | phase) << 48 | (uint64_t)cid << 32 |
		      (uint32_t)sqid << 16 | sqhd;
	uint64_t *d = dst;

#ifdef KVB_BREAK_CQE_ORDER
	/* A wrong writer on purpose: proves that the tests catch torn completions. */
	__atomic_store_n(d + 1, hi, __ATOMIC_RELEASE);
	for (volatile int i = 0; i < 2000; i++)
		;
	__atomic_store_n(d, lo, __ATOMIC_RELEASE);
#else
	kvb_trace(KVB_ACCESS_STORE, d, 8);
	__atomic_store_n(d, lo, __ATOMIC_RELAXED);
	kvb_trace(KVB_ACCESS_STORE, d + 1, 8);
	__atomic_store_n(d + 1, hi, __ATOMIC_RELEASE);
#endif
}

/*
 * The same in BAR memory: DW0-2, store fence, DW3, and a fence that sends it on its way. Stores
 * in front of it, such as a value's, have left by the first fence, too.
 */
static inline void kvb_write_cqe_bar(void *dst, uint32_t dw0, uint32_t dw1, uint16_t sqhd,
				     uint16_t sqid, uint16_t cid, uint16_t status,
				     unsigned int phase)
{
	uint32_t dw3 = (uint32_t)(uint16_t)(status << 1 | phase) << 16 | cid;
	uint32_t *d = dst;

	kvb_trace(KVB_ACCESS_STORE, d, 8);
	__atomic_store_n((uint64_t *)d, (uint64_t)dw1 << 32 | dw0, __ATOMIC_RELAXED);
	kvb_trace(KVB_ACCESS_STORE, d + 2, 4);
	__atomic_store_n(d + 2, (uint32_t)sqid << 16 | sqhd, __ATOMIC_RELAXED);
	kvb_bar_flush();
	kvb_trace(KVB_ACCESS_STORE, d + 3, 4);
	__atomic_store_n(d + 3, dw3, __ATOMIC_RELEASE);
	kvb_bar_flush();
}

/* The phase bit of a CQ slot, for recovery. */
static inline unsigned int kvb_read_cqe_phase(const void *cqe)
{
	kvb_trace(KVB_ACCESS_LOAD, (const uint16_t *)cqe + 7, 2);
	return __atomic_load_n((const uint16_t *)cqe + 7, __ATOMIC_ACQUIRE) & 1;
}

/* Order a doorbell or flag store before a later load of the peer's word. */
static inline void kvb_full_barrier(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void kvb_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
