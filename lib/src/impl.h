/* SPDX-License-Identifier: MIT */
/*
 * Inside of libgkv.
 *
 * Locks: gkv.lock serialises control: requests on the socket, the lists of objects,
 * hand-over by the keeper. It may be held while the daemon drains. gkv.mem_lock
 * serialises writers of the address table and the quarantine counts; it is held for
 * moments and nests inside gkv.lock. The data path takes neither, except to count
 * a command that timed out into its memory's quarantine.
 */
#ifndef GKVI_IMPL_H
#define GKVI_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include <gkv.h>
#include <gkv/control.h>
#include <gkv/gkvdrv.h>
#include <gkv/queue.h>

#include "barrier.h"

#define NSEC_PER_SEC	1000000000ull
#define NSEC_PER_MSEC	1000000ull

/* What ends a command that the daemon did not answer: path status, Base Fig 102. */
#define GKV_SC_HOST_PATH	GKV_STATUS(3, 0x70)
#define GKV_SC_HOST_ABORTED	GKV_STATUS(3, 0x71)

/* How long past a namespace's deadline the library waits for the daemon's answer. */
#define TIMEOUT_MARGIN_NS	(2 * NSEC_PER_SEC)
/* How long timeouts that follow the namespace stand still while the daemon is away. */
#define AWAY_GRACE_NS		(30 * NSEC_PER_SEC)
/* How long a control call waits for the daemon to come back. */
#define AWAY_CALL_NS		(10 * NSEC_PER_SEC)

#define STATES_RESERVE	65536u		/* bytes of address space for the reactor state page */
#define LIST_PAGES_MAX	65536u
#define NS_MAX		64u

