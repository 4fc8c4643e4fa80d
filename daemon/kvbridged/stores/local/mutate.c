/* SPDX-License-Identifier: MIT */
/*
 * Store and Delete. Those of one key run one after the other. A Store finds units, writes
 * value and headers in parallel (write.c) and takes effect in the index when all have landed
 * (and, where acknowledged means durable, have been flushed); until then Retrieves see the
 * old version. A Delete turns the header into a tombstone in place.
 */
#include <stdlib.h>
#include <string.h>

#include "core/killpoint.h"
#include "stores/local/local.h"

/* A value up to here is made durable by itself. */
#define DSYNC_MAX (128u << 10)
/* ... unless there was company within this time: the next in a row of many is no loner. */
#define CROWD_NS 10000000u

static void mutate_start(struct loc_op *lop);

void loc_op_init(struct kvb_store *st, struct kvb_op *op, struct loc_op *lop)
{
	struct loc_store *ls = st->priv;

	/* The requests are large and set up as they are used. */
	memset(lop, 0, offsetof(struct loc_op, io));
	memset((char *)lop + offsetof(struct loc_op, vlen), 0,
	       sizeof(*lop) - offsetof(struct loc_op, vlen));
	for (unsigned int i = 0; i < LOC_IO_SLOTS; i++)
		lop->io[i].lop = NULL;
	lop->op = op;
	lop->sh = ls->sh[kvb_reactor_id(op->r)];
	lop->key = loc_key_make(op->key, op->klen);
	lop->qtail = &lop->qhead;
	kvb_link_init(&lop->olds);
	kvb_link_init(&lop->link);
}

/* ---- One mutation of a key at a time ---- */

static struct loc_op **busy_slot(struct loc_op *lop)
{
	struct loc_op **pp = &lop->sh->busy[lop->op->hash % LOC_KEY_BUCKETS];

	while (*pp && loc_key_order((*pp)->key.hi, (*pp)->key.lo, (*pp)->key.klen, lop->key.hi,
				    lop->key.lo, lop->key.klen))
		pp = &(*pp)->hnext;
	return pp;
}

static void mutate_begin(struct loc_op *lop)
{
	struct loc_op **pp = busy_slot(lop);

	if (*pp) {
		lop->state = LOC_WAIT_KEY;
		*(*pp)->qtail = lop;
		(*pp)->qtail = &lop->qnext;
		return;
	}
	*pp = lop;
	lop->holds_key = true;
	mutate_start(lop);
}

/* The next mutation of the key takes it over. */
static struct loc_op *key_release(struct loc_op *lop)
{
	struct loc_op **pp = busy_slot(lop), *next = lop->qhead;

	lop->holds_key = false;
	if (!next) {
		*pp = lop->hnext;
		return NULL;
	}
	next->hnext = lop->hnext;
	next->qhead = next->qnext;
	next->qtail = next->qhead ? lop->qtail : &next->qhead;
	next->qnext = NULL;
	next->holds_key = true;
	next->state = LOC_RUN;
	*pp = next;
	return next;
}

static void mutate_end(struct loc_op *lop, uint16_t status)
{
	struct loc_op *next = key_release(lop);
	struct loc_shard *sh = lop->sh;

	if (lop->writing)
		sh->nstores--;
	if (lop->hdrs && lop->hdrs != &lop->hdr1)
		free(lop->hdrs);
	loc_old_discard(lop);
	free(lop->extv);
	kvb_op_complete(lop->op, status);
	if (!next)
		return;
	/* A loop, not a recursion: any number of them may end at once. */
	kvb_link_add(&sh->turn, &next->link);
	if (sh->in_turn)
		return;
	sh->in_turn = true;
	while (!kvb_link_empty(&sh->turn)) {
		next = kvb_container(sh->turn.next, struct loc_op, link);
		kvb_link_del(&next->link);
		mutate_start(next);
	}
	sh->in_turn = false;
}

static bool is_sync(const struct loc_op *lop)
{
	return lop->op->ns->sync || !atomic_load_explicit(&lop->op->ns->vwc, memory_order_relaxed);
}

