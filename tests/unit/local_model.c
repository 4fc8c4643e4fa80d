/* SPDX-License-Identifier: MIT */
#include "local_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void model_require(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: %s (seed %llu)\n", file, line, what, (unsigned long long)rig.seed);
	abort();
}

static void pattern(unsigned char *p, unsigned int k, unsigned int ver, uint32_t len)
{
	uint64_t x = (k + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)ver << 20;

	for (uint32_t i = 0; i < len; i++) {
		if (!(i & 7))
			x = x * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = x >> (8 * (i & 7));
	}
}

void model_init(struct model *m, unsigned int nkeys, uint32_t max_len)
{
	memset(m, 0, sizeof(*m));
	m->nkeys = nkeys;
	m->max_len = max_len;
	for (unsigned int k = 0; k < nkeys; k++) {
		struct model_key *key = &m->key[k];

		key->klen = 2 + rig_below(15);
		memset(key->key, 'a', 16);
		key->key[1] = k;
		memset(key->key + key->klen, 0, 16 - key->klen);
		key->cap = 16;
		key->v = calloc(key->cap, sizeof(*key->v));
		key->v[0].absent = true;
		key->n = 1;
	}
}

void model_free(struct model *m)
{
	for (unsigned int k = 0; k < m->nkeys; k++)
		free(m->key[k].v);
	for (unsigned int i = 0; i < MODEL_SLOTS; i++) {
		free(m->slot[i].mem);
		free(m->slot[i].ro.data);
	}
}

static unsigned int ver_new(struct model_key *key, bool absent, uint32_t len)
{
	if (key->n == key->cap) {
		key->cap *= 2;
		key->v = realloc(key->v, key->cap * sizeof(*key->v));
		MODEL_REQUIRE(key->v);
	}
	key->v[key->n] = (struct model_ver){ .absent = absent, .len = len };
	return key->n++;
}

/* Is what a Retrieve gave version @v? */
static bool is_ver(const struct model *m, unsigned int k, unsigned int v, const struct rig_op *ro,
		   const unsigned char *mem, uint32_t len)
{
	const struct model_ver *ver = &m->key[k].v[v];
	unsigned char *want;
	uint32_t n;
	bool same;

	if (ver->failed)
		return false;
	if (ver->absent)
		return ro->status == GKV_SC_KEY_NOT_FOUND;
	if (ro->status || ro->result != ver->len)
		return false;
	n = len < ver->len ? len : ver->len;
	want = malloc(n + 1);
	pattern(want, k, v, n);
	same = !memcmp(want, mem, n);
	free(want);
	return same;
}

static void mutated(struct model *m, struct model_slot *s)
{
	struct model_key *key = &m->key[s->k];
	uint16_t st = s->ro.status;

	key->busy = 0;
	if (!st) {
		key->acked = s->ver;
		if (rig.sync)
			key->flushed = s->ver;
		return;
	}
	key->v[s->ver].failed = true;
	if (st == GKV_SC_CAPACITY || st == GKV_SC_KEY_NOT_FOUND) {
		MODEL_REQUIRE(st == GKV_SC_CAPACITY ? s->op == GKV_OP_STORE
						    : key->v[key->acked].absent);
		m->refused++;
		return;
	}
	if (st == GKV_SC_DATA_TRANSFER && s->op == GKV_OP_STORE && rig.stage_fail) {
		m->refused++;
		return;
	}
	MODEL_REQUIRE(m->faults && st == GKV_SC_WRITE_FAULT);
	m->failed++;
}

static void retrieved(struct model *m, struct model_slot *s)
{
	struct model_key *key = &m->key[s->k];
	unsigned int hi = key->busy ? key->busy : key->acked;

	if (m->faults && (s->ro.status & 0x7ff) == GKV_SC_UNRECOVERED)
		return;
	for (unsigned int v = s->lo; v <= hi; v++) {
		if (is_ver(m, s->k, v, &s->ro, s->at, s->len))
			return;
	}
	MODEL_REQUIRE(!"a Retrieve gave no version that was current meanwhile");
}

static void over(struct rig_op *ro, void *arg)
{
	struct model *m = arg;
	struct model_slot *s = (struct model_slot *)((char *)ro - offsetof(struct model_slot, ro));

	s->used = false;
	switch (s->op) {
	case GKV_OP_RETRIEVE:
		retrieved(m, s);
		break;
	case GKV_OP_FLUSH:
		if (ro->status) {
			MODEL_REQUIRE(m->faults);
			break;
		}
		for (unsigned int k = 0; k < m->nkeys; k++) {
			if (s->snap[k] > m->key[k].flushed)
				m->key[k].flushed = s->snap[k];
		}
		break;
	default:
		mutated(m, s);
	}
}

