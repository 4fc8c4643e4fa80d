/* SPDX-License-Identifier: MIT */
#include "target.h"

#include <inttypes.h>
#include <string.h>

#include <gkv/nvme_kv.h>

#include "util.h"

void target_open(struct target *t, const char *socket, const char *ns, uint32_t max_qps)
{
	uint64_t start = now_ns();
	int err;

	memset(t, 0, sizeof(*t));
	err = gkv_connect(&t->g, socket, max_qps, 0);
	if (err)
		die("connect: %s (%s)", gkv_error(), strerror(-err));
	t->limits.size = sizeof(t->limits);
	t->ns.size = sizeof(t->ns);
	err = gkv_limits(t->g, &t->limits);
	if (err)
		die("limits: %s (%s)", gkv_error(), strerror(-err));
	err = gkv_ns_open(t->g, ns, 0, &t->ns);
	if (err)
		die("namespace %s: %s (%s)", ns ? ns : "(first)", gkv_error(), strerror(-err));
	t->connect_ns = now_ns() - start;
}

void target_close(struct target *t)
{
	gkv_close(t->g);
	t->g = NULL;
}

void target_check(const struct target *t, const struct demand *d)
{
	char a[40], b[40];

	if (d->value_max > t->ns.value_max)
		die("values of %s (%" PRIu64 " bytes) exceed the largest value of namespace %s, %s "
		    "(%" PRIu32 " bytes)",
		    human_bytes(a, sizeof(a), (double)d->value_max), d->value_max, t->ns.name,
		    human_bytes(b, sizeof(b), t->ns.value_max), t->ns.value_max);
	if (d->qd + 1 > t->limits.max_depth)
		die("queue depth %" PRIu32 " needs %" PRIu32
		    " entries; the daemon's limit is %" PRIu32,
		    d->qd, d->qd + 1, t->limits.max_depth);
	if (d->qps > t->limits.max_qps)
		die("%" PRIu32 " queue pairs; the daemon's limit for a session is %" PRIu32, d->qps,
		    t->limits.max_qps);
	if (d->memory > t->limits.max_region_bytes)
		die("buffers of %s; the daemon's limit of registered memory for a session is %s: "
		    "lower the queue depth, the queue pairs or the value size",
		    human_bytes(a, sizeof(a), (double)d->memory),
		    human_bytes(b, sizeof(b), (double)t->limits.max_region_bytes));
	if (d->writes && (t->ns.flags & GKV_NS_RDONLY))
		die("namespace %s is read-only for this user; the benchmark would store",
		    t->ns.name);
}

struct gkv_mem *target_mem(struct target *t, uint64_t len)
{
	uint64_t start = now_ns();
	struct gkv_mem *mem;
	int err = t->mode & GKV_MODE_DATA ?
			  gkv_mem_alloc_vram(t->g, GKV_PROVIDER_ANY, len, &mem) :
			  gkv_mem_alloc(t->g, len, &mem);
	char text[40];

	if (err)
		die("register %s: %s (%s)", human_bytes(text, sizeof(text), (double)len),
		    gkv_error(), strerror(-err));
	t->register_ns += now_ns() - start;
	return mem;
}

struct gkv_qp *target_qp(struct target *t, uint32_t qd, uint32_t flags, uint64_t timeout_ns)
{
	struct gkv_qp_opts opts = {
		.size = sizeof(opts),
		.depth = qd + 1,
		.flags = flags,
		.timeout_ns = timeout_ns,
		.mode = t->mode,
	};
	uint64_t start = now_ns();
	struct gkv_qp *qp;
	int err = gkv_qp_create(t->g, &opts, &qp);

	if (err)
		die("queue pair: %s (%s)", gkv_error(), strerror(-err));
	t->qp_ns += now_ns() - start;
	return qp;
}

void errors_add(struct errors *e, uint16_t status, uint16_t flags, uint64_t count)
{
	flags &= GKV_C_TIMEDOUT | GKV_C_LOST;
	status = flags ? 0 : GKV_STATUS_CODE(status);
	e->total += count;
	for (uint32_t i = 0; i < e->n; i++) {
		if (e->e[i].status == status && e->e[i].flags == flags) {
			e->e[i].count += count;
			return;
		}
	}
	/* More kinds than a command set has: the last entry takes the rest. */
	if (e->n == ARRAY_SIZE(e->e))
		e->e[e->n - 1].count += count;
	else
		e->e[e->n++] = (struct error_count){ status, flags, count };
}

void errors_merge(struct errors *dst, const struct errors *src)
{
	for (uint32_t i = 0; i < src->n; i++)
		errors_add(dst, src->e[i].status, src->e[i].flags, src->e[i].count);
}

const char *error_name(const struct error_count *e)
{
	if (e->flags & GKV_C_LOST)
		return "daemon lost";
	if (e->flags & GKV_C_TIMEDOUT)
		return "timed out";
	return gkv_status_name(e->status);
}
