/* SPDX-License-Identifier: MIT */
/* Data path: from commands to submission queue entries and one doorbell. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "bar.h"
#include "dptr.h"
#include "reap.h"

typedef uint64_t __attribute__((may_alias)) qword;

/* Bytes of a key that count, as masks for its two halves. */
#define LOW_BYTES(n) ((n) >= 8 ? ~0ull : (1ull << (8 * ((n) & 7))) - 1)

/* Slots of the SQ that the daemon has not fetched yet, as far as is known. */
static inline uint32_t sq_used(const struct gkv_qp *qp)
{
	return qp->sq_tail >= qp->sq_head ? qp->sq_tail - qp->sq_head :
					    qp->sq_tail + qp->depth - qp->sq_head;
}

static inline uint32_t room(const struct gkv_qp *qp)
{
	uint32_t used = sq_used(qp);

	/* Each CQE tells how far the SQ was fetched; entries beyond must not be rewritten. */
	return qp->depth - 1 - (used > qp->outstanding ? used : qp->outstanding);
}

uint32_t gkv_qp_room(const struct gkv_qp *qp)
{
	return load_relaxed(&qp->link) == QP_LIVE && !(qp->odd & (ODD_STOPPED | ODD_DEVICE)) ?
		       room(qp) : 0;
}

uint32_t gkv_qp_outstanding(const struct gkv_qp *qp)
{
	return qp->outstanding;
}

static int bad_cmd(const struct gkv_cmd *c)
{
	if (c->key_len > GKV_KEY_LEN)
		return gkvi_err(-EINVAL,
				"key of %u bytes, the limit is %u", c->key_len, GKV_KEY_LEN);
	switch (c->opcode) {
	case GKV_FLUSH:
	case GKV_STORE:
	case GKV_RETRIEVE:
	case GKV_LIST:
	case GKV_DELETE:
	case GKV_EXIST:
		break;
	default:
		return gkvi_err(-EINVAL, "unknown opcode 0x%02x", c->opcode);
	}
	if (c->rsvd || c->rsvd2)
		return gkvi_err(-EINVAL, "reserved fields of struct gkv_cmd are not zero");
	return gkvi_err(-EINVAL, "a key of 0 bytes");
}

/* Fill @sqe for @cmd and its slot. Nothing is left behind on failure. */
static inline __attribute__((always_inline)) int pack(struct gkv_qp *qp, const struct gkv_cmd *cmd,
						      struct gkv_sqe *sqe)
{
	uint32_t idx = qp->free_cids[qp->n_free - 1];
	struct slot *s = &qp->slots[idx];
	uint64_t cdw10 = 0, cdw12 = 0, lo, hi;
	struct dptr d = { 0 };
	qword *q = (qword *)sqe;
	uint32_t klen = cmd->key_len;
	int ret;

	if (unlikely(klen > GKV_KEY_LEN || cmd->rsvd || cmd->rsvd2))
		return bad_cmd(cmd);
	s->list = 0;
	s->n_mem = 0;
	switch (cmd->opcode) {
	case GKV_STORE:
		if (qp->flags & GKV_QP_CSUM)
			cdw12 = (uint64_t)cmd->crc | (uint64_t)GKV_CDW13_CSUM_VALID << 32;
		/* fallthrough */
	case GKV_RETRIEVE:
		if (unlikely(!klen))
			return bad_cmd(cmd);
		/* fallthrough */
	case GKV_LIST:
		cdw10 = cmd->len;
		if (!cmd->len)
			break;
		if (likely(!cmd->nsegs && !(qp->flags & GKV_QP_PRP))) {
			uint64_t iova;

			if (unlikely(!gkvi_translate(qp, cmd->buf, cmd->len, &iova, &s->mem)))
				return gkvi_bad_buf(qp, cmd->buf, cmd->len);
			s->n_mem = 1;
			d.lo = htole64(iova);
			d.hi = htole64((uint64_t)cmd->len | (uint64_t)GKV_SGL_DATA_BLOCK << 56);
			d.psdt = GKV_PSDT_SGL;
			break;
		}
		ret = gkvi_pack_dptr(qp, cmd, s, idx, &d);
		if (unlikely(ret)) {
			gkvi_list_put(qp, s);
			return ret;
		}
		break;
	case GKV_DELETE:
	case GKV_EXIST:
		if (unlikely(!klen))
			return bad_cmd(cmd);
		break;
	case GKV_FLUSH:
		klen = 0;
		break;
	default:
		return bad_cmd(cmd);
	}
	s->cid = (uint16_t)(s->cid + qp->cid_step);
	s->state = SLOT_BUSY;
	s->deadline = 0;
	s->nsid = cmd->nsid;
	s->user_data = cmd->user_data;
	qp->n_free--;

