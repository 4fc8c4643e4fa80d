/* SPDX-License-Identifier: MIT */
/*
 * The local store's insides. Who owns what:
 *
 *   struct loc_store   one a namespace; what reactors share of it is atomic
 *   struct loc_shard   one a reactor: the index of the keys that hash there, the
 *                      allocation groups it owns now; touched by that reactor only
 *   struct loc_ag      a run of units: free map and header table; touched by its owner
 *                      only, which others reach by message
 *   struct loc_op      the layer's bytes of an operation
 *
 * Files: dev.c (files, devices), super.c (format, superblocks), recover.c (open), ag.c
 * (free space), table.c (header table), flush.c (flush, watermark, what waits for them),
 * reclaim.c (superseded extents), mutate.c, write.c, direct.c (from GPU memory), retrieve.c,
 * verify.c (checksum), segs.c (client memory), reach.c, ways.c (GPU memory), list.c, btree.c
 * (index).
 */
#ifndef KVB_LOCAL_H
#define KVB_LOCAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/link.h"
#include "core/store.h"
#include "stores/local/btree.h"
#include "stores/local/disk.h"

#define LOC_MAX_IO	(1u << 20)	/* bytes of one request */
#define LOC_IO_SLOTS	8u		/* requests of one operation at a time */
#define LOC_BOUNCE	(64u << 10)	/* bytes of a bounce buffer */
#define LOC_SPARE_BOUNCE 4u		/* of a shard's own */
#define LOC_TBUFS	64u		/* table writes of a shard at a time */
#define LOC_POS_UNIT	((1ull << 48) - 1)

struct loc_store;
struct loc_shard;
struct loc_op;

static inline loc_pos loc_pos_make(unsigned int file, uint64_t unit)
{
	return (uint64_t)file << 48 | unit;
}

static inline unsigned int loc_pos_file(loc_pos p)
{
	return (unsigned int)(p >> 48);
}

static inline uint64_t loc_pos_unit(loc_pos p)
{
	return p & LOC_POS_UNIT;
}

/* ---- Members ---- */

struct loc_file {
	char *path;
	int fd;			/* does the I/O and holds the lock */
	bool blkdev;
	bool direct;
	bool vcache;		/* has a volatile write cache, or a file system above it */
	uint32_t lbs;		/* logical block, bytes */
	uint32_t mem_mask;	/* alignment of memory for direct I/O, minus 1 */
	uint64_t dev, ino;
	uint64_t size;		/* bytes used, a multiple of LOC_BLK */
	struct loc_super sb;	/* host order */
	uint32_t crc_seed;	/* for slots */
	uint32_t first_ag, nags;
};

/* ---- Free space and headers ---- */

struct loc_twrite;

/* A block of the header table: the slots in use, in order, and the write under way. */
struct loc_tblk {
	uint64_t used;		/* slots present in @slot */
	uint32_t cap;
	struct loc_twrite *w;
	struct loc_slot slot[];
};

struct loc_ag {
	_Atomic(uint32_t) owner;	/* shard */
	uint32_t index;
	uint32_t file;
	uint32_t units;
	uint64_t first;		/* unit number in the member */
	uint32_t free;
	uint32_t hint;		/* where the next search begins */
	uint32_t maxrun;	/* no free run is longer */
	uint32_t busy;		/* header changes under way: it must stay */
	bool linked;
	struct kvb_link link;	/* in the owner's avail or full */
	uint64_t *map;		/* one bit a unit, 1: used */
	struct loc_tblk **blk;	/* NULL: all slots free */
};

/* A change of one slot, on its way to its group's owner, to the table and back. */
struct loc_hdr {
	struct kvb_msg msg;
	void (*done)(struct loc_shard *sh, struct loc_hdr *h, int res);
	struct loc_hdr *next;
	struct loc_shard *home;	/* where @done runs */
	struct loc_op *lop;	/* for @done */
	struct loc_ag *ag;
	uint32_t idx;		/* of the unit in the group */
	int res;
	bool put;		/* else the slot becomes free */
	bool dsync;		/* over only when it is durable */
	struct loc_slot slot;	/* put: the content; afterwards what was there */
};

/*
 * Units on their way back to the free map. For an extent that was superseded: wait until
 * what supersedes it is durable and nobody reads it, free its slot, wait until that is
 * durable. For one whose slot became a tombstone: wait until the tombstone and the freeing
 * of all older slots of its key are durable.
 */
