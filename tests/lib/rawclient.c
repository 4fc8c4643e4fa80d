/* SPDX-License-Identifier: MIT */
/*
 * A client without libgkv.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "fdmsg.h"
#include "rawclient.h"
#include "rig.h"

#define PAGE 4096u
#define ROUND(x) (((size_t)(x) + PAGE - 1) & ~(size_t)(PAGE - 1))

int raw_memfd(size_t len, void **map)
{
	int fd = memfd_create("gkv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)len) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		perror("memfd");
		exit(1);
	}
	*map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*map == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return fd;
}

int raw_call(struct raw *r, void *msg, size_t len, const int *fds, unsigned int nfds, void *reply,
	     size_t reply_len)
{
	struct gkv_msg_hdr *h = msg;
	struct gkv_msg_reply *rep = reply;

	h->magic = htole32(GKV_CTL_MAGIC);
	h->version = htole16(GKV_CTL_VERSION);
	h->seq = htole32(++r->seq);
	if (fdmsg_send(r->sock, msg, len, fds, nfds, 0))
		return -EPIPE;
	memset(reply, 0, reply_len);
	if (fdmsg_recv(r->sock, reply, reply_len, NULL, NULL, NULL) < (ssize_t)sizeof(*rep))
		return -EPIPE;
	memcpy(r->text, rep->text, sizeof(r->text));
	r->text[sizeof(r->text) - 1] = '\0';
	return -(int)le32toh(rep->hdr.error);
}

static void head(struct gkv_msg_hdr *h, uint16_t type, size_t size)
{
	h->type = htole16(type);
	h->size = htole32((uint32_t)size);
}

int raw_open(struct raw *r, const char *socket_path)
{
	return raw_open_with(r, socket_path, 0);
}

int raw_open_with(struct raw *r, const char *socket_path, uint64_t features)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 30 * rig_slowdown() };
	struct gkv_msg_hello hello = { 0 };
	void *map;
	int ret;

	memset(r, 0, sizeof(*r));
	r->data_fd = -1;
	r->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", socket_path);
	if (connect(r->sock, (struct sockaddr *)&addr, sizeof(addr)))
		return -errno;
	setsockopt(r->sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	/* Enough for any queue identifier and stride; the limits are not known yet. */
	r->doorbells_len = ROUND(GKV_DB_LEN(4096, 4));
	r->doorbells_fd = raw_memfd(r->doorbells_len, &map);
	r->doorbells = map;

	head(&hello.hdr, GKV_MSG_HELLO, sizeof(hello));
	hello.version_min = hello.version_max = htole16(GKV_CTL_VERSION);
	hello.features = htole64(features);
	hello.db_len = htole64(r->doorbells_len);
	snprintf(hello.name, sizeof(hello.name), "raw");
	if (getrandom(hello.session, sizeof(hello.session), 0) != sizeof(hello.session))
		return -EIO;
	ret = raw_call(r, &hello, sizeof(hello), &r->doorbells_fd, 1, &r->limits,
		       sizeof(r->limits));
	return ret;
}

void raw_close(struct raw *r)
{
	close(r->sock);
	munmap((void *)(uintptr_t)r->doorbells, r->doorbells_len);
	close(r->doorbells_fd);
	if (r->data_fd >= 0) {
		munmap(r->data, r->data_len);
		close(r->data_fd);
	}
}

int raw_ns_open(struct raw *r, uint32_t nsid, uint32_t flags)
{
	struct gkv_msg_ns_open m = { .nsid = htole32(nsid), .flags = htole32(flags) };
	struct gkv_msg_ns_open_reply reply;

	head(&m.hdr, GKV_MSG_NS_OPEN, sizeof(m));
	return raw_call(r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply));
}

int raw_data(struct raw *r, uint64_t iova)
{
	return raw_data_sized(r, iova, RAW_DATA_LEN);
}

int raw_data_sized(struct raw *r, uint64_t iova, size_t len)
{
	void *map;

	r->data_fd = raw_memfd(len, &map);
	r->data = map;
	r->data_len = len;
	r->iova = iova;
	return raw_region(r, 1, iova, len, r->data_fd);
}

int raw_region(struct raw *r, uint32_t id, uint64_t iova, size_t len, int fd)
{
	struct gkv_msg_region_add m = { .id = htole32(id), .iova = htole64(iova),
					.len = htole64(len) };
	struct gkv_msg_reply reply;

	head(&m.hdr, GKV_MSG_REGION_ADD, sizeof(m));
	return raw_call(r, &m, sizeof(m), &fd, 1, &reply, sizeof(reply));
}

static const struct raw_part nowhere[GKVDRV_PARTS] = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };

