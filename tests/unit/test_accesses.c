/* SPDX-License-Identifier: MIT */
/*
 * How the daemon touches rings, doorbells and values, in all sixteen memory modes: entries once
 * and as wide as can be, completions in order, doorbells by nothing but loads, nothing else.
 * Over a bus each of these is a transfer. The daemon runs in this process, its accessors built
 * to tell of every access; the kernel module is played.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <gkv.h>

#define KVB_TRACE_ACCESS
#include "core/reactor_priv.h"
#include "drv_daemon.h"
#include "rig.h"

#define DEPTH	8u
#define VALUE	3000u
#define BATCH	(DEPTH - 1)
#define MEM	(BATCH * 4096u)
#define ROUNDS	5u

static const char conf[] =
	"[daemon]\nreactors = 1\nmax_queue_depth = 64\n"
	"[namespace a]\nnsid = 1\nstack = mem\nmem.capacity = 1M\nvalue_max = 64K\n";

/* ---- What is seen ---- */

struct span {
	const char *at;
	size_t len;
};

/* All of it by the reactor's thread, while it is on. */
static struct {
	atomic_bool on;
	uint32_t mode;
	struct span sq, cq, mem;	/* where the daemon has them */
	const void *sq_db, *cq_db;
	uint64_t doorbells;		/* loads */
	uint64_t sqe_loads, sqe_bytes;	/* of entries */
	uint64_t cqe_step;		/* of all completions' */
	uint64_t value_loads, value_loaded, value_stored;	/* bytes */
	bool acquired, unflushed;
	atomic_bool revoke;		/* the queue pair's memory, before an entry is loaded */
	char wrong[200];		/* the first thing that was */
} seen;

static void wrong(const char *what, const volatile void *at, size_t len)
{
	if (!seen.wrong[0])
		snprintf(seen.wrong, sizeof(seen.wrong), "%s: %zu bytes at %p (SQ %p, CQ %p, "
			 "doorbells %p, values %p)", what, len, (const void *)(uintptr_t)at,
			 (const void *)seen.sq.at, (const void *)seen.cq.at, seen.sq_db,
			 (const void *)seen.mem.at);
}

static bool in(const struct span *s, const volatile void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p, start = (uintptr_t)s->at;

	return at >= start && len <= s->len && at - start <= s->len - len;
}

/* Entries come in the ring's order, each byte once, over the bus a whole entry at once. */
static void entry_load(const volatile void *at, size_t len)
{
	bool bar = seen.mode & GKV_MODE_SQ;
	size_t width = 8;

#if defined(__x86_64__)
	if (bar && __builtin_cpu_supports("sse4.1"))
		width = 64;
#endif

	if (len != width || (const char *)(uintptr_t)at - seen.sq.at != (ptrdiff_t)(seen.sqe_bytes %
										    seen.sq.len))
		wrong("an entry is not loaded once, in order, at full width", at, len);
	if (bar && !seen.acquired)
		wrong("an entry is loaded before the doorbell counts", at, len);
	seen.sqe_loads++;
	seen.sqe_bytes += len;
}

/*
 * A completion in host memory: two stores of 8 bytes. Over the bus: DW0 to DW2, a fence, DW3, a
 * fence. In the ring's order.
 */
static void completion_step(enum kvb_access what, const volatile void *at, size_t len)
{
	static const struct { enum kvb_access what; size_t off, len; } bar[] = {
		{ KVB_ACCESS_STORE, 0, 8 }, { KVB_ACCESS_STORE, 8, 4 }, { KVB_ACCESS_FLUSH, 0, 0 },
		{ KVB_ACCESS_STORE, 12, 4 }, { KVB_ACCESS_FLUSH, 0, 0 },
	}, host[] = { { KVB_ACCESS_STORE, 0, 8 }, { KVB_ACCESS_STORE, 8, 8 } };
	bool over = seen.mode & GKV_MODE_CQ;
	unsigned int n = over ? 5 : 2, step = seen.cqe_step % n;
	uint64_t slot = seen.cqe_step / n % DEPTH;
	size_t off = over ? bar[step].off : host[step].off;

	if (what != (over ? bar[step].what : host[step].what) ||
	    len != (over ? bar[step].len : host[step].len) ||
	    (at && (const char *)(uintptr_t)at != seen.cq.at + slot * 16 + off))
		wrong("a completion is not stored in order", at, len);
	if (!step && seen.unflushed)
		wrong("a completion is stored before its value is on its way", at, len);
	seen.cqe_step++;
}

