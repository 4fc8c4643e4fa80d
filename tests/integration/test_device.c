/* SPDX-License-Identifier: MIT */
/*
 * gkv_device.h on threads, each a wavefront of one lane, against a kvbridged: any number of
 * them on one queue pair, every value checked, over the daemon's death and deadlines.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gkv_device.h>

#include "gkv.h"
#include "rig.h"

#define LANES	16u
#define VALUE	8192u
#define KEYS	24u		/* of each lane */

/* "slow" answers a second late. */
static const char config[] =
	"[daemon]\nreactors = 2\n"
	"[namespace main]\nnsid = 1\nstack = mem\n"
	"[namespace local]\nnsid = 2\nstack = local\nlocal.path = {dir}/store\nlocal.size = 256M\n"
	"[namespace slow]\nnsid = 3\nstack = delay, mem\ndelay.retrieve = 1s\n";

struct world {
	struct rig rig;
	struct gkv *g;
	struct gkv_qp *qp;
	struct gkv_mem *mem;
	uint8_t *buf;			/* LANES * 2 values */
	struct gkv_dev_queue *q;
	uint32_t nsid;
	uint32_t rounds;
	volatile uint32_t failures;
	uint32_t *completed;		/* of all lanes */
};

/* One command. A slot that is free belongs to who runs: let it be somebody else's turn. */
static uint32_t exec(struct world *w, const struct gkv_dev_cmd *c, struct gkv_dev_result *r)
{
	uint32_t end;

	/* A mutation that the daemon had begun when it was killed: the outcome is not known. */
	do {
		end = gkv_dev_exec(w->q, c, 0, r);
		sched_yield();
	} while (end == GKV_DEV_DONE && r->status == GKV_SC_TRANSIENT);
	return end;
}

static void fail(struct world *w, const char *what, uint32_t lane, uint32_t a, uint32_t b)
{
	if (__atomic_fetch_add(&w->failures, 1, __ATOMIC_RELAXED) < 5)
		tap_diag("lane %u: %s: %u, %u (%s)", lane, what, a, b, gkv_error());
}

static void open_queue(struct world *w, uint32_t depth, uint32_t flags)
{
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = depth,
				 .flags = GKV_QP_POLLED | flags };

	if (gkv_qp_create(w->g, &o, &w->qp) || gkv_qp_device(w->qp, &d)) {
		tap_diag("queue pair: %s", gkv_error());
		exit(1);
	}
	w->q = aligned_alloc(GKVD_LINE, gkv_dev_queue_size(depth));
	if (!w->q || gkv_dev_queue_init(w->q, &d))
		exit(1);
}

static void close_queue(struct world *w)
{
	if (gkv_qp_destroy(w->qp)) {
		tap_diag("destroy: %s", gkv_error());
		exit(1);
	}
	free(w->q);
}

static void open_world(struct world *w)
{
	struct gkv_ns_info ns = { .size = sizeof(ns) };

	memset(w, 0, sizeof(*w));
	rig_init(&w->rig, config);
	rig_start(&w->rig);
	if (gkv_connect(&w->g, w->rig.socket, 0, 0) || gkv_ns_open(w->g, "main", 0, &ns) ||
	    gkv_ns_open(w->g, "local", 0, &ns) || gkv_ns_open(w->g, "slow", 0, &ns) ||
	    gkv_mem_alloc(w->g, 2 * LANES * VALUE, &w->mem)) {
		tap_diag("session: %s", gkv_error());
		exit(1);
	}
	w->buf = gkv_mem_addr(w->mem);
}

static uint8_t pattern(uint32_t lane, uint32_t key, uint32_t round, uint32_t i)
{
	return (uint8_t)(lane * 31 + key * 7 + round * 13 + i * 3 + (i >> 8));
}

