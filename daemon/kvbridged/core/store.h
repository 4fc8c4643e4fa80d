/* SPDX-License-Identifier: MIT */
/*
 * The store interface. A namespace is a stack of layers: filters on top, one store
 * at the bottom, all behind struct kvb_store_ops.
 *
 * To add one: write stores/NAME.c or filters/NAME.c that defines
 * "const struct kvb_store_ops kvb_NAME_ops", and add KVB_STORE(NAME) to
 * stores/table.def.
 *
 * Execution. Every operation runs on one reactor from submission to completion and
 * never blocks. For a KVB_STORE_SHARDED store that reactor is chosen by the key, so
 * a shard's state needs no locks; otherwise it is the one that owns the queue pair.
 * Operations on the same key may overlap; the store decides their order.
 *
 * Buffers. A Store's value arrives staged in memory the daemon owns (op->data, see
 * op.h): client memory is not read again, except by a store that asks for it (direct()). A
 * Retrieve's destination is obtained with
 * kvb_op_map() once the length is known.
 *
 * Completion. kvb_op_complete() exactly once per operation, and only when neither
 * the daemon nor a device can still touch the operation's buffers. It may be called
 * before the entry point returns.
 */
#ifndef KVB_STORE_H
#define KVB_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/conf.h"
#include "core/op.h"
#include "core/reactor.h"

/*
 * Set by a store that is closed and leaves a library's threads behind: the process then ends
 * without the destructors of what such a thread may be using. Any thread.
 */
extern _Atomic bool kvb_threads_left;

#define KVB_MAX_REACTORS 64
#define KVB_MAX_LAYERS 8

#define KVB_STORE_FILTER	0x1u	/* stands on another layer */
#define KVB_STORE_SHARDED	0x2u	/* operations run on the reactor of their key */
#define KVB_STORE_VOLATILE	0x4u	/* contents end with the process */
#define KVB_STORE_VERIFIES	0x8u	/* honours ns->verify on Retrieve by itself */
#define KVB_STORE_REMOTE	0x10u	/* other threads do the work and need the processors */

struct kvb_ns;
struct kvb_store;

struct kvb_store_info {
	uint64_t capacity;	/* bytes for keys and values */
	uint64_t used;		/* bytes allocated */
	uint64_t keys;
	bool uncounted;		/* capacity, used and keys are not known */
	uint32_t key_max;	/* bytes */
	uint32_t value_max;	/* bytes */
	uint32_t block_size;	/* bytes; the grain of DMA, 1 if any */
	bool volatile_cache;	/* Flush has work to do */
	bool read_only;
	bool ready;
};

/* GPU memory that values are to be read into, and stored from. */
struct kvb_reach {
	int fd;			/* the region's descriptor, of /dev/gkv */
	void *addr;		/* where it is mapped; page aligned, writable */
	uint64_t len;		/* bytes */
	const char *what;	/* for texts */
	const char *function;	/* whose memory it is: "0000:03:00.0 bar 2" */
	const _Atomic bool *stop;	/* nobody waits for the answer: begin no more transfers */
	bool *fetch;		/* set to whether the devices can read it, too: struct kvb_store_ops */
};

/* Takes what a store has to say about itself, by name; see struct kvb_store_ops. */
struct kvb_report {
	void (*number)(const struct kvb_report *to, const char *name, uint64_t v);
	void (*text)(const struct kvb_report *to, const char *name, const char *v);
	void *arg;
};

struct kvb_store_ops {
	const char *name;
	uint32_t flags;		/* KVB_STORE_* */
	size_t op_size;		/* bytes per operation, see kvb_op_priv() */
	size_t shard_size;	/* bytes per reactor, zeroed, see kvb_store_shard() */

	/*
	 * Control thread, before any reactor serves the store; may block. @conf holds the
	 * layer's keys. On failure nothing remains. A layer below is already open.
	 */
	int (*open)(struct kvb_store *st, const struct kvb_conf *conf, struct kvb_err *err);
	/* Control thread, after every reactor has stopped the store. */
	void (*close)(struct kvb_store *st);

	/* Reactor thread, once per reactor; optional. */
	int (*start)(struct kvb_store *st, struct kvb_reactor *r, struct kvb_err *err);
	/* Reactor thread; no operation is in flight. */
	void (*stop)(struct kvb_store *st, struct kvb_reactor *r);
	/*
	 * Reactor thread, after stop: does the store still wait for something? Asked again for a
	 * while. Optional: requests on the reactor's ring are waited for anyway.
	 */
	bool (*busy)(struct kvb_store *st, struct kvb_reactor *r);

	/*
	 * Operations. A filter leaves NULL what it passes through. A sharded store's list
	 * and flush are called once on each reactor, in turn.
	 */
	void (*store)(struct kvb_store *st, struct kvb_op *op);
	void (*retrieve)(struct kvb_store *st, struct kvb_op *op);
	void (*delete)(struct kvb_store *st, struct kvb_op *op);
	void (*exist)(struct kvb_store *st, struct kvb_op *op);
	void (*list)(struct kvb_store *st, struct kvb_op *op);
	void (*flush)(struct kvb_store *st, struct kvb_op *op);

