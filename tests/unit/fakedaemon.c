/* SPDX-License-Identifier: MIT */
#include "fakedaemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "fdmsg.h"

#define MUST(x) do { if (!(x)) { perror(#x); abort(); } } while (0)

static uint32_t get32(const void *p)
{
	return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE);
}

static void put32(void *p, uint32_t v)
{
	__atomic_store_n((uint32_t *)p, v, __ATOMIC_RELEASE);
}

/* ---- Control thread ---- */

static void reply(struct fake *f, const struct gkv_msg_hdr *req, void *msg, size_t len, int *fds,
		  int n_fds)
{
	struct gkv_msg_reply *r = msg;

	len -= f->short_reply;
	r->hdr.magic = GKV_CTL_MAGIC;
	r->hdr.version = GKV_CTL_VERSION;
	r->hdr.type = req->type | GKV_MSG_REPLY;
	r->hdr.size = (uint32_t)len;
	r->hdr.seq = req->seq;
	/* The client may have gone. */
	fdmsg_send(f->conn, msg, len, fds, f->no_fds ? 0 : (unsigned int)n_fds, 0);
}

static bool refused(struct fake *f, const struct gkv_msg_hdr *req)
{
	int stray[4] = { f->bell, f->bell, f->bell, f->bell };
	struct gkv_msg_reply r = { 0 };
	unsigned int t = req->type;

	if (t >= FAKE_MSGS || !f->refuse[t].err)
		return false;
	r.hdr.error = f->refuse[t].err;
	if (f->refuse[t].text)
		snprintf(r.text, sizeof(r.text), "%s", f->refuse[t].text);
	if (f->refuse[t].times && !--f->refuse[t].times)
		f->refuse[t].err = 0;
	reply(f, req, &r, sizeof(r), stray, (int)f->stray_fds);
	return true;
}

static void ok(struct fake *f, const struct gkv_msg_hdr *req)
{
	struct gkv_msg_reply r = { 0 };

	reply(f, req, &r, sizeof(r), NULL, 0);
}

static void refuse(struct fake *f, const struct gkv_msg_hdr *req, int err)
{
	struct gkv_msg_reply r = { 0 };

	r.hdr.error = (uint32_t)err;
	snprintf(r.text, sizeof(r.text), "fake daemon: %s", strerror(err));
	reply(f, req, &r, sizeof(r), NULL, 0);
}

static ino_t inode(int fd, size_t *len)
{
	struct stat st;

	MUST(!fstat(fd, &st));
	if (len)
		*len = (size_t)st.st_size;
	return st.st_ino;
}

static bool sealed(int fd)
{
	int want = F_SEAL_SHRINK | F_SEAL_GROW;

	return (fcntl(fd, F_GET_SEALS) & want) == want;
}

/* Memory that a daemon accepts: sealed, or the module's where that is granted. */
static bool accepted(const struct fake *f, int fd)
{
	if (f->is_drv && f->is_drv(fd))
		return f->hello.features & GKV_FEATURE_VRAM;
	return sealed(fd);
}

static void hello(struct fake *f, const struct gkv_msg_hello *m, int *fds, int n)
{
	struct gkv_msg_hello_reply r = f->hello;

	if (f->db)
		munmap(f->db, f->db_len);
	f->db = NULL;
	memcpy(f->session, m->session, 16);
	if (m->db_len) {
		if (n != 1 || !sealed(fds[0])) {
			refuse(f, &m->hdr, EINVAL);
			return;
		}
		f->db_len = m->db_len;
		f->db = mmap(NULL, f->db_len, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0],
			     (off_t)m->db_offset);
		MUST(f->db != MAP_FAILED);
		f->db_ino = inode(fds[0], NULL);
	}
	r.r.hdr.error = 0;
	reply(f, &m->hdr, &r, sizeof(r), &f->states_fd, 1);
}

static void ns_open(struct fake *f, const struct gkv_msg_ns_open *m)
{
	struct gkv_msg_ns_open_reply r = { 0 };

	if (f->n_ns_opened < 8)
		snprintf(f->ns_opened[f->n_ns_opened++], GKV_CTL_NAME, "%s", m->name);
	if (m->name[0] && strcmp(m->name, "main")) {
		refuse(f, &m->hdr, ENOENT);
		return;
	}
	if (!m->name[0] && m->nsid != 2) {
		refuse(f, &m->hdr, m->nsid == 1 ? EACCES : ENOENT);
		return;
	}
	r.nsid = 2;
	r.flags = m->flags | GKV_NS_F_VERIFY;
	r.key_max = 16;
	r.value_max = 64 << 20;
	r.block_size = 4096;
	r.deadline_ns = f->deadline_ns;
	strcpy(r.name, "main");
	reply(f, &m->hdr, &r, sizeof(r), NULL, 0);
}

