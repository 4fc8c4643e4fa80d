/* SPDX-License-Identifier: MIT */
/* Loading the libraries of GPU vendors, and naming what they return. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

/*
 * Load the first of @files that is there, or the one that environment variable @env names,
 * and set all @symbols, the last of which has no name. @what the library is, for the text. It
 * stays loaded: these libraries have threads, and handlers for the end of the process.
 * Caller holds gkvi_gpu_lock. Returns 0, -ENODEV, or -EOPNOTSUPP when it lacks a symbol.
 */
int gkvi_gpu_load(const char *env, const char *const *files, const char *what,
		  const struct gpu_symbol *symbols)
{
	const char *file = secure_getenv(env);
	const char *one[2] = { file, NULL };
	void *lib = NULL;
	char why[160] = "";

	if (file && *file)
		files = one;
	for (; *files && !lib; files++) {
		file = *files;
		lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
		if (!lib && !why[0])
			snprintf(why, sizeof(why), "%s", dlerror());
	}
	if (!lib)
		return gkvi_err(-ENODEV, "there is no %s: %s", what, why);
	for (; symbols->name; symbols++) {
		void *sym = dlsym(lib, symbols->name);

		if (!sym) {
			dlclose(lib);
			return gkvi_err(-EOPNOTSUPP, "%s has no %s: the driver is too old", file,
					symbols->name);
		}
		memcpy(symbols->to, &sym, sizeof(sym));
	}
	return 0;
}

/*
 * The text "what: CODE name", and the errno for error @code of CUDA or HIP, which agree on
 * these numbers.
 */
int gkvi_gpu_err(int code, const char *name, const char *fmt, ...)
{
	char what[200];
	va_list ap;
	int err;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	switch (code) {
	case 1:
		err = -EINVAL;
		break;
	case 2:
		err = -ENOMEM;
		break;
	case 100:	/* no device */
	case 101:	/* no such device */
		err = -ENODEV;
		break;
	case 712:	/* registered already */
		err = -EEXIST;
		break;
	case 800:	/* not permitted */
		err = -EACCES;
		break;
	case 801:	/* not supported */
		err = -EOPNOTSUPP;
		break;
	default:
		err = -EIO;
	}
	return gkvi_err(err, "%s: error %d (%s)", what, code, name ? name : "?");
}
