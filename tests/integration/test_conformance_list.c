/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 300 */
/*
 * List: order, start key, pages of any size, on each store.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

#define NKEYS 600u
#define MAX_HBS 65536u
#define GUARD 256u

/* In the order in which the store lists them. */
static struct suite_key keys[NKEYS];

static int key_order(const void *pa, const void *pb)
{
	const struct suite_key *a = pa, *b = pb;
	int c = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);

	return c ? c : (int)a->len - (int)b->len;
}

/* Distinct keys of every length, some with NULs, many with common prefixes. */
static void make_keys(void)
{
	unsigned int n = 0;
	uint32_t x = 12345;

	while (n < NKEYS) {
		struct suite_key k = { .len = (uint8_t)(1 + n % 16) };
		bool seen = false;

		for (unsigned int i = 0; i < k.len; i++) {
			x = x * 1664525 + 1013904223;
			k.bytes[i] = (uint8_t)(i < 2 ? x >> 28 : x >> 24);
		}
		/* There are only so many keys of one byte. */
		if (k.len == 1)
			k.bytes[0] = (uint8_t)n;
		for (unsigned int i = 0; i < n && !seen; i++)
			seen = !key_order(&keys[i], &k);
		keys[n] = seen ? suite_key("dup%u", n) : k;
		n++;
	}
	qsort(keys, NKEYS, sizeof(keys[0]), key_order);
}

/* One List into @hbs bytes at s->buf, poisoned before; fails on anything past the result. */
static bool list_page(struct suite *s, const struct suite_key *start, uint32_t hbs,
		      struct suite_key *out, uint32_t *n)
{
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	size_t pos = 0;
	uint32_t count;
	int more;

	poison(s->buf, hbs + GUARD);
	suite_cmd(&cmd, GKV_LIST, SUITE_NSID_OTHER, start);
	cmd.buf = s->buf;
	cmd.len = hbs;
	comp = suite_run(s->qp, &cmd);
	if (comp.status || comp.result) {
		tap_diag("List into %u bytes: status %x, DW0 %u", hbs, comp.status, comp.result);
		return false;
	}
	*n = 0;
	while ((more = gkv_list_next(s->buf, hbs, &pos, out[*n].bytes, &out[*n].len)) == 1)
		(*n)++;
	memcpy(&count, s->buf, 4);
	count = le32toh(count);
	if (more || count != *n) {
		tap_diag("List into %u bytes: malformed after %u of %u keys", hbs, *n, count);
		return false;
	}
	/* Only the count and whole entries are transferred. */
	pos = GKV_LIST_HDR_SIZE;
	for (uint32_t i = 0; i < *n; i++)
		pos += GKV_LIST_ENTRY_SIZE(out[i].len);
	return poisoned(s->buf + pos, hbs + GUARD - pos);
}

/*
 * Walk the whole namespace in pages of @hbs bytes, each starting at the last key of the
 * one before. Every page must hold as many keys as fit.
 */
static bool walk(struct suite *s, uint32_t hbs)
{
	static struct suite_key page[MAX_HBS / 4];
	unsigned int at = 0;	/* keys seen */
	struct suite_key start = { 0 };
	uint32_t n;

	for (;;) {
		unsigned int first = at ? at - 1 : 0, expect = 0;
		size_t bytes = GKV_LIST_HDR_SIZE;

		if (!list_page(s, &start, hbs, page, &n))
			return false;
		while (first + expect < NKEYS &&
		       bytes + GKV_LIST_ENTRY_SIZE(keys[first + expect].len) <= hbs)
			bytes += GKV_LIST_ENTRY_SIZE(keys[first + expect++].len);
		if (n != expect) {
			tap_diag("HBS %u, key %u: %u keys, not %u", hbs, first, n, expect);
			return false;
		}
		for (uint32_t i = 0; i < n; i++) {
			if (key_order(&page[i], &keys[first + i])) {
				tap_diag("HBS %u: key %u is another one", hbs, first + i);
				return false;
			}
		}
		at = first + n;
		if (at == NKEYS && n == 1)
			return true;
		start = keys[at - 1];
	}
}

static void test_empty(struct suite *s)
{
	static struct suite_key page[16];
	struct suite_key start = suite_key("x");
	uint32_t n;
	bool ok;

	ok = list_page(s, NULL, 4096, page, &n) && n == 0;
	ok = ok && list_page(s, &start, 4096, page, &n) && n == 0;
	ok = ok && list_page(s, NULL, 4, page, &n) && n == 0;
	tap_ok(ok, "%s: an empty namespace lists nothing", s->store);
}

/*
 * A cluster has an order of its own: whatever one long listing shows, every other must follow.
 * The keys themselves must be those that were stored.
 */
static bool learn_order(struct suite *s)
{
	static struct suite_key page[MAX_HBS / 4], sorted[NKEYS];
	uint32_t n;

	if (strcmp(s->store, "rados"))
		return true;
	if (!list_page(s, NULL, MAX_HBS, page, &n) || n != NKEYS)
		return false;
	memcpy(sorted, page, sizeof(sorted));
	qsort(sorted, NKEYS, sizeof(sorted[0]), key_order);
	for (unsigned int i = 0; i < NKEYS; i++) {
		if (key_order(&sorted[i], &keys[i]))
			return false;
	}
	memcpy(keys, page, sizeof(keys));
	return true;
}

