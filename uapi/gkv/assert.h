/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Layout assertions that C90, C11 and C++ all accept: a negative array size is
 * an error in each of them, and an extern declaration emits nothing.
 */
#ifndef _UAPI_GKV_ASSERT_H
#define _UAPI_GKV_ASSERT_H

#ifdef __KERNEL__
#include <linux/stddef.h>
#else
#include <stddef.h>
#endif

#define GKV_ASSERT_SIZE(type, size) \
	extern char gkv_assert_size_##type[sizeof(struct type) == (size) ? 1 : -1]
#define GKV_ASSERT_OFFSET(type, field, off) \
	extern char gkv_assert_off_##type##_##field[offsetof(struct type, field) == (off) ? 1 : -1]

#endif /* _UAPI_GKV_ASSERT_H */
