/* SPDX-License-Identifier: MIT */
/* Sessions, memory and queue pairs of libgkv over the control socket: limits and refusals. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gkv.h>

#include "fakedaemon.h"

#define LIMITS(l) struct gkv_limits l = { .size = sizeof(l) }
#define INFO(i) struct gkv_ns_info i = { .size = sizeof(i) }
#define OPTS(o, ...) struct gkv_qp_opts o = { .size = sizeof(o), __VA_ARGS__ }

static struct fake fake;
static int fake_end;

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_fini(&fake);
	return 0;
}

static unsigned int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct gkv *session(void)
{
	struct gkv *g;

	if (gkv_connect(&g, fake.path, 0, 0))
		fail_msg("connect: %s", gkv_error());
	return g;
}

static void assert_text(const char *part)
{
	if (!strstr(gkv_error(), part))
		fail_msg("error text \"%s\" does not contain \"%s\"", gkv_error(), part);
}

static void test_no_daemon(void **state)
{
	struct gkv *g = (void *)1;

	(void)state;
	fake_stop(&fake);
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -ENOENT);
	assert_null(g);
	assert_text(fake.path);
	assert_int_equal(gkv_connect(&g, "/dev/null", 0, 0), -ECONNREFUSED);
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0x80), -EINVAL);
	assert_int_equal(gkv_connect(&g, fake.path, 100000, 0), -EINVAL);
	assert_text("65534");
}

static void test_limits(void **state)
{
	struct gkv *g = session();
	LIMITS(l);

	(void)state;
	assert_int_equal(gkv_limits(g, &l), 0);
	assert_int_equal(l.max_depth, 4096);
	assert_int_equal(l.max_qps, FAKE_QPS);
	assert_int_equal(l.max_deadline_ns, 5000000000);
	/* A caller built against a smaller struct gets what fits. */
	l.size = 8;
	l.max_qps = 77;
	assert_int_equal(gkv_limits(g, &l), 0);
	assert_int_equal(l.max_qps, 77);
	l.size = 0;
	assert_int_equal(gkv_limits(g, &l), -EINVAL);
	assert_int_equal(gkv_connected(g), 1);
	assert_int_equal(gkv_reconnects(g), 0);
	gkv_close(g);
	assert_int_equal(gkv_connect(&g, fake.path, FAKE_QPS + 1, 0), -EINVAL);
	assert_text("limit is 8");
}

/* Refusals arrive with the daemon's text; without one the library has its own (F61). */
static void test_refusals(void **state)
{
	struct gkv_mem *m;
	struct gkv_qp *qp;
	struct gkv *g;
	INFO(info);

	(void)state;
	fake_refuse(&fake, GKV_MSG_HELLO, EMFILE, "64 sessions, which is the limit");
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EMFILE);
	assert_string_equal(gkv_error(), "64 sessions, which is the limit");
	fake_refuse(&fake, GKV_MSG_HELLO, 0, NULL);
	g = session();
	fake_refuse(&fake, GKV_MSG_REGION_ADD, ENOSPC, "limit of regions: 3");
	assert_int_equal(gkv_mem_alloc(g, 4096, &m), -ENOSPC);
	assert_null(m);
	assert_string_equal(gkv_error(), "limit of regions: 3");
	fake_refuse(&fake, GKV_MSG_REGION_ADD, 0, NULL);
	/* An error number that looks like a broken connection does not make it one. */
	fake_refuse(&fake, GKV_MSG_QP_ADD, ECONNRESET, NULL);
	assert_int_equal(gkv_qp_create(g, NULL, &qp), -ECONNRESET);
	assert_string_not_equal(gkv_error(), "");
	fake_refuse(&fake, GKV_MSG_QP_ADD, 0, NULL);
	assert_int_equal(gkv_ns_open(g, "other", 0, &info), -ENOENT);
	fake_refuse(&fake, GKV_MSG_SET, ERANGE, "spin_ns: 0 to 1000000");
	assert_int_equal(gkv_set(g, "spin_ns", "-1"), -ERANGE);
	assert_string_equal(gkv_error(), "spin_ns: 0 to 1000000");
	/* After all of that the session is as good as before. */
	assert_int_equal(gkv_mem_alloc(g, 4096, &m), 0);
	assert_int_equal(gkv_qp_create(g, NULL, &qp), 0);
	assert_int_equal(gkv_qp_id(qp), 1);
	assert_int_equal(gkv_reconnects(g), 0);
	gkv_close(g);
}

