/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 300 */
/*
 * Queue pairs: depth, batches, wraps, reset, identifiers, full completion queues.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rawclient.h"
#include "suite.h"

#define SECOND 1000000000ull

static uint64_t patience(void)
{
	return 20 * rig_slowdown() * SECOND;
}

/*
 * Keep @qp full with @total Exists of a key that is there and one that is not, by turns.
 * Every command must complete exactly once with the status that is its own.
 */
static bool run_full(struct suite *s, struct gkv_qp *qp, uint64_t total)
{
	struct suite_key there = suite_key("there"), missing = suite_key("missing");
	uint32_t room = gkv_qp_depth(qp) - 1;
	struct gkv_cmd *cmds = calloc(room, sizeof(*cmds));
	struct gkv_comp *comps = calloc(room, sizeof(*comps));
	uint8_t *seen = calloc(total, 1);
	uint64_t sent = 0, done = 0;
	bool ok = true;

	(void)s;
	while (ok && done < total) {
		uint32_t n = 0;
		int ret;

		while (n < gkv_qp_room(qp) && sent + n < total) {
			uint64_t id = sent + n;

			suite_cmd(&cmds[n], GKV_EXIST, SUITE_NSID_MAIN, id % 2 ? &missing : &there);
			cmds[n++].user_data = id;
		}
		ret = n ? gkv_submit(qp, cmds, n) : 0;
		if (ret != (int)n) {
			tap_diag("submission of %u returned %d: %s", n, ret, gkv_error());
			ok = false;
			break;
		}
		sent += n;
		ret = gkv_wait(qp, comps, room, patience());
		if (ret <= 0) {
			tap_diag("wait returned %d with %llu of %llu done: %s", ret,
				 (unsigned long long)done, (unsigned long long)total, gkv_error());
			ok = false;
		}
		for (int i = 0; i < ret; i++) {
			uint64_t id = comps[i].user_data;
			uint16_t want = id % 2 ? GKV_SC_KEY_NOT_FOUND : 0;

			if (id >= sent || seen[id]++ || code(comps[i].status) != want ||
			    comps[i].flags) {
				tap_diag("completion of %llu: status %x, flags %x",
					 (unsigned long long)id, comps[i].status, comps[i].flags);
				ok = false;
			}
			done++;
		}
	}
	ok = ok && done == total && gkv_qp_outstanding(qp) == 0 && gkv_poll(qp, comps, 1) == 0;
	free(cmds);
	free(comps);
	free(seen);
	return ok;
}

static void test_depths(struct suite *s)
{
	static const uint32_t depths[] = { 2, 3, 4, 63, 64, 65, 128, 255, 256, 257, 1023, 1024,
					   1025, SUITE_MAX_DEPTH };
	static const uint32_t modes[] = { 0, GKV_QP_POLLED };
	struct suite_key key = suite_key("there");

	suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 1, 0);
	for (size_t m = 0; m < 2; m++) {
		for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
			struct gkv_qp *qp = suite_qp(s, depths[i], modes[m], 1);
			uint64_t total = 3ull * depths[i] + 7;

			/* Small rings have a long way to a drift of the phase. */
			if (total < 500)
				total = 500;
			tap_ok(gkv_qp_depth(qp) == depths[i] && run_full(s, qp, total),
			       "%s: F9, F1, F20: depth %u%s: %llu submissions, as many completions",
			       s->store, depths[i], m ? ", polled" : "", (unsigned long long)total);
			gkv_qp_destroy(qp);
		}
	}
}

static void test_wraps(struct suite *s)
{
	struct gkv_qp *qp = suite_qp(s, 5, 0, 1);

	tap_ok(run_full(s, qp, 20000), "%s: F20: 4,000 wraps of a ring of 5", s->store);
	gkv_qp_destroy(qp);
}

static void test_limits(struct suite *s)
{
	struct gkv_qp_opts opts = { .size = sizeof(opts), .depth = SUITE_MAX_DEPTH + 1 };
	struct gkv_limits limits = { .size = sizeof(limits) };
	struct gkv_qp *qp = NULL;
	char text[16];
	bool ok;
	int ret;

	ok = gkv_limits(s->g, &limits) == 0 && limits.max_depth == SUITE_MAX_DEPTH;
	tap_ok(ok, "%s: F33: the limits are told", s->store);
	snprintf(text, sizeof(text), "%u", SUITE_MAX_DEPTH);
	ret = gkv_qp_create(s->g, &opts, &qp);
	ok = ret < 0 && strstr(gkv_error(), text);
	if (!tap_ok(ok, "%s: F13: a depth above the limit is refused, and the text names it",
		    s->store))
		tap_diag("%d: %s", ret, gkv_error());
	opts.depth = 70000;
	tap_ok(gkv_qp_create(s->g, &opts, &qp) < 0, "%s: F13: depth 70,000 is refused", s->store);
	opts.depth = 1;
	tap_ok(gkv_qp_create(s->g, &opts, &qp) < 0, "%s: F13: depth 1 is refused", s->store);
	opts.depth = SUITE_MAX_DEPTH;
	ok = gkv_qp_create(s->g, &opts, &qp) == 0;
	tap_ok(ok, "%s: F13: the limit itself is granted", s->store);
	if (ok)
		gkv_qp_destroy(qp);
}

