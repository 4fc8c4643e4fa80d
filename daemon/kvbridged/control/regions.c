/* SPDX-License-Identifier: MIT */
/*
 * Regions of a session. Operations hold the table that was current when they were
 * fetched; a region is unmapped when the last table that names it is out of use, so that
 * removing it and adding another at the same IOVA never redirects an older command.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/server.h"
#include "control/session.h"

#define PAGE 4096u

void kvb_session_region_put(struct kvb_session_region *g)
{
	struct kvb_session *s = g->s;

	if (--g->refs)
		return;
	kvb_session_mem_unmap(&g->mem);
	s->region_bytes -= g->len;
	if (s->deleting == g) {
		s->deleting = NULL;
		kvb_session_ok(s);
	}
	free(g);
}

/* A table together with the regions it keeps mapped. */
struct set {
	struct kvb_region_set rs;
	struct kvb_session *s;
	unsigned int waiting;		/* reactors whose operations still use it */
	uint32_t n;
	struct kvb_session_region **regions;
	struct set_msg {
		struct kvb_msg m;
		struct set *set;
	} msgs[KVB_MAX_REACTORS];
};

static void set_free(struct set *set)
{
	uint32_t n = set->n;

	kvb_regions_free(set->rs.tbl);
	for (uint32_t i = 0; i < n; i++)
		kvb_session_region_put(set->regions[i]);
	free(set->regions);
	free(set);
}

static void set_unused(struct kvb_msg *m)
{
	struct set *set = ((struct set_msg *)m)->set;
	struct kvb_session *s = set->s;

	if (--set->waiting)
		return;
	set_free(set);
	s->old_sets--;
	kvb_session_try_free(s);
}

static struct set *set_build(struct kvb_session *s)
{
	struct set *set = calloc(1, sizeof(*set));
	struct kvb_span *spans = calloc(s->nregions + 1, sizeof(*spans));
	uint32_t n = 0;

	if (!set || !spans)
		goto fail;
	set->s = s;
	set->regions = calloc(s->nregions + 1, sizeof(*set->regions));
	if (!set->regions)
		goto fail;
	for (struct kvb_session_region *g = s->regions; g; g = g->next) {
		spans[n].iova = g->iova;
		spans[n].len = g->len;
		spans[n].addr = g->mem.m.addr;
		spans[n].flags = (g->flags & GKV_REGION_F_RDONLY ? KVB_SPAN_RDONLY : 0) |
				 (g->vram ? KVB_SPAN_VRAM : 0);
		spans[n].owner = &g->r;
		set->regions[n++] = g;
	}
	set->n = n;
	set->rs.tbl = kvb_regions_build(spans, n);
	if (!set->rs.tbl)
		goto fail;
	set->rs.tbl->priv = &set->rs;
	for (uint32_t i = 0; i < n; i++)
		set->regions[i]->refs++;
	free(spans);
	return set;
fail:
	free(spans);
	if (set)
		free(set->regions);
	free(set);
	return NULL;
}

struct swap {
	struct kvb_call c;
	struct kvb_session *s;
	struct kvb_region_set *old, *new;
	struct kvb_msg *drained;
	bool busy;
};

/* On a reactor: its queue pairs of the session take the new table. */
static void do_swap(struct kvb_call *c)
{
	struct swap *w = (struct swap *)c;

	for (struct kvb_session_qp *q = w->s->qps; q; q = q->next) {
		if (q->qp.r == c->r)
			kvb_qp_set_regions(&q->qp, w->new);
	}
	w->busy = w->old->by_reactor[c->r->id].users;
	if (w->busy)
		w->old->by_reactor[c->r->id].drained = w->drained;
}

/* Make @set current and let go of its predecessor. */
static void set_install(struct kvb_session *s, struct set *set)
{
	struct set *old = (struct set *)s->set;
	bool on[KVB_MAX_REACTORS] = { false };

	s->set = &set->rs;
	if (!old)
		return;
	for (struct kvb_session_qp *q = s->qps; q; q = q->next)
		on[q->qp.r->id] = true;
	old->waiting = 1;
	for (unsigned int i = 0; i < kvb_nreactors; i++) {
		struct swap w = { .s = s, .old = &old->rs, .new = &set->rs };

		if (!on[i])
			continue;
		old->msgs[i].m.fn = set_unused;
		old->msgs[i].set = old;
		w.drained = &old->msgs[i].m;
		kvb_reactor_call(kvb_reactors[i], &w.c, do_swap);
		old->waiting += w.busy;
	}
	if (--old->waiting)
		s->old_sets++;
	else
		set_free(old);
}

int kvb_session_init_regions(struct kvb_session *s)
{
	struct set *set = set_build(s);

	if (!set)
		return -ENOMEM;
	set_install(s, set);
	return 0;
}

static const struct kvb_session_region *overlap(const struct kvb_session *s, uint64_t iova,
						uint64_t len)
{
	for (const struct kvb_session_region *g = s->regions; g; g = g->next) {
		if (iova < g->iova + g->len && g->iova < iova + len)
			return g;
	}
	return NULL;
}

static int region_check(const struct kvb_session *s, const struct gkv_msg_region_add *m,
			struct kvb_err *err)
{
	const struct kvb_config *cfg = s->srv->cfg;
	const struct kvb_session_region *g;
	unsigned long long iova = m->iova, len = m->len;

