/* SPDX-License-Identifier: MIT */
/*
 * kvbridged in the test's own process, with the kernel module played by fakedrv: what the
 * daemon asks of the kernel about such a descriptor (whether it is a memfd, its name, its end)
 * is answered as for the module's. Its clients are threads of the test, on a real socket.
 */
#ifndef TESTS_DRV_DAEMON_H
#define TESTS_DRV_DAEMON_H

#include <stdint.h>

#include "core/store.h"
#include "fakedrv.h"

extern char drv_socket[64];

/*
 * Start on a configuration without socket and state_dir; then fakedrv is there, too. @reach is
 * the answer of the stores of all namespaces. Once in a program.
 */
void drv_start(const char *conf,
	       int (*reach)(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err));

/* Give the daemon its handler of SIGBUS back: cmocka has its own while a test runs. */
void drv_sigbus(void);

/* SIGTERM: what the control thread's loop returned, and how long that took in ns. */
int drv_stop(uint64_t *took);
/* After a stop that gave up: let it go on until nothing is left. What the loop returned. */
int drv_drain(void);
/* After the stop. */
void drv_end(void);

#endif
