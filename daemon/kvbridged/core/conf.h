/* SPDX-License-Identifier: MIT */
/*
 * Typed access to the keys of one configuration section. A store sees only its own
 * keys: "local.path" in a namespace's section is "path" to the local store.
 */
#ifndef KVB_CONF_H
#define KVB_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct kvb_conf;

/* The raw text, or NULL. Valid as long as the configuration. */
const char *kvb_conf_get(const struct kvb_conf *c, const char *key);

/*
 * Each stores @dflt when the key is absent and fails with -EINVAL or -ERANGE, naming
 * key, value and limits, when it is malformed or out of range.
 */
int kvb_conf_str(const struct kvb_conf *c, const char *key, const char *dflt, const char **out,
		 struct kvb_err *err);
int kvb_conf_bool(const struct kvb_conf *c, const char *key, bool dflt, bool *out,
		  struct kvb_err *err);
int kvb_conf_u64(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		 uint64_t max, uint64_t *out, struct kvb_err *err);
/* Bytes; suffixes K, M, G, T are binary. */
int kvb_conf_size(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		  uint64_t max, uint64_t *out, struct kvb_err *err);
/* Nanoseconds; suffixes ns, us, ms, s; a bare number is nanoseconds. */
int kvb_conf_time(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		  uint64_t max, uint64_t *out, struct kvb_err *err);

#endif
