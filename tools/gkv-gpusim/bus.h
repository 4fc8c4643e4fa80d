/* SPDX-License-Identifier: MIT */
/*
 * A queue pair of a machine whose bus we are on: a virtual machine, of which we have the files
 * behind its RAM and behind the BARs of its PCI functions, and do with them what a device could.
 *
 * In the machine, bus_offer() describes the queue pair in addresses of the bus, in memory of its
 * own; on the other side, bus_attach() follows the one address that it is told.
 */
#ifndef GKV_GPUSIM_BUS_H
#define GKV_GPUSIM_BUS_H

#include <stddef.h>
#include <stdint.h>

#include <gkv_device/init.h>

#define BUS_FILES_MAX	5u

/* A file with what is at @at to @at + its size on the bus. */
struct bus_file {
	const char *path;
	uint64_t at;
};

/* What kernels need of the other machine's; in addresses of this process. */
struct bus_queue {
	struct gkv_dev_desc desc;
	uint32_t nsid;
	uint8_t *mem;			/* values, */
	uint64_t iova;			/* as commands call it, */
	size_t mem_len;			/* in bytes */
};

/*
 * Describe @q, whose addresses are this process's; where that is on the bus goes to *@at. Its
 * memory is locked and read from then on. Needs CAP_SYS_ADMIN and CAP_IPC_LOCK. Returns 0, or -1
 * and the reason in bus_error().
 */
int bus_offer(const struct bus_queue *q, uint64_t *at);

/*
 * Map what is described at @at. The first of @files that has an address is asked; the files are
 * written to. The mappings stay. Returns 0, or -1 and the reason in bus_error().
 */
int bus_attach(const struct bus_file *files, uint32_t n, uint64_t at, struct bus_queue *q);

const char *bus_error(void);

#endif
