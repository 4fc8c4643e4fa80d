/* SPDX-License-Identifier: MIT */
/* The language of the filter "fault" (see fault.c), and when a rule strikes. */
#include "filters/fault.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/text.h"
#include "filters/filter.h"

#define OP(x)	(1u << (x))
#define ALL_OPS	(OP(GKV_OP_FLUSH) | OP(GKV_OP_STORE) | OP(GKV_OP_RETRIEVE) | OP(GKV_OP_LIST) | \
		 OP(GKV_OP_DELETE) | OP(GKV_OP_EXIST))

static const struct {
	const char *name;
	uint32_t ops;
} op_names[] = {
	{ "*", ALL_OPS },
	{ "flush", OP(GKV_OP_FLUSH) },
	{ "store", OP(GKV_OP_STORE) },
	{ "retrieve", OP(GKV_OP_RETRIEVE) },
	{ "list", OP(GKV_OP_LIST) },
	{ "delete", OP(GKV_OP_DELETE) },
	{ "exist", OP(GKV_OP_EXIST) },
};

static const struct {
	const char *name;
	int err;
} err_names[] = {
	{ "eio", EIO },
	{ "enospc", ENOSPC },
	{ "edquot", EDQUOT },
	{ "eacces", EACCES },
	{ "eperm", EPERM },
	{ "erofs", EROFS },
	{ "etimedout", ETIMEDOUT },
	{ "enotconn", ENOTCONN },
	{ "eagain", EAGAIN },
	{ "efbig", EFBIG },
	{ "efault", EFAULT },
	{ "enomem", ENOMEM },
};

static bool parse_ops(struct kvb_fault_rule *r, const char *text)
{
	for (size_t i = 0; i < sizeof(op_names) / sizeof(op_names[0]); i++) {
		if (!strcmp(text, op_names[i].name)) {
			r->ops = op_names[i].ops;
			return true;
		}
	}
	return false;
}

static bool parse_hex(struct kvb_fault_rule *r, const char *hex)
{
	size_t n = strlen(hex);

	if (!n || n % 2 || n / 2 > sizeof(r->prefix) || strspn(hex, "0123456789abcdefABCDEF") != n)
		return false;
	for (size_t i = 0; i < n / 2; i++) {
		char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };

		r->prefix[i] = (uint8_t)strtoul(two, NULL, 16);
	}
	r->prefix_len = (uint8_t)(n / 2);
	return true;
}

static bool parse_prefix(struct kvb_fault_rule *r, const char *text)
{
	size_t n = strlen(text);

	if (!strncmp(text, "0x", 2))
		return parse_hex(r, text + 2);
	if (!n || n > sizeof(r->prefix))
		return false;
	memcpy(r->prefix, text, n);
	r->prefix_len = (uint8_t)n;
	return true;
}

static bool parse_p(struct kvb_fault_rule *r, const char *text)
{
	char *end;
	double p;

	errno = 0;
	p = strtod(text, &end);
	if (end == text || *end || errno || !(p >= 0 && p <= 1))
		return false;
	r->chance = p < 1;
	r->p = r->chance ? (uint64_t)ldexp(p, 64) : 0;
	return true;
}

static bool parse_count(const char *text, uint64_t *out)
{
	return !kvb_text_u64(text, out) && *out >= 1;
}

static bool parse_status(struct kvb_fault_rule *r, const char *text)
{
	uint64_t v;

	if (kvb_text_u64(text, &v) || v > 0x7fff || !GKV_STATUS_CODE(v))
		return false;
	r->status = (uint16_t)v;
	return true;
}

/* "name=value" */
static bool parse_pair(struct kvb_fault_rule *r, const char *name, const char *value)
{
	if (!strcmp(name, "p"))
		return parse_p(r, value);
	if (!strcmp(name, "every"))
		return parse_count(value, &r->every);
	if (!strcmp(name, "after"))
		return parse_count(value, &r->after);
	if (!strcmp(name, "times"))
		return parse_count(value, &r->times);
	if (!strcmp(name, "key"))
		return parse_prefix(r, value);
	if (!strcmp(name, "status"))
		return parse_status(r, value);
	if (!strcmp(name, "slow"))
		return !kvb_text_time(value, &r->slow_ns) && r->slow_ns;
	if (!strcmp(name, "slow-after"))
		return !kvb_text_time(value, &r->slow_after_ns) && r->slow_after_ns;
	return false;
}

