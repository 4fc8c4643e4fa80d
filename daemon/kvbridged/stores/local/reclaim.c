/* SPDX-License-Identifier: MIT */
/*
 * Giving back the units of versions that are gone. The order is what keeps a power cut
 * harmless, whatever subset of the writes since the last flush it loses:
 *
 *  - A slot is freed only when what supersedes it is durable: else both could be lost.
 *  - Units are reused only when their slot is durably free: else a header could come back
 *    that describes somebody else's data.
 *  - A tombstone goes only when every older slot of its key is durably free: else a
 *    deleted key could come back. Its units may be reused at once then: the tombstone,
 *    should it survive on disk, says nothing that is untrue.
 */
#include <stdlib.h>

#include "stores/local/local.h"

/* Share of the units that may wait for the timer. */
#define OLD_SHARE 8

int loc_old_prepare(struct loc_op *lop, loc_pos pos, uint32_t units)
{
	struct loc_old *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->hdr.home = lop->sh;
	o->hdr.ag = loc_ag_of(lop->sh->ls, pos);
	o->hdr.idx = loc_pos_unit(pos) - o->hdr.ag->first;
	o->units = units;
	kvb_link_init(&o->age);
	kvb_link_add(&lop->olds, &o->link);
	return 0;
}

void loc_old_discard(struct loc_op *lop)
{
	while (!kvb_link_empty(&lop->olds)) {
		struct loc_old *o = kvb_container(lop->olds.next, struct loc_old, link);

		kvb_link_del(&o->link);
		free(o);
	}
}

void loc_space_poke(struct loc_store *ls)
{
	if (!atomic_load(&ls->space_waiters))
		return;
	for (unsigned int i = 0; i < ls->nshards; i++)
		loc_kick(&ls->sh[i]->poke);
}

static void give_back(struct loc_shard *sh, struct loc_old *o);

static void give_back_msg(struct kvb_msg *m)
{
	struct loc_old *o = kvb_container(m, struct loc_old, hdr.msg);

	give_back(o->hdr.home->ls->sh[o->hdr.res], o);
}

/* On the owner of the group: nothing on disk speaks of these units any more. */
static void give_back(struct loc_shard *sh, struct loc_old *o)
{
	struct loc_store *ls = sh->ls;
	struct loc_ag *ag = o->hdr.ag;
	uint32_t owner = atomic_load_explicit(&ag->owner, memory_order_acquire);

	if (owner != sh->id) {
		o->hdr.res = (int)owner;
		o->hdr.msg.fn = give_back_msg;
		kvb_reactor_send(ls->sh[owner]->r, &o->hdr.msg);
		return;
	}
	if (o->tomb)
		loc_table_drop(ag, o->hdr.idx);
	loc_free_map(sh, ag, o->hdr.idx, o->units);
	atomic_fetch_add(&ls->free_units, o->units);
	atomic_fetch_sub(&ls->old_units, o->units);
	free(o);
	loc_space_poke(ls);
}

static void hurry(struct loc_shard *sh, uint64_t tag)
{
	struct loc_store *ls = sh->ls;

	if (atomic_load(&ls->space_waiters) ||
	    atomic_load(&ls->old_units) > ls->total_units / OLD_SHARE)
		loc_flush_want(ls, tag);
}

static void old_freed(struct loc_shard *sh, struct loc_hdr *h, int res)
{
	struct loc_old *o = kvb_container(h, struct loc_old, hdr);
	struct loc_op *lop = o->lop;

	o->lop = NULL;
	o->tag = loc_flush_tag(sh->ls);
	/* A write that failed is tried again after the next flush. */
	kvb_link_add(res ? &sh->stale : &sh->cleared, &o->link);
	loc_dirty(sh, 0);
	hurry(sh, o->tag);
	if (lop)
		loc_aborted(lop, res);
	if (!sh->ls->vcache && !res)
		loc_reclaim(sh);
}

static void free_slot(struct loc_shard *sh, struct loc_old *o)
{
	o->hdr.put = false;
	o->hdr.done = old_freed;
	loc_hdr_submit(sh, &o->hdr);
}

static bool reads_over(const struct loc_shard *sh, uint64_t rd_tag)
{
	return kvb_link_empty(&sh->reads) ||
	       kvb_container(sh->reads.next, struct loc_op, rd_link)->rd_no >= rd_tag;
}

