/* SPDX-License-Identifier: MIT */
/*
 * The local store opened on a damaged image. The input patches a small sound image; with
 * its first bit set checksums are made right again afterwards, so that what lies behind
 * them is reached too. Whatever the image says, nothing crashes, no value comes back that
 * was never stored, and the store goes on working.
 *
 * Input: one byte of flags, then patches of three bytes of offset, one of length, the bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/local_media.c"
#include "../unit/local_rig.c"

#define NVALUES	12
#define SIZE	(192u << 10)
#define VALUE_MAX (24u << 10)

static unsigned char image[SIZE], work[SIZE];
static struct {
	char key[8];
	uint32_t len;
	unsigned char data[VALUE_MAX];
} value[NVALUES];
static uint64_t table_end, data_off;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len);

static void rig_set(void)
{
	rig.seed = 1;
	rig.reactors = 2;
	rig.file_size = SIZE;
	rig.verify = true;
	rng = 88172645463325252ull;	/* an input always does the same */
}

static void wait_for(struct rig_op *ro)
{
	CHECK(rig_wait(ro));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct loc_store *ls;

	(void)argc;
	(void)argv;
	rig_set();
	rig_begin();
	atexit(rig_end);
	CHECK(!rig_open(NULL));
	for (unsigned int i = 0; i < NVALUES; i++) {
		struct rig_op ro = { 0 };

		snprintf(value[i].key, sizeof(value[i].key), "k%02u", i % 100);
		value[i].len = i ? i * 1700 % VALUE_MAX : 0;
		for (uint32_t j = 0; j < value[i].len; j++)
			value[i].data[j] = 1 + rig_below(255);
		rig_store(&ro, value[i].key, 3, value[i].data, value[i].len, 0);
		wait_for(&ro);
		CHECK(!ro.status);
		if (i % 4 == 3) {		/* holes, and a value in several pieces later */
			rig_delete(&ro, value[i - 1].key, 3);
			wait_for(&ro);
			value[i - 1].key[0] = 'd';
		}
	}
	ls = rig.st.priv;
	data_off = ls->file[0].sb.data_off;
	table_end = ls->file[0].sb.table_off + ls->total_units * sizeof(struct loc_slot);
	/* Above the watermark some values are checked when the store is opened, some not. */
	rig_settle();
	{
		struct rig_op ro = { 0 };

		rig_store(&ro, value[0].key, 3, value[0].data, value[0].len, 0);
		wait_for(&ro);
	}
	rig_kill();
	media_drain(-1);
	rig_peek(0, 0, image, SIZE);
	return 0;
}

/* Checksums of what was patched, as if a daemon had written it. */
static void make_right(uint64_t off)
{
	if (off < LOC_BLK || (off >= LOC_BLK && off < 3 * LOC_BLK) || off >= SIZE - LOC_BLK) {
		unsigned char *s = work + (off & ~(uint64_t)(LOC_BLK - 1));
		uint32_t crc;

		memset(s + offsetof(struct loc_super, crc), 0, 4);
		crc = htole32(kvb_crc32c(0, s, LOC_SB_SIZE));
		memcpy(s + offsetof(struct loc_super, crc), &crc, 4);
	} else if (off < table_end) {
		struct loc_slot *s = (struct loc_slot *)(work + (off & ~63ull));
		struct loc_file f = { 0 };
		uint32_t seed[5] = { 0 };

		memcpy(seed, work + offsetof(struct loc_super, uuid), 16);
		f.crc_seed = kvb_crc32c(0, seed, sizeof(seed));
		s->crc = htole32(loc_slot_crc(&f, (off - 3 * LOC_BLK) / 64, s));
	}
}

static bool stored_once(const unsigned char *p, uint32_t n)
{
	if (!n || (n == 5000 && !memcmp(p, value[5].data, n)))	/* what go_on() stores */
		return true;
	for (unsigned int i = 0; i < NVALUES; i++) {
		if (value[i].len == n && !memcmp(value[i].data, p, n))
			return true;
	}
	return false;
}

static void read_all(bool honest)
{
	static uint8_t keys[64][17];
	static unsigned char back[SIZE + 4096] __attribute__((aligned(4096)));
	struct rig_op ro = { .keys = keys, .max_keys = 64 };

	rig_list(&ro, NULL, 0);
	for (unsigned int i = 0, n = ro.nkeys; i < n; i++) {
		rig_retrieve(&ro, keys[i] + 1, keys[i][0], back, SIZE);
		wait_for(&ro);
		if (ro.status == GKV_SC_SUCCESS)
			CHECK(ro.result <= SIZE && stored_once(back, ro.result));
		else
			CHECK((ro.status & 0x7ff) == GKV_SC_UNRECOVERED);
	}
	for (unsigned int i = 0; honest && i < NVALUES; i++) {
		rig_retrieve(&ro, value[i].key, 3, back, SIZE);
		wait_for(&ro);
		CHECK(ro.status || (ro.result == value[i].len &&
				    !memcmp(back, value[i].data, value[i].len)));
	}
	free(ro.data);
}

static void go_on(void)
{
	static unsigned char back[8192] __attribute__((aligned(4096)));
	struct rig_op ro = { 0 };
	uint16_t st;

	rig_store(&ro, "new", 3, value[5].data, 5000, 0);
	wait_for(&ro);
	st = ro.status;
	CHECK(!st || st == GKV_SC_CAPACITY);
	if (!st) {
		rig_retrieve(&ro, "new", 3, back, 5000);
		wait_for(&ro);
		CHECK(!ro.status && !memcmp(back, value[5].data, 5000));
	}
	for (unsigned int i = 0; i < NVALUES; i++) {
		rig_delete(&ro, value[i].key, 3);
		wait_for(&ro);
		CHECK(!ro.status || ro.status == GKV_SC_KEY_NOT_FOUND);
	}
	free(ro.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	bool fix;

	if (len < 1)
		return 0;
	fix = in[0] & 1;
	memcpy(work, image, SIZE);
	for (size_t i = 1; i + 4 < len;) {
		uint64_t off = (in[i] | in[i + 1] << 8 | in[i + 2] << 16) % SIZE;
		size_t n = 1 + in[i + 3] % 64;

		i += 4;
		if (n > len - i)
			n = len - i;
		if (n > SIZE - off)
			n = SIZE - off;
		memcpy(work + off, in + i, n);
		i += n;
		if (fix) {
			make_right(off);
			make_right(off + n - 1);
		}
	}
	rig_set();
	rig_poke(0, 0, work, SIZE);
	for (int round = 0; round < 2; round++) {
		if (rig_open(NULL)) {
			CHECK(rig.err.text[0]);
			break;
		}
		read_all(!fix && !round);
		if (!round)
			go_on();
		rig_settle();
		rig_close();
	}
	return 0;
}