static bool parse_word(struct kvb_fault_rule *r, const char *word)
{
	if (!strcmp(word, "lost"))
		return r->lost = true;
	if (!strcmp(word, "lost-after"))
		return r->lost_after = true;
	if (!strcmp(word, "flip"))
		return r->flip = true;
	for (size_t i = 0; i < sizeof(err_names) / sizeof(err_names[0]); i++) {
		if (!strcmp(word, err_names[i].name)) {
			r->err = err_names[i].err;
			return true;
		}
	}
	return false;
}

/* Why the effects of a rule make no sense together, or NULL. */
static const char *contradiction(const struct kvb_fault_rule *r)
{
	int answers = (r->err != 0) + (r->status != 0) + r->lost + r->lost_after;

	if (!answers && !r->slow_ns && !r->slow_after_ns && !r->flip)
		return "it has no effect";
	if (answers > 1)
		return "it has more than one result";
	if ((r->err || r->status || r->lost) && (r->slow_after_ns || r->flip))
		return "what never reaches the store can be neither flipped nor slow afterwards";
	if (r->lost_after && r->slow_after_ns)
		return "what is lost cannot be slow";
	if (r->flip && r->ops & ~(OP(GKV_OP_STORE) | OP(GKV_OP_RETRIEVE)))
		return "only store and retrieve have a value to flip";
	return NULL;
}

/* Takes @text apart in place. */
static int parse_rule(struct kvb_fault_rule *r, char *text, const char *whole, struct kvb_err *err)
{
	char *save = NULL, *part = strtok_r(text, ":", &save);
	const char *why;

	r->every = 1;
	if (!part || !parse_ops(r, part))
		return kvb_fail(err, EINVAL, "fault rule '%s': it must begin with store, retrieve, "
				"delete, exist, list, flush or *", whole);
	while ((part = strtok_r(NULL, ":", &save))) {
		char *eq = strchr(part, '=');
		bool ok;

		if (eq) {
			*eq = 0;
			ok = parse_pair(r, part, eq + 1);
			*eq = '=';
		} else {
			ok = parse_word(r, part);
		}
		if (!ok)
			return kvb_fail(err, EINVAL, "fault rule '%s': '%s' is not understood",
					whole, part);
	}
	why = contradiction(r);
	if (why)
		return kvb_fail(err, EINVAL, "fault rule '%s': %s", whole, why);
	return 0;
}

int kvb_fault_parse(struct kvb_fault *f, const char *text, struct kvb_err *err)
{
	static const char blank[] = " \t\r\n";
	int ret = 0;

	for (text += strspn(text, blank); *text && !ret; text += strspn(text, blank)) {
		size_t n = strcspn(text, blank);
		char whole[128], parts[128];

		if (f->nrules == KVB_FAULT_MAX_RULES)
			return kvb_fail(err, E2BIG, "fault: more than %d rules",
					KVB_FAULT_MAX_RULES);
		if (n >= sizeof(whole))
			return kvb_fail(err, EINVAL, "fault rule '%.40s...' is longer than %zu "
					"characters", text, sizeof(whole) - 1);
		memcpy(whole, text, n);
		whole[n] = 0;
		memcpy(parts, whole, n + 1);
		ret = parse_rule(&f->rules[f->nrules], parts, whole, err);
		f->nrules++;
		text += n;
	}
	return ret;
}

static bool concerns(const struct kvb_fault_rule *r, const struct kvb_op *op)
{
	return r->ops >> (op->opcode & 31) & 1 && op->klen >= r->prefix_len &&
	       !memcmp(op->key, r->prefix, r->prefix_len);
}

const struct kvb_fault_rule *kvb_fault_strike(struct kvb_fault *f, const struct kvb_op *op)
{
	for (unsigned int i = 0; i < f->nrules; i++) {
		struct kvb_fault_rule *r = &f->rules[i];
		uint64_t n;

		if (!concerns(r, op))
			continue;
		n = atomic_fetch_add_explicit(&r->seen, 1, memory_order_relaxed);
		if (n < r->after || (n - r->after) % r->every != r->every - 1)
			continue;
		if (r->chance && kvb_filter_random(f->seed + i, n) >= r->p)
			continue;
		if (r->times && atomic_fetch_add_explicit(&r->fired, 1, memory_order_relaxed) >=
		    r->times)
			continue;
		return r;
	}
	return NULL;
}
