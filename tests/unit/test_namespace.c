/* SPDX-License-Identifier: MIT */
/*
 * Building a stack: order, limits, what happens when a layer fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/namespace.h"
#include "fake_stores.h"

static struct kvb_config cfg;
static char dir[] = "/tmp/gkv-ns-XXXXXX";

static struct kvb_ns *open_ns(const char *keys, int *ret, struct kvb_err *err)
{
	char text[1024];

	snprintf(text, sizeof(text), "[daemon]\nstate_dir = %s\n[namespace kv0]\nnsid = 3\n%s", dir,
		 keys);
	kvb_config_free(&cfg);
	assert_int_equal(kvb_config_text(&cfg, "t.conf", text, strlen(text), err), 0);
	assert_int_equal(kvb_config_finish(&cfg, err), 0);
	err->text[0] = '\0';
	return kvb_ns_open(&cfg.ns[0], &cfg, ret, err);
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

static void test_stack(void **state)
{
	struct kvb_err err;
	struct kvb_ns *ns;
	int ret;

	(void)state;
	ns = open_ns("stack = fault, delay, mem\ndeadline = 7ms\nverify = off\ndurability = sync\n"
		     "fault.number = 3\nmem.number = 4\n", &ret, &err);
	if (!ns)
		fail_msg("%s", err.text);
	assert_string_equal(fake_calls, "+mem+delay+fault");
	assert_string_equal(ns->name, "kv0");
	assert_int_equal(ns->nsid, 3);
	assert_int_equal(ns->nlayers, 3);
	assert_ptr_equal(ns->top, &ns->layers[0]);
	assert_ptr_equal(ns->bottom, &ns->layers[2]);
	assert_ptr_equal(ns->top->next, &ns->layers[1]);
	assert_null(ns->bottom->next);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(ns->layers[i].layer, i);
		assert_ptr_equal(ns->layers[i].ns, ns);
		assert_int_equal(ns->layers[i].op_offset, 16 * i);
	}
	assert_int_equal(ns->op_size, 48);
	assert_true(ns->sharded);
	assert_true(ns->volatile_store);
	assert_true(ns->sync);
	assert_false(ns->verify);
	assert_int_equal(ns->deadline_ns, 7000000);
	assert_int_equal(kvb_ns_access(ns, 0, 0, NULL, 0), 2);
	assert_int_equal(kvb_ns_access(ns, geteuid() + 1, 0, NULL, 0), 0);
	kvb_ns_close(ns);
	assert_string_equal(fake_calls, "+mem+delay+fault-fault-delay-mem");
}

static void test_refused(void **state)
{
	static const struct {
		const char *keys, *fails, *says, *calls;
	} cases[] = {
		{ "stack = fault\n", NULL, "filter \"fault\" needs a store below it", "" },
		{ "stack = mem, null\n", NULL, "store \"mem\" must come last", "" },
		{ "stack = fault,delay,mem\n", "delay", "delay does not open", "+mem-mem" },
		{ "stack = fault,delay,mem\n", "mem", "mem does not open", "" },
		{ "stack = delay,mem\n", "delay", "delay does not open", "+mem-mem" },
		{ "stack = delay,mem\ndelay.nubmer = 1\n", NULL,
		  "t.conf:6: [namespace kv0] delay.nubmer = 1: unknown key",
		  "+mem+delay-delay-mem" },
		{ "stack = mem\nmem.number = 10\n", NULL,
		  "t.conf:6: [namespace kv0] mem.number = 10: must be from 0 to 9", "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvb_err err;
		int ret = 0;

		fake_reset();
		fake_fails = cases[i].fails;
		assert_null(open_ns(cases[i].keys, &ret, &err));
		assert_true(ret < 0);
		if (!strstr(err.text, cases[i].says))
			fail_msg("%s: \"%s\"", cases[i].keys, err.text);
		assert_string_equal(fake_calls, cases[i].calls);
	}
}

static void test_limits(void **state)
{
	struct kvb_store_info info;
	struct kvb_err err;
	struct kvb_ns *ns;
	int ret;

	(void)state;
	/* The smaller of configuration and store. */
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_non_null(ns);
	assert_int_equal(ns->value_max, 64 << 20);
	kvb_ns_close(ns);
	ns = open_ns("stack = mem\nvalue_max = 1M\nread_only = on\n", &ret, &err);
	assert_non_null(ns);
	assert_int_equal(ns->value_max, 1 << 20);
	kvb_ns_info(ns, &info);
	assert_int_equal(info.value_max, 1 << 20);
	assert_true(info.read_only);
	assert_int_equal(kvb_ns_access(ns, 0, 0, NULL, 0), 1);
	kvb_ns_close(ns);
	fake_info.value_max = 1000;
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_non_null(ns);
	assert_int_equal(ns->value_max, 1000);
	kvb_ns_close(ns);
	/* A write cache shows unless every acknowledgement waits for the medium. */
	fake_info.volatile_cache = true;
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_true(ns && ns->vwc);
	kvb_ns_close(ns);
	ns = open_ns("stack = mem\ndurability = sync\n", &ret, &err);
	assert_true(ns && !ns->vwc);
	kvb_ns_close(ns);
}

static void test_identity(void **state)
{
	struct kvb_err err;
	struct kvb_ns *ns;
	uint8_t first[16];
	int ret;

	(void)state;
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_non_null(ns);
	memcpy(first, ns->uuid, 16);
	kvb_ns_close(ns);
	ns = open_ns("stack = delay,mem\n", &ret, &err);
	assert_memory_equal(ns->uuid, first, 16);
	kvb_ns_close(ns);
	ns = open_ns("stack = mem\nuuid = 00112233-4455-6677-8899-aabbccddeeff\n", &ret, &err);
	assert_int_equal(ns->uuid[1], 0x11);
	kvb_ns_close(ns);
}

/* Feature 20h is on disk once it is set, and there after the next start. */
static void test_ednek(void **state)
{
	struct kvb_err err;
	struct kvb_ns *ns;
	char path[64];
	int ret;

	(void)state;
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_false(atomic_load(&ns->ednek));
	assert_int_equal(kvb_ns_set_ednek(ns, true, &err), 0);
	assert_true(atomic_load(&ns->ednek));
	kvb_ns_close(ns);
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_true(atomic_load(&ns->ednek));
	assert_int_equal(kvb_ns_set_ednek(ns, false, &err), 0);
	kvb_ns_close(ns);
	ns = open_ns("stack = mem\n", &ret, &err);
	assert_false(atomic_load(&ns->ednek));
	kvb_ns_close(ns);
	snprintf(path, sizeof(path), "%s/kv0.state", dir);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_stack, setup),
		cmocka_unit_test_setup(test_refused, setup),
		cmocka_unit_test_setup(test_limits, setup),
		cmocka_unit_test_setup(test_identity, setup),
		cmocka_unit_test_setup(test_ednek, setup),
	};
	int ret;

	if (!mkdtemp(dir))
		return 1;
	kvb_config_init(&cfg);
	ret = cmocka_run_group_tests_name("namespace", tests, NULL, NULL);
	kvb_config_free(&cfg);
	rmdir(dir);
	return ret;
}
