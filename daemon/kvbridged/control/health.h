/* SPDX-License-Identifier: MIT */
/*
 * What the SMART / Health log counts, kept over restarts in state_dir: the name of the file
 * is the daemon's UUID, so that daemons may share the directory. Control thread.
 *
 * A daemon that is killed loses what it counted since it last wrote the file: up to ten
 * seconds for media errors, up to an hour for the rest.
 */
#ifndef KVB_HEALTH_H
#define KVB_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

struct kvb_admin_counters;
struct kvb_server;

/*
 * The daemon serves from now on, and holds the lock of its socket. Counts a power cycle, and an
 * unsafe shutdown if the last daemon did not get as far as kvb_health_end(). Without a file, or
 * a directory for it, counts begin at 0; of what goes wrong the log tells.
 */
void kvb_health_begin(struct kvb_server *srv);
/* Media errors are not in the file yet: kvb_health_tick() is wanted soon. */
bool kvb_health_unsaved(const struct kvb_server *srv);
/* Now and then; cheap. Writes the file when there is reason to. */
void kvb_health_tick(struct kvb_server *srv, uint64_t now_ns);
/* An orderly end: the stores are closed. */
void kvb_health_end(struct kvb_server *srv);

/* For struct kvb_ctrl: @ctx is the server. */
void kvb_health_counters(void *ctx, struct kvb_admin_counters *c);

#endif
