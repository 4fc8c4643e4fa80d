/* SPDX-License-Identifier: MIT */
/*
 * On a machine with an NVIDIA GPU: commands in the order of a stream, against a kvbridged
 * ($GKV_SOCKET), with the driver's own memsets and copies for kernels in front of them and behind.
 * Data are checked first, then times are taken. Built and run by run.sh, and by a test on the
 * stand-in that $GKV_LIBCUDA names. With an argument: batches for each time.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <gkv.h>
#include <gkv_device.h>

#define VALUE	4096u
#define KEYS	1023u
#define ROUNDS	4u		/* ahead of the stream */
#define CHECK	60u		/* keys of each */

static struct {
	int (*init)(unsigned int flags);
	int (*device)(int *dev, int ordinal);
	int (*retain)(void **ctx, int dev);
	int (*push)(void *ctx);
	int (*stream)(void **stream, unsigned int flags);
	int (*stream_free)(void *stream);
	int (*sync)(void *stream);
	int (*alloc)(uint64_t *dev, size_t len);
	int (*free)(uint64_t dev);
	int (*memset)(uint64_t dev, unsigned char c, size_t len, void *stream);
	int (*to_device)(uint64_t dev, const void *host, size_t len, void *stream);
	int (*to_host)(void *host, uint64_t dev, size_t len, void *stream);
} cu;

static const struct {
	const char *name;
	void *to;
} symbols[] = {
	{ "cuInit", &cu.init },
	{ "cuDeviceGet", &cu.device },
	{ "cuDevicePrimaryCtxRetain", &cu.retain },
	{ "cuCtxPushCurrent_v2", &cu.push },
	{ "cuStreamCreate", &cu.stream },
	{ "cuStreamDestroy_v2", &cu.stream_free },
	{ "cuStreamSynchronize", &cu.sync },
	{ "cuMemAlloc_v2", &cu.alloc },
	{ "cuMemFree_v2", &cu.free },
	{ "cuMemsetD8Async", &cu.memset },
	{ "cuMemcpyHtoDAsync_v2", &cu.to_device },
	{ "cuMemcpyDtoHAsync_v2", &cu.to_host },
};

static struct gkv *g;
static struct gkv_gpu *gpu;
static struct gkv_qp *qp;
static struct gkv_mem *mem;
static struct gkv_gpu_stream *s;
static struct gkv_ns_info ns = { .size = sizeof(ns) };
static char *host;			/* the memory, and where the GPU has it */
static uint64_t window, run_id;
static void *stream;
static uint64_t on_gpu;			/* its own memory: CHECK values */

static _Noreturn void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (%s)\n", gkv_error());
	exit(1);
}

static void cuda(int code, const char *what)
{
	if (code)
		die("%s: CUDA error %d", what, code);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void load(void)
{
	const char *name = getenv("GKV_LIBCUDA");
	void *lib = dlopen(name ? name : "libcuda.so.1", RTLD_NOW);
	void *ctx;
	int dev;

	if (!lib)
		die("%s", dlerror());
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *sym = dlsym(lib, symbols[i].name);

		if (!sym)
			die("no %s", symbols[i].name);
		memcpy(symbols[i].to, &sym, sizeof(sym));
	}
	cuda(cu.init(0), "cuInit");
	cuda(cu.device(&dev, 0), "device 0");
	cuda(cu.retain(&ctx, dev), "context");
	cuda(cu.push(ctx), "context");
	cuda(cu.stream(&stream, 0), "stream");
	cuda(cu.alloc(&on_gpu, CHECK * VALUE), "memory");
}

static struct gkv_gpu_batch *new_batch(uint32_t n)
{
	struct gkv_gpu_batch *b;

	if (gkv_gpu_batch_alloc(s, n, &b))
		die("no batch of %u", n);
	return b;
}

/* @n commands for keys from @key on and memory from value @at on. */
static void enqueue(struct gkv_gpu_batch *b, uint8_t op, uint64_t key, uint32_t at, uint32_t n)
{
	static struct gkv_cmd c[KEYS];

	memset(c, 0, n * sizeof(c[0]));
	for (uint32_t i = 0; i < n; i++, key++) {
		c[i].opcode = op;
		c[i].nsid = ns.nsid;
		c[i].key_len = 16;
		memcpy(c[i].key, &run_id, 8);
		memcpy(c[i].key + 8, &key, 8);
		c[i].buf = host + (size_t)(at + i) * VALUE;
		c[i].len = VALUE;
	}
	if (gkv_gpu_batch_enqueue(b, c, n))
		die("cannot enqueue");
}

static uint32_t unanswered(const struct gkv_gpu_batch *b, uint32_t n)
{
	struct gkv_dev_answers a = { .size = sizeof(a) };
	struct gkv_dev_result r;
	uint32_t bad = 0;

	if (!gkv_gpu_batch_done(b) || gkv_gpu_batch_answers(b, NULL, &a))
		die("a batch is not done");
	for (uint32_t i = 0; i < n; i++)
		bad += gkv_dev_answer(&a, i, &r) != GKV_DEV_DONE || r.status;
	return bad;
}

/*
 * Every round writes the same keys, with what the GPU has set, takes them back to another place,
 * and from there by way of the GPU's own memory to a third: all without the processor.
 */