static void test_batches(struct suite *s, uint32_t depth, uint32_t step)
{
	struct gkv_qp *qp = suite_qp(s, depth, 0, 1);
	struct gkv_cmd *cmds = calloc(depth, sizeof(*cmds));
	struct gkv_comp *comps = calloc(depth, sizeof(*comps));
	bool ok = true;

	for (uint32_t i = 0; i < depth && ok; i++) {
		struct suite_key key = suite_key("batch%u", i);

		pattern_fill(s->buf, 200, i);
		ok = suite_store(s, SUITE_NSID_MAIN, &key, s->buf, 200, 0) == 0;
	}
	for (uint32_t n = 1; n < depth && ok; n += step) {
		uint32_t done = 0;
		int ret;

		poison(s->buf, (size_t)depth * 256);
		for (uint32_t i = 0; i < n; i++) {
			struct suite_key key = suite_key("batch%u", i);

			suite_cmd(&cmds[i], GKV_RETRIEVE, SUITE_NSID_MAIN, &key);
			cmds[i].buf = s->buf + (size_t)i * 256;
			cmds[i].len = 256;
			cmds[i].user_data = i;
		}
		ok = gkv_submit(qp, cmds, n) == (int)n;
		while (ok && done < n) {
			ret = gkv_wait(qp, comps, depth, patience());
			ok = ret > 0;
			for (int i = 0; i < ret && ok; i++)
				ok = comps[i].status == 0 && comps[i].result == 200;
			done += ret > 0 ? (uint32_t)ret : 0;
		}
		for (uint32_t i = 0; i < n && ok; i++)
			ok = pattern_check(s->buf + (size_t)i * 256, 200, i) &&
			     poisoned(s->buf + (size_t)i * 256 + 200, 56);
		if (!ok)
			tap_diag("batch of %u: %u done", n, done);
	}
	tap_ok(ok, "%s: F31: batches of 1 to %u, all keys found", s->store, depth - 1);

	/* One more than there is room for: taken but one, and nothing blocks (F89). */
	for (uint32_t i = 0; i < depth; i++) {
		struct suite_key key = suite_key("batch%u", i);

		suite_cmd(&cmds[i], GKV_EXIST, SUITE_NSID_MAIN, &key);
	}
	if (ok) {
		int taken = gkv_submit(qp, cmds, depth), more = gkv_submit(qp, cmds, 1), got = 0;

		while (got < taken) {
			int ret = gkv_wait(qp, comps, depth, patience());

			if (ret <= 0)
				break;
			got += ret;
		}
		/* By the second call some may have completed, but none was reaped. */
		ok = taken == (int)depth - 1 && more == 0 && got == taken;
		tap_ok(ok, "%s: F89: a full queue pair takes no more and does not block", s->store);
	}
	free(cmds);
	free(comps);
	gkv_qp_destroy(qp);
}

static void test_idle_poll(struct suite *s)
{
	struct gkv_qp *qp = suite_qp(s, 2, 0, 1);
	struct gkv_comp comp;
	uint64_t t0 = rig_now();
	bool ok;

	ok = gkv_poll(qp, &comp, 1) == 0 && gkv_wait(qp, &comp, 1, 30 * SECOND) == 0 &&
	     rig_now() - t0 < 5 * SECOND;
	tap_ok(ok, "%s: F18: polling before anything was submitted returns at once", s->store);
	gkv_qp_destroy(qp);
}

static void test_reuse(struct suite *s)
{
	struct suite_key key = suite_key("there");
	struct gkv_qp *qp = suite_qp(s, 9, 0, 1);
	struct gkv_comp comps[9];
	struct gkv_cmd cmds[8];
	bool ok = true;

	for (int i = 0; i < 8; i++)
		suite_cmd(&cmds[i], GKV_EXIST, SUITE_NSID_MAIN, &key);
	/* At every place in the ring, with commands outstanding. */
	for (int i = 0; i < 40 && ok; i++) {
		ok = gkv_submit(qp, cmds, (uint32_t)(1 + i % 8)) == 1 + i % 8;
		ok = ok && gkv_qp_reset(qp) == 0;
		ok = ok && gkv_qp_outstanding(qp) == 0 && gkv_poll(qp, comps, 9) == 0;
		ok = ok && gkv_qp_room(qp) == 8;
		ok = ok && suite_run(qp, &cmds[0]).status == 0;
		ok = ok && run_full(s, qp, (uint64_t)(i % 20));
	}
	tap_ok(ok, "%s: F24: after a reset nothing of the old state survives", s->store);
	gkv_qp_destroy(qp);

	for (int i = 0; i < 30 && ok; i++) {
		qp = suite_qp(s, 2 + (uint32_t)i, i % 2 ? GKV_QP_POLLED : 0, 1);
		ok = gkv_poll(qp, comps, 9) == 0 && run_full(s, qp, 50);
		/* Torn down with commands outstanding, too. */
		ok = ok && gkv_submit(qp, cmds, 1) == 1;
		ok = gkv_qp_destroy(qp) == 0 && ok;
	}
	tap_ok(ok, "%s: F24, F109: queue pairs made and destroyed 30 times", s->store);
}

