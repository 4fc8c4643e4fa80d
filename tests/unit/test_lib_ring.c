/* SPDX-License-Identifier: MIT */
/* The data path of libgkv: entries, doorbells, phases, flow control, strange completions. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "lib_rig.h"

#define OPTS(o, ...) struct gkv_qp_opts o = { .size = sizeof(o), __VA_ARGS__ }

static struct gkv_qp *queue(uint32_t depth, uint32_t flags)
{
	return queue_of((struct gkv_qp_opts){ .depth = depth, .flags = flags });
}

/* The entries are those of the reference, byte for byte but for CID and data pointer. */
static void test_entries(void **state)
{
	static const uint8_t delete[64] = {
		0x10, 0, 0, 0, 1, 0, 0, 0, 'h', 'e', 'l', 'l', 'o', '-', 'w', 'o',
		[44] = 12, [56] = 'r', 'l', 'd', '!',
	};
	struct gkv_cmd c = { .opcode = GKV_DELETE, .nsid = 1, .key_len = 12 };
	struct gkv_qp *qp = queue(16, 0), *csum = queue(16, GKV_QP_CSUM);
	struct gkv_sqe sqe;
	struct gkv_mem *m;

	(void)state;
	/* What lies behind the key is not the daemon's business. */
	memcpy(c.key, "hello-world!XYZW", 16);
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	sqe.cid = 0;
	assert_memory_equal(&sqe, delete, 64);

	assert_int_equal(gkv_mem_alloc(g, 8192, &m), 0);
	c = (struct gkv_cmd){ .opcode = GKV_STORE, .options = GKV_O_MUST_NOT_EXIST, .nsid = 7,
			      .key_len = 16, .key = "0123456789abcdef", .len = 5,
			      .buf = (char *)gkv_mem_addr(m) + 3, .crc = 0x11223344 };
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_int_equal(gkv_submit(csum, &c, 1), 1);
	for (int i = 1; i <= 2; i++) {
		assert_true(fake_fetch(&fake, i, &sqe));
		assert_int_equal(sqe.opcode, 1);
		assert_int_equal(sqe.flags, GKV_PSDT_SGL << 6);
		assert_int_equal(sqe.nsid, 7);
		assert_memory_equal(sqe.key_lo, "01234567", 8);
		assert_memory_equal(sqe.key_hi, "89abcdef", 8);
		assert_int_equal(sqe.cdw10, 5);
		assert_int_equal(sqe.klen, 16);
		assert_int_equal(sqe.options, 2);
		assert_int_equal(sqe.cdw11_rsvd, 0);
		assert_int_equal(sqe.dptr.sgl.addr, gkv_mem_iova(m) + 3);
		assert_int_equal(sqe.dptr.sgl.len, 5);
		assert_int_equal(sqe.dptr.sgl.type, GKV_SGL_DATA_BLOCK);
		assert_int_equal(sqe.cdw12, i == 1 ? 0 : 0x11223344);
		assert_int_equal(sqe.cdw13, i == 1 ? 0 : GKV_CDW13_CSUM_VALID);
	}
	assert_int_equal(fake.qps[1].flags, GKV_QP_F_HOST);
	assert_int_equal(fake.qps[2].flags, GKV_QP_F_HOST | GKV_QP_F_CSUM);
	/* A value of no bytes has no data pointer, and its buffer is not looked at. */
	c.len = 0;
	c.buf = (void *)8;
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	assert_int_equal(sqe.flags, 0);
	assert_int_equal(sqe.dptr.prp.prp1, 0);
	assert_int_equal(sqe.dptr.prp.prp2, 0);
	/* List from the first key, Flush. */
	c = (struct gkv_cmd){ .opcode = GKV_LIST, .nsid = 1, .len = 4096, .buf = gkv_mem_addr(m) };
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	assert_int_equal(sqe.klen, 0);
	assert_int_equal(sqe.cdw10, 4096);
	c = (struct gkv_cmd){ .opcode = GKV_FLUSH, .nsid = 1 };
	assert_int_equal(gkv_submit(qp, &c, 1), 1);
}

static void test_malformed(void **state)
{
	struct gkv_qp *qp = queue(16, 0);
	struct gkv_cmd c[3] = { exist(1), exist(2), exist(3) };
	struct gkv_mem *m;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 8192, &m), 0);
