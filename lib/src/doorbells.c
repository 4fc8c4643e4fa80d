/* SPDX-License-Identifier: MIT */
/*
 * Doorbells in VRAM that nobody has said where to put: those of a session share pages, and so
 * lines, which the daemon reads at once. A page is a region of the module's, with the doorbells
 * of one queue pair after the other; it goes with the last of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "provider.h"

#define SLOTS_MAX	512u
#define BITS		64u

struct db_page {
	struct list_node node;		/* gkv.db_pages */
	int fd;				/* of the region */
	uint32_t provider;
	uint32_t slot_len;		/* bytes: both doorbells, as far apart as the stride says */
	uint32_t n_slots, n_used;
	uint64_t used[SLOTS_MAX / BITS];
};

static uint32_t slot_len(const struct gkv_qp *qp)
{
	return 2 * (4u << qp->dstrd);
}

static bool is_used(const struct db_page *p, uint32_t slot)
{
	return p->used[slot / BITS] >> slot % BITS & 1;
}

/* Do so few bytes lie between them that queue pairs can share a page? */
bool gkvi_db_shares(const struct gkv_qp *qp)
{
	return 2 * slot_len(qp) <= gkvi_page_size();
}

static struct db_page *page_new(struct gkv *g, const struct gkv_qp *qp, int drv, uint32_t id,
				int *ret, uint32_t *reason)
{
	struct gkvdrv_alloc a = { .provider = id, .len = gkvi_page_size() };
	struct db_page *p = calloc(1, sizeof(*p));
	size_t n = gkvi_page_size() / slot_len(qp);

	if (!p) {
		*ret = gkvi_err(-ENOMEM, "out of memory");
		return NULL;
	}
	*ret = gkvi_drv_call(drv, GKVDRV_ALLOC, &a, sizeof(a), "cannot make a queue pair");
	*reason = a.head.reason;
	if (*ret) {
		free(p);
		return NULL;
	}
	p->fd = a.fd;
	p->provider = id;
	p->slot_len = slot_len(qp);
	p->n_slots = n < SLOTS_MAX ? (uint32_t)n : SLOTS_MAX;
	list_add_tail(&p->node, &g->db_pages);
	return p;
}

/* A free place, after *@skip others; or NULL, with the free ones that there are taken off. */
static struct db_page *find(struct gkv *g, const struct gkv_qp *qp, uint32_t id, uint32_t *skip,
			    uint32_t *slot)
{
	struct list_node *n;

	for (n = g->db_pages.next; n != &g->db_pages; n = n->next) {
		struct db_page *p = container_of(n, struct db_page, node);
		struct gkvdrv_report r;

		if (p->provider != id || p->slot_len != slot_len(qp) || p->n_used == p->n_slots)
			continue;
		if (gkvi_drv_report(p->fd, 0, &r) || r.place == GKVDRV_GONE)
			continue;
		for (*slot = 0; *slot < p->n_slots; ++*slot)
			if (!is_used(p, *slot) && !(*skip)--)
				return p;
	}
	return NULL;
}

/*
 * Take a place for the doorbells of @qp in memory of provider @id, after passing over @skip free
 * ones, and put it into @part. *@fresh: in a page of which nobody else has anything. Returns 0 or
 * the module's refusal, with *@reason. Caller holds g->lock.
 */
int gkvi_db_take(struct gkv_qp *qp, int drv, uint32_t id, uint32_t skip, struct gkvdrv_part *part,
		 bool *fresh, uint32_t *reason)
{
	struct gkv *g = qp->g;
	struct db_page *p;
	uint32_t slot;
	int ret;

	p = find(g, qp, id, &skip, &slot);
	if (!p) {
		p = page_new(g, qp, drv, id, &ret, reason);
		slot = 0;
	}
	if (!p)
		return ret;
	p->used[slot / BITS] |= 1ull << slot % BITS;
	*fresh = !p->n_used++;
	qp->db_page = p;
	qp->db_slot = slot;
	part->region = p->fd;
	part->offset = (uint64_t)slot * p->slot_len;
	return 0;
}

/* Give it back, if @qp has one. Caller holds g->lock. */
void gkvi_db_put(struct gkv_qp *qp)
{
	struct db_page *p = qp->db_page;

	qp->db_page = NULL;
	if (!p)
		return;
	p->used[qp->db_slot / BITS] &= ~(1ull << qp->db_slot % BITS);
	if (--p->n_used)
		return;
	list_del(&p->node);
	close(p->fd);
	free(p);
}
