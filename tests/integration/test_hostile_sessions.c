/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * Hostile connections: broken messages, floods, hang-ups at any point, too many of them.
 * A well-behaved client runs beside all of it.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile.h"

#define SECOND	1000000000ull
#define IOVA	0x7000000000ull

static uint64_t seed = 1;

static uint64_t rnd(void)
{
	return hostile_random(&seed);
}

/* A connection that has said hello, without doorbells. */
static int greeted(struct hostile *h)
{
	struct gkv_msg_hello_reply reply;
	struct gkv_msg_hello hello;
	int sock = hostile_connect(h->rig.socket);

	hostile_hello(&hello, -1, 0);
	if (sock < 0)
		return sock;
	if (hostile_send(sock, &hello, sizeof(hello), NULL, 0) ||
	    hostile_recv(sock, &reply, sizeof(reply), 10000, NULL, NULL) != sizeof(reply) ||
	    reply.r.hdr.error) {
		close(sock);
		return -EPROTO;
	}
	return sock;
}

/* ---- Broken messages ---- */

static void test_broken_messages(struct hostile *h)
{
	unsigned int rounds = 3000 / rig_slowdown(), dead = 0, refused = 0, taken = 0, silent = 0;
	int sock = -1;

	for (unsigned int i = 0; i < rounds; i++) {
		union {
			uint8_t bytes[5000];
			struct gkv_msg_hdr hdr;
		} m;
		struct gkv_msg_hdr reply[200];
		static const uint32_t sizes[] = { 0, 1, 23, 24, 32, 40, 56, 64, 96, 136, 216, 4192,
						  4256, 4257, 4999 };
		size_t len = sizes[rnd() % (sizeof(sizes) / sizeof(sizes[0]))];
		int n;

		for (size_t k = 0; k < sizeof(m.bytes); k += 8) {
			uint64_t r = rnd();

			memcpy(m.bytes + k, &r, 8);
		}
		if (rnd() % 8)
			hostile_head(&m, (uint16_t)(rnd() % 14), rnd() % 8 ? len : (size_t)rnd());
		if (rnd() % 4)
			m.hdr.error = m.hdr.rsvd = 0;
		if (rnd() % 16 == 0)
			m.hdr.version = htole16((uint16_t)rnd());
		/* Zeroes get further than noise. */
		if (rnd() % 2)
			memset(m.bytes + 24, 0, sizeof(m.bytes) - 24);
		if (sock < 0)
			sock = rnd() % 4 ? greeted(h) : hostile_connect(h->rig.socket);
		if (sock < 0)
			break;
		n = hostile_send(sock, m.bytes, len, NULL, 0);
		if (!n)
			n = hostile_recv(sock, reply, sizeof(reply), 5000, NULL, NULL);
		if (n == -ETIMEDOUT) {
			silent++;
		} else if (n <= 0) {
			dead++;
		} else if (reply[0].error) {
			refused++;
			continue;
		} else {
			taken++;
			continue;
		}
		close(sock);
		sock = -1;
	}
	close(sock);
	tap_ok(dead && refused && !silent,
	       "%u broken messages: %u refused, %u hung up on, %u made sense", rounds, refused, dead,
	       taken);
	tap_ok(hostile_unharmed(h), "others unharmed by broken messages");
}

/* An empty message may bring descriptors; so may one that is refused. */
static void test_descriptor_leaks(struct hostile *h)
{
	struct vitals before, after;
	struct gkv_msg_id id = { 0 };
	int fds[40];

	for (int i = 0; i < 40; i++)
		fds[i] = i % 2 ? 0 : 1;
	hostile_head(&id, GKV_MSG_REGION_DEL, sizeof(id));
	vitals_read(&h->rig, &before);
	for (int i = 0; i < 200; i++) {
		static const unsigned int counts[] = { 1, 2, 4, 5, 15, 16, 17, 40 };
		char reply[1024];
		int sock = greeted(h);

		if (sock < 0)
			break;
		if (hostile_send(sock, &id, i % 2 ? 0 : sizeof(id), fds, counts[i / 2 % 8]) == 0)
			hostile_recv(sock, reply, sizeof(reply), 5000, NULL, NULL);
		close(sock);
	}
	hostile_sleep_ms(50);
	vitals_read(&h->rig, &after);
	if (!tap_ok(after.fds <= before.fds, "F69: descriptors nobody asked for are closed"))
		tap_diag("%u descriptors, then %u", before.fds, after.fds);
}

