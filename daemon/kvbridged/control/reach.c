/* SPDX-License-Identifier: MIT */
#include "control/reach.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/session.h"
#include "core/clock.h"
#include "core/link.h"
#include "core/store.h"

_Atomic uint64_t kvb_reach_limit_ns = 10000000000u;

/* One store, asked about one region. A session has at most one: its sessions limit a user's. */
struct kvb_probe {
	struct kvb_msg done;		/* the last that its thread does */
	pthread_t thread;
	bool running;			/* else it waits for its turn */
	bool late;			/* nobody waits for it any more */
	_Atomic bool stop;
	struct kvb_session *s;
	struct kvb_session_region *g;	/* holds a reference */
	struct kvb_ns *ns;
	uint32_t provider;
	struct kvb_reach to;
	char what[32], function[48];
	bool fetch;
	int rc;
	struct kvb_err why;
	struct kvb_probe *next;
};

static struct kvb_probe *probes, **probes_tail = &probes;

static void advance(struct kvb_session *s);

static void answer(struct kvb_session *s, int rc, const struct kvb_err *err)
{
	kvb_reach_fn then = s->asking.then;

	s->asking.then = NULL;
	then(s, rc, err);
}

static void probe_free(struct kvb_probe *p)
{
	struct kvb_probe **at;

	for (at = &probes; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	if (!*at)
		probes_tail = at;
	p->s->asking.probe = NULL;
	kvb_session_region_put(p->g);
	free(p);
}

/* ---- Threads ---- */

/* SIGBUS is not blocked here: the memory may be revoked under the transfer. */
static void *probe_main(void *arg)
{
	struct kvb_probe *p = arg;
	struct kvb_store *st = p->ns->bottom;

	pthread_setname_np(pthread_self(), "probe");
	p->rc = st->ops->reach(st, &p->to, &p->why);
	kvb_control_send(&p->done);
	return NULL;
}

/*
 * The same memory may be several sessions', of which each sent a copy of one descriptor: no page
 * is in two regions of the module. Where the kernel does not compare them, all of a GPU may be.
 */
static bool same_memory(const struct kvb_probe *p, const struct kvb_probe *q)
{
	return p->provider == q->provider &&
	       syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, p->to.fd, q->to.fd) <= 0;
}

/*
 * Two transfers into one page would take each other's traces for the disk's, so there is one at a
 * time. One that is late has had its turn.
 */
static struct kvb_probe *whose_turn(void)
{
	for (struct kvb_probe *p = probes; p; p = p->next) {
		struct kvb_probe *q = probes;

		if (p->running)
			continue;
		while (q && (!q->running || q->late || !same_memory(p, q)))
			q = q->next;
		if (!q)
			return p;
	}
	return NULL;
}

static void run_probes(void)
{
	struct kvb_probe *p;

	while ((p = whose_turn())) {
		int rc = pthread_create(&p->thread, NULL, probe_main, p);
		struct kvb_session *s = p->s;
		struct kvb_err err;

		p->running = !rc;
		if (!rc)
			continue;
		kvb_fail(&err, rc, "%s: a thread to ask the disks: %s", p->what, strerror(rc));
		probe_free(p);
		answer(s, -rc, &err);
	}
}

static void note(_Atomic uint64_t *word, const struct kvb_ns *ns, bool set)
{
	uint64_t bit = UINT64_C(1) << ns->index;

	if (set)
		atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
}

static int judge(const struct kvb_probe *p, struct kvb_err *err)
{
	bool around = p->rc == -EXDEV && p->ns->allow_bounce;

	if (atomic_load(&p->g->r.dead))
		return kvb_fail(err, ENODEV, "%s was revoked", p->what);
	if (p->rc && !around)
		return kvb_fail(err, -p->rc, "namespace %s: %s", p->ns->name, p->why.text);
	if (around)
		kvb_log_client("unreachable regions", KVB_LOG_INFO,
			       "namespace %s: %s; it is served through host memory", p->ns->name,
			       p->why.text);
	note(&p->g->r.bounce, p->ns, around);
	note(&p->g->r.fetch, p->ns, !around && p->fetch);
	return 0;
}

static void probe_done(struct kvb_msg *m)
{
	struct kvb_probe *p = kvb_container(m, struct kvb_probe, done);
	struct kvb_session *s = p->s;
	bool late = p->late || !s->asking.then;
	struct kvb_err err;
	int rc = 0;

	/* Nothing of it may be left when the daemon goes on to stop. */
	pthread_join(p->thread, NULL);
	if (!late)
		rc = judge(p, &err);
	/* One that is revoked while a namespace opens matters no more; the others do. */
	if (rc == -ENODEV && s->asking.ns)
		rc = 0;
	probe_free(p);
	run_probes();
	if (!late && rc)
		answer(s, rc, &err);
	else if (!late)
		advance(s);
	kvb_session_try_free(s);
}

/* ---- Requests ---- */

/* Nothing is ever read into what the daemon may only read, nor by DMA where a store copies. */
static bool matters(const struct kvb_session_region *g, const struct kvb_ns *ns)
{
	return g->vram && !(g->flags & GKV_REGION_F_RDONLY) && ns->bottom->ops->reach &&
	       g->mem.m.fd >= 0 && !atomic_load(&g->r.dead);
}

