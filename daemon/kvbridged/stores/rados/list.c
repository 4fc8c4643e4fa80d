/* SPDX-License-Identifier: MIT */
/*
 * See list.h. A request belongs to the helper thread while it is queued or fetched, and to
 * its reactor while its page is on the way there or taken in; the lock guards the change.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "stores/rados/rados.h"

/* Keys a page holds: taking them all in is one slice of a reactor's work. */
#define PAGE_KEYS 512u

enum where { QUEUED, FETCHING, SENT };

struct rd_lreq {
	struct kvb_link link;		/* QUEUED: in l->queue */
	struct kvb_msg msg;
	struct rd_lister *l;
	struct kvb_reactor *r;
	struct rd_list_args a;
	enum where where;		/* under the lock */
	bool cancelled;			/* under the lock */
	bool released;			/* reactor's */
	/* The helper's until SENT. */
	struct rsh_cursor *at;		/* NULL: not begun */
	char from[RD_OID_LEN + 1];
	uint32_t max;			/* keys that can fit into the answer, or a page */
	int rc;				/* 1: there are more */
	uint32_t n;
	struct {
		uint8_t len;
		uint8_t key[GKV_KEY_MAX];
	} page[PAGE_KEYS];
};

struct rd_lister {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;		/* the helper */
	pthread_cond_t idle;		/* a fetch has ended */
	struct kvb_link queue;
	struct rd_lreq *fetching;
	bool stop;
};

/* ---- The helper thread ---- */

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Objects that are named otherwise are somebody else's. */
static void add_name(void *arg, const char *oid, size_t len)
{
	struct rd_lreq *q = arg;
	uint8_t *key = q->page[q->n].key;

	if (!len || len % 2 || len > RD_OID_LEN || q->n == PAGE_KEYS)
		return;
	for (size_t i = 0; i < len; i += 2) {
		int hi = nibble(oid[i]), lo = nibble(oid[i + 1]);

		if (hi < 0 || lo < 0)
			return;
		key[i / 2] = (uint8_t)(hi << 4 | lo);
	}
	q->page[q->n++].len = (uint8_t)(len / 2);
}

static void fetch(struct rd_lreq *q)
{
	q->n = 0;
	if (!q->at)
		q->at = rsh_cursor_at(q->a.io, q->from[0] ? q->from : NULL, &q->rc);
	if (q->at)
		q->rc = rsh_list(q->a.io, q->at, q->max, add_name, q);
}

static void take_page(struct kvb_msg *m);

/* Under the lock. */
static void send_page(struct rd_lreq *q)
{
	q->where = SENT;
	q->msg.fn = take_page;
	kvb_reactor_send(q->r, &q->msg);
}

static void *helper(void *arg)
{
	struct rd_lister *l = arg;

	pthread_setname_np(pthread_self(), "rados-list");
	pthread_mutex_lock(&l->lock);
	for (;;) {
		struct rd_lreq *q;

		while (kvb_link_empty(&l->queue) && !l->stop)
			pthread_cond_wait(&l->wake, &l->lock);
		if (kvb_link_empty(&l->queue))
			break;
		q = kvb_container(l->queue.next, struct rd_lreq, link);
		kvb_link_del(&q->link);
		q->where = FETCHING;
		l->fetching = q;
		pthread_mutex_unlock(&l->lock);
		fetch(q);
		pthread_mutex_lock(&l->lock);
		l->fetching = NULL;
		if (q->rc > 0 && !q->n && !q->cancelled) {
			/* Nothing but foreign objects: nothing to trouble the reactor with. */
			q->where = QUEUED;
			kvb_link_add(&l->queue, &q->link);
		} else {
			send_page(q);
		}
		pthread_cond_broadcast(&l->idle);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- Reactors ---- */

static void enqueue(struct rd_lreq *q)
{
	struct rd_lister *l = q->l;

	pthread_mutex_lock(&l->lock);
	q->where = QUEUED;
	kvb_link_add(&l->queue, &q->link);
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
}

static void release(struct rd_lreq *q)
{
	if (!q->released)
		q->a.released(q->a.st, q->r, q->a.arg);
	q->released = true;
}

static void lreq_free(struct rd_lreq *q)
{
	release(q);
	rsh_cursor_free(q->at);
	free(q);
}

static void finish(struct rd_lreq *q, int err)
{
	struct rd_list_args a = q->a;

	lreq_free(q);
	a.done(a.st, a.op, err);
}

static void take_page(struct kvb_msg *m)
{
	struct rd_lreq *q = kvb_container(m, struct rd_lreq, msg);

	/* Only this thread sets it. */
	if (q->cancelled) {
		lreq_free(q);
		return;
	}
	for (uint32_t i = 0; i < q->n; i++) {
		if (!kvb_list_add(q->a.op, q->page[i].key, q->page[i].len)) {
			finish(q, 0);
			return;
		}
	}
	if (q->rc > 0)
		enqueue(q);
	else
		finish(q, q->rc);
}

void rd_list(struct rd_lister *l, const struct rd_list_args *a, void **handle)
{
	static const char hex[] = "0123456789abcdef";
	uint32_t room = a->op->len / GKV_LIST_ENTRY_SIZE(1) + 1;
	struct rd_lreq *q = malloc(sizeof(*q));

	*handle = q;
	if (!q) {
		a->released(a->st, a->op->r, a->arg);
		a->done(a->st, a->op, -ENOMEM);
		return;
	}
	/* The page is filled before it is read: leave it as it is. */
	memset(q, 0, offsetof(struct rd_lreq, page));
	q->l = l;
	q->r = a->op->r;
	q->a = *a;
	q->max = room < PAGE_KEYS ? room : PAGE_KEYS;
	for (uint32_t i = 0; i < a->op->klen; i++) {
		q->from[2 * i] = hex[a->op->key[i] >> 4];
		q->from[2 * i + 1] = hex[a->op->key[i] & 15];
	}
	enqueue(q);
}

bool rd_list_cancel(void *handle)
{
	struct rd_lreq *q = handle;
	struct rd_lister *l = q->l;
	enum where where;

	pthread_mutex_lock(&l->lock);
	where = q->where;
	q->cancelled = true;
	if (where == QUEUED)
		kvb_link_del(&q->link);
	pthread_mutex_unlock(&l->lock);
	if (where == QUEUED)
		lreq_free(q);
	else if (where == SENT)
		release(q);	/* the message is still to come */
	return true;
}

void rd_lister_stop(struct rd_lister *l, struct kvb_reactor *r)
{
	pthread_mutex_lock(&l->lock);
	while (l->fetching && l->fetching->r == r)
		pthread_cond_wait(&l->idle, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

/* ---- Control thread ---- */

int rd_lister_create(struct rd_lister **out, struct kvb_err *err)
{
	struct rd_lister *l = calloc(1, sizeof(*l));
	sigset_t all, old;
	int rc;

	if (!l)
		return kvb_fail(err, ENOMEM, "rados: out of memory");
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->wake, NULL);
	pthread_cond_init(&l->idle, NULL);
	kvb_link_init(&l->queue);
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&l->thread, NULL, helper, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		free(l);
		return kvb_fail(err, rc, "rados: cannot start a thread: %s", strerror(rc));
	}
	*out = l;
	return 0;
}

void rd_lister_destroy(struct rd_lister *l)
{
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->wake);
	pthread_cond_destroy(&l->idle);
	free(l);
}
