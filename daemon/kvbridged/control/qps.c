/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs of a session: creation, hand-over, reset, removal.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "control/server.h"
#include "control/session.h"
#include "core/link.h"

static struct kvb_session_qp *find(struct kvb_session *s, uint32_t qid)
{
	for (struct kvb_session_qp *q = s->qps; q; q = q->next) {
		if (q->qp.qid == qid)
			return q;
	}
	return NULL;
}

static void qp_free(struct kvb_session_qp *q)
{
	kvb_session_mem_unmap(&q->sq);
	kvb_session_mem_unmap(&q->cq);
	kvb_session_mem_unmap(&q->db);
	kvb_clientmem_unmap(&q->rec, q->s->peer.uid);
	free(q->qp.free_rec);
	free(q->qp.recover);
	free(q);
}

static int qp_check(struct kvb_session *s, const struct gkv_msg_qp_add *m, int nfds,
		    struct kvb_err *err)
{
	const uint32_t known = GKV_QP_F_CSUM | GKV_QP_F_RESUME | GKV_QP_F_HOST;
	uint32_t max_depth = atomic_load(&kvb_live.max_queue_depth);
	uint64_t max_qid = s->srv->cfg->max_qid;
	unsigned int dstrd = (unsigned int)s->srv->cfg->dstrd;
	bool db = m->mode & GKV_MODE_DB;

	if (m->flags & ~known)
		return kvb_fail(err, EOPNOTSUPP, "queue pair %u: unknown flags %#x", m->qid,
				m->flags & ~known);
	if (!m->qid || m->qid > max_qid)
		return kvb_fail(err, EINVAL, "queue identifier %u is not between 1 and %llu", m->qid,
				(unsigned long long)max_qid);
	if (find(s, m->qid))
		return kvb_fail(err, EBUSY, "queue pair %u exists", m->qid);
	/* A queue pair that is handed over again keeps the depth it was granted. */
	if (m->flags & GKV_QP_F_RESUME)
		max_depth = GKV_DEPTH_MAX;
	if (m->depth < GKV_DEPTH_MIN || m->depth > max_depth)
		return kvb_fail(err, EINVAL, "queue pair %u: depth %u is not between %u and %u",
				m->qid, m->depth, GKV_DEPTH_MIN, max_depth);
	if (m->flags & GKV_QP_F_CSUM && !(s->features & GKV_FEATURE_CSUM))
		return kvb_fail(err, EINVAL, "queue pair %u: checksums were not negotiated", m->qid);
	if (m->mode & ~GKV_MODE_MASK)
		return kvb_fail(err, EINVAL, "queue pair %u: memory mode %#x is above %#x", m->qid,
				m->mode, GKV_MODE_MASK);
	if (m->mode && !(s->features & GKV_FEATURE_VRAM))
		return kvb_fail(err, EINVAL,
				"queue pair %u: memory mode %#x, but VRAM was not negotiated",
				m->qid, m->mode);
	if (nfds != (db ? 4 : 3))
		return kvb_fail(err, EINVAL,
				"queue pair %u: memory mode %#x with %d descriptors, expected %d",
				m->qid, m->mode, nfds, db ? 4 : 3);
	if (m->db_offset % 8 || (m->db_offset && !db))
		return kvb_fail(err, EINVAL,
				"queue pair %u: doorbell offset %#llx must be %s", m->qid,
				(unsigned long long)m->db_offset,
				db ? "a multiple of 8" : "0 without its bit in the memory mode");
	if (db)
		return 0;
	if (!s->db.addr || GKV_DB_LEN(m->qid, dstrd) > s->db.len)
		return kvb_fail(err, EINVAL,
				"queue pair %u: doorbell memory of %zu bytes ends before byte %u",
				m->qid, s->db.len, GKV_DB_LEN(m->qid, dstrd));
	return 0;
}

static void do_gone(struct kvb_call *c)
{
	struct kvb_session_qp *q = c->arg;

	kvb_qp_memory_gone(&q->qp);
}

/* One is enough: without it the queue pair is of no use. */
static void part_gone(struct kvb_session_qp *q)
{
	kvb_reactor_call(q->qp.r, &(struct kvb_call){ .arg = q }, do_gone);
}

static void sq_gone(struct kvb_session_mem *sm)
{
	part_gone(kvb_container(sm, struct kvb_session_qp, sq));
}

static void cq_gone(struct kvb_session_mem *sm)
{
	part_gone(kvb_container(sm, struct kvb_session_qp, cq));
}

static void db_gone(struct kvb_session_mem *sm)
{
	part_gone(kvb_container(sm, struct kvb_session_qp, db));
}

