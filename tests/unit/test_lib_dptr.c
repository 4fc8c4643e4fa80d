/* SPDX-License-Identifier: MIT */
/*
 * Data pointers that libgkv makes, read back as a controller would: SGLs with and
 * without chained segments, PRPs with and without chained list pages (F26).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gkv.h>

#include "fakedaemon.h"

#define PAGE	4096ull
#define MEM_LEN	(80ull << 20)

static struct fake fake;
static struct gkv *g;
static struct gkv_mem *mem, *other;
static uint8_t *base;

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	if (gkv_connect(&g, fake.path, 0, 0) || gkv_mem_alloc(g, MEM_LEN, &mem) ||
	    gkv_mem_alloc(g, PAGE, &other))
		return -1;
	base = gkv_mem_addr(mem);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gkv_close(g);
	fake_fini(&fake);
	return 0;
}

static struct gkv_qp *queue(uint32_t depth, uint32_t flags, uint32_t max_segs)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = depth, .flags = flags,
				 .max_segs = max_segs };
	struct gkv_qp *qp;

	if (gkv_qp_create(g, &o, &qp))
		fail_msg("%s", gkv_error());
	return qp;
}

/* A list of what a command covers. */
struct span {
	uint64_t addr, len;
};

struct spans {
	struct span *v;
	size_t n, cap;
	unsigned int pages;	/* of lists */
};

static void add(struct spans *s, uint64_t addr, uint64_t len)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->v = realloc(s->v, s->cap * sizeof(*s->v));
		assert_non_null(s->v);
	}
	s->v[s->n++] = (struct span){ addr, len };
}

/* Base 4.3.2, strictly. */
static void read_sgl(const struct gkv_sqe *sqe, struct spans *s)
{
	struct gkv_sgl_desc d = sqe->dptr.sgl;

	assert_int_equal(sqe->flags, GKV_PSDT_SGL << 6);
	s->n = 0;
	s->pages = 0;
	if (d.type == GKV_SGL_DATA_BLOCK) {
		add(s, d.addr, d.len);
		return;
	}
	for (;;) {
		bool last = d.type == GKV_SGL_LAST_SEGMENT;
		uint32_t n = d.len / sizeof(d);
		const struct gkv_sgl_desc *seg;

		assert_true(last || d.type == GKV_SGL_SEGMENT);
		assert_int_equal(d.len % sizeof(d), 0);
		assert_true(n);
		seg = (const void *)fake_mem(&fake, d.addr, d.len);
		assert_non_null(seg);
		s->pages++;
		for (uint32_t i = 0; i < n - !last; i++) {
			assert_int_equal(seg[i].type, GKV_SGL_DATA_BLOCK);
			assert_int_equal(seg[i].rsvd[0] | seg[i].rsvd[1] | seg[i].rsvd[2], 0);
			add(s, seg[i].addr, seg[i].len);
		}
		if (last)
			return;
		d = seg[n - 1];
	}
}

/* Base 4.3.1, strictly. */
static void read_prp(const struct gkv_sqe *sqe, uint64_t len, struct spans *s)
{
	uint64_t n, list = sqe->dptr.prp.prp2, first = PAGE - sqe->dptr.prp.prp1 % PAGE;

	assert_int_equal(sqe->flags, 0);
	assert_int_equal(sqe->dptr.prp.prp1 % 4, 0);
	s->n = 0;
	s->pages = 0;
	add(s, sqe->dptr.prp.prp1, len < first ? len : first);
	if (len <= first) {
		assert_int_equal(list, 0);
		return;
	}
	len -= first;
	n = (len + PAGE - 1) / PAGE;
	if (n == 1) {
		assert_int_equal(list % PAGE, 0);
		add(s, list, len);
		return;
	}
	for (;;) {
		uint64_t room = (PAGE - list % PAGE) / 8;
		const uint64_t *e = (const void *)fake_mem(&fake, list, 8 * (n < room ? n : room));

		assert_non_null(e);
		assert_int_equal(list % 8, 0);
		s->pages++;
		for (uint64_t i = 0; i < (n > room ? room - 1 : n); i++) {
			assert_int_equal(e[i] % PAGE, 0);
			add(s, e[i], len < PAGE ? len : PAGE);
			len -= len < PAGE ? len : PAGE;
		}
		if (n <= room)
			break;
		list = e[room - 1];
		n -= room - 1;
	}
	assert_int_equal(len, 0);
}

