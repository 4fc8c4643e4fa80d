/* SPDX-License-Identifier: MIT */
/*
 * Commands in the order of a GPU's stream, against a kvbridged. The runtime is a stand-in whose
 * streams are threads and whose kernels are functions here; the daemon is killed while a stream
 * waits for it, and comes back, or does not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gkv_device.h>

#include "../unit/gpu_stub.h"
#include "gkv.h"
#include "rig.h"

#define VALUE	4096u
#define SLOTS	256u			/* of VALUE bytes in the memory */
#define BATCHES	8u
#define SECOND	1000000000ull

static const char config[] =
	"[daemon]\nreactors = 2\n"
	"[namespace local]\nnsid = 1\nstack = local\nlocal.path = {dir}/store\nlocal.size = 64M\n";

static struct rig rig;
static struct gpu_stub *stub;
static struct gkv *g;
static struct gkv_gpu *gpu;
static struct gkv_qp *qp;
static struct gkv_mem *mem;
static struct gkv_gpu_stream *s;
static struct gkv_gpu_batch *batch[BATCHES];
static uint8_t *host, *window;		/* the memory, and where the device has it */
static void *stream;

static void must(int ret)
{
	if (!ret)
		return;
	tap_diag("%d: %s", ret, gkv_error());
	exit(1);
}

/* ---- Set-up ---- */

static void open_stream(uint32_t depth, uint64_t timeout_ns)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = depth, .flags = GKV_QP_POLLED,
				 .timeout_ns = timeout_ns };

	must(gkv_qp_create(g, &o, &qp));
	must(gkv_gpu_stream_open(gpu, qp, stream, &s));
	for (uint32_t i = 0; i < BATCHES; i++)
		must(gkv_gpu_batch_alloc(s, SLOTS, &batch[i]));
}

static void close_stream(void)
{
	must(gkv_gpu_stream_close(s));
	must(gkv_qp_destroy(qp));
}

static void connect_to(uint32_t flags)
{
	void *p;

	must(gkv_connect(&g, rig.socket, 0, flags));
	must(gkv_ns_open(g, "local", 0, NULL));
	must(gkv_mem_alloc(g, SLOTS * VALUE, &mem));
	must(gkv_gpu_map(gpu, mem, &p));
	window = p;
	host = gkv_mem_addr(mem);
}

static void disconnect(void)
{
	must(gkv_gpu_unmap(gpu, mem));
	gkv_close(g);
}

/* ---- Commands, kernels, waiting ---- */

static struct gkv_cmd cmd(uint8_t op, uint64_t key, uint32_t slot, uint32_t len)
{
	struct gkv_cmd c = { .opcode = op, .key_len = 8, .nsid = 1, .buf = host + slot * VALUE,
			     .len = len };

	memcpy(c.key, &key, 8);
	return c;
}

static uint8_t byte_of(uint64_t key, uint32_t round, uint32_t i)
{
	return (uint8_t)(key * 31 + round * 7 + i * 3 + (i >> 8));
}

static void fill(uint8_t *at, uint64_t key, uint32_t round, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = byte_of(key, round, i);
}

static bool filled(const uint8_t *at, uint64_t key, uint32_t round, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (at[i] != byte_of(key, round, i))
			return false;
	return true;
}

/* A kernel that runs until the host lets it go. */
struct gate {
	uint32_t reached, open;
};

static void gate_kernel(void *arg)
{
	struct gate *gate = arg;

	__atomic_store_n(&gate->reached, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE))
		usleep(100);
}

