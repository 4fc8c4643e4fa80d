/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * Hostile memory: descriptors of the wrong kind, regions that lie, overlap, vanish or are
 * removed under I/O. A well-behaved client runs beside all of it.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostile.h"

#define SECOND	1000000000ull
#define IOVA	0x7000000000ull
#define HUGE	(2u << 20)

static int region_add(struct raw *r, uint32_t id, uint64_t iova, uint64_t len, uint64_t offset,
		      uint32_t flags, const int *fds, unsigned int nfds)
{
	struct gkv_msg_region_add m = { .id = htole32(id), .flags = htole32(flags),
					.iova = htole64(iova), .len = htole64(len),
					.offset = htole64(offset) };
	struct gkv_msg_reply reply;

	hostile_head(&m, GKV_MSG_REGION_ADD, sizeof(m));
	return raw_call(r, &m, sizeof(m), fds, nfds, &reply, sizeof(reply));
}

static int qp_add(struct raw *r, uint32_t qid, uint32_t depth, const int fds[3],
		  const uint64_t offsets[3], uint32_t flags)
{
	struct gkv_msg_qp_add m = { .qid = htole32(qid), .depth = htole32(depth),
				    .flags = htole32(flags), .sq_offset = htole64(offsets[0]),
				    .cq_offset = htole64(offsets[1]),
				    .rec_offset = htole64(offsets[2]) };
	struct gkv_msg_qp_add_reply reply;

	hostile_head(&m, GKV_MSG_QP_ADD, sizeof(m));
	return raw_call(r, &m, sizeof(m), fds, 3, &reply, sizeof(reply));
}

/* Refused with this errno, and with a text that says each of these. */
static void refused(struct raw *r, int ret, int want, const char *what, const char *says,
		    const char *also)
{
	if (!tap_ok(ret == want && (!says || strstr(r->text, says)) &&
		    (!also || strstr(r->text, also)), "%s", what))
		tap_diag("returned %d, not %d: %s", ret, want, r->text);
}

/* ---- Descriptors ---- */

enum { SOCKET, REGULAR, SHM, PIPE, EVENTFD, DEV_NULL, DIRECTORY, OPATH, UNSEALED, ONLY_SHRINK,
       ONLY_GROW, READ_ONLY, NKINDS };