static bool in_completion(void)
{
	return seen.mode & GKV_MODE_CQ && seen.cqe_step % 5;
}

void kvb_trace(enum kvb_access what, const volatile void *at, size_t len)
{
	if (!atomic_load(&seen.on))
		return;
	if (what == KVB_ACCESS_ACQUIRE) {
		seen.acquired = true;
	} else if (what == KVB_ACCESS_FLUSH) {
		seen.unflushed = false;
		if (in_completion())
			completion_step(what, NULL, 0);
	} else if (at == seen.sq_db || at == seen.cq_db) {
		if (what != KVB_ACCESS_LOAD || len != 4)
			wrong("a doorbell is not loaded at once", at, len);
		seen.doorbells++;
		seen.acquired = false;
	} else if (in(&seen.sq, at, len)) {
		if (atomic_exchange(&seen.revoke, false))
			fakedrv_revoke_all_qps();
		if (what == KVB_ACCESS_LOAD)
			entry_load(at, len);
		else
			wrong("an entry is written to", at, len);
	} else if (in(&seen.cq, at, len)) {
		if (what == KVB_ACCESS_STORE)
			completion_step(what, at, len);
		else
			wrong("a completion is read", at, len);
	} else if (seen.mode & GKV_MODE_DATA && in(&seen.mem, at, len)) {
		seen.value_loads += what == KVB_ACCESS_LOAD;
		*(what == KVB_ACCESS_LOAD ? &seen.value_loaded : &seen.value_stored) += len;
		seen.unflushed = what == KVB_ACCESS_STORE;
	} else {
		wrong("nothing of this queue pair's", at, len);
	}
}

/* ---- A client ---- */

struct client {
	struct gkv *g;
	struct gkv_mem *mem;
	struct gkv_qp *qp;
};

static void start_tracing(uint32_t mode)
{
	struct kvb_reactor *r = kvb_reactors[0];
	const struct kvb_span *span;
	const struct kvb_qp *qp;

	/* The reactor has it when it answers. */
	qp = r->qps[0];
	assert_int_equal(r->nqps, 1);
	memset(&seen, 0, sizeof(seen));
	seen.mode = mode;
	seen.sq = (struct span){ qp->sq, DEPTH * 64 };
	seen.cq = (struct span){ (const char *)qp->cq, DEPTH * 16 };
	seen.sq_db = qp->sq_db;
	seen.cq_db = qp->cq_db;
	span = &qp->regions->tbl->spans[0];
	seen.mem = (struct span){ (const char *)span->addr, span->len };
	atomic_store(&seen.on, true);
}

static void open_client(struct client *c, uint32_t mode)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = DEPTH, .mode = mode,
				 .flags = GKV_QP_POLLED };
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	int ret = gkv_connect(&c->g, drv_socket, 0, 0);

	if (!ret)
		ret = gkv_ns_open(c->g, "a", 0, &ns);
	if (!ret)
		ret = mode & GKV_MODE_DATA ? gkv_mem_alloc_vram(c->g, 0, MEM, &c->mem) :
					     gkv_mem_alloc(c->g, MEM, &c->mem);
	if (!ret)
		ret = gkv_qp_create(c->g, &o, &c->qp);
	if (ret)
		print_error("%s\n", gkv_error());
	assert_int_equal(ret, 0);
}

