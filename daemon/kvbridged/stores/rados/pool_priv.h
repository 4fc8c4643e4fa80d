/* SPDX-License-Identifier: MIT */
/*
 * What pool.c (the interface), conn.c (the helper thread) and link.c (a connection) share.
 *
 * One lock guards all that reactors, the control thread and helper threads share; it is
 * never held while something may block. Pools and generations are destroyed by the helper
 * thread of their connection alone, so it may look at them without the lock.
 */
#ifndef KVB_RADOS_POOL_PRIV_H
#define KVB_RADOS_POOL_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "stores/rados/fence.h"
#include "stores/rados/pool.h"

/* ---- A connection: one rados_t, from connect to shutdown ---- */

struct rd_link {
	rados_t cluster;
	struct rd_fence fence;
	char fsid[40];
	char addrs[256];
	uint32_t value_max;		/* bytes */
	uint64_t op_timeout_ns;		/* librados's own */
	_Atomic bool blocklisted;	/* of no use any more */
	_Atomic bool doubt;		/* something that was given up may still happen */
	unsigned int gens;		/* lock: generations through it */
	bool used;			/* helper: there was one */
	struct rd_link *next;		/* retired ones */
};

struct rd_link_conf {
	const char *conf, *id, *keyring, *state_dir;
	bool fence;
	uint64_t op_timeout_ns;
	uint64_t bytes;			/* that callers have in flight at most */
	const _Atomic bool *stop;	/* give up between two steps */
};

/* A value that fits together with the attributes written beside it. */
#define RD_WRITE_SPARE 4096u
/* What clusters take unless told otherwise: osd_max_write_size is 90 MiB. */
#define RD_VALUE_MAX ((90u << 20) - RD_WRITE_SPARE)

/* A configured, unconnected handle: is there anything wrong with the configuration? */
int rd_link_create(const struct rd_link_conf *k, rados_t *out, struct kvb_err *err);
/* Blocks for seconds. @fenced is increased. NULL: the reason is in @err. */
struct rd_link *rd_link_open(const struct rd_link_conf *k, unsigned int *fenced,
			     struct kvb_err *err);
/* No generation is left. Blocks. */
void rd_link_close(struct rd_link *l);
/* Give librados's own timeout a new length for all operations of the connection. */
void rd_link_set_timeout(struct rd_link *l, uint64_t ns);
/* What librados wants for its time options: whole seconds, at least 1. */
unsigned int rd_seconds(uint64_t ns);

/* A command of JSON to the monitors; the answer, cut to @len, in @out. Blocks. */
int rd_mon_command(rados_t cluster, const char *cmd, char *out, size_t len);

/* ---- Connection of a user to a cluster: comes and goes, one helper thread ---- */

#define RD_SAID_MAX 8

struct rd_conn {
	char *conf, *id, *keyring, *state_dir;
	bool fence;
	struct rd_conn *next;		/* lock: all connections */
	pthread_t thread;
	pthread_cond_t wake;		/* the helper's */
	_Atomic bool stop;		/* set under the lock */
	bool done;			/* lock: the thread is about to end */
	bool orphan;			/* lock: nobody waits for it, it frees itself */
	bool woken;			/* lock */
	struct rd_pool *pools;		/* lock */
	struct rd_gen *dead;		/* lock: without references */
	struct rd_link *link;		/* helper; NULL: not connected */
	struct rd_link *retired;	/* helper */
	char addrs[256];		/* lock */
	uint32_t value_max;		/* lock */
	uint64_t links;			/* lock: connections so far */
	uint64_t fenced;		/* lock */
	/* helper */
	uint64_t retry_at, delay, up_since;	/* ns */
	uint64_t said[RD_SAID_MAX];	/* hashes of the reasons that were logged */
	unsigned int nsaid;
};

/* One generation of a pool's connection. */
struct rd_gen {
	struct rd_io io;		/* first: what others see of it */
	_Atomic unsigned int refs;
	_Atomic bool suspect;		/* is the pool still there? */
	struct rd_pool *pool;
	struct rd_link *link;
	struct rd_gen *next;
};

/* The message by which a reactor is told; there is one in flight at most. */
struct rd_cell {
	struct kvb_msg msg;
	struct rd_pool *pool;
	bool sent;			/* lock */
};

struct rd_pool {
	struct rd_conn *conn;
	struct rd_pool *next;		/* lock: of the connection */
	char *name, *ns;
	uint64_t op_timeout_ns, bytes;
	struct rd_gen *cur;		/* lock; NULL: not ready */
	uint64_t serial;		/* lock: changes of @cur */
	uint64_t generation;		/* lock */
	char why[192];			/* lock */
	struct rd_sub *subs;		/* lock */
	unsigned int gens;		/* lock: not destroyed yet */
	bool closing, gone, orphan;	/* lock */
	/* helper */
	uint64_t retry_at, delay, check_at, denied_since;	/* ns */
	uint64_t said;			/* hash of the reason that was logged last */
	unsigned int ncells;
	struct rd_cell cells[];		/* by reactor */
};

extern pthread_mutex_t rd_lock;
extern pthread_cond_t rd_changed;	/* a pool became ready or is gone, a thread ended */

/* Wait for @cond with the lock held until @until of kvb_clock_ns(). False when it is past. */
bool rd_wait_until(pthread_cond_t *cond, uint64_t until);
int rd_cond_init(pthread_cond_t *cond);

/* With the lock held: */
void rd_publish(struct rd_pool *p, struct rd_gen *gen, const char *why);
void rd_gen_put_locked(struct rd_gen *gen);
void rd_conn_wake(struct rd_conn *c);
void rd_conn_free(struct rd_conn *c);	/* without it, too */
void rd_pool_free(struct rd_pool *p);

void *rd_conn_main(void *conn);		/* the helper thread */

#endif
