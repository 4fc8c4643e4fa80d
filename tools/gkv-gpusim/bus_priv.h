/* SPDX-License-Identifier: MIT */
/* How one side describes a queue pair to the other: a stream of bytes in pages that are chained. */
#ifndef GKV_GPUSIM_BUS_PRIV_H
#define GKV_GPUSIM_BUS_PRIV_H

#include "bus.h"

#define BUS_PAGE	4096u
#define BUS_MAGIC	0x73756270672d766bull

/* One page of the stream. */
struct bus_page {
	uint64_t magic;
	uint64_t next;			/* on the bus; 0: this is the last */
	uint32_t len;			/* bytes of @data */
	uint32_t rsvd;
	uint8_t data[BUS_PAGE - 24];
};

/* The stream begins with it. Addresses are the describing process's. */
struct bus_head {
	uint32_t depth, flags, page, nsid;
	uint64_t timeout_ns;
	uint64_t sq, cq, sq_db, cq_db, stopped, ctl;
	uint64_t mem, iova, mem_len;
};

/* And goes on with one for each part of memory, its runs behind it. */
#define BUS_PARTS	7u

struct bus_part {
	uint64_t addr, len;		/* whole pages of the describing process */
	uint64_t nruns;
};

struct bus_run {
	uint64_t at, len;		/* on the bus */
};

#define BUS_RUNS_MAX	(1u << 20)

/* Sets what bus_error() says; returns -1. */
int bus_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The parts of @h, in bytes as they are: where, and how long. */
static inline void bus_parts(const struct bus_head *h, uint64_t parts[BUS_PARTS][2])
{
	const uint64_t all[BUS_PARTS][2] = {
		{ h->sq, (uint64_t)h->depth * 64 }, { h->cq, (uint64_t)h->depth * 16 },
		{ h->sq_db, 4 }, { h->cq_db, 4 }, { h->stopped, 4 },
		{ h->ctl, sizeof(struct gkv_dev_ctl) }, { h->mem, h->mem_len },
	};

	memcpy(parts, all, sizeof(all));
}

#endif
