/* SPDX-License-Identifier: MIT */
/*
 * What an inference engine does with each request: Exist on all blocks of the
 * prompt to find the longest stored prefix, Retrieve that prefix, Store the rest.
 */
#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include <gkv/nvme_kv.h>

#include "pattern.h"
#include "util.h"

#define MAX_BATCH 64
#define MAX_TRIES 8

static const uint8_t opcodes[N_STEPS] = { GKV_EXIST, GKV_RETRIEVE, GKV_STORE };

static uint64_t value_seed(const struct client *c, const uint8_t key[16])
{
	uint64_t w[2];

	memcpy(w, key, 16);
	return mix64(w[0] ^ mix64(w[1] ^ mix64(c->replay->seed)));
}

static void complain(struct client *c, const struct item *it, const char *what, uint64_t at)
{
	char key[33];

	c->mismatches++;
	if (atomic_fetch_add(&c->replay->complaints, 1) >= 10)
		return;
	for (int i = 0; i < 16; i++)
		snprintf(key + 2 * i, 3, "%02x", it->key[i]);
	warn("key %s: %s (offset or length %" PRIu64 ")", key, what, at);
}

static void prepare(struct client *c, struct gkv_cmd *cmd, enum step step, uint32_t item,
		    uint32_t si)
{
	const struct replay *r = c->replay;
	const struct item *it = &c->items[item];
	uint8_t *buf = c->buf + (uint64_t)si * r->stride;

	c->slots[si].item = item;
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = opcodes[step];
	cmd->nsid = c->target.ns.nsid;
	cmd->key_len = 16;
	memcpy(cmd->key, it->key, 16);
	cmd->user_data = si;
	if (step == STEP_EXIST)
		return;
	cmd->buf = buf;
	cmd->len = (uint32_t)r->shards[it->shard].size;
	if (step == STEP_STORE)
		value_fill(buf, cmd->len, value_seed(c, it->key), 0);
}

static void check_value(struct client *c, const struct item *it, const uint8_t *buf,
			uint32_t result)
{
	uint64_t size = c->replay->shards[it->shard].size, version;
	size_t where;

	if (result != size) {
		complain(c, it, "the value has another length than was stored", result);
		return;
	}
	if (!c->replay->verify)
		return;
	switch (value_check(buf, size, value_seed(c, it->key), &version, &where)) {
	case VALUE_OK:
		break;
	case VALUE_BAD_HEADER:
		complain(c, it, "the value is not one stored under this key and seed", 0);
		break;
	case VALUE_BAD_BODY:
		complain(c, it, "the value differs from what was stored", where);
		break;
	}
}

/* Returns true when the item is to be submitted again. */
static bool complete(struct client *c, enum step step, const struct gkv_comp *comp, uint64_t now)
{
	uint32_t si = (uint32_t)comp->user_data;
	struct inflight *s = &c->slots[si];
	struct item *it = &c->items[s->item];
	uint64_t size = c->replay->shards[it->shard].size;

	hist_add(&c->hist[step], now - s->start);
	c->free_slots[c->n_free++] = si;
	it->found = false;
	if (comp->flags & GKV_C_LOST) {
		errors_add(&c->errors, comp->status, comp->flags, 1);
		atomic_store(&c->replay->abort, true);
		return false;
	}
	if (!comp->status) {
		it->found = true;
		if (step == STEP_RETRIEVE) {
			atomic_fetch_add_explicit(&c->retrieved, size, memory_order_relaxed);
			check_value(c, it, c->buf + (uint64_t)si * c->replay->stride, comp->result);
		} else if (step == STEP_STORE) {
			atomic_fetch_add_explicit(&c->stored, size, memory_order_relaxed);
		}
		return false;
	}
	if (GKV_STATUS_CODE(comp->status) == GKV_SC_KEY_NOT_FOUND && step != STEP_STORE) {
		/* Between Exist and Retrieve the value may have gone: that is no error. */
		c->stale += step == STEP_RETRIEVE;
		return false;
	}
	if (gkv_status_retry(comp->status) && it->tries < MAX_TRIES) {
		struct timespec pause = { .tv_nsec = 1000000L << it->tries };

		/* What may pass by itself gets time to: half a second over all tries. */
		nanosleep(&pause, NULL);
		it->tries++;
		c->retries++;
		c->retried += GKV_STATUS_CODE(comp->status) == GKV_SC_TRANSIENT;
		return true;
	}
	errors_add(&c->errors, comp->status, comp->flags, 1);
	return false;
}

/*
 * A command that got no answer in time keeps its slot and buffer; the queue pair
 * is reset to have all of them back. Everything in flight is submitted again.
 */
static uint32_t recover(struct client *c, uint32_t n_retry)
{
	uint32_t qd = c->replay->qd;
	bool free_slot[qd];
	int err;

	memset(free_slot, 0, sizeof(free_slot));
	for (uint32_t i = 0; i < c->n_free; i++)
		free_slot[c->free_slots[i]] = true;
	err = gkv_qp_reset(c->qp);
	if (err)
		die("reset of the queue pair: %s (%s)", gkv_error(), strerror(-err));
	for (uint32_t si = 0; si < qd; si++) {
		if (free_slot[si])
			continue;
		c->retry[n_retry++] = c->slots[si].item;
		c->free_slots[c->n_free++] = si;
	}
	return n_retry;
}

