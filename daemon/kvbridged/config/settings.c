/* SPDX-License-Identifier: MIT */
#include "config/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>
#include <uuid/uuid.h>

#include "config/nsconf.h"

struct kvb_live kvb_live;

static struct kvb_config *conf;
static enum kvb_origin origins[32];	/* by index in kvb_daemon_keys */

static const char *const origin_names[] = { "default", "file", "live", "sysfs",
						   "command line" };

static uint64_t value_of(const struct kvb_key *k)
{
	return *(const uint64_t *)((const char *)conf + k->offset);
}

static void publish(void)
{
	atomic_store_explicit(&kvb_live.poll_interval_ns, conf->poll_interval_ns,
			      memory_order_relaxed);
	atomic_store_explicit(&kvb_live.spin_ns, conf->spin_ns, memory_order_relaxed);
	atomic_store_explicit(&kvb_live.max_queue_depth, (uint32_t)conf->max_queue_depth,
			      memory_order_relaxed);
	atomic_store_explicit(&kvb_live.log_level, (int)conf->log_level, memory_order_relaxed);
	kvb_log_set_level((enum kvb_log_level)conf->log_level);
}

void kvb_settings_init(struct kvb_config *cfg)
{
	conf = cfg;
	for (size_t i = 0; i < kvb_daemon_nkeys; i++) {
		const struct kvb_conf_key *k =
			kvb_conf_find(&cfg->daemon, kvb_daemon_keys[i].name);

		origins[i] = k ? k->origin : KVB_ORIGIN_DEFAULT;
	}
	publish();
}

/* True for NAME.KEY of a configured namespace, which takes effect at the next start only. */
static bool is_ns_setting(const char *name)
{
	const char *dot = strchr(name, '.');

	for (size_t i = 0; dot && i < conf->nns; i++) {
		const char *ns = kvb_nsconf_name(conf->ns[i].section);

		if (ns && strlen(ns) == (size_t)(dot - name) &&
		    !strncmp(ns, name, (size_t)(dot - name)))
			return true;
	}
	return false;
}

static int set(const char *name, const char *text, enum kvb_origin origin, struct kvb_err *err)
{
	const struct kvb_key *k;
	struct kvb_err why;
	size_t i = 0;
	uint64_t v;
	int ret;

	while (i < kvb_daemon_nkeys && strcmp(kvb_daemon_keys[i].name, name))
		i++;
	if (i == kvb_daemon_nkeys && !is_ns_setting(name))
		return kvb_fail(err, ENOENT, "no setting \"%.64s\"", name);
	k = &kvb_daemon_keys[i];
	if (i == kvb_daemon_nkeys || !k->live)
		return kvb_fail(err, EPERM, "%.64s takes effect at start only: set it in the "
				"configuration file", name);
	if (origins[i] == KVB_ORIGIN_CMDLINE && origin == KVB_ORIGIN_SYSFS)
		return 0;
	if (origins[i] == KVB_ORIGIN_CMDLINE)
		return kvb_fail(err, EBUSY,
				"%s is set on the command line, which has precedence", name);
	ret = kvb_key_parse(k, text, &v, &why);
	if (ret)
		return kvb_fail(err, -ret, "%s = %.32s: %s", name, text, why.text);
	*(uint64_t *)((char *)conf + k->offset) = v;
	origins[i] = origin;
	publish();
	return 0;
}

int kvb_settings_set(const char *name, const char *text, struct kvb_err *err)
{
	return set(name, text, KVB_ORIGIN_LIVE, err);
}

int kvb_settings_follow(const char *name, const char *text, struct kvb_err *err)
{
	return set(name, text, KVB_ORIGIN_SYSFS, err);
}

static struct json_object *cpu_list(void)
{
	char text[KVB_MAX_REACTORS * 5 + 1] = "";
	size_t len = 0;

	for (unsigned int i = 0; i < conf->ncpus; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u", i ? "," : "",
					conf->cpus[i]);
	return json_object_new_string(text);
}

static struct json_object *json_value(const struct kvb_key *k)
{
	const char *text;
	char buf[40];

