/* SPDX-License-Identifier: MIT */
/*
 * The daemon's keys: what each is, its limits and its default.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/text.h"

#define AT(field) offsetof(struct kvb_config, field)
#define G (UINT64_C(1) << 30)

const char *const kvb_log_level_names[4] = { "error", "warning", "info", "debug" };

const struct kvb_key kvb_daemon_keys[] = {
	/* name, kind, live, default, min, max, where */
	{ "socket", KVB_KEY_TEXT, false, "/run/gkv/kvbridged.sock", 0, 0, AT(socket) },
	{ "socket_mode", KVB_KEY_OCTAL, false, "0660", 0, 0777, AT(socket_mode) },
	{ "socket_group", KVB_KEY_TEXT, false, NULL, 0, 0, AT(socket_group) },
	{ "state_dir", KVB_KEY_TEXT, false, "/var/lib/gkv", 0, 0, AT(state_dir) },
	{ "uuid", KVB_KEY_UUID, false, NULL, 0, 0, AT(uuid) },
	{ "cpus", KVB_KEY_CPUS, false, NULL, 0, 0, AT(cpus) },
	{ "reactors", KVB_KEY_COUNT, false, NULL, 1, KVB_MAX_REACTORS, AT(reactors) },
	{ "poll_interval_ns", KVB_KEY_TIME, true, "50000", 1000, 1000000000,
	  AT(poll_interval_ns) },
	{ "spin_ns", KVB_KEY_TIME, true, "20000", 0, 1000000000, AT(spin_ns) },
	{ "max_queue_depth", KVB_KEY_COUNT, true, "4096", 2, 65536, AT(max_queue_depth) },
	/* Number of Queues counts from 0 in 16 bits, and FFFFh is not a count. */
	{ "max_qid", KVB_KEY_COUNT, false, "1024", 1, 65534, AT(max_qid) },
	{ "max_sessions", KVB_KEY_COUNT, false, "2048", 1, 65536, AT(max_sessions) },
	{ "max_user_sessions", KVB_KEY_COUNT, false, "256", 1, 65536, AT(max_user_sessions) },
	{ "max_regions", KVB_KEY_COUNT, false, "4096", 1, 1 << 20, AT(max_regions) },
	{ "max_region_bytes", KVB_KEY_SIZE, false, "64G", 4096, G << 18, AT(max_region_bytes) },
	{ "buffer_memory", KVB_KEY_SIZE, false, "512M", UINT64_C(1) << 20, G << 14,
	  AT(buffer_memory) },
	{ "dstrd", KVB_KEY_COUNT, false, "0", 0, 4, AT(dstrd) },
	{ "log_level", KVB_KEY_LEVEL, true, "info", KVB_LOG_ERR, KVB_LOG_DEBUG, AT(log_level) },
};
const size_t kvb_daemon_nkeys = sizeof(kvb_daemon_keys) / sizeof(kvb_daemon_keys[0]);

static int parse_level(const char *text, uint64_t *out)
{
	for (size_t i = 0; i < 4; i++) {
		if (!strcmp(text, kvb_log_level_names[i])) {
			*out = i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *kvb_key_text(const struct kvb_key *k, uint64_t v, char *buf, size_t len)
{
	switch (k->kind) {
	case KVB_KEY_OCTAL:
		snprintf(buf, len, "%04" PRIo64, v);
		return buf;
	case KVB_KEY_SIZE:
		return kvb_size_text(v, buf, len);
	case KVB_KEY_LEVEL:
		snprintf(buf, len, "%s", v < 4 ? kvb_log_level_names[v] : "?");
		return buf;
	default:
		snprintf(buf, len, "%" PRIu64, v);
		return buf;
	}
}

int kvb_key_parse(const struct kvb_key *k, const char *text, uint64_t *out, struct kvb_err *err)
{
	static const char *const what[] = {
		[KVB_KEY_COUNT] = "a number",
		[KVB_KEY_OCTAL] = "an octal number",
		[KVB_KEY_SIZE] = "a size",
		[KVB_KEY_TIME] = "nanoseconds, or a time like 50us,",
		[KVB_KEY_LEVEL] = "a level",
	};
	char lo[32], hi[32];
	int ret;

	switch (k->kind) {
	case KVB_KEY_COUNT:
		ret = kvb_text_u64(text, out);
		break;
	case KVB_KEY_OCTAL:
		ret = kvb_text_octal(text, out);
		break;
	case KVB_KEY_SIZE:
		ret = kvb_text_size(text, out);
		break;
	case KVB_KEY_TIME:
		ret = kvb_text_time(text, out);
		break;
	case KVB_KEY_LEVEL:
		ret = parse_level(text, out);
		break;
	default:
		return kvb_fail(err, EINVAL, "%s is not a number", k->name);
	}
	if (!ret && *out >= k->min && *out <= k->max)
		return 0;
	return kvb_fail(err, ret == -EINVAL ? EINVAL : ERANGE,
			"must be %s from %s to %s", what[k->kind],
			kvb_key_text(k, k->min, lo, sizeof(lo)),
			kvb_key_text(k, k->max, hi, sizeof(hi)));
}
