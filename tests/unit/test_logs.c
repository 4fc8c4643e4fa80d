/* SPDX-License-Identifier: MIT */
/*
 * Log pages by byte offset, their ranges, and the error log under many writers.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "admin_rig.h"

static void test_log_pages(void **state)
{
	(void)state;
	assert_int_equal(get_log(&user, 0x00, 1024, 0), OK);
	for (unsigned int lid = 0; lid < 256; lid++)
		assert_int_equal(u32(4 * lid), lid < 4 || lid == 5);
	assert_int_equal(get_log(&user, 0x03, 512, 0), OK);
	assert_int_equal(data[0], 1);			/* AFI */
	assert_int_equal(memchr(data + 8, 0, 8) == NULL, 1);
	zero(16, 512);
	for (unsigned int lid = 0; lid < 256; lid++)
		if (lid == 4 || lid > 5)
			assert_int_equal(get_log(&user, (uint8_t)lid, 512, 0),
					 GKV_SC_INVALID_LOG_PAGE | GKV_DNR);
}

static void test_log_effects(void **state)
{
	struct gkv_admin_sqe sqe = {
		.opcode = GKV_ADM_GET_LOG_PAGE,
		.cdw10 = htole32(5 | 1023 << 16),
		.cdw14 = htole32(1u << 24),
	};

	(void)state;
	/* What Linux asks before it takes a KV namespace: NSID 0, CSI 1, 4096 bytes. */
	assert_int_equal(exec(&user, &sqe), OK);
	assert_int_equal(data_len, 4096);
	for (unsigned int op = 0; op < 256; op++) {
		bool adm = op == 2 || op == 6 || (op >= 8 && op <= 10) || op == 12;
		bool io = op <= 2 || op == 6 || op == 0x10 || op == 0x14;

		assert_int_equal(u32(4 * op), adm);
		assert_int_equal(u32(1024 + 4 * op),
				 (uint32_t)io | (op == 1 || op == 0x10 ? 2u : 0u));
	}
	zero(2048, 4096);
	sqe.cdw14 = 0;				/* NVM: no I/O command of that set */
	assert_int_equal(exec(&user, &sqe), OK);
	assert_int_equal(u32(4 * 6), 1);
	zero(1024, 4096);
	sqe.cdw14 = htole32(2u << 24);
	assert_int_equal(exec(&user, &sqe), BAD_IOCS);
}

static void test_log_smart(void **state)
{
	(void)state;
	counters = (struct kvb_admin_counters){
		.read_bytes = 512001, .written_bytes = 512000, .reads = 11, .writes = 12,
		.busy_ns = UINT64_C(120000000000), .power_cycles = 3, .power_on_seconds = 7201,
		.unsafe_shutdowns = 2, .media_errors = 9,
	};
	assert_int_equal(get_log(&root, 0x7f, 512, 0), GKV_SC_INVALID_LOG_PAGE | GKV_DNR);
	assert_int_equal(get_log(&user, 0x02, 512, 0), OK);
	assert_int_equal(data[0], 0);
	assert_int_equal(u64(32), 2);			/* data units, rounded up */
	assert_int_equal(u64(48), 1);
	assert_int_equal(u64(64), 11);
	assert_int_equal(u64(80), 12);
	assert_int_equal(u64(96), 2);			/* busy minutes */
	assert_int_equal(u64(112), 3);
	assert_int_equal(u64(128), 2);			/* hours */
	assert_int_equal(u64(144), 2);
	assert_int_equal(u64(160), 9);
	assert_int_equal(u64(176), 1);			/* the refusal above */
	counters.degraded = true;
	counters.read_only = true;
	assert_int_equal(get_log(&user, 0x02, 4, 0), OK);
	assert_int_equal(data[0], 0x0c);
}

static void test_log_ranges(void **state)
{
	struct gkv_admin_sqe sqe = { .opcode = GKV_ADM_GET_LOG_PAGE, .cdw10 = htole32(2) };

	(void)state;
	counters.reads = 0x1122334455667788;
	assert_int_equal(get_log(&user, 0x02, 8, 64), OK);
	assert_int_equal(u64(0), 0x1122334455667788);
	/* Longer than the page: zeros after it. At its end: nothing but zeros. */
	assert_int_equal(get_log(&user, 0x02, 4096, 64), OK);
	assert_int_equal(u64(0), 0x1122334455667788);
	zero(512 - 64, 4096);
	assert_int_equal(get_log(&user, 0x02, 4, 512), OK);
	zero(0, 4);
	assert_int_equal(get_log(&user, 0x02, 4, 516), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 4, UINT64_C(1) << 32), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 4, 2), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 4100, 0), BAD_FIELD);
	assert_int_equal(get_log(&user, 0x02, 1 << 20, 0), BAD_FIELD);
	sqe.nsid = htole32(1);			/* no page is a namespace's */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.nsid = 0;
	sqe.cdw10 = htole32(2 | 1 << 8);	/* LSP */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw10 = htole32(2);
	sqe.cdw11 = htole32(1 << 16);		/* LSI */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw11 = 0;
	sqe.cdw14 = htole32(1 << 23);		/* offset by entry */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw14 = 0;
	sqe.cdw15 = htole32(1);
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.cdw15 = 0;
	assert_int_equal(exec(&root, &sqe), OK);
}