static bool ripe(struct loc_shard *sh, const struct loc_old *o)
{
	return loc_flush_over(sh->ls, o->tag) && reads_over(sh, o->rd_tag);
}

static void reclaim_pass(struct loc_shard *sh)
{
	struct kvb_link *l;
	struct loc_old *o;
	bool last;

	/* What fails at once comes back at the tail: not again in this pass. */
	for (l = sh->stale.prev; l != &sh->stale;) {
		o = kvb_container(sh->stale.next, struct loc_old, link);
		if (!ripe(sh, o))
			break;
		last = &o->link == l;
		kvb_link_del(&o->link);
		free_slot(sh, o);
		if (last)
			break;
	}
	while (!kvb_link_empty(&sh->cleared)) {
		o = kvb_container(sh->cleared.next, struct loc_old, link);
		if (!loc_flush_over(sh->ls, o->tag))
			break;
		kvb_link_del(&o->link);
		kvb_link_del(&o->age);
		give_back(sh, o);
	}
	while (!kvb_link_empty(&sh->tombs)) {
		o = kvb_container(sh->tombs.next, struct loc_old, link);
		if (!ripe(sh, o) ||
		    (!kvb_link_empty(&sh->ages) &&
		     kvb_container(sh->ages.next, struct loc_old, age)->no < o->no))
			break;
		kvb_link_del(&o->link);
		give_back(sh, o);
	}
}

void loc_reclaim(struct loc_shard *sh)
{
	if (sh->reclaiming) {
		sh->reclaim_again = true;
		return;
	}
	sh->reclaiming = true;
	do {
		sh->reclaim_again = false;
		reclaim_pass(sh);
	} while (sh->reclaim_again);
	sh->reclaiming = false;
}

void loc_old_retire(struct loc_shard *sh, struct loc_op *lop, bool tomb)
{
	struct loc_store *ls = sh->ls;
	uint64_t tag = loc_flush_tag(ls);
	struct loc_old *last = NULL;

	while (!kvb_link_empty(&lop->olds)) {
		struct loc_old *o = kvb_container(lop->olds.next, struct loc_old, link);

		kvb_link_del(&o->link);
		atomic_fetch_add(&ls->old_units, o->units);
		o->tag = tag;
		o->rd_tag = sh->rd_next;
		if (tomb && !last) {
			last = o;	/* younger than the slots it must outlive */
			continue;
		}
		o->no = ++sh->old_no;
		kvb_link_add(&sh->ages, &o->age);
		kvb_link_add(&sh->stale, &o->link);
	}
	if (last) {
		last->tomb = true;
		last->no = ++sh->old_no;
		kvb_link_add(&sh->tombs, &last->link);
	}
	hurry(sh, tag);
}

void loc_old_abort(struct loc_shard *sh, struct loc_op *lop)
{
	struct kvb_link list;
	struct loc_store *ls = sh->ls;

	/* The version that was to be superseded stays. */
	loc_old_discard(lop);
	for (uint32_t i = 0; i < lop->nexts; i++) {
		struct loc_ext *e = lop->extv ? &lop->extv->e[i] : &lop->ext1;

		if (!loc_old_prepare(lop, e->pos, e->units))
			continue;
		/* Not even memory for this: give the units up, and do not trust the slot. */
		atomic_fetch_add(&ls->lost_units, e->units);
		loc_seq_freeze(sh, lop->seq);
		lop->pend--;
	}
	kvb_link_init(&list);
	while (!kvb_link_empty(&lop->olds)) {
		struct loc_old *o = kvb_container(lop->olds.next, struct loc_old, link);

		kvb_link_del(&o->link);
		kvb_link_add(&list, &o->link);
	}
	while (!kvb_link_empty(&list)) {
		struct loc_old *o = kvb_container(list.next, struct loc_old, link);

		kvb_link_del(&o->link);
		atomic_fetch_add(&ls->old_units, o->units);
		o->no = ++sh->old_no;
		o->lop = lop;
		kvb_link_add(&sh->ages, &o->age);
		free_slot(sh, o);
	}
}

void loc_reads_done(struct loc_shard *sh)
{
	if (!kvb_link_empty(&sh->stale) || !kvb_link_empty(&sh->tombs))
		loc_reclaim(sh);
}
