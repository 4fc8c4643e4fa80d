/* SPDX-License-Identifier: MIT */
/*
 * What concerns GPU memory and can be shown without any: what the daemon does not take for
 * memory of /dev/gkv, memory modes that are not kept, queue pairs that stop and say why,
 * settings in the module's sysfs.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <gkv.h>

#include "hostile.h"

#define DEPTH 16u
#define ALL (GKV_MODE_SQ | GKV_MODE_CQ | GKV_MODE_DB | GKV_MODE_DATA)

static struct rig rig;

static const char conf[] =
	"[daemon]\nreactors = 1\nmax_queue_depth = 100\n"
	"[namespace main]\nnsid = 1\nstack = mem\n"
	"[namespace slow]\nnsid = 2\nstack = delay, mem\ndelay.exist = 400ms\n";

static void refused(struct raw *r, int ret, int want, const char *what, const char *says,
		    const char *also)
{
	if (!tap_ok(ret == want && strstr(r->text, says) && (!also || strstr(r->text, also)), "%s",
		    what))
		tap_diag("returned %d, not %d: %s", ret, want, r->text);
}

static void granted(struct raw *r, int ret, const char *what)
{
	if (!tap_ok(ret == 0, "%s", what))
		tap_diag("returned %d: %s", ret, r->text);
}

/* A session with these features, and doorbells that nobody rings. */
static void session(struct raw *r, uint64_t features)
{
	struct gkv_msg_hello m;
	void *map;
	int ret;

	memset(r, 0, sizeof(*r));
	r->data_fd = -1;
	r->sock = hostile_connect(rig.socket);
	r->doorbells_len = 65536;
	r->doorbells_fd = raw_memfd(r->doorbells_len, &map);
	r->doorbells = map;
	hostile_hello(&m, r->doorbells_fd, r->doorbells_len);
	m.features = htole64(features);
	ret = raw_call(r, &m, sizeof(m), &r->doorbells_fd, 1, &r->limits, sizeof(r->limits));
	if (ret) {
		tap_diag("no session: %d, %s", ret, r->text);
		exit(1);
	}
}

static int region_add(struct raw *r, int fd)
{
	struct gkv_msg_region_add m = { .id = htole32(9), .iova = htole64(1 << 30),
					.len = htole64(4096) };
	struct gkv_msg_reply reply;

	hostile_head(&m, GKV_MSG_REGION_ADD, sizeof(m));
	return raw_call(r, &m, sizeof(m), &fd, 1, &reply, sizeof(reply));
}

struct parts {
	int fd[4];
	unsigned int n;
	uint32_t mode;
	uint64_t db;
};

static int qp_add(struct raw *r, const struct parts *p)
{
	struct gkv_msg_qp_add m = { .qid = htole32(1), .depth = htole32(8),
				    .mode = htole32(p->mode), .cq_offset = htole64(8192),
				    .rec_offset = htole64(16384), .db_offset = htole64(p->db) };
	struct gkv_msg_qp_add_reply reply;

	hostile_head(&m, GKV_MSG_QP_ADD, sizeof(m));
	return raw_call(r, &m, sizeof(m), p->fd, p->n, &reply, sizeof(reply));
}

/* ---- Descriptors that are not the module's ---- */

static int named_file(const char *name)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", rig.dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	unlink(path);
	if (fd < 0 || ftruncate(fd, 65536))
		exit(1);
	return fd;
}

