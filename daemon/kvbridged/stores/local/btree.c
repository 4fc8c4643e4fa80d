/* SPDX-License-Identifier: MIT */
/*
 * B+tree without sideways links or borrowing: a node that runs low is merged with a
 * neighbour when both fit in one, and one that is empty goes. That bounds memory by what
 * a fill left behind and keeps removal free of allocation.
 */
#include "btree.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define LEAF_MAX	50u
#define INNER_MAX	64u

struct leaf {
	unsigned int n;
	struct loc_ent e[LEAF_MAX];
};

/* Child i holds the keys from sep[i] on; sep[0] is not looked at. */
struct inner {
	unsigned int n;
	struct loc_key sep[INNER_MAX];
	void *child[INNER_MAX];
};

struct loc_key loc_key_make(const uint8_t *key, uint8_t klen)
{
	uint8_t b[16] = { 0 };
	struct loc_key k = { .klen = klen };

	memcpy(b, key, klen);
	memcpy(&k.hi, b, 8);
	memcpy(&k.lo, b + 8, 8);
	k.hi = be64toh(k.hi);
	k.lo = be64toh(k.lo);
	return k;
}

void loc_key_bytes(uint64_t hi, uint64_t lo, uint8_t out[16])
{
	hi = htobe64(hi);
	lo = htobe64(lo);
	memcpy(out, &hi, 8);
	memcpy(out + 8, &lo, 8);
}

static int ent_cmp(const struct loc_ent *e, const struct loc_key *k)
{
	return loc_key_order(e->hi, e->lo, e->klen, k->hi, k->lo, k->klen);
}

