/* SPDX-License-Identifier: MIT */
/* Queue pairs: creating, resetting, destroying. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "impl.h"

#define DEFAULT_DEPTH	128u

/* Local state of a queue pair that has just been created or reset. */
void gkvi_qp_fresh(struct gkv_qp *qp)
{
	uint32_t n = qp->depth - 1;

	for (uint32_t i = 0; i < n; i++) {
		struct slot *s = &qp->slots[i];

		if (s->state == SLOT_QUARANTINE)
			gkvi_quarantine(qp, i, -1);
		/* The generation in the CID goes on: old completions stay strangers. */
		s->state = SLOT_FREE;
		s->list = 0;
		s->n_mem = 0;
		qp->free_cids[i] = (uint16_t)(n - 1 - i);
	}
	for (uint32_t i = 0; i < qp->list_pages; i++)
		qp->list_next[i] = i + 2 > qp->list_pages ? 0 : i + 2;
	qp->list_free = qp->list_pages ? 1 : 0;
	qp->n_list_free = qp->list_pages;
	qp->n_free = n;
	qp->outstanding = 0;
	qp->n_busy = 0;
	qp->sq_tail = 0;
	qp->sq_head = 0;
	qp->cq_head = 0;
	qp->phase = 1;
	qp->next_scan = 0;
	qp->odd &= ~(ODD_STOPPED | ODD_DEVICE);
}

/*
 * Hand @qp to the daemon on @sock, or to the session's if @sock is negative. Caller
 * holds g->lock.
 */
int gkvi_qp_add(struct gkv *g, int sock, struct gkv_qp *qp, bool resume)
{
	bool host = !(qp->flags & GKV_QP_POLLED);
	bool db = qp->mode & GKV_MODE_DB;
	int fds[4] = { qp->mode & GKV_MODE_SQ ? qp->drv_fd : qp->fd,
		       qp->mode & GKV_MODE_CQ ? qp->drv_fd : qp->fd, qp->fd, qp->drv_fd };
	struct gkv_msg_qp_add_reply r;
	struct gkv_msg_qp_add m;
	uint32_t flags = 0;
	int efd = -1, ret;

	if (!resume) {
		ret = gkvi_qp_doorbells(qp);
		if (ret)
			return ret;
		/* Segments may be of any length; PRP lists are laid out for a page size. */
		if ((qp->flags & GKV_QP_PRP) && qp->page != g->page_size)
			return gkvi_err(-EPROTO, "PRP pages of %u bytes, kvbridged now has %u",
					qp->page, g->page_size);
		/* Those in VRAM are zero, and may be gone. */
		if (!db) {
			store_release(qp->sq_db, 0);
			store_release(qp->cq_db, 0);
		}
	}
	if (resume)
		flags |= GKV_QP_F_RESUME;
	if (host)
		flags |= GKV_QP_F_HOST;
	if (qp->flags & GKV_QP_CSUM)
		flags |= GKV_QP_F_CSUM;
	gkvi_hdr(&m.hdr, GKV_MSG_QP_ADD, sizeof(m));
	m.qid = htole32(qp->qid);
	m.depth = htole32(qp->depth);
	m.flags = htole32(flags);
	m.mode = htole32(qp->mode);
	m.sq_offset = htole64(qp->mode & GKV_MODE_SQ ? qp->vram[GKVDRV_SQ].off : 0);
	m.cq_offset = htole64(qp->mode & GKV_MODE_CQ ? qp->vram[GKVDRV_CQ].off : qp->cq_off);
	m.rec_offset = htole64(qp->rec_off);
	m.db_offset = htole64(db ? qp->vram[GKVDRV_DB].off : 0);
	if (sock < 0)
		ret = gkvi_call(g, &m.hdr, sizeof(m), fds, db ? 4 : 3, &r, sizeof(r), &efd,
				host ? 1 : 0);
	else
		ret = gkvi_exchange(g, sock, &m.hdr, sizeof(m), fds, db ? 4 : 3, &r, sizeof(r),
				    &efd, host ? 1 : 0, 30 * NSEC_PER_SEC);
	if (ret)
		return ret;
	if (le32toh(r.reactor) >= le32toh(g->hello.reactors)) {
		if (efd >= 0)
			close(efd);
		return gkvi_err(-EPROTO, "kvbridged gave reactor %u of %u", le32toh(r.reactor),
				le32toh(g->hello.reactors));
	}
	if (host && qp->efd < 0) {
		qp->efd = efd;
	} else if (host) {
		/* The owner may be writing the old one: it must keep its number. */
		ret = dup3(efd, qp->efd, O_CLOEXEC) < 0 ? -errno : 0;
		close(efd);
		if (ret)
			return gkvi_err(ret, "eventfd: %s", strerror(-ret));
	}
	store_release(&qp->reactor, le32toh(r.reactor));
	return 0;
}