static void test_identifiers(struct suite *s)
{
	struct raw_qp qp, other;
	struct gkv_sqe sqe;
	struct raw raw;
	int ret = raw_open(&raw, s->rig.socket);
	uint32_t max;

	if (!tap_ok(ret == 0, "%s: a client without libgkv connects", s->store))
		return;
	max = le32toh(raw.limits.max_qid);
	const uint32_t bad[] = { 0, max + 1, 65535, 65536, 65537, UINT32_MAX };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ret = raw_qp_open(&raw, &qp, bad[i], 4, 0);
		if (!tap_ok(ret < 0 && ret != -EPIPE && raw.text[0],
			    "%s: F12: queue identifier %u is refused with a reason", s->store, bad[i]))
			tap_diag("%d: %s", ret, raw.text);
	}
	const uint32_t bad_depths[] = { 0, 1, SUITE_MAX_DEPTH + 1, 65536, 65537, UINT32_MAX };

	for (size_t i = 0; i < sizeof(bad_depths) / sizeof(bad_depths[0]); i++) {
		ret = raw_qp_open(&raw, &qp, 1, bad_depths[i], 0);
		if (!tap_ok(ret < 0 && ret != -EPIPE && raw.text[0],
			    "%s: F13: depth %u is refused with a reason", s->store, bad_depths[i]))
			tap_diag("%d: %s", ret, raw.text);
	}
	ret = raw_ns_open(&raw, SUITE_NSID_MAIN, 0);
	ret = ret ? ret : raw_qp_open(&raw, &qp, max, 4, 0);
	raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, "there", 5, 0);
	tap_ok(ret == 0 && raw_exec(&raw, &qp, &sqe, NULL) == 0,
	       "%s: F12: the highest identifier works", s->store);
	ret = raw_qp_open(&raw, &other, max, 4, 0);
	tap_ok(ret < 0 && ret != -EPIPE, "%s: F10: a queue identifier in use is refused", s->store);
	ret = raw_id(&raw, GKV_MSG_QP_DEL, max - 1);
	tap_ok(ret < 0 && ret != -EPIPE, "%s: F12: deleting a queue that is not there is refused",
	       s->store);
	ret = raw_id(&raw, GKV_MSG_QP_DEL, max);
	tap_ok(ret == 0, "%s: F109: the queue is deleted", s->store);
	raw_qp_free(&qp);
	ret = raw_qp_open(&raw, &qp, max, 8, 0);
	raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, "there", 5, 0);
	tap_ok(ret == 0 && raw_exec(&raw, &qp, &sqe, NULL) == 0,
	       "%s: F109: and its identifier can be used again", s->store);
	raw_close(&raw);
	raw_qp_free(&qp);
}

/* F1: a client that never moves its CQ head stalls itself alone. */
static void test_full_cq(struct suite *s)
{
	struct suite_key key = suite_key("there");
	struct raw_qp stuck, fine;
	struct gkv_cqe cqe;
	struct gkv_sqe sqe;
	unsigned int got = 0;
	struct raw raw;
	bool ok;

	if (raw_open(&raw, s->rig.socket) || raw_ns_open(&raw, SUITE_NSID_MAIN, 0) ||
	    raw_qp_open(&raw, &stuck, 1, 8, 0) || raw_qp_open(&raw, &fine, 2, 8, 0)) {
		tap_ok(false, "%s: F1: two queue pairs", s->store);
		tap_diag("%s", raw.text);
		return;
	}
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 7; i++) {
			raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, "there", 5, 0);
			raw_put(&stuck, &sqe);
		}
		raw_ring(&raw, &stuck);
		/* The first seven fill the CQ; of the second none may be posted. */
		while (raw_take(&raw, &stuck, &cqe, round ? 300 : 10000 * rig_slowdown(), false)) {
			if (++got == 7)
				break;
		}
	}
	tap_ok(got == 7 && !raw_take(&raw, &stuck, &cqe, 300, false),
	       "%s: F1: nothing is posted to a full completion queue", s->store);

	ok = suite_exist(s, SUITE_NSID_MAIN, &key) == 0;
	raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, "there", 5, 0);
	ok = ok && raw_exec(&raw, &fine, &sqe, NULL) == 0;
	tap_ok(ok, "%s: F1: others are served meanwhile, of the same session too", s->store);

	/* Move the head: the rest comes. */
	__atomic_store_n((volatile uint32_t *)(raw.doorbells +
					       GKV_CQ_HEAD_DB(1, le16toh(raw.limits.dstrd))),
			 htole32(stuck.head), __ATOMIC_RELEASE);
	while (got < 14 && raw_take(&raw, &stuck, &cqe, 10000 * rig_slowdown(), true))
		got++;
	tap_ok(got == 14, "%s: F1: and the rest comes once the head moves", s->store);
	raw_close(&raw);
	raw_qp_free(&stuck);
	raw_qp_free(&fine);
}