static struct fake_region *region(struct fake *f, uint32_t id)
{
	for (int i = 0; i < FAKE_REGIONS; i++)
		if (f->regions[i].id == id)
			return &f->regions[i];
	return NULL;
}

static void region_drop(struct fake_region *g)
{
	munmap(g->addr, g->len);
	memset(g, 0, sizeof(*g));
}

static void region_add(struct fake *f, const struct gkv_msg_region_add *m, int *fds, int n)
{
	int prot = m->flags & GKV_REGION_F_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	struct fake_region *g = region(f, 0);

	if (n != 1 || !g || !m->id || region(f, m->id) || !accepted(f, fds[0])) {
		refuse(f, &m->hdr, EINVAL);
		return;
	}
	g->addr = mmap(NULL, m->len, prot, MAP_SHARED, fds[0], (off_t)m->offset);
	MUST(g->addr != MAP_FAILED);
	g->id = m->id;
	g->flags = m->flags;
	g->iova = m->iova;
	g->len = m->len;
	g->offset = m->offset;
	g->ino = inode(fds[0], NULL);
	ok(f, &m->hdr);
}

static bool zero(const void *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((const uint8_t *)p)[i])
			return false;
	return true;
}

static void qp_begin(struct fake_qp *q)
{
	memset(q->cq, 0, q->depth * sizeof(*q->cq));
	memset(q->rec, 0, GKV_REC_LEN(q->depth));
	q->rec->magic = GKV_REC_MAGIC;
	q->sq_head = q->cq_tail = 0;
	q->phase = 1;
	put32(q->sq_db, 0);
	put32(q->cq_db, 0);
}

static void qp_unmap(struct fake_qp *q)
{
	for (int i = 0; i < FAKE_PARTS; i++) {
		if (q->map[i])
			munmap(q->map[i], q->map_len[i]);
		q->map[i] = NULL;
	}
	q->live = false;
}

/* Part @i of @q: @len bytes at @offset of @fd. */
static void *qp_map(struct fake_qp *q, int i, int fd, uint64_t offset, size_t len)
{
	uint64_t in_page = offset % 4096;

	q->ino[i] = inode(fd, NULL);
	q->offset[i] = offset;
	q->map_len[i] = len + in_page;
	q->map[i] = mmap(NULL, q->map_len[i], PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 (off_t)(offset - in_page));
	MUST(q->map[i] != MAP_FAILED);
	return (uint8_t *)q->map[i] + in_page;
}

static void qp_doorbells(struct fake *f, struct fake_qp *q, const struct gkv_msg_qp_add *m,
			 const int *fds)
{
	uint32_t d = f->hello.dstrd;

	if (m->mode & GKV_MODE_DB) {
		q->sq_db = qp_map(q, 3, fds[3], m->db_offset, 2 * (4u << d));
		q->cq_db = q->sq_db + (4u << d);
		return;
	}
	MUST(GKV_CQ_HEAD_DB(m->qid, d) + 4 <= f->db_len);
	q->sq_db = f->db + GKV_SQ_TAIL_DB(m->qid, d);
	q->cq_db = f->db + GKV_CQ_HEAD_DB(m->qid, d);
}

/* What the message asks for is allowed, and what it was before a restart. */
static int qp_check(struct fake *f, const struct gkv_msg_qp_add *m, const int *fds, int n)
{
	const struct fake_qp *q = &f->qps[m->qid <= FAKE_QPS ? m->qid : 0];
	const uint64_t at[FAKE_PARTS] = { m->sq_offset, m->cq_offset, m->rec_offset, m->db_offset };
	const uint32_t bits[FAKE_PARTS] = { GKV_MODE_SQ, GKV_MODE_CQ, 0, GKV_MODE_DB };

	if (!m->qid || m->qid > FAKE_QPS || q->live || m->mode & ~(uint32_t)GKV_MODE_MASK ||
	    n != (m->mode & GKV_MODE_DB ? 4 : 3) ||
	    (m->mode && !(f->hello.features & GKV_FEATURE_VRAM)))
		return EINVAL;
	for (int i = 0; i < n; i++) {
		bool vram = m->mode & bits[i];

		if (!accepted(f, fds[i]) || vram != (f->is_drv && f->is_drv(fds[i])) ||
		    at[i] % (i == 3 ? 8 : 4096))
			return EINVAL;
		if (m->flags & GKV_QP_F_RESUME &&
		    (inode(fds[i], NULL) != q->ino[i] || at[i] != q->offset[i]))
			return EBADF;
	}
	if (m->flags & GKV_QP_F_RESUME && (m->depth != q->depth || m->mode != q->mode))
		return EBADF;
	return 0;
}

