/* SPDX-License-Identifier: MIT */
/*
 * Numbers as people write them. Each parser takes the whole text or fails with
 * -EINVAL (malformed) or -ERANGE (does not fit 64 bits). Any thread.
 */
#ifndef KVB_TEXT_H
#define KVB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int kvb_text_u64(const char *text, uint64_t *out);	/* decimal, or hexadecimal after 0x */
int kvb_text_octal(const char *text, uint64_t *out);
int kvb_text_size(const char *text, uint64_t *out);	/* bytes; K, M, G, T are binary */
int kvb_text_time(const char *text, uint64_t *out);	/* ns; suffixes ns, us, ms, s */
int kvb_text_bool(const char *text, bool *out);		/* on, off, yes, no, true, false, 1, 0 */

/* The shortest exact text that the parsers above take back; returns @buf. */
const char *kvb_size_text(uint64_t bytes, char *buf, size_t len);
const char *kvb_time_text(uint64_t ns, char *buf, size_t len);

#endif
