/* SPDX-License-Identifier: MIT */
/* The daemon goes and comes back: hand-over by the keeper, and what is lost without. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "lib_rig.h"

static struct gkv_qp *queue(uint32_t flags, uint64_t timeout)
{
	return queue_of((struct gkv_qp_opts){ .depth = 8, .flags = flags, .timeout_ns = timeout });
}

static void wait_reconnects(uint64_t n)
{
	for (int i = 0; i < 5000; i++) {
		if (gkv_reconnects(g) == n && gkv_connected(g))
			return;
		usleep(1000);
	}
	fail_msg("%llu reconnects instead of %llu", (unsigned long long)gkv_reconnects(g),
		 (unsigned long long)n);
}

/* The keeper has noticed, so that no test depends on how fast it is. */
static void stop_and_wait(void)
{
	fake_stop(&fake);
	for (int i = 0; i < 5000 && gkv_connected(g); i++)
		usleep(1000);
	assert_int_equal(gkv_connected(g), 0);
}

/* Everything is handed over as it was, the same memory under the same names (F100). */
static void test_hand_over(void **state)
{
	struct gkv_qp *qp = queue(0, 0), *prp = queue(GKV_QP_PRP | GKV_QP_CSUM, 0);
	struct fake_region before[FAKE_REGIONS], *r;
	uint8_t session[16];
	struct gkv_mem *mem, *reg;
	struct gkv_comp c[8];
	uint16_t cid[3];
	ino_t db, ring;
	int fd, n;

	(void)state;
	assert_int_equal(gkv_ns_open(g, "main", GKV_NS_RDONLY, NULL), 0);
	assert_int_equal(gkv_mem_alloc(g, 1 << 20, &mem), 0);
	fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 16384), 0);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(gkv_mem_register(g, fd, 4096, 8192, 0x10000, &reg), 0);
	close(fd);
	memset(gkv_mem_addr(mem), 0x5a, 1 << 20);
	for (int i = 0; i < 3; i++)
		cid[i] = submit(qp, exist(10 + i));
	fake_post(&fake, 1, cid[0], 0, 0, 0);

	memcpy(before, fake.regions, sizeof(before));
	memcpy(session, fake.session, 16);
	db = fake.db_ino;
	ring = fake.qps[1].ino[0];
	fake.n_ns_opened = 0;
	stop_and_wait();
	/* A command submitted while nobody is there is found by the successor. */
	assert_int_equal(gkv_submit(qp, (struct gkv_cmd[]){ exist(20) }, 1), 1);
	fake_start(&fake);
	wait_reconnects(1);

	assert_memory_equal(fake.session, session, 16);
	assert_int_equal(fake.db_ino, db);
	assert_int_equal(fake.n_ns_opened, 1);
	assert_string_equal(fake.ns_opened[0], "main");
	n = 0;
	for (int i = 0; i < FAKE_REGIONS; i++) {
		if (!before[i].id)
			continue;
		for (r = fake.regions; r->id != before[i].id; r++)
			assert_true(r < fake.regions + FAKE_REGIONS - 1);
		assert_int_equal(r->ino, before[i].ino);
		assert_int_equal(r->iova, before[i].iova);
		assert_int_equal(r->len, before[i].len);
		assert_int_equal(r->offset, before[i].offset);
		assert_int_equal(r->flags, before[i].flags);
		n++;
	}
	assert_int_equal(n, 3);		/* one is the list area of the PRP queue pair */
	assert_int_equal(*fake_mem(&fake, gkv_mem_iova(mem), 1 << 20), 0x5a);
	assert_int_equal(fake_qp(&fake, 1)->resumes, 1);
	assert_int_equal(fake_qp(&fake, 1)->ino[0], ring);
	assert_int_equal(fake.qps[2].flags,
			 GKV_QP_F_HOST | GKV_QP_F_CSUM | GKV_QP_F_RESUME);
	assert_int_equal(gkv_qp_id(prp), 2);

	/* Posted before, posted after, submitted between: each once. */
	fake_post(&fake, 1, cid[1], 0, 0, 0);
	fake_post(&fake, 1, cid[2], 0, 0, 0);
	assert_int_equal(fake_serve(&fake, 1), 1);
	assert_int_equal(gkv_poll(qp, c, 8), 4);
	for (int i = 0; i < 3; i++)
		assert_int_equal(c[i].user_data, 10 + i);
	assert_int_equal(c[3].user_data, 20);
	for (int i = 0; i < 4; i++)
		assert_int_equal(c[i].flags, 0);
	assert_int_equal(gkv_qp_outstanding(qp), 0);
}

