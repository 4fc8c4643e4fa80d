/* SPDX-License-Identifier: MIT */
/*
 * null: accepts everything, holds nothing. For measuring the path in front of a store.
 */
#include "core/store.h"

static int null_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	(void)st;
	(void)conf;
	(void)err;
	return 0;
}

static void null_close(struct kvb_store *st)
{
	(void)st;
}

static void null_ok(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

/* Any key exists, with a value of no bytes. */
static void null_retrieve(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	op->result = 0;
	kvb_op_complete(op, GKV_SC_SUCCESS);
}

static void null_info(struct kvb_store *st, struct kvb_store_info *info)
{
	(void)st;
	info->capacity = UINT64_MAX;
	info->key_max = GKV_KEY_MAX;
	info->value_max = UINT32_MAX;
	info->block_size = 1;
	info->ready = true;
}

const struct kvb_store_ops kvb_null_ops = {
	.name = "null",
	.flags = KVB_STORE_VOLATILE,
	.open = null_open,
	.close = null_close,
	.store = null_ok,
	.retrieve = null_retrieve,
	.delete = null_ok,
	.exist = null_ok,
	.list = null_ok,
	.flush = null_ok,
	.info = null_info,
};
