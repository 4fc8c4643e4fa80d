/* SPDX-License-Identifier: MIT */
/*
 * The second walker: plain loops over segments, descriptors and pages, without merging.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>

#include "dptr_model.h"

const struct dptr_region layout[NREG] = {
	[A] = { 0x100000, 40, 100, 0 },
	[B] = { 0x100000 + 40 * PG, 20, 10, 0 },
	[C] = { 0x100000 + 60 * PG, 20, 30, 0 },
	[R] = { 0x400000, 20, 60, KVB_SPAN_RDONLY },
	[T] = { 0 - 20 * PG, 20, 160, 0 },
};

#define MAP_PAGES 200

static uint8_t *map;
struct kvb_region owners[NREG];
struct kvb_regions *table;
struct model model;

uint8_t *host(uint64_t iova)
{
	for (int i = 0; i < NREG; i++)
		if (iova - layout[i].iova < layout[i].pages * PG)
			return map + layout[i].slot * PG + (iova - layout[i].iova);
	return NULL;
}

int region_of(uint64_t iova)
{
	for (int i = 0; i < NREG; i++)
		if (iova - layout[i].iova < layout[i].pages * PG)
			return i;
	return -1;
}

int dptr_setup(void **state)
{
	struct kvb_span spans[NREG];

	(void)state;
	map = mmap(NULL, MAP_PAGES * PG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return -1;
	for (int i = 0; i < NREG; i++) {
		spans[i] = (struct kvb_span){
			.iova = layout[i].iova,
			.len = layout[i].pages * PG,
			.addr = map + layout[i].slot * PG,
			.flags = layout[i].flags,
			.owner = &owners[i],
		};
		/* What lies between is not to be touched, nor written in the read-only one. */
		if (mprotect(spans[i].addr, spans[i].len, PROT_READ | PROT_WRITE))
			return -1;
	}
	table = kvb_regions_build(spans, NREG);
	return table ? 0 : -1;
}

int dptr_teardown(void **state)
{
	(void)state;
	kvb_regions_free(table);
	munmap(map, MAP_PAGES * PG);
	free(model.runs);
	return 0;
}

void put64(uint64_t iova, uint64_t val)
{
	uint8_t *p = host(iova);

	assert_non_null(p);
	memcpy(p, &val, 8);
}

void put_desc(uint64_t iova, uint64_t addr, uint32_t len, uint8_t type)
{
	put64(iova, addr);
	put64(iova + 8, len | (uint64_t)type << 56);
}

/* ---- The second walker ---- */

static void model_run(struct model *m, uint8_t *at, uint64_t len, int region)
{
	if (m->n == m->cap) {
		m->cap = m->cap * 2 + 64;
		m->runs = realloc(m->runs, m->cap * sizeof(*m->runs));
		assert_non_null(m->runs);
	}
	m->runs[m->n++] = (struct run){ at, len, region };
	m->left -= len;
}

static uint16_t model_data(struct model *m, uint64_t iova, uint64_t len)
{
	if (len > m->left)
		len = m->left;
	while (len) {
		/* No region begins or ends inside a page. */
		uint64_t n = PG - iova % PG < len ? PG - iova % PG : len;
		int r = region_of(iova);

		if (r < 0 || (m->to_client && layout[r].flags))
			return BAD;
		model_run(m, host(iova), n, r);
		iova += n;
		len -= n;
	}
	return 0;
}

bool model_get64(uint64_t iova, uint64_t *v)
{
	uint8_t *p = host(iova);

	if (!p)
		return false;
	memcpy(v, p, 8);
	return true;
}

static uint16_t model_prp(struct model *m, uint64_t prp1, uint64_t prp2)
{
	uint64_t list, entry, pages;
	uint16_t st;

	if (!m->left)
		return 0;
	if (prp1 % 4)
		return GKV_SC_PRP_OFFSET;
	st = model_data(m, prp1, PG - prp1 % PG);
	if (st || !m->left)
		return st;
	pages = (m->left + PG - 1) / PG;
	if (pages == 1)
		return prp2 % PG ? GKV_SC_PRP_OFFSET : model_data(m, prp2, PG);
	if (prp2 % 8)
		return GKV_SC_PRP_OFFSET;
	for (list = prp2; pages; list += 8) {
		if (!model_get64(list, &entry))
			return BAD;
		if (list % PG == PG - 8 && pages > 1) {
			if (entry % PG)
				return GKV_SC_PRP_OFFSET;
			list = entry;
			if (!model_get64(list, &entry))
				return BAD;
		}
		if (entry % PG)
			return GKV_SC_PRP_OFFSET;
		st = model_data(m, entry, PG);
		if (st)
			return st;
		pages--;
	}
	return 0;
}

/* A segment; n is 0 where there is none. */
struct segment {
	uint64_t addr, n;
	bool last;
};

