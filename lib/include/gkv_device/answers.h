/* SPDX-License-Identifier: MIT */
/*
 * How the commands of a batch in stream order ended (gkv_gpu_batch_enqueue() of gkv.h), for
 * kernels behind it in the stream and for the host.
 */
#ifndef GKV_DEVICE_ANSWERS_H
#define GKV_DEVICE_ANSWERS_H

#include "wait.h"

/* Completions of a batch; gkv_gpu_batch_answers() fills it, and kernels may take it by value. */
struct gkv_dev_answers {
	uint32_t size;		/* sizeof(struct gkv_dev_answers), set by the caller */
	uint32_t n;		/* commands of the batch */
	uint32_t run;		/* so many of them have a doorbell of their own */
	uint32_t rsvd;
	const void *cqes;	/* 16 bytes each, the daemon's order within a run */
};

/* What ends a command that nobody answered: Host Pathing Error. */
#define GKVD_SC_HOST_PATH	GKV_STATUS(3, 0x70)

/*
 * Of command @i, as it was in the array of the call: returns r->end, which is GKV_DEV_DONE;
 * GKV_DEV_LOST, with status 370h, when it is not known whether it was done and the buffer
 * may still be written; GKV_DEV_INVALID for no such command. Reads one completion where the
 * daemon answers in order, and so many more as the command was overtaken by otherwise.
 */
GKV_DEV_BOTH_FN uint32_t gkv_dev_answer(const struct gkv_dev_answers *a, uint32_t i,
					struct gkv_dev_result *r)
{
	uint32_t first, n, at, j, k, dw3;
	const uint32_t *e;

	r->len = 0;
	r->crc = 0;
	r->has_crc = 0;
	r->status = GKVD_SC_HOST_PATH;
	r->end = i < a->n ? GKV_DEV_LOST : GKV_DEV_INVALID;
	if (i >= a->n)
		return r->end;
	first = i / a->run * a->run;
	n = a->n - first < a->run ? a->n - first : a->run;
	at = j = i - first;
	/* A command's identifier is its place in the run. */
	for (k = 0; k < n; k++, j = j + 1 == n ? 0 : j + 1) {
		e = (const uint32_t *)a->cqes + 4 * ((uint64_t)first + j);
		dw3 = e[3];
		if ((dw3 & 0xffff) != at)
			continue;
		r->status = (uint16_t)(dw3 >> 17);
		if (r->status != GKVD_SC_HOST_PATH) {
			r->len = e[0];
			r->end = GKV_DEV_DONE;
		}
		break;
	}
	return r->end;
}

#endif
