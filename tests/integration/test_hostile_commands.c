/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * Hostile commands and rings: whatever a client writes into the memory it shares with the
 * daemon, only its own session suffers. A well-behaved client runs beside all of it.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hostile.h"

#define SECOND	1000000000ull
#define IOVA	0x7000000000ull
#define DEPTH	64u

static uint64_t seed = 42;

static uint64_t rnd(void)
{
	return hostile_random(&seed);
}

/* A session with both ordinary namespaces open, its data region and one queue pair. */
static bool attacker(struct hostile *h, struct raw *r, struct raw_qp *qp, uint32_t depth)
{
	if (raw_open(r, h->rig.socket) || raw_ns_open(r, HOSTILE_NSID_MEM, 0) ||
	    raw_ns_open(r, HOSTILE_NSID_LOCAL, 0) || raw_ns_open(r, HOSTILE_NSID_FAULTY, 0) ||
	    raw_ns_open(r, HOSTILE_NSID_SLOW, 0) || raw_data(r, IOVA) ||
	    raw_qp_open(r, qp, 1, depth, 0)) {
		tap_ok(false, "an attacker's session: %s", r->text);
		return false;
	}
	return true;
}

static void gone(struct raw *r, struct raw_qp *qp)
{
	raw_close(r);
	raw_qp_free(qp);
}

static uint32_t some_length(void)
{
	static const uint32_t odd[] = { 0, 1, 3, 4, 15, 63, 64, 100, 511, 4095, 4096, 4097, 8192,
					65535, 65536, 65537, 1u << 20, (1u << 20) + 1, 4u << 20,
					(4u << 20) + 1, 1u << 30, 0x7fffffff, 0x80000000,
					0xfffffffc, 0xffffffff };

	return rnd() % 8 ? (uint32_t)(rnd() % 20000) : odd[rnd() % (sizeof(odd) / sizeof(odd[0]))];
}

static uint64_t some_address(void)
{
	static const uint64_t odd[] = { 0, 1, 8, 4096, IOVA - 1, IOVA - 4096, IOVA + RAW_DATA_LEN,
					IOVA + RAW_DATA_LEN - 1, IOVA + RAW_DATA_LEN - 8,
					UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 4095, 1ull << 63 };

	if (rnd() % 5 == 0)
		return odd[rnd() % (sizeof(odd) / sizeof(odd[0]))];
	return IOVA + rnd() % RAW_DATA_LEN / (rnd() % 2 ? 1 : 4096) * (rnd() % 2 ? 1 : 4096);
}

/* Descriptors and PRPs, most of which lead somewhere, all over the data region. */
static void sow_lists(struct raw *r, unsigned int n)
{
	static const uint8_t types[] = { 0x00, 0x00, 0x10, 0x20, 0x30, 0x40, 0xf0, 0x01 };

	for (unsigned int i = 0; i < n; i++) {
		uint64_t at = rnd() % (RAW_DATA_LEN / 16) * 16, v[2];

		v[0] = some_address();
		v[1] = some_length() | (uint64_t)types[rnd() % sizeof(types)] << 56;
		if (rnd() % 4 == 0)
			v[0] = IOVA + (at & ~4095ull);
		memcpy(r->data + at, v, sizeof(v));
	}
}

