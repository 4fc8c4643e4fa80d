/* SPDX-License-Identifier: MIT */
/*
 * What librados's C interface cannot do: read into no buffer of ours (its own receive
 * buffer is handed over as it is), write from memory of ours without a copy, timestamps to
 * the nanosecond, and places in the order of objects. The only C++ of the daemon.
 *
 * No exception leaves it. Callbacks run on librados's thread, one at a time for each
 * connection: they must not block.
 */
#ifndef KVB_RADOS_SHIM_H
#define KVB_RADOS_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rados/librados.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RSH_ATTR_MAX 64u	/* bytes of the attribute that is read along */

/* ---- Read: size, time, attribute and data in one operation ---- */

struct rsh_read;

struct rsh_read_args {
	const char *oid;
	uint64_t off;		/* bytes */
	uint32_t len;		/* bytes; 0: no data, only the object's size and time */
	bool stat;		/* size and time; with len 0 they come in any case */
	const char *attr;	/* attribute to read along; NULL: none */
};

struct rsh_read_result {
	int rc;			/* 0 or a negative errno: then nothing else is set */
	uint64_t size;		/* of the object, bytes */
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	uint64_t version;
	uint32_t len;		/* bytes read */
	uint32_t attr_len;	/* 0: there is none; may exceed RSH_ATTR_MAX: cut */
	unsigned char attr[RSH_ATTR_MAX];
};

/*
 * Start a read. @cb(@arg) once it has ended, perhaps before this returns. NULL with @*rc
 * set (negative errno) when it could not be started: then no call comes.
 */
struct rsh_read *rsh_read_start(rados_ioctx_t io, const struct rsh_read_args *a,
				void (*cb)(void *arg), void *arg, int *rc);

/* After the callback. */
void rsh_read_result(struct rsh_read *r, struct rsh_read_result *res);

/*
 * The piece of the data that holds offset @off of what was read: a pointer into librados's
 * receive buffer, valid until rsh_read_free(), and its length. NULL at the end.
 */
const void *rsh_read_piece(struct rsh_read *r, uint32_t off, uint32_t *len);

/* Ask for the callback now; it comes with -ECANCELED, unless it was on its way. */
void rsh_read_cancel(rados_ioctx_t io, struct rsh_read *r);

/* After the callback. Frees the receive buffer. */
void rsh_read_free(struct rsh_read *r);

/* ---- Write: one atomic operation ---- */

struct rsh_write;

struct rsh_write_args {
	const char *oid;
	bool remove;		/* and nothing else of the below */
	bool exclusive;		/* -EEXIST when there is one */
	bool must_exist;	/* -ENOENT when there is none */
	void *data;		/* not copied: must stay and not change until rsh_write_idle() */
	uint32_t len;		/* bytes */
	const char *attr;
	const void *attr_data;	/* copied */
	uint32_t attr_len;
	int64_t mtime_sec;	/* the object's new time */
	uint32_t mtime_nsec;
};

struct rsh_write *rsh_write_start(rados_ioctx_t io, const struct rsh_write_args *a,
				  void (*cb)(void *arg), void *arg, int *rc);

/* After the callback: 0 or a negative errno. */
int rsh_write_result(struct rsh_write *w);

/*
 * After the callback: does nothing of librados refer to the data any more? A cancelled
 * write's message may still wait to be sent from it, and for a moment that of any other
 * does. Never false again once it was true.
 */
bool rsh_write_idle(struct rsh_write *w);

/* As rsh_read_cancel(). Neither recalls the operation: it may still happen. */
void rsh_write_cancel(rados_ioctx_t io, struct rsh_write *w);

/* After the callback, and when idle. */
void rsh_write_free(struct rsh_write *w);

/* ---- List: blocks, helper thread only ---- */

struct rsh_cursor;

/*
 * A place in the cluster's order of the objects of @io's pool: at the object named @from of
 * @io's namespace, or where it would be (NULL: before the first). NULL with @*rc set when
 * there is no memory or the pool is gone. Asks no OSD. Free it with rsh_cursor_free(), on any
 * thread; it does not refer to @io.
 */
struct rsh_cursor *rsh_cursor_at(rados_ioctx_t io, const char *from, int *rc);

void rsh_cursor_free(struct rsh_cursor *c);

/*
 * Calls @name(@arg, oid, length) for the next objects in the namespace of @io, @max of them
 * at most, and moves @c behind them. Objects with a locator key, which nobody finds by
 * their name, are left out. Returns 1 when there may be more, 0 at the end, or a negative
 * errno with @c where it was and nothing called. @name must not throw.
 */
int rsh_list(rados_ioctx_t io, struct rsh_cursor *c, uint32_t max,
	     void (*name)(void *arg, const char *oid, size_t len), void *arg);

#ifdef __cplusplus
}
#endif

#endif
