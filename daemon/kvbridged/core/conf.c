/* SPDX-License-Identifier: MIT */
#include "conf.h"

#include <errno.h>
#include <inttypes.h>

#include "config/config.h"
#include "config/text.h"

/*
 * Looking a key up is what tells known keys from misspelt ones: kvb_conf_all_used()
 * refuses those nobody asked for. The mark is the one thing about a section that changes.
 */
const char *kvb_conf_get(const struct kvb_conf *c, const char *key)
{
	const struct kvb_conf_key *k = kvb_conf_find(c, key);

	if (!k)
		return NULL;
	kvb_conf_mark_used(c, key);
	return k->value;
}

int kvb_conf_str(const struct kvb_conf *c, const char *key, const char *dflt, const char **out,
		 struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);

	if (v && !*v)
		return kvb_conf_fail(c, key, err, EINVAL, "must not be empty");
	*out = v ? v : dflt;
	return 0;
}

int kvb_conf_bool(const struct kvb_conf *c, const char *key, bool dflt, bool *out,
		  struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);

	*out = dflt;
	if (v && kvb_text_bool(v, out))
		return kvb_conf_fail(c, key, err, EINVAL, "must be on or off");
	return 0;
}

int kvb_conf_u64(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		 uint64_t max, uint64_t *out, struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);
	int ret;

	*out = dflt;
	if (!v)
		return 0;
	ret = kvb_text_u64(v, out);
	if (ret == -EINVAL)
		return kvb_conf_fail(c, key, err, EINVAL,
				     "must be a number from %" PRIu64 " to %" PRIu64, min, max);
	if (ret || *out < min || *out > max)
		return kvb_conf_fail(c, key, err, ERANGE, "must be from %" PRIu64 " to %" PRIu64,
				     min, max);
	return 0;
}

int kvb_conf_size(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		  uint64_t max, uint64_t *out, struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);
	char lo[32], hi[32];
	int ret;

	*out = dflt;
	if (!v)
		return 0;
	kvb_size_text(min, lo, sizeof(lo));
	kvb_size_text(max, hi, sizeof(hi));
	ret = kvb_text_size(v, out);
	if (ret == -EINVAL)
		return kvb_conf_fail(c, key, err, EINVAL,
				     "must be a size like 64M, from %s to %s bytes", lo, hi);
	if (ret || *out < min || *out > max)
		return kvb_conf_fail(c, key, err, ERANGE, "must be from %s to %s bytes", lo, hi);
	return 0;
}

int kvb_conf_time(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		  uint64_t max, uint64_t *out, struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);
	char lo[32], hi[32];
	int ret;

	*out = dflt;
	if (!v)
		return 0;
	kvb_time_text(min, lo, sizeof(lo));
	kvb_time_text(max, hi, sizeof(hi));
	ret = kvb_text_time(v, out);
	if (ret == -EINVAL)
		return kvb_conf_fail(c, key, err, EINVAL,
				     "must be a time like 50us, from %s to %s", lo, hi);
	if (ret || *out < min || *out > max)
		return kvb_conf_fail(c, key, err, ERANGE, "must be from %s to %s", lo, hi);
	return 0;
}
