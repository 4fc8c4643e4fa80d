/* SPDX-License-Identifier: MIT */
/*
 * Wire format: the structs of uapi/gkv lay commands, completions and results out
 * as other NVMe Key-Value implementations do. The byte vectors were produced by
 * two independent implementations.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "gkv/control.h"
#include "gkv/nvme_kv.h"
#include "gkv/queue.h"

/* What every vector shares; bytes of the key past 8 go to key_hi, unused ones are zero. */
static struct gkv_sqe make_sqe(uint8_t opcode, uint16_t cid, const char *key, uint64_t prp1)
{
	struct gkv_sqe sqe;
	size_t len = strlen(key);

	memset(&sqe, 0, sizeof(sqe));
	sqe.opcode = opcode;
	sqe.cid = htole16(cid);
	sqe.nsid = htole32(1);
	sqe.klen = (uint8_t)len;
	memcpy(sqe.key_lo, key, len < 8 ? len : 8);
	if (len > 8)
		memcpy(sqe.key_hi, key + 8, len - 8);
	sqe.dptr.prp.prp1 = htole64(prp1);
	return sqe;
}

static void store_matches_vector(void **state)
{
	static const uint8_t want[64] = {
		0x01, 0x00, 0x34, 0x12, 0x01, 0x00, 0x00, 0x00, 0x30, 0x31, 0x32, 0x33, 0x34,
		0x35, 0x36, 0x37, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x05, 0x00, 0x00, 0x00, 0x10, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x38, 0x39, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66,
	};
	struct gkv_sqe sqe = make_sqe(GKV_OP_STORE, 0x1234, "0123456789abcdef", 0x10000);

	(void)state;
	sqe.cdw10 = htole32(5);
	sqe.options = GKV_STORE_MUST_NOT_EXIST;
	assert_memory_equal(&sqe, want, sizeof(want));
}

static void retrieve_matches_vector(void **state)
{
	static const uint8_t want[64] = {
		0x02, 0x00, 0x35, 0x12, 0x01, 0x00, 0x00, 0x00, 0x68, 0x65, 0x6c, 0x6c, 0x6f,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x10, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
	};
	struct gkv_sqe sqe = make_sqe(GKV_OP_RETRIEVE, 0x1235, "hello", 0x20000);

	(void)state;
	sqe.cdw10 = htole32(4096);
	assert_memory_equal(&sqe, want, sizeof(want));
}

static void delete_matches_vector(void **state)
{
	static const uint8_t want[64] = {
		0x10, 0x00, 0x36, 0x12, 0x01, 0x00, 0x00, 0x00, 0x68, 0x65, 0x6c, 0x6c, 0x6f,
		0x2d, 0x77, 0x6f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x72, 0x6c, 0x64, 0x21, 0x00, 0x00, 0x00, 0x00,
	};
	struct gkv_sqe sqe = make_sqe(GKV_OP_DELETE, 0x1236, "hello-world!", 0);

	(void)state;
	assert_memory_equal(&sqe, want, sizeof(want));
}

static struct gkv_cqe make_cqe(uint32_t dw0, uint16_t status)
{
	struct gkv_cqe cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.dw0 = htole32(dw0);
	cqe.sqhd = htole16(3);
	cqe.sqid = htole16(1);
	cqe.cid = htole16(0x1235);
	cqe.status = htole16((uint16_t)(status << 1 | 1));
	return cqe;
}

static void success_cqe_matches_vector(void **state)
{
	static const uint8_t want[16] = { 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
					  0x03, 0x00, 0x01, 0x00, 0x35, 0x12, 0x01, 0x00 };
	struct gkv_cqe cqe = make_cqe(5, GKV_SC_SUCCESS);

	(void)state;
	assert_memory_equal(&cqe, want, sizeof(want));
}

