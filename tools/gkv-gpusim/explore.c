/* SPDX-License-Identifier: MIT */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_priv.h"

struct explore_trail {
	uint32_t at, n;		/* what was chosen, of how many */
	uint64_t state;		/* that was not seen before, or 0 */
};

struct explore_state {
	uint64_t hash;
	uint32_t left;		/* interruptions */
	bool open;		/* of the run under way */
};

static struct explore_state *find(struct explore *e, uint64_t hash)
{
	uint64_t i = hash & (e->size - 1);

	while (e->known[i].hash && e->known[i].hash != hash)
		i = (i + 1) & (e->size - 1);
	return &e->known[i];
}

static void grow(struct explore *e)
{
	struct explore_state *known = e->known;
	uint64_t size = e->size;

	e->size = size ? size * 2 : 4096;
	e->known = calloc(e->size, sizeof(*e->known));
	if (!e->known)
		abort();
	for (uint64_t i = 0; i < size; i++) {
		if (known[i].hash)
			*find(e, known[i].hash) = known[i];
	}
	free(known);
}

/* Whether this state was seen with @left interruptions or more left; it has been now. */
static bool seen(struct explore *e, uint64_t hash, uint32_t left)
{
	struct explore_state *s;

	if (e->nknown * 2 >= e->size)
		grow(e);
	s = find(e, hash);
	if (s->hash && s->left >= left) {
		if (s->open && s->left == left)
			sim_fail("livelock: this state was there before in this run");
		return true;
	}
	e->nknown += !s->hash;
	*s = (struct explore_state){ hash, left, true };
	return false;
}

static void add(struct explore *e, uint32_t n, uint64_t state)
{
	if (e->len == e->room) {
		e->room = e->room ? e->room * 2 : 1024;
		e->trail = realloc(e->trail, e->room * sizeof(*e->trail));
		if (!e->trail)
			abort();
	}
	e->trail[e->len++] = (struct explore_trail){ 0, n, state };
}

uint32_t explore_choose(void *ctx, const struct sim_choice *c)
{
	struct explore *e = ctx;
	bool who = c->kind == SIM_WHO;
	uint32_t n = who && e->used == e->interrupts ? c->free : c->n, pick;

	if (e->at == e->len) {
		uint64_t state = who && !e->every_run ? sim_state() : 0;

		state += who && !e->every_run && !state;
		if (state && seen(e, state, e->interrupts - e->used))
			return SIM_ENOUGH;
		add(e, n, state);
	} else if (e->trail[e->at].n != n) {
		sim_fail("not the same once more: %u choices, not %u", n, e->trail[e->at].n);
		return SIM_ENOUGH;
	}
	pick = e->trail[e->at++].at;
	e->used += who && pick >= c->free;
	return pick;
}

static int run(struct explore *e, const struct explore_subject *on)
{
	on->prepare(on->arg);
	sim_again(on->sim);
	e->at = e->used = 0;
	return sim_run(on->sim, on->kernel, on->arg);
}

/* What was chosen, where it was not the first. */
static void tell_trail(const struct explore *e, char *to, size_t room)
{
	size_t len = (size_t)snprintf(to, room, "\n  chosen of run %llu:",
				      (unsigned long long)e->runs);

	for (uint32_t i = 0; i < e->len && len < room; i++) {
		if (e->trail[i].at)
			len += (size_t)snprintf(to + len, room - len, " %u:%u", i, e->trail[i].at);
	}
}

static int judge(struct explore *e, const struct explore_subject *on, int failed)
{
	const char *wrong = failed ? sim_report(on->sim) : NULL;
	size_t len;

	if (!failed && !sim_cut(on->sim))
		wrong = on->check(on->arg);
	if (!wrong)
		return 0;
	len = (size_t)snprintf(e->why, sizeof(e->why) / 2, "%s", wrong);
	len = len < sizeof(e->why) / 2 ? len : sizeof(e->why) / 2 - 1;
	tell_trail(e, e->why + len, sizeof(e->why) - len);
	return -1;
}

int explore_run(struct explore *e, const struct explore_subject *on)
{
	uint64_t runs = 0, before = e->states;

	/* Another subject's states are others. */
	explore_end(e);
	e->whole = false;
	e->why[0] = 0;
	do {
		int failed = run(e, on);

		e->runs++;
		e->steps += sim_steps(on->sim);
		e->cut += sim_cut(on->sim);
		e->states = before + e->nknown;
		if (judge(e, on, failed))
			return -1;
		while (e->len && ++e->trail[e->len - 1].at == e->trail[e->len - 1].n) {
			e->len--;
			if (e->trail[e->len].state)
				find(e, e->trail[e->len].state)->open = false;
		}
	} while (e->len && (!e->max_runs || ++runs < e->max_runs));
	e->whole = !e->len;
	return 0;
}

void explore_show(struct explore *e, const struct explore_subject *on)
{
	on->sim->conf.trace = true;
	run(e, on);
	on->sim->conf.trace = false;
}

void explore_end(struct explore *e)
{
	free(e->trail);
	free(e->known);
	e->trail = NULL;
	e->known = NULL;
	e->len = e->room = 0;
	e->nknown = e->size = 0;
}
