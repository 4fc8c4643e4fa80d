/* SPDX-License-Identifier: MIT */
/*
 * A client of libgkv on a fake daemon, for the tests of its queue pairs. Include after
 * cmocka.h, in one file of a program.
 */
#ifndef LIB_RIG_H
#define LIB_RIG_H

#include <stdint.h>
#include <time.h>

#include <gkv.h>

#include "fakedaemon.h"

#define MS 1000000ull

static struct fake fake;
static struct gkv *g;

static inline int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	return gkv_connect(&g, fake.path, 0, 0);
}

static inline int teardown(void **state)
{
	(void)state;
	gkv_close(g);
	fake_fini(&fake);
	return 0;
}

static inline uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* A queue pair of these options, whose size is filled in. */
static inline struct gkv_qp *queue_of(struct gkv_qp_opts o)
{
	struct gkv_qp *qp;

	o.size = sizeof(o);
	if (gkv_qp_create(g, &o, &qp))
		fail_msg("%s", gkv_error());
	return qp;
}

static inline struct gkv_qp_stats stats(struct gkv_qp *qp)
{
	struct gkv_qp_stats s = { .size = sizeof(s) };

	assert_int_equal(gkv_qp_stats(qp, &s), 0);
	return s;
}

static inline struct gkv_cmd exist(uint64_t user_data)
{
	struct gkv_cmd c = { .opcode = GKV_EXIST, .nsid = 1, .key_len = 3, .key = "key",
			     .user_data = user_data };

	return c;
}

/* Submit a command, and have the daemon take it: its identifier. */
static inline uint16_t submit(struct gkv_qp *qp, struct gkv_cmd c)
{
	struct gkv_sqe sqe;

	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, gkv_qp_id(qp), &sqe));
	return sqe.cid;
}

#endif