	/*
	 * Large Stores may begin before all of the value is there. Optional; used when the
	 * store is the only layer. A Store then arrives with op->staging set, and this is
	 * called whenever op->staged has grown, and for the last time with op->staging clear:
	 * op->crc is final, or op->stage_status tells why the rest will not come. What was
	 * written must then be undone, and the operation completed with that status. A Store
	 * may complete while op->staging is set (not with success): this is not called then.
	 */
	void (*staged)(struct kvb_store *st, struct kvb_op *op);

	/*
	 * Can the value of a Store, mapped in op->segs, go to the devices from there? Sets
	 * *@rest: bytes of op->data that the store needs for what the CPU must move, at most
	 * @most. False: all of it is to be staged. Optional; asked when the store is the only
	 * layer, for GPU memory that its devices were seen to read, if a checksum came with the
	 * command. The Store then arrives with op->direct set. When the devices are done, and
	 * before anything takes effect, the store calls kvb_op_direct_over().
	 */
	bool (*direct)(struct kvb_store *st, const struct kvb_op *op, uint32_t most,
		       uint32_t *rest);

	/*
	 * The operation will be submitted here in a moment: bring what its look-up will touch
	 * into the cache. Optional; bottom layer of sharded stores only.
	 */
	void (*prefetch)(struct kvb_store *st, const struct kvb_op *op);

	/*
	 * After a restart: did the mutation named by op->id happen? Sets op->outcome and
	 * completes. op->run tells whether it was handed to the predecessor or to a daemon
	 * before that one. A volatile store needs none.
	 */
	void (*resolve)(struct kvb_store *st, struct kvb_op *op);

	/*
	 * The deadline has passed. Complete @op with KVB_TIMED_OUT now if nothing can touch
	 * its buffers any more, and return true; return false if it must run its course.
	 */
	bool (*cancel)(struct kvb_store *st, struct kvb_op *op);

	/* Any thread; must not block. A filter leaves it NULL. */
	void (*info)(struct kvb_store *st, struct kvb_store_info *info);

	/*
	 * Can the devices below do DMA to the GPU memory at @to->addr, a region's? Asks the
	 * kernel, then makes sure with a transfer. -EXDEV and the reason if not; other errors
	 * when that could not be found out. On a thread that does nothing else, several at a
	 * time; may block for as long as a device does, but returns soon once @to->stop is
	 * set. The memory is mapped until it returns, though it may be revoked. Optional: a
	 * store without it moves its values by the CPU. Sets *@to->fetch where Stores may be
	 * direct(); without that they go by the CPU, which is no failure.
	 */
	int (*reach)(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err);

	/* What else operators may want to know. Control thread; must not block. Optional. */
	void (*report)(struct kvb_store *st, const struct kvb_report *to);
};

struct kvb_store {
	const struct kvb_store_ops *ops;
	struct kvb_ns *ns;
	struct kvb_store *next;	/* the layer below, NULL at the bottom */
	unsigned int layer;	/* 0 on top */
	size_t op_offset;	/* of the layer's bytes in an operation */
	void *priv;		/* the layer's own */
	void *shards[KVB_MAX_REACTORS];
};

static inline void *kvb_store_shard(const struct kvb_store *st, const struct kvb_reactor *r)
{
	return st->shards[kvb_reactor_id(r)];
}

/* A layer's entry point for an opcode; NULL when it passes it through. */
static inline kvb_op_fn kvb_store_entry(const struct kvb_store_ops *ops, uint8_t opcode)
{
	switch (opcode) {
	case GKV_OP_STORE:
		return ops->store;
	case GKV_OP_RETRIEVE:
		return ops->retrieve;
	case GKV_OP_DELETE:
		return ops->delete;
	case GKV_OP_EXIST:
		return ops->exist;
	case GKV_OP_LIST:
		return ops->list;
	default:
		return ops->flush;
	}
}

/* NULL when there is none of that name. */
const struct kvb_store_ops *kvb_store_find(const char *name);

/* One namespace: identity, policy and the stack. Constant while served, but for @ednek. */
struct kvb_ns {
	uint32_t nsid;
	unsigned int index;	/* in the daemon's table */
	char name[64];
	uint8_t uuid[16];	/* stable over restarts */
	struct kvb_store *top;
	struct kvb_store *bottom;
	struct kvb_store layers[KVB_MAX_LAYERS];
	unsigned int nlayers;
	size_t op_size;		/* private bytes of all layers */
	_Atomic uint64_t deadline_ns;
	uint32_t value_max;	/* min of configuration and store, bytes */
	bool verify;		/* check the checksum on Retrieve */
	bool sync;		/* durability = sync: acknowledged means durable */
	bool read_only;
	bool allow_bounce;	/* VRAM that its disks cannot reach is served through host memory */
	bool sharded;
	bool volatile_store;
	bool remote;
	_Atomic bool ednek;	/* Feature 20h */
	_Atomic bool vwc;	/* Feature 06h: write cache enabled */
	uint32_t run;		/* how often the store was opened; set by its open() */
	char *access;		/* who may open it, see docs/operations.md */
	const char *state_dir;	/* where a store may keep what must outlive the process */
};

void kvb_ns_info(const struct kvb_ns *ns, struct kvb_store_info *info);

#endif
