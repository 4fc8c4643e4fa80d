/* SPDX-License-Identifier: MIT */
#include "control/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/err.h"

struct foreign {
	int fd;
	uid_t uid;
	struct foreign *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
/* The first one is being closed; it goes when that is over. */
static struct foreign *queue, **queue_tail = &queue;
static bool running;

static void *closer_main(void *arg)
{
	struct foreign *f;

	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!queue)
			pthread_cond_wait(&more, &lock);
		f = queue;
		pthread_mutex_unlock(&lock);
		close(f->fd);
		pthread_mutex_lock(&lock);
		queue = f->next;
		if (!queue)
			queue_tail = &queue;
		free(f);
	}
	return NULL;
}

/* Detached: it may never come back from a close(). */
static int start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, closer_main, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

void kvb_close_foreign(int fd, uid_t uid)
{
	static const struct linger no;
	struct foreign *f;

	/* Memory: nothing to wait for. */
	if (fcntl(fd, F_GET_SEALS) >= 0) {
		close(fd);
		return;
	}
	/* The last reference to a socket that lingers would wait, too. Others: no effect. */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &no, sizeof(no));
	f = malloc(sizeof(*f));
	if (!running && f) {
		int rc = start();

		running = !rc;
		if (rc)
			kvb_log_client("threads", KVB_LOG_ERR, "closing descriptors: %s",
				       strerror(rc));
	}
	if (!f || !running) {
		free(f);
		close(fd);
		return;
	}
	*f = (struct foreign){ .fd = fd, .uid = uid };
	pthread_mutex_lock(&lock);
	*queue_tail = f;
	queue_tail = &f->next;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
}

unsigned int kvb_close_backlog(uid_t uid)
{
	unsigned int n = 0;

	pthread_mutex_lock(&lock);
	for (const struct foreign *f = queue; f; f = f->next)
		n += f->uid == uid;
	pthread_mutex_unlock(&lock);
	return n;
}
