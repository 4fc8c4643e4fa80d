/* SPDX-License-Identifier: MIT */
/* Commands of the Key-Value command set, and where their values are. */
#ifndef GKV_DEVICE_COMMAND_H
#define GKV_DEVICE_COMMAND_H

#include "queue.h"

/* A data pointer: dwords 6 to 9 of an entry, and PSDT. */
struct gkv_dev_dptr {
	uint64_t lo, hi;
	uint32_t psdt;		/* GKV_PSDT_* */
	uint32_t rsvd;
};

/* @addr: IOVA of @len bytes. The usual way. */
GKV_DEV_FN struct gkv_dev_dptr gkv_dev_sgl(uint64_t addr, uint32_t len)
{
	struct gkv_dev_dptr d = { addr, (uint64_t)len | (uint64_t)GKV_SGL_DATA_BLOCK << 56,
				  GKV_PSDT_SGL, 0 };

	return d;
}

/*
 * Pieces anywhere: @list is the IOVA of @n descriptors, contiguous, which the caller has
 * filled with gkv_dev_sgl_piece() and does not change before the completion. (Base 4.3.2)
 */
GKV_DEV_FN struct gkv_dev_dptr gkv_dev_sgl_list(uint64_t list, uint32_t n)
{
	struct gkv_dev_dptr d = { list, (uint64_t)n * sizeof(struct gkv_sgl_desc) |
				  (uint64_t)GKV_SGL_LAST_SEGMENT << 56, GKV_PSDT_SGL, 0 };

	return d;
}

GKV_DEV_FN void gkv_dev_sgl_piece(struct gkv_sgl_desc *to, uint64_t addr, uint32_t len)
{
	gkvd_put16(to, addr, (uint64_t)len | (uint64_t)GKV_SGL_DATA_BLOCK << 56);
}

/* Entries that a PRP list for @len bytes at @addr takes; 0: none is needed. */
GKV_DEV_FN uint32_t gkv_dev_prp_entries(const struct gkv_dev_queue *q, uint64_t addr,
					uint32_t len)
{
	uint32_t mask = q->page - 1, per_list = q->page / 8;
	uint32_t pages = (uint32_t)(((addr & mask) + len + mask) / q->page);
	uint32_t rest = pages > 2 ? pages - 1 : 0;

	/* The last entry of a full list page leads to the next. */
	return rest <= per_list ? rest : rest + (rest - 2) / (per_list - 1);
}

/*
 * PRPs (Base 4.3.1) for @len bytes at @addr, which is a multiple of 4. @list: memory for
 * gkv_dev_prp_entries() entries, whole pages as the device sees it, at IOVA @list_iova; it is
 * the command's until the completion. Both 0 where no list is needed.
 */
GKV_DEV_FN struct gkv_dev_dptr gkv_dev_prp(const struct gkv_dev_queue *q, uint64_t addr,
					   uint32_t len, uint64_t *list, uint64_t list_iova)
{
	uint64_t page = q->page, end = addr + len, next = (addr & ~(page - 1)) + page;
	uint32_t per_list = q->page / 8, i = 0;
	struct gkv_dev_dptr d = { addr, 0, GKV_PSDT_PRP, 0 };

	if (next >= end)
		return d;
	if (next + page >= end) {
		d.hi = next;
		return d;
	}
	d.hi = list_iova;
	for (; next < end; next += page, i++) {
		if (i % per_list == per_list - 1 && next + page < end) {
			list[i] = list_iova + ((uint64_t)i + 1) * 8;
			i++;
		}
		list[i] = next;
	}
	return d;
}

/*
 * One command, as a lane makes it. With C++ and C alike:
 *
 *	struct gkv_dev_cmd c = gkv_dev_retrieve(nsid, key_lo, key_hi, 16, ptr, len);
 */
struct gkv_dev_cmd {
	uint64_t key_lo, key_hi;	/* bytes 0 to 7 and 8 to 15, first byte lowest */
	struct gkv_dev_dptr data;
	uint32_t nsid;
	uint32_t len;			/* Store: of the value; Retrieve, List: of the buffer */
	uint32_t crc;			/* Store with GKV_DEV_CSUM: crc32c of the value */
	uint8_t opcode;			/* GKV_OP_* */
	uint8_t options;		/* GKV_STORE_*, GKV_RETRIEVE_* */
	uint8_t key_len;		/* bytes, up to 16 */
	uint8_t rsvd;
};

