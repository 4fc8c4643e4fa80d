/* SPDX-License-Identifier: MIT */
/*
 * Can the disks of a session's namespaces do DMA to its GPU memory? Found out when the second of
 * the two comes, so that no command meets a way that does not exist.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/session.h"
#include "core/store.h"

int kvb_session_reach(struct kvb_session_region *g, struct kvb_ns *ns, struct kvb_err *err)
{
	struct kvb_store *st = ns->bottom;
	struct kvb_reach to = { .fd = g->mem.m.fd, .addr = g->mem.m.addr, .len = g->len };
	uint64_t bit = UINT64_C(1) << ns->index;
	struct kvb_err why;
	char what[32];
	int rc;

	/* Nothing is ever read into what the daemon may only read. */
	if (!g->vram || g->flags & GKV_REGION_F_RDONLY || !st->ops->reach || to.fd < 0)
		return 0;
	snprintf(what, sizeof(what), "region %u", g->id);
	to.what = what;
	rc = st->ops->reach(st, &to, &why);
	if (atomic_load(&g->r.dead))
		return kvb_fail(err, ENODEV, "%s was revoked", what);
	if (rc == -EXDEV && ns->allow_bounce) {
		kvb_log_client("unreachable regions", KVB_LOG_INFO,
			       "namespace %s: %s; it is served through host memory", ns->name,
			       why.text);
		atomic_fetch_or_explicit(&g->r.bounce, bit, memory_order_relaxed);
		return 0;
	}
	if (rc)
		return kvb_fail(err, -rc, "namespace %s: %s", ns->name, why.text);
	atomic_fetch_and_explicit(&g->r.bounce, ~bit, memory_order_relaxed);
	return 0;
}