/* The answer finds nobody: the message was bad, or good, and its sender has hung up. */
static void test_sent_and_gone(struct hostile *h)
{
	unsigned int rounds = 400 / rig_slowdown();

	for (unsigned int i = 0; i < rounds; i++) {
		struct gkv_msg_set set = { 0 };
		struct gkv_msg_id id = { 0 };
		int sock = i % 3 ? greeted(h) : hostile_connect(h->rig.socket);

		if (sock < 0)
			continue;
		hostile_head(&id, (uint16_t)(i % 2 ? 99 : GKV_MSG_QP_DEL), sizeof(id));
		hostile_head(&set, GKV_MSG_SET, sizeof(set));
		for (int k = 0; k < 3; k++) {
			hostile_send(sock, &id, sizeof(id), NULL, 0);
			hostile_send(sock, &set, sizeof(set), NULL, 0);
		}
		close(sock);
	}
	tap_ok(hostile_unharmed(h), "others unharmed by senders that do not wait for the answer");
}

static void test_never_reads(struct hostile *h)
{
	struct gkv_msg_query q = { .what = htole32(GKV_QUERY_SESSIONS) };
	unsigned int sent = 0;
	int sock = greeted(h);

	hostile_head(&q, GKV_MSG_QUERY, sizeof(q));
	/* Until the daemon hangs up, or neither side can go on. */
	for (unsigned int i = 0; i < 5000; i++) {
		int ret = hostile_send(sock, &q, sizeof(q), NULL, 0);

		if (ret == -EAGAIN)
			hostile_sleep_ms(1);
		else if (ret)
			break;
		else
			sent++;
	}
	tap_ok(hostile_unharmed(h), "others unharmed by a client that never reads (%u requests)",
	       sent);
	close(sock);
}

/* ---- Floods ---- */

struct flood {
	pthread_t thread;
	int sock;
	_Atomic bool stop;
	uint64_t replies;
};

/* Always some requests ahead of the replies, so that there is always one to be read. */
static void *flood(void *arg)
{
	struct gkv_msg_query q = { .what = htole32(GKV_QUERY_STATUS) };
	struct flood *f = arg;
	uint64_t sent = 0;
	char buf[8192];

	hostile_head(&q, GKV_MSG_QUERY, sizeof(q));
	while (!f->stop) {
		while (sent - f->replies < 8 && !hostile_send(f->sock, &q, sizeof(q), NULL, 0))
			sent++;
		if (recv(f->sock, buf, sizeof(buf), 0) <= 0)
			break;
		f->replies++;
	}
	return NULL;
}

/* Requests without a pause, on several connections: others get their turn. */
static void test_flood(struct hostile *h)
{
	enum { N = 4 };
	uint64_t end = rig_now() + 2 * SECOND, slowest = 0, replies = 0;
	struct flood f[N];
	bool ok = true;

	for (int i = 0; i < N; i++) {
		f[i].sock = greeted(h);
		f[i].replies = 0;
		f[i].stop = false;
		if (f[i].sock < 0 || pthread_create(&f[i].thread, NULL, flood, &f[i]))
			abort();
	}
	while (rig_now() < end) {
		uint64_t t0 = rig_now();
		int sock = greeted(h);

		ok = ok && sock >= 0;
		close(sock);
		if (rig_now() - t0 > slowest)
			slowest = rig_now() - t0;
	}
	tap_ok(hostile_unharmed(h), "others unharmed by a flood");
	for (int i = 0; i < N; i++) {
		f[i].stop = true;
		shutdown(f[i].sock, SHUT_RDWR);
		pthread_join(f[i].thread, NULL);
		replies += f[i].replies;
		close(f[i].sock);
	}
	tap_ok(ok && replies > 1000 / rig_slowdown() && slowest < 2 * rig_slowdown() * SECOND,
	       "a newcomer is greeted during a flood (%llu requests), in %llu us at most",
	       (unsigned long long)replies, (unsigned long long)slowest / 1000);
}

