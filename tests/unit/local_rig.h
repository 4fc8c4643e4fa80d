/* SPDX-License-Identifier: MIT */
/*
 * A rig for the local store: the services of reactor.h, op.h and conf.h on one thread, with
 * any number of reactors, a clock of its own, and requests that end in any order. Every
 * write goes through a model of a volatile write cache, so that power can be cut: what was
 * not flushed is lost, kept or torn at sector boundaries, as a seed decides.
 */
#ifndef LOCAL_RIG_H
#define LOCAL_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/store.h"

#define RIG_MAX_FILES 4

struct rig_op {
	bool done;
	uint16_t status;
	uint32_t result;	/* Retrieve */
	bool has_crc;
	uint32_t crc;
	uint8_t outcome;
	uint64_t direct, tail, copied, bounced;
	void (*fn)(struct rig_op *ro, void *arg);
	void *arg;
	/* Retrieve: where to; NULL base: bit bucket. rig_store_iov(): where from. */
	struct iovec iov[16];
	unsigned int niov;
	/* List. */
	uint8_t (*keys)[17];	/* length, then bytes */
	unsigned int nkeys, max_keys;
	/* The rest is the rig's. */
	struct kvb_op *op;
	void *data;
	void *from;		/* direct Store: client memory */
	uint16_t over;
	struct rig_op *next, *prev;
};

/* What a fault hook sees of a request, and may decide. */
struct rig_io {
	int file;
	bool write, sync;
	uint64_t off;
	uint32_t len;
	bool table;		/* header table or watermark */
	uint64_t no;		/* requests so far */
};

#define RIG_OK INT32_MIN	/* carry it out */
#define RIG_LANDED (INT32_MIN + 1) /* likewise, and report EIO all the same */

struct rig {
	unsigned int reactors;
	unsigned int files;
	uint64_t file_size;
	uint64_t unit;
	uint64_t seed;
	bool sync, verify;
	bool fifo;		/* requests end in order */
	bool defer_copies;
	bool vram, client_verifies, bounce;	/* of operations from now on */
	uint64_t buf_budget;	/* bytes, 0: plenty */
	/*
	 * One Store in so many, of those above a page, reaches the store before its value does,
	 * and one of so many of those never gets the rest: GKV_SC_DATA_TRANSFER. 0: none.
	 */
	unsigned int stage, stage_fail;
	/*
	 * One Store in so many is to be fetched from client memory, which is in pieces, by the
	 * device; of them, one of stage_fail turns out not to have been the value. 0: none.
	 */
	unsigned int direct;
	unsigned int align;	/* of memory for direct I/O; 0: any will do, no Store is direct */
	/* Result of a request: RIG_OK, -errno, or how many bytes of it to carry out. */
	int (*fault)(const struct rig_io *io, void *arg);
	void *fault_arg;
	uint64_t fail_pwrite_after;	/* recovery: the n-th write fails, and all after it; 0: none */
	/* A power cut: whether a sector not yet flushed is kept; NULL: at random. */
	bool (*keep)(int file, uint64_t off);
	unsigned int log_level_shown;

	/* The rig's own. */
	char paths[RIG_MAX_FILES][256];
	struct kvb_store st;
	struct kvb_ns ns;
	bool open;
	struct kvb_err err;
	uint64_t ios;
};

extern struct rig rig;

uint64_t rig_rand(void);
static inline uint64_t rig_below(uint64_t n)
{
	return rig_rand() % n;
}

/* Fresh files in a temporary directory; removed by rig_end(). */
void rig_begin(void);
void rig_end(void);
/* Open the store; extra "key=value" pairs, NULL last. 0 or -errno with rig.err. */
int rig_open(const char *const *extra);
void rig_close(void);		/* orderly */
void rig_kill(void);		/* as if the process had died: what was issued may land or not */
void rig_power_cut(void);	/* and the machine with it */

/* One event, in random order; false when there is nothing to do but wait for timers. */
bool rig_step(void);
void rig_run(void);		/* until idle, timers aside */
void rig_settle(void);		/* timers too, until no group of units is on its way back */
void rig_advance(uint64_t ns);	/* move the clock; timers that are due run in rig_step() */

void rig_store(struct rig_op *ro, const void *key, uint8_t klen, const void *data, uint32_t len,
	       uint8_t options);
/*
 * The value at ro->iov, direct if the store takes it so: false if not, and nothing happens then.
 * @over: what is found when it has landed.
 */
bool rig_store_iov(struct rig_op *ro, const void *key, uint8_t klen, uint32_t len, uint32_t crc,
		   uint16_t over);
void rig_retrieve(struct rig_op *ro, const void *key, uint8_t klen, void *buf, uint32_t len);
void rig_retrieve_iov(struct rig_op *ro, const void *key, uint8_t klen, uint32_t len);
void rig_delete(struct rig_op *ro, const void *key, uint8_t klen);
void rig_exist(struct rig_op *ro, const void *key, uint8_t klen);
void rig_list(struct rig_op *ro, const void *key, uint8_t klen);	/* all shards, merged */
void rig_flush(struct rig_op *ro);
void rig_resolve(struct rig_op *ro, const void *key, uint8_t klen, struct kvb_opid id);
bool rig_cancel(struct rig_op *ro);
/* Until @ro is over; false when it never is. Moves the clock when only timers are left. */
bool rig_wait(struct rig_op *ro);
struct kvb_opid rig_last_id(void);
/* Units: all, free, on their way back, set aside. */
void rig_space(uint64_t *total, uint64_t *free_units, uint64_t *old, uint64_t *lost);
/* used == what the keys' values need + what is set aside */
struct kvb_store_info rig_info(void);

/* Raw access to a member's bytes. */
void rig_peek(int file, uint64_t off, void *buf, size_t len);
void rig_poke(int file, uint64_t off, const void *buf, size_t len);

#endif
