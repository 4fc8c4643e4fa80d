/* SPDX-License-Identifier: MIT */
#include "config/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit sizes[] = {
	{ "", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ NULL, 0 },
};

static const struct unit times[] = {
	{ "", 1 },
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000000 },
	{ "s", 1000000000 },
	{ NULL, 0 },
};

/* A run of digits at the start of @text; strtoull alone would take signs and spaces. */
static int digits(const char *text, int base, uint64_t *out, const char **end)
{
	char *e;

	if (base == 16 ? !isxdigit((unsigned char)*text) : !isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	*out = strtoull(text, &e, base);
	*end = e;
	return -errno;
}

static int scaled(const char *text, const struct unit *u, uint64_t *out)
{
	const char *end;
	uint64_t v;
	int ret = digits(text, 10, &v, &end);

	if (ret)
		return ret;
	while (*end == ' ')
		end++;
	for (; u->suffix; u++) {
		if (strcmp(end, u->suffix))
			continue;
		return __builtin_mul_overflow(v, u->factor, out) ? -ERANGE : 0;
	}
	return -EINVAL;
}

int kvb_text_u64(const char *text, uint64_t *out)
{
	int base = 10;
	const char *end;
	int ret;

	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
		base = 16;
		text += 2;
	}
	ret = digits(text, base, out, &end);
	if (ret)
		return ret;
	return *end ? -EINVAL : 0;
}

int kvb_text_octal(const char *text, uint64_t *out)
{
	const char *end;
	int ret = digits(text, 8, out, &end);

	if (ret)
		return ret;
	return *end ? -EINVAL : 0;
}

int kvb_text_size(const char *text, uint64_t *out)
{
	return scaled(text, sizes, out);
}

int kvb_text_time(const char *text, uint64_t *out)
{
	return scaled(text, times, out);
}

int kvb_text_bool(const char *text, bool *out)
{
	static const char *const on[] = { "on", "yes", "true", "1" };
	static const char *const off[] = { "off", "no", "false", "0" };

	for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
		if (!strcasecmp(text, on[i])) {
			*out = true;
			return 0;
		}
		if (!strcasecmp(text, off[i])) {
			*out = false;
			return 0;
		}
	}
	return -EINVAL;
}

static const char *unscaled(uint64_t v, const struct unit *u, char *buf, size_t len)
{
	const struct unit *best = u;

	for (; v && u->suffix; u++)
		if (v % u->factor == 0)
			best = u;
	snprintf(buf, len, "%" PRIu64 "%s", v / best->factor, best->suffix);
	return buf;
}

const char *kvb_size_text(uint64_t bytes, char *buf, size_t len)
{
	return unscaled(bytes, sizes, buf, len);
}

const char *kvb_time_text(uint64_t ns, char *buf, size_t len)
{
	return unscaled(ns, times, buf, len);
}
