/* SPDX-License-Identifier: MIT */
#include "rados_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const struct rados_api *rados_api_load(char *why, size_t n)
{
	static struct rados_api api;
	void *lib, *sym;

	if (api.version)
		return &api;
	lib = dlopen("librados.so.2", RTLD_NOW);
	if (!lib) {
		snprintf(why, n, "librados is not installed (Debian package librados2): %s",
			 dlerror());
		return NULL;
	}
#define LOAD(ret, name, args)                                                      \
	sym = dlsym(lib, "rados_" #name);                                          \
	if (!sym) {                                                                \
		snprintf(why, n, "librados.so.2 lacks rados_" #name                \
				 ": Ceph 16 or later is needed");                  \
		memset(&api, 0, sizeof(api));                                      \
		return NULL;                                                       \
	}                                                                          \
	memcpy(&api.name, &sym, sizeof(sym));
	RADOS_FUNCTIONS(LOAD)
#undef LOAD
	return &api;
}
