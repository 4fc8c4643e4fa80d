/* SPDX-License-Identifier: MIT */
/*
 * Flushes of the member's caches, which all shards share, and the watermark. Shard 0 runs
 * them, one at a time; whoever asks while one is under way gets the next, so that any
 * number of waiters cost two.
 */
#include <stdlib.h>
#include <string.h>

#include "stores/local/local.h"

static void flush_start(struct loc_store *ls);

void loc_kick_init(struct loc_kick *k, struct loc_shard *sh, void (*fn)(struct kvb_msg *))
{
	k->msg.fn = fn;
	k->sh = sh;
	atomic_init(&k->sent, false);
}

void loc_kick(struct loc_kick *k)
{
	if (!atomic_exchange(&k->sent, true))
		kvb_reactor_send(k->sh->r, &k->msg);
}

/* ---- Sequences ---- */

static void low_set(struct loc_shard *sh)
{
	uint64_t low = kvb_link_empty(&sh->seqs)
			       ? UINT64_MAX
			       : kvb_container(sh->seqs.next, struct loc_op, seq_link)->seq;

	if (sh->frozen < low)
		low = sh->frozen;
	if (sh->held < low)
		low = sh->held;
	atomic_store(&sh->low, low);
}

void loc_seq_get(struct loc_shard *sh, struct loc_op *lop)
{
	/*
	 * Shown before it is taken: whoever reads next_seq first and then every shard's low
	 * cannot miss it.
	 */
	if (kvb_link_empty(&sh->seqs) && sh->frozen == UINT64_MAX && sh->held == UINT64_MAX)
		atomic_store(&sh->low, atomic_load(&sh->ls->next_seq));
	lop->seq = atomic_fetch_add(&sh->ls->next_seq, 1);
	kvb_link_add(&sh->seqs, &lop->seq_link);
	low_set(sh);
}

uint64_t loc_seq_put(struct loc_shard *sh, struct loc_op *lop)
{
	uint64_t held = sh->held;

	kvb_link_del(&lop->seq_link);
	if (lop->seq < held)
		sh->held = lop->seq;
	low_set(sh);
	return held;
}

void loc_seq_answered(struct loc_shard *sh, uint64_t held)
{
	sh->held = held;
	low_set(sh);
}

void loc_seq_freeze(struct loc_shard *sh, uint64_t seq)
{
	if (seq < sh->frozen) {
		sh->frozen = seq;
		low_set(sh);
	}
}

/* All mutations up to here are complete, data and headers. */
static uint64_t complete_seq(struct loc_store *ls)
{
	uint64_t seq = atomic_load(&ls->next_seq);

	for (unsigned int i = 0; i < ls->nshards; i++) {
		uint64_t low = atomic_load(&ls->sh[i]->low);

		if (low < seq)
			seq = low;
	}
	return seq - 1;
}

/* ---- Watermark ---- */

static void mark_done(struct kvb_io *io, int res)
{
	struct loc_flusher *fl = kvb_container(io, struct loc_flusher, mark_io);
	struct loc_store *ls = kvb_container(fl, struct loc_store, fl);

	ls->sh[0]->inflight--;
	fl->mark_busy = false;
	/* A failure only means more to check after a crash; the next one is due soon. */
	if (res == (int)LOC_BLK)
		fl->mark_disk = fl->mark_next;
	else
		kvb_log(KVB_LOG_WARN, "local: %s: watermark: %s", ls->file[0].path,
			res < 0 ? strerror(-res) : "short write");
}

static void mark_write(struct loc_store *ls, uint64_t seq)
{
	struct loc_flusher *fl = &ls->fl;
	struct io_uring_sqe *sqe;

	if (seq <= fl->mark_disk || fl->mark_busy)
		return;
	fl->mark_busy = true;
	fl->mark_next = seq;
	loc_mark_fill(ls, fl->mark_buf, seq, ++fl->mark_gen);
	fl->mark_io.done = mark_done;
	ls->sh[0]->inflight++;
	sqe = kvb_io_get(ls->sh[0]->r, &fl->mark_io);
	io_uring_prep_write(sqe, ls->file[0].fd, fl->mark_buf, LOC_BLK,
			    loc_mark_off(fl->mark_gen));
}

/* ---- Flushes ---- */

static void flush_eval(struct loc_store *ls)
{
	struct loc_flusher *fl = &ls->fl;
	struct loc_shard *sh = ls->sh[0];

	if (fl->running || sh->stopping)
		return;
	if (atomic_load(&fl->wanted) > atomic_load(&fl->started))
		flush_start(ls);
	else if (atomic_load(&fl->dirty) && !fl->timer.slot)
		kvb_timer_arm(sh->r, &fl->timer, kvb_now(sh->r) + ls->mark_interval_ns);
}

static void flush_over(struct loc_store *ls, int err)
{
	struct loc_flusher *fl = &ls->fl;
	uint64_t no = atomic_load(&fl->started);

	if (err) {
		kvb_log(KVB_LOG_ERR, "local: %s: flush: %s", ls->file[0].path, strerror(-err));
		atomic_store(&fl->failed, no);
		atomic_store(&fl->dirty, true);
	} else {
		atomic_store(&fl->done, no);
		atomic_fetch_add(&ls->flushes, 1);
		if (fl->mark_due) {
			fl->mark_due = false;
			mark_write(ls, fl->mark_seq);
		}
	}
	fl->running = false;
	for (unsigned int i = 0; i < ls->nshards; i++)
		loc_kick(&ls->sh[i]->flushed);
	flush_eval(ls);
}

