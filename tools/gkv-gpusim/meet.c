/* SPDX-License-Identifier: MIT */
/* Collectives: what the lanes of a mask exchange once all of them have come. */
#include "sim_priv.h"

void meet_complete(struct wave *w, uint64_t mask)
{
	uint64_t ballot = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		if (mask >> i & 1 && w->lanes[i].meet.value)
			ballot |= (uint64_t)1 << i;
	}
	for (uint32_t i = 0; i < w->n; i++) {
		struct meet *m = &w->lanes[i].meet;

		if (!(mask >> i & 1))
			continue;
		if (m->kind == MEET_BALLOT)
			m->result = ballot;
		else if (m->kind == MEET_SHFL)
			m->result = w->lanes[m->src].meet.value;
	}
}

bool meet_all(const struct lane *l)
{
	const struct wave *w = l->wave;

	for (uint64_t rest = l->meet.mask; rest; rest &= rest - 1) {
		const struct lane *o = &w->lanes[__builtin_ctzll(rest)];

		if (o->state != LANE_MEET || o->meet.mask != l->meet.mask ||
		    o->meet.kind != l->meet.kind)
			return false;
	}
	return true;
}

const char *meet_wrong(const struct lane *l)
{
	const struct wave *w = l->wave;
	const struct meet *m = &l->meet;

	if (!(m->mask >> l->idx & 1))
		return "a lane is in a collective of a mask without it";
	if (w->n < 64 && m->mask >> w->n)
		return "a collective's mask names lanes that do not exist";
	if (m->kind == MEET_SHFL && (m->src >= w->n || !(m->mask >> m->src & 1)))
		return "gkvd_shfl() from a lane that is not in the mask";
	if (m->mask & w->in[LANE_DONE])
		return "a collective waits for a lane that has ended";
	for (uint32_t i = 0; i < w->n; i++) {
		const struct lane *o = &w->lanes[i];

		if (o == l || o->state != LANE_MEET)
			continue;
		/* One waits for the other, which waits for it, but elsewhere. */
		if (m->mask >> o->idx & 1 && o->meet.mask >> l->idx & 1 &&
		    (m->mask != o->meet.mask || m->kind != o->meet.kind))
			return "two lanes wait for each other in different collectives";
	}
	return NULL;
}
