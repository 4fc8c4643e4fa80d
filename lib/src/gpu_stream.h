/* SPDX-License-Identifier: MIT */
/*
 * Commands in stream order. The stream itself copies a batch's entries into the SQ, rings,
 * waits for the completion in the last slot, takes the completions and rings the CQ's doorbell;
 * the next run begins after that. So the CQ's head is where the run began in both rings, the
 * SQ's tail where it ends, and nothing is in flight outside.
 */
#ifndef GKVI_GPU_STREAM_H
#define GKVI_GPU_STREAM_H

#include "gpu.h"

#define CQE_PHASE	0x10000u	/* in DW3 */

struct gkv_gpu_batch {
	struct gkv_gpu_batch *next;	/* gkv_gpu_stream.batches */
	struct gkv_gpu_stream *s;
	struct gpu_obj *obj;		/* pin 0: @sqes; and the block of device memory */
	uint32_t max, n;		/* commands: at most, and enqueued last */
	uint32_t number;		/* of its last enqueuing; 0: none yet */
	struct gkv_sqe *sqes;		/* @max, then as many completions; as in the block */
	struct gkv_cqe *cqes;
	size_t len;			/* mapped at @sqes */
	uint64_t dev_cqes;
};

/* Why the daemon serves the queue pair no more. */
enum stream_end {
	STREAM_ALIVE,
	STREAM_LOST,		/* it, or the session, was lost */
	STREAM_STOPPED,		/* gkv_qp_stopped() */
	STREAM_SILENT,		/* no answer in time */
};

struct gkv_gpu_stream {
	struct gkv_gpu *gpu;
	struct gkv_qp *qp;
	void *stream;			/* the runtime's */
	struct gpu_obj *obj;		/* pins: rings, doorbells, @done */
	uint64_t sq_db, cq_db, cq;	/* where the device has them */
	struct gkv_gpu_batch *batches;
	uint32_t slot, phase;		/* of both rings, behind what is enqueued */
	bool broken;			/* the runtime failed half way through a batch */
	uint32_t *done;			/* number of the last batch the stream has gone past */
	uint32_t enqueued;		/* atomic: number of the last batch */

	/* gpu_watch.c */
	pthread_t watcher;
	int kick;			/* eventfd */
	uint32_t stop;			/* atomic */
	uint32_t end;			/* atomic: enum stream_end, by the watcher */
	uint8_t *seen;			/* a bit for each identifier */
};

/* Of a command in a run of @depth - 1: the rings take no more at a time. */
static inline uint32_t gkvi_run(const struct gkv_gpu_stream *s)
{
	return s->qp->depth - 1;
}

/* gpu_watch.c */
void gkvi_watch_kick(struct gkv_gpu_stream *s);
int gkvi_watch_start(struct gkv_gpu_stream *s);
void gkvi_watch_stop(struct gkv_gpu_stream *s);
int gkvi_watch_err(const struct gkv_gpu_stream *s);

#endif