static void mark_kernel(void *arg)
{
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

static bool is_set(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void open_gate(struct gate *gate)
{
	__atomic_store_n(&gate->open, 1, __ATOMIC_RELEASE);
}

/* Generous: what this takes depends on what else the machine does. */
static bool wait_done(const struct gkv_gpu_batch *b)
{
	uint64_t until = rig_now() + 100 * SECOND;

	while (!gkv_gpu_batch_done(b)) {
		if (rig_now() > until)
			return false;
		usleep(500);
	}
	/* Kernels behind it, and what they have written. */
	stub->stream_sync(stream);
	return true;
}

static struct gkv_dev_answers answers(const struct gkv_gpu_batch *b, bool dev)
{
	struct gkv_dev_answers a = { .size = sizeof(a) };

	must(gkv_gpu_batch_answers(b, dev ? &a : NULL, dev ? NULL : &a));
	return a;
}

/* How many of @n commands ended like this. */
static uint32_t count(const struct gkv_gpu_batch *b, uint32_t n, uint32_t end, int err)
{
	struct gkv_dev_answers a = answers(b, false);
	struct gkv_dev_result r;
	uint32_t hits = 0;

	for (uint32_t i = 0; i < n; i++)
		hits += gkv_dev_answer(&a, i, &r) == end &&
			(end != GKV_DEV_DONE || gkv_status_errno(r.status) == err);
	return hits;
}

/* ---- Order ---- */

struct work {
	uint32_t from, to, n;		/* slots */
	struct gkv_dev_answers a;	/* of the Retrieves in front */
	uint32_t right;
};

/* Values retrieved in front of it become others, which are stored behind it. */
static void work_kernel(void *arg)
{
	struct work *w = arg;
	struct gkv_dev_result r;

	for (uint32_t k = 0; k < w->n; k++) {
		uint8_t *in = window + (w->from + k) * VALUE, *out = window + (w->to + k) * VALUE;

		if (gkv_dev_answer(&w->a, k, &r) != GKV_DEV_DONE || r.status ||
		    r.len != VALUE - k || !filled(in, k, 1, r.len))
			continue;
		w->right++;
		for (uint32_t i = 0; i < r.len; i++)
			out[i] = in[i] ^ byte_of(k, 1, i) ^ byte_of(k, 2, i);
	}
}

static void test_order(const char *name)
{
	struct gate gate = { 0 };
	struct work w = { .from = 32, .to = 64, .n = 20 };
	struct gkv_cmd c[20];
	uint32_t right = 0;

	open_stream(8, 0);
	for (uint32_t k = 0; k < 20; k++) {
		fill(host + k * VALUE, k, 1, VALUE - k);
		c[k] = cmd(GKV_STORE, k, k, VALUE - k);
	}
	stub->launch(stream, gate_kernel, &gate);
	must(gkv_gpu_batch_enqueue(batch[0], c, 20));
	memset(c, 0xff, sizeof(c));	/* the call has read it */
	for (uint32_t k = 0; k < 20; k++)
		c[k] = cmd(GKV_RETRIEVE, k, 32 + k, VALUE);
	must(gkv_gpu_batch_enqueue(batch[1], c, 20));
	w.a = answers(batch[1], true);
	stub->launch(stream, work_kernel, &w);
	for (uint32_t k = 0; k < 20; k++)
		c[k] = cmd(GKV_STORE, k, 64 + k, VALUE - k);
	must(gkv_gpu_batch_enqueue(batch[2], c, 20));
	for (uint32_t k = 0; k < 20; k++)
		c[k] = cmd(GKV_RETRIEVE, k, 96 + k, VALUE);
	must(gkv_gpu_batch_enqueue(batch[3], c, 20));
	tap_ok(!gkv_gpu_batch_done(batch[0]) && !gkv_gpu_batch_done(batch[3]) &&
	       gkv_gpu_batch_done(batch[4]), "%s: all is enqueued while a kernel runs", name);
	tap_ok(gkv_gpu_batch_enqueue(batch[0], c, 1) == -EBUSY &&
	       gkv_gpu_batch_free(batch[0]) == -EBUSY && gkv_gpu_stream_close(s) == -EBUSY,
	       "%s: what is enqueued stays", name);
	open_gate(&gate);
	tap_ok(wait_done(batch[3]), "%s: the stream goes past it", name);
	tap_ok(w.right == 20, "%s: a kernel finds what was retrieved in front of it", name);
	for (uint32_t k = 0; k < 20; k++)
		right += filled(host + (96 + k) * VALUE, k, 2, VALUE - k);
	tap_ok(right == 20 && count(batch[3], 20, GKV_DEV_DONE, 0) == 20,
	       "%s: what it writes is stored behind it", name);
	close_stream();
}

/* ---- Rings and batches of all sizes ---- */

static void test_wraps(const char *name, uint32_t depth)
{
	uint32_t right = 0, all = 0, next = 0;
	struct gkv_cmd c[24];

	open_stream(depth, 0);
	for (uint32_t round = 0; round < 12; round++) {
		uint32_t n = 1 + round * 5 % 24;

		/* Two batches at a time, each twice as long as the other. */
		for (uint32_t k = 0; k < n; k++) {
			fill(host + k * VALUE, k, round, 100 + k);
			memset(host + (64 + k) * VALUE, 0xee, 200);
			c[k] = cmd(GKV_STORE, k, k, 100 + k);
		}
		must(gkv_gpu_batch_enqueue(batch[next], c, n));
		for (uint32_t k = 0; k < n; k++)
			c[k] = cmd(GKV_RETRIEVE, k, 64 + k, VALUE);
		must(gkv_gpu_batch_enqueue(batch[(next + 1) % BATCHES], c, n));
		if (!wait_done(batch[(next + 1) % BATCHES]))
			break;
		for (uint32_t k = 0; k < n; k++)
			right += filled(host + (64 + k) * VALUE, k, round, 100 + k);
		right += count(batch[(next + 1) % BATCHES], n, GKV_DEV_DONE, 0);
		all += 2 * n;
		next = (next + 2) % BATCHES;
	}
	tap_ok(all && right == all, "%s: depth %u: %u values and answers around the rings", name,
	       depth, all);
	close_stream();
}

static void test_many_ahead(const char *name)
{
	struct gate gate = { 0 };
	struct gkv_cmd c[200];
	uint32_t right = 0;

	open_stream(16, 0);
	stub->launch(stream, gate_kernel, &gate);
	/* Each takes what the one before has stored under the next key. */
	fill(host, 0, 9, 64);
	for (uint32_t b = 0; b < BATCHES; b++) {
		for (uint32_t k = 0; k < 200; k++)
			c[k] = cmd(b % 2 ? GKV_RETRIEVE : GKV_STORE, 1000 + b / 2 * 200 + k,
				   b / 2 + b % 2, 64);
		/* The same slot for all: the last to land is as good as any other. */
		must(gkv_gpu_batch_enqueue(batch[b], c, 200));
	}
	open_gate(&gate);
	wait_done(batch[BATCHES - 1]);
	for (uint32_t b = 0; b < BATCHES; b++)
		right += count(batch[b], 200, GKV_DEV_DONE, 0);
	tap_ok(right == BATCHES * 200 && filled(host + BATCHES / 2 * VALUE, 0, 9, 64),
	       "%s: 1,600 commands ahead of the stream, on 15 slots, batch after batch", name);
	close_stream();
}

static void test_status(const char *name)
{
	struct gkv_dev_answers a;
	struct gkv_dev_result r;
	struct gkv_cmd c[6];

	open_stream(4, 0);
	fill(host, 5, 5, 300);
	c[0] = cmd(GKV_STORE, 5001, 0, 300);
	must(gkv_gpu_batch_enqueue(batch[0], c, 1));
	c[0] = cmd(GKV_EXIST, 5001, 0, 0);
	c[1] = cmd(GKV_EXIST, 5002, 0, 0);
	c[2] = cmd(GKV_RETRIEVE, 5002, 1, VALUE);
	c[3] = cmd(GKV_DELETE, 5002, 0, 0);
	c[4] = cmd(GKV_RETRIEVE, 5001, 2, 100);
	c[5] = cmd(GKV_STORE, 5001, 0, 10);
	c[5].options = GKV_O_MUST_NOT_EXIST;
	must(gkv_gpu_batch_enqueue(batch[1], c, 6));
	wait_done(batch[1]);
	a = answers(batch[1], false);
	tap_ok(gkv_dev_answer(&a, 0, &r) == GKV_DEV_DONE && !r.status &&
	       gkv_dev_answer(&a, 1, &r) == GKV_DEV_DONE && gkv_status_errno(r.status) == -ENOENT &&
	       gkv_dev_answer(&a, 2, &r) == GKV_DEV_DONE && gkv_status_errno(r.status) == -ENOENT &&
	       gkv_dev_answer(&a, 3, &r) == GKV_DEV_DONE && !r.status &&
	       gkv_dev_answer(&a, 6, &r) == GKV_DEV_INVALID,
	       "%s: keys that are missing have their status", name);
	tap_ok(gkv_dev_answer(&a, 4, &r) == GKV_DEV_DONE && !r.status && r.len == 300 &&
	       filled(host + 2 * VALUE, 5, 5, 100),
	       "%s: the length of a value is that of all of it", name);
	tap_ok(gkv_dev_answer(&a, 5, &r) == GKV_DEV_DONE && gkv_status_errno(r.status) == -EEXIST,
	       "%s: a refused Store has its status", name);
	close_stream();
}

/* ---- The daemon goes ---- */

static void test_restart(const char *name)
{
	uint64_t before = gkv_reconnects(g);
	uint32_t right = 0, waited = 0;
	struct gkv_cmd c[24];

	open_stream(6, 0);
	for (uint32_t k = 0; k < 24; k++) {
		fill(host + k * VALUE, k, 7, VALUE);
		c[k] = cmd(GKV_STORE, 7000 + k, k, VALUE);
	}
	must(gkv_gpu_batch_enqueue(batch[0], c, 24));
	wait_done(batch[0]);
	for (uint32_t k = 0; k < 24; k++)
		c[k] = cmd(GKV_RETRIEVE, 7000 + k, 32 + k, VALUE);
	for (uint32_t round = 0; round < 3; round++) {
		struct gate gate = { 0 };

		memset(host + 32 * VALUE, 0xee, 24 * VALUE);
		/* Rung before it is killed, or when it is gone. */
		if (round)
			stub->launch(stream, gate_kernel, &gate);
		must(gkv_gpu_batch_enqueue(batch[1], c, 24));
		rig_kill(&rig);
		open_gate(&gate);
		usleep(20000);
		waited += !gkv_gpu_batch_done(batch[1]);
		rig_start(&rig);
		if (!wait_done(batch[1]))
			break;
		for (uint32_t k = 0; k < 24; k++)
			right += filled(host + (32 + k) * VALUE, k, 7, VALUE);
		right += count(batch[1], 24, GKV_DEV_DONE, 0);
	}
	tap_ok(waited >= 2 && right == 3 * 48 && gkv_reconnects(g) > before,
	       "%s: the daemon killed and started again while the stream waits: only delay", name);
	/* And in the middle of it: whatever was being stored may have to be stored again. */
	right = 0;
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t k = 0; k < 24; k++)
			c[k] = cmd(k % 2 ? GKV_STORE : GKV_RETRIEVE, 7000 + k, k % 2 ? k : 32 + k,
				   VALUE);
		for (uint32_t b = 0; b < BATCHES; b++)
			must(gkv_gpu_batch_enqueue(batch[b], c, 24));
		rig_kill(&rig);
		rig_start(&rig);
		wait_done(batch[BATCHES - 1]);
		for (uint32_t b = 0; b < BATCHES; b++)
			right += count(batch[b], 24, GKV_DEV_DONE, 0) +
				 count(batch[b], 24, GKV_DEV_DONE,
				       gkv_status_errno(GKV_SC_TRANSIENT));
	}
	tap_ok(right == 3 * BATCHES * 24, "%s: and while it works: all are answered", name);
	close_stream();
}

