/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * Queues share a reactor: one's 64 MiB commands do not hold up another's 4 KiB ones beyond
 * a bound, every busy queue makes progress, and a queue that misbehaves stops itself only.
 * Field reports F1, F15, F25.
 *
 * The bound: on a reactor that a stream of 64 MiB Stores and Retrieves keeps busy, the
 * 99th percentile of a 4 KiB command is at most BOUND_US. A slice of 128 KiB takes some
 * 30 us to copy with its checksum; the stream has at most a few slices between two looks
 * at the doorbells. The median of several runs is compared, and once more when it is above
 * the bound, because the machine has other things to do as well: a daemon that copies 64 MiB
 * in one go takes tens of milliseconds in every run.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rawclient.h"
#include "rig.h"
#include "suite.h"

#define SEC 1000000000ull
#define BOUND_US 1000u
#define BIG (64u << 20)
#define SMALL 4096u
#define RUNS 7
#define TRIES 4
#define SAMPLES 1500

static const char conf[] =
	"[daemon]\n"
	"reactors = 1\n"
	"buffer_memory = 256M\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = mem\n"
	"deadline = 60s\n"
	"mem.capacity = 1G\n";

static struct rig rig;

static void __attribute__((noreturn)) give_up(const char *what)
{
	tap_diag("%s: %s", what, gkv_error());
	rig_show_log(&rig);
	exit(1);
}

/* ---- Large beside small ---- */

struct stream {
	pthread_t thread;
	uint8_t opcode;
	_Atomic bool stop;
	uint64_t bytes;
	bool failed;
};

