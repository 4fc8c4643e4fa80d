/* SPDX-License-Identifier: MIT */
/* The bells that host clients ring: eventfds on which sleeping reactors wait. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "control/session.h"

static void bell_arm(struct kvb_bell *b)
{
	struct io_uring_sqe *sqe = kvb_io_get(b->r, &b->io);

	/*
	 * Multishot and edge-triggered: the counter is never read. The client shares the
	 * descriptor and could make a read block, or steal it.
	 */
	io_uring_prep_poll_multishot(sqe, b->fd, POLLIN);
	io_uring_sqe_set_data(sqe, &b->io);
	b->armed = true;
}

/* Nothing on the ring refers to it any more. */
static void bell_end(struct kvb_bell *b)
{
	if (b->closing && !b->armed && !b->cancelling)
		kvb_control_send(&b->gone);
}

static void bell_rung(struct kvb_io *io, int res)
{
	struct kvb_bell *b = (struct kvb_bell *)((char *)io - offsetof(struct kvb_bell, io));

	(void)res;
	if (io->more)
		return;
	b->armed = false;
	if (b->closing)
		bell_end(b);
	else
		bell_arm(b);
}

static void bell_cancel(struct kvb_bell *b)
{
	struct io_uring_sqe *sqe = kvb_io_get(b->r, &b->cancel_io);

	io_uring_prep_poll_remove(sqe, (uint64_t)(uintptr_t)&b->io);
	io_uring_sqe_set_data(sqe, &b->cancel_io);
	b->cancelling = true;
}

/* A poll that is just being rung refuses to be removed (-EALREADY) and stays: again. */
static void bell_cancelled(struct kvb_io *io, int res)
{
	struct kvb_bell *b =
		(struct kvb_bell *)((char *)io - offsetof(struct kvb_bell, cancel_io));

	b->cancelling = false;
	if (res == -EALREADY && b->armed)
		bell_cancel(b);
	else
		bell_end(b);
}

static void do_bell(struct kvb_call *c)
{
	bell_arm(c->arg);
}

static void do_unbell(struct kvb_call *c)
{
	struct kvb_bell *b = c->arg;

	b->closing = true;
	if (b->armed)
		bell_cancel(b);
	else
		bell_end(b);
}

static void bell_gone(struct kvb_msg *m)
{
	struct kvb_bell *b = (struct kvb_bell *)((char *)m - offsetof(struct kvb_bell, gone));
	struct kvb_session *s = b->s;

	close(b->fd);
	b->fd = -1;
	s->nbells--;
	kvb_session_try_free(s);
}

int kvb_session_bell(struct kvb_session *s, struct kvb_reactor *r)
{
	struct kvb_bell *b = &s->bells[r->id];

	if (b->fd >= 0)
		return b->fd;
	b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (b->fd < 0)
		return -1;
	b->r = r;
	b->s = s;
	b->io.done = bell_rung;
	b->cancel_io.done = bell_cancelled;
	b->gone.fn = bell_gone;
	s->nbells++;
	kvb_reactor_call(r, &(struct kvb_call){ .arg = b }, do_bell);
	return b->fd;
}

void kvb_session_drop_bells(struct kvb_session *s)
{
	for (unsigned int i = 0; i < kvb_nreactors; i++) {
		struct kvb_bell *b = &s->bells[i];

		if (b->fd >= 0 && !b->closing)
			kvb_reactor_call(b->r, &(struct kvb_call){ .arg = b }, do_unbell);
	}
}
