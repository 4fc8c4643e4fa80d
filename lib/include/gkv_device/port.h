/* SPDX-License-Identifier: MIT */
/*
 * What gkv_device.h needs of a processor, in one vocabulary for CUDA, HIP and C.
 *
 * Memory. Each access to memory that other lanes or the daemon use is one of these, once
 * and at its natural width:
 *
 *	gkvd_ld<bits>_<order>_<scope>(p)	gkvd_st<bits>_<order>_<scope>(p, v)
 *	gkvd_exch32_acquire_dev(p, v)		gkvd_cas32_<order>_dev(p, old, new)
 *	gkvd_add32_<order>_dev(p, v)		gkvd_and32_..., gkvd_or32_...
 *	gkvd_fence_sc_dev()
 *
 * Orders are those of C11 (acquire, release, relaxed), scopes "dev", all lanes of the
 * device, and "sys", the processor and other devices as well. gkvd_put16() stores and
 * gkvd_get16() loads 16 bytes at once, relaxed.
 *
 * Lanes. A wavefront's lanes may run in step (HIP, CUDA before Volta) or not. The lanes
 * that are at one place of the code together are a group, named by a mask with a bit for
 * each; gkvd_active() is the largest that is known here. A group goes on together:
 * gkvd_sync() waits for its lanes and orders their accesses, gkvd_ballot() and
 * gkvd_shfl() exchange values and order nothing. Nothing else in gkv_device.h waits for another lane.
 */
#ifndef GKV_DEVICE_PORT_H
#define GKV_DEVICE_PORT_H

#include <stddef.h>
#include <stdint.h>

#if defined(GKV_DEV_SIM)
#include "port_sim.h"
#elif defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#include "port_hip.h"
#elif defined(__CUDACC__) || defined(__CUDA__)
#include "port_cuda.h"
#else
#include "port_c.h"
#endif

/* The lowest lane of a group does what is done once. */
GKV_DEV_FN uint32_t gkvd_first(uint64_t mask)
{
	return (uint32_t)gkvd_ctz64(mask);
}

/* Lanes of the group before @lane. */
GKV_DEV_FN uint32_t gkvd_rank_of(uint64_t mask, uint32_t lane)
{
	return (uint32_t)gkvd_popc64(mask & (((uint64_t)1 << lane) - 1));
}

GKV_DEV_FN uint32_t gkvd_rank(uint64_t mask)
{
	return gkvd_rank_of(mask, gkvd_lane());
}

#endif
