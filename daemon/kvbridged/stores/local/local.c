/* SPDX-License-Identifier: MIT */
/*
 * local: values in extents of files or block devices, by direct I/O; headers in a table at
 * a fixed place, from which the index in memory is rebuilt. See docs/local-store.md.
 */
#include <stdlib.h>
#include <string.h>

#include "stores/local/local.h"

static void shard_free(struct loc_shard *sh)
{
	struct loc_bt_iter it;
	struct loc_ent *e;

	for (e = loc_bt_seek(&sh->index, &(struct loc_key){ 0 }, false, &it); e;
	     e = loc_bt_next(&it)) {
		if (e->flags & LOC_ENT_MULTI)
			free(e->extv);
	}
	loc_bt_destroy(&sh->index);
	for (int i = 0; i < 3; i++) {
		struct kvb_link *h = i == 0 ? &sh->stale : i == 1 ? &sh->cleared : &sh->tombs;

		while (!kvb_link_empty(h)) {
			struct loc_old *o = kvb_container(h->next, struct loc_old, link);

			kvb_link_del(&o->link);
			free(o);
		}
	}
	free(sh->tbuf_mem);
	free(sh->bounce_mem);
	free(sh);
}

static void poked(struct kvb_msg *m)
{
	struct loc_kick *k = kvb_container(m, struct loc_kick, msg);

	atomic_store(&k->sent, false);
	loc_space_run(k->sh);
}

static struct loc_shard *shard_new(struct loc_store *ls, unsigned int id)
{
	struct loc_shard *sh = calloc(1, sizeof(*sh));

	if (!sh)
		return NULL;
	sh->ls = ls;
	sh->id = id;
	kvb_link_init(&sh->avail);
	kvb_link_init(&sh->full);
	kvb_link_init(&sh->turn);
	kvb_link_init(&sh->space);
	kvb_link_init(&sh->gather);
	kvb_link_init(&sh->seqs);
	kvb_link_init(&sh->reads);
	kvb_link_init(&sh->stale);
	kvb_link_init(&sh->tombs);
	kvb_link_init(&sh->cleared);
	kvb_link_init(&sh->ages);
	kvb_link_init(&sh->waiters);
	kvb_link_init(&sh->bounce_wait);
	sh->frozen = UINT64_MAX;
	sh->held = UINT64_MAX;
	atomic_init(&sh->low, UINT64_MAX);
	sh->twait_tail = &sh->twait_head;
	loc_steal_init(sh);
	loc_kick_init(&sh->poke, sh, poked);
	if (posix_memalign(&sh->tbuf_mem, LOC_BLK, LOC_TBUFS * LOC_BLK))
		sh->tbuf_mem = NULL;
	if (posix_memalign(&sh->bounce_mem, LOC_BLK, LOC_SPARE_BOUNCE * LOC_BOUNCE))
		sh->bounce_mem = NULL;
	if (!sh->tbuf_mem || !sh->bounce_mem) {
		shard_free(sh);
		return NULL;
	}
	for (unsigned int i = 0; i < LOC_TBUFS; i++)
		sh->tbuf[sh->ntbufs++] = (char *)sh->tbuf_mem + i * LOC_BLK;
	for (unsigned int i = 0; i < LOC_SPARE_BOUNCE; i++)
		sh->bounce[sh->nbounce++] = (char *)sh->bounce_mem + i * LOC_BOUNCE;
	return sh;
}

static void groups_free(struct loc_store *ls)
{
	for (uint32_t i = 0; ls->ag && i < ls->nags; i++) {
		loc_table_free(&ls->ag[i]);
		free(ls->ag[i].blk);
		free(ls->ag[i].map);
	}
	free(ls->ag);
	ls->ag = NULL;
}

static int groups_new(struct loc_store *ls)
{
	uint32_t n = 0;

	ls->ag = calloc(ls->nags, sizeof(*ls->ag));
	if (!ls->ag)
		return -ENOMEM;
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		const struct loc_file *f = &ls->file[i];

		for (uint64_t first = 0; first < f->sb.units; first += ls->ag_units, n++) {
			struct loc_ag *ag = &ls->ag[n];
			uint64_t left = f->sb.units - first;

			ag->index = n;
			ag->file = i;
			ag->first = first;
			ag->units = left < ls->ag_units ? left : ls->ag_units;
			ag->free = ag->maxrun = ag->units;
			ag->map = calloc((ag->units + 63) / 64, sizeof(*ag->map));
			ag->blk = calloc((ag->units + LOC_TBLK_SLOTS - 1) / LOC_TBLK_SLOTS,
					 sizeof(struct loc_tblk *));
			if (!ag->map || !ag->blk)
				return -ENOMEM;
		}
	}
	return 0;
}