static void test_namespaces(void **state)
{
	struct gkv *g = session();
	char longname[80];
	INFO(info);

	(void)state;
	assert_int_equal(gkv_ns_open(g, "main", GKV_NS_RDONLY, &info), 0);
	assert_int_equal(info.nsid, 2);
	assert_int_equal(info.flags, GKV_NS_RDONLY | GKV_NS_VERIFY);
	assert_int_equal(info.value_max, 64 << 20);
	assert_string_equal(info.name, "main");
	/* The first one is not for us; the second is. */
	assert_int_equal(gkv_ns_open(g, NULL, 0, &info), 0);
	assert_int_equal(info.nsid, 2);
	assert_int_equal(gkv_ns_open(g, "main", 0, NULL), 0);
	memset(longname, 'n', sizeof(longname));
	longname[79] = 0;
	assert_int_equal(gkv_ns_open(g, longname, 0, &info), -EINVAL);
	assert_int_equal(gkv_ns_open(g, "", 0, &info), -EINVAL);
	fake_refuse(&fake, GKV_MSG_NS_OPEN, EACCES, "user 1000 may not open it");
	assert_int_equal(gkv_ns_open(g, NULL, 0, &info), -EACCES);
	gkv_close(g);
}

static void test_memory(void **state)
{
	struct gkv *g = session();
	struct gkv_mem *m, *big;
	uint8_t *p;
	int fd;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 5000, &m), 0);
	assert_int_equal(gkv_mem_len(m), 8192);
	p = gkv_mem_addr(m);
	assert_int_equal(gkv_mem_iova(m), (uintptr_t)p);
	memset(p, 0x5a, 8192);
	assert_memory_equal(fake_mem(&fake, gkv_mem_iova(m), 8192), p, 8192);
	/* F30: above 4 GiB, and nothing of it is touched. */
	assert_int_equal(gkv_mem_alloc(g, 5ull << 30, &big), 0);
	p = gkv_mem_addr(big);
	p[(5ull << 30) - 1] = 1;
	assert_int_equal(*fake_mem(&fake, gkv_mem_iova(big) + (5ull << 30) - 1, 1), 1);
	assert_int_equal(gkv_mem_free(big), 0);
	assert_int_equal(gkv_mem_free(m), 0);
	assert_int_equal(gkv_mem_free(NULL), 0);
	assert_int_equal(gkv_mem_alloc(g, 0, &m), -EINVAL);
	assert_int_equal(gkv_mem_alloc(g, SIZE_MAX, &m), -ENOMEM);
	assert_int_equal(gkv_mem_alloc(g, 1ull << 60, &m), -ENOMEM);

	fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 16384), 0);
	/* F34, F61: the text names what is misaligned. */
	assert_int_equal(gkv_mem_register(g, fd, 4096, 100, 0, &m), -EINVAL);
	assert_text("0x64");
	assert_int_equal(gkv_mem_register(g, fd, 512, 4096, 0, &m), -EINVAL);
	assert_text("0x200");
	assert_int_equal(gkv_mem_register(g, fd, 0, 8192, UINT64_MAX & ~4095ull, &m), -EINVAL);
	assert_int_equal(gkv_mem_register(g, 9999, 0, 4096, 0, &m), -EBADF);
	/* Not sealed: the daemon's to refuse. */
	assert_int_equal(gkv_mem_register(g, fd, 0, 4096, 0, &m), -EINVAL);
	assert_text("fake daemon");
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(gkv_mem_register(g, fd, 4096, 8192, 0x7000000, &m), 0);
	assert_int_equal(gkv_mem_iova(m), 0x7000000);
	*(uint8_t *)gkv_mem_addr(m) = 7;
	assert_int_equal(*fake_mem(&fake, 0x7000000, 1), 7);
	assert_int_equal(gkv_mem_free(m), 0);
	/* What the caller may not write, the daemon may not either. */
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE);
	assert_int_equal(gkv_mem_register(g, fd, 0, 4096, 0, &m), 0);
	close(fd);
	gkv_close(g);
}

