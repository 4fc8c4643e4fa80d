/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM gkv

#if !defined(GKVDRV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define GKVDRV_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(gkv_provider_add,
	TP_PROTO(u32 id, const char *name, int bar, u64 offset, u64 len),
	TP_ARGS(id, name, bar, offset, len),
	TP_STRUCT__entry(
		__field(u32, id)
		__string(name, name)
		__field(int, bar)
		__field(u64, offset)
		__field(u64, len)
	),
	TP_fast_assign(
		__entry->id = id;
		__assign_str(name);
		__entry->bar = bar;
		__entry->offset = offset;
		__entry->len = len;
	),
	TP_printk("provider=%u function=%s bar=%d offset=%#llx len=%#llx", __entry->id,
		  __get_str(name), __entry->bar, __entry->offset, __entry->len)
);

TRACE_EVENT(gkv_provider_del,
	TP_PROTO(u32 id),
	TP_ARGS(id),
	TP_STRUCT__entry(__field(u32, id)),
	TP_fast_assign(__entry->id = id;),
	TP_printk("provider=%u", __entry->id)
);

TRACE_EVENT(gkv_region,
	TP_PROTO(u32 provider, u64 len),
	TP_ARGS(provider, len),
	TP_STRUCT__entry(
		__field(u32, provider)
		__field(u64, len)
	),
	TP_fast_assign(
		__entry->provider = provider;
		__entry->len = len;
	),
	TP_printk("provider=%u len=%#llx", __entry->provider, __entry->len)
);

TRACE_EVENT(gkv_import,
	TP_PROTO(u32 provider, u64 len, unsigned int runs),
	TP_ARGS(provider, len, runs),
	TP_STRUCT__entry(
		__field(u32, provider)
		__field(u64, len)
		__field(unsigned int, runs)
	),
	TP_fast_assign(
		__entry->provider = provider;
		__entry->len = len;
		__entry->runs = runs;
	),
	TP_printk("provider=%u len=%#llx runs=%u", __entry->provider, __entry->len,
		  __entry->runs)
);

TRACE_EVENT(gkv_qp,
	TP_PROTO(u32 depth, u32 mode),
	TP_ARGS(depth, mode),
	TP_STRUCT__entry(
		__field(u32, depth)
		__field(u32, mode)
	),
	TP_fast_assign(
		__entry->depth = depth;
		__entry->mode = mode;
	),
	TP_printk("depth=%u mode=%#x", __entry->depth, __entry->mode)
);

TRACE_EVENT(gkv_revoke,
	TP_PROTO(unsigned long npages),
	TP_ARGS(npages),
	TP_STRUCT__entry(__field(unsigned long, npages)),
	TP_fast_assign(__entry->npages = npages;),
	TP_printk("pages=%lu", __entry->npages)
);

TRACE_EVENT(gkv_close,
	TP_PROTO(bool is_qp),
	TP_ARGS(is_qp),
	TP_STRUCT__entry(__field(bool, is_qp)),
	TP_fast_assign(__entry->is_qp = is_qp;),
	TP_printk("%s", __entry->is_qp ? "qp" : "region")
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
