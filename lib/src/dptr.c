/* SPDX-License-Identifier: MIT */
/*
 * Data pointers: where in registered memory a command's value lies, as SGL or PRP
 * (Base 4.3). Lists live in pages of the queue pair's own registered area.
 */
#include <endian.h>
#include <errno.h>

#include "dptr.h"

/* Pages of a list go back when their command is over. */
void gkvi_list_put(struct gkv_qp *qp, struct slot *s)
{
	uint32_t p = s->list;

	while (p) {
		uint32_t next = qp->list_next[p - 1];

		qp->list_next[p - 1] = qp->list_free;
		qp->list_free = p;
		qp->n_list_free++;
		p = next;
	}
	s->list = 0;
}

/* Take a page for a list of @s. Its address; *@iova is what the daemon calls it. */
static void *list_get(struct gkv_qp *qp, struct slot *s, uint64_t *iova)
{
	uint32_t p = qp->list_free;
	size_t off = (size_t)(p - 1) * qp->page;

	qp->list_free = qp->list_next[p - 1];
	qp->n_list_free--;
	qp->list_next[p - 1] = s->list;
	s->list = p;
	*iova = qp->list_iova + off;
	return qp->list + off;
}

/* Are @n list pages there? -EAGAIN: once commands complete; -EINVAL: never. */
static int list_room(const struct gkv_qp *qp, uint64_t n)
{
	if (n <= qp->n_list_free)
		return 0;
	if (n > qp->list_pages)
		return gkvi_err(-EINVAL,
				"the command's list takes %llu pages, the queue pair has %u",
				(unsigned long long)n, qp->list_pages);
	return -EAGAIN;
}

/* Why gkvi_translate() said no: -EINVAL. */
int gkvi_bad_buf(struct gkv_qp *qp, const void *addr, uint64_t len)
{
	struct mem_entry e;
	uint32_t seq;

	if (gkvi_lookup(qp->g, (uintptr_t)addr, &e, &seq) &&
	    e.vram != !!(qp->mode & GKV_MODE_DATA))
		return gkvi_err(-EINVAL, "buffer at %p lies in %s (the gkv_mem at 0x%zx), memory "
					 "mode 0x%x of queue pair %u has data in %s", addr,
				e.vram ? "VRAM" : "host memory", (size_t)e.base, qp->mode, qp->qid,
				e.vram ? "host memory" : "VRAM");
	return gkvi_err(-EINVAL,
			"buffer at %p, 0x%llx bytes, does not lie inside one gkv_mem", addr,
			(unsigned long long)len);
}

/* Remember that a buffer of command @idx lies in region @id. */
static void note_mem(struct gkv_qp *qp, struct slot *s, uint32_t idx, uint32_t id)
{
	uint32_t *more, i;

	if (!s->n_mem) {
		s->mem = id;
		s->n_mem = 1;
		return;
	}
	if (s->mem == id)
		return;
	more = &qp->seg_mem[(size_t)idx * qp->max_segs];
	if (s->n_mem == 1) {
		more[0] = 0;
		s->n_mem = 2;
	}
	for (i = 0; i < qp->max_segs && more[i]; i++)
		if (more[i] == id)
			return;
	/* One for the first segment is in s->mem, so there is always room. */
	more[i] = id;
	if (i + 1 < qp->max_segs)
		more[i + 1] = 0;
}

/* What the segments add up to, and how many are not empty. */
static int check_segs(const struct gkv_qp *qp, const struct gkv_cmd *cmd, uint32_t *n)
{
	uint64_t sum = 0;

	*n = 0;
	if (cmd->nsegs > qp->max_segs)
		return gkvi_err(-EINVAL, "%u segments, the queue pair was made for %u (max_segs)",
				cmd->nsegs, qp->max_segs);
	if (!cmd->segs)
		return gkvi_err(-EINVAL, "nsegs is %u but segs is NULL", cmd->nsegs);
	for (uint32_t i = 0; i < cmd->nsegs; i++) {
		/* A sum of 32-bit lengths cannot wrap. */
		if (cmd->segs[i].len > UINT32_MAX)
			return gkvi_err(-EINVAL,
					"segment %u of 0x%llx bytes, the limit is 4 GiB - 1",
					i, (unsigned long long)cmd->segs[i].len);
		sum += cmd->segs[i].len;
		*n += !!cmd->segs[i].len;
	}
	if (sum != cmd->len)
		return gkvi_err(-EINVAL, "segments of %llu bytes together for a length of %u",
				(unsigned long long)sum, cmd->len);
	return 0;
}

static void put_desc(struct gkv_sgl_desc *d, uint64_t addr, uint32_t len, uint8_t type)
{
	d->addr = htole64(addr);
	d->len = htole32(len);
	d->rsvd[0] = d->rsvd[1] = d->rsvd[2] = 0;
	d->type = type;
}

/*
 * @left data descriptors are still to come, the next ones into a fresh page: point to it
 * from @from. A page that is not the last gives its last place to the next pointer.
 */
static struct gkv_sgl_desc *sgl_page(struct gkv_qp *qp, struct slot *s, struct gkv_sgl_desc *from,
				     uint32_t left, uint32_t *room)
{
	uint32_t per_page = qp->page / sizeof(struct gkv_sgl_desc);
	uint64_t iova;
	struct gkv_sgl_desc *d = list_get(qp, s, &iova);

	if (left <= per_page) {
		put_desc(from, iova, left * sizeof(*d), GKV_SGL_LAST_SEGMENT);
		*room = left;
	} else {
		put_desc(from, iova, per_page * sizeof(*d), GKV_SGL_SEGMENT);
		*room = per_page - 1;
	}
	return d;
}

