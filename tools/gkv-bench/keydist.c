/* SPDX-License-Identifier: MIT */
#include "keydist.h"

#include <math.h>
#include <string.h>

/* After Gray et al., "Quickly generating billion-record synthetic databases", 1994. */
void keydist_init(struct keydist *d, uint64_t keys, double theta)
{
	memset(d, 0, sizeof(*d));
	d->keys = keys;
	if (theta <= 0)
		return;
	d->zipf = true;
	d->theta = theta;
	for (uint64_t i = 1; i <= keys; i++)
		d->zetan += pow((double)i, -theta);
	d->half_pow = 1 + pow(0.5, theta);
	d->alpha = 1 / (1 - theta);
	d->eta = keys > 2 ? (1 - pow(2.0 / (double)keys, 1 - theta)) / (1 - d->half_pow / d->zetan)
			  : 1;
}

uint64_t keydist_zipf(const struct keydist *d, uint64_t r)
{
	double u = (double)(r >> 11) * 0x1p-53, uz = u * d->zetan;
	uint64_t rank;

	if (uz < 1)
		rank = 0;
	else if (uz < d->half_pow)
		rank = 1;
	else
		rank = (uint64_t)((double)d->keys * pow(d->eta * u - d->eta + 1, d->alpha));
	if (rank >= d->keys)
		rank = d->keys - 1;
	return below(mix64(rank + 1), d->keys);
}