struct loc_old {
	struct kvb_link link;
	struct kvb_link age;	/* in home's ages until its slot is known to be free */
	struct loc_hdr hdr;	/* names the first unit, the home shard */
	uint32_t units;
	bool tomb;
	uint64_t tag;		/* flush to wait for */
	uint64_t rd_tag;	/* reads to wait for */
	uint64_t no;		/* order of birth in the home shard */
	struct loc_op *lop;	/* a failed Store that waits for the slot to be free */
};

/* Runs @fn on its shard when flush @tag is over; res is 0 or -errno. */
struct loc_waiter {
	struct kvb_link link;
	uint64_t tag;
	void (*fn)(struct loc_shard *sh, struct loc_waiter *w, int res);
};

struct loc_kick {		/* a message that is sent once until it has run */
	struct kvb_msg msg;
	atomic_bool sent;
	struct loc_shard *sh;
};

#define LOC_KEY_BUCKETS 1024u

struct loc_shard {
	struct loc_store *ls;
	unsigned int id;
	struct kvb_reactor *r;
	struct loc_btree index;
	struct loc_op *busy[LOC_KEY_BUCKETS];	/* keys with a mutation under way */

	struct kvb_link avail, full;	/* groups owned */
	struct kvb_link turn;		/* mutations whose key has come free */
	unsigned int nstores;		/* writing */
	uint64_t crowd_ns;		/* when one began that was not alone */
	bool in_turn;
	struct kvb_link space;		/* Stores waiting for units */
	struct kvb_link gather;		/* Stores whose units lie in others' groups */
	bool in_gather;
	uint32_t next_file;		/* member to allocate from next */
	unsigned int victim;		/* shard to ask for a group next */
	unsigned int asked;		/* in a row without success */
	bool asking;
	struct loc_steal {
		struct kvb_msg msg;
		struct loc_shard *from;
		struct loc_ag *ag;
	} steal;
	struct kvb_timer steal_timer;

	/* Nobody but the shard itself writes low. */
	struct kvb_link seqs;		/* mutations under way, by sequence */
	_Atomic uint64_t low;		/* the first of them; UINT64_MAX: none */
	uint64_t frozen;		/* a slot of unknown state: never go past it */
	uint64_t held;		/* committed, and about to be answered */

	struct kvb_link reads;		/* Retrieves under way, in order */
	unsigned int nreads;
	uint64_t rd_next;
	struct kvb_link stale;		/* struct loc_old waiting to have its slot freed */
	struct kvb_link tombs;		/* likewise, tombstones */
	struct kvb_link cleared;	/* slot free, waiting for a flush */
	struct kvb_link ages;
	uint64_t old_no;
	struct kvb_link waiters;
	bool reclaiming, reclaim_again;
	struct loc_kick flushed;	/* from the flusher */
	struct loc_kick poke;		/* space has come free */

	void *tbuf_mem;
	void *tbuf[LOC_TBUFS];
	unsigned int ntbufs;
	struct loc_twrite *twait_head, **twait_tail;
	void *bounce_mem;
	void *bounce[LOC_SPARE_BOUNCE];
	unsigned int nbounce;
	struct kvb_link bounce_wait;	/* Retrieves */

	uint64_t inflight;		/* I/O of the shard's own: tables, flush, mark */
	bool stopping;
};

/* The flusher and keeper of the watermark; on shard 0. */
struct loc_flusher {
	_Atomic uint64_t started, done;	/* flushes */
	_Atomic uint64_t wanted;
	_Atomic uint64_t failed;	/* the last that failed */
	atomic_bool dirty;
	_Atomic uint64_t dirty_bytes;	/* since the last */
	struct loc_kick kick;
	struct kvb_timer timer;
	bool running;
	bool mark_due, mark_busy;
	uint64_t mark_seq;		/* complete when the flush began */
	uint64_t mark_next;		/* being written */
	uint64_t mark_disk;		/* written last */
	uint64_t mark_gen;
	void *mark_buf;
	struct kvb_io mark_io;
	unsigned int pend;
	int err;
	struct loc_sync {
		struct kvb_io io;
		struct loc_store *ls;
	} sync[LOC_MAX_FILES];
};

struct loc_id_set {
	struct kvb_opid *v;
	size_t n, cap;
};

