/* SPDX-License-Identifier: MIT */
/*
 * One command on its way through a namespace's stack.
 */
#ifndef KVB_OP_H
#define KVB_OP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include <gkv/nvme_kv.h>

#include "core/dptr.h"
#include "core/reactor.h"

struct kvb_ns;
struct kvb_op;
struct kvb_qp;
struct kvb_store;
struct kvb_list;
struct kvb_regions;

#define KVB_MAX_FRAMES 8
#define KVB_INLINE_SEGS 4
#define KVB_NO_REC UINT32_MAX

/* Name of an operation for ever: the queue pair's random number and a count. */
struct kvb_opid {
	uint64_t uid;
	uint64_t seq;
};

enum kvb_outcome { KVB_UNKNOWN, KVB_APPLIED, KVB_NOT_APPLIED };

/* What a command ends with when its deadline passed and nothing can touch its buffers. */
#define KVB_TIMED_OUT GKV_SC_TRANSIENT

typedef void (*kvb_op_fn)(struct kvb_store *st, struct kvb_op *op);

/* State of a sliced copy or checksum: core/copy.c. */
struct kvb_copy {
	struct kvb_work work;
	struct kvb_store *st;
	kvb_op_fn done;
	const char *src;	/* NULL: zeroes */
	bool stream;		/* too large to be of use in a cache */
	uint32_t seg;		/* position in the segments */
	uint64_t seg_off;
	uint64_t left;		/* bytes */
	struct kvb_dptr walk;	/* staging: the data pointer */
};

struct kvb_op {
	/* Input, constant from the first layer on. */
	uint8_t opcode;		/* GKV_OP_* */
	uint8_t options;	/* GKV_STORE_*, GKV_RETRIEVE_* */
	uint8_t klen;		/* bytes */
	uint8_t layer;		/* where the operation is: core */
	uint8_t key[16];	/* bytes past klen are zero */
	uint32_t len;		/* Store: value bytes; Retrieve, List: buffer bytes */
	uint32_t crc;		/* Store: crc32c of the value */
	struct kvb_ns *ns;
	struct kvb_reactor *r;	/* where it runs */
	struct kvb_opid id;	/* mutations */
	uint64_t hash;		/* of the key */
	uint64_t start_ns;	/* when fetched, reactor clock */

	/*
	 * Store: the value, in memory the daemon owns, aligned to 4096 bytes, zeroed from
	 * len to the next multiple of 4096. NULL when len is 0. While @staging is set only
	 * @staged bytes of it have arrived, and crc is not known: see store.h, staged().
	 */
	void *data;
	uint32_t staged;
	bool staging;
	uint16_t stage_status;	/* why the rest will not come; 0 when all is well */
	/*
	 * Store: the value is still in client memory, at segs, for the devices to fetch; crc is the
	 * client's. data is room for what the CPU moves, as much as direct() asked for.
	 */
	bool direct;

	/* Set by kvb_op_map(), for a Retrieve or a direct Store. Each piece inside one region. */
	struct iovec *segs;
	uint32_t nsegs;
	bool bounce;		/* the namespace's disks cannot reach it, and may go around */

	/*
	 * A Retrieve must not read back what DMA has put into VRAM, not even to verify it. With
	 * @client_verifies the completion carries the checksum, and the client does that.
	 */
	bool vram;		/* its data pointer names VRAM */
	bool client_verifies;

	/* Results, set by the layer that completes. */
	uint16_t status;	/* without the phase bit; DNR is added by the core */
	bool has_crc;		/* Retrieve: value_crc is the stored checksum */
	uint8_t outcome;	/* enum kvb_outcome, from resolve */
	uint16_t run;		/* resolve: ns->run when the mutation was handed over */
	uint32_t result;	/* Retrieve: full length of the value, bytes */
	uint32_t value_crc;

	/* How the bytes came or went, counted by the layer that moved them. */
	uint64_t direct_bytes;	/* between device and client memory */
	uint64_t tail_bytes;	/* through host memory: tails, misaligned pieces */
	uint64_t copy_bytes;	/* Retrieve: CPU copies of whole values */
	uint64_t bounce_bytes;	/* device to VRAM through host memory, though DMA could have been */

