/* SPDX-License-Identifier: MIT */
/*
 * Control messages one by one: what is granted, and what is refused with which errno and a
 * text that names the value and the limit.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hostile.h"

static struct rig rig;

static const char conf[] =
	"[daemon]\n"
	"reactors = 2\n"
	"dstrd = 1\n"
	"max_queue_depth = 100\n"
	"max_qid = 7\n"
	"max_regions = 5\n"
	"max_region_bytes = 64M\n"
	"[namespace first]\nnsid = 1\nstack = mem\nvalue_max = 1M\ndeadline = 2s\nverify = on\n"
	"[namespace third]\nnsid = 3\nstack = null\nvalue_max = 2M\nread_only = yes\n";

/* The reply to @msg was an error with this number, and its text has these in it. */
static void refused(struct raw *r, int ret, int want, const char *what, const char *says,
		    const char *also)
{
	if (!tap_ok(ret == want && (!says || strstr(r->text, says)) &&
		    (!also || strstr(r->text, also)), "%s", what))
		tap_diag("returned %d, not %d: %s", ret, want, r->text);
}

static void granted(struct raw *r, int ret, const char *what)
{
	if (!tap_ok(ret == 0, "%s", what))
		tap_diag("returned %d: %s", ret, r->text);
}

static void session(struct raw *r)
{
	if (raw_open(r, rig.socket)) {
		tap_diag("no session: %s", r->text);
		exit(1);
	}
}

/* ---- Hello ---- */

static int hello_with(struct raw *r, struct gkv_msg_hello *m, int fd)
{
	struct gkv_msg_hello_reply reply;
	int ret;

	memset(r, 0, sizeof(*r));
	r->sock = hostile_connect(rig.socket);
	ret = raw_call(r, m, sizeof(*m), &fd, fd >= 0, &reply, sizeof(reply));
	close(r->sock);
	return ret;
}

static void test_hello(void)
{
	struct gkv_msg_hello m;
	struct raw r;
	void *map;
	int fd = raw_memfd(8192, &map);

	session(&r);
	tap_ok(le16toh(r.limits.version) == GKV_CTL_VERSION && le16toh(r.limits.dstrd) == 1 &&
	       le32toh(r.limits.max_depth) == 100 && le32toh(r.limits.max_qid) == 7 &&
	       le32toh(r.limits.max_regions) == 5 &&
	       le64toh(r.limits.max_region_bytes) == 64u << 20 && le32toh(r.limits.nn) == 3 &&
	       le32toh(r.limits.page_size) == 4096 && le32toh(r.limits.reactors) == 2,
	       "R5, F33: the hello tells limits and stride");
	raw_close(&r);

	hostile_hello(&m, -1, 0);
	m.version_min = htole16(7);
	m.version_max = htole16(9);
	refused(&r, hello_with(&r, &m, -1), -EPROTO,
		"F118: another version: its own errno, and both versions in the text", "7 to 9",
		"daemon 1");
	m.version_min = m.version_max = 0;
	refused(&r, hello_with(&r, &m, -1), -EPROTO, "F118: an older version", "0 to 0", "1");
	hostile_hello(&m, -1, 0);
	m.version_min = htole16(1);
	m.version_max = htole16(9);
	granted(&r, hello_with(&r, &m, -1), "F118: a range that has ours");
	hostile_hello(&m, -1, 0);
	m.rsvd28 = htole32(5);
	refused(&r, hello_with(&r, &m, -1), -EINVAL, "a reserved field", "0x5", NULL);
	hostile_hello(&m, -1, 0);
	memset(m.name, 'n', sizeof(m.name));
	refused(&r, hello_with(&r, &m, -1), -EINVAL, "a name without an end", "name", NULL);
	hostile_hello(&m, -1, 0);
	m.db_len = htole64(4096);
	refused(&r, hello_with(&r, &m, -1), -EINVAL, "doorbells without a descriptor", "4096",
		"descriptor");
	hostile_hello(&m, fd, 8192);
	m.db_offset = htole64(100);
	refused(&r, hello_with(&r, &m, fd), -EINVAL, "F34: doorbells at a misaligned offset", "0x64",
		"4096");
	m.db_offset = htole64(8192);
	refused(&r, hello_with(&r, &m, fd), -EINVAL, "doorbells beyond the memfd", "0x2000", NULL);
	hostile_hello(&m, fd, 8192);
	granted(&r, hello_with(&r, &m, fd), "doorbells");
	munmap(map, 8192);
	close(fd);
}

