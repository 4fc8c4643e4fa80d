/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include <stdlib.h>
#include <string.h>

#define FOREVER_NS	((uint64_t)1 << 50)

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void *zalloc(size_t n)
{
	void *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);

	assert_non_null(p);
	return memset(p, 0, n);
}

static uint64_t key_of(const struct ring *r, uint32_t id, uint32_t i)
{
	return (uint64_t)id * r->conf.each + i + 1;
}

static uint16_t status_of(uint64_t key)
{
	return mix(key) % 5 ? 0 : GKV_SC_KEY_NOT_FOUND | GKV_DNR;
}

struct gkv_dev_cmd ring_cmd(struct ring *r, uint32_t id, uint32_t i)
{
	uint64_t key = key_of(r, id, i);
	uint8_t klen = (uint8_t)(8 + key % 9);

	switch (key % 4) {
	case 0:
		return gkv_dev_exist(RING_NSID, key, mix(key), klen);
	case 1:
		return gkv_dev_delete(RING_NSID, key, mix(key), klen);
	default:
		return gkv_dev_retrieve(RING_NSID, key, mix(key), klen,
					(uint64_t)(uintptr_t)r->values[key - 1], RING_VALUE);
	}
}

/* What an entry must be, but for its identifier. */
static void check_entry(struct ring *r, const struct gkv_sqe *sqe, uint64_t key)
{
	struct gkv_dev_cmd c = ring_cmd(r, (uint32_t)((key - 1) / r->conf.each),
					(uint32_t)((key - 1) % r->conf.each));
	struct gkv_sqe want __attribute__((aligned(16)));

	/* Outside the simulation's memory: plain stores. */
	memset(&want, 0, sizeof(want));
	want.opcode = c.opcode;
	want.flags = (uint8_t)(c.data.psdt << GKV_SQE_PSDT_SHIFT);
	want.cid = sqe->cid;
	want.nsid = RING_NSID;
	memcpy(want.key_lo, &c.key_lo, 8);
	memcpy(&want.dptr, &c.data.lo, 8);
	memcpy((char *)&want.dptr + 8, &c.data.hi, 8);
	want.cdw10 = c.len;
	want.klen = c.key_len;
	memcpy(want.key_hi, &c.key_hi, c.key_len - 8u);
	if (memcmp(&want, sqe, sizeof(want)))
		sim_fail("the entry of command %llu is not what was submitted",
			 (unsigned long long)key);
}

static uint64_t key_in(struct ring *r, const struct gkv_sqe *sqe)
{
	uint64_t key;

	memcpy(&key, sqe->key_lo, 8);
	if (key && key <= (uint64_t)r->nlanes * r->conf.each)
		return key;
	sim_fail("an entry that was never written: key %#llx", (unsigned long long)key);
	return 0;
}

static uint64_t plan(void *ctx, const struct gkv_sqe *sqe)
{
	struct ring *r = ctx;
	uint64_t key = key_in(r, sqe), steps = sim_random(r->conf.delay);

	if (!key)
		return SIM_NEVER;
	check_entry(r, sqe, key);
	if (r->conf.never_every && !sim_random(r->conf.never_every))
		return SIM_NEVER;
	if (r->conf.late_every && !sim_random(r->conf.late_every))
		steps += r->conf.late_by;
	return steps;
}

static void exec(void *ctx, const struct gkv_sqe *sqe, struct sim_result *res)
{
	struct ring *r = ctx;
	uint64_t key = key_in(r, sqe);

	if (!key)
		return;
	if (++r->executed[key - 1] > 1)
		sim_fail("command %llu is executed again", (unsigned long long)key);
	res->status = status_of(key);
	res->dw0 = (uint32_t)mix(key + 1);
	res->dw1 = (uint32_t)mix(key + 2);
	if (sqe->opcode != GKV_OP_RETRIEVE || res->status)
		return;
	gkvd_st64_relaxed_sys(&r->values[key - 1][0], mix(key + 3));
	gkvd_st64_relaxed_sys(&r->values[key - 1][1], mix(key + 4));
}

