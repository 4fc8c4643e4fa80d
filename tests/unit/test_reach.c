/* SPDX-License-Identifier: MIT */
/*
 * While a disk is asked whether it reaches GPU memory, only the session that made it necessary
 * waits; and whatever becomes of that session meanwhile, the memory stays until the answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <endian.h>
#include <errno.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "control/reach.h"
#include "drv_daemon.h"
#include "fdmsg.h"
#include "rawclient.h"
#include "rig.h"

#define LEN	65536u
#define NSEC	1000000000ull
#define MS	1000000ull
#define EACH	(10 * NSEC * rig_slowdown())	/* to do what takes no time */

static const char conf[] =
	"[daemon]\nreactors = 1\nmax_queue_depth = 64\n"
	"[namespace a]\nnsid = 1\nstack = mem\nmem.capacity = 1M\nvalue_max = 64K\n"
	"[namespace b]\nnsid = 2\nstack = mem\nmem.capacity = 1M\nvalue_max = 64K\n"
	"[namespace c]\nnsid = 3\nstack = mem\nmem.capacity = 1M\nvalue_max = 64K\n"
	"allow_bounce = on\n";

/* ---- A disk ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool hangs[4];			/* by NSID */
	int answer[4];
	unsigned int inside, most;	/* asked at the same time */
	unsigned int asked[4];
	bool given_up;			/* it hung until the test was over */
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* Another page may be there by now, but there must be one. */
static void touch(const struct kvb_reach *to)
{
	volatile uint8_t *p = to->addr;

	for (uint64_t i = 0; i < to->len; i += 512)
		p[i] = (uint8_t)(p[i] + 1);
}

static int reach(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err)
{
	uint32_t nsid = st->ns->nsid;
	struct timespec ts;
	int rc;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 30 * rig_slowdown();
	touch(to);
	pthread_mutex_lock(&disk.lock);
	disk.asked[nsid]++;
	if (++disk.inside > disk.most)
		disk.most = disk.inside;
	pthread_cond_broadcast(&disk.changed);
	while (disk.hangs[nsid] && !disk.given_up)
		disk.given_up = pthread_cond_timedwait(&disk.changed, &disk.lock, &ts);
	rc = disk.answer[nsid];
	pthread_mutex_unlock(&disk.lock);
	/* As the transfer lands, and what was there is put back. */
	touch(to);
	pthread_mutex_lock(&disk.lock);
	disk.inside--;
	pthread_cond_broadcast(&disk.changed);
	pthread_mutex_unlock(&disk.lock);
	return rc ? kvb_fail(err, -rc, "%s: the disk says %d", to->what, rc) : 0;
}

static void hang(uint32_t nsid, bool on)
{
	pthread_mutex_lock(&disk.lock);
	disk.hangs[nsid] = on;
	pthread_cond_broadcast(&disk.changed);
	pthread_mutex_unlock(&disk.lock);
}

static void answer(uint32_t nsid, int rc)
{
	pthread_mutex_lock(&disk.lock);
	disk.answer[nsid] = rc;
	pthread_mutex_unlock(&disk.lock);
}

/* Until @n are being asked. */
static void wait_inside(unsigned int n)
{
	pthread_mutex_lock(&disk.lock);
	while (disk.inside != n)
		pthread_cond_wait(&disk.changed, &disk.lock);
	pthread_mutex_unlock(&disk.lock);
}

/* ---- Clients ---- */

static void begin(struct raw *r)
{
	if (raw_open(r, drv_socket))
		fail_msg("no session: %s", r->text);
}

static void send_region(struct raw *r, uint32_t id, int fd)
{
	struct gkv_msg_region_add m = { .id = htole32(id), .iova = htole64((uint64_t)id << 30),
					.len = htole64(LEN) };

	m.hdr = (struct gkv_msg_hdr){ htole32(GKV_CTL_MAGIC), htole16(GKV_CTL_VERSION),
				      htole16(GKV_MSG_REGION_ADD), htole32(sizeof(m)),
				      htole32(++r->seq), 0, 0 };
	assert_int_equal(fdmsg_send(r->sock, &m, sizeof(m), &fd, 1, 0), 0);
}

static void send_open(struct raw *r, uint32_t nsid)
{
	struct gkv_msg_ns_open m = { .nsid = htole32(nsid) };

	m.hdr = (struct gkv_msg_hdr){ htole32(GKV_CTL_MAGIC), htole16(GKV_CTL_VERSION),
				      htole16(GKV_MSG_NS_OPEN), htole32(sizeof(m)),
				      htole32(++r->seq), 0, 0 };
	assert_int_equal(fdmsg_send(r->sock, &m, sizeof(m), NULL, 0, 0), 0);
}

