/* SPDX-License-Identifier: MIT */
/*
 * The control socket and the control thread's loop.
 */
#ifndef KVB_SERVER_H
#define KVB_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "control/totals.h"
#include "core/store.h"

struct epoll_event;
struct gkv_reactor_state;
struct kvb_ctrl;
struct kvb_session;

/* What else the loop looks at; embed it. */
struct kvb_watch {
	void (*fn)(struct kvb_watch *w);
};

struct kvb_server {
	const struct kvb_config *cfg;
	struct kvb_ns **nss;
	unsigned int nns;
	uint32_t nn;			/* highest NSID */
	struct kvb_ctrl *ctrl;
	uint8_t instance[16];
	uint64_t started_ns;
	int state_fd;			/* reactor state page, read-only for clients */
	struct gkv_reactor_state *state;

	int reserve_fd;			/* given up to refuse a client when none is left */
	int listen_fd, lock_fd, epoll_fd, wake_fd, signal_fd;
	struct kvb_session *sessions;
	struct kvb_session *graves;	/* over, to be freed when nobody looks at them any more */
	unsigned int nsessions;
	uint64_t max_sessions;		/* of the configuration, or as descriptors allow */
	uint64_t next_session;
	unsigned int qps_on[KVB_MAX_REACTORS];
	struct kvb_totals gone;		/* of queue pairs that are no more */
	uint64_t silent_check;		/* when silent connections were last looked for */
	struct epoll_event *events;	/* of the loop's turn, those to come */
	int nevents;
	bool held;			/* sessions wait for descriptors to be closed */
	bool log_held;			/* lines were left out that nobody has been told of */
	bool stopping;
};

/* Bind the socket and prepare the loop. One daemon a socket: a second one is refused. */
int kvb_server_listen(struct kvb_server *srv, struct kvb_err *err);
/* The control thread's mailbox; before any reactor runs. */
int kvb_server_mailbox(struct kvb_server *srv, struct kvb_err *err);
/* Serve until SIGTERM or SIGINT; returns once all sessions are drained. */
int kvb_server_run(struct kvb_server *srv);
void kvb_server_close(struct kvb_server *srv);

/* The namespace with this NSID or name, or NULL. */
struct kvb_ns *kvb_server_ns(const struct kvb_server *srv, uint32_t nsid);
struct kvb_ns *kvb_server_ns_named(const struct kvb_server *srv, const char *name);

/* Of all queue pairs, ever. */
void kvb_server_totals(const struct kvb_server *srv, struct kvb_totals *t);

/* Report what comes on @fd, with @ptr. 0 or -1 and errno. */
int kvb_server_watch(struct kvb_server *srv, int fd, void *ptr);
/*
 * Call w->fn when @events, or an error, come on @fd, until unwatched. It may come once more than
 * something happened. 0 or -1 and errno.
 */
int kvb_server_watch_fd(struct kvb_server *srv, struct kvb_watch *w, int fd, uint32_t events);
/* Before @fd is closed; @w is not looked at any more. */
void kvb_server_unwatch_fd(struct kvb_server *srv, struct kvb_watch *w, int fd);
/* Wait for replies again, or not, from a session. */
void kvb_server_listen_to(struct kvb_session *s, bool on);
/*
 * Before its descriptor is closed: events would go on for as long as the description
 * lives, which may be elsewhere, too.
 */
void kvb_server_unwatch(struct kvb_session *s);

/* ---- accept.c ---- */

/* How many sessions the daemon can have; sets a descriptor aside for refusals. */
void kvb_server_limit_sessions(struct kvb_server *srv);
/* Take in, or refuse, who has connected. */
void kvb_server_accept(struct kvb_server *srv, uint64_t now_ns);

#endif