/* Both name the same bytes in the same order, however they are cut. */
static void assert_same(const struct spans *got, const struct gkv_seg *want, uint32_t n)
{
	uint64_t done = 0;
	uint32_t w = 0;

	for (size_t i = 0; i < got->n; i++) {
		struct span p = got->v[i];

		while (p.len) {
			uint64_t take;

			while (w < n && done == want[w].len) {
				w++;
				done = 0;
			}
			assert_true(w < n);
			take = want[w].len - done < p.len ? want[w].len - done : p.len;
			assert_int_equal(p.addr, (uintptr_t)want[w].addr + done);
			p.addr += take;
			p.len -= take;
			done += take;
		}
	}
	for (; w < n; w++, done = 0)
		assert_int_equal(want[w].len, done);
}

static struct gkv_cmd cmd_of(const struct gkv_seg *segs, uint32_t n)
{
	struct gkv_cmd c = { .opcode = GKV_STORE, .nsid = 1, .key_len = 1, .key = "k" };
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += segs[i].len;
	c.len = (uint32_t)sum;
	c.segs = segs;
	c.nsegs = n;
	return c;
}

static void complete(struct gkv_qp *qp, uint16_t cid)
{
	struct gkv_comp comp;

	fake_post(&fake, gkv_qp_id(qp), cid, 0, 0, 0);
	assert_int_equal(gkv_poll(qp, &comp, 1), 1);
}

/* F28, F29: any number of segments, across the counts where pages begin. */
static void test_sgl(void **state)
{
	static const uint32_t counts[] = { 1, 2, 3, 255, 256, 257, 510, 511, 512, 766, 2000 };
	struct gkv_qp *qp = queue(8, 0, 2000);
	struct spans s = { 0 };
	struct gkv_seg segs[2000];
	struct gkv_sqe sqe;

	(void)state;
	for (unsigned int k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		uint32_t n = counts[k];
		struct gkv_cmd c;

		for (uint32_t i = 0; i < n; i++)
			segs[i] = (struct gkv_seg){ base + 5000 * (n - i) + i, 1 + i * 7 % 4097 };
		c = cmd_of(segs, n);
		/* Twice, to use pages that came back. */
		for (int round = 0; round < 2; round++) {
			assert_int_equal(gkv_submit(qp, &c, 1), 1);
			assert_true(fake_fetch(&fake, 1, &sqe));
			read_sgl(&sqe, &s);
			assert_int_equal(s.n, n);
			assert_int_equal(s.pages, n == 1 ? 0 : n <= 256 ? 1 : (n + 253) / 255);
			assert_same(&s, segs, n);
			complete(qp, sqe.cid);
		}
	}
	free(s.v);
}

static void test_sgl_odd(void **state)
{
	struct gkv_qp *qp = queue(8, 0, 4);
	struct gkv_seg segs[5] = { { base, 0 }, { base + 1, 3 }, { base, 0 },
				   { gkv_mem_addr(other), 4096 }, { base, 0 } };
	struct spans s = { 0 };
	struct gkv_sqe sqe;
	struct gkv_cmd c;

	(void)state;
	/* Empty ones vanish; two different memories are fine. */
	c = cmd_of(segs, 4);
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	read_sgl(&sqe, &s);
	assert_int_equal(s.n, 2);
	assert_same(&s, segs, 4);
	c = cmd_of(segs, 3);
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	read_sgl(&sqe, &s);
	assert_int_equal(s.pages, 0);
	assert_same(&s, segs, 3);
	c = cmd_of(segs, 5);
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	c = cmd_of(segs, 4);
	c.len++;
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	c = cmd_of(segs, 4);
	segs[3].len = 4097;
	c.len++;
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	segs[3].len = 1ull << 32;
	c.len = 3;
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	c.segs = NULL;
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	free(s.v);
}