/* Store, retrieve, check, and now and then look for what is not there, or delete. */
static void lane_round(struct world *w, uint32_t lane, uint32_t round)
{
	uint8_t *out = w->buf + lane * 2 * VALUE, *in = out + VALUE;
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;

	for (uint32_t k = 0; k < KEYS; k++) {
		uint64_t lo = (uint64_t)lane << 32 | k, hi = 0x1234;
		uint32_t len = (k * 997 + round * 131) % VALUE;

		for (uint32_t i = 0; i < len; i++)
			out[i] = pattern(lane, k, round, i);
		c = gkv_dev_store(w->nsid, lo, hi, 16, (uintptr_t)out, len);
		if (exec(w, &c, &r) != GKV_DEV_DONE || r.status)
			fail(w, "store", lane, r.end, r.status);
		memset(in, 0xee, VALUE);
		c = gkv_dev_retrieve(w->nsid, lo, hi, 16, (uintptr_t)in, VALUE);
		if (exec(w, &c, &r) != GKV_DEV_DONE || r.status || r.len != len)
			fail(w, "retrieve", lane, r.end, r.status);
		for (uint32_t i = 0; i < len; i++) {
			if (in[i] != pattern(lane, k, round, i)) {
				fail(w, "byte", lane, i, in[i]);
				break;
			}
		}
		c = gkv_dev_exist(w->nsid, lo, hi + 1, 16);
		if (exec(w, &c, &r) != GKV_DEV_DONE ||
		    GKV_STATUS_CODE(r.status) != GKV_SC_KEY_NOT_FOUND)
			fail(w, "exist", lane, r.end, r.status);
		if (k % 4)
			continue;
		c = gkv_dev_delete(w->nsid, lo, hi, 16);
		if (exec(w, &c, &r) != GKV_DEV_DONE || r.status)
			fail(w, "delete", lane, r.end, r.status);
	}
}

struct lane {
	struct world *w;
	uint32_t id;
};

static void *lane_main(void *arg)
{
	struct lane *l = arg;

	for (uint32_t i = 0; i < l->w->rounds; i++)
		lane_round(l->w, l->id, i);
	return NULL;
}

/* All lanes at once; @kills: of the daemon meanwhile. */
static void run_lanes(struct world *w, uint32_t rounds, uint32_t kills)
{
	struct lane lanes[LANES];
	pthread_t t[LANES];

	w->failures = 0;
	w->rounds = rounds;
	for (uint32_t i = 0; i < LANES; i++) {
		lanes[i] = (struct lane){ w, i };
		if (pthread_create(&t[i], NULL, lane_main, &lanes[i]))
			exit(1);
	}
	for (uint32_t i = 0; i < kills; i++) {
		usleep(30000 * rig_slowdown());
		rig_kill(&w->rig);
		usleep(5000);
		rig_start(&w->rig);
	}
	for (uint32_t i = 0; i < LANES; i++)
		pthread_join(t[i], NULL);
}

static void test_lanes(struct world *w, uint32_t depth, uint32_t rounds)
{
	open_queue(w, depth, 0);
	for (w->nsid = 1; w->nsid <= 2; w->nsid++) {
		run_lanes(w, rounds, 0);
		tap_ok(!w->failures && !w->q->stats.bad_cid && w->q->credits == depth - 1,
		       "%u lanes on a queue of %u entries, namespace %u: every value is right",
		       LANES, depth, w->nsid);
	}
	close_queue(w);
}

static void test_restart(struct world *w)
{
	open_queue(w, 8, 0);
	w->nsid = 2;
	run_lanes(w, 6, 4);
	tap_ok(!w->failures && !w->q->stats.timeouts && w->q->ctl->epoch,
	       "the daemon killed and started again 4 times: the lanes notice only delay");
	if (w->failures || w->q->stats.timeouts || !w->q->ctl->epoch)
		tap_diag("failures %u, timeouts %u, epoch %u", w->failures, w->q->stats.timeouts,
			 w->q->ctl->epoch);
	close_queue(w);
}

