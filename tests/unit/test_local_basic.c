/* SPDX-License-Identifier: MIT */
/* The local store on its rig: every command and option, sizes, lists, space, superblocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc.h"
#include "local_rig.h"
#include "stores/local/disk.h"

static void begin(uint64_t size)
{
	memset(&rig, 0, sizeof(rig));
	rig.seed = 1;
	rig.reactors = 2;
	rig.file_size = size;
	rig.verify = true;
	rig.defer_copies = true;
	rig_begin();
	assert_int_equal(rig_open(NULL), 0);
}

static void fill(unsigned char *p, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = seed >> 24;
	}
}

static uint16_t store(const char *key, const void *data, uint32_t len, uint8_t opt)
{
	struct rig_op ro = { 0 };

	rig_store(&ro, key, strlen(key), data, len, opt);
	assert_true(rig_wait(&ro));
	return ro.status;
}

static uint16_t delete(const char *key)
{
	struct rig_op ro = { 0 };

	rig_delete(&ro, key, strlen(key));
	assert_true(rig_wait(&ro));
	return ro.status;
}

static uint16_t exist(const char *key)
{
	struct rig_op ro = { 0 };

	rig_exist(&ro, key, strlen(key));
	assert_true(rig_wait(&ro));
	return ro.status;
}

/* Retrieve into @len bytes and compare with what @seed and @vlen say it is. */
static void expect(const char *key, uint32_t vlen, uint32_t seed, uint32_t len)
{
	unsigned char *want = malloc(vlen + 1), *mem = aligned_alloc(4096, (len + 8191) & ~4095u);
	struct rig_op ro = { 0 };
	uint32_t n = len < vlen ? len : vlen;

	assert_non_null(want);
	assert_non_null(mem);
	fill(want, vlen, seed);
	memset(mem, 0xc3, (len + 8191) & ~4095u);
	rig_retrieve(&ro, key, strlen(key), mem, len);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, GKV_SC_SUCCESS);
	assert_int_equal(ro.result, vlen);
	assert_true(ro.has_crc);
	assert_int_equal(ro.crc, kvb_crc32c(0, want, vlen));
	assert_memory_equal(mem, want, n);
	for (uint32_t i = n; i < len + 4096; i++)
		assert_int_equal(mem[i], 0xc3);	/* never past the value */
	/* Whole blocks go straight there; only what is left below a block does not. */
	assert_int_equal(ro.direct + ro.tail, n);
	assert_int_equal(ro.tail, n % 512);
	assert_int_equal(ro.copied, 0);
	free(ro.data);
	free(want);
	free(mem);
}