/* Take completions; returns the length of the retry list. */
static uint32_t reap(struct client *c, enum step step, uint32_t n_retry)
{
	struct gkv_comp comps[MAX_BATCH];
	bool timed_out = false;
	uint64_t now;
	int n = gkv_poll(c->qp, comps, MAX_BATCH);

	if (!n)
		n = gkv_wait(c->qp, comps, MAX_BATCH, 100000000);
	now = ticks();
	for (int i = 0; i < n; i++) {
		if (comps[i].flags & GKV_C_TIMEDOUT) {
			errors_add(&c->errors, comps[i].status, comps[i].flags, 1);
			timed_out = true;
			continue;
		}
		if (complete(c, step, &comps[i], now))
			c->retry[n_retry++] = c->slots[comps[i].user_data].item;
	}
	return timed_out ? recover(c, n_retry) : n_retry;
}

/* Run @step on items [from, to), at most qd at a time. */
static void run_step(struct client *c, enum step step, uint32_t from, uint32_t to)
{
	const struct replay *r = c->replay;
	struct gkv_cmd cmds[MAX_BATCH];
	uint32_t n_retry = 0;

	for (uint32_t i = from; i < to; i++)
		c->items[i].tries = 0;
	while (from < to || n_retry || c->n_free < r->qd) {
		uint32_t n = 0;
		uint64_t start;
		int taken;

		if (atomic_load_explicit(&r->abort, memory_order_relaxed))
			return;
		/* Values are made one by one: let the daemon have each as soon as it is there. */
		while (c->n_free && n < (step == STEP_STORE ? 1 : MAX_BATCH) &&
		       (from < to || n_retry)) {
			uint32_t item = n_retry ? c->retry[--n_retry] : from++;

			prepare(c, &cmds[n++], step, item, c->free_slots[--c->n_free]);
		}
		start = ticks();
		for (uint32_t i = 0; i < n; i++)
			c->slots[cmds[i].user_data].start = start;
		if (n) {
			taken = gkv_submit(c->qp, cmds, n);
			if (taken != (int)n)
				die("submit: %d of %" PRIu32 " commands taken: %s", taken, n,
				    gkv_error());
			if (c->n_free && (from < to || n_retry) && step == STEP_STORE)
				continue;
		}
		n_retry = reap(c, step, n_retry);
	}
}

static void wait_until(struct client *c, double timestamp_ms)
{
	const struct replay *r = c->replay;
	uint64_t due;

	if (r->speed <= 0)
		return;
	due = r->start_ns + (uint64_t)(timestamp_ms * 1e6 / r->speed);
	while (now_ns() < due && !atomic_load(&c->replay->abort)) {
		uint64_t left = due - now_ns();
		struct timespec ts = { .tv_nsec = left < 100000000u ? (long)left : 100000000 };

		nanosleep(&ts, NULL);
	}
}

/* Blocks from @from on, all of whose values were found; at most @to. */
static uint32_t prefix(const struct client *c, uint32_t from, uint32_t to)
{
	uint32_t n = c->replay->n_shards;

	for (uint32_t b = from; b < to; b++)
		for (uint32_t s = 0; s < n; s++)
			if (!c->items[b * n + s].found)
				return b;
	return to;
}

static void run_request(struct client *c, const struct trace_req *req)
{
	const struct replay *r = c->replay;
	const uint64_t *ids = r->trace.ids + req->first;
	uint32_t n = r->n_shards, blocks = (uint32_t)req->blocks, hit;

	for (uint32_t b = 0; b < blocks; b++) {
		for (uint32_t s = 0; s < n; s++) {
			struct item *it = &c->items[b * n + s];

			it->block = b;
			it->shard = s;
			shard_key(&r->shards[s], ids[b], it->key);
		}
	}
	run_step(c, STEP_EXIST, 0, blocks * n);
	hit = prefix(c, 0, blocks);
	run_step(c, STEP_RETRIEVE, 0, hit * n);
	/* What Retrieve itself found counts. */
	hit = prefix(c, 0, hit);
	run_step(c, STEP_STORE, hit * n, blocks * n);
	if (atomic_load(&r->abort))
		return;
	atomic_fetch_add_explicit(&c->requests, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->blocks, blocks, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->hit_blocks, hit, memory_order_relaxed);
}

void *client_main(void *arg)
{
	struct client *c = arg;
	struct replay *r = c->replay;
	int err = pin_to(c->cpu);

	if (err)
		warn("processor %d: %s", c->cpu, strerror(-err));
	for (int s = 0; s < N_STEPS; s++)
		hist_init(&c->hist[s]);
	while (!atomic_load(&r->abort)) {
		size_t i = atomic_fetch_add(&r->next, 1);

		if (i >= r->trace.n_reqs)
			break;
		wait_until(c, r->trace.reqs[i].timestamp_ms - r->trace.reqs[0].timestamp_ms);
		run_request(c, &r->trace.reqs[i]);
	}
	atomic_fetch_sub(&r->running, 1);
	return NULL;
}