static int qp_map(struct kvb_session *s, struct kvb_session_qp *q, const struct gkv_msg_qp_add *m,
		  const int *fds, struct kvb_err *err)
{
	uint32_t stride = 4u << s->srv->cfg->dstrd;
	uint64_t in_page = m->db_offset % 4096;
	char what[48];
	struct kvb_memreq req = { .mode = m->mode, .what = what, .dead = &q->ring_dead };
	int rc;

	snprintf(what, sizeof(what), "SQ of queue pair %u", m->qid);
	req.fd = fds[0];
	req.use = KVB_MEM_SQ;
	req.offset = m->sq_offset;
	req.len = (uint64_t)m->depth * sizeof(struct gkv_sqe);
	rc = kvb_session_mem_map(&q->sq, s, &req, sq_gone, err);
	if (rc)
		return rc;
	snprintf(what, sizeof(what), "CQ of queue pair %u", m->qid);
	req.fd = fds[1];
	req.use = KVB_MEM_CQ;
	req.write = true;
	req.offset = m->cq_offset;
	req.len = (uint64_t)m->depth * sizeof(struct gkv_cqe);
	rc = kvb_session_mem_map(&q->cq, s, &req, cq_gone, err);
	if (rc)
		return rc;
	if (m->mode & GKV_MODE_DB) {
		snprintf(what, sizeof(what), "doorbells of queue pair %u", m->qid);
		req.fd = fds[3];
		req.use = KVB_MEM_DB;
		req.offset = m->db_offset - in_page;
		req.len = in_page + 2 * stride;
		rc = kvb_session_mem_map(&q->db, s, &req, db_gone, err);
		if (rc)
			return rc;
		q->qp.sq_db = (char *)q->db.m.addr + in_page;
		q->qp.cq_db = (char *)q->qp.sq_db + stride;
	} else {
		q->qp.sq_db = (char *)s->db.addr +
			      GKV_SQ_TAIL_DB(m->qid, (unsigned int)s->srv->cfg->dstrd);
		q->qp.cq_db = (char *)q->qp.sq_db + stride;
	}
	snprintf(what, sizeof(what), "record of queue pair %u", m->qid);
	req.fd = fds[2];
	req.use = KVB_MEM_OWN;
	req.offset = m->rec_offset;
	req.len = GKV_REC_LEN(m->depth);
	req.dead = &q->rec_dead;
	return kvb_clientmem_map(&q->rec, &req, err);
}

static struct kvb_reactor *pick_reactor(struct kvb_server *srv)
{
	unsigned int best = 0;

	for (unsigned int i = 1; i < kvb_nreactors; i++) {
		if (srv->qps_on[i] < srv->qps_on[best])
			best = i;
	}
	return kvb_reactors[best];
}

struct add_call {
	struct kvb_call c;
	struct kvb_qp *qp;
	int rc;
};

static void do_add(struct kvb_call *c)
{
	struct add_call *a = (struct add_call *)c;

	a->rc = kvb_reactor_add_qp(c->r, a->qp);
	if (!a->rc)
		kvb_qp_wake(a->qp);
}

static void qp_fill(struct kvb_session *s, struct kvb_session_qp *q,
		    const struct gkv_msg_qp_add *m)
{
	struct kvb_qp *qp = &q->qp;

	q->flags = m->flags;
	qp->mode = (uint8_t)m->mode;
	qp->qid = (uint16_t)m->qid;
	qp->depth = m->depth;
	qp->host = m->flags & GKV_QP_F_HOST;
	qp->sq = q->sq.m.addr;
	qp->cq = q->cq.m.addr;
	qp->rec = q->rec.addr;
	qp->entries = (struct gkv_rec_entry *)((char *)q->rec.addr + sizeof(struct gkv_rec_hdr));
	qp->dead[0] = &q->ring_dead;
	qp->dead[1] = &s->db_dead;
	qp->dead[2] = &q->rec_dead;
	qp->session = s->id;
	qp->db_page = m->mode & GKV_MODE_DB ? q->db.m.page_id : 0;
	qp->regions = s->set;
	qp->flow = (uint8_t)(s->id % KVB_FLOWS);
	qp->env.nn = s->srv->nn;
	qp->env.csum = m->flags & GKV_QP_F_CSUM;
	qp->env.open = s->open;
}