static void test_commands(void **state)
{
	unsigned char data[5000], other[300];
	struct rig_op ro = { 0 };

	(void)state;
	begin(4 << 20);
	fill(data, sizeof(data), 7);
	fill(other, sizeof(other), 8);
	assert_int_equal(exist("a"), GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(delete("a"), GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(store("a", data, 5000, GKV_STORE_MUST_EXIST), GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(store("a", data, 5000, GKV_STORE_MUST_EXIST | GKV_STORE_MUST_NOT_EXIST),
			 GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(store("a", data, 5000, GKV_STORE_MUST_NOT_EXIST), GKV_SC_SUCCESS);
	assert_int_equal(exist("a"), GKV_SC_SUCCESS);
	expect("a", 5000, 7, 5000);
	assert_int_equal(store("a", other, 300, GKV_STORE_MUST_NOT_EXIST), GKV_SC_KEY_EXISTS);
	assert_int_equal(store("a", other, 300, GKV_STORE_MUST_EXIST | GKV_STORE_MUST_NOT_EXIST),
			 GKV_SC_KEY_EXISTS);
	expect("a", 5000, 7, 5000);
	assert_int_equal(store("a", other, 300, GKV_STORE_MUST_EXIST), GKV_SC_SUCCESS);
	expect("a", 300, 8, 4096);
	assert_int_equal(rig_info().keys, 1);
	rig_flush(&ro);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.status, GKV_SC_SUCCESS);
	assert_int_equal(delete("a"), GKV_SC_SUCCESS);
	assert_int_equal(exist("a"), GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(delete("a"), GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(rig_info().keys, 0);
	rig_settle();
	assert_int_equal(rig_info().used, 0);
	rig_end();
}

static void test_sizes(void **state)
{
	static const uint32_t sizes[] = { 0,    1,     2,	511,	512,	513,	4095,	 4096,
					  4097, 65536, 100000, 1 << 20, 3 << 20, (3 << 20) + 77 };
	unsigned char *data = malloc(4 << 20);
	char key[32];

	(void)state;
	assert_non_null(data);
	begin(32 << 20);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(data, sizes[i], i);
		snprintf(key, sizeof(key), "size-%u", sizes[i]);
		assert_int_equal(store(key, data, sizes[i], 0), GKV_SC_SUCCESS);
	}
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			snprintf(key, sizeof(key), "size-%u", sizes[i]);
			expect(key, sizes[i], i, sizes[i]);
			expect(key, sizes[i], i, sizes[i] + 4096);
			expect(key, sizes[i], i, sizes[i] / 2);	/* too short a buffer */
			expect(key, sizes[i], i, 0);
		}
		rig_close();
		assert_int_equal(rig_open(NULL), 0);
	}
	rig_end();
	free(data);
}

/* Destinations of odd addresses, in many pieces, with bit buckets. */
static void test_scattered(void **state)
{
	uint32_t vlen = 300001;
	unsigned char *data = malloc(vlen), *mem = aligned_alloc(4096, 4 << 20);

	(void)state;
	assert_non_null(data);
	assert_non_null(mem);
	begin(8 << 20);
	fill(data, vlen, 5);
	assert_int_equal(store("v", data, vlen, 0), GKV_SC_SUCCESS);
	for (int round = 0; round < 1000; round++) {
		struct rig_op ro = { 0 };
		uint32_t off = 0, at = 0, len = rig_below(4) ? vlen : 1 + rig_below(vlen);
		uint32_t bucket = 0;

		rig.verify = rig_below(2);
		rig.ns.verify = rig.verify;
		memset(mem, 0xc3, 4 << 20);
		while (off < len) {
			uint32_t n = ro.niov == 15 ? len - off : 1 + rig_below(len - off);
			bool null = rig_below(8) == 0;

			if (rig_below(2) && ro.niov < 15)
				n = n > 4096 ? n & ~4095u : n > 512 ? n & ~511u : n;
			at += rig_below(3) ? -at & 4095 : rig_below(700);
			ro.iov[ro.niov++] = (struct iovec){ null ? NULL : mem + at, n };
			bucket += null ? n : 0;
			off += n;
			at += n + 16;
		}
		rig_retrieve_iov(&ro, "v", 1, len);
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, GKV_SC_SUCCESS);
		assert_int_equal(ro.result, vlen);
		off = 0;
		for (unsigned int i = 0; i < ro.niov; i++) {
			unsigned char *p = ro.iov[i].iov_base;
			size_t n = ro.iov[i].iov_len;

			if (p) {
				assert_memory_equal(p, data + off, n);
				assert_int_equal(p[n], 0xc3);
				memset(p, 0xc3, n);
			}
			off += n;
		}
		for (size_t i = 0; i < at + 4096; i += 8)
			assert_int_equal(*(uint64_t *)(mem + i), 0xc3c3c3c3c3c3c3c3ull);
		if (!rig.verify)
			assert_int_equal(ro.direct + ro.tail, len - bucket);
		free(ro.data);
	}
	rig_end();
	free(data);
	free(mem);
}

static void test_list(void **state)
{
	static uint8_t keys[2000][17], got[64][17];
	unsigned int n = 0, seen = 0;
	struct rig_op ro = { 0 };
	uint8_t start[17] = { 0 };

	(void)state;
	begin(16 << 20);
	while (n < 2000) {
		uint8_t k[17] = { 0 };
		bool dup = false;

		/* Few byte values, so that keys are prefixes of one another. */
		k[0] = 1 + rig_below(16);
		for (unsigned int i = 0; i < k[0]; i++)
			k[1 + i] = rig_below(3) * 127;
		for (unsigned int i = 0; i < n && !dup; i++)
			dup = !memcmp(keys[i], k, 17);
		if (dup)
			continue;
		memcpy(keys[n++], k, 17);
		rig_store(&ro, k + 1, k[0], k, 17, 0);
		assert_true(rig_wait(&ro));
		assert_int_equal(ro.status, GKV_SC_SUCCESS);
	}
	ro.keys = got;
	ro.max_keys = 64;
	for (;;) {
		unsigned int from = seen ? 1 : 0;

		rig_list(&ro, start + 1, start[0]);
		/* The start key is part of the answer. */
		if (from) {
			assert_true(ro.nkeys >= 1);
			assert_memory_equal(got[0], start, 17);
		}
		if (ro.nkeys <= from)
			break;
		for (unsigned int i = from; i < ro.nkeys; i++) {
			bool found = false;

			if (i)
				assert_true(kvb_key_cmp(got[i - 1] + 1, got[i - 1][0], got[i] + 1,
							got[i][0]) < 0);
			for (unsigned int j = 0; j < n && !found; j++)
				found = !memcmp(keys[j], got[i], 17);
			assert_true(found);
			seen++;
		}
		memcpy(start, got[ro.nkeys - 1], 17);
	}
	assert_int_equal(seen, n);
	/* A start key that is absent: the next one. */
	memset(start, 0xff, 17);
	rig_list(&ro, start + 1, 16);
	assert_int_equal(ro.nkeys, 0);
	rig_end();
}

/* Fill to the brim, free every other, fill again with larger values in pieces. */
static void test_fragmented(void **state)
{
	static unsigned char data[64 << 10];
	uint64_t total, avail, old, lost;
	unsigned int n = 0;
	char key[32];
	uint16_t st;

	(void)state;
	begin(4 << 20);
	fill(data, sizeof(data), 3);
	rig_space(&total, &avail, &old, &lost);
	assert_int_equal(avail, total);
	for (;; n++) {
		snprintf(key, sizeof(key), "k%u", n);
		st = store(key, data, 4096, 0);
		if (st)
			break;
	}
	assert_int_equal(st, GKV_SC_CAPACITY);
	assert_int_equal(n, total);	/* really full, whatever shard was dry first */
	for (unsigned int i = 0; i < n; i += 2) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(delete(key), GKV_SC_SUCCESS);
	}
	/* No waiting: a Store that needs the space gets it as soon as flushes allow. */
	for (unsigned int i = 0; i < n / 2 / 16; i++) {
		snprintf(key, sizeof(key), "big%u", i);
		assert_int_equal(store(key, data, sizeof(data), 0), GKV_SC_SUCCESS);
	}
	for (int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < n / 2 / 16; i++) {
			snprintf(key, sizeof(key), "big%u", i);
			expect(key, sizeof(data), 3, sizeof(data));
		}
		for (unsigned int i = 1; i < n; i += 2) {
			snprintf(key, sizeof(key), "k%u", i);
			expect(key, 4096, 3, 4096);
		}
		rig_settle();
		rig_space(&total, &avail, &old, &lost);
		assert_int_equal(old, 0);
		assert_int_equal(lost, 0);
		assert_int_equal(total - avail, n / 2 + n / 2 / 16 * 16);
		rig_close();
		rig.reactors = 3;	/* another number of shards finds everything */
		assert_int_equal(rig_open(NULL), 0);
	}
	/* A value larger than everything, then everything goes. */
	{
		unsigned char *huge = calloc(1, 5 << 20);

		assert_non_null(huge);
		assert_int_equal(store("huge", huge, 5 << 20, 0), GKV_SC_CAPACITY);
		free(huge);
	}
	for (unsigned int i = 1; i < n; i += 2) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(delete(key), GKV_SC_SUCCESS);
	}
	for (unsigned int i = 0; i < n / 2 / 16; i++) {
		snprintf(key, sizeof(key), "big%u", i);
		assert_int_equal(delete(key), GKV_SC_SUCCESS);
	}
	rig_settle();
	rig_space(&total, &avail, &old, &lost);
	assert_int_equal(avail, total);
	rig_end();
}