void model_submit(struct model *m)
{
	struct model_slot *s = NULL;
	unsigned int k = rig_below(m->nkeys), what = rig_below(100);
	struct model_key *key = &m->key[k];

	for (unsigned int i = 0; i < MODEL_SLOTS && !s; i++) {
		if (!m->slot[i].used)
			s = &m->slot[i];
	}
	/* At depth 1 nothing else would ever make one free. */
	if (!s) {
		rig_step();
		return;
	}
	s->k = k;
	s->ro.fn = over;
	s->ro.arg = m;
	s->used = true;
	if (what < 3) {
		s->op = GKV_OP_FLUSH;
		for (unsigned int i = 0; i < m->nkeys; i++)
			s->snap[i] = m->key[i].acked;
		rig_flush(&s->ro);
	} else if (what < 35 || key->busy) {
		s->op = GKV_OP_RETRIEVE;
		s->lo = key->acked;
		s->len = rig_below(3) ? m->max_len : rig_below(m->max_len);
		free(s->mem);
		s->mem = aligned_alloc(4096, (m->max_len + 8191) & ~4095u);
		m->retrieves++;
		s->at = s->mem + (rig_below(4) ? 0 : rig_below(64));
		rig_retrieve(&s->ro, key->key, key->klen, s->at, s->len);
	} else if (what < 60) {
		s->op = GKV_OP_DELETE;
		s->ver = key->busy = ver_new(key, true, 0);
		m->deletes++;
		rig_delete(&s->ro, key->key, key->klen);
	} else {
		uint32_t len = rig_below(4) ? rig_below(20000) : rig_below(m->max_len);
		unsigned char *data;

		if (len > m->max_len)
			len = m->max_len;
		if (rig_below(30) == 0)
			len = 0;
		s->op = GKV_OP_STORE;
		s->ver = key->busy = ver_new(key, false, len);
		data = malloc(len + 1);
		pattern(data, k, s->ver, len);
		m->stores++;
		rig_store(&s->ro, key->key, key->klen, data, len, 0);
		free(data);
	}
}

void model_work(struct model *m, unsigned int steps)
{
	unsigned int depth = 1 + rig_below(8);

	for (unsigned int i = 0; i < steps; i++) {
		if (rig_below(depth) == 0 || !rig_step())
			model_submit(m);
		if (rig_below(20) == 0)
			rig_advance(rig_below(200000000));
	}
}

void model_drain(struct model *m)
{
	for (unsigned int i = 0; i < MODEL_SLOTS; i++) {
		if (m->slot[i].used)
			MODEL_REQUIRE(rig_wait(&m->slot[i].ro));
	}
}

void model_crashed(struct model *m, bool power)
{
	for (unsigned int i = 0; i < MODEL_SLOTS; i++)
		m->slot[i].used = false;
	for (unsigned int k = 0; k < m->nkeys; k++) {
		struct model_key *key = &m->key[k];

		if (!power)
			key->flushed = key->acked;
	}
}

static uint64_t units_of(uint32_t len)
{
	uint64_t unit = rig.unit ? rig.unit : 4096;

	return len ? (len + unit - 1) / unit : 1;
}

void model_check(struct model *m)
{
	unsigned char *mem = aligned_alloc(4096, (m->max_len + 8191) & ~4095u);
	uint64_t total, avail, old, lost, units = 0, keys = 0;
	uint8_t (*list)[17] = calloc(m->nkeys + 1, 17);
	struct rig_op ro = { 0 };

	MODEL_REQUIRE(mem && list);
	for (unsigned int k = 0; k < m->nkeys; k++) {
		struct model_key *key = &m->key[k];
		unsigned int v, hi = key->busy ? key->busy : key->acked;
		struct model_ver found;

		rig_retrieve(&ro, key->key, key->klen, mem, m->max_len);
		MODEL_REQUIRE(rig_wait(&ro));
		for (v = hi; v + 1 > key->flushed; v--) {
			if (is_ver(m, k, v, &ro, mem, m->max_len))
				break;
			if (!v) {
				v = UINT32_MAX;
				break;
			}
		}
		if (v == UINT32_MAX || v < key->flushed)
			fprintf(stderr, "key %u: status %x length %u; flushed %u acked %u busy %u\n",
				k, ro.status, ro.result, key->flushed, key->acked, key->busy);
		MODEL_REQUIRE(v != UINT32_MAX && v >= key->flushed);
		found = key->v[v];
		rig_exist(&ro, key->key, key->klen);
		MODEL_REQUIRE(rig_wait(&ro));
		MODEL_REQUIRE(ro.status == (found.absent ? GKV_SC_KEY_NOT_FOUND : GKV_SC_SUCCESS));
		if (!found.absent) {
			units += units_of(found.len);
			keys++;
		}
		/* Numbers go on: patterns must never repeat. */
		key->acked = key->flushed = v;
		key->busy = 0;
		for (unsigned int i = 0; i < key->n; i++)
			key->v[i].failed |= i != v;
	}
	ro.keys = list;
	ro.max_keys = m->nkeys + 1;
	rig_list(&ro, NULL, 0);
	MODEL_REQUIRE(ro.nkeys == keys);
	MODEL_REQUIRE(rig_info().keys == keys);
	rig_settle();
	rig_space(&total, &avail, &old, &lost);
	if (old || total - avail - lost != units)
		fprintf(stderr, "units: %llu total, %llu free, %llu old, %llu lost, %llu in keys\n",
			(unsigned long long)total, (unsigned long long)avail,
			(unsigned long long)old, (unsigned long long)lost,
			(unsigned long long)units);
	MODEL_REQUIRE(!old && total - avail - lost == units);
	free(ro.data);
	free(list);
	free(mem);
}