static void sync_issue(struct loc_sync *s, unsigned int i)
{
	struct io_uring_sqe *sqe = kvb_io_get(s->ls->sh[0]->r, &s->io);

	io_uring_prep_fsync(sqe, s->ls->file[i].fd, IORING_FSYNC_DATASYNC);
}

static void sync_done(struct kvb_io *io, int res)
{
	struct loc_sync *s = kvb_container(io, struct loc_sync, io);
	struct loc_store *ls = s->ls;
	struct loc_flusher *fl = &ls->fl;

	if (res == -EINTR || res == -EAGAIN) {
		sync_issue(s, s - fl->sync);
		return;
	}
	ls->sh[0]->inflight--;
	if (res < 0)
		fl->err = res;
	if (!--fl->pend)
		flush_over(ls, fl->err);
}

static void flush_start(struct loc_store *ls)
{
	struct loc_flusher *fl = &ls->fl;

	fl->running = true;
	fl->err = 0;
	kvb_timer_cancel(ls->sh[0]->r, &fl->timer);
	atomic_store(&fl->dirty, false);
	if (atomic_exchange(&fl->dirty_bytes, 0) >= ls->mark_bytes)
		fl->mark_due = true;
	fl->mark_seq = complete_seq(ls);
	atomic_fetch_add(&fl->started, 1);
	if (!ls->vcache) {
		flush_over(ls, 0);
		return;
	}
	fl->pend = ls->nfiles;
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		fl->sync[i].io.done = sync_done;
		fl->sync[i].ls = ls;
		ls->sh[0]->inflight++;
		sync_issue(&fl->sync[i], i);
	}
}

static void flush_kicked(struct kvb_msg *m)
{
	struct loc_kick *k = kvb_container(m, struct loc_kick, msg);

	atomic_store(&k->sent, false);
	flush_eval(k->sh->ls);
}

static void flush_timer(struct kvb_timer *t)
{
	struct loc_flusher *fl = kvb_container(t, struct loc_flusher, timer);
	struct loc_store *ls = kvb_container(fl, struct loc_store, fl);

	fl->mark_due = true;
	if (!fl->running && !ls->sh[0]->stopping)
		flush_start(ls);
}

void loc_flush_want(struct loc_store *ls, uint64_t tag)
{
	uint64_t have = atomic_load(&ls->fl.wanted);

	while (have < tag && !atomic_compare_exchange_weak(&ls->fl.wanted, &have, tag))
		;
	if (have < tag)
		loc_kick(&ls->fl.kick);
}

void loc_dirty(struct loc_shard *sh, uint64_t bytes)
{
	struct loc_store *ls = sh->ls;
	uint64_t was = atomic_fetch_add_explicit(&ls->fl.dirty_bytes, bytes, memory_order_relaxed);

	if (was < ls->mark_bytes && was + bytes >= ls->mark_bytes)
		loc_flush_want(ls, loc_flush_tag(ls));
	else if (!atomic_load_explicit(&ls->fl.dirty, memory_order_relaxed) &&
		 !atomic_exchange(&ls->fl.dirty, true))
		loc_kick(&ls->fl.kick);
}

static void waiters_run(struct loc_shard *sh)
{
	struct loc_store *ls = sh->ls;

	while (!kvb_link_empty(&sh->waiters)) {
		struct loc_waiter *w = kvb_container(sh->waiters.next, struct loc_waiter, link);
		int res = 0;

		if (!loc_flush_over(ls, w->tag)) {
			if (atomic_load(&ls->fl.failed) < w->tag)
				break;
			res = -EIO;
		}
		kvb_link_del(&w->link);
		w->fn(sh, w, res);
	}
}

static void flushed(struct kvb_msg *m)
{
	struct loc_kick *k = kvb_container(m, struct loc_kick, msg);

	atomic_store(&k->sent, false);
	/* Who waits is answered before what was superseded goes. */
	waiters_run(k->sh);
	loc_reclaim(k->sh);
}

void loc_flush_wait(struct loc_shard *sh, struct loc_waiter *w)
{
	if (!sh->ls->vcache) {
		w->fn(sh, w, 0);
		return;
	}
	w->tag = loc_flush_tag(sh->ls);
	kvb_link_add(&sh->waiters, &w->link);
	loc_flush_want(sh->ls, w->tag);
}

int loc_flush_init(struct loc_store *ls)
{
	struct loc_flusher *fl = &ls->fl;

	if (posix_memalign(&fl->mark_buf, LOC_BLK, LOC_BLK)) {
		fl->mark_buf = NULL;
		return -ENOMEM;
	}
	fl->timer.fn = flush_timer;
	loc_kick_init(&fl->kick, ls->sh[0], flush_kicked);
	for (unsigned int i = 0; i < ls->nshards; i++)
		loc_kick_init(&ls->sh[i]->flushed, ls->sh[i], flushed);
	return 0;
}

void loc_flush_stop(struct loc_store *ls)
{
	kvb_timer_cancel(ls->sh[0]->r, &ls->fl.timer);
}

void loc_flush_fini(struct loc_store *ls)
{
	struct loc_flusher *fl = &ls->fl;

	/* Everything is complete: nothing to check when it is opened again. */
	if (fl->mark_buf) {
		if (!loc_sync_all(ls)) {
			uint64_t seq = complete_seq(ls);

			loc_mark_fill(ls, fl->mark_buf, seq, ++fl->mark_gen);
			if (seq > fl->mark_disk &&
			    (loc_pwrite(&ls->file[0], fl->mark_buf, LOC_BLK,
					loc_mark_off(fl->mark_gen)) || loc_sync_all(ls)))
				kvb_log(KVB_LOG_WARN, "local: %s: watermark not written",
					ls->file[0].path);
		}
	}
}