static void test_heads(void)
{
	struct gkv_msg_id m = { 0 };
	struct gkv_msg_reply reply;
	struct raw r;

	memset(&r, 0, sizeof(r));
	r.sock = hostile_connect(rig.socket);
	hostile_head(&m, GKV_MSG_QP_DEL, sizeof(m));
	refused(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), -EPROTO,
		"a message before the hello", "hello", NULL);
	close(r.sock);

	session(&r);
	hostile_head(&m, 77, sizeof(m));
	refused(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), -EOPNOTSUPP,
		"an unknown type", "77", NULL);
	hostile_head(&m, GKV_MSG_NS_OPEN, sizeof(m));
	refused(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), -EINVAL,
		"a message of the wrong size", "32 bytes", "96");
	hostile_head(&m, GKV_MSG_QP_DEL, sizeof(m));
	m.hdr.rsvd = htole32(1);
	refused(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), -EINVAL,
		"a reserved field of the head", "reserved", NULL);
	m.hdr.rsvd = 0;
	m.hdr.magic = htole32(GKV_CTL_MAGIC);
	m.hdr.version = htole16(5);
	tap_ok(!hostile_send(r.sock, &m, sizeof(m), NULL, 0) &&
	       hostile_recv(r.sock, &reply, sizeof(reply), 5000, NULL, NULL) == sizeof(reply) &&
	       le32toh(reply.hdr.error) == EPROTO && strstr(reply.text, "version 5"),
	       "F118: a message of another version than agreed");
	m.hdr.version = htole16(1);
	m.hdr.size = htole32(33);
	tap_ok(!hostile_send(r.sock, &m, sizeof(m), NULL, 0) &&
	       hostile_recv(r.sock, &reply, sizeof(reply), 5000, NULL, NULL) == 0,
	       "a size that is not the message's: hung up on");
	raw_close(&r);
	session(&r);
	m.hdr.size = htole32(32);
	m.hdr.magic = 0;
	tap_ok(!hostile_send(r.sock, &m, sizeof(m), NULL, 0) &&
	       hostile_recv(r.sock, &reply, sizeof(reply), 5000, NULL, NULL) == 0,
	       "no magic: hung up on");
	raw_close(&r);
}

/* ---- Namespaces ---- */

static int ns_open(struct raw *r, const char *name, uint32_t nsid, uint32_t flags,
		   struct gkv_msg_ns_open_reply *reply)
{
	struct gkv_msg_ns_open m = { .nsid = htole32(nsid), .flags = htole32(flags) };

	snprintf(m.name, sizeof(m.name), "%s", name);
	hostile_head(&m, GKV_MSG_NS_OPEN, sizeof(m));
	return raw_call(r, &m, sizeof(m), NULL, 0, reply, sizeof(*reply));
}

