/* SPDX-License-Identifier: MIT */
/*
 * Retrieve into GPU memory from the local store: who verifies, and by which way the bytes go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc.h"
#include "local_rig.h"
#include "stores/local/local.h"

#define VLEN	((1u << 20) + 1000)
#define TAIL	(VLEN % 512)
#define WHOLE	(VLEN - TAIL)

static unsigned char *value, *mem;

static void begin(bool verify)
{
	struct rig_op ro = { 0 };

	memset(&rig, 0, sizeof(rig));
	rig.seed = 11;
	rig.reactors = 2;
	rig.file_size = 16 << 20;
	rig.verify = verify;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	value = malloc(VLEN);
	mem = aligned_alloc(4096, VLEN + 8192 - VLEN % 4096);
	assert_non_null(value);
	assert_non_null(mem);
	for (uint32_t i = 0; i < VLEN; i++)
		value[i] = rig_rand() | 1;
	rig_store(&ro, "v", 1, value, VLEN, 0);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, 0);
}

static void end(void)
{
	rig_settle();
	rig_end();
	free(value);
	free(mem);
}

static struct rig_op get(uint32_t len, bool vram, bool client_verifies, bool bounce)
{
	struct rig_op ro = { 0 };

	rig.vram = vram;
	rig.client_verifies = client_verifies;
	rig.bounce = bounce;
	memset(mem, 0, VLEN);
	rig_retrieve(&ro, "v", 1, mem, len);
	assert_true(rig_wait(&ro));
	free(ro.data);
	ro.data = NULL;
	return ro;
}

static void is(const struct rig_op *ro, uint32_t len, uint64_t direct, uint64_t tail,
	       uint64_t bounced)
{
	assert_int_equal(ro->status, 0);
	assert_int_equal(ro->result, VLEN);
	assert_true(ro->has_crc);
	assert_int_equal(ro->crc, kvb_crc32c(0, value, VLEN));
	assert_memory_equal(mem, value, len);
	assert_int_equal(mem[len], 0);
	assert_int_equal(ro->direct, direct);
	assert_int_equal(ro->tail, tail);
	assert_int_equal(ro->bounced, bounced);
	assert_int_equal(ro->copied, 0);
}

static void test_ways(void **state)
{
	struct rig_op ro;

	(void)state;
	for (int verify = 0; verify < 2; verify++) {
		begin(verify);
		for (int csum = 0; csum < 2; csum++) {
			bool dma = !verify || csum;

			ro = get(VLEN, false, csum, false);
			is(&ro, VLEN, WHOLE, TAIL, 0);
			ro = get(VLEN, true, csum, false);
			is(&ro, VLEN, dma ? WHOLE : 0, dma ? TAIL : 0, dma ? 0 : VLEN);
			/* Of half a value the client cannot take the checksum. */
			ro = get(65536, true, csum, false);
			is(&ro, 65536, verify ? 0 : 65536, 0, verify ? 65536 : 0);
			/* Out of the disk's reach. */
			ro = get(VLEN, true, csum, true);
			is(&ro, VLEN, 0, 0, VLEN);
			ro = get(65536, true, csum, true);
			is(&ro, 65536, 0, 0, 65536);
		}
		end();
	}
}

/* Flip a byte of the value, on the disk. */
static void damage(void)
{
	unsigned char *disk = malloc(rig.file_size), *at;

	assert_non_null(disk);
	rig_peek(0, 0, disk, rig.file_size);
	at = memmem(disk, rig.file_size, value + 8192, 4096);
	assert_non_null(at);
	rig_poke(0, (uint64_t)(at - disk), (unsigned char[]){ (unsigned char)(*at ^ 4) }, 1);
	free(disk);
}

static void test_damaged(void **state)
{
	const uint16_t bad = GKV_SC_UNRECOVERED | GKV_DNR;
	struct rig_op ro;

	(void)state;
	begin(true);
	damage();
	ro = get(VLEN, true, false, false);
	assert_int_equal(ro.status, bad);
	for (uint32_t i = 0; i < VLEN; i++)
		assert_int_equal(mem[i], 0);
	ro = get(65536, true, true, false);
	assert_int_equal(ro.status, bad);
	ro = get(VLEN, true, true, true);
	assert_int_equal(ro.status, bad);
	/* Nobody but the client has looked; it has what it needs to find out. */
	ro = get(VLEN, true, true, false);
	assert_int_equal(ro.status, 0);
	assert_int_equal(ro.crc, kvb_crc32c(0, value, VLEN));
	assert_memory_not_equal(mem, value, VLEN);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
