/* SPDX-License-Identifier: MIT */
/* Batches of commands in stream order: from struct gkv_cmd to what the stream does. */
#include <errno.h>
#include <string.h>

#include <gkv_device.h>

#include "dptr.h"
#include "gpu_stream.h"

/* ---- Entries ---- */

static int bad_cmd(uint32_t i, const char *why)
{
	return gkvi_err(-EINVAL, "command %u of the batch: %s", i, why);
}

/* The entry of command @i, at @sqe. */
static int pack(struct gkv_gpu_stream *s, const struct gkv_cmd *cmd, uint32_t i,
		struct gkv_sqe *sqe)
{
	static const struct gkv_dev_queue plain;	/* without checksums */
	struct gkv_dev_cmd c = { .nsid = cmd->nsid, .opcode = cmd->opcode,
				 .options = cmd->options, .key_len = cmd->key_len };
	bool data = false, key = true;
	uint64_t iova;
	uint32_t mem;

	switch (cmd->opcode) {
	case GKV_STORE:
	case GKV_RETRIEVE:
		data = true;
		break;
	case GKV_LIST:
		data = true;
		key = false;
		break;
	case GKV_DELETE:
	case GKV_EXIST:
		break;
	case GKV_FLUSH:
		key = false;
		c.key_len = 0;
		break;
	default:
		return bad_cmd(i, "unknown opcode");
	}
	if (cmd->key_len > GKV_KEY_LEN || (key && !cmd->key_len))
		return bad_cmd(i, "a key has 1 to 16 bytes");
	if (cmd->rsvd || cmd->rsvd2)
		return bad_cmd(i, "reserved fields of struct gkv_cmd are not zero");
	if (cmd->nsegs)
		return bad_cmd(i, "segments: in stream order a value is in one piece");
	memcpy(&c.key_lo, cmd->key, 8);
	memcpy(&c.key_hi, cmd->key + 8, 8);
	if (data) {
		c.len = cmd->len;
		if (cmd->len) {
			if (!gkvi_translate(s->qp, cmd->buf, cmd->len, &iova, &mem))
				return gkvi_bad_buf(s->qp, cmd->buf, cmd->len);
			c.data = gkv_dev_sgl(iova, cmd->len);
		}
	}
	/* Its place in the run is how its completion is found: gkv_dev_answer(). */
	gkvd_put_entry(&plain, (uint8_t *)sqe, &c, (uint16_t)(i % gkvi_run(s)));
	return 0;
}

/* ---- What the stream does ---- */

/* @n entries of @b from @first on, fewer than there are slots: submitted and waited for. */
static int enqueue_run(struct gkv_gpu_batch *b, uint32_t first, uint32_t n)
{
	struct gkv_gpu_stream *s = b->s;
	const struct gpu_runtime *rt = s->gpu->rt;
	struct gkv_qp *qp = s->qp;
	uint32_t slot = s->slot, to_end = qp->depth - slot, one = n < to_end ? n : to_end;
	uint64_t sqes = b->obj->block + (uint64_t)first * sizeof(struct gkv_sqe);
	uint64_t cqes = b->dev_cqes + (uint64_t)first * sizeof(struct gkv_cqe);
	uint32_t last = slot + n - 1, phase = s->phase, end = slot + n;
	int ret;

	if (last >= qp->depth) {
		last -= qp->depth;
		phase ^= 1;
	}
	if (end >= qp->depth)
		end -= qp->depth;
	ret = rt->to_host(s->stream, &qp->sq[slot], sqes, one * sizeof(struct gkv_sqe));
	if (!ret && one < n)
		ret = rt->to_host(s->stream, qp->sq, sqes + one * sizeof(struct gkv_sqe),
				  (n - one) * sizeof(struct gkv_sqe));
	if (!ret)
		ret = rt->write32(s->stream, s->sq_db, end);
	/* Completions are posted in the order of the slots: this is the last of them. */
	if (!ret)
		ret = rt->wait_bit(s->stream, s->cq + last * sizeof(struct gkv_cqe) + 12, CQE_PHASE,
				   phase);
	if (!ret)
		ret = rt->to_device(s->stream, cqes, &qp->cq[slot], one * sizeof(struct gkv_cqe));
	if (!ret && one < n)
		ret = rt->to_device(s->stream, cqes + one * sizeof(struct gkv_cqe), qp->cq,
				    (n - one) * sizeof(struct gkv_cqe));
	if (!ret)
		ret = rt->write32(s->stream, s->cq_db, end);
	s->phase ^= end < slot;
	s->slot = end;
	return ret;
}

