/* SPDX-License-Identifier: MIT */
/* The local store when I/O fails, is short, or lies; and when bits flip at rest. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/crc.h"
#include "local_model.h"
#include "local_rig.h"
#include "stores/local/local.h"

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static double limit(double seconds)
{
	return now() + (getenv("GKV_LONG") ? 20 * seconds : seconds);
}

/* ---- Failing requests ---- */

struct faults {
	unsigned int eio, again, cut_short, lie;	/* one in so many, 0: never */
	uint64_t hits;
};

static int fault(const struct rig_io *io, void *arg)
{
	struct faults *f = arg;
	int res = RIG_OK;

	if (f->again && rig_below(f->again) == 0)
		res = rig_below(2) ? -EAGAIN : -EINTR;
	else if (f->cut_short && !io->sync && io->len > 512 && rig_below(f->cut_short) == 0)
		res = (int)(1 + rig_below(io->len - 1));
	else if (f->eio && rig_below(f->eio) == 0)
		res = -EIO;
	else if (f->lie && io->write && rig_below(f->lie) == 0)
		res = RIG_LANDED;
	if (res != RIG_OK)
		f->hits++;
	return res;
}

static void faulty(uint64_t seed, struct faults f, bool sync)
{
	static struct model m;
	bool hard = f.eio || f.lie;

	memset(&rig, 0, sizeof(rig));
	rig.seed = seed;
	rig.reactors = 1 + seed % 3;
	rig.file_size = 2 << 20;
	rig.sync = sync;
	rig.verify = true;
	rig.defer_copies = true;
	rig.stage = 3;
	rig.stage_fail = 6;
	rig.direct = 4;
	rig.align = 512;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	rig.fault = fault;
	rig.fault_arg = &f;
	model_init(&m, 20, 100000);
	for (int cycle = 0; cycle < 3; cycle++) {
		m.faults = hard;
		rig.fault = fault;
		model_work(&m, 2000);
		model_drain(&m);
		rig.fault = NULL;
		/* What failed left the old value; what it took comes back. */
		model_check(&m);
		if (cycle == 1) {
			rig_kill();
			model_crashed(&m, false);
		} else {
			rig_close();
		}
		assert_int_equal(rig_open(NULL), 0);
		model_check(&m);
	}
	rig_end();
	if (!hard)
		assert_int_equal(m.failed, 0);
	else
		assert_true(f.hits > 0);
	model_free(&m);
}

static void run_faulty(struct faults f, bool sync)
{
	const char *one_seed = getenv("GKV_SEED");
	double end = limit(2.5);

	if (one_seed) {
		faulty(strtoull(one_seed, NULL, 0), f, sync);
		return;
	}
	for (uint64_t seed = 1; seed < 6 || now() < end; seed++)
		faulty(seed, f, sync);
}

static void test_transient(void **state)
{
	(void)state;
	run_faulty((struct faults){ .again = 4 }, false);
}

static void test_short(void **state)
{
	(void)state;
	run_faulty((struct faults){ .cut_short = 3, .again = 20 }, false);
}

static void test_eio(void **state)
{
	(void)state;
	run_faulty((struct faults){ .eio = 15 }, false);
}

static void test_eio_sync(void **state)
{
	(void)state;
	run_faulty((struct faults){ .eio = 15 }, true);
}

/* The write landed, and was reported as failed. */
static void test_lie(void **state)
{
	(void)state;
	run_faulty((struct faults){ .lie = 40 }, false);
}

/* A device that takes no write any more: a status for everything, and reads go on. */
static int no_writes(const struct rig_io *io, void *arg)
{
	(void)arg;
	return io->write ? -EIO : RIG_OK;
}

