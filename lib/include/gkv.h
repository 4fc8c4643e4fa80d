/* SPDX-License-Identifier: MIT */
/*
 * libgkv: client library of kvbridged.
 *
 * A struct gkv is a session with a daemon. Memory and queue pairs belong to it.
 * Commands name values in registered memory; completions come back through
 * gkv_poll() or gkv_wait().
 *
 * Errors: functions that return int return 0 (or a count) or a negative errno;
 * gkv_error() then has one line that names what was refused and the limit.
 *
 * Threads: a struct gkv may be used from any thread; its functions serialise on
 * a mutex that the data path never takes. A struct gkv_qp belongs to one thread
 * at a time. A session keeps one small thread of its own that reconnects after a
 * restart of the daemon; the application's threads are not needed for it.
 *
 * Fork: a child must not use a session of its parent.
 */
#ifndef GKV_H
#define GKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GKV_API __attribute__((visibility("default")))
#else
#define GKV_API
#endif

struct gkv;
struct gkv_mem;
struct gkv_qp;

#define GKV_SOCKET_DEFAULT "/run/gkv/kvbridged.sock"
#define GKV_KEY_LEN 16u		/* longest key, bytes */

/* Version of the library, e.g. 0x000100 for 0.1.0. */
GKV_API uint32_t gkv_version(void);

/*
 * Text of the last error of the calling thread, never NULL. Valid until the
 * thread's next call into the library.
 */
GKV_API const char *gkv_error(void);

/* ---- Session ------------------------------------------------------------ */

/* Do not reconnect; every command in flight ends with GKV_C_LOST instead. */
#define GKV_CONNECT_NO_RECONNECT	0x1u
/* Control only: no queue pairs, no memory, no thread, no reconnection. */
#define GKV_CONNECT_CONTROL		0x2u

/*
 * Connect to the daemon at @path (NULL: $GKV_SOCKET, then GKV_SOCKET_DEFAULT).
 * @max_qps bounds the queue pairs of the session (0: 64). On success *@g is owned
 * by the caller until gkv_close().
 * Errors: -ENOENT or -ECONNREFUSED no daemon there, -EPROTO no common version,
 * -EMFILE the daemon's limit of sessions or the process's of descriptors, -EINVAL more
 * queue pairs than the daemon allows.
 */
GKV_API int gkv_connect(struct gkv **g, const char *path, uint32_t max_qps, uint32_t flags);

/*
 * Close a session and free everything that belongs to it, queue pairs and memory
 * included; commands in flight are dropped. Never waits for the daemon: what was
 * registered with gkv_mem_register() may be written for a while unless its queue pairs
 * were destroyed before. No other thread may be using the session.
 */
GKV_API void gkv_close(struct gkv *g);

/* Times the session was handed to a restarted daemon. */
GKV_API uint64_t gkv_reconnects(const struct gkv *g);

/* 1 while a daemon serves the session, 0 while it is away. */
GKV_API int gkv_connected(const struct gkv *g);

/* Daemon limits, as of the last hello: max_depth may have been changed since. */
struct gkv_limits {
	uint32_t size;			/* sizeof(struct gkv_limits), set by the caller */
	uint32_t max_depth;		/* entries */
	uint32_t max_qps;
	uint32_t max_regions;
	uint64_t max_region_bytes;
	uint64_t poll_interval_ns;
	uint64_t max_deadline_ns;
};
GKV_API int gkv_limits(struct gkv *g, struct gkv_limits *limits);

/* ---- Namespaces --------------------------------------------------------- */

#define GKV_NS_RDONLY	0x1u
#define GKV_NS_VERIFY	0x2u	/* reported: values are verified on Retrieve */
#define GKV_NS_SYNC	0x4u	/* reported: acknowledged means durable */
#define GKV_NS_VWC	0x8u	/* reported: Flush has work to do */