struct loc_store {
	struct kvb_store *st;
	struct loc_store *kept;	/* closed, but not free to go */
	struct loc_file file[LOC_MAX_FILES];
	unsigned int nfiles;
	uint8_t uuid[16];
	uint32_t unit;
	unsigned int unit_shift;
	uint32_t ag_units;
	bool buffered, format, prefill, vcache;
	uint32_t block;			/* largest logical block, bytes; 0: a file is not direct */
	uint32_t mem_mask;		/* strictest alignment of memory, minus 1 */
	pthread_mutex_t scratch;	/* whose block it is, on each member */
	uint64_t size;			/* of each regular file, 0: as it is */
	uint64_t lock_wait_ns;
	uint64_t mark_interval_ns;
	uint64_t mark_bytes;

	struct loc_ag *ag;
	uint32_t nags;
	uint64_t total_units;
	_Atomic uint64_t free_units;	/* in free maps and not promised */
	_Atomic uint64_t old_units;	/* on their way to a free map */
	_Atomic uint64_t lost_units;	/* quarantined */
	_Atomic uint64_t keys;
	_Atomic uint64_t next_seq;
	_Atomic uint64_t space_waiters;

	struct loc_shard *sh[KVB_MAX_REACTORS];
	unsigned int nshards;
	struct loc_flusher fl;
	struct loc_id_set ids;		/* sorted; mutations found at recovery */
	uint32_t run;			/* how often the store was opened, this one included */

	/* Counted for the log and tests. */
	_Atomic uint64_t slots_repaired, slots_bad, slots_dropped, values_bad, super_repaired;
	_Atomic uint64_t table_writes, header_changes, flushes, buffered_ios;
};

static inline struct loc_ag *loc_ag_of(struct loc_store *ls, loc_pos p)
{
	return &ls->ag[ls->file[loc_pos_file(p)].first_ag + loc_pos_unit(p) / ls->ag_units];
}

/* Units a value takes; at least one, because of its slot. */
static inline uint64_t loc_units(const struct loc_store *ls, uint64_t vlen)
{
	uint64_t n = (vlen + ls->unit - 1) >> ls->unit_shift;

	return n ? n : 1;
}

static inline uint64_t loc_data_off(const struct loc_store *ls, loc_pos p)
{
	return ls->file[loc_pos_file(p)].sb.data_off + (loc_pos_unit(p) << ls->unit_shift);
}

/* ---- Operations ---- */

enum loc_op_state { LOC_NEW, LOC_WAIT_KEY, LOC_WAIT_SPACE, LOC_GATHER, LOC_RUN };

/* One request of an operation. */
struct loc_io {
	struct kvb_io io;
	struct loc_op *lop;	/* NULL: idle */
	uint64_t off;		/* bytes in the member */
	uint32_t len;
	uint32_t got;
	uint32_t retries;
	uint16_t file;
	bool bounced;
	bool dsync;		/* a write that is over only when it is durable */
	void *buf;		/* memory, or the bounce buffer */
	uint32_t seg, nsegs;	/* of client memory: whole segments, when buf is NULL */
	uint32_t voff;		/* bounced: offset in the value of what is wanted */
	uint32_t vlen;		/* bytes wanted */
	struct loc_io *next;
};

struct loc_op {
	struct kvb_op *op;
	struct loc_shard *sh;
	enum loc_op_state state;
	bool pumping, repump, crc_busy, copy_busy;
	bool holds_key;
	struct loc_slot live;		/* of a Delete that failed: what it is to put back */
	unsigned int restores;		/* attempts at that */
	bool writing;			/* a Store that may have written something */
	bool headed;			/* ... even its headers */
	bool alone;			/* no other Store was writing when it began */
	bool dsync;			/* each write is durable when it is over */
	struct loc_key key;
	struct kvb_link link;		/* space, gather, reads or bounce wait */
	struct loc_op *hnext;		/* busy bucket */
	struct loc_op *qhead, **qtail;	/* mutations of the key behind this one */
	struct loc_op *qnext;

	/* Mutations. */
	struct kvb_link seq_link;
	uint64_t seq;
	uint64_t need;			/* units not found yet */
	struct loc_extv *extv;		/* extents so far; inline1 while there is one */
	uint32_t nexts, cap;
	struct loc_ext ext1;
	struct loc_hdr hdr1, *hdrs;
	struct kvb_link olds;		/* for the version that goes */
	struct loc_waiter wait;
	uint32_t pend;			/* requests and header changes under way */
	int err;

