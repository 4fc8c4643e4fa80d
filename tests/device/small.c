/* SPDX-License-Identifier: MIT */
#include "small.h"

#include <string.h>

#include "small_daemon.h"

#define NSID		7u

/* ---- Commands and results ---- */

static struct small *self(void *arg)
{
	return arg;
}

static uint32_t key_of(const struct small *s, uint32_t id, uint32_t i)
{
	return id * s->scene->each + i + 1;
}

static struct gkv_dev_cmd command(uint32_t key)
{
	return gkv_dev_exist(NSID, key, 0, 8);
}

static void result(struct small *s, uint32_t id, uint32_t key, const struct gkv_dev_result *r)
{
	uint8_t *end = &s->ended[key - 1];

	if (*end)
		sim_fail("command %u ends twice: with %u, then %u", key, *end, r->end);
	*end = r->end;
	if (r->end == GKV_DEV_DONE &&
	    (r->len != small_dw0(key) || r->status != small_status(key)))
		sim_fail("command %u has the result of another", key);
	if (r->end == GKV_DEV_DONE && s->executed[key - 1] != 1)
		sim_fail("command %u is done and was executed %u times", key,
			 s->executed[key - 1]);
	s->past[id] = s->past[id] << 8 | key << 4 | r->end;
	sim_forget(s->past[id]);
}

/* ---- Kernels ---- */

static void exec_kernel(void *arg, uint32_t id)
{
	struct small *s = self(arg);

	for (uint32_t i = 0; i < s->scene->each; i++) {
		struct gkv_dev_cmd c = command(key_of(s, id, i));
		struct gkv_dev_result r;

		gkv_dev_exec(s->q, &c, 0, &r);
		result(s, id, key_of(s, id, i), &r);
	}
}

static gkv_dev_token submit(struct small *s, uint32_t key)
{
	struct gkv_dev_cmd c = command(key);
	gkv_dev_token t;

	while ((t = gkv_dev_submit(s->q, &c)) == GKV_DEV_NONE)
		gkvd_spin(0);
	return t;
}

static void wait_kernel(void *arg, uint32_t id)
{
	struct small *s = self(arg);

	for (uint32_t i = 0; i < s->scene->each; i++) {
		uint32_t key = key_of(s, id, i);
		gkv_dev_token t = submit(s, key);
		struct gkv_dev_result r;

		gkv_dev_wait(s->q, t, 0, &r);
		result(s, id, key, &r);
		if (gkv_dev_poll(s->q, t, &r) != GKV_DEV_INVALID)
			sim_fail("command %u: a second result", key);
	}
}

static void poll_kernel(void *arg, uint32_t id)
{
	struct small *s = self(arg);

	for (uint32_t i = 0; i < s->scene->each; i++) {
		uint32_t key = key_of(s, id, i);
		gkv_dev_token t = submit(s, key);
		struct gkv_dev_result r;

		while (gkv_dev_poll(s->q, t, &r) == GKV_DEV_PENDING)
			gkvd_spin(0);
		result(s, id, key, &r);
	}
}

/* A lane whose time was up goes on when its command is settled, if it ever is. */
static void settle_kernel(void *arg, uint32_t id)
{
	struct small *s = self(arg);

	for (uint32_t i = 0; i < s->scene->each; i++) {
		uint32_t key = key_of(s, id, i);
		gkv_dev_token t = submit(s, key);
		struct gkv_dev_result r;

		gkv_dev_wait(s->q, t, 0, &r);
		result(s, id, key, &r);
		if (r.end != GKV_DEV_TIMEDOUT)
			continue;
		if (s->mistakes.no_quarantine)
			gkvd_slot_free(s->q, (uint32_t)t, (uint32_t)(t >> 32));
		if (gkv_dev_poll(s->q, t, &r) == GKV_DEV_DONE)
			sim_fail("command %u: a result after the timeout", key);
		while (!gkv_dev_settled(s->q, t))
			gkvd_spin(0);
		if (!s->mistakes.no_quarantine && !s->answered[key - 1])
			sim_fail("command %u is settled, and was not answered", key);
	}
}