struct gkv_ns_info {
	uint32_t size;			/* sizeof(struct gkv_ns_info), set by the caller */
	uint32_t nsid;
	uint32_t flags;			/* GKV_NS_* */
	uint32_t key_max;		/* bytes */
	uint32_t value_max;		/* bytes */
	uint32_t block_size;		/* bytes; values move without a host copy at this grain */
	uint64_t deadline_ns;
	char name[64];
};

/*
 * Open the namespace called @name, or the lowest one the caller may open when
 * @name is NULL. @flags: GKV_NS_RDONLY to give up writing.
 * Errors: -ENOENT, -EACCES.
 */
GKV_API int gkv_ns_open(struct gkv *g, const char *name, uint32_t flags,
			struct gkv_ns_info *info);

/*
 * Control calls from here on wait up to 10 s for a daemon that is away, then fail with
 * -ENOTCONN.
 */

/* ---- Memory ------------------------------------------------------------- */

/*
 * Allocate @len bytes (rounded up to pages), zeroed, and register them. The IOVA
 * is the address. Freed by gkv_mem_free() or gkv_close().
 * Errors: -ENOSPC the session's limit of regions or bytes, -ENOMEM.
 */
GKV_API int gkv_mem_alloc(struct gkv *g, size_t len, struct gkv_mem **mem);

/*
 * Register @len bytes at @offset of @fd, a memfd sealed with F_SEAL_SHRINK and
 * F_SEAL_GROW, or a region of /dev/gkv; @iova names them in commands, 0 means the address
 * of the library's own mapping. The descriptor is duplicated. @len and @offset: whole
 * pages. Commands name buffers by addresses in gkv_mem_addr(), whatever the IOVA.
 * Errors: -EINVAL, -EEXIST the IOVAs overlap other memory, -ENOSPC; for a region, those of
 * gkv_mem_import() that do not concern the dma-buf.
 */
GKV_API int gkv_mem_register(struct gkv *g, int fd, uint64_t offset, size_t len,
			     uint64_t iova, struct gkv_mem **mem);

/*
 * Unregister and unmap. Waits for commands in flight that use the memory.
 * Errors: -EBUSY a command of a queue pair that timed out still holds a buffer in
 * it; nothing has happened then. Reap the late completion, or reset the queue pair.
 */
GKV_API int gkv_mem_free(struct gkv_mem *mem);

GKV_API void *gkv_mem_addr(const struct gkv_mem *mem);
GKV_API uint64_t gkv_mem_iova(const struct gkv_mem *mem);
GKV_API size_t gkv_mem_len(const struct gkv_mem *mem);

/* ---- Memory of GPUs ----------------------------------------------------- */

/*
 * All of it is made by the kernel module gkvdrv, through /dev/gkv ($GKV_DEVICE, if set),
 * and has the functions of other memory too. Its mapping is write-combining: for the GPU,
 * and for a look at it; the processor reads it slowly. It can be taken away, by the driver
 * of the GPU for example: an access through the mapping is SIGBUS from then on, and
 * commands that use it fail.
 *
 * Errors, with the module's reason in gkv_error(): -ENODEV the module is not loaded, or no
 * GPU has memory for it; -EACCES the caller may not use /dev/gkv; -EPROTO the module has
 * another interface than the library; -EOPNOTSUPP the kernel, or the daemon, cannot.
 */

#define GKV_PROVIDER_ANY	0u	/* any that does not refuse */

/*
 * Allocate @len bytes (rounded up to pages), zeroed, in the memory of carve-out @provider
 * and register them. The IOVA is the address of the mapping.
 * Errors: as above, and -ENOMEM or -ENOSPC nothing left there, or a limit; -ENOENT there is
 * no such provider; -EXDEV a disk of an open namespace cannot reach it; -ETIMEDOUT such a disk
 * does not answer, and may still write to the first page.
 */
GKV_API int gkv_mem_alloc_vram(struct gkv *g, uint32_t provider, size_t len,
			       struct gkv_mem **mem);

