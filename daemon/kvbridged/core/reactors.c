/* SPDX-License-Identifier: MIT */
/*
 * Starting and stopping the reactors, and calling one from the control thread.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/access.h"
#include "core/lookups.h"
#include "core/reactor_priv.h"

/* Milliseconds that a stop waits for the stores' own I/O. */
#define DRAIN_TRIES 10000

#define RING_ENTRIES 1024

struct kvb_reactor *kvb_reactors[KVB_MAX_REACTORS];
_Atomic bool kvb_threads_left;
unsigned int kvb_nreactors;
struct kvb_lookups *kvb_lookups[KVB_MAX_REACTORS];

static int ring_init(struct kvb_reactor *r, struct kvb_err *err)
{
	/* Best first; older kernels lack some of the flags. */
	static const unsigned int flags[] = {
		/* Without the flag nothing tells a busy reactor of completions to be fetched. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE,
		IORING_SETUP_CQSIZE,
	};
	int rc = -EINVAL;

	for (unsigned int i = 0; i < sizeof(flags) / sizeof(flags[0]) && rc; i++) {
		struct io_uring_params p = { .flags = flags[i], .cq_entries = 8 * RING_ENTRIES };

		rc = io_uring_queue_init_params(RING_ENTRIES, &r->ring, &p);
		if (rc && rc != -EINVAL)
			break;
	}
	if (rc)
		return kvb_fail(err, -rc, "io_uring_setup with %d entries: %s%s", RING_ENTRIES,
				strerror(-rc),
				rc == -EPERM ? " (see kernel.io_uring_disabled)" : "");
	return 0;
}

static int start_stores(struct kvb_reactor *r, struct kvb_err *err)
{
	for (unsigned int i = 0; i < r->nns; i++) {
		struct kvb_ns *ns = r->nss[i];

		for (unsigned int l = ns->nlayers; l-- > 0;) {
			struct kvb_store *st = &ns->layers[l];
			size_t size = st->ops->shard_size;
			int rc = 0;

			if (size) {
				size = (size + 63) & ~(size_t)63;
				st->shards[r->id] = aligned_alloc(64, size);
				if (!st->shards[r->id])
					return kvb_fail(err, ENOMEM, "%s: out of memory", ns->name);
				memset(st->shards[r->id], 0, size);
			}
			if (st->ops->start)
				rc = st->ops->start(st, r, err);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static void stop_stores(struct kvb_reactor *r)
{
	for (unsigned int i = 0; i < r->nns; i++) {
		struct kvb_ns *ns = r->nss[i];

		for (unsigned int l = 0; l < ns->nlayers; l++) {
			struct kvb_store *st = &ns->layers[l];

			if (st->ops->stop)
				st->ops->stop(st, r);
		}
	}
}

static void free_reactor(struct kvb_reactor *r)
{
	for (unsigned int i = 0; i < r->nns; i++) {
		for (unsigned int l = 0; l < r->nss[i]->nlayers; l++) {
			free(r->nss[i]->layers[l].shards[r->id]);
			r->nss[i]->layers[l].shards[r->id] = NULL;
		}
	}
	while (r->free_ops) {
		struct kvb_op *op = r->free_ops;

		r->free_ops = op->next;
		free(op);
	}
	kvb_timers_destroy(&r->timers);
	kvb_bufs_destroy(&r->bufs);
	if (r->wake_fd >= 0)
		close(r->wake_fd);
	free(kvb_lookups[r->id]);
	kvb_lookups[r->id] = NULL;
	free(r->deadlines);
	free(r->qps);
	free(r);
}

static void pin(struct kvb_reactor *r)
{
	cpu_set_t set;

	if (r->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(r->cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		kvb_log(KVB_LOG_WARN, "reactor %u: cannot run on CPU %d", r->id, r->cpu);
}

static void *reactor_main(void *arg)
{
	struct kvb_reactor *r = arg;
	char name[16];

	snprintf(name, sizeof(name), "reactor-%u", r->id % 1000u);
	pthread_setname_np(pthread_self(), name);
	pin(r);
	/* The default slack of 50 us would double the default poll interval. */
	prctl(PR_SET_TIMERSLACK, 1000);
	r->start_rc = ring_init(r, &r->start_err);
	if (r->start_rc) {
		atomic_store(&r->up, true);
		return NULL;
	}
	kvb_reactor_loop(r);
	io_uring_queue_exit(&r->ring);
	return NULL;
}

static void call_run(struct kvb_msg *m)
{
	struct kvb_call *c = (struct kvb_call *)m;

	c->fn(c);
	/* The caller's frame, and @c with it, may be gone right after this store. */
	atomic_store(&c->done, 1);
}

void kvb_reactor_call(struct kvb_reactor *r, struct kvb_call *c, void (*fn)(struct kvb_call *c))
{
	unsigned int spins = 0;

	c->m.fn = call_run;
	c->r = r;
	c->fn = fn;
	atomic_store(&c->done, 0);
	kvb_reactor_send(r, &c->m);
	while (!atomic_load(&c->done)) {
		if (++spins < 200)
			kvb_cpu_relax();
		else
			usleep(20);
	}
}

struct start_call {
	struct kvb_call c;
	int rc;
	struct kvb_err *err;
};

static void do_start_stores(struct kvb_call *c)
{
	struct start_call *s = (struct start_call *)c;

	s->rc = start_stores(c->r, s->err);
}

static void do_stop_stores(struct kvb_call *c)
{
	stop_stores(c->r);
}

static void do_stop(struct kvb_call *c)
{
	c->r->stop = true;
}

int kvb_reactors_create(unsigned int n, struct kvb_err *err)
{
	for (unsigned int i = 0; i < n; i++) {
		struct kvb_reactor *r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);

		if (!r)
			return kvb_fail(err, ENOMEM, "reactor %u: out of memory", i);
		memset(r, 0, sizeof(*r));
		r->id = i;
		r->wake_fd = -1;
		kvb_bufs_init(&r->bufs, 0);
		kvb_reactors[i] = r;
		kvb_nreactors = i + 1;
	}
	return 0;
}

