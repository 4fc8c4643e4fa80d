/* SPDX-License-Identifier: MIT */
/* Decoding of commands: what is refused, in which order, and what an operation is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "core/decode.h"
#include "core/op.h"

#define NN 5

/* NSID 1: all allowed. 2: read only. 3: keys of at most 8 bytes. 4, 5: not open. */
static const struct kvb_ns_open ns1 = { (struct kvb_ns *)0x1000, 1 << 20, 16, false };
static const struct kvb_ns_open ns2 = { (struct kvb_ns *)0x2000, 1 << 20, 16, true };
static const struct kvb_ns_open ns3 = { (struct kvb_ns *)0x3000, UINT32_MAX, 8, false };
static const struct kvb_ns_open *_Atomic opened[NN] = { &ns1, &ns2, &ns3 };

static const struct kvb_decode_env plain = { NN, false, opened };
static const struct kvb_decode_env csum = { NN, true, opened };

static const uint8_t opcodes[] = {
	GKV_OP_FLUSH, GKV_OP_STORE, GKV_OP_RETRIEVE, GKV_OP_LIST, GKV_OP_DELETE, GKV_OP_EXIST,
};
#define NOPS (sizeof(opcodes))

static struct gkv_sqe valid(uint8_t opcode)
{
	struct gkv_sqe s;

	memset(&s, 0, sizeof(s));
	s.opcode = opcode;
	s.cid = 7;
	s.nsid = 1;
	if (opcode == GKV_OP_FLUSH)
		return s;
	s.klen = 5;
	memcpy(s.key_lo, "hello", 5);
	if (opcode == GKV_OP_STORE || opcode == GKV_OP_RETRIEVE || opcode == GKV_OP_LIST)
		s.cdw10 = 4096;
	return s;
}

static uint16_t decode(const struct gkv_sqe *s, const struct kvb_decode_env *env)
{
	struct kvb_op op;

	memset(&op, 0xa5, sizeof(op));
	return kvb_decode(s, env, &op);
}

/* The vectors of the protocol reference. */
static const uint8_t store_vec[64] = {
	0x01, 0x00, 0x34, 0x12, 0x01, 0x00, 0x00, 0x00, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x10, 0x02, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x38, 0x39, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66,
};
static const uint8_t retrieve_vec[64] = {
	0x02, 0x00, 0x35, 0x12, 0x01, 0x00, 0x00, 0x00, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
};
static const uint8_t delete_vec[64] = {
	0x10, 0x00, 0x36, 0x12, 0x01, 0x00, 0x00, 0x00, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x2d, 0x77, 0x6f,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x72, 0x6c, 0x64, 0x21,
};

static void test_vectors(void **state)
{
	struct gkv_sqe s;
	struct kvb_op op;
	static const uint8_t hello[16] = "hello", world[16] = "hello-world!";

	(void)state;
	memset(&op, 0xa5, sizeof(op));
	memcpy(&s, store_vec, 64);
	assert_int_equal(kvb_decode(&s, &plain, &op), 0);
	assert_int_equal(op.opcode, GKV_OP_STORE);
	assert_int_equal(op.options, GKV_STORE_MUST_NOT_EXIST);
	assert_int_equal(op.klen, 16);
	assert_memory_equal(op.key, "0123456789abcdef", 16);
	assert_int_equal(op.len, 5);
	assert_false(op.has_crc);
	assert_ptr_equal(op.ns, ns1.ns);

	memcpy(&s, retrieve_vec, 64);
	assert_int_equal(kvb_decode(&s, &plain, &op), 0);
	assert_int_equal(op.opcode, GKV_OP_RETRIEVE);
	assert_int_equal(op.options, 0);
	assert_int_equal(op.klen, 5);
	assert_memory_equal(op.key, hello, 16);
	assert_int_equal(op.len, 4096);

	memcpy(&s, delete_vec, 64);
	assert_int_equal(kvb_decode(&s, &plain, &op), 0);
	assert_int_equal(op.opcode, GKV_OP_DELETE);
	assert_int_equal(op.klen, 12);
	assert_memory_equal(op.key, world, 16);
}

static void test_valid(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		struct gkv_sqe s = valid(opcodes[i]);

		assert_int_equal(decode(&s, &plain), 0);
		assert_int_equal(decode(&s, &csum), 0);
	}
}

