/* SPDX-License-Identifier: MIT */
/*
 * GPU runtimes: what libgkv needs of a vendor's library, which is loaded when it is first
 * asked for. Each is one struct gpu_runtime in a file of its own.
 */
#ifndef GKVI_GPU_H
#define GKVI_GPU_H

#include "impl.h"

struct gpu_obj;

struct gkv_gpu {
	const struct gpu_runtime *rt;
	int device;			/* as the runtime counts them */
	uint32_t refs;			/* the caller's, and one for each pin made through it */
	uint32_t flags;			/* GKV_GPU_* of struct gkv_gpu_info */
	uint32_t ticks_per_us;
	const char *no_order;		/* why its streams cannot wait for memory; NULL: they can */
	void *ctx, *stream;		/* the runtime's */
	struct gpu_obj *objs;		/* what is mapped, and queues */
};

/*
 * All return 0 or a negative errno with a text. Those from @pin on are called between @enter
 * and @leave, which makes the device the thread's and then gives it its own back.
 */
struct gpu_runtime {
	const char *name;
	const char *no_dmabuf;			/* why a device is not GKV_GPU_DMABUF */
	int (*open)(struct gkv_gpu *gpu);	/* load, check, fill in; undoes what it did */
	void (*close)(struct gkv_gpu *gpu);
	int (*enter)(struct gkv_gpu *gpu, void **was);
	void (*leave)(struct gkv_gpu *gpu, void *was);
	int (*pin)(void *addr, size_t len);	/* for all devices of the runtime */
	void (*unpin)(void *addr);
	int (*address)(void *addr, uint64_t *dev);
	int (*alloc)(size_t len, uint64_t *dev);	/* aligned to 128 bytes at least */
	void (*free)(uint64_t dev);
	/* There when it returns, whatever kernels run. */
	int (*copy)(struct gkv_gpu *gpu, uint64_t dev, const void *from, size_t len);
	/* Would kernels see what a third party writes there? The text says why not. */
	int (*visible)(struct gkv_gpu *gpu, uint64_t dev, size_t len);
	/* A dma-buf, which the caller closes, and where in it the memory begins. */
	int (*export)(struct gkv_gpu *gpu, uint64_t dev, size_t len, int *fd, uint64_t *offset);
	/*
	 * In the order of @stream, without waiting for it; only where @no_order is NULL. Copies
	 * are between pinned memory of the host, in its own address, and of the device.
	 */
	int (*to_device)(void *stream, uint64_t dev, const void *host, size_t len);
	int (*to_host)(void *stream, void *host, uint64_t dev, size_t len);
	/* Store @v at @dev, after all that came before, as the whole system sees it. */
	int (*write32)(void *stream, uint64_t dev, uint32_t v);
	/* Go on when @bit of the word at @dev is set, or clear. */
	int (*wait_bit)(void *stream, uint64_t dev, uint32_t bit, bool set);
	/* At once: 1 nothing is left to do on @stream; 0 there is; or it has failed. */
	int (*idle)(void *stream);
	int (*capturing)(void *stream);		/* likewise: is it recorded into a graph? */
	int (*sync)(void *stream);		/* waits until it is idle */
};

extern const struct gpu_runtime gkvi_gpu_cuda, gkvi_gpu_hip;

/* gpu_load.c */
struct gpu_symbol {
	const char *name;
	void *to;			/* a pointer to a function, to set */
};
int gkvi_gpu_load(const char *env, const char *const *files, const char *what,
		  const struct gpu_symbol *symbols);
int gkvi_gpu_err(int code, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* gpu.c: all that is shared is under one lock. */
extern pthread_mutex_t gkvi_gpu_lock;
void gkvi_gpu_put(struct gkv_gpu *gpu);

/* gpu_pin.c. Caller holds gkvi_gpu_lock and has entered the device. */
int gkvi_gpu_pin(struct gkv_gpu *gpu, void *addr, size_t len, uint64_t *dev);
void gkvi_gpu_unpin(const struct gpu_runtime *rt, const void *addr);

/* Something that a device has been given; under gkvi_gpu_lock. */
struct gpu_obj {
	struct gpu_obj *next;
	const void *key;		/* gkv_mem, gkv_qp, gkv_gpu_stream or gkv_gpu_batch */
	bool queue;
	void *pins[3];			/* of the process; NULL: none */
	uint64_t dev[3];		/* where the device has them */
	uint64_t block;			/* in device memory */
};

struct gpu_obj **gkvi_gpu_find(struct gkv_gpu *gpu, const void *key);
int gkvi_gpu_obj_pin(struct gkv_gpu *gpu, struct gpu_obj *o, unsigned int i, void *addr,
		     size_t len);
void gkvi_gpu_obj_free(struct gkv_gpu *gpu, struct gpu_obj *o);

#endif
