/* SPDX-License-Identifier: MIT */
/* Decoding and status; see decode.h for the order of checks. */
#include "decode.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "op.h"

/* The opcodes with their options; one byte each so that a lookup costs one line. */
#define KNOWN	0x80u		/* the opcode exists */
#define KEYED	0x40u		/* carries a key */
#define LEN	0x20u		/* CDW10 is a length */
#define WRITES	0x10u
#define OPTIONS	0x0fu		/* the legal option bits */

static const uint8_t traits[256] = {
	[GKV_OP_FLUSH] = KNOWN,
	[GKV_OP_STORE] = KNOWN | KEYED | LEN | WRITES | GKV_STORE_OPT_MASK,
	[GKV_OP_RETRIEVE] = KNOWN | KEYED | LEN | GKV_RETRIEVE_OPT_MASK,
	[GKV_OP_LIST] = KNOWN | KEYED | LEN,
	[GKV_OP_DELETE] = KNOWN | KEYED | WRITES,
	[GKV_OP_EXIST] = KNOWN | KEYED,
};

static_assert(!(GKV_STORE_OPT_MASK & ~OPTIONS), "option bits collide with traits");

static inline uint64_t bytes_mask(unsigned int n)
{
	return n >= 8 ? ~0ull : (1ull << 8 * n) - 1;
}

/* Keys are byte strings, so the first bytes are the low ones of a little-endian word. */
static inline void copy_key(struct kvb_op *op, const struct gkv_sqe *sqe, unsigned int klen)
{
	uint64_t lo, hi;

	memcpy(&lo, sqe->key_lo, 8);
	memcpy(&hi, sqe->key_hi, 8);
	lo &= htole64(bytes_mask(klen));
	hi &= htole64(klen > 8 ? bytes_mask(klen - 8) : 0);
	memcpy(op->key, &lo, 8);
	memcpy(op->key + 8, &hi, 8);
}

static uint16_t check_ns(const struct kvb_decode_env *env, uint32_t nsid,
			 const struct kvb_ns_open **out)
{
	if (nsid - 1 >= env->nn)	/* 0 wraps around */
		return nsid == GKV_NSID_ALL ? GKV_SC_INVALID_FIELD : GKV_SC_INVALID_NS;
	*out = atomic_load_explicit(&env->open[nsid - 1], memory_order_acquire);
	return *out ? 0 : GKV_SC_INVALID_FIELD;
}

uint16_t kvb_decode(const struct gkv_sqe *sqe, const struct kvb_decode_env *env,
		    struct kvb_op *op)
{
	uint32_t cdw10 = le32toh(sqe->cdw10);
	uint32_t cdw12 = le32toh(sqe->cdw12);
	uint32_t cdw13 = le32toh(sqe->cdw13);
	unsigned int klen = sqe->klen;
	const struct kvb_ns_open *open;
	bool has_crc = false;
	uint16_t status;
	uint8_t t;

	if (sqe->flags & (GKV_SQE_FUSE_MASK | GKV_SQE_RSVD_MASK) ||
	    sqe->flags >> GKV_SQE_PSDT_SHIFT == 3)
		return GKV_SC_INVALID_FIELD;

	status = check_ns(env, le32toh(sqe->nsid), &open);
	if (status)
		return status;
	op->ns = open->ns;

	t = traits[sqe->opcode];
	if (!(t & KNOWN))
		return GKV_SC_INVALID_OPCODE;

	if (t & KEYED) {
		if (klen > GKV_KEY_MAX)
			return GKV_SC_INVALID_FIELD;
		if (klen == 0 && sqe->opcode != GKV_OP_LIST)
			return GKV_SC_KEY_SIZE;
		if (klen > open->key_max)
			return GKV_SC_KEY_SIZE;
	} else if (klen) {
		return GKV_SC_INVALID_FIELD;
	}

	if (sqe->options & ~(t & OPTIONS) || sqe->cdw11_rsvd || (cdw10 && !(t & LEN)))
		return GKV_SC_INVALID_FIELD;

	if (cdw12 | cdw13) {
		if (!env->csum || sqe->opcode != GKV_OP_STORE || cdw13 != GKV_CDW13_CSUM_VALID)
			return GKV_SC_INVALID_FIELD;
		has_crc = true;
	}

	if (sqe->opcode == GKV_OP_STORE) {
		/* With checksums the length comes back in 31 bits (GKV_CQE_DW0_CSUM_VALID). */
		if (cdw10 > open->value_max || (env->csum && cdw10 > INT32_MAX))
			return GKV_SC_VALUE_SIZE;
	} else if (sqe->opcode == GKV_OP_LIST && cdw10 < GKV_LIST_HDR_SIZE) {
		return GKV_SC_INVALID_FIELD;
	}

	if ((t & WRITES) && open->read_only)
		return GKV_SC_WRITE_PROTECTED;

	op->opcode = sqe->opcode;
	op->options = sqe->options;
	op->klen = klen;
	copy_key(op, sqe, klen);
	op->len = cdw10;
	op->crc = cdw12;
	op->has_crc = has_crc;
	return 0;
}

uint16_t kvb_status_finish(uint16_t status)
{
	uint16_t code = GKV_STATUS_CODE(status);

	switch (code) {
	case GKV_SC_SUCCESS:
		return 0;
	case GKV_SC_INVALID_OPCODE:
	case GKV_SC_INVALID_FIELD:
	case GKV_SC_INVALID_NS:
	case GKV_SC_SGL_SEGMENT ... GKV_STATUS(0, 0x16):
	case GKV_SC_WRITE_PROTECTED:
	case GKV_SC_VALUE_SIZE:
	case GKV_SC_KEY_SIZE:
	case GKV_SC_KEY_NOT_FOUND:
	case GKV_SC_KEY_EXISTS:
	case GKV_SC_ACCESS_DENIED:
		return code | GKV_DNR;
	case GKV_SC_INTERNAL:
	case GKV_SC_ABORT_REQUESTED:
	case GKV_SC_ABORTED_SQ_DELETION:
	case GKV_SC_INTERRUPTED:
	case GKV_SC_TRANSIENT:
	case GKV_SC_CAPACITY:
	case GKV_SC_NS_NOT_READY:
	case GKV_STATUS(0, 0x84):	/* Format In Progress */
		return code;
	default:
		return code | (status & GKV_DNR);
	}
}

uint16_t kvb_status_from_errno(int err, bool write)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return GKV_SC_SUCCESS;
	case ENOENT:
		return GKV_SC_KEY_NOT_FOUND;
	case EEXIST:
		return GKV_SC_KEY_EXISTS;
	case ENOSPC:
	case EDQUOT:
		return GKV_SC_CAPACITY;
	case EACCES:
	case EPERM:
		return GKV_SC_ACCESS_DENIED;
	case EROFS:
		return GKV_SC_WRITE_PROTECTED;
	case EIO:
		return write ? GKV_SC_WRITE_FAULT : GKV_SC_UNRECOVERED;
	case ETIMEDOUT:
	case ENOTCONN:
	case EAGAIN:
		return GKV_SC_TRANSIENT;
	case EFBIG:
	case E2BIG:
		return GKV_SC_VALUE_SIZE;
	case EFAULT:
		return GKV_SC_DATA_TRANSFER;
	default:
		return GKV_SC_INTERNAL;
	}
}
