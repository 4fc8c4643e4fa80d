/* SPDX-License-Identifier: MIT */
/*
 * A reactor: one thread, one io_uring, the queue pairs it owns. What stores and
 * filters may use of it; all on the reactor's own thread unless said otherwise.
 */
#ifndef KVB_REACTOR_H
#define KVB_REACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <liburing.h>

struct kvb_reactor;

unsigned int kvb_reactor_id(const struct kvb_reactor *r);	/* any thread */
unsigned int kvb_reactor_count(void);				/* any thread */
/* The reactor whose shard holds keys of this hash. Any thread. */
struct kvb_reactor *kvb_reactor_of(uint64_t hash);

/* CLOCK_MONOTONIC, ns, read once per turn of the loop. */
uint64_t kvb_now(const struct kvb_reactor *r);

/* ---- I/O ---- */

/* One request on the ring; embed it in longer-lived memory. */
struct kvb_io {
	void (*done)(struct kvb_io *io, int res);	/* res: bytes or -errno */
	bool more;	/* multishot requests: further completions follow this one */
};

/*
 * A cleared submission entry whose completion calls io->done. Fill it with an
 * io_uring_prep_*() other than its user data. Submitted at the end of the turn.
 */
struct io_uring_sqe *kvb_io_get(struct kvb_reactor *r, struct kvb_io *io);

/* ---- Timers ---- */

struct kvb_timer {
	void (*fn)(struct kvb_timer *t);
	uint64_t when;		/* ns, kvb_now() clock */
	size_t slot;		/* heap position + 1, 0 when idle */
};

void kvb_timer_arm(struct kvb_reactor *r, struct kvb_timer *t, uint64_t when);	/* or re-arm */
void kvb_timer_cancel(struct kvb_reactor *r, struct kvb_timer *t);		/* idle: no-op */

/* ---- Work in slices ---- */

struct kvb_work {
	bool (*run)(struct kvb_work *w);	/* one slice; true while there is more */
	uint8_t flow;				/* whose it is: each flow has its turn */
	struct kvb_work *next;
};

/*
 * Run @w at the next turns, in rotation with that of other flows, behind older work of its
 * own. Slices should stay below 20 us. For an operation's work: kvb_op_work().
 */
void kvb_work_add(struct kvb_reactor *r, struct kvb_work *w);

/* ---- Messages ---- */

struct kvb_msg {
	void (*fn)(struct kvb_msg *m);
	struct kvb_msg *next;
};

/* Run @m->fn on @r's thread. Any thread; never blocks, never allocates. */
void kvb_reactor_send(struct kvb_reactor *r, struct kvb_msg *m);

/* ---- Buffers ---- */

/*
 * At least @len bytes aligned to 4096, from the reactor's share of buffer_memory. NULL
 * when that is used up: wait with kvb_buf_wait(). Contents undefined.
 */
void *kvb_buf_alloc(struct kvb_reactor *r, size_t len);
void kvb_buf_free(struct kvb_reactor *r, void *buf);
size_t kvb_buf_size(const void *buf);
/* Give a buffer that an operation's data was, and whose reactor is gone, back. Any thread. */
void kvb_buf_unmap(void *buf);

struct kvb_buf_waiter {
	void (*fn)(struct kvb_buf_waiter *w);	/* try again */
	size_t len;
	uint8_t flow;				/* flows have turns; FIFO within one */
	struct kvb_buf_waiter *next;
};
void kvb_buf_wait(struct kvb_reactor *r, struct kvb_buf_waiter *w);

#endif