int kvb_reactor_start(const struct kvb_reactor_conf *conf, struct kvb_err *err)
{
	struct kvb_reactor *r = kvb_reactors[conf->id];
	size_t priv = 0, len = conf->nns * sizeof(struct kvb_lookups);
	int rc;

	r->cpu = conf->cpu;
	r->state = conf->state;
	r->nss = conf->nss;
	r->nns = conf->nns;
	r->max_ops = conf->max_ops;
	for (unsigned int i = 0; i < KVB_FLOWS; i++)
		r->flows[i].tail = &r->flows[i].head;
	kvb_bufs_init(&r->bufs, conf->buffer_bytes);
	for (unsigned int i = 0; i < r->nns; i++) {
		if (r->nss[i]->op_size > priv)
			priv = r->nss[i]->op_size;
	}
	r->op_bytes = (sizeof(struct kvb_op) + priv + 63) & ~(size_t)63;
	r->deadlines = calloc(r->nns ? r->nns : 1, sizeof(*r->deadlines));
	/* On cache lines of its own: each reactor counts for itself. */
	len = (len + 64) & ~(size_t)63;
	kvb_lookups[r->id] = aligned_alloc(64, len);
	if (kvb_lookups[r->id])
		memset((void *)kvb_lookups[r->id], 0, len);
	r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!r->deadlines || !kvb_lookups[r->id] || r->wake_fd < 0)
		return kvb_fail(err, errno, "reactor %u: %s", conf->id, strerror(errno));
	rc = pthread_create(&r->thread, NULL, reactor_main, r);
	if (rc)
		return kvb_fail(err, rc, "reactor %u: cannot start a thread: %s", conf->id,
				strerror(rc));
	while (!atomic_load(&r->up))
		usleep(100);
	if (r->start_rc) {
		*err = r->start_err;
		pthread_join(r->thread, NULL);
		return r->start_rc;
	}
	r->running = true;
	return 0;
}

int kvb_reactors_start_stores(struct kvb_err *err)
{
	for (unsigned int i = 0; i < kvb_nreactors; i++) {
		struct start_call s = { .err = err };

		kvb_reactor_call(kvb_reactors[i], &s.c, do_start_stores);
		if (s.rc)
			return s.rc;
		kvb_reactors[i]->stores_up = true;
	}
	return 0;
}

struct io_call {
	struct kvb_call c;
	bool busy;
};

static void do_look_at_io(struct kvb_call *c)
{
	struct io_call *call = (struct io_call *)c;
	struct kvb_reactor *r = c->r;

	/* One is the poll that wakes the reactor. */
	call->busy = r->io_inflight > 1;
	for (unsigned int i = 0; i < r->nns && r->stores_up; i++) {
		for (unsigned int l = 0; l < r->nss[i]->nlayers; l++) {
			struct kvb_store *st = &r->nss[i]->layers[l];

			if (st->ops->busy)
				call->busy |= st->ops->busy(st, r);
		}
	}
}

/*
 * Stores have I/O of their own that no command waits for. Give it time to end, and what
 * follows from it on other reactors, so that nothing is left for a device to answer.
 */
static void drain_io(void)
{
	unsigned int quiet = 0;

	for (unsigned int i = 0; i < DRAIN_TRIES && quiet < 2; i++) {
		bool busy = false;

		for (unsigned int n = 0; n < kvb_nreactors; n++) {
			struct io_call call = { 0 };

			if (!kvb_reactors[n]->running)
				continue;
			kvb_reactor_call(kvb_reactors[n], &call.c, do_look_at_io);
			busy |= call.busy;
		}
		quiet = busy ? 0 : quiet + 1;
		if (busy)
			usleep(1000);
	}
}

void kvb_reactors_stop(void)
{
	for (unsigned int i = 0; i < kvb_nreactors; i++) {
		if (kvb_reactors[i]->stores_up)
			kvb_reactor_call(kvb_reactors[i], &(struct kvb_call){ 0 }, do_stop_stores);
	}
	drain_io();
	for (unsigned int i = 0; i < kvb_nreactors; i++) {
		struct kvb_reactor *r = kvb_reactors[i];

		if (r->running) {
			kvb_reactor_call(r, &(struct kvb_call){ 0 }, do_stop);
			pthread_join(r->thread, NULL);
		}
		free_reactor(r);
		kvb_reactors[i] = NULL;
	}
	kvb_nreactors = 0;
}