GKV_DEV_FN struct gkv_dev_cmd gkvd_command(uint8_t opcode, uint32_t nsid, uint64_t key_lo,
					   uint64_t key_hi, uint8_t key_len, uint64_t addr,
					   uint32_t len)
{
	struct gkv_dev_cmd c = { key_lo, key_hi, { 0, 0, 0, 0 }, nsid, len, 0, opcode, 0,
				 key_len, 0 };

	if (len)
		c.data = gkv_dev_sgl(addr, len);
	return c;
}

/*
 * @key_lo, @key_hi, @key_len: the key. @addr: IOVA of @len bytes; where libgkv's regions
 * carry the device's own addresses, a pointer. Other data pointers: set .data.
 */
GKV_DEV_FN struct gkv_dev_cmd gkv_dev_store(uint32_t nsid, uint64_t key_lo, uint64_t key_hi,
					    uint8_t key_len, uint64_t addr, uint32_t len)
{
	return gkvd_command(GKV_OP_STORE, nsid, key_lo, key_hi, key_len, addr, len);
}

GKV_DEV_FN struct gkv_dev_cmd gkv_dev_retrieve(uint32_t nsid, uint64_t key_lo, uint64_t key_hi,
					       uint8_t key_len, uint64_t addr, uint32_t len)
{
	return gkvd_command(GKV_OP_RETRIEVE, nsid, key_lo, key_hi, key_len, addr, len);
}

GKV_DEV_FN struct gkv_dev_cmd gkv_dev_delete(uint32_t nsid, uint64_t key_lo, uint64_t key_hi,
					     uint8_t key_len)
{
	return gkvd_command(GKV_OP_DELETE, nsid, key_lo, key_hi, key_len, 0, 0);
}

GKV_DEV_FN struct gkv_dev_cmd gkv_dev_exist(uint32_t nsid, uint64_t key_lo, uint64_t key_hi,
					    uint8_t key_len)
{
	return gkvd_command(GKV_OP_EXIST, nsid, key_lo, key_hi, key_len, 0, 0);
}

/* Keys from this one on, itself included; a @key_len of 0 begins at the first. */
GKV_DEV_FN struct gkv_dev_cmd gkv_dev_list(uint32_t nsid, uint64_t key_lo, uint64_t key_hi,
					   uint8_t key_len, uint64_t addr, uint32_t len)
{
	return gkvd_command(GKV_OP_LIST, nsid, key_lo, key_hi, key_len, addr, len);
}

/* Bytes of a key that count in one of its halves. */
GKV_DEV_FN uint64_t gkvd_key_mask(uint32_t n)
{
	return n >= 8 ? ~(uint64_t)0 : ((uint64_t)1 << (8 * n)) - 1;
}

/* Write @c with identifier @cid to @to, an entry of the SQ, in four stores. */
GKV_DEV_FN void gkvd_put_entry(const struct gkv_dev_queue *q, uint8_t *to,
			       const struct gkv_dev_cmd *c, uint16_t cid)
{
	uint32_t klen = c->key_len;
	uint64_t lo = c->key_lo & gkvd_key_mask(klen);
	uint64_t hi = klen > 8 ? c->key_hi & gkvd_key_mask(klen - 8) : 0;
	uint64_t csum = 0;

	if (c->opcode == GKV_OP_STORE && (q->flags & GKV_DEV_CSUM))
		csum = (uint64_t)c->crc | (uint64_t)GKV_CDW13_CSUM_VALID << 32;
	gkvd_put16(to, (uint64_t)c->opcode | (uint64_t)c->data.psdt << (8 + GKV_SQE_PSDT_SHIFT) |
			       (uint64_t)cid << 16 | (uint64_t)c->nsid << 32, lo);
	gkvd_put16(to + 16, 0, c->data.lo);
	gkvd_put16(to + 32, c->data.hi,
		   (uint64_t)c->len | (uint64_t)klen << 32 | (uint64_t)c->options << 40);
	gkvd_put16(to + 48, csum, hi);
}

#endif
