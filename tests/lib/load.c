/* SPDX-License-Identifier: MIT */
/*
 * The load of load.h: what its threads do.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gkv/nvme_kv.h>

#include "load_priv.h"
#include "rig.h"
#include "suite.h"

#define MAX_OPS (4u << 20)
#define SEC 1000000000ull

static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tap_diag("load: %s: %s", text, gkv_error());
	exit(1);
}

void load_fail(struct load *l, const char *fmt, ...)
{
	char text[sizeof(l->error)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&l->lock);
	if (!l->failed) {
		memcpy(l->error, text, sizeof(text));
		atomic_store(&l->failed, true);
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- Keys and values ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185ull;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44dull;
	return x ^ x >> 33;
}

uint64_t load_random(uint64_t *state)
{
	return mix(*state += 0x9e3779b97f4a7c15ull);
}

uint8_t load_key(uint32_t i, uint8_t key[16])
{
	/* Of every length that holds the number. */
	uint8_t len = (uint8_t)(6 + i % 11);

	memset(key, 0, 16);
	memcpy(key, "k", 1);
	memcpy(key + 1, &i, sizeof(i));
	memset(key + 5, 'x', len - 5);
	return len;
}

uint32_t load_value_len(uint64_t id, uint32_t min, uint32_t max)
{
	uint64_t r = mix(id ^ 0x6c656e677468ull);
	uint32_t top = max;

	/* Mostly small ones. */
	if (r >> 62 && max > min + 8192)
		top = min + 8192;
	return min + (uint32_t)(r & 0xffffffff) % (top - min + 1);
}

void load_value_fill(void *buf, uint32_t len, uint64_t id)
{
	memcpy(buf, &id, sizeof(id));
	pattern_fill((char *)buf + sizeof(id), len - sizeof(id), id);
}

uint64_t load_value_id(const void *buf, uint32_t len, uint32_t min, uint32_t max)
{
	uint64_t id;

	if (len < sizeof(id))
		return 0;
	memcpy(&id, buf, sizeof(id));
	if (!id || len != load_value_len(id, min, max) ||
	    !pattern_check((const char *)buf + sizeof(id), len - sizeof(id), id))
		return 0;
	return id;
}

/* ---- One thread ---- */

static uint8_t pick_kind(struct load_thread *t)
{
	static const uint8_t mixed[] = {
		LIN_STORE, LIN_STORE, LIN_STORE, LIN_CREATE, LIN_CREATE, LIN_REPLACE, LIN_RETRIEVE,
		LIN_RETRIEVE, LIN_RETRIEVE, LIN_RETRIEVE, LIN_RETRIEVE, LIN_RETRIEVE, LIN_DELETE,
		LIN_DELETE, LIN_EXIST, LIN_EXIST,
	};
	static const uint8_t mutations[] = {
		LIN_STORE, LIN_STORE, LIN_STORE, LIN_STORE, LIN_CREATE, LIN_CREATE, LIN_REPLACE,
		LIN_DELETE,
	};
	uint64_t r = load_random(&t->random);

	if (t->load->opts.mutations)
		return mutations[r % sizeof(mutations)];
	return mixed[r % sizeof(mixed)];
}

