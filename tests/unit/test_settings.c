/* SPDX-License-Identifier: MIT */
/*
 * Settings: precedence, limits, and what the report says of each.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "config/settings.h"

static const char text[] = "[daemon]\nmax_queue_depth = 1024\nspin_ns = 5us\n"
			   "[namespace kv0]\nnsid = 1\nstack = mem\ndeadline = 2s\n"
			   "mem.capacity = 1G\n";
static struct kvb_config cfg;

static int setup(void **state)
{
	struct kvb_err err;

	(void)state;
	kvb_config_init(&cfg);
	if (kvb_config_text(&cfg, "t.conf", text, strlen(text), &err) ||
	    kvb_config_option(&cfg, "spin_ns=9us", &err) || kvb_config_finish(&cfg, &err))
		return -1;
	kvb_settings_init(&cfg);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kvb_log_set_level(KVB_LOG_INFO);
	kvb_config_free(&cfg);
	return 0;
}

static struct json_object *find(struct json_object *list, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (!strcmp(json_object_get_string(json_object_object_get(o, "name")), name))
			return o;
	}
	fail_msg("no setting %s", name);
	return NULL;
}

static void expect(const char *name, const char *value, const char *origin, bool live)
{
	struct json_object *list = kvb_settings_json();
	struct json_object *o;

	assert_non_null(list);
	o = find(list, name);
	assert_string_equal(json_object_get_string(json_object_object_get(o, "value")), value);
	assert_string_equal(json_object_get_string(json_object_object_get(o, "origin")), origin);
	assert_int_equal(json_object_get_boolean(json_object_object_get(o, "live")), live);
	json_object_put(list);
}

static void test_origins(void **state)
{
	(void)state;
	expect("poll_interval_ns", "50000", "default", true);
	expect("max_queue_depth", "1024", "file", true);
	expect("spin_ns", "9000", "command line", true);
	expect("socket", "/run/gkv/kvbridged.sock", "default", false);
	expect("socket_mode", "0660", "default", false);
	expect("log_level", "info", "default", true);
	expect("kv0.deadline", "2000000000", "file", false);
	expect("kv0.durability", "async", "default", false);
	expect("kv0.mem.capacity", "1G", "file", false);
	assert_int_equal(atomic_load(&kvb_live.poll_interval_ns), 50000);
	assert_int_equal(atomic_load(&kvb_live.max_queue_depth), 1024);
	assert_int_equal(atomic_load(&kvb_live.spin_ns), 9000);
	assert_int_equal(atomic_load(&kvb_live.log_level), KVB_LOG_INFO);
}

static void test_limits(void **state)
{
	struct json_object *list = kvb_settings_json();
	struct json_object *o = find(list, "max_queue_depth");

	(void)state;
	assert_int_equal(json_object_get_int64(json_object_object_get(o, "min")), 2);
	assert_int_equal(json_object_get_int64(json_object_object_get(o, "max")), 65536);
	o = find(list, "poll_interval_ns");
	assert_string_equal(json_object_get_string(json_object_object_get(o, "unit")), "ns");
	o = find(list, "buffer_memory");
	assert_string_equal(json_object_get_string(json_object_object_get(o, "unit")), "bytes");
	json_object_put(list);
}

static void test_set(void **state)
{
	struct kvb_err err;

	(void)state;
	assert_int_equal(kvb_settings_set("poll_interval_ns", "1ms", &err), 0);
	assert_int_equal(atomic_load(&kvb_live.poll_interval_ns), 1000000);
	expect("poll_interval_ns", "1000000", "live", true);
	/* Live comes before the file. */
	assert_int_equal(kvb_settings_set("max_queue_depth", "64", &err), 0);
	assert_int_equal(atomic_load(&kvb_live.max_queue_depth), 64);
	expect("max_queue_depth", "64", "live", true);
	assert_int_equal(kvb_settings_set("log_level", "debug", &err), 0);
	assert_int_equal(atomic_load(&kvb_live.log_level), KVB_LOG_DEBUG);
	expect("log_level", "debug", "live", true);
}

static void refused(const char *name, const char *value, int errnum, const char *says)
{
	struct kvb_err err = { { 0 } };
	int ret = kvb_settings_set(name, value, &err);

	if (ret != -errnum || !strstr(err.text, says))
		fail_msg("%s=%s: %d \"%s\"", name, value, ret, err.text);
}

static void test_refused(void **state)
{
	(void)state;
	refused("spin_ns", "1us", EBUSY,
		"spin_ns is set on the command line, which has precedence");
	assert_int_equal(atomic_load(&kvb_live.spin_ns), 9000);
	refused("colour", "1", ENOENT, "no setting \"colour\"");
	refused("socket", "/x", EPERM, "socket takes effect at start only");
	refused("kv0.deadline", "1s", EPERM, "at start only");
	refused("kv9.deadline", "1s", ENOENT, "no setting");
	refused("poll_interval_ns", "10", ERANGE, "poll_interval_ns = 10: must be");
	refused("poll_interval_ns", "10", ERANGE, "from 1000 to 1000000000");
	refused("poll_interval_ns", "", EINVAL, "from 1000 to 1000000000");
	refused("max_queue_depth", "65537", ERANGE, "from 2 to 65536");
	refused("log_level", "9", EINVAL, "from error to debug");
	expect("poll_interval_ns", "50000", "default", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_origins, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_set, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
	};

	return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
