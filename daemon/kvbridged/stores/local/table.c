/* SPDX-License-Identifier: MIT */
/*
 * The header table. Memory holds the slots in use of every block, so that a block can be
 * written without being read; one write of a block is under way at a time, and the next
 * carries all that has changed since.
 */
#include <stdlib.h>
#include <string.h>

#include "core/crc.h"
#include "stores/local/local.h"

/* A write of one block. */
struct loc_twrite {
	struct kvb_io io;
	struct loc_shard *sh;
	struct loc_ag *ag;
	uint32_t blk;
	uint32_t got;
	uint32_t retries;
	bool dsync;		/* somebody waits for it to be durable */
	void *buf;
	struct loc_hdr *now, *later, **later_tail;
	struct loc_twrite *next;	/* waiting for a buffer */
};

uint32_t loc_slot_crc(const struct loc_file *f, uint64_t unit, const struct loc_slot *s)
{
	uint64_t le = htole64(unit);
	uint32_t crc = kvb_crc32c(f->crc_seed, &le, sizeof(le));

	return kvb_crc32c(crc, &s->type, sizeof(*s) - offsetof(struct loc_slot, type));
}

uint64_t loc_table_off(const struct loc_store *ls, const struct loc_ag *ag, uint32_t blk)
{
	return ls->file[ag->file].sb.table_off +
	       (ag->first / LOC_TBLK_SLOTS + blk) * (uint64_t)LOC_BLK;
}

static unsigned int rank(uint64_t used, unsigned int bit)
{
	return __builtin_popcountll(used & ((1ull << bit) - 1));
}

int loc_table_reserve(struct loc_ag *ag, uint32_t idx)
{
	struct loc_tblk **pp = &ag->blk[idx / LOC_TBLK_SLOTS], *b = *pp;
	unsigned int bit = idx % LOC_TBLK_SLOTS;
	uint32_t cap = b ? b->cap : 0, n;

	if (b && b->used >> bit & 1)
		return 0;
	/* What is reserved is entered as a free slot, so that it counts for the next. */
	n = b ? __builtin_popcountll(b->used) : 0;
	if (n == cap) {
		cap = cap ? cap + (cap < 8 ? cap : 8) : 1;
		if (cap > LOC_TBLK_SLOTS)
			cap = LOC_TBLK_SLOTS;
		b = realloc(b, sizeof(*b) + cap * sizeof(b->slot[0]));
		if (!b)
			return -ENOMEM;
		if (!*pp) {
			b->used = 0;
			b->w = NULL;
		}
		b->cap = cap;
		*pp = b;
	}
	n = rank(b->used, bit);
	memmove(&b->slot[n + 1], &b->slot[n],
		(__builtin_popcountll(b->used) - n) * sizeof(b->slot[0]));
	memset(&b->slot[n], 0, sizeof(b->slot[n]));
	b->used |= 1ull << bit;
	return 0;
}

struct loc_slot *loc_table_get(struct loc_ag *ag, uint32_t idx)
{
	struct loc_tblk *b = ag->blk[idx / LOC_TBLK_SLOTS];
	unsigned int bit = idx % LOC_TBLK_SLOTS;

	return b && b->used >> bit & 1 ? &b->slot[rank(b->used, bit)] : NULL;
}

void loc_table_put(struct loc_ag *ag, uint32_t idx, struct loc_slot *s)
{
	struct loc_slot *at = loc_table_get(ag, idx), was;

	if (at) {
		was = *at;
		*at = *s;
		*s = was;
	}
}

void loc_table_drop(struct loc_ag *ag, uint32_t idx)
{
	struct loc_tblk *b = ag->blk[idx / LOC_TBLK_SLOTS];
	unsigned int bit = idx % LOC_TBLK_SLOTS, n;

	if (!b || !(b->used >> bit & 1))
		return;
	n = rank(b->used, bit);
	b->used &= ~(1ull << bit);
	memmove(&b->slot[n], &b->slot[n + 1],
		(__builtin_popcountll(b->used) - n) * sizeof(b->slot[0]));
	if (!b->used && !b->w) {
		ag->blk[idx / LOC_TBLK_SLOTS] = NULL;
		free(b);
	}
}

void loc_table_image(const struct loc_ag *ag, uint32_t blk, void *out)
{
	const struct loc_tblk *b = ag->blk[blk];
	struct loc_slot *o = out;
	unsigned int n = 0;

	memset(out, 0, LOC_BLK);
	if (!b)
		return;
	for (uint64_t used = b->used; used; used &= used - 1)
		o[__builtin_ctzll(used)] = b->slot[n++];
}

static void table_done(struct kvb_io *io, int res);

static void table_issue(struct loc_twrite *w)
{
	struct loc_store *ls = w->sh->ls;
	struct io_uring_sqe *sqe = kvb_io_get(w->sh->r, &w->io);

	io_uring_prep_write(sqe, ls->file[w->ag->file].fd, (char *)w->buf + w->got,
			    LOC_BLK - w->got, loc_table_off(ls, w->ag, w->blk) + w->got);
	if (w->dsync)
		sqe->rw_flags = RWF_DSYNC;
}