/* Fill in the next command; returns its place in the history. */
static void prepare(struct load_thread *t, unsigned int slot, struct gkv_cmd *cmd)
{
	const struct load_opts *o = &t->load->opts;
	struct lin_op *op = &t->ops[t->nops];

	memset(op, 0, sizeof(*op));
	op->key = (uint32_t)(load_random(&t->random) % o->keys);
	op->kind = pick_kind(t);
	op->outcome = LIN_UNKNOWN;
	op->ret = LIN_NEVER;

	memset(cmd, 0, sizeof(*cmd));
	cmd->nsid = t->nsid;
	cmd->key_len = load_key(op->key, cmd->key);
	cmd->user_data = t->nops;
	cmd->buf = t->buf + (size_t)slot * t->stride;
	switch (op->kind) {
	case LIN_STORE:
	case LIN_CREATE:
	case LIN_REPLACE:
		cmd->opcode = GKV_STORE;
		if (op->kind == LIN_CREATE)
			cmd->options = GKV_O_MUST_NOT_EXIST;
		else if (op->kind == LIN_REPLACE)
			cmd->options = GKV_O_MUST_EXIST;
		op->value = (uint64_t)(t->id + 1) << 40 | ++t->nvalues;
		cmd->len = load_value_len(op->value, o->value_min, o->value_max);
		load_value_fill(cmd->buf, cmd->len, op->value);
		if (o->flags & GKV_QP_CSUM)
			cmd->crc = gkv_crc32c(0, cmd->buf, cmd->len);
		break;
	case LIN_RETRIEVE:
		cmd->opcode = GKV_RETRIEVE;
		cmd->len = o->value_max;
		break;
	case LIN_DELETE:
		cmd->opcode = GKV_DELETE;
		break;
	default:
		cmd->opcode = GKV_EXIST;
		break;
	}
	t->slot_of[t->nops++] = (uint16_t)slot;
}

static void take_value(struct load_thread *t, struct lin_op *op, const struct gkv_comp *c,
		       const uint8_t *buf)
{
	const struct load_opts *o = &t->load->opts;

	if (c->result <= o->value_max)
		op->value = load_value_id(buf, c->result, o->value_min, o->value_max);
	if (!op->value) {
		uint64_t id;

		memcpy(&id, buf, sizeof(id));
		load_fail(t->load, "key %u: %u bytes that are no whole value (number %#llx)",
			  op->key, c->result, (unsigned long long)id);
		op->outcome = LIN_UNKNOWN;
	}
}

/* One completion, seen at @now. */
static void take(struct load_thread *t, struct load_qp *q, const struct gkv_comp *c, uint64_t now)
{
	struct load *l = t->load;
	struct lin_op *op;
	unsigned int slot;

	if (c->user_data >= t->nops || t->over[c->user_data] == LOAD_OVER) {
		load_fail(l, "a completion too many, of command %llu",
			  (unsigned long long)c->user_data);
		return;
	}
	op = &t->ops[c->user_data];
	slot = t->slot_of[c->user_data];
	if (c->flags & GKV_C_LOST) {
		load_fail(l, "command %llu was lost", (unsigned long long)c->user_data);
		return;
	}
	if (c->flags & GKV_C_TIMEDOUT) {
		t->over[c->user_data] = LOAD_TIMEDOUT;
		atomic_fetch_add_explicit(&l->timeouts, 1, memory_order_relaxed);
		if (!l->opts.timeout_ns)
			load_fail(l, "command %llu timed out", (unsigned long long)c->user_data);
		return;
	}
	t->over[c->user_data] = LOAD_OVER;
	switch (GKV_STATUS_CODE(c->status)) {
	case 0:
		op->outcome = LIN_OK;
		if (op->kind == LIN_RETRIEVE)
			take_value(t, op, c, t->buf + (size_t)slot * t->stride);
		break;
	case GKV_STATUS_CODE(GKV_SC_KEY_NOT_FOUND):
		op->outcome = LIN_NO_KEY;
		break;
	case GKV_STATUS_CODE(GKV_SC_KEY_EXISTS):
		op->outcome = LIN_KEY_EXISTS;
		break;
	case GKV_STATUS_CODE(GKV_SC_TRANSIENT):
		if (c->status & GKV_DNR)
			load_fail(l, "an unknown outcome that must not be retried");
		atomic_fetch_add_explicit(&l->unknown, 1, memory_order_relaxed);
		break;
	default:
		load_fail(l, "%s of key %u: %s", lin_kind_name(op->kind), op->key,
			  gkv_status_name(c->status));
		break;
	}
	if (op->outcome != LIN_UNKNOWN)
		op->ret = now;
	q->free_slots[q->nfree++] = (uint16_t)slot;
	atomic_fetch_add_explicit(&l->done, 1, memory_order_relaxed);
}