/* Enqueue work that the daemon does not live to see; false if it does not all end. */
static bool all_ends(uint32_t *lost)
{
	struct gkv_cmd c[24];
	struct gate gate = { 0 };
	uint32_t mark = 0;
	bool ended;

	for (uint32_t k = 0; k < 24; k++)
		c[k] = cmd(GKV_RETRIEVE, 7000 + k, 32 + k, VALUE);
	stub->launch(stream, gate_kernel, &gate);
	must(gkv_gpu_batch_enqueue(batch[0], c, 24));
	must(gkv_gpu_batch_enqueue(batch[1], c, 7));
	stub->launch(stream, mark_kernel, &mark);
	rig_kill(&rig);
	open_gate(&gate);
	ended = wait_done(batch[1]);
	*lost = count(batch[0], 24, GKV_DEV_LOST, 0) + count(batch[1], 7, GKV_DEV_LOST, 0);
	return ended && is_set(&mark);
}

static void test_gone(const char *name)
{
	struct gkv_cmd c = cmd(GKV_EXIST, 1, 0, 0);
	uint32_t lost;
	int ret;

	/* A session that does not reconnect. */
	disconnect();
	connect_to(GKV_CONNECT_NO_RECONNECT);
	open_stream(6, 0);
	tap_ok(all_ends(&lost), "%s: the daemon is gone for good: the stream goes on", name);
	tap_ok(lost == 31, "%s: and says of every command that its outcome is not known", name);
	ret = gkv_gpu_batch_enqueue(batch[0], &c, 1);
	tap_ok(ret == -ENOTCONN, "%s: no more is taken: %s", name, gkv_error());
	close_stream();
	disconnect();

	/* One that would, but not within the queue pair's time. */
	rig_start(&rig);
	connect_to(0);
	open_stream(6, 3 * SECOND);
	tap_ok(all_ends(&lost) && lost == 31, "%s: away for longer than the timeout", name);
	ret = gkv_gpu_batch_enqueue(batch[0], &c, 1);
	tap_ok(ret == -EIO && strstr(gkv_error(), "3000 ms"), "%s: no more is taken: %s", name,
	       gkv_error());
	rig_start(&rig);
	/* No successor serves it, until it is reset. */
	must(gkv_gpu_stream_close(s));
	must(gkv_qp_reset(qp));
	must(gkv_gpu_stream_open(gpu, qp, stream, &s));
	must(gkv_gpu_batch_alloc(s, 1, &batch[0]));
	c = cmd(GKV_EXIST, 7000, 0, 0);
	must(gkv_gpu_batch_enqueue(batch[0], &c, 1));
	tap_ok(wait_done(batch[0]) && count(batch[0], 1, GKV_DEV_DONE, 0) == 1,
	       "%s: after a reset it is served again", name);
	close_stream();
}

