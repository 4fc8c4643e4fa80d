/* SPDX-License-Identifier: MIT */
/*
 * TAP output for test programs that are not cmocka's.
 */
#include <stdarg.h>
#include <stdio.h>

#include "rig.h"

static unsigned int count;
static unsigned int failed;

bool tap_ok(bool ok, const char *fmt, ...)
{
	va_list ap;

	count++;
	if (!ok)
		failed++;
	printf("%sok %u - ", ok ? "" : "not ", count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	return ok;
}

void tap_skip(const char *reason, const char *fmt, ...)
{
	va_list ap;

	count++;
	printf("ok %u - ", count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(" # SKIP %s\n", reason);
	fflush(stdout);
}

void tap_diag(const char *fmt, ...)
{
	va_list ap;

	fputs("# ", stdout);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

int tap_done(void)
{
	printf("1..%u\n", count);
	return failed || !count;
}
