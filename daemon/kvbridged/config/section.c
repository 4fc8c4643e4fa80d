/* SPDX-License-Identifier: MIT */
/*
 * Sections: lists of keys with the place each was written at.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int kvb_conf_add(struct kvb_conf *c, const char *name, const char *value, unsigned int line,
		 enum kvb_origin origin, struct kvb_err *err)
{
	struct kvb_conf_key *k;

	if (c->nkeys == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 16;

		k = realloc(c->keys, cap * sizeof(*k));
		if (!k)
			return kvb_fail(err, ENOMEM, "out of memory for the configuration");
		c->keys = k;
		c->cap = cap;
	}
	k = &c->keys[c->nkeys];
	k->name = strdup(name);
	k->value = strdup(value);
	k->line = line;
	k->origin = origin;
	k->used = false;
	if (!k->name || !k->value) {
		free(k->name);
		free(k->value);
		return kvb_fail(err, ENOMEM, "out of memory for the configuration");
	}
	c->nkeys++;
	return 0;
}

void kvb_conf_clear(struct kvb_conf *c)
{
	for (size_t i = 0; i < c->nkeys; i++) {
		free(c->keys[i].name);
		free(c->keys[i].value);
	}
	free(c->keys);
	c->keys = NULL;
	c->nkeys = 0;
	c->cap = 0;
}

/* The key as its owner names it, or NULL when it is another layer's. */
static const char *local_name(const struct kvb_conf *c, const struct kvb_conf_key *k)
{
	size_t len = strlen(c->prefix);

	return strncmp(k->name, c->prefix, len) ? NULL : k->name + len;
}

const struct kvb_conf_key *kvb_conf_find(const struct kvb_conf *c, const char *name)
{
	const struct kvb_conf_key *best = NULL;

	for (size_t i = 0; i < c->nkeys; i++) {
		const struct kvb_conf_key *k = &c->keys[i];
		const char *n = local_name(c, k);

		if (n && !strcmp(n, name) && (!best || k->origin > best->origin))
			best = k;
	}
	return best;
}

void kvb_conf_mark_used(const struct kvb_conf *c, const char *name)
{
	for (size_t i = 0; i < c->nkeys; i++) {
		const char *n = local_name(c, &c->keys[i]);

		if (n && !strcmp(n, name))
			c->keys[i].used = true;
	}
}

struct kvb_conf kvb_conf_layer(const struct kvb_conf *c, const char *layer)
{
	struct kvb_conf view = *c;

	snprintf(view.prefix, sizeof(view.prefix), "%s.", layer);
	view.cap = 0;
	return view;
}

int kvb_conf_all_used(const struct kvb_conf *c, struct kvb_err *err)
{
	for (size_t i = 0; i < c->nkeys; i++) {
		const char *n = local_name(c, &c->keys[i]);

		if (n && !c->keys[i].used)
			return kvb_conf_fail(c, n, err, EINVAL, "unknown key");
	}
	return 0;
}

int kvb_conf_fail(const struct kvb_conf *c, const char *key, struct kvb_err *err, int errnum,
		  const char *fmt, ...)
{
	const struct kvb_conf_key *k = key ? kvb_conf_find(c, key) : NULL;
	const char *file = c->file ? c->file : "configuration";
	char why[sizeof(err->text)];
	char value[48] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	/* Room for the reason comes first: a long path or value is cut, and shows it. */
	if (strlen(file) > 60)
		file = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
	if (k) {
		snprintf(value, sizeof(value), " = %.32s%s", k->value,
			 strlen(k->value) > 32 ? "..." : "");
		if (k->origin == KVB_ORIGIN_CMDLINE)
			return kvb_fail(err, errnum, "option %s%s%s: %s", c->prefix, key, value,
					why);
	}
	if (!key)
		return kvb_fail(err, errnum, "%s:%u: [%s] %s", file, c->line, c->section, why);
	return kvb_fail(err, errnum, "%s:%u: [%s] %s%s%s: %s", file, k ? k->line : c->line,
			c->section, c->prefix, key, value, why);
}
