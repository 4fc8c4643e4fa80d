/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "provider.h"

/*
 * How much a refusal says to somebody who did not choose the provider: that the buffer is
 * elsewhere is what all providers but one will say.
 */
static int weight(uint32_t reason)
{
	switch (reason) {
	case GKVDRV_WHY_PROVIDER:
		return 1;
	case GKVDRV_WHY_ADDRESS:
		return 2;
	case GKVDRV_WHY_EXPORTER:
		return 3;
	case GKVDRV_WHY_SYSTEM:
		return 4;
	default:
		return 5;
	}
}

/* One that does not depend on the provider. */
static bool final(int ret, uint32_t reason)
{
	return !reason && (ret == -EBADF || ret == -EINVAL || ret == -EMFILE || ret == -ENFILE);
}

/*
 * Call @fn with provider @id, or if that is 0, with one after the other until it returns 0:
 * carve-outs, and if @foreign, those of other drivers too. Returns 0 or the most telling
 * refusal, whose text is in gkv_error().
 */
int gkvi_each_provider(int drv, uint32_t id, bool foreign, provider_fn fn, void *arg)
{
	struct gkvdrv_provider p = { .id = 0 };
	char text[320] = "";
	int best = 0, ret, err = 0;
	uint32_t reason = 0;

	if (id)
		return fn(drv, id, arg, &reason);
	for (;;) {
		uint32_t next = p.id + 1;

		memset(&p, 0, sizeof(p));
		p.id = next;
		ret = gkvi_drv_call(drv, GKVDRV_PROVIDER_INFO, &p, sizeof(p), "providers");
		if (ret == -ENOENT)
			break;
		if (ret)
			return ret;
		if (p.kind != GKVDRV_CARVEOUT && !foreign)
			continue;
		reason = GKVDRV_WHY_NONE;
		ret = fn(drv, p.id, arg, &reason);
		if (!ret || final(ret, reason))
			return ret;
		if (weight(reason) > best) {
			best = weight(reason);
			err = ret;
			snprintf(text, sizeof(text), "%s", gkv_error());
		}
	}
	if (!best)
		return gkvi_err(-ENODEV, "there is no provider of GPU memory%s (see "
					 "/sys/class/misc/gkv/providers)",
				foreign ? "" : " to allocate from");
	return gkvi_err(err, "%s", text);
}