/* The stale bytes behind a short key must not reach a store. */
static void test_key_padding(void **state)
{
	(void)state;
	for (unsigned int klen = 0; klen <= 16; klen++) {
		struct gkv_sqe s = valid(GKV_OP_LIST);
		uint8_t want[16] = { 0 };
		struct kvb_op op;

		for (unsigned int i = 0; i < 8; i++) {
			s.key_lo[i] = 0xc0 + i;
			s.key_hi[i] = 0xc8 + i;
		}
		for (unsigned int i = 0; i < klen; i++)
			want[i] = 0xc0 + i;
		s.klen = klen;
		memset(&op, 0xa5, sizeof(op));
		assert_int_equal(kvb_decode(&s, &plain, &op), 0);
		assert_int_equal(op.klen, klen);
		assert_memory_equal(op.key, want, 16);
	}
}

static void test_byte1(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		for (unsigned int flags = 0; flags < 256; flags++) {
			struct gkv_sqe s = valid(opcodes[i]);
			bool ok = flags == 0x00 || flags == 0x40 || flags == 0x80;

			s.flags = flags;
			assert_int_equal(decode(&s, &plain), ok ? 0 : GKV_SC_INVALID_FIELD);
		}
	}
}

static void test_nsid(void **state)
{
	static const struct {
		uint32_t nsid;
		uint16_t status;
	} cases[] = {
		{ 0, GKV_SC_INVALID_NS },
		{ NN + 1, GKV_SC_INVALID_NS },
		{ 0x80000000u, GKV_SC_INVALID_NS },
		{ 0xfffffffeu, GKV_SC_INVALID_NS },
		{ GKV_NSID_ALL, GKV_SC_INVALID_FIELD },
		{ 4, GKV_SC_INVALID_FIELD },
		{ NN, GKV_SC_INVALID_FIELD },
		{ 1, 0 },
		{ 3, 0 },
	};
	static const struct kvb_decode_env none = { 0, false, NULL };

	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		struct gkv_sqe s = valid(opcodes[i]);

		for (size_t j = 0; j < sizeof(cases) / sizeof(cases[0]); j++) {
			s.nsid = cases[j].nsid;
			assert_int_equal(decode(&s, &plain), cases[j].status);
		}
		s.nsid = 1;
		assert_int_equal(decode(&s, &none), GKV_SC_INVALID_NS);
	}
}

static void test_opcodes(void **state)
{
	(void)state;
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		struct gkv_sqe s = valid(opcode);

		if (!memchr(opcodes, (int)opcode, NOPS))
			assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_OPCODE);
	}
}

static void test_klen(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		for (unsigned int klen = 0; klen < 256; klen++) {
			struct gkv_sqe s = valid(opcodes[i]);
			uint16_t want = 0;

			s.klen = klen;
			s.nsid = 3;
			if (klen > 16)
				want = GKV_SC_INVALID_FIELD;
			else if (opcodes[i] == GKV_OP_FLUSH)
				want = klen ? GKV_SC_INVALID_FIELD : 0;
			else if (klen == 0)
				want = opcodes[i] == GKV_OP_LIST ? 0 : GKV_SC_KEY_SIZE;
			else if (klen > 8)
				want = GKV_SC_KEY_SIZE;
			assert_int_equal(decode(&s, &plain), want);
		}
	}
}

static void test_options(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		uint8_t legal = opcodes[i] == GKV_OP_STORE ? 0x07 :
				opcodes[i] == GKV_OP_RETRIEVE ? 0x01 : 0;

		for (unsigned int o = 0; o < 256; o++) {
			struct gkv_sqe s = valid(opcodes[i]);
			struct kvb_op op;
			uint16_t status;

			s.options = o;
			status = kvb_decode(&s, &plain, &op);
			assert_int_equal(status, o & ~legal ? GKV_SC_INVALID_FIELD : 0);
			if (!status)
				assert_int_equal(op.options, o);
		}
	}
}

static void test_reserved(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		for (unsigned int bit = 0; bit < 32; bit++) {
			struct gkv_sqe s;

			if (bit < 16) {
				s = valid(opcodes[i]);
				s.cdw11_rsvd = 1u << bit;
				assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_FIELD);
			}
			if (opcodes[i] == GKV_OP_FLUSH || opcodes[i] == GKV_OP_DELETE ||
			    opcodes[i] == GKV_OP_EXIST) {
				s = valid(opcodes[i]);
				s.cdw10 = 1u << bit;
				assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_FIELD);
			}
		}
	}
}

