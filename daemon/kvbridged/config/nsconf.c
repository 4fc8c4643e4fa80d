/* SPDX-License-Identifier: MIT */
#include "config/nsconf.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <uuid/uuid.h>

#include "config/text.h"

#define DEADLINE_DEFAULT UINT64_C(5000000000)
#define DEADLINE_MIN UINT64_C(1000000)
#define DEADLINE_MAX UINT64_C(3600000000000)
#define VALUE_MAX_DEFAULT (UINT64_C(64) << 20)

static const char *const rights[] = { "none", "ro", "rw" };

static const char *const layer_names[] = {
#define KVB_STORE(name) #name,
#include "stores/table.def"
#undef KVB_STORE
};

const char *kvb_nsconf_name(const char *section)
{
	static const char head[] = "namespace ";
	const char *name = section + sizeof(head) - 1;

	if (strncmp(section, head, sizeof(head) - 1))
		return NULL;
	/* It becomes part of a file's name and of a setting's. */
	if (!isalnum((unsigned char)*name) || strlen(name) > KVB_NAME_MAX)
		return NULL;
	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_')
			return NULL;
	return name;
}

static bool layer_known(const char *name)
{
	for (size_t i = 0; i < sizeof(layer_names) / sizeof(layer_names[0]); i++)
		if (!strcmp(layer_names[i], name))
			return true;
	return false;
}

bool kvb_nsconf_known(const char *key)
{
	static const char *const own[] = { "nsid", "stack", "deadline", "durability", "verify",
					   "read_only", "value_max", "access", "uuid",
					   "allow_bounce" };
	size_t dot = strcspn(key, ".");

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(own[i], key))
			return true;
	for (size_t i = 0; key[dot] && i < sizeof(layer_names) / sizeof(layer_names[0]); i++)
		if (strlen(layer_names[i]) == dot && !strncmp(layer_names[i], key, dot))
			return true;
	return false;
}

static int parse_stack(const struct kvb_conf *c, struct kvb_nsconf *out, struct kvb_err *err)
{
	const char *text;
	const char *p;
	int ret = kvb_conf_str(c, "stack", NULL, &text, err);

	if (ret)
		return ret;
	if (!text)
		return kvb_conf_fail(c, NULL, err, EINVAL, "stack is missing, e.g. stack = mem");
	for (p = text;; p++) {
		size_t len;
		char *name;

		p += strspn(p, " \t");
		len = strcspn(p, ", \t");
		if (out->nlayers == KVB_MAX_LAYERS)
			return kvb_conf_fail(c, "stack", err, ERANGE, "at most %d layers",
					     KVB_MAX_LAYERS);
		name = out->layers[out->nlayers];
		if (len >= sizeof(out->layers[0]))
			len = sizeof(out->layers[0]) - 1;
		memcpy(name, p, len);
		name[len] = '\0';
		if (!layer_known(name))
			return kvb_conf_fail(c, "stack", err, EINVAL, "no store or filter \"%s\"",
					     name);
		/* A second one could not be told apart by its keys. */
		for (unsigned int i = 0; i < out->nlayers; i++)
			if (!strcmp(out->layers[i], name))
				return kvb_conf_fail(c, "stack", err, EINVAL, "\"%s\" twice", name);
		out->nlayers++;
		p += strcspn(p, ", \t");
		p += strspn(p, " \t");
		if (!*p)
			return 0;
		if (*p != ',')
			return kvb_conf_fail(c, "stack", err, EINVAL,
					     "layers are separated by commas");
	}
}

/* @who is "uid:NAME" or "gid:NAME": find the number. */
static int resolve(const char *who, char *out, size_t size)
{
	const char *name = who + 4;
	uint64_t n;
	bool user;

	if (strncmp(who, "uid:", 4) && strncmp(who, "gid:", 4))
		return -EINVAL;
	user = *who == 'u';
	if (kvb_text_u64(name, &n)) {
		const struct passwd *pw = user ? getpwnam(name) : NULL;
		const struct group *gr = user ? NULL : getgrnam(name);

		if (!pw && !gr)
			return -ENOENT;
		n = pw ? pw->pw_uid : gr->gr_gid;
	}
	/* (uid_t)-1 means nobody at all in the kernel's interfaces. */
	if (n >= UINT32_MAX)
		return -ERANGE;
	snprintf(out, size, "%.4s%u", who, (unsigned int)n);
	return 0;
}

