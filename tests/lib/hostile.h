/* SPDX-License-Identifier: MIT */
/*
 * For tests that attack the daemon: a well-behaved client beside them that must not notice,
 * the daemon's vital signs before and after, and raw messages.
 */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gkv/control.h>

#include "rawclient.h"
#include "rig.h"

/* Namespaces of hostile_start(). The victim has its own two, which attackers do not open. */
#define HOSTILE_NSID_MEM	1u
#define HOSTILE_NSID_LOCAL	2u
#define HOSTILE_NSID_SLOW	3u	/* mem, each command takes HOSTILE_SLOW_MS */
#define HOSTILE_NSID_FAULTY	4u	/* local below the filter "fault" */
#define HOSTILE_NSID_PRIVATE	7u	/* uid 0 only */
#define HOSTILE_NSID_FROZEN	8u	/* read-only for all but uid 0 */
#define HOSTILE_SLOW_MS		300u
#define HOSTILE_VALUE_MAX	(4u << 20)
#define HOSTILE_MAX_SESSIONS	1100u
#define HOSTILE_MAX_REGIONS	64u
#define HOSTILE_MAX_BYTES	(256u << 20)
#define HOSTILE_MAX_DEPTH	1024u
#define HOSTILE_MAX_QID		64u

struct victim_stats;

/* What must be the same before and after. */
struct vitals {
	unsigned int fds, memfds, sessions;
	uint64_t rss_kb;
};

struct hostile {
	struct rig rig;
	pid_t pid;			/* of the victim */
	struct victim_stats *stats;	/* shared with it */
	struct vitals before;
};

/*
 * Start a daemon and the victim, in a process of its own, on it; take the vital signs.
 * Before the program makes threads.
 */
void hostile_start(struct hostile *h);

/* Whether the daemon lives and the victim got on since the last call, without an error. */
bool hostile_unharmed(struct hostile *h);

/*
 * The attacks are over: the victim's verdict, the daemon's vital signs (they have some
 * seconds to settle) and its clean exit, as TAP results.
 */
void hostile_finish(struct hostile *h);

void vitals_read(struct rig *rig, struct vitals *v);

/* A cheap pseudo-random number. */
uint64_t hostile_random(uint64_t *state);

/* Connect; the socket or a negative errno. */
int hostile_connect(const char *socket);
/* Send as it is. Returns 0 or a negative errno. */
int hostile_send(int sock, const void *msg, size_t len, const int *fds, unsigned int nfds);
/*
 * A reply of at most @len bytes within @ms: its size, 0 when the daemon hung up, -ETIMEDOUT.
 * Up to *@nfds received descriptors go to @fds; with @fds NULL they are closed.
 */
int hostile_recv(int sock, void *reply, size_t len, unsigned int ms, int *fds,
		 unsigned int *nfds);
/* Fill in a message's head. */
void hostile_head(void *msg, uint16_t type, size_t size);
/* A valid hello with doorbells in @db_fd, or none when it is negative. */
void hostile_hello(struct gkv_msg_hello *m, int db_fd, size_t db_len);

void hostile_sleep_ms(unsigned int ms);

#endif