/* Caller has entered the device. On failure *@begun tells whether the stream has any of it. */
static int enqueue(struct gkv_gpu_batch *b, uint32_t n, bool *begun)
{
	struct gkv_gpu_stream *s = b->s;
	const struct gpu_runtime *rt = s->gpu->rt;
	uint32_t number = s->enqueued + 1, run = gkvi_run(s);
	int ret;

	*begun = false;
	ret = rt->capturing(s->stream);
	if (ret > 0)
		ret = gkvi_err(-EBUSY, "the stream is being captured: a graph would ring the same "
				       "doorbells again");
	if (!ret)
		ret = rt->to_device(s->stream, b->obj->block, b->sqes, n * sizeof(*b->sqes));
	if (ret)
		return ret;
	*begun = true;
	if (!number)
		number = 1;
	b->n = n;
	b->number = number;
	/* Before the stream can ring: the watcher is to be awake. */
	store_release(&s->enqueued, number);
	gkvi_watch_kick(s);
	for (uint32_t i = 0; i < n && !ret; i += run)
		ret = enqueue_run(b, i, n - i < run ? n - i : run);
	if (!ret)
		ret = rt->to_host(s->stream, b->cqes, b->dev_cqes, n * sizeof(*b->cqes));
	if (!ret)
		ret = rt->write32(s->stream, s->obj->dev[2], number);
	return ret;
}

int gkv_gpu_batch_enqueue(struct gkv_gpu_batch *b, const struct gkv_cmd *cmds, uint32_t n)
{
	struct gkv_gpu_stream *s = b->s;
	bool begun = false;
	void *was;
	int ret;

	if (!cmds || !n)
		return gkvi_err(-EINVAL, "no commands");
	if (n > b->max)
		return gkvi_err(-E2BIG, "%u commands for a batch of %u", n, b->max);
	if (s->broken)
		return gkvi_err(-EIO, "%s has failed half way through a batch before: close the "
				      "stream", s->gpu->rt->name);
	ret = gkvi_watch_err(s);
	if (ret)
		return ret;
	if (!gkv_gpu_batch_done(b))
		return gkvi_err(-EBUSY, "the stream has not gone past the batch yet");
	for (uint32_t i = 0; i < n; i++) {
		ret = pack(s, &cmds[i], i, &b->sqes[i]);
		if (ret)
			return ret;
	}
	/* No command's identifier: where the stream never brings an answer, there is none. */
	memset(b->cqes, 0xff, n * sizeof(*b->cqes));
	ret = s->gpu->rt->enter(s->gpu, &was);
	if (ret)
		return ret;
	ret = enqueue(b, n, &begun);
	s->gpu->rt->leave(s->gpu, was);
	if (!ret || !begun)
		return ret;
	s->broken = true;
	return -EIO;
}

static int fill(const struct gkv_gpu_batch *b, struct gkv_dev_answers *a, const void *cqes)
{
	if (a->size != sizeof(*a))
		return gkvi_err(-EINVAL, "struct gkv_dev_answers: size is not set");
	a->n = b->n;
	a->run = gkvi_run(b->s);
	a->rsvd = 0;
	a->cqes = cqes;
	return 0;
}

int gkv_gpu_batch_answers(const struct gkv_gpu_batch *b, struct gkv_dev_answers *dev,
			  struct gkv_dev_answers *host)
{
	int ret = dev ? fill(b, dev, (const void *)(uintptr_t)b->dev_cqes) : 0;

	if (!ret && host)
		ret = fill(b, host, b->cqes);
	return ret;
}