static void test_strangers(void)
{
	const char *mine = "/dev/gkv";
	struct {
		const char *what;
		int fd;
	} all[] = {
		{ "an eventfd", eventfd(0, EFD_CLOEXEC) },
		{ "an epoll descriptor", epoll_create1(EPOLL_CLOEXEC) },
		{ "a timerfd", timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC) },
		{ "an inotify descriptor", inotify_init1(IN_CLOEXEC) },
		{ "a file named as the module's descriptors are", named_file("anon_inode:[gkv-region]") },
		{ "one named as those of queue pairs", named_file("anon_inode:[gkv-qp]") },
		{ "a memfd of that name, unsealed", memfd_create("anon_inode:[gkv-region]", MFD_CLOEXEC) },
		{ "a directory", open("/", O_RDONLY | O_CLOEXEC) },
		{ "a device", open("/dev/zero", O_RDWR | O_CLOEXEC) },
	};
	struct parts p = { .n = 3 };
	struct raw r;
	void *map;

	session(&r, GKV_FEATURE_VRAM);
	tap_ok(le64toh(r.limits.features) == GKV_FEATURE_VRAM, "VRAM is a feature of the hello");
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char what[96];
		bool memfd = strstr(all[i].what, "memfd");

		snprintf(what, sizeof(what), "%s is no region", all[i].what);
		refused(&r, region_add(&r, all[i].fd), memfd ? -EPERM : -EINVAL, what, "region 9",
			memfd ? "seals" : mine);
		p.fd[0] = p.fd[1] = p.fd[2] = all[i].fd;
		snprintf(what, sizeof(what), "%s is no SQ", all[i].what);
		refused(&r, qp_add(&r, &p), memfd ? -EPERM : -EINVAL, what, "SQ of queue pair 1",
			memfd ? "seals" : mine);
	}
	/* Not even if the rings are good. */
	p.fd[0] = p.fd[1] = raw_memfd(65536, &map);
	p.fd[2] = all[0].fd;
	refused(&r, qp_add(&r, &p), -EINVAL, "an eventfd is no record", "record", "memfd");
	munmap(map, 65536);
	close(p.fd[0]);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		close(all[i].fd);
	raw_close(&r);
}

/* ---- Memory modes ---- */

static void test_modes(void)
{
	static const char *const part[] = { "SQ", "CQ", "doorbells" };
	struct parts p = { .n = 3 };
	struct raw r;
	void *map;
	int fd = raw_memfd(65536, &map);

	for (int i = 0; i < 4; i++)
		p.fd[i] = fd;
	session(&r, 0);
	tap_ok(!r.limits.features, "features are those asked for");
	p.mode = GKV_MODE_DATA;
	refused(&r, qp_add(&r, &p), -EINVAL, "a memory mode without the feature", "0x8", "negotiated");
	raw_close(&r);

	session(&r, GKV_FEATURE_VRAM);
	for (unsigned int i = 0; i < 3; i++) {
		char what[96];

		p.mode = GKV_MODE_SQ << i;
		p.n = i == 2 ? 4 : 3;
		snprintf(what, sizeof(what), "mode %#x: %s in a memfd", p.mode, part[i]);
		refused(&r, qp_add(&r, &p), -EINVAL, what, part[i], "memfd");
		snprintf(what, sizeof(what), "memory mode %#x", p.mode);
		tap_ok(strstr(r.text, what) && strstr(r.text, "VRAM"),
		       "the text has the mode and both places");
	}
	p.mode = GKV_MODE_SQ | GKV_MODE_CQ;
	p.n = 4;
	refused(&r, qp_add(&r, &p), -EINVAL, "four descriptors without doorbells", "4 descriptors",
		"expected 3");
	p.mode = ALL;
	p.n = 3;
	refused(&r, qp_add(&r, &p), -EINVAL, "three with doorbells", "3 descriptors", "expected 4");
	p.n = 4;
	p.db = 4;
	refused(&r, qp_add(&r, &p), -EINVAL, "doorbells at a misaligned offset", "0x4",
		"multiple of 8");
	p.mode = 0;
	p.n = 3;
	p.db = 8;
	refused(&r, qp_add(&r, &p), -EINVAL, "a doorbell offset without doorbells", "0x8", "memory mode");
	p.db = 0;
	p.mode = 0x18;
	refused(&r, qp_add(&r, &p), -EINVAL, "an unknown bit", "0x18", "0xf");
	p.mode = GKV_MODE_DATA;
	granted(&r, qp_add(&r, &p), "mode 0x8 has all its parts in host memory");
	raw_close(&r);
	munmap(map, 65536);
	close(fd);
}

