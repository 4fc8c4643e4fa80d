/* SPDX-License-Identifier: MIT */
#include "control/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "control/gkvfd.h"
#include "core/clock.h"
#include "core/err.h"

#define BACKLOG		16u
#define STUCK_NS	1000000000ull
/* Users whose descriptors are closed at the same time; those of more wait. */
#define THREADS		16u

struct foreign {
	int fd;
	uid_t uid;
	bool connection;
	struct foreign *next;
};

/* A thread and the user it works for, if any. */
struct lane {
	bool running, busy;
	uid_t uid;
	uint64_t since;		/* of the close() under way */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct foreign *queue, **queue_tail = &queue;
static struct lane lanes[THREADS];

static struct lane *lane_of(uid_t uid)
{
	for (unsigned int i = 0; i < THREADS; i++) {
		if (lanes[i].busy && lanes[i].uid == uid)
			return &lanes[i];
	}
	return NULL;
}

/* The oldest of the lane's user, or else of a user without a lane, who is its user then. */
static struct foreign *take(struct lane *l)
{
	struct foreign **at, **other = NULL, *f;

	for (at = &queue; *at && (*at)->uid != l->uid; at = &(*at)->next) {
		if (!other && !lane_of((*at)->uid))
			other = at;
	}
	if (!*at)
		at = other;
	if (!at)
		return NULL;
	f = *at;
	*at = f->next;
	if (!*at)
		queue_tail = at;
	l->uid = f->uid;
	l->since = kvb_clock_ns();
	return f;
}

/* Closed with something unread, the peer would see a reset before our last words. */
void kvb_close_connection_now(int sock)
{
	char c;

	shutdown(sock, SHUT_RDWR);
	while (recv(sock, &c, sizeof(c), MSG_DONTWAIT | MSG_TRUNC) > 0)
		;
	close(sock);
}

static void *closer_main(void *arg)
{
	struct lane *l = arg;
	struct foreign *f;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (!l->busy)
			pthread_cond_wait(&more, &lock);
		while ((f = take(l))) {
			pthread_mutex_unlock(&lock);
			if (f->connection)
				kvb_close_connection_now(f->fd);
			else
				close(f->fd);
			free(f);
			pthread_mutex_lock(&lock);
		}
		l->busy = false;
	}
	return NULL;
}

/* Detached: it may never come back from a close(). */
static void start(struct lane *l)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, closer_main, l);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	l->running = !rc;
	if (rc)
		kvb_log_client("threads", KVB_LOG_ERR, "closing descriptors: %s", strerror(rc));
}

/* A lane for @uid. When all have other users, the first that is done helps. */
static bool assign(uid_t uid)
{
	struct lane *free_lane = NULL;

	if (lane_of(uid))
		return true;
	for (unsigned int i = 0; i < THREADS && (!free_lane || !free_lane->running); i++) {
		if (!lanes[i].busy && (lanes[i].running || !free_lane))
			free_lane = &lanes[i];
	}
	if (!free_lane)
		return true;
	if (!free_lane->running)
		start(free_lane);
	if (!free_lane->running)
		return false;
	free_lane->busy = true;
	free_lane->uid = uid;
	free_lane->since = kvb_clock_ns();
	pthread_cond_broadcast(&more);
	return true;
}

/* False: there is no memory or no thread for it. */
static bool hand_over(int fd, uid_t uid, bool connection)
{
	struct foreign *f = malloc(sizeof(*f));
	bool ok;

	if (!f)
		return false;
	*f = (struct foreign){ .fd = fd, .uid = uid, .connection = connection };
	pthread_mutex_lock(&lock);
	ok = assign(uid);
	if (ok) {
		*queue_tail = f;
		queue_tail = &f->next;
	}
	pthread_mutex_unlock(&lock);
	if (!ok)
		free(f);
	return ok;
}

void kvb_close_foreign(int fd, uid_t uid)
{
	static const struct linger no;

	/*
	 * Memory: nobody in user space to wait for. Its pages are free for the client's next
	 * request when this one is answered.
	 */
	if (fcntl(fd, F_GET_SEALS) >= 0 || kvb_gkvfd_kind(fd) != KVB_GKVFD_NOT) {
		close(fd);
		return;
	}
	/* The last reference to a socket that lingers would wait, too. Others: no effect. */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &no, sizeof(no));
	if (!hand_over(fd, uid, false))
		close(fd);
}

void kvb_close_connection(int sock, uid_t uid)
{
	shutdown(sock, SHUT_RDWR);
	if (kvb_close_state(uid, NULL) == KVB_CLOSE_STUCK || !hand_over(sock, uid, true))
		kvb_close_connection_now(sock);
}

enum kvb_closing kvb_close_state(uid_t uid, unsigned int *n)
{
	unsigned int count = 0;
	bool moves = false;
	struct lane *l;

	pthread_mutex_lock(&lock);
	for (const struct foreign *f = queue; f; f = f->next)
		count += f->uid == uid;
	l = lane_of(uid);
	if (l) {
		count++;
		moves = kvb_clock_ns() - l->since < STUCK_NS;
	}
	pthread_mutex_unlock(&lock);
	if (n)
		*n = count;
	if (count < BACKLOG)
		return KVB_CLOSE_IDLE;
	return moves ? KVB_CLOSE_BUSY : KVB_CLOSE_STUCK;
}
