/* SPDX-License-Identifier: MIT */
/* CRC-32C by ISA-L, which picks the best instructions of this CPU. */
#include "crc.h"

#include <string.h>

#include <isa-l/crc.h>

#define ISAL_MAX	(1u << 30)	/* its length is an int */
#define COPY_BLOCK	(16u << 10)	/* both copies stay in the first-level cache */

uint32_t kvb_crc32c(uint32_t crc, const void *p, size_t n)
{
	unsigned char *at = (unsigned char *)p;	/* not written: ISA-L lacks the const */

	crc = ~crc;
	while (n) {
		size_t take = n < ISAL_MAX ? n : ISAL_MAX;

		crc = crc32_iscsi(at, (int)take, crc);
		at += take;
		n -= take;
	}
	return ~crc;
}

uint32_t kvb_copy_crc32c(void *restrict dst, const void *restrict src, size_t n, uint32_t crc)
{
	const char *s = src;
	char *d = dst;

	while (n) {
		size_t take = n < COPY_BLOCK ? n : COPY_BLOCK;

		memcpy(d, s, take);
		crc = kvb_crc32c(crc, d, take);
		d += take;
		s += take;
		n -= take;
	}
	return crc;
}
