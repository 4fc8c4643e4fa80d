/* SPDX-License-Identifier: MIT */
/* gkv_dev_copy(): every byte, none besides, wherever both ends begin; and it is counted. */
#include "sims.h"

#include <stdlib.h>
#include <string.h>

#include <gkv_device.h>

#define ROOM	4096u
#define WAVES	2u

struct copy {
	struct gkv_dev_queue *q;
	uint32_t lanes, to, from, len;
	uint8_t in[WAVES][ROOM] __attribute__((aligned(16)));
	uint8_t out[WAVES][ROOM] __attribute__((aligned(16)));
	uint64_t wrong;
};

static void kernel(void *arg, uint32_t id)
{
	struct copy *c = arg;
	uint32_t wave = id / c->lanes;
	uint64_t mask = c->lanes == 64 ? ~(uint64_t)0 : ((uint64_t)1 << c->lanes) - 1;

	gkv_dev_copy(c->q, mask, c->out[wave] + c->to, c->in[wave] + c->from, c->len);
	/* Each lane sees what the others have copied. */
	if (memcmp(c->out[wave] + c->to, c->in[wave] + c->from, c->len))
		__atomic_fetch_add(&c->wrong, 1, __ATOMIC_RELAXED);
}

static void one(bool lockstep, uint32_t lanes, uint32_t to, uint32_t from, uint32_t len)
{
	static struct copy c;
	uint64_t before = c.q ? c.q->stats.copied : 0;

	if (!c.q)
		c.q = calloc(1, sizeof(*c.q));
	assert_non_null(c.q);
	c.lanes = lanes;
	c.to = to;
	c.from = from;
	c.len = len;
	for (uint32_t w = 0; w < WAVES; w++) {
		for (uint32_t i = 0; i < ROOM; i++)
			c.in[w][i] = (uint8_t)(i * 7 + w + len);
		memset(c.out[w], 0xee, ROOM);
	}
	sims_good((struct sim_conf){ .waves = WAVES, .lanes = lanes, .lockstep = lockstep,
				     .seed = len + lanes }, kernel, &c);
	assert_int_equal(c.wrong, 0);
	for (uint32_t w = 0; w < WAVES; w++) {
		assert_memory_equal(c.out[w] + to, c.in[w] + from, len);
		for (uint32_t i = 0; i < ROOM; i++)
			assert_true((i >= to && i < to + len) || c.out[w][i] == 0xee);
	}
	assert_int_equal(c.q->stats.copied - before, (uint64_t)WAVES * len);
}

static void test_all(void **state)
{
	static const uint32_t lens[] = { 0, 1, 15, 16, 17, 63, 512, 1000, 3000 };
	static const uint32_t places[][2] = { { 0, 0 }, { 16, 32 }, { 1, 1 }, { 8, 0 }, { 3, 16 } };

	(void)state;
	for (uint32_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
		for (uint32_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
			one(true, 32, places[p][0], places[p][1], lens[l]);
			one(false, 4, places[p][0], places[p][1], lens[l]);
		}
		one(true, 64, 0, 0, lens[l]);
		one(true, 1, 0, 0, lens[l]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_all) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
