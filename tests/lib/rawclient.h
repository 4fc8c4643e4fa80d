/* SPDX-License-Identifier: MIT */
/*
 * A client that speaks the control protocol and the rings by itself, so that it can send
 * what libgkv would refuse. It acts as a GPU does: no eventfd, it polls.
 *
 * Functions return 0 or a negative errno: what the daemon replied, or -EPIPE when it
 * closed the connection. One thread at a time.
 */
#ifndef TESTS_RAWCLIENT_H
#define TESTS_RAWCLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gkv/control.h>
#include <gkv/gkvdrv.h>
#include <gkv/nvme_kv.h>

#define RAW_DATA_LEN (1u << 20)

struct raw_qp {
	uint16_t qid;
	uint32_t depth;
	uint32_t flags;
	uint8_t *base;		/* SQ, CQ and record, each on pages of their own */
	size_t len;
	int fd;
	volatile struct gkv_sqe *sq;
	volatile struct gkv_cqe *cq;
	uint8_t *rec;
	volatile uint8_t *db;	/* its doorbells, with GKV_MODE_DB; NULL: those of the session */
	uint32_t tail;		/* SQ */
	uint32_t head;		/* CQ */
	uint8_t phase;
};

struct raw {
	int sock;
	uint32_t seq;
	struct gkv_msg_hello_reply limits;
	char text[GKV_CTL_TEXT];	/* of the last refusal */
	volatile uint8_t *doorbells;
	size_t doorbells_len;
	int doorbells_fd;
	uint8_t *data;			/* a region of @data_len bytes at IOVA @iova */
	size_t data_len;
	int data_fd;
	uint64_t iova;
};

/* Connect and say hello, with doorbells for every queue the daemon allows. */
int raw_open(struct raw *r, const char *socket);
/* The same, asking for @features. */
int raw_open_with(struct raw *r, const char *socket, uint64_t features);
void raw_close(struct raw *r);

/*
 * Send @len bytes at @msg, whose header's type and size are set by the caller, with
 * @nfds descriptors, and wait for a reply of at most @reply_len bytes. Received
 * descriptors are closed.
 */
int raw_call(struct raw *r, void *msg, size_t len, const int *fds, unsigned int nfds,
	     void *reply, size_t reply_len);

int raw_ns_open(struct raw *r, uint32_t nsid, uint32_t flags);
/* Register the data region at @iova: of RAW_DATA_LEN, or of @len bytes. */
int raw_data(struct raw *r, uint64_t iova);
int raw_data_sized(struct raw *r, uint64_t iova, size_t len);
/* Register @len bytes of @fd, whatever that is, as region @id. */
int raw_region(struct raw *r, uint32_t id, uint64_t iova, size_t len, int fd);
/* @qid and @depth as they are: the daemon is to judge them. */
int raw_qp_open(struct raw *r, struct raw_qp *qp, uint32_t qid, uint32_t depth, uint32_t flags);

/* Where a part of a queue pair lies. */
struct raw_part {
	int fd;			/* -1: where raw_qp_open() has it; the rest is not used then */
	uint64_t offset;	/* in @fd */
	void *at;		/* mapped */
};

/*
 * The same with memory mode @mode, and @parts by GKVDRV_SQ, ...; the doorbells' is used with
 * GKV_MODE_DB only. Whether the parts suit the mode is for the daemon to judge.
 */
int raw_qp_place(struct raw *r, struct raw_qp *qp, uint32_t qid, uint32_t depth, uint32_t mode,
		 const struct raw_part *parts);
void raw_qp_free(struct raw_qp *qp);
int raw_id(struct raw *r, uint16_t type, uint32_t id);

/* Put one entry and move the tail by one; ring with raw_ring(). */
void raw_put(struct raw_qp *qp, const struct gkv_sqe *sqe);
void raw_ring(struct raw *r, struct raw_qp *qp);
/* Take one completion within @ms; false when there is none. @ring: move the CQ head. */
bool raw_take(struct raw *r, struct raw_qp *qp, struct gkv_cqe *cqe, unsigned int ms, bool ring);

/* Run one command: its status without phase, or 0xffff when no completion came in 10 s. */
uint16_t raw_exec(struct raw *r, struct raw_qp *qp, struct gkv_sqe *sqe, uint32_t *dw0);

/* A command with its key, and the data region as a single SGL data block of @len bytes. */
void raw_sqe(const struct raw *r, struct gkv_sqe *sqe, uint8_t opcode, uint32_t nsid,
	     const void *key, uint8_t klen, uint32_t len);

/* A memfd of @len bytes that the daemon accepts; mapped at *@map. Insists. */
int raw_memfd(size_t len, void **map);

#endif