static int reap(struct load_thread *t, struct load_qp *q, uint64_t wait_ns)
{
	struct gkv_comp comps[32];
	int n = wait_ns ? gkv_wait(q->qp, comps, 32, wait_ns) : gkv_poll(q->qp, comps, 32);
	uint64_t now = n > 0 ? rig_now() : 0;

	for (int i = 0; i < n; i++)
		take(t, q, &comps[i], now);
	return n;
}

static void submit(struct load_thread *t, struct load_qp *q)
{
	struct gkv_cmd cmds[64];
	uint64_t first = t->nops, now;
	unsigned int n = 0;
	int ret;

	while (q->nfree && n < 64 && t->nops < t->max_ops && gkv_qp_room(q->qp) > n)
		prepare(t, q->free_slots[--q->nfree], &cmds[n++]);
	if (!n)
		return;
	now = rig_now();
	for (uint64_t i = first; i < t->nops; i++)
		t->ops[i].call = now;
	ret = gkv_submit(q->qp, cmds, n);
	if (ret < 0) {
		load_fail(t->load, "submit: %s", gkv_error());
		ret = 0;
	}
	/* What was not taken never was: while a queue pair is set up again, say. */
	while (n > (unsigned int)ret) {
		n--;
		q->free_slots[q->nfree++] = t->slot_of[--t->nops];
	}
}

/* Finish what is outstanding, then wait. */
static void hold(struct load_thread *t)
{
	struct load *l = t->load;

	for (unsigned int i = 0; i < l->opts.qps; i++) {
		while (gkv_qp_outstanding(t->qps[i].qp) && !atomic_load(&l->stop) &&
		       !atomic_load(&l->failed))
			reap(t, &t->qps[i], SEC / 20);
	}
	atomic_fetch_add(&l->held, 1);
	while (atomic_load(&l->hold) && !atomic_load(&l->stop))
		usleep(500);
	atomic_fetch_sub(&l->held, 1);
}

static void *run(void *arg)
{
	struct load_thread *t = arg;
	struct load *l = t->load;
	unsigned int turn = 0;

	while (!atomic_load_explicit(&l->stop, memory_order_relaxed) && !atomic_load(&l->failed)) {
		int n = 0;

		if (t->nops >= t->max_ops)
			break;
		if (atomic_load_explicit(&l->hold, memory_order_relaxed))
			hold(t);
		for (unsigned int i = 0; i < l->opts.qps; i++)
			submit(t, &t->qps[i]);
		for (unsigned int i = 0; i < l->opts.qps; i++)
			n += reap(t, &t->qps[i], 0);
		if (!n)
			reap(t, &t->qps[turn++ % l->opts.qps], 500000);
		if (l->opts.pause_us)
			usleep(l->opts.pause_us);
	}
	/* The rest, at leisure; a slow disk has its time. */
	for (unsigned int i = 0; i < l->opts.qps; i++) {
		uint64_t end = rig_now() + 60 * SEC * rig_slowdown();

		while (gkv_qp_outstanding(t->qps[i].qp) && rig_now() < end)
			reap(t, &t->qps[i], SEC / 10);
		t->left += gkv_qp_outstanding(t->qps[i].qp);
	}
	return NULL;
}

/* ---- Set-up ---- */

