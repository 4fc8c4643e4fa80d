/* SPDX-License-Identifier: MIT */
/*
 * gkv_device.h for HIP on AMD's GPUs, wavefronts of 32 or 64 lanes. The compiler knows the
 * memory model of each processor: builtins name order and scope, and it adds the waits and
 * cache operations. A wavefront's lanes run in step, so that gkvd_sync() only keeps the
 * compiler from moving accesses across it.
 */
#ifndef GKV_DEVICE_PORT_HIP_H
#define GKV_DEVICE_PORT_HIP_H

#define GKV_DEV_FN	static __inline__ __attribute__((device, unused))
#define GKV_DEV_BOTH_FN	static __inline__ __attribute__((device, host, unused))

#define GKVD_DEV	__HIP_MEMORY_SCOPE_AGENT
#define GKVD_SYS	__HIP_MEMORY_SCOPE_SYSTEM

#define gkvd_ld32_relaxed_dev(p)	__hip_atomic_load((p), __ATOMIC_RELAXED, GKVD_DEV)
#define gkvd_ld32_acquire_dev(p)	__hip_atomic_load((p), __ATOMIC_ACQUIRE, GKVD_DEV)
#define gkvd_ld32_acquire_sys(p)	__hip_atomic_load((p), __ATOMIC_ACQUIRE, GKVD_SYS)
#define gkvd_st32_relaxed_dev(p, v)	__hip_atomic_store((p), (v), __ATOMIC_RELAXED, GKVD_DEV)
#define gkvd_st32_release_dev(p, v)	__hip_atomic_store((p), (v), __ATOMIC_RELEASE, GKVD_DEV)
#define gkvd_st32_release_sys(p, v)	__hip_atomic_store((p), (v), __ATOMIC_RELEASE, GKVD_SYS)

#define gkvd_exch32_acquire_dev(p, v) \
	__hip_atomic_exchange((p), (v), __ATOMIC_ACQUIRE, GKVD_DEV)
#define gkvd_add32_relaxed_dev(p, v) \
	__hip_atomic_fetch_add((p), (v), __ATOMIC_RELAXED, GKVD_DEV)
#define gkvd_add32_release_dev(p, v) \
	__hip_atomic_fetch_add((p), (v), __ATOMIC_RELEASE, GKVD_DEV)
#define gkvd_add64_relaxed_dev(p, v) \
	__hip_atomic_fetch_add((p), (uint64_t)(v), __ATOMIC_RELAXED, GKVD_DEV)
#define gkvd_and32_acquire_dev(p, v) \
	__hip_atomic_fetch_and((p), (v), __ATOMIC_ACQUIRE, GKVD_DEV)
#define gkvd_or32_release_dev(p, v) \
	__hip_atomic_fetch_or((p), (v), __ATOMIC_RELEASE, GKVD_DEV)

GKV_DEV_FN uint32_t gkvd_cas32_relaxed_dev(uint32_t *p, uint32_t old, uint32_t v)
{
	__hip_atomic_compare_exchange_strong(p, &old, v, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
					     GKVD_DEV);
	return old;
}

GKV_DEV_FN uint32_t gkvd_cas32_acquire_dev(uint32_t *p, uint32_t old, uint32_t v)
{
	__hip_atomic_compare_exchange_strong(p, &old, v, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE,
					     GKVD_DEV);
	return old;
}

GKV_DEV_FN uint32_t gkvd_cas32_release_dev(uint32_t *p, uint32_t old, uint32_t v)
{
	__hip_atomic_compare_exchange_strong(p, &old, v, __ATOMIC_RELEASE, __ATOMIC_RELAXED,
					     GKVD_DEV);
	return old;
}

#define gkvd_fence_sc_dev()	__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")

/* Volatile: 16 bytes at once, past all caches, as memory of the host wants it. */
typedef uint64_t gkvd_v2 __attribute__((ext_vector_type(2)));

GKV_DEV_FN void gkvd_put16(void *p, uint64_t lo, uint64_t hi)
{
	gkvd_v2 v = { lo, hi };

	*(volatile gkvd_v2 *)p = v;
}

GKV_DEV_FN void gkvd_get16(const void *p, uint64_t *lo, uint64_t *hi)
{
	gkvd_v2 v = *(const volatile gkvd_v2 *)p;

	*lo = v.x;
	*hi = v.y;
}

GKV_DEV_FN uint32_t gkvd_lane(void)
{
	/* The second half is empty for wavefronts of 32. */
	return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

/* The lanes of the wavefront that get here and for which @pred is true. */
GKV_DEV_FN uint64_t gkvd_ballot_here(int pred)
{
	const int icmp_ne = 33;

	return __builtin_amdgcn_uicmp((uint32_t)pred, 0u, icmp_ne);
}

GKV_DEV_FN uint64_t gkvd_active(void)
{
	return gkvd_ballot_here(1);
}

GKV_DEV_FN void gkvd_sync(uint64_t mask)
{
	(void)mask;
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
	__builtin_amdgcn_wave_barrier();
}

GKV_DEV_FN uint64_t gkvd_ballot(uint64_t mask, int pred)
{
	return gkvd_ballot_here(pred) & mask;
}

GKV_DEV_FN uint64_t gkvd_shfl(uint64_t mask, uint64_t v, uint32_t src)
{
	uint32_t lo, hi;

	(void)mask;
	lo = (uint32_t)__builtin_amdgcn_ds_bpermute((int)(src * 4), (int)(uint32_t)v);
	hi = (uint32_t)__builtin_amdgcn_ds_bpermute((int)(src * 4), (int)(uint32_t)(v >> 32));
	return (uint64_t)hi << 32 | lo;
}

#define gkvd_ctz32(x)	((uint32_t)__builtin_ctz(x))
#define gkvd_ctz64(x)	((uint32_t)__builtin_ctzll(x))
#define gkvd_popc64(x)	((uint32_t)__builtin_popcountll(x))

GKV_DEV_FN uint64_t gkvd_mulhi64(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b >> 64);
}

/* Ticks of 10 ns, the same on all compute units. */
GKV_DEV_FN uint64_t gkvd_clock(void)
{
#if __has_builtin(__builtin_readsteadycounter)
	return __builtin_readsteadycounter();
#else
	return __builtin_amdgcn_s_memrealtime();
#endif
}

GKV_DEV_FN void gkvd_spin(uint32_t i)
{
	/* Units of 64 cycles. */
	if (i < 16)
		__builtin_amdgcn_s_sleep(1);
	else
		__builtin_amdgcn_s_sleep(8);
}

#endif
