/* SPDX-License-Identifier: MIT */
/*
 * mem: values in the daemon's memory, gone with it. A shard holds a hash table for
 * look-ups and a tree for List. Large values keep the buffer they were staged in, small
 * ones are copied to exact allocations.
 *
 * Keys: capacity, bytes of keys and values (default 1G).
 */
#include <errno.h>
#include <stdlib.h>

#include "core/store.h"
#include "stores/local/btree.h"

/* From here on a value keeps its staging buffer, which is rounded up to a power of two. */
#define KEEP_BUFFER (64u << 10)
/* Accounted for each key beyond key and value: table slot, tree entry, struct val. */
#define KEY_OVERHEAD 128u
/* Keys a List offers in one slice. */
#define LIST_SLICE 256

struct val {
	bool staged;		/* data is a staging buffer */
	uint32_t len;		/* bytes */
	uint32_t crc;
	uint32_t refs;		/* the table's, and one for each Retrieve under way */
	void *data;
};

/* Half a cache line, key included: Exist touches nothing else. */
struct slot {
	uint8_t key[16];
	uint64_t tag;		/* hash, with the key length in its low bits */
	struct val *v;		/* NULL: empty */
};

struct shard {
	struct slot *slots;
	uint64_t mask, n;
	struct loc_btree tree;
	struct kvb_reactor *r;
};

struct mem {
	uint64_t capacity;
	_Atomic uint64_t used, keys;
};

struct mem_op {
	struct val *v;
	struct kvb_work work;
	struct kvb_store *st;
	struct kvb_op *op;
	struct loc_key at;
	bool after;
};

static struct mem_op *priv(struct kvb_store *st, struct kvb_op *op)
{
	return kvb_op_priv(op, st->op_offset);
}

static int mem_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	struct mem *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return kvb_fail(err, ENOMEM, "mem: out of memory");
	rc = kvb_conf_size(conf, "capacity", 1ull << 30, 1u << 20, 1ull << 50, &m->capacity, err);
	if (rc) {
		free(m);
		return rc;
	}
	st->priv = m;
	return 0;
}

static void mem_close(struct kvb_store *st)
{
	free(st->priv);
}

static int mem_start(struct kvb_store *st, struct kvb_reactor *r, struct kvb_err *err)
{
	struct shard *sh = kvb_store_shard(st, r);

	sh->r = r;
	sh->mask = 1023;
	sh->slots = calloc(sh->mask + 1, sizeof(*sh->slots));
	if (!sh->slots)
		return kvb_fail(err, ENOMEM, "mem: out of memory");
	return 0;
}

static void val_put(struct shard *sh, struct val *v)
{
	if (--v->refs)
		return;
	if (v->staged)
		kvb_buf_free(sh->r, v->data);
	else
		free(v->data);
	free(v);
}

static void mem_stop(struct kvb_store *st, struct kvb_reactor *r)
{
	struct shard *sh = kvb_store_shard(st, r);

	for (uint64_t i = 0; sh->slots && i <= sh->mask; i++) {
		if (sh->slots[i].v)
			val_put(sh, sh->slots[i].v);
	}
	free(sh->slots);
	loc_bt_destroy(&sh->tree);
}

/* ---- Hash table: open addressing, linear probing, no tombstones ---- */

static uint64_t tag_of(uint64_t hash, uint8_t klen)
{
	return (hash & ~(uint64_t)31) | klen;
}

static uint64_t home_of(const struct shard *sh, uint64_t tag)
{
	return (tag >> 5) & sh->mask;
}

static struct slot *lookup(struct shard *sh, const struct kvb_op *op)
{
	uint64_t tag = tag_of(op->hash, op->klen);

	for (uint64_t i = home_of(sh, tag);; i = (i + 1) & sh->mask) {
		struct slot *s = &sh->slots[i];

		if (!s->v)
			return NULL;
		if (s->tag == tag && !memcmp(s->key, op->key, sizeof(op->key)))
			return s;
	}
}

static void mem_prefetch(struct kvb_store *st, const struct kvb_op *op)
{
	struct shard *sh = kvb_store_shard(st, op->r);

	__builtin_prefetch(&sh->slots[home_of(sh, tag_of(op->hash, op->klen))]);
}

static void place(struct shard *sh, const struct slot *s)
{
	uint64_t i = home_of(sh, s->tag);

	while (sh->slots[i].v)
		i = (i + 1) & sh->mask;
	sh->slots[i] = *s;
}