	/* Data transfer. */
	struct loc_io io[LOC_IO_SLOTS];
	uint32_t vlen;			/* of the value */
	uint32_t want;			/* bytes to transfer */
	uint32_t next_off;		/* next byte to request */
	uint32_t ext_i;			/* and where that is */
	uint32_t ext_off;		/* bytes of the value before extent ext_i */
	struct loc_ext rd1;
	const struct loc_extv *rdv;
	struct loc_extv *rdv_copy;
	uint32_t seg, seg_off;		/* client memory: where next_off is */
	uint32_t gathered;		/* direct Store: bytes of op->data in use */

	/* Retrieve. */
	struct kvb_link rd_link;
	uint64_t rd_no;
	uint32_t io_max;		/* bytes of one request */
	struct loc_io *copyq, **copyq_tail, *copying;
	uint32_t vcrc, crc;
	uint32_t crc_off;		/* bytes that @crc covers */
	uint32_t crc_seg;		/* and where that is */
	uint64_t crc_seg_off;
	uint8_t phase;
	bool verify;			/* take the checksum over what has come */
	bool bounce;			/* nothing goes straight into client memory */
	bool waiting_bounce;
	uint16_t status;

	struct kvb_work work;		/* Retrieve: checksum; List */

	/* List. */
	struct loc_key list_key;
	bool list_after;
};

/* The @i-th extent of what a Store writes. */
static inline struct loc_ext *loc_ext_at(struct loc_op *lop, uint32_t i)
{
	return lop->extv ? &lop->extv->e[i] : &lop->ext1;
}

static inline struct loc_op *loc_op_of(struct kvb_store *st, struct kvb_op *op)
{
	return kvb_op_priv(op, st->op_offset);
}

/* ---- dev.c ---- */

/* Open, vet and lock every member. Control thread; waits for the lock. */
int loc_dev_open(struct loc_store *ls, const char *paths, struct kvb_err *err);
void loc_dev_close(struct loc_store *ls);
/* Blocking, whole; 0 or -errno (-EIO also for an early end). Control thread. */
int loc_pread(const struct loc_file *f, void *buf, size_t len, uint64_t off);
int loc_pwrite(const struct loc_file *f, const void *buf, size_t len, uint64_t off);
int loc_sync_all(struct loc_store *ls);
/* io_uring knows every operation the store uses. */
int loc_probe_ring(struct kvb_err *err);

/* ---- blkdev.c ---- */

/* Vet a block device: geometry, write cache, format. */
int loc_blkdev_vet(struct loc_file *f, struct kvb_err *err);

/* ---- super.c ---- */

/* Read the superblocks, or format. Leaves geometry in @ls. Control thread. */
int loc_super_open(struct loc_store *ls, struct kvb_err *err);
/* The newer valid watermark, 0 without one; and the number of the run that wrote it. */
int loc_mark_read(struct loc_store *ls, uint64_t *seq, uint64_t *gen);
void loc_mark_fill(const struct loc_store *ls, void *block, uint64_t seq, uint64_t gen);
static inline uint64_t loc_mark_off(uint64_t gen)
{
	return LOC_BLK * (1 + (gen & 1));
}

/* ---- recover.c ---- */

/* Rebuild index and free maps from the header table. Control thread. */
int loc_recover(struct loc_store *ls, struct kvb_err *err);
void loc_ids_add(struct loc_id_set *s, uint64_t uid, uint64_t seq);
bool loc_ids_has(const struct loc_id_set *s, const struct kvb_opid *id);

/* ---- table.c ---- */

uint32_t loc_slot_crc(const struct loc_file *f, uint64_t unit, const struct loc_slot *s);
static inline bool loc_slot_zero(const struct loc_slot *s)
{
	const uint64_t *w = (const void *)s;

	return !(w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]);
}

