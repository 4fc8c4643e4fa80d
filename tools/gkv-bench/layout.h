/* SPDX-License-Identifier: MIT */
/*
 * How the KV cache of a model is cut into values, and which key each gets.
 *
 * KV bytes per token = layers * 2 * KV heads * head size * bytes per element;
 * tensor parallelism splits the heads, pipeline parallelism the layers, and
 * layers_per_value the layers of a rank again.
 */
#ifndef BENCH_LAYOUT_H
#define BENCH_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

struct preset {
	const char *name;
	uint32_t layers;
	uint32_t kv_heads;
	uint32_t head_dim;		/* elements */
	uint32_t latent;		/* elements per token and layer of MLA; 0: heads as above */
};

extern const struct preset presets[];
extern const size_t n_presets;

/* Case does not matter. NULL when there is none. */
const struct preset *preset_find(const char *name);

/* KV bytes of one token over all layers, before sharding. */
uint64_t preset_token_bytes(const struct preset *p, uint32_t elem_bytes);

#define LAYOUT_ALL_RANKS	(-1)

struct layout {
	const struct preset *preset;	/* NULL: one value of @value_size per block */
	uint64_t value_size;
	uint32_t block_tokens;
	uint32_t elem_bytes;
	uint32_t tp;
	uint32_t pp;
	uint32_t layers_per_value;	/* 0: all layers of a rank */
	int32_t rank;			/* 0 to tp * pp - 1, stage-major, or LAYOUT_ALL_RANKS */
	const char *salt;		/* goes into every key; may be "" */
};

/* One of the values that a block is stored as. */
struct shard {
	unsigned __int128 key_state;	/* key hash up to the block's id */
	uint64_t size;			/* bytes */
	uint32_t rank;
	uint32_t first_layer;
	uint32_t last_layer;
};

/*
 * Compute the shards of a block in *@shards (freed by the caller). Returns how
 * many, or -1 with one line in @err.
 */
int layout_shards(const struct layout *l, struct shard **shards, char *err, size_t err_len);

/*
 * Key of block @hash_id in @shard: the 128-bit FNV-1a hash, most significant byte
 * first, of the text
 *   gkv-trace-1|salt=S|model=M|elem=E|tokens=T|tp=P|pp=Q|rank=R|layers=A-B|id=N
 * so that no two models, layouts, ranks or layer groups share a key.
 */
void shard_key(const struct shard *shard, uint64_t hash_id, uint8_t key[16]);

#endif /* BENCH_LAYOUT_H */