/* Rules like "uid:0:rw gid:video:rw uid:1000:ro *:ro", separated by spaces or commas. */
static int parse_access(const struct kvb_conf *c, struct kvb_nsconf *out, struct kvb_err *err)
{
	const char *p;
	size_t used = 0;
	int ret = kvb_conf_str(c, "access", NULL, &p, err);

	if (ret)
		return ret;
	if (!p) {
		snprintf(out->access, sizeof(out->access), "uid:0:rw uid:%u:rw", geteuid());
		return 0;
	}
	for (p += strspn(p, " ,\t"); *p; p += strspn(p, " ,\t")) {
		size_t len = strcspn(p, " ,\t");
		char rule[80], who[24], *right;
		int n, r;

		if (len >= sizeof(rule))
			return kvb_conf_fail(c, "access", err, EINVAL, "a rule is too long");
		memcpy(rule, p, len);
		rule[len] = '\0';
		p += len;
		right = strrchr(rule, ':');
		for (r = 0; right && r < 3 && strcmp(right + 1, rights[r]); r++)
			;
		if (!right || r == 3)
			return kvb_conf_fail(c, "access", err, EINVAL,
					     "\"%.24s\": a rule ends in :rw, :ro or :none", rule);
		*right = '\0';
		ret = 0;
		if (!strcmp(rule, "*"))
			strcpy(who, "*");
		else
			ret = resolve(rule, who, sizeof(who));
		if (ret == -EINVAL)
			return kvb_conf_fail(c, "access", err, EINVAL,
					     "\"%.24s\": a rule starts with uid:, gid: or *", rule);
		if (ret)
			return kvb_conf_fail(c, "access", err, EINVAL, "no such %s: \"%.24s\"",
					     *rule == 'u' ? "user" : "group", rule + 4);
		n = snprintf(out->access + used, sizeof(out->access) - used, "%s%s:%s",
			     used ? " " : "", who, rights[r]);
		used += (size_t)n;
		if (used >= sizeof(out->access))
			return kvb_conf_fail(c, "access", err, ERANGE, "too many rules");
	}
	return 0;
}

int kvb_access_check(const char *access, uid_t uid, gid_t gid, const gid_t *groups, int ngroups)
{
	const char *p = access;

	while (*p) {
		char who[24];
		char right[8];
		unsigned int id = 0;
		bool fits;
		int n = 0;

		p += strspn(p, " ");
		if (sscanf(p, "*:%7[a-z]%n", right, &n) == 1) {
			fits = true;
		} else if (sscanf(p, "%3[a-z]:%u:%7[a-z]%n", who, &id, right, &n) == 3) {
			fits = *who == 'u' ? uid == id : gid == id;
			for (int i = 0; *who == 'g' && !fits && i < ngroups; i++)
				fits = groups[i] == id;
		} else {
			return 0;
		}
		for (int r = 0; fits && r < 3; r++)
			if (!strcmp(right, rights[r]))
				return r;
		p += n;
	}
	return 0;
}

static int parse_values(const struct kvb_conf *c, struct kvb_nsconf *out, struct kvb_err *err)
{
	const char *text;
	uint64_t v;
	int ret;

	ret = kvb_conf_u64(c, "nsid", 0, 1, KVB_NSID_MAX, &v, err);
	if (ret)
		return ret;
	if (!v)
		return kvb_conf_fail(c, NULL, err, EINVAL, "nsid is missing, e.g. nsid = 1");
	out->nsid = (uint32_t)v;
	ret = kvb_conf_time(c, "deadline", DEADLINE_DEFAULT, DEADLINE_MIN, DEADLINE_MAX,
			    &out->deadline_ns, err);
	if (ret)
		return ret;
	ret = kvb_conf_size(c, "value_max", VALUE_MAX_DEFAULT, 1, KVB_VALUE_MAX, &v, err);
	if (ret)
		return ret;
	out->value_max = (uint32_t)v;
	ret = kvb_conf_bool(c, "verify", true, &out->verify, err);
	if (ret)
		return ret;
	ret = kvb_conf_bool(c, "read_only", false, &out->read_only, err);
	if (ret)
		return ret;
	ret = kvb_conf_bool(c, "allow_bounce", false, &out->allow_bounce, err);
	if (ret)
		return ret;
	ret = kvb_conf_str(c, "durability", "async", &text, err);
	if (ret)
		return ret;
	out->sync = !strcmp(text, "sync");
	if (!out->sync && strcmp(text, "async"))
		return kvb_conf_fail(c, "durability", err, EINVAL, "must be async or sync");
	ret = kvb_conf_str(c, "uuid", NULL, &text, err);
	if (ret)
		return ret;
	out->has_uuid = text;
	if (text && uuid_parse(text, out->uuid))
		return kvb_conf_fail(c, "uuid", err, EINVAL, "must be a UUID");
	return 0;
}

int kvb_nsconf_parse(const struct kvb_conf *c, struct kvb_nsconf *out, struct kvb_err *err)
{
	const char *name = kvb_nsconf_name(c->section);
	int ret;

	memset(out, 0, sizeof(*out));
	if (!name)
		return kvb_conf_fail(c, NULL, err, EINVAL,
				     "a namespace's name is 1 to %d letters, digits, - and _",
				     KVB_NAME_MAX);
	strcpy(out->name, name);
	ret = parse_stack(c, out, err);
	if (!ret)
		ret = parse_values(c, out, err);
	if (!ret)
		ret = parse_access(c, out, err);
	if (ret)
		return ret;

	for (size_t i = 0; i < c->nkeys; i++) {
		const struct kvb_conf_key *k = &c->keys[i];
		const char *dot = strchr(k->name, '.');
		unsigned int l = 0;

		if (!dot && !k->used)
			return kvb_conf_fail(c, k->name, err, EINVAL, "unknown key");
		if (!dot)
			continue;
		while (l < out->nlayers &&
		       (strncmp(out->layers[l], k->name, (size_t)(dot - k->name)) ||
			out->layers[l][dot - k->name]))
			l++;
		if (l == out->nlayers)
			return kvb_conf_fail(c, k->name, err, EINVAL,
					     "\"%.*s\" is not in the stack",
					     (int)(dot - k->name > 20 ? 20 : dot - k->name),
					     k->name);
	}
	return 0;
}
