/* SPDX-License-Identifier: MIT */
/* The daemon's process, seen from outside. */
#ifndef BENCH_DAEMON_H
#define BENCH_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

/*
 * The process that listens on @socket (NULL: the library's default), by the socket's
 * credentials. -errno when it cannot be reached.
 */
pid_t daemon_pid(const char *socket);

/* Processor time of all threads that @pid has now, ns; 0 when it is gone. */
uint64_t daemon_cpu_ns(pid_t pid);

#endif /* BENCH_DAEMON_H */
