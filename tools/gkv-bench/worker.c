/* SPDX-License-Identifier: MIT */
/*
 * The data path of gkv-bench run. Nothing here allocates, and the clock is read
 * once a doorbell and once a batch of completions: at queue depth 1 that is once a
 * command, deep it costs next to nothing.
 */
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include <gkv/nvme_kv.h>

#include "pattern.h"
#include "run.h"

#define MAX_BATCH 256
/* An unknown outcome is tried again so often before it counts as an error. */
#define MAX_TRIES 8

static const uint8_t opcodes[N_KINDS] = { GKV_RETRIEVE, GKV_STORE, GKV_EXIST,
					  GKV_DELETE,	GKV_LIST,  GKV_FLUSH };

static uint32_t pick_size(const struct run_cfg *cfg, uint64_t r)
{
	if (cfg->range)
		return (uint32_t)(cfg->size[0] + below(r, cfg->size[1] - cfg->size[0] + 1));
	return (uint32_t)cfg->size[cfg->n_sizes == 1 ? 0 : below(r, cfg->n_sizes)];
}

static void prepare(struct worker *w, struct lane *lane, struct gkv_cmd *cmd, uint32_t si,
		    enum kind kind, uint64_t key)
{
	const struct run *r = w->run;
	const struct run_cfg *cfg = &r->cfg;
	struct slot *s = &lane->slots[si];

	s->key = key;
	s->kind = (uint8_t)kind;
	cmd->opcode = opcodes[kind];
	cmd->user_data = si;
	key_bytes(key, cmd->key);
	cmd->key_len = 16;
	cmd->buf = NULL;
	cmd->len = 0;
	switch (kind) {
	case K_RETRIEVE:
		cmd->buf = lane->buf + (uint64_t)si * r->stride;
		cmd->len = (uint32_t)cfg->size_max;
		break;
	case K_STORE:
		cmd->buf = lane->buf + (uint64_t)si * r->stride;
		s->len = cmd->len = pick_size(cfg, rng_next(&w->rng));
		if (cfg->client.verify)
			value_fill(cmd->buf, s->len, key_seed(key, cfg->client.seed), rng_next(&w->rng));
		if (cfg->client.qp_flags & GKV_QP_CSUM)
			cmd->crc = gkv_crc32c(0, cmd->buf, s->len);
		break;
	case K_LIST:
		cmd->buf = lane->buf + (uint64_t)si * r->stride;
		cmd->len = cfg->list_len;
		break;
	case K_FLUSH:
		cmd->key_len = 0;
		break;
	default:
		break;
	}
}

static void complain(struct worker *w, const struct slot *s, const char *what, uint64_t at)
{
	w->mismatches++;
	if (atomic_fetch_add(&w->run->complaints, 1) < 10)
		warn("key %" PRIu64 ": %s (offset or length %" PRIu64 ")", s->key, what, at);
}

static void verify(struct worker *w, const struct slot *s, const uint8_t *buf,
		   const struct gkv_comp *c)
{
	const struct run_cfg *cfg = &w->run->cfg;
	uint64_t version;
	size_t where;

	if (c->result > cfg->size_max) {
		complain(w, s, "the value is longer than any of --sizes", c->result);
		return;
	}
	if ((c->flags & GKV_C_CRC) && gkv_crc32c(0, buf, c->result) != c->crc) {
		complain(w, s, "crc32c of the completion does not match the value", c->result);
		return;
	}
	switch (value_check(buf, c->result, key_seed(s->key, cfg->client.seed), &version, &where)) {
	case VALUE_OK:
		break;
	case VALUE_BAD_HEADER:
		complain(w, s, "the value is not one stored under this key and seed", c->result);
		break;
	case VALUE_BAD_BODY:
		complain(w, s, "the value differs from what was stored", where);
		break;
	}
}

/* A restarted daemon that cannot tell whether a mutation happened asks for it again. */
static bool outcome_unknown(const struct gkv_comp *c)
{
	return !(c->flags & GKV_C_LOST) && GKV_STATUS_CODE(c->status) == GKV_SC_TRANSIENT &&
	       gkv_status_retry(c->status);
}