/* Wake the reactor of @qp, whether it sleeps or not. */
void gkvi_wake(struct gkv_qp *qp)
{
	int ret;

	/* Not write(): gcc 12's ThreadSanitizer falls over a dup3() onto the number meanwhile. */
	do {
		ret = eventfd_write(qp->efd, 1);
	} while (ret < 0 && errno == EINTR);
	/* EAGAIN: the counter is full, so the reactor has plenty to wake up for. */
}

static void qp_free(struct gkv_qp *qp)
{
	gkvi_qp_unmap(qp);
	pthread_mutex_lock(&qp->g->lock);
	gkvi_db_put(qp);
	pthread_mutex_unlock(&qp->g->lock);
	if (qp->efd >= 0)
		close(qp->efd);
	free(qp->slots);
	free(qp->free_cids);
	free(qp->list_next);
	free(qp->seg_mem);
	free(qp);
}

void gkvi_qp_free_all(struct gkv *g)
{
	while (g->qps.next != &g->qps) {
		struct gkv_qp *qp = container_of(g->qps.next, struct gkv_qp, node);

		list_del(&qp->node);
		qp_free(qp);
	}
}

static int qp_check(struct gkv *g, const struct gkv_qp_opts *o)
{
	if (g->flags & GKV_CONNECT_CONTROL)
		return gkvi_err(-EINVAL,
				"a control session (GKV_CONNECT_CONTROL) has no queue pairs");
	if (o->flags & ~(GKV_QP_CSUM | GKV_QP_PRP | GKV_QP_POLLED))
		return gkvi_err(-EINVAL, "unknown flags 0x%x", o->flags);
	/* The daemon's own limit may have changed since the hello: it answers for that itself. */
	if (o->depth < GKV_DEPTH_MIN || o->depth > GKV_DEPTH_MAX)
		return gkvi_err(-EINVAL, "depth %u, there can be %u to %u entries", o->depth,
				GKV_DEPTH_MIN, GKV_DEPTH_MAX);
	if (o->max_segs > 65535)
		return gkvi_err(-EINVAL, "max_segs %u, the limit is 65535", o->max_segs);
	if ((o->flags & GKV_QP_CSUM) && !(le64toh(g->hello.features) & GKV_FEATURE_CSUM))
		return gkvi_err(-EOPNOTSUPP, "kvbridged does not offer checksums (GKV_QP_CSUM)");
	if (o->mode & ~(uint32_t)GKV_MODE_MASK)
		return gkvi_err(-EINVAL, "memory mode 0x%x, the highest is 0x%x", o->mode,
				GKV_MODE_MASK);
	return 0;
}

/* Caller holds g->lock. */
static int qp_create(struct gkv *g, const struct gkv_qp_opts *o, struct gkv_qp *qp)
{
	uint32_t bits = 1;
	int ret;

	ret = qp_check(g, o);
	if (ret)
		return ret;
	for (qp->qid = 1; qp->qid <= g->max_qps && g->qp_by_id[qp->qid]; qp->qid++)
		;
	if (qp->qid > g->max_qps)
		return gkvi_err(-ENOSPC, "the session has %u queue pairs, which is its limit",
				g->max_qps);
	qp->depth = o->depth;
	qp->flags = o->flags;
	qp->max_segs = o->max_segs ? o->max_segs : 1;
	qp->timeout_ns = o->timeout_ns;
	qp->spin_ns = 20000;
	qp->epoch = load_relaxed(&g->epoch);
	qp->hit_seq = 1;	/* odd: never the version of an answer */
	while ((1u << bits) < qp->depth)
		bits++;
	qp->cid_mask = (uint16_t)((1u << bits) - 1);
	qp->cid_step = (uint16_t)(1u << bits);
	qp->page = g->page_size;
	ret = gkvi_qp_memory(g, qp, o);
	if (ret)
		return ret;
	gkvi_qp_fresh(qp);
	/* Take the number first: gkvi_call() may give up the lock. */
	g->qp_by_id[qp->qid] = qp;
	if (qp->list_pages) {
		qp->list_mem = gkvi_mem_internal(g, qp->fd, qp->list_off,
						 qp->map_len - qp->list_off, qp->list, &ret);
		if (!qp->list_mem)
			goto fail;
	}
	ret = gkvi_qp_add(g, -1, qp, false);
	if (ret) {
		if (qp->list_mem)
			gkvi_mem_internal_free(g, qp->list_mem);
		goto fail;
	}
	list_add_tail(&qp->node, &g->qps);
	return 0;
fail:
	g->qp_by_id[qp->qid] = NULL;
	return ret;
}