#define BAD(cmd) do { \
		c[1] = cmd; \
		assert_int_equal(gkv_submit(qp, c, 3), -EINVAL); \
		assert_string_not_equal(gkv_error(), ""); \
		assert_int_equal(fake_sq_tail(&fake, 1), 0); \
		assert_int_equal(gkv_qp_room(qp), 15); \
		assert_int_equal(gkv_qp_outstanding(qp), 0); \
	} while (0)
	BAD(((struct gkv_cmd){ .opcode = 0x77, .nsid = 1, .key_len = 1 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_EXIST, .nsid = 1, .key_len = 17 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_EXIST, .nsid = 1, .key_len = 0 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_STORE, .nsid = 1, .key_len = 0 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_EXIST, .nsid = 1, .key_len = 1, .rsvd = 1 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_STORE, .key_len = 1, .len = 1, .buf = &c }));
	BAD(((struct gkv_cmd){ .opcode = GKV_STORE, .key_len = 1, .len = 1 }));
	/* The last byte is one too far, at either end. */
	BAD(((struct gkv_cmd){ .opcode = GKV_RETRIEVE, .key_len = 1, .len = 8193,
			       .buf = gkv_mem_addr(m) }));
	BAD(((struct gkv_cmd){ .opcode = GKV_RETRIEVE, .key_len = 1, .len = 1,
			       .buf = (char *)gkv_mem_addr(m) + 8192 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_RETRIEVE, .key_len = 1, .len = 1,
			       .buf = (char *)gkv_mem_addr(m) - 1 }));
	BAD(((struct gkv_cmd){ .opcode = GKV_RETRIEVE, .key_len = 1, .len = UINT32_MAX,
			       .buf = gkv_mem_addr(m) }));
	/* F58: the text names the range. */
	assert_non_null(strstr(gkv_error(), "0xffffffff"));
	/* Memory that is gone is not found, though it was the last one used. */
	c[1] = (struct gkv_cmd){ .opcode = GKV_RETRIEVE, .key_len = 1, .len = 8192,
				 .buf = gkv_mem_addr(m) };
	assert_int_equal(gkv_submit(qp, c, 3), 3);
	assert_int_equal(fake_serve(&fake, 1), 3);
	assert_int_equal(gkv_mem_free(m), 0);
	assert_int_equal(gkv_submit(qp, c, 3), -EINVAL);
}

