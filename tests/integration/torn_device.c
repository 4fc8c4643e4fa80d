/* SPDX-License-Identifier: MIT */
/*
 * What torn_client.c does, with the device's reader: threads on one queue pair take each other's
 * completions off the CQ, and compare the length in each (DW0) with the one stored, and the
 * value's ends with what is there by then. Run by test_torn_cqe.py.
 *
 * Arguments: socket, completions, seconds. Exit status 0 when so many completions were
 * right, 3 when one had the result of an older one, 1 when neither came within the time.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gkv_device.h>

#include "gkv.h"
#include "rig.h"

#define SEC	1000000000ull
#define LANES	3u
#define EACH	2u		/* commands that a lane has under way */
#define DEPTH	8u		/* the ring goes round all the time */
#define KEYS	64u
#define VALUE	4096u
#define TORN	10u		/* enough */

enum { EX_WHOLE, EX_TROUBLE, EX_BADUSE, EX_TORN };

struct reader {
	struct gkv_dev_queue *q;
	uint8_t *buf;		/* LANES * EACH values */
	uint64_t want, until;
	uint64_t done, torn, wrong;	/* of all lanes */
};

struct lane {
	struct reader *r;
	uint32_t id;
};

/* Lengths that no two neighbours of a queue share. */
static uint32_t len_of(uint32_t key)
{
	return 100 + key * 7;
}

static uint64_t count(uint64_t *n)
{
	return __atomic_add_fetch(n, 1, __ATOMIC_RELAXED);
}

static uint64_t counted(const uint64_t *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static bool go_on(const struct reader *r)
{
	return counted(&r->done) < r->want && counted(&r->torn) < TORN && !counted(&r->wrong) &&
	       rig_now() < r->until;
}

/* Values end as they begin, with their key. */
static void fill(uint8_t *to, uint32_t key)
{
	memset(to, 0, VALUE);
	memcpy(to, &key, sizeof(key));
	memcpy(to + len_of(key) - sizeof(key), &key, sizeof(key));
}

static bool filled(const uint8_t *from, uint32_t key)
{
	return !memcmp(from, &key, sizeof(key)) &&
	       !memcmp(from + len_of(key) - sizeof(key), &key, sizeof(key));
}

static void judge(struct reader *r, const struct gkv_dev_result *res, const uint8_t *in,
		  uint32_t key)
{
	if (res->end != GKV_DEV_DONE || res->status) {
		if (count(&r->wrong) == 1)
			fprintf(stderr, "end %u, status %#x\n", res->end, res->status);
		return;
	}
	count(&r->done);
	if (res->len != len_of(key))
		count(&r->torn);
	else if (!filled(in, key) && count(&r->wrong) == 1)
		fprintf(stderr, "key %u: the value is not there\n", key);
}

static void *lane_main(void *arg)
{
	struct lane *l = arg;
	struct reader *r = l->r;
	uint32_t next = l->id * 17;

	while (go_on(r)) {
		gkv_dev_token t[EACH];
		uint32_t keys[EACH];

		for (uint32_t i = 0; i < EACH; i++) {
			uint8_t *in = r->buf + (l->id * EACH + i) * VALUE;
			struct gkv_dev_cmd c;

			keys[i] = next++ % KEYS;
			memset(in, 0xff, len_of(keys[i]));
			c = gkv_dev_retrieve(1, keys[i], 0, 8, (uintptr_t)in, VALUE);
			t[i] = gkv_dev_submit(r->q, &c);
		}
		for (uint32_t i = 0; i < EACH; i++) {
			struct gkv_dev_result res;

			gkv_dev_wait(r->q, t[i], 0, &res);
			judge(r, &res, r->buf + (l->id * EACH + i) * VALUE, keys[i]);
		}
	}
	return NULL;
}

static void store(struct reader *r)
{
	for (uint32_t key = 0; key < KEYS; key++) {
		struct gkv_dev_result res;
		struct gkv_dev_cmd c;

		fill(r->buf, key);
		c = gkv_dev_store(1, key, 0, 8, (uintptr_t)r->buf, len_of(key));
		if (gkv_dev_exec(r->q, &c, 0, &res) != GKV_DEV_DONE || res.status) {
			fprintf(stderr, "cannot store: end %u, status %#x\n", res.end, res.status);
			exit(EX_TROUBLE);
		}
	}
}

static void run(struct reader *r)
{
	struct lane lanes[LANES];
	pthread_t t[LANES];

	for (uint32_t i = 0; i < LANES; i++) {
		lanes[i] = (struct lane){ r, i };
		if (pthread_create(&t[i], NULL, lane_main, &lanes[i]))
			exit(EX_TROUBLE);
	}
	for (uint32_t i = 0; i < LANES; i++)
		pthread_join(t[i], NULL);
}

int main(int argc, char **argv)
{
	struct gkv_qp_opts qo = { .size = sizeof(qo), .depth = DEPTH, .flags = GKV_QP_POLLED };
	struct gkv_dev_desc d = { .size = sizeof(d) };
	struct reader r = { 0 };
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv *g;
	bool trouble;

	if (argc != 4)
		return EX_BADUSE;
	if (gkv_connect(&g, argv[1], 1, 0) || gkv_ns_open(g, "main", 0, NULL) ||
	    gkv_mem_alloc(g, LANES * EACH * VALUE, &mem) || gkv_qp_create(g, &qo, &qp) ||
	    gkv_qp_device(qp, &d)) {
		fprintf(stderr, "set-up: %s\n", gkv_error());
		return EX_TROUBLE;
	}
	r.q = aligned_alloc(GKVD_LINE, gkv_dev_queue_size(DEPTH));
	if (!r.q || gkv_dev_queue_init(r.q, &d))
		return EX_TROUBLE;
	r.buf = gkv_mem_addr(mem);
	store(&r);
	r.want = strtoull(argv[2], NULL, 10);
	r.until = rig_now() + strtoull(argv[3], NULL, 10) * SEC;
	run(&r);
	printf("%" PRIu64 " completions, %" PRIu64 " torn, %u of unknown identifier\n", r.done,
	       r.torn, r.q->stats.bad_cid);
	trouble = r.wrong || r.q->stats.bad_cid || (!r.torn && r.done < r.want);
	gkv_close(g);
	free(r.q);
	return trouble ? EX_TROUBLE : r.torn ? EX_TORN : EX_WHOLE;
}