/* After hand-over a doorbell wakes the new daemon: its page, its eventfd. */
static void test_waking_after(void **state)
{
	struct gkv_qp *qp = queue(0, 0);

	(void)state;
	/* It died awake. */
	fake_stop(&fake);
	fake_start(&fake);
	wait_reconnects(1);
	/* Whatever was rung meanwhile is not lost. */
	assert_true(fake_bells(&fake) > 0);
	assert_int_equal(gkv_submit(qp, (struct gkv_cmd[]){ exist(1) }, 1), 1);
	assert_int_equal(fake_bells(&fake), 0);
	__atomic_store_n(&fake.states[1].sleeping, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(gkv_submit(qp, (struct gkv_cmd[]){ exist(1) }, 1), 1);
	assert_int_equal(fake_bells(&fake), 1);
}

/* A thread asleep in gkv_wait() all the while gets its answer from the successor. */
static void *waiter(void *arg)
{
	struct gkv_comp c;

	if (gkv_wait(arg, &c, 1, 20000 * MS) != 1)
		return NULL;
	return (void *)(uintptr_t)(c.flags ? 0 : c.user_data);
}

static void test_asleep_over_restart(void **state)
{
	struct gkv_qp *qp = queue(0, 0);
	uint16_t cid = submit(qp, exist(77));
	pthread_t t;
	void *got;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, waiter, qp), 0);
	usleep(20000);
	stop_and_wait();
	usleep(50000);
	fake_start(&fake);
	wait_reconnects(1);
	fake_post(&fake, 1, cid, 0, 0, 0);
	pthread_join(t, &got);
	assert_int_equal((uintptr_t)got, 77);
}

/* Timeouts that follow the namespace stand still while the daemon is away; set ones do not. */
static void test_timeouts_while_away(void **state)
{
	struct gkv_qp *follows, *set = queue(0, 50 * MS);
	struct gkv_comp c;
	uint16_t cid;

	(void)state;
	fake.deadline_ns = 0;
	assert_int_equal(gkv_ns_open(g, "main", 0, NULL), 0);
	follows = queue(0, 0);
	cid = submit(follows, exist(1));
	submit(set, exist(2));
	assert_int_equal(gkv_poll(follows, &c, 1), 0);
	stop_and_wait();
	assert_int_equal(gkv_wait(set, &c, 1, 5000 * MS), 1);
	assert_int_equal(c.flags, GKV_C_TIMEDOUT);
	/* Its 2 s pass. */
	assert_int_equal(gkv_wait(follows, &c, 1, 2600 * MS), 0);
	fake_start(&fake);
	wait_reconnects(1);
	assert_int_equal(gkv_wait(follows, &c, 1, 500 * MS), 0);
	fake_post(&fake, 2, cid, 0, 0, 0);
	assert_int_equal(gkv_wait(follows, &c, 1, 500 * MS), 1);
	assert_int_equal(c.flags, 0);
}

/* A queue pair that is not taken over: its commands are lost, the next ones work. */
static void test_resume_refused(void **state)
{
	struct gkv_qp *qp = queue(0, 20 * MS), *other = queue(0, 0);
	struct gkv_mem *mem;
	struct gkv_cmd cmd = { .opcode = GKV_RETRIEVE, .nsid = 2, .key_len = 1, .len = 10,
			       .user_data = 100 };
	struct gkv_comp c[8];
	struct gkv_sqe sqe;
	uint16_t cid, kept;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 4096, &mem), 0);
	/* One in quarantine, which also ends now. */
	cmd.buf = gkv_mem_addr(mem);
	assert_int_equal(gkv_submit(qp, &cmd, 1), 1);
	assert_true(fake_fetch(&fake, 1, &sqe));
	assert_int_equal(gkv_wait(qp, c, 1, 1000 * MS), 1);
	assert_int_equal(c[0].flags, GKV_C_TIMEDOUT);
	assert_int_equal(gkv_mem_free(mem), -EBUSY);
	cid = submit(qp, exist(1));
	submit(qp, exist(2));
	submit(qp, exist(3));
	kept = submit(other, exist(50));
	/* Posted, but not yet reaped: not lost. */
	fake_post(&fake, 1, cid, 0, 0, 0);
	stop_and_wait();
	fake.refuse[GKV_MSG_QP_ADD].err = EINVAL;
	fake.refuse[GKV_MSG_QP_ADD].times = 1;
	fake_start(&fake);
	wait_reconnects(1);
	assert_int_equal(gkv_wait(qp, c, 1, 1000 * MS), 1);
	assert_int_equal(c[0].user_data, 1);
	assert_int_equal(c[0].flags, 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(gkv_wait(qp, c, 1, 1000 * MS), 1);
		assert_int_equal(c[0].flags & ~GKV_C_LATE, GKV_C_LOST);
		assert_int_equal((c[0].flags & GKV_C_LATE) != 0, c[0].user_data == 100);
		assert_int_equal(gkv_status_errno(c[0].status), -ENOTCONN);
	}
	assert_int_equal(gkv_qp_outstanding(qp), 0);
	assert_int_equal(stats(qp).lost, 3);
	assert_int_equal(gkv_mem_free(mem), 0);
	/* The keeper makes a new one of it, with clean rings. */
	for (int i = 0; i < 2000 && !gkv_qp_room(qp); i++)
		usleep(1000);
	assert_int_equal(gkv_qp_room(qp), 7);
	assert_int_equal(fake_qp(&fake, 1)->resumes, 0);
	assert_true(fake_qp(&fake, 1)->was_zero);
	for (int i = 0; i < 20; i++) {
		fake_post(&fake, 1, submit(qp, exist(i)), 0, 0, 0);
		assert_int_equal(gkv_poll(qp, c, 8), 1);
		assert_int_equal(c[0].user_data, i);
	}
	/* The other one notices nothing. */
	fake_post(&fake, 2, kept, 0, 0, 0);
	assert_int_equal(gkv_poll(other, c, 8), 1);
	assert_int_equal(c[0].flags, 0);
}