/* With GKV_MODE_DATA host memory is no place for data, in whatever the pointer says it. */
static void test_data(void)
{
	struct parts p = { .n = 3, .mode = GKV_MODE_DATA };
	struct raw_qp qp = { .qid = 1, .depth = 8, .phase = 1 };
	uint16_t want = GKV_SC_INVALID_CMB | GKV_DNR, sgl, prp, none;
	struct gkv_sqe sqe;
	struct raw r;
	void *map;
	int fd = raw_memfd(65536, &map);

	p.fd[0] = p.fd[1] = p.fd[2] = fd;
	session(&r, GKV_FEATURE_VRAM);
	if (raw_ns_open(&r, 1, 0) || raw_data(&r, 0x10000) || qp_add(&r, &p))
		exit(1);
	qp.sq = map;
	qp.cq = (volatile struct gkv_cqe *)((char *)map + 8192);
	raw_sqe(&r, &sqe, GKV_OP_STORE, 1, "key", 3, 4096);
	sgl = raw_exec(&r, &qp, &sqe, NULL);
	sqe.flags = 0;
	sqe.dptr.prp.prp1 = htole64(r.iova);
	sqe.dptr.prp.prp2 = 0;
	prp = raw_exec(&r, &qp, &sqe, NULL);
	raw_sqe(&r, &sqe, GKV_OP_LIST, 1, "", 0, 4096);
	none = raw_exec(&r, &qp, &sqe, NULL);
	if (!tap_ok(sgl == want && prp == want && none == want,
		    "mode 0x8: data in host memory ends with 12h, DNR: Store by SGL and PRP, List"))
		tap_diag("%#x %#x %#x", sgl, prp, none);
	raw_sqe(&r, &sqe, GKV_OP_STORE, 1, "key", 3, 0);
	sqe.cdw10 = 0;
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == 0, "no data may be anywhere");
	raw_sqe(&r, &sqe, GKV_OP_STORE, 1, "key", 3, 4096);
	sqe.dptr.sgl.addr = htole64(1ull << 40);
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == (GKV_SC_DATA_TRANSFER | GKV_DNR),
	       "an address in no region is still 04h");
	raw_close(&r);
	munmap(map, 65536);
	close(fd);
}

/* ---- Queue pairs that stop ---- */

static uint32_t stopped_in(const struct raw_qp *qp, unsigned int ms)
{
	struct gkv_rec_hdr *h = (struct gkv_rec_hdr *)qp->rec;
	uint64_t end = rig_now() + ms * 1000000ull;
	uint32_t v;

	while (!(v = le32toh(__atomic_load_n(&h->stopped, __ATOMIC_ACQUIRE))) && rig_now() < end)
		hostile_sleep_ms(1);
	return v;
}

static void *sleeper(void *arg)
{
	uint32_t *word = arg;
	struct timespec limit = { .tv_sec = 20 };

	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 1) {
		if (syscall(SYS_futex, word, FUTEX_WAIT, 1, &limit, NULL, 0) && errno == ETIMEDOUT)
			return (void *)1;
	}
	return NULL;
}

static void ring(struct raw *r, uint32_t offset, uint32_t v)
{
	__atomic_store_n((volatile uint32_t *)(r->doorbells + offset), htole32(v),
			 __ATOMIC_RELEASE);
}

