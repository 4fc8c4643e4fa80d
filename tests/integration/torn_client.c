/* SPDX-License-Identifier: MIT */
/*
 * Retrieves values of many lengths and compares the length in each completion (DW0) with
 * the one stored; run by test_torn_cqe.py. Arguments: socket, seconds. Exit status 0 when
 * every completion was right, 3 when one had the result of an older one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "suite.h"

#define SEC 1000000000ull
#define NKEYS 64u
#define BUSY 6u

/* Lengths that no two neighbours of a queue share. */
static uint32_t len_of(unsigned int i)
{
	return 100 + i * 7;
}

static void retrieve(struct gkv_cmd *cmd, unsigned int i, uint8_t *buf)
{
	struct suite_key key = suite_key("torn-%u", i % NKEYS);

	suite_cmd(cmd, GKV_RETRIEVE, 1, &key);
	/* The length is what counts; the bytes go to one place. */
	cmd->buf = buf;
	cmd->len = 4096;
	cmd->user_data = i % NKEYS;
}

int main(int argc, char **argv)
{
	struct gkv_qp_opts qo = { .size = sizeof(qo), .depth = 8 };
	unsigned long long n = 0, torn = 0;
	struct gkv_comp comps[BUSY];
	unsigned int next = 0;
	struct gkv_mem *mem;
	struct gkv_cmd cmd;
	struct gkv_qp *qp;
	uint8_t *buf;
	struct gkv *g;
	uint64_t end;

	if (argc < 3 || gkv_connect(&g, argv[1], 1, 0) || gkv_ns_open(g, "main", 0, NULL) ||
	    gkv_mem_alloc(g, 8192, &mem) || gkv_qp_create(g, &qo, &qp)) {
		fprintf(stderr, "set-up: %s\n", gkv_error());
		return 1;
	}
	buf = gkv_mem_addr(mem);
	for (unsigned int i = 0; i < NKEYS; i++) {
		struct suite_key key = suite_key("torn-%u", i);

		suite_cmd(&cmd, GKV_STORE, 1, &key);
		cmd.buf = buf;
		cmd.len = len_of(i);
		if (suite_run(qp, &cmd).status) {
			fprintf(stderr, "cannot store\n");
			return 1;
		}
	}
	end = rig_now() + strtoull(argv[2], NULL, 10) * SEC;
	while (rig_now() < end && torn < 10) {
		int got;

		while (gkv_qp_outstanding(qp) < BUSY) {
			retrieve(&cmd, next++, buf);
			if (gkv_submit(qp, &cmd, 1) != 1)
				break;
		}
		got = gkv_poll(qp, comps, BUSY);
		for (int i = 0; i < got; i++) {
			n++;
			if (comps[i].status) {
				fprintf(stderr, "status %#x\n", comps[i].status);
				return 1;
			}
			if (comps[i].result != len_of((unsigned int)comps[i].user_data))
				torn++;
		}
	}
	printf("%llu completions, %llu torn\n", n, torn);
	gkv_close(g);
	return torn ? 3 : n ? 0 : 1;
}