/*
 * The last close of a socket that lingers blocks: it must not be the daemon's. With @unread,
 * the descriptor waits behind a message that ends the session.
 */
static void test_lingering_socket(struct hostile *h, bool unread)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger linger = { .l_onoff = 1, .l_linger = 60 };
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer, fd, sock;
	struct gkv_msg_region_add m = { 0 };
	struct gkv_msg_reply reply;
	socklen_t len = sizeof(addr);
	static char junk[65536];
	uint64_t t0;

	if (bind(server, (struct sockaddr *)&addr, sizeof(addr)) || listen(server, 1) ||
	    getsockname(server, (struct sockaddr *)&addr, &len)) {
		tap_skip("no loopback network", "a descriptor of a socket that lingers");
		close(server);
		return;
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		abort();
	peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	/* More than the peer's window takes; nobody reads there. */
	while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
	sock = greeted(h);
	hostile_head(&m, GKV_MSG_REGION_ADD, sizeof(m));
	m.id = htole32(1);
	m.len = htole64(4096);
	/* Both are there before the daemon looks. */
	if (unread)
		kill(h->rig.pid, SIGSTOP);
	if (unread)
		hostile_send(sock, junk, sizeof(m), NULL, 0);
	hostile_send(sock, &m, sizeof(m), &fd, 1);
	close(fd);
	if (unread)
		kill(h->rig.pid, SIGCONT);
	hostile_recv(sock, &reply, sizeof(reply), 5000, NULL, NULL);
	close(sock);
	t0 = rig_now();
	sock = greeted(h);
	tap_ok(sock >= 0 && rig_now() - t0 < 5 * SECOND,
	       "a descriptor of a socket that lingers%s stops nobody: %llu us",
	       unread ? ", sent after the session's end," : "",
	       (unsigned long long)(rig_now() - t0) / 1000);
	close(sock);
	close(peer);
	close(server);
	tap_ok(hostile_unharmed(h), "others unharmed by it");
}

/* ---- The end of a session, at any point ---- */

/* Go @step steps of a session's life, then hang up without a word. */
static bool live_and_die(struct hostile *h, unsigned int step)
{
	struct raw_qp qp = { 0 };
	struct gkv_msg_id id = { .id = htole32(1) };
	struct gkv_sqe sqe;
	struct raw r;
	int sock;

	if (step == 0) {
		sock = hostile_connect(h->rig.socket);
		close(sock);
		return sock >= 0;
	}
	if (step == 1) {	/* half a handshake */
		struct gkv_msg_hello hello;

		hostile_hello(&hello, -1, 0);
		sock = hostile_connect(h->rig.socket);
		hostile_send(sock, &hello, sizeof(hello) / 2, NULL, 0);
		close(sock);
		return sock >= 0;
	}
	if (raw_open(&r, h->rig.socket))
		return false;
	if (step >= 3 && raw_ns_open(&r, HOSTILE_NSID_SLOW, 0))
		return false;
	if (step >= 3 && raw_ns_open(&r, HOSTILE_NSID_LOCAL, 0))
		return false;
	if (step >= 4 && raw_data(&r, IOVA))
		return false;
	if (step >= 5 && raw_qp_open(&r, &qp, 1, 64, 0))
		return false;
	if (step >= 6) {
		/* In flight when the connection ends: slow ones, and device I/O. */
		for (unsigned int i = 0; i < 40; i++) {
			uint32_t nsid = i % 4 ? HOSTILE_NSID_LOCAL : HOSTILE_NSID_SLOW;
			uint8_t op = i % 2 ? GKV_OP_STORE : GKV_OP_RETRIEVE;

			raw_sqe(&r, &sqe, op, nsid, "dying", 5, 60000 + i);
			raw_put(&qp, &sqe);
		}
		raw_ring(&r, &qp);
	}
	if (step >= 7) {
		static const uint16_t last[] = { GKV_MSG_REGION_DEL, GKV_MSG_QP_RESET,
						 GKV_MSG_QP_DEL };

		/* Asked for, and the answer not waited for. */
		hostile_sleep_ms((unsigned int)(rnd() % 4));
		hostile_head(&id, last[(step - 7) % 3], sizeof(id));
		hostile_send(r.sock, &id, sizeof(id), NULL, 0);
		if (step >= 10)
			hostile_sleep_ms(30);
	}
	raw_close(&r);
	if (qp.base)
		raw_qp_free(&qp);
	return true;
}