static bool grow(struct shard *sh)
{
	struct slot *old = sh->slots, *slots;
	uint64_t n = sh->mask + 1;

	if (sh->n + 1 <= n / 4 * 3)
		return true;
	slots = calloc(2 * n, sizeof(*slots));
	if (!slots)
		return false;
	sh->slots = slots;
	sh->mask = 2 * n - 1;
	for (uint64_t i = 0; i < n; i++) {
		if (old[i].v)
			place(sh, &old[i]);
	}
	free(old);
	return true;
}

/* Close the gap: move back what probing would no longer reach. */
static void unplace(struct shard *sh, struct slot *s)
{
	uint64_t hole = (uint64_t)(s - sh->slots);

	for (uint64_t i = (hole + 1) & sh->mask; sh->slots[i].v; i = (i + 1) & sh->mask) {
		uint64_t want = home_of(sh, sh->slots[i].tag);

		if (((i - want) & sh->mask) >= ((i - hole) & sh->mask)) {
			sh->slots[hole] = sh->slots[i];
			hole = i;
		}
	}
	sh->slots[hole].v = NULL;
}

/* ---- Operations ---- */

static uint64_t cost(uint32_t len)
{
	return (uint64_t)len + KEY_OVERHEAD;
}

/* Reserve space; the old value's is given back by the caller. */
static bool charge(struct mem *m, uint64_t bytes)
{
	if (atomic_fetch_add_explicit(&m->used, bytes, memory_order_relaxed) + bytes <=
	    m->capacity)
		return true;
	atomic_fetch_sub_explicit(&m->used, bytes, memory_order_relaxed);
	return false;
}

static struct val *val_new(struct kvb_op *op)
{
	struct val *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->len = op->len;
	v->crc = op->crc;
	v->refs = 1;
	if (op->len >= KEEP_BUFFER) {
		v->staged = true;
		v->data = kvb_op_take_data(op);
	} else if (op->len) {
		v->data = malloc(op->len);
		if (!v->data) {
			free(v);
			return NULL;
		}
		memcpy(v->data, op->data, op->len);
	}
	return v;
}

static void mem_store(struct kvb_store *st, struct kvb_op *op)
{
	struct shard *sh = kvb_store_shard(st, op->r);
	struct slot *s = lookup(sh, op);
	struct mem *m = st->priv;
	struct loc_key key;
	struct loc_ent *e;
	struct slot slot;
	struct val *v;

	if (s && op->options & GKV_STORE_MUST_NOT_EXIST) {
		kvb_op_complete(op, GKV_SC_KEY_EXISTS);
		return;
	}
	if (!s && op->options & GKV_STORE_MUST_EXIST) {
		kvb_op_complete(op, GKV_SC_KEY_NOT_FOUND);
		return;
	}
	if (!charge(m, cost(op->len))) {
		kvb_op_complete(op, GKV_SC_CAPACITY);
		return;
	}
	v = val_new(op);
	if (!v)
		goto nomem;
	if (s) {
		atomic_fetch_sub_explicit(&m->used, cost(s->v->len), memory_order_relaxed);
		val_put(sh, s->v);
		s->v = v;
		kvb_op_complete(op, GKV_SC_SUCCESS);
		return;
	}
	key = loc_key_make(op->key, op->klen);
	e = grow(sh) ? loc_bt_insert(&sh->tree, &key) : NULL;
	if (!e) {
		val_put(sh, v);
		goto nomem;
	}
	slot.tag = tag_of(op->hash, op->klen);
	memcpy(slot.key, op->key, sizeof(slot.key));
	slot.v = v;
	place(sh, &slot);
	sh->n++;
	atomic_fetch_add_explicit(&m->keys, 1, memory_order_relaxed);
	kvb_op_complete(op, GKV_SC_SUCCESS);
	return;

nomem:
	atomic_fetch_sub_explicit(&m->used, cost(op->len), memory_order_relaxed);
	kvb_op_complete(op, GKV_SC_INTERNAL);
}

