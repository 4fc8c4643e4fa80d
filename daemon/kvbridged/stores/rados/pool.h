/* SPDX-License-Identifier: MIT */
/*
 * A pool of a Ceph cluster and the connection through which it is reached at the moment.
 *
 * Connections come and go: a cluster that cannot be reached at start, a client that was put
 * on the blocklist, a pool that was deleted and made again. One helper thread per connection
 * does all that may block; reactors are handed a struct rd_io when it is good to use and
 * told when it no longer is. Pools with the same cluster and user share a connection.
 *
 * Fence. The address of every client that may have writes under way is kept in the state
 * directory (fence.h). A successor puts them on the cluster's blocklist and waits for the map that
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

struct rd_cell;
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
	bool fence;		/* false: do without, and record no address */
};

struct rd_pool_status {
	bool ready;
	char why[192];		/* not ready: the reason */
	/* Bytes: what fits in one write, less 4 KiB for attributes. A guess until connected. */
	uint32_t value_max;
	uint64_t generation;
	uint64_t reconnects;	/* of the connection, which other pools may share */
	uint64_t fenced;	/* addresses that it put on the blocklist */
	char addrs[256];	/* this client's addresses; "" when not connected */
};

/* A reactor's wish to know which connection to use. */
struct rd_sub {
	/*
	 * On the reactor. @io: use it from now on, with a reference; NULL: there is none. What
	 * changed twice is told once: a call may follow another without NULL in between.
	 */
	void (*changed)(struct rd_sub *sub, struct rd_io *io);
	/* pool.c's own */
	struct kvb_reactor *r;
	struct rd_pool *pool;
	struct rd_cell *cell;	/* the reactor's message */
	uint64_t serial;	/* of what it was told last */
	struct rd_sub *next;
};

/*
 * Control thread. Starts connecting and returns at once; fails only for what no waiting
 * mends (a configuration file that cannot be read, out of memory).
 */
int rd_pool_open(const struct rd_pool_conf *conf, struct rd_pool **out, struct kvb_err *err);

/* Wait until the pool is ready, at most @ns. Control thread. Returns whether it is. */
bool rd_pool_wait(struct rd_pool *p, uint64_t ns);

/*
 * Control thread; no subscriber is left, and all references are put. Blocks until the pool,
 * and with the last one its connection, is gone: milliseconds, up to 5 s while a connection
 * attempt runs. Gives up after 20 s, when librados waits for a monitor that is gone: then a
 * thread of it is left, and the process must end by _exit().
 */
void rd_pool_close(struct rd_pool *p);

/* On reactor @r. @sub->changed is called at once when there is a connection, and later. */
void rd_pool_attach(struct rd_pool *p, struct kvb_reactor *r, struct rd_sub *sub);
/*
 * On the same reactor, also from within a call. None comes after it, and @sub's memory is not
 * touched any more; what was handed over is still to be put.
 */
void rd_pool_detach(struct rd_sub *sub);

/*
 * Give a reference back: all callbacks of operations through it have come. What librados
 * still reads of a cancelled write's data it lets go of when the connection is destroyed.
 * Any thread; never blocks: the helper thread destroys it.
 */
void rd_io_put(struct rd_pool *p, struct rd_io *io);

/*
 * An operation through @io, of which the caller holds a reference, ended with @err. Any
 * thread, any number of times: cheap enough for every object that is not there.
 *  -ESHUTDOWN	this client is on the blocklist: connect again
 *  -ENOENT	the pool may be gone: find out (for an absent object it is the same error)
 *  -ETIMEDOUT, -ECANCELED  a mutation was given up and may still happen: the address stays
 *		recorded even after an orderly stop, and the next one to connect fences it
 * Others are ignored.
 */
void rd_pool_failed(struct rd_pool *p, const struct rd_io *io, int err);

/* Any thread; short lock. */
void rd_pool_status(struct rd_pool *p, struct rd_pool_status *s);

#endif
