/* SPDX-License-Identifier: MIT */
/*
 * Doorbells in VRAM that share a line: one read for each look serves them all, a neighbour's
 * memory may go at any moment, and what is read is never older than the look. Queue pairs have
 * mappings of their own of one page, as a daemon has; accessors are built to tell of each access.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

#define KVB_TRACE_ACCESS
#include "core/reactor_priv.h"

#define PAGE	4096u
#define PAGES	2u
#define QPS	20u
#define DEPTH	32u

struct member {
	struct kvb_qp qp;
	char *map;		/* PAGES pages; NULL: none */
	_Atomic bool dead;
	struct gkv_rec_hdr rec;
};

static struct kvb_reactor r;
static struct member members[QPS];
static char *vram;		/* as the device has it */
static int fd;

static struct {
	unsigned int loads, bytes;
	bool acquired, fresh;	/* before the last load, and after it */
	struct member *victim;	/* loses its memory in the next load through its mapping */
} seen;

/* As the handler of SIGBUS does. */
static void take_away(struct member *m)
{
	atomic_store(&m->dead, true);
	assert_ptr_equal(mmap(m->map, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), m->map);
}

static bool within(const struct member *m, const volatile void *at)
{
	uintptr_t p = (uintptr_t)at, map = (uintptr_t)m->map;

	return p >= map && p < map + (uintptr_t)PAGES * PAGE;
}

void kvb_trace(enum kvb_access what, const volatile void *at, size_t len)
{
	if (what == KVB_ACCESS_ACQUIRE) {
		seen.acquired = seen.fresh = true;
	} else if (what == KVB_ACCESS_LOAD) {
		assert_true(seen.acquired);
		assert_true(len == kvb_bar_line() || len == 8);
		assert_int_equal((uintptr_t)at % len, 0);
		seen.loads++;
		seen.bytes += (unsigned int)len;
		seen.acquired = seen.fresh = false;
		if (seen.victim && within(seen.victim, at)) {
			take_away(seen.victim);
			seen.victim = NULL;
		}
	}
}

/* A queue pair whose doorbells are at @offset; added to the reactor. */
static struct kvb_qp *add(unsigned int i, uint64_t session, uint64_t page, size_t offset,
			  size_t stride)
{
	struct member *m = &members[i];
	struct kvb_qp *qp = &m->qp;

	memset(m, 0, sizeof(*m));
	m->map = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(m->map, MAP_FAILED);
	qp->mode = GKV_MODE_DB;
	qp->qid = (uint16_t)(i + 1);
	qp->depth = DEPTH;
	qp->session = session;
	qp->db_page = page;
	qp->sq_db = m->map + offset;
	qp->cq_db = m->map + offset + stride;
	qp->dead[0] = &m->dead;
	qp->rec = &m->rec;
	assert_int_equal(kvb_reactor_add_qp(&r, qp), 0);
	return qp;
}

static void del(unsigned int i)
{
	struct member *m = &members[i];

	if (!m->map)
		return;
	kvb_reactor_del_qp(&r, &m->qp);
	munmap(m->map, (size_t)PAGES * PAGE);
	m->map = NULL;
}

static void ring(size_t offset, uint32_t v)
{
	__atomic_store_n((uint32_t *)(vram + offset), v, __ATOMIC_RELEASE);
}

/* Begin a look. */
static void look(void)
{
	kvb_db_look(&r.dblines);
	seen.loads = seen.bytes = 0;
}

static void assert_tail(struct kvb_qp *qp, uint32_t tail)
{
	kvb_qp_rung(qp);
	assert_int_equal(qp->tail, tail);
	/* Entries that are loaded now are as new as the doorbell. */
	assert_true(seen.fresh);
}

