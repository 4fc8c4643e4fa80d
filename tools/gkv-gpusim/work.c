/* SPDX-License-Identifier: MIT */
#include "work.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Keys under way at a time: of a lane one, of a wavefront that goes together a batch. */
static uint32_t keys(const struct work *w)
{
	return w->sim.waves * (w->batch ? w->batch : w->sim.lanes);
}

/* Of what a key needs, each begins a page: the values out and in, a List's, entries of PRPs. */
static size_t value_room(const struct work *w)
{
	return ((size_t)w->value + w->offset + WORK_PAGE - 1) / WORK_PAGE * WORK_PAGE;
}

static size_t prp_room(const struct work *w)
{
	/* An entry for each page, one more for each page of entries, and some. */
	size_t entries = value_room(w) / WORK_PAGE;

	return w->prp ? (entries * 8 / (WORK_PAGE - 8) + 1) * WORK_PAGE : 0;
}

static size_t stride(const struct work *w)
{
	return 2 * value_room(w) + LIST_BYTES + prp_room(w);
}

size_t work_mem(const struct work *w)
{
	return keys(w) * stride(w);
}

static uint8_t *buffer(const struct work *w, uint32_t key)
{
	return w->mem + key * stride(w);
}

static uint8_t *out(const struct work *w, uint32_t key)
{
	return buffer(w, key) + w->offset;
}

static uint8_t *in(const struct work *w, uint32_t key)
{
	return out(w, key) + value_room(w);
}

static uint8_t *list(const struct work *w, uint32_t key)
{
	return buffer(w, key) + 2 * value_room(w);
}

/* How commands call it. */
static uint64_t iova(const struct work *w, const uint8_t *p)
{
	return w->iova + (uint64_t)(p - w->mem);
}

/* Key number @key in round @round: what follows from it. */
static uint64_t key_lo(const struct work *w, uint32_t key)
{
	return mix(w->seed) << 32 | key;
}

static uint64_t key_hi(const struct work *w, uint32_t round)
{
	return mix(w->seed + 1) << 32 | round;
}

/* Now and then none at all, or the longest. */
static uint32_t length(const struct work *w, uint32_t key, uint32_t round)
{
	switch ((key + round) % 8) {
	case 0:	return w->value;
	case 1:	return 0;
	default: return (uint32_t)(mix(key_lo(w, key) + round * 31) % ((uint64_t)w->value + 1));
	}
}

static void fill(const struct work *w, uint8_t *to, uint32_t key, uint32_t round)
{
	uint64_t x = mix(key_lo(w, key) ^ key_hi(w, round));
	uint32_t len = length(w, key, round);

	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t word = mix(x + i / 8);

		memcpy(to + i, &word, len - i < 8 ? len - i : 8);
	}
}

static bool same(const struct work *w, const uint8_t *got, uint32_t key, uint32_t round)
{
	uint64_t x = mix(key_lo(w, key) ^ key_hi(w, round));
	uint32_t len = length(w, key, round);

	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t word = mix(x + i / 8);

		if (memcmp(got + i, &word, len - i < 8 ? len - i : 8))
			return false;
	}
	return true;
}

/* The steps of a round, one command for each key. */
enum step { STORE, RETRIEVE, EXIST, LIST, DELETE, GONE, NSTEPS };

static const char *const step_names[NSTEPS] = {
	"store", "retrieve", "exist", "list", "delete", "retrieve of a deleted key",
};

/* This lane alone. */
static uint64_t self(void)
{
	return (uint64_t)1 << gkvd_lane();
}

/* Where @c's value is, with PRPs if they are asked for. */
static struct gkv_dev_cmd placed(struct work *w, struct gkv_dev_cmd c, uint32_t key,
				 const uint8_t *at)
{
	uint8_t *entries = list(w, key) + LIST_BYTES;

	if (w->prp && c.len)
		c.data = gkv_dev_prp(w->q, iova(w, at), c.len, (uint64_t *)(void *)entries,
				     iova(w, entries));
	return c;
}

static struct gkv_dev_cmd command(struct work *w, enum step step, uint32_t key, uint32_t round)
{
	uint64_t lo = key_lo(w, key), hi = key_hi(w, round);
	struct gkv_dev_cmd c;
	uint8_t *at;

