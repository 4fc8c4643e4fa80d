/* SPDX-License-Identifier: MIT */
/*
 * A daemon played by the test: a thread speaks the control protocol, while the test
 * fetches commands and posts completions by hand, rightly or wrongly.
 *
 * Functions fail the running test (cmocka) when the client did what it must not. The
 * test's thread calls them; the control thread keeps to itself under @lock.
 */
#ifndef TESTS_FAKEDAEMON_H
#define TESTS_FAKEDAEMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <gkv/control.h>
#include <gkv/queue.h>

#define FAKE_QPS	8
#define FAKE_REGIONS	64
#define FAKE_MSGS	16

struct fake_region {
	uint32_t id;		/* 0: none */
	uint32_t flags;
	uint64_t iova, len, offset;
	ino_t ino;
	uint8_t *addr;
};

#define FAKE_PARTS	4	/* SQ, CQ, record, doorbells */

struct fake_qp {
	bool live;		/* in this life of the daemon */
	uint32_t flags, depth, mode;
	/* Of its memory, kept over restarts. */
	ino_t ino[FAKE_PARTS];
	uint64_t offset[FAKE_PARTS];
	void *map[FAKE_PARTS];
	size_t map_len[FAKE_PARTS];
	uint8_t *sq_db, *cq_db;
	struct gkv_sqe *sq;
	struct gkv_cqe *cq;
	struct gkv_rec_hdr *rec;
	uint32_t sq_head, cq_tail, phase;
	bool was_zero;		/* SQ and doorbells at creation */
	unsigned int adds, resumes, resets;
};

struct fake {
	char dir[32], path[64];
	pthread_mutex_t lock;
	pthread_t thread;
	bool running;
	int listener, conn, stop;	/* stop: eventfd */

	/* What the hello answers; change it before fake_start(). */
	struct gkv_msg_hello_reply hello;
	uint64_t deadline_ns;		/* of its namespaces */
	bool mute;			/* answer nothing */
	struct {
		uint32_t err;		/* 0: serve it */
		uint32_t times;		/* refuse so often; 0: always */
		const char *text;
	} refuse[FAKE_MSGS];
	/* Cut or bend replies: bytes fewer, descriptors fewer. */
	uint32_t short_reply, no_fds;
	uint32_t stray_fds;		/* descriptors that come with refusals */
	/* Is it a descriptor of the module's? Such are taken if the hello grants it. */
	bool (*is_drv)(int fd);

	unsigned int count[FAKE_MSGS];	/* messages seen */
	uint8_t session[16];
	char ns_opened[8][GKV_CTL_NAME];
	unsigned int n_ns_opened;
	char *report;			/* of queries */

	struct gkv_reactor_state *states;
	int states_fd, bell;
	uint8_t *db;
	size_t db_len;
	ino_t db_ino;
	struct fake_region regions[FAKE_REGIONS];
	struct fake_qp qps[FAKE_QPS + 1];
};

/* Make a directory and start. */
void fake_init(struct fake *f);
void fake_fini(struct fake *f);
void fake_start(struct fake *f);
/* Close everything, as a daemon that was killed. Queue pairs and counters stay known. */
void fake_stop(struct fake *f);

/* The queue pair, which has to be live. */
struct fake_qp *fake_qp(struct fake *f, uint32_t qid);
bool fake_live(struct fake *f, uint32_t qid);

/* Take the next command; false if the doorbell shows none. */
bool fake_fetch(struct fake *f, uint32_t qid, struct gkv_sqe *sqe);
/* The same, waiting up to 5 s. */
void fake_fetch_wait(struct fake *f, uint32_t qid, struct gkv_sqe *sqe);
/* Post a completion with this status (no phase); wakes a sleeping client. */
void fake_post(struct fake *f, uint32_t qid, uint16_t cid, uint16_t status, uint32_t dw0,
	       uint32_t dw1);
/* The same with a given SQ head. */
void fake_post_sqhd(struct fake *f, uint32_t qid, uint16_t cid, uint16_t status, uint32_t sqhd);
/* Answer every command that is there with success; how many. */
unsigned int fake_serve(struct fake *f, uint32_t qid);

/* Stop serving it: GKV_STOPPED_*. */
void fake_stop_qp(struct fake *f, uint32_t qid, uint32_t why);

uint32_t fake_sq_tail(struct fake *f, uint32_t qid);
uint32_t fake_cq_head(struct fake *f, uint32_t qid);
/* Times the client rang the eventfd since the last call. */
uint64_t fake_bells(struct fake *f);

/* Memory that a command names, or NULL. */
uint8_t *fake_mem(struct fake *f, uint64_t iova, uint64_t len);
unsigned int fake_count(struct fake *f, unsigned int type);
void fake_refuse(struct fake *f, unsigned int type, uint32_t err, const char *text);

#endif