static void test_pages(struct suite *s)
{
	/* Two of the longest entries are the least that makes progress. */
	static const uint32_t sizes[] = { 44, 45, 46, 47, 48, 63, 100, 511, 512, 1000, 4095, 4096,
					  4097, 20000, MAX_HBS };
	static struct suite_key page[MAX_HBS / 4];
	uint32_t n;
	bool ok = true;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && ok; i++)
		ok = walk(s, sizes[i]);
	tap_ok(ok, "%s: pages of any size, inclusive start, full, in one order, no wrap", s->store);

	ok = list_page(s, NULL, 4, page, &n) && n == 0;
	for (uint32_t hbs = 4; hbs < 60 && ok; hbs++)
		ok = list_page(s, NULL, hbs, page, &n);
	tap_ok(ok, "%s: buffers for no key, and for a few: success and nothing past them",
	       s->store);

	ok = true;
	for (int i = 0; i < 3; i++)
		ok = ok && walk(s, 777);
	tap_ok(ok, "%s: the order is the same every time", s->store);
}

/* Where an order is not known beforehand: delete a key, begin there, put it back. */
static void test_missing_start(struct suite *s)
{
	static struct suite_key page[MAX_HBS / 4];
	bool ok = true;
	uint32_t n;

	for (unsigned int i = 0; i < NKEYS && ok; i += 5) {
		ok = suite_delete(s, SUITE_NSID_OTHER, &keys[i]) == 0;
		ok = ok && list_page(s, &keys[i], 64, page, &n);
		ok = ok && (i + 1 == NKEYS ? n == 0 : n > 0 && !key_order(&page[0], &keys[i + 1]));
		ok = ok && suite_store(s, SUITE_NSID_OTHER, &keys[i], s->buf, i % 50, 0) == 0;
		if (!ok)
			tap_diag("a start key that key %u was: %u keys", i, n);
	}
	tap_ok(ok, "%s: a missing start key is followed by the next one in order", s->store);
}

static void test_start_keys(struct suite *s)
{
	static struct suite_key page[MAX_HBS / 4];
	struct suite_key k;
	bool ok = true;
	uint32_t n;

	for (unsigned int i = 0; i < NKEYS && ok; i += 7) {
		ok = list_page(s, &keys[i], 64, page, &n) && n > 0 && !key_order(&page[0], &keys[i]);
	}
	tap_ok(ok, "%s: a start key that exists comes first", s->store);

	if (!strcmp(s->store, "rados")) {
		test_missing_start(s);
		return;
	}
	for (unsigned int i = 0; i < NKEYS && ok; i += 5) {
		unsigned int next = 0;

		/* A key between this one and its successor, if there is room for one. */
		k = keys[i];
		if (k.len == 16)
			k.bytes[15]++;
		else
			k.len++;
		if (k.len == 16 && k.bytes[15] == 0)
			continue;
		while (next < NKEYS && key_order(&keys[next], &k) < 0)
			next++;
		ok = list_page(s, &k, 64, page, &n);
		ok = ok && (next == NKEYS ? n == 0 : n > 0 && !key_order(&page[0], &keys[next]));
		if (!ok)
			tap_diag("a start key after key %u: %u keys, should begin at %u", i, n, next);
	}
	tap_ok(ok, "%s: a missing start key is followed by the next one in order", s->store);

	memset(&k, 0xff, sizeof(k));
	k.len = 16;
	ok = list_page(s, &k, 4096, page, &n) && n == 0;
	tap_ok(ok, "%s: a start key after the last one lists nothing", s->store);
}

static void test_changes(struct suite *s)
{
	static struct suite_key page[MAX_HBS / 4];
	struct suite_key k = keys[NKEYS / 2];
	uint32_t n = 0, all = 0;
	bool ok;

	ok = list_page(s, NULL, MAX_HBS, page, &all) && all == NKEYS;
	ok = ok && suite_delete(s, SUITE_NSID_OTHER, &k) == 0;
	ok = ok && list_page(s, NULL, MAX_HBS, page, &n) && n == NKEYS - 1;
	for (uint32_t i = 0; i < n && ok; i++)
		ok = key_order(&page[i], &k) != 0;
	tap_ok(ok, "%s: a deleted key is not listed", s->store);

	ok = suite_store(s, SUITE_NSID_OTHER, &k, s->buf, 10, 0) == 0 &&
	     suite_store(s, SUITE_NSID_OTHER, &k, s->buf, 9, 0) == 0;
	ok = ok && walk(s, 4096);
	tap_ok(ok, "%s: a key stored twice is listed once", s->store);
}

/* F101: no state outlives a List; a session that lists for ever costs the same. */
static void test_many(struct suite *s)
{
	static struct suite_key page[MAX_HBS / 4];
	bool ok = true;
	uint32_t n;

	for (unsigned int i = 0; i < 2000 && ok; i++)
		ok = list_page(s, &keys[i % NKEYS], 44, page, &n) && n > 0;
	tap_ok(ok, "%s: F101: 2,000 abandoned listings", s->store);
}

int main(void)
{
	const char *store;

	make_keys();
	while ((store = suite_next_store())) {
		struct suite s;
		bool ok = true;

		suite_start(&s, store, NULL);
		test_empty(&s);
		for (unsigned int k = 0; k < NKEYS && ok; k++)
			ok = suite_store(&s, SUITE_NSID_OTHER, &keys[(k * 77) % NKEYS], s.buf,
					 k % 50, GKV_O_MUST_NOT_EXIST) == 0;
		if (tap_ok(ok && learn_order(&s), "%s: %u keys stored", s.store, NKEYS)) {
			test_pages(&s);
			test_start_keys(&s);
			test_changes(&s);
			test_many(&s);
		}
		suite_stop(&s);
	}
	return tap_done();
}