static void qp_add(struct fake *f, const struct gkv_msg_qp_add *m, int *fds, int n)
{
	struct gkv_msg_qp_add_reply r = { 0 };
	struct fake_qp *q = &f->qps[m->qid <= FAKE_QPS ? m->qid : 0];
	bool resume = m->flags & GKV_QP_F_RESUME;
	int err = qp_check(f, m, fds, n);

	if (err) {
		refuse(f, &m->hdr, err);
		return;
	}
	q->depth = m->depth;
	q->flags = m->flags;
	q->mode = m->mode;
	q->sq = qp_map(q, 0, fds[0], m->sq_offset, m->depth * sizeof(*q->sq));
	q->cq = qp_map(q, 1, fds[1], m->cq_offset, m->depth * sizeof(*q->cq));
	q->rec = qp_map(q, 2, fds[2], m->rec_offset, GKV_REC_LEN(m->depth));
	qp_doorbells(f, q, m, fds);
	q->adds++;
	q->resumes += resume;
	if (!resume) {
		q->was_zero = zero(q->sq, q->depth * sizeof(*q->sq)) && !get32(q->sq_db) &&
			      !get32(q->cq_db);
		qp_begin(q);
	}
	q->live = true;
	r.reactor = 1;
	reply(f, &m->hdr, &r, sizeof(r), &f->bell, m->flags & GKV_QP_F_HOST ? 1 : 0);
}

static void by_id(struct fake *f, const struct gkv_msg_id *m)
{
	struct fake_qp *q = &f->qps[m->id <= FAKE_QPS ? m->id : 0];
	struct fake_region *g = m->id ? region(f, m->id) : NULL;

	if (m->hdr.type == GKV_MSG_REGION_DEL ? !g : !q->live) {
		refuse(f, &m->hdr, ENOENT);
		return;
	}
	if (m->hdr.type == GKV_MSG_REGION_DEL) {
		region_drop(g);
	} else if (m->hdr.type == GKV_MSG_QP_DEL) {
		qp_unmap(q);
	} else {
		q->resets++;
		qp_begin(q);
	}
	ok(f, &m->hdr);
}

static void admin(struct fake *f, const struct gkv_msg_admin *m)
{
	struct gkv_msg_admin_reply r = { 0 };

	r.cqe.cid = m->sqe.cid;
	r.cqe.dw0 = m->sqe.cdw10;
	/* What went in comes back, with a byte more. */
	r.data_len = m->data_len + 1;
	memcpy(r.data, m->data, m->data_len);
	r.data[m->data_len] = 0x5a;
	reply(f, &m->hdr, &r, sizeof(r), NULL, 0);
}

static void query(struct fake *f, const struct gkv_msg_query *m)
{
	struct gkv_msg_query_reply r = { 0 };
	size_t total = strlen(f->report), left;

	if (m->offset > total) {
		refuse(f, &m->hdr, ERANGE);
		return;
	}
	left = total - m->offset;
	r.total = total;
	r.len = left < sizeof(r.data) ? (uint32_t)left : (uint32_t)sizeof(r.data);
	memcpy(r.data, f->report + m->offset, r.len);
	reply(f, &m->hdr, &r, sizeof(r), NULL, 0);
}

static void dispatch(struct fake *f, void *buf, size_t len, int *fds, int n)
{
	struct gkv_msg_hdr *h = buf;

	if (len < sizeof(*h) || h->magic != GKV_CTL_MAGIC || h->size != len)
		abort();
	if (h->type < FAKE_MSGS)
		f->count[h->type]++;
	if (f->mute || refused(f, h))
		return;
	switch (h->type) {
	case GKV_MSG_HELLO:
		hello(f, buf, fds, n);
		break;
	case GKV_MSG_NS_OPEN:
		ns_open(f, buf);
		break;
	case GKV_MSG_REGION_ADD:
		region_add(f, buf, fds, n);
		break;
	case GKV_MSG_QP_ADD:
		qp_add(f, buf, fds, n);
		break;
	case GKV_MSG_REGION_DEL:
	case GKV_MSG_QP_DEL:
	case GKV_MSG_QP_RESET:
		by_id(f, buf);
		break;
	case GKV_MSG_ADMIN:
		admin(f, buf);
		break;
	case GKV_MSG_QUERY:
		query(f, buf);
		break;
	default:
		ok(f, h);
	}
}

