/* SPDX-License-Identifier: MIT */
/*
 * Large values on the local store: the checksum of a Retrieve follows requests that end in
 * any order, come short, have to be repeated or fail; a Store is written while its value
 * is still arriving, which may never happen.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc.h"
#include "local_rig.h"
#include "stores/local/local.h"

#define VLEN	((2u << 20) + 333)
#define MEM	(4u << 20)

static unsigned char *value, *mem;

static void begin(uint64_t seed)
{
	memset(&rig, 0, sizeof(rig));
	rig.seed = seed;
	rig.reactors = 2;
	rig.file_size = 16 << 20;
	rig.verify = true;
	rig.defer_copies = true;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	value = malloc(VLEN);
	mem = aligned_alloc(4096, 3 * MEM);
	assert_non_null(value);
	assert_non_null(mem);
	for (uint32_t i = 0; i < VLEN; i++)
		value[i] = rig_rand() | 1;
}

static void end(void)
{
	rig.fault = NULL;
	rig_settle();
	rig_end();
	free(value);
	free(mem);
}

static void put(uint16_t want)
{
	struct rig_op ro = { 0 };

	rig_store(&ro, "v", 1, value, VLEN, 0);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, want);
}

struct odds {
	unsigned int eio, again, cut_short;	/* one in so many, 0: never */
	uint64_t hits;
};

static int fault(const struct rig_io *io, void *arg)
{
	struct odds *f = arg;
	int res = RIG_OK;

	if (f->again && rig_below(f->again) == 0)
		res = rig_below(2) ? -EAGAIN : -EINTR;
	else if (f->cut_short && !io->sync && rig_below(f->cut_short) == 0)
		res = (int)(1 + rig_below(io->len - 1));
	else if (f->eio && rig_below(f->eio) == 0)
		res = -EIO;
	f->hits += res != RIG_OK;
	return res;
}

/* Pieces of any length at places of any alignment; whole pages more often than not. */
static void scatter(struct rig_op *ro, unsigned char *to, uint32_t len)
{
	uint32_t off = 0, at = 0;
	bool odd = rig_below(3) == 0;

	while (off < len) {
		uint32_t n = ro->niov == 15 ? len - off : 1 + rig_below(len - off);

		if (!odd && ro->niov < 15)
			n = (n + 4095) & ~4095u;
		if (n > len - off)
			n = len - off;
		at = odd && rig_below(2) ? at + rig_below(700) : (at + 4095) & ~4095u;
		ro->iov[ro->niov++] = (struct iovec){ to + at, n };
		off += n;
		at += n;
	}
}

static void compare(const struct rig_op *ro, const unsigned char *want)
{
	uint32_t off = 0;

	for (unsigned int i = 0; i < ro->niov; i++) {
		assert_memory_equal(ro->iov[i].iov_base, want + off, ro->iov[i].iov_len);
		off += ro->iov[i].iov_len;
	}
}

static void run(struct odds odds, uint64_t seed)
{
	unsigned int good = 0, bad = 0;

	begin(seed);
	put(GKV_SC_SUCCESS);
	rig.fault = fault;
	rig.fault_arg = &odds;
	for (int round = 0; round < 300; round++) {
		struct rig_op ro[3] = { 0 };
		/* One alone reads in smaller pieces than several do. */
		unsigned int n = rig_below(3) ? 1 : 3;

		memset(mem, 0, 3 * MEM);
		for (unsigned int i = 0; i < n; i++) {
			uint32_t len = rig_below(4) ? VLEN : 1 + rig_below(VLEN);

			scatter(&ro[i], mem + i * MEM, len);
			rig_retrieve_iov(&ro[i], "v", 1, len);
		}
		for (unsigned int i = 0; i < n; i++) {
			assert_true(rig_wait(&ro[i]));
			if (ro[i].status)
				assert_int_equal(ro[i].status, GKV_SC_UNRECOVERED);
			else
				compare(&ro[i], value);
			good += !ro[i].status;
			bad += !!ro[i].status;
			free(ro[i].data);
		}
	}
	assert_true(good > 50);
	assert_true(odds.hits > 50);
	assert_true(odds.eio ? bad > 10 : !bad);
	end();
}

static void test_transient(void **state)
{
	(void)state;
	run((struct odds){ .again = 4, .cut_short = 4 }, 11);
}

static void test_eio(void **state)
{
	(void)state;
	run((struct odds){ .eio = 12, .cut_short = 8 }, 12);
}

/* ---- Stores whose value arrives while they are being written ---- */

static void check_value(const unsigned char *want)
{
	struct rig_op ro = { 0 };

	memset(mem, 0, VLEN);
	rig_retrieve(&ro, "v", 1, mem, VLEN);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, GKV_SC_SUCCESS);
	assert_memory_equal(mem, want, VLEN);
	free(ro.data);
}