static void test_dead_device(void **state)
{
	unsigned char data[9000], back[9000];
	struct rig_op ro[8] = { 0 };

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.seed = 3;
	rig.reactors = 2;
	rig.file_size = 1 << 20;
	rig.verify = true;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	memset(data, 0x31, sizeof(data));
	rig_store(&ro[0], "a", 1, data, sizeof(data), 0);
	assert_true(rig_wait(&ro[0]));
	rig.fault = no_writes;
	memset(data, 0x32, sizeof(data));
	rig_store(&ro[0], "a", 1, data, sizeof(data), 0);
	rig_store(&ro[1], "b", 1, data, sizeof(data), 0);
	rig_delete(&ro[2], "a", 1);
	for (int i = 0; i < 3; i++) {
		assert_true(rig_wait(&ro[i]));
		assert_int_equal(ro[i].status, GKV_SC_WRITE_FAULT);
	}
	rig_retrieve(&ro[3], "a", 1, back, sizeof(back));
	assert_true(rig_wait(&ro[3]));
	assert_int_equal(ro[3].status, GKV_SC_SUCCESS);
	assert_int_equal(back[0], 0x31);
	rig_exist(&ro[4], "b", 1);
	assert_int_equal(ro[4].status, GKV_SC_KEY_NOT_FOUND);	/* a failed Store of a new key */
	rig.fault = NULL;
	rig_settle();
	rig_kill();
	assert_int_equal(rig_open(NULL), 0);
	rig_retrieve(&ro[3], "a", 1, back, sizeof(back));
	assert_true(rig_wait(&ro[3]));
	assert_int_equal(back[8999], 0x31);
	rig_exist(&ro[4], "b", 1);
	assert_int_equal(ro[4].status, GKV_SC_KEY_NOT_FOUND);
	free(ro[3].data);
	rig_end();
}

/* ---- Flipped bits ---- */

#define NVALUES 24

static struct {
	unsigned char *image, *back;
	struct {
		char key[20];
		uint32_t len;
		unsigned char *data;
	} v[NVALUES];
	uint64_t data_off, data_end;
} flip;

static void flip_begin(void)
{
	struct loc_store *ls;

	memset(&rig, 0, sizeof(rig));
	rig.seed = 5;
	rig.reactors = 2;
	rig.file_size = 768 << 10;
	rig.verify = true;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	for (int i = 0; i < NVALUES; i++) {
		struct rig_op ro = { 0 };

		snprintf(flip.v[i].key, sizeof(flip.v[i].key), "key%d", i);
		flip.v[i].len = i ? rig_below(40000) : 0;
		flip.v[i].data = malloc(flip.v[i].len + 1);
		for (uint32_t j = 0; j < flip.v[i].len; j++)
			flip.v[i].data[j] = rig_below(255) + 1;
		/* Some are superseded and some deleted on the way, so that the table is lived in. */
		for (int round = 0; round <= i % 3; round++) {
			rig_store(&ro, flip.v[i].key, strlen(flip.v[i].key), flip.v[i].data,
				  flip.v[i].len, 0);
			assert_true(rig_wait(&ro));
			assert_int_equal(ro.status, 0);
			if (i % 5 == 0 && round < i % 3) {
				rig_delete(&ro, flip.v[i].key, strlen(flip.v[i].key));
				assert_true(rig_wait(&ro));
			}
		}
	}
	ls = rig.st.priv;
	flip.data_off = ls->file[0].sb.data_off;
	flip.data_end = flip.data_off + ls->total_units * ls->unit;
	rig_close();
	flip.image = malloc(rig.file_size);
	flip.back = aligned_alloc(4096, 64 << 10);
	rig_peek(0, 0, flip.image, rig.file_size);
}

static void flip_end(void)
{
	for (int i = 0; i < NVALUES; i++)
		free(flip.v[i].data);
	free(flip.image);
	free(flip.back);
	rig_end();
}

/*
 * Open and read everything: returns how many values are gone. A value that comes must be
 * right; one that does not must leave nothing of itself behind.
 */