/*
 * Register @len bytes at @offset of a dma-buf, which must lie in the memory of @provider.
 * Whole pages; a @len of 0 goes to the end. @iova names them in commands, so that a GPU
 * can use the pointers it has; 0 means the address of the library's mapping. The dma-buf
 * stays pinned until gkv_mem_free(); its descriptor may be closed.
 * Errors: as above, and -EREMOTEIO it lies elsewhere, in system memory for example; -EBUSY
 * pages of it are in a region; -EEXIST the IOVAs overlap other memory; those of the
 * exporter. Of several providers the error that says most is returned.
 */
GKV_API int gkv_mem_import(struct gkv *g, int dmabuf, uint64_t offset, size_t len,
			   uint32_t provider, uint64_t iova, struct gkv_mem **mem);

#define GKV_PLACE_HOST	1u	/* system memory */
#define GKV_PLACE_VRAM	2u	/* memory of a PCI function */
#define GKV_PLACE_GONE	3u	/* it was, and has been taken away */

struct gkv_place {
	uint32_t size;			/* sizeof(struct gkv_place), set by the caller */
	uint32_t where;			/* GKV_PLACE_*; the rest is 0 unless in VRAM */
	uint32_t provider;
	uint32_t domain;		/* of the function */
	uint32_t bdf;			/* bus << 8 | device << 3 | function */
	uint32_t bar;
};

/* Where the memory is, as the module says. Any thread. */
GKV_API int gkv_mem_place(const struct gkv_mem *mem, struct gkv_place *place);

/*
 * The memory's descriptor, which stays the library's: a memfd or a region of /dev/gkv. That
 * of a region becomes ready for poll() with POLLERR and POLLHUP when the memory is taken
 * away; GKVDRV_NOTIFY on it is the caller's to use. Any thread.
 */
GKV_API int gkv_mem_fd(const struct gkv_mem *mem);

/* ---- Queue pairs -------------------------------------------------------- */

/* Memory mode: what lies in VRAM. It is binding. */
#define GKV_MODE_SQ	0x1
#define GKV_MODE_CQ	0x2
#define GKV_MODE_DB	0x4	/* doorbells */
#define GKV_MODE_DATA	0x8	/* all buffers of commands; without it, none */

/* Where to put a part of a queue pair in a region; @mem NULL: it is allocated. */
struct gkv_qp_part {
	struct gkv_mem *mem;		/* in VRAM, of the same session; may be freed first */
	uint64_t offset;		/* bytes: whole pages, of doorbells a multiple of 8 */
};

/*
 * crc32c travels with every value. Of one in VRAM a disk may fetch the bytes by itself: a Store with
 * a wrong checksum then succeeds, and a Retrieve of it fails.
 */
#define GKV_QP_CSUM	0x1u
#define GKV_QP_PRP	0x2u	/* describe buffers with PRPs instead of SGLs */
#define GKV_QP_POLLED	0x4u	/* never write the eventfd: act as a GPU does */

struct gkv_qp_opts {
	uint32_t size;			/* sizeof(struct gkv_qp_opts), set by the caller */
	uint32_t depth;			/* entries; depth - 1 commands may be outstanding; 0: 128 */
	uint32_t flags;			/* GKV_QP_* */
	uint32_t max_segs;		/* longest scatter list of a command; 0: 1 */
	uint64_t timeout_ns;		/* per command; 0: the namespace's deadline and 2 s */
	uint32_t mode;			/* GKV_MODE_* */
	uint32_t provider;		/* carve-out to allocate parts in VRAM from; 0: any */
	struct gkv_qp_part sq, cq, db;	/* only with its bit in @mode */
};

/*
 * @opts may be NULL for the defaults. Freed by gkv_qp_destroy() or gkv_close().
 * Errors: -EINVAL a depth the daemon does not take, -ENOSPC the session's limit of queue
 * pairs or memory, -ENOMEM, -EOPNOTSUPP checksums are not to be had; with a memory mode,
 * those of gkv_mem_alloc_vram().
 * What is in VRAM is used directly: when that is taken away, a call on the queue pair that
 * comes before the daemon has stopped it may end in SIGBUS.
 */