/* Memory for the slot of unit @idx; -ENOMEM. Owner. */
int loc_table_reserve(struct loc_ag *ag, uint32_t idx);
/* What the table says now; NULL: free. Owner. */
struct loc_slot *loc_table_get(struct loc_ag *ag, uint32_t idx);
/* Swap *@s into memory; must have been reserved. Owner or control thread. */
void loc_table_put(struct loc_ag *ag, uint32_t idx, struct loc_slot *s);
void loc_table_drop(struct loc_ag *ag, uint32_t idx);
/* The block as it goes to disk. */
void loc_table_image(const struct loc_ag *ag, uint32_t blk, void *out);
uint64_t loc_table_off(const struct loc_store *ls, const struct loc_ag *ag, uint32_t blk);
/*
 * Change a slot and write its block, together with whatever else changes there meanwhile.
 * @h->home, ag, idx, put, slot and done are set; @h->done runs on the home shard, possibly
 * before the return.
 */
void loc_hdr_submit(struct loc_shard *sh, struct loc_hdr *h);
void loc_table_free(struct loc_ag *ag);

/* ---- ag.c ---- */

/* Take @n units off the free count, wherever they are. Any thread. */
bool loc_reserve(struct loc_store *ls, uint64_t n);
/* A free run of 1 to @want units in the shard's groups, marked used; 0: none. */
uint32_t loc_alloc(struct loc_shard *sh, uint64_t want, loc_pos *pos);
/* Give units back to the map of a group the shard owns; does not touch the counts. */
void loc_free_map(struct loc_shard *sh, struct loc_ag *ag, uint32_t idx, uint32_t n);
/* Units that never held anything: back to the map and the count. */
void loc_unalloc(struct loc_shard *sh, loc_pos pos, uint32_t n);
void loc_map_set(struct loc_ag *ag, uint32_t idx, uint32_t n);
bool loc_map_any(const struct loc_ag *ag, uint32_t idx, uint32_t n);
/* Ask other shards for a group; loc_gather_run() when one has come. */
void loc_steal_start(struct loc_shard *sh);
void loc_steal_init(struct loc_shard *sh);
void loc_ag_link(struct loc_shard *sh, struct loc_ag *ag);

/* ---- flush.c ---- */

int loc_flush_init(struct loc_store *ls);
void loc_flush_fini(struct loc_store *ls);
void loc_flush_stop(struct loc_store *ls);	/* shard 0 */
/* A mutation has changed something: @bytes of data. */
void loc_dirty(struct loc_shard *sh, uint64_t bytes);
/* The flush that will cover everything which is complete now. Any thread. */
static inline uint64_t loc_flush_tag(struct loc_store *ls)
{
	return atomic_load(&ls->fl.started) + 1;
}

static inline bool loc_flush_over(struct loc_store *ls, uint64_t tag)
{
	return !ls->vcache || atomic_load(&ls->fl.done) >= tag;
}

/* Have flush @tag happen soon. Any shard. */
void loc_flush_want(struct loc_store *ls, uint64_t tag);
/* Call @w->fn when a flush that covers everything complete now is over. */
void loc_flush_wait(struct loc_shard *sh, struct loc_waiter *w);
/*
 * Sequences: @lop gets the next one, and later leaves. The watermark passes it only after
 * loc_seq_answered() with what loc_seq_put() returned: up to then the operation is not
 * recorded as done, and its id must be found.
 */
void loc_seq_get(struct loc_shard *sh, struct loc_op *lop);
uint64_t loc_seq_put(struct loc_shard *sh, struct loc_op *lop);
void loc_seq_answered(struct loc_shard *sh, uint64_t held);
/* Never let the watermark reach @seq. */
void loc_seq_freeze(struct loc_shard *sh, uint64_t seq);
void loc_kick_init(struct loc_kick *k, struct loc_shard *sh, void (*fn)(struct kvb_msg *));
void loc_kick(struct loc_kick *k);

/* ---- reclaim.c ---- */

/* Memory to give back one extent later; on @lop's list. -ENOMEM. */
int loc_old_prepare(struct loc_op *lop, loc_pos pos, uint32_t units);
void loc_old_discard(struct loc_op *lop);
/* The version they stand for is gone; the first one's slot is a tombstone if @tomb. */
void loc_old_retire(struct loc_shard *sh, struct loc_op *lop, bool tomb);
/*
 * Undo what a failed Store may have left: free the slots of its extents, then call
 * loc_aborted() once for each.
 */
void loc_old_abort(struct loc_shard *sh, struct loc_op *lop);
void loc_aborted(struct loc_op *lop, int res);
/* Move on whatever need not wait any longer. */
void loc_reclaim(struct loc_shard *sh);
void loc_space_poke(struct loc_store *ls);
void loc_reads_done(struct loc_shard *sh);