static void test_runtime(uint32_t rt, const char *env, const char *name)
{
	stub = gpu_stub_of(env);
	must(gkv_gpu_open(rt, 0, &gpu));
	connect_to(0);
	stream = stub->stream_new();
	test_order(name);
	test_wraps(name, 2);
	test_wraps(name, 3);
	test_wraps(name, 7);
	test_wraps(name, 64);
	test_many_ahead(name);
	test_status(name);
	test_restart(name);
	test_gone(name);
	disconnect();
	stub->stream_free(stream);
	must(gkv_gpu_close(gpu));
	tap_ok(!stub->registered && !stub->allocated && !stub->contexts && !stub->streams,
	       "%s: nothing is left in the library", name);
}

int main(void)
{
	if (gpu_stub_build("GKV_LIBCUDA", "libcuda.so.1", "") ||
	    gpu_stub_build("GKV_LIBHIP", "libamdhip64.so", "-DSTUB_HIP") ||
	    setenv("GKV_LIBHSA", getenv("GKV_LIBHIP"), 1))
		return 1;
	rig_init(&rig, config);
	rig_start(&rig);
	test_runtime(GKV_GPU_CUDA, "GKV_LIBCUDA", "CUDA");
	test_runtime(GKV_GPU_HIP, "GKV_LIBHIP", "HIP");
	rig_fini(&rig);
	gpu_stub_clean();
	return tap_done();
}