void ring_result(struct ring *r, uint32_t id, uint32_t i, const struct gkv_dev_result *res)
{
	struct ring_lane *l = &r->lanes[id];
	uint64_t key = key_of(r, id, i), *value = r->values[key - 1];
	struct gkv_dev_cmd c = ring_cmd(r, id, i);

	sim_progress();
	r->ended[key - 1] = res->end;
	if (res->end == GKV_DEV_TIMEDOUT) {
		l->timedout++;
		return;
	}
	if (res->end != GKV_DEV_DONE) {
		l->other++;
		return;
	}
	l->done++;
	if (res->status != status_of(key) || res->len != (uint32_t)mix(key + 1) || res->has_crc) {
		sim_fail("command %llu has the result of another", (unsigned long long)key);
		l->wrong++;
	}
	if (c.opcode == GKV_OP_RETRIEVE && !res->status &&
	    (gkvd_ld64_relaxed_sys(&value[0]) != mix(key + 3) ||
	     gkvd_ld64_relaxed_sys(&value[1]) != mix(key + 4))) {
		sim_fail("the value of command %llu is not there", (unsigned long long)key);
		l->wrong++;
	}
}

/* ---- Kernels ---- */

void ring_exec_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;

	for (uint32_t i = 0; i < r->conf.each; i++) {
		struct gkv_dev_cmd c = ring_cmd(r, id, i);
		struct gkv_dev_result res;

		gkv_dev_exec(r->q, &c, 0, &res);
		ring_result(r, id, i, &res);
	}
}

static gkv_dev_token submit(struct ring *r, uint32_t id, uint32_t i)
{
	struct gkv_dev_cmd c = ring_cmd(r, id, i);
	gkv_dev_token t = gkv_dev_submit(r->q, &c);

	if (t == GKV_DEV_NONE)
		sim_fail("no room, where fewer lanes than entries have one command each");
	return t;
}

void ring_wait_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;

	for (uint32_t i = 0; i < r->conf.each; i++) {
		struct gkv_dev_result res;

		gkv_dev_wait(r->q, submit(r, id, i), 0, &res);
		ring_result(r, id, i, &res);
	}
}

void ring_poll_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;

	for (uint32_t i = 0; i < r->conf.each; i++) {
		gkv_dev_token t = submit(r, id, i);
		struct gkv_dev_result res;

		for (uint32_t k = 0; gkv_dev_poll(r->q, t, &res) == GKV_DEV_PENDING; k++)
			gkvd_spin(k);
		ring_result(r, id, i, &res);
		if (gkv_dev_poll(r->q, t, &res) != GKV_DEV_INVALID)
			sim_fail("a result is given twice");
	}
}

/* Commands of the lanes of the wavefront, in memory that they share. */
void ring_batch_kernel(void *arg, uint32_t id)
{
	struct ring *r = arg;
	uint32_t lanes = r->sim_conf.lanes, base = id / lanes * lanes;
	uint64_t mask = lanes == 64 ? ~(uint64_t)0 : ((uint64_t)1 << lanes) - 1;
	uint32_t n = lanes * r->conf.each, sent = 0, k;
	struct ring_batch *b = &r->batches[id / lanes];

	for (uint32_t i = id - base; i < n; i += lanes)
		b->cmds[i] = ring_cmd(r, base + i % lanes, i / lanes);
	gkvd_sync(mask);
	while (sent < n) {
		k = gkv_dev_submit_batch(r->q, mask, b->cmds + sent, n - sent, b->tokens);
		gkv_dev_wait_batch(r->q, mask, b->tokens, k, 0, b->results + sent);
		if (!k)
			gkvd_spin(0);
		sent += k;
	}
	for (uint32_t i = id - base; i < n; i += lanes)
		ring_result(r, base + i % lanes, i / lanes, &b->results[i]);
}

/* ---- The rig ---- */

static void set_up_queue(struct ring *r)
{
	struct gkv_dev_desc d = {
		.size = sizeof(d),
		.depth = r->conf.depth,
		.sq = r->sq,
		.cq = r->cq,
		.sq_db = &r->dbs[0],
		.cq_db = &r->dbs[1],
		.stopped = r->stopped,
		.ctl = r->ctl,
		.timeout_ns = r->conf.timeout ? r->conf.timeout : FOREVER_NS,
		.page = 4096,
		.ticks_per_us = 1000,
	};

	r->q = zalloc(gkv_dev_queue_size(r->conf.depth));
	assert_int_equal(gkv_dev_queue_init(r->q, &d), 0);
}

