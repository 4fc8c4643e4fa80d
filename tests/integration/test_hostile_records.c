/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * Forged in-flight records: a client hands over a queue pair whose record, completions and
 * doorbells say anything. Only its own queue pair suffers, and what is accepted keeps the
 * promise of one completion for each command. A well-behaved client runs beside all of it.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hostile.h"

#define SECOND	1000000000ull
#define IOVA	0x7000000000ull
#define DEPTH	16u
#define CQ_AT	4096u
#define REC_AT	8192u
#define LEN	(4u * 4096)

static uint64_t seed = 3;

static uint64_t rnd(void)
{
	return hostile_random(&seed);
}

struct forger {
	struct raw r;
	uint8_t *mem;		/* SQ, CQ, record */
	int fd;
	struct gkv_rec_hdr *hdr;
	struct gkv_rec_entry *entries;
	struct gkv_cqe *cq;
	uint32_t resumed;
};

static int add_at(struct forger *f, uint32_t qid, uint32_t depth, uint32_t flags, int fd)
{
	struct gkv_msg_qp_add m = { .qid = htole32(qid), .depth = htole32(depth),
				    .flags = htole32(flags), .cq_offset = htole64(CQ_AT),
				    .rec_offset = htole64(REC_AT) };
	int fds[3] = { fd, fd, fd };
	struct gkv_msg_qp_add_reply reply;
	int ret;

	hostile_head(&m, GKV_MSG_QP_ADD, sizeof(m));
	ret = raw_call(&f->r, &m, sizeof(m), fds, 3, &reply, sizeof(reply));
	f->resumed = le32toh(reply.resumed);
	return ret;
}

static int resume(struct forger *f)
{
	return add_at(f, 1, DEPTH, GKV_QP_F_RESUME, f->fd);
}

static volatile uint32_t *doorbell(struct forger *f, bool cq)
{
	uint16_t dstrd = le16toh(f->r.limits.dstrd);

	return (volatile uint32_t *)(f->r.doorbells + (cq ? GKV_CQ_HEAD_DB(1, dstrd)
						       : GKV_SQ_TAIL_DB(1, dstrd)));
}

static bool forger_open(struct forger *f, struct hostile *h, bool namespaces)
{
	void *map;

	memset(f, 0, sizeof(*f));
	if (raw_open(&f->r, h->rig.socket) ||
	    (namespaces && (raw_ns_open(&f->r, HOSTILE_NSID_MEM, 0) ||
			    raw_ns_open(&f->r, HOSTILE_NSID_LOCAL, 0))) ||
	    raw_data(&f->r, IOVA)) {
		tap_ok(false, "a session: %s", f->r.text);
		return false;
	}
	f->fd = raw_memfd(LEN, &map);
	f->mem = map;
	f->cq = (struct gkv_cqe *)(f->mem + CQ_AT);
	f->hdr = (struct gkv_rec_hdr *)(f->mem + REC_AT);
	f->entries = (struct gkv_rec_entry *)(f->hdr + 1);
	return true;
}

static void forger_close(struct forger *f)
{
	raw_close(&f->r);
	munmap(f->mem, LEN);
	close(f->fd);
}

/* A good record of a queue pair on which nothing has happened. */
static void fresh(struct forger *f)
{
	memset(f->mem, 0, LEN);
	f->hdr->magic = htole32(GKV_REC_MAGIC);
	f->hdr->version = htole16(GKV_REC_VERSION);
	f->hdr->qid = htole16(1);
	f->hdr->depth = htole32(DEPTH);
	f->hdr->entry_size = htole32(sizeof(struct gkv_rec_entry));
	f->hdr->uid = htole64(rnd());
	*doorbell(f, false) = 0;
	*doorbell(f, true) = 0;
}

/* A command in flight, in a state. */
static void live(struct forger *f, unsigned int i, uint64_t seq, uint32_t state, uint8_t opcode,
		 uint32_t nsid, const char *key)
{
	struct gkv_rec_entry *e = &f->entries[i];
	struct gkv_sqe sqe;

	raw_sqe(&f->r, &sqe, opcode, nsid, key, (uint8_t)strlen(key), 3000);
	sqe.cid = htole16((uint16_t)(100 + i));
	e->sqe = sqe;
	e->seq = htole64(seq);
	e->state = htole32(state);
}

/* Completions that come within @ms. */
static unsigned int completions(struct forger *f, unsigned int from, unsigned int want,
				unsigned int ms)
{
	uint64_t end = rig_now() + (uint64_t)ms * 1000000 * rig_slowdown();
	unsigned int n;

	do {
		for (n = 0; n < DEPTH - 1; n++) {
			uint16_t status = __atomic_load_n(&f->cq[(from + n) % DEPTH].status,
							  __ATOMIC_ACQUIRE);

			if ((le16toh(status) & 1) != (from + n < DEPTH))
				break;
		}
		if (n >= want)
			break;
		hostile_sleep_ms(1);
	} while (rig_now() < end);
	return n;
}

