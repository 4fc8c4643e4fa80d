/* SPDX-License-Identifier: MIT */
/*
 * State files: features of a namespace that persist across power cycles, and whatever else
 * must outlive the daemon. Blocks on the disk; control thread.
 */
#ifndef KVB_STATE_H
#define KVB_STATE_H

#include <stdbool.h>

#include "core/err.h"

/* Leaves the output alone when there is no file. */
int kvb_state_read(const char *path, bool *ednek, struct kvb_err *err);

/*
 * Put @text in place of what @path holds; its directory exists. The file holds either the old
 * text or the new, whatever happens to the process; with @sync, whatever happens to the
 * machine, and the new once this has returned 0. 0 or -errno.
 */
int kvb_state_replace(const char *path, const char *text, bool sync);

/* The file holds either the old or the new state, and once this has returned 0, the new. */
int kvb_state_write(const char *path, bool ednek, struct kvb_err *err);

#endif