	/* Everything below is the core's. */
	uint8_t nframes;
	uint8_t stage;		/* enum kvb_op_stage */
	bool sync;		/* still inside its first submission */
	bool completed;		/* ... and already over */
	bool late;		/* the deadline has passed */
	bool answered;		/* over, but its value is still being staged */
	bool listed;		/* on its reactor's deadline list */
	bool resolving;		/* asking a store what became of it */
	uint8_t flow;		/* of its session, see struct kvb_work */
	uint16_t cid;
	uint32_t rec;		/* record entry, or KVB_NO_REC */
	struct kvb_qp *qp;
	struct kvb_reactor *owner;	/* of the queue pair */
	const struct kvb_regions *regions;	/* as they were when it was fetched */
	struct kvb_op *next;
	struct kvb_op *dl_prev, *dl_next;
	struct {
		struct kvb_store *st;
		kvb_op_fn done;
	} frames[KVB_MAX_FRAMES];
	uint32_t client_crc;	/* Store on a checksummed queue pair */
	bool has_client_crc;
	struct kvb_msg msg;
	struct kvb_buf_waiter wait;
	struct kvb_copy copy;	/* sliced copy under way */
	struct kvb_list *list;	/* List under way */
	struct kvb_segs map;		/* owns segs */
	size_t seg_bytes;		/* charged for it */
	struct iovec inline_segs[KVB_INLINE_SEGS];
	struct gkv_sqe sqe;
	/* The layers' private bytes follow. */
	_Alignas(16) unsigned char priv[];
};

/* The layer's private bytes; undefined when the operation reaches the layer. */
static inline void *kvb_op_priv(struct kvb_op *op, size_t op_offset)
{
	return op->priv + op_offset;
}

/* ---- For stores and filters; on the operation's reactor ---- */

/*
 * The operation is over: unwind through the filters that asked, then answer the
 * client. @op is gone on return.
 */
void kvb_op_complete(struct kvb_op *op, uint16_t status);

/*
 * Hand the operation to the layer below @st. With @done, @st is called back before the
 * layers above learn of it; it finishes by kvb_op_complete(), or may forward again.
 */
void kvb_op_forward(struct kvb_store *st, struct kvb_op *op, kvb_op_fn done);

/*
 * Make the first @len bytes of a Retrieve's destination, or of a Store's source, available in
 * op->segs, merging neighbours. Returns 0, or the status to complete with (bad PRP or SGL, address in no
 * region). @len is at most op->len. Bit buckets appear with iov_base NULL.
 * A further call takes the place of the one before.
 */
uint16_t kvb_op_map(struct kvb_op *op, uint32_t len);

/*
 * Copy @len bytes at @src into the mapped destination from @off on, in slices that let
 * the reactor serve others, then call @done on @st. @src must stay valid until then.
 * kvb_op_map() must have succeeded for @off + @len bytes. Small copies are done at once.
 */
void kvb_op_copy_out(struct kvb_store *st, struct kvb_op *op, const void *src, uint32_t off,
		     uint32_t len, kvb_op_fn done);

/* Zero [0, @len) of the mapped destination, sliced likewise: a value that cannot be trusted. */
void kvb_op_clear_out(struct kvb_store *st, struct kvb_op *op, uint32_t len, kvb_op_fn done);

/*
 * Of a direct Store, when no device reads client memory any more: 0, or the status to complete
 * with, since what was read need not be the value.
 */
uint16_t kvb_op_direct_over(const struct kvb_op *op);

/* Take ownership of op->data; freed with kvb_buf_free() on the same reactor. */
void *kvb_op_take_data(struct kvb_op *op);

/*
 * List: offer the next key at or after the start key, in the store's order. Returns false
 * when no further key of this shard can fit; then complete.
 */
bool kvb_list_add(struct kvb_op *op, const uint8_t *key, uint8_t klen);

/* Run the operation's work in slices; on its reactor. */
static inline void kvb_op_work(struct kvb_op *op, struct kvb_work *w)
{
	w->flow = op->flow;
	kvb_work_add(op->r, w);
}

/* Order of keys in a List: bytewise, the shorter first on a tie. */
static inline int kvb_key_cmp(const uint8_t *a, uint8_t alen, const uint8_t *b, uint8_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c ? c : (int)alen - (int)blen;
}

#endif