static void refused(struct forger *f, const char *what, const char *says)
{
	int ret = resume(f);

	if (!tap_ok(ret == -EINVAL && strstr(f->r.text, says), "a record %s is refused", what))
		tap_diag("%d: %s", ret, f->r.text);
	if (!ret)
		raw_id(&f->r, GKV_MSG_QP_DEL, 1);
}

static void test_refusals(struct hostile *h)
{
	struct forger f;
	int ret;

	if (!forger_open(&f, h, true))
		return;
	fresh(&f);
	tap_ok(resume(&f) == 0 && f.resumed == 0 && !raw_id(&f.r, GKV_MSG_QP_DEL, 1),
	       "a good record of an idle queue pair is taken");
	memset(f.mem, 0, LEN);
	refused(&f, "of zeroes", "magic 0");
	fresh(&f);
	f.hdr->version = htole16(2);
	refused(&f, "of another version", "version 2");
	fresh(&f);
	f.hdr->depth = htole32(DEPTH * 2);
	refused(&f, "of another depth (F20)", "depth 32");
	fresh(&f);
	f.hdr->qid = htole16(9);
	refused(&f, "of another queue pair (F11)", "queue pair 9");
	fresh(&f);
	f.hdr->entry_size = htole32(64);
	refused(&f, "with entries of another size", "64 bytes");
	fresh(&f);
	f.hdr->cq_seq = htole64(UINT64_MAX);
	refused(&f, "of 2^64 completions", "18446744073709551615");
	fresh(&f);
	live(&f, 3, 0, 5, GKV_OP_EXIST, 1, "key");
	refused(&f, "with an entry in state 5", "state 5");
	fresh(&f);
	live(&f, 3, 0, 0x80000001, GKV_OP_EXIST, 1, "key");
	refused(&f, "with an entry in state 2^31 + 1", "state 2147483649");
	fresh(&f);
	live(&f, 3, 0, GKV_REC_FETCHED, GKV_OP_EXIST, 1, "key");
	live(&f, 7, 0, GKV_REC_FETCHED, GKV_OP_EXIST, 1, "key");
	refused(&f, "with the same command twice", "twice");
	fresh(&f);
	for (unsigned int i = 0; i < DEPTH; i++)
		live(&f, i, i, GKV_REC_FETCHED, GKV_OP_EXIST, 1, "key");
	refused(&f, "with more commands than may be outstanding", "more than 15");
	fresh(&f);
	live(&f, 3, 1, GKV_REC_FETCHED, GKV_OP_EXIST, 1, "key");
	refused(&f, "with a command that was never submitted", "command 1");
	fresh(&f);
	live(&f, 3, UINT64_MAX, GKV_REC_HANDED, GKV_OP_STORE, 1, "key");
	refused(&f, "with command 2^64 - 1", "18446744073709551615");
	fresh(&f);
	for (unsigned int i = 0; i < DEPTH; i++)
		f.cq[i].status = htole16(1);
	refused(&f, "whose CQ shows every phase", "newer");
	fresh(&f);
	*doorbell(&f, true) = htole32(DEPTH);
	refused(&f, "with a CQ head beyond the ring", "doorbell 16");
	fresh(&f);
	f.hdr->cq_seq = htole64(1);
	f.cq[0].status = htole16(1);
	*doorbell(&f, true) = htole32(2);
	for (unsigned int i = 0; i < 2; i++)
		live(&f, i, 1 + i, GKV_REC_FETCHED, GKV_OP_EXIST, 1, "key");
	refused(&f, "with a CQ head beyond what was posted", "unread");
	fresh(&f);
	ret = add_at(&f, 1, DEPTH * 2, GKV_QP_F_RESUME, f.fd);
	tap_ok(ret == -EINVAL && f.r.text[0], "F20: a record is not taken at another depth");
	ret = add_at(&f, 1, 65537, GKV_QP_F_RESUME, f.fd);
	tap_ok(ret == -EINVAL && f.r.text[0], "F13: nor at a depth above the protocol's");
	forger_close(&f);
}

