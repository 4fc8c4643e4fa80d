/* SPDX-License-Identifier: MIT */
/*
 * gkv_device.h under the simulator of tools/gkv-gpusim: each access is a call into it, which
 * is where the simulator may run another lane, and names its place in the source, so that a
 * test can weaken the order of one place and see whether anything notices.
 */
#ifndef GKV_DEVICE_PORT_SIM_H
#define GKV_DEVICE_PORT_SIM_H

#define GKV_DEV_FN	static inline __attribute__((unused))
#define GKV_DEV_BOTH_FN	GKV_DEV_FN

/* Orders. */
#define GKV_SIM_RELAXED	0x00
#define GKV_SIM_ACQUIRE	0x01
#define GKV_SIM_RELEASE	0x02
#define GKV_SIM_SC	0x04
/* Scope "sys": what the access orders is ordered for the processor and devices as well. */
#define GKV_SIM_SYS	0x10

enum gkv_sim_rmw { GKV_SIM_EXCH, GKV_SIM_CAS, GKV_SIM_ADD, GKV_SIM_AND, GKV_SIM_OR };

#ifdef __cplusplus
extern "C" {
#endif

#define GKV_SIM_AT	const char *file, int line	/* parameters of a call ... */
#define GKV_SIM_HERE	__FILE__, __LINE__		/* ... and where it is made */

/* @size: 4 or 8, naturally aligned. */
uint64_t gkv_sim_load(const void *p, unsigned int size, unsigned int order, GKV_SIM_AT);
void gkv_sim_store(void *p, unsigned int size, uint64_t v, unsigned int order, GKV_SIM_AT);
/* Returns what was there; @old is for GKV_SIM_CAS. */
uint64_t gkv_sim_rmw(void *p, unsigned int size, enum gkv_sim_rmw op, uint64_t old, uint64_t v,
		     unsigned int order, GKV_SIM_AT);
void gkv_sim_fence(unsigned int order, GKV_SIM_AT);
void gkv_sim_put16(void *p, uint64_t lo, uint64_t hi, GKV_SIM_AT);
void gkv_sim_get16(const void *p, uint64_t *lo, uint64_t *hi, GKV_SIM_AT);
uint32_t gkv_sim_lane(void);
uint64_t gkv_sim_active(GKV_SIM_AT);
void gkv_sim_sync(uint64_t mask, GKV_SIM_AT);
uint64_t gkv_sim_ballot(uint64_t mask, int pred, GKV_SIM_AT);
uint64_t gkv_sim_shfl(uint64_t mask, uint64_t v, uint32_t src, GKV_SIM_AT);
void gkv_sim_spin(uint32_t i, GKV_SIM_AT);
uint64_t gkv_sim_clock(void);

#ifdef __cplusplus
}
#endif

/* For values that are often not used, of the right type. */
GKV_DEV_FN uint32_t gkv_sim_rmw32(uint32_t *p, enum gkv_sim_rmw op, uint32_t old, uint32_t v,
				  unsigned int order, GKV_SIM_AT)
{
	return (uint32_t)gkv_sim_rmw(p, 4, op, old, v, order, file, line);
}

GKV_DEV_FN uint64_t gkv_sim_rmw64(uint64_t *p, enum gkv_sim_rmw op, uint64_t old, uint64_t v,
				  unsigned int order, GKV_SIM_AT)
{
	return gkv_sim_rmw(p, 8, op, old, v, order, file, line);
}

/* The width of what @p points to, which must be @n. */
#define GKV_SIM_W(p, n)	((unsigned int)sizeof(char[sizeof(*(p)) == (n) ? (n) : -1]))

