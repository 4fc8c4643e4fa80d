/* SPDX-License-Identifier: MIT */
/*
 * Sums of queue pairs' counters: of the live ones and of those that are gone.
 */
#ifndef KVB_TOTALS_H
#define KVB_TOTALS_H

#include <stdint.h>

#include "core/qp.h"

enum kvb_total {
	KVB_T_FETCHED, KVB_T_POSTED, KVB_T_ERRORS, KVB_T_LATE, KVB_T_DROPPED, KVB_T_STORE_BYTES,
	KVB_T_RETRIEVE_BYTES, KVB_T_DIRECT_BYTES, KVB_T_TAIL_BYTES, KVB_T_COPY_BYTES,
	KVB_T_BOUNCE_BYTES, KVB_T_STORE_DIRECT_BYTES, KVB_T_STORE_TAIL_BYTES, KVB_T_CQ_FULL,
	KVB_NTOTALS,
};

struct kvb_totals {
	uint64_t v[KVB_NTOTALS];
	uint64_t ops[KVB_NCLASSES];
};

extern const char *const kvb_total_names[KVB_NTOTALS];
extern const char *const kvb_class_names[KVB_NCLASSES];

/* Any thread; the queue pair may be in use. */
void kvb_totals_add(struct kvb_totals *t, const struct kvb_qp_counters *c);

#endif
