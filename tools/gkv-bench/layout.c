/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util.h"

const struct preset presets[] = {
	{ "Llama-3-8B", 32, 8, 128, 0 },
	{ "Llama-3-70B", 80, 8, 128, 0 },
	{ "Llama-3.1-405B", 126, 8, 128, 0 },
	{ "Llama-3.2-1B", 16, 8, 64, 0 },
	{ "Llama-3.2-3B", 28, 8, 128, 0 },
	{ "Mistral-7B", 32, 8, 128, 0 },
	{ "Mixtral-8x7B", 32, 8, 128, 0 },
	{ "Qwen2.5-7B", 28, 4, 128, 0 },
	{ "Qwen2.5-14B", 48, 8, 128, 0 },
	{ "Qwen2.5-32B", 64, 8, 128, 0 },
	{ "Qwen2.5-72B", 80, 8, 128, 0 },
	{ "Qwen3-8B", 36, 8, 128, 0 },
	{ "Qwen3-32B", 64, 8, 128, 0 },
	/* Multi-head latent attention: 512 compressed + 64 rotary elements, on every rank. */
	{ "DeepSeek-V3", 61, 1, 0, 576 },
};
const size_t n_presets = ARRAY_SIZE(presets);

const struct preset *preset_find(const char *name)
{
	for (size_t i = 0; i < n_presets; i++)
		if (!strcasecmp(presets[i].name, name))
			return &presets[i];
	return NULL;
}

static uint64_t layer_bytes(const struct preset *p, uint32_t elem_bytes, uint32_t tp)
{
	uint32_t heads;

	if (p->latent)
		return (uint64_t)p->latent * elem_bytes;
	/* With more ranks than heads, each rank keeps a copy of one head. */
	heads = p->kv_heads > tp ? p->kv_heads / tp : 1;
	return 2u * (uint64_t)heads * p->head_dim * elem_bytes;
}

uint64_t preset_token_bytes(const struct preset *p, uint32_t elem_bytes)
{
	return p->layers * layer_bytes(p, elem_bytes, 1);
}

#define FNV128_BASIS (((unsigned __int128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du)
#define FNV128_PRIME (((unsigned __int128)1 << 88) | 0x13b)

static unsigned __int128 fnv128(unsigned __int128 h, const char *text)
{
	for (; *text; text++) {
		h ^= (uint8_t)*text;
		h *= FNV128_PRIME;
	}
	return h;
}

static void shard_start(struct shard *s, const struct layout *l)
{
	char text[256];
	const char *model = l->preset ? l->preset->name : "none";
	unsigned __int128 h = fnv128(FNV128_BASIS, "gkv-trace-1|salt=");

	h = fnv128(h, l->salt ? l->salt : "");
	snprintf(text, sizeof(text),
		 "|model=%s|elem=%" PRIu32 "|tokens=%" PRIu32 "|tp=%" PRIu32 "|pp=%" PRIu32
		 "|rank=%" PRIu32 "|layers=%" PRIu32 "-%" PRIu32 "|id=",
		 model, l->elem_bytes, l->block_tokens, l->tp, l->pp, s->rank, s->first_layer,
		 s->last_layer);
	s->key_state = fnv128(h, text);
}

void shard_key(const struct shard *shard, uint64_t hash_id, uint8_t key[16])
{
	char text[24];
	unsigned __int128 h;

	snprintf(text, sizeof(text), "%" PRIu64, hash_id);
	h = fnv128(shard->key_state, text);
	for (int i = 15; i >= 0; i--) {
		key[i] = (uint8_t)h;
		h >>= 8;
	}
}

static int one_shard(const struct layout *l, struct shard **shards)
{
	struct shard *s = calloc(1, sizeof(*s));

	if (!s)
		return -1;
	s->size = l->value_size;
	shard_start(s, l);
	*shards = s;
	return 1;
}

int layout_shards(const struct layout *l, struct shard **shards, char *err, size_t err_len)
{
	const struct preset *p = l->preset;
	uint32_t ranks, lpv, n = 0;
	struct shard *s;

	if (!p) {
		int rc = one_shard(l, shards);

		if (rc < 0)
			snprintf(err, err_len, "out of memory");
		return rc;
	}
	if (!l->tp || !l->pp || l->pp > p->layers) {
		snprintf(err, err_len, "%s has %" PRIu32 " layers: --pp must be 1 to %" PRIu32,
			 p->name, p->layers, p->layers);
		return -1;
	}
	if (!p->latent && (l->tp <= p->kv_heads ? p->kv_heads % l->tp : l->tp % p->kv_heads)) {
		snprintf(err, err_len,
			 "%s has %" PRIu32
			 " KV heads: --tp must divide them or be a multiple of them",
			 p->name, p->kv_heads);
		return -1;
	}
	ranks = l->tp * l->pp;
	if (l->rank != LAYOUT_ALL_RANKS && (l->rank < 0 || (uint32_t)l->rank >= ranks)) {
		snprintf(err, err_len, "--rank must be 0 to %" PRIu32 " or all", ranks - 1);
		return -1;
	}
	lpv = l->layers_per_value ? l->layers_per_value : p->layers;
	s = calloc((size_t)ranks * p->layers, sizeof(*s));
	if (!s) {
		snprintf(err, err_len, "out of memory");
		return -1;
	}
	for (uint32_t rank = 0; rank < ranks; rank++) {
		/* The first layers % pp stages have one layer more. */
		uint32_t stage = rank / l->tp, extra = p->layers % l->pp;
		uint32_t first = stage * (p->layers / l->pp) + (stage < extra ? stage : extra);
		uint32_t count = p->layers / l->pp + (stage < extra);

		if (l->rank != LAYOUT_ALL_RANKS && (uint32_t)l->rank != rank)
			continue;
		for (uint32_t at = 0; at < count; at += lpv) {
			uint32_t layers = count - at < lpv ? count - at : lpv;

			s[n].rank = rank;
			s[n].first_layer = first + at;
			s[n].last_layer = first + at + layers - 1;
			s[n].size = layer_bytes(p, l->elem_bytes, l->tp) * layers * l->block_tokens;
			shard_start(&s[n], l);
			n++;
		}
	}
	*shards = s;
	return (int)n;
}