static void error_cqe_matches_vector(void **state)
{
	static const uint8_t want[16] = { 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
					  0x03, 0x00, 0x01, 0x00, 0x35, 0x12, 0x0f, 0x81 };
	struct gkv_cqe cqe = make_cqe(0, GKV_SC_KEY_NOT_FOUND | GKV_DNR);

	(void)state;
	assert_memory_equal(&cqe, want, sizeof(want));
}

static void list_matches_vector(void **state)
{
	static const char *const keys[] = { "a", "bcd", "hello", "0123456789abcdef" };
	static const uint8_t want[44] = {
		0x04, 0x00, 0x00, 0x00, 0x01, 0x00, 0x61, 0x00, 0x03, 0x00, 0x62,
		0x63, 0x64, 0x00, 0x00, 0x00, 0x05, 0x00, 0x68, 0x65, 0x6c, 0x6c,
		0x6f, 0x00, 0x10, 0x00, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36,
		0x37, 0x38, 0x39, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x00, 0x00,
	};
	uint8_t list[sizeof(want) + 16];
	size_t used = GKV_LIST_HDR_SIZE;
	uint32_t count = htole32(4);
	size_t i;

	(void)state;
	memset(list, 0, sizeof(list));
	memcpy(list, &count, sizeof(count));
	for (i = 0; i < 4; i++) {
		size_t len = strlen(keys[i]);
		uint16_t klen = htole16((uint16_t)len);

		memcpy(list + used + offsetof(struct gkv_list_entry, klen), &klen, sizeof(klen));
		memcpy(list + used + offsetof(struct gkv_list_entry, key), keys[i], len);
		used += GKV_LIST_ENTRY_SIZE(len);
	}
	assert_int_equal(used, sizeof(want));
	assert_memory_equal(list, want, sizeof(want));
}

static void list_entry_sizes(void **state)
{
	static const uint8_t want[17] = { 4,  4,  4,  8,  8,  8,  8,  12, 12,
					  12, 12, 16, 16, 16, 16, 20, 20 };
	unsigned int klen;

	(void)state;
	for (klen = 1; klen <= GKV_KEY_MAX; klen++)
		assert_int_equal(GKV_LIST_ENTRY_SIZE(klen), want[klen]);
}

static void sgl_descriptor_lies_in_dptr(void **state)
{
	struct gkv_sqe sqe;
	const uint8_t *bytes = (const uint8_t *)&sqe;

	(void)state;
	memset(&sqe, 0, sizeof(sqe));
	sqe.flags = GKV_PSDT_SGL << GKV_SQE_PSDT_SHIFT;
	sqe.dptr.sgl.addr = htole64(0x1122334455667788);
	sqe.dptr.sgl.len = htole32(0xaabbccdd);
	sqe.dptr.sgl.type = GKV_SGL_LAST_SEGMENT;
	assert_int_equal(bytes[1], 0x40);
	assert_int_equal(bytes[24], 0x88);
	assert_int_equal(bytes[31], 0x11);
	assert_int_equal(bytes[32], 0xdd);
	assert_int_equal(bytes[35], 0xaa);
	assert_int_equal(bytes[39], 0x30);
}

static void status_macros(void **state)
{
	(void)state;
	/* DW3 >> 17: SC in 7:0, SCT in 10:8, DNR in 14. */
	assert_int_equal(GKV_STATUS(2, 0x86), 0x286);
	assert_int_equal(GKV_SC_ACCESS_DENIED, 0x286);
	assert_int_equal(GKV_SC_INVALID_LOG_PAGE, 0x109);
	assert_int_equal(GKV_SC_KEY_NOT_FOUND | GKV_DNR, 0x4087);
	assert_int_equal(GKV_STATUS_CODE(GKV_SC_ACCESS_DENIED | GKV_DNR), GKV_SC_ACCESS_DENIED);
	/* CRD and M are no part of the code. */
	assert_int_equal(GKV_STATUS_CODE(0x3822 | GKV_DNR), GKV_SC_TRANSIENT);
}

