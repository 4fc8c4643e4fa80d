/* SPDX-License-Identifier: MIT */
/*
 * Set-up of the rados store.
 *
 * Keys of a namespace's section, as rados.NAME:
 *   pool         RADOS pool; required
 *   namespace    RADOS namespace (default: the pool's default namespace)
 *   conf         Ceph configuration file (default: where librados looks, /etc/ceph/ceph.conf)
 *   id           Ceph user without "client." (default admin)
 *   keyring      its keyring file (default: as the configuration file says)
 *   inflight     bytes of large values under way at most, all reactors together (default 256M)
 *   slice        large values are read in slices of so many bytes (default 1M; 0: never)
 *   slice_min    ... when longer than this (default 2M)
 *   slice_depth  ... and no more such reads than this are under way on the reactor (default 16)
 *   op_timeout   librados's own time limit, behind the namespace's deadline (default 5 min)
 *   connect_wait how long the start waits for the cluster before it goes on (default 5 s)
 *   fence        put a dead predecessor's client on the cluster's blocklist (default on)
 */
#include <errno.h>
#include <stdlib.h>

#include "stores/rados/rados.h"

#define SEC 1000000000ull
#define OPS_MAX (1u << 16)	/* requests under way: librados must never be the one that waits */

struct conf {
	struct rd_pool_conf pool;
	uint64_t inflight, slice, slice_min, slice_depth, connect_wait;
};

static int parse(const struct kvb_conf *c, struct conf *k, struct kvb_err *err)
{
	struct rd_pool_conf *p = &k->pool;
	int rc;

	rc = kvb_conf_str(c, "pool", NULL, &p->pool, err);
	if (!rc && !p->pool)
		return kvb_fail(err, EINVAL, "rados: rados.pool is missing: name the pool");
	if (!rc)
		rc = kvb_conf_str(c, "namespace", "", &p->ns, err);
	if (!rc)
		rc = kvb_conf_str(c, "conf", NULL, &p->conf, err);
	if (!rc)
		rc = kvb_conf_str(c, "id", "admin", &p->id, err);
	if (!rc)
		rc = kvb_conf_str(c, "keyring", NULL, &p->keyring, err);
	if (!rc)
		rc = kvb_conf_size(c, "inflight", 256u << 20, 1u << 20, 1ull << 40, &k->inflight,
				   err);
	if (!rc)
		rc = kvb_conf_size(c, "slice", 1u << 20, 0, 1u << 30, &k->slice, err);
	if (!rc && k->slice && k->slice < (64u << 10))
		return kvb_fail(err, ERANGE, "rados: rados.slice is %llu: 0, or at least 64K",
				(unsigned long long)k->slice);
	if (!rc)
		rc = kvb_conf_size(c, "slice_min", 2u << 20, 64u << 10, 1u << 30, &k->slice_min,
				   err);
	if (!rc)
		rc = kvb_conf_u64(c, "slice_depth", 16, 0, 1u << 16, &k->slice_depth, err);
	if (!rc)
		rc = kvb_conf_time(c, "op_timeout", 300 * SEC, SEC, 86400 * SEC,
				   &p->op_timeout_ns, err);
	if (!rc)
		rc = kvb_conf_time(c, "connect_wait", 5 * SEC, 0, 3600 * SEC, &k->connect_wait,
				   err);
	if (!rc)
		rc = kvb_conf_bool(c, "fence", true, &p->fence, err);
	return rc;
}

static void rados_close(struct kvb_store *st)
{
	struct rd_store *rs = st->priv;

	if (rs->lister)
		rd_lister_destroy(rs->lister);
	if (rs->pool)
		rd_pool_close(rs->pool);
	rd_orphans_free(rs);
	free(rs);
}

static int rados_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	struct rd_store *rs = calloc(1, sizeof(*rs));
	struct rd_pool_status now;
	struct conf k = { 0 };
	int rc;

	if (!rs)
		return kvb_fail(err, ENOMEM, "rados: out of memory");
	st->priv = rs;
	rc = parse(conf, &k, err);
	if (rc)
		goto fail;
	rs->shard_bytes = k.inflight / kvb_reactor_count();
	rs->slice = (uint32_t)k.slice;
	rs->slice_min = (uint32_t)k.slice_min;
	rs->slice_depth = (uint32_t)k.slice_depth;
	k.pool.state_dir = st->ns->state_dir;
	k.pool.ops = OPS_MAX * kvb_reactor_count();
	/* A request larger than the whole budget goes alone; small ones are not counted in it. */
	k.pool.bytes = k.inflight + kvb_reactor_count() * (1ull << 30) +
		       (uint64_t)k.pool.ops * RD_SMALL;
	rc = rd_lister_create(&rs->lister, err);
	if (!rc)
		rc = rd_pool_open(&k.pool, &rs->pool, err);
	if (rc)
		goto fail;
	if (!rd_pool_wait(rs->pool, k.connect_wait)) {
		rd_pool_status(rs->pool, &now);
		kvb_log(KVB_LOG_WARN, "namespace %s is not ready: %s", st->ns->name, now.why);
	}
	return 0;
fail:
	rados_close(st);
	st->priv = NULL;
	return rc;
}

static int rados_start(struct kvb_store *st, struct kvb_reactor *r, struct kvb_err *err)
{
	(void)err;
	rd_shard_start(st, r);
	return 0;
}

