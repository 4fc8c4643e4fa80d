/* SPDX-License-Identifier: MIT */
/*
 * The interface: pools that the control thread opens and closes, and how reactors are told
 * of the connection to use. What blocks is in conn.c.
 */
#include "stores/rados/pool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/store.h"
#include "stores/rados/pool_priv.h"

/*
 * How long a stop waits for the helper thread. librados has calls without a timeout, which
 * a cluster that is lost in the wrong moment can hold up for ever.
 */
#define CLOSE_NS 20000000000ull
/* Far below what librados is told, see link.c. */
#define OPS_MAX (1u << 22)
#define BYTES_MAX (1ull << 38)

pthread_mutex_t rd_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t rd_changed;

static struct rd_conn *conns;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_rc;

/* ---- Time ---- */

bool rd_wait_until(pthread_cond_t *cond, uint64_t until)
{
	struct timespec ts = { .tv_sec = (time_t)(until / 1000000000u),
			       .tv_nsec = (long)(until % 1000000000u) };

	return pthread_cond_timedwait(cond, &rd_lock, &ts) != ETIMEDOUT;
}

int rd_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int rc = pthread_condattr_init(&attr);

	if (rc)
		return -rc;
	rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!rc)
		rc = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return -rc;
}

/* Before anything of librados runs, and so before it has threads that read the environment. */
static void init(void)
{
	static const char *const vars[] = { "CEPH_ARGS", "CEPH_KEYRING" };

	/* Each new handle obeys them, over the configuration file. */
	for (unsigned int i = 0; i < sizeof(vars) / sizeof(vars[0]); i++) {
		if (getenv(vars[i]))
			kvb_log(KVB_LOG_WARN, "rados: ignoring the environment's %s", vars[i]);
		unsetenv(vars[i]);
	}
	once_rc = rd_cond_init(&rd_changed);
}

/* ---- Generations ---- */

void rd_gen_put_locked(struct rd_gen *gen)
{
	struct rd_conn *c = gen->pool->conn;

	if (atomic_fetch_sub_explicit(&gen->refs, 1, memory_order_acq_rel) != 1)
		return;
	gen->next = c->dead;
	c->dead = gen;
	rd_conn_wake(c);
}

void rd_io_put(struct rd_pool *p, struct rd_io *io)
{
	struct rd_gen *gen = (struct rd_gen *)io;

	(void)p;
	pthread_mutex_lock(&rd_lock);
	rd_gen_put_locked(gen);
	pthread_mutex_unlock(&rd_lock);
}

/* ---- Reactors ---- */

static struct rd_io *current_locked(struct rd_pool *p)
{
	if (!p->cur)
		return NULL;
	atomic_fetch_add_explicit(&p->cur->refs, 1, memory_order_relaxed);
	return &p->cur->io;
}

static void tell(struct kvb_msg *m)
{
	struct rd_cell *cell = (struct rd_cell *)((char *)m - offsetof(struct rd_cell, msg));
	struct rd_pool *p = cell->pool;
	struct rd_sub *sub;

	pthread_mutex_lock(&rd_lock);
	cell->sent = false;
	for (;;) {
		struct rd_io *io;

		for (sub = p->subs; sub; sub = sub->next) {
			if (sub->cell == cell && sub->serial != p->serial)
				break;
		}
		if (!sub)
			break;
		sub->serial = p->serial;
		io = current_locked(p);
		pthread_mutex_unlock(&rd_lock);
		/* It may detach itself or others: look from the beginning again. */
		sub->changed(sub, io);
		pthread_mutex_lock(&rd_lock);
	}
	if (p->closing)
		rd_conn_wake(p->conn);
	pthread_mutex_unlock(&rd_lock);
}

void rd_publish(struct rd_pool *p, struct rd_gen *gen, const char *why)
{
	struct rd_gen *old = p->cur;

	snprintf(p->why, sizeof(p->why), "%s", gen ? "" : why);
	if (gen == old)
		return;
	p->cur = gen;
	p->serial++;
	for (struct rd_sub *sub = p->closing ? NULL : p->subs; sub; sub = sub->next) {
		if (sub->cell->sent)
			continue;
		sub->cell->sent = true;
		kvb_reactor_send(sub->r, &sub->cell->msg);
	}
	if (old)
		rd_gen_put_locked(old);
	pthread_cond_broadcast(&rd_changed);
}