/* Overwriting in a store that is nearly full goes on for ever. */
static void test_overwrite_full(void **state)
{
	static unsigned char data[200 << 10];
	uint64_t total, avail, old, lost;

	(void)state;
	begin(1 << 20);
	rig_space(&total, &avail, &old, &lost);
	for (unsigned int i = 0; i < 400; i++) {
		uint32_t len = 1 + rig_below(sizeof(data));

		fill(data, len, i);
		assert_int_equal(store(i & 1 ? "x" : "y", data, len, 0), GKV_SC_SUCCESS);
		expect(i & 1 ? "x" : "y", len, i, len);
	}
	rig_settle();
	rig_end();
}

static void test_refusals(void **state)
{
	unsigned char junk[4096];
	char format[] = "format=on";
	const char *const force[] = { format, NULL };

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.seed = 2;
	rig.files = 2;
	rig.file_size = 1 << 20;
	rig_begin();
	memset(junk, 0x55, sizeof(junk));
	rig_poke(1, 512 << 10, junk, 512);	/* somebody's data in the middle */
	assert_int_equal(rig_open(NULL), -EEXIST);
	assert_non_null(strstr(rig.err.text, "not ours"));
	rig_peek(0, 0, junk, 4096);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(junk[i], 0);	/* nothing was touched */
	assert_int_equal(rig_open(force), 0);
	assert_int_equal(store("a", "x", 1, 0), GKV_SC_SUCCESS);
	rig_close();
	/* Asked for again, it formats nothing that is ours already. */
	assert_int_equal(rig_open(force), 0);
	assert_int_equal(exist("a"), GKV_SC_SUCCESS);
	rig_close();
	{	/* members the wrong way round */
		char t[256];

		memcpy(t, rig.paths[0], 256);
		memcpy(rig.paths[0], rig.paths[1], 256);
		memcpy(rig.paths[1], t, 256);
		assert_int_equal(rig_open(NULL), -EINVAL);
		assert_non_null(strstr(rig.err.text, "member"));
		memcpy(rig.paths[1], rig.paths[0], 256);
		assert_int_equal(rig_open(NULL), -EBUSY);	/* twice the same */
		memcpy(rig.paths[0], t, 256);
		rig.files = 1;
		assert_int_equal(rig_open(NULL), -EINVAL);	/* one is missing */
		rig.files = 2;
		snprintf(rig.paths[1], 256, "%s", rig.paths[0]);
		rig.paths[1][strlen(rig.paths[1]) - 1] = '1';
	}
	assert_int_equal(rig_open(NULL), 0);
	rig_end();
}

