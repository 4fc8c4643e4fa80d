/* SPDX-License-Identifier: MIT */
/* Time, where a reactor's own (kvb_now()) is not at hand. */
#ifndef KVB_CLOCK_H
#define KVB_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC, ns. Any thread. */
static inline uint64_t kvb_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
