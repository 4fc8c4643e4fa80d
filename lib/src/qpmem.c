/* SPDX-License-Identifier: MIT */
/* The memory of a queue pair: a memfd, and what lies in VRAM. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gkv_device/queue.h>

#include "provider.h"

#define ALIGN_4K(n)	(((size_t)(n) + 4095) & ~(size_t)4095)
/* What a mode can place; the rest of it is about data. */
#define VRAM_PARTS	(GKV_MODE_SQ | GKV_MODE_CQ | GKV_MODE_DB)
#define SGL_PER_PAGE(page) ((page) / sizeof(struct gkv_sgl_desc) - 1)

static size_t part_len(const struct gkv_qp *qp, uint32_t part)
{
	switch (part) {
	case GKVDRV_SQ:
		return qp->depth * sizeof(struct gkv_sqe);
	case GKVDRV_CQ:
		return qp->depth * sizeof(struct gkv_cqe);
	default:
		return 2 * (4u << qp->dstrd);
	}
}

static void *vram_part(const struct gkv_qp *qp, uint32_t part)
{
	return (char *)qp->vram[part].map + (qp->vram[part].off & (gkvi_page_size() - 1));
}

/*
 * Where the doorbells are depends on the stride that the daemon of the day wants. Caller
 * holds g->lock.
 */
int gkvi_qp_doorbells(struct gkv_qp *qp)
{
	struct gkv *g = qp->g;
	size_t sq = GKV_SQ_TAIL_DB((size_t)qp->qid, g->dstrd);
	size_t cq = GKV_CQ_HEAD_DB((size_t)qp->qid, g->dstrd);

	if (qp->mode & GKV_MODE_DB) {
		if (qp->dstrd != g->dstrd)
			return gkvi_err(-EPROTO, "doorbells of queue pair %u lie in VRAM with stride "
						 "%u, kvbridged now has %u", qp->qid, qp->dstrd,
					g->dstrd);
		qp->sq_db = vram_part(qp, GKVDRV_DB);
		qp->cq_db = (uint32_t *)((char *)qp->sq_db + (4u << qp->dstrd));
		return 0;
	}
	if (cq + sizeof(uint32_t) > g->db_len)
		return gkvi_err(-EPROTO, "doorbells of queue pair %u with stride %u do not fit the "
					 "session's %zu bytes", qp->qid, g->dstrd, g->db_len);
	qp->sq_db = (uint32_t *)((char *)g->db + sq);
	qp->cq_db = (uint32_t *)((char *)g->db + cq);
	return 0;
}

/*
 * Rings, record and doorbells as the daemon wants them for a new queue pair: zero.
 * -ENODEV when memory of theirs is gone. The owner or under g->lock, with nobody else at it.
 */
int gkvi_qp_wipe(struct gkv_qp *qp)
{
	/* Not what follows the record: that is the keeper's. */
	memset(qp->map, 0, qp->rec_off + GKV_REC_LEN(qp->depth));
	if (!(qp->mode & GKV_MODE_DB)) {
		store_release(qp->sq_db, 0);
		store_release(qp->cq_db, 0);
	}
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++) {
		size_t len = part_len(qp, i);

		if (!qp->vram[i].map)
			continue;
		/* By a system call, which fails where a store would end in SIGBUS. */
		if (pread(qp->fd, vram_part(qp, i), len, (off_t)qp->rec_off) != (ssize_t)len) {
			store_release(&qp->rec->stopped, htole32(GKV_STOPPED_MEMORY));
			return gkvi_err(-ENODEV, "memory of queue pair %u is gone", qp->qid);
		}
	}
	return 0;
}

/* Is the VRAM of @qp gone? Asks the module. */
bool gkvi_qp_gone(const struct gkv_qp *qp)
{
	struct gkvdrv_report r;

	for (uint32_t i = 0; i < GKVDRV_PARTS; i++)
		if (qp->vram[i].map &&
		    (gkvi_drv_report(qp->drv_fd, i, &r) || r.place == GKVDRV_GONE))
			return true;
	return false;
}

void gkvi_qp_unmap(struct gkv_qp *qp)
{
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++)
		if (qp->vram[i].map)
			munmap(qp->vram[i].map, qp->vram[i].map_len);
	if (qp->drv_fd >= 0)
		close(qp->drv_fd);
	if (qp->map)
		munmap(qp->map, qp->map_len);
	if (qp->fd >= 0)
		close(qp->fd);
}

/* ---- Host memory ---- */

/* How many pages of lists @qp may need at a time. They cost nothing until used. */
static uint32_t list_pages(const struct gkv_qp *qp)
{
	size_t page = qp->page;
	size_t per_cmd = 0, n;

	if (qp->max_segs > 1)
		per_cmd = (qp->max_segs + SGL_PER_PAGE(page) - 1) / SGL_PER_PAGE(page);
	n = per_cmd * (qp->depth - 1);
	if (qp->flags & GKV_QP_PRP) {
		size_t per_page = page / sizeof(uint64_t) - 1;

		/* One each, and one command of any 32-bit length on top. */
		n = (qp->depth - 1) + (((size_t)1 << 32) / page + per_page) / per_page + 1;
	}
	if (n > LIST_PAGES_MAX)
		n = LIST_PAGES_MAX;
	return (uint32_t)n;
}

