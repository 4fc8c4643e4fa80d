/* SPDX-License-Identifier: MIT */
/*
 * Session with the daemon, and running one command on it.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gkv/nvme_kv.h>

#include "gkvctl.h"

#define WAIT_NS 200000000ull

static const char *socket_path(const struct ctl *c)
{
	const char *env = getenv("GKV_SOCKET");

	if (c->socket)
		return c->socket;
	return env && env[0] ? env : GKV_SOCKET_DEFAULT;
}

int ctl_connect(struct ctl *c, uint32_t flags)
{
	int ret = gkv_connect(&c->g, c->socket, 1, flags);

	switch (ret) {
	case 0:
		return EX_DONE;
	case -ENOENT:
	case -ECONNREFUSED:
		return ctl_fail(c, "no daemon at %s: is kvbridged running? "
				   "(-s PATH or $GKV_SOCKET name another socket)", socket_path(c));
	case -EACCES:
	case -EPERM:
		return ctl_fail(c, "access to %s denied: are you in the group that owns it?",
				socket_path(c));
	default:
		return ctl_fail(c, "%s: %s", socket_path(c), gkv_error());
	}
}

int ctl_open_ns(struct ctl *c, uint32_t ns_flags)
{
	int ret;

	c->ns.size = sizeof(c->ns);
	ret = gkv_ns_open(c->g, c->ns_name, ns_flags, &c->ns);
	if (!ret)
		return EX_DONE;
	if (ret == -ENOENT && c->ns_name)
		return ctl_fail(c, "there is no namespace \"%s\"; see gkvctl namespaces",
				c->ns_name);
	if (ret == -ENOENT)
		return ctl_fail(c, "there is no namespace that you may open");
	if (ret == -EACCES && c->ns_name)
		return ctl_fail(c, "access to namespace \"%s\" denied: %s", c->ns_name, gkv_error());
	return ctl_fail(c, "namespace: %s", gkv_error());
}

int ctl_open(struct ctl *c, uint32_t ns_flags)
{
	struct gkv_qp_opts opts = { .size = sizeof(opts), .depth = 2, .flags = GKV_QP_CSUM };
	int ret = ctl_connect(c, 0);

	if (!ret)
		ret = ctl_open_ns(c, ns_flags);
	if (ret)
		return ret;
	if (gkv_qp_create(c->g, &opts, &c->qp))
		return ctl_fail(c, "queue pair: %s", gkv_error());
	return EX_DONE;
}

void ctl_close(struct ctl *c)
{
	if (c->g)
		gkv_close(c->g);
	c->g = NULL;
	c->qp = NULL;
	c->mem = NULL;
}

int ctl_buffer(struct ctl *c, size_t len)
{
	if (c->mem && gkv_mem_len(c->mem) >= len)
		return EX_DONE;
	if (c->mem && gkv_mem_free(c->mem))
		return ctl_fail(c, "buffer: %s", gkv_error());
	c->mem = NULL;
	if (gkv_mem_alloc(c->g, len, &c->mem))
		return ctl_fail(c, "buffer of %zu bytes: %s", len, gkv_error());
	return EX_DONE;
}

void ctl_cmd(const struct ctl *c, struct gkv_cmd *cmd, uint8_t opcode, const uint8_t *key,
	     uint8_t key_len)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = opcode;
	cmd->nsid = c->ns.nsid;
	cmd->key_len = key_len;
	if (key_len)
		memcpy(cmd->key, key, key_len);
}

int ctl_exec(struct ctl *c, const struct gkv_cmd *cmd, struct gkv_comp *comp)
{
	int n = gkv_submit(c->qp, cmd, 1);

	if (n != 1)
		return ctl_fail(c, "submission: %s", n < 0 ? gkv_error() : "the queue pair is full");
	do {
		n = gkv_wait(c->qp, comp, 1, WAIT_NS);
		progress_update(0);
	} while (n == 0 && gkv_qp_outstanding(c->qp));
	if (n < 0)
		return ctl_fail(c, "completion: %s", gkv_error());
	if (n == 0)
		return ctl_fail(c, "completion: none came for the command");
	if (comp->flags & GKV_C_TIMEDOUT) {
		char t[32];

		view_time_ns(c->ns.deadline_ns, t, sizeof(t));
		return ctl_fail(c, "no answer in time (the deadline of namespace %s is %s); "
				   "the outcome is unknown", c->ns.name, t);
	}
	if (comp->flags & GKV_C_LOST)
		return ctl_fail(c, "the daemon is gone; the outcome is unknown");
	return EX_DONE;
}

int ctl_check(const struct ctl *c, const char *subject, uint16_t status)
{
	if (status == GKV_SC_SUCCESS)
		return EX_DONE;
	ctl_fail(c, "%s: %s (status %x/%02xh)%s", subject, gkv_status_name(status),
		 (status >> 8) & 7, status & 0xff,
		 gkv_status_retry(status) ? "; trying again may help" : "");
	return GKV_STATUS_CODE(status) == GKV_SC_KEY_NOT_FOUND ? EX_NOKEY : EX_FAILED;
}

int ctl_admin(struct ctl *c, const void *sqe, void *cqe, void *data, uint32_t *len)
{
	struct gkv_cqe *e = cqe;

	if (gkv_admin(c->g, sqe, cqe, data, len))
		return ctl_fail(c, "admin command: %s", gkv_error());
	return ctl_check(c, "the controller refused", (uint16_t)(le16toh(e->status) >> 1));
}
