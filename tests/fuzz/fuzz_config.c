/* SPDX-License-Identifier: MIT */
/*
 * The configuration file: any bytes are either refused with a sentence or give a
 * configuration within its limits, whose settings can be shown and changed.
 */
#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/nsconf.h"
#include "config/settings.h"

#define CHECK(c) \
	do { \
		if (!(c)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
			abort(); \
		} \
	} while (0)

static void check_numbers(const struct kvb_config *cfg)
{
	for (size_t i = 0; i < kvb_daemon_nkeys; i++) {
		const struct kvb_key *k = &kvb_daemon_keys[i];
		uint64_t v = *(const uint64_t *)((const char *)cfg + k->offset);

		if (k->kind == KVB_KEY_TEXT || k->kind == KVB_KEY_CPUS || k->kind == KVB_KEY_UUID)
			continue;
		CHECK(v >= k->min && v <= k->max);
	}
	CHECK(cfg->socket && *cfg->socket);
	CHECK(cfg->ncpus <= KVB_MAX_REACTORS);
}

static void check_ns(const struct kvb_config *cfg, size_t i)
{
	struct kvb_nsconf nc;

	CHECK(!kvb_nsconf_parse(&cfg->ns[i], &nc, NULL));
	CHECK(nc.nsid >= 1 && nc.nsid <= KVB_NSID_MAX);
	CHECK(nc.nlayers >= 1 && nc.nlayers <= KVB_MAX_LAYERS);
	CHECK(nc.value_max >= 1 && nc.value_max <= KVB_VALUE_MAX);
	CHECK(nc.value_max <= cfg->buffer_memory / cfg->reactors);
	CHECK(strlen(nc.name) <= KVB_NAME_MAX && !strchr(nc.name, '/'));
	kvb_access_check(nc.access, 1, 1, NULL, 0);
	for (unsigned int l = 0; l < nc.nlayers; l++) {
		struct kvb_conf view = kvb_conf_layer(&cfg->ns[i], nc.layers[l]);
		struct kvb_err err;
		uint64_t v;
		bool b;

		kvb_conf_size(&view, "capacity", 0, 0, UINT64_MAX, &v, &err);
		kvb_conf_time(&view, "all", 0, 0, UINT64_MAX, &v, &err);
		kvb_conf_u64(&view, "seed", 0, 0, 9, &v, &err);
		kvb_conf_bool(&view, "verify", false, &b, &err);
		kvb_conf_all_used(&view, &err);
	}
	for (size_t j = 0; j < i; j++)
		CHECK(strcmp(cfg->ns[i].section, cfg->ns[j].section));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nl = memchr(data, '\n', size);
	struct kvb_err err = { { 0 } };
	struct kvb_config cfg;
	char line[128] = "";
	char *eq;
	int ret;

	/* The first line serves as an option too, once with and once without the file. */
	if (nl && (size_t)(nl - data) < sizeof(line))
		memcpy(line, data, (size_t)(nl - data));
	kvb_log_set_level(KVB_LOG_ERR);
	kvb_config_init(&cfg);
	ret = kvb_config_text(&cfg, "fuzz.conf", (const char *)data, size, &err);
	if (!ret && *line == '#')
		ret = kvb_config_option(&cfg, line + 1, &err);
	if (!ret)
		ret = kvb_config_finish(&cfg, &err);
	CHECK(memchr(err.text, 0, sizeof(err.text)));
	if (ret) {
		CHECK(ret < 0 && *err.text);
	} else {
		check_numbers(&cfg);
		for (size_t i = 0; i < cfg.nns; i++)
			check_ns(&cfg, i);
		kvb_settings_init(&cfg);
		eq = strchr(line, '=');
		if (*line == '#' && eq) {
			*eq = '\0';
			kvb_settings_set(line + 1, eq + 1, &err);
			check_numbers(&cfg);
		}
		json_object_put(kvb_settings_json());
	}
	kvb_config_free(&cfg);
	return 0;
}