/* As many commands as fit, with one doorbell. */
static void test_batch(struct world *w)
{
	const uint32_t n = 1023;
	struct gkv_dev_cmd *c = calloc(n + 1, sizeof(*c));
	gkv_dev_token *t = calloc(n + 1, sizeof(*t));
	struct gkv_dev_result *r = calloc(n + 1, sizeof(*r));
	uint32_t took = 0, done = 0, good = 0, rounds = 5;
	bool ok = true;

	open_queue(w, n + 1, 0);
	for (uint32_t round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i <= n; i++) {
			memcpy(w->buf + i * 64, &i, sizeof(i));
			c[i] = gkv_dev_store(1, i, round, 9, (uintptr_t)w->buf + i * 64, 64);
		}
		took = gkv_dev_submit_batch(w->q, 1, c, n + 1, t);
		done = gkv_dev_wait_batch(w->q, 1, t, n + 1, 0, r);
		ok = ok && took == n && done == n && r[n].end == GKV_DEV_INVALID;
		for (uint32_t i = 0; i < n; i++)
			good += !r[i].status;
	}
	tap_ok(ok && good == n * rounds && w->q->stats.doorbells == rounds,
	       "%u commands with one doorbell, the one too many is told", n);
	if (!ok || w->q->stats.doorbells != rounds)
		tap_diag("took %u, done %u, good %u, doorbells %u", took, done, good,
			 w->q->stats.doorbells);
	close_queue(w);
	free(c);
	free(t);
	free(r);
}

/* The device's checksum against the library's; and one that travels with the value. */
static void test_crc(struct world *w)
{
	const uint32_t lens[] = { 0, 1, 3, 4, 127, 128, 129, 4095, 4096, 100000, 2 * VALUE };
	uint32_t good = 0, n = 0, crc;
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;
	bool ok;

	open_queue(w, 4, GKV_QP_CSUM);
	for (uint32_t i = 0; i < 2 * LANES * VALUE; i++)
		w->buf[i] = (uint8_t)(i * 2654435761u >> 13);
	for (uint32_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (uint32_t off = 0; off < 5; off++, n++)
			good += gkv_dev_crc32c(w->q, 1, w->buf + off, lens[i]) ==
				gkv_crc32c(0, w->buf + off, lens[i]);
	}
	tap_ok(good == n, "crc32c of %u values", n);
	crc = gkv_dev_crc32c(w->q, 1, w->buf, VALUE - 1);
	c = gkv_dev_store(2, 99, 0, 8, (uintptr_t)w->buf, VALUE - 1);
	c.crc = crc ^ 1;
	ok = gkv_dev_exec(w->q, &c, 0, &r) == GKV_DEV_DONE && r.status;
	tap_ok(ok, "a Store with a wrong checksum is refused: %03xh", r.status);
	c.crc = crc;
	ok = gkv_dev_exec(w->q, &c, 0, &r) == GKV_DEV_DONE && !r.status;
	c = gkv_dev_retrieve(2, 99, 0, 8, (uintptr_t)w->buf + VALUE, VALUE);
	ok = ok && gkv_dev_exec(w->q, &c, 0, &r) == GKV_DEV_DONE && !r.status && r.has_crc &&
	     r.crc == crc && r.len == VALUE - 1;
	tap_ok(ok && gkv_dev_verify(w->q, 1, w->buf + VALUE, VALUE, &r) == 1,
	       "a Retrieve brings the checksum, and the value has it");
	w->buf[VALUE + 5000] ^= 0x10;
	tap_ok(!gkv_dev_verify(w->q, 1, w->buf + VALUE, VALUE, &r) &&
	       gkv_dev_verify(w->q, 1, w->buf + VALUE, 10, &r) == -1,
	       "a changed bit is seen, a value that is not whole not judged");
	close_queue(w);
}