static void test_hang_ups(struct hostile *h)
{
	unsigned int rounds = 20 / rig_slowdown(), died = 0, want = 0;

	for (unsigned int i = 0; i < rounds; i++) {
		for (unsigned int step = 0; step < 13; step++) {
			want++;
			died += live_and_die(h, step);
		}
	}
	tap_ok(died == want, "F95, F107: %u sessions that end at any point", want);
	tap_ok(hostile_unharmed(h), "others unharmed by them");
}

/* The same with processes that are killed. */
static void test_killed_clients(struct hostile *h)
{
	unsigned int n = 24 / rig_slowdown();

	for (unsigned int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			live_and_die(h, 6);
			for (;;)
				live_and_die(h, 6);
		}
		hostile_sleep_ms(20 + (unsigned int)(rnd() % 30));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	tap_ok(hostile_unharmed(h), "F95, F96, F97, F107: others unharmed by %u killed clients", n);
}

/* What the killed ones stored to is usable at once. */
static void test_key_after_kill(struct hostile *h)
{
	struct raw_qp qp;
	struct gkv_sqe sqe;
	struct raw r;
	uint16_t status = 0xffff;

	if (!raw_open(&r, h->rig.socket) && !raw_ns_open(&r, HOSTILE_NSID_LOCAL, 0) &&
	    !raw_data(&r, IOVA) && !raw_qp_open(&r, &qp, 1, 8, 0)) {
		raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_LOCAL, "dying", 5, 5000);
		memset(r.data, 'x', 5000);
		status = raw_exec(&r, &qp, &sqe, NULL);
		if (!status) {
			uint32_t len = 0;

			memset(r.data, 0, 70000);
			raw_sqe(&r, &sqe, GKV_OP_RETRIEVE, HOSTILE_NSID_LOCAL, "dying", 5, 70000);
			status = raw_exec(&r, &qp, &sqe, &len);
			/* This value, or one of theirs (of zeroes) that landed after it. */
			if (len == 5000 ? r.data[4999] != 'x' || r.data[5000]
					: len < 60000 || len >= 60040 || r.data[0] || r.data[len - 1])
				status = 0xfffe;
		}
		raw_qp_free(&qp);
		raw_close(&r);
	}
	if (!tap_ok(status == 0, "F96: a key that clients died storing is usable at once"))
		tap_diag("status %#x", status);
}

/* ---- Identity ---- */

static void test_second_hello(struct hostile *h)
{
	struct gkv_msg_hello_reply reply;
	struct gkv_msg_hello hello;
	struct raw_qp qp;
	struct gkv_sqe sqe;
	struct raw r;
	int ret;

	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_MEM, 0) ||
	    raw_qp_open(&r, &qp, 1, 8, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	for (int i = 0; i < 3; i++) {
		hostile_hello(&hello, i == 1 ? r.doorbells_fd : -1, r.doorbells_len);
		ret = raw_call(&r, &hello, sizeof(hello), &r.doorbells_fd, i == 1, &reply,
			       sizeof(reply));
		tap_ok(ret == -EPROTO && r.text[0], "a second hello is refused");
	}
	raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_MEM, "none", 4, 0);
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == (GKV_SC_KEY_NOT_FOUND | GKV_DNR),
	       "and the session goes on");
	raw_close(&r);
	raw_qp_free(&qp);
}