/* F12, F13, F21: limits are named. */
static void test_queue_pairs(void **state)
{
	struct gkv *g = session();
	struct gkv_qp *qps[FAKE_QPS], *qp;
	OPTS(o, .depth = 65537);

	(void)state;
	assert_int_equal(gkv_qp_create(g, &o, &qp), -EINVAL);
	assert_null(qp);
	assert_text("65537");
	assert_text("65536");
	o.depth = 1;
	assert_int_equal(gkv_qp_create(g, &o, &qp), -EINVAL);
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_ADD), 0);
	/* The daemon's limit is what it says now, not what the hello said. */
	o.depth = 8192;
	fake_refuse(&fake, GKV_MSG_QP_ADD, EINVAL, "depth 8192 is not between 2 and 5000");
	assert_int_equal(gkv_qp_create(g, &o, &qp), -EINVAL);
	assert_null(qp);
	assert_text("depth 8192 is not between 2 and 5000");
	fake_refuse(&fake, GKV_MSG_QP_ADD, 0, NULL);
	assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
	assert_int_equal(gkv_qp_depth(qp), 8192);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	o.depth = 2;
	o.flags = 0x80;
	assert_int_equal(gkv_qp_create(g, &o, &qp), -EINVAL);
	o.flags = 0;
	for (int i = 0; i < FAKE_QPS; i++) {
		assert_int_equal(gkv_qp_create(g, &o, &qps[i]), 0);
		assert_int_equal(gkv_qp_id(qps[i]), i + 1);
		assert_true(fake_qp(&fake, i + 1)->was_zero);
	}
	assert_int_equal(gkv_qp_create(g, &o, &qp), -ENOSPC);
	assert_text("limit");
	assert_int_equal(gkv_qp_destroy(qps[3]), 0);
	/* F9: every depth across page boundaries. */
	for (o.depth = 2; o.depth <= 600; o.depth += 13) {
		assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
		assert_int_equal(gkv_qp_id(qp), 4);
		assert_true(fake_qp(&fake, 4)->was_zero);
		assert_int_equal(gkv_qp_depth(qp), o.depth);
		assert_int_equal(gkv_qp_room(qp), o.depth - 1);
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
	assert_int_equal(gkv_qp_destroy(NULL), 0);
	gkv_close(g);
}

/* R5: the stride comes from the hello, whatever the library guessed. */
static void test_doorbell_stride(void **state)
{
	struct gkv_cmd cmd = { .opcode = GKV_EXIST, .nsid = 1, .key_len = 1, .key = "k" };
	struct gkv_comp comp;
	struct gkv_qp *qp;
	struct gkv *g;

	(void)state;
	for (uint16_t dstrd = 0; dstrd <= 10; dstrd += 5) {
		fake_stop(&fake);
		fake.hello.dstrd = dstrd;
		fake_start(&fake);
		g = session();
		for (uint32_t i = 1; i <= FAKE_QPS; i++) {
			assert_int_equal(gkv_qp_create(g, NULL, &qp), 0);
			assert_int_equal(gkv_submit(qp, &cmd, 1), 1);
			assert_int_equal(fake_serve(&fake, i), 1);
			assert_int_equal(gkv_poll(qp, &comp, 1), 1);
			assert_int_equal(fake_cq_head(&fake, i), 1);
		}
		gkv_close(g);
	}
}

