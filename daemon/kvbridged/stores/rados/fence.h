/* SPDX-License-Identifier: MIT */
/*
 * Which clients of a cluster may have writes under way, kept over restarts.
 *
 * In STATE_DIR/rados-FSID there is one file for each client, named after its address with '_'
 * for '/'. A live client holds an exclusive lock on its file; what can be locked belongs to a
 * client that is dead and has still to be put on the blocklist. So a file appears before its
 * client is used, and goes away when the cluster holds the client off, or when the client
 * ended with nothing left that could still happen.
 */
#ifndef KVB_RADOS_FENCE_H
#define KVB_RADOS_FENCE_H

#include <limits.h>
#include <stdbool.h>

#include <rados/librados.h>

#include "core/err.h"

struct rd_fence {
	int dir;
	int fd;			/* -1: nothing is recorded */
	char name[NAME_MAX + 1];
};

#define RD_FENCE_NONE ((struct rd_fence){ .dir = -1, .fd = -1 })

/*
 * Record the connected client @addr, put the dead ones on the blocklist and wait until
 * @cluster knows of it: from then on no write of a dead client can follow one of ours.
 * @fenced is increased by their number. Blocks. Returns 0 or a negative errno with the
 * reason in @err, among them that user @id may not use the blocklist.
 */
int rd_fence_enter(struct rd_fence *f, rados_t cluster, const char *id, const char *state_dir,
		   const char *fsid, const char *addr, unsigned int *fenced,
		   struct kvb_err *err);

/*
 * The client is gone. @clean: nothing of it can happen any more, forget it. Otherwise the
 * next one to enter fences it. Blocks on the disk.
 */
void rd_fence_leave(struct rd_fence *f, bool clean);

#endif