static void random_sqe(struct raw *r, struct gkv_sqe *sqe)
{
	static const uint8_t opcodes[] = { GKV_OP_STORE, GKV_OP_RETRIEVE, GKV_OP_LIST,
					   GKV_OP_DELETE, GKV_OP_EXIST, GKV_OP_FLUSH };
	uint8_t key[16] = { 'k', (uint8_t)(rnd() % 32) };
	uint64_t bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = rnd();
	if (rnd() % 16 == 0) {
		memcpy(sqe, bytes, sizeof(*sqe));
		return;
	}
	raw_sqe(r, sqe, opcodes[rnd() % sizeof(opcodes)], 1 + (uint32_t)(rnd() % 8 ? 0 : rnd() % 9),
		key, 2, some_length());
	/* Slow commands would make this test one of patience. */
	if (sqe->nsid == htole32(HOSTILE_NSID_SLOW))
		sqe->nsid = htole32(HOSTILE_NSID_LOCAL);
	if (rnd() % 2) {
		sqe->flags = rnd() % 8 ? 0 : (uint8_t)bytes[0];
		sqe->dptr.prp.prp1 = htole64(some_address());
		sqe->dptr.prp.prp2 = htole64(some_address());
	} else if (rnd() % 2) {
		sqe->dptr.sgl.addr = htole64(some_address());
		sqe->dptr.sgl.len = htole32(some_length());
		sqe->dptr.sgl.type = (uint8_t)(bytes[1] & 0xf0);
	}
	/* And one byte anywhere. */
	if (rnd() % 3 == 0)
		((uint8_t *)sqe)[bytes[2] % sizeof(*sqe)] ^= (uint8_t)bytes[3];
}

/* Every command gets one completion, whatever it says. */
static void test_random_commands(struct hostile *h)
{
	uint64_t want = rig_slowdown() > 1 ? 30000 : 120000, sent = 0, done = 0, wrong = 0;
	uint64_t end = rig_now() + 40 * rig_slowdown() * SECOND;
	uint16_t cids[DEPTH];
	struct gkv_cqe cqe;
	struct raw_qp qp;
	struct raw r;

	if (!attacker(h, &r, &qp, DEPTH))
		return;
	while (sent < want && rig_now() < end) {
		unsigned int n = 1 + (unsigned int)(rnd() % (DEPTH - 1)), got = 0;

		sow_lists(&r, 64);
		for (unsigned int i = 0; i < n; i++) {
			struct gkv_sqe sqe;

			random_sqe(&r, &sqe);
			cids[i] = sqe.cid;
			raw_put(&qp, &sqe);
		}
		raw_ring(&r, &qp);
		sent += n;
		while (got < n && raw_take(&r, &qp, &cqe, 5000 * rig_slowdown(), true)) {
			bool known = false;

			for (unsigned int i = 0; i < n; i++)
				known |= cids[i] == cqe.cid;
			wrong += !known;
			got++;
		}
		done += got;
		if (got < n)
			break;
	}
	tap_ok(sent >= want && done == sent && !wrong,
	       "%llu random commands: as many completions (%llu), none of another (%llu)",
	       (unsigned long long)sent, (unsigned long long)done, (unsigned long long)wrong);
	tap_ok(!raw_take(&r, &qp, &cqe, 50, false), "and none more");
	tap_ok(hostile_unharmed(h), "others unharmed by random commands");
	gone(&r, &qp);
}

/* ---- Memory that changes under the daemon's eyes ---- */

struct flipper {
	pthread_t thread;
	volatile uint8_t *base[3];
	size_t len[3];
	unsigned int n;
	_Atomic bool stop;
};

/* Races with the rest of the program are its purpose: no matter for ThreadSanitizer. */
__attribute__((no_sanitize("thread"))) static void *flip(void *arg)
{
	struct flipper *f = arg;
	uint64_t state = 7;

	while (!f->stop) {
		uint64_t x = hostile_random(&state);
		unsigned int i = (unsigned int)(x >> 8) % f->n;

		f->base[i][(x >> 16) % f->len[i]] ^= (uint8_t)(1u << (x & 7));
	}
	return NULL;
}

static void flip_start(struct flipper *f)
{
	f->stop = false;
	if (pthread_create(&f->thread, NULL, flip, f))
		abort();
}

static void flip_stop(struct flipper *f)
{
	f->stop = true;
	pthread_join(f->thread, NULL);
}

