/* SPDX-License-Identifier: MIT */
/*
 * A kernel of one thread stores a value and fetches it again.
 *	hipcc -o hello hello.hip -lgkv
 */
#include <hip/hip_runtime.h>
#include <cstdio>
#include <gkv.h>
#include <gkv_device.h>

/* Key "greeting", first byte lowest. */
#define KEY	0x676e697465657267ull

__global__ void hello(struct gkv_dev_queue *q, uint32_t nsid, uint64_t iova, char *buf,
		      struct gkv_dev_result *r)
{
	const char text[] = "hello from the GPU";
	struct gkv_dev_cmd c = gkv_dev_store(nsid, KEY, 0, 8, iova, sizeof(text));

	for (uint32_t i = 0; i < sizeof(text); i++)
		buf[i] = text[i];
	if (gkv_dev_exec(q, &c, 0, &r[0]) != GKV_DEV_DONE || r[0].status)
		return;
	c = gkv_dev_retrieve(nsid, KEY, 0, 8, iova + 4096, 4096);
	gkv_dev_exec(q, &c, 0, &r[1]);
}

int main(void)
{
	struct gkv_dev_result r[2] = {}, *dev_r;
	struct gkv_ns_info ns = {};
	struct gkv_qp_opts o = {};
	struct gkv_dev_queue *q;
	struct gkv_mem *mem;
	struct gkv_gpu *gpu;
	struct gkv_qp *qp;
	struct gkv *g;
	void *buf;

	ns.size = sizeof(ns);
	o.size = sizeof(o);
	o.flags = GKV_QP_POLLED;
	if (gkv_gpu_open(GKV_GPU_HIP, 0, &gpu) || gkv_connect(&g, NULL, 0, 0) ||
	    gkv_ns_open(g, NULL, 0, &ns) || gkv_mem_alloc(g, 8192, &mem) ||
	    gkv_gpu_map(gpu, mem, &buf) || gkv_qp_create(g, &o, &qp) ||
	    gkv_gpu_queue(gpu, qp, NULL, &q)) {
		fprintf(stderr, "%s\n", gkv_error());
		return 1;
	}
	if (hipMalloc((void **)&dev_r, sizeof(r)) || hipMemset(dev_r, 0, sizeof(r)))
		return 1;
	hello<<<1, 1>>>(q, ns.nsid, gkv_mem_iova(mem), (char *)buf, dev_r);
	if (hipMemcpy(r, dev_r, sizeof(r), hipMemcpyDeviceToHost)) {
		fprintf(stderr, "the kernel failed\n");
		return 1;
	}
	if (r[1].end == GKV_DEV_DONE && !r[1].status)
		printf("%s, %u bytes\n", (char *)gkv_mem_addr(mem) + 4096, r[1].len);
	else
		fprintf(stderr, "store: %u, %s; retrieve: %u, %s\n", r[0].end,
			gkv_status_name(r[0].status), r[1].end, gkv_status_name(r[1].status));
	gkv_gpu_queue_free(gpu, qp);
	gkv_qp_destroy(qp);
	gkv_gpu_unmap(gpu, mem);
	gkv_close(g);
	gkv_gpu_close(gpu);
	return r[1].end != GKV_DEV_DONE || r[1].status;
}
