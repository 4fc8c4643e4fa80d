/* SPDX-License-Identifier: MIT */
/*
 * Settings in force: value, where it comes from, limits. Precedence: command line, live
 * (by message or in sysfs, whichever came later), file, default.
 */
#ifndef KVB_SETTINGS_H
#define KVB_SETTINGS_H

#include <stdatomic.h>
#include <stdint.h>

#include "config/config.h"

struct json_object;

/* What reactors and the control thread read while serving. Any thread, relaxed. */
struct kvb_live {
	_Atomic uint64_t poll_interval_ns;
	_Atomic uint64_t spin_ns;
	_Atomic uint32_t max_queue_depth;
	_Atomic int log_level;
};
extern struct kvb_live kvb_live;

/* Put @cfg in force. It stays the caller's and must outlive the calls below. Control thread. */
void kvb_settings_init(struct kvb_config *cfg);

/*
 * Change a live setting; @text as in the configuration file. -ENOENT: no such setting;
 * -EPERM: not while the daemon runs; -EBUSY: set on the command line, which has precedence;
 * -EINVAL, -ERANGE: @err names the limits. Control thread.
 */
int kvb_settings_set(const char *name, const char *text, struct kvb_err *err);

/* The same, for what the kernel module's sysfs says. The command line has precedence: 0. */
int kvb_settings_follow(const char *name, const char *text, struct kvb_err *err);

/*
 * All settings, the namespaces' as NAME.KEY: an array of objects name, value, origin, live,
 * and for numbers min, max, unit. The caller's, to be put. NULL: out of memory. Control
 * thread.
 */
struct json_object *kvb_settings_json(void);

#endif
