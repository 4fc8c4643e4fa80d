/* SPDX-License-Identifier: MIT */
/*
 * A pool of a Ceph cluster and the connection through which it is reached at the moment.
 *
 * Connections come and go: a cluster that cannot be reached at start, a client that was put
 * on the blocklist, a pool that was deleted and made again. One helper thread per connection
 * does all that may block; reactors are handed a struct rd_io when it is good to use and
 * told when it no longer is. Pools with the same cluster and user share a connection.
 *
 * Fence. The addresses of every client that may have written are kept in the state
 * directory. A successor puts them on the cluster's blocklist and waits for the map that
 * says so before it hands out a connection: what the dead client left in flight can then
 * no longer follow what this one does. An orderly stop takes its own address off the list.
 */
#ifndef KVB_RADOS_POOL_H
#define KVB_RADOS_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <rados/librados.h>

#include "core/err.h"
#include "core/reactor.h"

struct rd_pool;

/* One generation of a connection to the pool. Constant while anyone holds a reference. */
struct rd_io {
	rados_t cluster;
	rados_ioctx_t ioctx;	/* namespace and full-try are set */
	int64_t pool_id;
	uint64_t generation;	/* 1, 2, ... */
};

struct rd_pool_conf {
	const char *conf;	/* configuration file; NULL: where librados looks */
	const char *id;		/* user, without "client." */
	const char *keyring;	/* NULL: as the configuration file says */
	const char *pool;
	const char *ns;		/* RADOS namespace, "" for the default one */
	const char *state_dir;
	uint64_t op_timeout_ns;	/* librados's own, a backstop */
	uint32_t ops;		/* operations the caller keeps in flight at most */
	uint64_t bytes;		/* their bytes */
	bool fence;		/* false: the user may not use the blocklist, and says so */
};

struct rd_pool_status {
	bool ready;
	char why[192];		/* not ready: the reason */
	uint32_t value_max;	/* largest object the cluster takes, bytes */
	uint64_t generation;
	uint64_t reconnects;
	uint64_t fenced;	/* addresses put on the blocklist so far */
	char addrs[256];	/* this client's addresses; "" when not connected */
};

/* A reactor's wish to know which connection to use. */
struct rd_sub {
	/* On the reactor. @io: use it from now on, with a reference; NULL: there is none. */
	void (*changed)(struct rd_sub *sub, struct rd_io *io);
	/* pool.c's own */
	struct kvb_reactor *r;
	struct rd_pool *pool;
	struct kvb_msg msg;
	struct rd_io *pending;
	bool has_pending, sent;
	struct rd_sub *next;
};

/*
 * Control thread. Starts connecting and returns at once; fails only for what no waiting
 * mends (a configuration file that cannot be read, out of memory).
 */
int rd_pool_open(const struct rd_pool_conf *conf, struct rd_pool **out, struct kvb_err *err);

/* Wait until the pool is ready, at most @ns. Control thread. Returns whether it is. */
bool rd_pool_wait(struct rd_pool *p, uint64_t ns);

/* Control thread; no subscriber is left. Blocks until the connection is gone. */
void rd_pool_close(struct rd_pool *p);

/* On reactor @r. @sub->changed is called at once when there is a connection, and later. */
void rd_pool_attach(struct rd_pool *p, struct kvb_reactor *r, struct rd_sub *sub);
/* On the same reactor. No call comes after it; what was handed over is still to be put. */
void rd_pool_detach(struct rd_sub *sub);

/* Give a reference back. Any thread; never blocks: the helper thread destroys it. */
void rd_io_put(struct rd_pool *p, struct rd_io *io);

/*
 * An operation through @io ended with @err (-ESHUTDOWN: blocklisted; -ENOENT: the pool is
 * gone): find out and connect again. Any thread, any number of times; never blocks.
 */
void rd_pool_failed(struct rd_pool *p, const struct rd_io *io, int err);

/* Any thread; short lock. */
void rd_pool_status(struct rd_pool *p, struct rd_pool_status *s);

#endif
