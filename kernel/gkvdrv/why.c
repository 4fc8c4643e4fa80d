// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>

#include "gkvdrv.h"

int gkv_refuse(struct gkv_why *why, int err, u32 reason, const char *fmt, ...)
{
	va_list ap;

	why->reason = reason;
	va_start(ap, fmt);
	vscnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	atomic64_inc(&gkv_counters.refused);
	return err;
}
