/* SPDX-License-Identifier: GPL-2.0-only */
/* The exporter's dma-bufs: what the device and the function need of them. */
#ifndef GKV_EXPORTER_BUFFER_H
#define GKV_EXPORTER_BUFFER_H

#include <linux/atomic.h>
#include <linux/dma-buf.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/wait.h>

#include "exporter.h"

struct dma_fence;
struct page;
struct pci_dev;

struct buffer {
	struct list_head node;
	struct dma_buf *dmabuf;
	struct exporter_make how;
	u64 start;			/* bus address; the function may be gone before it */
	struct page *page;		/* EXPORTER_SYSTEM */
	atomic_t attached, pinned, mapped;
	wait_queue_head_t unmapped;
	struct dma_fence *fence;	/* or NULL */
	bool revoked;			/* dma_resv */
};

extern struct mutex exporter_lock;		/* what follows */
extern struct list_head exporter_buffers;
extern struct pci_dev *exporter_function;

/* A dma-buf with a reference, or an error. */
struct dma_buf *buffer_make(const struct exporter_make *how);
/* The dma-buf behind a descriptor, with a reference, if it is one of these. */
struct dma_buf *buffer_get(int fd);
/* Nobody may use it any more: waits until nobody has it mapped, or -ETIMEDOUT. */
int buffer_take_back(struct buffer *b);
/* It is somewhere else now; waits for nobody. */
void buffer_move(struct buffer *b);

#endif