	memcpy(&lo, cmd->key, 8);
	memcpy(&hi, cmd->key + 8, 8);
	lo &= htole64(LOW_BYTES(klen));
	hi &= klen > 8 ? htole64(LOW_BYTES(klen - 8)) : 0;
	q[0] = htole64((uint64_t)cmd->opcode | (uint64_t)d.psdt << (8 + GKV_SQE_PSDT_SHIFT) |
		       (uint64_t)s->cid << 16 | (uint64_t)cmd->nsid << 32);
	q[1] = lo;
	q[2] = 0;
	q[3] = d.lo;
	q[4] = d.hi;
	q[5] = htole64(cdw10 | (uint64_t)klen << 32 | (uint64_t)cmd->options << 40);
	q[6] = htole64(cdw12);
	q[7] = hi;
	return 0;
}

/* Take back the @n commands packed last; no doorbell has told of them. */
static void unpack(struct gkv_qp *qp, uint32_t n)
{
	while (n--) {
		struct slot *s = &qp->slots[qp->free_cids[qp->n_free++]];

		gkvi_list_put(qp, s);
		s->state = SLOT_FREE;
	}
}

static void wake_if_asleep(struct gkv_qp *qp)
{
	uint32_t r = load_relaxed(&qp->reactor);

	if (unlikely(load_relaxed(&qp->g->states[r].sleeping))) {
		qp->stats.wakeups++;
		gkvi_wake(qp);
	}
}

static void ring_sq(struct gkv_qp *qp, uint32_t tail)
{
	if (qp->flags & GKV_QP_POLLED) {
		store_release(qp->sq_db, htole32(tail));
		return;
	}
	/*
	 * Either the reactor, about to sleep, sees the new tail, or this sees that it
	 * sleeps: both sides store, then load.
	 */
	store_full_barrier(qp->sq_db, htole32(tail));
	wake_if_asleep(qp);
}

/* @n commands are in the ring, up to @tail. */
static inline void submitted(struct gkv_qp *qp, uint32_t n, uint32_t tail)
{
	qp->sq_tail = tail;
	qp->outstanding += n;
	qp->n_busy += n;
	qp->stats.submitted += n;
}

/* gkv_submit() to a queue pair that is stopped, or device code's, or in part in VRAM. */
static __attribute__((noinline)) int submit_odd(struct gkv_qp *qp, const struct gkv_cmd *cmds,
						uint32_t n)
{
	uint32_t tail = qp->sq_tail, left = room(qp), i;
	struct gkv_sqe sqe = { 0 };	/* gcc -O3 does not see that pack() fills it */
	int ret;

	if (qp->odd & ODD_DEVICE)
		return gkvi_qp_device_err(qp);
	/* Before memory is touched that may be gone. */
	if (gkv_qp_stopped(qp))
		return gkvi_qp_stopped_err(qp);
	if (n > left)
		n = left;
	for (i = 0; i < n; i++) {
		ret = pack(qp, &cmds[i], &sqe);
		if (unlikely(ret)) {
			if (ret == -EAGAIN)
				break;
			unpack(qp, i);
			return ret;
		}
		bar_put_sqe(&qp->sq[tail], &sqe);
		if (++tail == qp->depth)
			tail = 0;
	}
	if (!i)
		return 0;
	submitted(qp, i, tail);
	/* Also where the doorbell is in host memory: it must not overtake the entries. */
	bar_ring(qp->sq_db, tail);
	if (!(qp->flags & GKV_QP_POLLED))
		wake_if_asleep(qp);
	return (int)i;
}

int gkv_submit(struct gkv_qp *qp, const struct gkv_cmd *cmds, uint32_t n)
{
	uint32_t tail = qp->sq_tail, left, i;
	int ret;

	if (unlikely(load_acquire(&qp->link) != QP_LIVE))
		return gkvi_qp_unlinked(qp);
	if (unlikely(qp->odd))
		return submit_odd(qp, cmds, n);
	left = room(qp);
	if (n > left)
		n = left;
	for (i = 0; i < n; i++) {
		ret = pack(qp, &cmds[i], &qp->sq[tail]);
		if (unlikely(ret)) {
			if (ret == -EAGAIN)
				break;
			unpack(qp, i);
			return ret;
		}
		if (++tail == qp->depth)
			tail = 0;
	}
	if (!i)
		return 0;
	submitted(qp, i, tail);
	ring_sq(qp, tail);
	return (int)i;
}
