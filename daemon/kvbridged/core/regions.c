/* SPDX-License-Identifier: MIT */
/* Lookup tables of a session's regions. */
#include "regions.h"

#include <errno.h>
#include <stdlib.h>

/* Commands of one client tend to stay in one region. Only a guess, checked at each use. */
static _Thread_local uint32_t last_hit;

static int cmp_iova(const void *a, const void *b)
{
	const struct kvb_span *x = a, *y = b;

	return (x->iova > y->iova) - (x->iova < y->iova);
}

static int cmp_addr(const void *a, const void *b, void *arg)
{
	const struct kvb_span *spans = arg;
	uintptr_t x = (uintptr_t)spans[*(const uint32_t *)a].addr;
	uintptr_t y = (uintptr_t)spans[*(const uint32_t *)b].addr;

	return (x > y) - (x < y);
}

static bool spans_valid(const struct kvb_span *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!s[i].len || !s[i].addr || !s[i].owner)
			return false;
		if (s[i].iova + (s[i].len - 1) < s[i].iova)
			return false;
		if ((s[i].iova ^ (uintptr_t)s[i].addr) & 7)
			return false;
		if (i && s[i].iova - s[i - 1].iova < s[i - 1].len)
			return false;
	}
	return true;
}

struct kvb_regions *kvb_regions_build(const struct kvb_span *spans, uint32_t n)
{
	struct kvb_regions *t;
	uint32_t *by_addr;

	t = malloc(sizeof(*t) + n * (sizeof(t->spans[0]) + sizeof(*by_addr)));
	if (!t)
		return NULL;
	atomic_init(&t->refs, 1);
	t->n = n;
	t->priv = NULL;
	by_addr = (uint32_t *)(t->spans + n);
	t->by_addr = by_addr;
	for (uint32_t i = 0; i < n; i++) {
		t->spans[i] = spans[i];
		by_addr[i] = i;
	}
	qsort(t->spans, n, sizeof(t->spans[0]), cmp_iova);
	if (!spans_valid(t->spans, n)) {
		free(t);
		errno = EINVAL;
		return NULL;
	}
	qsort_r(by_addr, n, sizeof(*by_addr), cmp_addr, t->spans);
	return t;
}

void kvb_regions_free(struct kvb_regions *t)
{
	free(t);
}

const struct kvb_span *kvb_regions_span(const struct kvb_regions *t, uint64_t iova)
{
	const struct kvb_span *s = t->spans;
	uint32_t n = t->n;

	if (last_hit < n && iova - s[last_hit].iova < s[last_hit].len)
		return &s[last_hit];
	if (!n)
		return NULL;
	/* To the last span that starts at or below @iova, without branches to mispredict. */
	while (n > 1) {
		uint32_t half = n / 2;

		s += s[half].iova <= iova ? half : 0;
		n -= half;
	}
	if (iova - s->iova >= s->len)
		return NULL;
	last_hit = (uint32_t)(s - t->spans);
	return s;
}

void *kvb_regions_find(const struct kvb_regions *t, uint64_t iova, uint64_t len, bool write,
		       uint64_t *avail)
{
	const struct kvb_span *s = kvb_regions_span(t, iova);
	uint64_t off;

	*avail = 0;
	if (!s || (write && (s->flags & KVB_SPAN_RDONLY)))
		return NULL;
	off = iova - s->iova;
	*avail = s->len - off < len ? s->len - off : len;
	return (char *)s->addr + off;
}

static const struct kvb_span *span_of_addr(const struct kvb_regions *t, const void *p)
{
	uint32_t lo = 0, hi = t->n;
	const struct kvb_span *s;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if ((uintptr_t)t->spans[t->by_addr[mid]].addr <= (uintptr_t)p)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	s = &t->spans[t->by_addr[lo - 1]];
	return (uintptr_t)p - (uintptr_t)s->addr < s->len ? s : NULL;
}

/* Data reads before, reads of "dead" after. x86 needs to tell only the compiler. */
static inline void read_barrier(void)
{
#ifdef __x86_64__
	atomic_signal_fence(memory_order_acq_rel);
#else
	atomic_thread_fence(memory_order_acquire);
#endif
}

bool kvb_regions_alive(const struct kvb_regions *t, const struct iovec *v, uint32_t n)
{
	const struct kvb_span *s = NULL;

	read_barrier();
	for (uint32_t i = 0; i < n; i++) {
		uintptr_t p = (uintptr_t)v[i].iov_base;

		if (!p || !v[i].iov_len)
			continue;
		if (!s || p - (uintptr_t)s->addr >= s->len) {
			s = span_of_addr(t, v[i].iov_base);
			if (!s)
				return false;
			if (atomic_load_explicit(&s->owner->dead, memory_order_acquire))
				return false;
		}
	}
	return true;
}

/* Whether the bit @index of a word of theirs is @set in any of the regions of the pieces. */
static bool any_region(const struct kvb_regions *t, const struct iovec *v, uint32_t n,
		       size_t word, unsigned int index, bool set)
{
	const struct kvb_span *s = NULL;

	for (uint32_t i = 0; i < n; i++) {
		uintptr_t p = (uintptr_t)v[i].iov_base;
		const _Atomic uint64_t *bits;

		if (!p || !v[i].iov_len || (s && p - (uintptr_t)s->addr < s->len))
			continue;
		s = span_of_addr(t, v[i].iov_base);
		if (!s)
			continue;
		bits = (const void *)((const char *)s->owner + word);
		if ((atomic_load_explicit(bits, memory_order_relaxed) >> index & 1) == set)
			return true;
	}
	return false;
}

bool kvb_regions_bounce(const struct kvb_regions *t, const struct iovec *v, uint32_t n,
			unsigned int index)
{
	return any_region(t, v, n, offsetof(struct kvb_region, bounce), index, true);
}

bool kvb_regions_fetch(const struct kvb_regions *t, const struct iovec *v, uint32_t n,
		       unsigned int index)
{
	return !any_region(t, v, n, offsetof(struct kvb_region, fetch), index, false);
}
