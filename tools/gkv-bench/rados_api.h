/* SPDX-License-Identifier: MIT */
/*
 * librados, loaded when it is asked for: gkv-bench itself does not depend on it.
 *
 * Handles are librados's own, opaque pointers here. The functions are the C API's of
 * the same name with "rados_" before it (librados.h of Ceph 16 and later).
 */
#ifndef BENCH_RADOS_API_H
#define BENCH_RADOS_API_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef void *rados_handle;
typedef void (*rados_done_fn)(rados_handle completion, void *arg);

/* clang-format off */
#define RADOS_FUNCTIONS(F)									\
	F(void, version, (int *major, int *minor, int *extra))					\
	F(int, create, (rados_handle *cluster, const char *id))					\
	F(int, conf_read_file, (rados_handle cluster, const char *path))			\
	F(int, conf_set, (rados_handle cluster, const char *option, const char *value))	\
	F(int, connect, (rados_handle cluster))							\
	F(void, shutdown, (rados_handle cluster))						\
	F(int, ioctx_create, (rados_handle cluster, const char *pool, rados_handle *ioctx))	\
	F(void, ioctx_set_namespace, (rados_handle ioctx, const char *nspace))			\
	F(void, ioctx_destroy, (rados_handle ioctx))						\
	F(int, aio_create_completion2, (void *arg, rados_done_fn done, rados_handle *c))	\
	F(int, aio_get_return_value, (rados_handle completion))					\
	F(void, aio_release, (rados_handle completion))						\
	F(int, aio_read, (rados_handle ioctx, const char *oid, rados_handle completion,	\
			  char *buf, size_t len, uint64_t off))					\
	F(int, aio_write_full, (rados_handle ioctx, const char *oid, rados_handle completion,	\
				const char *buf, size_t len))					\
	F(rados_handle, create_read_op, (void))							\
	F(void, release_read_op, (rados_handle op))						\
	F(void, read_op_stat, (rados_handle op, uint64_t *size, time_t *mtime, int *rval))	\
	F(void, read_op_read, (rados_handle op, uint64_t off, size_t len, char *buf,		\
			       size_t *bytes_read, int *rval))					\
	F(int, aio_read_op_operate, (rados_handle op, rados_handle ioctx,			\
				     rados_handle completion, const char *oid, int flags))
/* clang-format on */

struct rados_api {
#define MEMBER(ret, name, args) ret(*name) args;
	RADOS_FUNCTIONS(MEMBER)
#undef MEMBER
};

/*
 * Load librados once; not thread-safe. Returns its functions, or NULL with one line
 * in @why that names the package when it is not installed.
 */
const struct rados_api *rados_api_load(char *why, size_t n);

#endif /* BENCH_RADOS_API_H */
