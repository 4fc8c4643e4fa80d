/* SPDX-License-Identifier: MIT */
/* Queue pairs in stream order: opening and closing, and memory for batches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <gkv_device/init.h>

#include "gpu_stream.h"

#define BATCH_MAX	(1u << 20)	/* commands */

/* Memory that can be pinned: zero, whole pages. */
static void *pages(size_t *len)
{
	size_t page = gkvi_page_size();
	void *p;

	*len = (*len + page - 1) & ~(page - 1);
	p = mmap(NULL, *len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static struct gpu_obj *obj_new(const void *key, bool queue)
{
	struct gpu_obj *o = calloc(1, sizeof(*o));

	if (o) {
		o->key = key;
		o->queue = queue;
	}
	return o;
}

/* Caller holds gkvi_gpu_lock. */
static void obj_list(struct gkv_gpu *gpu, struct gpu_obj *o)
{
	o->next = gpu->objs;
	gpu->objs = o;
}

/* Give back what @o has, in the list or not. -errno: the device cannot be entered. */
static int obj_drop(struct gkv_gpu *gpu, struct gpu_obj *o)
{
	struct gpu_obj **at;
	void *was;
	int ret;

	pthread_mutex_lock(&gkvi_gpu_lock);
	ret = gpu->rt->enter(gpu, &was);
	if (!ret) {
		at = gkvi_gpu_find(gpu, o->key);
		if (*at == o)
			*at = o->next;
		gkvi_gpu_obj_free(gpu, o);
		gpu->rt->leave(gpu, was);
	}
	pthread_mutex_unlock(&gkvi_gpu_lock);
	return ret;
}

/* ---- Opening ---- */

static int check_qp(const struct gkv_gpu *gpu, const struct gkv_qp *qp)
{
	if (gpu->no_order)
		return gkvi_err(-EOPNOTSUPP, "%s device %d: its streams cannot wait for memory: %s",
				gpu->rt->name, gpu->device, gpu->no_order);
	if (qp->mode & (GKV_MODE_SQ | GKV_MODE_CQ | GKV_MODE_DB))
		return gkvi_err(-EINVAL, "queue pair %u has parts in VRAM by memory mode 0x%x: for "
					 "stream order they are in host memory", qp->qid, qp->mode);
	if (qp->flags & GKV_QP_CSUM)
		return gkvi_err(-EINVAL, "queue pair %u is GKV_QP_CSUM: nobody computes the "
					 "checksum of what a kernel will have written", qp->qid);
	if (qp->flags & GKV_QP_PRP)
		return gkvi_err(-EINVAL, "queue pair %u is GKV_QP_PRP: stream order has SGLs only",
				qp->qid);
	return 0;
}

/*
 * Some runtimes refuse such memory only when it is used, so use it: on a stream of the
 * library's own, and for what is there already. Caller has entered the device.
 */
static int try_it(struct gkv_gpu_stream *s)
{
	const struct gpu_runtime *rt = s->gpu->rt;
	uint64_t word = s->obj->dev[2];
	int ret = 0, waited;

	for (int set = 1; set >= 0 && !ret; set--) {
		ret = rt->write32(s->gpu->stream, word, set ? CQE_PHASE : 0);
		if (!ret)
			ret = rt->wait_bit(s->gpu->stream, word, CQE_PHASE, set);
	}
	/* Also for what came before it failed: the memory is given back then. */
	waited = rt->sync(s->gpu->stream);
	return ret ? ret : waited;
}

/* Caller holds gkvi_gpu_lock and has entered the device. */
static int give(struct gkv_gpu_stream *s)
{
	struct gkv_gpu *gpu = s->gpu;
	struct gkv_qp *qp = s->qp;
	struct gpu_obj *o = s->obj;
	int ret;

	/* The lists behind it are the host's. */
	ret = gkvi_gpu_obj_pin(gpu, o, 0, qp->map, qp->list_off);
	if (!ret)
		ret = gkvi_gpu_obj_pin(gpu, o, 1, qp->g->db, qp->g->db_len);
	if (!ret)
		ret = gkvi_gpu_obj_pin(gpu, o, 2, s->done, gkvi_page_size());
	return ret ? ret : try_it(s);
}

static uint64_t moved(const struct gpu_obj *o, unsigned int i, const void *p)
{
	return o->dev[i] + ((uintptr_t)p - (uintptr_t)o->pins[i]);
}

/* Caller holds gkvi_gpu_lock and has entered the device. */
static int hand_over(struct gkv_gpu_stream *s)
{
	struct gkv_dev_desc d = { .size = sizeof(d) };
	int ret = give(s);

	if (!ret)
		ret = gkv_qp_device(s->qp, &d);
	if (ret)
		return ret;
	s->cq = moved(s->obj, 0, d.cq);
	s->sq_db = moved(s->obj, 1, d.sq_db);
	s->cq_db = moved(s->obj, 1, d.cq_db);
	ret = gkvi_watch_start(s);
	if (ret)
		gkvi_device_take_back(s->qp);
	return ret;
}

static void stream_free(struct gkv_gpu_stream *s)
{
	if (s->done)
		munmap(s->done, gkvi_page_size());
	free(s->seen);
	free(s);
}

static struct gkv_gpu_stream *stream_new(struct gkv_gpu *gpu, struct gkv_qp *qp, void *stream)
{
	struct gkv_gpu_stream *s = calloc(1, sizeof(*s));
	size_t len = sizeof(*s->done);

	if (!s)
		return NULL;
	s->gpu = gpu;
	s->qp = qp;
	s->stream = stream;
	s->phase = 1;
	s->done = pages(&len);
	s->seen = malloc((qp->depth + 7) / 8);
	s->obj = obj_new(s, true);
	if (s->done && s->seen && s->obj)
		return s;
	free(s->obj);
	stream_free(s);
	return NULL;
}

int gkv_gpu_stream_open(struct gkv_gpu *gpu, struct gkv_qp *qp, void *stream,
			struct gkv_gpu_stream **out)
{
	struct gkv_gpu_stream *s;
	void *was;
	int ret;

	if (out)
		*out = NULL;
	if (!qp || !out)
		return gkvi_err(-EINVAL, "no queue pair, or no place for the handle");
	ret = check_qp(gpu, qp);
	if (ret)
		return ret;
	s = stream_new(gpu, qp, stream);
	if (!s)
		return gkvi_err(-ENOMEM, "out of memory");
	pthread_mutex_lock(&gkvi_gpu_lock);
	ret = gpu->rt->enter(gpu, &was);
	if (ret) {
		free(s->obj);
	} else {
		ret = hand_over(s);
		if (ret)
			gkvi_gpu_obj_free(gpu, s->obj);
		else
			obj_list(gpu, s->obj);
		gpu->rt->leave(gpu, was);
	}
	pthread_mutex_unlock(&gkvi_gpu_lock);
	if (ret)
		stream_free(s);
	else
		*out = s;
	return ret;
}

/* ---- Where the stream is ---- */

/* Has the stream gone past batch @number? */
static bool gone_past(const struct gkv_gpu_stream *s, uint32_t number)
{
	void *was;
	int idle;

	if ((int32_t)(load_acquire(s->done) - number) >= 0)
		return true;
	if (!s->broken || s->gpu->rt->enter(s->gpu, &was))
		return false;
	/*
	 * What says that the batch is done may not have been enqueued. A context that has failed
	 * does nothing any more.
	 */
	idle = s->gpu->rt->idle(s->stream);
	s->gpu->rt->leave(s->gpu, was);
	return idle;
}

int gkv_gpu_batch_done(const struct gkv_gpu_batch *b)
{
	return !b->number || gone_past(b->s, b->number);
}

static int busy(const struct gkv_gpu_stream *s)
{
	return gkvi_err(-EBUSY, "the stream of queue pair %u has not gone past all that is "
				"enqueued", s->qp->qid);
}

/* ---- Batches ---- */

/* Caller holds gkvi_gpu_lock and has entered the device. */
static int batch_give(struct gkv_gpu_batch *b)
{
	struct gkv_gpu *gpu = b->s->gpu;
	size_t len = (size_t)b->max * (sizeof(struct gkv_sqe) + sizeof(struct gkv_cqe));
	int ret;

	ret = gkvi_gpu_obj_pin(gpu, b->obj, 0, b->sqes, b->len);
	if (!ret)
		ret = gpu->rt->alloc(len, &b->obj->block);
	if (!ret)
		b->dev_cqes = b->obj->block + b->max * sizeof(struct gkv_sqe);
	return ret;
}

int gkv_gpu_batch_alloc(struct gkv_gpu_stream *s, uint32_t max, struct gkv_gpu_batch **out)
{
	struct gkv_gpu *gpu = s->gpu;
	struct gkv_gpu_batch *b;
	void *was;
	int ret;

	if (!out)
		return gkvi_err(-EINVAL, "no place for the batch");
	*out = NULL;
	if (!max || max > BATCH_MAX)
		return gkvi_err(-EINVAL, "a batch of %u commands, there can be 1 to %u", max,
				BATCH_MAX);
	b = calloc(1, sizeof(*b));
	if (!b)
		return gkvi_err(-ENOMEM, "out of memory");
	b->s = s;
	b->max = max;
	b->len = (size_t)max * (sizeof(*b->sqes) + sizeof(*b->cqes));
	b->sqes = pages(&b->len);
	b->obj = obj_new(b, false);
	ret = b->sqes && b->obj ? 0 : gkvi_err(-ENOMEM, "out of memory");
	if (!ret) {
		b->cqes = (struct gkv_cqe *)(b->sqes + max);
		pthread_mutex_lock(&gkvi_gpu_lock);
		ret = gpu->rt->enter(gpu, &was);
		if (!ret) {
			ret = batch_give(b);
			if (ret) {
				gkvi_gpu_obj_free(gpu, b->obj);
				b->obj = NULL;
			} else {
				obj_list(gpu, b->obj);
			}
			gpu->rt->leave(gpu, was);
		}
		pthread_mutex_unlock(&gkvi_gpu_lock);
	}
	if (ret) {
		if (b->sqes)
			munmap(b->sqes, b->len);
		free(b->obj);
		free(b);
		return ret;
	}
	b->next = s->batches;
	s->batches = b;
	*out = b;
	return 0;
}

/* The stream has gone past it. */
static int batch_free(struct gkv_gpu_batch *b)
{
	struct gkv_gpu_batch **at = &b->s->batches;
	int ret = obj_drop(b->s->gpu, b->obj);

	if (ret)
		return ret;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	munmap(b->sqes, b->len);
	free(b);
	return 0;
}

int gkv_gpu_batch_free(struct gkv_gpu_batch *b)
{
	if (!b)
		return 0;
	return gkv_gpu_batch_done(b) ? batch_free(b) : busy(b->s);
}

int gkv_gpu_stream_close(struct gkv_gpu_stream *s)
{
	int ret;

	if (!s)
		return 0;
	if (!gone_past(s, s->enqueued))
		return busy(s);
	while (s->batches) {
		ret = batch_free(s->batches);
		if (ret)
			return ret;
	}
	ret = obj_drop(s->gpu, s->obj);
	if (ret)
		return ret;
	gkvi_watch_stop(s);
	stream_free(s);
	return 0;
}