/* The reply to the request of this number: its errno, negative. */
static int reply(struct raw *r, uint32_t seq)
{
	union {
		struct gkv_msg_reply head;
		char buf[8192];
	} m;

	if (fdmsg_recv(r->sock, &m, sizeof(m), NULL, NULL, NULL) < (ssize_t)sizeof(m.head))
		return -EPIPE;
	assert_int_equal(le32toh(m.head.hdr.seq), seq);
	memcpy(r->text, m.head.text, sizeof(r->text));
	return -(int)le32toh(m.head.hdr.error);
}

static bool silent(struct raw *r)
{
	char c;

	return recv(r->sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static int add(struct raw *r, uint32_t id, int fd)
{
	send_region(r, id, fd);
	return reply(r, r->seq);
}

/* The sessions' report has @text. */
static bool reported(struct raw *r, const char *text)
{
	struct gkv_msg_query m = { .what = htole32(GKV_QUERY_SESSIONS) };
	struct gkv_msg_query_reply rep;

	m.hdr.type = htole16(GKV_MSG_QUERY);
	m.hdr.size = htole32(sizeof(m));
	assert_int_equal(raw_call(r, &m, sizeof(m), NULL, 0, &rep, sizeof(rep)), 0);
	rep.data[sizeof(rep.data) - 1] = '\0';
	return strstr(rep.data, text);
}

static void wait_reported(struct raw *r, const char *text, bool want)
{
	uint64_t end = rig_now() + EACH;

	while (reported(r, text) != want) {
		if (rig_now() > end)
			fail_msg("%s is%s reported", text, want ? " not" : "");
		usleep(1000);
	}
}

/* All that a session may ask is answered in no time. */
static void gets_on(struct raw *r, uint32_t nsid)
{
	uint64_t start = rig_now();
	void *map;
	int fd = raw_memfd(LEN, &map);

	assert_int_equal(raw_ns_open(r, nsid, 0), 0);
	assert_int_equal(add(r, 1000, fd), 0);
	assert_true(reported(r, "\"id\":1000"));
	assert_int_equal(raw_id(r, GKV_MSG_REGION_DEL, 1000), 0);
	munmap(map, LEN);
	close(fd);
	assert_in_range(rig_now() - start, 0, EACH);
}

/* ---- Tests ---- */

static int fresh(void **state)
{
	bool given_up;

	(void)state;
	/* A disk that nobody waits for any more may be on its way out. */
	pthread_mutex_lock(&disk.lock);
	memset(disk.hangs, 0, sizeof(disk.hangs));
	memset(disk.answer, 0, sizeof(disk.answer));
	memset(disk.asked, 0, sizeof(disk.asked));
	disk.most = 0;
	given_up = disk.given_up;
	pthread_mutex_unlock(&disk.lock);
	kvb_reach_limit_ns = 120 * NSEC;
	return given_up;
}

static void test_others_go_on(void **state)
{
	int fd = fakedrv_region(LEN), fd2 = fakedrv_region(LEN);
	struct raw r, other, late;

	(void)state;
	begin(&r);
	begin(&other);
	assert_int_equal(raw_ns_open(&r, 1, 0), 0);
	hang(1, true);
	send_region(&r, 1, fd);
	/* The next request waits its turn. */
	send_open(&r, 3);
	wait_inside(1);
	gets_on(&other, 1);
	begin(&late);
	raw_close(&late);
	assert_true(silent(&r));
	hang(1, false);
	assert_int_equal(reply(&r, r.seq - 1), 0);
	assert_int_equal(reply(&r, r.seq), 0);
	/* The other way round: a namespace is opened when the memory is there. */
	assert_int_equal(add(&r, 2, fd2), 0);
	hang(2, true);
	send_open(&r, 2);
	wait_inside(1);
	gets_on(&other, 2);
	assert_true(silent(&r));
	hang(2, false);
	assert_int_equal(reply(&r, r.seq), 0);
	/* 1: both; 2: both; 3: both. */
	assert_int_equal(disk.asked[1], 2);
	assert_int_equal(disk.asked[2], 2);
	assert_int_equal(disk.asked[3], 2);
	raw_close(&r);
	raw_close(&other);
	close(fd);
	close(fd2);
}

static void test_answers(void **state)
{
	int fd = fakedrv_region(LEN);
	struct raw r;

	(void)state;
	begin(&r);
	for (uint32_t nsid = 1; nsid <= 3; nsid++)
		assert_int_equal(raw_ns_open(&r, nsid, 0), 0);
	/* Bounced where that is allowed; the first no is the answer. */
	answer(3, -EXDEV);
	assert_int_equal(add(&r, 7, fd), 0);
	assert_int_equal(raw_id(&r, GKV_MSG_REGION_DEL, 7), 0);
	answer(2, -EXDEV);
	assert_int_equal(add(&r, 7, fd), -EXDEV);
	assert_string_equal(r.text, "namespace b: region 7: the disk says -18");
	assert_int_equal(disk.asked[3], 1);
	answer(1, -EIO);
	assert_int_equal(add(&r, 7, fd), -EIO);
	assert_non_null(strstr(r.text, "namespace a: region 7"));
	assert_int_equal(disk.asked[2], 2);
	assert_int_equal(raw_id(&r, GKV_MSG_REGION_DEL, 7), -ENOENT);
	answer(1, 0);
	answer(2, 0);
	assert_int_equal(add(&r, 7, fd), 0);
	raw_close(&r);
	close(fd);
}

static void test_disconnect(void **state)
{
	struct raw r, other;
	int fd;

	(void)state;
	begin(&other);
	for (int opening = 0; opening < 2; opening++) {
		begin(&r);
		fd = fakedrv_region(LEN);
		if (opening)
			assert_int_equal(add(&r, 1, fd), 0);
		else
			assert_int_equal(raw_ns_open(&r, 1, 0), 0);
		hang(1, true);
		if (opening)
			send_open(&r, 1);
		else
			send_region(&r, 1, fd);
		wait_inside(1);
		close(fd);
		raw_close(&r);
		wait_reported(&other, "\"closing\"", true);
		gets_on(&other, 3);
		/* It is there until the disk has answered, and no longer. */
		assert_true(reported(&other, "\"closing\""));
		hang(1, false);
		wait_reported(&other, "\"closing\"", false);
	}
	raw_close(&other);
}

static void test_revoked(void **state)
{
	int fd = fakedrv_region(LEN);
	struct raw r;

	(void)state;
	begin(&r);
	assert_int_equal(raw_ns_open(&r, 1, 0), 0);
	hang(1, true);
	send_region(&r, 1, fd);
	wait_inside(1);
	drv_sigbus();
	fakedrv_revoke(fd);
	hang(1, false);
	assert_int_equal(reply(&r, r.seq), -ENODEV);
	assert_non_null(strstr(r.text, "region 1 was revoked"));
	raw_close(&r);
	close(fd);
}

/* A request is answered in time even if the disk does not; what it may still write to is out. */
static void test_limit(void **state)
{
	int fd = fakedrv_region(LEN), fd2 = fakedrv_region(LEN);
	struct raw r;

	(void)state;
	begin(&r);
	assert_int_equal(raw_ns_open(&r, 1, 0), 0);
	kvb_reach_limit_ns = 300 * MS;
	hang(1, true);
	assert_int_equal(add(&r, 7, fd), -ETIMEDOUT);
	assert_non_null(strstr(r.text, "namespace a"));
	assert_non_null(strstr(r.text, "region 7"));
	assert_non_null(strstr(r.text, "300 ms"));
	kvb_reach_limit_ns = 120 * NSEC;
	assert_int_equal(raw_id(&r, GKV_MSG_REGION_DEL, 7), -ENOENT);
	/* One answer at a time may be owed to a session; what needs none is served. */
	assert_int_equal(add(&r, 8, fd2), -EBUSY);
	assert_non_null(strstr(r.text, "region 7"));
	gets_on(&r, 2);
	hang(1, false);
	wait_inside(0);
	while (add(&r, 7, fd) == -EBUSY)
		usleep(1000);
	assert_string_equal(r.text, "");

	/* Opened too late, and the region is one that commands might use. */
	kvb_reach_limit_ns = 300 * MS;
	hang(3, true);
	assert_false(reported(&r, "\"dead\":true"));
	assert_int_equal(raw_ns_open(&r, 3, 0), -ETIMEDOUT);
	assert_true(reported(&r, "\"dead\":true"));
	struct gkv_msg_id del = { .id = htole32(7) };
	del.hdr = (struct gkv_msg_hdr){ htole32(GKV_CTL_MAGIC), htole16(GKV_CTL_VERSION),
					htole16(GKV_MSG_REGION_DEL), htole32(sizeof(del)),
					htole32(++r.seq), 0, 0 };
	assert_int_equal(fdmsg_send(r.sock, &del, sizeof(del), NULL, 0, 0), 0);
	usleep(100000);
	assert_true(silent(&r));
	hang(3, false);
	assert_int_equal(reply(&r, r.seq), 0);
	assert_int_equal(add(&r, 7, fd), 0);
	assert_int_equal(raw_ns_open(&r, 3, 0), 0);
	raw_close(&r);
	close(fd);
	close(fd2);
}

/* The same memory may be another session's, too: one transfer at a time. */
static void test_turns(void **state)
{
	/* Where descriptors cannot be compared, another GPU's memory is surely another. */
	bool compares = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, 0, 0) == 0;
	int fd = fakedrv_region(LEN), fd2 = fakedrv_region_of(compares ? 1 : 2, LEN);
	struct raw r[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		begin(&r[i]);
		assert_int_equal(raw_ns_open(&r[i], i == 0 ? 1 : 2, 0), 0);
	}
	hang(1, true);
	send_region(&r[0], 1, fd);
	wait_inside(1);
	send_region(&r[1], 1, fd);
	send_region(&r[2], 1, fd);
	/* Other memory is not held up. */
	assert_int_equal(add(&r[3], 1, fd2), 0);
	assert_int_equal(disk.most, 2);
	assert_true(silent(&r[1]));
	raw_close(&r[1]);
	wait_reported(&r[3], "\"closing\"", false);
	assert_int_equal(disk.asked[2], 1);
	hang(1, false);
	assert_int_equal(reply(&r[0], r[0].seq), 0);
	assert_int_equal(reply(&r[2], r[2].seq), 0);
	assert_int_equal(disk.asked[2], 2);

	/* Nor is what waits behind a disk that hangs held up for ever. */
	assert_int_equal(raw_id(&r[0], GKV_MSG_REGION_DEL, 1), 0);
	assert_int_equal(raw_id(&r[2], GKV_MSG_REGION_DEL, 1), 0);
	kvb_reach_limit_ns = 300 * MS;
	hang(1, true);
	send_region(&r[0], 1, fd);
	wait_inside(1);
	kvb_reach_limit_ns = 120 * NSEC;
	send_region(&r[2], 1, fd);
	assert_int_equal(reply(&r[0], r[0].seq), -ETIMEDOUT);
	assert_int_equal(reply(&r[2], r[2].seq), 0);
	/* Who has not had its turn in time is told so. */
	assert_int_equal(raw_id(&r[2], GKV_MSG_REGION_DEL, 1), 0);
	hang(2, true);
	send_region(&r[2], 1, fd);
	wait_inside(2);
	kvb_reach_limit_ns = 300 * MS;
	begin(&r[1]);
	assert_int_equal(raw_ns_open(&r[1], 3, 0), 0);
	assert_int_equal(add(&r[1], 1, fd), -ETIMEDOUT);
	assert_non_null(strstr(r[1].text, "others"));
	hang(1, false);
	hang(2, false);
	assert_int_equal(reply(&r[2], r[2].seq), 0);
	for (int i = 0; i < 4; i++)
		raw_close(&r[i]);
	close(fd);
	close(fd2);
}

/* The last one: a daemon that is told to stop does, whatever the disk does. */
static void test_stop(void **state)
{
	int fd = fakedrv_region(LEN);
	struct raw r;
	uint64_t took;

	(void)state;
	begin(&r);
	assert_int_equal(raw_ns_open(&r, 1, 0), 0);
	hang(1, true);
	send_region(&r, 1, fd);
	wait_inside(1);
	assert_int_equal(drv_stop(&took), -ETIMEDOUT);
	assert_in_range(took, 0, 12 * NSEC * rig_slowdown());
	assert_int_equal(reply(&r, r.seq), -EPIPE);
	hang(1, false);
	assert_int_equal(drv_drain(), 0);
	raw_close(&r);
	close(fd);
}

static int start(void **state)
{
	(void)state;
	drv_start(conf, reach);
	return 0;
}

static int end(void **state)
{
	(void)state;
	drv_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_others_go_on, fresh),
		cmocka_unit_test_setup(test_answers, fresh),
		cmocka_unit_test_setup(test_disconnect, fresh),
		cmocka_unit_test_setup(test_revoked, fresh),
		cmocka_unit_test_setup(test_limit, fresh),
		cmocka_unit_test_setup(test_turns, fresh),
		cmocka_unit_test_setup(test_stop, fresh),
	};

	return cmocka_run_group_tests(tests, start, end);
}
