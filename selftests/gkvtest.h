/* SPDX-License-Identifier: MIT */
/*
 * What the module's tests share: calls of /dev/gkv with the reason of a refusal, PCI functions
 * and their drivers, files of sysfs, one io_uring. No function ends the program: what can fail
 * returns a negative errno, for the test to judge.
 *
 * The machine is described by the environment (selftests/vm/init): GKV_VRAM_BDF, GKV_VRAM_ADDR and
 * GKV_VRAM_SIZE name the device whose BAR stands for VRAM, GKV_VRAM2_* a second one.
 */
#ifndef GKVTEST_H
#define GKVTEST_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/io_uring.h>

#include <gkv/gkvdrv.h>
#include <gkv/queue.h>

#include "exporter/exporter.h"

#define GKVT_SYSFS	"/sys/class/misc/gkv"
#define MIB		(1ul << 20)

/* ---- /dev/gkv ---- */

/* Why the last call was refused: reason 0 and an empty text when it was not. */
extern struct gkvt_why {
	uint32_t reason;
	char text[GKVDRV_TEXT];
} why;

/* @arg is a struct that starts with struct gkvdrv_head, which this fills. */
int gkvt_call(int fd, unsigned int cmd, void *arg, uint32_t size);
#define gkv_call(fd, cmd, arg) gkvt_call(fd, cmd, arg, sizeof(*(arg)))

int gkv_open(void);
/* A region of a carve-out; its descriptor. */
int region_alloc(int gkv, uint32_t provider, uint64_t len);
/* A region made of a dma-buf; its descriptor. */
int region_import(int gkv, uint32_t provider, int dmabuf, uint64_t offset, uint64_t len);
/* Report of a part, without runs. */
int report(int fd, uint32_t part, struct gkvdrv_report *r);
/* It is reported as revoked, and nothing of where it was. */
bool is_gone(int fd, uint32_t part);
int gkv_revoke(int fd);
int gkv_notify(int fd, int event);
/* The provider on a function, of a kind; its identifier, or -ENOENT. */
int provider_of(int gkv, const char *bdf, uint32_t kind, struct gkvdrv_provider *p);
int provider_add(int gkv, const char *bdf, uint32_t bar, uint64_t offset, uint64_t len);
int provider_del(int gkv, uint32_t id);
/* Bytes in use of a provider, or a negative errno. */
int64_t provider_used(int gkv, uint32_t id);
/* Until so much is in use: pages come back a moment after their region was closed. */
int wait_used(int gkv, uint32_t id, uint64_t bytes);

/* Fills a struct for a queue pair in host memory. */
void qp_init(struct gkvdrv_qp *qp, uint32_t depth, uint32_t mode);
/* Creates it, its parts in VRAM allocated from @provider; its descriptor. */
int qp_create(int gkv, struct gkvdrv_qp *qp, uint32_t depth, uint32_t mode, uint32_t provider);

static inline void *map_shared(int fd, uint64_t offset, size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
}

/* First offset at which @len bytes are not all @byte, or -1. Word by word, as a BAR wants it. */
ssize_t differs(const void *at, uint8_t byte, size_t len);
void fill_bytes(void *at, uint8_t byte, size_t len);
/* Reads a byte; false if that ended in SIGBUS, or in SIGSEGV. */
bool can_read(const volatile void *at);
bool can_write(volatile void *at);

/* ---- The machine ---- */

/* Whether this kernel can make VRAM into pages at all, found without asking gkvdrv. */
bool kernel_has_p2pdma(void);
/* A module that the rig put into /modules; -EEXIST when it is loaded already. */
int module_load(const char *name, const char *arguments);
/* Unloads; -EWOULDBLOCK or -EBUSY while it is used. */
int module_unload(const char *name);

struct pci_id {
	uint32_t domain, bdf;
};

int pci_parse(const char *bdf, struct pci_id *id);
/* Makes @driver the function's, whatever it had; -ENODEV if it would not bind. */
int pci_bind(const char *bdf, const char *driver);
int pci_unbind(const char *bdf);
bool pci_has_driver(const char *bdf, const char *driver);
/* Start and end of a BAR as sysfs has them. */
int pci_bar(const char *bdf, unsigned int bar, uint64_t *start, uint64_t *end);
/* Bytes of p2pmem/NAME of a function, or a negative errno. */
int64_t pci_p2pmem(const char *bdf, const char *name);

/* The provider made of the test device, which is bound to gkvdrv if it is not; its identifier. */
int vram_provider(int gkv);

/* Path of the NVMe namespace whose controller has this serial number. */
int disk_path(const char *serial, char *path, size_t size);

int sysfs_read(const char *path, char *value, size_t size);
int sysfs_write(const char *path, const char *value);
int64_t sysfs_number(const char *path);
/* A setting or counter of the module. */
int64_t gkv_attr(const char *name);
int gkv_set_attr(const char *name, uint64_t value);

/* ---- The test exporter, on the second VRAM device ---- */

/* Why this machine has none, to skip a test; NULL if it may have. */
const char *exporter_missing(void);
/* Loads it and binds it; its descriptor, or -ENODEV on a machine with one device. */
int exporter_start(const char **bdf);
/* Unbinds and unloads it: fails while a buffer of it is left. */
int exporter_stop(int exporter, const char *bdf);
/* A dma-buf; its descriptor. */
int exporter_make(int exporter, uint32_t layout, uint64_t offset, uint64_t len);
int exporter_make_as(int exporter, struct exporter_make *how);
struct exporter_state exporter_state(int exporter, int fd);
/* Until nobody has a buffer attached, pinned or mapped; whether that is so within ten seconds. */
bool exporter_idle(int exporter);

/* ---- Time ---- */

uint64_t now_ms(void);
void sleep_ms(unsigned int ms);

/* Until @condition holds, or for ten seconds; whether it holds. */
#define eventually(condition) ({					\
	uint64_t _until = now_ms() + 10000;				\
	bool _holds;							\
									\
	while (!(_holds = (condition)) && now_ms() < _until)		\
		sleep_ms(2);						\
	_holds;								\
})

/* ---- Another process ---- */

/*
 * Runs @fn in a child, as user @uid if that is not 0; its return value, or 128 + signal. The
 * child shares nothing with the test's bookkeeping: it answers by its result only.
 */
int in_child(uid_t uid, int (*fn)(void *), void *arg);
int send_fd(int socket, int fd);
int receive_fd(int socket);

/* ---- io_uring, by system calls ---- */

struct uring {
	int fd;
	void *sq, *cq;
	struct io_uring_sqe *sqes;
	struct io_uring_params params;
};

int uring_open(struct uring *ring);
void uring_close(struct uring *ring);
/* IORING_OP_READ or _WRITE, submitted. */
int uring_submit(struct uring *ring, uint8_t op, int fd, void *buffer, uint32_t len,
		 uint64_t offset);
/* Result of the next completion: bytes, or a negative errno. -EAGAIN without @wait, if none. */
int uring_reap(struct uring *ring, bool wait);
/* Both. */
int uring_io(struct uring *ring, uint8_t op, int fd, void *buffer, uint32_t len, uint64_t offset);
int uring_register_buffer(struct uring *ring, void *buffer, size_t len);

#endif