	if (m->flags & ~GKV_REGION_F_RDONLY)
		return kvb_fail(err, EOPNOTSUPP, "region %u: unknown flags %#x", m->id,
				m->flags & ~GKV_REGION_F_RDONLY);
	if (!m->id)
		return kvb_fail(err, EINVAL, "region identifier 0 is reserved");
	if (iova % PAGE || len % PAGE || m->offset % PAGE || !len)
		return kvb_fail(err, EINVAL,
				"region %u: iova %#llx, length %#llx and offset %#llx must be multiples of %u, the length not 0",
				m->id, iova, len, (unsigned long long)m->offset, PAGE);
	if (iova + len < iova)
		return kvb_fail(err, EINVAL, "region %u: iova %#llx plus length %#llx wraps", m->id,
				iova, len);
	for (g = s->regions; g; g = g->next) {
		if (g->id == m->id)
			return kvb_fail(err, EEXIST, "region %u exists", m->id);
	}
	g = overlap(s, iova, len);
	if (g)
		return kvb_fail(err, EEXIST, "region %u: %#llx to %#llx overlaps region %u", m->id,
				iova, iova + len, g->id);
	if (s->nregions >= cfg->max_regions)
		return kvb_fail(err, ENOSPC, "session has %u regions, the limit is %llu",
				s->nregions, (unsigned long long)cfg->max_regions);
	if (len > cfg->max_region_bytes || s->region_bytes > cfg->max_region_bytes - len)
		return kvb_fail(err, ENOSPC,
				"region %u of %llu bytes: session has %llu registered, the limit is %llu",
				m->id, len, (unsigned long long)s->region_bytes,
				(unsigned long long)cfg->max_region_bytes);
	return 0;
}

static int region_map(struct kvb_session *s, struct kvb_session_region *g,
		      const struct gkv_msg_region_add *m, int fd, struct kvb_err *err)
{
	char what[32];
	struct kvb_memreq q = {
		.fd = fd,
		.offset = m->offset,
		.len = m->len,
		.write = !(m->flags & GKV_REGION_F_RDONLY),
		.use = KVB_MEM_DATA,
		.what = what,
		.dead = &g->r.dead,
	};
	int rc;

	snprintf(what, sizeof(what), "region %u", m->id);
	/* What is done on it later finds out by itself that it is gone. */
	rc = kvb_session_mem_map(&g->mem, s, &q, NULL, err);
	if (rc)
		return rc;
	g->vram = g->mem.m.at.place == GKVDRV_VRAM;
	s->region_bytes += g->len;
	return 0;
}

/* All of the session's namespaces can fill the new region, or not. */
static void region_reached(struct kvb_session *s, int rc, const struct kvb_err *err)
{
	struct kvb_session_region *g = s->adding;
	struct set *set;

	s->adding = NULL;
	if (rc) {
		kvb_session_region_put(g);
		kvb_session_error(s, -rc, err->text);
		return;
	}
	g->next = s->regions;
	s->regions = g;
	s->nregions++;
	set = set_build(s);
	if (!set) {
		s->regions = g->next;
		s->nregions--;
		kvb_session_region_put(g);
		kvb_session_error(s, ENOMEM, "out of memory");
		return;
	}
	set_install(s, set);
	kvb_session_ok(s);
}

void kvb_session_region_add(struct kvb_session *s, const struct gkv_msg_region_add *m, int fd)
{
	struct kvb_session_region *g;
	struct kvb_err err;
	int rc = region_check(s, m, &err);

	if (rc) {
		kvb_session_error(s, -rc, err.text);
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		kvb_session_error(s, ENOMEM, "out of memory");
		return;
	}
	g->s = s;
	g->id = m->id;
	g->flags = m->flags;
	g->iova = m->iova;
	g->len = m->len;
	g->refs = 1;
	rc = region_map(s, g, m, fd, &err);
	if (rc) {
		free(g);
		kvb_session_error(s, -rc, err.text);
		return;
	}
	s->adding = g;
	kvb_reach_region(s, g, region_reached);
}

void kvb_session_region_del(struct kvb_session *s, const struct gkv_msg_id *m)
{
	struct kvb_session_region *g, **p;
	struct set *set;
	char text[64];

	for (p = &s->regions; *p && (*p)->id != m->id; p = &(*p)->next)
		;
	g = *p;
	if (!g) {
		snprintf(text, sizeof(text), "no region %u", m->id);
		kvb_session_error(s, ENOENT, text);
		return;
	}
	*p = g->next;
	s->nregions--;
	set = set_build(s);
	if (!set) {
		g->next = s->regions;
		s->regions = g;
		s->nregions++;
		kvb_session_error(s, ENOMEM, "out of memory");
		return;
	}
	/* Answered when the last table that names it is gone. */
	s->deleting = g;
	set_install(s, set);
	kvb_session_region_put(g);
}

void kvb_session_drop_regions(struct kvb_session *s)
{
	struct set *set = (struct set *)s->set;

	s->deleting = NULL;
	if (set) {
		s->set = NULL;
		set_free(set);
	}
	while (s->regions) {
		struct kvb_session_region *g = s->regions;

		s->regions = g->next;
		kvb_session_region_put(g);
	}
}
