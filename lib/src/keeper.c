/* SPDX-License-Identifier: MIT */
/*
 * The keeper: one small thread of a session that notices the end of the daemon,
 * connects to its successor and hands everything over again. The application's
 * threads may all be blocked meanwhile; those on the data path notice nothing but
 * delay, since rings, doorbells, record and buffers are the client's own memory.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "impl.h"

#define BACKOFF_MIN_MS	1
#define BACKOFF_MAX_MS	100
#define STACK_SIZE	(256u << 10)

void gkvi_kick(struct gkv *g)
{
	uint64_t one = 1;

	if (write(g->kick, &one, sizeof(one)) < 0) {
		/* EAGAIN: kicked 2^64 - 2 times already. */
	}
}

/* Sleep until kicked, until the peer of @fd hangs up, or for @ms (-1: no limit). */
static bool keeper_poll(struct gkv *g, int fd, int ms)
{
	struct pollfd p[2] = {
		{ .fd = g->kick, .events = POLLIN },
		{ .fd = fd, .events = POLLRDHUP },
	};
	uint64_t n;

	poll(p, 2, ms);
	if ((p[0].revents & POLLIN) && read(g->kick, &n, sizeof(n)) < 0) {
		/* Somebody else's read, or a signal: the flag tells. */
	}
	return p[1].revents;
}

static void set_link(struct gkv_qp *qp, enum qp_link link)
{
	store_release(&qp->link, link);
	gkvi_device_lost(qp);
	/*
	 * Its owner may be asleep, waiting for completions that will not come. If it is just
	 * about to, it sleeps for one slice: the word belongs to it and the daemon.
	 */
	syscall(SYS_futex, &qp->rec->waiting, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* New queue pairs in place of those that were not resumed. Caller holds g->lock. */
static void revive(struct gkv *g, int sock)
{
	struct list_node *n;

	for (n = g->qps.next; n != &g->qps; n = n->next) {
		struct gkv_qp *qp = container_of(n, struct gkv_qp, node);
		int ret;

		if (load_acquire(&qp->link) != QP_DRAINED)
			continue;
		if (g->dead) {
			store_release(&qp->link, QP_DEAD);
			continue;
		}
		ret = gkvi_qp_add(g, sock, qp, false);
		if (g->broken)
			return;
		store_release(&qp->link, ret ? QP_DEAD : QP_LIVE);
	}
}

/* Give everything to the daemon at the other end of @sock. Caller holds g->lock. */
static int hand_over(struct gkv *g, int sock)
{
	uint32_t dstrd = g->dstrd, page = g->page_size;
	struct list_node *n;
	bool same;
	int ret;

	store_release(&g->epoch, g->epoch + 1);
	ret = gkvi_hello(g, sock);
	if (ret)
		return ret;
	/* Doorbells and lists are laid out for the old values. */
	same = dstrd == g->dstrd && page == g->page_size;
	for (uint32_t i = 0; i < g->n_ns; i++) {
		gkvi_ns_reopen(g, sock, &g->ns[i]);
		if (g->broken)
			return -ECONNRESET;
	}
	/* What is refused here shows as a status of the commands that need it. */
	for (n = g->mems.next; n != &g->mems; n = n->next) {
		gkvi_region_add(g, sock, container_of(n, struct gkv_mem, node));
		if (g->broken)
			return -ECONNRESET;
	}
	for (n = g->qps.next; n != &g->qps; n = n->next) {
		struct gkv_qp *qp = container_of(n, struct gkv_qp, node);

		if (load_acquire(&qp->link) != QP_LIVE)
			continue;
		ret = same ? gkvi_qp_add(g, sock, qp, true) : -EPROTO;
		if (same && g->broken)
			return -ECONNRESET;
		if (ret)
			set_link(qp, QP_LOST);
	}
	revive(g, sock);
	return g->broken ? -ECONNRESET : 0;
}

/*
 * A doorbell rung while the old state page was in place may have found a reactor
 * that was awake when it died.
 */
static void wake_all(struct gkv *g)
{
	struct list_node *n;

	for (n = g->qps.next; n != &g->qps; n = n->next) {
		struct gkv_qp *qp = container_of(n, struct gkv_qp, node);

		if (qp->efd >= 0 && load_acquire(&qp->link) == QP_LIVE)
			gkvi_wake(qp);
	}
}

static void give_up(struct gkv *g)
{
	struct list_node *n;

	g->dead = true;
	for (n = g->qps.next; n != &g->qps; n = n->next) {
		struct gkv_qp *qp = container_of(n, struct gkv_qp, node);

		if (load_acquire(&qp->link) == QP_LIVE)
			set_link(qp, QP_LOST);
	}
	revive(g, -1);
	pthread_cond_broadcast(&g->back);
}

/* The daemon is gone. Returns when another one serves the session, or never will. */
static void reconnect(struct gkv *g)
{
	int ms = BACKOFF_MIN_MS;

	pthread_mutex_lock(&g->lock);
	store_release(&g->up, 0);
	gkvi_device_away(g, true);
	close(g->fd);
	g->fd = -1;
	if (g->flags & GKV_CONNECT_NO_RECONNECT)
		give_up(g);
	pthread_mutex_unlock(&g->lock);

	while (!g->dead && !load_acquire(&g->stop)) {
		int sock = gkvi_socket(&g->addr);

		if (sock >= 0) {
			pthread_mutex_lock(&g->lock);
			if (!hand_over(g, sock)) {
				g->fd = sock;
				store_release(&g->reconnects, g->reconnects + 1);
				/* Timeouts start anew from here. */
				store_release(&g->epoch, g->epoch + 1);
				wake_all(g);
				gkvi_device_away(g, false);
				store_release(&g->up, 1);
				pthread_cond_broadcast(&g->back);
				pthread_mutex_unlock(&g->lock);
				return;
			}
			pthread_mutex_unlock(&g->lock);
			close(sock);
		}
		keeper_poll(g, -1, ms);
		ms = ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms * 2;
	}
}

static void *keeper(void *arg)
{
	struct gkv *g = arg;

	while (!load_acquire(&g->stop)) {
		if (keeper_poll(g, g->fd, -1))
			reconnect(g);
		if (load_acquire(&g->stop))
			break;
		pthread_mutex_lock(&g->lock);
		if (load_relaxed(&g->up) || g->dead)
			revive(g, g->fd);
		pthread_mutex_unlock(&g->lock);
	}
	return NULL;
}

int gkvi_keeper_start(struct gkv *g)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int ret;

	g->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->kick < 0)
		return gkvi_err(-errno, "cannot make an eventfd: %s", strerror(errno));
	/* Signals are the application's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	g->has_keeper = true;
	ret = pthread_create(&g->keeper, &attr, keeper, g);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret) {
		g->has_keeper = false;
		return gkvi_err(-ret, "cannot start the keeper thread: %s", strerror(ret));
	}
	return 0;
}

void gkvi_keeper_stop(struct gkv *g)
{
	if (!g->has_keeper)
		return;
	store_release(&g->stop, 1);
	gkvi_kick(g);
	pthread_join(g->keeper, NULL);
	g->has_keeper = false;
}
