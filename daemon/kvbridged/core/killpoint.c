/* SPDX-License-Identifier: MIT */
#include "core/killpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const char *kvb_killpoint_name;
static _Atomic long kvb_killpoint_left;

void kvb_killpoint_init(void)
{
	const char *env = getenv("GKV_KILLPOINT");
	char *name, *colon;

	if (!env || !*env)
		return;
	name = strdup(env);
	if (!name)
		return;
	colon = strchr(name, ':');
	if (colon)
		*colon = '\0';
	kvb_killpoint_left = colon ? strtol(colon + 1, NULL, 10) : 1;
	kvb_killpoint_name = name;
}

void kvb_killpoint_hit(const char *name)
{
	if (!strcmp(name, kvb_killpoint_name) && --kvb_killpoint_left == 0)
		raise(SIGKILL);
}
