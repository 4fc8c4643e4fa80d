// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>

#include "gkvdrv.h"

int gkv_need_p2pdma(struct gkv_why *why)
{
	if (IS_ENABLED(CONFIG_PCI_P2PDMA))
		return 0;
	return gkv_refuse(why, -EOPNOTSUPP, GKVDRV_WHY_P2PDMA,
			  "VRAM cannot be used: this kernel is built without CONFIG_PCI_P2PDMA");
}

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
