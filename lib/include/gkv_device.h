/* SPDX-License-Identifier: MIT */
/*
 * gkv on the device: Key-Value commands from CUDA, HIP and C code.
 *
 *	__global__ void fetch(struct gkv_dev_queue *q, uint32_t nsid, const uint64_t *keys,
 *			      char *pages, uint32_t len)
 *	{
 *		uint64_t i = blockIdx.x * blockDim.x + threadIdx.x;
 *		struct gkv_dev_cmd c = gkv_dev_retrieve(nsid, keys[2 * i], keys[2 * i + 1], 16,
 *							(uint64_t)(pages + i * len), len);
 *		struct gkv_dev_result r;
 *
 *		if (gkv_dev_exec(q, &c, 0, &r) == GKV_DEV_DONE && !r.status)
 *			...
 *	}
 *
 * Any number of lanes of any number of wavefronts share one queue. Nothing here waits
 * without a limit, and nothing for another lane of the same wavefront.
 */
#ifndef GKV_DEVICE_H
#define GKV_DEVICE_H

#include "gkv_device/port.h"
#include "gkv_device/queue.h"
#include "gkv_device/init.h"
#include "gkv_device/command.h"
#include "gkv_device/submit.h"
#include "gkv_device/wait.h"
#include "gkv_device/answers.h"
#include "gkv_device/crc32c.h"
#include "gkv_device/copy.h"

#endif