static uint16_t model_desc(struct model *m, uint64_t addr, uint32_t len, unsigned int type,
			   bool sgl1, bool final, bool in_last, struct segment *next)
{
	unsigned __int128 end = (unsigned __int128)addr + len;
	bool wrap = end > (unsigned __int128)1 << 64;

	if (type == 0x00)
		return wrap ? GKV_SC_SGL_LENGTH : model_data(m, addr, len);
	if (type == 0x10 && !sgl1) {
		if (m->to_client && len)
			model_run(m, NULL, len < m->left ? len : m->left, -1);
		return 0;
	}
	if (type != 0x20 && type != 0x30)
		return GKV_SC_SGL_TYPE;
	if (in_last)
		return GKV_SC_SGL_SEGMENT;
	if (!final)
		return GKV_SC_SGL_COUNT;
	if (len == 0 || len % 16 || addr % 8)
		return GKV_SC_SGL_SEGMENT;
	if (wrap)
		return GKV_SC_SGL_LENGTH;
	*next = (struct segment){ addr, len / 16, type == 0x30 };
	return 0;
}

static uint16_t model_segment(struct model *m, struct segment seg, struct segment *next)
{
	*next = (struct segment){ 0 };
	for (uint64_t i = 0; i < seg.n && m->left; i++) {
		uint64_t a, b;
		uint16_t st;

		if (++m->descs > m->max_descs)
			return GKV_SC_SGL_COUNT;
		if (!model_get64(seg.addr + 16 * i, &a) || !model_get64(seg.addr + 16 * i + 8, &b))
			return BAD;
		st = model_desc(m, a, (uint32_t)b, b >> 56, false, i == seg.n - 1, seg.last, next);
		if (st)
			return st;
	}
	return 0;
}

static uint16_t model_sgl(struct model *m, const struct gkv_sgl_desc *d)
{
	struct segment seg = { 0 }, next;
	uint16_t st;

	if (!m->left)
		return 0;
	st = model_desc(m, d->addr, d->len, d->type, true, true, false, &seg);
	while (!st && seg.n && m->left) {
		st = model_segment(m, seg, &next);
		seg = next;
	}
	return !st && m->left ? GKV_SC_SGL_LENGTH : st;
}

static uint16_t model_walk(struct model *m, const struct gkv_sqe *s, uint32_t len, bool to_client)
{
	m->left = len;
	m->to_client = to_client;
	m->descs = 1;
	m->max_descs = 1024 + 2 * (uint64_t)len;
	if (m->max_descs > KVB_SGL_MAX_DESCS)
		m->max_descs = KVB_SGL_MAX_DESCS;
	m->n = 0;
	if (s->flags >> 6)
		return model_sgl(m, &s->dptr.sgl);
	return model_prp(m, s->dptr.prp.prp1, s->dptr.prp.prp2);
}

/* ---- Comparison ---- */

int region_at(const uint8_t *p)
{
	for (int i = 0; i < NREG; i++)
		if ((size_t)(p - (map + layout[i].slot * PG)) < layout[i].pages * PG)
			return i;
	return -1;
}

/* Same bytes in the same order; each piece in one region; neighbours merged. */
static void compare(const struct kvb_segs *out)
{
	size_t i = 0;
	uint64_t off = 0;

	for (uint32_t k = 0; k < out->n; k++) {
		uint8_t *at = out->v[k].iov_base;
		uint64_t len = out->v[k].iov_len;
		int region = at ? region_at(at) : -1;

		assert_true(len > 0);
		if (k) {
			uint8_t *prev = out->v[k - 1].iov_base;

			assert_true(prev || at);
			if (prev && at && prev + out->v[k - 1].iov_len == at)
				assert_int_not_equal(region_at(prev), region);
		}
		if (at)
			assert_int_equal(region_at(at + len - 1), region);
		while (len) {
			const struct run *r = &model.runs[i];
			uint64_t n;

			assert_true(i < model.n);
			n = r->len - off < len ? r->len - off : len;
			if (at) {
				assert_ptr_equal(at, r->at + off);
				assert_int_equal(region, r->region);
				at += n;
			} else {
				assert_null(r->at);
			}
			len -= n;
			off += n;
			if (off == r->len) {
				i++;
				off = 0;
			}
		}
	}
	assert_int_equal(i, model.n);
	assert_int_equal(off, 0);
}

uint16_t check(const struct gkv_sqe *s, uint32_t len, bool to_client)
{
	static unsigned int turn;
	struct iovec first[4];
	struct kvb_segs out;
	struct kvb_dptr w;
	uint16_t want = model_walk(&model, s, len, to_client), got;

	kvb_segs_init(&out, first, turn % 5);
	got = kvb_dptr_walk(s, table, len, to_client, &out);
	if (got != want)
		fail_msg("status %03x, not %03x", got, want);
	compare(&out);
	kvb_segs_free(&out);

	/* The same in small steps. */
	kvb_segs_init(&out, first, 4);
	kvb_dptr_init(&w, s, table, len, to_client);
	do
		got = kvb_dptr_next(&w, &out, 1 + turn % 3);
	while (!got && w.left);
	assert_int_equal(got, want);
	compare(&out);
	kvb_segs_free(&out);
	turn++;
	return want;
}

/* ---- Random numbers ---- */

static uint64_t seed = 88172645463325252ull;

uint64_t rnd(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % n;
}

uint64_t random_page(bool sound)
{
	unsigned int r = rnd(sound ? 3 : NREG);

	if (!sound && !rnd(40))
		return rnd(2) ? 0x5000 : layout[r].iova + layout[r].pages * PG;
	return layout[r].iova + rnd(layout[r].pages) * PG;
}

