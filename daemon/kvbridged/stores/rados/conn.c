/* SPDX-License-Identifier: MIT */
/*
 * The helper thread of a connection: connects, opens pools, looks after what operations
 * complained of, and destroys what nobody uses any more. All of that may block.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stores/rados/pool_priv.h"

#define MS 1000000ull
#define RETRY_MIN (100 * MS)
#define RETRY_MAX (2000 * MS)
/* A connection that held so long owes nothing to the attempts before it. */
#define STABLE_NS (10000 * MS)
/* Between two looks whether the pool is still there. */
#define CHECK_NS (250 * MS)
/* How long the first operation on a pool is waited for. */
#define PROBE_NS (1000 * MS)
/* A user's capabilities are fixed when it connects: connect again so often. */
#define DENIED_NS (10000 * MS)

/* No key's name: those are hexadecimal. */
#define PROBE_OID "kvbridged.probe"

void rd_conn_wake(struct rd_conn *c)
{
	c->woken = true;
	pthread_cond_signal(&c->wake);
}

static uint64_t backoff(uint64_t *delay, uint64_t *at)
{
	*delay = *delay ? 2 * *delay : RETRY_MIN;
	if (*delay > RETRY_MAX)
		*delay = RETRY_MAX;
	return *at = kvb_clock_ns() + *delay;
}

static uint64_t hash_text(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	while (*s)
		h = (h ^ (unsigned char)*s++) * 0x100000001b3ull;
	return h ? h : 1;
}

/* Once for each reason until it works again: retries would fill the log. */
static void say(struct rd_conn *c, const char *why)
{
	uint64_t h = hash_text(why);

	for (unsigned int i = 0; i < c->nsaid; i++) {
		if (c->said[i] == h)
			return;
	}
	if (c->nsaid == RD_SAID_MAX)
		c->nsaid = 0;
	c->said[c->nsaid++] = h;
	kvb_log(KVB_LOG_WARN, "rados client.%s: %s", c->id, why);
}

static void say_of_pool(struct rd_pool *p, const char *why)
{
	uint64_t h = hash_text(why);

	if (p->said == h)
		return;
	p->said = h;
	kvb_log(KVB_LOG_WARN, "rados pool %s: %s", p->name, why);
}

/* ---- Destroying ---- */

static void destroy_gens(struct rd_conn *c)
{
	while (c->dead) {
		struct rd_gen *gen = c->dead;

		c->dead = gen->next;
		pthread_mutex_unlock(&rd_lock);
		rados_ioctx_destroy(gen->io.ioctx);
		pthread_mutex_lock(&rd_lock);
		gen->pool->gens--;
		gen->link->gens--;
		free(gen);
	}
}

static void destroy_links(struct rd_conn *c)
{
	struct rd_link **at = &c->retired;

	while (*at) {
		struct rd_link *l = *at;

		if (l->gens) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		pthread_mutex_unlock(&rd_lock);
		rd_link_close(l);
		pthread_mutex_lock(&rd_lock);
	}
}

/* A generation through it, or a message to a reactor. */
static bool in_use(const struct rd_pool *p)
{
	for (unsigned int i = 0; i < p->ncells; i++) {
		if (p->cells[i].sent)
			return true;
	}
	return p->gens;
}

