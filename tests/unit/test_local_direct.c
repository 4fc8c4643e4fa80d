/* SPDX-License-Identifier: MIT */
/*
 * Stores that the device fetches from client memory: which pieces it may, that nothing speaks of
 * them before they have landed, and what becomes of those that were not the value after all.
 * With crashes and failing devices in between: test_local_crash, test_local_faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc.h"
#include "local_rig.h"
#include "stores/local/local.h"

#define ROOM	(3u << 20)

static unsigned char *mem, *back;

static int begin(void **state)
{
	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.seed = 5;
	rig.reactors = 2;
	rig.file_size = 32 << 20;
	rig.verify = true;
	rig.align = 512;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	mem = aligned_alloc(4096, ROOM);
	back = aligned_alloc(4096, ROOM);
	assert_non_null(mem);
	assert_non_null(back);
	for (uint32_t i = 0; i < ROOM; i++)
		mem[i] = (unsigned char)(rig_rand() | 1);
	return 0;
}

static int end(void **state)
{
	(void)state;
	rig_settle();
	rig_end();
	free(mem);
	free(back);
	return 0;
}

/* Client memory in pieces: pairs of offset in mem and bytes, ended by 0 bytes. */
static uint32_t layout(struct rig_op *ro, const uint32_t (*pieces)[2])
{
	uint32_t len = 0;

	for (ro->niov = 0; pieces[ro->niov][1]; ro->niov++) {
		ro->iov[ro->niov] = (struct iovec){ mem + pieces[ro->niov][0],
						    pieces[ro->niov][1] };
		len += pieces[ro->niov][1];
	}
	return len;
}

static uint32_t crc_of(const struct rig_op *ro)
{
	uint32_t crc = 0;

	for (unsigned int i = 0; i < ro->niov; i++)
		crc = kvb_crc32c(crc, ro->iov[i].iov_base, ro->iov[i].iov_len);
	return crc;
}

static void check_value(const struct rig_op *ro, uint32_t len)
{
	const unsigned char *at = back;
	struct rig_op get = { 0 };

	memset(back, 0, ROOM);
	rig_retrieve(&get, "v", 1, back, ROOM);
	assert_true(rig_wait(&get));
	free(get.data);
	assert_int_equal(get.status, 0);
	assert_int_equal(get.result, len);
	for (unsigned int i = 0; i < ro->niov; i++) {
		assert_memory_equal(at, ro->iov[i].iov_base, ro->iov[i].iov_len);
		at += ro->iov[i].iov_len;
	}
}

static void test_pieces(void **state)
{
	static const struct {
		uint32_t pieces[8][2];
		uint32_t direct, tail;
	} cases[] = {
		{ { { 0, 4096 } }, 4096, 0 },
		{ { { 0, 512 } }, 512, 0 },
		{ { { 4096, 1 << 20 } }, 1 << 20, 0 },
		{ { { 512, 2 << 20 } }, 2 << 20, 0 },
		/* A tail below a block. */
		{ { { 0, (1 << 20) + 100 } }, 1 << 20, 100 },
		{ { { 0, 65536 + 1536 + 1 } }, 65536 + 1536, 1 },
		/* Neighbours, apart in memory, that one request takes. */
		{ { { 0, 4096 }, { 8192, 4096 }, { 4096, 4096 } }, 3 * 4096, 0 },
		{ { { 0, 4096 }, { 8192, 512 }, { 65536, 65536 }, { 4096, 700 } },
		  4096 + 512 + 65536 + 512, 188 },
		/* One that lies askew on memory. */
		{ { { 0, 8192 }, { 16384 + 4, 8192 }, { 65536, 8192 } }, 16384, 8192 },
		/* One that makes all behind it lie askew on the disk. */
		{ { { 0, 8192 }, { 16384, 100 }, { 32768, 4096 }, { 65536, 412 }, { 81920, 4096 } },
		  8192 + 4096 + 0, 100 + 4096 + 412 },
		/* Blocks that begin in the middle of a piece. */
		{ { { 100, 412 + 8192 } }, 0, 0 },
		{ { { 4096 - 100, 100 }, { 512 - 412, 412 + 8192 } }, 8192, 512 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig_op ro = { 0 };
		uint32_t len = layout(&ro, cases[i].pieces);
		bool taken = rig_store_iov(&ro, "v", 1, len, crc_of(&ro), 0);

		print_message("case %zu\n", i);
		assert_int_equal(taken, cases[i].direct != 0);
		if (!taken) {
			free(ro.data);
			continue;
		}
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, 0);
		assert_int_equal(ro.direct, cases[i].direct);
		assert_int_equal(ro.tail, cases[i].tail);
		check_value(&ro, len);
		free(ro.data);
	}
}