static void store_free(struct loc_store *ls)
{
	for (unsigned int i = 0; i < ls->nshards; i++) {
		if (ls->sh[i])
			shard_free(ls->sh[i]);
	}
	groups_free(ls);
	loc_dev_close(ls);
	free(ls->fl.mark_buf);
	free(ls->ids.v);
	pthread_mutex_destroy(&ls->scratch);
	free(ls);
}

static int read_conf(struct loc_store *ls, const struct kvb_conf *c, const char **paths,
		     struct kvb_err *err)
{
	uint64_t unit;
	int ret;

	ret = kvb_conf_str(c, "path", NULL, paths, err);
	if (!ret && !*paths)
		ret = kvb_fail(err, EINVAL, "local.path: no file or device given");
	if (!ret)
		ret = kvb_conf_size(c, "size", 0, 0, 1ull << 50, &ls->size, err);
	if (!ret)
		ret = kvb_conf_size(c, "unit", LOC_BLK, LOC_BLK, 1u << 20, &unit, err);
	if (!ret && (unit & (unit - 1)))
		ret = kvb_fail(err, EINVAL, "local.unit: %llu is no power of two",
			       (unsigned long long)unit);
	if (!ret)
		ret = kvb_conf_bool(c, "buffered", false, &ls->buffered, err);
	if (!ret)
		ret = kvb_conf_bool(c, "format", false, &ls->format, err);
	if (!ret)
		ret = kvb_conf_bool(c, "prefill", false, &ls->prefill, err);
	if (!ret)
		ret = kvb_conf_time(c, "lock_wait", 300000000000ull, 0, UINT64_MAX / 2,
				    &ls->lock_wait_ns, err);
	if (!ret)
		ret = kvb_conf_time(c, "flush_interval", 1000000000ull, 1000000, 3600000000000ull,
				    &ls->mark_interval_ns, err);
	if (!ret)
		ret = kvb_conf_size(c, "flush_bytes", 256ull << 20, 1u << 20, 1ull << 40,
				    &ls->mark_bytes, err);
	if (!ret)
		ls->unit = unit;
	return ret;
}

static int loc_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	struct loc_store *ls = calloc(1, sizeof(*ls));
	const char *paths;
	int ret;

	if (!ls)
		return kvb_fail(err, ENOMEM, "out of memory");
	pthread_mutex_init(&ls->scratch, NULL);
	ls->st = st;
	ls->nshards = kvb_reactor_count();
	ret = read_conf(ls, conf, &paths, err);
	if (!ret)
		ret = loc_probe_ring(err);
	if (!ret)
		ret = loc_dev_open(ls, paths, err);
	if (!ret)
		ret = loc_super_open(ls, err);
	if (ret)
		goto fail;
	for (unsigned int i = 0; i < ls->nshards; i++) {
		ls->sh[i] = shard_new(ls, i);
		if (!ls->sh[i]) {
			ret = kvb_fail(err, ENOMEM, "out of memory");
			goto fail;
		}
	}
	if (groups_new(ls) || loc_flush_init(ls)) {
		ret = kvb_fail(err, ENOMEM, "out of memory for %llu units",
			       (unsigned long long)ls->total_units);
		goto fail;
	}
	ret = loc_recover(ls, err);
	if (ret)
		goto fail;
	st->ns->run = ls->run;
	st->priv = ls;
	return 0;
fail:
	store_free(ls);
	return ret;
}

static struct loc_store *kept;

static void loc_close(struct kvb_store *st)
{
	struct loc_store *ls = st->priv;
	uint64_t inflight = 0;

	for (unsigned int i = 0; i < ls->nshards; i++)
		inflight += ls->sh[i]->inflight;
	st->priv = NULL;
	loc_flush_fini(ls);
	if (inflight) {
		/*
		 * Slots of superseded extents on their way to be freed: nobody waits for them,
		 * but what a device may still read must stay until the process ends.
		 */
		kvb_log(KVB_LOG_INFO, "local: %s: closed with %llu header writes in flight",
			ls->file[0].path, (unsigned long long)inflight);
		ls->kept = kept;
		kept = ls;
		return;
	}
	store_free(ls);
}

static int loc_start(struct kvb_store *st, struct kvb_reactor *r, struct kvb_err *err)
{
	struct loc_store *ls = st->priv;

	(void)err;
	ls->sh[kvb_reactor_id(r)]->r = r;
	return 0;
}

static void loc_stop(struct kvb_store *st, struct kvb_reactor *r)
{
	struct loc_store *ls = st->priv;
	struct loc_shard *sh = ls->sh[kvb_reactor_id(r)];

	sh->stopping = true;
	kvb_timer_cancel(r, &sh->steal_timer);
	if (!sh->id)
		loc_flush_stop(ls);
}

