/* SPDX-License-Identifier: MIT */
/*
 * A long value is read and verified for a client whose queue pair goes away in the middle:
 * removed, reset, or hung up on. Nobody waits for the value any more, but it is as good as
 * before: nothing may be logged or counted as damaged, and everything ends cleanly.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rawclient.h"
#include "suite.h"

#define LEN	(16u << 20)
#define IOVA	0x10000000ull
#define ROUNDS	36u	/* a multiple of HOWS */

enum { REMOVED, RESET, HUNG_UP, HOWS };
static const char *const hows[HOWS] = { "removed", "reset", "hung up" };

struct client {
	struct raw r;
	struct raw_qp qp;
};

static bool client_open(struct client *c, const char *socket_path)
{
	return !raw_open(&c->r, socket_path) && !raw_ns_open(&c->r, SUITE_NSID_MAIN, 0) &&
	       !raw_data_sized(&c->r, IOVA, LEN + 4096) && !raw_qp_open(&c->r, &c->qp, 1, 8, 0);
}

static void client_close(struct client *c)
{
	raw_close(&c->r);
	raw_qp_free(&c->qp);
}

/* Into memory that direct I/O can reach, or, @odd, into memory that it cannot. */
static void begin(struct client *c, const struct suite_key *key, bool odd)
{
	struct gkv_sqe sqe;

	raw_sqe(&c->r, &sqe, GKV_OP_RETRIEVE, SUITE_NSID_MAIN, key->bytes, key->len, LEN);
	sqe.dptr.sgl.addr = htole64(IOVA + odd);
	raw_put(&c->qp, &sqe);
	raw_ring(&c->r, &c->qp);
}

/* Nanoseconds of one Retrieve that nobody disturbs. */
static uint64_t whole(struct client *c, const struct suite_key *key, bool odd)
{
	uint64_t t0 = rig_now();
	struct gkv_cqe cqe = { 0 };

	begin(c, key, odd);
	if (!raw_take(&c->r, &c->qp, &cqe, 60000 * rig_slowdown(), true) ||
	    le16toh(cqe.status) >> 1 || le32toh(cqe.dw0) != LEN)
		return 0;
	return rig_now() - t0;
}

static bool drop(struct client *c, int how)
{
	struct gkv_sqe sqe;
	uint32_t dw0;
	struct suite_key none = suite_key("none");

	switch (how) {
	case REMOVED:
		return !raw_id(&c->r, GKV_MSG_QP_DEL, 1);
	case RESET:
		if (raw_id(&c->r, GKV_MSG_QP_RESET, 1))
			return false;
		/* As good as new: its pointers are at 0, its entries cleared. */
		c->qp.tail = c->qp.head = 0;
		c->qp.phase = 1;
		raw_sqe(&c->r, &sqe, GKV_OP_EXIST, SUITE_NSID_MAIN, none.bytes, none.len, 0);
		return code(raw_exec(&c->r, &c->qp, &sqe, &dw0)) == GKV_SC_KEY_NOT_FOUND;
	default:
		return true;	/* client_close() */
	}
}

static unsigned int log_lines(const struct rig *rig, const char *text)
{
	unsigned int n = 0;
	char line[1024];
	FILE *f = fopen(rig->log, "re");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

/* What the SMART log counts; UINT64_MAX when it cannot be had. */
static uint64_t media_errors(struct suite *s)
{
	struct gkv_admin_sqe sqe = {
		.opcode = GKV_ADM_GET_LOG_PAGE,
		.nsid = htole32(GKV_NSID_ALL),
		.cdw10 = htole32(GKV_LOG_SMART | (sizeof(struct gkv_smart_log) / 4 - 1) << 16),
	};
	struct gkv_smart_log log;
	uint32_t len = sizeof(log);
	struct gkv_cqe cqe;
	__le64 n;

	if (gkv_admin(s->g, &sqe, &cqe, &log, &len) || len != sizeof(log))
		return UINT64_MAX;
	memcpy(&n, log.media_errors, sizeof(n));
	return le64toh(n);
}

/* One client, whose queue pair goes after @ns; *@halfway: nothing had been answered then. */
static bool one(struct suite *s, const struct suite_key *key, int how, bool odd, uint64_t ns,
		bool *halfway)
{
	const struct timespec wait = { .tv_sec = (time_t)(ns / 1000000000),
				       .tv_nsec = (long)(ns % 1000000000) };
	struct client c;
	struct gkv_cqe cqe;
	bool ok = client_open(&c, s->rig.socket);

	if (!ok) {
		tap_diag("set-up: %s", c.r.text);
		exit(1);
	}
	begin(&c, key, odd);
	nanosleep(&wait, NULL);
	*halfway = !raw_take(&c.r, &c.qp, &cqe, 0, false);
	ok = drop(&c, how);
	client_close(&c);
	return ok;
}

static void dropped(struct suite *s, const struct suite_key *key, bool odd)
{
	unsigned int halfway[HOWS] = { 0 };
	bool ok[HOWS] = { true, true, true };
	struct gkv_comp comp;
	uint64_t ns = 0;
	struct client c;

	if (!client_open(&c, s->rig.socket)) {
		tap_diag("set-up: %s", c.r.text);
		exit(1);
	}
	for (int i = 0; i < 3; i++) {
		uint64_t t = whole(&c, key, odd);

		if (!ns || t < ns)
			ns = t;
	}
	client_close(&c);
	tap_ok(ns, "a value of %u MiB is read and verified%s, in %llu us", LEN >> 20,
	       odd ? " at an odd address" : "", (unsigned long long)ns / 1000);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		int how = (int)(i % HOWS);
		bool half;

		ok[how] &= one(s, key, how, odd, ns * i / ROUNDS, &half);
		halfway[how] += half;
	}
	for (int how = 0; how < HOWS; how++)
		tap_ok(ok[how] && halfway[how] >= ROUNDS / HOWS / 4,
		       "queue pairs are %s, %u of %u before the value was there", hows[how],
		       halfway[how], ROUNDS / HOWS);
	tap_ok(!log_lines(&s->rig, "checksum") && !media_errors(s),
	       "no good value is called damaged, or counted so");
	memset(s->buf, 0, LEN);
	comp = suite_retrieve(s, SUITE_NSID_MAIN, key, s->buf, LEN);
	tap_ok(!comp.status && comp.result == LEN && pattern_check(s->buf, LEN, 1),
	       "the value is there, status %#x", comp.status);
}

int main(void)
{
	struct suite_key key = suite_key("long");
	struct suite s;

	suite_start(&s, "local", NULL);
	pattern_fill(s.buf, LEN, 1);
	tap_ok(!suite_store(&s, SUITE_NSID_MAIN, &key, s.buf, LEN, 0), "a value is stored");
	dropped(&s, &key, false);
	dropped(&s, &key, true);
	suite_stop(&s);
	tap_ok(true, "the daemon stops cleanly");
	return tap_done();
}