/* MPTR is unused, data pointers are the walker's. */
static void test_ignored(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		struct gkv_sqe s = valid(opcodes[i]);

		s.mptr = ~0ull;
		s.dptr.prp.prp1 = ~0ull;
		s.dptr.prp.prp2 = ~0ull;
		s.cid = 0xffff;
		assert_int_equal(decode(&s, &plain), 0);
	}
}

static void test_checksum(void **state)
{
	struct gkv_sqe s;
	struct kvb_op op;

	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		bool store = opcodes[i] == GKV_OP_STORE;

		for (unsigned int bit = 0; bit < 32; bit++) {
			s = valid(opcodes[i]);
			s.cdw12 = 1u << bit;
			assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_FIELD);
			assert_int_equal(decode(&s, &csum), GKV_SC_INVALID_FIELD);
			s = valid(opcodes[i]);
			s.cdw13 = 1u << bit;
			assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_FIELD);
			assert_int_equal(decode(&s, &csum),
					 store && bit == 0 ? 0 : GKV_SC_INVALID_FIELD);
			s.cdw12 = 0x12345678;
			s.cdw13 |= 1;
			assert_int_equal(decode(&s, &csum),
					 store && bit == 0 ? 0 : GKV_SC_INVALID_FIELD);
		}
	}
	s = valid(GKV_OP_STORE);
	s.cdw12 = 0x12345678;
	s.cdw13 = GKV_CDW13_CSUM_VALID;
	memset(&op, 0xa5, sizeof(op));
	assert_int_equal(kvb_decode(&s, &csum, &op), 0);
	assert_true(op.has_crc);
	assert_int_equal(op.crc, 0x12345678);
	s.cdw12 = 0;
	s.cdw13 = 0;
	assert_int_equal(kvb_decode(&s, &csum, &op), 0);
	assert_false(op.has_crc);
	/* A checksum of 0 is a checksum. */
	s.cdw13 = GKV_CDW13_CSUM_VALID;
	assert_int_equal(kvb_decode(&s, &csum, &op), 0);
	assert_true(op.has_crc);
	assert_int_equal(op.crc, 0);
}

static void test_sizes(void **state)
{
	struct gkv_sqe s = valid(GKV_OP_STORE);
	struct kvb_op op;

	(void)state;
	s.cdw10 = 0;
	assert_int_equal(kvb_decode(&s, &plain, &op), 0);
	assert_int_equal(op.len, 0);
	s.cdw10 = 1 << 20;
	assert_int_equal(kvb_decode(&s, &plain, &op), 0);
	assert_int_equal(op.len, 1 << 20);
	s.cdw10++;
	assert_int_equal(decode(&s, &plain), GKV_SC_VALUE_SIZE);
	s.cdw10 = UINT32_MAX;
	assert_int_equal(decode(&s, &plain), GKV_SC_VALUE_SIZE);

	/* Bit 31 of the length is the checksum's where that was negotiated. */
	s.nsid = 3;
	assert_int_equal(decode(&s, &plain), 0);
	assert_int_equal(decode(&s, &csum), GKV_SC_VALUE_SIZE);
	s.cdw10 = 0x7fffffff;
	assert_int_equal(decode(&s, &csum), 0);

	/* Any buffer will do for a Retrieve, for a List it must hold the count. */
	s = valid(GKV_OP_RETRIEVE);
	s.cdw10 = 0;
	assert_int_equal(decode(&s, &plain), 0);
	s.cdw10 = UINT32_MAX;
	assert_int_equal(kvb_decode(&s, &plain, &op), 0);
	assert_int_equal(op.len, UINT32_MAX);
	s = valid(GKV_OP_LIST);
	for (s.cdw10 = 0; s.cdw10 < 4; s.cdw10++)
		assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_FIELD);
	assert_int_equal(decode(&s, &plain), 0);
}

static void test_read_only(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		struct gkv_sqe s = valid(opcodes[i]);
		bool writes = opcodes[i] == GKV_OP_STORE || opcodes[i] == GKV_OP_DELETE;

		s.nsid = 2;
		assert_int_equal(decode(&s, &plain), writes ? GKV_SC_WRITE_PROTECTED : 0);
	}
}