static int setup(void **state)
{
	(void)state;
	memset(&r, 0, sizeof(r));
	memset(&seen, 0, sizeof(seen));
	fd = memfd_create("vram", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)PAGES * PAGE))
		return -1;
	vram = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return vram == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < QPS; i++)
		del(i);
	for (unsigned int i = 0; i < KVB_DBLINE_BUCKETS; i++)
		assert_null(r.dblines.buckets[i]);
	free(r.qps);
	munmap(vram, (size_t)PAGES * PAGE);
	close(fd);
	return 0;
}

/* However many there are and however often each is asked for: a read for each line and look. */
static void test_one_read(void **state)
{
	unsigned int per_line = kvb_bar_line() / 8, lines = (QPS + per_line - 1) / per_line;

	(void)state;
	for (unsigned int i = 0; i < QPS; i++)
		add(i, 1, 77, 8 * i, 4);
	for (uint32_t n = 1; n < 5; n++) {
		for (unsigned int i = 0; i < QPS; i++) {
			ring(8 * i, n + i);
			ring(8 * i + 4, n * i % DEPTH);
		}
		look();
		for (int again = 0; again < 3; again++) {
			for (unsigned int i = 0; i < QPS; i++) {
				assert_tail(&members[i].qp, n + i);
				assert_int_equal(kvb_db_read(&members[i].qp.db[1]), n * i % DEPTH);
			}
		}
		assert_int_equal(seen.loads, lines);
		assert_int_equal(seen.bytes, lines * kvb_bar_line());
	}
}

/* What is rung within a look is seen in the next. */
static void test_next_look(void **state)
{
	struct kvb_qp *a, *b;

	(void)state;
	a = add(0, 1, 77, 0, 4);
	b = add(1, 1, 77, 8, 4);
	look();
	assert_tail(a, 0);
	ring(0, 3);
	ring(8, 4);
	look();
	assert_tail(b, 4);
	assert_tail(a, 3);
}

/* Sessions do not see each other's; nor do pages that are not known to be the same. */
static void test_apart(void **state)
{
	(void)state;
	add(0, 1, 77, 0, 4);
	add(1, 2, 77, 8, 4);
	add(2, 1, 0, 16, 4);
	add(3, 1, 0, 24, 4);
	add(4, 1, 78, 32, 4);
	/* The first one's neighbour, in a page further on. */
	add(5, 1, 77, 64, 4);
	ring(8, 5);
	look();
	for (int again = 0; again < 2; again++) {
		for (unsigned int i = 0; i < 6; i++)
			assert_tail(&members[i].qp, i == 1 ? 5 : 0);
	}
	assert_int_equal(seen.loads, 6);
	/* What nobody can share is not read in vain. */
	assert_int_equal(seen.bytes, 4 * kvb_bar_line() + 2 * 8);
	/* With each SQ tail its CQ head came, too. */
	for (unsigned int i = 0; i < 6; i++)
		kvb_db_read(&members[i].qp.db[1]);
	assert_int_equal(seen.loads, 6);
}

static void test_strides(void **state)
{
	static const size_t strides[] = { 4, 8, 64, 2048, PAGE };

	(void)state;
	for (unsigned int i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
		/* The last word of a page, too: the head may lie in the next one. */
		size_t stride = strides[i], from = stride < 64 ? PAGE - 8 : 8;
		struct kvb_qp *a = add(0, 1, 77, from, stride), *b = add(1, 1, 77, from, stride);
		bool next = from / PAGE != (from + stride) / PAGE;

		ring(from, 7);
		ring(from + stride, 9);
		look();
		assert_tail(a, 7);
		assert_tail(b, 7);
		assert_int_equal(seen.loads, 1);
		assert_int_equal(kvb_db_read(&a->db[1]), 9);
		assert_int_equal(kvb_db_read(&b->db[1]), 9);
		assert_int_equal(seen.loads, next ? 3 : stride == 4 ? 1 : 2);
		ring(from, 0);
		ring(from + stride, 0);
		del(0);
		del(1);
	}
}

