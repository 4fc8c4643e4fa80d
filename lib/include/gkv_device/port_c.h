/* SPDX-License-Identifier: MIT */
/* gkv_device.h on a processor: each thread is a wavefront of one lane. */
#ifndef GKV_DEVICE_PORT_C_H
#define GKV_DEVICE_PORT_C_H

#include <sched.h>
#include <time.h>

#define GKV_DEV_FN	static inline __attribute__((unused))
#define GKV_DEV_BOTH_FN	GKV_DEV_FN

#define gkvd_ld32_relaxed_dev(p)	__atomic_load_n((p), __ATOMIC_RELAXED)
#define gkvd_ld32_acquire_dev(p)	__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define gkvd_ld32_acquire_sys(p)	__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define gkvd_st32_relaxed_dev(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define gkvd_st32_release_dev(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define gkvd_st32_release_sys(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)

#define gkvd_exch32_acquire_dev(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
#define gkvd_add32_relaxed_dev(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define gkvd_add32_release_dev(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_RELEASE)
#define gkvd_add64_relaxed_dev(p, v)	__atomic_fetch_add((p), (uint64_t)(v), __ATOMIC_RELAXED)
#define gkvd_and32_acquire_dev(p, v)	__atomic_fetch_and((p), (v), __ATOMIC_ACQUIRE)
#define gkvd_or32_release_dev(p, v)	__atomic_fetch_or((p), (v), __ATOMIC_RELEASE)

GKV_DEV_FN uint32_t gkvd_cas32_relaxed_dev(uint32_t *p, uint32_t old, uint32_t v)
{
	__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return old;
}

GKV_DEV_FN uint32_t gkvd_cas32_acquire_dev(uint32_t *p, uint32_t old, uint32_t v)
{
	__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
	return old;
}

GKV_DEV_FN uint32_t gkvd_cas32_release_dev(uint32_t *p, uint32_t old, uint32_t v)
{
	__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE);
	return old;
}

#define gkvd_fence_sc_dev()		__atomic_thread_fence(__ATOMIC_SEQ_CST)

GKV_DEV_FN void gkvd_put16(void *p, uint64_t lo, uint64_t hi)
{
	__atomic_store_n((uint64_t *)p, lo, __ATOMIC_RELAXED);
	__atomic_store_n((uint64_t *)p + 1, hi, __ATOMIC_RELAXED);
}

GKV_DEV_FN void gkvd_get16(const void *p, uint64_t *lo, uint64_t *hi)
{
	*lo = __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
	*hi = __atomic_load_n((const uint64_t *)p + 1, __ATOMIC_RELAXED);
}

#define gkvd_lane()			0u
#define gkvd_active()			((uint64_t)1)
#define gkvd_sync(mask)			((void)(mask))
#define gkvd_ballot(mask, pred)		((uint64_t)((void)(mask), !!(pred)))
#define gkvd_shfl(mask, v, src)		((void)(mask), (void)(src), (uint64_t)(v))
#define gkvd_ctz32(x)			((uint32_t)__builtin_ctz(x))
#define gkvd_ctz64(x)			__builtin_ctzll(x)
#define gkvd_popc64(x)			__builtin_popcountll(x)

/* The high half of a product. */
GKV_DEV_FN uint64_t gkvd_mulhi64(uint64_t a, uint64_t b)
{
	__extension__ typedef unsigned __int128 wide;

	return (uint64_t)((wide)a * b >> 64);
}

/* Ticks of the device's clock; a queue knows how long one is. */
GKV_DEV_FN uint64_t gkvd_clock(void)
{
	struct timespec ts;

#ifdef CLOCK_MONOTONIC
	clock_gettime(CLOCK_MONOTONIC, &ts);
#else
	timespec_get(&ts, TIME_UTC);
#endif
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Turn @i of a loop that waits. */
GKV_DEV_FN void gkvd_spin(uint32_t i)
{
#ifdef CLOCK_MONOTONIC
	/* Many that yield to each other keep everything else from running. */
	const struct timespec nap = { 0, 50000 };

	if (i >= 1024) {
		nanosleep(&nap, NULL);
		return;
	}
#endif
	/* Threads may be more than processors, and what this one waits for need one. */
	if (i >= 64) {
		sched_yield();
		return;
	}
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

#endif