/*
 * Is it to make its writes durable one by one? A flush, which covers everything, is better
 * as soon as there is, or lately was, somebody to share it with, or more than one write.
 */
static bool wants_dsync(const struct loc_op *lop, uint32_t bytes)
{
	const struct loc_shard *sh = lop->sh;

	return is_sync(lop) && sh->ls->vcache && !sh->nstores && kvb_link_empty(&sh->waiters) &&
	       kvb_now(sh->r) - sh->crowd_ns > CROWD_NS && bytes <= DSYNC_MAX && lop->nexts <= 1 &&
	       !lop->op->direct;
}

/* ---- Finding units ---- */

static int ext_add(struct loc_op *lop, loc_pos pos, uint32_t units)
{
	uint32_t n = lop->nexts;

	if (n && n >= lop->cap) {
		uint32_t cap = n < 8 ? 8 : 2 * n;
		struct loc_extv *v;

		if (n >= LOC_MAX_PARTS)
			return -ENOMEM;
		v = realloc(lop->extv, sizeof(*v) + cap * sizeof(v->e[0]));
		if (!v)
			return -ENOMEM;
		if (!lop->extv)
			v->e[0] = lop->ext1;
		lop->extv = v;
		lop->cap = cap;
	}
	lop->nexts++;
	*loc_ext_at(lop, n) = (struct loc_ext){ .pos = pos, .units = units };
	if (lop->extv)
		lop->extv->n = lop->nexts;
	return 0;
}

/* Before any header was written: as if nothing had been found. */
static void units_undo(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;

	for (uint32_t i = 0; i < lop->nexts; i++) {
		struct loc_ext *e = loc_ext_at(lop, i);
		struct loc_ag *ag = loc_ag_of(sh->ls, e->pos);

		loc_table_drop(ag, loc_pos_unit(e->pos) - ag->first);
		ag->busy--;
		loc_unalloc(sh, e->pos, e->units);
	}
	lop->nexts = 0;
	atomic_fetch_add(&sh->ls->free_units, lop->need);
	lop->need = 0;
	loc_space_poke(sh->ls);
}

static void store_go(struct loc_op *lop);

/* Turn what was promised into extents; false while other shards must be asked. */
static bool units_find(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;

	while (lop->need) {
		struct loc_ag *ag;
		loc_pos pos;
		uint32_t n = loc_alloc(sh, lop->need, &pos);

		if (!n)
			return false;
		ag = loc_ag_of(sh->ls, pos);
		lop->need -= n;
		ag->busy++;	/* it stays until the headers are on their way */
		if (ext_add(lop, pos, n)) {
			ag->busy--;
			loc_unalloc(sh, pos, n);
			units_undo(lop);
			lop->err = -ENOMEM;
			return true;
		}
		if (loc_table_reserve(ag, loc_pos_unit(pos) - ag->first)) {
			units_undo(lop);
			lop->err = -ENOMEM;
			return true;
		}
	}
	return true;
}

static void store_found(struct loc_op *lop)
{
	lop->state = LOC_RUN;
	if (lop->err)
		mutate_end(lop, GKV_SC_INTERNAL);
	else
		store_go(lop);
}

static void store_gather(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;

	if (kvb_link_empty(&sh->gather) && units_find(lop)) {
		store_found(lop);
		return;
	}
	lop->state = LOC_GATHER;
	kvb_link_add(&sh->gather, &lop->link);
	loc_steal_start(sh);
}

void loc_gather_run(struct loc_shard *sh)
{
	if (sh->in_gather)
		return;
	sh->in_gather = true;
	while (!kvb_link_empty(&sh->gather)) {
		struct loc_op *lop = kvb_container(sh->gather.next, struct loc_op, link);

		if (!units_find(lop))
			break;
		kvb_link_del(&lop->link);
		store_found(lop);
	}
	sh->in_gather = false;
}

/* Try for units; true when the wait is over, one way or the other. */
static bool space_try(struct loc_op *lop, bool *full)
{
	struct loc_store *ls = lop->sh->ls;
	uint64_t old = atomic_load(&ls->old_units);

	/* In this order: units become free before they cease to be old. */
	*full = false;
	if (loc_reserve(ls, lop->need))
		return true;
	*full = !old;
	return !old;
}