static void complete(struct worker *w, struct lane *lane, const struct gkv_comp *c, uint64_t now)
{
	struct run *r = w->run;
	uint32_t si = (uint32_t)c->user_data;
	struct slot *s = &lane->slots[si];
	enum kind kind = s->kind;

	if (unlikely(c->flags & (GKV_C_TIMEDOUT | GKV_C_LATE))) {
		if (c->flags & GKV_C_TIMEDOUT) {
			/* The buffer may still be written to: the slot stays taken. */
			errors_add(&w->errors, c->status, c->flags, 1);
			lane->lost++;
			lane->in_flight--;
			return;
		}
		w->late++;
		lane->lost--;
		lane->free_slots[lane->n_free++] = si;
		return;
	}
	lane->in_flight--;
	if (unlikely(outcome_unknown(c)) && s->tries < MAX_TRIES) {
		/* The latency goes on counting from the first attempt. */
		s->tries++;
		w->retried++;
		lane->retry[lane->n_retry++] = si;
		return;
	}
	lane->free_slots[lane->n_free++] = si;
	hist_add(&w->hist[kind], now - s->start);
	if (likely(!c->status && !(c->flags & GKV_C_LOST))) {
		if (kind == K_RETRIEVE) {
			w->bytes[kind] += c->result < r->cfg.size_max ? c->result : r->cfg.size_max;
			if (r->cfg.client.verify)
				verify(w, s, lane->buf + (uint64_t)si * r->stride, c);
		} else if (kind == K_STORE) {
			w->bytes[kind] += s->len;
		}
		return;
	}
	if (!(c->flags & GKV_C_LOST) && GKV_STATUS_CODE(c->status) == GKV_SC_KEY_NOT_FOUND &&
	    r->misses_expected) {
		w->misses++;
		return;
	}
	errors_add(&w->errors, c->status, c->flags, 1);
	/* Nothing more will ever complete. */
	if (c->flags & GKV_C_LOST) {
		w->lost = true;
		atomic_store_explicit(&r->stop, true, memory_order_relaxed);
	}
}

/* Completions that are there; sleeps for them only when @may_sleep. Returns how many. */
static uint32_t reap(struct worker *w, struct lane *lane, bool may_sleep)
{
	struct gkv_comp comps[MAX_BATCH];
	int n = may_sleep ? gkv_wait(lane->qp, comps, MAX_BATCH, 10000000)
			  : gkv_poll(lane->qp, comps, MAX_BATCH);
	uint64_t now;

	if (n <= 0)
		return 0;
	now = ticks();
	for (int i = 0; i < n; i++)
		complete(w, lane, &comps[i], now);
	return (uint32_t)n;
}

typedef bool next_fn(struct worker *w, enum kind *kind, uint64_t *key);

static bool next_run(struct worker *w, enum kind *kind, uint64_t *key)
{
	const struct run *r = w->run;
	uint64_t x = rng_next(&w->rng);

	if (r->cfg.count && !w->quota--) {
		w->quota = 0;
		return false;
	}
	*kind = r->mix[x % MIX_TABLE];
	*key = keydist_next(&r->dist, x);
	return true;
}

static bool next_fill(struct worker *w, enum kind *kind, uint64_t *key)
{
	uint64_t i = atomic_fetch_add_explicit(&w->run->next_fill, 1, memory_order_relaxed);

	*kind = K_STORE;
	*key = i;
	return i < w->run->cfg.keys;
}

static void ring(struct lane *lane, struct gkv_cmd *cmds, uint32_t n)
{
	int taken = gkv_submit(lane->qp, cmds, n);

	/* The queue pair has room for every slot, so anything else is a broken one. */
	if (unlikely(taken != (int)n))
		die("submit: %d of %" PRIu32 " commands taken: %s", taken, n, gkv_error());
}

/* Submit what is to be tried again, a Store perhaps with another version of its value. */
static void resubmit(struct worker *w, struct lane *lane, struct gkv_cmd *cmds)
{
	struct timespec pause = {};
	uint32_t n = 0;

	while (lane->n_retry && n < MAX_BATCH) {
		uint32_t si = lane->retry[--lane->n_retry];
		const struct slot *s = &lane->slots[si];

		/* What fails again gets time: half a second over all tries. */
		if (s->tries > 1 && pause.tv_nsec < 1000000L << s->tries)
			pause.tv_nsec = 1000000L << s->tries;
		prepare(w, lane, &cmds[n++], si, s->kind, s->key);
	}
	if (pause.tv_nsec)
		nanosleep(&pause, NULL);
	lane->in_flight += n;
	ring(lane, cmds, n);
}