#define GKV_SIM_LD(bits, p, order) \
	((uint##bits##_t)gkv_sim_load((p), GKV_SIM_W(p, bits / 8), (order), GKV_SIM_HERE))
#define GKV_SIM_ST(bits, p, v, order) \
	gkv_sim_store((p), GKV_SIM_W(p, bits / 8), (v), (order), GKV_SIM_HERE)
#define GKV_SIM_RMW(bits, p, op, old, v, order) \
	gkv_sim_rmw##bits((p), (op), (old), (v), (order), GKV_SIM_HERE)

#define GKV_SIM_SYS_RELAXED	(GKV_SIM_RELAXED | GKV_SIM_SYS)
#define GKV_SIM_SYS_ACQUIRE	(GKV_SIM_ACQUIRE | GKV_SIM_SYS)
#define GKV_SIM_SYS_RELEASE	(GKV_SIM_RELEASE | GKV_SIM_SYS)

#define gkvd_ld32_relaxed_dev(p)	GKV_SIM_LD(32, p, GKV_SIM_RELAXED)
#define gkvd_ld32_acquire_dev(p)	GKV_SIM_LD(32, p, GKV_SIM_ACQUIRE)
#define gkvd_ld32_relaxed_sys(p)	GKV_SIM_LD(32, p, GKV_SIM_SYS_RELAXED)
#define gkvd_ld32_acquire_sys(p)	GKV_SIM_LD(32, p, GKV_SIM_SYS_ACQUIRE)
#define gkvd_ld64_relaxed_dev(p)	GKV_SIM_LD(64, p, GKV_SIM_RELAXED)
#define gkvd_ld64_acquire_dev(p)	GKV_SIM_LD(64, p, GKV_SIM_ACQUIRE)
#define gkvd_ld64_relaxed_sys(p)	GKV_SIM_LD(64, p, GKV_SIM_SYS_RELAXED)
#define gkvd_ld64_acquire_sys(p)	GKV_SIM_LD(64, p, GKV_SIM_SYS_ACQUIRE)

#define gkvd_st32_relaxed_dev(p, v)	GKV_SIM_ST(32, p, v, GKV_SIM_RELAXED)
#define gkvd_st32_release_dev(p, v)	GKV_SIM_ST(32, p, v, GKV_SIM_RELEASE)
#define gkvd_st32_relaxed_sys(p, v)	GKV_SIM_ST(32, p, v, GKV_SIM_SYS_RELAXED)
#define gkvd_st32_release_sys(p, v)	GKV_SIM_ST(32, p, v, GKV_SIM_SYS_RELEASE)
#define gkvd_st64_relaxed_dev(p, v)	GKV_SIM_ST(64, p, v, GKV_SIM_RELAXED)
#define gkvd_st64_release_dev(p, v)	GKV_SIM_ST(64, p, v, GKV_SIM_RELEASE)
#define gkvd_st64_relaxed_sys(p, v)	GKV_SIM_ST(64, p, v, GKV_SIM_SYS_RELAXED)
#define gkvd_st64_release_sys(p, v)	GKV_SIM_ST(64, p, v, GKV_SIM_SYS_RELEASE)

#define gkvd_exch32_relaxed_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_EXCH, 0, v, GKV_SIM_RELAXED)
#define gkvd_exch32_acquire_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_EXCH, 0, v, GKV_SIM_ACQUIRE)
#define gkvd_exch32_release_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_EXCH, 0, v, GKV_SIM_RELEASE)
#define gkvd_add32_relaxed_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_ADD, 0, v, GKV_SIM_RELAXED)
#define gkvd_add32_acquire_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_ADD, 0, v, GKV_SIM_ACQUIRE)
#define gkvd_add32_release_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_ADD, 0, v, GKV_SIM_RELEASE)
#define gkvd_add64_relaxed_dev(p, v)	GKV_SIM_RMW(64, p, GKV_SIM_ADD, 0, v, GKV_SIM_RELAXED)
#define gkvd_add64_acquire_dev(p, v)	GKV_SIM_RMW(64, p, GKV_SIM_ADD, 0, v, GKV_SIM_ACQUIRE)
#define gkvd_add64_release_dev(p, v)	GKV_SIM_RMW(64, p, GKV_SIM_ADD, 0, v, GKV_SIM_RELEASE)
#define gkvd_and32_relaxed_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_AND, 0, v, GKV_SIM_RELAXED)
#define gkvd_and32_acquire_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_AND, 0, v, GKV_SIM_ACQUIRE)
#define gkvd_and32_release_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_AND, 0, v, GKV_SIM_RELEASE)
#define gkvd_or32_relaxed_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_OR, 0, v, GKV_SIM_RELAXED)
#define gkvd_or32_acquire_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_OR, 0, v, GKV_SIM_ACQUIRE)
#define gkvd_or32_release_dev(p, v)	GKV_SIM_RMW(32, p, GKV_SIM_OR, 0, v, GKV_SIM_RELEASE)
#define gkvd_cas32_relaxed_dev(p, old, v) \
	GKV_SIM_RMW(32, p, GKV_SIM_CAS, old, v, GKV_SIM_RELAXED)
#define gkvd_cas32_acquire_dev(p, old, v) \
	GKV_SIM_RMW(32, p, GKV_SIM_CAS, old, v, GKV_SIM_ACQUIRE)
/* One that fails orders nothing here, which is the least a device promises. */
#define gkvd_cas32_release_dev(p, old, v) \
	GKV_SIM_RMW(32, p, GKV_SIM_CAS, old, v, GKV_SIM_RELEASE)

#define gkvd_fence_sc_dev()		gkv_sim_fence(GKV_SIM_SC, GKV_SIM_HERE)

#define gkvd_put16(p, lo, hi)		gkv_sim_put16((p), (lo), (hi), GKV_SIM_HERE)
#define gkvd_get16(p, lo, hi)		gkv_sim_get16((p), (lo), (hi), GKV_SIM_HERE)

#define gkvd_lane()			gkv_sim_lane()
#define gkvd_active()			gkv_sim_active(GKV_SIM_HERE)
#define gkvd_sync(mask)			gkv_sim_sync((mask), GKV_SIM_HERE)
#define gkvd_ballot(mask, pred)		gkv_sim_ballot((mask), !!(pred), GKV_SIM_HERE)
#define gkvd_shfl(mask, v, src)		gkv_sim_shfl((mask), (uint64_t)(v), (src), GKV_SIM_HERE)
#define gkvd_ctz32(x)			((uint32_t)__builtin_ctz(x))
#define gkvd_ctz64(x)			__builtin_ctzll(x)
#define gkvd_popc64(x)			__builtin_popcountll(x)
#define gkvd_spin(i)			gkv_sim_spin((i), GKV_SIM_HERE)
#define gkvd_clock()			gkv_sim_clock()

__extension__ typedef unsigned __int128 gkv_sim_u128;

/* The high half of a product. */
GKV_DEV_FN uint64_t gkvd_mulhi64(uint64_t a, uint64_t b)
{
	return (uint64_t)(((gkv_sim_u128)a * b) >> 64);
}

#endif