static void test_namespaces(void)
{
	struct gkv_msg_ns_open_reply reply;
	struct gkv_msg_ns_open m = { 0 };
	struct raw r;

	session(&r);
	refused(&r, ns_open(&r, "none", 0, 0, &reply), -ENOENT, "no such name", "none", NULL);
	refused(&r, ns_open(&r, "", 2, 0, &reply), -ENOENT, "no such NSID", "NSID 2", NULL);
	refused(&r, ns_open(&r, "", 99, 0, &reply), -ENOENT, "an NSID beyond the last", "NSID 99",
		NULL);
	refused(&r, ns_open(&r, "first", 0, 0x10, &reply), -EINVAL, "unknown flags", "flags", NULL);
	hostile_head(&m, GKV_MSG_NS_OPEN, sizeof(m));
	memset(m.name, 'x', sizeof(m.name));
	refused(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), -EINVAL,
		"a name without an end", "name", NULL);
	granted(&r, ns_open(&r, "first", 0, 0, &reply), "a namespace by name");
	tap_ok(le32toh(reply.nsid) == 1 && le32toh(reply.value_max) == 1u << 20 &&
	       le32toh(reply.key_max) == 16 && le64toh(reply.deadline_ns) == 2000000000ull &&
	       le32toh(reply.flags) & GKV_NS_F_VERIFY && !strcmp(reply.name, "first"),
	       "what it is");
	granted(&r, ns_open(&r, "", 1, 0, &reply), "and again by NSID");
	refused(&r, ns_open(&r, "first", 0, GKV_NS_F_RDONLY, &reply), -EBUSY,
		"but not otherwise than it is open", "first", "writing");
	granted(&r, ns_open(&r, "third", 0, 0, &reply), "one that is read-only");
	tap_ok(le32toh(reply.flags) & GKV_NS_F_RDONLY, "says so");
	raw_close(&r);
	session(&r);
	granted(&r, ns_open(&r, "", 0, GKV_NS_F_RDONLY, &reply), "the first one may open");
	tap_ok(le32toh(reply.nsid) == 1 && le32toh(reply.flags) & GKV_NS_F_RDONLY,
	       "read-only as asked for");
	raw_close(&r);
}

/* ---- Queue pairs ---- */

static int qp_add(struct raw *r, uint32_t qid, uint32_t depth, uint32_t flags, uint32_t mode,
		  const uint64_t at[3], int fd)
{
	struct gkv_msg_qp_add m = { .qid = htole32(qid), .depth = htole32(depth),
				    .flags = htole32(flags), .mode = htole32(mode),
				    .sq_offset = htole64(at[0]), .cq_offset = htole64(at[1]),
				    .rec_offset = htole64(at[2]) };
	struct gkv_msg_qp_add_reply reply;
	int fds[3] = { fd, fd, fd };

	hostile_head(&m, GKV_MSG_QP_ADD, sizeof(m));
	return raw_call(r, &m, sizeof(m), fds, 3, &reply, sizeof(reply));
}