/* Two 64 MiB commands outstanding at any time. */
static void *stream_run(void *arg)
{
	struct stream *s = arg;
	struct suite_key key[2] = { suite_key("big-0"), suite_key("big-1") };
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv_cmd cmd[2];
	struct gkv *g;

	if (gkv_connect(&g, rig.socket, 1, 0) || gkv_ns_open(g, "main", 0, NULL) ||
	    gkv_mem_alloc(g, 2 * (size_t)BIG, &mem) || gkv_qp_create(g, NULL, &qp)) {
		s->failed = true;
		return NULL;
	}
	memset(gkv_mem_addr(mem), 1, 2 * (size_t)BIG);
	for (unsigned int i = 0; i < 2; i++) {
		suite_cmd(&cmd[i], GKV_STORE, 1, &key[i]);
		cmd[i].buf = (char *)gkv_mem_addr(mem) + i * (size_t)BIG;
		cmd[i].len = BIG;
		cmd[i].user_data = i;
		s->failed |= suite_run(qp, &cmd[i]).status != 0;
		cmd[i].opcode = s->opcode;
	}
	gkv_submit(qp, cmd, 2);
	while (gkv_qp_outstanding(qp)) {
		struct gkv_comp c;

		if (gkv_wait(qp, &c, 1, SEC) != 1)
			continue;
		s->failed |= c.status != 0;
		s->bytes += BIG;
		if (!atomic_load(&s->stop))
			gkv_submit(qp, &cmd[c.user_data], 1);
	}
	gkv_close(g);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The 99th percentile of @n alternating 4 KiB Stores and Retrieves, ns. */
static uint64_t small_p99(struct gkv_qp *qp, uint8_t *buf, unsigned int n)
{
	static uint64_t took[SAMPLES];
	struct suite_key key = suite_key("small");
	struct gkv_cmd cmd;

	for (unsigned int i = 0; i < n; i++) {
		uint64_t start = rig_now();

		suite_cmd(&cmd, i % 2 ? GKV_RETRIEVE : GKV_STORE, 1, &key);
		cmd.buf = buf;
		cmd.len = SMALL;
		if (suite_run(qp, &cmd).status)
			give_up("small command");
		took[i] = rig_now() - start;
	}
	qsort(took, n, sizeof(took[0]), by_value);
	return took[n * 99 / 100];
}

static void large_beside_small(uint8_t opcode, const char *name)
{
	struct stream s = { .opcode = opcode };
	uint64_t alone, p99[RUNS], rate, start;
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv *g;

	rig_init(&rig, conf);
	rig_start(&rig);
	if (gkv_connect(&g, rig.socket, 1, 0) || gkv_ns_open(g, "main", 0, NULL) ||
	    gkv_mem_alloc(g, SMALL, &mem) || gkv_qp_create(g, NULL, &qp))
		give_up("session");
	alone = small_p99(qp, gkv_mem_addr(mem), SAMPLES);
	start = rig_now();
	if (pthread_create(&s.thread, NULL, stream_run, &s))
		give_up("thread");
	usleep(200000);
	for (unsigned int t = 0; t < TRIES; t++) {
		for (unsigned int i = 0; i < RUNS; i++)
			p99[i] = small_p99(qp, gkv_mem_addr(mem), SAMPLES);
		qsort(p99, RUNS, sizeof(p99[0]), by_value);
		if (p99[RUNS / 2] <= BOUND_US * 1000ull * rig_slowdown())
			break;
	}
	atomic_store(&s.stop, true);
	pthread_join(s.thread, NULL);
	rate = s.bytes / ((rig_now() - start) / 1000000 + 1) / 1000;
	tap_ok(!s.failed && s.bytes >= 2 * (uint64_t)BIG &&
		       p99[RUNS / 2] <= BOUND_US * 1000ull * rig_slowdown(),
	       "4 KiB commands beside a stream of 64 MiB %ss: p99 within %u us", name,
	       BOUND_US * rig_slowdown());
	tap_diag("p99 alone %llu us; beside it %llu, median %llu, %llu us; the stream moved %llu MB/s",
		 (unsigned long long)alone / 1000, (unsigned long long)p99[0] / 1000,
		 (unsigned long long)p99[RUNS / 2] / 1000, (unsigned long long)p99[RUNS - 1] / 1000,
		 (unsigned long long)rate);
	gkv_close(g);
	rig_fini(&rig);
}

/* ---- Many busy queues ---- */

static void many_busy_queues(void)
{
	enum { NQ = 64, BUSY = 15 };
	static struct gkv_qp *qp[NQ];
	uint64_t done[NQ] = { 0 }, least = UINT64_MAX, most = 0, end;
	struct gkv_qp_opts qo = { .size = sizeof(qo), .depth = 16 };
	struct gkv_mem *mem;
	struct gkv_cmd cmd;
	struct gkv *g;
	bool failed = false;

	rig_init(&rig, conf);
	rig_start(&rig);
	if (gkv_connect(&g, rig.socket, NQ, 0) || gkv_ns_open(g, "main", 0, NULL) ||
	    gkv_mem_alloc(g, (size_t)NQ * 65536, &mem))
		give_up("session");
	for (unsigned int i = 0; i < NQ; i++) {
		if (gkv_qp_create(g, &qo, &qp[i]))
			give_up("queue pair");
	}
	end = rig_now() + SEC;
	while (rig_now() < end) {
		for (unsigned int i = 0; i < NQ; i++) {
			/* Some are greedy for bytes, some for commands. */
			struct suite_key key = suite_key("queue-%u", i);
			struct gkv_comp c[BUSY];
			int n;

			suite_cmd(&cmd, i % 3 ? GKV_EXIST : GKV_STORE, 1, &key);
			cmd.buf = (char *)gkv_mem_addr(mem) + (size_t)i * 65536;
			cmd.len = 65536;
			while (gkv_submit(qp[i], &cmd, 1) == 1)
				;
			n = gkv_poll(qp[i], c, BUSY);
			for (int k = 0; k < n; k++)
				failed |= c[k].status && code(c[k].status) !=
								 code(GKV_SC_KEY_NOT_FOUND);
			done[i] += (uint64_t)n;
		}
	}
	for (unsigned int i = 0; i < NQ; i++) {
		if (done[i] < least)
			least = done[i];
		if (done[i] > most)
			most = done[i];
	}
	tap_ok(!failed && least > 0 && least * 20 >= most,
	       "F15: %u busy queues on one reactor: each makes progress", NQ);
	tap_diag("the slowest did %llu commands, the fastest %llu", (unsigned long long)least,
		 (unsigned long long)most);
	gkv_close(g);
	rig_fini(&rig);
}

/* ---- Queues that misbehave ---- */

static bool works(struct raw *r, struct raw_qp *qp)
{
	struct gkv_sqe sqe;
	uint16_t st;

	raw_sqe(r, &sqe, GKV_OP_STORE, 1, "raw", 3, 100);
	st = raw_exec(r, qp, &sqe, NULL);
	return st == 0;
}

static void raw_pair(struct raw *r, struct raw_qp *a, struct raw_qp *b)
{
	memset(r, 0, sizeof(*r));
	if (raw_open(r, rig.socket) || raw_ns_open(r, 1, 0) || raw_data(r, 0x10000000) ||
	    raw_qp_open(r, a, 1, 16, 0) || raw_qp_open(r, b, 2, 16, 0))
		give_up("raw client");
}

static void lazy_reader(void)
{
	struct raw_qp a, b;
	struct gkv_cqe cqe;
	struct gkv_sqe sqe;
	unsigned int got = 0, later = 0;
	bool good = true;
	struct raw r;

	rig_init(&rig, conf);
	rig_start(&rig);
	raw_pair(&r, &a, &b);
	raw_sqe(&r, &sqe, GKV_OP_EXIST, 1, "raw", 3, 0);
	/* Fill the CQ to its last usable entry, never moving the head. */
	for (unsigned int i = 0; i < 15; i++) {
		sqe.cid = (uint16_t)i;
		raw_put(&a, &sqe);
	}
	raw_ring(&r, &a);
	while (got < 15 && raw_take(&r, &a, &cqe, 2000, false))
		got++;
	/* The SQ is empty again; the CQ is not. */
	for (unsigned int i = 0; i < 10; i++) {
		sqe.cid = (uint16_t)(100 + i);
		raw_put(&a, &sqe);
	}
	raw_ring(&r, &a);
	good = !raw_take(&r, &a, &cqe, 200, false);
	tap_ok(got == 15 && good, "F1: nothing is posted to a full CQ");
	for (unsigned int i = 0; i < 100; i++)
		good = good && works(&r, &b);
	tap_ok(good, "F1: a queue whose CQ head never moves stalls itself only");
	/* It reads on: so does the daemon. */
	__atomic_store_n((uint32_t *)(r.doorbells + GKV_CQ_HEAD_DB(a.qid, r.limits.dstrd)), a.head,
			 __ATOMIC_RELEASE);
	while (later < 10 && raw_take(&r, &a, &cqe, 2000, true) && cqe.cid == 100 + later)
		later++;
	tap_ok(later == 10, "F1: and goes on when its client has read");
	raw_qp_free(&a);
	raw_qp_free(&b);
	raw_close(&r);
	rig_fini(&rig);
}

static void wild_doorbells(void)
{
	static const uint32_t tails[] = { 16, 17, 0x80000000u, 0xffffffffu, 65535 };
	unsigned int stopped = 0, others = 0, back = 0, n = sizeof(tails) / sizeof(tails[0]);
	struct raw_qp a, b;
	struct raw r;

	rig_init(&rig, conf);
	rig_start(&rig);
	raw_pair(&r, &a, &b);
	for (unsigned int i = 0; i < n; i++) {
		struct gkv_cqe cqe;

		back += works(&r, &a);
		__atomic_store_n((uint32_t *)(r.doorbells +
					      GKV_SQ_TAIL_DB(a.qid, r.limits.dstrd)),
				 tails[i], __ATOMIC_RELEASE);
		usleep(20000);
		stopped += !raw_take(&r, &a, &cqe, 50, true);
		others += works(&r, &b);
		/* A reset makes it whole. */
		if (raw_id(&r, GKV_MSG_QP_RESET, a.qid))
			give_up("reset");
		a.tail = a.head = 0;
		a.phase = 1;
	}
	tap_ok(back == n && stopped == n && others == n,
	       "F25: a wild doorbell stops that queue, and nothing else, until its reset");
	/* A head that was never posted. */
	__atomic_store_n((uint32_t *)(r.doorbells + GKV_CQ_HEAD_DB(a.qid, r.limits.dstrd)), 9,
			 __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < 40; i++)
		others += works(&r, &b);
	tap_ok(others == n + 40 && rig_alive(&rig), "F25: so does a wild CQ head");
	raw_qp_free(&a);
	raw_qp_free(&b);
	raw_close(&r);
	rig_fini(&rig);
}

int main(void)
{
	large_beside_small(GKV_RETRIEVE, "Retrieve");
	large_beside_small(GKV_STORE, "Store");
	many_busy_queues();
	lazy_reader();
	wild_doorbells();
	return tap_done();
}