static int map_host(struct gkv_qp *qp)
{
	size_t page = qp->page, ctl_off, off;

	qp->cq_off = ALIGN_4K((size_t)qp->depth * sizeof(struct gkv_sqe));
	qp->rec_off = qp->cq_off + ALIGN_4K((size_t)qp->depth * sizeof(struct gkv_cqe));
	ctl_off = (qp->rec_off + GKV_REC_LEN(qp->depth) + 63) & ~(size_t)63;
	off = ctl_off + sizeof(*qp->ctl);
	qp->list_off = (off + page - 1) & ~(page - 1);
	qp->list_pages = list_pages(qp);
	qp->map_len = qp->list_off + qp->list_pages * page;

	qp->fd = gkvi_memfd("gkv-qp", qp->map_len);
	if (qp->fd < 0)
		return qp->fd;
	qp->map = mmap(NULL, qp->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, qp->fd, 0);
	if (qp->map == MAP_FAILED) {
		int ret = -errno;

		qp->map = NULL;
		return gkvi_err(ret, "cannot map %zu bytes of queue pair: %s", qp->map_len,
				strerror(-ret));
	}
	qp->sq = qp->map;
	qp->cq = (struct gkv_cqe *)((char *)qp->map + qp->cq_off);
	qp->rec = (struct gkv_rec_hdr *)((char *)qp->map + qp->rec_off);
	qp->ctl = (struct gkv_dev_ctl *)((char *)qp->map + ctl_off);
	qp->list = (uint8_t *)qp->map + qp->list_off;
	qp->list_iova = (uintptr_t)qp->list;
	return 0;
}

static int make_tables(struct gkv_qp *qp)
{
	qp->slots = calloc(qp->depth, sizeof(*qp->slots));
	qp->free_cids = calloc(qp->depth, sizeof(*qp->free_cids));
	if (qp->list_pages)
		qp->list_next = calloc(qp->list_pages, sizeof(*qp->list_next));
	if (qp->max_segs > 1)
		qp->seg_mem = calloc((size_t)qp->depth * qp->max_segs, sizeof(*qp->seg_mem));
	if (!qp->slots || !qp->free_cids || (qp->list_pages && !qp->list_next) ||
	    (qp->max_segs > 1 && !qp->seg_mem))
		return gkvi_err(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < qp->depth; i++)
		qp->slots[i].cid = (uint16_t)i;
	return 0;
}

/* ---- VRAM ---- */

static const char *const part_names[GKVDRV_PARTS] = { "SQ", "CQ", "doorbells" };

/* What is asked of the module for part @i. */
static int want_part(const struct gkv_qp *qp, uint32_t i, const struct gkv_qp_part *where,
		     struct gkvdrv_part *part)
{
	part->region = -1;
	if (!where->mem && !where->offset)
		return 0;
	/* The bits of the mode are in the order of the parts. */
	if (!(qp->mode & (1u << i)))
		return gkvi_err(-EINVAL, "%s: memory mode 0x%x has it in host memory, but a place in "
					 "VRAM is given", part_names[i], qp->mode);
	if (!where->mem)
		return gkvi_err(-EINVAL, "%s: an offset of 0x%llx in no memory", part_names[i],
				(unsigned long long)where->offset);
	if (where->mem->g != qp->g || !where->mem->vram)
		return gkvi_err(-EINVAL, "%s: the memory at %p is %s", part_names[i],
				where->mem->addr,
				where->mem->vram ? "another session's" : "host memory");
	if (where->offset > where->mem->len || part_len(qp, i) > where->mem->len - where->offset)
		return gkvi_err(-EINVAL, "%s: 0x%zx bytes at offset 0x%llx are not within the memory "
					 "at %p, 0x%zx bytes", part_names[i], part_len(qp, i),
				(unsigned long long)where->offset, where->mem->addr,
				where->mem->len);
	part->region = where->mem->fd;
	part->offset = where->mem->offset + where->offset;
	return 0;
}

/*
 * How many free places for doorbells are tried: one that was given back is taken until the daemon
 * has closed its descriptor.
 */
#define DB_TRIES	8u

/* What is asked of the module, and then what it gave. */
struct making {
	struct gkv_qp *qp;
	struct gkvdrv_qp a;
	bool share_db;		/* doorbells have a place in a page of the session's */
};

