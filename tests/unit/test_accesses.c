/* SPDX-License-Identifier: MIT */
/*
 * How the daemon touches rings, doorbells and values, in all sixteen memory modes: entries once
 * and as wide as can be, completions in order, doorbells by nothing but loads, over the bus a
 * line of them for each look, nothing else. There each of these is a transfer. The daemon runs
 * in this process, its accessors built to tell of every access; the kernel module is played.
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
#define NEIGHBOURS 8u		/* their doorbells fill a line of 64 bytes */
#define PAGE	4096u

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
	const char *lines[NEIGHBOURS];	/* doorbells in VRAM: as each queue pair has them mapped */
	unsigned int nlines;
	bool only_doorbells;
	uint64_t looks[PAGE / 8];	/* that lines of the page were last read in */
	uint64_t doorbells;		/* loads */
	const char *victim;		/* the line of a queue pair that loses its memory ... */
	int victim_fd;			/* ... of this descriptor, when it is read there */
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

/* What one load over the bus brings. */
static size_t line_len(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.1"))
		return 64;
#endif
	return 8;
}

/* Entries come in the ring's order, each byte once, over the bus a whole entry at once. */
static void entry_load(const volatile void *at, size_t len)
{
	bool bar = seen.mode & GKV_MODE_SQ;
	size_t width = bar ? line_len() : 8;

	if (len != width || (const char *)(uintptr_t)at - seen.sq.at != (ptrdiff_t)(seen.sqe_bytes %
										    seen.sq.len))
		wrong("an entry is not loaded once, in order, at full width", at, len);
	if (seen.mode & (GKV_MODE_SQ | GKV_MODE_DB) && !seen.acquired)
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

static bool is_doorbell(const volatile void *at, size_t len)
{
	uintptr_t p = (uintptr_t)at;

	for (unsigned int i = 0; i < seen.nlines; i++) {
		uintptr_t line = (uintptr_t)seen.lines[i];

		if (p < line + line_len() && line < p + len)
			return true;
	}
	return !seen.nlines && (at == seen.sq_db || at == seen.cq_db);
}

/* In host memory one by one; over the bus a line at once, and no more than once in a look. */
static void doorbell_load(const volatile void *at, size_t len)
{
	uint64_t look = kvb_reactors[0]->dblines.look, *last;

	seen.doorbells++;
	if (!seen.nlines) {
		if (len != 4)
			wrong("a doorbell is not loaded at once", at, len);
		seen.acquired = false;
		return;
	}
	if (len != line_len() || (uintptr_t)at % len)
		wrong("a line of doorbells is not loaded at once", at, len);
	/* Of the first one only the load may have been seen. */
	if (!seen.acquired && seen.doorbells > 1)
		wrong("a line of doorbells is loaded early", at, len);
	seen.acquired = false;
	last = &seen.looks[(uintptr_t)at % PAGE / line_len()];
	if (*last == look)
		wrong("a line of doorbells is loaded twice in a look", at, len);
	*last = look;
	if (at == seen.victim) {
		/* It is read again elsewhere. */
		seen.victim = NULL;
		*last = 0;
		fakedrv_revoke(seen.victim_fd);
	}
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
	} else if (is_doorbell(at, len)) {
		if (what == KVB_ACCESS_LOAD)
			doorbell_load(at, len);
		else if (!seen.only_doorbells)
			wrong("a doorbell is written to", at, len);
	} else if (seen.only_doorbells) {
		return;
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
	struct gkv_qp *others[NEIGHBOURS - 1];
	int fd;			/* of the last one's memory in VRAM */
	const struct kvb_qp *qps[NEIGHBOURS];	/* the daemon's */
};

static const char *line_of(const struct kvb_qp *qp)
{
	return (const char *)((uintptr_t)qp->sq_db & ~(uintptr_t)(line_len() - 1));
}

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
	if (mode & GKV_MODE_DB)
		seen.lines[seen.nlines++] = line_of(qp);
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
	c->fd = fakedrv.qp.fd;
}

/* A doorbell for each batch; all succeed. */
static void batch_on(const struct client *c, struct gkv_qp *qp, uint8_t opcode, uint32_t n)
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
	assert_int_equal(gkv_submit(qp, cmds, n), n);
	while (got < n) {
		int ret = gkv_wait(qp, done, BATCH, 10000000000ull * rig_slowdown());

		assert_true(ret > 0);
		for (int i = 0; i < ret; i++)
			assert_int_equal(done[i].status, 0);
		got += (uint32_t)ret;
	}
}

