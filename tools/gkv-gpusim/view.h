/* SPDX-License-Identifier: MIT */
/*
 * What has been seen of weak memory. Each location's stores are numbered in their order; a
 * view says, for each location, before which of them nothing can be read any more.
 */
#ifndef GKV_GPUSIM_VIEW_H
#define GKV_GPUSIM_VIEW_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct vec {
	uint32_t *ts;
	uint32_t n;
};

/* A view that goes along with a store; never changed, counted. */
struct snap {
	uint32_t refs;
	uint32_t n;
	uint32_t ts[];
};

/* Of one lane: what it has seen, what it would have if it fenced now, what it fenced off. */
struct view {
	struct vec cur;
	struct vec acq;
	struct snap *rel;
};

static inline uint32_t vec_get(const struct vec *v, uint32_t i)
{
	return i < v->n ? v->ts[i] : 0;
}

static inline void vec_grow(struct vec *v, uint32_t n)
{
	uint32_t want = v->n ? v->n : 64;

	if (n <= v->n)
		return;
	while (want < n)
		want *= 2;
	v->ts = realloc(v->ts, want * sizeof(*v->ts));
	if (!v->ts)
		abort();
	memset(v->ts + v->n, 0, (want - v->n) * sizeof(*v->ts));
	v->n = want;
}

static inline void vec_raise(struct vec *v, uint32_t i, uint32_t ts)
{
	vec_grow(v, i + 1);
	if (v->ts[i] < ts)
		v->ts[i] = ts;
}

static inline void vec_join(struct vec *v, const uint32_t *ts, uint32_t n)
{
	vec_grow(v, n);
	for (uint32_t i = 0; i < n; i++)
		v->ts[i] = v->ts[i] > ts[i] ? v->ts[i] : ts[i];
}

static inline struct snap *snap_of(const uint32_t *ts, uint32_t n)
{
	struct snap *s = malloc(sizeof(*s) + n * sizeof(*ts));

	if (!s)
		abort();
	s->refs = 1;
	s->n = n;
	memcpy(s->ts, ts, n * sizeof(*ts));
	return s;
}

static inline struct snap *snap_get(struct snap *s)
{
	if (s)
		s->refs++;
	return s;
}

static inline void snap_put(struct snap *s)
{
	if (s && !--s->refs)
		free(s);
}

#endif