/* Commands nobody ever submitted: each gets one completion, and does no more than it says. */
static void test_invented(struct hostile *h)
{
	static const uint8_t opcodes[] = { GKV_OP_STORE, GKV_OP_RETRIEVE, GKV_OP_DELETE,
					   GKV_OP_EXIST, GKV_OP_LIST, 0x55 };
	bool ok = true;
	struct forger f;

	if (!forger_open(&f, h, true))
		return;
	for (uint32_t nsid = 1; nsid <= 4 && ok; nsid++) {
		for (uint32_t state = GKV_REC_FETCHED; state <= GKV_REC_POSTING && ok; state++) {
			fresh(&f);
			for (unsigned int i = 0; i < DEPTH - 1; i++)
				live(&f, i, i, state, opcodes[i % sizeof(opcodes)], nsid, "forged");
			if (state == GKV_REC_POSTING) {
				/* Half of them posted by their own account; the CQ knows better. */
				for (unsigned int i = 0; i < DEPTH - 1; i += 2)
					f.entries[i].cq_seq = htole64(1000);
				f.entries[1].cq_seq = 0;
			}
			ok = resume(&f) == 0 && f.resumed == DEPTH - 1 &&
			     completions(&f, 0, DEPTH - 1, 5000) == DEPTH - 1;
			if (!ok)
				tap_diag("state %u: %u resumed, %u completions: %s", state, f.resumed,
					 completions(&f, 0, 0, 0), f.r.text);
			ok = raw_id(&f.r, GKV_MSG_QP_DEL, 1) == 0 && ok;
		}
	}
	tap_ok(ok, "commands that never existed: one completion each, in every state");

	/* Namespaces that are not open, as far as the record is concerned. */
	forger_close(&f);
	if (!forger_open(&f, h, false))
		return;
	fresh(&f);
	for (unsigned int i = 0; i < DEPTH - 1; i++)
		live(&f, i, i, 1 + i % 2, opcodes[i % sizeof(opcodes)], 1 + i % 8, "forged");
	ok = resume(&f) == 0 && completions(&f, 0, DEPTH - 1, 5000) == DEPTH - 1;
	for (unsigned int i = 0; i < DEPTH - 1 && ok; i++)
		ok = le16toh(f.cq[i].status) >> 1 == (GKV_SC_INVALID_FIELD | GKV_DNR);
	tap_ok(ok, "a record grants no access to a namespace");
	forger_close(&f);
}

/* Two queue pairs on the same memory: a mess, and theirs. */
static void test_shared_record(struct hostile *h)
{
	struct forger f;
	int ret;

	if (!forger_open(&f, h, true))
		return;
	fresh(&f);
	for (unsigned int i = 0; i < 8; i++)
		live(&f, i, i, GKV_REC_FETCHED, GKV_OP_STORE, HOSTILE_NSID_LOCAL, "shared");
	ret = resume(&f);
	f.hdr->qid = htole16(2);
	ret = ret ? ret : add_at(&f, 2, DEPTH, GKV_QP_F_RESUME, f.fd);
	if (ret)
		tap_diag("%d: %s", ret, f.r.text);
	for (unsigned int i = 0; i < 100; i++) {
		*doorbell(&f, false) = htole32(i % DEPTH);
		*(doorbell(&f, false) + 2) = htole32(i * 3 % DEPTH);
		f.entries[i % DEPTH].state = htole32((uint32_t)rnd() % 6);
		hostile_sleep_ms(1);
	}
	raw_id(&f.r, GKV_MSG_QP_RESET, 2);
	raw_id(&f.r, GKV_MSG_QP_RESET, 1);
	ret = raw_id(&f.r, GKV_MSG_QP_DEL, 1);
	tap_ok(ret == 0, "two queue pairs on one record");
	tap_ok(hostile_unharmed(h), "others unharmed by them");
	forger_close(&f);
}

/* Any bytes, most of them close to a good record; the memory changes while it is taken. */
static void test_random_records(struct hostile *h)
{
	unsigned int rounds = 4000 / rig_slowdown(), taken = 0, refusals = 0, other = 0;
	uint64_t end = rig_now() + 20 * SECOND;
	struct forger f;

	if (!forger_open(&f, h, true))
		return;
	for (unsigned int n = 0; n < rounds && rig_now() < end; n++) {
		unsigned int lives = (unsigned int)(rnd() % DEPTH), flips;
		uint64_t posted = rnd() % 3 ? 0 : rnd() % 100;
		int ret;

		fresh(&f);
		f.hdr->cq_seq = htole64(posted);
		for (unsigned int i = 0; i < posted && i < DEPTH; i++)
			f.cq[(posted - 1 - i) % DEPTH].status =
				htole16(!((posted - 1 - i) / DEPTH & 1));
		*doorbell(&f, true) = htole32((uint32_t)(posted % DEPTH));
		*doorbell(&f, false) = htole32((uint32_t)((posted + lives) % DEPTH));
		for (unsigned int i = 0; i < lives; i++)
			live(&f, i, posted + i, (uint32_t)(rnd() % 5), (uint8_t)(rnd() % 21),
			     1 + (uint32_t)(rnd() % 3 / 2), "fuzzed");
		flips = rnd() % 3 ? (unsigned int)(rnd() % 4) : (unsigned int)(rnd() % 200);
		for (unsigned int i = 0; i < flips; i++)
			f.mem[CQ_AT + rnd() % (LEN - CQ_AT)] ^= (uint8_t)(1u << rnd() % 8);
		ret = resume(&f);
		if (ret == 0) {
			taken++;
			/* It goes on changing while the commands are taken up. */
			for (unsigned int i = 0; i < 50; i++)
				f.mem[CQ_AT + rnd() % (LEN - CQ_AT)] ^= (uint8_t)(1u << rnd() % 8);
			*doorbell(&f, false) = htole32((uint32_t)(rnd() % DEPTH));
			if (rnd() % 4 == 0)
				hostile_sleep_ms(1);
			if (rnd() % 2)
				raw_id(&f.r, GKV_MSG_QP_RESET, 1);
			if (raw_id(&f.r, GKV_MSG_QP_DEL, 1))
				break;
		} else if (ret == -EINVAL && f.r.text[0]) {
			refusals++;
		} else {
			tap_diag("%d: %s", ret, f.r.text);
			other++;
			break;
		}
	}
	tap_ok(taken > 50 && refusals > 50 && !other, "random records: %u taken, %u refused", taken,
	       refusals);
	tap_ok(hostile_unharmed(h), "others unharmed by random records");
	forger_close(&f);
}