static int create_once(struct making *m, int drv, uint32_t id, uint32_t *reason,
		       const struct gkvdrv_part *db)
{
	struct gkvdrv_qp a = m->a;
	int ret;

	if (db)
		a.parts[GKVDRV_DB] = *db;
	for (uint32_t i = 0; i < GKVDRV_PARTS; i++)
		if ((a.mode & (1u << i)) && a.parts[i].region < 0)
			a.parts[i].provider = id;
	ret = gkvi_drv_call(drv, GKVDRV_QP_CREATE, &a, sizeof(a), "cannot make a queue pair");
	*reason = a.head.reason;
	if (!ret)
		m->a = a;
	return ret;
}

static int create_with(int drv, uint32_t id, void *arg, uint32_t *reason)
{
	struct making *m = arg;
	uint32_t skip = 0;

	if (!m->share_db)
		return create_once(m, drv, id, reason, NULL);
	for (;;) {
		struct gkvdrv_part db = { .region = -1 };
		bool fresh = false;
		int ret;

		ret = gkvi_db_take(m->qp, drv, id, skip, &db, &fresh, reason);
		if (ret)
			return ret;
		ret = create_once(m, drv, id, reason, &db);
		if (!ret)
			return 0;
		gkvi_db_put(m->qp);
		/* Other parts may be the reason: in a page of its own it is not the doorbells. */
		if (fresh || (*reason != GKVDRV_WHY_OVERLAP && *reason != GKVDRV_WHY_REVOKED))
			return ret;
		skip = skip + 1 < DB_TRIES ? skip + 1 : UINT32_MAX;
	}
}

/* Have the module make what lies in VRAM. Its descriptor is the queue pair's. */
static int make_parts(struct gkv_qp *qp, const struct gkv_qp_opts *o, struct gkvdrv_qp *a)
{
	const struct gkv_qp_part *where[GKVDRV_PARTS] = { &o->sq, &o->cq, &o->db };
	struct making m = { .qp = qp, .a = { .depth = qp->depth, .mode = qp->mode,
					     .dstrd = qp->dstrd } };
	uint32_t reason, allocate = 0;
	int drv, ret;

	for (uint32_t i = 0; i < GKVDRV_PARTS; i++) {
		ret = want_part(qp, i, where[i], &m.a.parts[i]);
		if (ret)
			return ret;
		if ((qp->mode & (1u << i)) && m.a.parts[i].region < 0)
			allocate |= 1u << i;
	}
	if (!(qp->mode & VRAM_PARTS))
		return 0;
	m.share_db = allocate & GKV_MODE_DB && gkvi_db_shares(qp);
	drv = gkvi_drv_open(GKVDRV_CAP_VRAM);
	if (drv < 0)
		return drv;
	if (allocate)
		ret = gkvi_each_provider(drv, o->provider, false, create_with, &m);
	else
		ret = create_with(drv, 0, &m, &reason);
	close(drv);
	*a = m.a;
	if (!ret)
		qp->drv_fd = a->fd;
	return ret;
}

static int map_part(struct gkv_qp *qp, uint32_t i, const struct gkvdrv_part *part)
{
	size_t page = gkvi_page_size(), in_page = part->region < 0 ? 0 : part->offset & (page - 1);
	size_t len = (in_page + part_len(qp, i) + page - 1) & ~(page - 1);
	void *p;

	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, qp->drv_fd,
		 (off_t)part->map_offset);
	if (p == MAP_FAILED)
		return gkvi_err(-errno, "%s: cannot map %zu bytes of VRAM: %s", part_names[i], len,
				strerror(errno));
	qp->vram[i].map = p;
	qp->vram[i].map_len = len;
	qp->vram[i].off = part->map_offset + in_page;
	return 0;
}

static int map_vram(struct gkv *g, struct gkv_qp *qp, const struct gkv_qp_opts *o)
{
	struct gkvdrv_qp a = { 0 };
	int ret = qp->mode ? gkvi_need_vram(g) : 0;

	if (!ret)
		ret = make_parts(qp, o, &a);
	for (uint32_t i = 0; i < GKVDRV_PARTS && !ret; i++)
		if (qp->mode & (1u << i))
			ret = map_part(qp, i, &a.parts[i]);
	if (ret)
		return ret;
	if (qp->mode & GKV_MODE_SQ)
		qp->sq = vram_part(qp, GKVDRV_SQ);
	if (qp->mode & GKV_MODE_CQ)
		qp->cq = vram_part(qp, GKVDRV_CQ);
	qp->odd = qp->mode & VRAM_PARTS;
	return 0;
}

/*
 * Make the memory of @qp, whose depth, page, segments and flags are set. The doorbells
 * are left to gkvi_qp_doorbells(). What a failure leaves behind is for gkvi_qp_unmap() and
 * the owner of the tables. Caller holds g->lock.
 */
int gkvi_qp_memory(struct gkv *g, struct gkv_qp *qp, const struct gkv_qp_opts *o)
{
	int ret;

	qp->mode = o->mode;
	qp->dstrd = g->dstrd;
	ret = map_host(qp);
	if (!ret)
		ret = make_tables(qp);
	return ret ? ret : map_vram(g, qp, o);
}
