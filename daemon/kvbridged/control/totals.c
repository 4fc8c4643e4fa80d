/* SPDX-License-Identifier: MIT */
#include "control/totals.h"

const char *const kvb_total_names[KVB_NTOTALS] = {
	"fetched", "posted", "errors", "late", "dropped", "store_bytes",
	"retrieve_bytes", "direct_bytes", "tail_bytes", "copy_bytes", "bounce_bytes",
	"store_direct_bytes", "store_tail_bytes", "cq_full",
};

const char *const kvb_class_names[KVB_NCLASSES] = { "flush", "store", "retrieve", "list",
						    "delete", "exist" };

void kvb_totals_add(struct kvb_totals *t, const struct kvb_qp_counters *c)
{
	const kvb_counter *const all[KVB_NTOTALS] = {
		&c->fetched, &c->posted, &c->errors, &c->late, &c->dropped, &c->store_bytes,
		&c->retrieve_bytes, &c->direct_bytes, &c->tail_bytes, &c->copy_bytes,
		&c->bounce_bytes, &c->store_direct_bytes, &c->store_tail_bytes, &c->cq_full,
	};

	for (int i = 0; i < KVB_NTOTALS; i++)
		t->v[i] += kvb_counted(all[i]);
	for (int i = 0; i < KVB_NCLASSES; i++)
		t->ops[i] += kvb_counted(&c->ops[i]);
}