/* A tail out of the ring, or one that claims more than there is, stops that queue alone. */
static void test_wild_doorbells(struct suite *s)
{
	static const uint32_t wild[] = { 8, 9, 1000, 65535, 65536, UINT32_MAX };
	bool ok = true;

	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		struct suite_key key = suite_key("there");
		struct raw_qp qp, fine;
		struct gkv_cqe cqe;
		struct gkv_sqe sqe;
		struct raw raw;
		bool right;

		if (raw_open(&raw, s->rig.socket) || raw_ns_open(&raw, SUITE_NSID_MAIN, 0) ||
		    raw_qp_open(&raw, &qp, 1, 8, 0) || raw_qp_open(&raw, &fine, 2, 8, 0)) {
			tap_diag("%s", raw.text);
			ok = false;
			break;
		}
		raw_sqe(&raw, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, "there", 5, 0);
		raw_put(&qp, &sqe);
		qp.tail = wild[i];
		raw_ring(&raw, &qp);
		right = !raw_take(&raw, &qp, &cqe, 100, true);
		right = right && raw_exec(&raw, &fine, &sqe, NULL) == 0 &&
			suite_exist(s, SUITE_NSID_MAIN, &key) == 0;
		if (!right)
			tap_diag("tail %u", wild[i]);
		ok = ok && right;
		/* A reset makes a working queue of it again. */
		if (i == 0) {
			ok = ok && raw_id(&raw, GKV_MSG_QP_RESET, 1) == 0;
			qp.tail = qp.head = 0;
			qp.phase = 1;
			ok = ok && raw_exec(&raw, &qp, &sqe, NULL) == 0;
		}
		raw_close(&raw);
		raw_qp_free(&qp);
		raw_qp_free(&fine);
	}
	tap_ok(ok, "%s: F25: a wild tail stops its queue, and nothing else", s->store);
}

/* Many queue pairs busy at once: each gets on. */
static void test_many_queues(struct suite *s)
{
	enum { QPS = 32, EACH = 400 };
	struct suite_key key = suite_key("there");
	unsigned int done[QPS] = { 0 }, left = QPS;
	uint64_t end = rig_now() + patience();
	struct gkv_qp *qps[QPS];
	struct gkv_comp comps[16];
	struct gkv_cmd cmd;

	suite_cmd(&cmd, GKV_EXIST, SUITE_NSID_MAIN, &key);
	for (int i = 0; i < QPS; i++)
		qps[i] = suite_qp(s, 8, 0, 1);
	while (left && rig_now() < end) {
		for (int i = 0; i < QPS; i++) {
			int n;

			if (done[i] == EACH)
				continue;
			while (gkv_qp_room(qps[i]) &&
			       done[i] + gkv_qp_outstanding(qps[i]) < EACH &&
			       gkv_submit(qps[i], &cmd, 1) == 1)
				;
			n = gkv_poll(qps[i], comps, 16);
			for (int k = 0; k < n; k++) {
				if (comps[k].status == 0 && ++done[i] == EACH)
					left--;
			}
		}
	}
	tap_ok(left == 0, "%s: F15: 32 queue pairs of one thread all get on", s->store);
	for (int i = 0; i < QPS; i++)
		gkv_qp_destroy(qps[i]);
}

int main(void)
{
	const char *store;

	while ((store = suite_next_store())) {
		struct suite s;

		suite_start(&s, store, NULL);
		test_idle_poll(&s);
		test_limits(&s);
		test_depths(&s);
		test_wraps(&s);
		test_batches(&s, 64, 1);
		test_batches(&s, 1024, 73);
		test_reuse(&s);
		test_identifiers(&s);
		test_full_cq(&s);
		test_wild_doorbells(&s);
		test_many_queues(&s);
		suite_stop(&s);
	}
	return tap_done();
}