GKV_API int gkv_qp_create(struct gkv *g, const struct gkv_qp_opts *opts, struct gkv_qp **qp);

/*
 * Drop the outstanding commands and free the queue pair; on success their buffers are
 * free. -ENOTCONN, and nothing has happened, when commands are outstanding and the daemon
 * stays away.
 */
GKV_API int gkv_qp_destroy(struct gkv_qp *qp);

/*
 * Drop the outstanding commands and start afresh. On success no buffer of theirs
 * is in use any more, and quarantine is over.
 * Errors: -ENOTCONN; -ENODEV its memory is gone: it can only be destroyed.
 */
GKV_API int gkv_qp_reset(struct gkv_qp *qp);

/* Why the daemon serves a queue pair no more, while it goes on with others. */
#define GKV_STOPPED_NOT		0
#define GKV_STOPPED_DOORBELL	1	/* a doorbell claimed more entries than there can be */
#define GKV_STOPPED_MEMORY	2	/* memory of its rings or doorbells is gone */
#define GKV_STOPPED_RECORD	3	/* the record is not what the daemon wrote */

/*
 * GKV_STOPPED_*. No completion comes from a stopped queue pair; gkv_qp_reset() makes it
 * anew, except after GKV_STOPPED_MEMORY. Any thread.
 */
GKV_API uint32_t gkv_qp_stopped(const struct gkv_qp *qp);

/*
 * Hand a queue pair with nothing outstanding over to device code; *@desc, whose size the
 * caller has set, tells gkv_dev_queue_init() of gkv_device.h where it is, in addresses of
 * this process. It must have GKV_QP_POLLED. gkv_submit() and gkv_poll() fail with -EBUSY from
 * then on. gkv_qp_reset() drops what is outstanding and takes it back; that is also what
 * ends quarantine there, and the only way on after GKV_DEV_LOST. It and gkv_qp_destroy() are
 * called when no device code uses the queue pair.
 * Errors: -EBUSY commands are outstanding; -EINVAL; -ENOTCONN the queue pair was lost.
 */
struct gkv_dev_desc;
GKV_API int gkv_qp_device(struct gkv_qp *qp, struct gkv_dev_desc *desc);

#define GKV_PART_SQ	0u
#define GKV_PART_CQ	1u
#define GKV_PART_DB	2u	/* doorbells */

/* Where a part of the queue pair is. Any thread. */
GKV_API int gkv_qp_place(const struct gkv_qp *qp, uint32_t part, struct gkv_place *place);

GKV_API uint32_t gkv_qp_depth(const struct gkv_qp *qp);
GKV_API uint32_t gkv_qp_id(const struct gkv_qp *qp);

/* Commands that may be submitted now. */
GKV_API uint32_t gkv_qp_room(const struct gkv_qp *qp);

/* Counters of a queue pair since it was created. */
struct gkv_qp_stats {
	uint32_t size;			/* sizeof(struct gkv_qp_stats), set by the caller */
	uint32_t rsvd;
	uint64_t submitted;		/* commands */
	uint64_t completed;		/* completions reaped, late ones included */
	uint64_t timeouts;		/* commands reported with GKV_C_TIMEDOUT */
	uint64_t late;			/* of them: answered later */
	uint64_t lost;			/* commands reported with GKV_C_LOST */
	uint64_t bad_cid;		/* completions ignored: no such command outstanding */
	uint64_t bad_sqhd;		/* completions with an impossible SQ head */
	uint64_t wakeups;		/* system calls to wake the daemon */
	uint64_t sleeps;		/* system calls to sleep in gkv_wait() */
};
/* The queue pair's own thread only. */
GKV_API int gkv_qp_stats(const struct gkv_qp *qp, struct gkv_qp_stats *stats);

/* ---- Commands ----------------------------------------------------------- */