void rd_pool_attach(struct rd_pool *p, struct kvb_reactor *r, struct rd_sub *sub)
{
	struct rd_io *io;

	pthread_mutex_lock(&rd_lock);
	sub->r = r;
	sub->pool = p;
	sub->cell = &p->cells[kvb_reactor_id(r)];
	sub->serial = p->serial;
	sub->next = p->subs;
	p->subs = sub;
	io = current_locked(p);
	pthread_mutex_unlock(&rd_lock);
	if (io)
		sub->changed(sub, io);
}

void rd_pool_detach(struct rd_sub *sub)
{
	struct rd_sub **at;

	pthread_mutex_lock(&rd_lock);
	for (at = &sub->pool->subs; *at && *at != sub; at = &(*at)->next)
		;
	if (*at)
		*at = sub->next;
	pthread_mutex_unlock(&rd_lock);
}

/* ---- What operations found out ---- */

void rd_pool_failed(struct rd_pool *p, const struct rd_io *io, int err)
{
	struct rd_gen *gen = (struct rd_gen *)(uintptr_t)io;
	_Atomic bool *flag;

	switch (err) {
	case -ESHUTDOWN:
		flag = &gen->link->blocklisted;
		break;
	case -ENOENT:
		flag = &gen->suspect;
		break;
	case -ETIMEDOUT:
	case -ECANCELED:
		/* Nothing to do now. */
		atomic_store_explicit(&gen->link->doubt, true, memory_order_relaxed);
		return;
	default:
		return;
	}
	if (atomic_load_explicit(flag, memory_order_relaxed) || atomic_exchange(flag, true))
		return;
	pthread_mutex_lock(&rd_lock);
	rd_conn_wake(p->conn);
	pthread_mutex_unlock(&rd_lock);
}

void rd_pool_status(struct rd_pool *p, struct rd_pool_status *s)
{
	struct rd_conn *c = p->conn;

	pthread_mutex_lock(&rd_lock);
	*s = (struct rd_pool_status){
		.ready = p->cur,
		.value_max = c->value_max,
		.generation = p->generation,
		.reconnects = c->links ? c->links - 1 : 0,
		.fenced = c->fenced,
	};
	snprintf(s->why, sizeof(s->why), "%s", p->why);
	snprintf(s->addrs, sizeof(s->addrs), "%s", c->addrs);
	pthread_mutex_unlock(&rd_lock);
}

/* ---- Opening ---- */

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

void rd_conn_free(struct rd_conn *c)
{
	free(c->conf);
	free(c->id);
	free(c->keyring);
	free(c->state_dir);
	pthread_cond_destroy(&c->wake);
	free(c);
}

void rd_pool_free(struct rd_pool *p)
{
	free(p->name);
	free(p->ns);
	free(p);
}

/* librados's threads inherit the mask. What a fault raises must not be blocked. */
static int start_thread(struct rd_conn *c)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGABRT);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&c->thread, NULL, rd_conn_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

static struct rd_conn *conn_new(const struct rd_pool_conf *k, struct kvb_err *err)
{
	struct rd_conn *c = calloc(1, sizeof(*c));

	if (!c || rd_cond_init(&c->wake)) {
		kvb_fail(err, ENOMEM, "out of memory");
		free(c);
		return NULL;
	}
	c->fence = k->fence;
	c->value_max = RD_VALUE_MAX;
	if (!copy(&c->conf, k->conf) || !copy(&c->id, k->id) || !copy(&c->keyring, k->keyring) ||
	    !copy(&c->state_dir, k->state_dir)) {
		kvb_fail(err, ENOMEM, "out of memory");
		rd_conn_free(c);
		return NULL;
	}
	return c;
}

static struct rd_conn *conn_find(const struct rd_pool_conf *k)
{
	struct rd_conn *c;

	for (c = conns; c; c = c->next) {
		if (same(c->conf, k->conf) && same(c->id, k->id) && same(c->keyring, k->keyring) &&
		    same(c->state_dir, k->state_dir) && c->fence == k->fence)
			return c;
	}
	return NULL;
}

/* Put the pool into its connection's care, an old one or a new one. */
static int join_conn(struct rd_pool *p, const struct rd_pool_conf *k, struct kvb_err *err)
{
	struct rd_conn *c, *fresh = NULL;
	int rc;

	pthread_mutex_lock(&rd_lock);
	c = conn_find(k);
	if (!c) {
		c = fresh = conn_new(k, err);
		if (!c) {
			pthread_mutex_unlock(&rd_lock);
			return -ENOMEM;
		}
		c->next = conns;
		conns = c;
	}
	p->conn = c;
	p->next = c->pools;
	c->pools = p;
	rd_conn_wake(c);
	pthread_mutex_unlock(&rd_lock);
	if (!fresh)
		return 0;
	/* Nobody else opens or closes pools meanwhile: that is the control thread's. */
	rc = start_thread(c);
	if (rc) {
		pthread_mutex_lock(&rd_lock);
		conns = c->next;
		pthread_mutex_unlock(&rd_lock);
		rd_conn_free(c);
		return kvb_fail(err, -rc, "cannot start a thread: %s", strerror(-rc));
	}
	return 0;
}