/* gkv_dev_wait(), with a look at what the host says in each turn. */
static void look_kernel(void *arg, uint32_t id)
{
	struct small *s = self(arg);

	for (uint32_t i = 0; i < s->scene->each; i++) {
		uint32_t key = key_of(s, id, i), end;
		struct gkvd_deadline d = gkvd_deadline(s->q, 0);
		gkv_dev_token t = submit(s, key);
		struct gkv_dev_result r;

		while (gkvd_take(s->q, t, &r) == GKV_DEV_PENDING) {
			gkvd_reap(s->q, gkvd_active());
			end = gkvd_expired(s->q, &d, GKVD_CTL_TURNS - 1);
			if (end != GKV_DEV_PENDING)
				gkvd_end(s->q, t, end, &r);
			if (r.end != GKV_DEV_PENDING)
				break;
			gkvd_spin(0);
		}
		result(s, id, key, &r);
	}
}

/* The commands of all lanes of a wavefront together, as many at a time as there is room for. */
static void batch_kernel(void *arg, uint32_t id)
{
	struct small *s = self(arg);
	uint32_t lanes = s->scene->lanes, n = lanes * s->scene->each, wave = id / lanes;
	uint64_t mask = ((uint64_t)1 << lanes) - 1;
	struct small_batch *b = &s->batches[wave];
	uint32_t sent = 0, k;

	for (uint32_t i = id % lanes; i < n; i += lanes)
		b->cmds[i] = command(wave * n + i + 1);
	gkvd_sync(mask);
	while (sent < n) {
		k = gkv_dev_submit_batch(s->q, mask, b->cmds + sent, n - sent, b->tokens);
		gkv_dev_wait_batch(s->q, mask, b->tokens, k, 0, b->results + sent);
		if (!k)
			gkvd_spin(0);
		sent += k;
	}
	for (uint32_t i = id % lanes; i < n; i += lanes)
		result(s, id, wave * n + i + 1, &b->results[i]);
}

/* ---- What happens beside them ---- */

static void time_agent(void *arg, uint32_t id)
{
	struct small *s = self(arg);

	(void)id;
	for (uint32_t i = 1; i <= s->scene->deadlines; i++) {
		if (i > 1)
			sim_step();
		sim_set_clock(i * 2 * SMALL_TIMEOUT);
	}
}

static void host_agent(void *arg, uint32_t id)
{
	(void)id;
	gkvd_st32_release_sys(&self(arg)->ctl.lost, 1);
}

/* ---- Before and after a run ---- */

static void init_queue(struct small *s)
{
	struct gkv_dev_desc d = {
		.size = sizeof(d), .depth = s->scene->depth, .sq = s->sq, .cq = s->cq,
		.sq_db = &s->sq_db, .cq_db = &s->cq_db, .ctl = &s->ctl, .timeout_ns = SMALL_TIMEOUT,
		.page = 4096, .ticks_per_us = 1000,
	};

	assert_true(gkv_dev_queue_size(d.depth) <= sizeof(s->image));
	assert_int_equal(gkv_dev_queue_init(s->image, &d), 0);
	s->q = (struct gkv_dev_queue *)(void *)s->image;
	s->q->credits += s->mistakes.credits;
	for (uint32_t i = 0; i < s->mistakes.credits; i++)
		gkvd_free_bits(s->q)[0] |= 1u << (d.depth - 1 + i);
	memcpy(s->pristine, s->image, s->q->crc_off);
}

static void prepare(void *arg)
{
	struct small *s = self(arg);

	memcpy(s->image, s->pristine, ((struct gkv_dev_queue *)(void *)s->pristine)->crc_off);
	memset(s->sq, 0, sizeof(s->sq));
	memset(s->cq, 0, sizeof(s->cq));
	s->sq_db = s->cq_db = 0;
	memset(&s->ctl, 0, sizeof(s->ctl));
	memset(s->executed, 0, sizeof(s->executed));
	memset(s->answered, 0, sizeof(s->answered));
	memset(s->ended, 0, sizeof(s->ended));
	memset(s->past, 0, sizeof(s->past));
	small_daemon_begin(s);
}

