/* SPDX-License-Identifier: MIT */
/*
 * One rados_t: configured so that nothing blocks for ever, connected, fenced.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stores/rados/pool_priv.h"

/* Seconds. A stop of the daemon waits this long for a connection attempt to end. */
#define CONNECT_TIMEOUT 5u
#define MON_TIMEOUT 10u
/*
 * Beyond what callers keep in flight: librados takes these budgets inside of the submitting
 * call and lets it wait for them. Callers have limits of their own.
 */
#define INFLIGHT_OPS "16777216"
#define INFLIGHT_BYTES "1099511627776"
#define DISPATCH_MIN (100ull << 20)	/* librados's default, bytes */

unsigned int rd_seconds(uint64_t ns)
{
	uint64_t s = (ns + 999999999u) / 1000000000u;

	return s < 1 ? 1 : s > 86400 ? 86400 : (unsigned int)s;
}

int rd_mon_command(rados_t cluster, const char *cmd, char *out, size_t len)
{
	char *buf = NULL, *status = NULL;
	size_t buf_len = 0, status_len = 0;
	int rc;

	rc = rados_mon_command(cluster, &cmd, 1, NULL, 0, &buf, &buf_len, &status, &status_len);
	if (!rc && len) {
		if (buf_len >= len)
			buf_len = len - 1;
		memcpy(out, buf, buf_len);
		out[buf_len] = '\0';
	}
	rados_buffer_free(buf);
	rados_buffer_free(status);
	return rc;
}

/* An option of the OSDs as the monitors know it; 0 when they do not tell. */
static uint64_t osd_option(rados_t cluster, const char *key)
{
	char cmd[128], out[32];

	snprintf(cmd, sizeof(cmd), "{\"prefix\": \"config get\", \"who\": \"osd\", \"key\": \"%s\"}",
		 key);
	return rd_mon_command(cluster, cmd, out, sizeof(out)) ? 0 : strtoull(out, NULL, 10);
}

static uint32_t value_max(rados_t cluster)
{
	uint64_t max = RD_VALUE_MAX + RD_WRITE_SPARE;
	uint64_t write = osd_option(cluster, "osd_max_write_size");	/* MiB */
	uint64_t object = osd_option(cluster, "osd_max_object_size");	/* bytes */

	/* Lengths are ints in librados. */
	if (write)
		max = write < 2047 ? write << 20 : 2047ull << 20;
	if (object && object < max)
		max = object;
	return max > RD_WRITE_SPARE ? (uint32_t)max - RD_WRITE_SPARE : 0;
}

static int set_number(rados_t cluster, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return rados_conf_set(cluster, key, text);
}

void rd_link_set_timeout(struct rd_link *l, uint64_t ns)
{
	if (!set_number(l->cluster, "rados_osd_op_timeout", rd_seconds(ns)))
		l->op_timeout_ns = ns;
}

static uint64_t dispatch_bytes(rados_t cluster, uint64_t bytes)
{
	char text[32];
	uint64_t now = DISPATCH_MIN;

	if (!rados_conf_get(cluster, "ms_dispatch_throttle_bytes", text, sizeof(text)))
		now = strtoull(text, NULL, 10);
	return bytes > now ? bytes : now;
}

static int configure(rados_t cluster, const struct rd_link_conf *k, struct kvb_err *err)
{
	const struct {
		const char *key, *value;
	} fixed[] = {
		{ "objecter_inflight_ops", INFLIGHT_OPS },
		{ "objecter_inflight_op_bytes", INFLIGHT_BYTES },
		/*
		 * librados asks for a newer map when an operation has waited so long, 10 s as a
		 * rule. Ours are ended by their deadline before that: an OSD that came back
		 * elsewhere would never be found.
		 */
		{ "objecter_timeout", "0.5" },
		{ "objecter_tick_interval", "0.25" },
		/* The daemon says itself what is wrong, once. */
		{ "log_to_stderr", "false" },
		{ "err_to_stderr", "false" },
	};
	const char *key = NULL;
	int rc = 0;

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]) && !rc; i++) {
		key = fixed[i].key;
		rc = rados_conf_set(cluster, key, fixed[i].value);
	}
	if (!rc)
		rc = set_number(cluster, key = "client_mount_timeout", CONNECT_TIMEOUT);
	if (!rc)
		rc = set_number(cluster, key = "rados_mon_op_timeout", MON_TIMEOUT);
	if (!rc)
		rc = set_number(cluster, key = "rados_osd_op_timeout",
				rd_seconds(k->op_timeout_ns));
	if (!rc)
		rc = set_number(cluster, key = "ms_dispatch_throttle_bytes",
				dispatch_bytes(cluster, k->bytes));
	if (!rc && k->keyring)
		rc = rados_conf_set(cluster, key = "keyring", k->keyring);
	if (rc)
		return kvb_fail(err, -rc, "librados refuses option %s: %s", key, strerror(-rc));
	return 0;
}