static int pack_sgl(struct gkv_qp *qp, const struct gkv_cmd *cmd, struct slot *s, uint32_t idx,
		    struct dptr *out)
{
	uint32_t per_page = qp->page / sizeof(struct gkv_sgl_desc);
	uint32_t n, left, room = 0;
	struct gkv_sgl_desc head = { 0 }, *d = &head;
	uint64_t pages = 1, iova;
	int ret;

	ret = check_segs(qp, cmd, &n);
	if (ret)
		return ret;
	for (left = n; left > per_page; left -= per_page - 1)
		pages++;
	ret = n > 1 ? list_room(qp, pages) : 0;
	if (ret)
		return ret;
	left = n;
	for (uint32_t i = 0; i < cmd->nsegs; i++) {
		const struct gkv_seg *g = &cmd->segs[i];
		uint32_t mem;

		if (!g->len)
			continue;
		if (!gkvi_translate(qp, g->addr, g->len, &iova, &mem))
			return gkvi_bad_buf(qp, g->addr, g->len);
		note_mem(qp, s, idx, mem);
		if (n == 1) {
			put_desc(&head, iova, (uint32_t)g->len, GKV_SGL_DATA_BLOCK);
			break;
		}
		if (!room)
			d = sgl_page(qp, s, d, left, &room);
		put_desc(d++, iova, (uint32_t)g->len, GKV_SGL_DATA_BLOCK);
		room--;
		left--;
	}
	out->lo = head.addr;
	out->hi = (uint64_t)head.len | (uint64_t)head.type << 56;
	out->psdt = GKV_PSDT_SGL;
	return 0;
}

/* Pages touched by segments that follow each other without a gap in the PRP sense. */
static int prp_check(struct gkv_qp *qp, const struct gkv_seg *segs, uint32_t n, uint64_t *pages)
{
	uint64_t mask = qp->page - 1;
	bool first = true, ended = false;

	*pages = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t iova;
		uint32_t mem;

		if (!segs[i].len)
			continue;
		if (!gkvi_translate(qp, segs[i].addr, segs[i].len, &iova, &mem))
			return gkvi_bad_buf(qp, segs[i].addr, segs[i].len);
		if (first && (iova & 3))
			return gkvi_err(-EINVAL,
					"PRP: buffer at IOVA 0x%llx, 4-byte alignment needed",
					(unsigned long long)iova);
		if (!first && (ended || (iova & mask)))
			return gkvi_err(-EINVAL,
					"PRP: segment %u at IOVA 0x%llx does not continue the "
					"one before on a page boundary (page 0x%llx)", i,
					(unsigned long long)iova, (unsigned long long)mask + 1);
		*pages += ((iova & mask) + segs[i].len + mask) / (mask + 1);
		ended = (iova + segs[i].len) & mask;
		first = false;
	}
	return 0;
}

static int pack_prp(struct gkv_qp *qp, const struct gkv_cmd *cmd, struct slot *s, uint32_t idx,
		    struct dptr *out)
{
	uint64_t page = qp->page, per_page = page / sizeof(uint64_t);
	struct gkv_seg one = { .addr = cmd->buf, .len = cmd->len };
	const struct gkv_seg *segs = cmd->nsegs ? cmd->segs : &one;
	uint32_t n = cmd->nsegs ? cmd->nsegs : 1, non_empty;
	uint64_t pages, left, lists = 0, next, *list = NULL, room = 0, k = 0;
	int ret;

	if (cmd->nsegs) {
		ret = check_segs(qp, cmd, &non_empty);
		if (ret)
			return ret;
	}
	ret = prp_check(qp, segs, n, &pages);
	if (ret)
		return ret;
	if (pages > 2) {
		/* A full page whose list goes on has a pointer in its last entry. */
		for (left = pages - 1, lists = 1; left > per_page; left -= per_page - 1)
			lists++;
		ret = list_room(qp, lists);
		if (ret)
			return ret;
	}
	out->lo = 0;
	out->hi = 0;
	out->psdt = GKV_PSDT_PRP;
	left = pages - 1;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t iova, end;
		uint32_t mem;

		if (!segs[i].len)
			continue;
		/* Looked up before; the memory may have been freed under the caller's feet. */
		if (!gkvi_translate(qp, segs[i].addr, segs[i].len, &iova, &mem))
			return gkvi_bad_buf(qp, segs[i].addr, segs[i].len);
		note_mem(qp, s, idx, mem);
		end = iova + segs[i].len;
		for (; iova < end; iova = (iova & ~(page - 1)) + page, k++) {
			if (!k) {
				out->lo = htole64(iova);
				continue;
			}
			if (pages == 2) {
				out->hi = htole64(iova);
				continue;
			}
			if (!list) {
				list = list_get(qp, s, &next);
				out->hi = htole64(next);
				room = per_page;
			} else if (room == 1 && left > 1) {
				uint64_t *prev = list;

				list = list_get(qp, s, &next);
				*prev = htole64(next);
				room = per_page;
			}
			*list++ = htole64(iova);
			room--;
			left--;
		}
	}
	return 0;
}

/*
 * Describe the buffer of @cmd, whose length is not 0, in other ways than one SGL data
 * block. Returns -EAGAIN when list pages have to come back first, or -EINVAL.
 */
int gkvi_pack_dptr(struct gkv_qp *qp, const struct gkv_cmd *cmd, struct slot *s, uint32_t idx,
		   struct dptr *out)
{
	if (qp->flags & GKV_QP_PRP)
		return pack_prp(qp, cmd, s, idx, out);
	return pack_sgl(qp, cmd, s, idx, out);
}
