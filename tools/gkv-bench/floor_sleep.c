/* SPDX-License-Identifier: MIT */
/*
 * What it costs to do nothing: a thread that sleeps 1 ms again and again. That is
 * the least a daemon spends that looks at a doorbell every millisecond, and in a
 * virtual machine it is not little.
 */
#include "floor.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "util.h"

static uint64_t own_cpu_time(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "re");
	uint64_t ns = 0;

	if (!f || fscanf(f, "%" SCNu64, &ns) != 1)
		ns = 0;
	if (f)
		fclose(f);
	return ns;
}

void floor_sleep(const struct floor_opts *o, struct floor_report *report)
{
	const struct timespec ts = { .tv_nsec = 1000000 };
	struct floor_result *res = floor_add(report, "sleep 1 ms, repeatedly");
	uint64_t start, cpu, sleeps = 0, spent;

	pin_to(o->cpu_server);
	cpu = own_cpu_time();
	if (!cpu) {
		res->skipped = true;
		snprintf(res->why, sizeof(res->why),
			 "this kernel has no /proc/thread-self/schedstat");
		return;
	}
	start = now_ns();
	do {
		nanosleep(&ts, NULL);
		sleeps++;
		spent = now_ns() - start;
	} while (spent < o->time_ns);
	res->cores = (double)(own_cpu_time() - cpu) / (double)spent;
	res->per_s = (double)sleeps * 1e9 / (double)spent;
}
