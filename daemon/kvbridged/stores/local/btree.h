/* SPDX-License-Identifier: MIT */
/*
 * A shard's index: a B+tree of keys in the order a List wants. It serves look-ups too,
 * so that a key costs one entry and no more. One thread.
 */
#ifndef KVB_LOCAL_BTREE_H
#define KVB_LOCAL_BTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key as two big-endian words and a length: compared by words, in bytewise order. */
struct loc_key {
	uint64_t hi, lo;
	uint8_t klen;
};

#define LOC_ENT_PENDING	0x1	/* a Store is under way; nothing to see yet */
#define LOC_ENT_MULTI	0x2	/* @extv, not @pos */
#define LOC_ENT_TOMB	0x4	/* only while the index is rebuilt */

/* Where an extent lies: member in the upper 16 bits, unit number below. */
typedef uint64_t loc_pos;

struct loc_ext {
	loc_pos pos;
	uint32_t units;
};

/* The extents of a value that has several. */
struct loc_extv {
	uint32_t n;
	struct loc_ext e[];
};

struct loc_ent {
	uint64_t hi, lo;
	union {
		loc_pos pos;
		struct loc_extv *extv;	/* owned */
	};
	uint32_t vlen;
	uint32_t vcrc;
	uint8_t klen;
	uint8_t flags;
};

struct loc_btree {
	void *root;
	unsigned int height;	/* 0: empty, 1: root is a leaf */
	uint64_t count;
	size_t bytes;
};

#define LOC_BT_HEIGHT 16

/* A position; good until the tree changes. */
struct loc_bt_iter {
	struct {
		void *node;
		unsigned int i;
	} path[LOC_BT_HEIGHT];
	unsigned int height;
};

/* NULL when absent. The entry stays where it is until the next insertion or removal. */
struct loc_ent *loc_bt_find(const struct loc_btree *t, const struct loc_key *k);
/* A zeroed entry for a key that is absent; NULL without memory, the tree unchanged. */
struct loc_ent *loc_bt_insert(struct loc_btree *t, const struct loc_key *k);
/* Remove a key that is present. Allocates nothing. */
void loc_bt_remove(struct loc_btree *t, const struct loc_key *k);
/* The first entry not before @k (@after: after it), or NULL. */
struct loc_ent *loc_bt_seek(const struct loc_btree *t, const struct loc_key *k, bool after,
			    struct loc_bt_iter *it);
struct loc_ent *loc_bt_next(struct loc_bt_iter *it);
/* Free the nodes; what entries own is the caller's. */
void loc_bt_destroy(struct loc_btree *t);

struct loc_key loc_key_make(const uint8_t *key, uint8_t klen);
void loc_key_bytes(uint64_t hi, uint64_t lo, uint8_t out[16]);

static inline int loc_key_order(uint64_t ahi, uint64_t alo, uint8_t alen, uint64_t bhi,
				uint64_t blo, uint8_t blen)
{
	if (ahi != bhi)
		return ahi < bhi ? -1 : 1;
	if (alo != blo)
		return alo < blo ? -1 : 1;
	return (int)alen - (int)blen;
}

#endif