	switch (step) {
	case STORE:
		at = out(w, key);
		fill(w, at, key, round);
		c = gkv_dev_store(w->nsid, lo, hi, 16, iova(w, at), length(w, key, round));
		if (w->q->flags & GKV_DEV_CSUM)
			c.crc = gkv_dev_crc32c(w->q, self(), at, c.len);
		return placed(w, c, key, at);
	case LIST:
		at = list(w, key);
		return placed(w, gkv_dev_list(w->nsid, lo, hi, 16, iova(w, at), LIST_BYTES), key,
			      at);
	case DELETE:
		return gkv_dev_delete(w->nsid, lo, hi, 16);
	case EXIST:
		return gkv_dev_exist(w->nsid, lo, hi, 16);
	default:
		at = in(w, key);
		memset(at, 0xa5, w->value);
		return placed(w, gkv_dev_retrieve(w->nsid, lo, hi, 16, iova(w, at), w->value), key,
			      at);
	}
}

/* The first key of a list that begins at a key which exists is that key. */
static bool listed(const struct work *w, uint32_t key, uint32_t round)
{
	const uint8_t *got = list(w, key);
	uint64_t k[2] = { key_lo(w, key), key_hi(w, round) };
	struct gkv_list_entry e;
	uint32_t n;

	memcpy(&n, got, sizeof(n));
	memcpy(&e, got + GKV_LIST_HDR_SIZE, sizeof(e));
	return n && e.klen == 16 &&
	       !memcmp(got + GKV_LIST_HDR_SIZE + offsetof(struct gkv_list_entry, key), k, 16);
}

static void count(uint64_t *n, uint64_t by)
{
	__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
}

/* The queue is at its end, or its memory is gone. */
static bool over(const struct gkv_dev_result *r)
{
	return r->end == GKV_DEV_STOPPED || r->end == GKV_DEV_LOST || r->end == GKV_DEV_FULL ||
	       (r->end == GKV_DEV_DONE && GKV_STATUS_CODE(r->status) == GKV_SC_DATA_TRANSFER);
}

/* Returns whether the command has to be done again: a daemon died with it half done. */
static bool check(struct work *w, enum step step, uint32_t key, uint32_t round,
		  const struct gkv_dev_result *r)
{
	uint16_t want = step == GONE ? GKV_SC_KEY_NOT_FOUND : GKV_SC_SUCCESS;
	uint32_t len = length(w, key, round);

	sim_progress();
	if (w->may_stop && over(r)) {
		if (!__atomic_fetch_add(&w->stopped, 1, __ATOMIC_RELAXED))
			w->stop = *r;
		w->ended = 1;
		return false;
	}
	if (r->end != GKV_DEV_DONE) {
		sim_fail("%s of key %u, round %u: ended with %u", step_names[step], key, round,
			 r->end);
		return false;
	}
	if (GKV_STATUS_CODE(r->status) == GKV_SC_TRANSIENT) {
		count(&w->retries, 1);
		return true;
	}
	if (GKV_STATUS_CODE(r->status) != want)
		sim_fail("%s of key %u, round %u: status %#x", step_names[step], key, round,
			 r->status);
	else if (step == RETRIEVE && (r->len != len || !same(w, in(w, key), key, round)))
		sim_fail("retrieve of key %u, round %u: not the value stored", key, round);
	else if (step == RETRIEVE && w->q->flags & GKV_DEV_CSUM &&
		 gkv_dev_verify(w->q, self(), in(w, key), w->value, r) != 1)
		sim_fail("retrieve of key %u, round %u: no checksum of the value", key, round);
	else if (step == LIST && !listed(w, key, round))
		sim_fail("list from key %u, round %u: not there", key, round);
	count(step == STORE ? &w->stores : step == EXIST ? &w->exists : step == LIST ? &w->lists :
	      step == DELETE ? &w->deletes : &w->retrieves, 1);
	if (step == STORE || step == RETRIEVE)
		count(&w->bytes, len);
	return false;
}

static bool stopped(struct work *w)
{
	return __atomic_load_n(&w->stopped, __ATOMIC_RELAXED);
}

static void lane_round(struct work *w, uint32_t id, uint32_t round)
{
	/* Behind a Store that came to nothing there is nothing to be found. */
	for (enum step step = STORE; step < NSTEPS && !sim_failed() && !stopped(w); step++) {
		struct gkv_dev_result r;
		struct gkv_dev_cmd c;

		do {
			c = command(w, step, id, round);
			gkv_dev_exec(w->q, &c, w->timeout_ns, &r);
		} while (check(w, step, id, round, &r) && !sim_failed() && !stopped(w));
	}
}