/* Entries rewritten while they are read, and the lists they lead to. */
static void test_rewritten_entries(struct hostile *h)
{
	uint64_t end = rig_now() + 3 * SECOND, sent = 0, done = 0;
	struct flipper f = { 0 };
	struct gkv_cqe cqe;
	struct raw_qp qp;
	struct raw r;

	if (!attacker(h, &r, &qp, DEPTH))
		return;
	f.base[0] = (volatile uint8_t *)qp.sq;
	f.len[0] = DEPTH * sizeof(struct gkv_sqe);
	f.base[1] = r.data;
	f.len[1] = RAW_DATA_LEN;
	f.n = 2;
	flip_start(&f);
	while (rig_now() < end) {
		unsigned int n = 1 + (unsigned int)(rnd() % (DEPTH - 1)), got = 0;

		sow_lists(&r, 16);
		for (unsigned int i = 0; i < n; i++) {
			struct gkv_sqe sqe;

			random_sqe(&r, &sqe);
			raw_put(&qp, &sqe);
		}
		raw_ring(&r, &qp);
		sent += n;
		/* A flip may have made it a slow command. */
		while (got < n && raw_take(&r, &qp, &cqe, 5000 * rig_slowdown(), true))
			got++;
		done += got;
		if (got < n)
			break;
	}
	flip_stop(&f);
	tap_ok(sent && done == sent,
	       "entries and lists rewritten while they are read: %llu commands, %llu completions",
	       (unsigned long long)sent, (unsigned long long)done);
	tap_ok(hostile_unharmed(h), "others unharmed by rewritten entries");
	gone(&r, &qp);
}

/* Completions, record, futex word and doorbells overwritten all the time. */
static void test_scribbled_rings(struct hostile *h)
{
	uint64_t end = rig_now() + 3 * SECOND;
	struct flipper f = { 0 };
	struct raw_qp qp;
	bool ok = true;
	struct raw r;

	if (!attacker(h, &r, &qp, DEPTH))
		return;
	f.base[0] = (volatile uint8_t *)qp.cq;
	f.len[0] = DEPTH * sizeof(struct gkv_cqe);
	f.base[1] = qp.rec;
	f.len[1] = GKV_REC_LEN(DEPTH);
	f.base[2] = r.doorbells;
	f.len[2] = 64 * 4;
	f.n = 3;
	flip_start(&f);
	while (rig_now() < end && ok) {
		for (unsigned int i = 0; i < 20; i++) {
			struct gkv_sqe sqe;

			random_sqe(&r, &sqe);
			raw_put(&qp, &sqe);
			raw_ring(&r, &qp);
		}
		hostile_sleep_ms(1);
		ok = raw_id(&r, GKV_MSG_QP_RESET, 1) == 0;
		qp.tail = 0;
	}
	flip_stop(&f);
	tap_ok(ok, "rings, record and doorbells scribbled over: the queue pair resets all the same");
	tap_ok(hostile_unharmed(h), "others unharmed by scribbled rings");
	gone(&r, &qp);
}

static void ring_at(struct raw *r, size_t off, uint32_t val)
{
	__atomic_store_n((volatile uint32_t *)(r->doorbells + off), htole32(val), __ATOMIC_RELEASE);
}

