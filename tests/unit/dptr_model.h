/* SPDX-License-Identifier: MIT */
/*
 * Client memory to walk in, and a second walker, written from the standard, to compare
 * with.
 */
#ifndef DPTR_MODEL_H
#define DPTR_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/dptr.h"

#define PG	4096ull
#define BAD	(GKV_SC_DATA_TRANSFER | GKV_DNR)

/*
 * Regions: A, B and C follow each other in the client's addresses; in the daemon's, B and
 * C do. R is read only, T ends at 2^64.
 */
enum { A, B, C, R, T, NREG };
struct dptr_region {
	uint64_t iova;
	unsigned int pages;
	unsigned int slot;	/* page of the mapping */
	uint32_t flags;
};
extern const struct dptr_region layout[NREG];
extern struct kvb_region owners[NREG];
extern struct kvb_regions *table;

int dptr_setup(void **state);
int dptr_teardown(void **state);

/* Where a client address is mapped, and in which region; NULL and -1 outside. */
uint8_t *host(uint64_t iova);
int region_of(uint64_t iova);
int region_at(const uint8_t *p);

/* Write a list entry or a descriptor into client memory. */
void put64(uint64_t iova, uint64_t val);
void put_desc(uint64_t iova, uint64_t addr, uint32_t len, uint8_t type);
bool model_get64(uint64_t iova, uint64_t *v);

/* What the second walker found last, not merged. */
struct run {
	uint8_t *at;		/* NULL: bit bucket */
	uint64_t len;
	int region;
};

struct model {
	uint64_t left;
	bool to_client;
	uint64_t descs, max_descs;
	struct run *runs;
	size_t n, cap;
};
extern struct model model;

/* Walk with both, whole and in steps; fail unless they agree. Returns their status. */
uint16_t check(const struct gkv_sqe *s, uint32_t len, bool to_client);

/* Below @n; the same series each time. */
uint64_t rnd(uint64_t n);
/* A page of A, B or C; if not @sound, of any region or, rarely, of none. */
uint64_t random_page(bool sound);

#endif