static void thread_init(struct load *l, struct load_thread *t, unsigned int id)
{
	const struct load_opts *o = &l->opts;
	struct gkv_ns_info info = { .size = sizeof(info) };
	struct gkv_qp_opts qo = { .size = sizeof(qo), .depth = o->depth, .flags = o->flags,
				  .timeout_ns = o->timeout_ns };

	t->load = l;
	t->id = id;
	t->random = mix(id + 1);
	t->max_ops = o->max_ops ? o->max_ops : MAX_OPS;
	/* Pages are touched as the history grows. */
	t->ops = calloc(t->max_ops, sizeof(*t->ops));
	t->slot_of = calloc(t->max_ops, sizeof(*t->slot_of));
	t->over = calloc(t->max_ops, sizeof(*t->over));
	t->qps = calloc(o->qps, sizeof(*t->qps));
	if (!t->ops || !t->slot_of || !t->over || !t->qps)
		give_up("out of memory");
	t->stride = (o->value_max + 4095) & ~(size_t)4095;
	if (gkv_connect(&t->g, l->socket, o->qps, 0))
		give_up("connect");
	if (gkv_ns_open(t->g, o->ns ? o->ns : "main", 0, &info))
		give_up("namespace");
	t->nsid = info.nsid;
	if (gkv_mem_alloc(t->g, t->stride * o->qps * o->busy, &t->mem))
		give_up("memory");
	t->buf = gkv_mem_addr(t->mem);
	for (unsigned int i = 0; i < o->qps; i++) {
		struct load_qp *q = &t->qps[i];

		if (gkv_qp_create(t->g, &qo, &q->qp))
			give_up("queue pair");
		q->free_slots = calloc(o->busy, sizeof(*q->free_slots));
		if (!q->free_slots)
			give_up("out of memory");
		for (unsigned int s = 0; s < o->busy; s++)
			q->free_slots[q->nfree++] = (uint16_t)(i * o->busy + s);
	}
}

struct load *load_start(const char *socket, const struct load_opts *opts)
{
	struct load *l = calloc(1, sizeof(*l));

	if (!l)
		give_up("out of memory");
	l->opts = *opts;
	snprintf(l->socket, sizeof(l->socket), "%s", socket);
	pthread_mutex_init(&l->lock, NULL);
	l->threads = calloc(opts->threads, sizeof(*l->threads));
	if (!l->threads)
		give_up("out of memory");
	for (unsigned int i = 0; i < opts->threads; i++)
		thread_init(l, &l->threads[i], i);
	for (unsigned int i = 0; i < opts->threads; i++) {
		if (pthread_create(&l->threads[i].thread, NULL, run, &l->threads[i]))
			give_up("thread");
	}
	return l;
}

uint64_t load_done(const struct load *l)
{
	return atomic_load(&l->done);
}

uint64_t load_unknown(const struct load *l)
{
	return atomic_load(&l->unknown);
}

uint64_t load_timeouts(const struct load *l)
{
	return atomic_load(&l->timeouts);
}

const char *load_error(const struct load *l)
{
	return atomic_load(&l->failed) ? l->error : NULL;
}

bool load_progress(const struct load *l, uint64_t n, unsigned int seconds)
{
	uint64_t goal = load_done(l) + n, end = rig_now() + seconds * SEC * rig_slowdown();

	while (load_done(l) < goal) {
		if (load_error(l) || rig_now() > end)
			return false;
		usleep(1000);
	}
	return true;
}

bool load_settle(struct load *l, unsigned int seconds)
{
	uint64_t end = rig_now() + seconds * SEC * rig_slowdown();

	atomic_store(&l->hold, true);
	while (atomic_load(&l->held) < l->opts.threads) {
		if (load_error(l) || rig_now() > end)
			return false;
		usleep(500);
	}
	return true;
}

void load_resume(struct load *l)
{
	atomic_store(&l->hold, false);
	while (atomic_load(&l->held) && !load_error(l))
		usleep(500);
}

uint64_t load_stop(struct load *l)
{
	uint64_t left = 0;

	atomic_store(&l->stop, true);
	for (unsigned int i = 0; i < l->opts.threads; i++) {
		if (!l->stopped)
			pthread_join(l->threads[i].thread, NULL);
		left += l->threads[i].left;
	}
	l->stopped = true;
	return left;
}

void load_free(struct load *l)
{
	load_stop(l);
	for (unsigned int i = 0; i < l->opts.threads; i++) {
		struct load_thread *t = &l->threads[i];

		gkv_close(t->g);
		for (unsigned int q = 0; q < l->opts.qps; q++)
			free(t->qps[q].free_slots);
		free(t->qps);
		free(t->ops);
		free(t->slot_of);
		free(t->over);
	}
	pthread_mutex_destroy(&l->lock);
	free(l->threads);
	free(l);
}