static void test_stopped(void)
{
	struct gkv_rec_hdr *h;
	struct gkv_cqe cqe;
	struct gkv_sqe sqe;
	unsigned int got = 0;
	struct raw_qp qp;
	struct raw r;
	pthread_t t;
	void *late = NULL;
	uint32_t why;

	if (raw_open(&r, rig.socket) || raw_ns_open(&r, 2, 0) || raw_qp_open(&r, &qp, 1, DEPTH, 0))
		exit(1);
	h = (struct gkv_rec_hdr *)qp.rec;
	tap_ok(!h->stopped, "a queue pair that runs does not say that it has stopped");
	/* Three commands are still under way when a doorbell makes no sense. */
	for (int i = 0; i < 3; i++) {
		raw_sqe(&r, &sqe, GKV_OP_EXIST, 2, "key", 3, 0);
		raw_put(&qp, &sqe);
	}
	raw_ring(&r, &qp);
	hostile_sleep_ms(100);
	pthread_create(&t, NULL, sleeper, &h->waiting);
	hostile_sleep_ms(50);
	ring(&r, GKV_SQ_TAIL_DB(1, le16toh(r.limits.dstrd)), DEPTH + 5);
	why = stopped_in(&qp, 10000 * rig_slowdown());
	while (raw_take(&r, &qp, &cqe, 0, false))
		got++;
	tap_ok(why == GKV_STOPPED_DOORBELL, "a wild SQ doorbell: the record says so (%u)", why);
	tap_ok(got == 3, "after the completions of what was under way: %u of 3", got);
	pthread_join(t, &late);
	tap_ok(!late, "who sleeps on the record's futex is woken");
	ring(&r, GKV_SQ_TAIL_DB(1, le16toh(r.limits.dstrd)), 4);
	tap_ok(!raw_take(&r, &qp, &cqe, 100, false), "nothing comes any more");
	tap_ok(raw_id(&r, GKV_MSG_QP_RESET, 1) == 0 && !h->stopped, "until a reset");
	qp.tail = qp.head = 0;
	qp.phase = 1;
	raw_sqe(&r, &sqe, GKV_OP_EXIST, 2, "key", 3, 0);
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == (GKV_SC_KEY_NOT_FOUND | GKV_DNR),
	       "after which it serves");
	/* The CQ's doorbell is looked at when the room it makes is needed. */
	ring(&r, GKV_CQ_HEAD_DB(1, le16toh(r.limits.dstrd)), DEPTH);
	for (unsigned int i = 0; i < DEPTH - 1; i++) {
		raw_sqe(&r, &sqe, GKV_OP_EXIST, 2, "key", 3, 0);
		raw_put(&qp, &sqe);
	}
	raw_ring(&r, &qp);
	why = stopped_in(&qp, 10000 * rig_slowdown());
	tap_ok(why == GKV_STOPPED_DOORBELL, "a wild CQ doorbell (%u)", why);
	raw_close(&r);
	raw_qp_free(&qp);
}

/* ---- Settings of the module ---- */

static char sysfs[128];

static void put(const char *name, const char *value)
{
	char path[192];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	f = fopen(path, "w");
	if (!f || fprintf(f, "%s\n", value) < 0 || fclose(f))
		exit(1);
}

/* Is the setting so, within some seconds, with this origin? */
static bool setting(struct raw *r, const char *name, const char *value, const char *origin)
{
	struct gkv_msg_query m = { .what = htole32(GKV_QUERY_SETTINGS) };
	uint64_t end = rig_now() + 5000000000ull * rig_slowdown();
	struct gkv_msg_query_reply reply;
	char want[160], *at = NULL;

	snprintf(want, sizeof(want), "\"name\":\"%s\",\"value\":%s,\"origin\":\"%s\"", name, value,
		 origin);
	do {
		hostile_head(&m, GKV_MSG_QUERY, sizeof(m));
		if (raw_call(r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)))
			return false;
		reply.data[sizeof(reply.data) - 1] = '\0';
		if (strstr(reply.data, want))
			return true;
		hostile_sleep_ms(10);
	} while (rig_now() < end);
	snprintf(want, sizeof(want), "\"name\":\"%s\"", name);
	at = strstr(reply.data, want);
	tap_diag("%.100s", at ? at : "no such setting");
	return false;
}

static int set(struct raw *r, const char *name, const char *value)
{
	struct gkv_msg_set m = { 0 };
	struct gkv_msg_reply reply;

	snprintf(m.name, sizeof(m.name), "%s", name);
	snprintf(m.value, sizeof(m.value), "%s", value);
	hostile_head(&m, GKV_MSG_SET, sizeof(m));
	return raw_call(r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply));
}

/* A queue pair of a session of libgkv: the limit in force counts, not the one of its hello. */
static int create(struct gkv *g, uint32_t depth)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = depth };
	struct gkv_qp *qp;
	int ret = gkv_qp_create(g, &o, &qp);

	if (!ret)
		gkv_qp_destroy(qp);
	return ret;
}

