/* SPDX-License-Identifier: MIT */
/*
 * Memory of a session that may be taken away: when the module says so, the mapping goes at
 * once, whether or not anybody uses it.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "control/server.h"
#include "control/session.h"
#include "core/link.h"

static void unwatch(struct kvb_session_mem *sm)
{
	if (sm->watched)
		kvb_server_unwatch_fd(sm->s->srv, &sm->w, sm->m.fd);
	sm->watched = false;
}

/* Whoever holds the memory can revoke it, but nothing makes it come back: no need to ask. */
static void taken_away(struct kvb_watch *w)
{
	struct kvb_session_mem *sm = kvb_container(w, struct kvb_session_mem, w);

	unwatch(sm);
	kvb_clientmem_gone(&sm->m);
	kvb_log_client("revoked memory", KVB_LOG_INFO, "session %llu (pid %d): memory was revoked",
		       (unsigned long long)sm->s->id, sm->s->peer.pid);
	if (sm->gone)
		sm->gone(sm);
}

int kvb_session_mem_map(struct kvb_session_mem *sm, struct kvb_session *s,
			const struct kvb_memreq *q, void (*gone)(struct kvb_session_mem *sm),
			struct kvb_err *err)
{
	int rc = kvb_clientmem_map(&sm->m, q, err);

	sm->s = s;
	sm->gone = gone;
	sm->w.fn = taken_away;
	sm->watched = false;
	if (rc || sm->m.fd < 0)
		return rc;
	/* POLLERR and POLLHUP come unasked. */
	if (kvb_server_watch_fd(s->srv, &sm->w, sm->m.fd, 0)) {
		rc = kvb_fail(err, errno, "%s: epoll: %s", q->what, strerror(errno));
		kvb_clientmem_unmap(&sm->m, s->peer.uid);
		return rc;
	}
	sm->watched = true;
	return 0;
}

void kvb_session_mem_unmap(struct kvb_session_mem *sm)
{
	if (!sm->m.addr)
		return;
	unwatch(sm);
	kvb_clientmem_unmap(&sm->m, sm->s->peer.uid);
}
