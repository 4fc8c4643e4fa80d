/* SPDX-License-Identifier: MIT */
/*
 * prefix.h in a CUDA kernel, one warp: values are fetched into host memory that the GPU has
 * mapped, and copied to the pages in its own memory.
 *	nvcc -o prefix prefix.cu -lgkv
 */
#include <cstdio>
#include <cstdlib>
#include <gkv.h>

#include "prefix.h"

#define PAGE_LEN	65536u

/* The keys are made here; a program has them from the hashes of its tokens. */
__global__ void keys_of(uint64_t prompt, uint64_t *keys, uint32_t *table, uint32_t n)
{
	for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
		keys[2 * i] = prompt;
		keys[2 * i + 1] = i;
		table[i] = n - 1 - i;
	}
}

__global__ void store(struct gkv_dev_queue *q, struct prefix p, char *window, uint32_t n,
		      uint32_t *failed)
{
	uint32_t b = threadIdx.x;
	struct gkv_dev_result r;
	struct gkv_dev_cmd c;

	for (; b < n; b += blockDim.x) {
		for (uint32_t i = 0; i < p.page_len; i++)
			window[(uint64_t)p.table[b] * p.page_len + i] = (char)(b + i / 256);
		c = gkv_dev_store(p.nsid, p.keys[2 * b], p.keys[2 * b + 1], 16,
				  p.pages + (uint64_t)p.table[b] * p.page_len, p.page_len);
		if (gkv_dev_exec(q, &c, 0, &r) != GKV_DEV_DONE || r.status)
			atomicAdd(failed, 1);
	}
}

__global__ void fetch(struct gkv_dev_queue *q, struct prefix p, const char *window, char *pages,
		      uint32_t *got)
{
	uint32_t n = prefix_fetch(q, 0xffffffff, &p);

	for (uint32_t b = 0; b < n; b++) {
		uint64_t at = (uint64_t)p.table[b] * p.page_len;

		for (uint32_t i = threadIdx.x * 16; i < p.page_len; i += 32 * 16)
			*(uint4 *)(pages + at + i) = *(const uint4 *)(window + at + i);
	}
	if (!threadIdx.x)
		*got = n;
}

template <typename T> static T *device(size_t n)
{
	void *p = NULL;

	if (cudaMalloc(&p, n * sizeof(T)) || cudaMemset(p, 0, n * sizeof(T))) {
		fprintf(stderr, "no memory on the GPU\n");
		exit(1);
	}
	return (T *)p;
}

int main(int argc, char **argv)
{
	uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 200;
	uint32_t stored = argc > 2 ? (uint32_t)atoi(argv[2]) : 150;
	struct gkv_ns_info ns = {};
	struct gkv_qp_opts o = {};
	struct prefix p = {};
	struct gkv_dev_queue *q;
	struct gkv_mem *mem;
	struct gkv_gpu *gpu;
	struct gkv_qp *qp;
	struct gkv *g;
	uint32_t out[2];
	void *window;

	ns.size = sizeof(ns);
	o.size = sizeof(o);
	o.flags = GKV_QP_POLLED;
	stored = stored < n ? stored : n;
	if (!n || gkv_gpu_open(GKV_GPU_CUDA, 0, &gpu) || gkv_connect(&g, NULL, 0, 0) ||
	    gkv_ns_open(g, NULL, 0, &ns) || gkv_mem_alloc(g, (size_t)n * PAGE_LEN, &mem) ||
	    gkv_gpu_map(gpu, mem, &window) || gkv_qp_create(g, &o, &qp) ||
	    gkv_gpu_queue(gpu, qp, NULL, &q)) {
		fprintf(stderr, "%s\n", gkv_error());
		return 1;
	}
	uint64_t *keys = device<uint64_t>(2 * n);
	uint32_t *table = device<uint32_t>(n), *result = device<uint32_t>(2);
	char *pages = device<char>((size_t)n * PAGE_LEN);

	p.nsid = ns.nsid;
	p.n_blocks = n;
	p.page_len = PAGE_LEN;
	p.keys = keys;
	p.table = table;
	p.pages = gkv_mem_iova(mem);
	p.cmds = device<struct gkv_dev_cmd>(n);
	p.tokens = device<gkv_dev_token>(n);
	p.results = device<struct gkv_dev_result>(n);
	keys_of<<<1, 256>>>((uint64_t)(uintptr_t)g, keys, table, n);
	store<<<1, 32>>>(q, p, (char *)window, stored, result);
	fetch<<<1, 32>>>(q, p, (const char *)window, pages, result + 1);
	if (cudaMemcpy(out, result, sizeof(out), cudaMemcpyDeviceToHost)) {
		fprintf(stderr, "%s\n", cudaGetErrorString(cudaGetLastError()));
		return 1;
	}
	printf("%u of %u blocks before the first miss, %u tokens; %u stores failed\n", out[1], n,
	       out[1] * 256, out[0]);
	gkv_gpu_queue_free(gpu, qp);
	gkv_qp_destroy(qp);
	gkv_gpu_unmap(gpu, mem);
	gkv_close(g);
	gkv_gpu_close(gpu);
	return out[0] || out[1] != stored;
}
