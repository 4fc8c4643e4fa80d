/* SPDX-License-Identifier: MIT */
/*
 * On a machine with an NVIDIA GPU: kernels against a kvbridged ($GKV_SOCKET) with queue pairs
 * and values in host memory. Data are checked first, then times are taken, and the CPU with
 * cudaMemcpyAsync() does the same transfers. Built and run by run.sh.
 */
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/random.h>
#include <vector>

#include <gkv.h>
#include <gkv_device.h>

#define PAGE		65536u		/* bytes of a large value */
#define SMALL		4096u
#define KEYS		1023u		/* of each size */
#define SMALL_KEYS	(1ull << 32)	/* in the upper word of a small value's key */
#define SCRATCH_KEYS	(2ull << 32)
#define CHECK_LEN	8192u
#define CHECK_THREADS	1024u

static struct gkv *g;
static struct gkv_gpu *gpu;
static struct gkv_ns_info ns;
static struct gkv_mem *mem;
static char *window;			/* where the GPU has it */
static uint64_t run_id;
static unsigned int *bad;		/* on the GPU */

/* What a kernel needs to name values. */
struct at {
	struct gkv_dev_queue *q;
	uint64_t run, iova;
	uint32_t nsid;
	unsigned int *bad;
};

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (%s)\n", gkv_error());
	exit(1);
}

static void cuda(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		die("%s: %s", what, cudaGetErrorString(e));
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static unsigned int wrongs(void)
{
	unsigned int n;

	cuda(cudaDeviceSynchronize(), "kernel");
	cuda(cudaMemcpy(&n, bad, sizeof(n), cudaMemcpyDeviceToHost), "result");
	return n;
}

/* ---- Kernels ---- */

__device__ static uint32_t noise(uint64_t seed, uint32_t i)
{
	uint64_t x = seed + i * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (uint32_t)(x >> 32);
}

/* Each thread: store what was never there before, fetch it to another place, compare. */
__global__ void check(struct at a, char *window, uint32_t rounds, uint64_t seed)
{
	uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
	uint64_t off = (uint64_t)t * 2 * CHECK_LEN;
	uint32_t *out = (uint32_t *)(window + off), *in = out + CHECK_LEN / 4;
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;

	for (uint32_t round = 0; round < rounds; round++) {
		uint64_t s = seed ^ (uint64_t)round << 32 ^ t;
		uint32_t len = 4 * (1 + noise(s, 0) % (CHECK_LEN / 4));

		for (uint32_t i = 0; i < len / 4; i++) {
			out[i] = noise(s, i + 1);
			in[i] = 0;
		}
		c = gkv_dev_store(a.nsid, a.run, SCRATCH_KEYS + t, 16, a.iova + off, len);
		if (gkv_dev_exec(a.q, &c, 0, &r) != GKV_DEV_DONE || r.status)
			atomicAdd(a.bad, 1);
		c = gkv_dev_retrieve(a.nsid, a.run, SCRATCH_KEYS + t, 16,
				     a.iova + off + CHECK_LEN, CHECK_LEN);
		if (gkv_dev_exec(a.q, &c, 0, &r) != GKV_DEV_DONE || r.status || r.len != len)
			atomicAdd(a.bad, 1);
		for (uint32_t i = 0; i < len / 4; i++) {
			if (in[i] != noise(s, i + 1)) {
				atomicAdd(a.bad, 1);
				break;
			}
		}
	}
}

/* Threads that each fetch small values, one after the other. @ns: of thread 0, or NULL. */
__global__ void fetch_each(struct at a, uint32_t rounds, uint32_t *ns)
{
	uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;

	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t start = gkvd_clock();

		c = gkv_dev_retrieve(a.nsid, a.run, SMALL_KEYS + (t + i) % KEYS, 16,
				     a.iova + (uint64_t)t * SMALL, SMALL);
		if (gkv_dev_exec(a.q, &c, 0, &r) != GKV_DEV_DONE || r.status || r.len != SMALL)
			atomicAdd(a.bad, 1);
		if (ns)
			ns[i] = (uint32_t)(gkvd_clock() - start);
	}
}

/* One warp, one doorbell. */
__global__ void fetch_batch(struct at a, uint32_t n, struct gkv_dev_cmd *cmds,
			    gkv_dev_token *tokens, struct gkv_dev_result *results)
{
	uint32_t i;

	for (i = threadIdx.x; i < n; i += 32)
		cmds[i] = gkv_dev_retrieve(a.nsid, a.run, i, 16, a.iova + (uint64_t)i * PAGE, PAGE);
	__syncwarp();
	gkv_dev_submit_batch(a.q, 0xffffffff, cmds, n, tokens);
	gkv_dev_wait_batch(a.q, 0xffffffff, tokens, n, 0, results);
	for (i = threadIdx.x; i < n; i += 32)
		if (results[i].end != GKV_DEV_DONE || results[i].status || results[i].len != PAGE)
			atomicAdd(a.bad, 1);
}