/* First entry not before @k. */
static unsigned int leaf_pos(const struct leaf *l, const struct loc_key *k)
{
	unsigned int lo = 0, hi = l->n;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;

		if (ent_cmp(&l->e[mid], k) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static unsigned int inner_pos(const struct inner *in, const struct loc_key *k)
{
	unsigned int lo = 1, hi = in->n;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;
		const struct loc_key *s = &in->sep[mid];

		if (loc_key_order(s->hi, s->lo, s->klen, k->hi, k->lo, k->klen) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo - 1;
}

/* Fill @it with the way down to the leaf where @k belongs. */
static struct leaf *descend(const struct loc_btree *t, const struct loc_key *k,
			    struct loc_bt_iter *it)
{
	void *node = t->root;
	unsigned int d;

	it->height = t->height;
	for (d = 0; d + 1 < t->height; d++) {
		struct inner *in = node;

		it->path[d].node = in;
		it->path[d].i = inner_pos(in, k);
		node = in->child[it->path[d].i];
	}
	it->path[d].node = node;
	it->path[d].i = leaf_pos(node, k);
	return node;
}

struct loc_ent *loc_bt_find(const struct loc_btree *t, const struct loc_key *k)
{
	struct loc_bt_iter it;
	struct leaf *l;
	unsigned int i;

	if (!t->height)
		return NULL;
	l = descend(t, k, &it);
	i = it.path[t->height - 1].i;
	return i < l->n && !ent_cmp(&l->e[i], k) ? &l->e[i] : NULL;
}

static struct loc_ent *iter_get(struct loc_bt_iter *it)
{
	unsigned int d = it->height - 1;
	struct leaf *l = it->path[d].node;

	if (it->path[d].i < l->n)
		return &l->e[it->path[d].i];
	/* Up to where there is a right neighbour, and down its left edge. */
	while (d) {
		struct inner *in = it->path[--d].node;

		if (it->path[d].i + 1 >= in->n)
			continue;
		it->path[d].i++;
		for (; d + 1 < it->height; d++) {
			in = it->path[d].node;
			it->path[d + 1].node = in->child[it->path[d].i];
			it->path[d + 1].i = 0;
		}
		l = it->path[d].node;
		return &l->e[0];
	}
	return NULL;
}

struct loc_ent *loc_bt_seek(const struct loc_btree *t, const struct loc_key *k, bool after,
			    struct loc_bt_iter *it)
{
	struct loc_ent *e;

	if (!t->height)
		return NULL;
	descend(t, k, it);
	e = iter_get(it);
	if (e && after && !ent_cmp(e, k))
		e = loc_bt_next(it);
	return e;
}

struct loc_ent *loc_bt_next(struct loc_bt_iter *it)
{
	it->path[it->height - 1].i++;
	return iter_get(it);
}

static struct loc_key leaf_first(const struct leaf *l)
{
	return (struct loc_key){ .hi = l->e[0].hi, .lo = l->e[0].lo, .klen = l->e[0].klen };
}

static void inner_insert(struct inner *in, unsigned int at, const struct loc_key *sep, void *child)
{
	memmove(&in->sep[at + 1], &in->sep[at], (in->n - at) * sizeof(in->sep[0]));
	memmove(&in->child[at + 1], &in->child[at], (in->n - at) * sizeof(in->child[0]));
	in->sep[at] = *sep;
	in->child[at] = child;
	in->n++;
}

static void *node_alloc(struct loc_btree *t, size_t size)
{
	void *p = malloc(size);

	if (p) {
		*(unsigned int *)p = 0;
		t->bytes += size;
	}
	return p;
}

static void node_free(struct loc_btree *t, void *p, size_t size)
{
	t->bytes -= size;
	free(p);
}

/* Everything an insertion into a full leaf can need, before anything is changed. */
static bool split_reserve(struct loc_btree *t, const struct loc_bt_iter *it, void **spare,
			  unsigned int *n)
{
	unsigned int d = t->height - 1;

	*n = 0;
	spare[*n] = node_alloc(t, sizeof(struct leaf));
	if (!spare[(*n)++])
		return false;
	while (d-- > 0) {
		if (((struct inner *)it->path[d].node)->n < INNER_MAX)
			return true;
		spare[*n] = node_alloc(t, sizeof(struct inner));
		if (!spare[(*n)++])
			return false;
	}
	if (t->height >= LOC_BT_HEIGHT)
		return false;
	spare[*n] = node_alloc(t, sizeof(struct inner));
	return spare[(*n)++] != NULL;
}

/*
 * Split the leaf of @it. Keys mostly come in no order, but a run in order must leave full
 * leaves behind: an insertion at the very end splits off an empty right half.
 */
static void split(struct loc_btree *t, struct loc_bt_iter *it, void **spare, bool at_end,
		  const struct loc_key *k)
{
	unsigned int d = t->height - 1, keep = at_end ? LEAF_MAX : LEAF_MAX / 2;
	struct leaf *l = it->path[d].node, *nl = *spare++;
	struct loc_key sep;
	void *right = nl;

	nl->n = l->n - keep;
	memcpy(nl->e, l->e + keep, nl->n * sizeof(l->e[0]));
	l->n = keep;
	sep = at_end ? *k : leaf_first(nl);
	while (d-- > 0) {
		struct inner *in = it->path[d].node, *ni;
		unsigned int at = it->path[d].i + 1;

		if (in->n < INNER_MAX) {
			inner_insert(in, at, &sep, right);
			return;
		}
		ni = *spare++;
		ni->n = INNER_MAX / 2;
		in->n = INNER_MAX - ni->n;
		memcpy(ni->sep, in->sep + in->n, ni->n * sizeof(in->sep[0]));
		memcpy(ni->child, in->child + in->n, ni->n * sizeof(in->child[0]));
		if (at <= in->n)
			inner_insert(in, at, &sep, right);
		else
			inner_insert(ni, at - in->n, &sep, right);
		sep = ni->sep[0];
		right = ni;
	}
	{
		struct inner *root = *spare;

		root->n = 2;
		memset(&root->sep[0], 0, sizeof(root->sep[0]));
		root->sep[1] = sep;
		root->child[0] = t->root;
		root->child[1] = right;
		t->root = root;
		t->height++;
	}
}

struct loc_ent *loc_bt_insert(struct loc_btree *t, const struct loc_key *k)
{
	void *spare[LOC_BT_HEIGHT + 1];
	struct loc_bt_iter it;
	struct loc_ent *e;
	struct leaf *l;
	unsigned int i, n;

	if (!t->height) {
		t->root = node_alloc(t, sizeof(struct leaf));
		if (!t->root)
			return NULL;
		t->height = 1;
	}
	l = descend(t, k, &it);
	i = it.path[t->height - 1].i;
	if (l->n == LEAF_MAX) {
		if (!split_reserve(t, &it, spare, &n)) {
			while (n--) {
				if (spare[n])
					node_free(t, spare[n], n ? sizeof(struct inner)
								 : sizeof(struct leaf));
			}
			return NULL;
		}
		split(t, &it, spare, i == LEAF_MAX, k);
		l = descend(t, k, &it);
		i = it.path[t->height - 1].i;
	}
	memmove(&l->e[i + 1], &l->e[i], (l->n - i) * sizeof(l->e[0]));
	l->n++;
	t->count++;
	e = &l->e[i];
	memset(e, 0, sizeof(*e));
	e->hi = k->hi;
	e->lo = k->lo;
	e->klen = k->klen;
	return e;
}

static void inner_drop(struct inner *in, unsigned int at)
{
	in->n--;
	memmove(&in->sep[at], &in->sep[at + 1], (in->n - at) * sizeof(in->sep[0]));
	memmove(&in->child[at], &in->child[at + 1], (in->n - at) * sizeof(in->child[0]));
}

/* Merge child @at of @in with the one after it when both fit; true when done. */
static bool merge_leaves(struct loc_btree *t, struct inner *in, unsigned int at)
{
	struct leaf *a, *b;

	if (at + 1 >= in->n)
		return false;
	a = in->child[at];
	b = in->child[at + 1];
	if (a->n + b->n > LEAF_MAX * 3 / 4)
		return false;
	memcpy(a->e + a->n, b->e, b->n * sizeof(b->e[0]));
	a->n += b->n;
	inner_drop(in, at + 1);
	node_free(t, b, sizeof(*b));
	return true;
}

static bool merge_inners(struct loc_btree *t, struct inner *in, unsigned int at)
{
	struct inner *a, *b;

	if (at + 1 >= in->n)
		return false;
	a = in->child[at];
	b = in->child[at + 1];
	if (a->n + b->n > INNER_MAX * 3 / 4)
		return false;
	memcpy(a->sep + a->n, b->sep, b->n * sizeof(b->sep[0]));
	a->sep[a->n] = in->sep[at + 1];	/* b's own first separator may be stale */
	memcpy(a->child + a->n, b->child, b->n * sizeof(b->child[0]));
	a->n += b->n;
	inner_drop(in, at + 1);
	node_free(t, b, sizeof(*b));
	return true;
}

void loc_bt_remove(struct loc_btree *t, const struct loc_key *k)
{
	struct loc_bt_iter it;
	struct leaf *l = descend(t, k, &it);
	unsigned int d = t->height - 1, i = it.path[d].i;

	assert(i < l->n && !ent_cmp(&l->e[i], k));
	l->n--;
	t->count--;
	memmove(&l->e[i], &l->e[i + 1], (l->n - i) * sizeof(l->e[0]));
	if (l->n >= LEAF_MAX / 4)
		return;
	while (d > 0) {
		struct inner *in = it.path[d - 1].node;
		unsigned int at = it.path[d - 1].i;
		bool leaf = d + 1 == t->height;
		unsigned int n = *(unsigned int *)it.path[d].node;

		if (!n) {
			node_free(t, it.path[d].node, leaf ? sizeof(struct leaf)
							   : sizeof(struct inner));
			inner_drop(in, at);
		} else if (leaf) {
			if (!merge_leaves(t, in, at) && (!at || !merge_leaves(t, in, at - 1)))
				break;
		} else if (n >= INNER_MAX / 4 ||
			   (!merge_inners(t, in, at) && (!at || !merge_inners(t, in, at - 1)))) {
			break;
		}
		d--;
	}
	while (t->height > 1 && ((struct inner *)t->root)->n <= 1) {
		struct inner *root = t->root;

		t->root = root->n ? root->child[0] : NULL;
		t->height = root->n ? t->height - 1 : 0;
		node_free(t, root, sizeof(*root));
		if (!t->height)
			break;
	}
	if (t->height == 1 && !((struct leaf *)t->root)->n) {
		node_free(t, t->root, sizeof(struct leaf));
		t->root = NULL;
		t->height = 0;
	}
}

static void destroy(void *node, unsigned int height)
{
	if (height > 1) {
		struct inner *in = node;

		for (unsigned int i = 0; i < in->n; i++)
			destroy(in->child[i], height - 1);
	}
	free(node);
}

void loc_bt_destroy(struct loc_btree *t)
{
	if (t->height)
		destroy(t->root, t->height);
	memset(t, 0, sizeof(*t));
}