static void hang_up(struct fake *f)
{
	if (f->conn >= 0)
		close(f->conn);
	f->conn = -1;
	for (int i = 0; i < FAKE_REGIONS; i++)
		if (f->regions[i].id)
			region_drop(&f->regions[i]);
	for (int i = 1; i <= FAKE_QPS; i++)
		qp_unmap(&f->qps[i]);
	if (f->db)
		munmap(f->db, f->db_len);
	f->db = NULL;
}

static void receive(struct fake *f)
{
	static _Alignas(8) char buf[8192];
	unsigned int n_fds = 8;
	int fds[8];
	ssize_t n = fdmsg_recv(f->conn, buf, sizeof(buf), fds, &n_fds, NULL);

	if (n <= 0) {
		hang_up(f);
		return;
	}
	dispatch(f, buf, (size_t)n, fds, (int)n_fds);
	for (unsigned int i = 0; i < n_fds; i++)
		close(fds[i]);
}

static void *control(void *arg)
{
	struct fake *f = arg;

	for (;;) {
		struct pollfd p[3] = { { f->stop, POLLIN, 0 },
				       { f->listener, POLLIN, 0 },
				       { f->conn, POLLIN, 0 } };

		MUST(poll(p, 3, -1) >= 0 || errno == EINTR);
		if (p[0].revents)
			return NULL;
		pthread_mutex_lock(&f->lock);
		if (p[2].revents)
			receive(f);
		else if (p[1].revents) {
			if (f->conn >= 0)
				hang_up(f);
			f->conn = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
		}
		pthread_mutex_unlock(&f->lock);
	}
}

/* ---- For the test ---- */

void fake_start(struct fake *f)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	MUST(!f->running);
	strcpy(a.sun_path, f->path);
	unlink(f->path);
	f->stop = eventfd(0, EFD_CLOEXEC);
	f->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->states_fd = memfd_create("fake-states", MFD_CLOEXEC);
	MUST(f->stop >= 0 && f->bell >= 0 && f->states_fd >= 0);
	MUST(!ftruncate(f->states_fd, 4096));
	f->states = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f->states_fd, 0);
	MUST(f->states != MAP_FAILED);
	f->conn = -1;
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	MUST(f->listener >= 0);
	MUST(!bind(f->listener, (struct sockaddr *)&a, sizeof(a)));
	MUST(!listen(f->listener, 8));
	f->running = true;
	MUST(!pthread_create(&f->thread, NULL, control, f));
}

void fake_stop(struct fake *f)
{
	uint64_t one = 1;

	if (!f->running)
		return;
	MUST(write(f->stop, &one, 8) == 8);
	pthread_join(f->thread, NULL);
	hang_up(f);
	close(f->listener);
	unlink(f->path);
	close(f->stop);
	close(f->bell);
	munmap(f->states, 4096);
	close(f->states_fd);
	f->running = false;
}