static int check_conf(const struct rd_pool_conf *k, struct kvb_err *err)
{
	const struct rd_link_conf lk = {
		.conf = k->conf, .id = k->id, .keyring = k->keyring,
		.op_timeout_ns = k->op_timeout_ns, .bytes = k->bytes,
	};
	rados_t cluster;
	int rc;

	if (k->ops > OPS_MAX || k->bytes > BYTES_MAX)
		return kvb_fail(err, EINVAL, "at most %u operations and %llu bytes in flight",
				OPS_MAX, BYTES_MAX);
	rc = rd_link_create(&lk, &cluster, err);
	if (!rc)
		rados_shutdown(cluster);
	return rc;
}

int rd_pool_open(const struct rd_pool_conf *conf, struct rd_pool **out, struct kvb_err *err)
{
	struct rd_pool_conf k = *conf;
	unsigned int n = kvb_reactor_count();
	struct rd_pool *p;
	int rc;

	if (!k.id)
		k.id = "admin";
	pthread_once(&once, init);
	if (once_rc)
		return kvb_fail(err, -once_rc, "condition variable: %s", strerror(-once_rc));
	rc = check_conf(&k, err);
	if (rc)
		return rc;
	p = calloc(1, sizeof(*p) + n * sizeof(p->cells[0]));
	if (!p)
		return kvb_fail(err, ENOMEM, "out of memory");
	p->op_timeout_ns = k.op_timeout_ns;
	p->bytes = k.bytes;
	snprintf(p->why, sizeof(p->why), "not connected yet");
	p->ncells = n;
	for (unsigned int i = 0; i < n; i++)
		p->cells[i] = (struct rd_cell){ .msg.fn = tell, .pool = p };
	rc = copy(&p->name, k.pool) && copy(&p->ns, k.ns ? k.ns : "")
		     ? join_conn(p, &k, err) : kvb_fail(err, ENOMEM, "out of memory");
	if (rc)
		rd_pool_free(p);
	else
		*out = p;
	return rc;
}

bool rd_pool_wait(struct rd_pool *p, uint64_t ns)
{
	uint64_t now = kvb_clock_ns(), until = ns > UINT64_MAX - now ? UINT64_MAX : now + ns;
	bool ready;

	pthread_mutex_lock(&rd_lock);
	while (!p->cur && rd_wait_until(&rd_changed, until))
		;
	ready = p->cur;
	pthread_mutex_unlock(&rd_lock);
	return ready;
}

/* ---- Closing ---- */

/* Returns whether @p and, if @last, its connection are gone in time. */
static bool wait_gone(const struct rd_pool *p, const struct rd_conn *c, bool last)
{
	uint64_t until = kvb_clock_ns() + CLOSE_NS;

	while (!p->gone || (last && !c->done)) {
		if (!rd_wait_until(&rd_changed, until))
			return false;
	}
	return true;
}

void rd_pool_close(struct rd_pool *p)
{
	struct rd_conn *c = p->conn, **at;
	bool last = true, join, gone;

	pthread_mutex_lock(&rd_lock);
	p->closing = true;
	for (const struct rd_pool *q = c->pools; q; q = q->next)
		last &= q->closing;
	if (last) {
		atomic_store(&c->stop, true);
		for (at = &conns; *at && *at != c; at = &(*at)->next)
			;
		if (*at)
			*at = c->next;
	}
	rd_conn_wake(c);
	if (!wait_gone(p, c, last))
		kvb_log(KVB_LOG_WARN, "rados pool %s: librados did not let go of it within %llu s",
			p->name, CLOSE_NS / 1000000000u);
	gone = p->gone;
	p->orphan = !gone;
	if (!gone)
		kvb_threads_left = true;
	join = last && c->done;
	if (last && !join) {
		c->orphan = true;
		pthread_detach(c->thread);
		kvb_threads_left = true;
	}
	pthread_mutex_unlock(&rd_lock);
	if (join) {
		pthread_join(c->thread, NULL);
		rd_conn_free(c);
	}
	if (gone)
		rd_pool_free(p);
}