/* Two connections of one session: queue memory must not have two owners. */
static void test_twins(struct hostile *h)
{
	struct gkv_msg_hello_reply reply;
	struct gkv_msg_hello hello;
	int a = hostile_connect(h->rig.socket), b, c, n;
	struct gkv_msg_reply refusal;
	uint64_t t0;

	hostile_hello(&hello, -1, 0);
	hostile_send(a, &hello, sizeof(hello), NULL, 0);
	n = hostile_recv(a, &reply, sizeof(reply), 5000, NULL, NULL);
	b = hostile_connect(h->rig.socket);
	hostile_send(b, &hello, sizeof(hello), NULL, 0);
	n = n > 0 ? hostile_recv(b, &refusal, sizeof(refusal), 5000, NULL, NULL) : -1;
	tap_ok(n > 0 && le32toh(refusal.hdr.error) == EBUSY && refusal.text[0],
	       "F10: a session that is connected is not connected again");
	close(a);
	close(b);
	a = hostile_connect(h->rig.socket);
	hostile_send(a, &hello, sizeof(hello), NULL, 0);
	n = hostile_recv(a, &reply, sizeof(reply), 5000, NULL, NULL);
	tap_ok(n == sizeof(reply) && !reply.r.hdr.error, "and again once that one is gone");
	close(a);

	/* While it drains: the first to come back waits, and then has it. */
	struct raw_qp qp;
	struct gkv_sqe sqe;
	struct raw r;
	int db;
	void *map;

	if (raw_open(&r, h->rig.socket)) {
		tap_ok(false, "a session");
		return;
	}
	raw_close(&r);
	memset(&r, 0, sizeof(r));
	r.data_fd = -1;
	r.sock = hostile_connect(h->rig.socket);
	db = raw_memfd(8192, &map);
	r.doorbells = map;
	r.doorbells_fd = db;
	r.doorbells_len = 8192;
	hostile_hello(&hello, db, 8192);
	if (raw_call(&r, &hello, sizeof(hello), &db, 1, &r.limits, sizeof(r.limits)) ||
	    raw_ns_open(&r, HOSTILE_NSID_SLOW, 0) || raw_qp_open(&r, &qp, 1, 8, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_SLOW, "none", 4, 0);
	raw_put(&qp, &sqe);
	raw_ring(&r, &qp);
	hostile_sleep_ms(HOSTILE_SLOW_MS / 3);
	t0 = rig_now();
	close(r.sock);
	a = hostile_connect(h->rig.socket);
	hostile_send(a, &hello, sizeof(hello), &db, 1);
	b = hostile_connect(h->rig.socket);
	hostile_send(b, &hello, sizeof(hello), &db, 1);
	c = hostile_connect(h->rig.socket);
	hostile_send(c, &hello, sizeof(hello), &db, 1);
	close(c);	/* does not wait */
	n = hostile_recv(a, &reply, sizeof(reply), 10000, NULL, NULL);
	hostile_recv(b, &refusal, sizeof(refusal), 10000, NULL, NULL);
	tap_ok(n > 0 && (le32toh(reply.r.hdr.error) == 0) != (le32toh(refusal.hdr.error) == 0) &&
	       rig_now() - t0 > (uint64_t)HOSTILE_SLOW_MS * 1000000 / 3,
	       "F10: while it drains, its successors wait, and one has it: after %llu us",
	       (unsigned long long)(rig_now() - t0) / 1000);
	close(a);
	close(b);
	munmap(map, 8192);
	close(db);
	raw_qp_free(&qp);
	tap_ok(hostile_unharmed(h), "others unharmed by twins");
}

/* ---- Rights ---- */

static int as_nobody(struct hostile *h)
{
	struct gkv_msg_set set = { 0 };
	struct gkv_msg_reply reply;
	struct raw_qp qp;
	struct gkv_sqe sqe;
	struct raw r;
	int bad = 0, ret;

	if (setgid(65534) || setuid(65534))
		return 100;
	if (raw_open(&r, h->rig.socket))
		return 101;
	ret = raw_ns_open(&r, HOSTILE_NSID_PRIVATE, 0);
	if (ret != -EACCES || !strstr(r.text, "65534") || !strstr(r.text, "private"))
		bad |= 1;
	if (raw_ns_open(&r, HOSTILE_NSID_FROZEN, 0) || raw_data(&r, IOVA) ||
	    raw_qp_open(&r, &qp, 1, 8, 0))
		return 102;
	raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_FROZEN, "key", 3, 10);
	if (raw_exec(&r, &qp, &sqe, NULL) != (GKV_SC_WRITE_PROTECTED | GKV_DNR))
		bad |= 2;
	raw_sqe(&r, &sqe, GKV_OP_DELETE, HOSTILE_NSID_FROZEN, "key", 3, 0);
	if (raw_exec(&r, &qp, &sqe, NULL) != (GKV_SC_WRITE_PROTECTED | GKV_DNR))
		bad |= 4;
	raw_sqe(&r, &sqe, GKV_OP_RETRIEVE, HOSTILE_NSID_FROZEN, "key", 3, 10);
	if (raw_exec(&r, &qp, &sqe, NULL) != (GKV_SC_KEY_NOT_FOUND | GKV_DNR))
		bad |= 8;
	/* A namespace it may not open is as good as none. */
	raw_sqe(&r, &sqe, GKV_OP_RETRIEVE, HOSTILE_NSID_PRIVATE, "key", 3, 10);
	if (raw_exec(&r, &qp, &sqe, NULL) != (GKV_SC_INVALID_FIELD | GKV_DNR))
		bad |= 16;
	hostile_head(&set, GKV_MSG_SET, sizeof(set));
	snprintf(set.name, sizeof(set.name), "poll_interval_ns");
	snprintf(set.value, sizeof(set.value), "1000");
	if (raw_call(&r, &set, sizeof(set), NULL, 0, &reply, sizeof(reply)) != -EPERM || !r.text[0])
		bad |= 32;
	return bad;
}