static unsigned int flip_read(unsigned int *unreadable)
{
	unsigned int gone = 0;

	*unreadable = 0;
	if (rig_open(NULL)) {
		assert_true(strlen(rig.err.text) > 0);
		return NVALUES;
	}
	for (int i = 0; i < NVALUES; i++) {
		struct rig_op ro = { 0 };

		memset(flip.back, 0, 64 << 10);
		rig_retrieve(&ro, flip.v[i].key, strlen(flip.v[i].key), flip.back, 64 << 10);
		assert_true(rig_wait(&ro));
		if (ro.status == GKV_SC_SUCCESS) {
			assert_int_equal(ro.result, flip.v[i].len);
			assert_memory_equal(flip.back, flip.v[i].data, flip.v[i].len);
		} else if (ro.status == (GKV_SC_UNRECOVERED | GKV_DNR)) {
			++*unreadable;
			for (uint32_t j = 0; j < 64 << 10; j++)
				assert_int_equal(flip.back[j], 0);
		} else {
			assert_int_equal(ro.status, GKV_SC_KEY_NOT_FOUND);
			gone++;
		}
		free(ro.data);
	}
	rig_close();
	return gone;
}

static bool interesting(uint64_t off)
{
	/* All of what is in use, and of the rest one byte in 61. */
	uint64_t slot = off & ~63ull;

	if (off >= 3 * LOC_BLK && off < flip.data_off) {
		for (int i = 0; i < 64; i++) {
			if (flip.image[slot + i])
				return true;
		}
	} else if (flip.image[off]) {
		return true;
	}
	return off % 61 == 0;
}

static void test_one_bit(void **state)
{
	unsigned int bad, gone, tried = 0, step = getenv("GKV_LONG") ? 1 : 3;
	double end = limit(12);

	(void)state;
	flip_begin();
	for (uint64_t off = 0, n = 0; off < rig.file_size && now() < end; off++) {
		bool meta = off < flip.data_off || off >= flip.data_end;
		unsigned char c;

		if (meta ? !interesting(off) || n++ % step : rig_below(600))
			continue;
		c = flip.image[off] ^ 1u << rig_below(8);
		rig_poke(0, off, &c, 1);
		gone = flip_read(&bad);
		tried++;
		/* A header or superblock is put right; a value is reported. */
		if (gone || (meta && bad) || bad > 1)
			fail_msg("byte %llu: %u gone, %u unreadable", (unsigned long long)off, gone, bad);
		rig_poke(0, 0, flip.image, rig.file_size);
	}
	print_message("%u flips\n", tried);
	assert_true(tried > 100);
	flip_end();
}

/* Whole slots, blocks and superblocks overwritten with noise. */
static void test_noise(void **state)
{
	double end = limit(6);
	unsigned int bad, tried = 0, lost = 0;

	(void)state;
	flip_begin();
	while (now() < end || tried < 50) {
		unsigned int n = 1 + rig_below(4);

		for (unsigned int i = 0; i < n; i++) {
			static const uint32_t grains[] = { 2, 8, 64, 512, 4096 };
			uint32_t len = grains[rig_below(5)];
			uint64_t off = rig_below(3) ? rig_below(flip.data_off)
						    : rig_below(rig.file_size);
			unsigned char noise[4096];

			off &= ~(uint64_t)(len - 1);
			for (uint32_t j = 0; j < len; j++)
				noise[j] = rig_below(256);
			if (rig_below(4) == 0)
				memset(noise, rig_below(2) ? 0xff : 0, len);
			rig_poke(0, off, noise, len);
		}
		lost += flip_read(&bad) > 0;
		/* And once more: whatever the first start did must stand. */
		flip_read(&bad);
		rig_poke(0, 0, flip.image, rig.file_size);
		tried++;
	}
	print_message("%u images, %u with values lost\n", tried, lost);
	flip_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transient), cmocka_unit_test(test_short),
		cmocka_unit_test(test_eio),	  cmocka_unit_test(test_eio_sync),
		cmocka_unit_test(test_lie),	  cmocka_unit_test(test_dead_device),
		cmocka_unit_test(test_one_bit),	  cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
