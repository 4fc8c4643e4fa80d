/* SPDX-License-Identifier: MIT */
/*
 * Queues that libgkv hands to a GPU runtime, against a kvbridged: the runtime is a stand-in that
 * gives memory other addresses, the lanes are threads, and the daemon is killed meanwhile.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gkv_device.h>

#include "../unit/gpu_stub.h"
#include "gkv.h"
#include "rig.h"

#define LANES	8u
#define VALUE	4096u
#define KEYS	16u

static const char config[] =
	"[daemon]\nreactors = 2\n"
	"[namespace local]\nnsid = 1\nstack = local\nlocal.path = {dir}/store\nlocal.size = 64M\n";

static struct rig rig;
static struct gkv *g;
static struct gkv_gpu *gpu;
static struct gkv_qp *qp;
static struct gkv_mem *mem;
static struct gkv_dev_queue *q;
static uint8_t *window;			/* where the device has the memory */
static volatile uint32_t failures;

static void fail(const char *what, uint32_t lane, const struct gkv_dev_result *r)
{
	if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 5)
		tap_diag("lane %u: %s: ended %u, status %03xh", lane, what, r->end, r->status);
}

/* A slot that is free belongs to who runs, and what the kill left in doubt is done again. */
static void exec(const struct gkv_dev_cmd *c, struct gkv_dev_result *r)
{
	do {
		gkv_dev_exec(q, c, 0, r);
		sched_yield();
	} while (r->end == GKV_DEV_DONE && r->status == GKV_SC_TRANSIENT);
}

static void *lane_main(void *arg)
{
	uint32_t lane = (uint32_t)(uintptr_t)arg, at = lane * 2 * VALUE;
	uint8_t *out = window + at, *in = out + VALUE;
	uint64_t iova = gkv_mem_iova(mem) + at;
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;

	for (uint32_t k = 0; k < KEYS; k++) {
		uint32_t len = 1 + k * 101 % VALUE;

		for (uint32_t i = 0; i < len; i++)
			out[i] = (uint8_t)(lane * 31 + k * 7 + i * 3 + (i >> 8));
		memset(in, 0xee, VALUE);
		c = gkv_dev_store(1, lane, k, 16, iova, len);
		exec(&c, &r);
		if (r.end != GKV_DEV_DONE || r.status)
			fail("store", lane, &r);
		c = gkv_dev_retrieve(1, lane, k, 16, iova + VALUE, VALUE);
		exec(&c, &r);
		if (r.end != GKV_DEV_DONE || r.status || r.len != len || memcmp(in, out, len))
			fail("retrieve", lane, &r);
	}
	return NULL;
}

static void run_lanes(uint32_t kills)
{
	pthread_t t[LANES];

	failures = 0;
	for (uint32_t i = 0; i < LANES; i++)
		if (pthread_create(&t[i], NULL, lane_main, (void *)(uintptr_t)i))
			exit(1);
	for (uint32_t i = 0; i < kills; i++) {
		usleep(20000 * rig_slowdown());
		rig_kill(&rig);
		usleep(5000);
		rig_start(&rig);
	}
	for (uint32_t i = 0; i < LANES; i++)
		pthread_join(t[i], NULL);
}

static void test_runtime(uint32_t rt, const char *name)
{
	/* Longer than a busy disk takes, and than a command that is lost may. */
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = 6, .flags = GKV_QP_POLLED,
				 .timeout_ns = 30000000000ull };
	struct gkv_dev_queue *again;
	uint32_t epoch;
	void *p;

	if (gkv_gpu_open(rt, 0, &gpu) || gkv_connect(&g, rig.socket, 0, 0) ||
	    gkv_ns_open(g, "local", 0, NULL) || gkv_mem_alloc(g, 2 * LANES * VALUE, &mem) ||
	    gkv_gpu_map(gpu, mem, &p) || gkv_qp_create(g, &o, &qp) ||
	    gkv_gpu_queue(gpu, qp, NULL, &q)) {
		tap_diag("%s", gkv_error());
		exit(1);
	}
	window = p;
	q->ticks_per_us = 1000;		/* the clock here is that of C */
	tap_ok(p != gkv_mem_addr(mem), "%s: the device has its own addresses", name);
	run_lanes(0);
	tap_ok(!failures, "%s: every value is right", name);
	epoch = q->ctl->epoch;
	run_lanes(3);
	/* They may have ended before the session has seen the last kill. */
	for (int i = 0; i < 1000 && __atomic_load_n(&q->ctl->epoch, __ATOMIC_ACQUIRE) == epoch; i++)
		usleep(10000);
	tap_ok(!failures && q->ctl->epoch != epoch && !q->stats.timeouts,
	       "%s: the daemon killed and started again 3 times: only delay", name);
	tap_ok(!gkv_qp_reset(qp) && !gkv_gpu_queue(gpu, qp, NULL, &again) && again == q,
	       "%s: after a reset the queue is where it was", name);
	q->ticks_per_us = 1000;
	run_lanes(0);
	tap_ok(!failures && !q->stats.bad_cid, "%s: and works", name);
	tap_ok(!gkv_gpu_queue_free(gpu, qp) && !gkv_qp_destroy(qp) && !gkv_gpu_unmap(gpu, mem) &&
	       !gkv_mem_free(mem) && !gkv_gpu_close(gpu), "%s: all is given back", name);
	gkv_close(g);
}

int main(void)
{
	const struct gpu_stub *stub;

	if (gpu_stub_build("GKV_LIBCUDA", "libcuda.so.1", "") ||
	    gpu_stub_build("GKV_LIBHIP", "libamdhip64.so", "-DSTUB_HIP") ||
	    setenv("GKV_LIBHSA", getenv("GKV_LIBHIP"), 1))
		return 1;
	rig_init(&rig, config);
	rig_start(&rig);
	test_runtime(GKV_GPU_CUDA, "CUDA");
	stub = gpu_stub_of("GKV_LIBCUDA");
	tap_ok(stub && !stub->registered && !stub->allocated && !stub->contexts && !stub->streams,
	       "CUDA: nothing is left in the library");
	test_runtime(GKV_GPU_HIP, "HIP");
	stub = gpu_stub_of("GKV_LIBHIP");
	tap_ok(stub && !stub->registered && !stub->allocated && !stub->streams,
	       "HIP: nothing is left in the library");
	rig_fini(&rig);
	gpu_stub_clean();
	return tap_done();
}