static void batch(const struct client *c, uint8_t opcode, uint32_t n)
{
	batch_on(c, c->qp, opcode, n);
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

/* ---- Doorbells of several queue pairs in one line ---- */

struct look_for {
	struct kvb_call call;
	struct client *c;
	unsigned int n;
};

static void note_neighbours(struct kvb_call *call)
{
	struct look_for *l = (struct look_for *)call;
	const struct kvb_reactor *r = call->r;
	struct client *c = l->c;

	l->n = r->nqps;
	for (unsigned int i = 0; i < NEIGHBOURS && i < l->n; i++)
		c->qps[r->qps[i]->qid - 1] = r->qps[i];
}

/* NEIGHBOURS queue pairs of a session; @victim: the last one is to lose its memory. */
static void open_neighbours(struct client *c, bool victim)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = DEPTH, .mode = GKV_MODE_DB,
				 .flags = GKV_QP_POLLED };
	struct look_for l = { .c = c };

	open_client(c, GKV_MODE_DB);
	for (unsigned int i = 0; i < NEIGHBOURS - 1; i++)
		assert_int_equal(gkv_qp_create(c->g, &o, &c->others[i]), 0);
	c->fd = fakedrv.qp.fd;
	kvb_reactor_call(kvb_reactors[0], &l.call, note_neighbours);
	assert_int_equal(l.n, NEIGHBOURS);
	memset(&seen, 0, sizeof(seen));
	seen.mode = GKV_MODE_DB;
	seen.only_doorbells = true;
	for (unsigned int i = 0; i < NEIGHBOURS; i++) {
		const struct kvb_qp *qp = c->qps[i];

		seen.lines[seen.nlines++] = line_of(qp);
		if (line_len() == 64)
			assert_ptr_equal(qp->db[0].line, c->qps[0]->db[0].line);
		assert_ptr_equal(qp->db[1].line, qp->db[0].line);
	}
	if (victim)
		seen.victim = line_of(c->qps[NEIGHBOURS - 1]);
	seen.victim_fd = c->fd;
}

/* Of the queue pair that was made as @i-th; the client has seen the end of all it submitted. */
static void assert_fetched(const struct client *c, unsigned int i, uint64_t n)
{
	assert_int_equal(kvb_counted(&c->qps[i]->count.fetched), n);
	assert_int_equal(gkv_qp_stopped(i ? c->others[i - 1] : c->qp), 0);
}

static void close_neighbours(struct client *c)
{
	for (unsigned int i = 0; i < NEIGHBOURS - 1; i++)
		assert_int_equal(gkv_qp_destroy(c->others[i]), 0);
	assert_int_equal(gkv_qp_destroy(c->qp), 0);
	atomic_store(&seen.on, false);
	if (seen.wrong[0])
		print_error("%s\n", seen.wrong);
	assert_string_equal(seen.wrong, "");
	gkv_close(c->g);
}

/* One of them is reset now and then: it begins anew, the others go on. */
static void test_neighbours(void **state)
{
	struct client c;

	(void)state;
	drv_sigbus();
	open_neighbours(&c, false);
	atomic_store(&seen.on, true);
	for (uint32_t round = 0; round < 4 * ROUNDS; round++) {
		batch(&c, GKV_STORE, 1 + round % BATCH);
		for (unsigned int i = 0; i < NEIGHBOURS - 1; i++)
			batch_on(&c, c.others[i], i % 2 ? GKV_EXIST : GKV_RETRIEVE, 1);
		assert_int_equal(gkv_qp_reset(c.others[round % (NEIGHBOURS - 1)]), 0);
	}
	close_neighbours(&c);
	assert_true(seen.doorbells > 0);
}

/*
 * The memory of one goes while the line is read through its mapping, and what is found in its
 * place are not the doorbells of the others: they run what was submitted and nothing else.
 */
static void test_neighbour_gone(void **state)
{
	struct client c;

	(void)state;
	drv_sigbus();
	for (uint32_t round = 0; round < ROUNDS; round++) {
		open_neighbours(&c, true);
		batch(&c, GKV_STORE, BATCH);
		for (unsigned int i = 0; i < NEIGHBOURS - 2; i++)
			batch_on(&c, c.others[i], GKV_EXIST, 1 + i % BATCH);
		atomic_store(&seen.on, true);
		for (uint32_t n = 1; n < BATCH; n++) {
			batch(&c, GKV_EXIST, n);
			for (unsigned int i = 0; i < NEIGHBOURS - 2; i++)
				batch_on(&c, c.others[i], GKV_RETRIEVE, n);
		}
		/* When the reactor answers, it has counted all. */
		assert_int_equal(gkv_qp_reset(c.qp), 0);
		assert_fetched(&c, 0, BATCH + BATCH * (BATCH - 1) / 2);
		for (unsigned int i = 0; i < NEIGHBOURS - 2; i++)
			assert_fetched(&c, i + 1, 1 + i % BATCH + BATCH * (BATCH - 1) / 2);
		close_neighbours(&c);
		assert_null(seen.victim);
	}
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
					     cmocka_unit_test(test_taken_away),
					     cmocka_unit_test(test_neighbours),
					     cmocka_unit_test(test_neighbour_gone) };

	return cmocka_run_group_tests(tests, start, end);
}
