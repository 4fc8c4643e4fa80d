/* SPDX-License-Identifier: MIT */
/*
 * Access to GPU memory behind a PCI BAR, which is mapped uncached or write-combining.
 *
 * Stores may be combined and leave the processor in any order until a fence; loads may be
 * served early, or from a buffer of the processor's. A load takes a round trip over the bus
 * whatever its width, so they are as wide as can be, and each byte is read once.
 *
 * All functions: any thread.
 */
#ifndef KVB_BAR_H
#define KVB_BAR_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <gkv/nvme_kv.h>

#include "core/trace.h"

/* What was stored before reaches the bus before what is stored, anywhere, later. */
static inline void kvb_bar_flush(void)
{
	kvb_trace(KVB_ACCESS_FLUSH, NULL, 0);
#if defined(__x86_64__)
	_mm_sfence();
#elif defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Loads that follow see at least what their writer stored before what was loaded last. */
static inline void kvb_bar_acquire(void)
{
	kvb_trace(KVB_ACCESS_ACQUIRE, NULL, 0);
#if defined(__x86_64__)
	_mm_mfence();
#elif defined(__aarch64__)
	__asm__ volatile("dmb osh" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Copy an SQE, 64 aligned bytes. After kvb_bar_acquire(). */
void kvb_bar_read_sqe(struct gkv_sqe *dst, const void *src);

/* How many bytes one load brings: a line, or where there are no loads so wide, a word of 8. */
#define KVB_BAR_LINE_MAX 64u
unsigned int kvb_bar_line(void);

/*
 * Load @n bytes at a multiple of @n, which is 8 or kvb_bar_line(). They are as new as this call at
 * least, and what is loaded afterwards is as new as they are.
 */
void kvb_bar_read_line(void *dst, const void *src, unsigned int n);

/* Copy @n bytes out of, or into, a BAR. What was written is flushed. */
void kvb_bar_read(void *dst, const void *src, size_t n);
void kvb_bar_write(void *dst, const void *src, size_t n);

/* Zero @n bytes, a multiple of 8 at a multiple of 8; flushed. */
void kvb_bar_zero(void *dst, size_t n);

#endif
