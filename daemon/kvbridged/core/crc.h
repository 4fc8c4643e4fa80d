/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C, as iSCSI and NVMe use it: of no bytes it is 0, of "123456789" e3069283h.
 */
#ifndef KVB_CRC_H
#define KVB_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what @crc covers followed by the @n bytes at @p. Any thread. */
uint32_t kvb_crc32c(uint32_t crc, const void *p, size_t n);

/*
 * Copy @n bytes and return the checksum, going on from @crc, of what arrived at @dst.
 * @src is read once, so that a client that rewrites it cannot make them differ.
 */
uint32_t kvb_copy_crc32c(void *restrict dst, const void *restrict src, size_t n, uint32_t crc);

#endif