/* What is in force stands in the two configuration files, see init() in pool.c. */
int rd_link_create(const struct rd_link_conf *k, rados_t *out, struct kvb_err *err)
{
	char user[128];
	int rc;

	snprintf(user, sizeof(user), "client.%s", k->id);
	rc = rados_create2(out, "ceph", user, 0);
	if (rc)
		return kvb_fail(err, -rc, "librados has no handle for %.60s: %s", user,
				strerror(-rc));
	rc = rados_conf_read_file(*out, k->conf);
	if (rc)
		kvb_fail(err, -rc, "Ceph configuration file %.100s: %s",
			 k->conf ? k->conf : "/etc/ceph/ceph.conf", strerror(-rc));
	else
		rc = configure(*out, k, err);
	if (rc)
		rados_shutdown(*out);
	return rc;
}

static int connect_error(const struct rd_link_conf *k, int rc, struct kvb_err *err)
{
	switch (rc) {
	case -ETIMEDOUT:
		return kvb_fail(err, -rc, "no monitor answered within %u s: is the cluster up, and "
				"mon_host right?", CONNECT_TIMEOUT);
	case -EACCES:
	case -EPERM:
		return kvb_fail(err, -rc, "the monitors refuse client.%.40s: compare its keyring with "
				"what \"ceph auth get client.%.40s\" shows", k->id, k->id);
	case -ENOENT:
	case -EOPNOTSUPP:
		return kvb_fail(err, -rc, "no monitor's address, or no key for client.%.40s: check "
				"mon_host and the keyring", k->id);
	default:
		return kvb_fail(err, -rc, "connecting to the cluster: %s", strerror(-rc));
	}
}

static int identify(struct rd_link *l, struct kvb_err *err)
{
	char *addrs = NULL;
	int rc = rados_cluster_fsid(l->cluster, l->fsid, sizeof(l->fsid));

	if (rc < 0)
		return kvb_fail(err, -rc, "the cluster does not tell its id: %s", strerror(-rc));
	rc = rados_getaddrs(l->cluster, &addrs);
	if (rc)
		return kvb_fail(err, -rc, "librados does not tell its address: %s", strerror(-rc));
	if ((size_t)snprintf(l->addrs, sizeof(l->addrs), "%s", addrs) >= sizeof(l->addrs))
		rc = kvb_fail(err, ENAMETOOLONG, "client address %.60s...: too long", addrs);
	free(addrs);
	return rc;
}

static int stopping(const struct rd_link_conf *k, struct kvb_err *err)
{
	return atomic_load(k->stop) ? kvb_fail(err, ECANCELED, "stopping") : 0;
}

static int bring_up(struct rd_link *l, const struct rd_link_conf *k, unsigned int *fenced,
		    struct kvb_err *err)
{
	int rc;

	if (k->keyring && access(k->keyring, R_OK))
		return kvb_fail(err, errno, "keyring %.100s: %s", k->keyring, strerror(errno));
	rc = rados_connect(l->cluster);
	if (rc)
		return connect_error(k, rc, err);
	rc = stopping(k, err);
	if (!rc)
		rc = identify(l, err);
	if (rc)
		return rc;
	l->value_max = value_max(l->cluster);
	rc = stopping(k, err);
	if (!rc && k->fence)
		rc = rd_fence_enter(&l->fence, l->cluster, k->id, k->state_dir, l->fsid, l->addrs,
				    fenced, err);
	return rc;
}

struct rd_link *rd_link_open(const struct rd_link_conf *k, unsigned int *fenced,
			     struct kvb_err *err)
{
	struct rd_link *l = calloc(1, sizeof(*l));

	if (!l) {
		kvb_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	l->fence = RD_FENCE_NONE;
	l->op_timeout_ns = k->op_timeout_ns;
	if (rd_link_create(k, &l->cluster, err)) {
		free(l);
		return NULL;
	}
	if (bring_up(l, k, fenced, err)) {
		rd_link_close(l);
		return NULL;
	}
	return l;
}

void rd_link_close(struct rd_link *l)
{
	/* First: what is still in flight ends here, and then the record may go. */
	rados_shutdown(l->cluster);
	rd_fence_leave(&l->fence, !atomic_load(&l->doubt) && !atomic_load(&l->blocklisted));
	free(l);
}