static void retrieved(struct kvb_store *st, struct kvb_op *op)
{
	val_put(kvb_store_shard(st, op->r), priv(st, op)->v);
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

static void mem_retrieve(struct kvb_store *st, struct kvb_op *op)
{
	struct shard *sh = kvb_store_shard(st, op->r);
	struct slot *s = lookup(sh, op);
	struct val *v;
	uint16_t status;
	uint32_t n;

	if (!s) {
		kvb_op_complete(op, GKV_SC_KEY_NOT_FOUND);
		return;
	}
	v = s->v;
	n = op->len < v->len ? op->len : v->len;
	op->result = v->len;
	op->has_crc = true;
	op->value_crc = v->crc;
	if (!n) {
		kvb_op_complete(op, GKV_SC_SUCCESS);
		return;
	}
	status = kvb_op_map(op, n);
	if (status) {
		kvb_op_complete(op, status);
		return;
	}
	v->refs++;
	priv(st, op)->v = v;
	kvb_op_copy_out(st, op, v->data, 0, n, retrieved);
}

static void mem_delete(struct kvb_store *st, struct kvb_op *op)
{
	struct shard *sh = kvb_store_shard(st, op->r);
	struct slot *s = lookup(sh, op);
	struct mem *m = st->priv;
	struct loc_key key;
	struct val *v;

	if (!s) {
		kvb_op_complete(op, GKV_SC_KEY_NOT_FOUND);
		return;
	}
	v = s->v;
	unplace(sh, s);
	sh->n--;
	key = loc_key_make(op->key, op->klen);
	loc_bt_remove(&sh->tree, &key);
	atomic_fetch_sub_explicit(&m->used, cost(v->len), memory_order_relaxed);
	atomic_fetch_sub_explicit(&m->keys, 1, memory_order_relaxed);
	val_put(sh, v);
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

static void mem_exist(struct kvb_store *st, struct kvb_op *op)
{
	struct shard *sh = kvb_store_shard(st, op->r);

	kvb_op_complete(op, lookup(sh, op) ? GKV_SC_SUCCESS : GKV_SC_KEY_NOT_FOUND);
}

/* The tree may change between slices: go on by key, not by position. */
static bool list_slice(struct kvb_work *w)
{
	struct mem_op *p = (struct mem_op *)((char *)w - offsetof(struct mem_op, work));
	struct shard *sh = kvb_store_shard(p->st, p->op->r);
	struct loc_bt_iter it;
	struct loc_ent *e = loc_bt_seek(&sh->tree, &p->at, p->after, &it);

	for (int i = 0; e && i < LIST_SLICE; i++, e = loc_bt_next(&it)) {
		uint8_t key[16];

		loc_key_bytes(e->hi, e->lo, key);
		if (!kvb_list_add(p->op, key, e->klen)) {
			e = NULL;
			break;
		}
		p->at = (struct loc_key){ .hi = e->hi, .lo = e->lo, .klen = e->klen };
		p->after = true;
	}
	if (e)
		return true;
	kvb_op_complete(p->op, GKV_SC_SUCCESS);
	return false;
}

static void mem_list(struct kvb_store *st, struct kvb_op *op)
{
	struct mem_op *p = priv(st, op);

	p->st = st;
	p->op = op;
	p->at = loc_key_make(op->key, op->klen);
	p->after = false;
	p->work.run = list_slice;
	kvb_op_work(op, &p->work);
}

static void mem_flush(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

static void mem_info(struct kvb_store *st, struct kvb_store_info *info)
{
	struct mem *m = st->priv;

	info->capacity = m->capacity;
	info->used = atomic_load_explicit(&m->used, memory_order_relaxed);
	info->keys = atomic_load_explicit(&m->keys, memory_order_relaxed);
	info->key_max = GKV_KEY_MAX;
	info->value_max = m->capacity / 2 < UINT32_MAX ? (uint32_t)(m->capacity / 2) : UINT32_MAX;
	info->block_size = 1;
	info->ready = true;
}

const struct kvb_store_ops kvb_mem_ops = {
	.name = "mem",
	.flags = KVB_STORE_SHARDED | KVB_STORE_VOLATILE,
	.op_size = sizeof(struct mem_op),
	.shard_size = sizeof(struct shard),
	.open = mem_open,
	.close = mem_close,
	.start = mem_start,
	.stop = mem_stop,
	.store = mem_store,
	.retrieve = mem_retrieve,
	.delete = mem_delete,
	.exist = mem_exist,
	.list = mem_list,
	.flush = mem_flush,
	.prefetch = mem_prefetch,
	.info = mem_info,
};
