/* SPDX-License-Identifier: MIT */
/* The text behind gkv_error(): one line for each thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "impl.h"

static __thread char error_text[320];

const char *gkv_error(void)
{
	return error_text;
}

uint32_t gkv_version(void)
{
	return 0x000100;
}

/* Set the calling thread's error text and return @err. */
int gkvi_err(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error_text, sizeof(error_text), fmt, ap);
	va_end(ap);
	return err;
}

void gkvi_err_text(const char *text)
{
	snprintf(error_text, sizeof(error_text), "%s", text);
}