static uint32_t check(uint32_t seed)
{
	struct gkv_gpu_batch *out[ROUNDS], *in[ROUNDS];
	uint32_t wrong = 0;

	for (uint32_t r = 0; r < ROUNDS; r++) {
		out[r] = new_batch(CHECK);
		in[r] = new_batch(CHECK);
	}
	for (uint32_t r = 0; r < ROUNDS; r++) {
		for (uint32_t k = 0; k < CHECK; k++)
			cuda(cu.memset(window + k * VALUE, (uint8_t)(seed + 3 * r + k), VALUE,
				       stream), "memset");
		enqueue(out[r], GKV_STORE, 1, 0, CHECK);
		cuda(cu.memset(window + CHECK * VALUE, 0xee, CHECK * VALUE, stream), "memset");
		enqueue(in[r], GKV_RETRIEVE, 1, CHECK, CHECK);
		cuda(cu.to_device(on_gpu, host + CHECK * VALUE, CHECK * VALUE, stream), "copy");
		cuda(cu.to_host(host + (2 + r) * CHECK * VALUE, on_gpu, CHECK * VALUE, stream),
		     "copy");
	}
	cuda(cu.sync(stream), "stream");
	for (uint32_t r = 0; r < ROUNDS; r++) {
		const char *got = host + (2 + r) * CHECK * VALUE;

		wrong += unanswered(out[r], CHECK) + unanswered(in[r], CHECK);
		for (uint32_t i = 0; i < CHECK * VALUE; i++)
			wrong += (uint8_t)got[i] != (uint8_t)(seed + 3 * r + i / VALUE);
		if (gkv_gpu_batch_free(out[r]) || gkv_gpu_batch_free(in[r]))
			die("cannot free a batch");
	}
	return wrong;
}

/* Batches of @n values: one at a time, and several ahead of the stream. */
static uint32_t times(uint32_t n, uint32_t reps)
{
	struct gkv_gpu_batch *b[ROUNDS];
	double one, many, call = 0;
	uint32_t wrong = 0;

	for (uint32_t r = 0; r < ROUNDS; r++)
		b[r] = new_batch(n);
	enqueue(b[0], GKV_STORE, 1000, 0, n);
	cuda(cu.sync(stream), "stream");
	wrong += unanswered(b[0], n);
	one = now();
	for (uint32_t i = 0; i < reps; i++) {
		double t = now();

		enqueue(b[0], GKV_RETRIEVE, 1000, 0, n);
		call += now() - t;
		cuda(cu.sync(stream), "stream");
	}
	one = (now() - one) / reps;
	many = now();
	for (uint32_t i = 0; i < reps; i++) {
		for (uint32_t r = 0; r < ROUNDS; r++)
			enqueue(b[r], GKV_RETRIEVE, 1000, 0, n);
		cuda(cu.sync(stream), "stream");
	}
	many = (now() - many) / reps / ROUNDS;
	for (uint32_t r = 0; r < ROUNDS; r++) {
		wrong += unanswered(b[r], n);
		gkv_gpu_batch_free(b[r]);
	}
	printf("| in stream order, %u values of 4 KiB | %.1f us a batch, of which the call "
	       "%.1f us; %u ahead: %.1f us a batch, %.2f GB/s |\n", n, one * 1e6, call / reps * 1e6,
	       ROUNDS, many * 1e6, n * (double)VALUE / many / 1e9);
	return wrong;
}

int main(int argc, char **argv)
{
	uint32_t reps = argc > 1 ? (uint32_t)atoi(argv[1]) : 200, wrong = 0, seed;
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = 16, .flags = GKV_QP_POLLED };
	void *p = NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (getrandom(&run_id, 8, 0) != 8 || getrandom(&seed, 4, 0) != 4)
		die("no random data");
	load();
	if (gkv_gpu_open(GKV_GPU_CUDA, 0, &gpu) || gkv_connect(&g, NULL, 0, 0) ||
	    gkv_ns_open(g, NULL, 0, &ns) || gkv_mem_alloc(g, (size_t)KEYS * VALUE, &mem) ||
	    gkv_gpu_map(gpu, mem, &p))
		die("cannot start");
	window = (uintptr_t)p;
	host = gkv_mem_addr(mem);
	/* Runs of 15 for batches of 60; then all with one doorbell. */
	for (int i = 0; i < 2; i++) {
		if (gkv_qp_create(g, &o, &qp) || gkv_gpu_stream_open(gpu, qp, stream, &s))
			die("no queue pair in stream order");
		wrong += check(seed + 100 * (uint32_t)i);
		if (i) {
			printf("| in stream order, %u values of 4 KiB | %u wrong |\n",
			       2 * ROUNDS * CHECK, wrong);
			wrong += times(1, reps) + times(32, reps) + times(KEYS, reps);
		}
		if (gkv_gpu_stream_close(s) || gkv_qp_destroy(qp))
			die("cannot close the stream");
		o.depth = KEYS + 1;
	}
	cu.stream_free(stream);
	cu.free(on_gpu);
	if (gkv_gpu_unmap(gpu, mem))
		die("cannot end");
	gkv_close(g);
	if (gkv_gpu_close(gpu))
		die("cannot close the GPU");
	if (wrong)
		fprintf(stderr, "%u wrong\n", wrong);
	return wrong != 0;
}