int gkv_qp_create(struct gkv *g, const struct gkv_qp_opts *opts, struct gkv_qp **out)
{
	struct gkv_qp_opts o = { 0 };
	struct gkv_qp *qp;
	int ret;

	if (!out)
		return gkvi_err(-EINVAL, "no place for the queue pair handle");
	*out = NULL;
	if (opts) {
		if (opts->size < sizeof(uint32_t))
			return gkvi_err(-EINVAL, "struct gkv_qp_opts: size is not set");
		for (size_t i = sizeof(o); i < opts->size; i++)
			if (((const char *)opts)[i])
				return gkvi_err(-EINVAL, "struct gkv_qp_opts: options that this "
							 "library does not know");
		memcpy(&o, opts, opts->size < sizeof(o) ? opts->size : sizeof(o));
	}
	if (!o.depth)
		o.depth = DEFAULT_DEPTH;
	if (posix_memalign((void **)&qp, 64, sizeof(*qp)))
		return gkvi_err(-ENOMEM, "out of memory");
	memset(qp, 0, sizeof(*qp));
	qp->g = g;
	qp->fd = -1;
	qp->drv_fd = -1;
	qp->efd = -1;
	pthread_mutex_lock(&g->lock);
	ret = qp_create(g, &o, qp);
	pthread_mutex_unlock(&g->lock);
	if (ret) {
		/* Freeing must not lose the text that says why. */
		qp_free(qp);
		return ret;
	}
	*out = qp;
	return 0;
}

static int qp_request(struct gkv_qp *qp, uint16_t type)
{
	struct gkv_msg_reply r;
	struct gkv_msg_id m;

	gkvi_hdr(&m.hdr, type, sizeof(m));
	m.id = htole32(qp->qid);
	return gkvi_call(qp->g, &m.hdr, sizeof(m), NULL, 0, &r, sizeof(r), NULL, 0);
}

int gkv_qp_destroy(struct gkv_qp *qp)
{
	struct gkv *g;
	int ret = 0;

	if (!qp)
		return 0;
	g = qp->g;
	pthread_mutex_lock(&g->lock);
	/* With nothing outstanding there is nothing to wait for a daemon that is away. */
	if (load_acquire(&qp->link) == QP_LIVE && !g->dead &&
	    (qp->outstanding || (qp->odd & ODD_DEVICE) || load_relaxed(&g->up))) {
		ret = qp_request(qp, GKV_MSG_QP_DEL);
		/* Lost at a hand-over meanwhile: nobody serves it any more. */
		if (ret && (load_acquire(&qp->link) != QP_LIVE || g->dead ||
			    (!qp->outstanding && !(qp->odd & ODD_DEVICE))))
			ret = 0;
	}
	if (!ret) {
		list_del(&qp->node);
		g->qp_by_id[qp->qid] = NULL;
		gkvi_qp_fresh(qp);	/* ends quarantine */
		if (qp->list_mem)
			gkvi_mem_internal_free(g, qp->list_mem);
	}
	pthread_mutex_unlock(&g->lock);
	if (!ret)
		qp_free(qp);
	return ret;
}

int gkv_qp_reset(struct gkv_qp *qp)
{
	struct gkv *g = qp->g;
	uint32_t link;
	int ret;

	pthread_mutex_lock(&g->lock);
	link = load_acquire(&qp->link);
	if (gkv_qp_stopped(qp) == GKV_STOPPED_MEMORY) {
		pthread_mutex_unlock(&g->lock);
		return gkvi_err(-ENODEV, "queue pair %u has lost memory: destroy it and make "
					 "another", qp->qid);
	}
	if (link == QP_LIVE) {
		ret = qp_request(qp, GKV_MSG_QP_RESET);
		if (!ret)
			gkvi_qp_fresh(qp);
		else
			link = load_acquire(&qp->link);
	}
	if (link == QP_DEAD) {
		ret = gkvi_err(-ENOTCONN, "queue pair %u was lost with its daemon or its memory",
			       qp->qid);
	} else if (link != QP_LIVE) {
		ret = gkvi_qp_wipe(qp);
		gkvi_qp_fresh(qp);
		if (!ret)
			ret = gkvi_qp_add(g, -1, qp, false);
		if (!ret)
			store_release(&qp->link, QP_LIVE);
	}
	pthread_mutex_unlock(&g->lock);
	return ret;
}

uint32_t gkv_qp_depth(const struct gkv_qp *qp)
{
	return qp->depth;
}

uint32_t gkv_qp_id(const struct gkv_qp *qp)
{
	return qp->qid;
}

int gkv_qp_stats(const struct gkv_qp *qp, struct gkv_qp_stats *stats)
{
	struct gkv_qp_stats s = qp->stats;

	if (!stats || stats->size < sizeof(uint32_t))
		return gkvi_err(-EINVAL, "struct gkv_qp_stats: size is not set");
	s.size = stats->size;
	memcpy(stats, &s, stats->size < sizeof(s) ? stats->size : sizeof(s));
	return 0;
}