static void loc_exist(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_store *ls = st->priv;
	struct loc_key key = loc_key_make(op->key, op->klen);
	const struct loc_ent *e = loc_bt_find(&ls->sh[kvb_reactor_id(op->r)]->index, &key);

	kvb_op_complete(op, e && !(e->flags & LOC_ENT_PENDING) ? GKV_SC_SUCCESS
							       : GKV_SC_KEY_NOT_FOUND);
}

static void flush_answer(struct loc_shard *sh, struct loc_waiter *w, int res)
{
	struct loc_op *lop = kvb_container(w, struct loc_op, wait);

	(void)sh;
	kvb_op_complete(lop->op, res ? GKV_SC_WRITE_FAULT : GKV_SC_SUCCESS);
}

static void loc_flush(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op);

	loc_op_init(st, op, lop);
	/* One flush covers all shards: what they acknowledged before is complete. */
	if (lop->sh->id) {
		kvb_op_complete(op, GKV_SC_SUCCESS);
		return;
	}
	lop->wait.fn = flush_answer;
	loc_flush_wait(lop->sh, &lop->wait);
}

static void loc_resolve(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_store *ls = st->priv;
	struct loc_key key = loc_key_make(op->key, op->klen);
	struct loc_shard *sh = ls->sh[kvb_reactor_id(op->r)];
	struct loc_ent *e = loc_bt_find(&sh->index, &key);
	bool found = loc_ids_has(&ls->ids, &op->id);

	/* What is stored now was perhaps found by an earlier recovery. */
	if (!found && e && !(e->flags & LOC_ENT_PENDING)) {
		loc_pos pos = e->flags & LOC_ENT_MULTI ? e->extv->e[0].pos : e->pos;
		struct loc_ag *ag = loc_ag_of(ls, pos);
		const struct loc_slot *s;

		if (atomic_load_explicit(&ag->owner, memory_order_acquire) == sh->id) {
			s = loc_table_get(ag, loc_pos_unit(pos) - ag->first);
			found = s && le64toh(s->id_uid) == op->id.uid &&
				le64toh(s->id_seq) == op->id.seq;
		}
	}
	/* Two openings ago its id may have been found, and lost when it was superseded. */
	if (found)
		op->outcome = KVB_APPLIED;
	else if (op->run == (uint16_t)(ls->run - 1))
		op->outcome = KVB_NOT_APPLIED;
	else
		op->outcome = KVB_UNKNOWN;
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

static void loc_info(struct kvb_store *st, struct kvb_store_info *info)
{
	struct loc_store *ls = st->priv;
	uint64_t total = ls->total_units << ls->unit_shift;
	uint64_t used = ls->total_units - atomic_load(&ls->free_units) - atomic_load(&ls->old_units);

	*info = (struct kvb_store_info){
		.capacity = total,
		.used = used << ls->unit_shift,
		.keys = atomic_load(&ls->keys),
		.key_max = GKV_KEY_MAX,
		.value_max = total < 1u << 30 ? total : 1u << 30,
		.block_size = ls->file[0].lbs,
		.volatile_cache = ls->vcache,
		.ready = true,
	};
}

static void loc_report(struct kvb_store *st, const struct kvb_report *to)
{
	struct loc_store *ls = st->priv;

	to->text(to, "io", ls->buffered ? "buffered" : "direct");
	to->number(to, "block", ls->block);
	to->number(to, "buffered_ios", atomic_load(&ls->buffered_ios));
	to->number(to, "table_writes", atomic_load(&ls->table_writes));
	to->number(to, "flushes", atomic_load(&ls->flushes));
	to->number(to, "values_bad", atomic_load(&ls->values_bad));
	to->number(to, "headers_repaired", atomic_load(&ls->slots_repaired));
	to->number(to, "headers_bad", atomic_load(&ls->slots_bad));
	to->number(to, "headers_dropped", atomic_load(&ls->slots_dropped));
	to->number(to, "set_aside", atomic_load(&ls->lost_units) << ls->unit_shift);
}

const struct kvb_store_ops kvb_local_ops = {
	.name = "local",
	.flags = KVB_STORE_SHARDED | KVB_STORE_VERIFIES,
	.op_size = sizeof(struct loc_op),
	.open = loc_open,
	.close = loc_close,
	.start = loc_start,
	.stop = loc_stop,
	.store = loc_store_op,
	.staged = loc_staged,
	.direct = loc_direct,
	.retrieve = loc_retrieve_op,
	.delete = loc_delete_op,
	.exist = loc_exist,
	.list = loc_list_op,
	.flush = loc_flush,
	.resolve = loc_resolve,
	.cancel = loc_cancel,
	.reach = loc_reach,
	.info = loc_info,
	.report = loc_report,
};
