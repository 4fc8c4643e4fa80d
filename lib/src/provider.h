/* SPDX-License-Identifier: MIT */
/* Trying one provider after the other until one does not refuse. */
#ifndef GKVI_PROVIDER_H
#define GKVI_PROVIDER_H

#include "impl.h"

/*
 * One attempt with provider @id. Returns 0, or a negative errno and puts head.reason of the
 * call into *@reason.
 */
typedef int (*provider_fn)(int drv, uint32_t id, void *arg, uint32_t *reason);

int gkvi_each_provider(int drv, uint32_t id, bool foreign, provider_fn fn, void *arg);

#endif