static void table_start(struct loc_twrite *w)
{
	struct loc_shard *sh = w->sh;

	if (!sh->ntbufs) {
		w->next = NULL;
		*sh->twait_tail = w;
		sh->twait_tail = &w->next;
		return;
	}
	w->buf = sh->tbuf[--sh->ntbufs];
	w->now = w->later;
	w->later = NULL;
	w->later_tail = &w->later;
	w->got = 0;
	w->retries = 0;
	w->dsync = false;
	for (const struct loc_hdr *h = w->now; h; h = h->next)
		w->dsync |= h->dsync;
	w->io.done = table_done;
	loc_table_image(w->ag, w->blk, w->buf);
	atomic_fetch_add_explicit(&sh->ls->table_writes, 1, memory_order_relaxed);
	table_issue(w);
}

static void hdr_home(struct kvb_msg *m)
{
	struct loc_hdr *h = kvb_container(m, struct loc_hdr, msg);

	h->done(h->home, h, h->res);
}

static void hdr_over(struct loc_shard *sh, struct loc_hdr *h, int res)
{
	h->ag->busy--;
	sh->inflight--;
	if (h->home == sh) {
		h->done(sh, h, res);
		return;
	}
	h->res = res;
	h->msg.fn = hdr_home;
	kvb_reactor_send(h->home->r, &h->msg);
}

static void table_done(struct kvb_io *io, int res)
{
	struct loc_twrite *w = kvb_container(io, struct loc_twrite, io);
	struct loc_shard *sh = w->sh;
	struct loc_ag *ag = w->ag;
	struct loc_tblk *b;
	struct loc_hdr *h;

	if ((res == -EAGAIN || res == -EINTR) && ++w->retries < 1000) {
		table_issue(w);
		return;
	}
	if (res > 0 && w->got + res < LOC_BLK && ++w->retries < 1000) {
		w->got = (w->got + res) & ~(sh->ls->file[ag->file].lbs - 1);
		table_issue(w);
		return;
	}
	res = res < 0 ? res : w->got + res < LOC_BLK ? -EIO : 0;
	sh->tbuf[sh->ntbufs++] = w->buf;
	w->buf = NULL;
	h = w->now;
	w->now = NULL;
	/* Keep the block where it is until all have been told: they may change it again. */
	ag->busy++;
	while (h) {
		struct loc_hdr *next = h->next;

		hdr_over(sh, h, res);
		h = next;
	}
	ag->busy--;
	if (w->later) {
		table_start(w);
	} else {
		b = ag->blk[w->blk];
		b->w = NULL;
		if (!b->used) {
			ag->blk[w->blk] = NULL;
			free(b);
		}
		free(w);
	}
	if (sh->twait_head && sh->ntbufs) {
		w = sh->twait_head;
		sh->twait_head = w->next;
		if (!sh->twait_head)
			sh->twait_tail = &sh->twait_head;
		table_start(w);
	}
}

static void hdr_arrive(struct kvb_msg *m);

/* On the owner, whichever that is now. */
static void hdr_apply(struct loc_shard *sh, struct loc_hdr *h)
{
	struct loc_ag *ag = h->ag;
	uint32_t blk = h->idx / LOC_TBLK_SLOTS;
	struct loc_tblk *b;
	struct loc_twrite *w;
	bool idle = false;

	ag->busy++;
	sh->inflight++;
	if (loc_table_reserve(ag, h->idx)) {
		hdr_over(sh, h, -ENOMEM);
		return;
	}
	b = ag->blk[blk];
	w = b->w;
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w) {
			hdr_over(sh, h, -ENOMEM);
			return;
		}
		w->sh = sh;
		w->ag = ag;
		w->blk = blk;
		w->later_tail = &w->later;
		b->w = w;
		idle = true;
	}
	if (h->put)
		loc_table_put(ag, h->idx, &h->slot);
	else
		loc_table_drop(ag, h->idx);
	h->next = NULL;
	*w->later_tail = h;
	w->later_tail = &h->next;
	atomic_fetch_add_explicit(&sh->ls->header_changes, 1, memory_order_relaxed);
	if (idle)
		table_start(w);
}

static void hdr_route(struct loc_store *ls, struct loc_shard *sh, struct loc_hdr *h)
{
	uint32_t owner = atomic_load_explicit(&h->ag->owner, memory_order_acquire);

	if (owner == sh->id) {
		hdr_apply(sh, h);
		return;
	}
	h->msg.fn = hdr_arrive;
	h->res = (int)owner;
	kvb_reactor_send(ls->sh[owner]->r, &h->msg);
}

static void hdr_arrive(struct kvb_msg *m)
{
	struct loc_hdr *h = kvb_container(m, struct loc_hdr, msg);
	struct loc_store *ls = h->home->ls;

	/* The group may have moved on meanwhile. */
	hdr_route(ls, ls->sh[h->res], h);
}

void loc_hdr_submit(struct loc_shard *sh, struct loc_hdr *h)
{
	hdr_route(sh->ls, sh, h);
}

void loc_table_free(struct loc_ag *ag)
{
	for (uint32_t i = 0; ag->blk && i < (ag->units + LOC_TBLK_SLOTS - 1) / LOC_TBLK_SLOTS; i++)
		free(ag->blk[i]);
}
