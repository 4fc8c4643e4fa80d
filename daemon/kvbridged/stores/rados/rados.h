/* SPDX-License-Identifier: MIT */
/*
 * rados: one object for each key in a pool of a Ceph cluster. The object's name is the key in
 * lowercase hex, its data the value and nothing else.
 *
 *   rados.c     set-up, configuration, reports
 *   pool.c      the connection: made, fenced, watched, made again
 *   req.c       a request's life: within the budget, answered, let go of
 *   retrieve.c  Retrieve: whole or in slices
 *   mutate.c    Store, Delete, Exist, and what became of one after a restart
 *   list.c      List, on a helper thread
 *   shim.cc     what librados offers to C++ only
 *
 * An operation runs on the reactor of its queue pair; librados's callback is turned into a
 * message to it. A request outlives its operation when a deadline ends that first: nothing of
 * a client's memory is ever known to librados.
 */
#ifndef KVB_RADOS_H
#define KVB_RADOS_H

#include "core/count.h"
#include "core/link.h"
#include "core/store.h"
#include "stores/rados/attr.h"
#include "stores/rados/hist.h"
#include "stores/rados/list.h"
#include "stores/rados/pool.h"
#include "stores/rados/shim.h"

/* Requests up to this many bytes do not count against the budget of bytes. */
#define RD_SMALL (64u << 10)

#define RD_OID_LEN (2 * GKV_KEY_MAX)

struct rd_store {
	struct rd_pool *pool;
	struct rd_lister *lister;
	uint64_t shard_bytes;		/* in flight on one reactor at most */
	uint32_t slice;			/* bytes; 0: never */
	uint32_t slice_min;		/* reads below this go in one piece */
	uint32_t slice_depth;		/* large reads in flight on a reactor beyond which they do, too */
	struct rd_shard *sh[KVB_MAX_REACTORS];
	struct rd_req *orphans;		/* unsent when their reactor stopped */
	_Atomic uint64_t values_bad;
};

/* What a reactor holds of one generation of the connection. */
struct rd_lease {
	struct rd_io *io;
	uint32_t users;			/* requests, and the shard for its current one */
};

struct rd_shard {
	struct rd_store *rs;
	struct kvb_store *st;
	struct kvb_reactor *r;
	struct rd_sub sub;
	struct rd_lease *lease;		/* NULL: not ready */
	struct kvb_link reqs;		/* all, the let-go ones too */
	struct kvb_link waiting;		/* for bytes, oldest first */
	struct kvb_link parked;		/* for a connection */
	struct kvb_link unsent;		/* over, but librados still holds their data */
	struct kvb_timer unsent_timer;
	struct rd_req *free;
	uint64_t bytes;			/* of large requests in flight */
	uint32_t large_reads;		/* in flight */
	uint32_t guess;			/* of the last large reads: how many were as long as asked */
	bool running_waiters;
	struct rd_hist added[2];	/* ns this daemon adds: Retrieve, Store */
	struct {
		kvb_counter sliced, whole, rereads, copied, cancelled, waits;
	} count;
};

/* One librados operation of a request. */
struct rd_part {
	struct rd_req *req;
	struct kvb_msg msg;
	struct rsh_read *read;
	uint64_t back_ns;		/* when librados called back */
	uint32_t off, len;		/* bytes of the value asked for */
	bool pending, over;
	struct rsh_read_result res;
};

struct rd_req {
	struct kvb_link link;		/* in sh->reqs */
	struct kvb_link queue;		/* in waiting, parked or unsent */
	struct rd_req *next_free;
	struct rd_shard *sh;
	struct kvb_op *op;		/* NULL: ended already, by its deadline */
	struct rd_lease *lease;
	void (*go)(struct rd_req *q);	/* when its turn has come */
	void (*over)(struct rd_req *q, struct rd_part *p);	/* a part has ended */
	char oid[RD_OID_LEN + 1];
	bool queued;
	bool busy;			/* a copy or checksum under way needs the operation */
	uint32_t charged;		/* bytes */
	uint64_t send_ns;		/* when it was handed to librados */
	uint32_t npending;
	/* Store, Delete */
	struct rsh_write *write;
	void *data;
	/* Retrieve */
	struct rd_part one;
	struct rd_part *parts;		/* &one, or an array */
	uint32_t nparts, next;		/* next: the first whose bytes are still to be moved */
	uint32_t pos;			/* bytes of it that have been */
	uint32_t span;			/* bytes asked for in this attempt */
	uint32_t want;			/* bytes the client gets */
	uint32_t need;			/* bytes to be read: more when all must be checksummed */
	uint32_t placed;		/* bytes of client memory written so far */
	uint32_t crc;
	unsigned int attempt;
	bool known;			/* the first part has told size and version */
	bool large;
	bool sliced;
	bool checked;			/* there is a checksum to compare with */
	bool again;			/* begin anew when all parts are over */
	bool pumping, repump;
	uint64_t version;
	struct rd_attr attr;
	struct kvb_work work;
	const char *src;		/* piece in hand: a checksum or a copy is under way */
	uint32_t src_len, src_done;
};

struct rd_op {
	struct rd_req *req;
	void *list;			/* List: see list.h */
};

static inline struct rd_op *rd_op_of(struct kvb_store *st, struct kvb_op *op)
{
	return kvb_op_priv(op, st->op_offset);
}

static inline struct rd_shard *rd_shard_of(struct kvb_store *st, struct kvb_op *op)
{
	return kvb_store_shard(st, op->r);
}

/* All below: on the operation's reactor. */

/* ---- req.c ---- */

/*
 * A request for @op: @go is called, perhaps at once, when @bytes are within the budget. Ends
 * the operation itself when there is no connection; with @park it waits for one.
 */
void rd_req_start(struct kvb_store *st, struct kvb_op *op, uint32_t bytes,
		  void (*go)(struct rd_req *q), bool park);

/* Go through the budget anew, for @bytes, and call q->go. */
void rd_req_again(struct rd_req *q, uint32_t bytes);

/* Read through librados; q->over(q, p) follows unless an error is returned. */
int rd_read_send(struct rd_req *q, struct rd_part *p, bool first);
int rd_write_send(struct rd_req *q, const struct rsh_write_args *a);

/* The operation is over: answer it and let go of the request. */
void rd_req_end(struct rd_req *q, uint16_t status);

/* End the operation by its deadline: what librados has of it is let go of. */
void rd_req_cancel(struct rd_req *q);
bool rd_cancel(struct kvb_store *st, struct kvb_op *op);

void rd_lease_put(struct rd_shard *sh, struct rd_lease *g);
void rd_shard_start(struct kvb_store *st, struct kvb_reactor *r);
void rd_shard_stop(struct rd_shard *sh);
/* After rd_shard_stop(), again and again: whether librados may still call back. */
bool rd_shard_busy(struct rd_shard *sh);
/* Control thread, once the connection is gone. */
void rd_orphans_free(struct rd_store *rs);

/* What a negative errno of librados is to the client; tells the pool of what concerns it. */
uint16_t rd_status(struct rd_req *q, int rc, bool write);

/* ---- retrieve.c, mutate.c ---- */

void rd_retrieve(struct kvb_store *st, struct kvb_op *op);
void rd_store(struct kvb_store *st, struct kvb_op *op);
void rd_delete(struct kvb_store *st, struct kvb_op *op);
void rd_exist(struct kvb_store *st, struct kvb_op *op);
void rd_resolve(struct kvb_store *st, struct kvb_op *op);

#endif