/* The same with nothing outstanding: submitting is what finds out. */
static void test_resume_refused_idle(void **state)
{
	struct gkv_qp *qp = queue(0, 0), *reset = queue(0, 0);
	struct gkv_cmd cmd = exist(5);
	int ret = 0;

	(void)state;
	stop_and_wait();
	fake.refuse[GKV_MSG_QP_ADD].err = EINVAL;
	fake.refuse[GKV_MSG_QP_ADD].times = 2;
	fake_start(&fake);
	wait_reconnects(1);
	for (int i = 0; i < 2000 && !ret; i++) {
		ret = gkv_submit(qp, &cmd, 1);
		usleep(1000);
	}
	assert_int_equal(ret, 1);
	assert_int_equal(fake_serve(&fake, 1), 1);
	/* Or a reset. */
	assert_int_equal(gkv_qp_reset(reset), 0);
	assert_int_equal(gkv_submit(reset, &cmd, 1), 1);
	assert_int_equal(fake_serve(&fake, 2), 1);
}

/* Another doorbell stride: what was laid out for the old one cannot be resumed. */
static void test_other_stride(void **state)
{
	struct gkv_qp *qp = queue(0, 0);
	struct gkv_comp c;

	(void)state;
	submit(qp, exist(1));
	stop_and_wait();
	fake.hello.dstrd = 3;
	fake_start(&fake);
	wait_reconnects(1);
	assert_int_equal(gkv_wait(qp, &c, 1, 1000 * MS), 1);
	assert_int_equal(c.flags, GKV_C_LOST);
	for (int i = 0; i < 2000 && !gkv_qp_room(qp); i++)
		usleep(1000);
	fake_post(&fake, 1, submit(qp, exist(2)), 0, 0, 0);
	assert_int_equal(gkv_poll(qp, &c, 1), 1);
	assert_int_equal(fake_cq_head(&fake, 1), 1);
}

/* Another page size: PRP lists are laid out for the old one, scatter lists are not. */
static void test_other_page_size(void **state)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = 8, .max_segs = 700 };
	struct gkv_seg segs[700];
	struct gkv_cmd cmd = { .opcode = GKV_STORE, .nsid = 2, .key_len = 1, .len = 700,
			       .nsegs = 700, .segs = segs };
	struct gkv_qp *prp = queue(GKV_QP_PRP, 0), *sgl;
	struct gkv_comp c;
	struct gkv_sqe sqe;
	struct gkv_mem *mem;
	int ret = 0;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 4096, &mem), 0);
	assert_int_equal(gkv_qp_create(g, &o, &sgl), 0);
	for (int i = 0; i < 700; i++)
		segs[i] = (struct gkv_seg){ gkv_mem_addr(mem), 1 };
	submit(prp, exist(1));
	submit(sgl, exist(2));
	stop_and_wait();
	fake.hello.page_size = 65536;
	fake_start(&fake);
	wait_reconnects(1);
	assert_int_equal(gkv_wait(prp, &c, 1, 1000 * MS), 1);
	assert_int_equal(c.flags, GKV_C_LOST);
	assert_int_equal(gkv_wait(sgl, &c, 1, 1000 * MS), 1);
	assert_int_equal(c.flags, GKV_C_LOST);
	for (int i = 0; i < 2000 && !(ret = gkv_submit(sgl, &cmd, 1)); i++)
		usleep(1000);
	assert_int_equal(ret, 1);
	assert_true(fake_fetch(&fake, 2, &sqe));
	assert_non_null(fake_mem(&fake, sqe.dptr.sgl.addr, sqe.dptr.sgl.len));
	for (int i = 0; i < 2000 && !(ret = gkv_submit(prp, &cmd, 1)); i++)
		usleep(1000);
	assert_int_equal(ret, -ENOTCONN);
}