/* Zeros in the place of a neighbour's memory are nobody's doorbell. */
static void test_taken_away(void **state)
{
	unsigned int n = kvb_bar_line() / 8;

	(void)state;
	/* Where a line is a word, in the same one. */
	for (unsigned int i = 0; i < 4; i++)
		add(i, 1, 77, n > 1 ? 8 * i : 0, 4);
	for (unsigned int i = 0; i < 4; i++)
		ring(n > 1 ? 8 * i : 0, n > 1 ? 10 + i : 10);
	for (unsigned int gone = 0; gone < 4; gone++) {
		unsigned int reader = 3 - gone;

		/* Whose mapping it is read through: the one that came last. */
		seen.victim = &members[reader];
		look();
		for (unsigned int i = 0; i < 4; i++) {
			kvb_qp_rung(&members[i].qp);
			assert_int_equal(members[i].qp.tail, gone == 3 ? KVB_DB_GONE :
					 n > 1 ? 10 + i : 10);
		}
		assert_null(seen.victim);
		assert_int_equal(seen.loads, gone == 3 ? 1 : 2);
		assert_true(kvb_qp_dead(&members[reader].qp));
		/* It goes its way, its neighbours run on. */
		kvb_qp_poll(&members[reader].qp, KVB_FETCH_MAX);
		assert_int_equal(members[reader].qp.state, KVB_QP_ERROR);
		assert_int_equal(members[reader].qp.error_reason, KVB_QP_MEMORY_GONE);
		for (unsigned int i = 0; i < reader; i++)
			assert_int_equal(members[i].qp.state, KVB_QP_RUNNING);
	}
}

/* Whose memory is known to be gone is not read through at all. */
static void test_gone_before(void **state)
{
	(void)state;
	add(0, 1, 77, 0, 4);
	add(1, 1, 77, 0, 4);
	ring(0, 6);
	take_away(&members[1]);
	look();
	assert_tail(&members[0].qp, 6);
	assert_int_equal(seen.loads, 1);
}

/* The one it is read through leaves with its mapping, then all do; and one comes back. */
static void test_leave(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		add(i, 1, 77, 0, 4);
	look();
	assert_tail(&members[0].qp, 0);
	del(2);
	ring(0, 2);
	look();
	assert_tail(&members[0].qp, 2);
	del(0);
	look();
	assert_tail(&members[1].qp, 2);
	del(1);
	add(0, 1, 77, 0, 4);
	look();
	assert_tail(&members[0].qp, 2);
}

/* One that comes within a look has had its doorbells zeroed since the line was read. */
static void test_join(void **state)
{
	(void)state;
	add(0, 1, 77, 0, 4);
	ring(0, 9);
	look();
	assert_tail(&members[0].qp, 9);
	ring(0, 0);
	add(1, 1, 77, 0, 4);
	assert_tail(&members[1].qp, 0);
}

/* A reset zeroes doorbells: what they were before is submitted no second time. */
static void test_reset(void **state)
{
	static char rec[GKV_REC_LEN(DEPTH)] __attribute__((aligned(4096)));
	static char cq[DEPTH * sizeof(struct gkv_cqe)] __attribute__((aligned(4096)));
	static uint16_t free_rec[DEPTH];
	struct kvb_qp *qp;

	(void)state;
	qp = add(0, 1, 77, 0, 4);
	add(1, 1, 77, kvb_bar_line() / 2 / 8 * 8, 4);
	qp->cq = cq;
	qp->rec = (struct gkv_rec_hdr *)rec;
	qp->free_rec = free_rec;
	ring(0, 5);
	ring(4, 3);
	look();
	assert_tail(qp, 5);
	kvb_qp_init_record(qp);
	assert_false(kvb_qp_rung(qp));
	assert_int_equal(kvb_db_read(&qp->db[1]), 0);
	assert_tail(&members[1].qp, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_one_read), T(test_next_look), T(test_apart), T(test_strides),
		T(test_taken_away), T(test_gone_before), T(test_leave), T(test_join), T(test_reset),
	};

	kvb_log_set_level(KVB_LOG_ERR);
	return cmocka_run_group_tests_name("dbline", tests, NULL, NULL);
}