enum gkv_opcode {
	GKV_FLUSH = 0x00,
	GKV_STORE = 0x01,
	GKV_RETRIEVE = 0x02,
	GKV_LIST = 0x06,
	GKV_DELETE = 0x10,
	GKV_EXIST = 0x14
};

#define GKV_O_MUST_EXIST	0x1u	/* Store: only replace */
#define GKV_O_MUST_NOT_EXIST	0x2u	/* Store: only create */

/* A piece of a value in registered memory. */
struct gkv_seg {
	void *addr;			/* address in a gkv_mem */
	uint64_t len;			/* bytes */
};

struct gkv_cmd {
	uint8_t opcode;			/* enum gkv_opcode */
	uint8_t options;		/* GKV_O_* */
	uint8_t key_len;		/* bytes, 1 to 16; List: 0 starts at the first key */
	uint8_t rsvd;
	uint32_t nsid;
	uint8_t key[16];
	void *buf;			/* in a gkv_mem; ignored when @nsegs is not 0 */
	uint32_t len;			/* Store: value bytes; Retrieve, List: buffer bytes */
	uint32_t nsegs;			/* entries of @segs, which are read by gkv_submit() only */
	const struct gkv_seg *segs;
	uint32_t crc;			/* Store on a GKV_QP_CSUM queue pair: crc32c of the value */
	uint32_t rsvd2;
	uint64_t user_data;		/* returned in the completion */
};

/*
 * Flags of a completion. One with GKV_C_TIMEDOUT has status 371h, "Command Aborted By
 * Host", one with GKV_C_LOST 370h, "Host Pathing Error"; daemons do not send these.
 * A timeout that follows the namespace's deadline stands still, for 30 s at most, while
 * the daemon is away, and starts anew with its successor.
 * Commands of a queue pair that the daemon has stopped get GKV_C_LOST and GKV_C_STOPPED
 * together, within 50 ms or so; their buffers and slots stay taken.
 */
#define GKV_C_TIMEDOUT	0x1u	/* no answer in time: buffer and slot stay taken until GKV_C_LATE */
#define GKV_C_LATE	0x2u	/* the answer to a command reported as timed out; buffer free now */
#define GKV_C_LOST	0x4u	/* the daemon is gone for good; outcome unknown; buffer free now */
#define GKV_C_CRC	0x8u	/* @crc is the value's stored crc32c */
#define GKV_C_STOPPED	0x10u	/* buffer taken until gkv_qp_reset() or gkv_qp_destroy() */

struct gkv_comp {
	uint64_t user_data;
	uint32_t result;		/* Retrieve: full length of the value in bytes */
	uint32_t crc;
	uint16_t status;		/* NVMe status without the phase bit; 0 is success */
	uint16_t flags;			/* GKV_C_* */
	uint32_t rsvd;
};

/*
 * Submit @n commands with one doorbell. Returns how many were taken, which is less
 * than @n only when the queue pair is full (or being set up again after its commands
 * were reported with GKV_C_LOST); -EINVAL (and nothing submitted) when a command is
 * malformed or its buffer lies outside registered memory, or not where the memory mode has
 * data; -ENOTCONN when the queue pair was lost for good; -EIO, or -ENODEV if its memory is
 * gone, when it is seen to be stopped (gkv_qp_stopped()).
 * Never blocks; makes at most one system call, and none while the daemon is awake.
 */
GKV_API int gkv_submit(struct gkv_qp *qp, const struct gkv_cmd *cmds, uint32_t n);

/* Reap up to @max completions without waiting. Returns how many. */
GKV_API int gkv_poll(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max);

/*
 * Reap at least one completion, waiting up to @timeout_ns (spinning first, then
 * asleep). Returns how many; 0 when the time is up, nothing is outstanding, or the queue
 * pair is stopped and all was reported.
 */
GKV_API int gkv_wait(struct gkv_qp *qp, struct gkv_comp *comps, uint32_t max,
		     uint64_t timeout_ns);

