/* SPDX-License-Identifier: MIT */
/*
 * A client's connection and all that belongs to it. Control thread only.
 */
#ifndef KVB_SESSION_H
#define KVB_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gkv/control.h>

#include "admin/admin.h"
#include "config/config.h"
#include "control/clientmem.h"
#include "control/reach.h"
#include "control/server.h"
#include "core/decode.h"
#include "core/qp.h"
#include "core/reactor_priv.h"

struct kvb_session;

/* Memory that may be revoked, and what is to happen then. */
struct kvb_session_mem {
	struct kvb_clientmem m;
	struct kvb_watch w;
	bool watched;
	struct kvb_session *s;
	void (*gone)(struct kvb_session_mem *sm);
};

/* A registered region. Mapped until no table that names it is in use any more. */
struct kvb_session_region {
	struct kvb_region r;	/* its dead flag */
	uint32_t id;
	uint32_t flags;
	uint64_t iova, len;
	bool vram;
	struct kvb_session_mem mem;
	unsigned int refs;	/* the session's, and one for each table and probe */
	struct kvb_session *s;
	struct kvb_session_region *next;
};

/* A queue pair with what only the control thread needs of it. */
struct kvb_session_qp {
	struct kvb_qp qp;
	struct kvb_session *s;
	uint32_t flags;
	struct kvb_session_mem sq, cq, db;	/* db: with GKV_MODE_DB only */
	struct kvb_clientmem rec;
	_Atomic bool ring_dead, rec_dead;
	struct kvb_msg drained;
	bool draining;
	void (*then)(struct kvb_session_qp *q);
	struct kvb_session_qp *next;
};

/* The session's bell on one reactor: written by a host client that finds it asleep. */
struct kvb_bell {
	struct kvb_io io;
	struct kvb_io cancel_io;
	struct kvb_reactor *r;
	int fd;			/* -1: none yet */
	bool closing;
	bool armed;		/* the poll is on the ring */
	bool cancelling;	/* its removal is */
	struct kvb_session *s;
	struct kvb_msg gone;
};

struct kvb_session {
	struct kvb_server *srv;
	int fd;
	uint64_t id;
	uint64_t accepted_ns;
	struct ucred peer;
	gid_t groups[64];
	int ngroups;
	bool hello, busy, closing, waiting_for_twin;
	bool held;			/* its messages wait, see may_receive() */
	struct gkv_msg_hello hello_msg;	/* while waiting_for_twin */
	int hello_fd;
	struct kvb_admin_peer admin;
	uint8_t uuid[16];
	char name[GKV_CTL_NAME];
	uint64_t features;

	struct kvb_clientmem db;
	_Atomic bool db_dead;

	struct kvb_session_region *regions;
	uint32_t nregions;
	uint64_t region_bytes;
	struct kvb_region_set *set;
	unsigned int old_sets;		/* replaced, still in use by operations */

	const struct kvb_ns_open *_Atomic *open;	/* by NSID - 1 */
	struct kvb_ns_open *open_mem;

	struct kvb_session_qp *qps;
	unsigned int nqps, ndraining;
	struct kvb_bell bells[KVB_MAX_REACTORS];
	unsigned int nbells;

	char *report;			/* last query's document */
	size_t report_len;

	/* The request being answered. */
	struct gkv_msg_hdr req;
	struct kvb_session_region *adding, *deleting;
	bool opening_rdonly;
	struct kvb_asking asking;
	struct kvb_session *prev, *next;
	bool buried;
	struct kvb_session *next_grave;
};

/* ---- session.c ---- */

/* Root and the daemon's own user see and change what others may not. */
bool kvb_session_privileged(const struct kvb_session *s);
/* Answer the request under way: @reply starts with a gkv_msg_reply; sends @nfds of @fds. */
void kvb_session_reply(struct kvb_session *s, void *reply, size_t size, const int *fds, int nfds);
/* Answer it with an error, or with success and nothing more. */
void kvb_session_error(struct kvb_session *s, int errnum, const char *text);
void kvb_session_ok(struct kvb_session *s);
/* Handle one message; owns the descriptors. */
void kvb_session_message(struct kvb_session *s, const void *msg, size_t size, int *fds, int nfds);
/* The connection is gone: stop the queues, drain, release everything. */
void kvb_session_close(struct kvb_session *s);
/*
 * Let go of what it holds once nothing is in flight any more. The structure itself stays
 * until kvb_session_free(): callers up the stack may still look at it.
 */
void kvb_session_try_free(struct kvb_session *s);
void kvb_session_free(struct kvb_session *s);

/* ---- sessionmem.c ---- */

/* kvb_clientmem_map(); when the memory is revoked, @gone, if not NULL, is called. */
int kvb_session_mem_map(struct kvb_session_mem *sm, struct kvb_session *s,
			const struct kvb_memreq *q, void (*gone)(struct kvb_session_mem *sm),
			struct kvb_err *err);
void kvb_session_mem_unmap(struct kvb_session_mem *sm);

/* ---- nsopen.c ---- */
void kvb_session_ns_open(struct kvb_session *s, const struct gkv_msg_ns_open *m);

/* ---- regions.c ---- */
int kvb_session_init_regions(struct kvb_session *s);
/* Let go of a reference; with the last one it is unmapped. */
void kvb_session_region_put(struct kvb_session_region *g);
void kvb_session_region_add(struct kvb_session *s, const struct gkv_msg_region_add *m, int fd);
void kvb_session_region_del(struct kvb_session *s, const struct gkv_msg_id *m);
void kvb_session_drop_regions(struct kvb_session *s);

/* ---- qps.c ---- */
void kvb_session_qp_add(struct kvb_session *s, const struct gkv_msg_qp_add *m, const int *fds,
			int nfds);
void kvb_session_qp_del(struct kvb_session *s, const struct gkv_msg_id *m);
void kvb_session_qp_reset(struct kvb_session *s, const struct gkv_msg_id *m);
void kvb_session_drop_qps(struct kvb_session *s);

/* ---- bells.c ---- */

/* The descriptor that wakes @r, made if there is none yet; -1 and errno. */
int kvb_session_bell(struct kvb_session *s, struct kvb_reactor *r);
void kvb_session_drop_bells(struct kvb_session *s);

/* ---- query.c ---- */
void kvb_session_query(struct kvb_session *s, const struct gkv_msg_query *m);

#endif