static int qp_add(struct raw *r, struct raw_qp *qp, struct gkv_msg_qp_add *m,
		  const struct raw_part *parts)
{
	/* Memory for what is asked, or for a small queue when that is absurd. */
	uint32_t asked = le32toh(m->depth);
	uint32_t real = asked >= 2 && asked <= 65536 ? asked : 2;
	size_t sq = ROUND(real * sizeof(struct gkv_sqe)), cq = ROUND(real * sizeof(struct gkv_cqe));
	bool db = le32toh(m->mode) & GKV_MODE_DB;
	const struct raw_part *p;
	struct gkv_msg_qp_add_reply reply;
	int fds[4], ret;
	void *map;

	memset(qp, 0, sizeof(*qp));
	qp->len = sq + cq + ROUND(GKV_REC_LEN(real));
	qp->fd = raw_memfd(qp->len, &map);
	qp->base = map;
	qp->rec = qp->base + sq + cq;
	qp->qid = (uint16_t)le32toh(m->qid);
	qp->depth = real;
	qp->flags = le32toh(m->flags);
	qp->phase = 1;
	p = &parts[GKVDRV_SQ];
	qp->sq = p->fd < 0 ? map : p->at;
	m->sq_offset = htole64(p->fd < 0 ? 0 : p->offset);
	fds[0] = p->fd < 0 ? qp->fd : p->fd;
	p = &parts[GKVDRV_CQ];
	qp->cq = p->fd < 0 ? (void *)(qp->base + sq) : p->at;
	m->cq_offset = htole64(p->fd < 0 ? sq : p->offset);
	fds[1] = p->fd < 0 ? qp->fd : p->fd;
	m->rec_offset = htole64(sq + cq);
	fds[2] = qp->fd;
	p = &parts[GKVDRV_DB];
	if (db && p->fd >= 0) {
		qp->db = p->at;
		m->db_offset = htole64(p->offset);
	}
	fds[3] = p->fd < 0 ? qp->fd : p->fd;
	head(&m->hdr, GKV_MSG_QP_ADD, sizeof(*m));
	ret = raw_call(r, m, sizeof(*m), fds, db ? 4 : 3, &reply, sizeof(reply));
	if (ret)
		raw_qp_free(qp);
	return ret;
}

int raw_qp_open(struct raw *r, struct raw_qp *qp, uint32_t qid, uint32_t depth, uint32_t flags)
{
	struct gkv_msg_qp_add m = { .qid = htole32(qid), .depth = htole32(depth),
				    .flags = htole32(flags) };

	return qp_add(r, qp, &m, nowhere);
}

int raw_qp_place(struct raw *r, struct raw_qp *qp, uint32_t qid, uint32_t depth, uint32_t mode,
		 const struct raw_part *parts)
{
	struct gkv_msg_qp_add m = { .qid = htole32(qid), .depth = htole32(depth),
				    .mode = htole32(mode) };

	return qp_add(r, qp, &m, parts);
}

void raw_qp_free(struct raw_qp *qp)
{
	munmap(qp->base, qp->len);
	close(qp->fd);
	qp->base = NULL;
}

int raw_id(struct raw *r, uint16_t type, uint32_t id)
{
	struct gkv_msg_id m = { .id = htole32(id) };
	struct gkv_msg_reply reply;

	head(&m.hdr, type, sizeof(m));
	return raw_call(r, &m, sizeof(m), NULL, 0, &reply, sizeof(reply));
}

void raw_put(struct raw_qp *qp, const struct gkv_sqe *sqe)
{
	qp->sq[qp->tail] = *sqe;
	qp->tail = (qp->tail + 1) % qp->depth;
}

/* The SQ's doorbell, @n 0, or the CQ's, @n 1. */
static void ring(const struct raw *r, const struct raw_qp *qp, unsigned int n, uint32_t value)
{
	size_t stride = 4u << le16toh(r->limits.dstrd);
	volatile uint8_t *db = qp->db ? qp->db : r->doorbells + 2 * qp->qid * stride;

	/* Write-combined stores leave before it, and it does so at once. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n((volatile uint32_t *)(db + n * stride), htole32(value), __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void raw_ring(struct raw *r, struct raw_qp *qp)
{
	ring(r, qp, 0, qp->tail);
}

bool raw_take(struct raw *r, struct raw_qp *qp, struct gkv_cqe *cqe, unsigned int ms, bool move)
{
	uint64_t end = rig_now() + (uint64_t)ms * 1000000;
	volatile struct gkv_cqe *slot = &qp->cq[qp->head];
	const struct timespec nap = { .tv_nsec = 20000 };

	while ((le16toh(__atomic_load_n(&slot->status, __ATOMIC_ACQUIRE)) & 1) != qp->phase) {
		if (rig_now() > end)
			return false;
		nanosleep(&nap, NULL);
	}
	*cqe = *slot;
	if (++qp->head == qp->depth) {
		qp->head = 0;
		qp->phase ^= 1;
	}
	if (move)
		ring(r, qp, 1, qp->head);
	return true;
}

uint16_t raw_exec(struct raw *r, struct raw_qp *qp, struct gkv_sqe *sqe, uint32_t *dw0)
{
	struct gkv_cqe cqe;

	raw_put(qp, sqe);
	raw_ring(r, qp);
	if (!raw_take(r, qp, &cqe, 10000 * rig_slowdown(), true))
		return 0xffff;
	if (dw0)
		*dw0 = le32toh(cqe.dw0);
	if (cqe.cid != sqe->cid || le16toh(cqe.sqid) != qp->qid) {
		tap_diag("completion of command %x on queue %u, not %x on %u", le16toh(cqe.cid),
			 le16toh(cqe.sqid), le16toh(sqe->cid), qp->qid);
		return 0xffff;
	}
	return (uint16_t)(le16toh(cqe.status) >> 1);
}

void raw_sqe(const struct raw *r, struct gkv_sqe *sqe, uint8_t opcode, uint32_t nsid,
	     const void *key, uint8_t klen, uint32_t len)
{
	uint8_t padded[16] = { 0 };
	static uint16_t cid;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->cid = htole16(++cid & 0x7fff);
	sqe->nsid = htole32(nsid);
	sqe->klen = klen;
	if (klen)
		memcpy(padded, key, klen > 16 ? 16 : klen);
	memcpy(sqe->key_lo, padded, 8);
	memcpy(sqe->key_hi, padded + 8, 8);
	if (opcode != GKV_OP_STORE && opcode != GKV_OP_RETRIEVE && opcode != GKV_OP_LIST)
		return;
	sqe->flags = GKV_PSDT_SGL << GKV_SQE_PSDT_SHIFT;
	sqe->dptr.sgl.addr = htole64(r->iova);
	sqe->dptr.sgl.len = htole32(len);
	sqe->cdw10 = htole32(len);
}