/* Any value in any doorbell, in any state of the queue. */
static void test_doorbells(struct hostile *h)
{
	unsigned int rounds = 400 / rig_slowdown(), working = 0;
	struct gkv_sqe sqe;
	struct raw_qp qp;
	struct raw r;
	uint16_t dstrd;

	if (!attacker(h, &r, &qp, 8))
		return;
	dstrd = le16toh(r.limits.dstrd);
	for (unsigned int i = 0; i < rounds; i++) {
		static const uint32_t odd[] = { 0, 1, 6, 7, 8, 9, 15, 16, 255, 65535, 65536,
						0x7fffffff, 0x80000000, 0xffffffff };

		/* Claims above what is outstanding, heads beyond what was posted, or nothing. */
		for (unsigned int k = 0; k < rnd() % 6; k++) {
			raw_sqe(&r, &sqe, GKV_OP_EXIST, 1 + (uint32_t)(rnd() % 2), "key", 3, 0);
			raw_put(&qp, &sqe);
			if (rnd() % 2)
				raw_ring(&r, &qp);
			ring_at(&r, rnd() % 2 ? GKV_SQ_TAIL_DB(1, dstrd) : GKV_CQ_HEAD_DB(1, dstrd),
				odd[rnd() % (sizeof(odd) / sizeof(odd[0]))]);
		}
		/* Doorbells of queues that are not there. */
		ring_at(&r, GKV_SQ_TAIL_DB(2 + rnd() % 62, dstrd), (uint32_t)rnd());
		if (raw_id(&r, GKV_MSG_QP_RESET, 1))
			break;
		qp.tail = qp.head = 0;
		qp.phase = 1;
		raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_MEM, "none", 4, 0);
		working += raw_exec(&r, &qp, &sqe, NULL) == (GKV_SC_KEY_NOT_FOUND | GKV_DNR);
	}
	tap_ok(working == rounds, "F25, F24: doorbells of any value, then a reset: works again (%u of %u)",
	       working, rounds);
	tap_ok(hostile_unharmed(h), "others unharmed by doorbells");
	gone(&r, &qp);
}

/* ---- Data pointers ---- */

static void put_desc(struct raw *r, uint64_t off, uint64_t addr, uint32_t len, uint8_t type)
{
	struct gkv_sgl_desc d = { .addr = htole64(addr), .len = htole32(len), .type = type };

	memcpy(r->data + off, &d, sizeof(d));
}

static uint16_t sgl_store(struct raw *r, struct raw_qp *qp, uint64_t addr, uint32_t desc_len,
			  uint8_t type, uint32_t value)
{
	struct gkv_sqe sqe;

	raw_sqe(r, &sqe, GKV_OP_STORE, HOSTILE_NSID_MEM, "sgl", 3, value);
	sqe.dptr.sgl.addr = htole64(addr);
	sqe.dptr.sgl.len = htole32(desc_len);
	sqe.dptr.sgl.type = type;
	return raw_exec(r, qp, &sqe, NULL);
}

static void want_status(uint16_t got, uint16_t want, const char *what)
{
	if (!tap_ok(GKV_STATUS_CODE(got) == want, "%s: status %#x", what, want))
		tap_diag("status %#x", got);
}