static void depth_limit(struct rig *own, struct raw *r)
{
	struct gkv *g;

	if (gkv_connect(&g, own->socket, 0, 0))
		exit(1);
	tap_ok(create(g, 64) == 0 && create(g, 65) == -EINVAL && strstr(gkv_error(), "depth 65 ") &&
	       strstr(gkv_error(), "64"), "a queue deeper than that is refused: %s", gkv_error());
	put("max_queue_depth", "100");
	tap_ok(setting(r, "max_queue_depth", "100", "sysfs") && create(g, 100) == 0,
	       "the limit is raised: so may an old session's queues be deeper");
	put("max_queue_depth", "64");
	tap_ok(setting(r, "max_queue_depth", "64", "sysfs") && create(g, 100) == -EINVAL &&
	       strstr(gkv_error(), "depth 100 ") && strstr(gkv_error(), "64"),
	       "and lowered: no longer, and the text has both (%s)", gkv_error());
	gkv_close(g);
}

static void unload(void)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/poll_interval_ns", sysfs);
	unlink(path);
	snprintf(path, sizeof(path), "%s/max_queue_depth", sysfs);
	unlink(path);
	rmdir(sysfs);
}

static void test_follow(void)
{
	struct rig own;
	struct raw r;
	char env[160];

	rig_init(&own, "[daemon]\nreactors = 1\npoll_interval_ns = 70000\n"
		       "[namespace main]\nnsid = 1\nstack = mem\n");
	snprintf(sysfs, sizeof(sysfs), "%s/gkv", own.dir);
	snprintf(env, sizeof(env), "GKV_SYSFS=%s", sysfs);
	rig_start_env(&own, env);
	if (raw_open(&r, own.socket))
		exit(1);
	tap_ok(setting(&r, "poll_interval_ns", "70000", "file"), "without the module: the file");

	/* As a module comes that nobody has set anything of. */
	mkdir(sysfs, 0700);
	put("poll_interval_ns", "1000000");
	put("max_queue_depth", "4096");
	hostile_sleep_ms(200);
	tap_ok(setting(&r, "poll_interval_ns", "70000", "file") &&
	       setting(&r, "max_queue_depth", "4096", "default"),
	       "the module is loaded: its defaults are nobody's wish");
	put("poll_interval_ns", "250000");
	tap_ok(setting(&r, "poll_interval_ns", "250000", "sysfs"), "written in sysfs: followed");
	put("max_queue_depth", "64");
	tap_ok(setting(&r, "max_queue_depth", "64", "sysfs"), "the other one, too");
	depth_limit(&own, &r);
	tap_ok(!set(&r, "poll_interval_ns", "90us") &&
	       setting(&r, "poll_interval_ns", "90000", "live"), "set by message: the later wins");
	put("poll_interval_ns", "1000000");
	tap_ok(setting(&r, "poll_interval_ns", "1000000", "sysfs"),
	       "and in sysfs again, be it to the module's default");
	put("max_queue_depth", "1");
	hostile_sleep_ms(200);
	tap_ok(setting(&r, "max_queue_depth", "64", "sysfs") && rig_alive(&own),
	       "what is out of range is not");
	unload();
	hostile_sleep_ms(200);
	tap_ok(setting(&r, "poll_interval_ns", "1000000", "sysfs"), "the module goes: all stays");
	mkdir(sysfs, 0700);
	put("max_queue_depth", "77");
	put("poll_interval_ns", "1000000");
	tap_ok(setting(&r, "max_queue_depth", "77", "sysfs"), "and comes again, with another value");
	raw_close(&r);
	rig_stop(&own, 10);

	/* There before the daemon is. */
	put("poll_interval_ns", "333000");
	rig_start_env(&own, env);
	if (raw_open(&r, own.socket))
		exit(1);
	tap_ok(setting(&r, "poll_interval_ns", "333000", "sysfs") &&
	       setting(&r, "max_queue_depth", "77", "sysfs"), "there when the daemon starts");
	raw_close(&r);
	unload();
	rig_fini(&own);
}

int main(void)
{
	rig_init(&rig, conf);
	rig_start(&rig);
	test_strangers();
	test_modes();
	test_data();
	test_stopped();
	rig_fini(&rig);
	test_follow();
	return tap_done();
}