/* Commands submitted and not completed, quarantined ones included. */
GKV_API uint32_t gkv_qp_outstanding(const struct gkv_qp *qp);

/*
 * Submit one command and wait for it. Returns 0 when @comp (may be NULL) says how it
 * ended, which may be by a timeout; -EBUSY when other commands are outstanding.
 */
GKV_API int gkv_exec(struct gkv_qp *qp, const struct gkv_cmd *cmd, struct gkv_comp *comp);

/* ---- GPU runtimes ------------------------------------------------------- */

/*
 * What a program with kernels that use gkv_device.h needs of CUDA or HIP. The vendor's
 * library is loaded by the first gkv_gpu_open() of its kind and stays; libgkv is linked with
 * none: libcuda.so.1 ($GKV_LIBCUDA, if set), libamdhip64.so ($GKV_LIBHIP) and
 * libhsa-runtime64.so.1 ($GKV_LIBHSA).
 *
 * Any thread; the device that the thread has chosen is the same afterwards. The calls
 * serialise among each other. Those that unmap or free may wait for kernels of the device to
 * end, and none may use what is freed.
 *
 * Errors, with the runtime's in gkv_error(): -ENODEV no such library or device; -EOPNOTSUPP
 * the library or the device cannot, and the text says what; -ENOMEM; -EIO another error of the
 * runtime.
 */
struct gkv_gpu;

#define GKV_GPU_CUDA	1u
#define GKV_GPU_HIP	2u

/*
 * Open device @device, as CUDA or HIP counts them. CUDA: its primary context is used, which
 * is the one of the runtime API. Freed by gkv_gpu_close().
 */
GKV_API int gkv_gpu_open(uint32_t runtime, int device, struct gkv_gpu **gpu);

/* -EBUSY, and nothing has happened, while something is mapped or has a queue. */
GKV_API int gkv_gpu_close(struct gkv_gpu *gpu);

#define GKV_GPU_DMABUF	0x1u	/* its memory can be imported, as far as it says itself */
#define GKV_GPU_ORDERED	0x2u	/* CUDA: kernels see what others write to it, without a flush */

struct gkv_gpu_info {
	uint32_t size;			/* sizeof(struct gkv_gpu_info), set by the caller */
	uint32_t flags;			/* GKV_GPU_* */
	uint32_t ticks_per_us;		/* of the clock that gkv_device.h reads */
	uint32_t rsvd;
};
GKV_API int gkv_gpu_info(const struct gkv_gpu *gpu, struct gkv_gpu_info *info);

/*
 * Map memory of the host into the device. *@device_ptr is where kernels find it, which may
 * differ from gkv_mem_addr(); commands name it by its IOVA all the same. Unmapped by
 * gkv_gpu_unmap(), before gkv_mem_free() or gkv_close().
 * Errors: as above, and -EEXIST it is mapped already, or registered with the runtime by
 * somebody else; -EINVAL it is memory of a GPU; -EACCES it is read-only. gkv_gpu_unmap():
 * -ENOENT.
 */
GKV_API int gkv_gpu_map(struct gkv_gpu *gpu, struct gkv_mem *mem, void **device_ptr);
GKV_API int gkv_gpu_unmap(struct gkv_gpu *gpu, struct gkv_mem *mem);

/* Where the device has the parts of a queue pair that its memory mode puts into VRAM. */
struct gkv_gpu_parts {
	uint32_t size;			/* sizeof(struct gkv_gpu_parts), set by the caller */
	uint32_t rsvd;
	void *sq, *cq, *db;		/* NULL: in host memory */
};

/*
 * Hand @qp over to kernels, as gkv_qp_device() does: *@queue, in device memory, is what the
 * functions of gkv_device.h take. What it has in host memory is mapped into the device;
 * @parts, which may be NULL, has the rest. After gkv_qp_reset() it is called again, and gives
 * the same address.
 * Freed by gkv_gpu_queue_free(), before gkv_qp_destroy() or gkv_close(); the queue pair then
 * stays handed over until it is reset.
 * Errors: as above, and those of gkv_qp_device(). On an error the host keeps the queue pair.
 */
