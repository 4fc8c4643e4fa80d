/* SPDX-License-Identifier: MIT */
/*
 * The configuration: what is taken, what is refused, and that a refusal says where and why.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/nsconf.h"
#include "config/state.h"
#include "config/text.h"

static int load(struct kvb_config *cfg, const char *text, struct kvb_err *err)
{
	int ret;

	kvb_config_init(cfg);
	err->text[0] = '\0';
	ret = kvb_config_text(cfg, "t.conf", text, strlen(text), err);
	if (!ret)
		ret = kvb_config_finish(cfg, err);
	if (ret)
		kvb_config_free(cfg);
	return ret;
}

/* Refused with @errnum and a text that contains @says. */
static void refused(const char *text, int errnum, const char *says)
{
	struct kvb_config cfg;
	struct kvb_err err;
	int ret = load(&cfg, text, &err);

	if (ret != -errnum || !strstr(err.text, says))
		fail_msg("%s\n-> %d \"%s\", expected %d \"%s\"", text, ret, err.text, -errnum,
			 says);
}

#define KV0 "[namespace kv0]\nnsid = 1\nstack = mem\n"

static void test_defaults(void **state)
{
	struct kvb_config cfg;
	struct kvb_err err;

	(void)state;
	assert_int_equal(kvb_config_load(&cfg, NULL, NULL, 0, &err), 0);
	assert_string_equal(cfg.socket, "/run/gkv/kvbridged.sock");
	assert_int_equal(cfg.socket_mode, 0660);
	assert_null(cfg.socket_group);
	assert_string_equal(cfg.state_dir, "/var/lib/gkv");
	assert_int_equal(cfg.reactors, 1);
	assert_int_equal(cfg.ncpus, 0);
	assert_int_equal(cfg.poll_interval_ns, 50000);
	assert_int_equal(cfg.spin_ns, 20000);
	assert_int_equal(cfg.max_queue_depth, 4096);
	assert_int_equal(cfg.max_qid, 1024);
	assert_true(cfg.max_sessions >= 1000);
	assert_int_equal(cfg.max_regions, 4096);
	assert_int_equal(cfg.max_region_bytes, UINT64_C(64) << 30);
	assert_int_equal(cfg.buffer_memory, 512 << 20);
	assert_int_equal(cfg.dstrd, 0);
	assert_int_equal(cfg.log_level, KVB_LOG_INFO);
	assert_int_equal(cfg.nns, 0);
	kvb_config_free(&cfg);
}

