/* SPDX-License-Identifier: MIT */
/*
 * Units are reused only after the slot that freed them is flushed. Random power cuts hardly
 * ever break a store that does not keep to it: the store must be all but full, a Retrieve end
 * between two flushes, and the cut lose one sector and keep another. So here it is done on
 * purpose. The media of local_media.h look at the rule itself, in every test of the store.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "local_rig.h"
#include "stores/local/local.h"

#define NAME "deleted"
#define LEN 4096u

static unsigned char data[LEN], back[LEN];
static uint64_t old_slot;	/* bytes in the member */

static void settle_op(struct rig_op *ro)
{
	assert_true(rig_wait(ro));
	assert_int_equal(ro->status, GKV_SC_SUCCESS);
}

static void store(const char *key, int fill)
{
	struct rig_op ro = { 0 };

	memset(data, fill, sizeof(data));
	rig_store(&ro, key, strlen(key), data, sizeof(data), 0);
	settle_op(&ro);
}

static void flush(void)
{
	struct rig_op ro = { 0 };

	rig_flush(&ro);
	settle_op(&ro);
}

static uint64_t free_units(void)
{
	uint64_t total, avail, old, lost;

	rig_space(&total, &avail, &old, &lost);
	return avail;
}

/* Where the header of the one version of @key lies. */
static uint64_t find_slot(const char *key)
{
	struct loc_store *ls = rig.st.priv;
	const struct loc_super *sb = &ls->file[0].sb;

	for (uint64_t u = 0; u < sb->units; u++) {
		uint64_t at = sb->table_off + u * sizeof(struct loc_slot);
		struct loc_slot s;

		rig_peek(0, at, &s, sizeof(s));
		if (s.type == LOC_LIVE && s.klen == strlen(key) && !memcmp(s.key, key, s.klen))
			return at;
	}
	fail_msg("%s has no header", key);
	return 0;
}

/* Loses what freed the first version's slot, and keeps everything else. */
static bool keep(int file, uint64_t off)
{
	(void)file;
	return old_slot < off || old_slot >= off + 512;
}

static int no_flush(const struct rig_io *io, void *arg)
{
	(void)arg;
	return io->sync ? -EIO : RIG_OK;
}

/*
 * A key is replaced, deleted, and that is flushed. Then its first version's slot is freed, which
 * is not flushed yet, and Stores ask for more units than there are besides.
 */
static void replaced_and_deleted(uint64_t seed, bool read_between)
{
	struct rig_op ro = { 0 }, more[3] = { 0 };
	char key[16] = "";
	unsigned int n = 0;

	memset(&rig, 0, sizeof(rig));
	rig.seed = seed;
	rig.file_size = 1 << 20;
	rig.verify = true;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	store(NAME, 'a');
	old_slot = find_slot(NAME);
	while (free_units() > 2) {
		snprintf(key, sizeof(key), "fill%u", n++);
		store(key, 'f');
	}
	/* Else one block, perhaps one sector, holds all the slots that matter. */
	assert_true(n > 2 * LOC_TBLK_SLOTS);
	/* Unlike Flush, this moves the watermark: what lies below it is believed unseen. */
	rig_settle();

	store(NAME, 'b');
	rig_delete(&ro, NAME, strlen(NAME));
	settle_op(&ro);
	flush();
	rig_run();
	assert_int_equal(free_units(), 1);

	rig.fault = no_flush;
	if (read_between) {
		rig_retrieve(&ro, key, strlen(key), back, sizeof(back));
		settle_op(&ro);
	}
	memset(data, 'c', sizeof(data));
	for (int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "more%d", i);
		rig_store(&more[i], key, strlen(key), data, sizeof(data), 0);
	}
	rig_run();
	assert_true(more[0].done);
	assert_int_equal(more[0].status, GKV_SC_SUCCESS);
	assert_false(more[1].done || more[2].done);

	rig.keep = keep;
	rig_power_cut();
	rig.fault = NULL;
	assert_int_equal(rig_open(NULL), 0);
	rig_exist(&ro, NAME, strlen(NAME));
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, GKV_SC_KEY_NOT_FOUND);
	rig_settle();
	/* What the cut left over is given back all the same. */
	for (int i = 0; i < 2; i++) {
		snprintf(key, sizeof(key), "last%d", i);
		store(key, 'd');
	}
	rig_end();
}

static void test_reuse(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++)
		replaced_and_deleted(seed, seed & 1);
}

/* And once it is flushed, they are used. */
static void test_reuse_in_the_end(void **state)
{
	struct rig_op more[2] = { 0 };
	char key[16];

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.seed = 1;
	rig.reactors = 2;
	rig.file_size = 1 << 20;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
	store(NAME, 'a');
	for (unsigned int n = 0; free_units() > 1; n++) {
		snprintf(key, sizeof(key), "fill%u", n);
		store(key, 'f');
	}
	store(NAME, 'b');
	for (int i = 0; i < 2; i++) {
		snprintf(key, sizeof(key), "more%d", i);
		rig_store(&more[i], key, strlen(key), data, sizeof(data), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_true(rig_wait(&more[i]));
	/* One unit comes back; who asked first has it. */
	assert_int_equal(more[0].status + more[1].status, GKV_SC_SUCCESS + GKV_SC_CAPACITY);
	rig_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_reuse_in_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