static void test_rights(struct hostile *h)
{
	int status;
	pid_t pid;

	if (geteuid()) {
		tap_skip("needs root to become another user", "rights of another user");
		return;
	}
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(as_nobody(h));
	waitpid(pid, &status, 0);
	if (!tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		    "another user: refused, read-only, and changes no settings"))
		tap_diag("%d", WEXITSTATUS(status));
}

/* ---- Too many ---- */

static void test_many_connections(struct hostile *h)
{
	static int socks[HOSTILE_MAX_SESSIONS + 10];
	struct gkv_msg_hello_reply reply;
	unsigned int n = 0, in = 0, refused = 0;
	char text[16];

	for (; n < HOSTILE_MAX_SESSIONS + 10; n++) {
		struct gkv_msg_hello hello;

		socks[n] = hostile_connect(h->rig.socket);
		if (socks[n] < 0)
			break;
		hostile_hello(&hello, -1, 0);
		/* Every third never says a word. */
		if (n % 3 == 2)
			continue;
		hostile_send(socks[n], &hello, sizeof(hello), NULL, 0);
		if (hostile_recv(socks[n], &reply, sizeof(reply), 10000, NULL, NULL) <= 0)
			continue;
		if (!reply.r.hdr.error) {
			in++;
			continue;
		}
		snprintf(text, sizeof(text), "%u", HOSTILE_MAX_SESSIONS);
		if (le32toh(reply.r.hdr.error) == EMFILE && strstr(reply.r.text, text))
			refused++;
	}
	tap_ok(n == HOSTILE_MAX_SESSIONS + 10 && in > HOSTILE_MAX_SESSIONS / 2 && refused > 0,
	       "F21: 1,110 connections: %u greeted, %u refused with the limit in the text", in,
	       refused);
	tap_ok(hostile_unharmed(h), "others unharmed by them");
	for (unsigned int i = 0; i < n; i++)
		close(socks[i]);
}