/* F31: batches of every size up to depth - 1; F1: many wraps, the head moves every time. */
static void test_batches_and_wraps(void **state)
{
	static const uint32_t depths[] = { 2, 3, 7, 64 };

	(void)state;
	for (unsigned int d = 0; d < 4; d++) {
		uint32_t depth = depths[d];
		struct gkv_qp *qp = queue(depth, 0);
		uint32_t id = gkv_qp_id(qp);
		struct gkv_cmd c[64];
		struct gkv_comp comps[64];
		uint64_t done = 0, sent = 0;

		for (uint32_t i = 0; i < 40 * depth; i++) {
			uint32_t n = 1 + i % (depth - 1);

			for (uint32_t k = 0; k < n; k++)
				c[k] = exist(sent++);
			assert_int_equal(gkv_submit(qp, c, n), n);
			assert_int_equal(gkv_qp_outstanding(qp), n);
			assert_int_equal(gkv_poll(qp, comps, 64), 0);
			assert_int_equal(fake_serve(&fake, id), n);
			/* One at a time, or all at once. */
			while (done < sent) {
				int r = gkv_poll(qp, comps, i & 1 ? 1 : 64);

				assert_true(r > 0);
				for (int k = 0; k < r; k++)
					assert_int_equal(comps[k].user_data, done++);
				assert_int_equal(fake_cq_head(&fake, id), done % depth);
			}
		}
		assert_int_equal(stats(qp).submitted, sent);
		assert_int_equal(stats(qp).completed, sent);
		assert_int_equal(stats(qp).bad_cid + stats(qp).bad_sqhd, 0);
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
}

/* At most depth - 1, and a full queue takes the rest later. */
static void test_full(void **state)
{
	struct gkv_qp *qp = queue(8, 0);
	struct gkv_cmd c[20];
	struct gkv_comp comp;

	(void)state;
	for (int i = 0; i < 20; i++)
		c[i] = exist(i);
	assert_int_equal(gkv_submit(qp, c, 20), 7);
	assert_int_equal(gkv_qp_room(qp), 0);
	assert_int_equal(gkv_submit(qp, c + 7, 13), 0);
	assert_int_equal(fake_serve(&fake, 1), 7);
	assert_int_equal(gkv_poll(qp, &comp, 1), 1);
	assert_int_equal(gkv_qp_room(qp), 1);
	assert_int_equal(gkv_submit(qp, c + 7, 13), 1);
}

/* F18: an empty queue answers at once, before anything was submitted too. */
static void test_empty(void **state)
{
	struct gkv_qp *qp = queue(2, 0);
	struct gkv_comp comp;

	(void)state;
	assert_int_equal(gkv_poll(qp, &comp, 1), 0);
	assert_int_equal(gkv_wait(qp, &comp, 1, 5000000000), 0);
	assert_int_equal(gkv_submit(qp, NULL, 0), 0);
	assert_int_equal(gkv_poll(qp, NULL, 0), 0);
}

/* SQ entries are not rewritten before the daemon says that it has fetched them. */
static void test_sqhd(void **state)
{
	struct gkv_qp *qp = queue(4, 0);
	struct gkv_cmd c[3] = { exist(1), exist(2), exist(3) };
	struct gkv_comp comps[4];
	struct gkv_sqe sqe[3];

	(void)state;
	assert_int_equal(gkv_submit(qp, c, 3), 3);
	for (int i = 0; i < 3; i++)
		assert_true(fake_fetch(&fake, 1, &sqe[i]));
	/* Two are done, but the head says that only one entry was fetched. */
	fake_post_sqhd(&fake, 1, sqe[0].cid, 0, 1);
	fake_post_sqhd(&fake, 1, sqe[1].cid, 0, 1);
	assert_int_equal(gkv_poll(qp, comps, 4), 2);
	assert_int_equal(gkv_qp_outstanding(qp), 1);
	assert_int_equal(gkv_qp_room(qp), 1);
	/* Heads that cannot be are not believed: beyond the tail, beyond the ring. */
	fake_post_sqhd(&fake, 1, 0x7777, 0, 0);
	fake_post_sqhd(&fake, 1, 0x7777, 0, 4);
	assert_int_equal(gkv_poll(qp, comps, 4), 0);
	assert_int_equal(stats(qp).bad_sqhd, 2);
	assert_int_equal(gkv_qp_room(qp), 1);
	fake_post_sqhd(&fake, 1, sqe[2].cid, 0, 3);
	assert_int_equal(gkv_poll(qp, comps, 4), 1);
	assert_int_equal(gkv_qp_room(qp), 3);
}

/* F5, F7, F20: strange CIDs index nothing, and count. */
static void test_strange_cids(void **state)
{
	struct gkv_qp *qp = queue(8, 0);
	struct gkv_comp comps[8];
	uint16_t a, b;

	(void)state;
	a = submit(qp, exist(11));
	b = submit(qp, exist(12));
	assert_int_not_equal(a, b);
	fake_post(&fake, 1, 0xffff, 0, 0, 0);
	fake_post(&fake, 1, (uint16_t)(a ^ 0x8000), 0, 0, 0);
	fake_post(&fake, 1, 7, 0, 0, 0);
	assert_int_equal(gkv_poll(qp, comps, 8), 0);
	assert_int_equal(stats(qp).bad_cid, 3);
	/* They did occupy the ring, so the head moves past them. */
	assert_int_equal(fake_cq_head(&fake, 1), 3);
	/* The same completion twice, the second after its slot has a new command. */
	fake_post(&fake, 1, b, 0x87, 0, 0);
	fake_post(&fake, 1, b, 0, 0, 0);
	assert_int_equal(gkv_poll(qp, comps, 8), 1);
	assert_int_equal(comps[0].user_data, 12);
	assert_int_equal(comps[0].status, 0x87);
	submit(qp, exist(13));
	fake_post(&fake, 1, b, 0, 0, 0);
	assert_int_equal(gkv_poll(qp, comps, 8), 0);
	assert_int_equal(stats(qp).bad_cid, 5);
	assert_int_equal(gkv_qp_outstanding(qp), 2);
	fake_post(&fake, 1, a, 0, 123456789, 0);
	assert_int_equal(gkv_poll(qp, comps, 8), 1);
	assert_int_equal(comps[0].user_data, 11);
	assert_int_equal(comps[0].result, 123456789);
}

/* A CID is not used twice while it is outstanding, whatever the order of completion. */
static void test_out_of_order(void **state)
{
	struct gkv_qp *qp = queue(64, 0);
	uint16_t cids[63];
	bool used[63] = { false };
	uint64_t tags[63];
	uint32_t x = 7;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct gkv_comp comp;
		uint32_t i;

		x = x * 1664525 + 1013904223;
		i = (x >> 8) % 63;
		if (!used[i]) {
			cids[i] = submit(qp, exist(round));
			tags[i] = round;
			for (uint32_t k = 0; k < 63; k++)
				assert_false(used[k] && cids[k] == cids[i]);
			used[i] = true;
			continue;
		}
		fake_post(&fake, 1, cids[i], 0, round, 0);
		assert_int_equal(gkv_poll(qp, &comp, 1), 1);
		assert_int_equal(comp.user_data, tags[i]);
		assert_int_equal(comp.result, round);
		used[i] = false;
	}
	assert_int_equal(stats(qp).bad_cid, 0);
}