/* Units in use once nothing is on its way back. */
static uint64_t units_used(void)
{
	uint64_t total, avail, old, lost;

	rig_settle();
	rig_space(&total, &avail, &old, &lost);
	assert_int_equal(old, 0);
	assert_int_equal(lost, 0);
	return total - avail;
}

/*
 * A value that does not arrive: the status says so, the old value stays, also over a
 * restart, and the units come back at once, since no header ever spoke of them.
 */
static void test_unstaged(void **state)
{
	unsigned char *old = malloc(VLEN);
	uint64_t used;

	(void)state;
	assert_non_null(old);
	begin(14);
	put(GKV_SC_SUCCESS);
	memcpy(old, value, VLEN);
	used = units_used();
	rig.stage = rig.stage_fail = 1;
	for (int round = 0; round < 60; round++) {
		struct odds odds = { .eio = 20, .cut_short = 6 };
		struct rig_op ro = { 0 };

		value[rig_below(VLEN)] ^= 0x10;
		/* The device may fail it as well: whichever, it is undone. */
		rig.fault = round & 1 ? fault : NULL;
		rig.fault_arg = &odds;
		rig_store(&ro, round & 4 ? "new" : "v", round & 4 ? 3 : 1, value, VLEN, 0);
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, GKV_SC_DATA_TRANSFER);
		rig.fault = NULL;
		assert_int_equal(units_used(), used);
		rig_exist(&ro, "new", 3);
		assert_int_equal(ro.status, GKV_SC_KEY_NOT_FOUND);
		if (round % 20 == 0) {
			rig_kill();
			assert_int_equal(rig_open(NULL), 0);
		}
		check_value(old);
	}
	free(old);
	end();
}

/* Refused, or out of time, while the value is still arriving. */
static void test_refused(void **state)
{
	uint64_t used;

	(void)state;
	begin(15);
	put(GKV_SC_SUCCESS);
	used = units_used();
	rig.stage = 1;
	for (int round = 0; round < 50; round++) {
		struct rig_op ro[3] = { 0 };

		rig_store(&ro[0], "v", 1, value, VLEN, GKV_STORE_MUST_NOT_EXIST);
		rig_store(&ro[1], "w", 1, value, VLEN, 0);
		rig_store(&ro[2], "w", 1, value, VLEN, 0);	/* waits for the key */
		for (unsigned int i = rig_below(20); i; i--)
			rig_step();
		/* It waits for its turn, unless that has come. */
		rig_cancel(&ro[2]);
		for (int i = 0; i < 3; i++)
			assert_true(rig_wait(&ro[i]));
		assert_int_equal(ro[0].status, GKV_SC_KEY_EXISTS);
		assert_int_equal(ro[1].status, GKV_SC_SUCCESS);
		assert_true(!ro[2].status || ro[2].status == KVB_TIMED_OUT);
		rig_delete(&ro[0], "w", 1);
		assert_true(rig_wait(&ro[0]));
		assert_int_equal(units_used(), used);
	}
	check_value(value);
	end();
}

/* One bit anywhere in the value: a status, and nothing of it stays in client memory. */
static void test_flip(void **state)
{
	struct odds odds = { .again = 6, .cut_short = 6 };
	unsigned char *zero = calloc(1, VLEN), *image = malloc(16 << 20), *at;

	(void)state;
	assert_non_null(zero);
	assert_non_null(image);
	begin(13);
	put(GKV_SC_SUCCESS);
	rig_settle();
	rig_peek(0, 0, image, rig.file_size);
	rig.fault = fault;
	rig.fault_arg = &odds;
	for (int round = 0; round < 200; round++) {
		uint32_t byte = rig_below(VLEN), blk = byte & ~511u;
		uint64_t off;
		unsigned char c;
		struct rig_op ro = { 0 };
		uint32_t len = rig_below(4) ? VLEN : 1 + rig_below(VLEN);

		at = memmem(image, rig.file_size, value + blk, VLEN - blk < 512 ? VLEN - blk : 512);
		assert_non_null(at);
		off = at - image + byte - blk;
		c = image[off] ^ 1u << rig_below(8);
		rig_poke(0, off, &c, 1);
		memset(mem, 0, MEM);
		scatter(&ro, mem, len);
		rig_retrieve_iov(&ro, "v", 1, len);
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, GKV_SC_UNRECOVERED | GKV_DNR);
		assert_false(ro.has_crc);
		compare(&ro, zero);
		rig_poke(0, off, &image[off], 1);
		free(ro.data);
	}
	free(zero);
	free(image);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transient),
		cmocka_unit_test(test_eio),
		cmocka_unit_test(test_flip),
		cmocka_unit_test(test_unstaged),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
