/* SPDX-License-Identifier: MIT */
/*
 * Access to memory shared with another process or another thread: every load and
 * store of it goes through one of these, exactly once and at its natural width.
 */
#ifndef GKVI_BARRIER_H
#define GKVI_BARRIER_H

#include <stdint.h>

#define load_relaxed(p)		__atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p)		__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_relaxed(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

/* Full barrier: earlier stores are visible before later loads are done. */
static inline void full_barrier(void)
{
#if defined(__x86_64__)
	/* Half the price of mfence, which also orders non-temporal stores. */
	__asm__ __volatile__("lock; addl $0, -4(%%rsp)" ::: "memory", "cc");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Store of a doorbell that must be visible before the loads that follow. */
static inline void store_full_barrier(uint32_t *p, uint32_t v)
{
#if defined(__x86_64__)
	__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
#else
	store_release(p, v);
	full_barrier();
#endif
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif
