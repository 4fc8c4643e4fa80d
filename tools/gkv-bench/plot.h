/* SPDX-License-Identifier: MIT */
/* Latency distributions as an SVG picture: histogram above, cumulative share below. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stddef.h>

#include "hist.h"

struct plot_series {
	const char *name;
	const struct hist *hist;
	double ns_per_unit;		/* nanoseconds per unit of @hist */
};

/*
 * Write @path. Series without values are left out. Returns 0 or a negative errno;
 * -ENODATA when there is nothing to show.
 */
int plot_write(const char *path, const char *title, const char *subtitle,
	       const struct plot_series *series, size_t n);

#endif /* BENCH_PLOT_H */