static void test_queue_pairs(void)
{
	static const uint64_t good[3] = { 0, 8192, 12288 }, odd[3] = { 64, 8192, 12288 },
			      end[3] = { 0, 8192, 61440 };
	struct gkv_msg_hello hello;
	struct gkv_msg_hello_reply hr;
	struct raw r;
	void *map;
	int fd = raw_memfd(65536, &map), sock;

	session(&r);
	refused(&r, qp_add(&r, 0, 8, 0, 0, good, fd), -EINVAL, "F12: queue 0", "identifier 0",
		"1 and 7");
	refused(&r, qp_add(&r, 8, 8, 0, 0, good, fd), -EINVAL, "F12: above the highest",
		"identifier 8", "1 and 7");
	refused(&r, qp_add(&r, 65535, 8, 0, 0, good, fd), -EINVAL, "F12: queue 65535", "65535", "7");
	refused(&r, qp_add(&r, 65536 + 1, 8, 0, 0, good, fd), -EINVAL, "F12: 2^16 + 1", "65537",
		"7");
	refused(&r, qp_add(&r, 1, 1, 0, 0, good, fd), -EINVAL, "F13: depth 1", "depth 1",
		"2 and 100");
	refused(&r, qp_add(&r, 1, 101, 0, 0, good, fd), -EINVAL, "F13: depth above the limit",
		"depth 101", "2 and 100");
	refused(&r, qp_add(&r, 1, 8, 0x100, 0, good, fd), -EOPNOTSUPP, "unknown flags", "0x100",
		NULL);
	refused(&r, qp_add(&r, 1, 8, 0, 0x10, good, fd), -EINVAL, "an unknown memory mode", "0x10",
		"0xf");
	refused(&r, qp_add(&r, 1, 8, 0, 0x3, good, fd), -EINVAL,
		"F60: a memory mode without VRAM in the hello", "0x3", "negotiated");
	refused(&r, qp_add(&r, 1, 8, GKV_QP_F_CSUM, 0, good, fd), -EINVAL,
		"checksums that were not negotiated", "negotiated", NULL);
	refused(&r, qp_add(&r, 1, 8, 0, 0, odd, fd), -EINVAL, "F34: a misaligned ring", "SQ",
		"0x40");
	refused(&r, qp_add(&r, 1, 100, 0, 0, end, fd), -EINVAL,
		"F17, F59, F61: a record beyond the memfd", "record", "0x10000");
	granted(&r, qp_add(&r, 1, 8, 0, 0, good, fd), "a queue pair");
	refused(&r, qp_add(&r, 1, 8, 0, 0, good, fd), -EBUSY, "F10: the same again", "queue pair 1",
		NULL);
	granted(&r, qp_add(&r, 7, 100, 0, 0, good, fd), "F12, F13: the highest, of the full depth");
	refused(&r, raw_id(&r, GKV_MSG_QP_DEL, 2), -ENOENT, "deleting none", "queue pair 2", NULL);
	refused(&r, raw_id(&r, GKV_MSG_QP_RESET, 65537), -ENOENT, "resetting none", "65537", NULL);
	granted(&r, raw_id(&r, GKV_MSG_QP_RESET, 1), "F24: reset");
	granted(&r, raw_id(&r, GKV_MSG_QP_DEL, 1), "deletion");
	granted(&r, qp_add(&r, 1, 8, 0, 0, good, fd), "F109: the identifier is free again");
	raw_close(&r);

	/* Another session has queue 1 of its own, and sees nothing of this one's. */
	session(&r);
	refused(&r, raw_id(&r, GKV_MSG_QP_DEL, 1), -ENOENT, "R2, F8: another's queue pair is none",
		"queue pair 1", NULL);
	raw_close(&r);

	/* Doorbell memory that ends too early. */
	memset(&r, 0, sizeof(r));
	sock = r.sock = hostile_connect(rig.socket);
	hostile_hello(&hello, -1, 0);
	raw_call(&r, &hello, sizeof(hello), NULL, 0, &hr, sizeof(hr));
	refused(&r, qp_add(&r, 1, 8, 0, 0, good, fd), -EINVAL, "F19: a queue pair without doorbells",
		"0 bytes", NULL);
	close(sock);
	munmap(map, 65536);
	close(fd);
}

/* ---- Reports and settings ---- */

