/* SPDX-License-Identifier: MIT */
/*
 * A daemon, a session and shorthands for single commands: what command-level tests of a
 * store share. Failures of the set-up end the program; statuses are the tests' to judge.
 */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gkv/nvme_kv.h>

#include "gkv.h"
#include "rig.h"

#define SUITE_VALUE_MAX (64u << 20)
#define SUITE_BUF	(2 * (size_t)SUITE_VALUE_MAX + (1u << 20))
#define SUITE_MAX_DEPTH 4096u		/* the daemon's limit in the suite's configuration */
#define SUITE_NO_STATUS 0xffffu		/* no completion came */

/* Namespaces of the suite's configuration. */
#define SUITE_NSID_MAIN		1u
#define SUITE_NSID_OTHER	2u
#define SUITE_NSID_FROZEN	3u	/* read-only */
#define SUITE_NSID_FAULTY	4u	/* and up, under the filter "fault" */

struct suite {
	struct rig rig;
	const char *store;
	struct gkv *g;
	struct gkv_ns_info ns;	/* main */
	struct gkv_qp *qp;	/* idle between two calls */
	struct gkv_mem *mem;
	uint8_t *buf;		/* SUITE_BUF bytes in @mem */
};

struct suite_key {
	uint8_t len;
	uint8_t bytes[16];
};

/*
 * The stores to run on, one after the other; NULL after the last. All of them, or those
 * named in $GKV_STORES (separated by blanks), of which a diagnostic tells.
 */
const char *suite_next_store(void);

/*
 * Keys of a namespace's section for the store "rados": an empty RADOS namespace of its own in
 * the pool $GKV_CEPH_POOL of the cluster $GKV_CEPH_CONF. Returns their length; ends the
 * program when no cluster is named.
 */
int suite_rados_conf(char *text, size_t size, const char *name);

/*
 * Start a daemon whose namespaces stand on @store ("mem", "local", "rados"), connect and open all
 * of them. @rules: the rules of the filter "fault" of one namespace each, NULL at the end;
 * or NULL for no such namespaces.
 */
void suite_start(struct suite *s, const char *store, const char *const *rules);
void suite_stop(struct suite *s);

/* Wait until the session was handed over to a restarted daemon. */
void suite_reconnected(struct suite *s, uint64_t times);

/* Never NULL. @flags: GKV_QP_*. */
struct gkv_qp *suite_qp(struct suite *s, uint32_t depth, uint32_t flags, uint32_t max_segs);

/* A key of printf-made text, cut at 16 bytes. */
struct suite_key suite_key(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void suite_cmd(struct gkv_cmd *cmd, uint8_t opcode, uint32_t nsid, const struct suite_key *key);

/* Run one command on an idle queue pair; status SUITE_NO_STATUS when nothing came back. */
struct gkv_comp suite_run(struct gkv_qp *qp, const struct gkv_cmd *cmd);

/* On the suite's queue pair. */
uint16_t suite_store(struct suite *s, uint32_t nsid, const struct suite_key *key, void *buf,
		     uint32_t len, uint8_t options);
struct gkv_comp suite_retrieve(struct suite *s, uint32_t nsid, const struct suite_key *key,
			       void *buf, uint32_t len);
uint16_t suite_delete(struct suite *s, uint32_t nsid, const struct suite_key *key);
uint16_t suite_exist(struct suite *s, uint32_t nsid, const struct suite_key *key);

/* Status without DNR, and whether DNR is set. */
static inline uint16_t code(uint16_t status)
{
	return GKV_STATUS_CODE(status);
}

static inline bool dnr(uint16_t status)
{
	return status & GKV_DNR;
}

/* Bytes that depend on @seed and on their place, so that shifts and mix-ups show. */
void pattern_fill(void *buf, size_t len, uint64_t seed);
bool pattern_check(const void *buf, size_t len, uint64_t seed);

/* 0xa5 where nothing may be written. */
void poison(void *buf, size_t len);
bool poisoned(const void *buf, size_t len);

#endif