struct gkv_dev_queue;
GKV_API int gkv_gpu_queue(struct gkv_gpu *gpu, struct gkv_qp *qp,
			  const struct gkv_gpu_parts *parts, struct gkv_dev_queue **queue);
GKV_API int gkv_gpu_queue_free(struct gkv_gpu *gpu, struct gkv_qp *qp);

/*
 * Register @len bytes of the device's memory at @device_ptr, whole pages of one allocation:
 * gkv_mem_import() of its dma-buf, with the pointer as IOVA. It is to be freed after
 * gkv_mem_free() only. CUDA: SYNC_MEMOPS is set on the allocation.
 * Errors: as above, and those of gkv_mem_import(). -EOPNOTSUPP when a kernel could not be
 * sure to see what a disk has written there: CUDA, the device is not GKV_GPU_ORDERED; HIP,
 * the memory is not fine-grained or uncached.
 */
GKV_API int gkv_gpu_import(struct gkv_gpu *gpu, struct gkv *g, void *device_ptr, size_t len,
			   uint32_t provider, struct gkv_mem **mem);

/*
 * Commands in the order of a stream of the device: a Store takes what a kernel in front of it
 * has written, and a kernel behind a Retrieve finds the value, with nothing for the host's
 * processor to do once they are enqueued. docs/device.md has what it costs.
 *
 * A struct gkv_gpu_stream and its batches belong to one thread at a time. A small thread of
 * its own, which never calls the runtime, watches what is enqueued: while the daemon is being
 * restarted the stream waits, for 30 s at most. When nobody will answer - the queue pair was
 * lost or stopped, or no answer came within its timeout (by default the longest deadline of a
 * namespace and 2 s) - the thread takes the queue pair from the daemon, which can take as
 * long as gkv_qp_destroy(), and answers with status 370h, "Host Pathing Error", in its place:
 * outcome unknown. So do all commands behind, and the stream goes on.
 */
struct gkv_gpu_stream;
struct gkv_gpu_batch;

/*
 * Put @qp into the order of @stream, a cudaStream_t or hipStream_t of the device @gpu; both
 * stay the caller's and belong to each other until gkv_gpu_stream_close(). The queue pair is
 * handed over as by gkv_qp_device(): it has GKV_QP_POLLED, its rings and doorbells in host
 * memory, and neither GKV_QP_CSUM nor GKV_QP_PRP; its depth bounds how many commands are in
 * flight, not how many are enqueued.
 * Errors: as above, and -EINVAL, -EBUSY or -ENOTCONN by the queue pair; -EOPNOTSUPP also when
 * the device's streams cannot wait for memory.
 */
GKV_API int gkv_gpu_stream_open(struct gkv_gpu *gpu, struct gkv_qp *qp, void *stream,
				struct gkv_gpu_stream **s);

/*
 * Free it and its batches; before gkv_qp_destroy() and gkv_close(). The queue pair then stays
 * handed over until it is reset. -EBUSY, and nothing has happened, while the stream has not
 * gone past all that is enqueued.
 */
GKV_API int gkv_gpu_stream_close(struct gkv_gpu_stream *s);

/*
 * Make room for a batch of up to @max commands: 80 bytes each in host memory, registered with
 * the runtime, and on the device. The same batch is used again and again; one for each that
 * is to be enqueued at a time. gkv_gpu_batch_free(): -EBUSY as gkv_gpu_stream_close().
 */
GKV_API int gkv_gpu_batch_alloc(struct gkv_gpu_stream *s, uint32_t max,
				struct gkv_gpu_batch **batch);
GKV_API int gkv_gpu_batch_free(struct gkv_gpu_batch *batch);