__global__ void copy(const uint4 *from, uint4 *to, uint64_t n)
{
	uint64_t i = blockIdx.x * blockDim.x + threadIdx.x;

	for (; i < n; i += (uint64_t)gridDim.x * blockDim.x)
		to[i] = from[i];
}

/* ---- The host's part ---- */

static struct gkv_cmd command(uint8_t opcode, uint64_t hi, void *buf, uint32_t len)
{
	struct gkv_cmd c;

	memset(&c, 0, sizeof(c));
	c.opcode = opcode;
	c.key_len = 16;
	c.nsid = ns.nsid;
	memcpy(c.key, &run_id, 8);
	memcpy(c.key + 8, &hi, 8);
	c.buf = buf;
	c.len = len;
	c.user_data = hi;
	return c;
}

/* Fresh data; @copy keeps those of the large values. */
static void fill(struct gkv_qp *qp, std::vector<char> &copy)
{
	char *base = (char *)gkv_mem_addr(mem);
	struct gkv_comp comp;

	copy.resize((size_t)KEYS * PAGE);
	for (size_t i = 0; i < copy.size(); i += 256)
		if (getrandom(&copy[i], 256, 0) != 256)
			die("no random data");
	memcpy(base, copy.data(), copy.size());
	for (uint64_t i = 0; i < KEYS; i++) {
		struct gkv_cmd large = command(GKV_STORE, i, base + i * PAGE, PAGE);
		struct gkv_cmd small = command(GKV_STORE, SMALL_KEYS + i, base + i * PAGE, SMALL);

		if (gkv_exec(qp, &large, &comp) || comp.status || gkv_exec(qp, &small, &comp) ||
		    comp.status)
			die("cannot store");
	}
}

static void cpu_batch(struct gkv_qp *qp, uint32_t n, char *pages, cudaStream_t stream)
{
	char *base = (char *)gkv_mem_addr(mem);
	std::vector<struct gkv_cmd> cmds;
	struct gkv_comp comps[64];
	uint32_t done = 0;

	for (uint32_t i = 0; i < n; i++)
		cmds.push_back(command(GKV_RETRIEVE, i, base + (size_t)i * PAGE, PAGE));
	if (gkv_submit(qp, cmds.data(), n) != (int)n)
		die("cannot submit %u", n);
	while (done < n) {
		int k = gkv_wait(qp, comps, 64, 5000000000ull);

		if (k <= 0)
			die("%u of %u answered", done, n);
		for (int i = 0; i < k; i++) {
			size_t at = (size_t)comps[i].user_data * PAGE;

			if (comps[i].status || comps[i].flags)
				die("retrieve: %s", gkv_status_name(comps[i].status));
			cuda(cudaMemcpyAsync(pages + at, base + at, PAGE, cudaMemcpyHostToDevice,
					     stream), "cudaMemcpyAsync");
		}
		done += (uint32_t)k;
	}
	cuda(cudaStreamSynchronize(stream), "stream");
}

/* The pages on the GPU are what was stored; they are cleared. */
static unsigned int pages_wrong(char *pages, uint32_t n, const std::vector<char> &copy)
{
	std::vector<char> back((size_t)n * PAGE);

	cuda(cudaMemcpy(back.data(), pages, back.size(), cudaMemcpyDeviceToHost), "pages");
	cuda(cudaMemset(pages, 0, (size_t)KEYS * PAGE), "pages");
	memset(gkv_mem_addr(mem), 0, (size_t)KEYS * PAGE);
	return memcmp(back.data(), copy.data(), back.size()) != 0;
}

static void latency(struct at a)
{
	const uint32_t n = 5000, skip = 500;
	std::vector<uint32_t> ns(n);
	uint32_t *dev;
	double sum = 0;

	cuda(cudaMalloc(&dev, n * sizeof(*dev)), "memory");
	fetch_each<<<1, 1>>>(a, n, dev);
	cuda(cudaMemcpy(ns.data(), dev, n * sizeof(*dev), cudaMemcpyDeviceToHost), "times");
	ns.erase(ns.begin(), ns.begin() + skip);
	std::sort(ns.begin(), ns.end());
	for (uint32_t v : ns)
		sum += v;
	printf("| one thread, 4 KiB | mean %.1f us, median %.1f us, 99%% %.1f us |\n",
	       sum / (double)ns.size() / 1e3, ns[ns.size() / 2] / 1e3,
	       ns[ns.size() * 99 / 100] / 1e3);
}

static void scaling(struct at a)
{
	const uint32_t blocks[] = { 1, 1, 1, 4, 16 }, threads[] = { 1, 32, 256, 256, 256 };

	for (int i = 0; i < 5; i++) {
		uint32_t n = blocks[i] * threads[i], rounds = n == 1 ? 3000 : 100000 / n + 10;
		double t;

		cuda(cudaDeviceSynchronize(), "kernel");
		t = now();
		fetch_each<<<blocks[i], threads[i]>>>(a, rounds, NULL);
		cuda(cudaDeviceSynchronize(), "kernel");
		t = now() - t;
		printf("| %u threads, 4 KiB each | %.0f values/s |\n", n, n * (double)rounds / t);
	}
}

