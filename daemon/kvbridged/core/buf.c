/* SPDX-License-Identifier: MIT */
#include "core/buf.h"

#include <sys/mman.h>

/*
 * A header page in front of each buffer keeps the buffer itself aligned. Buffers of
 * 2 MiB and more ask for huge pages: faulting 64 MiB in 4 KiB steps costs more than
 * copying it.
 */
#define BUF_HDR 4096
#define HUGE_MIN (2u << 20)

struct buf_hdr {
	size_t map_len;
	unsigned int class;
	int disowned;
};

struct kvb_buf_free {
	struct kvb_buf_free *next;
};

static struct buf_hdr *hdr_of(const void *buf)
{
	return (struct buf_hdr *)((char *)(uintptr_t)buf - BUF_HDR);
}

static unsigned int class_of(size_t len)
{
	unsigned int c = 0;

	while (((size_t)1 << (c + KVB_BUF_MIN_SHIFT)) < len)
		c++;
	return c;
}

static size_t class_len(unsigned int class)
{
	return (size_t)1 << (class + KVB_BUF_MIN_SHIFT);
}

void kvb_bufs_init(struct kvb_bufs *b, size_t budget)
{
	*b = (struct kvb_bufs){ .budget = budget };
	for (unsigned int i = 0; i < KVB_BUF_FLOWS; i++)
		b->flows[i].tail = &b->flows[i].head;
}

void kvb_buf_unmap(void *buf)
{
	struct buf_hdr *h = hdr_of(buf);

	munmap(h, h->map_len);
}

static void trim(struct kvb_bufs *b)
{
	for (unsigned int c = 0; c < KVB_BUF_CLASSES; c++) {
		while (b->free[c]) {
			struct kvb_buf_free *f = b->free[c];

			b->free[c] = f->next;
			kvb_buf_unmap(f);
		}
	}
	b->cached = 0;
}

void kvb_bufs_destroy(struct kvb_bufs *b)
{
	trim(b);
}

static void *map_new(unsigned int class)
{
	size_t len = class_len(class) + BUF_HDR;
	struct buf_hdr *h;
	char *map;

	/* Large buffers: align so that huge pages fit, header page just before. */
	if (class_len(class) >= HUGE_MIN) {
		size_t span = class_len(class) + HUGE_MIN + BUF_HDR;
		uintptr_t start, buf;

		map = mmap(NULL, span, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (map == MAP_FAILED)
			return NULL;
		start = (uintptr_t)map;
		buf = (start + BUF_HDR + HUGE_MIN - 1) & ~(uintptr_t)(HUGE_MIN - 1);
		if (buf - BUF_HDR > start)
			munmap(map, buf - BUF_HDR - start);
		if (start + span > buf + class_len(class))
			munmap((char *)buf + class_len(class),
			       start + span - buf - class_len(class));
		madvise((void *)buf, class_len(class), MADV_HUGEPAGE);
		h = (struct buf_hdr *)(buf - BUF_HDR);
	} else {
		map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map == MAP_FAILED)
			return NULL;
		h = (struct buf_hdr *)map;
	}
	h->map_len = len;
	h->class = class;
	return (char *)h + BUF_HDR;
}

void *kvb_bufs_alloc(struct kvb_bufs *b, size_t len)
{
	unsigned int class = class_of(len);
	size_t size = class_len(class);
	void *buf;

	if (b->out + size > b->budget || (b->busy_flows && !b->serving))
		return NULL;
	if (b->free[class]) {
		struct kvb_buf_free *f = b->free[class];

		b->free[class] = f->next;
		b->cached -= size;
		buf = f;
	} else {
		/* What is cached in other classes counts too: give it back first. */
		if (b->out + b->cached + size > b->budget)
			trim(b);
		buf = map_new(class);
		if (!buf)
			return NULL;
	}
	hdr_of(buf)->disowned = 0;
	b->out += size;
	return buf;
}

/* The first flow with waiters after the one that was served last. */
static unsigned int next_flow(const struct kvb_bufs *b)
{
	uint64_t later = b->flow + 1 < KVB_BUF_FLOWS ? b->busy_flows >> (b->flow + 1) : 0;

	if (later)
		return b->flow + 1 + (unsigned int)__builtin_ctzll(later);
	return (unsigned int)__builtin_ctzll(b->busy_flows);
}

static void enqueue(struct kvb_bufs *b, struct kvb_buf_waiter *w)
{
	unsigned int flow = w->flow % KVB_BUF_FLOWS;

	w->next = NULL;
	*b->flows[flow].tail = w;
	b->flows[flow].tail = &w->next;
	b->busy_flows |= 1ull << flow;
}

static void fix_flow(struct kvb_bufs *b, unsigned int flow)
{
	if (b->flows[flow].head)
		return;
	b->flows[flow].tail = &b->flows[flow].head;
	b->busy_flows &= ~(1ull << flow);
}

/*
 * A waiter that is served may finish at once and free its buffer, which leads back here:
 * the outer loop goes on instead of the stack growing with the queue.
 */
static void serve_waiters(struct kvb_bufs *b)
{
	if (b->serving)
		return;
	b->serving = true;
	while (b->busy_flows) {
		unsigned int flow = next_flow(b);
		struct kvb_buf_waiter *w = b->flows[flow].head;

		/* Its turn does not pass: memory gathers for it until it fits. */
		if (b->out + class_len(class_of(w->len)) > b->budget)
			break;
		b->flows[flow].head = w->next;
		fix_flow(b, flow);
		b->flow = flow;
		w->fn(w);
		/* It waits again: the system has no memory, though the budget has. */
		if (b->flows[flow].tail == &w->next)
			break;
	}
	b->serving = false;
}

void kvb_bufs_free(struct kvb_bufs *b, void *buf)
{
	struct buf_hdr *h = hdr_of(buf);
	size_t size = class_len(h->class);
	struct kvb_buf_free *f = buf;

	if (!h->disowned)
		b->out -= size;
	if (b->out + b->cached + size > b->budget) {
		kvb_buf_unmap(buf);
	} else {
		f->next = b->free[h->class];
		b->free[h->class] = f;
		b->cached += size;
	}
	serve_waiters(b);
}

void kvb_bufs_disown(struct kvb_bufs *b, void *buf)
{
	struct buf_hdr *h = hdr_of(buf);

	if (h->disowned)
		return;
	h->disowned = 1;
	b->out -= class_len(h->class);
	serve_waiters(b);
}

size_t kvb_buf_size(const void *buf)
{
	return class_len(hdr_of(buf)->class);
}

void kvb_bufs_wait(struct kvb_bufs *b, struct kvb_buf_waiter *w)
{
	enqueue(b, w);
	kvb_count(&b->waits, 1);
	/* Nothing is lent that could come back: whoever waits does so for the system. */
	if (!b->out)
		serve_waiters(b);
}

void kvb_bufs_unwait(struct kvb_bufs *b, struct kvb_buf_waiter *w)
{
	unsigned int flow = w->flow % KVB_BUF_FLOWS;

	for (struct kvb_buf_waiter **p = &b->flows[flow].head; *p; p = &(*p)->next) {
		if (*p != w)
			continue;
		*p = w->next;
		if (!w->next)
			b->flows[flow].tail = p;
		fix_flow(b, flow);
		break;
	}
	/* The others may have waited for it only. */
	serve_waiters(b);
}