/* A record of the protocol's full depth, all entries live, with the longest lists there are. */
static void test_huge_record(struct hostile *h)
{
	const uint32_t depth = 65536;
	size_t sq = (size_t)depth * 64, cq = (size_t)depth * 16, rec = GKV_REC_LEN(depth);
	size_t len = (sq + cq + rec + 4095) & ~(size_t)4095;
	struct gkv_msg_qp_add m = { .qid = htole32(1), .depth = htole32(depth),
				    .flags = htole32(GKV_QP_F_RESUME), .cq_offset = htole64(sq),
				    .rec_offset = htole64(sq + cq) };
	struct gkv_msg_qp_add_reply reply;
	struct gkv_rec_entry *entries;
	struct gkv_rec_hdr *hdr;
	struct raw_qp qp;
	struct gkv_sqe sqe;
	int fd, fds[3], ret;
	struct raw r;
	void *map;

	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_MEM, 0) ||
	    raw_data(&r, IOVA) || raw_qp_open(&r, &qp, 2, 4, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	/* A long value, so that a Retrieve has a long list to map. */
	for (unsigned int i = 0; i < 16384; i++) {
		struct gkv_sgl_desc d = { .addr = htole64(IOVA + (i * 512u) % (RAW_DATA_LEN / 2)),
					  .len = htole32(256), .type = GKV_SGL_DATA_BLOCK };

		memcpy(r.data + RAW_DATA_LEN / 2 + i * 16, &d, 16);
	}
	raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_MEM, "long", 4, 4u << 20);
	sqe.dptr.sgl.addr = htole64(IOVA + RAW_DATA_LEN / 2);
	sqe.dptr.sgl.len = htole32(16384 * 16);
	sqe.dptr.sgl.type = GKV_SGL_LAST_SEGMENT;
	ret = raw_exec(&r, &qp, &sqe, NULL);
	fd = raw_memfd(len, &map);
	hdr = (struct gkv_rec_hdr *)((char *)map + sq + cq);
	entries = (struct gkv_rec_entry *)(hdr + 1);
	hdr->magic = htole32(GKV_REC_MAGIC);
	hdr->version = htole16(GKV_REC_VERSION);
	hdr->qid = htole16(1);
	hdr->depth = htole32(depth);
	hdr->entry_size = htole32(sizeof(struct gkv_rec_entry));
	sqe.opcode = GKV_OP_RETRIEVE;
	for (uint32_t i = 0; i < depth - 1; i++) {
		entries[i].sqe = sqe;
		entries[i].seq = htole64(i);
		entries[i].state = htole32(GKV_REC_FETCHED);
	}
	fds[0] = fds[1] = fds[2] = fd;
	hostile_head(&m, GKV_MSG_QP_ADD, sizeof(m));
	ret = ret ? -1 : raw_call(&r, &m, sizeof(m), fds, 3, &reply, sizeof(reply));
	tap_ok(ret == 0 && le32toh(reply.resumed) == depth - 1,
	       "a forged record of 65,535 commands with lists of 16,384 pieces");
	hostile_sleep_ms(500);
	tap_ok(hostile_unharmed(h), "others unharmed by it");
	raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_MEM, "long", 4, 0);
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == 0, "nor its own session's other queue pair");
	raw_close(&r);
	raw_qp_free(&qp);
	munmap(map, len);
	close(fd);
}

int main(void)
{
	struct hostile h;

	hostile_start(&h);
	test_refusals(&h);
	test_invented(&h);
	test_shared_record(&h);
	test_random_records(&h);
	test_huge_record(&h);
	hostile_finish(&h);
	return tap_done();
}
