/* SPDX-License-Identifier: MIT */
/* Walking PRP and SGL lists in memory that the client may change meanwhile. */
#include "dptr.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "core/bar.h"

#define PAGE_MASK	((uint64_t)KVB_PRP_PAGE - 1)
#define BAD_ADDRESS	(GKV_SC_DATA_TRANSFER | GKV_DNR)

enum { PRP1, PRP2, PRP_LIST, SGL1, SGL_SEGMENT };

void kvb_segs_free(struct kvb_segs *s)
{
	if (s->v != s->first)
		free(s->v);
	s->v = s->first;
	s->n = 0;
}

static bool grow(struct kvb_segs *s, uint64_t left)
{
	/* Most lists are of whole pages: then one growth suffices. */
	uint64_t cap = s->cap + left / KVB_PRP_PAGE + 2;
	struct iovec *v;

	if (cap < 2ull * s->cap)
		cap = 2ull * s->cap;
	v = realloc(s->v == s->first ? NULL : s->v, cap * sizeof(*v));
	if (!v)
		return false;
	if (s->v == s->first && s->n)
		memcpy(v, s->first, s->n * sizeof(*v));
	s->v = v;
	s->cap = (uint32_t)cap;
	return true;
}

static inline bool in_span(const struct kvb_span *s, uint64_t iova)
{
	return s && iova - s->iova < s->len;
}

static inline bool is_dead(const struct kvb_span *s)
{
	return atomic_load_explicit(&s->owner->dead, memory_order_acquire);
}

static inline uint16_t append(struct kvb_dptr *w, struct kvb_segs *out, void *base, uint64_t len)
{
	if (out->n == out->cap && !grow(out, w->left))
		return GKV_SC_INTERNAL;
	out->v[out->n].iov_base = base;
	out->v[out->n].iov_len = len;
	out->n++;
	w->left -= len;
	return 0;
}

/* The next @len bytes of the transfer are at @iova. */
static uint16_t add_data(struct kvb_dptr *w, struct kvb_segs *out, uint64_t iova, uint64_t len)
{
	while (len) {
		const struct kvb_span *s = w->data;
		struct iovec *prev = out->n ? &out->v[out->n - 1] : NULL;
		uint64_t off, take;
		uint16_t status;
		char *at;

		if (!in_span(s, iova)) {
			s = kvb_regions_span(w->regions, iova);
			if (!s || (w->to_client && (s->flags & KVB_SPAN_RDONLY)) || is_dead(s))
				return BAD_ADDRESS;
			if ((s->flags & KVB_SPAN_VRAM) != w->place)
				return GKV_SC_INVALID_CMB | GKV_DNR;
			w->data = s;
			prev = NULL;
		}
		off = iova - s->iova;
		take = s->len - off < len ? s->len - off : len;
		at = (char *)s->addr + off;
		if (prev && prev->iov_base && (char *)prev->iov_base + prev->iov_len == at) {
			prev->iov_len += take;
			w->left -= take;
		} else {
			status = append(w, out, at, take);
			if (status)
				return status;
		}
		iova += take;
		len -= take;
	}
	return 0;
}

static uint16_t add_bucket(struct kvb_dptr *w, struct kvb_segs *out, uint64_t len)
{
	if (!len)
		return 0;
	if (out->n && !out->v[out->n - 1].iov_base) {
		out->v[out->n - 1].iov_len += len;
		w->left -= len;
		return 0;
	}
	return append(w, out, NULL, len);
}

/* Read one little-endian qword of a list, once. @iova is qword aligned. */
static inline uint16_t fetch(struct kvb_dptr *w, uint64_t iova, uint64_t *val)
{
	const struct kvb_span *s = w->list;
	const uint64_t *p;

	if (!in_span(s, iova)) {
		s = kvb_regions_span(w->regions, iova);
		if (!s)
			return BAD_ADDRESS;
		w->list = s;
		/* Its writer put it there before it rang. */
		if (s->flags & KVB_SPAN_VRAM)
			kvb_bar_acquire();
	}
	if (s->len - (iova - s->iova) < sizeof(*p))
		return BAD_ADDRESS;
	p = (const uint64_t *)((const char *)s->addr + (iova - s->iova));
	*val = le64toh(__atomic_load_n(p, __ATOMIC_RELAXED));
	/* If the page vanished, what was read is not the client's. */
	return is_dead(s) ? BAD_ADDRESS : 0;
}

static uint16_t prp_page(struct kvb_dptr *w, struct kvb_segs *out, uint64_t prp)
{
	if (prp & PAGE_MASK)
		return GKV_SC_PRP_OFFSET;
	return add_data(w, out, prp, w->left < KVB_PRP_PAGE ? w->left : KVB_PRP_PAGE);
}

static void prp_list_at(struct kvb_dptr *w, uint64_t iova)
{
	w->next = iova;
	w->in_seg = (KVB_PRP_PAGE - (iova & PAGE_MASK)) / sizeof(uint64_t);
	w->state = PRP_LIST;
}

static uint16_t prp_list_entry(struct kvb_dptr *w, struct kvb_segs *out)
{
	uint64_t entry;
	uint16_t status = fetch(w, w->next, &entry);

	if (status)
		return status;
	/* The last entry of a page leads on, unless it is the last of all. */
	if (w->in_seg == 1 && w->left + w->beyond > KVB_PRP_PAGE) {
		if (entry & PAGE_MASK)
			return GKV_SC_PRP_OFFSET;
		prp_list_at(w, entry);
		return 0;
	}
	w->next += sizeof(entry);
	w->in_seg--;
	return prp_page(w, out, entry);
}

