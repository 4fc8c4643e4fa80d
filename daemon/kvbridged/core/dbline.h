/* SPDX-License-Identifier: MIT */
/*
 * Doorbells in VRAM. A read over the bus takes as long for a line as for four bytes of it, and
 * doorbells change seldom compared to how often they are looked at: so one wide read, for each
 * look of a reactor, serves all its queue pairs of a session whose doorbells lie in that line.
 *
 * All functions: on the reactor.
 */
#ifndef KVB_DBLINE_H
#define KVB_DBLINE_H

#include <stdint.h>

struct kvb_dbline;
struct kvb_qp;
struct kvb_reactor;

/* A doorbell of a queue pair. */
struct kvb_db {
	struct kvb_dbline *line;	/* NULL: not on a reactor */
	const void *at;			/* the line, in the queue pair's own mapping */
	struct kvb_qp *qp;
	struct kvb_db *next;		/* of the line's */
	unsigned int word;		/* which 32 bits of the line */
};

/* No doorbell's value: memory of the queue pair is gone, kvb_qp_dead() says so. */
#define KVB_DB_GONE UINT32_MAX

/* A reactor's lines, those of known pages. Zeroed: none. */
#define KVB_DBLINE_BUCKETS 64u

struct kvb_dblines {
	struct kvb_dbline *buckets[KVB_DBLINE_BUCKETS];
	uint64_t look;			/* number of the look at the queue pairs under way */
};

/* Find or make the lines of both doorbells of @qp. Returns 0 or -ENOMEM. */
int kvb_db_join(struct kvb_reactor *r, struct kvb_qp *qp);
/* Before its mapping goes. Of a queue pair that is in no line: no-op. */
void kvb_db_leave(struct kvb_qp *qp);

/* Its doorbells were written: what was read of their lines holds no more. */
void kvb_db_forget(struct kvb_qp *qp);

/*
 * Another look at the queue pairs begins: each line is read again, by the first who asks for one
 * of its doorbells.
 */
static inline void kvb_db_look(struct kvb_dblines *l)
{
	l->look++;
}

/*
 * A doorbell as it was at some moment of this look. What is loaded afterwards is as new at least:
 * the entries that it tells of.
 */
uint32_t kvb_db_read(struct kvb_db *db);

#endif