static const char *check_ends(struct small *s, uint32_t *quarantined)
{
	uint32_t n[GKV_DEV_FULL + 1] = { 0 };

	for (uint32_t i = 0; i < s->scene->waves * s->scene->lanes * s->scene->each; i++) {
		uint32_t end = s->ended[i];

		n[end]++;
		s->ends |= 1u << end;
		if (end == GKV_DEV_FULL && s->executed[i])
			return "a command that was never submitted was executed";
		if (end == GKV_DEV_LOST && !s->ctl.lost)
			return "lost, with a daemon that is there";
	}
	if (n[GKV_DEV_PENDING] || n[GKV_DEV_INVALID] || n[GKV_DEV_STOPPED])
		return "a command without an end, or with a wrong one";
	if ((n[GKV_DEV_TIMEDOUT] || n[GKV_DEV_FULL]) && !s->scene->deadlines)
		return "a timeout where no deadline has passed";
	if (s->q->stats.timeouts != n[GKV_DEV_TIMEDOUT])
		return "timeouts are not counted right";
	*quarantined = n[GKV_DEV_TIMEDOUT] + n[GKV_DEV_LOST] - s->q->stats.late;
	return NULL;
}

/* The queue is whole: what is not in quarantine is free, and rings and doorbells agree. */
static const char *check(void *arg)
{
	struct small *s = self(arg);
	struct gkv_dev_queue *q = s->q;
	uint32_t quarantined = 0, slots = 0, states = 0;
	const char *wrong = check_ends(s, &quarantined);

	if (wrong)
		return wrong;
	for (uint32_t i = 0; i < q->depth - 1; i++) {
		uint32_t state = GKVD_STATE(gkvd_slot(q, i)->state);

		slots += gkvd_free_bits(q)[0] >> i & 1;
		states += state == GKVD_QUARANTINED;
		if (state == GKVD_BUSY || state == GKVD_DONE)
			return "a slot is in use, and nobody uses it";
		if ((state == GKVD_FREE) != (gkvd_free_bits(q)[0] >> i & 1))
			return "a slot's state and its bit differ";
	}
	if (states != quarantined || slots != q->depth - 1 - quarantined || q->credits != slots)
		return "slots or credits are lost";
	for (uint32_t i = 0; i < q->depth; i++) {
		if (gkvd_runs(q)[i])
			return "a run is marked that no doorbell was rung for";
	}
	if (q->db_lock || q->cq_lock)
		return "a lock is held";
	if (q->sq_tail != s->sq_db || q->sq_tail != gkvd_ring_slot(q, q->sq_next))
		return "the doorbell is not where the entries end";
	if ((q->cq_head & ~GKVD_PHASE) != s->cq_db)
		return "the CQ's doorbell is not where its reader is";
	if (q->stats.bad_cid)
		return "a completion of no command";
	return NULL;
}

/* ---- All runs ---- */

struct small_result small_run(const struct small_scene *scene, uint32_t interrupts,
			      const struct small_mistakes *mistakes, uint64_t max_runs, bool show)
{
	static struct small s __attribute__((aligned(GKVD_LINE)));
	struct small_result res = { .e = { .interrupts = interrupts, .max_runs = max_runs } };
	struct explore_subject on = { .kernel = scene->kernel, .arg = &s, .prepare = prepare,
				      .check = check };

	memset(&s, 0, sizeof(s));
	s.scene = scene;
	if (mistakes)
		s.mistakes = *mistakes;
	init_queue(&s);
	on.sim = sims_new((struct sim_conf){
		.waves = scene->waves, .lanes = scene->lanes, .lockstep = true,
		.choose = explore_choose, .choose_ctx = &res.e, .max_steps = 20000,
		.kept = &s.ctl, .kept_len = sizeof(s.ctl),
	});
	assert_int_equal(sim_agent(on.sim, small_daemon, &s, "daemon"), 0);
	if (scene->deadlines)
		assert_int_equal(sim_agent(on.sim, time_agent, &s, "clock"), 0);
	if (scene->lost)
		assert_int_equal(sim_agent(on.sim, host_agent, &s, "host"), 0);
	res.failed = explore_run(&res.e, &on);
	if (res.failed && show)
		explore_show(&res.e, &on);
	res.ends = s.ends;
	explore_end(&res.e);
	sim_free(on.sim);
	return res;
}