/* A format that was cut short anywhere is started again. */
static void test_format_cut(void **state)
{
	(void)state;
	for (unsigned int n = 1; n < 40; n++) {
		memset(&rig, 0, sizeof(rig));
		rig.seed = n;
		rig.files = 3;
		rig.file_size = 1 << 20;
		rig_begin();
		rig.fail_pwrite_after = n;
		if (!rig_open(NULL)) {
			rig_end();
			assert_true(n > 10);
			return;
		}
		rig.fail_pwrite_after = 0;
		assert_int_equal(rig_open(NULL), 0);
		assert_int_equal(store("a", "x", 1, 0), GKV_SC_SUCCESS);
		rig_close();
		assert_int_equal(rig_open(NULL), 0);
		assert_int_equal(exist("a"), GKV_SC_SUCCESS);
		rig_end();
	}
	fail_msg("a format takes more than 40 writes");
}

static void test_resolve(void **state)
{
	struct kvb_opid stored, deleted, never = { .uid = 77, .seq = 1 };
	struct rig_op ro = { 0 };

	(void)state;
	begin(4 << 20);
	assert_int_equal(store("gone", "x", 1, 0), GKV_SC_SUCCESS);
	assert_int_equal(store("here", "y", 1, 0), GKV_SC_SUCCESS);
	stored = rig_last_id();
	assert_int_equal(delete("gone"), GKV_SC_SUCCESS);
	deleted = rig_last_id();
	rig_kill();
	assert_int_equal(rig_open(NULL), 0);
	rig_resolve(&ro, "here", 4, stored);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.outcome, KVB_APPLIED);
	rig_resolve(&ro, "gone", 4, deleted);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.outcome, KVB_APPLIED);
	rig_resolve(&ro, "here", 4, never);
	assert_true(rig_wait(&ro));
	assert_int_equal(ro.outcome, KVB_NOT_APPLIED);
	assert_int_equal(exist("gone"), GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(exist("here"), GKV_SC_SUCCESS);
	rig_end();
}

/* What is only queued can be cancelled, and leaves no trace. */
static void test_cancel(void **state)
{
	struct rig_op a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
	static unsigned char big[600 << 10], small[4096];

	(void)state;
	begin(1 << 20);
	fill(small, sizeof(small), 1);
	rig_store(&a, "k", 1, small, 4096, 0);
	rig_store(&b, "k", 1, small, 100, 0);
	rig_store(&c, "k", 1, small, 200, 0);
	assert_false(rig_cancel(&a));	/* its writes are under way */
	assert_true(rig_cancel(&b));
	assert_int_equal(b.status, KVB_TIMED_OUT);
	assert_true(rig_wait(&a) && rig_wait(&c));
	assert_int_equal(a.status, GKV_SC_SUCCESS);
	assert_int_equal(c.status, GKV_SC_SUCCESS);
	expect("k", 200, 1, 200);
	assert_int_equal(store("big", big, sizeof(big), 0), GKV_SC_SUCCESS);
	assert_int_equal(delete("big"), GKV_SC_SUCCESS);
	rig_store(&d, "big", 3, big, sizeof(big), 0);	/* waits for the units just freed */
	assert_false(d.done);
	assert_true(rig_cancel(&d));
	assert_int_equal(d.status, KVB_TIMED_OUT);
	rig_settle();
	assert_int_equal(store("big", big, sizeof(big), 0), GKV_SC_SUCCESS);
	rig_settle();
	rig_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commands),       cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_scattered),      cmocka_unit_test(test_list),
		cmocka_unit_test(test_fragmented),     cmocka_unit_test(test_overwrite_full),
		cmocka_unit_test(test_refusals),       cmocka_unit_test(test_format_cut),
		cmocka_unit_test(test_resolve),	       cmocka_unit_test(test_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