/* A deadline that passes: the slot stays taken until the answer is there. */
static void test_deadline(struct world *w)
{
	struct gkv_dev_cmd store = gkv_dev_store(3, 7, 0, 8, (uintptr_t)w->buf, 100);
	struct gkv_dev_cmd get = gkv_dev_retrieve(3, 7, 0, 8, (uintptr_t)w->buf, VALUE);
	struct gkv_dev_result r;
	gkv_dev_token t;
	uint32_t end;

	open_queue(w, 2, 0);
	tap_ok(gkv_dev_exec(w->q, &store, 0, &r) == GKV_DEV_DONE && !r.status,
	       "a queue of 2 entries");
	t = gkv_dev_submit(w->q, &get);
	end = gkv_dev_wait(w->q, t, 50000000, &r);
	tap_ok(end == GKV_DEV_TIMEDOUT && w->q->stats.timeouts == 1 && !gkv_dev_settled(w->q, t),
	       "a wait ends when its time is up");
	tap_ok(gkv_dev_submit(w->q, &get) == GKV_DEV_NONE &&
	       gkv_dev_exec(w->q, &get, 50000000, &r) == GKV_DEV_FULL,
	       "the slot is in quarantine: no room");
	for (int i = 0; !gkv_dev_settled(w->q, t) && i < 1000; i++)
		usleep(10000);
	tap_ok(gkv_dev_settled(w->q, t) && w->q->stats.late == 1 &&
	       gkv_dev_poll(w->q, t, &r) == GKV_DEV_INVALID,
	       "the late answer frees it, and is nobody's result");
	tap_ok(gkv_dev_exec(w->q, &get, 0, &r) == GKV_DEV_DONE && !r.status && r.len == 100,
	       "the next command gets its own");
	close_queue(w);
}

static void test_hand_over(struct world *w)
{
	struct gkv_cmd cmd = { .opcode = GKV_EXIST, .nsid = 1, .key_len = 1, .key = "k" };
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct gkv_comp comp;
	struct gkv_qp *qp;
	bool ok;

	if (gkv_qp_create(w->g, NULL, &qp))
		exit(1);
	tap_ok(gkv_qp_device(qp, &d) == -EINVAL && strstr(gkv_error(), "GKV_QP_POLLED"),
	       "a queue pair that wakes the daemon is refused");
	gkv_qp_destroy(qp);
	open_queue(w, 16, 0);
	ok = gkv_submit(w->qp, &cmd, 1) == -EBUSY && gkv_poll(w->qp, &comp, 1) == -EBUSY &&
	     gkv_qp_device(w->qp, &d) == -EBUSY && !gkv_qp_room(w->qp);
	tap_ok(ok, "the host does not touch a queue pair of the device");
	ok = !gkv_qp_reset(w->qp) && !gkv_exec(w->qp, &cmd, &comp);
	tap_ok(ok && gkv_qp_device(w->qp, &d) == -EINVAL && strstr(gkv_error(), "reset"),
	       "a reset gives it back; used, it is to be reset first");
	close_queue(w);
}

/* The daemon goes, and its queue pairs are not taken up again. */
static void test_lost(struct world *w)
{
	struct gkv_dev_cmd get = gkv_dev_retrieve(3, 7, 0, 8, (uintptr_t)w->buf, VALUE);
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct gkv_dev_result r;
	struct gkv *g = w->g;
	gkv_dev_token t;

	if (gkv_connect(&w->g, w->rig.socket, 0, GKV_CONNECT_NO_RECONNECT) ||
	    gkv_ns_open(w->g, "slow", 0, NULL))
		exit(1);
	open_queue(w, 8, 0);
	get = gkv_dev_exist(3, 7, 0, 8);
	t = gkv_dev_submit(w->q, &get);
	rig_kill(&w->rig);
	/* Killed before it answered, or after. */
	gkv_dev_wait(w->q, t, 0, &r);
	tap_ok(r.end == GKV_DEV_LOST || r.end == GKV_DEV_DONE, "F16: a wait ends with the daemon");
	t = gkv_dev_submit(w->q, &get);
	tap_ok(gkv_dev_wait(w->q, t, 0, &r) == GKV_DEV_LOST, "so does the next");
	tap_ok(gkv_qp_reset(w->qp) < 0 && gkv_qp_device(w->qp, &d) < 0,
	       "a queue pair that is lost for good cannot be handed over");
	close_queue(w);
	gkv_close(w->g);
	w->g = g;
	rig_start(&w->rig);
}

int main(void)
{
	struct world w;

	open_world(&w);
	test_hand_over(&w);
	test_lanes(&w, 2, 1);
	test_lanes(&w, 5, 2);
	test_lanes(&w, 1024, 3);
	test_batch(&w);
	test_crc(&w);
	test_deadline(&w);
	test_restart(&w);
	test_lost(&w);
	gkv_mem_free(w.mem);
	gkv_close(w.g);
	rig_fini(&w.rig);
	return tap_done();
}
