/* SPDX-License-Identifier: MIT */
/*
 * The kernel module, played by the test: a program that includes this has ioctl(), mmap() and
 * munmap() replaced. Regions and queue pairs are memfds, and revocation cuts them to nothing: an
 * access is SIGBUS then and a system call fails, as with the module's. Doorbells in a region are
 * that region's memory, and go with the queue pair as well.
 */
#ifndef TESTS_FAKEDRV_H
#define TESTS_FAKEDRV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gkv/gkvdrv.h>
#include <gkv/queue.h>

#define FAKEDRV_PROVIDERS	4
#define FAKEDRV_OBJS		256

struct fakedrv_provider {
	uint32_t id, kind;		/* GKVDRV_CARVEOUT, GKVDRV_FOREIGN */
	/* What allocations and imports get, unless 0. */
	int err;
	uint32_t why;
	const char *text;
	unsigned int tried;
};

struct fakedrv {
	char dir[32], path[64];		/* the device, an ordinary file */
	uint32_t abi;
	uint64_t caps;
	struct fakedrv_provider providers[FAKEDRV_PROVIDERS];
	struct gkvdrv_qp qp;		/* last one made, as returned */
	struct gkvdrv_import import;	/* last import, as asked for */
	uint64_t dmabuf_len;
	unsigned int opened;		/* descriptors of the device that were used */
	unsigned int overlaps;		/* so many times a place in a region is taken already */
	unsigned int regions;		/* allocated */
};

extern struct fakedrv fakedrv;

/* Make the device, and point the library to it. Without providers. */
void fakedrv_init(void);
void fakedrv_fini(void);
void fakedrv_provider(unsigned int i, uint32_t id, uint32_t kind);
/* Take the memory of a region or queue pair away; with a region, that of doorbells in it. */
void fakedrv_revoke(int fd);
void fakedrv_revoke_all_qps(void);
/* Is it one of the module's descriptors? */
bool fakedrv_is(int fd);
/* And a queue pair? */
bool fakedrv_is_qp(int fd);
/* A region of @len bytes without the library: of provider 1, or of @provider. */
int fakedrv_region(uint64_t len);
int fakedrv_region_of(uint32_t provider, uint64_t len);

#endif
