/* SPDX-License-Identifier: MIT */
/*
 * Half a handshake: connections that do not say hello in ten seconds are closed, whatever else
 * they do, and those that did are kept. Everybody else is served meanwhile.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile.h"

#define SECOND	1000000000ull
#define EACH	40u
/* The timeout, and how long after it the daemon may take to notice. */
#define EARLY	(95 * SECOND / 10)
#define LATE	(14 * SECOND)

enum kind {
	SILENT,		/* not a word */
	CHATTY,		/* asks for what needs a hello, again and again */
	REFUSED,	/* says a hello of another version */
	TARDY,		/* says hello after half the time */
	GREETED,	/* says hello, and nothing more */
	KINDS,
};

static const struct {
	const char *text;
	bool stays;
} kinds[KINDS] = {
	[SILENT] = { "connections that say nothing", false },
	[CHATTY] = { "connections that ask without a hello", false },
	[REFUSED] = { "connections whose hello was refused", false },
	[TARDY] = { "connections that say hello after 5 s", true },
	[GREETED] = { "connections that say hello and no more", true },
};

struct conn {
	int sock;
	uint64_t since, closed;		/* ns; 0: open */
};

static struct conn conns[KINDS][EACH];

/* Send a hello and judge the answer. */
static bool hello(int sock, bool right)
{
	struct gkv_msg_hello_reply reply = { 0 };
	struct gkv_msg_hello m;

	hostile_hello(&m, -1, 0);
	if (!right)
		m.version_min = m.version_max = htole16(GKV_CTL_VERSION + 1);
	if (hostile_send(sock, &m, sizeof(m), NULL, 0) ||
	    hostile_recv(sock, &reply, sizeof(reply), 10000, NULL, NULL) <= 0)
		return false;
	return (int)le32toh(reply.r.hdr.error) == (right ? 0 : EPROTO);
}

/* Refused each time, and answered. */
static void ask(struct conn *c)
{
	struct gkv_msg_reply reply;
	struct gkv_msg_query m = { .what = htole32(GKV_QUERY_STATUS) };

	hostile_head(&m, GKV_MSG_QUERY, sizeof(m));
	if (!hostile_send(c->sock, &m, sizeof(m), NULL, 0))
		hostile_recv(c->sock, &reply, sizeof(reply), 1000, NULL, NULL);
}

static void look(struct conn *c)
{
	struct pollfd p = { .fd = c->sock, .events = POLLIN };

	if (!c->closed && poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR))
		c->closed = rig_now();
}

static bool begin(struct hostile *h)
{
	bool ok = true;

	for (int k = 0; k < KINDS; k++) {
		for (unsigned int i = 0; i < EACH; i++) {
			struct conn *c = &conns[k][i];

			c->sock = hostile_connect(h->rig.socket);
			c->since = rig_now();
			ok = ok && c->sock >= 0;
			if (k == REFUSED || k == GREETED)
				ok = ok && hello(c->sock, k == GREETED);
		}
	}
	return ok;
}

/* A client like any other comes, is served, and goes. */
static bool served(struct hostile *h, uint64_t *longest)
{
	uint64_t t0 = rig_now();
	struct gkv_sqe sqe;
	struct raw_qp qp;
	struct raw r;
	bool ok;

	if (raw_open(&r, h->rig.socket))
		return false;
	ok = !raw_ns_open(&r, HOSTILE_NSID_MEM, 0) && !raw_data(&r, 0x1000) &&
	     !raw_qp_open(&r, &qp, 1, 8, 0);
	if (ok) {
		raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_MEM, "served", 6, 100);
		ok = !raw_exec(&r, &qp, &sqe, NULL);
		raw_qp_free(&qp);
	}
	raw_close(&r);
	if (rig_now() - t0 > *longest)
		*longest = rig_now() - t0;
	return ok;
}

static void test_half(struct hostile *h)
{
	struct gkv_msg_hello m;
	unsigned int n = 0;

	for (unsigned int i = 0; i < EACH; i++) {
		int sock = hostile_connect(h->rig.socket);
		char c;

		hostile_hello(&m, -1, 0);
		hostile_send(sock, &m, sizeof(m) / 2, NULL, 0);
		n += hostile_recv(sock, &c, sizeof(c), 5000, NULL, NULL) == 0;
		close(sock);
	}
	tap_ok(n == EACH, "F93: half a hello ends the connection at once");
}

static void test_time_out(struct hostile *h)
{
	uint64_t t0 = rig_now(), longest = 0;
	unsigned int rounds = 0, good = 0;
	bool tardy = false;

	if (!tap_ok(begin(h), "%u connections of %d kinds", EACH * KINDS, KINDS))
		return;
	while (rig_now() - t0 < LATE) {
		rounds++;
		good += served(h, &longest);
		for (unsigned int i = 0; i < EACH; i++)
			if (!conns[CHATTY][i].closed)
				ask(&conns[CHATTY][i]);
		if (!tardy && rig_now() - t0 > 5 * SECOND) {
			tardy = true;
			for (unsigned int i = 0; i < EACH; i++)
				tardy = tardy && hello(conns[TARDY][i].sock, true);
		}
		for (int k = 0; k < KINDS; k++)
			for (unsigned int i = 0; i < EACH; i++)
				look(&conns[k][i]);
		hostile_sleep_ms(100);
	}
	for (int k = 0; k < KINDS; k++) {
		unsigned int closed = 0, right = 0;

		for (unsigned int i = 0; i < EACH; i++) {
			const struct conn *c = &conns[k][i];
			uint64_t after = c->closed - c->since;

			closed += c->closed != 0;
			right += c->closed && after >= EARLY && after <= LATE;
		}
		tap_ok(kinds[k].stays ? !closed : right == EACH, "F93: %s %s: %u of %u closed",
		       kinds[k].text, kinds[k].stays ? "stay" : "are closed after 10 s", closed, EACH);
	}
	tap_ok(tardy, "whoever says hello in time is welcome");
	tap_ok(good == rounds && rounds > 2 && longest < 2 * rig_slowdown() * SECOND,
	       "F90, F93: %u clients came and were served meanwhile, in %llu us at most", good,
	       (unsigned long long)longest / 1000);
	for (int k = 0; k < KINDS; k++)
		for (unsigned int i = 0; i < EACH; i++)
			close(conns[k][i].sock);
}

int main(void)
{
	struct hostile h;

	hostile_start(&h);
	test_half(&h);
	test_time_out(&h);
	tap_ok(hostile_unharmed(&h), "others unharmed by it");
	hostile_finish(&h);
	return tap_done();
}