static int ask(struct kvb_session *s, struct kvb_session_region *g, struct kvb_ns *ns,
	       struct kvb_err *err)
{
	struct kvb_probe *p = s->asking.probe;

	if (p)
		return kvb_fail(err, EBUSY, "%s: disks of namespace %s have not answered about %s yet",
				ns->name, p->ns->name, p->what);
	p = calloc(1, sizeof(*p));
	if (!p)
		return kvb_fail(err, ENOMEM, "out of memory");
	p->done.fn = probe_done;
	p->s = s;
	p->g = g;
	p->ns = ns;
	p->provider = g->mem.m.at.provider;
	snprintf(p->what, sizeof(p->what), "region %u", g->id);
	kvb_place_function(&g->mem.m.at, p->function, sizeof(p->function));
	p->to = (struct kvb_reach){ .fd = g->mem.m.fd, .addr = g->mem.m.addr, .len = g->len,
				    .what = p->what, .function = p->function, .stop = &p->stop,
				    .fetch = &p->fetch };
	g->refs++;
	s->asking.probe = p;
	*probes_tail = p;
	probes_tail = &p->next;
	run_probes();
	return 0;
}

static bool next_pair(struct kvb_session *s, struct kvb_session_region **g, struct kvb_ns **ns)
{
	struct kvb_asking *a = &s->asking;

	*g = a->region;
	*ns = a->ns;
	if (a->ns) {
		if (*g)
			a->region = (*g)->next;
		return *g;
	}
	while (a->next < s->srv->nn) {
		const struct kvb_ns_open *o = atomic_load(&s->open[a->next++]);

		if (o) {
			*ns = o->ns;
			return true;
		}
	}
	return false;
}

/* Ask about the next pair that has to be; or all have been. */
static void advance(struct kvb_session *s)
{
	struct kvb_session_region *g;
	struct kvb_ns *ns;
	struct kvb_err err;
	int rc;

	while (next_pair(s, &g, &ns)) {
		if (!matters(g, ns))
			continue;
		rc = ask(s, g, ns, &err);
		if (rc)
			answer(s, rc, &err);
		return;
	}
	answer(s, 0, NULL);
}

static void begin(struct kvb_session *s, struct kvb_session_region *g, struct kvb_ns *ns,
		  kvb_reach_fn then)
{
	struct kvb_probe *late = s->asking.probe;
	uint64_t limit = atomic_load(&kvb_reach_limit_ns);

	s->asking = (struct kvb_asking){ .then = then, .region = g, .ns = ns, .probe = late,
					 .until = kvb_clock_ns() + limit, .limit = limit };
	advance(s);
}

void kvb_reach_region(struct kvb_session *s, struct kvb_session_region *g, kvb_reach_fn then)
{
	begin(s, g, NULL, then);
}

void kvb_reach_ns(struct kvb_session *s, struct kvb_ns *ns, kvb_reach_fn then)
{
	begin(s, s->regions, ns, then);
}

void kvb_reach_cancel(struct kvb_session *s)
{
	struct kvb_probe *p = s->asking.probe;

	if (s->asking.then)
		answer(s, -ECANCELED, &(struct kvb_err){ "the session is over" });
	if (!p)
		return;
	atomic_store(&p->stop, true);
	if (!p->running)
		probe_free(p);
}

/* ---- Time ---- */

static void give_up(struct kvb_probe *p)
{
	struct kvb_session *s = p->s;
	unsigned long long ms = s->asking.limit / 1000000u;
	bool asked = p->running, waits = s->asking.then;
	struct kvb_err err;

	if (asked) {
		kvb_fail(&err, ETIMEDOUT,
			 "namespace %s: %s: its disks have not answered within %llu ms, and may still write to the memory's first page",
			 p->ns->name, p->what, ms);
		kvb_log_client("disks that do not answer", KVB_LOG_WARN, "session %llu (pid %d): %s",
			       (unsigned long long)s->id, s->peer.pid, err.text);
		p->late = true;
		atomic_store(&p->stop, true);
		/* Commands must not take for data what the transfer brings. */
		atomic_store(&p->g->r.dead, true);
	} else {
		kvb_fail(&err, ETIMEDOUT,
			 "namespace %s: %s: disks that others wait for have not answered within %llu ms",
			 p->ns->name, p->what, ms);
		probe_free(p);
	}
	run_probes();
	if (waits)
		answer(s, -ETIMEDOUT, &err);
}

void kvb_reach_tick(uint64_t now_ns)
{
	struct kvb_probe *p;

	do {
		for (p = probes; p && (p->late || now_ns < p->s->asking.until); p = p->next)
			;
		if (p)
			give_up(p);
	} while (p);
}

int kvb_reach_patience(uint64_t now_ns)
{
	int least = -1;

	for (const struct kvb_probe *p = probes; p; p = p->next) {
		uint64_t end = p->s->asking.until;
		int ms = end > now_ns ? (int)((end - now_ns) / 1000000u) + 1 : 0;

		if (!p->late && (least < 0 || ms < least))
			least = ms;
	}
	return least;
}
