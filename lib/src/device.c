/* SPDX-License-Identifier: MIT */
/* Queue pairs in the hands of device code: where they are, and what it is told meanwhile. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include <gkv_device/init.h>

#include "reap.h"

int gkvi_qp_device_err(const struct gkv_qp *qp)
{
	return gkvi_err(-EBUSY, "queue pair %u is in the hands of device code until it is reset",
			qp->qid);
}

/* The daemon has gone, or is back. Caller holds g->lock. */
void gkvi_device_away(struct gkv *g, bool away)
{
	struct list_node *n;

	for (n = g->qps.next; n != &g->qps; n = n->next) {
		struct gkv_dev_ctl *ctl = container_of(n, struct gkv_qp, node)->ctl;

		/* Who sees that the daemon is back also sees the new epoch. */
		if (!away)
			store_release(&ctl->epoch, ctl->epoch + 1);
		store_release(&ctl->away, away);
	}
}

/* Nobody will answer what is outstanding. */
void gkvi_device_lost(struct gkv_qp *qp)
{
	store_release(&qp->ctl->lost, 1);
}

/* Caller holds g->lock, so that the keeper does not say that it is lost meanwhile. */
static int qp_device(struct gkv_qp *qp, struct gkv_dev_desc *desc)
{
	if (!desc || desc->size != sizeof(*desc))
		return gkvi_err(-EINVAL, "struct gkv_dev_desc: size is not set");
	if (!(qp->flags & GKV_QP_POLLED))
		return gkvi_err(-EINVAL, "queue pair %u is not GKV_QP_POLLED: device code wakes "
					 "nobody", qp->qid);
	if (qp->odd & ODD_DEVICE)
		return gkvi_qp_device_err(qp);
	if (qp->outstanding)
		return gkvi_err(-EBUSY, "queue pair %u has %u commands outstanding", qp->qid,
				qp->outstanding);
	if (load_acquire(&qp->link) != QP_LIVE)
		return gkvi_err(-ENOTCONN, "queue pair %u was lost with its daemon", qp->qid);
	if (qp->sq_tail || qp->cq_head || !qp->phase)
		return gkvi_err(-EINVAL, "queue pair %u has been used: reset it first", qp->qid);
	memset(desc, 0, sizeof(*desc));
	desc->size = sizeof(*desc);
	desc->depth = qp->depth;
	desc->sq = qp->sq;
	desc->cq = qp->cq;
	desc->sq_db = qp->sq_db;
	desc->cq_db = qp->cq_db;
	desc->stopped = (const uint32_t *)&qp->rec->stopped;
	desc->ctl = qp->ctl;
	desc->timeout_ns = gkvi_timeout(qp, 0);
	desc->flags = qp->flags & GKV_QP_CSUM ? GKV_DEV_CSUM : 0;
	desc->page = qp->page;
	desc->ticks_per_us = 1000;
	store_release(&qp->ctl->lost, 0);
	qp->odd |= ODD_DEVICE;
	return 0;
}

int gkv_qp_device(struct gkv_qp *qp, struct gkv_dev_desc *desc)
{
	int ret;

	pthread_mutex_lock(&qp->g->lock);
	ret = qp_device(qp, desc);
	pthread_mutex_unlock(&qp->g->lock);
	return ret;
}

/* No device has come to know of the queue pair: it is the host's as before. */
void gkvi_device_take_back(struct gkv_qp *qp)
{
	pthread_mutex_lock(&qp->g->lock);
	qp->odd &= ~ODD_DEVICE;
	pthread_mutex_unlock(&qp->g->lock);
}

/*
 * Take a queue pair, which is in the hands of device code, from the daemon, so that neither it
 * nor a successor serves it until it is reset. A daemon that is there is asked, and has ended
 * what it had begun when it answers. Where there is none, or it does not answer, the keeper
 * will not hand the queue pair over again; what the old one had begun may still happen.
 */
void gkvi_device_withdraw(struct gkv_qp *qp)
{
	struct gkv *g = qp->g;
	struct gkv_msg_reply r;
	struct gkv_msg_id m;

	pthread_mutex_lock(&g->lock);
	if (load_acquire(&qp->link) == QP_LIVE) {
		gkvi_hdr(&m.hdr, GKV_MSG_QP_DEL, sizeof(m));
		m.id = htole32(qp->qid);
		if (load_relaxed(&g->up) && !g->dead)
			gkvi_call(g, &m.hdr, sizeof(m), NULL, 0, &r, sizeof(r), NULL, 0);
		/* Unless the keeper has seen to that meanwhile. */
		if (load_acquire(&qp->link) == QP_LIVE)
			store_release(&qp->link, QP_LOST);
		gkvi_device_lost(qp);
	}
	pthread_mutex_unlock(&g->lock);
}
