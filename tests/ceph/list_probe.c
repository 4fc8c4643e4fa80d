/* SPDX-License-Identifier: MIT */
/*
 * stores/rados/list.c between a cluster and a reactor made of this file: Lists side by side,
 * full answers, cancelled at random moments. TAP; the namespace holds some thousand objects.
 *
 *   list_probe CONF POOL NAMESPACE
 */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/mailbox.h"
#include "rig.h"
#include "stores/rados/rados.h"

#define MAX_KEYS 10000u
#define LISTS 40u

struct key {
	uint8_t len;
	uint8_t key[GKV_KEY_MAX];
};

struct list {
	struct kvb_op *op;
	void *handle;
	struct key *keys;
	uint32_t n, limit;
	unsigned int done, released;
	int err;
	bool cancelled;
	bool wrong;	/* called when it should not have been */
};

static struct kvb_mailbox mailbox;
static sem_t woken;
static struct kvb_store store;
static unsigned int in_flight;
static rados_ioctx_t io;

/* ---- The reactor: this thread ---- */

static struct list *list_of(struct kvb_op *op)
{
	struct list *l;

	memcpy(&l, op->priv, sizeof(l));
	return l;
}

void kvb_reactor_send(struct kvb_reactor *r, struct kvb_msg *m)
{
	(void)r;
	kvb_mailbox_put(&mailbox, m);
	sem_post(&woken);
}

bool kvb_list_add(struct kvb_op *op, const uint8_t *key, uint8_t klen)
{
	struct list *l = list_of(op);

	if (l->n == l->limit)
		return false;
	l->keys[l->n].len = klen;
	memcpy(l->keys[l->n++].key, key, klen);
	return true;
}

static void done(struct kvb_store *st, struct kvb_op *op, int err)
{
	struct list *l = list_of(op);

	(void)st;
	l->wrong |= l->cancelled || l->done || l->released != 1;
	l->done++;
	l->err = err;
	/* What remains of it must not be touched. */
	memset(op, 0xa5, sizeof(*op));
	free(op);
	l->op = NULL;
	in_flight--;
}

static void released(struct kvb_store *st, struct kvb_reactor *r, void *arg)
{
	struct list *l = arg;

	l->wrong |= st != &store || r != (struct kvb_reactor *)&mailbox || l->done;
	l->released++;
}

static void start(struct rd_lister *lister, struct list *l, const struct key *from, uint32_t limit)
{
	struct kvb_op *op = calloc(1, sizeof(*op) + sizeof(l));

	memset(l, 0, sizeof(*l));
	l->keys = malloc((limit + 1) * sizeof(*l->keys));
	if (!op || !l->keys)
		exit(1);
	l->op = op;
	l->limit = limit;
	memcpy(op->priv, &l, sizeof(l));
	op->r = (struct kvb_reactor *)&mailbox;
	op->len = limit * GKV_LIST_ENTRY_SIZE(GKV_KEY_MAX);
	if (from) {
		op->klen = from->len;
		memcpy(op->key, from->key, from->len);
	}
	in_flight++;
	rd_list(lister, &(struct rd_list_args){ .st = &store, .op = op, .io = io, .done = done,
			.released = released, .arg = l }, &l->handle);
}

static void cancel(struct list *l)
{
	struct kvb_op *op = l->op;

	l->cancelled = true;
	if (!rd_list_cancel(l->handle))
		l->wrong = true;
	memset(op, 0xa5, sizeof(*op));
	free(op);
	l->op = NULL;
	in_flight--;
}

static void turn(void)
{
	sem_wait(&woken);
	kvb_mailbox_run(&mailbox);
}