/* Too much for the CPU: it is better off staging all of it, in slices. */
static void test_askew(void **state)
{
	static const uint32_t pieces[][2] = { { 0, 1 << 20 }, { (1 << 20) + 4, 65536 + 512 },
					      { 2 << 20, 1 << 19 }, { 0, 0 } };
	struct rig_op ro = { 0 };

	(void)state;
	assert_false(rig_store_iov(&ro, "v", 1, layout(&ro, pieces), 0, 0));
	free(ro.data);
}

/* What a hook sees: writes of data that have been carried out, before any of a header. */
static struct { unsigned int data, before; } seen;

static int count(const struct rig_io *io, void *arg)
{
	(void)arg;
	if (io->write && !io->table)
		seen.data += io->len;
	else if (io->write && io->table && !seen.before)
		seen.before = seen.data;
	return RIG_OK;
}

static void test_header_last(void **state)
{
	static const uint32_t pieces[][2] = { { 0, 2 << 20 }, { (2 << 20) + 100, 512 }, { 0, 0 } };

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct rig_op ro = { 0 };
		uint32_t len = layout(&ro, pieces);

		rig_settle();
		memset(&seen, 0, sizeof(seen));
		rig.fault = count;
		assert_true(rig_store_iov(&ro, "v", 1, len, crc_of(&ro), 0));
		assert_true(rig_wait(&ro));
		rig.fault = NULL;
		assert_int_equal(ro.status, 0);
		assert_int_equal(seen.before, len);
		free(ro.data);
	}
}

/* Memory that vanished, or a client that does not wait any more: the old value stays. */
static void test_was_not_the_value(void **state)
{
	static const uint32_t old[][2] = { { 4096, 70000 }, { 0, 0 } },
			      new[][2] = { { 1 << 20, 1 << 20 }, { 0, 0 } };
	static const uint16_t why[] = { GKV_SC_DATA_TRANSFER | GKV_DNR, GKV_SC_TRANSIENT };
	struct kvb_store_info before, after;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct rig_op was = { 0 }, ro = { 0 };
		uint32_t len = layout(&was, old);

		assert_true(rig_store_iov(&was, "v", 1, len, crc_of(&was), 0));
		assert_true(rig_wait(&was));
		assert_int_equal(was.status, 0);
		rig_settle();
		before = rig_info();
		memset(&seen, 0, sizeof(seen));
		rig.fault = count;
		assert_true(rig_store_iov(&ro, "v", 1, layout(&ro, new), 0, why[i]));
		assert_true(rig_wait(&ro));
		rig.fault = NULL;
		assert_int_equal(ro.status, why[i]);
		assert_int_equal(seen.data, 1 << 20);
		assert_int_equal(seen.before, 0);
		check_value(&was, len);
		rig_settle();
		after = rig_info();
		assert_int_equal(after.used, before.used);
		free(was.data);
		free(ro.data);
	}
}

/* The client's word is taken; who retrieves finds out. */
static void test_wrong_checksum(void **state)
{
	static const uint32_t pieces[][2] = { { 0, 65536 }, { 0, 0 } };
	struct rig_op ro = { 0 }, get = { 0 };

	(void)state;
	assert_true(rig_store_iov(&ro, "v", 1, layout(&ro, pieces), crc_of(&ro) ^ 1, 0));
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, 0);
	rig_retrieve(&get, "v", 1, back, ROOM);
	assert_true(rig_wait(&get));
	assert_int_equal(get.status, GKV_SC_UNRECOVERED | GKV_DNR);
	free(ro.data);
	free(get.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pieces, begin, end),
		cmocka_unit_test_setup_teardown(test_askew, begin, end),
		cmocka_unit_test_setup_teardown(test_header_last, begin, end),
		cmocka_unit_test_setup_teardown(test_was_not_the_value, begin, end),
		cmocka_unit_test_setup_teardown(test_wrong_checksum, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