static uint16_t prp_step(struct kvb_dptr *w, struct kvb_segs *out)
{
	uint64_t room;

	switch (w->state) {
	case PRP1:
		if (w->prp1 & 3)
			return GKV_SC_PRP_OFFSET;
		room = KVB_PRP_PAGE - (w->prp1 & PAGE_MASK);
		w->state = PRP2;
		return add_data(w, out, w->prp1, w->left < room ? w->left : room);
	case PRP2:
		if (w->left + w->beyond <= KVB_PRP_PAGE)
			return prp_page(w, out, w->prp2);
		if (w->prp2 & 7)
			return GKV_SC_PRP_OFFSET;
		prp_list_at(w, w->prp2);
		return 0;
	default:
		return prp_list_entry(w, out);
	}
}

static inline bool wraps(uint64_t addr, uint32_t len)
{
	return len && addr + (len - 1) < addr;
}

/* @final: the descriptor is the last of its segment. */
static uint16_t sgl_desc(struct kvb_dptr *w, struct kvb_segs *out, uint64_t addr, uint32_t len,
			 uint8_t type, bool final)
{
	switch (type) {
	case GKV_SGL_DATA_BLOCK:
		if (wraps(addr, len))
			return GKV_SC_SGL_LENGTH;
		return add_data(w, out, addr, w->left < len ? w->left : len);
	case GKV_SGL_BIT_BUCKET:
		if (w->state == SGL1)
			return GKV_SC_SGL_TYPE;
		if (!w->to_client)
			return 0;
		return add_bucket(w, out, w->left < len ? w->left : len);
	case GKV_SGL_SEGMENT:
	case GKV_SGL_LAST_SEGMENT:
		if (w->last)
			return GKV_SC_SGL_SEGMENT;
		if (!final)
			return GKV_SC_SGL_COUNT;
		if (!len || len % sizeof(struct gkv_sgl_desc) || addr & 7)
			return GKV_SC_SGL_SEGMENT;
		if (wraps(addr, len))
			return GKV_SC_SGL_LENGTH;
		w->last = type == GKV_SGL_LAST_SEGMENT;
		w->next = addr;
		w->in_seg = len / sizeof(struct gkv_sgl_desc);
		w->state = SGL_SEGMENT;
		return 0;
	default:
		return GKV_SC_SGL_TYPE;
	}
}

static uint16_t sgl_step(struct kvb_dptr *w, struct kvb_segs *out)
{
	uint64_t addr, rest;
	uint16_t status;

	if (!w->descs--)
		return GKV_SC_SGL_COUNT;
	if (w->state == SGL1) {
		w->in_seg = 0;
		return sgl_desc(w, out, le64toh(w->desc.addr), le32toh(w->desc.len),
				w->desc.type, true);
	}
	/* Two reads: the halves may be of different versions, but each is one value. */
	status = fetch(w, w->next, &addr);
	if (status)
		return status;
	status = fetch(w, w->next + 8, &rest);
	if (status)
		return status;
	w->next += sizeof(struct gkv_sgl_desc);
	w->in_seg--;
	return sgl_desc(w, out, addr, (uint32_t)rest, (uint8_t)(rest >> 56), !w->in_seg);
}

void kvb_dptr_init(struct kvb_dptr *w, const struct gkv_sqe *sqe,
		   const struct kvb_regions *regions, uint32_t len, bool to_client)
{
	bool sgl = sqe->flags >> GKV_SQE_PSDT_SHIFT != GKV_PSDT_PRP;
	uint32_t described = le32toh(sqe->cdw10);

	w->regions = regions;
	w->left = len;
	/*
	 * Whether a PRP names data or a list follows from the length that the client gave,
	 * not from how much of it a shorter value fills.
	 */
	w->beyond = described > len ? described - len : 0;
	w->to_client = to_client;
	w->place = 0;
	w->state = sgl ? SGL1 : PRP1;
	w->last = false;
	w->descs = kvb_sgl_max_descs(len);
	w->next = 0;
	w->in_seg = 1;		/* SGL1 itself */
	w->list = NULL;
	w->data = NULL;
	if (sgl) {
		w->desc = sqe->dptr.sgl;
	} else {
		w->prp1 = le64toh(sqe->dptr.prp.prp1);
		w->prp2 = le64toh(sqe->dptr.prp.prp2);
	}
}

uint16_t kvb_dptr_next(struct kvb_dptr *w, struct kvb_segs *out, uint32_t budget)
{
	bool prp = w->state <= PRP_LIST;
	uint16_t status = 0;

	while (w->left && budget-- && !status) {
		if (prp)
			status = prp_step(w, out);
		else if (w->in_seg)
			status = sgl_step(w, out);
		else
			status = GKV_SC_SGL_LENGTH;
	}
	return status;
}

uint16_t kvb_dptr_walk(const struct gkv_sqe *sqe, const struct kvb_regions *regions,
		       uint32_t len, bool to_client, struct kvb_segs *out)
{
	struct kvb_dptr w;

	kvb_dptr_init(&w, sqe, regions, len, to_client);
	return kvb_dptr_next(&w, out, UINT32_MAX);
}