void kvb_session_qp_add(struct kvb_session *s, const struct gkv_msg_qp_add *m, const int *fds,
			int nfds)
{
	struct gkv_msg_qp_add_reply reply = { 0 };
	struct kvb_reactor *r = pick_reactor(s->srv);
	struct add_call add = { 0 };
	struct kvb_session_qp *q;
	struct kvb_err err;
	int rc, bell = -1;

	rc = qp_check(s, m, nfds, &err);
	if (rc) {
		kvb_session_error(s, -rc, err.text);
		return;
	}
	q = calloc(1, sizeof(*q));
	if (q)
		q->qp.free_rec = calloc(m->depth, sizeof(*q->qp.free_rec));
	if (!q || !q->qp.free_rec) {
		free(q);
		kvb_session_error(s, ENOMEM, "out of memory");
		return;
	}
	q->s = s;
	rc = qp_map(s, q, m, fds, &err);
	if (rc)
		goto fail;
	qp_fill(s, q, m);
	if (m->flags & GKV_QP_F_RESUME) {
		rc = kvb_qp_load_record(&q->qp, &err);
		if (rc)
			goto fail;
	} else {
		kvb_qp_init_record(&q->qp);
	}
	if (q->qp.host) {
		bell = kvb_session_bell(s, r);
		if (bell < 0) {
			rc = kvb_fail(&err, errno, "queue pair %u: eventfd: %s", m->qid,
				      strerror(errno));
			goto fail;
		}
	}
	reply.resumed = q->qp.nrecover;
	add.qp = &q->qp;
	kvb_reactor_call(r, &add.c, do_add);
	if (add.rc) {
		rc = kvb_fail(&err, -add.rc, "queue pair %u: out of memory", m->qid);
		goto fail;
	}
	q->next = s->qps;
	s->qps = q;
	s->nqps++;
	s->srv->qps_on[r->id]++;
	reply.reactor = r->id;
	kvb_session_reply(s, &reply, sizeof(reply), &bell, bell >= 0);
	return;

fail:
	qp_free(q);
	kvb_session_error(s, -rc, err.text);
}

static void do_drain(struct kvb_call *c)
{
	struct kvb_session_qp *q = c->arg;

	/* When the daemon stops, its clients are still there to be answered. */
	kvb_qp_drain(&q->qp, &q->drained, !q->s->srv->stopping);
}

static void do_del(struct kvb_call *c)
{
	struct kvb_session_qp *q = c->arg;

	kvb_reactor_del_qp(c->r, &q->qp);
}

static void do_restart(struct kvb_call *c)
{
	struct kvb_session_qp *q = c->arg;

	/* Here, because the reactor goes on scanning the queue pair's doorbell all the time. */
	kvb_qp_init_record(&q->qp);
	q->qp.active_ns = kvb_now(c->r);
	kvb_reactor_heat(c->r, &q->qp);
}

static void qp_drained(struct kvb_msg *m)
{
	struct kvb_session_qp *q =
		(struct kvb_session_qp *)((char *)m - offsetof(struct kvb_session_qp, drained));

	q->draining = false;
	q->s->ndraining--;
	q->then(q);
}

static void drain(struct kvb_session_qp *q, void (*then)(struct kvb_session_qp *q))
{
	q->then = then;
	if (q->draining)
		return;
	q->draining = true;
	q->drained.fn = qp_drained;
	q->s->ndraining++;
	kvb_reactor_call(q->qp.r, &(struct kvb_call){ .arg = q }, do_drain);
}

static void remove_qp(struct kvb_session_qp *q)
{
	struct kvb_session *s = q->s;
	struct kvb_session_qp **p;

	kvb_reactor_call(q->qp.r, &(struct kvb_call){ .arg = q }, do_del);
	for (p = &s->qps; *p != q; p = &(*p)->next)
		;
	*p = q->next;
	s->nqps--;
	s->srv->qps_on[q->qp.r->id]--;
	kvb_totals_add(&s->srv->gone, &q->qp.count);
	qp_free(q);
}

static void then_deleted(struct kvb_session_qp *q)
{
	struct kvb_session *s = q->s;

	remove_qp(q);
	kvb_session_ok(s);
}

static void then_reset(struct kvb_session_qp *q)
{
	free(q->qp.recover);
	q->qp.recover = NULL;
	kvb_reactor_call(q->qp.r, &(struct kvb_call){ .arg = q }, do_restart);
	kvb_session_ok(q->s);
}

static void then_closed(struct kvb_session_qp *q)
{
	struct kvb_session *s = q->s;

	remove_qp(q);
	kvb_session_try_free(s);
}

static struct kvb_session_qp *find_or_fail(struct kvb_session *s, uint32_t qid)
{
	struct kvb_session_qp *q = find(s, qid);
	char text[64];

	if (!q) {
		snprintf(text, sizeof(text), "no queue pair %u", qid);
		kvb_session_error(s, ENOENT, text);
	}
	return q;
}

void kvb_session_qp_del(struct kvb_session *s, const struct gkv_msg_id *m)
{
	struct kvb_session_qp *q = find_or_fail(s, m->id);

	if (q)
		drain(q, then_deleted);
}

void kvb_session_qp_reset(struct kvb_session *s, const struct gkv_msg_id *m)
{
	struct kvb_session_qp *q = find_or_fail(s, m->id);

	if (q)
		drain(q, then_reset);
}

void kvb_session_drop_qps(struct kvb_session *s)
{
	struct kvb_session_qp *q, *next;

	/* Answers come through the mailbox, never from within drain(). */
	for (q = s->qps; q; q = next) {
		next = q->next;
		drain(q, then_closed);
	}
}
