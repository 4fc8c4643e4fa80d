/* SPDX-License-Identifier: MIT */
/*
 * The attribute kept with an object: who wrote the value, and its checksum.
 *
 * Others may write the same objects (`rados put` replaces the data and leaves attributes
 * alone), so the attribute says which data it belongs to: length and modification time, which
 * the Store sets itself in the same atomic operation. One that does not match the object is
 * of an older value and is taken as absent.
 */
#ifndef KVB_RADOS_ATTR_H
#define KVB_RADOS_ATTR_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/op.h"
#include "stores/rados/shim.h"

#define RD_ATTR_NAME "gkv"
#define RD_ATTR_MAGIC 0x31766b67u	/* "gkv1" */

/* Little endian, in the object's attribute RD_ATTR_NAME. */
struct rd_attr {
	uint32_t magic;
	uint32_t crc;		/* crc32c of the value */
	uint64_t id_uid;	/* the operation that stored it, struct kvb_opid */
	uint64_t id_seq;
	int64_t mtime_sec;	/* of the object */
	uint32_t mtime_nsec;
	uint32_t len;		/* of the value, bytes */
};

_Static_assert(sizeof(struct rd_attr) == 40 && sizeof(struct rd_attr) <= RSH_ATTR_MAX,
	       "on-disk format");

static inline void rd_attr_make(struct rd_attr *a, const struct kvb_op *op, int64_t sec,
				uint32_t nsec)
{
	a->magic = htole32(RD_ATTR_MAGIC);
	a->crc = htole32(op->crc);
	a->id_uid = htole64(op->id.uid);
	a->id_seq = htole64(op->id.seq);
	a->mtime_sec = (int64_t)htole64((uint64_t)sec);
	a->mtime_nsec = htole32(nsec);
	a->len = htole32(op->len);
}

/* Take the attribute out of what was read; false when there is none for this value. */
static inline bool rd_attr_get(struct rd_attr *a, const struct rsh_read_result *res)
{
	if (res->attr_len != sizeof(*a))
		return false;
	memcpy(a, res->attr, sizeof(*a));
	a->magic = le32toh(a->magic);
	a->crc = le32toh(a->crc);
	a->id_uid = le64toh(a->id_uid);
	a->id_seq = le64toh(a->id_seq);
	a->mtime_sec = (int64_t)le64toh((uint64_t)a->mtime_sec);
	a->mtime_nsec = le32toh(a->mtime_nsec);
	a->len = le32toh(a->len);
	return a->magic == RD_ATTR_MAGIC && a->len == res->size &&
	       a->mtime_sec == res->mtime_sec && a->mtime_nsec == res->mtime_nsec;
}

#endif
