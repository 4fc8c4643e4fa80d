/* SPDX-License-Identifier: MIT */
/* In which registered memory does an address lie? A table read without a lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "impl.h"

static void entry_store(struct mem_entry *to, const struct mem_entry *from)
{
	store_relaxed(&to->base, from->base);
	store_relaxed(&to->end, from->end);
	store_relaxed(&to->delta, from->delta);
	store_relaxed(&to->id, from->id);
	store_relaxed(&to->vram, from->vram);
}

static void table_begin(struct mem_table *t)
{
	store_relaxed(&t->seq, t->seq + 1);
	full_barrier();
}

static void table_end(struct mem_table *t)
{
	full_barrier();
	store_relaxed(&t->seq, t->seq + 1);
}

/* Make room for one entry more. Outgrown tables stay: a reader may be in one. Under mem_lock. */
int gkvi_table_reserve(struct mem_table *t)
{
	uint32_t cap = t->cap ? 2 * t->cap : 64;
	struct mem_entry *e;

	if (t->n < t->cap)
		return 0;
	if (t->n_old == sizeof(t->old) / sizeof(t->old[0]))
		return -ENOMEM;
	e = calloc(cap, sizeof(*e));
	if (!e)
		return -ENOMEM;
	if (t->n)
		memcpy(e, t->ents, t->n * sizeof(*e));
	if (t->ents)
		t->old[t->n_old++] = t->ents;
	store_release(&t->ents, e);
	t->cap = cap;
	return 0;
}

/* Under mem_lock, with room reserved. */
void gkvi_table_insert(struct mem_table *t, const struct mem_entry *e)
{
	uint32_t i = t->n;

	table_begin(t);
	for (; i && t->ents[i - 1].base > e->base; i--)
		entry_store(&t->ents[i], &t->ents[i - 1]);
	entry_store(&t->ents[i], e);
	store_release(&t->n, t->n + 1);
	table_end(t);
}

/* Under mem_lock; nothing happens if @id is not there. */
void gkvi_table_remove(struct mem_table *t, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < t->n && t->ents[i].id != id; i++)
		;
	if (i == t->n)
		return;
	table_begin(t);
	for (; i + 1 < t->n; i++)
		entry_store(&t->ents[i], &t->ents[i + 1]);
	store_relaxed(&t->n, t->n - 1);
	table_end(t);
}

/*
 * Find the memory that holds @addr. *@seq is the table's version that the answer
 * belongs to. Data path; takes no lock.
 */
bool gkvi_lookup(struct gkv *g, uintptr_t addr, struct mem_entry *out, uint32_t *seq)
{
	struct mem_table *t = &g->table;

	for (;;) {
		uint32_t s = load_acquire(&t->seq), lo = 0, hi;
		const struct mem_entry *ents;

		if (s & 1) {
			cpu_relax();
			continue;
		}
		hi = load_acquire(&t->n);
		/* With @n read first, the table is at least that large. */
		ents = load_acquire(&t->ents);
		while (lo < hi) {
			uint32_t mid = (lo + hi) / 2;

			if (load_relaxed(&ents[mid].base) <= addr)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo) {
			out->base = load_relaxed(&ents[lo - 1].base);
			out->end = load_relaxed(&ents[lo - 1].end);
			out->delta = load_relaxed(&ents[lo - 1].delta);
			out->id = load_relaxed(&ents[lo - 1].id);
			out->vram = load_relaxed(&ents[lo - 1].vram);
		}
		full_barrier();
		if (load_relaxed(&t->seq) != s)
			continue;
		*seq = s;
		return lo && addr < out->end;
	}
}
