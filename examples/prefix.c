/* SPDX-License-Identifier: MIT */
/*
 * prefix.h on a processor, one lane: stores the first blocks of a prompt as if computed before,
 * fetches all of it into pages in random order, checks them, and says how far it got.
 *	prefix [BLOCKS [STORED [QUEUE DEPTH]]]
 */
#include <gkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefix.h"

#define TOKENS		256u		/* in a block */
#define PAGE_LEN	65536u

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gkv_error());
	return 1;
}

static uint8_t byte_of(uint32_t block, uint32_t i)
{
	return (uint8_t)((block + 1) * 2654435761u >> 8 ^ i * 40503u >> 7);
}

/* A key names all tokens up to the end of its block: here, by a number for the prompt. */
static void make_keys(uint64_t *keys, uint32_t n)
{
	uint64_t prompt = gkvd_clock() | 1;

	for (uint32_t i = 0; i < n; i++) {
		keys[2 * i] = prompt;
		keys[2 * i + 1] = i;
	}
}

static int store(struct gkv_dev_queue *q, const struct prefix *p, uint32_t n, uint8_t *page)
{
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;

	for (uint32_t b = 0; b < n; b++) {
		for (uint32_t i = 0; i < p->page_len; i++)
			page[i] = byte_of(b, i);
		c = gkv_dev_store(p->nsid, p->keys[2 * b], p->keys[2 * b + 1], 16, p->pages,
				  p->page_len);
		if (gkv_dev_exec(q, &c, 0, &r) != GKV_DEV_DONE || r.status)
			return -1;
	}
	memset(page, 0, p->page_len);
	return 0;
}

static uint32_t wrong(const struct prefix *p, const uint8_t *pages, uint32_t n)
{
	uint32_t bad = 0;

	for (uint32_t b = 0; b < n; b++) {
		const uint8_t *page = pages + (size_t)p->table[b] * p->page_len;

		for (uint32_t i = 0; i < p->page_len; i++) {
			if (page[i] != byte_of(b, i)) {
				bad++;
				break;
			}
		}
	}
	return bad;
}

int main(int argc, char **argv)
{
	uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 200;
	uint32_t stored = argc > 2 ? (uint32_t)atoi(argv[2]) : 150;
	struct gkv_qp_opts o = { .size = sizeof(o), .flags = GKV_QP_POLLED,
				 .depth = argc > 3 ? (uint32_t)atoi(argv[3]) : 128 };
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct prefix p = { .n_blocks = n, .page_len = PAGE_LEN };
	uint32_t *table = calloc(n, sizeof(*table)), got, bad;
	uint64_t *keys = calloc(n, 16), start;
	struct gkv_dev_queue *q;
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv *g;

	if (!n || !table || !keys)
		return 1;
	if (gkv_connect(&g, NULL, 0, 0) || gkv_ns_open(g, NULL, 0, &ns) ||
	    gkv_mem_alloc(g, (size_t)n * PAGE_LEN, &mem) || gkv_qp_create(g, &o, &qp) ||
	    gkv_qp_device(qp, &d))
		return failed("session");
	q = aligned_alloc(128, gkv_dev_queue_size(d.depth));
	p.cmds = calloc(n, sizeof(*p.cmds));
	p.tokens = calloc(n, sizeof(*p.tokens));
	p.results = calloc(n, sizeof(*p.results));
	if (!q || !p.cmds || !p.tokens || !p.results || gkv_dev_queue_init(q, &d))
		return 1;
	make_keys(keys, n);
	for (uint32_t i = 0; i < n; i++)
		table[i] = i;
	for (uint32_t i = n - 1; i; i--) {
		uint32_t j = (uint32_t)rand() % (i + 1), t = table[i];

		table[i] = table[j];
		table[j] = t;
	}
	p.nsid = ns.nsid;
	p.keys = keys;
	p.table = table;
	p.pages = gkv_mem_iova(mem);
	if (store(q, &p, stored < n ? stored : n, gkv_mem_addr(mem)))
		return fprintf(stderr, "cannot store\n"), 1;
	start = gkvd_clock();
	got = prefix_fetch(q, 1, &p);
	start = gkvd_clock() - start;
	bad = wrong(&p, gkv_mem_addr(mem), got);
	printf("%u of %u blocks before the first miss, %u tokens, %.2f ms; %u are not what was "
	       "stored\n", got, n, got * TOKENS, (double)start / 1e6, bad);
	/* The session's memory goes with it; its commands are dropped first. */
	if (gkv_qp_destroy(qp))
		return failed("queue pair");
	gkv_close(g);
	return bad || got != (stored < n ? stored : n);
}
