/* SPDX-License-Identifier: MIT */
/*
 * Free space. Units are promised from one count for the whole store and then found in
 * allocation groups, each of which belongs to one shard at a time. A shard that was
 * promised more than its groups hold asks the others for groups; since promises never
 * exceed what is free, and units taken from a group that has come are gone from it at
 * once, every shard gets what it was promised.
 */
#include <string.h>

#include "stores/local/local.h"

/* Groups looked at for a run of the whole length before a shorter one will do. */
#define SCAN_MAX	32u
#define STEAL_RETRY_NS	200000ull

bool loc_reserve(struct loc_store *ls, uint64_t n)
{
	uint64_t have = atomic_load(&ls->free_units);

	do {
		if (have < n)
			return false;
	} while (!atomic_compare_exchange_weak(&ls->free_units, &have, have - n));
	return true;
}

void loc_map_set(struct loc_ag *ag, uint32_t idx, uint32_t n)
{
	for (; n && idx % 64; idx++, n--)
		ag->map[idx / 64] |= 1ull << idx % 64;
	for (; n >= 64; idx += 64, n -= 64)
		ag->map[idx / 64] = UINT64_MAX;
	for (; n; idx++, n--)
		ag->map[idx / 64] |= 1ull << idx % 64;
}

bool loc_map_any(const struct loc_ag *ag, uint32_t idx, uint32_t n)
{
	for (; n; idx++, n--) {
		if (ag->map[idx / 64] >> idx % 64 & 1)
			return true;
	}
	return false;
}

/* The first unit from @from on whose bit is @bit; ag->units without one. */
static uint32_t map_next(const struct loc_ag *ag, uint32_t from, bool bit)
{
	uint32_t i = from / 64, words = (ag->units + 63) / 64;
	uint64_t w;

	if (from >= ag->units)
		return ag->units;
	w = bit ? ag->map[i] : ~ag->map[i];
	w &= UINT64_MAX << from % 64;
	while (!w) {
		if (++i == words)
			return ag->units;
		w = bit ? ag->map[i] : ~ag->map[i];
	}
	from = i * 64 + __builtin_ctzll(w);
	return from < ag->units ? from : ag->units;
}

/*
 * A run of @want units, from the hint on and around; with @any the first run, up to @want.
 * Returns its length, 0 without one.
 */
static uint32_t find_run(struct loc_ag *ag, uint32_t want, bool any, uint32_t *at)
{
	uint32_t best = 0, start = ag->hint < ag->units ? ag->hint : 0;

	for (int pass = 0; pass < 2; pass++) {
		uint32_t i = pass ? 0 : start, end = pass ? start : ag->units;

		while (i < end) {
			uint32_t s = map_next(ag, i, false), e;

			if (s >= end)
				break;
			e = map_next(ag, s, true);
			if (e - s >= want || any) {
				*at = s;
				return e - s < want ? e - s : want;
			}
			if (e - s > best)
				best = e - s;
			i = e;
		}
	}
	ag->maxrun = best;
	return 0;
}

void loc_ag_link(struct loc_shard *sh, struct loc_ag *ag)
{
	kvb_link_add(ag->free ? &sh->avail : &sh->full, &ag->link);
	ag->linked = true;
}

static void take(struct loc_shard *sh, struct loc_ag *ag, uint32_t idx, uint32_t n)
{
	loc_map_set(ag, idx, n);
	ag->free -= n;
	ag->hint = idx + n;
	if (!ag->free) {
		kvb_link_del(&ag->link);
		kvb_link_add(&sh->full, &ag->link);
	}
}

#define ANY_FILE UINT32_MAX

/*
 * One pass over the groups with free units, of one member or of all; those used last are
 * first in the list.
 */
static uint32_t alloc_pass(struct loc_shard *sh, uint32_t want, bool any, uint32_t file,
			   loc_pos *pos)
{
	unsigned int looked = 0;
	struct kvb_link *l;
	uint32_t idx, n;

	for (l = sh->avail.next; l != &sh->avail && (any || looked < SCAN_MAX); l = l->next) {
		struct loc_ag *ag = kvb_container(l, struct loc_ag, link);

		if (file != ANY_FILE && ag->file != file) {
			looked++;
			continue;
		}
		if (!any && (ag->free < want || ag->maxrun < want))
			continue;
		looked++;
		n = find_run(ag, want, any, &idx);
		if (!n)
			continue;
		*pos = loc_pos_make(ag->file, ag->first + idx);
		if (ag->link.prev != &sh->avail) {
			kvb_link_del(l);
			l->next = sh->avail.next;	/* to the front */
			l->prev = &sh->avail;
			sh->avail.next->prev = l;
			sh->avail.next = l;
		}
		take(sh, ag, idx, n);
		return n;
	}
	return 0;
}

