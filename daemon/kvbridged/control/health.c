/* SPDX-License-Identifier: MIT */
#include "control/health.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <uuid/uuid.h>

#include "admin/admin.h"
#include "config/state.h"
#include "control/server.h"
#include "core/clock.h"

#define SAVE_ERRORS_NS	(10 * UINT64_C(1000000000))
#define SAVE_ALL_NS	(3600 * UINT64_C(1000000000))

static struct kvb_admin_counters past;	/* of daemons before this one */
static char path[PATH_MAX];		/* empty: nothing is kept */
static uint64_t saved_ns, saved_media_errors;

/* One line each in the file. */
static const struct {
	const char *name;
	size_t offset;
} fields[] = {
#define FIELD(f) { #f, offsetof(struct kvb_admin_counters, f) }
	FIELD(power_cycles), FIELD(unsafe_shutdowns), FIELD(media_errors), FIELD(power_on_seconds),
	FIELD(reads), FIELD(writes), FIELD(read_bytes), FIELD(written_bytes),
#undef FIELD
};
#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

static uint64_t *field(struct kvb_admin_counters *c, size_t i)
{
	return (uint64_t *)((char *)c + fields[i].offset);
}

void kvb_health_counters(void *ctx, struct kvb_admin_counters *c)
{
	const struct kvb_server *srv = ctx;
	struct kvb_totals t;

	kvb_server_totals(srv, &t);
	*c = past;
	c->read_bytes += t.v[KVB_T_RETRIEVE_BYTES];
	c->written_bytes += t.v[KVB_T_STORE_BYTES];
	c->reads += t.ops[KVB_CLASS_RETRIEVE];
	c->writes += t.ops[KVB_CLASS_STORE];
	c->power_on_seconds += (kvb_clock_ns() - srv->started_ns) / 1000000000u;
	c->media_errors += atomic_load_explicit(&srv->ctrl->media_errors, memory_order_relaxed);
}

/* 0, and *@clean, when the file could be read; all of it or nothing is taken over. */
static int load(bool *clean)
{
	struct kvb_admin_counters c = { 0 };
	unsigned int seen = 0;
	char line[96], name[32];
	uint64_t v;
	FILE *f = fopen(path, "re");

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%31s = %" SCNu64, name, &v) != 2)
			continue;
		if (!strcmp(name, "clean")) {
			*clean = v;
			seen |= 1u << NFIELDS;
		}
		for (size_t i = 0; i < NFIELDS; i++) {
			if (!strcmp(name, fields[i].name)) {
				*field(&c, i) = v;
				seen |= 1u << i;
			}
		}
	}
	fclose(f);
	if (seen != (2u << NFIELDS) - 1)
		return -EINVAL;
	past = c;
	return 0;
}

static void save(struct kvb_server *srv, bool clean, bool sync)
{
	struct kvb_admin_counters c;
	char text[NFIELDS * 64];
	int ret, n;

	if (!path[0])
		return;
	kvb_health_counters(srv, &c);
	n = snprintf(text, sizeof(text), "clean = %d\n", clean);
	for (size_t i = 0; i < NFIELDS; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s = %" PRIu64 "\n",
			      fields[i].name, *field(&c, i));
	ret = kvb_state_replace(path, text, sync);
	saved_ns = kvb_clock_ns();
	saved_media_errors = c.media_errors;
	if (!ret)
		return;
	/* Tried again at the next start; until then it would only fill the log. */
	kvb_log(ret == -ENOENT ? KVB_LOG_INFO : KVB_LOG_WARN,
		"%s: %s: counts of the health log end with this daemon", path, strerror(-ret));
	path[0] = 0;
}

void kvb_health_begin(struct kvb_server *srv)
{
	char uuid[40];
	bool clean = true;
	int ret;

	uuid_unparse_lower(srv->cfg->uuid, uuid);
	if (snprintf(path, sizeof(path), "%s/%s.health", srv->cfg->state_dir, uuid) >=
	    (int)sizeof(path)) {
		path[0] = 0;
		return;
	}
	ret = load(&clean);
	if (ret && ret != -ENOENT)
		kvb_log(KVB_LOG_WARN, "%s: %s: the health log begins anew", path,
			ret == -EINVAL ? "not a health file" : strerror(-ret));
	past.power_cycles++;
	if (!clean) {
		past.unsafe_shutdowns++;
		kvb_log(KVB_LOG_INFO, "the last daemon did not stop in order");
	}
	save(srv, false, true);
}

bool kvb_health_unsaved(const struct kvb_server *srv)
{
	return path[0] &&
	       past.media_errors + atomic_load_explicit(&srv->ctrl->media_errors,
							memory_order_relaxed) != saved_media_errors;
}

void kvb_health_tick(struct kvb_server *srv, uint64_t now_ns)
{
	uint64_t age = now_ns - saved_ns;

	if (age > (kvb_health_unsaved(srv) ? SAVE_ERRORS_NS : SAVE_ALL_NS))
		save(srv, false, false);
}

void kvb_health_end(struct kvb_server *srv)
{
	save(srv, true, true);
}