static void rados_stop(struct kvb_store *st, struct kvb_reactor *r)
{
	struct rd_store *rs = st->priv;

	rd_lister_stop(rs->lister, r);
	rd_shard_stop(kvb_store_shard(st, r));
}

static bool rados_busy(struct kvb_store *st, struct kvb_reactor *r)
{
	return rd_shard_busy(kvb_store_shard(st, r));
}

static void rados_info(struct kvb_store *st, struct kvb_store_info *info)
{
	struct rd_store *rs = st->priv;
	struct rd_pool_status now;

	rd_pool_status(rs->pool, &now);
	info->ready = now.ready;
	info->uncounted = true;
	info->value_max = now.value_max;
}

/* ---- List ---- */

static void list_done(struct kvb_store *st, struct kvb_op *op, int err)
{
	uint16_t status = GKV_SC_SUCCESS;

	(void)st;
	if (err == -ENOENT)		/* of the pool itself */
		status = GKV_SC_NS_NOT_READY;
	else if (err == -EPERM || err == -EACCES)
		status = GKV_SC_ACCESS_DENIED;
	else if (err)
		status = err == -ENOMEM ? GKV_SC_INTERNAL : GKV_SC_TRANSIENT;
	kvb_op_complete(op, status);
}

static void list_released(struct kvb_store *st, struct kvb_reactor *r, void *arg)
{
	rd_lease_put(kvb_store_shard(st, r), arg);
}

static void list(struct kvb_store *st, struct kvb_op *op)
{
	struct rd_store *rs = st->priv;
	struct rd_shard *sh = rd_shard_of(st, op);
	struct rd_list_args a = { .st = st, .op = op, .done = list_done,
				  .released = list_released, .arg = sh->lease };

	if (!sh->lease) {
		kvb_op_complete(op, GKV_SC_NS_NOT_READY);
		return;
	}
	sh->lease->users++;
	a.io = sh->lease->io->ioctx;
	rd_list(rs->lister, &a, &rd_op_of(st, op)->list);
}

/* ---- Reports ---- */

static uint64_t percentile(struct rd_store *rs, unsigned int which, unsigned int percent)
{
	uint64_t n[RD_HIST_SLOTS] = { 0 }, total = 0, sum = 0;

	for (unsigned int i = 0; i < KVB_MAX_REACTORS; i++) {
		for (unsigned int s = 0; rs->sh[i] && s < RD_HIST_SLOTS; s++)
			n[s] += kvb_counted(&rs->sh[i]->added[which].n[s]);
	}
	for (unsigned int s = 0; s < RD_HIST_SLOTS; s++)
		total += n[s];
	for (unsigned int s = 0; s < RD_HIST_SLOTS; s++) {
		sum += n[s];
		if (total && sum * 100 >= total * percent)
			return rd_hist_value(s);
	}
	return 0;
}

static void rados_report(struct kvb_store *st, const struct kvb_report *to)
{
	struct rd_store *rs = st->priv;
	uint64_t sliced = 0, whole = 0, rereads = 0, copied = 0, cancelled = 0, waits = 0;
	struct rd_pool_status now;

	rd_pool_status(rs->pool, &now);
	for (unsigned int i = 0; i < KVB_MAX_REACTORS; i++) {
		const struct rd_shard *sh = rs->sh[i];

		if (!sh)
			continue;
		sliced += kvb_counted(&sh->count.sliced);
		whole += kvb_counted(&sh->count.whole);
		rereads += kvb_counted(&sh->count.rereads);
		copied += kvb_counted(&sh->count.copied);
		cancelled += kvb_counted(&sh->count.cancelled);
		waits += kvb_counted(&sh->count.waits);
	}
	to->text(to, "addresses", now.addrs);
	if (!now.ready)
		to->text(to, "not_ready_because", now.why);
	to->number(to, "generation", now.generation);
	to->number(to, "reconnects", now.reconnects);
	to->number(to, "fenced", now.fenced);
	to->number(to, "retrieve_added_p50_ns", percentile(rs, 0, 50));
	to->number(to, "retrieve_added_p99_ns", percentile(rs, 0, 99));
	to->number(to, "store_added_p50_ns", percentile(rs, 1, 50));
	to->number(to, "store_added_p99_ns", percentile(rs, 1, 99));
	to->number(to, "reads_whole", whole);
	to->number(to, "reads_sliced", sliced);
	to->number(to, "reads_repeated", rereads);
	to->number(to, "copied_bytes", copied);
	to->number(to, "cancelled", cancelled);
	to->number(to, "budget_waits", waits);
	to->number(to, "values_bad", atomic_load(&rs->values_bad));
}

const struct kvb_store_ops kvb_rados_ops = {
	.name = "rados",
	.flags = KVB_STORE_VERIFIES | KVB_STORE_REMOTE,
	.op_size = sizeof(struct rd_op),
	.shard_size = sizeof(struct rd_shard),
	.open = rados_open,
	.close = rados_close,
	.start = rados_start,
	.stop = rados_stop,
	.busy = rados_busy,
	.store = rd_store,
	.retrieve = rd_retrieve,
	.delete = rd_delete,
	.exist = rd_exist,
	.list = list,
	.resolve = rd_resolve,
	.cancel = rd_cancel,
	.info = rados_info,
	.report = rados_report,
};
