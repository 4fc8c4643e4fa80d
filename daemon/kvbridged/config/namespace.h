/* SPDX-License-Identifier: MIT */
/*
 * Building a namespace from its section. Control thread.
 */
#ifndef KVB_NAMESPACE_H
#define KVB_NAMESPACE_H

#include <stdbool.h>
#include <sys/types.h>

#include "config/config.h"
#include "core/store.h"

/*
 * Open the stack that section @conf of @cfg describes, bottom first, and restore features
 * that persist. Both must outlive the namespace. Starting the layers on the reactors is the
 * caller's. NULL on failure, with nothing left open; *@ret is a negative errno.
 */
struct kvb_ns *kvb_ns_open(const struct kvb_conf *conf, const struct kvb_config *cfg, int *ret,
			   struct kvb_err *err);

/* Close the layers, top first, and free @ns. No reactor uses it any more. */
void kvb_ns_close(struct kvb_ns *ns);

/* What these credentials may do: 0 nothing, 1 read, 2 write (1 on a read-only namespace). */
int kvb_ns_access(const struct kvb_ns *ns, uid_t uid, gid_t gid, const gid_t *groups, int n);

/*
 * Feature 20h: does Delete of a missing key fail? The value is on disk before it is in force
 * and before this returns; on failure the old one stays. Blocks on the disk.
 */
int kvb_ns_set_ednek(struct kvb_ns *ns, bool on, struct kvb_err *err);

#endif
