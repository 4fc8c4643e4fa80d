/* SPDX-License-Identifier: MIT */
/*
 * Reading a completion queue entry that its writer may be half way through.
 *
 * The writer makes dwords 0 to 2 visible before dword 3, which carries the phase.
 * So the reader looks at dword 3 first, with acquire, and only then at the others:
 * a copy taken before the phase was seen may hold what was in the slot a whole pass
 * ago, with a length of 0 for a value of a megabyte.
 */
#ifndef GKVI_CQE_H
#define GKVI_CQE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#include <gkv/nvme_kv.h>

#include "barrier.h"

/* Tests replace this to run the writer between two loads of the reader. */
#ifndef GKVI_CQE_HOOK
#define GKVI_CQE_HOOK(point) do { } while (0)
#endif

struct cqe_image {
	uint32_t dw0, dw1;
	uint16_t sqhd, sqid, cid, status;	/* status without the phase bit */
};

/*
 * Read the entry at @e if its phase bit equals @phase (0 or 1). Returns false, with
 * *@out untouched, when the entry is not there yet.
 */
static inline bool cqe_read(const struct gkv_cqe *e, uint32_t phase, struct cqe_image *out)
{
	const uint32_t *dw = (const uint32_t *)e;
	uint32_t dw2, dw3;

	GKVI_CQE_HOOK(0);
	dw3 = le32toh(load_acquire(&dw[3]));
	if (((dw3 >> 16) & 1) != phase)
		return false;
	GKVI_CQE_HOOK(1);
	out->dw0 = le32toh(load_relaxed(&dw[0]));
	out->dw1 = le32toh(load_relaxed(&dw[1]));
	dw2 = le32toh(load_relaxed(&dw[2]));
	out->sqhd = dw2 & 0xffff;
	out->sqid = dw2 >> 16;
	out->cid = dw3 & 0xffff;
	out->status = dw3 >> 17;
	return true;
}

#endif