/*
 * Enqueue @n commands on the stream: they run, in any order, when all that was enqueued
 * before is done, and what is enqueued afterwards runs when all of them are answered. They are
 * read by this call only; @segs, @crc and @user_data have no use here. Buffers are addresses
 * in a gkv_mem, which is not to be freed before the stream has gone past. They are in use from
 * here until then, and those of commands that end with status 370h until gkv_gpu_stream_close()
 * and gkv_qp_reset() or gkv_qp_destroy() have succeeded; what a daemon had begun that then could
 * not be asked may land for a while yet.
 * Returns 0. The call waits only where the runtime itself does, whose own queue is not endless.
 * Errors: those of gkv_submit() when a command is malformed, and those of the runtime, with
 * nothing enqueued; -EBUSY the batch is, or the stream is being captured into a graph; -E2BIG
 * more than its @max; -ENOTCONN, -ENODEV or -EIO the queue pair is not served any more; -EIO a
 * call to the runtime failed halfway, this time or before: the stream has what came before it,
 * and only gkv_gpu_stream_close() is left.
 */
struct gkv_cmd;
GKV_API int gkv_gpu_batch_enqueue(struct gkv_gpu_batch *batch, const struct gkv_cmd *cmds,
				  uint32_t n);

/* 1 when the stream has gone past the batch, or it was not enqueued yet; 0 before. */
GKV_API int gkv_gpu_batch_done(const struct gkv_gpu_batch *batch);

/*
 * What gkv_dev_answer() of gkv_device.h takes to tell how the commands enqueued last ended: *@dev
 * for kernels of the device that are enqueued behind the batch, *@host once it is done. Either
 * may be NULL; their sizes are set by the caller. Good until the batch is enqueued again or freed.
 */
struct gkv_dev_answers;
GKV_API int gkv_gpu_batch_answers(const struct gkv_gpu_batch *batch, struct gkv_dev_answers *dev,
				  struct gkv_dev_answers *host);

/* ---- Status ------------------------------------------------------------- */

/* Status name, e.g. "KV Key Does Not Exist"; never NULL. */
GKV_API const char *gkv_status_name(uint16_t status);

/* The negative errno closest to a status; 0 for success, -ENOENT for a missing key. */
GKV_API int gkv_status_errno(uint16_t status);

/* 1 when trying again may help (DNR is clear). */
GKV_API int gkv_status_retry(uint16_t status);

/* ---- Lists -------------------------------------------------------------- */

/*
 * Walk a List result in @buf, @len bytes long: *@pos is 0 at the start and is the
 * library's own after that.
 * Returns 1 and the next key, 0 at the end, -EBADMSG when the buffer is malformed.
 */
GKV_API int gkv_list_next(const void *buf, size_t len, size_t *pos,
			  uint8_t key[16], uint8_t *key_len);

/*
 * crc32c (Castagnoli, as in iSCSI) of @len bytes, continuing from @crc; start with 0.
 * That of "123456789" is 0xe3069283.
 */
GKV_API uint32_t gkv_crc32c(uint32_t crc, const void *data, size_t len);

/* ---- Control ------------------------------------------------------------ */

/*
 * Admin command: @sqe and @cqe in the layouts of gkv/nvme_kv.h, data both ways in
 * @data (at most 4096 bytes; *@data_len in: bytes to send, out: bytes received).
 * Returns 0 when the controller answered, whatever the status in @cqe.
 */
GKV_API int gkv_admin(struct gkv *g, const void *sqe, void *cqe, void *data, uint32_t *data_len);

/*
 * Read a report (GKV_QUERY_* of gkv/control.h) as JSON. *@json is NUL-terminated
 * and freed by the caller with free().
 */
GKV_API int gkv_query(struct gkv *g, uint32_t what, char **json);

/* Change a live setting of the daemon. Errors: -ENOENT, -ERANGE, -EPERM. */
GKV_API int gkv_set(struct gkv *g, const char *name, const char *value);

#ifdef __cplusplus
}
#endif

#endif /* GKV_H */