static void check_prp(struct gkv_qp *qp, uint64_t off, uint32_t len, unsigned int pages)
{
	struct gkv_seg seg = { base + off, len };
	struct gkv_cmd c = cmd_of(&seg, 1);
	struct spans s = { 0 };
	struct gkv_sqe sqe;

	c.nsegs = 0;
	c.segs = NULL;
	c.buf = seg.addr;
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, gkv_qp_id(qp), &sqe));
	read_prp(&sqe, len, &s);
	assert_same(&s, &seg, 1);
	assert_int_equal(s.pages, pages);
	complete(qp, sqe.cid);
	free(s.v);
}

static void test_prp(void **state)
{
	struct gkv_qp *qp = queue(8, GKV_QP_PRP, 0);

	(void)state;
	check_prp(qp, 0, 1, 0);
	check_prp(qp, 4092, 4, 0);
	check_prp(qp, 4092, 5, 0);
	check_prp(qp, 0, 4096, 0);
	check_prp(qp, 0, 8192, 0);
	check_prp(qp, 4, 8192, 1);
	/* 512 entries fill a page exactly; 513 need a second one. */
	check_prp(qp, 0, 513 * 4096, 1);
	check_prp(qp, 0, 513 * 4096 + 1, 2);
	check_prp(qp, 4, 513 * 4096, 2);
	check_prp(qp, 0, (511 + 512 + 1) * 4096, 2);
	check_prp(qp, 0, (511 + 512 + 1) * 4096 + 1, 3);
	check_prp(qp, 0, 64 << 20, 33);
	check_prp(qp, 4092, (64 << 20) + 3, 33);
	for (uint32_t len = 1; len < 20000; len += 997)
		for (uint64_t off = 0; off < 8192; off += 516)
			check_prp(qp, off, len,
				  (off % 4096 + len + 4095) / 4096 > 2 ? 1 : 0);
}

static void test_prp_odd(void **state)
{
	struct gkv_qp *qp = queue(8, GKV_QP_PRP, 4);
	struct gkv_seg segs[3] = { { base + 4096 + 8, 4088 }, { base + 40960, 8192 },
				   { base, 100 } };
	struct spans s = { 0 };
	struct gkv_sqe sqe;
	struct gkv_cmd c;

	(void)state;
	c = cmd_of(segs, 3);
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	read_prp(&sqe, c.len, &s);
	assert_same(&s, segs, 3);
	/* F27: what cannot be said in PRPs is refused, and the text names the alignment. */
	segs[0].addr = base + 4096 + 2;
	segs[0].len = 4094;
	c = cmd_of(segs, 3);
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	assert_non_null(strstr(gkv_error(), "4-byte alignment"));
	segs[0] = (struct gkv_seg){ base, 4095 };
	c = cmd_of(segs, 3);
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	assert_non_null(strstr(gkv_error(), "page boundary"));
	segs[0] = (struct gkv_seg){ base, 4096 };
	segs[1].addr = base + 4;
	c = cmd_of(segs, 3);
	assert_int_equal(gkv_submit(qp, &c, 1), -EINVAL);
	free(s.v);
}

/* When list pages run out the queue is full for the while, and no page gets lost. */
static void test_pages_run_out(void **state)
{
	struct gkv_qp *qp = queue(128, GKV_QP_PRP, 0);
	struct gkv_cmd c = { .opcode = GKV_STORE, .nsid = 1, .key_len = 1, .key = "k",
			     .buf = base, .len = 64 << 20 };
	struct spans s = { 0 };
	struct gkv_sqe sqe;
	uint16_t cids[127];

	(void)state;
	for (int round = 0; round < 3; round++) {
		int n = 0, ret;

		while ((ret = gkv_submit(qp, &c, 1)) == 1) {
			assert_true(fake_fetch(&fake, 1, &sqe));
			read_prp(&sqe, c.len, &s);
			cids[n++] = sqe.cid;
		}
		/* 33 pages each, out of 127 and those for the longest command. */
		assert_int_equal(ret, 0);
		assert_in_range(n, 16, 126);
		assert_int_equal(gkv_qp_outstanding(qp), n);
		while (n)
			complete(qp, cids[--n]);
	}
	free(s.v);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_sgl),
		T(test_sgl_odd),
		T(test_prp),
		T(test_prp_odd),
		T(test_pages_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