static void test_control_session(void **state)
{
	uint8_t sqe[64] = { 6, 0, 0x34, 0x12 }, data[GKV_CTL_DATA] = "abc";
	struct gkv_cqe cqe;
	struct gkv_qp *qp;
	struct gkv_mem *m;
	uint32_t len = 3;
	char *json, *big;
	struct gkv *g;

	(void)state;
	assert_int_equal(gkv_connect(&g, fake.path, 0, GKV_CONNECT_CONTROL), 0);
	assert_int_equal(gkv_admin(g, sqe, &cqe, data, &len), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(data, "abc\x5a", 4);
	assert_int_equal(cqe.cid, 0x1234);
	len = 5000;
	assert_int_equal(gkv_admin(g, sqe, &cqe, data, &len), -EINVAL);
	assert_int_equal(gkv_query(g, GKV_QUERY_STATUS, &json), 0);
	assert_string_equal(json, "{}");
	free(json);
	/* Longer than a message by far, and not a multiple of it. */
	big = malloc(100001);
	memset(big, 'x', 100000);
	big[100000] = 0;
	big[54321] = 'y';
	fake.report = big;
	assert_int_equal(gkv_query(g, GKV_QUERY_STATUS, &json), 0);
	assert_string_equal(json, big);
	free(json);
	fake.report = "";
	assert_int_equal(gkv_query(g, GKV_QUERY_STATUS, &json), 0);
	assert_string_equal(json, "");
	free(json);
	free(big);
	assert_int_equal(gkv_set(g, "a", "b"), 0);
	assert_int_equal(gkv_set(g, "", "b"), -EINVAL);
	assert_int_equal(gkv_qp_create(g, NULL, &qp), -EINVAL);
	assert_int_equal(gkv_mem_alloc(g, 4096, &m), -EINVAL);
	/* It has no keeper: when the daemon goes, it is over. */
	fake_stop(&fake);
	assert_int_equal(gkv_set(g, "a", "b"), -ENOTCONN);
	assert_int_equal(gkv_connected(g), 0);
	gkv_close(g);
}

/* F118: who speaks another version, or nonsense, is named as that. */
static void test_bad_daemon(void **state)
{
	struct gkv *g;

	(void)state;
	fake.hello.version = 9;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPROTO);
	assert_text("version 9");
	fake.hello.version = GKV_CTL_VERSION;
	fake.hello.page_size = 1000;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPROTO);
	fake.hello.page_size = 4096;
	fake.hello.reactors = 100000;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPROTO);
	/* The page is smaller than what it is said to hold. */
	fake.hello.reactors = 100;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPROTO);
	fake.hello.reactors = 2;
	fake.no_fds = 1;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPROTO);
	fake.no_fds = 0;
	fake.short_reply = 8;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPROTO);
	fake.short_reply = 0;
	gkv_close(session());
}

/* F60, F69: nothing leaks, whatever fails. */
static void test_descriptors(void **state)
{
	unsigned int before = open_fds();
	struct gkv_qp *qp;
	struct gkv_mem *m;
	struct gkv *g;

	(void)state;
	/* Descriptors that nobody asked for are closed too. */
	fake.stray_fds = 3;
	for (int i = 0; i < 20; i++) {
		OPTS(o, .max_segs = 4);

		g = session();
		assert_int_equal(gkv_mem_alloc(g, 4096, &m), 0);
		assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
		fake_refuse(&fake, GKV_MSG_REGION_ADD, ENOSPC, "no");
		assert_int_equal(gkv_mem_alloc(g, 4096, &m), -ENOSPC);
		assert_int_equal(gkv_qp_create(g, &o, &qp), -ENOSPC);
		fake_refuse(&fake, GKV_MSG_REGION_ADD, 0, NULL);
		fake_refuse(&fake, GKV_MSG_QP_ADD, ENOMEM, "no");
		assert_int_equal(gkv_qp_create(g, &o, &qp), -ENOMEM);
		fake_refuse(&fake, GKV_MSG_QP_ADD, 0, NULL);
		/* The list area of the one that failed is not left with the daemon. */
		assert_int_equal(fake.regions[2].id, 0);
		gkv_close(g);
		fake_refuse(&fake, GKV_MSG_HELLO, EPERM, "no");
		assert_int_equal(gkv_connect(&g, fake.path, 0, 0), -EPERM);
		fake_refuse(&fake, GKV_MSG_HELLO, 0, NULL);
	}
	/* The fake's end of the last connection closes when it notices. */
	for (int i = 0; i < 1000 && open_fds() > before; i++)
		usleep(1000);
	assert_int_equal(open_fds(), before);
}