static void test_lists(struct hostile *h)
{
	const uint32_t big = HOSTILE_VALUE_MAX;
	struct gkv_sqe sqe;
	struct raw_qp qp;
	struct raw r;
	uint64_t t0;

	if (!attacker(h, &r, &qp, 8))
		return;
	/* A segment that names itself, and two that name each other. */
	put_desc(&r, 0, IOVA, 16, GKV_SGL_SEGMENT);
	want_status(sgl_store(&r, &qp, IOVA, 16, GKV_SGL_SEGMENT, 4096), GKV_SC_SGL_COUNT,
		    "a segment that names itself");
	put_desc(&r, 0, IOVA + 4096, 16, GKV_SGL_SEGMENT);
	put_desc(&r, 4096, IOVA, 16, GKV_SGL_SEGMENT);
	want_status(sgl_store(&r, &qp, IOVA, 16, GKV_SGL_SEGMENT, big), GKV_SC_SGL_COUNT,
		    "two segments in a circle");
	/* A circle that moves on by nothing, of empty blocks. */
	for (unsigned int i = 0; i < 255; i++)
		put_desc(&r, i * 16, IOVA, 0, GKV_SGL_DATA_BLOCK);
	put_desc(&r, 255 * 16, IOVA, 4096, GKV_SGL_SEGMENT);
	want_status(sgl_store(&r, &qp, IOVA, 4096, GKV_SGL_SEGMENT, big), GKV_SC_SGL_COUNT,
		    "empty blocks in a circle");
	/* R6, R9: an address is in a region, or it is an error. */
	want_status(sgl_store(&r, &qp, UINT64_MAX - 100, 4096, GKV_SGL_DATA_BLOCK, 4096),
		    GKV_SC_SGL_LENGTH, "a block that wraps");
	want_status(sgl_store(&r, &qp, IOVA + RAW_DATA_LEN - 100, 4096, GKV_SGL_DATA_BLOCK, 4096),
		    GKV_SC_DATA_TRANSFER, "a block that leaves its region");
	want_status(sgl_store(&r, &qp, IOVA + RAW_DATA_LEN - 16, 32, GKV_SGL_LAST_SEGMENT, 4096),
		    GKV_SC_DATA_TRANSFER, "a segment that leaves its region");
	want_status(sgl_store(&r, &qp, IOVA - 4096, 8192, GKV_SGL_DATA_BLOCK, 8192),
		    GKV_SC_DATA_TRANSFER, "a block that begins before its region");

	/* PRP: a list whose last entry is the list; it ends with the length. */
	for (unsigned int i = 0; i < 512; i++) {
		uint64_t entry = htole64(IOVA + 8192);

		memcpy(r.data + i * 8, &entry, 8);
	}
	for (int loop = 0; loop < 2; loop++) {
		uint64_t entry = htole64(loop ? IOVA : IOVA + 4);

		memcpy(r.data + 511 * 8, &entry, 8);
		raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_MEM, "prp", 3, big);
		sqe.flags = 0;
		sqe.dptr.prp.prp1 = htole64(IOVA + 4096);
		sqe.dptr.prp.prp2 = htole64(IOVA);
		want_status(raw_exec(&r, &qp, &sqe, NULL), loop ? 0 : GKV_SC_PRP_OFFSET,
			    loop ? "a PRP list that goes in circles ends with the length, overlaps"
				   : "a PRP list that goes on at a misaligned address");
	}

	/* A million descriptors of a byte or none: bounded time, and others do not wait. */
	for (unsigned int i = 0; i < 65535; i++)
		put_desc(&r, i * 16, IOVA + i, i % 16 == 0, GKV_SGL_DATA_BLOCK);
	put_desc(&r, 65535 * 16, IOVA, RAW_DATA_LEN, GKV_SGL_SEGMENT);
	t0 = rig_now();
	for (int i = 0; i < 16; i++) {
		uint16_t status = sgl_store(&r, &qp, IOVA, RAW_DATA_LEN, GKV_SGL_SEGMENT, big);

		if (GKV_STATUS_CODE(status) != GKV_SC_SGL_COUNT) {
			tap_ok(false, "a chain of a million descriptors: status %#x", status);
			break;
		}
	}
	tap_ok(rig_now() - t0 < 10 * rig_slowdown() * SECOND,
	       "chains of a million descriptors, 16 times: refused, in %llu us",
	       (unsigned long long)(rig_now() - t0) / 1000);
	tap_ok(hostile_unharmed(h), "others unharmed by lists");
	gone(&r, &qp);
}

/* ---- Pools ---- */

