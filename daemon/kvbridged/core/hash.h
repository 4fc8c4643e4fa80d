/* SPDX-License-Identifier: MIT */
/*
 * Hash of a key: which reactor's shard it belongs to (high bits) and where a table
 * looks for it (low bits).
 */
#ifndef KVB_HASH_H
#define KVB_HASH_H

#include <stdint.h>
#include <string.h>

/*
 * @key: 16 bytes, zero past @klen. Two multiply-fold rounds over both halves; the secret
 * keeps clients from choosing keys that collide.
 */
extern uint64_t kvb_hash_secret[2];

static inline uint64_t kvb_hash_key(const uint8_t key[16], uint8_t klen)
{
	uint64_t a, b;
	unsigned __int128 m;

	memcpy(&a, key, 8);
	memcpy(&b, key + 8, 8);
	m = (unsigned __int128)(a ^ kvb_hash_secret[0]) * (b ^ kvb_hash_secret[1] ^ klen);
	a = (uint64_t)m ^ (uint64_t)(m >> 64);
	m = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

#endif