/* The fake in a process of its own, so that a limit of this one does not hit it too. */
static pid_t fake_process(char path[64])
{
	int p[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		fake_init(&fake);
		close(p[1]);
		if (write(p[0], fake.path, 64) != 64)
			_exit(1);
		/* Until the test closes its end. */
		while (read(p[0], path, 1) < 0)
			;
		fake_fini(&fake);
		_exit(0);
	}
	close(p[0]);
	assert_int_equal(read(p[1], path, 64), 64);
	/* Stays open as long as the fake is wanted. */
	fake_end = p[1];
	return pid;
}

/* Every descriptor limit in turn: a clean error or success, and nothing kept. */
static void test_out_of_descriptors(void **state)
{
	unsigned int before, ok = 0, failed = 0;
	struct rlimit old, lim;
	char path[64];
	pid_t pid = fake_process(path);
	int status;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &old);
	before = open_fds();
	for (unsigned int max = 3; max < 40; max++) {
		struct gkv *g = NULL;
		struct gkv_qp *qp;
		struct gkv_mem *m;
		int ret;

		lim = old;
		lim.rlim_cur = max;
		setrlimit(RLIMIT_NOFILE, &lim);
		ret = gkv_connect(&g, path, 0, 0);
		if (!ret)
			ret = gkv_mem_alloc(g, 4096, &m);
		if (!ret)
			ret = gkv_qp_create(g, NULL, &qp);
		if (ret) {
			failed++;
			assert_int_equal(ret, -EMFILE);
			assert_string_not_equal(gkv_error(), "");
		} else {
			ok++;
		}
		gkv_close(g);
		setrlimit(RLIMIT_NOFILE, &old);
		assert_int_equal(open_fds(), before);
	}
	assert_true(ok > 0);
	assert_true(failed > 4);
	close(fake_end);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* F66: nothing is locked or pinned. */
static void test_memlock(void **state)
{
	struct rlimit old, none = { 0, 0 };
	struct gkv_qp *qp;
	struct gkv_mem *m;
	struct gkv *g;

	(void)state;
	getrlimit(RLIMIT_MEMLOCK, &old);
	none.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_MEMLOCK, &none);
	g = session();
	assert_int_equal(gkv_mem_alloc(g, 64 << 20, &m), 0);
	assert_int_equal(gkv_qp_create(g, NULL, &qp), 0);
	gkv_close(g);
	setrlimit(RLIMIT_MEMLOCK, &old);
}

/* A daemon that hangs holds up neither closing nor, for ever, anything else. */
static void test_close_with_hanging_daemon(void **state)
{
	struct gkv *g = session();
	struct gkv_mem *m;

	(void)state;
	assert_int_equal(gkv_mem_alloc(g, 4096, &m), 0);
	pthread_mutex_lock(&fake.lock);
	fake.mute = true;
	pthread_mutex_unlock(&fake.lock);
	gkv_close(g);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_no_daemon),
		T(test_limits),
		T(test_refusals),
		T(test_namespaces),
		T(test_memory),
		T(test_queue_pairs),
		T(test_doorbell_stride),
		T(test_control_session),
		T(test_bad_daemon),
		T(test_descriptors),
		cmocka_unit_test(test_out_of_descriptors),
		T(test_memlock),
		T(test_close_with_hanging_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