/* Submit up to @room commands with one doorbell. False when there are no more. */
static bool submit(struct worker *w, struct lane *lane, struct gkv_cmd *cmds, uint32_t room,
		   next_fn *next)
{
	uint32_t n = 0;
	uint64_t start;
	bool more = true;

	while (n < room) {
		enum kind kind;
		uint64_t key;

		more = next(w, &kind, &key);
		if (!more)
			break;
		lane->slots[lane->free_slots[--lane->n_free]].tries = 0;
		prepare(w, lane, &cmds[n++], lane->free_slots[lane->n_free], kind, key);
	}
	if (!n)
		return more;
	lane->in_flight += n;
	start = ticks();
	for (uint32_t i = 0; i < n; i++)
		lane->slots[cmds[i].user_data].start = start;
	ring(lane, cmds, n);
	return more;
}

/* Waiting politely: spin at first, then sleep. Returns completions reaped meanwhile. */
static uint32_t idle(struct worker *w, uint64_t *since, uint64_t spin)
{
	cpu_relax();
	if (spin == UINT64_MAX)
		return 0;
	if (!*since) {
		*since = ticks();
		return 0;
	}
	if (ticks() - *since <= spin)
		return 0;
	if (w->n_lanes == 1)
		return reap(w, &w->lanes[0], true);
	sched_yield();
	return 0;
}

static void pump(struct worker *w, next_fn *next)
{
	const struct run *r = w->run;
	const uint32_t batch = r->cfg.batch;
	struct gkv_cmd cmds[MAX_BATCH] = {};
	uint64_t done = 0, idle_since = 0;
	const uint64_t spin_ns = r->cfg.spin_ns;
	const uint64_t spin = spin_ns == UINT64_MAX
				      ? spin_ns
				      : (uint64_t)((double)spin_ns * ticks_per_ns());
	bool more = true;

	for (uint32_t i = 0; i < MAX_BATCH; i++)
		cmds[i].nsid = r->target.ns.nsid;
	for (;;) {
		uint32_t got = 0, busy = 0;

		if (atomic_load_explicit(&r->stop, memory_order_relaxed))
			more = false;
		for (uint32_t i = 0; i < w->n_lanes; i++) {
			struct lane *lane = &w->lanes[i];
			uint32_t room = lane->n_free < MAX_BATCH ? lane->n_free : MAX_BATCH;

			if (unlikely(lane->n_retry) && !w->lost)
				resubmit(w, lane, cmds);
			if (more && room && (room >= batch || !lane->in_flight))
				more = submit(w, lane, cmds, room, next);
			busy += lane->in_flight;
			if (lane->in_flight || unlikely(lane->lost))
				got += reap(w, lane, false);
		}
		/* What timed out and is still out is lost with the session. */
		if (!busy)
			break;
		if (!got)
			got = idle(w, &idle_since, spin);
		if (got) {
			done += got;
			atomic_store_explicit(&w->done, done, memory_order_relaxed);
			idle_since = 0;
		}
	}
	/* With the session lost, what was to be tried again stays unknown. */
	for (uint32_t i = 0; i < w->n_lanes; i++)
		if (w->lanes[i].n_retry)
			errors_add(&w->errors, 0, GKV_C_LOST, w->lanes[i].n_retry);
}

static void *body(struct worker *w, next_fn *next)
{
	int err = pin_to(w->cpu);

	if (err)
		warn("processor %d: %s", w->cpu, strerror(-err));
	/* On a busy machine a thread may start late; the clock waits for it. */
	pthread_barrier_wait(&w->run->start);
	w->begin_ns = now_ns();
	pump(w, next);
	w->end_ns = now_ns();
	atomic_fetch_sub(&w->run->running, 1);
	return NULL;
}

void *worker_fill(void *arg)
{
	return body(arg, next_fill);
}

void *worker_run(void *arg)
{
	return body(arg, next_run);
}
