/* SPDX-License-Identifier: MIT */
/*
 * The media under the rig of local_rig.h: a volatile write cache. The files hold what reads
 * see; beside them is kept what a power cut leaves for sure, and in what order the rest was
 * written. Failures abort and name the seed.
 */
#ifndef LOCAL_MEDIA_H
#define LOCAL_MEDIA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "local_rig.h"

struct loc_file;

#define CHECK(x)                                                                         \
	do {                                                                             \
		if (!(x)) {                                                              \
			fprintf(stderr, "rig: %s:%d: %s (seed %llu)\n", __FILE__,        \
				__LINE__, #x, (unsigned long long)rig.seed);             \
			abort();                                                         \
		}                                                                        \
	} while (0)

/* Create member @i at @path, rig.file_size bytes. */
void media_begin(unsigned int i, const char *path);
void media_end(void);
/* The store is about to be opened: rig.fail_pwrite_after counts from here. */
void media_opening(void);
/* The member behind the store's descriptor, -1: none. */
int media_of(int fd);
ssize_t media_write(int file, const void *buf, uint32_t len, uint64_t off);
/* The same, and a power cut does not take it any more: RWF_DSYNC. */
ssize_t media_write_durable(int file, const void *buf, uint32_t len, uint64_t off);
/* Member @file, or all (-1), is flushed. */
void media_drain(int file);
/* A write that was under way when the power went: each sector is there or not. */
void media_maybe_keep(int file, uint64_t off, const void *buf, uint32_t len);
/* The same for all that was not flushed; the files then hold what is left. */
void media_cut(void);
/*
 * A value's bytes are about to land: nothing that a power cut could bring back may speak of
 * those units, unless reads see it too, and then it is the value's own header.
 */
void media_check_reuse(const struct loc_file *f, int file, uint64_t off, uint32_t len);

#endif
