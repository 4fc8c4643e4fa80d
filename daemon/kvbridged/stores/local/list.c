/* SPDX-License-Identifier: MIT */
/* List: a walk over the index in slices; the tree may change between them. */
#include "stores/local/local.h"

#define LIST_SLICE 256u

static bool list_slice(struct kvb_work *w)
{
	struct loc_op *lop = kvb_container(w, struct loc_op, work);
	struct loc_bt_iter it;
	struct loc_ent *e = loc_bt_seek(&lop->sh->index, &lop->list_key, lop->list_after, &it);

	for (unsigned int n = 0; e && n < LIST_SLICE; n++, e = loc_bt_next(&it)) {
		uint8_t key[16];

		lop->list_key = (struct loc_key){ .hi = e->hi, .lo = e->lo, .klen = e->klen };
		lop->list_after = true;
		if (e->flags & LOC_ENT_PENDING)
			continue;
		loc_key_bytes(e->hi, e->lo, key);
		if (!kvb_list_add(lop->op, key, e->klen)) {
			e = NULL;
			break;
		}
	}
	if (e)
		return true;
	kvb_op_complete(lop->op, GKV_SC_SUCCESS);
	return false;
}

void loc_list_op(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op);

	loc_op_init(st, op, lop);
	lop->list_key = lop->key;	/* inclusive */
	lop->work.run = list_slice;
	if (list_slice(&lop->work))
		kvb_op_work(op, &lop->work);
}