static int memfd(size_t len, int seals)
{
	int fd = memfd_create("gkv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)len) || (seals && fcntl(fd, F_ADD_SEALS, seals)))
		abort();
	return fd;
}

/* A descriptor of a kind the daemon must not take, or a negative errno. */
static int wrong_fd(int kind, const char **name)
{
	static const char *const names[] = {
		"a socket", "a regular file", "a file of /dev/shm", "a pipe", "an eventfd",
		"/dev/null", "a directory", "a sealed memfd opened with O_PATH",
		"a memfd without seals", "a memfd that may grow", "a memfd that may shrink",
		"a sealed memfd opened read-only",
	};
	char path[] = "/tmp/gkv-file-XXXXXX", shm[] = "/dev/shm/gkv-file-XXXXXX", self[64];
	int fd = -1, other[2];

	*name = names[kind];
	switch (kind) {
	case SOCKET:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case REGULAR:
	case SHM:
		fd = mkostemp(kind == SHM ? shm : path, O_CLOEXEC);
		if (fd < 0 || ftruncate(fd, 1 << 20))
			return -1;
		unlink(kind == SHM ? shm : path);
		return fd;
	case PIPE:
		if (pipe2(other, O_CLOEXEC))
			return -1;
		close(other[1]);
		return other[0];
	case EVENTFD:
		return eventfd(0, EFD_CLOEXEC);
	case DEV_NULL:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case DIRECTORY:
		return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case OPATH:
	case READ_ONLY:
		fd = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		other[0] = open(self, (kind == OPATH ? O_PATH : O_RDONLY) | O_CLOEXEC);
		close(fd);
		return other[0];
	case UNSEALED:
		return memfd(1 << 20, 0);
	case ONLY_SHRINK:
		return memfd(1 << 20, F_SEAL_SHRINK);
	case ONLY_GROW:
		return memfd(1 << 20, F_SEAL_GROW);
	}
	return -1;
}

static void test_wrong_kinds(struct hostile *h)
{
	int good = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
	struct raw r;

	if (raw_open(&r, h->rig.socket)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	for (int kind = 0; kind < NKINDS; kind++) {
		static const uint64_t at[3] = { 0, 4096, 8192 };
		struct gkv_msg_hello_reply reply;
		struct gkv_msg_hello hello;
		const char *name;
		int fd = wrong_fd(kind, &name), ret[5], sock, n;
		bool ok = true;

		if (fd < 0) {
			tap_skip("cannot make one here", "F60, F61, F67: %s", name);
			continue;
		}
		ret[0] = region_add(&r, 1, IOVA, 4096, 0, 0, &fd, 1);
		ok = ok && r.text[0];
		for (int i = 0; i < 3; i++) {
			int fds[3] = { good, good, good };

			fds[i] = fd;
			/* The SQ is only read: reading is what that descriptor is for. */
			if (i == 0 && kind == READ_ONLY) {
				ret[1] = -EACCES;
				continue;
			}
			ret[1 + i] = qp_add(&r, 1, 8, fds, at, 0);
			ok = ok && r.text[0];
		}
		sock = hostile_connect(h->rig.socket);
		hostile_hello(&hello, fd, 4096);
		hostile_send(sock, &hello, sizeof(hello), &fd, 1);
		n = hostile_recv(sock, &reply, sizeof(reply), 5000, NULL, NULL);
		ret[4] = n > 0 ? -(int)le32toh(reply.r.hdr.error) : -EPIPE;
		close(sock);
		for (int i = 0; i < 5; i++)
			ok = ok && (ret[i] == -EINVAL || ret[i] == -EPERM || ret[i] == -EACCES);
		if (!tap_ok(ok, "F60, F61, F67: %s: no region, no ring, no doorbells", name))
			tap_diag("%d %d %d %d %d: %s", ret[0], ret[1], ret[2], ret[3], ret[4],
				 r.text);
		close(fd);
	}
	close(good);
	raw_close(&r);
}

static void test_descriptor_counts(struct hostile *h)
{
	int good = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW), fds[40];
	static const unsigned int counts[] = { 0, 2, 3, 4 };
	struct gkv_msg_region_add m = { 0 };
	struct gkv_msg_reply reply;
	struct raw r;
	int n;

	for (int i = 0; i < 40; i++)
		fds[i] = good;
	if (raw_open(&r, h->rig.socket)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	for (unsigned int i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		char text[32];

		snprintf(text, sizeof(text), "%u descriptors", counts[i]);
		n = region_add(&r, 1, IOVA, 4096, 0, 0, fds, counts[i]);
		refused(&r, n, -EINVAL, "F61: a region with a wrong number of descriptors", text,
			"expected 1");
	}
	hostile_head(&m, GKV_MSG_REGION_ADD, sizeof(m));
	hostile_send(r.sock, &m, sizeof(m), fds, 16);
	n = hostile_recv(r.sock, &reply, sizeof(reply), 5000, NULL, NULL);
	tap_ok(n == sizeof(reply) && le32toh(reply.hdr.error) == EINVAL, "16 descriptors: refused");
	hostile_send(r.sock, &m, sizeof(m), fds, 17);
	n = hostile_recv(r.sock, &reply, sizeof(reply), 5000, NULL, NULL);
	tap_ok(n == 0, "17 descriptors: hung up on");
	raw_close(&r);
	close(good);
}

/* ---- Geometry ---- */

static void test_geometry(struct hostile *h)
{
	int fd = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
	struct raw r;

	if (raw_open(&r, h->rig.socket)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
#define TRY(id, iova, len, offset, flags) region_add(&r, id, iova, len, offset, flags, &fd, 1)
	refused(&r, TRY(0, IOVA, 4096, 0, 0), -EINVAL, "region 0 is reserved", "identifier 0", NULL);
	refused(&r, TRY(1, IOVA + 1, 4096, 0, 0), -EINVAL, "F27, F34: a misaligned address",
		"0x7000000001", "4096");
	refused(&r, TRY(1, IOVA, 4095, 0, 0), -EINVAL, "F27, F34: a misaligned length", "0xfff",
		"4096");
	refused(&r, TRY(1, IOVA, 4096, 8, 0), -EINVAL, "F27, F34: a misaligned offset", "0x8",
		"4096");
	refused(&r, TRY(1, IOVA, 0, 0, 0), -EINVAL, "F34: no length", "0", NULL);
	refused(&r, TRY(1, 0 - 4096ull * 2, 4096 * 4, 0, 0), -EINVAL, "a region that wraps", "wraps",
		"0xffffffffffffe000");
	refused(&r, TRY(1, IOVA, 0 - 4096ull, 0, 0), -EINVAL, "a length that wraps", NULL, NULL);
	refused(&r, TRY(1, IOVA, (1 << 20) + 4096, 0, 0), -EINVAL, "F61: longer than the memfd",
		"0x101000", "0x100000");
	refused(&r, TRY(1, IOVA, 4096, 1 << 20, 0), -EINVAL, "F61: beyond the memfd", "0x100000",
		NULL);
	refused(&r, TRY(1, IOVA, 4096, 0 - 4096ull, 0), -EINVAL, "F61: an offset that wraps", NULL,
		NULL);
	refused(&r, TRY(1, IOVA, 4096, 0, 0x80), -EOPNOTSUPP, "unknown flags", "0x80", NULL);
	refused(&r, TRY(1, IOVA, 8192, 0, 0), 0, "a region", NULL, NULL);
	refused(&r, TRY(1, IOVA + 65536, 4096, 0, 0), -EEXIST, "its identifier again", "region 1",
		NULL);
	refused(&r, TRY(2, IOVA + 4096, 8192, 0, 0), -EEXIST, "overlap at the end", "region 1", NULL);
	refused(&r, TRY(2, IOVA - 4096, 8192, 0, 0), -EEXIST, "overlap at the start", "region 1",
		NULL);
	refused(&r, TRY(2, IOVA - 4096, 1 << 20, 0, 0), -EEXIST, "overlap all around", "region 1",
		NULL);
	refused(&r, TRY(2, IOVA + 8192, 4096, 0, 0), 0, "a neighbour", NULL, NULL);
	refused(&r, raw_id(&r, GKV_MSG_REGION_DEL, 99), -ENOENT, "removal of none", "99", NULL);
	refused(&r, raw_id(&r, GKV_MSG_REGION_DEL, 1), 0, "removal", NULL, NULL);
	refused(&r, TRY(3, IOVA, 4096, 4096, 0), 0, "and its place taken again", NULL, NULL);
#undef TRY
	raw_close(&r);
	close(fd);
}

static void test_quotas(struct hostile *h)
{
	int big = memfd(HOSTILE_MAX_BYTES + HUGE, F_SEAL_SHRINK | F_SEAL_GROW), ret = 0;
	uint32_t n = 0;
	char text[32];
	struct raw r;

	if (raw_open(&r, h->rig.socket)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	for (; n < HOSTILE_MAX_REGIONS + 2 && !ret; n++)
		ret = region_add(&r, 1 + n, IOVA + n * 4096ull, 4096, 0, 0, &big, 1);
	snprintf(text, sizeof(text), "the limit is %u", HOSTILE_MAX_REGIONS);
	tap_ok(n == HOSTILE_MAX_REGIONS + 1, "F115: as many regions as the limit says");
	refused(&r, ret, -ENOSPC, "F21, F115: one more: the text names limit and use", text, "64");
	for (n = 0; n < HOSTILE_MAX_REGIONS; n++)
		raw_id(&r, GKV_MSG_REGION_DEL, 1 + n);
	snprintf(text, sizeof(text), "the limit is %u", HOSTILE_MAX_BYTES);
	refused(&r, region_add(&r, 1, IOVA, HOSTILE_MAX_BYTES + HUGE, 0, 0, &big, 1), -ENOSPC,
		"F115: more bytes than the limit", text, "session has 0 ");
	refused(&r, region_add(&r, 1, IOVA, HOSTILE_MAX_BYTES - 4096, 0, 0, &big, 1), 0,
		"F115: nearly all of them", NULL, NULL);
	refused(&r, region_add(&r, 2, 4096, 8192, 0, 0, &big, 1), -ENOSPC,
		"F115: a page more than is left", text, "268431360");
	refused(&r, region_add(&r, 2, 4096, 4096, 0, 0, &big, 1), 0, "F115: the last page", NULL,
		NULL);
	refused(&r, raw_id(&r, GKV_MSG_REGION_DEL, 1), 0, "F115: given back", NULL, NULL);
	refused(&r, region_add(&r, 1, IOVA, HOSTILE_MAX_BYTES - 4096, 0, 0, &big, 1), 0,
		"F115: and taken again", NULL, NULL);
	raw_close(&r);
	close(big);
}

/* ---- Regions that vanish ---- */

struct puncher {
	pthread_t thread;
	int fd;
	_Atomic bool stop;
};

static void *punch(void *arg)
{
	struct puncher *p = arg;

	while (!p->stop)
		fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RAW_DATA_LEN);
	return NULL;
}

static void test_shrinking(struct hostile *h)
{
	struct puncher p = { 0 };
	unsigned int done = 0, n = 2000 / rig_slowdown();
	struct raw_qp qp;
	struct gkv_sqe sqe;
	struct raw r;

	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_MEM, 0) ||
	    raw_ns_open(&r, HOSTILE_NSID_LOCAL, 0) || raw_data(&r, IOVA) ||
	    raw_qp_open(&r, &qp, 1, 8, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	tap_ok(ftruncate(r.data_fd, 4096) < 0 && errno == EPERM && ftruncate(qp.fd, 0) < 0 &&
	       ftruncate(r.doorbells_fd, 0) < 0 && ftruncate(r.data_fd, RAW_DATA_LEN * 2) < 0,
	       "what the daemon has mapped can be neither shrunk nor grown");
	p.fd = r.data_fd;
	if (pthread_create(&p.thread, NULL, punch, &p))
		abort();
	for (unsigned int i = 0; i < n; i++) {
		uint32_t nsid = i % 8 ? HOSTILE_NSID_MEM : HOSTILE_NSID_LOCAL;

		raw_sqe(&r, &sqe, i % 2 ? GKV_OP_RETRIEVE : GKV_OP_STORE, nsid, "hole", 4, 100000);
		done += raw_exec(&r, &qp, &sqe, NULL) != 0xffff;
	}
	p.stop = true;
	pthread_join(p.thread, NULL);
	tap_ok(done == n, "holes punched into the data under I/O: %u commands, %u completions", n,
	       done);
	/* Now into rings, record and doorbells: they read as zero, which a reset mends. */
	for (int i = 0; i < 20; i++) {
		fallocate(qp.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)qp.len);
		fallocate(r.doorbells_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			  (off_t)r.doorbells_len);
		raw_put(&qp, &sqe);
		raw_ring(&r, &qp);
	}
	done = raw_id(&r, GKV_MSG_QP_RESET, 1) == 0;
	qp.tail = qp.head = 0;
	qp.phase = 1;
	tap_ok(done && raw_exec(&r, &qp, &sqe, NULL) != 0xffff,
	       "holes punched into rings and doorbells: works again after a reset");
	tap_ok(hostile_unharmed(h), "others unharmed by holes");
	raw_close(&r);
	raw_qp_free(&qp);
}

static unsigned long read_number(const char *path)
{
	unsigned long v = 0;
	FILE *f = fopen(path, "re");

	if (f && fscanf(f, "%lu", &v) != 1)
		v = 0;
	if (f)
		fclose(f);
	return v;
}

/* Huge pages nobody has reserved: the first access is a SIGBUS, as after a hole was punched. */
static void test_vanished(struct hostile *h)
{
	static const char pool[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
	uint64_t at[3] = { 0, 4096, 8192 };
	int fd, rings, fds[3], ret;
	struct raw_qp qp;
	struct gkv_sqe sqe;
	char path[128];
	struct raw r;

	fd = memfd_create("gkv-huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB |
			  (21u << MAP_HUGE_SHIFT));
	if (fd < 0 || ftruncate(fd, 4 * HUGE) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		tap_skip("no huge pages in this kernel", "F68: memory that vanishes");
		return;
	}
	snprintf(path, sizeof(path), "%sfree_hugepages", pool);
	ret = read_number(path) > 0;
	snprintf(path, sizeof(path), "%snr_overcommit_hugepages", pool);
	if (ret || read_number(path)) {
		tap_skip("there are huge pages to be had", "F68: memory that vanishes");
		close(fd);
		return;
	}
	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_MEM, 0) ||
	    raw_ns_open(&r, HOSTILE_NSID_LOCAL, 0) || raw_data(&r, IOVA) ||
	    raw_qp_open(&r, &qp, 1, 8, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	refused(&r, region_add(&r, 5, IOVA + HUGE, HUGE, 4096, 0, &fd, 1), -EINVAL,
		"F27, F34: an offset inside a huge page", "0x1000", "0x200000");
	for (uint32_t nsid = HOSTILE_NSID_MEM; nsid <= HOSTILE_NSID_LOCAL; nsid++) {
		for (uint32_t len = 5000; len < 2000000; len *= 100) {
			uint16_t a, b, c, d;

			raw_sqe(&r, &sqe, GKV_OP_STORE, nsid, "there", 5, len);
			a = raw_exec(&r, &qp, &sqe, NULL);
			ret = region_add(&r, 2, IOVA + 2ull * HUGE, 2 * HUGE, 0, 0, &fd, 1);
			if (ret) {
				tap_ok(false, "a region of huge pages: %s", r.text);
				break;
			}
			raw_sqe(&r, &sqe, GKV_OP_RETRIEVE, nsid, "there", 5, len);
			sqe.dptr.sgl.addr = htole64(IOVA + 2ull * HUGE);
			b = raw_exec(&r, &qp, &sqe, NULL);
			/* Once dead, always dead. */
			raw_sqe(&r, &sqe, GKV_OP_STORE, nsid, "new", 3, len);
			sqe.dptr.sgl.addr = htole64(IOVA + 2ull * HUGE);
			c = raw_exec(&r, &qp, &sqe, NULL);
			raw_sqe(&r, &sqe, GKV_OP_EXIST, nsid, "new", 3, 0);
			d = raw_exec(&r, &qp, &sqe, NULL);
			raw_id(&r, GKV_MSG_REGION_DEL, 2);
			/* mem copies at a SIGBUS, local's device read fails with EFAULT. */
			if (!tap_ok(a == 0 && b && b != 0xffff &&
				    GKV_STATUS_CODE(c) != 0 && c != 0xffff &&
				    GKV_STATUS_CODE(d) == GKV_SC_KEY_NOT_FOUND,
				    "F68: NSID %u, %u bytes: memory that vanishes is an error", nsid,
				    len))
				tap_diag("%#x %#x %#x %#x", a, b, c, d);
		}
	}
	/* A list in such memory. */
	region_add(&r, 2, IOVA + 2ull * HUGE, 2 * HUGE, 0, 0, &fd, 1);
	raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_MEM, "new", 3, 5000);
	sqe.dptr.sgl.addr = htole64(IOVA + 2ull * HUGE);
	sqe.dptr.sgl.len = htole32(4096);
	sqe.dptr.sgl.type = GKV_SGL_LAST_SEGMENT;
	ret = raw_exec(&r, &qp, &sqe, NULL);
	tap_ok(GKV_STATUS_CODE(ret) == GKV_SC_DATA_TRANSFER, "F68: a list in memory that vanishes");

	/* Rings and record in such memory: that queue pair is of no use, and that is all. */
	rings = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
	for (uint32_t i = 0; i < 3; i++) {
		fds[0] = fds[1] = fds[2] = rings;
		fds[i] = fd;
		at[0] = 0;
		at[1] = 4096;
		at[2] = 8192;
		at[i] = HUGE;
		ret = qp_add(&r, 2 + i, 8, fds, at, 0);
		if (ret)
			tap_diag("ring %u: %d %s", i, ret, r.text);
		__atomic_store_n((volatile uint32_t *)(r.doorbells +
						       GKV_SQ_TAIL_DB(2 + i, le16toh(r.limits.dstrd))),
				 htole32(3), __ATOMIC_RELEASE);
	}
	hostile_sleep_ms(20);
	ret = raw_id(&r, GKV_MSG_QP_RESET, 2) || raw_id(&r, GKV_MSG_QP_DEL, 3);
	tap_ok(!ret, "F68: rings in memory that vanishes");
	at[0] = 0;
	fds[0] = fds[1] = fds[2] = fd;
	at[1] = HUGE;
	at[2] = 2 * HUGE;
	ret = qp_add(&r, 9, 8, fds, at, GKV_QP_F_RESUME);
	tap_ok(ret == -EINVAL, "F68: a record to resume in memory that vanishes is none");
	raw_sqe(&r, &sqe, GKV_OP_EXIST, HOSTILE_NSID_MEM, "there", 5, 0);
	tap_ok(raw_exec(&r, &qp, &sqe, NULL) == 0, "F68: the session's other queue pair works");
	raw_close(&r);
	raw_qp_free(&qp);

	/* And doorbells. */
	memset(&r, 0, sizeof(r));
	r.data_fd = -1;
	struct gkv_msg_hello hello;
	int sock = hostile_connect(h->rig.socket);

	hostile_hello(&hello, fd, HUGE);
	hostile_send(sock, &hello, sizeof(hello), &fd, 1);
	ret = hostile_recv(sock, &r.limits, sizeof(r.limits), 5000, NULL, NULL);
	r.sock = sock;
	fds[0] = fds[1] = fds[2] = rings;
	at[0] = 0;
	at[1] = 4096;
	at[2] = 8192;
	tap_ok(ret > 0 && !r.limits.r.hdr.error && !qp_add(&r, 1, 8, fds, at, 0),
	       "F68: doorbells in memory that vanishes");
	hostile_sleep_ms(20);
	close(sock);
	close(rings);
	close(fd);
	tap_ok(hostile_unharmed(h), "others unharmed by memory that vanishes");
}

/* ---- Removal under I/O ---- */

/* Removal waits for the commands that use the region; they end as they would have. */
static void test_removal(struct hostile *h)
{
	struct raw_qp qp;
	struct gkv_cqe cqe;
	struct gkv_sqe sqe;
	void *second;
	uint64_t t0;
	struct raw r;
	bool ok;
	int fd;

	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_SLOW, 0) ||
	    raw_data(&r, IOVA) || raw_qp_open(&r, &qp, 1, 8, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	memset(r.data, 0x5a, 10000);
	raw_sqe(&r, &sqe, GKV_OP_STORE, HOSTILE_NSID_SLOW, "value", 5, 10000);
	ok = raw_exec(&r, &qp, &sqe, NULL) == 0;
	memset(r.data, 0, 20000);

	/* In flight for HOSTILE_SLOW_MS; removed and replaced meanwhile. */
	raw_sqe(&r, &sqe, GKV_OP_RETRIEVE, HOSTILE_NSID_SLOW, "value", 5, 20000);
	raw_put(&qp, &sqe);
	raw_ring(&r, &qp);
	hostile_sleep_ms(HOSTILE_SLOW_MS / 4);
	t0 = rig_now();
	ok = ok && raw_id(&r, GKV_MSG_REGION_DEL, 1) == 0;
	t0 = rig_now() - t0;
	tap_ok(ok && t0 > (uint64_t)HOSTILE_SLOW_MS * 1000000 / 3,
	       "F103: removal waits for the command that uses the region: %llu us",
	       (unsigned long long)t0 / 1000);
	ok = raw_take(&r, &qp, &cqe, 1000, true) && !(le16toh(cqe.status) >> 1) &&
	     r.data[0] == 0x5a && r.data[9999] == 0x5a && !r.data[10000];
	tap_ok(ok, "F103: which had completed by then, with its data");
	raw_put(&qp, &sqe);
	raw_ring(&r, &qp);
	ok = raw_take(&r, &qp, &cqe, 5000 * rig_slowdown(), true);
	tap_ok(ok && GKV_STATUS_CODE(le16toh(cqe.status) >> 1) == GKV_SC_DATA_TRANSFER,
	       "a later command finds no region there");

	/* Other memory at the same address: the older command must not land there. */
	ok = true;
	fd = raw_memfd(RAW_DATA_LEN, &second);
	for (int i = 0; i < 3 && ok; i++) {
		struct gkv_msg_id del = { .id = htole32(1) };
		struct gkv_msg_region_add add = { .id = htole32(2), .iova = htole64(IOVA),
						  .len = htole64(RAW_DATA_LEN) };
		struct gkv_msg_reply reply;

		ok = region_add(&r, 1, IOVA, RAW_DATA_LEN, 0, 0, &r.data_fd, 1) == 0;
		memset(r.data, 0, 20000);
		memset(second, 0x77, RAW_DATA_LEN);
		raw_put(&qp, &sqe);
		raw_ring(&r, &qp);
		hostile_sleep_ms(20);
		/* Both requests at once: what is asked first is done first. */
		hostile_head(&del, GKV_MSG_REGION_DEL, sizeof(del));
		hostile_head(&add, GKV_MSG_REGION_ADD, sizeof(add));
		hostile_send(r.sock, &del, sizeof(del), NULL, 0);
		hostile_send(r.sock, &add, sizeof(add), &fd, 1);
		for (int k = 0; k < 2; k++)
			ok = ok && hostile_recv(r.sock, &reply, sizeof(reply), 5000, NULL, NULL) > 0 &&
			     !reply.hdr.error;
		ok = ok && raw_take(&r, &qp, &cqe, 5000 * rig_slowdown(), true) &&
		     !(le16toh(cqe.status) >> 1) && r.data[0] == 0x5a && r.data[9999] == 0x5a;
		for (size_t k = 0; k < RAW_DATA_LEN && ok; k++)
			ok = ((uint8_t *)second)[k] == 0x77;
		/* And the next command must. */
		raw_put(&qp, &sqe);
		raw_ring(&r, &qp);
		ok = ok && raw_take(&r, &qp, &cqe, 5000 * rig_slowdown(), true) &&
		     ((uint8_t *)second)[0] == 0x5a && ((uint8_t *)second)[10000] == 0x77;
		ok = ok && raw_id(&r, GKV_MSG_REGION_DEL, 2) == 0;
	}
	tap_ok(ok, "removed and replaced at the same address: an older command is not redirected");

	/* A read-only region takes no value. */
	ok = region_add(&r, 1, IOVA, RAW_DATA_LEN, 0, GKV_REGION_F_RDONLY, &r.data_fd, 1) == 0;
	tap_ok(ok && GKV_STATUS_CODE(raw_exec(&r, &qp, &sqe, NULL)) == GKV_SC_DATA_TRANSFER,
	       "nothing is written to a read-only region");
	munmap(second, RAW_DATA_LEN);
	close(fd);
	raw_close(&r);
	raw_qp_free(&qp);
	tap_ok(hostile_unharmed(h), "others unharmed by removals");
}

/* Regions come and go while commands use them. */
static void test_churn(struct hostile *h)
{
	uint64_t end = rig_now() + 2 * SECOND;
	unsigned int rounds = 0, sent = 0, got = 0;
	struct raw_qp qp;
	struct gkv_cqe cqe;
	struct gkv_sqe sqe;
	struct raw r;
	bool ok = true;

	if (raw_open(&r, h->rig.socket) || raw_ns_open(&r, HOSTILE_NSID_MEM, 0) ||
	    raw_ns_open(&r, HOSTILE_NSID_LOCAL, 0) || raw_data(&r, IOVA) ||
	    raw_qp_open(&r, &qp, 1, 64, 0)) {
		tap_ok(false, "a session: %s", r.text);
		return;
	}
	while (ok && rig_now() < end) {
		for (int i = 0; i < 12; i++) {
			raw_sqe(&r, &sqe, i % 2 ? GKV_OP_RETRIEVE : GKV_OP_STORE,
				i % 6 ? HOSTILE_NSID_MEM : HOSTILE_NSID_LOCAL, "churn", 5, 300000);
			raw_put(&qp, &sqe);
			sent++;
		}
		raw_ring(&r, &qp);
		ok = raw_id(&r, GKV_MSG_REGION_DEL, 1) == 0 &&
		     region_add(&r, 1, IOVA, RAW_DATA_LEN, 0, 0, &r.data_fd, 1) == 0;
		while (got < sent && raw_take(&r, &qp, &cqe, 20000 * rig_slowdown(), true))
			got++;
		ok = ok && got == sent;
		rounds++;
	}
	tap_ok(ok && rounds > 5, "a region removed and added %u times under %u commands", rounds,
	       sent);
	tap_ok(hostile_unharmed(h), "others unharmed by churn");
	raw_close(&r);
	raw_qp_free(&qp);
}

/* As many regions as the daemon has room for, from many sessions. */
static void test_crowd(struct hostile *h)
{
	int fd = memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
	enum { N = 64 };
	static struct raw rs[N];
	unsigned int n = 0, regions = 0;

	for (; n < N && !raw_open(&rs[n], h->rig.socket); n++) {
		for (uint32_t i = 0; i < HOSTILE_MAX_REGIONS; i++)
			regions += region_add(&rs[n], 1 + i, IOVA + i * 4096ull, 4096, 0, 0, &fd,
					      1) == 0;
	}
	tap_ok(n == N && regions == N * HOSTILE_MAX_REGIONS, "F97: %u regions of %u sessions",
	       regions, n);
	tap_ok(hostile_unharmed(h), "others unharmed by a crowd");
	for (unsigned int i = 0; i < n; i++)
		raw_close(&rs[i]);
	close(fd);
}

int main(void)
{
	struct hostile h;

	hostile_start(&h);
	test_wrong_kinds(&h);
	test_descriptor_counts(&h);
	test_geometry(&h);
	test_quotas(&h);
	test_shrinking(&h);
	test_vanished(&h);
	test_removal(&h);
	test_churn(&h);
	test_crowd(&h);
	hostile_finish(&h);
	return tap_done();
}