/* The codes that clients test for by number. */
static void status_numbers(void **state)
{
	static const struct {
		uint16_t status;
		uint16_t number;
	} codes[] = {
		{ GKV_SC_SUCCESS, 0x000 },	 { GKV_SC_INVALID_OPCODE, 0x001 },
		{ GKV_SC_INVALID_FIELD, 0x002 }, { GKV_SC_CID_CONFLICT, 0x003 },
		{ GKV_SC_DATA_TRANSFER, 0x004 }, { GKV_SC_INTERNAL, 0x006 },
		{ GKV_SC_INVALID_NS, 0x00b },	 { GKV_SC_SGL_SEGMENT, 0x00d },
		{ GKV_SC_SGL_COUNT, 0x00e },	 { GKV_SC_SGL_LENGTH, 0x00f },
		{ GKV_SC_SGL_TYPE, 0x011 },	 { GKV_SC_PRP_OFFSET, 0x013 },
		{ GKV_SC_WRITE_PROTECTED, 0x020 }, { GKV_SC_TRANSIENT, 0x022 },
		{ GKV_SC_CAPACITY, 0x081 },	 { GKV_SC_NS_NOT_READY, 0x082 },
		{ GKV_SC_VALUE_SIZE, 0x085 },	 { GKV_SC_KEY_SIZE, 0x086 },
		{ GKV_SC_KEY_NOT_FOUND, 0x087 }, { GKV_SC_UNRECOVERED, 0x088 },
		{ GKV_SC_KEY_EXISTS, 0x089 },	 { GKV_SC_INVALID_IOCS, 0x12c },
		{ GKV_SC_WRITE_FAULT, 0x280 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		assert_int_equal(codes[i].status, codes[i].number);
}

static void doorbells_follow_the_stride(void **state)
{
	unsigned int dstrd, qid;

	(void)state;
	assert_int_equal(GKV_SQ_TAIL_DB(1, 0), 8);
	assert_int_equal(GKV_CQ_HEAD_DB(1, 0), 12);
	assert_int_equal(GKV_SQ_TAIL_DB(3, 2), 96);
	assert_int_equal(GKV_CQ_HEAD_DB(3, 2), 112);
	for (dstrd = 0; dstrd <= 10; dstrd++) {
		for (qid = 0; qid < 64; qid++) {
			assert_int_equal(GKV_CQ_HEAD_DB(qid, dstrd),
					 GKV_SQ_TAIL_DB(qid, dstrd) + (4u << dstrd));
			/* The last doorbell of the last queue is inside, and nothing beyond. */
			assert_int_equal(GKV_DB_LEN(qid, dstrd),
					 GKV_CQ_HEAD_DB(qid, dstrd) + (4u << dstrd));
		}
	}
	/* Highest queue identifier at a large stride: still no overflow of 32 bits. */
	assert_int_equal(GKV_SQ_TAIL_DB(65535, 4), 65535u * 2 * 64);
}

static void record_length(void **state)
{
	(void)state;
	assert_int_equal(GKV_REC_LEN(2), 192 + 2 * 96);
	assert_int_equal(GKV_REC_LEN(65536), 192 + 65536 * 96);
}

static void control_magic_reads_as_text(void **state)
{
	uint32_t control = htole32(GKV_CTL_MAGIC);
	uint32_t record = htole32(GKV_REC_MAGIC);

	(void)state;
	assert_memory_equal(&control, "GKVC", 4);
	assert_memory_equal(&record, "GKVR", 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store_matches_vector),
		cmocka_unit_test(retrieve_matches_vector),
		cmocka_unit_test(delete_matches_vector),
		cmocka_unit_test(success_cqe_matches_vector),
		cmocka_unit_test(error_cqe_matches_vector),
		cmocka_unit_test(list_matches_vector),
		cmocka_unit_test(list_entry_sizes),
		cmocka_unit_test(sgl_descriptor_lies_in_dptr),
		cmocka_unit_test(status_macros),
		cmocka_unit_test(status_numbers),
		cmocka_unit_test(doorbells_follow_the_stride),
		cmocka_unit_test(record_length),
		cmocka_unit_test(control_magic_reads_as_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