static void destroy_pools(struct rd_conn *c)
{
	struct rd_pool **at = &c->pools;

	while (*at) {
		struct rd_pool *p = *at;

		if (!p->closing) {
			at = &p->next;
			continue;
		}
		rd_publish(p, NULL, "closing");
		if (in_use(p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		p->gone = true;
		pthread_cond_broadcast(&rd_changed);
		if (p->orphan)
			rd_pool_free(p);
	}
}

/* ---- Losing a connection ---- */

static void retire(struct rd_conn *c, const char *why)
{
	struct rd_link *l = c->link;

	for (struct rd_pool *p = c->pools; p; p = p->next) {
		if (!p->closing)
			rd_publish(p, NULL, why);
		p->delay = p->retry_at = 0;
	}
	c->addrs[0] = '\0';
	c->link = NULL;
	l->next = c->retired;
	c->retired = l;
}

static void lost_to_blocklist(struct rd_conn *c)
{
	struct rd_link *l = c->link;
	char why[192];

	snprintf(why, sizeof(why), "this client's address %.60s is on the cluster's blocklist; "
		 "connecting anew", l->addrs);
	say(c, why);
	retire(c, why);
	pthread_mutex_unlock(&rd_lock);
	/* Whoever put it there may not have done so for long: the next connection fences it. */
	rd_fence_leave(&l->fence, !l->used);
	pthread_mutex_lock(&rd_lock);
	if (kvb_clock_ns() - c->up_since > STABLE_NS)
		c->delay = c->retry_at = 0;
	else
		backoff(&c->delay, &c->retry_at);
}

/* ---- Connecting ---- */

static void connect_once(struct rd_conn *c)
{
	struct rd_link_conf k = {
		.conf = c->conf, .id = c->id, .keyring = c->keyring, .state_dir = c->state_dir,
		.fence = c->fence, .stop = &c->stop,
	};
	unsigned int fenced = 0;
	struct kvb_err err = { 0 };
	struct rd_link *l;

	for (const struct rd_pool *p = c->pools; p; p = p->next) {
		k.bytes += p->bytes;
		if (p->op_timeout_ns > k.op_timeout_ns)
			k.op_timeout_ns = p->op_timeout_ns;
	}
	pthread_mutex_unlock(&rd_lock);
	l = rd_link_open(&k, &fenced, &err);
	pthread_mutex_lock(&rd_lock);
	c->fenced += fenced;
	if (!l) {
		if (!atomic_load(&c->stop))
			say(c, err.text);
		for (struct rd_pool *p = c->pools; p; p = p->next)
			rd_publish(p, NULL, err.text);
		backoff(&c->delay, &c->retry_at);
		return;
	}
	c->link = l;
	c->links++;
	c->value_max = l->value_max;
	c->up_since = kvb_clock_ns();
	snprintf(c->addrs, sizeof(c->addrs), "%s", l->addrs);
	for (struct rd_pool *p = c->pools; p; p = p->next)
		rd_publish(p, NULL, "connected, opening the pool");
	kvb_log(KVB_LOG_INFO, "rados client.%s: connected to cluster %s as %s", c->id, l->fsid,
		l->addrs);
}

/* ---- Opening a pool ---- */

/* librados has no wait with a limit. 0: it ended, with its result in @rc. */
static int wait_op(rados_ioctx_t io, rados_completion_t op, uint64_t ns, int *rc)
{
	const struct timespec nap = { .tv_nsec = 2 * (long)MS };
	uint64_t until = kvb_clock_ns() + ns;

	while (!rados_aio_is_complete(op)) {
		if (kvb_clock_ns() > until) {
			rados_aio_cancel(io, op);
			rados_aio_wait_for_complete(op);
			return -ETIMEDOUT;
		}
		nanosleep(&nap, NULL);
	}
	*rc = rados_aio_get_return_value(op);
	return 0;
}

/* One operation, to learn what only an OSD tells: the blocklist and the capabilities. */
static int probe(rados_ioctx_t io)
{
	rados_completion_t op;
	uint64_t size;
	time_t mtime;
	int rc, result = 0;

	rc = rados_aio_create_completion2(NULL, NULL, &op);
	if (rc)
		return rc;
	rc = rados_aio_stat(io, PROBE_OID, op, &size, &mtime);
	/* A hung OSD is no reason to hold up what the others hold. */
	if (!rc && !wait_op(io, op, PROBE_NS, &result))
		rc = result;
	rados_aio_release(op);
	return rc == -ESHUTDOWN || rc == -EPERM ? rc : 0;
}

/* Returns 0 with @gen's ioctx and pool id set, or a negative errno with the reason. */
static int open_ioctx(const struct rd_pool *p, struct rd_gen *gen, struct kvb_err *err)
{
	int64_t id = rados_pool_lookup(gen->io.cluster, p->name);
	int rc;

	if (id == -ENOENT)
		return kvb_fail(err, ENOENT, "the cluster has no pool %.64s: create it with "
				"\"ceph osd pool create\"; it will be found", p->name);
	if (id < 0)
		return kvb_fail(err, (int)-id, "looking for pool %.64s: %s", p->name,
				strerror((int)-id));
	gen->io.pool_id = id;
	rc = rados_ioctx_create2(gen->io.cluster, id, &gen->io.ioctx);
	if (rc)
		return kvb_fail(err, -rc, "opening pool %.64s: %s", p->name, strerror(-rc));
	rados_ioctx_set_namespace(gen->io.ioctx, p->ns);
	/* Without it a full pool makes writes and even removals wait for ever. */
	rados_set_pool_full_try(gen->io.ioctx);
	rc = probe(gen->io.ioctx);
	if (rc == -EPERM)
		kvb_fail(err, EPERM, "client.%.30s may not read pool %.50s, namespace \"%.50s\": give "
			 "it osd 'allow rw pool=...'", p->conn->id, p->name, p->ns);
	else if (rc)
		kvb_fail(err, -rc, "the cluster holds this client off: it is on the blocklist");
	if (rc)
		rados_ioctx_destroy(gen->io.ioctx);
	return rc;
}

static void open_pool(struct rd_conn *c, struct rd_pool *p)
{
	struct rd_link *l = c->link;
	struct kvb_err err = { 0 };
	struct rd_gen *gen;
	int rc;

	pthread_mutex_unlock(&rd_lock);
	if (p->op_timeout_ns > l->op_timeout_ns)
		rd_link_set_timeout(l, p->op_timeout_ns);
	gen = calloc(1, sizeof(*gen));
	if (gen) {
		gen->io.cluster = l->cluster;
		gen->pool = p;
		gen->link = l;
		gen->refs = 1;
		rc = open_ioctx(p, gen, &err);
	} else {
		rc = kvb_fail(&err, ENOMEM, "out of memory");
	}
	pthread_mutex_lock(&rd_lock);
	if (rc) {
		free(gen);
		rd_publish(p, NULL, err.text);
		say_of_pool(p, err.text);
		backoff(&p->delay, &p->retry_at);
		if (rc == -ESHUTDOWN)
			atomic_store(&l->blocklisted, true);
		if (rc != -EPERM)
			p->denied_since = 0;
		else if (!p->denied_since)
			p->denied_since = kvb_clock_ns();
		return;
	}
	p->gens++;
	l->gens++;
	l->used = true;
	gen->io.generation = ++p->generation;
	p->delay = p->denied_since = p->said = 0;
	c->nsaid = 0;
	kvb_log(KVB_LOG_INFO, "rados pool %s: ready (pool %" PRId64 ", connection %" PRIu64 ")",
		p->name, gen->io.pool_id, gen->io.generation);
	rd_publish(p, gen, "");
}

/* An operation found nothing where a pool should be: is it still there? Asks the map we have. */
static void check_pool(struct rd_pool *p)
{
	struct rd_gen *gen = p->cur;
	char name[256], why[192];
	int rc;

	p->check_at = kvb_clock_ns() + CHECK_NS;
	pthread_mutex_unlock(&rd_lock);
	atomic_store(&gen->suspect, false);
	rc = rados_pool_reverse_lookup(gen->io.cluster, gen->io.pool_id, name, sizeof(name));
	pthread_mutex_lock(&rd_lock);
	if (rc != -ENOENT)
		return;
	snprintf(why, sizeof(why), "pool %.64s was deleted: create it again, or remove the namespace",
		 p->name);
	say_of_pool(p, why);
	rd_publish(p, NULL, why);
	p->delay = 0;
	backoff(&p->delay, &p->retry_at);
}

/* ---- The loop ---- */

static bool due(uint64_t at, uint64_t now, uint64_t *next)
{
	if (at <= now)
		return true;
	if (at < *next)
		*next = at;
	return false;
}

/* Returns whether anything was done: then there may be more. */
static bool look_at_pools(struct rd_conn *c, uint64_t *next)
{
	uint64_t now = kvb_clock_ns();

	for (struct rd_pool *p = c->pools; p; p = p->next) {
		if (p->closing)
			continue;
		if (!p->cur) {
			if (!due(p->retry_at, now, next))
				continue;
			open_pool(c, p);
			return true;
		}
		if (atomic_load(&p->cur->suspect) && due(p->check_at, now, next)) {
			check_pool(p);
			return true;
		}
	}
	return false;
}

/* Nothing can be lost by connecting again, and a pool may be allowed then? */
static bool worth_new_session(const struct rd_conn *c)
{
	uint64_t now = kvb_clock_ns();

	if (c->link->gens)
		return false;
	for (const struct rd_pool *p = c->pools; p; p = p->next) {
		if (p->denied_since && now - p->denied_since > DENIED_NS)
			return true;
	}
	return false;
}

static bool step(struct rd_conn *c, uint64_t *next)
{
	if (c->link && atomic_load(&c->link->blocklisted)) {
		lost_to_blocklist(c);
		return true;
	}
	if (atomic_load(&c->stop)) {
		if (c->link) {
			retire(c, "closing");
			return true;
		}
		return false;
	}
	if (!c->link) {
		if (!due(c->retry_at, kvb_clock_ns(), next))
			return false;
		connect_once(c);
		return true;
	}
	if (worth_new_session(c)) {
		for (struct rd_pool *p = c->pools; p; p = p->next)
			p->denied_since = 0;
		retire(c, c->pools ? c->pools->why : "");
		return true;
	}
	return look_at_pools(c, next);
}

void *rd_conn_main(void *conn)
{
	struct rd_conn *c = conn;
	bool orphan;

	pthread_setname_np(pthread_self(), "rados");
	pthread_mutex_lock(&rd_lock);
	for (;;) {
		uint64_t next = UINT64_MAX;

		c->woken = false;
		destroy_pools(c);
		destroy_gens(c);
		destroy_links(c);
		if (step(c, &next) || c->woken || c->dead)
			continue;
		if (atomic_load(&c->stop) && !c->pools && !c->link && !c->retired)
			break;
		if (next == UINT64_MAX)
			pthread_cond_wait(&c->wake, &rd_lock);
		else
			rd_wait_until(&c->wake, next);
	}
	c->done = true;
	orphan = c->orphan;
	pthread_cond_broadcast(&rd_changed);
	pthread_mutex_unlock(&rd_lock);
	if (orphan)
		rd_conn_free(c);
	return NULL;
}
