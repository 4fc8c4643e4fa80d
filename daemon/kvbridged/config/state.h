/* SPDX-License-Identifier: MIT */
/*
 * The state file of a namespace: features that persist across power cycles.
 * Blocks on the disk; control thread.
 */
#ifndef KVB_STATE_H
#define KVB_STATE_H

#include <stdbool.h>

#include "core/err.h"

/* Leaves the output alone when there is no file. */
int kvb_state_read(const char *path, bool *ednek, struct kvb_err *err);

/* The file holds either the old or the new state, and once this has returned 0, the new. */
int kvb_state_write(const char *path, bool ednek, struct kvb_err *err);

#endif