uint32_t loc_alloc(struct loc_shard *sh, uint64_t want, loc_pos *pos)
{
	uint32_t cap = want < sh->ls->ag_units ? want : sh->ls->ag_units, n;

	/* Members in turn, so that all their devices work. */
	if (sh->ls->nfiles > 1) {
		sh->next_file = (sh->next_file + 1) % sh->ls->nfiles;
		n = alloc_pass(sh, cap, false, sh->next_file, pos);
		if (n)
			return n;
	}
	/* Halve the wish rather than take the first crumb. */
	for (uint32_t w = cap; w > 1; w = w > 16 ? w / 4 : 1) {
		n = alloc_pass(sh, w, false, ANY_FILE, pos);
		if (n)
			return n;
	}
	return alloc_pass(sh, cap, true, ANY_FILE, pos);
}

void loc_free_map(struct loc_shard *sh, struct loc_ag *ag, uint32_t idx, uint32_t n)
{
	bool was_full = !ag->free;

	for (uint32_t i = idx; i < idx + n; i++)
		ag->map[i / 64] &= ~(1ull << i % 64);
	ag->free += n;
	ag->maxrun = ag->units;
	if (was_full && ag->linked) {
		kvb_link_del(&ag->link);
		kvb_link_add(&sh->avail, &ag->link);
	}
}

/* ---- Moving groups between shards ---- */

static void steal_next(struct loc_shard *sh);

static void steal_reply(struct kvb_msg *m)
{
	struct loc_steal *s = kvb_container(m, struct loc_steal, msg);
	struct loc_shard *sh = s->from;

	sh->asking = false;
	if (s->ag) {
		sh->asked = 0;
		loc_ag_link(sh, s->ag);
		loc_gather_run(sh);
	}
	if (!kvb_link_empty(&sh->gather) && !sh->stopping)
		steal_next(sh);
}

static void steal_asked(struct kvb_msg *m)
{
	struct loc_steal *s = kvb_container(m, struct loc_steal, msg);
	struct loc_store *ls = s->from->ls;
	struct loc_shard *sh = ls->sh[s->from->victim];
	struct loc_ag *best = NULL;
	struct kvb_link *l;
	unsigned int looked = 0;

	/* From the far end: the front is where this shard allocates. */
	for (l = sh->avail.prev; l != &sh->avail && looked < SCAN_MAX; l = l->prev) {
		struct loc_ag *ag = kvb_container(l, struct loc_ag, link);

		looked++;
		if (!ag->busy && (!best || ag->free > best->free))
			best = ag;
	}
	s->ag = best;
	if (best) {
		kvb_link_del(&best->link);
		best->linked = false;
		atomic_store_explicit(&best->owner, s->from->id, memory_order_release);
	}
	s->msg.fn = steal_reply;
	kvb_reactor_send(s->from->r, &s->msg);
}

static void steal_next(struct loc_shard *sh)
{
	struct loc_store *ls = sh->ls;

	if (sh->asking)
		return;
	if (ls->nshards < 2 || sh->asked >= ls->nshards) {
		/* All are busy writing headers of what they have: a moment later. */
		sh->asked = 0;
		kvb_timer_arm(sh->r, &sh->steal_timer, kvb_now(sh->r) + STEAL_RETRY_NS);
		return;
	}
	sh->asked++;
	sh->victim = (sh->victim + 1) % ls->nshards;
	if (sh->victim == sh->id)
		sh->victim = (sh->victim + 1) % ls->nshards;
	sh->asking = true;
	sh->steal.from = sh;
	sh->steal.ag = NULL;
	sh->steal.msg.fn = steal_asked;
	kvb_reactor_send(ls->sh[sh->victim]->r, &sh->steal.msg);
}

static void steal_again(struct kvb_timer *t)
{
	struct loc_shard *sh = kvb_container(t, struct loc_shard, steal_timer);

	loc_gather_run(sh);
	if (!kvb_link_empty(&sh->gather))
		steal_next(sh);
}

void loc_steal_start(struct loc_shard *sh)
{
	if (!sh->steal_timer.slot)
		steal_next(sh);
}

void loc_steal_init(struct loc_shard *sh)
{
	sh->steal_timer.fn = steal_again;
	sh->victim = sh->id;
}

void loc_unalloc(struct loc_shard *sh, loc_pos pos, uint32_t n)
{
	struct loc_ag *ag = loc_ag_of(sh->ls, pos);

	loc_free_map(sh, ag, loc_pos_unit(pos) - ag->first, n);
	atomic_fetch_add(&sh->ls->free_units, n);
}