/* The documented order: each violation wins over all that come after it. */
struct violation {
	const char *name;
	void (*commit)(struct gkv_sqe *s);
	uint16_t status;
	unsigned int ops;	/* 1 << opcode; where it is one */
};

static void v_fuse(struct gkv_sqe *s) { s->flags |= 1; }
static void v_psdt(struct gkv_sqe *s) { s->flags |= 0xc0; }
static void v_broadcast(struct gkv_sqe *s) { s->nsid = GKV_NSID_ALL; }
static void v_nsid(struct gkv_sqe *s) { s->nsid = NN + 1; }
static void v_inactive(struct gkv_sqe *s) { s->nsid = 4; }
static void v_opcode(struct gkv_sqe *s) { s->opcode = 0x7f; }
static void v_klen17(struct gkv_sqe *s) { s->klen = 17; }
static void v_klen0(struct gkv_sqe *s) { s->klen = 0; }
static void v_options(struct gkv_sqe *s) { s->options = 0x80; }
static void v_cdw11(struct gkv_sqe *s) { s->cdw11_rsvd = 1; }
static void v_cdw12(struct gkv_sqe *s) { s->cdw12 = 1; }
static void v_size(struct gkv_sqe *s) { s->cdw10 = 0xfffffff0; }
static void v_hbs(struct gkv_sqe *s) { s->cdw10 = 3; }
static void v_read_only(struct gkv_sqe *s) { s->nsid = 2; }

#define BIT(op) (1u << (op))
#define KEYED (BIT(GKV_OP_STORE) | BIT(GKV_OP_RETRIEVE) | BIT(GKV_OP_LIST) | \
	       BIT(GKV_OP_DELETE) | BIT(GKV_OP_EXIST))
#define ALL (KEYED | BIT(GKV_OP_FLUSH))

static const struct violation order[] = {
	{ "fuse", v_fuse, GKV_SC_INVALID_FIELD, ALL },
	{ "psdt", v_psdt, GKV_SC_INVALID_FIELD, ALL },
	{ "broadcast", v_broadcast, GKV_SC_INVALID_FIELD, ALL },
	{ "nsid", v_nsid, GKV_SC_INVALID_NS, ALL },
	{ "inactive", v_inactive, GKV_SC_INVALID_FIELD, ALL },
	{ "opcode", v_opcode, GKV_SC_INVALID_OPCODE, ALL },
	{ "klen 17", v_klen17, GKV_SC_INVALID_FIELD, KEYED },
	{ "klen 0", v_klen0, GKV_SC_KEY_SIZE, KEYED & ~BIT(GKV_OP_LIST) },
	{ "options", v_options, GKV_SC_INVALID_FIELD, ALL },
	{ "cdw11", v_cdw11, GKV_SC_INVALID_FIELD, ALL },
	{ "cdw12", v_cdw12, GKV_SC_INVALID_FIELD, ALL },
	{ "size", v_size, GKV_SC_VALUE_SIZE, BIT(GKV_OP_STORE) },
	{ "hbs", v_hbs, GKV_SC_INVALID_FIELD, BIT(GKV_OP_LIST) },
	{ "read only", v_read_only, GKV_SC_WRITE_PROTECTED,
	  BIT(GKV_OP_STORE) | BIT(GKV_OP_DELETE) },
};
#define NVIOL (sizeof(order) / sizeof(order[0]))

static void test_order(void **state)
{
	(void)state;
	for (size_t i = 0; i < NOPS; i++) {
		for (size_t a = 0; a < NVIOL; a++) {
			struct gkv_sqe s = valid(opcodes[i]);

			if (!(order[a].ops & BIT(opcodes[i])))
				continue;
			order[a].commit(&s);
			assert_int_equal(decode(&s, &plain), order[a].status);
			for (size_t b = a + 1; b < NVIOL; b++) {
				if (!(order[b].ops & BIT(opcodes[i])))
					continue;
				/* The later one first, as both may set the same field. */
				s = valid(opcodes[i]);
				order[b].commit(&s);
				order[a].commit(&s);
				if (decode(&s, &plain) != order[a].status)
					fail_msg("opcode %02x: %s loses to %s", opcodes[i],
						 order[a].name, order[b].name);
			}
		}
	}
}