void fake_init(struct fake *f)
{
	pthread_mutexattr_t attr;

	memset(f, 0, sizeof(*f));
	strcpy(f->dir, "/tmp/gkv-fake-XXXXXX");
	MUST(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/sock", f->dir);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&f->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	f->hello.version = GKV_CTL_VERSION;
	f->hello.page_size = 4096;
	f->hello.features = GKV_FEATURE_CSUM | GKV_FEATURE_RESUME;
	f->hello.max_depth = 4096;
	f->hello.max_qid = FAKE_QPS;
	f->hello.max_regions = FAKE_REGIONS;
	f->hello.reactors = 2;
	f->hello.max_region_bytes = 1ull << 40;
	f->hello.poll_interval_ns = 1000000;
	f->hello.max_deadline_ns = 5000000000;
	f->hello.nn = 3;
	f->deadline_ns = 5000000000;
	f->report = "{}";
	fake_start(f);
}

void fake_fini(struct fake *f)
{
	fake_stop(f);
	rmdir(f->dir);
	pthread_mutex_destroy(&f->lock);
}

struct fake_qp *fake_qp(struct fake *f, uint32_t qid)
{
	struct fake_qp *q = &f->qps[qid];

	assert_true(fake_live(f, qid));
	return q;
}

bool fake_live(struct fake *f, uint32_t qid)
{
	bool live;

	pthread_mutex_lock(&f->lock);
	live = f->qps[qid].live;
	pthread_mutex_unlock(&f->lock);
	return live;
}

uint32_t fake_sq_tail(struct fake *f, uint32_t qid)
{
	struct fake_qp *q = &f->qps[qid];
	uint32_t v;

	pthread_mutex_lock(&f->lock);
	v = get32(q->sq_db);
	pthread_mutex_unlock(&f->lock);
	return v;
}

uint32_t fake_cq_head(struct fake *f, uint32_t qid)
{
	struct fake_qp *q = &f->qps[qid];
	uint32_t v;

	pthread_mutex_lock(&f->lock);
	v = get32(q->cq_db);
	pthread_mutex_unlock(&f->lock);
	return v;
}

static void wake(struct fake_qp *q)
{
	if (get32(&q->rec->waiting)) {
		put32(&q->rec->waiting, 0);
		syscall(SYS_futex, &q->rec->waiting, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

bool fake_fetch(struct fake *f, uint32_t qid, struct gkv_sqe *sqe)
{
	struct fake_qp *q = fake_qp(f, qid);
	uint32_t tail = fake_sq_tail(f, qid);

	assert_true(tail < q->depth);
	if (tail == q->sq_head)
		return false;
	pthread_mutex_lock(&f->lock);
	memcpy(sqe, &q->sq[q->sq_head], sizeof(*sqe));
	if (++q->sq_head == q->depth)
		q->sq_head = 0;
	pthread_mutex_unlock(&f->lock);
	return true;
}

void fake_stop_qp(struct fake *f, uint32_t qid, uint32_t why)
{
	struct fake_qp *q = fake_qp(f, qid);

	pthread_mutex_lock(&f->lock);
	put32(&q->rec->stopped, why);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	wake(q);
	pthread_mutex_unlock(&f->lock);
}

void fake_fetch_wait(struct fake *f, uint32_t qid, struct gkv_sqe *sqe)
{
	for (int i = 0; i < 5000; i++) {
		if (fake_fetch(f, qid, sqe))
			return;
		usleep(1000);
	}
	fail_msg("no command came");
}

/* The order of stores that DESIGN 2 asks of a writer. */
static void post(struct fake *f, uint32_t qid, uint16_t cid, uint16_t status, uint32_t dw0,
		 uint32_t dw1, uint32_t sqhd)
{
	struct fake_qp *q = fake_qp(f, qid);
	uint32_t *dw;

	pthread_mutex_lock(&f->lock);
	dw = (uint32_t *)&q->cq[q->cq_tail];
	put32(&dw[0], dw0);
	put32(&dw[1], dw1);
	put32(&dw[2], sqhd | qid << 16);
	put32(&dw[3], cid | q->phase << 16 | (uint32_t)status << 17);
	if (++q->cq_tail == q->depth) {
		q->cq_tail = 0;
		q->phase ^= 1;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	wake(q);
	pthread_mutex_unlock(&f->lock);
}

void fake_post_sqhd(struct fake *f, uint32_t qid, uint16_t cid, uint16_t status, uint32_t sqhd)
{
	post(f, qid, cid, status, 0, 0, sqhd);
}

void fake_post(struct fake *f, uint32_t qid, uint16_t cid, uint16_t status, uint32_t dw0,
	       uint32_t dw1)
{
	post(f, qid, cid, status, dw0, dw1, fake_qp(f, qid)->sq_head);
}

unsigned int fake_serve(struct fake *f, uint32_t qid)
{
	struct gkv_sqe sqe;
	unsigned int n;

	for (n = 0; fake_fetch(f, qid, &sqe); n++)
		fake_post(f, qid, sqe.cid, 0, 0, 0);
	return n;
}

uint64_t fake_bells(struct fake *f)
{
	uint64_t n = 0;

	if (read(f->bell, &n, sizeof(n)) < 0)
		return 0;
	return n;
}

uint8_t *fake_mem(struct fake *f, uint64_t iova, uint64_t len)
{
	uint8_t *p = NULL;

	pthread_mutex_lock(&f->lock);
	for (int i = 0; i < FAKE_REGIONS; i++) {
		struct fake_region *g = &f->regions[i];

		if (g->id && iova >= g->iova && iova - g->iova <= g->len &&
		    len <= g->len - (iova - g->iova))
			p = g->addr + (iova - g->iova);
	}
	pthread_mutex_unlock(&f->lock);
	return p;
}

unsigned int fake_count(struct fake *f, unsigned int type)
{
	unsigned int n;

	pthread_mutex_lock(&f->lock);
	n = f->count[type];
	pthread_mutex_unlock(&f->lock);
	return n;
}

void fake_refuse(struct fake *f, unsigned int type, uint32_t err, const char *text)
{
	pthread_mutex_lock(&f->lock);
	f->refuse[type].err = err;
	f->refuse[type].text = text;
	f->refuse[type].times = 0;
	pthread_mutex_unlock(&f->lock);
}
