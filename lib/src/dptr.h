/* SPDX-License-Identifier: MIT */
/* Translating addresses on the data path, and the data pointer of an SQE. */
#ifndef GKVI_DPTR_H
#define GKVI_DPTR_H

#include "impl.h"

/* SQE bytes 24 to 39, little-endian, and PSDT. */
struct dptr {
	uint64_t lo, hi;
	uint8_t psdt;
};

int gkvi_pack_dptr(struct gkv_qp *qp, const struct gkv_cmd *cmd, struct slot *s, uint32_t idx,
		   struct dptr *out);
void gkvi_list_put(struct gkv_qp *qp, struct slot *s);
int gkvi_bad_buf(struct gkv_qp *qp, const void *addr, uint64_t len);

/*
 * IOVA and region of @len bytes at @addr; false when they are not inside one gkv_mem, or
 * that is not where the memory mode has data.
 */
static inline bool gkvi_translate(struct gkv_qp *qp, const void *addr, uint64_t len, uint64_t *iova,
				  uint32_t *mem)
{
	uintptr_t a = (uintptr_t)addr;

	/* The entry found last is good as long as the table has not changed. */
	if (unlikely(load_acquire(&qp->g->table.seq) != qp->hit_seq || a < qp->hit.base ||
		     a >= qp->hit.end)) {
		if (!gkvi_lookup(qp->g, a, &qp->hit, &qp->hit_seq) ||
		    qp->hit.vram != !!(qp->mode & GKV_MODE_DATA)) {
			qp->hit_seq = 1;
			return false;
		}
	}
	if (unlikely(len > qp->hit.end - a))
		return false;
	*iova = a + qp->hit.delta;
	*mem = qp->hit.id;
	return true;
}

#endif