/* F72: many Stores as large as can be and Lists of any size, for little buffer memory. */
static void test_buffers(struct hostile *h)
{
	static const uint32_t lists[] = { 4800000, 8u << 20, 0xffffffff, 65536, 1200000 };
	unsigned int sent = 0, done = 0;
	struct gkv_cqe cqe;
	struct raw_qp qp;
	struct raw r;

	if (!attacker(h, &r, &qp, DEPTH))
		return;
	/* The value is one block four times over: the region is smaller. */
	for (unsigned int i = 0; i < 5; i++)
		put_desc(&r, i * 16, IOVA, RAW_DATA_LEN, GKV_SGL_DATA_BLOCK);
	for (unsigned int round = 0; round < 6; round++) {
		unsigned int got = 0;

		for (unsigned int i = 0; i < DEPTH - 1; i++) {
			struct gkv_sqe sqe;
			char key[8];

			snprintf(key, sizeof(key), "buf%u", i % 40);
			if (i % 3 == 2) {
				raw_sqe(&r, &sqe, GKV_OP_LIST, HOSTILE_NSID_MEM, "", 0,
					lists[(i + round) % 5]);
			} else {
				raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_MEM, key,
					(uint8_t)strlen(key), HOSTILE_VALUE_MAX);
				sqe.dptr.sgl.len = htole32(4 * 16);
				sqe.dptr.sgl.type = GKV_SGL_LAST_SEGMENT;
			}
			raw_put(&qp, &sqe);
			sent++;
		}
		raw_ring(&r, &qp);
		while (got < DEPTH - 1 && raw_take(&r, &qp, &cqe, 20000 * rig_slowdown(), true))
			got++;
		done += got;
		if (got < DEPTH - 1)
			break;
	}
	tap_ok(done == sent, "F87: buffers run out: %u of %u Stores and Lists answered", done, sent);
	tap_ok(hostile_unharmed(h), "others unharmed by a want of buffers");
	gone(&r, &qp);
}

/* More slow commands than the daemon has operations for; nobody reads the completions. */
static void test_hoarding(struct hostile *h)
{
	enum { QPS = 40 };
	static struct raw_qp qps[QPS];
	struct raw_qp first;
	struct gkv_sqe sqe;
	unsigned int n = 0;
	struct raw r;

	if (!attacker(h, &r, &first, 2))
		return;
	for (; n < QPS; n++) {
		if (raw_qp_open(&r, &qps[n], 2 + n, HOSTILE_MAX_DEPTH, 0))
			break;
		raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_SLOW, "hoard", 5, 0);
		for (unsigned int i = 0; i < HOSTILE_MAX_DEPTH - 1; i++)
			raw_put(&qps[n], &sqe);
	}
	if (n < QPS)
		tap_diag("%s", r.text);
	for (unsigned int i = 0; i < n; i++)
		raw_ring(&r, &qps[i]);
	tap_ok(n == QPS, "40,920 slow commands at once");
	tap_ok(hostile_unharmed(h), "others go on while operations are hoarded");
	hostile_sleep_ms(1500);
	tap_ok(hostile_unharmed(h), "and while completions are not read");
	raw_close(&r);
	for (unsigned int i = 0; i < n; i++)
		raw_qp_free(&qps[i]);
	raw_qp_free(&first);
}

/* ---- The eventfd and the state page ---- */

/* Create queue pair @qid for a host client; its eventfd, or a negative errno. */
static int host_qp(struct raw *r, struct raw_qp *qp, uint32_t qid)
{
	struct gkv_msg_qp_add m = { .qid = htole32(qid), .depth = htole32(8),
				    .flags = htole32(GKV_QP_F_HOST), .cq_offset = htole64(4096),
				    .rec_offset = htole64(8192) };
	struct gkv_msg_qp_add_reply reply;
	unsigned int nfds = 1;
	int fds[3], fd = -1;
	void *map;

	memset(qp, 0, sizeof(*qp));
	qp->len = 12288;
	qp->fd = raw_memfd(qp->len, &map);
	qp->base = map;
	qp->sq = map;
	qp->cq = (volatile struct gkv_cqe *)(qp->base + 4096);
	qp->rec = qp->base + 8192;
	qp->qid = (uint16_t)qid;
	qp->depth = 8;
	qp->phase = 1;
	fds[0] = fds[1] = fds[2] = qp->fd;
	hostile_head(&m, GKV_MSG_QP_ADD, sizeof(m));
	if (hostile_send(r->sock, &m, sizeof(m), fds, 3) ||
	    hostile_recv(r->sock, &reply, sizeof(reply), 5000, &fd, &nfds) <= 0)
		return -EPIPE;
	if (reply.r.hdr.error)
		return -(int)le32toh(reply.r.hdr.error);
	return nfds == 1 ? fd : -EBADMSG;
}

