/* SPDX-License-Identifier: MIT */
/*
 * A GPU vendor's library without a GPU: gpu_stub_lib.c, which a test compiles and loads as the
 * real one is loaded. Memory of the device is memory of the process, but registered memory has
 * other addresses there. Include in one file of a program.
 */
#ifndef TESTS_GPU_STUB_H
#define TESTS_GPU_STUB_H

#include <stdint.h>

/* What the library says and has seen: its symbol "gpu_stub". Later fields are counts. */
struct gpu_stub {
	int (*has)(const void *p);	/* is it the device's address of registered memory? */
	const char *fail;	/* this function returns @code, after @skip more calls */
	int code, skip;
	int devices, major, map_host, dmabuf, ordering;
	int khz, large_bar;	/* HIP */
	uint32_t pool_flags, info_size;
	int no_info;		/* hsa_amd_pointer_info() fails */
	int can_wait;		/* streams can wait for memory */
	int capturing;		/* what a stream says */

	/*
	 * The program's streams, each with a thread that does what is enqueued, in order. A
	 * "kernel" is a function of the program. free() gives up what is left, and waits.
	 */
	void *(*stream_new)(void);
	void (*stream_free)(void *stream);
	void (*stream_sync)(void *stream);
	void (*launch)(void *stream, void (*kernel)(void *), void *arg);

	int contexts, entered, streams, registered, allocated;
	int device;		/* HIP: current */
	int copied, written, waited;	/* operations on the program's streams */
	uint64_t bytes;			/* that were copied */
	uint64_t sync_memops, exported;	/* addresses of the last ones */
	uint32_t export_len;
};

#ifndef GPU_STUB_LIB
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char gpu_stub_dir[32];		/* empty: not made yet */

/* Compile it to @name with @flags, and have $@env name that. */
static inline int gpu_stub_build(const char *env, const char *name, const char *flags)
{
	const char *cc = getenv("CC");
	char path[96], cmd[512], src[256] = __FILE__, *end = strrchr(src, '/');

	if (!gpu_stub_dir[0]) {
		strcpy(gpu_stub_dir, "/tmp/gkv-gpu-stub-XXXXXX");
		if (!mkdtemp(gpu_stub_dir))
			return -1;
	}
	snprintf(path, sizeof(path), "%s/%s", gpu_stub_dir, name);
	*end = 0;
	snprintf(cmd, sizeof(cmd), "%s -std=gnu11 -O1 -g -Wall -Wextra -Werror -shared -fPIC "
		 "%s -o %s %s/gpu_stub_lib.c", cc ? cc : "cc", flags, path, src);
	return system(cmd) || setenv(env, path, 1) ? -1 : 0;
}

/* Of the library that $@env names. */
static inline struct gpu_stub *gpu_stub_of(const char *env)
{
	void *lib = dlopen(getenv(env), RTLD_NOW);

	return lib ? dlsym(lib, "gpu_stub") : NULL;
}

static inline void gpu_stub_clean(void)
{
	char cmd[64];

	if (!gpu_stub_dir[0])
		return;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", gpu_stub_dir);
	if (system(cmd))
		perror(cmd);
}
#endif

#endif