static int query(struct raw *r, uint32_t what, uint64_t offset, struct gkv_msg_query_reply *reply)
{
	struct gkv_msg_query m = { .what = htole32(what), .offset = htole64(offset) };

	hostile_head(&m, GKV_MSG_QUERY, sizeof(m));
	return raw_call(r, &m, sizeof(m), NULL, 0, reply, sizeof(*reply));
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

static void test_reports(void)
{
	struct gkv_msg_query_reply reply;
	struct gkv_msg_hello m;
	struct raw r, other;
	int ret;

	session(&r);
	refused(&r, query(&r, 99, 0, &reply), -EOPNOTSUPP, "an unknown report", "99", NULL);
	refused(&r, query(&r, 0, 0, &reply), -EOPNOTSUPP, "report 0", "0", NULL);
	refused(&r, query(&r, GKV_QUERY_STATUS, 1, &reply), -EINVAL, "an offset into no report", "1",
		"0 bytes");
	for (uint32_t what = GKV_QUERY_STATUS; what <= GKV_QUERY_SETTINGS; what++) {
		ret = query(&r, what, 0, &reply);
		tap_ok(ret == 0 && le32toh(reply.len) > 1 &&
		       le32toh(reply.len) <= le64toh(reply.total) &&
		       (reply.data[0] == '{' || reply.data[0] == '['), "report %u", what);
	}
	ret = query(&r, GKV_QUERY_STATUS, le64toh(reply.total), &reply);
	tap_ok(ret == 0 && !reply.len, "its end");
	refused(&r, query(&r, GKV_QUERY_STATUS, le64toh(reply.total) + 1, &reply), -EINVAL,
		"beyond its end", "offset", NULL);
	refused(&r, query(&r, GKV_QUERY_STATUS, UINT64_MAX, &reply), -EINVAL, "far beyond its end",
		"18446744073709551615", NULL);

	/* A name that would take over a terminal. */
	memset(&other, 0, sizeof(other));
	other.sock = hostile_connect(rig.socket);
	hostile_hello(&m, -1, 0);
	memcpy(m.name, "bad\x1b[2J\xff\"\\", 11);
	m.name[11] = 0;
	raw_call(&other, &m, sizeof(m), NULL, 0, &other.limits, sizeof(other.limits));
	ret = query(&r, GKV_QUERY_SESSIONS, 0, &reply);
	reply.data[sizeof(reply.data) - 1] = 0;
	tap_ok(ret == 0 && strstr(reply.data, "bad?[2J?") && !strchr(reply.data, 0x1b) &&
	       !strchr(reply.data, 0xff), "a client's name is printed with care");
	close(other.sock);

	refused(&r, set(&r, "no_such_setting", "1"), -ENOENT, "F32: no such setting",
		"no_such_setting", NULL);
	refused(&r, set(&r, "poll_interval_ns", "soon"), -EINVAL, "F32: no number", "poll_interval",
		NULL);
	ret = set(&r, "max_queue_depth", "70000");
	tap_ok(ret == -ERANGE && strstr(r.text, "65536"), "F32: a limit beyond the limit: %s", r.text);
	granted(&r, set(&r, "max_queue_depth", "50"), "a live setting");
	raw_close(&r);
	session(&r);
	tap_ok(le32toh(r.limits.max_depth) == 50, "is in force");
	granted(&r, set(&r, "max_queue_depth", "100"), "and changed back");
	raw_close(&r);
}

/* ---- Admin commands ---- */

static void test_admin(void)
{
	struct gkv_msg_admin m = { 0 };
	struct gkv_msg_admin_reply reply;
	struct raw r;

	session(&r);
	hostile_head(&m, GKV_MSG_ADMIN, sizeof(m));
	m.data_len = htole32(GKV_CTL_DATA + 1);
	refused(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), -EINVAL,
		"more data than there is room for", "4096", NULL);
	m.data_len = 0;
	m.sqe.opcode = GKV_ADM_IDENTIFY;
	m.sqe.cid = htole16(77);
	m.sqe.cdw10 = htole32(1);
	granted(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)), "Identify");
	tap_ok(!reply.cqe.status && reply.cqe.cid == htole16(77) && le32toh(reply.data_len) == 4096,
	       "answered as a controller would");
	m.sqe.opcode = 0xee;
	granted(&r, raw_call(&r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply)),
		"an unknown admin command is the controller's to refuse");
	tap_ok(GKV_STATUS_CODE(le16toh(reply.cqe.status) >> 1) == GKV_SC_INVALID_OPCODE &&
	       !reply.data_len, "with a status");
	raw_close(&r);
}

/* F66: locked memory is not what the daemon lives on. */
static void test_memlock(void)
{
	struct rlimit old, none = { 0, 0 };
	struct gkv_sqe sqe;
	struct raw_qp qp;
	struct rig small;
	struct raw r;
	bool ok;

	getrlimit(RLIMIT_MEMLOCK, &old);
	none.rlim_max = old.rlim_max;
	rig_init(&small, "[daemon]\nreactors = 2\n[namespace main]\nnsid = 1\nstack = local\n"
			 "local.path = {dir}/store\nlocal.size = 64M\nvalue_max = 1M\n");
	setrlimit(RLIMIT_MEMLOCK, &none);
	rig_start(&small);
	setrlimit(RLIMIT_MEMLOCK, &old);
	ok = !raw_open(&r, small.socket) && !raw_ns_open(&r, 1, 0) && !raw_data(&r, 0x10000) &&
	     !raw_qp_open(&r, &qp, 1, 16, 0);
	if (ok) {
		raw_sqe(&r, &sqe, GKV_OP_STORE, 1, "key", 3, 100000);
		ok = raw_exec(&r, &qp, &sqe, NULL) == 0;
		raw_sqe(&r, &sqe, GKV_OP_RETRIEVE, 1, "key", 3, 100000);
		ok = ok && raw_exec(&r, &qp, &sqe, NULL) == 0;
	}
	tap_ok(ok, "F66: with RLIMIT_MEMLOCK 0 rings are made and I/O works");
	raw_close(&r);
	rig_stop(&small, 20);
	rig_fini(&small);
}