static void test_full(void **state)
{
	static const char text[] = "# comment\r\n"
				   "; another\n"
				   "[daemon]\n"
				   "socket = /tmp/s\n"
				   "cpus = 0, 2-4\n"
				   "poll_interval_ns = 1ms ; inline\n"
				   "\n"
				   "[namespace kv0]\n"
				   "nsid=7\n"
				   "stack = fault, delay,local\n"
				   "deadline = 250ms\n"
				   "durability = sync\n"
				   "verify = off\n"
				   "read_only = yes\n"
				   "value_max = 128M\n"
				   "access = uid:0:rw gid:44:rw *:ro\n"
				   "uuid = 12345678-9abc-def0-1234-56789abcdef0\n"
				   "local.path = /a,\n"
				   "   /b\n"
				   "[namespace kv-1]\n"
				   "nsid = 2\n"
				   "stack = null\n";
	struct kvb_config cfg;
	struct kvb_nsconf nc;
	struct kvb_conf view;
	struct kvb_err err;

	(void)state;
	if (load(&cfg, text, &err))
		fail_msg("%s", err.text);
	assert_string_equal(cfg.socket, "/tmp/s");
	assert_int_equal(cfg.ncpus, 4);
	assert_int_equal(cfg.cpus[0], 0);
	assert_int_equal(cfg.cpus[3], 4);
	assert_int_equal(cfg.reactors, 4);
	assert_int_equal(cfg.poll_interval_ns, 1000000);
	assert_int_equal(cfg.nns, 2);
	assert_int_equal(kvb_nsconf_parse(&cfg.ns[0], &nc, &err), 0);
	assert_string_equal(nc.name, "kv0");
	assert_int_equal(nc.nsid, 7);
	assert_int_equal(nc.nlayers, 3);
	assert_string_equal(nc.layers[0], "fault");
	assert_string_equal(nc.layers[2], "local");
	assert_int_equal(nc.deadline_ns, 250000000);
	assert_true(nc.sync);
	assert_false(nc.verify);
	assert_true(nc.read_only);
	assert_int_equal(nc.value_max, 128 << 20);
	assert_string_equal(nc.access, "uid:0:rw gid:44:rw *:ro");
	assert_int_equal(nc.uuid[0], 0x12);
	assert_int_equal(nc.uuid[15], 0xf0);
	/* A layer sees its own keys only, without the prefix. */
	view = kvb_conf_layer(&cfg.ns[0], "local");
	assert_string_equal(kvb_conf_get(&view, "path"), "/a, /b");
	assert_null(kvb_conf_get(&view, "nsid"));
	assert_int_equal(kvb_conf_all_used(&view, &err), 0);
	kvb_config_free(&cfg);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *text;
		int errnum;
		const char *says;
	} cases[] = {
		{ "[daemon]\nsockt = /x\n", EINVAL, "t.conf:2: [daemon] sockt = /x: unknown key" },
		{ "[damon]\n", EINVAL, "t.conf:1: unknown section" },
		{ "[daemon\nsocket = /x\n", EINVAL, "t.conf:1:" },
		{ "socket = /x\n", EINVAL, "t.conf:1: a key before the first section" },
		{ "[daemon]\nnonsense\n", EINVAL, "t.conf:2: neither" },
		{ "[daemon]\n= 3\n", EINVAL, "t.conf:2:" },
		{ "[daemon]\nsocket =\n", EINVAL, "must not be empty" },
		{ "[daemon]\n[daemon]\n", EINVAL, "t.conf:2: [daemon] twice" },
		{ "[daemon]\ndstrd = 1\ndstrd = 1\n", EINVAL, "t.conf:3: [daemon] dstrd: the key" },
		{ "[daemon]\ndstrd = 5\n", ERANGE, "dstrd = 5: must be a number from 0 to 4" },
		{ "[daemon]\ndstrd = -1\n", EINVAL, "from 0 to 4" },
		{ "[daemon]\ndstrd = 1x\n", EINVAL, "from 0 to 4" },
		{ "[daemon]\nreactors = 0\n", ERANGE, "from 1 to 64" },
		{ "[daemon]\nreactors = 65\n", ERANGE, "from 1 to 64" },
		{ "[daemon]\nmax_queue_depth = 65537\n", ERANGE, "from 2 to 65536" },
		{ "[daemon]\nmax_queue_depth = 1\n", ERANGE, "from 2 to 65536" },
		{ "[daemon]\nmax_qid = 65535\n", ERANGE, "from 1 to 65534" },
		{ "[daemon]\npoll_interval_ns = 999\n", ERANGE, "from 1000 to 1000000000" },
		{ "[daemon]\npoll_interval_ns = 2s\n", ERANGE, "from 1000 to 1000000000" },
		{ "[daemon]\npoll_interval_ns = 1h\n", EINVAL, "from 1000" },
		{ "[daemon]\nspin_ns = 99999999999999999999999\n", ERANGE, "from 0" },
		{ "[daemon]\nbuffer_memory = 99999999T\n", ERANGE, "from 1M to 16T" },
		{ "[daemon]\nsocket_mode = 8\n", EINVAL, "from 0000 to 0777" },
		{ "[daemon]\nlog_level = loud\n", EINVAL, "from error to debug" },
		{ "[daemon]\ncpus = 3-1\n", EINVAL, "0,2-5" },
		{ "[daemon]\ncpus = 1,,2\n", EINVAL, "0,2-5" },
		{ "[daemon]\ncpus = 0-9999\n", ERANGE, "at most 64" },
		{ "[daemon]\nuuid = 12\n", EINVAL, "must be a UUID" },
		{ "[daemon]\n  dstrd = 1\n", EINVAL, "t.conf:2: an indented line" },
		{ "[namespace ]\n", EINVAL, "1 to 32 letters" },
		{ "[namespace a/b]\n", EINVAL, "1 to 32 letters" },
		{ "[namespace abcdefghijklmnopqrstuvwxyz0123456]\n", EINVAL, "1 to 32 letters" },
		{ "[namespace abcdefghijklmnopqrstuvwxyz0123456789012345678901234567890]\n", EINVAL,
		  "longer than" },
		{ "[namespace kv0]\nstack = mem\n", EINVAL, "t.conf:1: [namespace kv0] nsid is" },
		{ "[namespace kv0]\nnsid = 1\n", EINVAL, "stack is missing" },
		{ "[namespace kv0]\nnsid = 0\nstack = mem\n", ERANGE, "from 1 to" },
		{ "[namespace kv0]\nnsid = 4294967295\nstack = mem\n", ERANGE, "from 1 to" },
		{ "[namespace kv0]\nnsid = 1\nstack = rocks\n", EINVAL,
		  "no store or filter \"rocks\"" },
		{ "[namespace kv0]\nnsid = 1\nstack = fault,,mem\n", EINVAL,
		  "no store or filter \"\"" },
		{ "[namespace kv0]\nnsid = 1\nstack = fault mem\n", EINVAL, "commas" },
		{ "[namespace kv0]\nnsid = 1\nstack = mem,mem\n", EINVAL, "\"mem\" twice" },
		{ KV0 "local.path = /x\n", EINVAL, "\"local\" is not in the stack" },
		{ KV0 "color = red\n", EINVAL,
		  "t.conf:4: [namespace kv0] color = red: unknown key" },
		{ KV0 "deadline = 0\n", ERANGE, "from 1ms to 3600s" },
		{ KV0 "durability = maybe\n", EINVAL, "async or sync" },
		{ KV0 "verify = maybe\n", EINVAL, "on or off" },
		{ KV0 "value_max = 2G\n", ERANGE, "value_max = 2G: must be from 1 to 2147483647" },
		{ KV0 "value_max = 1G\n", ERANGE, "buffer_memory" },
		{ KV0 "uuid = kv\n", EINVAL, "must be a UUID" },
		{ KV0 "access = uid:0\n", EINVAL, ":rw, :ro or :none" },
		{ KV0 "access = uid:no-such-user-here:rw\n", EINVAL, "no such user" },
		{ KV0 "access = gid:no-such-group-here:rw\n", EINVAL, "no such group" },
		{ KV0 "access = 0:rw\n", EINVAL, "starts with uid:" },
		{ KV0 KV0, EINVAL, "t.conf:4: a second namespace" },
		{ KV0 "[namespace kv1]\nnsid = 1\nstack = mem\n", EINVAL,
		  "[namespace kv0] has it" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(cases[i].text, cases[i].errnum, cases[i].says);
}

static void test_lines(void **state)
{
	static const char nul[] = "[daemon]\nsocket = /a\0b\n";
	struct kvb_config cfg;
	struct kvb_err err;
	char text[400];

	(void)state;
	/* Longer than libinih takes in one piece: refused, not cut. */
	snprintf(text, sizeof(text), "[daemon]\nsocket = /%0300d\n", 0);
	refused(text, EINVAL, "t.conf:2: the line is too long");
	/* Just within. */
	snprintf(text, sizeof(text), "[daemon]\nsocket = /%0180d\n", 0);
	assert_int_equal(load(&cfg, text, &err), 0);
	assert_int_equal(strlen(cfg.socket), 181);
	kvb_config_free(&cfg);
	kvb_config_init(&cfg);
	assert_int_equal(kvb_config_text(&cfg, "t.conf", nul, sizeof(nul) - 1, &err), -EINVAL);
	assert_non_null(strstr(err.text, "NUL"));
	kvb_config_free(&cfg);
	/* A continued value may hold what looks like an assignment, but no key. */
	assert_int_equal(load(&cfg, "[namespace kv0]\nnsid = 1\nstack = fault,mem\n"
				    "fault.rules = store:eio:p=0.1\n\tretrieve:slow=1ms:every=3\n",
			      &err), 0);
	assert_string_equal(kvb_conf_get(&cfg.ns[0], "fault.rules"),
			    "store:eio:p=0.1 retrieve:slow=1ms:every=3");
	kvb_config_free(&cfg);
	refused(KV0 "access = *:rw\n  mem.capacity = 1G\n", EINVAL, "t.conf:5: an indented line");
	/* No newline at the end. */
	assert_int_equal(load(&cfg, "[daemon]\ndstrd = 2", &err), 0);
	assert_int_equal(cfg.dstrd, 2);
	kvb_config_free(&cfg);
}

static void test_options(void **state)
{
	static const char text[] = "[daemon]\nspin_ns = 5us\ndstrd = 1\n";
	static const char *const good[] = { "spin_ns=7us", "log_level=debug" };
	static const struct {
		const char *option, *says;
	} bad[] = {
		{ "spin_ns", "must be key=value" },
		{ "=3", "must be key=value" },
		{ "colour=1", "option colour: the daemon has no such key" },
		{ "spin_ns=2s", "option spin_ns = 2s: must be" },
		{ "nsid=1", "no such key" },
	};
	char path[] = "/tmp/gkv-config-XXXXXX";
	struct kvb_config cfg;
	struct kvb_err err;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	close(fd);
	assert_int_equal(kvb_config_load(&cfg, path, good, 2, &err), 0);
	assert_int_equal(cfg.spin_ns, 7000);
	assert_int_equal(cfg.dstrd, 1);
	assert_int_equal(cfg.log_level, KVB_LOG_DEBUG);
	kvb_config_free(&cfg);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_true(kvb_config_load(&cfg, path, &bad[i].option, 1, &err) < 0);
		if (!strstr(err.text, bad[i].says))
			fail_msg("%s: \"%s\"", bad[i].option, err.text);
	}
	unlink(path);
	assert_int_equal(kvb_config_load(&cfg, path, NULL, 0, &err), -ENOENT);
	assert_non_null(strstr(err.text, path));
	assert_int_equal(kvb_config_load(&cfg, "/tmp", NULL, 0, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a regular file"));
}

/* A misspelt key of a layer: known only once the layer has asked for its own. */
static void test_unused_keys(void **state)
{
	struct kvb_config cfg;
	struct kvb_conf view;
	struct kvb_err err;
	uint64_t v;

	(void)state;
	assert_int_equal(load(&cfg, KV0 "mem.capacity = 1G\nmem.capasity = 2G\n", &err), 0);
	view = kvb_conf_layer(&cfg.ns[0], "mem");
	assert_int_equal(kvb_conf_size(&view, "capacity", 0, 0, UINT64_MAX, &v, &err), 0);
	assert_int_equal(v, 1 << 30);
	assert_int_equal(kvb_conf_all_used(&view, &err), -EINVAL);
	assert_string_equal(err.text,
			    "t.conf:5: [namespace kv0] mem.capasity = 2G: unknown key");
	assert_int_equal(kvb_conf_size(&view, "capacity", 0, 0, 1 << 20, &v, &err), -ERANGE);
	assert_string_equal(err.text, "t.conf:4: [namespace kv0] mem.capacity = 1G: "
				      "must be from 0 to 1M bytes");
	kvb_config_free(&cfg);
}

static void test_access(void **state)
{
	static const char rules[] = "uid:0:rw uid:7:none gid:44:rw uid:1000:ro *:ro";
	const gid_t groups[] = { 3, 44 };

	(void)state;
	assert_int_equal(kvb_access_check(rules, 0, 0, NULL, 0), 2);
	assert_int_equal(kvb_access_check(rules, 7, 44, NULL, 0), 0);
	assert_int_equal(kvb_access_check(rules, 1000, 44, NULL, 0), 2);
	assert_int_equal(kvb_access_check(rules, 1000, 1000, groups, 2), 2);
	assert_int_equal(kvb_access_check(rules, 1000, 1000, groups, 1), 1);
	assert_int_equal(kvb_access_check(rules, 5, 5, NULL, 0), 1);
	assert_int_equal(kvb_access_check("uid:0:rw", 5, 0, NULL, 0), 0);
	assert_int_equal(kvb_access_check("gid:4:rw", 4, 5, NULL, 0), 0);
	assert_int_equal(kvb_access_check("", 0, 0, NULL, 0), 0);
}

static void test_text(void **state)
{
	static const uint64_t values[] = { 0, 1, 999, 1000, 1024, 1536, 1 << 20, 50000,
					   UINT64_C(5000000000), UINT64_MAX };
	char buf[40];
	uint64_t v;
	bool b;

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		assert_int_equal(kvb_text_size(kvb_size_text(values[i], buf, sizeof(buf)), &v), 0);
		assert_int_equal(v, values[i]);
		assert_int_equal(kvb_text_time(kvb_time_text(values[i], buf, sizeof(buf)), &v), 0);
		assert_int_equal(v, values[i]);
	}
	assert_int_equal(kvb_text_size("64M", &v), 0);
	assert_int_equal(v, 64 << 20);
	assert_int_equal(kvb_text_size("64m", &v), -EINVAL);
	assert_int_equal(kvb_text_size("64MB", &v), -EINVAL);
	assert_int_equal(kvb_text_size("-1", &v), -EINVAL);
	assert_int_equal(kvb_text_size("", &v), -EINVAL);
	assert_int_equal(kvb_text_size("16777216T", &v), -ERANGE);
	assert_int_equal(kvb_text_u64("0x10", &v), 0);
	assert_int_equal(v, 16);
	assert_int_equal(kvb_text_u64("0x", &v), -EINVAL);
	assert_int_equal(kvb_text_u64(" 1", &v), -EINVAL);
	assert_int_equal(kvb_text_u64("18446744073709551616", &v), -ERANGE);
	assert_int_equal(kvb_text_bool("On", &b), 0);
	assert_true(b);
	assert_int_equal(kvb_text_bool("2", &b), -EINVAL);
}

/* Identities do not change from one start to the next, and differ where things differ. */
static void test_uuid(void **state)
{
	static const char *const a[] = { "socket=/a" }, *const b[] = { "socket=/b" };
	struct kvb_config one, two, other;
	struct kvb_err err;

	(void)state;
	assert_int_equal(kvb_config_load(&one, NULL, a, 1, &err), 0);
	assert_int_equal(kvb_config_load(&two, NULL, a, 1, &err), 0);
	assert_int_equal(kvb_config_load(&other, NULL, b, 1, &err), 0);
	assert_memory_equal(one.uuid, two.uuid, 16);
	assert_memory_not_equal(one.uuid, other.uuid, 16);
	assert_memory_equal(one.host_uuid, other.host_uuid, 16);
	assert_int_equal(one.uuid[6] >> 4, 5);	/* version */
	kvb_config_free(&one);
	kvb_config_free(&two);
	kvb_config_free(&other);
}

static void test_state_file(void **state)
{
	char dir[] = "/tmp/gkv-state-XXXXXX";
	char path[80], sub[64];
	struct kvb_err err;
	bool on = true;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(sub, sizeof(sub), "%s/new", dir);
	snprintf(path, sizeof(path), "%s/kv0.state", sub);
	assert_int_equal(kvb_state_read(path, &on, &err), 0);
	assert_true(on);	/* no file: left alone */
	assert_int_equal(kvb_state_write(path, false, &err), 0);
	assert_int_equal(kvb_state_read(path, &on, &err), 0);
	assert_false(on);
	assert_int_equal(kvb_state_write(path, true, &err), 0);
	assert_int_equal(kvb_state_read(path, &on, &err), 0);
	assert_true(on);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("ednek = 9\n", f);
	fclose(f);
	assert_int_equal(kvb_state_read(path, &on, &err), -EINVAL);
	assert_non_null(strstr(err.text, path));
	unlink(path);
	rmdir(sub);
	rmdir(dir);
	snprintf(path, sizeof(path), "%s/gone/kv0.state", dir);
	assert_int_equal(kvb_state_write(path, true, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_unused_keys),
		cmocka_unit_test(test_access),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_uuid),
		cmocka_unit_test(test_state_file),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