static void *read_away(void *arg)
{
	int fd = *(int *)arg;
	uint64_t v;

	/* Until the last holder... which it is itself: so until told, by a huge value. */
	while (read(fd, &v, sizeof(v)) != sizeof(v) || v < 1ull << 62)
		;
	return NULL;
}

static void test_eventfd(struct hostile *h)
{
	uint64_t full = UINT64_MAX - 1, one = 1;
	pthread_t thread;
	struct gkv_sqe sqe;
	struct raw_qp qp;
	bool ok = true;
	struct raw r;
	int fd;

	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_MEM, 0) ||
	    raw_data(&r, IOVA)) {
		tap_ok(false, "F22: a session: %s", r.text);
		return;
	}
	fd = host_qp(&r, &qp, 1);
	if (!tap_ok(fd >= 0, "F22: an eventfd comes with the queue pair")) {
		raw_close(&r);
		return;
	}
	/* Blocking now, for the daemon as well: it shares the file. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	if (pthread_create(&thread, NULL, read_away, &fd))
		abort();
	for (unsigned int i = 0; i < 20000 / rig_slowdown(); i++)
		ok = ok && write(fd, &one, sizeof(one)) == sizeof(one);
	tap_ok(ok && hostile_unharmed(h), "F22: an eventfd made blocking, rung and read away");
	while (write(fd, &full, sizeof(full)) != sizeof(full))
		;
	pthread_join(thread, NULL);
	ok = write(fd, &full, sizeof(full)) == sizeof(full);
	tap_ok(ok && hostile_unharmed(h), "F22: an eventfd with its counter full");
	/* A full counter rang once; the queue pair is served. */
	raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_MEM, "none", 4, 0);
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == (GKV_SC_KEY_NOT_FOUND | GKV_DNR),
	       "F22: no wake-up is owed for a queue pair that was just rung");
	close(fd);
	gone(&r, &qp);
}

static void test_state_page(struct hostile *h)
{
	int sock = hostile_connect(h->rig.socket), fd = -1, rw;
	struct gkv_msg_hello_reply reply;
	struct gkv_msg_hello hello;
	unsigned int nfds = 1;
	char path[64];
	void *map;

	hostile_hello(&hello, -1, 0);
	if (sock < 0 || hostile_send(sock, &hello, sizeof(hello), NULL, 0) ||
	    hostile_recv(sock, &reply, sizeof(reply), 5000, &fd, &nfds) != sizeof(reply) ||
	    nfds != 1) {
		tap_ok(false, "the hello's reply brings the state page");
		return;
	}
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	tap_ok(map != MAP_FAILED, "the state page can be mapped for reading");
	if (map != MAP_FAILED)
		tap_ok(mprotect(map, 4096, PROT_READ | PROT_WRITE) != 0,
		       "and not be made writable");
	tap_ok(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED,
	       "nor mapped for writing");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rw = open(path, O_RDWR | O_CLOEXEC);
	tap_ok(rw < 0 || (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, rw, 0) == MAP_FAILED &&
			  write(rw, path, 1) < 0 && ftruncate(rw, 0) < 0 &&
			  fallocate(rw, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0 &&
			  fcntl(rw, F_ADD_SEALS, F_SEAL_WRITE) < 0),
	       "opened again for writing it is neither mapped, written, shrunk, punched nor sealed");
	if (rw >= 0)
		close(rw);
	close(fd);
	close(sock);
}

int main(void)
{
	struct hostile h;

	hostile_start(&h);
	test_state_page(&h);
	test_lists(&h);
	test_doorbells(&h);
	test_eventfd(&h);
	test_buffers(&h);
	test_random_commands(&h);
	test_rewritten_entries(&h);
	test_scribbled_rings(&h);
	test_hoarding(&h);
	hostile_finish(&h);
	return tap_done();
}