struct list_node {
	struct list_node *prev, *next;
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

static inline void list_init(struct list_node *h)
{
	h->prev = h;
	h->next = h;
}

static inline void list_add_tail(struct list_node *n, struct list_node *h)
{
	n->prev = h->prev;
	n->next = h;
	h->prev->next = n;
	h->prev = n;
}

static inline void list_del(struct list_node *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* ---- Memory ---- */

struct gkv_mem {
	struct gkv *g;
	struct list_node node;		/* gkv.mems */
	uint32_t id;			/* region identifier, never used twice in a session */
	uint32_t flags;			/* GKV_REGION_F_* */
	int fd;				/* owned unless @borrowed */
	bool borrowed;			/* mapping and descriptor belong to a queue pair */
	bool vram;			/* @fd is a region of /dev/gkv */
	void *addr;			/* mapping of the region */
	size_t len;
	uint64_t offset, iova;
	void *resv;			/* what munmap() takes: the mapping with its guard pages */
	size_t resv_len;
	uint32_t quarantined;		/* commands; under mem_lock */
};

/* Where an address range of the process lies in IOVA space. */
struct mem_entry {
	uintptr_t base, end;
	uint64_t delta;			/* IOVA - address */
	uint32_t id;
	uint32_t vram;			/* 0 or 1 */
};

/*
 * Sorted by base, changed in place under mem_lock, read without a lock: a reader
 * that saw @seq change looks again. Tables that were outgrown live until close.
 */
struct mem_table {
	uint32_t seq;
	uint32_t n, cap;
	struct mem_entry *ents;
	struct mem_entry *old[32];
	uint32_t n_old;
};

/* ---- Session ---- */

struct ns_ref {
	char name[GKV_CTL_NAME];
	uint32_t nsid, flags;		/* as asked for, GKV_NS_RDONLY */
	uint64_t deadline_ns;
};

struct gkv {
	pthread_mutex_t lock;
	pthread_cond_t back;		/* @up or @dead changed */
	int fd;				/* control socket; replaced by the keeper only */
	uint32_t seq;
	bool broken;			/* the last exchange broke its connection */
	uint32_t up;			/* atomic: a daemon serves the session */
	bool dead;			/* it will not be served again */
	uint64_t reconnects;		/* atomic */
	uint32_t epoch;			/* atomic: hand-overs begun, for timeouts to start anew */
	uint64_t max_deadline_ns;	/* atomic: of the hello */

	struct sockaddr_un addr;
	uint32_t flags;			/* GKV_CONNECT_* */
	uint8_t session[16];
	uint32_t max_qps;
	struct gkv_msg_hello_reply hello;	/* as received; under lock */
	uint32_t dstrd, page_size;	/* under lock */

	int db_fd;
	void *db;
	size_t db_len;
	struct gkv_reactor_state *states;	/* STATES_RESERVE bytes, read-only */

	pthread_mutex_t mem_lock;
	struct mem_table table;
	struct list_node mems;		/* gkv_mem.node */
	uint32_t next_region;

	struct ns_ref ns[NS_MAX];
	uint32_t n_ns;			/* atomic: entries before it are complete */

	struct list_node qps;		/* gkv_qp.node */
	struct gkv_qp **qp_by_id;	/* 1 to max_qps */
	struct list_node db_pages;	/* of doorbells.c; under lock */

	pthread_t keeper;
	bool has_keeper;
	uint32_t stop;			/* atomic */
	int kick;			/* eventfd: wakes the keeper and ends its waits */
};

/* ---- Queue pairs ---- */

/* What the daemon and the keeper think of a queue pair (gkv_qp.link). */
enum qp_link {
	QP_LIVE,	/* served, or will be again after the hand-over */
	QP_LOST,	/* keeper: not resumed; the owner has to report its commands as lost */
	QP_DRAINED,	/* owner: done, memory is zero; the keeper adds it afresh */
	QP_DEAD,	/* for ever */
};

enum slot_state {
	SLOT_FREE,
	SLOT_BUSY,
	SLOT_QUARANTINE,	/* reported as timed out or stopped; something may still write */
};

/* What the data path has to do otherwise (gkv_qp.odd): GKV_MODE_SQ, _CQ, _DB, and */
#define ODD_STOPPED	0x100u	/* seen that the daemon serves the queue pair no more */
#define ODD_DEVICE	0x200u	/* device code has it: gkv_qp_device() */

struct slot {
	uint64_t user_data;
	uint64_t deadline;	/* CLOCK_MONOTONIC ns; 0: not looked at yet */
	uint32_t nsid;
	uint32_t mem;		/* region of the buffer, 0: none; more in seg_mem */
	uint32_t list;		/* first list page + 1, 0: none */
	uint16_t cid;		/* slot index, and above it a generation */
	uint8_t state;		/* enum slot_state */
	uint8_t n_mem;		/* 0, 1, or 2: look at seg_mem too */
};

struct gkv_qp {
	/* Submission. */
	struct gkv_sqe *sq;
	uint32_t *sq_db;
	uint32_t depth;
	uint32_t sq_tail, sq_head;	/* slot numbers */
	uint32_t outstanding;
	uint32_t n_free;
	uint16_t *free_cids;		/* stack of slot indices */
	struct slot *slots;		/* depth */
	uint16_t cid_mask, cid_step;
	uint32_t flags;			/* GKV_QP_* */
	uint32_t link;			/* atomic, enum qp_link */
	uint32_t odd;			/* parts in VRAM, and ODD_*; the owner's */
	uint32_t reactor;		/* atomic: line of the reactor state page */
	int efd;			/* keeps its number when the daemon is restarted */
	struct mem_entry hit;		/* last address looked up, valid at @hit_seq */
	uint32_t hit_seq;
	struct gkv *g;

	/* Completion. */
	struct gkv_cqe *cq;
	uint32_t *cq_db;
	uint32_t cq_head, phase;
	uint32_t polls;			/* for looking at the clock now and then */
	uint32_t n_busy;		/* outstanding and not in quarantine */
	uint64_t next_scan;		/* CLOCK_MONOTONIC ns */
	uint32_t epoch;			/* of the session when last scanned */
	uint64_t spin_ns;
	struct gkv_rec_hdr *rec;
	struct gkv_dev_ctl *ctl;	/* behind the record; the keeper writes it */

	/* Lists of segments and pages. */
	uint32_t max_segs;
	uint32_t page;			/* bytes of a list page, and of a PRP's page */
	uint32_t list_pages, list_free;	/* pages; first free page + 1 */
	uint32_t n_list_free;
	uint32_t *list_next;		/* per page: next page + 1 */
	uint8_t *list;			/* mapping */
	uint64_t list_iova;
	struct gkv_mem *list_mem;
	uint32_t *seg_mem;		/* max_segs regions per slot, when max_segs > 1 */

	/* Set-up. */
	struct list_node node;
	uint32_t qid;
	uint64_t timeout_ns;		/* 0: follows the namespace */
	int fd;				/* host memory: rings, record, lists */
	void *map;
	size_t map_len, cq_off, rec_off, list_off;
	uint32_t mode;			/* GKV_MODE_* */
	uint32_t dstrd;			/* that VRAM for doorbells was laid out for */
	int drv_fd;			/* of /dev/gkv: the parts that lie in VRAM; or -1 */
	struct {
		void *map;		/* page that the part starts in; NULL: not in VRAM */
		size_t map_len;
		uint64_t off;		/* where the part starts in @drv_fd */
	} vram[GKVDRV_PARTS];
	struct db_page *db_page;	/* where its doorbells have a place, or NULL; under lock */
	uint32_t db_slot;
	struct gkv_qp_stats stats;
};

/* error.c */
int gkvi_err(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void gkvi_err_text(const char *text);

/* control.c */
int gkvi_socket(const struct sockaddr_un *addr);
int gkvi_exchange(struct gkv *g, int sock, struct gkv_msg_hdr *req, size_t len, const int *fds,
		  int n_fds, void *reply, size_t reply_len, int *rfds, int n_rfds,
		  uint64_t timeout_ns);
int gkvi_call(struct gkv *g, struct gkv_msg_hdr *req, size_t len, const int *fds, int n_fds,
	      void *reply, size_t reply_len, int *rfds, int n_rfds);
void gkvi_hdr(struct gkv_msg_hdr *h, uint16_t type, size_t size);
uint64_t gkvi_now(void);

/* session.c */
int gkvi_hello(struct gkv *g, int sock);
int gkvi_memfd(const char *name, size_t len);
int gkvi_ns_reopen(struct gkv *g, int sock, const struct ns_ref *ns);
size_t gkvi_page_size(void);

/* table.c */
bool gkvi_lookup(struct gkv *g, uintptr_t addr, struct mem_entry *out, uint32_t *seq);
int gkvi_table_reserve(struct mem_table *t);
void gkvi_table_insert(struct mem_table *t, const struct mem_entry *e);
void gkvi_table_remove(struct mem_table *t, uint32_t id);

/* mem.c */
int gkvi_mem_check(const struct gkv *g, struct gkv_mem **mem, size_t len);
struct gkv_mem *gkvi_mem_new(struct gkv *g);
int gkvi_mem_map(struct gkv_mem *m, size_t len);
void gkvi_mem_release(struct gkv_mem *m);
int gkvi_mem_finish(struct gkv *g, struct gkv_mem *m, struct gkv_mem **mem);
int gkvi_region_add(struct gkv *g, int sock, const struct gkv_mem *m);
struct gkv_mem *gkvi_mem_internal(struct gkv *g, int fd, uint64_t offset, size_t len, void *addr,
				  int *ret);
void gkvi_mem_internal_free(struct gkv *g, struct gkv_mem *m);
void gkvi_quarantine(struct gkv_qp *qp, uint32_t idx, int delta);
void gkvi_mem_free_all(struct gkv *g);

/* qp.c */
int gkvi_qp_add(struct gkv *g, int sock, struct gkv_qp *qp, bool resume);
void gkvi_qp_fresh(struct gkv_qp *qp);
int gkvi_qp_wipe(struct gkv_qp *qp);
void gkvi_qp_free_all(struct gkv *g);
void gkvi_wake(struct gkv_qp *qp);

/* device.c */
int gkvi_qp_device_err(const struct gkv_qp *qp);
void gkvi_device_away(struct gkv *g, bool away);
void gkvi_device_lost(struct gkv_qp *qp);
void gkvi_device_take_back(struct gkv_qp *qp);
void gkvi_device_withdraw(struct gkv_qp *qp);

/* qpmem.c */
int gkvi_qp_memory(struct gkv *g, struct gkv_qp *qp, const struct gkv_qp_opts *o);
int gkvi_qp_doorbells(struct gkv_qp *qp);
bool gkvi_qp_gone(const struct gkv_qp *qp);
void gkvi_qp_unmap(struct gkv_qp *qp);

/* doorbells.c */
bool gkvi_db_shares(const struct gkv_qp *qp);
int gkvi_db_take(struct gkv_qp *qp, int drv, uint32_t id, uint32_t skip, struct gkvdrv_part *part,
		 bool *fresh, uint32_t *reason);
void gkvi_db_put(struct gkv_qp *qp);

/* gkvdrv.c */
int gkvi_drv_open(uint64_t caps);
int gkvi_drv_call(int fd, unsigned long cmd, void *arg, uint32_t size, const char *what);
int gkvi_drv_report(int fd, uint32_t part, struct gkvdrv_report *r);

/* vram.c */
int gkvi_need_vram(const struct gkv *g);

/* keeper.c */
int gkvi_keeper_start(struct gkv *g);
void gkvi_keeper_stop(struct gkv *g);
void gkvi_kick(struct gkv *g);

#endif