static void space_over(struct loc_op *lop, bool full)
{
	if (full)
		mutate_end(lop, GKV_SC_CAPACITY);
	else
		store_gather(lop);
}

void loc_space_run(struct loc_shard *sh)
{
	bool full;

	while (!kvb_link_empty(&sh->space)) {
		struct loc_op *lop = kvb_container(sh->space.next, struct loc_op, link);

		if (!space_try(lop, &full))
			break;
		kvb_link_del(&lop->link);
		atomic_fetch_sub(&sh->ls->space_waiters, 1);
		space_over(lop, full);
	}
}

static void store_space(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;
	struct loc_store *ls = sh->ls;

	if (lop->need > ls->total_units) {
		mutate_end(lop, GKV_SC_CAPACITY);
		return;
	}
	if (kvb_link_empty(&sh->space) && loc_reserve(ls, lop->need)) {
		store_gather(lop);
		return;
	}
	lop->state = LOC_WAIT_SPACE;
	kvb_link_add(&sh->space, &lop->link);
	atomic_fetch_add(&ls->space_waiters, 1);
	/* What was superseded becomes free by two flushes. */
	loc_flush_want(ls, loc_flush_tag(ls));
	loc_space_run(sh);
}

static int olds_prepare(struct loc_op *lop, const struct loc_ent *e)
{
	if (!(e->flags & LOC_ENT_MULTI))
		return loc_old_prepare(lop, e->pos, loc_units(lop->sh->ls, e->vlen));
	for (uint32_t i = 0; i < e->extv->n; i++) {
		if (loc_old_prepare(lop, e->extv->e[i].pos, e->extv->e[i].units))
			return -ENOMEM;
	}
	return 0;
}

static void store_head(struct loc_op *lop)
{
	lop->headed = true;
	loc_seq_get(lop->sh, lop);
	loc_write_headers(lop);
}

/* Write what can be written: the headers once all of the value is there. */
static void store_write(struct loc_op *lop)
{
	loc_write_data(lop);
	if (lop->op->staging)
		return;
	if (!lop->op->direct && !lop->err && !lop->op->stage_status)
		store_head(lop);
	loc_written(lop);
}

static void store_go(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;
	struct loc_ent *e = loc_bt_find(&sh->index, &lop->key);
	uint32_t grain;
	bool ok;

	/* It waited, and meanwhile its value failed to arrive. */
	if (!lop->op->staging && lop->op->stage_status) {
		units_undo(lop);
		mutate_end(lop, lop->op->stage_status);
		return;
	}
	/* All that can be refused for want of memory, before anything is written. */
	lop->hdrs = lop->nexts == 1 ? &lop->hdr1 : calloc(lop->nexts, sizeof(*lop->hdrs));
	ok = lop->hdrs && (!e || !olds_prepare(lop, e));
	if (ok && !e) {
		e = loc_bt_insert(&sh->index, &lop->key);
		if (e)
			e->flags = LOC_ENT_PENDING;
		else
			ok = false;
	}
	if (!ok) {
		units_undo(lop);
		mutate_end(lop, GKV_SC_INTERNAL);
		return;
	}
	lop->vlen = lop->op->len;
	grain = lop->op->direct ? sh->ls->block : LOC_BLK;
	lop->want = (lop->op->len + grain - 1) & ~(grain - 1);
	lop->rdv = lop->extv;
	lop->rd1 = lop->ext1;
	lop->dsync = wants_dsync(lop, lop->want);
	lop->writing = true;
	lop->alone = !sh->nstores++;
	if (!lop->alone)
		sh->crowd_ns = kvb_now(sh->r);
	lop->pend = 1;		/* until the headers are on their way, too */
	store_write(lop);
}

/* ---- The end ---- */

