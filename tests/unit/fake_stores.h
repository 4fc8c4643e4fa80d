/* SPDX-License-Identifier: MIT */
/*
 * Stand-ins for every store and filter of stores/table.def, so that the stack builder is
 * tested alone. They note the order of their calls and do nothing. Include in one file of a
 * program; the linker then leaves the real ones out.
 */
#ifndef FAKE_STORES_H
#define FAKE_STORES_H

#include <errno.h>
#include <string.h>

#include "core/store.h"

/* "+name" for an open, "-name" for a close, in order. */
static char fake_calls[512];
static const char *fake_fails;		/* the layer whose open fails */
static struct kvb_store_info fake_info;

#define KVB_STORE(name) struct kvb_store_ops kvb_##name##_ops;
#include "stores/table.def"
#undef KVB_STORE

static void fake_note(const char *sign, const struct kvb_store *st)
{
	strcat(fake_calls, sign);
	strcat(fake_calls, st->ops->name);
}

static int fake_open(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err)
{
	uint64_t v;
	int ret = kvb_conf_u64(conf, "number", 0, 0, 9, &v, err);

	if (ret)
		return ret;
	if (st->next && !strstr(fake_calls, st->next->ops->name))
		return kvb_fail(err, EPROTO, "opened before the layer below");
	if (fake_fails && !strcmp(fake_fails, st->ops->name))
		return kvb_fail(err, EIO, "%s does not open", fake_fails);
	fake_note("+", st);
	return 0;
}

static void fake_close(struct kvb_store *st)
{
	fake_note("-", st);
}

static void fake_get_info(struct kvb_store *st, struct kvb_store_info *info)
{
	(void)st;
	*info = fake_info;
}

static inline void fake_reset(void)
{
	fake_calls[0] = '\0';
	fake_fails = NULL;
	fake_info = (struct kvb_store_info){
		.capacity = 1 << 30,
		.used = 4096,
		.keys = 1,
		.key_max = 16,
		.value_max = 1 << 26,
		.block_size = 4096,
		.ready = true,
	};
#define KVB_STORE(store) \
	kvb_##store##_ops.name = #store; \
	kvb_##store##_ops.flags = KVB_STORE_FILTER; \
	kvb_##store##_ops.op_size = 5; \
	kvb_##store##_ops.open = fake_open; \
	kvb_##store##_ops.close = fake_close; \
	kvb_##store##_ops.info = NULL;
#include "stores/table.def"
#undef KVB_STORE
	kvb_mem_ops.flags = KVB_STORE_SHARDED | KVB_STORE_VOLATILE;
	kvb_mem_ops.info = fake_get_info;
	kvb_null_ops.flags = 0;
	kvb_null_ops.info = fake_get_info;
}

#endif