static bool same(const struct list *l, const struct key *keys, uint32_t n)
{
	if (l->n != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (l->keys[i].len != keys[i].len ||
		    memcmp(l->keys[i].key, keys[i].key, keys[i].len))
			return false;
	return true;
}

/* ---- Tests ---- */

static uint32_t expected(uint32_t from, uint32_t limit, uint32_t total)
{
	return total - from < limit ? total - from : limit;
}

static void test_together(struct rd_lister *lister, const struct list *all)
{
	struct list lists[LISTS];
	uint32_t from[LISTS], bad = 0;

	for (uint32_t i = 0; i < LISTS; i++) {
		/* The last one fills its answer exactly. */
		from[i] = (uint32_t)rand() % all->n;
		start(lister, &lists[i], &all->keys[from[i]],
		      i + 1 < LISTS ? 1u + (uint32_t)rand() % 2000 : all->n - from[i]);
	}
	while (in_flight)
		turn();
	for (uint32_t i = 0; i < LISTS; i++) {
		struct list *l = &lists[i];

		bad += l->wrong || l->done != 1 || l->err ||
			!same(l, all->keys + from[i], expected(from[i], l->limit, all->n));
		free(l->keys);
	}
	tap_ok(!bad, "%u Lists side by side, each from its key to the end or full", LISTS);
}

static void test_cancel(struct rd_lister *lister, const struct list *all)
{
	static struct list lists[20 * LISTS];
	uint32_t bad = 0, cut = 0, n = 0;

	/* Two rounds of each: right after the start, after some turns, after some time. */
	for (uint32_t round = 0; round < 20; round++) {
		uint32_t first = n;

		for (uint32_t i = 0; i < LISTS; i++)
			start(lister, &lists[n++], NULL, MAX_KEYS);
		for (uint32_t i = 0; i < LISTS; i++) {
			struct list *l = &lists[first + (uint32_t)rand() % LISTS];

			if (rand() % 3 == 0)
				turn();
			if (rand() % 3 == 0)
				nanosleep(&(struct timespec){ .tv_nsec = rand() % 2000000 }, NULL);
			if (l->op) {
				cancel(l);
				cut++;
			}
		}
		while (in_flight > LISTS / 2)
			turn();
	}
	while (in_flight)
		turn();
	rd_lister_stop(lister, (struct kvb_reactor *)&mailbox);
	kvb_mailbox_run(&mailbox);
	for (uint32_t i = 0; i < n; i++) {
		struct list *l = &lists[i];

		bad += l->wrong || l->released != 1 || l->done == l->cancelled || l->err ||
			(l->done && !same(l, all->keys, all->n));
		free(l->keys);
	}
	tap_ok(!bad && cut > 20, "%u of %u Lists cancelled; each is released once", cut, n);
}

static void test_error(struct rd_lister *lister, rados_t cluster)
{
	static const char pool[] = "list-probe";
	rados_ioctx_t good = io;
	struct list l;

	if (rados_pool_create(cluster, pool) || rados_ioctx_create(cluster, pool, &io) ||
	    rados_pool_delete(cluster, pool)) {
		printf("Bail out! pool %s\n", pool);
		exit(1);
	}
	start(lister, &l, NULL, 10);
	while (in_flight)
		turn();
	tap_ok(!l.wrong && l.done == 1 && l.released == 1 && l.err < 0,
	       "a pool that is gone is an error: %s", strerror(-l.err));
	free(l.keys);
	rados_ioctx_destroy(io);
	io = good;
}

static void test(rados_t cluster)
{
	struct rd_lister *lister;
	struct kvb_err err;
	struct list all, again;

	if (rd_lister_create(&lister, &err))
		exit(1);
	start(lister, &all, NULL, MAX_KEYS);
	while (in_flight)
		turn();
	tap_ok(!all.wrong && all.done == 1 && !all.err && all.n > 2000 && all.n < MAX_KEYS,
	       "all keys are listed: %u", all.n);
	start(lister, &again, &(struct key){ .len = 1 }, MAX_KEYS);
	while (in_flight)
		turn();
	tap_ok(!again.wrong && !again.err && again.n <= all.n &&
	       same(&again, all.keys + all.n - again.n, again.n), "from a key, absent perhaps");
	free(again.keys);
	test_together(lister, &all);
	test_error(lister, cluster);
	test_cancel(lister, &all);
	free(all.keys);
	rd_lister_destroy(lister);
}

int main(int argc, char **argv)
{
	rados_t cluster;
	int rc;

	if (argc != 4) {
		fprintf(stderr, "usage: %s CONF POOL NAMESPACE\n", argv[0]);
		return 2;
	}
	srand(1);
	sem_init(&woken, 0, 0);
	rc = rados_create(&cluster, NULL);
	if (!rc)
		rc = rados_conf_read_file(cluster, argv[1]);
	if (!rc)
		rc = rados_connect(cluster);
	if (!rc)
		rc = rados_ioctx_create(cluster, argv[2], &io);
	if (rc) {
		printf("Bail out! connect: %s\n", strerror(-rc));
		return 1;
	}
	rados_ioctx_set_namespace(io, argv[3]);
	test(cluster);
	rados_ioctx_destroy(io);
	rados_shutdown(cluster);
	return tap_done();
}
