/* SPDX-License-Identifier: MIT */
/*
 * The daemon's stand-in notices each way in which device code can break the protocol, and tests
 * on it notice a daemon that does: or they would prove nothing.
 */
#include "ring.h"

#include <string.h>

#define DEPTH 4u

struct queue {
	uint64_t sq[DEPTH * 8] __attribute__((aligned(64)));
	uint32_t cq[DEPTH * 4] __attribute__((aligned(64)));
	uint32_t sq_db, cq_db;
};

static void put(struct queue *q, uint32_t slot, uint16_t cid)
{
	/* Opcode Exist, so that it is not all zero. */
	gkvd_put16(&q->sq[slot * 8], GKV_OP_EXIST | (uint32_t)cid << 16, cid * 7);
}

static void await(struct queue *q, uint32_t slot)
{
	while (!(gkvd_ld32_acquire_sys(&q->cq[slot * 4 + 3]) >> 16 & 1))
		gkvd_spin(0);
}

static void linger(void)
{
	for (uint32_t i = 0; i < 5000; i++)
		gkvd_spin(i);
}

static void good(void *arg, uint32_t id)
{
	struct queue *q = arg;

	(void)id;
	for (uint32_t i = 0; i < 3; i++) {
		put(q, i, (uint16_t)i);
		gkvd_st32_release_sys(&q->sq_db, i + 1);
		await(q, i);
		gkvd_st32_release_sys(&q->cq_db, i + 1);
	}
}

static void beyond_depth(void *arg, uint32_t id)
{
	(void)id;
	gkvd_st32_release_sys(&((struct queue *)arg)->sq_db, DEPTH);
	linger();
}

/* Two are outstanding and not answered; then three more. */
static void too_many(void *arg, uint32_t id)
{
	struct queue *q = arg;

	(void)id;
	for (uint32_t i = 0; i < 4; i++)
		put(q, i, (uint16_t)(0x100 + i));
	gkvd_st32_release_sys(&q->sq_db, 2);
	linger();
	gkvd_st32_release_sys(&q->sq_db, 1);
	linger();
}

static void same_id(void *arg, uint32_t id)
{
	struct queue *q = arg;

	(void)id;
	put(q, 0, 0x105);
	put(q, 1, 0x105);
	gkvd_st32_release_sys(&q->sq_db, 2);
	linger();
}

/* A doorbell that goes back when all is answered: old entries come again. */
static void back(void *arg, uint32_t id)
{
	struct queue *q = arg;

	(void)id;
	for (uint32_t i = 0; i < DEPTH; i++) {
		put(q, i, (uint16_t)i);
		gkvd_st32_release_sys(&q->sq_db, (i + 1) % DEPTH);
		await(q, i);
		gkvd_st32_release_sys(&q->cq_db, (i + 1) % DEPTH);
	}
	gkvd_st32_release_sys(&q->sq_db, DEPTH - 1);
	linger();
}

static void head_beyond(void *arg, uint32_t id)
{
	struct queue *q = arg;

	(void)id;
	gkvd_st32_release_sys(&q->cq_db, 2);
	put(q, 0, 0);
	gkvd_st32_release_sys(&q->sq_db, 1);
	linger();
}

/* Only the lower ones are answered. */
static uint64_t plan(void *ctx, const struct gkv_sqe *sqe)
{
	(void)ctx;
	return sqe->cid < 0x100 ? sim_random(100) : SIM_NEVER;
}

static void exec(void *ctx, const struct gkv_sqe *sqe, struct sim_result *res)
{
	(void)ctx;
	(void)sqe;
	res->status = GKV_SC_SUCCESS;
}

static bool noticed(sim_kernel *fn, uint64_t seed, const char *part)
{
	struct queue q;
	struct sim *s = sims_new((struct sim_conf){ .waves = 1, .lanes = 1, .lockstep = true,
						    .seed = seed });
	struct sim_device_conf c = { .sq = q.sq, .cq = q.cq, .sq_db = &q.sq_db,
				     .cq_db = &q.cq_db, .depth = DEPTH, .plan = plan,
				     .exec = exec };
	struct sim_device *d;
	bool failed;

	memset(&q, 0, sizeof(q));
	d = sim_device_new(s, &c);
	assert_non_null(d);
	failed = sims_fails(s, fn, &q, part);
	sim_device_free(d);
	return failed;
}

static void test_violations(void **state)
{
	static const struct {
		sim_kernel *fn;
		const char *part;
	} bad[] = {
		{ beyond_depth, "tail 4 claims" },
		{ too_many, "claims" },
		{ same_id, "outstanding already" },
		{ back, "is fetched twice" },
		{ head_beyond, "beyond what was posted" },
	};

	(void)state;
	for (uint64_t seed = 0; seed < SIMS_RUNS(10); seed++) {
		assert_false(noticed(good, seed, ""));
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			assert_true(noticed(bad[i].fn, seed, bad[i].part));
	}
}

/* ---- Torn completions ---- */

static bool torn(bool phase_first, bool weak, uint64_t seed)
{
	struct sim_conf sim = { .waves = 2, .lanes = 4, .lockstep = true, .weak = weak,
				.seed = seed, .policy = (enum sim_policy)(seed % SIM_NPOLICIES) };
	struct ring *r = ring_new(sim, (struct ring_conf){ .depth = 16, .each = 8,
							   .phase_first = phase_first });
	bool failed;

	failed = sim_run(r->sim, ring_exec_kernel, r);
	ring_free(r);
	return failed;
}

/* Device code that reads a completion sees all of it, if the daemon stores its parts in order. */
static void test_torn(void **state)
{
	unsigned int caught = 0;

	(void)state;
	for (uint64_t seed = 0; seed < SIMS_RUNS(30); seed++) {
		for (int weak = 0; weak < 2; weak++) {
			assert_false(torn(false, weak, seed));
			caught += torn(true, weak, seed);
		}
	}
	assert_true(caught > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_violations),
		cmocka_unit_test(test_torn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