/* A doorbell for each batch; all succeed. */
static void batch(const struct client *c, uint8_t opcode, uint32_t n)
{
	struct gkv_cmd cmds[BATCH];
	struct gkv_comp done[BATCH];
	uint32_t got = 0;

	memset(cmds, 0, sizeof(cmds));
	for (uint32_t i = 0; i < n; i++) {
		cmds[i] = (struct gkv_cmd){ .opcode = opcode, .nsid = 1, .key_len = 1,
					    .key = { (uint8_t)('a' + i) },
					    .buf = (char *)gkv_mem_addr(c->mem) + i * 4096,
					    .len = opcode == GKV_EXIST ? 0 : VALUE };
	}
	assert_int_equal(gkv_submit(c->qp, cmds, n), n);
	while (got < n) {
		int ret = gkv_wait(c->qp, done, BATCH, 10000000000ull * rig_slowdown());

		assert_true(ret > 0);
		for (int i = 0; i < ret; i++)
			assert_int_equal(done[i].status, 0);
		got += (uint32_t)ret;
	}
}

static void run_mode(uint32_t mode)
{
	const uint64_t each = ROUNDS * (BATCH + 1), all = 3 * each;
	struct client c;

	open_client(&c, mode);
	start_tracing(mode);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		for (uint32_t n = BATCH; n; n = n == 1 ? 0 : 1) {
			batch(&c, GKV_STORE, n);
			batch(&c, GKV_RETRIEVE, n);
			batch(&c, GKV_EXIST, n);
		}
	}
	/* The client has seen the last phase; the fence behind it may be yet to come. */
	assert_int_equal(gkv_qp_destroy(c.qp), 0);
	atomic_store(&seen.on, false);
	if (seen.wrong[0])
		print_error("mode %#x: %s\n", mode, seen.wrong);
	assert_string_equal(seen.wrong, "");
	assert_int_equal(seen.sqe_bytes, all * 64);
	assert_int_equal(seen.cqe_step, all * (mode & GKV_MODE_CQ ? 5 : 2));
	assert_int_equal(seen.value_loaded, mode & GKV_MODE_DATA ? each * VALUE : 0);
	assert_int_equal(seen.value_stored, mode & GKV_MODE_DATA ? each * VALUE : 0);
	print_message("mode %#x, %u commands: %.1f loads of each entry, %u steps of each completion; "
		      "values of %u bytes: %.1f loads\n", mode, (unsigned int)all,
		      (double)seen.sqe_loads / (double)all,
		      (unsigned int)(seen.cqe_step / all), VALUE,
		      (double)seen.value_loads / (double)each);
	gkv_close(c.g);
}

static void test_modes(void **state)
{
	(void)state;
	drv_sigbus();
	for (uint32_t mode = 0; mode < 16; mode++)
		run_mode(mode);
}

/*
 * Memory that goes while entries are loaded: what the daemon finds in its place is no command,
 * and nobody gets a completion for it.
 */
static void test_taken_away(void **state)
{
	struct gkv_cmd cmd = { .opcode = GKV_EXIST, .nsid = 1, .key_len = 1, .key = "a" };
	struct client c;

	(void)state;
	drv_sigbus();
	open_client(&c, GKV_MODE_SQ);
	start_tracing(GKV_MODE_SQ);
	atomic_store(&seen.revoke, true);
	assert_int_equal(gkv_submit(c.qp, &cmd, 1), 1);
	while (atomic_load(&seen.revoke))
		usleep(1000);
	/* All that comes of it has come when the reactor has let go of the queue pair. */
	gkv_qp_destroy(c.qp);
	atomic_store(&seen.on, false);
	assert_int_equal(seen.sqe_loads, 1);
	assert_int_equal(seen.cqe_step, 0);
	gkv_close(c.g);
}

static int reach(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err)
{
	(void)st;
	(void)to;
	(void)err;
	return 0;
}

static int start(void **state)
{
	(void)state;
	drv_start(conf, reach);
	fakedrv_provider(0, 5, GKVDRV_CARVEOUT);
	return 0;
}

static int end(void **state)
{
	uint64_t took;

	(void)state;
	drv_stop(&took);
	drv_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_modes),
					     cmocka_unit_test(test_taken_away) };

	return cmocka_run_group_tests(tests, start, end);
}