static void test_no_reconnect(void **state)
{
	struct gkv_comp c[8];
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	struct gkv_cmd cmd = exist(9);
	uint64_t start;

	(void)state;
	gkv_close(g);
	assert_int_equal(gkv_connect(&g, fake.path, 0, GKV_CONNECT_NO_RECONNECT), 0);
	qp = queue(0, 0);
	assert_int_equal(gkv_mem_alloc(g, 4096, &mem), 0);
	for (int i = 0; i < 5; i++)
		submit(qp, exist(i));
	stop_and_wait();
	for (int i = 0; i < 5; i++) {
		assert_int_equal(gkv_wait(qp, c, 1, 1000 * MS), 1);
		assert_int_equal(c[0].flags, GKV_C_LOST);
	}
	assert_int_equal(gkv_wait(qp, c, 1, 1000 * MS), 0);
	for (int i = 0; i < 2000 && !gkv_submit(qp, &cmd, 1); i++)
		usleep(1000);
	assert_int_equal(gkv_submit(qp, &cmd, 1), -ENOTCONN);
	assert_int_equal(gkv_qp_reset(qp), -ENOTCONN);
	start = now();
	assert_int_equal(gkv_set(g, "a", "b"), -ENOTCONN);
	/* What is only to be freed is freed. */
	assert_int_equal(gkv_mem_free(mem), 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	assert_true(now() - start < 1000 * MS);
}

/* A control call during the absence waits for the successor. */
static void *restarter(void *arg)
{
	(void)arg;
	usleep(200000);
	fake_start(&fake);
	return NULL;
}

static void test_calls_while_away(void **state)
{
	struct gkv_mem *mem, *more;
	struct gkv_qp *qp;
	pthread_t t;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 4096, &mem), 0);
	stop_and_wait();
	assert_int_equal(pthread_create(&t, NULL, restarter, NULL), 0);
	assert_int_equal(gkv_mem_alloc(g, 4096, &more), 0);
	pthread_join(t, NULL);
	assert_int_equal(gkv_mem_free(mem), 0);
	assert_int_equal(gkv_mem_free(more), 0);
	qp = queue(0, 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

/* The number that the next descriptor would get: as many are open, by and large. */
static int next_fd(void)
{
	int fd = open("/dev/null", O_RDONLY);

	close(fd);
	return fd;
}

/* F99: a hundred restarts, some in the middle of the hand-over; nothing leaks or is lost. */
static void test_many_restarts(void **state)
{
	struct gkv_qp *qp = queue(0, 0);
	struct gkv_mem *mem;
	uint64_t tag = 0;
	int first, last;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 4096, &mem), 0);
	first = next_fd();
	for (int i = 0; i < 100; i++) {
		struct gkv_comp c;
		uint16_t cid = submit(qp, exist(tag));

		fake_stop(&fake);
		if (i % 3 == 0) {
			/* Up to somewhere in the hand-over. */
			fake_start(&fake);
			usleep(i * 20);
			fake_stop(&fake);
		}
		fake_start(&fake);
		for (int k = 0; k < 5000 && !(gkv_connected(g) && fake_live(&fake, 1)); k++)
			usleep(1000);
		fake_post(&fake, 1, cid, 0, 0, 0);
		assert_int_equal(gkv_wait(qp, &c, 1, 1000 * MS), 1);
		assert_int_equal(c.user_data, tag++);
		assert_int_equal(c.flags, 0);
	}
	assert_in_range(gkv_reconnects(g), 100, 200);
	/* No descriptor more than before; the fake daemon closes what it got a moment later. */
	for (int k = 0; (last = next_fd()) > first && k < 5000; k++)
		usleep(1000);
	assert_in_range(last, 0, first);
}

/* F60, DESIGN 4: closing never waits for a daemon, gone or hanging in the hand-over. */
static void test_close_while_away(void **state)
{
	uint64_t start;

	(void)state;
	submit(queue(0, 0), exist(1));
	stop_and_wait();
	start = now();
	gkv_close(g);
	assert_true(now() - start < 1000 * MS);
	fake_start(&fake);
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), 0);
	submit(queue(0, 0), exist(1));
	stop_and_wait();
	fake.mute = true;
	fake_start(&fake);
	for (int i = 0; i < 5000 && fake_count(&fake, GKV_MSG_HELLO) < 3; i++)
		usleep(1000);
	start = now();
	gkv_close(g);
	g = NULL;
	assert_true(now() - start < 1000 * MS);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_hand_over),
		T(test_waking_after),
		T(test_asleep_over_restart),
		T(test_timeouts_while_away),
		T(test_resume_refused),
		T(test_resume_refused_idle),
		T(test_other_stride),
		T(test_other_page_size),
		T(test_no_reconnect),
		T(test_calls_while_away),
		T(test_many_restarts),
		T(test_close_while_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