	switch (k->kind) {
	case KVB_KEY_TEXT:
		text = *(const char *const *)((const char *)conf + k->offset);
		return json_object_new_string(text ? text : "");
	case KVB_KEY_CPUS:
		return cpu_list();
	case KVB_KEY_UUID:
		uuid_unparse_lower((const uint8_t *)conf + k->offset, buf);
		return json_object_new_string(buf);
	case KVB_KEY_OCTAL:
	case KVB_KEY_LEVEL:
		return json_object_new_string(kvb_key_text(k, value_of(k), buf, sizeof(buf)));
	default:
		return json_object_new_uint64(value_of(k));
	}
}

static struct json_object *entry(struct json_object *list, const char *name,
				 struct json_object *value, enum kvb_origin origin, bool live)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "name", json_object_new_string(name));
	json_object_object_add(o, "value", value);
	json_object_object_add(o, "origin", json_object_new_string(origin_names[origin]));
	json_object_object_add(o, "live", json_object_new_boolean(live));
	json_object_array_add(list, o);
	return o;
}

static void add_ns(struct json_object *list, const struct kvb_conf *c)
{
	struct kvb_nsconf nc;
	struct {
		const char *name;
		struct json_object *value;
		const char *unit;
	} v[7];

	if (kvb_nsconf_parse(c, &nc, NULL))
		return;
	v[0].name = "deadline";
	v[0].value = json_object_new_uint64(nc.deadline_ns);
	v[0].unit = "ns";
	v[1].name = "value_max";
	v[1].value = json_object_new_uint64(nc.value_max);
	v[1].unit = "bytes";
	v[2].name = "durability";
	v[2].value = json_object_new_string(nc.sync ? "sync" : "async");
	v[2].unit = NULL;
	v[3].name = "verify";
	v[3].value = json_object_new_boolean(nc.verify);
	v[3].unit = NULL;
	v[4].name = "read_only";
	v[4].value = json_object_new_boolean(nc.read_only);
	v[4].unit = NULL;
	v[5].name = "access";
	v[5].value = json_object_new_string(nc.access);
	v[5].unit = NULL;
	v[6].name = "allow_bounce";
	v[6].value = json_object_new_boolean(nc.allow_bounce);
	v[6].unit = NULL;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		const struct kvb_conf_key *k = kvb_conf_find(c, v[i].name);
		struct json_object *o;
		char name[80];

		snprintf(name, sizeof(name), "%s.%s", nc.name, v[i].name);
		o = entry(list, name, v[i].value, k ? k->origin : KVB_ORIGIN_DEFAULT, false);
		if (v[i].unit)
			json_object_object_add(o, "unit", json_object_new_string(v[i].unit));
	}
	/* The layers' keys as they were written: their limits are the layers' own. */
	for (size_t i = 0; i < c->nkeys; i++) {
		char name[160];

		if (!strchr(c->keys[i].name, '.') && strcmp(c->keys[i].name, "stack"))
			continue;
		snprintf(name, sizeof(name), "%s.%s", nc.name, c->keys[i].name);
		entry(list, name, json_object_new_string(c->keys[i].value), c->keys[i].origin,
		      false);
	}
}

struct json_object *kvb_settings_json(void)
{
	struct json_object *list = json_object_new_array();

	if (!list)
		return NULL;
	for (size_t i = 0; i < kvb_daemon_nkeys; i++) {
		const struct kvb_key *k = &kvb_daemon_keys[i];
		struct json_object *o = entry(list, k->name, json_value(k), origins[i], k->live);

		if (k->kind != KVB_KEY_COUNT && k->kind != KVB_KEY_SIZE && k->kind != KVB_KEY_TIME)
			continue;
		json_object_object_add(o, "min", json_object_new_uint64(k->min));
		json_object_object_add(o, "max", json_object_new_uint64(k->max));
		if (k->kind != KVB_KEY_COUNT)
			json_object_object_add(o, "unit", json_object_new_string(
				k->kind == KVB_KEY_SIZE ? "bytes" : "ns"));
	}
	for (size_t i = 0; i < conf->nns; i++)
		add_ns(list, &conf->ns[i]);
	return list;
}
