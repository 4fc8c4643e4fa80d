/* SPDX-License-Identifier: MIT */
/* The daemon of small scenes, and what it shares with the lanes. */
#ifndef TESTS_DEVICE_SMALL_DAEMON_H
#define TESTS_DEVICE_SMALL_DAEMON_H

#include "small.h"

#define SMALL_TIMEOUT	1000u		/* ticks */

struct small_batch {
	struct gkv_dev_cmd cmds[SMALL_CMDS];
	gkv_dev_token tokens[SMALL_CMDS];
	struct gkv_dev_result results[SMALL_CMDS];
};

struct small_pending {
	uint32_t cid, key;
	uint32_t silent;	/* it will not be answered */
};

/* What outlives the daemon: it is killed between two accesses and goes on from here. */
struct small_record {
	uint32_t sq_head;
	uint32_t cq_tail, cq_head, cq_used, phase;
	struct small_pending out[SMALL_DEPTH];	/* fetched, not answered */
	uint32_t n;
	struct small_pending posting;		/* key 0: none */
	uint32_t deaths, silent;		/* left */
};

struct small {
	/* Aligned to GKVD_LINE. */
	uint8_t image[8192];		/* the queue's block */
	uint64_t sq[SMALL_DEPTH * 8];
	uint64_t cq[SMALL_DEPTH * 2];
	uint32_t sq_db, cq_db;
	struct gkv_dev_ctl ctl;

	uint8_t pristine[8192];
	struct gkv_dev_queue *q;
	const struct small_scene *scene;
	struct small_mistakes mistakes;
	struct small_record rec;
	uint8_t executed[SMALL_CMDS], answered[SMALL_CMDS];	/* times, of each command */
	uint8_t ended[SMALL_CMDS];	/* how */
	uint64_t past[SMALL_CMDS];	/* how each lane's commands ended, eight bits for each */
	struct small_batch batches[2];
	uint32_t ends;
};

static inline uint32_t small_dw0(uint32_t key)
{
	return key * 1000003u;
}

static inline uint16_t small_status(uint32_t key)
{
	return key % 2 ? 0 : GKV_SC_KEY_NOT_FOUND;
}

void small_daemon_begin(struct small *s);
void small_daemon(void *arg, uint32_t id);

#endif
