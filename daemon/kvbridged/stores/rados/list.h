/* SPDX-License-Identifier: MIT */
/*
 * List of a RADOS namespace. librados offers it as a blocking call only, so a helper
 * thread, one a store, fetches pages of keys and the operation's reactor takes them in.
 * Lists have turns, page by page.
 *
 * A fetch cannot be interrupted: one that hangs (an OSD that does not answer) holds up the
 * Lists behind it until librados's own timeout ends it. Their operations can be let go of at
 * any time.
 */
#ifndef KVB_RADOS_LIST_H
#define KVB_RADOS_LIST_H

#include <stdbool.h>

#include <rados/librados.h>

#include "core/err.h"
#include "core/store.h"

struct rd_lister;

struct rd_list_args {
	struct kvb_store *st;
	struct kvb_op *op;
	rados_ioctx_t io;	/* stays valid until @released */
	/* All keys have been offered (@err 0), or it failed (negative errno): complete @op. */
	void (*done)(struct kvb_store *st, struct kvb_op *op, int err);
	/* @io is no longer used. Once for each rd_list(), before @done if that is called. */
	void (*released)(struct kvb_store *st, struct kvb_reactor *r, void *arg);
	void *arg;
};

/* Control thread. */
int rd_lister_create(struct rd_lister **out, struct kvb_err *err);

/* Control thread; every reactor has called rd_lister_stop(). Joins the helper thread. */
void rd_lister_destroy(struct rd_lister *l);

/*
 * In the store's stop() on @r, when no List of it is left but cancelled ones: waits until
 * the helper thread is through with those. What is still to be released is released before
 * the reactor ends.
 */
void rd_lister_stop(struct rd_lister *l, struct kvb_reactor *r);

/*
 * On op->r. Offers the keys from the operation's on, in the cluster's order, to
 * kvb_list_add(). @*handle, for rd_list_cancel(), is good until @done; set before @done and
 * @released can be called, which may be before this returns.
 */
void rd_list(struct rd_lister *l, const struct rd_list_args *a, void **handle);

/*
 * On op->r: forget the operation, @done will not be called. @released may be called before
 * this returns, or later on. Always succeeds.
 */
bool rd_list_cancel(void *handle);

#endif