/* Run the daemon under a low limit, which its process inherits, until @until is closed. */
static int keep_daemon(struct rig *rig, int until)
{
	struct rlimit few = { .rlim_cur = 160, .rlim_max = 160 };
	char c;

	setrlimit(RLIMIT_NOFILE, &few);
	rig_start(rig);
	while (read(until, &c, 1) < 0 && errno == EINTR)
		;
	rig_stop(rig, 20);
	return 0;
}

/* A daemon that may open few files refuses in time, and serves those it took. */
static void test_few_descriptors(void)
{
	unsigned int n = 0, refused = 0, silent = 0;
	int socks[300], until[2], status = -1;
	struct gkv_sqe sqe;
	struct raw_qp qp;
	struct raw first;
	struct rig rig;
	pid_t pid;
	bool ok;

	rig_init(&rig, "[daemon]\nreactors = 2\n[namespace main]\nnsid = 1\nstack = mem\n");
	fflush(NULL);
	if (pipe2(until, O_CLOEXEC))
		abort();
	pid = fork();
	if (pid == 0) {
		close(until[1]);
		_exit(keep_daemon(&rig, until[0]));
	}
	close(until[0]);
	for (int i = 0; i < 2000 && raw_open(&first, rig.socket); i++)
		hostile_sleep_ms(10);
	ok = !raw_ns_open(&first, 1, 0);
	for (; n < 300; n++) {
		struct gkv_msg_hello_reply reply;
		struct gkv_msg_hello hello;
		int got;

		socks[n] = hostile_connect(rig.socket);
		hostile_hello(&hello, -1, 0);
		hostile_send(socks[n], &hello, sizeof(hello), NULL, 0);
		got = hostile_recv(socks[n], &reply, sizeof(reply), 5000, NULL, NULL);
		if (got <= 0)
			silent++;
		else if (le32toh(reply.r.hdr.error) == EMFILE && strstr(reply.r.text, "limit"))
			refused++;
	}
	if (silent)
		tap_diag("%u without an answer", silent);
	tap_ok(refused > 200 && refused < 300 && !silent,
	       "F21: a daemon with few descriptors: %u of %u refused, with a reason", refused, n);
	/* Those inside can still hand it memory. */
	ok = ok && !raw_data(&first, IOVA) && !raw_qp_open(&first, &qp, 1, 8, 0);
	if (ok) {
		raw_sqe(&first, &sqe, GKV_OP_STORE, 1, "key", 3, 100);
		ok = raw_exec(&first, &qp, &sqe, NULL) == 0;
	}
	if (!tap_ok(ok, "and those it took are served in full"))
		tap_diag("%s", first.text);
	for (unsigned int i = 0; i < n; i++)
		close(socks[i]);
	raw_close(&first);
	close(until[1]);
	waitpid(pid, &status, 0);
	tap_ok(WIFEXITED(status) && !WEXITSTATUS(status), "and it stops cleanly");
	rig_fini(&rig);
}

int main(void)
{
	struct hostile h;

	hostile_start(&h);
	test_second_hello(&h);
	test_broken_messages(&h);
	test_descriptor_leaks(&h);
	test_sent_and_gone(&h);
	test_never_reads(&h);
	test_flood(&h);
	test_lingering_socket(&h, false);
	test_lingering_socket(&h, true);
	test_twins(&h);
	test_rights(&h);
	test_hang_ups(&h);
	test_killed_clients(&h);
	test_key_after_kill(&h);
	test_many_connections(&h);
	hostile_finish(&h);
	test_few_descriptors();
	return tap_done();
}
