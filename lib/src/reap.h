/* SPDX-License-Identifier: MIT */
#ifndef GKVI_REAP_H
#define GKVI_REAP_H

#include "impl.h"

/* A submission to a queue pair that is not served: 0, or -ENOTCONN if it never will be. */
int gkvi_qp_unlinked(struct gkv_qp *qp);
/* The same to one that is stopped: -ENODEV or -EIO. */
int gkvi_qp_stopped_err(const struct gkv_qp *qp);
/* How long a command to @nsid may take, in ns; 0: to any namespace. */
uint64_t gkvi_timeout(const struct gkv_qp *qp, uint32_t nsid);

#endif