static void set_up_batches(struct ring *r)
{
	uint32_t n = r->sim_conf.lanes * r->conf.each;

	r->batches = zalloc(r->sim_conf.waves * sizeof(*r->batches));
	for (uint32_t w = 0; w < r->sim_conf.waves; w++) {
		r->batches[w].cmds = zalloc(n * sizeof(struct gkv_dev_cmd));
		r->batches[w].tokens = zalloc(n * sizeof(gkv_dev_token));
		r->batches[w].results = zalloc(n * sizeof(struct gkv_dev_result));
	}
}

struct ring *ring_new(struct sim_conf sim, struct ring_conf conf)
{
	struct ring *r = zalloc(sizeof(*r));
	struct sim_device_conf d;
	size_t n;

	if (!conf.delay)
		conf.delay = 500;
	if (!conf.down)
		conf.down = 5000;
	r->conf = conf;
	r->sim_conf = sim;
	r->nlanes = sim.waves * sim.lanes;
	n = (size_t)r->nlanes * conf.each;
	r->sq = zalloc(conf.depth * 64u);
	r->cq = zalloc(conf.depth * 16u);
	r->dbs = zalloc(8);
	r->stopped = zalloc(4);
	r->ctl = zalloc(sizeof(*r->ctl));
	r->lanes = zalloc(r->nlanes * sizeof(*r->lanes));
	r->values = zalloc(n * RING_VALUE);
	r->executed = zalloc(n);
	r->ended = zalloc(n);
	set_up_queue(r);
	set_up_batches(r);
	r->sim = sims_new(sim);
	d = (struct sim_device_conf){
		.sq = r->sq, .cq = r->cq, .sq_db = &r->dbs[0], .cq_db = &r->dbs[1],
		.depth = conf.depth, .qid = 3, .plan = plan, .exec = exec, .ctx = r,
		.stall_every = conf.stall_every, .stall_for = conf.down,
		.kill_every = conf.kill_every, .down_for = conf.down, .hold = &r->hold,
		.phase_first = conf.phase_first,
	};
	r->dev = sim_device_new(r->sim, &d);
	assert_non_null(r->dev);
	if (conf.watch) {
		sim_watch(r->sim, r->sq, conf.depth * 64u, "SQ");
		sim_watch(r->sim, r->cq, conf.depth * 16u, "CQ");
		sim_watch(r->sim, gkvd_slot(r->q, 0), (conf.depth - 1) * sizeof(struct gkvd_slot),
			  "slot");
	}
	return r;
}

void ring_run(struct ring *r, sim_kernel *fn)
{
	sims_run(r->sim, &r->sim_conf, fn, r);
	r->sim = NULL;
	ring_check(r);
}

void ring_check(struct ring *r)
{
	const struct sim_device_counts *n = sim_device_counts(r->dev);
	uint32_t free_slots = 0, done = 0, timedout = 0;

	for (uint32_t i = 0; i < r->nlanes; i++) {
		const struct ring_lane *l = &r->lanes[i];

		assert_int_equal(l->done + l->timedout + l->other, r->conf.each);
		assert_int_equal(l->wrong, 0);
		done += l->done;
		timedout += l->timedout;
	}
	for (uint32_t i = 0; i < r->nlanes * r->conf.each; i++) {
		if (r->ended[i] == GKV_DEV_DONE)
			assert_int_equal(r->executed[i], 1);
	}
	assert_int_equal(r->q->stats.bad_cid, 0);
	assert_int_equal(r->q->stats.timeouts, timedout);
	assert_int_equal(r->q->db_lock, 0);
	assert_int_equal(r->q->cq_lock, 0);
	assert_true(n->most <= r->conf.depth - 1);
	for (uint32_t i = 0; i < r->q->n_words; i++)
		free_slots += (uint32_t)__builtin_popcount(gkvd_free_bits(r->q)[i]);
	assert_int_equal(free_slots, r->q->credits);
	/* Given out, and neither ended with a result nor taken off the CQ since: in quarantine. */
	assert_int_equal(r->conf.depth - 1 - free_slots,
			 r->q->sq_next - done - r->q->stats.late);
}

void ring_free(struct ring *r)
{
	sim_free(r->sim);
	sim_device_free(r->dev);
	for (uint32_t w = 0; w < r->sim_conf.waves; w++) {
		free(r->batches[w].cmds);
		free(r->batches[w].tokens);
		free(r->batches[w].results);
	}
	free(r->batches);
	free(r->q);
	free(r->sq);
	free(r->cq);
	free(r->dbs);
	free(r->stopped);
	free(r->ctl);
	free(r->lanes);
	free(r->values);
	free(r->executed);
	free(r->ended);
	free(r);
}