static unsigned int batches(struct at a, struct gkv_qp *host, const std::vector<char> &data)
{
	const uint32_t sizes[] = { 1, 4, 16, 64, 256, KEYS };
	struct gkv_dev_result *results;
	struct gkv_dev_cmd *cmds;
	unsigned int wrong = 0;
	gkv_dev_token *tokens;
	cudaStream_t stream;
	char *pages;

	cuda(cudaMalloc(&results, KEYS * sizeof(*results)), "memory");
	cuda(cudaMalloc(&cmds, KEYS * sizeof(*cmds)), "memory");
	cuda(cudaMalloc(&tokens, KEYS * sizeof(*tokens)), "memory");
	cuda(cudaMalloc(&pages, (size_t)KEYS * PAGE), "memory");
	cuda(cudaStreamCreate(&stream), "stream");
	pages_wrong(pages, 1, data);
	for (uint32_t n : sizes) {
		uint32_t reps = std::max(5u, std::min(500u, 8192u / n));
		double gpu_s, cpu_s;

		for (uint32_t rep = 0; rep <= reps; rep++) {
			if (rep == 1) {
				cuda(cudaStreamSynchronize(stream), "kernel");
				gpu_s = now();
			}
			fetch_batch<<<1, 32, 0, stream>>>(a, n, cmds, tokens, results);
			copy<<<128, 256, 0, stream>>>((uint4 *)window, (uint4 *)pages,
						      (uint64_t)n * PAGE / 16);
		}
		cuda(cudaStreamSynchronize(stream), "kernel");
		gpu_s = (now() - gpu_s) / reps;
		wrong += pages_wrong(pages, n, data);
		cpu_batch(host, n, pages, stream);
		cpu_s = now();
		for (uint32_t rep = 0; rep < reps; rep++)
			cpu_batch(host, n, pages, stream);
		cpu_s = (now() - cpu_s) / reps;
		wrong += pages_wrong(pages, n, data);
		printf("| %u values of 64 KiB to pages on the GPU | kernel: %.2f GB/s, %.0f us; "
		       "CPU and cudaMemcpyAsync: %.2f GB/s, %.0f us |\n", n,
		       n * (double)PAGE / gpu_s / 1e9, gpu_s * 1e6,
		       n * (double)PAGE / cpu_s / 1e9, cpu_s * 1e6);
	}
	return wrong;
}

int main(void)
{
	struct gkv_qp_opts o = {}, h = {};
	struct gkv_qp *qp, *host;
	std::vector<char> data;
	unsigned int wrong;
	struct at a = {};
	uint64_t seed;
	void *p;

	setvbuf(stdout, NULL, _IOLBF, 0);
	ns.size = sizeof(ns);
	o.size = h.size = sizeof(o);
	o.depth = h.depth = KEYS + 1;
	o.flags = GKV_QP_POLLED;
	if (getrandom(&run_id, 8, 0) != 8 || getrandom(&seed, 8, 0) != 8)
		die("no random data");
	if (gkv_gpu_open(GKV_GPU_CUDA, 0, &gpu) || gkv_connect(&g, NULL, 0, 0) ||
	    gkv_ns_open(g, NULL, 0, &ns) || gkv_mem_alloc(g, (size_t)KEYS * PAGE, &mem) ||
	    gkv_gpu_map(gpu, mem, &p) || gkv_qp_create(g, &h, &host) ||
	    gkv_qp_create(g, &o, &qp) || gkv_gpu_queue(gpu, qp, NULL, &a.q))
		die("cannot start");
	window = (char *)p;
	cuda(cudaMalloc(&bad, sizeof(*bad)), "memory");
	cuda(cudaMemset(bad, 0, sizeof(*bad)), "memory");
	a.run = run_id;
	a.iova = gkv_mem_iova(mem);
	a.nsid = ns.nsid;
	a.bad = bad;
	fill(host, data);
	printf("| what | result |\n|---|---|\n");
	check<<<CHECK_THREADS / 128, 128>>>(a, window, 20, seed);
	wrong = wrongs();
	printf("| %u threads, 20 fresh values each of up to 8 KiB | %u wrong |\n", CHECK_THREADS,
	       wrong);
	latency(a);
	scaling(a);
	wrong += batches(a, host, data);
	printf("| wrong in all | %u |\n", wrong + wrongs());
	wrong += wrongs();
	if (gkv_gpu_queue_free(gpu, qp) || gkv_qp_destroy(qp) || gkv_qp_destroy(host) ||
	    gkv_gpu_unmap(gpu, mem))
		die("cannot end");
	gkv_close(g);
	if (gkv_gpu_close(gpu))
		die("cannot close the GPU");
	return wrong != 0;
}