/* Every piece of client memory lies between pages nobody can touch. */
static void test_guard_pages(void)
{
	char path[64], line[512], before[8] = "";
	unsigned int maps = 0, unguarded = 0;
	bool after = false;
	struct raw_qp qp;
	struct raw r;
	FILE *f;

	session(&r);
	if (raw_data(&r, 0x10000) || raw_qp_open(&r, &qp, 1, 8, 0))
		exit(1);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)rig.pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char perms[8] = "";

		sscanf(line, "%*s %7s", perms);
		if (after && perms[0] != '-')
			unguarded++;
		after = strstr(line, "/memfd:gkv-test") != NULL;
		if (after) {
			maps++;
			unguarded += before[0] != '-';
		}
		memcpy(before, perms, sizeof(before));
	}
	if (f)
		fclose(f);
	tap_ok(maps == 5 && !unguarded, "F114: each of %u mappings lies between guard pages", maps);
	raw_close(&r);
	raw_qp_free(&qp);
}

static void test_queue_pair_loop(void)
{
	unsigned int n = 600 / rig_slowdown();
	struct raw_qp qp;
	bool ok = true;
	struct raw r;

	session(&r);
	for (unsigned int i = 0; i < n && ok; i++) {
		ok = raw_qp_open(&r, &qp, 1 + i % 7, 2 + i % 99, 0) == 0 &&
		     raw_id(&r, GKV_MSG_QP_DEL, 1 + i % 7) == 0;
		if (qp.base)
			raw_qp_free(&qp);
	}
	tap_ok(ok, "F14: %u queue pairs of many pages, made and deleted", n);
	raw_close(&r);
}

/* A stop while commands are in flight: they end, and so does the daemon. */
static void test_stop_busy(void)
{
	struct gkv_cqe cqe;
	unsigned int done = 0;
	struct raw_qp qp;
	struct rig busy;
	struct raw r;
	uint64_t t0;

	rig_init(&busy, "[daemon]\nreactors = 2\n[namespace main]\nnsid = 1\n"
			"stack = delay, local\ndelay.store = 200ms\nlocal.path = {dir}/store\n"
			"local.size = 64M\nvalue_max = 1M\n");
	rig_start(&busy);
	if (raw_open(&r, busy.socket) || raw_ns_open(&r, 1, 0) || raw_data(&r, 0x10000) ||
	    raw_qp_open(&r, &qp, 1, 64, 0))
		exit(1);
	for (unsigned int i = 0; i < 50; i++) {
		struct gkv_sqe sqe;
		char key[8];

		snprintf(key, sizeof(key), "k%u", i);
		raw_sqe(&r, &sqe, GKV_OP_STORE, 1, key, (uint8_t)strlen(key), 20000);
		raw_put(&qp, &sqe);
	}
	raw_ring(&r, &qp);
	hostile_sleep_ms(50);
	t0 = rig_now();
	rig_stop(&busy, 10);
	while (raw_take(&r, &qp, &cqe, 10, true))
		done += !(le16toh(cqe.status) >> 1);
	tap_ok(done == 50, "F104, F23: stopped with 50 commands in flight: all answered, in %llu ms",
	       (unsigned long long)(rig_now() - t0) / 1000000);
	raw_close(&r);
	raw_qp_free(&qp);
	rig_fini(&busy);
}

int main(void)
{
	rig_init(&rig, conf);
	rig_start(&rig);
	test_hello();
	test_heads();
	test_namespaces();
	test_queue_pairs();
	test_reports();
	test_admin();
	test_guard_pages();
	test_queue_pair_loop();
	rig_stop(&rig, 20);
	rig_fini(&rig);
	test_memlock();
	test_stop_busy();
	return tap_done();
}