/* ---- mutate.c ---- */

void loc_store_op(struct kvb_store *st, struct kvb_op *op);
void loc_delete_op(struct kvb_store *st, struct kvb_op *op);
void loc_staged(struct kvb_store *st, struct kvb_op *op);
/* One of a mutation's requests or header changes is over, or all have been issued. */
void loc_written(struct loc_op *lop);
bool loc_cancel(struct kvb_store *st, struct kvb_op *op);
void loc_op_init(struct kvb_store *st, struct kvb_op *op, struct loc_op *lop);
/* Stores waiting for space: try again. */
void loc_space_run(struct loc_shard *sh);
void loc_gather_run(struct loc_shard *sh);

/* ---- write.c ---- */

/* Requests for as much of a Store's value as is there and there are slots for. */
void loc_write_data(struct loc_op *lop);
/* The headers of a Store's extents; the value is complete, its checksum known. */
void loc_write_headers(struct loc_op *lop);
void loc_hdr_fill(struct loc_op *lop, struct loc_hdr *h, loc_pos pos, uint8_t type,
		  uint32_t units, uint32_t part);

/* ---- io.c ---- */

struct loc_io *loc_io_idle(struct loc_op *lop);
void loc_io_read(struct loc_io *io);
void loc_io_write(struct loc_io *io);
/* Did the request end? Otherwise it has been issued again. *res becomes 0 or -errno. */
bool loc_io_over(struct loc_io *io, int *res, bool write);
/* Where byte @voff of the operation's value is; contiguous for *@len bytes. */
uint64_t loc_locate(struct loc_op *lop, uint32_t voff, uint32_t *file, uint64_t *len);
uint16_t loc_status(int err, bool write);

/* ---- segs.c ---- */

/* May the file do direct I/O between @base and its byte @off? */
bool loc_direct_ok(const struct loc_file *f, const void *base, uint64_t off);
/* Step over @n bytes of @op's segments, from byte *@off of segment *@seg on. */
void loc_seg_step(const struct kvb_op *op, uint32_t *seg, uint32_t *off, uint32_t n);
/* The same for where the next byte to request is. */
void loc_seg_advance(struct loc_op *lop, uint32_t n);
/*
 * Whole segments from the current one on, as long as each is direct and a multiple of the
 * block, for @off of the file: at most @max bytes. Returns how many, and of segments *@n.
 */
uint32_t loc_plan_vector(struct loc_op *lop, const struct loc_file *f, uint64_t off, uint32_t max,
			 uint32_t *n);

/* ---- direct.c ---- */

/* The store's direct(). */
bool loc_direct(struct kvb_store *st, const struct kvb_op *op, uint32_t most, uint32_t *rest);
/*
 * Give @io, whose place on the disk is set, the next at most @n bytes of a direct Store and go on
 * behind them.
 */
void loc_direct_next(struct loc_op *lop, struct loc_io *io, uint32_t n);

/* ---- retrieve.c, verify.c ---- */

void loc_retrieve_op(struct kvb_store *st, struct kvb_op *op);
/* Go on with a Retrieve as far as possible; may end it. */
void loc_rd_pump(struct loc_op *lop);
/* Take the checksum over what has arrived; loc_rd_pump() when a slice has got there. */
void loc_crc_run(struct loc_op *lop);
/* loc_rd_pump() at the next turn, or when a slice under way is over. */
void loc_crc_kick(struct loc_op *lop);
void loc_bounce_run(struct loc_shard *sh);

/* ---- reach.c ---- */

/* The store's reach(). */
int loc_reach(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err);

/* ---- ways.c ---- */

/*
 * Any thread. @way: names the way from @disk to memory of @function (kvb_reach.function)
 * as long as the machine is up; -errno if it has no name. Was a transfer seen to arrive on it
 * since the machine was booted, by this daemon or one before it; from now on it was.
 */
int loc_way(char *way, size_t len, const char *function, dev_t disk);
bool loc_way_known(const struct kvb_ns *ns, const char *way);
void loc_way_learn(const struct kvb_ns *ns, const char *way);

/* ---- list.c ---- */

void loc_list_op(struct kvb_store *st, struct kvb_op *op);

#endif
