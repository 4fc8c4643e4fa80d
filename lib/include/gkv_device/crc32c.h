/* SPDX-License-Identifier: MIT */
/*
 * crc32c of values, by the device: for those in its memory, which the processor does not read.
 * The lanes of a group take a piece each; a piece's remainder is moved to its place by a
 * multiplication with a power of x, and all are added.
 */
#ifndef GKV_DEVICE_CRC32C_H
#define GKV_DEVICE_CRC32C_H

#include "wait.h"

/* Lane pieces are whole lines, so that lanes do not share one. */
#define GKVD_CRC_GRAIN	128u

/* What @crc is when @n zero bytes follow. */
GKV_DEV_FN uint32_t gkvd_crc_shift(const struct gkv_dev_queue *q, uint32_t crc, uint32_t n)
{
	const uint32_t *power = gkvd_crc_tables(q) + GKVD_CRC_POWERS;

	/* power[k] = x^(8 * 2^k) */
	for (; n && crc; n >>= 1, power++)
		if (n & 1)
			crc = gkvd_crc_mul(*power, crc);
	return crc;
}

/* The remainder of @n bytes alone, without what goes before and after. */
GKV_DEV_FN uint32_t gkvd_crc_raw(const struct gkv_dev_queue *q, const uint8_t *p, uint32_t n)
{
	const uint32_t *t = gkvd_crc_tables(q);
	uint32_t crc = 0;

	for (; n && ((uintptr_t)p & 3); n--)
		crc = crc >> 8 ^ t[(crc ^ *p++) & 255];
	for (; n >= 4; n -= 4, p += 4) {
		crc ^= *(const uint32_t *)(const void *)p;
		crc = t[768 + (crc & 255)] ^ t[512 + (crc >> 8 & 255)] ^
		      t[256 + (crc >> 16 & 255)] ^ t[crc >> 24];
	}
	for (; n; n--)
		crc = crc >> 8 ^ t[(crc ^ *p++) & 255];
	return crc;
}

/*
 * crc32c of @len bytes at @data, as gkv_crc32c() computes it. To be called by all lanes of
 * @mask together and with the same arguments; all get the result. A lane alone:
 * (uint64_t)1 << its number in the wavefront.
 */
GKV_DEV_FN uint32_t gkv_dev_crc32c(const struct gkv_dev_queue *q, uint64_t mask, const void *data,
				   uint32_t len)
{
	uint32_t lanes = (uint32_t)gkvd_popc64(mask), piece, from, n = 0, crc = 0, sum;
	uint64_t left;

	piece = len / lanes / GKVD_CRC_GRAIN * GKVD_CRC_GRAIN;
	while ((uint64_t)piece * lanes < len)
		piece += GKVD_CRC_GRAIN;
	/* With few bytes the last lanes have none. */
	if ((uint64_t)gkvd_rank(mask) * piece < len) {
		from = gkvd_rank(mask) * piece;
		n = len - from < piece ? len - from : piece;
		crc = gkvd_crc_raw(q, (const uint8_t *)data + from, n);
		crc = gkvd_crc_shift(q, crc, len - from - n);
	}
	sum = gkvd_crc_shift(q, ~(uint32_t)0, len);
	for (left = mask; left; left &= left - 1)
		sum ^= (uint32_t)gkvd_shfl(mask, crc, gkvd_first(left));
	return ~sum;
}

/*
 * Does the value of a Retrieve that ended as *@r, whole at @data in a buffer of @len bytes,
 * have the checksum it was stored with? Called as gkv_dev_crc32c(). 1: it has; 0: it has
 * another; -1: it is not known, since none came with it or it is longer than the buffer.
 */
GKV_DEV_FN int gkv_dev_verify(const struct gkv_dev_queue *q, uint64_t mask, const void *data,
			      uint32_t len, const struct gkv_dev_result *r)
{
	if (!r->has_crc || r->len > len)
		return -1;
	return gkv_dev_crc32c(q, mask, data, r->len) == r->crc;
}

#endif
