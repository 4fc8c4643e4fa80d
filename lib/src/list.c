/* SPDX-License-Identifier: MIT */
/* Walking the result of a List command (KV Figs 15 and 16). */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "impl.h"

/*
 * *@pos is the offset of the next entry. How many are left is not kept, so the count
 * in the head is checked against the entries walked from the start; results are a
 * few kilobytes and callers walk them once, so *@pos carries the ordinal too.
 */
#define POS_BITS	(sizeof(size_t) * 4)
#define POS_MASK	(((size_t)1 << POS_BITS) - 1)

int gkv_list_next(const void *buf, size_t len, size_t *pos, uint8_t key[16], uint8_t *key_len)
{
	const uint8_t *b = buf;
	size_t off = *pos & POS_MASK, nth = *pos >> POS_BITS;
	uint32_t count;
	uint16_t klen;

	if (len < GKV_LIST_HDR_SIZE)
		return gkvi_err(-EBADMSG, "List result of %zu bytes", len);
	memcpy(&count, b, sizeof(count));
	count = le32toh(count);
	if (!*pos)
		off = GKV_LIST_HDR_SIZE;
	if (nth >= count)
		return 0;
	if (off > len || len - off < sizeof(klen))
		return gkvi_err(-EBADMSG, "List result of %zu bytes ends before key %zu of %u", len,
				nth + 1, count);
	memcpy(&klen, b + off, sizeof(klen));
	klen = le16toh(klen);
	if (!klen || klen > GKV_KEY_MAX)
		return gkvi_err(-EBADMSG, "List result with a key of %u bytes at offset %zu", klen,
				off);
	if (GKV_LIST_ENTRY_SIZE(klen) > len - off)
		return gkvi_err(-EBADMSG, "List result of %zu bytes ends inside key %zu of %u", len,
				nth + 1, count);
	memset(key, 0, GKV_KEY_MAX);
	memcpy(key, b + off + sizeof(klen), klen);
	*key_len = (uint8_t)klen;
	*pos = (nth + 1) << POS_BITS | (off + GKV_LIST_ENTRY_SIZE(klen));
	return 1;
}