static void test_checksums(void **state)
{
	struct gkv_qp *plain = queue(8, 0), *csum = queue(8, GKV_QP_CSUM);
	struct gkv_comp c;

	(void)state;
	/* Without the negotiated format, bit 31 is a bit of the length. */
	fake_post(&fake, 1, submit(plain, exist(1)), 0, 0x80000005, 0xabcd);
	assert_int_equal(gkv_poll(plain, &c, 1), 1);
	assert_int_equal(c.result, 0x80000005);
	assert_int_equal(c.flags, 0);
	assert_int_equal(c.crc, 0);
	fake_post(&fake, 2, submit(csum, exist(1)), 0, 0x80000005, 0xabcd);
	assert_int_equal(gkv_poll(csum, &c, 1), 1);
	assert_int_equal(c.result, 5);
	assert_int_equal(c.flags, GKV_C_CRC);
	assert_int_equal(c.crc, 0xabcd);
	fake_post(&fake, 2, submit(csum, exist(1)), 0, 5, 0xabcd);
	assert_int_equal(gkv_poll(csum, &c, 1), 1);
	assert_int_equal(c.flags, 0);
	assert_int_equal(c.crc, 0);
}

/* The eventfd is written when the reactor sleeps, once a batch, and else never. */
static void test_waking(void **state)
{
	struct gkv_qp *qp = queue(8, 0), *polled = queue(8, GKV_QP_POLLED);
	struct gkv_cmd c[3] = { exist(1), exist(2), exist(3) };

	(void)state;
	assert_int_equal(gkv_submit(qp, c, 3), 3);
	assert_int_equal(fake_bells(&fake), 0);
	assert_int_equal(stats(qp).wakeups, 0);
	__atomic_store_n(&fake.states[0].sleeping, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(gkv_submit(qp, c, 1), 1);
	assert_int_equal(fake_bells(&fake), 0);
	__atomic_store_n(&fake.states[1].sleeping, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(gkv_submit(qp, c, 3), 3);
	assert_int_equal(fake_bells(&fake), 1);
	assert_int_equal(stats(qp).wakeups, 1);
	assert_int_equal(gkv_submit(polled, c, 3), 3);
	assert_int_equal(fake_bells(&fake), 0);
	assert_int_equal(fake.qps[2].flags, 0);
}

static void *answer_later(void *arg)
{
	struct gkv_sqe sqe;

	usleep(30000);
	fake_fetch_wait(&fake, *(uint32_t *)arg, &sqe);
	fake_post(&fake, *(uint32_t *)arg, sqe.cid, 0, 42, 0);
	return NULL;
}

static void test_waiting(void **state)
{
	struct gkv_comp comp;
	pthread_t t;

	(void)state;
	for (uint32_t id = 1; id <= 2; id++) {
		struct gkv_qp *qp = queue(8, id == 1 ? 0 : GKV_QP_POLLED);
		struct gkv_cmd c = exist(5);

		assert_int_equal(gkv_submit(qp, &c, 1), 1);
		/* Time is up. */
		assert_int_equal(gkv_wait(qp, &comp, 1, 1000000), 0);
		assert_int_equal(pthread_create(&t, NULL, answer_later, &id), 0);
		assert_int_equal(gkv_wait(qp, &comp, 1, UINT64_MAX), 1);
		pthread_join(t, NULL);
		assert_int_equal(comp.result, 42);
		/* A handful of naps, not a spin: the daemon wakes the sleeper. */
		assert_true(stats(qp).sleeps > 0);
		if (id == 1)
			assert_true(stats(qp).sleeps < 10);
		/* gkv_exec() does the same in one go. */
		assert_int_equal(pthread_create(&t, NULL, answer_later, &id), 0);
		assert_int_equal(gkv_exec(qp, &c, &comp), 0);
		pthread_join(t, NULL);
		assert_int_equal(comp.user_data, 5);
		assert_int_equal(gkv_submit(qp, &c, 1), 1);
		assert_int_equal(gkv_exec(qp, &c, &comp), -EBUSY);
	}
}

/* F24: nothing of the old numbering or of the old commands is left. */
static void test_reset(void **state)
{
	struct gkv_qp *qp = queue(8, 0);
	struct gkv_comp comp;
	uint16_t old = 0;

	(void)state;
	for (int i = 0; i < 5; i++)
		old = submit(qp, exist(i));
	fake_post(&fake, 1, old, 0, 0, 0);
	assert_int_equal(gkv_qp_reset(qp), 0);
	assert_int_equal(fake.qps[1].resets, 1);
	assert_int_equal(gkv_qp_outstanding(qp), 0);
	assert_int_equal(gkv_qp_room(qp), 7);
	assert_int_equal(gkv_poll(qp, &comp, 1), 0);
	for (int i = 0; i < 30; i++) {
		uint16_t cid = submit(qp, exist(100 + i));

		assert_int_not_equal(cid, old);
		fake_post(&fake, 1, cid, 0, 0, 0);
		assert_int_equal(gkv_poll(qp, &comp, 1), 1);
		assert_int_equal(comp.user_data, 100 + i);
	}
}

/* Memory comes and goes in one thread while another one submits. */
static void *churn(void *arg)
{
	bool *stop = arg;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		struct gkv_mem *m[4];

		for (int i = 0; i < 4; i++)
			if (gkv_mem_alloc(g, 4096, &m[i]))
				return (void *)1;
		for (int i = 0; i < 4; i++)
			if (gkv_mem_free(m[i]))
				return (void *)1;
	}
	return NULL;
}

static void test_lookup_race(void **state)
{
	struct gkv_qp *qp = queue(64, 0);
	struct gkv_mem *m[3];
	bool stop = false;
	void *failed;
	pthread_t t;

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(gkv_mem_alloc(g, 4096, &m[i]), 0);
	assert_int_equal(pthread_create(&t, NULL, churn, &stop), 0);
	for (int i = 0; i < 30000; i++) {
		struct gkv_cmd c = { .opcode = GKV_RETRIEVE, .nsid = 1, .key_len = 1, .len = 4096,
				     .buf = gkv_mem_addr(m[i % 3]) };
		struct gkv_comp comp;
		struct gkv_sqe sqe;

		assert_int_equal(gkv_submit(qp, &c, 1), 1);
		assert_true(fake_fetch(&fake, 1, &sqe));
		assert_int_equal(sqe.dptr.sgl.addr, gkv_mem_iova(m[i % 3]));
		fake_post(&fake, 1, sqe.cid, 0, 0, 0);
		assert_int_equal(gkv_poll(qp, &comp, 1), 1);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(t, &failed);
	assert_null(failed);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_entries),
		T(test_malformed),
		T(test_batches_and_wraps),
		T(test_full),
		T(test_empty),
		T(test_sqhd),
		T(test_strange_cids),
		T(test_out_of_order),
		T(test_checksums),
		T(test_waking),
		T(test_waiting),
		T(test_reset),
		T(test_lookup_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