static void store_commit(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;
	struct loc_ent *e = loc_bt_find(&sh->index, &lop->key);

	if (e->flags & LOC_ENT_PENDING)
		atomic_fetch_add(&sh->ls->keys, 1);
	else if (e->flags & LOC_ENT_MULTI)
		free(e->extv);
	e->flags = 0;
	e->vlen = lop->vlen;
	e->vcrc = lop->op->crc;
	if (lop->extv && lop->nexts > 1) {
		e->flags = LOC_ENT_MULTI;
		e->extv = lop->extv;
		lop->extv = NULL;
	} else {
		e->pos = lop->ext1.pos;
	}
}

static void delete_commit(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;
	struct loc_ent *e = loc_bt_find(&sh->index, &lop->key);

	if (e->flags & LOC_ENT_MULTI)
		free(e->extv);
	loc_bt_remove(&sh->index, &lop->key);
	atomic_fetch_sub(&sh->ls->keys, 1);
}

static void mutate_commit(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;
	bool del = lop->op->opcode == GKV_OP_DELETE;
	uint64_t bytes = del ? 0 : lop->want, held;

	kvb_killpoint("local-commit");
	if (del)
		delete_commit(lop);
	else
		store_commit(lop);
	held = loc_seq_put(sh, lop);
	loc_old_retire(sh, lop, del);
	mutate_end(lop, GKV_SC_SUCCESS);
	loc_seq_answered(sh, held);
	loc_dirty(sh, bytes);
	if (!sh->ls->vcache)
		loc_reclaim(sh);
}

static void pending_drop(struct loc_op *lop)
{
	struct loc_ent *e = loc_bt_find(&lop->sh->index, &lop->key);

	if (e->flags & LOC_ENT_PENDING)
		loc_bt_remove(&lop->sh->index, &lop->key);
}

/* No header was written: the units are as free as before, whatever they hold. */
static void store_drop(struct loc_op *lop)
{
	uint16_t status = lop->op->stage_status;

	pending_drop(lop);
	units_undo(lop);
	mutate_end(lop, status ? status : loc_status(lop->err, true));
}

static void failed_end(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;
	uint64_t held;

	if (lop->op->opcode != GKV_OP_DELETE)
		pending_drop(lop);
	held = loc_seq_put(sh, lop);
	mutate_end(lop, loc_status(lop->err, true));
	loc_seq_answered(sh, held);
	loc_dirty(sh, 0);
}

void loc_aborted(struct loc_op *lop, int res)
{
	/* Its slot may still be there after a crash: then its value is checked. */
	if (res)
		loc_seq_freeze(lop->sh, lop->seq);
	if (!--lop->pend)
		failed_end(lop);
}

/* A device that takes no write any more is not asked for ever. */
#define RESTORES_MAX 8u

static void restored_flushed(struct loc_shard *sh, struct loc_waiter *w, int res)
{
	(void)sh;
	(void)res;	/* there is nothing more to be done about it */
	failed_end(kvb_container(w, struct loc_op, wait));
}

static void restored(struct loc_shard *sh, struct loc_hdr *h, int res)
{
	struct loc_op *lop = h->lop;

	/* A neighbour's write may have brought the tombstone to the disk: try hard to mend that. */
	if (res && lop->restores++ < RESTORES_MAX) {
		h->slot = lop->live;
		loc_hdr_submit(sh, h);
		return;
	}
	if (!is_sync(lop)) {
		failed_end(lop);
		return;
	}
	/*
	 * The tombstone may have become durable with a neighbour's header. The value was durable,
	 * and must be again when the client hears that it was not deleted.
	 */
	lop->wait.fn = restored_flushed;
	loc_flush_wait(sh, &lop->wait);
}

static void mutate_fail(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;

	if (lop->op->opcode == GKV_OP_DELETE) {
		loc_old_discard(lop);
		if (loc_slot_zero(&lop->hdr1.slot) || lop->hdr1.slot.type != LOC_LIVE) {
			failed_end(lop);	/* it never got as far as memory */
			return;
		}
		lop->live = lop->hdr1.slot;
		lop->hdr1.done = restored;
		loc_hdr_submit(sh, &lop->hdr1);
		return;
	}
	lop->pend = lop->nexts + 1;
	loc_old_abort(sh, lop);
	loc_aborted(lop, 0);
}