/* Whether any lane of @mask says so. */
static bool any(uint64_t mask, bool says)
{
	return gkvd_ballot(mask, says);
}

/*
 * No room: whether there will be, as one lane sees it. Else the rest of the batch, from @from on,
 * has ended.
 */
static bool room_comes(struct work *w, uint64_t mask, struct batch *b, uint32_t from,
		       struct gkvd_deadline *d, uint32_t turn)
{
	uint32_t end = 0, rank = gkvd_rank(mask);

	if (!rank)
		end = gkvd_expired(w->q, d, turn);
	end = (uint32_t)gkvd_shfl(mask, end, gkvd_first(mask));
	/* Of a run that has failed no lane waits for another. */
	if (end == GKV_DEV_PENDING && !sim_failed()) {
		gkvd_spin(turn);
		return true;
	}
	for (uint32_t i = from; i < w->batch; i++) {
		if (i % w->sim.lanes == rank)
			b->results[i] = (struct gkv_dev_result){ .end = end };
	}
	return false;
}

static void batch_step(struct work *w, uint32_t wave, uint64_t mask, enum step step,
		       uint32_t round)
{
	struct gkvd_deadline d = gkvd_deadline(w->q, w->timeout_ns);
	uint32_t first = wave * w->batch, n = w->batch, sent = 0, turn = 0, k;
	uint32_t rank = gkvd_rank(mask), lanes = w->sim.lanes;
	struct batch *b = &w->batches[wave];
	bool again;

	for (uint32_t i = rank; i < n; i += lanes)
		b->cmds[i] = command(w, step, first + i, round);
	gkvd_sync(mask);
	while (sent < n) {
		k = gkv_dev_submit_batch(w->q, mask, b->cmds + sent, n - sent, b->tokens + sent);
		gkv_dev_wait_batch(w->q, mask, b->tokens + sent, k, w->timeout_ns,
				   b->results + sent);
		sent += k;
		if (k)
			d = gkvd_deadline(w->q, w->timeout_ns);
		else if (!room_comes(w, mask, b, sent, &d, turn++))
			break;
	}
	/* What has to be done again is done one by one. */
	for (uint32_t i = rank; i < n; i += lanes) {
		struct gkv_dev_result r = b->results[i];

		for (again = check(w, step, first + i, round, &r);
		     again && !sim_failed() && !stopped(w);
		     again = check(w, step, first + i, round, &r))
			gkv_dev_exec(w->q, &b->cmds[i], w->timeout_ns, &r);
	}
	gkvd_sync(mask);
}

/* Whether there is a round number @i. */
static bool more(const struct work *w, uint32_t i)
{
	return (i < w->rounds || w->go_on()) && !w->ended && !sim_failed();
}

void work_kernel(void *arg, uint32_t id)
{
	struct work *w = arg;
	uint32_t lanes = w->sim.lanes;
	uint64_t all = lanes == 64 ? ~(uint64_t)0 : ((uint64_t)1 << lanes) - 1;

	if (!w->batch) {
		for (uint32_t i = 0; more(w, i); i++)
			lane_round(w, id, i);
		return;
	}
	/* All lanes leave together, or those that stay would wait for the others. */
	for (uint32_t i = 0; any(all, more(w, i)); i++) {
		for (enum step step = STORE; step < NSTEPS && !any(all, stopped(w)); step++)
			batch_step(w, id / lanes, all, step, i);
	}
}

int work_begin(struct work *w)
{
	w->batches = calloc(w->sim.waves, sizeof(*w->batches));
	if (!w->batches)
		return -1;
	for (uint32_t i = 0; w->batch && i < w->sim.waves; i++) {
		struct batch *b = &w->batches[i];

		b->cmds = calloc(w->batch, sizeof(*b->cmds));
		b->tokens = calloc(w->batch, sizeof(*b->tokens));
		b->results = calloc(w->batch, sizeof(*b->results));
		if (!b->cmds || !b->tokens || !b->results)
			return -1;
	}
	return 0;
}

void work_end(struct work *w)
{
	for (uint32_t i = 0; w->batches && i < w->sim.waves; i++) {
		free(w->batches[i].cmds);
		free(w->batches[i].tokens);
		free(w->batches[i].results);
	}
	free(w->batches);
}