static void test_error_log(void **state)
{
	(void)state;
	assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
	zero(0, 4096);
	kvb_admin_log_error(&ctrl, 2, 0x55, GKV_SC_VALUE_SIZE | GKV_DNR, 1, GKV_OP_STORE, 40);
	/* Answers, no errors. */
	kvb_admin_log_error(&ctrl, 2, 1, GKV_SC_KEY_NOT_FOUND | GKV_DNR, 1, GKV_OP_RETRIEVE, 0);
	kvb_admin_log_error(&ctrl, 2, 1, GKV_SC_KEY_EXISTS | GKV_DNR, 1, GKV_OP_STORE, 0);
	kvb_admin_log_error(&ctrl, 3, 0x56, GKV_SC_UNRECOVERED, 5, GKV_OP_RETRIEVE,
			    KVB_PARAM_NONE);
	assert_int_equal(cmd(&root, 0x99, 0, 0, 0), BAD_OPCODE);
	assert_int_equal(atomic_load(&ctrl.media_errors), 1);	/* 88h alone */
	assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
	assert_int_equal(u64(0), 3);			/* newest first */
	assert_int_equal(u16(8), 0);			/* SQID: admin */
	assert_int_equal(u16(10), 0x1234);
	assert_int_equal(u16(12), BAD_OPCODE << 1);
	assert_int_equal(u16(14), 0);			/* byte 0: the opcode */
	assert_int_equal(data[31], 0x99);
	assert_int_equal(u64(64), 2);
	assert_int_equal(u16(64 + 14), 0xffff);
	assert_int_equal(u32(64 + 24), 5);
	assert_int_equal(data[64 + 30], 1);		/* CSI */
	assert_int_equal(u64(128), 1);
	assert_int_equal(u16(128 + 8), 2);
	assert_int_equal(u16(128 + 10), 0x55);
	assert_int_equal(u16(128 + 12), (GKV_SC_VALUE_SIZE | GKV_DNR) << 1);
	assert_int_equal(u16(128 + 14), 40);
	assert_int_equal(data[128 + 31], GKV_OP_STORE);
	zero(192, 4096);
	/* Others' errors stay theirs. */
	assert_int_equal(get_log(&user, 0x01, 4096, 0), OK);
	assert_int_equal(u64(0), 1);
	zero(64, 4096);
	/* The ring turns; counts go on. */
	for (int i = 0; i < 200; i++)
		kvb_admin_log_error(&ctrl, 1, (uint16_t)i, GKV_SC_INTERNAL, 1, 0, 0);
	assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
	for (int i = 0; i < 64; i++)
		assert_int_equal(u64(64 * (size_t)i), 203 - i);
}

static void *log_many(void *arg)
{
	for (int i = 0; i < 5000; i++)
		kvb_admin_log_error(&ctrl, *(uint16_t *)arg, (uint16_t)i, GKV_SC_INTERNAL, 1, 0,
				    *(uint16_t *)arg);
	return NULL;
}

/* Writers on any thread, a reader beside them: every entry seen is whole. */
static void test_error_log_threads(void **state)
{
	uint16_t ids[3] = { 1, 2, 3 };
	pthread_t t[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, log_many, &ids[i]), 0);
	for (int n = 0; n < 500; n++) {
		assert_int_equal(get_log(&root, 0x01, 4096, 0), OK);
		for (size_t i = 0; i < 4096 && u64(i); i += 64)
			assert_int_equal(u16(i + 8), u16(i + 14));
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&ctrl.errors), 15000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_log_pages),
		TEST(test_log_effects),
		TEST(test_log_smart),
		TEST(test_log_ranges),
		TEST(test_error_log),
		TEST(test_error_log_threads),
	};

	return cmocka_run_group_tests_name("logs", tests, rig_start, rig_end);
}