/* Pairs the table above cannot tell apart, as both answer with the same status or field. */
static void test_order_fields(void **state)
{
	struct gkv_sqe s = valid(GKV_OP_STORE);

	(void)state;
	s.nsid = 3;
	s.klen = 9;
	s.options = 0x80;
	assert_int_equal(decode(&s, &plain), GKV_SC_KEY_SIZE);
	s = valid(GKV_OP_DELETE);
	s.nsid = 2;
	s.cdw10 = 1;
	assert_int_equal(decode(&s, &plain), GKV_SC_INVALID_FIELD);
	s = valid(GKV_OP_STORE);
	s.nsid = 2;
	s.cdw10 = 0xffffffff;
	assert_int_equal(decode(&s, &plain), GKV_SC_VALUE_SIZE);
}

static void test_finish(void **state)
{
	static const uint16_t set[] = {
		0x001, 0x002, 0x00b, 0x00d, 0x00e, 0x00f, 0x010, 0x011, 0x012, 0x013, 0x014, 0x015,
		0x016, 0x020, 0x085, 0x086, 0x087, 0x089, 0x286,
	};
	static const uint16_t clear[] = {
		0x000, 0x006, 0x007, 0x008, 0x021, 0x022, 0x081, 0x082, 0x084,
	};
	static const uint16_t keep[] = { 0x004, 0x088, 0x280, 0x281, 0x101, 0x300 };

	(void)state;
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
		assert_int_equal(kvb_status_finish(set[i]), set[i] | GKV_DNR);
		assert_int_equal(kvb_status_finish(set[i] | GKV_DNR), set[i] | GKV_DNR);
	}
	for (size_t i = 0; i < sizeof(clear) / sizeof(clear[0]); i++) {
		assert_int_equal(kvb_status_finish(clear[i]), clear[i]);
		assert_int_equal(kvb_status_finish(clear[i] | GKV_DNR), clear[i]);
	}
	for (size_t i = 0; i < sizeof(keep) / sizeof(keep[0]); i++) {
		assert_int_equal(kvb_status_finish(keep[i]), keep[i]);
		assert_int_equal(kvb_status_finish(keep[i] | GKV_DNR), keep[i] | GKV_DNR);
	}
	/* The phase bit's neighbours M and CRD are nobody's here. */
	assert_int_equal(kvb_status_finish(0x3800 | 0x087), 0x087 | GKV_DNR);
}

static void test_errno(void **state)
{
	static const struct {
		int err;
		uint16_t read, write;
	} cases[] = {
		{ 0, 0x000, 0x000 },
		{ ENOENT, 0x087, 0x087 },
		{ EEXIST, 0x089, 0x089 },
		{ ENOSPC, 0x081, 0x081 },
		{ EDQUOT, 0x081, 0x081 },
		{ EACCES, 0x286, 0x286 },
		{ EPERM, 0x286, 0x286 },
		{ EROFS, 0x020, 0x020 },
		{ EIO, 0x088, 0x280 },
		{ ETIMEDOUT, 0x022, 0x022 },
		{ ENOTCONN, 0x022, 0x022 },
		{ EAGAIN, 0x022, 0x022 },
		{ EFBIG, 0x085, 0x085 },
		{ E2BIG, 0x085, 0x085 },
		{ EFAULT, 0x004, 0x004 },
		{ EINVAL, 0x006, 0x006 },
		{ ENOMEM, 0x006, 0x006 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(kvb_status_from_errno(cases[i].err, false), cases[i].read);
		assert_int_equal(kvb_status_from_errno(-cases[i].err, false), cases[i].read);
		assert_int_equal(kvb_status_from_errno(cases[i].err, true), cases[i].write);
		assert_int_equal(kvb_status_from_errno(-cases[i].err, true), cases[i].write);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_valid),
		cmocka_unit_test(test_key_padding),
		cmocka_unit_test(test_byte1),
		cmocka_unit_test(test_nsid),
		cmocka_unit_test(test_opcodes),
		cmocka_unit_test(test_klen),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_reserved),
		cmocka_unit_test(test_ignored),
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_order_fields),
		cmocka_unit_test(test_finish),
		cmocka_unit_test(test_errno),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