static void flush_waited(struct loc_shard *sh, struct loc_waiter *w, int res)
{
	struct loc_op *lop = kvb_container(w, struct loc_op, wait);

	(void)sh;
	if (res) {
		lop->err = res;
		mutate_fail(lop);
		return;
	}
	mutate_commit(lop);
}

/*
 * A value that came by DMA has landed. Only now, when it is known to have been the client's to the
 * end, may a header speak of it: zeroes stand in the place of memory that vanished.
 */
static bool store_landed(struct loc_op *lop)
{
	if (lop->err)
		return false;
	lop->op->stage_status = kvb_op_direct_over(lop->op);
	if (lop->op->stage_status)
		return false;
	lop->pend = 1;
	store_head(lop);
	loc_written(lop);
	return true;
}

void loc_written(struct loc_op *lop)
{
	if (--lop->pend)
		return;
	/* Everything that was to be written has been, or has failed. */
	kvb_killpoint("local-landed");
	if (lop->writing && !lop->headed) {
		if (lop->op->direct && store_landed(lop))
			return;
		store_drop(lop);
	} else if (lop->err) {
		mutate_fail(lop);
	} else if (is_sync(lop) && !lop->dsync) {
		lop->wait.fn = flush_waited;
		loc_flush_wait(lop->sh, &lop->wait);
	} else {
		mutate_commit(lop);
	}
}

static void delete_go(struct loc_op *lop, const struct loc_ent *e)
{
	struct loc_shard *sh = lop->sh;
	bool multi = e->flags & LOC_ENT_MULTI;
	loc_pos pos = multi ? e->extv->e[0].pos : e->pos;

	if (olds_prepare(lop, e)) {
		mutate_end(lop, GKV_SC_INTERNAL);
		return;
	}
	loc_seq_get(sh, lop);
	lop->hdrs = &lop->hdr1;
	lop->dsync = wants_dsync(lop, 0);
	lop->pend = 1;
	loc_hdr_fill(lop, &lop->hdr1, pos, LOC_TOMB,
		 multi ? e->extv->e[0].units : loc_units(sh->ls, e->vlen), 0);
	loc_hdr_submit(sh, &lop->hdr1);
}

/* It is this mutation's turn. */
static void mutate_start(struct loc_op *lop)
{
	struct kvb_op *op = lop->op;
	struct loc_ent *e = loc_bt_find(&lop->sh->index, &lop->key);

	lop->state = LOC_RUN;
	if (op->opcode == GKV_OP_DELETE) {
		if (e)
			delete_go(lop, e);
		else
			mutate_end(lop, GKV_SC_KEY_NOT_FOUND);
		return;
	}
	if (e && (op->options & GKV_STORE_MUST_NOT_EXIST)) {
		mutate_end(lop, GKV_SC_KEY_EXISTS);
	} else if (!e && (op->options & GKV_STORE_MUST_EXIST)) {
		mutate_end(lop, GKV_SC_KEY_NOT_FOUND);
	} else {
		lop->need = loc_units(lop->sh->ls, op->len);
		store_space(lop);
	}
}

void loc_store_op(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op);

	loc_op_init(st, op, lop);
	mutate_begin(lop);
}

void loc_staged(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op);

	/* Where it still waits for its turn or for units it finds out then. */
	if (lop->writing)
		store_write(lop);
}

void loc_delete_op(struct kvb_store *st, struct kvb_op *op)
{
	loc_store_op(st, op);
}

bool loc_cancel(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op), **pp;

	if (op->opcode != GKV_OP_STORE && op->opcode != GKV_OP_DELETE)
		return false;
	if (lop->state == LOC_WAIT_SPACE) {
		kvb_link_del(&lop->link);
		atomic_fetch_sub(&lop->sh->ls->space_waiters, 1);
		mutate_end(lop, KVB_TIMED_OUT);
		return true;
	}
	if (lop->state == LOC_WAIT_KEY) {
		struct loc_op *holder = *busy_slot(lop);

		for (pp = &holder->qhead; *pp != lop;)
			pp = &(*pp)->qnext;
		*pp = lop->qnext;
		if (!*pp)
			holder->qtail = pp;
		kvb_op_complete(op, KVB_TIMED_OUT);
		return true;
	}
	return false;
}