#define DONE	(1u << GKV_DEV_DONE)
#define TIMEDOUT (1u << GKV_DEV_TIMEDOUT)
#define LOST	(1u << GKV_DEV_LOST)
#define FULL	(1u << GKV_DEV_FULL)

const struct small_scene small_scenes[] = {
	{ "exec, depth 2", 2, 1, 2, 2, exec_kernel, .quick = true, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "exec, depth 3", 2, 1, 3, 1, exec_kernel, .quick = true, .interrupts = 2,
	  .floor = 5000, .must = DONE },
	{ "exec, depth 2, one wavefront", 1, 2, 2, 1, exec_kernel, .quick = true, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "submit and poll, depth 2", 2, 1, 2, 2, poll_kernel, .quick = true, .interrupts = 2,
	  .floor = 5000, .must = DONE },
	{ "batch, depth 2, one wavefront", 1, 2, 2, 1, batch_kernel, .quick = true,
	  .interrupts = 2, .floor = 5000, .must = DONE },
	{ "a deadline, depth 2", 2, 1, 2, 2, settle_kernel, .deadlines = 1, .quick = true,
	  .interrupts = 1, .floor = 5000, .must = DONE | TIMEDOUT },
	{ "no room in time, depth 2", 2, 1, 2, 1, exec_kernel, .deadlines = 1, .quick = true,
	  .interrupts = 1, .floor = 5000, .must = DONE | TIMEDOUT | FULL },
	{ "a restart, depth 2", 2, 1, 2, 1, exec_kernel, .deaths = 1, .quick = true,
	  .interrupts = 1, .floor = 2000, .must = DONE },
	{ "two restarts, one lane", 1, 1, 2, 1, exec_kernel, .deaths = 2, .quick = true,
	  .interrupts = 3, .floor = 5000, .must = DONE },
	{ "exec, depth 3, more commands", 2, 1, 3, 2, exec_kernel, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "exec, depth 2, three lanes", 3, 1, 2, 1, exec_kernel, .interrupts = 0,
	  .floor = 1000, .must = DONE },
	{ "exec, depth 3, three lanes", 3, 1, 3, 1, exec_kernel, .interrupts = 0,
	  .floor = 5000, .must = DONE },
	{ "exec, depth 3, one wavefront", 1, 2, 3, 1, exec_kernel, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "submit and wait, depth 3", 2, 1, 3, 1, wait_kernel, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "submit and wait, depth 3, one wavefront", 1, 2, 3, 1, wait_kernel, .interrupts = 0,
	  .floor = 5000, .must = DONE },
	{ "batch, depth 3, one wavefront", 1, 2, 3, 1, batch_kernel, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "batches, depth 3", 2, 1, 3, 3, batch_kernel, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "a deadline, depth 3", 2, 1, 3, 1, settle_kernel, .deadlines = 1, .interrupts = 1,
	  .floor = 5000, .must = DONE | TIMEDOUT },
	{ "no answer, depth 3", 2, 1, 3, 1, exec_kernel, .deadlines = 1, .never = 1,
	  .interrupts = 0, .floor = 500, .must = DONE | TIMEDOUT },
	{ "a restart, depth 3", 2, 1, 3, 1, exec_kernel, .deaths = 1, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "two restarts, depth 2", 2, 1, 2, 1, exec_kernel, .deaths = 2, .interrupts = 1,
	  .floor = 5000, .must = DONE },
	{ "no daemon any more, depth 3", 2, 1, 3, 1, look_kernel, .lost = true, .interrupts = 1,
	  .floor = 5000, .must = DONE | LOST },
};
_Static_assert(sizeof(small_scenes) / sizeof(small_scenes[0]) == SMALL_NSCENES,
	       "SMALL_NSCENES is their number");
