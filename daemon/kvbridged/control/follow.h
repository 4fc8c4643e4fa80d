/* SPDX-License-Identifier: MIT */
/*
 * Live settings that the kernel module keeps in sysfs: poll_interval_ns and max_queue_depth are
 * followed while the daemon runs, and while the module comes and goes. Control thread.
 */
#ifndef KVB_FOLLOW_H
#define KVB_FOLLOW_H

struct kvb_server;

/*
 * Take over what is there, and watch for changes. Without the module nothing happens until it
 * is loaded; without the means to watch, a line in the log says so. GKV_SYSFS in the
 * environment names another directory, for tests.
 */
void kvb_follow_start(struct kvb_server *srv);
void kvb_follow_stop(struct kvb_server *srv);

#endif
