/* SPDX-License-Identifier: MIT */
#include <gkv.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	struct gkv_comp done;
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv *g;

	if (gkv_connect(&g, NULL, 0, 0) || gkv_ns_open(g, NULL, 0, &ns) ||
	    gkv_mem_alloc(g, 4096, &mem) || gkv_qp_create(g, NULL, &qp))
		return fprintf(stderr, "%s\n", gkv_error()), 1;
	struct gkv_cmd cmd = { .opcode = GKV_STORE, .nsid = ns.nsid, .key = "greeting",
			       .key_len = 8, .buf = strcpy(gkv_mem_addr(mem), "hello"), .len = 6 };
	if (gkv_exec(qp, &cmd, &done) || done.status)
		return fprintf(stderr, "store: %s\n", gkv_status_name(done.status)), 1;
	memset(cmd.buf, 0, 4096);
	cmd.opcode = GKV_RETRIEVE;
	cmd.len = 4096;
	if (gkv_exec(qp, &cmd, &done) || done.status)
		return fprintf(stderr, "retrieve: %s\n", gkv_status_name(done.status)), 1;
	printf("%s, %u bytes\n", (char *)cmd.buf, done.result);
	gkv_close(g);
	return 0;
}
