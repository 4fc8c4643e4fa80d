/* SPDX-License-Identifier: MIT */
/*
 * gkv_device.h for CUDA, compute capability 7.0 and later: lanes are scheduled on their own,
 * and loads and stores have the orders and scopes of the PTX memory model, which the
 * instructions below name. Works with nvcc and with clang, with or without CUDA's headers.
 */
#ifndef GKV_DEVICE_PORT_CUDA_H
#define GKV_DEVICE_PORT_CUDA_H

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "gkv_device.h needs compute capability 7.0 or later"
#endif

#define GKV_DEV_FN	static __inline__ __attribute__((device, unused))
#define GKV_DEV_BOTH_FN	static __inline__ __attribute__((device, host, unused))

#define GKVD_LD(bits, order, scope, reg)						\
GKV_DEV_FN uint##bits##_t gkvd_ld##bits##_##order##_##scope(const uint##bits##_t *p)	\
{											\
	uint##bits##_t v;								\
											\
	asm volatile("ld." #order "." GKVD_##scope ".u" #bits " %0, [%1];"		\
		     : "=" reg(v) : "l"(p) : "memory");					\
	return v;									\
}

#define GKVD_ST(bits, order, scope, reg)						\
GKV_DEV_FN void gkvd_st##bits##_##order##_##scope(uint##bits##_t *p, uint##bits##_t v)	\
{											\
	asm volatile("st." #order "." GKVD_##scope ".u" #bits " [%0], %1;"		\
		     : : "l"(p), reg(v) : "memory");					\
}

#define GKVD_RMW(name, op, bits, order, type, reg)					\
GKV_DEV_FN uint##bits##_t gkvd_##name##bits##_##order##_dev(uint##bits##_t *p,		\
							    uint##bits##_t v)		\
{											\
	uint##bits##_t old;								\
											\
	asm volatile("atom." #order ".gpu." op "." type " %0, [%1], %2;"		\
		     : "=" reg(old) : "l"(p), reg(v) : "memory");			\
	return old;									\
}

#define GKVD_CAS(order)									\
GKV_DEV_FN uint32_t gkvd_cas32_##order##_dev(uint32_t *p, uint32_t old, uint32_t v)	\
{											\
	uint32_t was;									\
											\
	asm volatile("atom." #order ".gpu.cas.b32 %0, [%1], %2, %3;"			\
		     : "=r"(was) : "l"(p), "r"(old), "r"(v) : "memory");		\
	return was;									\
}

#define GKVD_dev	"gpu"
#define GKVD_sys	"sys"
GKVD_LD(32, relaxed, dev, "r")
GKVD_LD(32, acquire, dev, "r")
GKVD_LD(32, acquire, sys, "r")
GKVD_ST(32, relaxed, dev, "r")
GKVD_ST(32, release, dev, "r")
GKVD_ST(32, release, sys, "r")
GKVD_RMW(exch, "exch", 32, acquire, "b32", "r")
GKVD_RMW(add, "add", 32, relaxed, "u32", "r")
GKVD_RMW(add, "add", 32, release, "u32", "r")
GKVD_RMW(add, "add", 64, relaxed, "u64", "l")
GKVD_RMW(and, "and", 32, acquire, "b32", "r")
GKVD_RMW(or, "or", 32, release, "b32", "r")
GKVD_CAS(relaxed)
GKVD_CAS(acquire)
GKVD_CAS(release)
#undef GKVD_dev
#undef GKVD_sys
#undef GKVD_LD
#undef GKVD_ST
#undef GKVD_RMW
#undef GKVD_CAS

GKV_DEV_FN void gkvd_fence_sc_dev(void)
{
	asm volatile("fence.sc.gpu;" : : : "memory");
}

GKV_DEV_FN void gkvd_put16(void *p, uint64_t lo, uint64_t hi)
{
	asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};"
		     : : "l"(p), "l"(lo), "l"(hi) : "memory");
}

GKV_DEV_FN void gkvd_get16(const void *p, uint64_t *lo, uint64_t *hi)
{
	asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];"
		     : "=l"(*lo), "=l"(*hi) : "l"(p) : "memory");
}

GKV_DEV_FN uint32_t gkvd_lane(void)
{
	uint32_t v;

	asm("mov.u32 %0, %%laneid;" : "=r"(v));
	return v;
}

GKV_DEV_FN uint64_t gkvd_active(void)
{
	uint32_t v;

	asm volatile("activemask.b32 %0;" : "=r"(v) : : "memory");
	return v;
}

GKV_DEV_FN void gkvd_sync(uint64_t mask)
{
	asm volatile("bar.warp.sync %0;" : : "r"((uint32_t)mask) : "memory");
}

GKV_DEV_FN uint64_t gkvd_ballot(uint64_t mask, int pred)
{
	uint32_t v;

	asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
		     : "=r"(v) : "r"(pred), "r"((uint32_t)mask) : "memory");
	return v;
}

GKV_DEV_FN uint64_t gkvd_shfl(uint64_t mask, uint64_t v, uint32_t src)
{
	uint32_t lo, hi;

	asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;"
		     : "=r"(lo) : "r"((uint32_t)v), "r"(src), "r"((uint32_t)mask) : "memory");
	asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;"
		     : "=r"(hi) : "r"((uint32_t)(v >> 32)), "r"(src), "r"((uint32_t)mask)
		     : "memory");
	return (uint64_t)hi << 32 | lo;
}

GKV_DEV_FN uint32_t gkvd_popc64(uint64_t x)
{
	uint32_t v;

	asm("popc.b64 %0, %1;" : "=r"(v) : "l"(x));
	return v;
}

GKV_DEV_FN uint32_t gkvd_ctz64(uint64_t x)
{
	return gkvd_popc64((x & (0 - x)) - 1);
}

GKV_DEV_FN uint32_t gkvd_ctz32(uint32_t x)
{
	return gkvd_ctz64(x);
}

GKV_DEV_FN uint64_t gkvd_mulhi64(uint64_t a, uint64_t b)
{
	uint64_t v;

	asm("mul.hi.u64 %0, %1, %2;" : "=l"(v) : "l"(a), "l"(b));
	return v;
}

/* Nanoseconds. */
GKV_DEV_FN uint64_t gkvd_clock(void)
{
	uint64_t v;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v) : : "memory");
	return v;
}

GKV_DEV_FN void gkvd_spin(uint32_t i)
{
	/* A wait of microseconds; the first turns are the ones that count. */
	uint32_t ns = i < 16 ? 20 : 200;

	asm volatile("nanosleep.u32 %0;" : : "r"(ns) : "memory");
}

#endif
