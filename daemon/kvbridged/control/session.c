/* SPDX-License-Identifier: MIT */
/*
 * One client's connection: messages in, answers out, and its end.
 */
#include "control/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/settings.h"
#include "control/closer.h"
#include "control/server.h"

/* ---- Answers ---- */

void kvb_session_reply(struct kvb_session *s, void *reply, size_t size, const int *fds, int nfds)
{
	struct gkv_msg_reply *r = reply;
	struct iovec iov = { .iov_base = reply, .iov_len = size };
	union {
		char buf[CMSG_SPACE(GKV_CTL_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (s->closing || !s->busy)
		return;
	r->hdr.magic = GKV_CTL_MAGIC;
	r->hdr.version = GKV_CTL_VERSION;
	r->hdr.type = s->req.type | GKV_MSG_REPLY;
	r->hdr.size = (uint32_t)size;
	r->hdr.seq = s->req.seq;
	if (nfds) {
		struct cmsghdr *c = &ctl.align;

		msg.msg_control = ctl.buf;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	s->busy = false;
	/* One request at a time: only a client that never reads can fill the socket. */
	if (sendmsg(s->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size) {
		kvb_session_close(s);
		return;
	}
	kvb_server_listen_to(s, true);
}

void kvb_session_error(struct kvb_session *s, int errnum, const char *text)
{
	struct gkv_msg_reply reply = { 0 };

	reply.hdr.error = (uint32_t)errnum;
	snprintf(reply.text, sizeof(reply.text), "%s", text);
	kvb_session_reply(s, &reply, sizeof(reply), NULL, 0);
}

void kvb_session_ok(struct kvb_session *s)
{
	struct gkv_msg_reply reply = { 0 };

	kvb_session_reply(s, &reply, sizeof(reply), NULL, 0);
}

/* ---- Hello ---- */

/*
 * The same session on an older connection: its commands may still be in flight, and the
 * queue memory must not have two owners.
 */
static struct kvb_session *find_twin(const struct kvb_session *s)
{
	static const uint8_t none[16];

	if (!memcmp(s->uuid, none, sizeof(none)))
		return NULL;
	for (struct kvb_session *t = s->srv->sessions; t; t = t->next) {
		if (t != s && t->hello && !memcmp(t->uuid, s->uuid, sizeof(s->uuid)))
			return t;
	}
	return NULL;
}

/* Clients allot doorbells before they know our limits: map no more than can be of use. */
static uint64_t doorbell_bytes(const struct kvb_session *s, uint64_t len)
{
	const struct kvb_config *cfg = s->srv->cfg;
	uint64_t most = GKV_DB_LEN(cfg->max_qid, (unsigned int)cfg->dstrd);

	return len < most ? len : most;
}

/* The name ends up on terminals and in JSON, which is UTF-8. */
static void set_name(struct kvb_session *s, const char *name)
{
	for (size_t i = 0; i < sizeof(s->name) && name[i]; i++)
		s->name[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
}

static int hello_check(struct kvb_session *s, const struct gkv_msg_hello *m, int fd,
		       struct kvb_err *err)
{
	if (m->version_min > GKV_CTL_VERSION || m->version_max < GKV_CTL_VERSION)
		return kvb_fail(err, EPROTO,
				"client speaks versions %u to %u of the control protocol, this daemon %u",
				m->version_min, m->version_max, GKV_CTL_VERSION);
	if (m->rsvd28)
		return kvb_fail(err, EINVAL, "reserved field is %#x", m->rsvd28);
	if (!memchr(m->name, 0, sizeof(m->name)))
		return kvb_fail(err, EINVAL, "name is not terminated");
	if (!m->db_len)
		return 0;
	if (fd < 0)
		return kvb_fail(err, EINVAL, "no descriptor came with %llu bytes of doorbells",
				(unsigned long long)m->db_len);
	return kvb_clientmem_map(&s->db,
				 &(struct kvb_memreq){ .fd = fd,
						       .offset = m->db_offset,
						       .len = doorbell_bytes(s, m->db_len),
						       .write = true,
						       .use = KVB_MEM_OWN,
						       .what = "doorbells",
						       .dead = &s->db_dead },
				 err);
}

static void hello_reply(struct kvb_session *s)
{
	const struct kvb_config *cfg = s->srv->cfg;
	struct gkv_msg_hello_reply reply = {
		.version = GKV_CTL_VERSION,
		.dstrd = (uint16_t)cfg->dstrd,
		.page_size = 4096,
		.features = s->features,
		.max_depth = atomic_load(&kvb_live.max_queue_depth),
		.max_qid = (uint32_t)cfg->max_qid,
		.max_regions = (uint32_t)cfg->max_regions,
		.reactors = kvb_nreactors,
		.max_region_bytes = cfg->max_region_bytes,
		.poll_interval_ns = atomic_load(&kvb_live.poll_interval_ns),
		.nn = s->srv->nn,
	};

	for (unsigned int i = 0; i < s->srv->nns; i++) {
		if (s->srv->nss[i]->deadline_ns > reply.max_deadline_ns)
			reply.max_deadline_ns = s->srv->nss[i]->deadline_ns;
	}
	memcpy(reply.instance, s->srv->instance, sizeof(reply.instance));
	s->hello = true;
	kvb_session_reply(s, &reply, sizeof(reply), &s->srv->state_fd, 1);
}

static void do_hello(struct kvb_session *s, const struct gkv_msg_hello *m, int fd)
{
	struct kvb_session *twin;
	struct kvb_err err;
	int rc;

	if (s->hello) {
		/* Before anything changes: queue pairs live on what the first one gave. */
		kvb_session_error(s, EPROTO, "second hello");
		return;
	}
	memcpy(s->uuid, m->session, sizeof(s->uuid));
	twin = find_twin(s);
	if (twin && twin->closing) {
		/* Go on when it has drained: kvb_session_try_free() comes back here. */
		s->hello_msg = *m;
		s->hello_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
		s->waiting_for_twin = true;
		return;
	}
	if (twin) {
		kvb_session_error(s, EBUSY, "session is connected already");
		return;
	}
	rc = hello_check(s, m, fd, &err);
	if (!rc && kvb_session_init_regions(s))
		rc = kvb_fail(&err, ENOMEM, "out of memory");
	if (rc) {
		kvb_clientmem_unmap(&s->db, s->peer.uid);
		kvb_session_error(s, -rc, err.text);
		return;
	}
	s->features = m->features & (GKV_FEATURE_CSUM | GKV_FEATURE_RESUME | GKV_FEATURE_VRAM);
	set_name(s, m->name);
	hello_reply(s);
}

static void resume_hello(struct kvb_session *s)
{
	struct gkv_msg_hello m = s->hello_msg;
	int fd = s->hello_fd;

	s->hello_fd = -1;
	s->waiting_for_twin = false;
	do_hello(s, &m, fd);
	if (fd >= 0)
		kvb_close_foreign(fd, s->peer.uid);
}

/* ---- Admin and settings ---- */

bool kvb_session_privileged(const struct kvb_session *s)
{
	return s->peer.uid == 0 || s->peer.uid == geteuid();
}

static void do_admin(struct kvb_session *s, const struct gkv_msg_admin *m)
{
	struct gkv_msg_admin_reply reply = { 0 };

	if (m->data_len > GKV_CTL_DATA || m->rsvd) {
		kvb_session_error(s, EINVAL, "more than 4096 bytes of data, or reserved bits set");
		return;
	}
	reply.data_len = GKV_CTL_DATA;
	kvb_admin_exec(s->srv->ctrl, &s->admin, &m->sqe, m->data, m->data_len, &reply.cqe,
		       reply.data, &reply.data_len);
	kvb_session_reply(s, &reply, sizeof(reply), NULL, 0);
}

static void do_set(struct kvb_session *s, const struct gkv_msg_set *m)
{
	struct kvb_err err;
	int rc;

	if (!memchr(m->name, 0, sizeof(m->name)) || !memchr(m->value, 0, sizeof(m->value))) {
		kvb_session_error(s, EINVAL, "name or value is not terminated");
		return;
	}
	if (!kvb_session_privileged(s)) {
		kvb_session_error(s, EPERM, "only root and the daemon's own user change settings");
		return;
	}
	rc = kvb_settings_set(m->name, m->value, &err);
	if (rc) {
		kvb_session_error(s, -rc, err.text);
		return;
	}
	kvb_log(KVB_LOG_INFO, "%s set to %s by uid %u", m->name, m->value, s->peer.uid);
	kvb_session_ok(s);
}

/* ---- Messages ---- */

static const struct {
	uint16_t size;
	uint8_t fds_min, fds_max;
	bool before_hello;
} messages[] = {
	[GKV_MSG_HELLO] = { sizeof(struct gkv_msg_hello), 0, 1, true },
	[GKV_MSG_NS_OPEN] = { sizeof(struct gkv_msg_ns_open), 0, 0, false },
	[GKV_MSG_REGION_ADD] = { sizeof(struct gkv_msg_region_add), 1, 1, false },
	[GKV_MSG_REGION_DEL] = { sizeof(struct gkv_msg_id), 0, 0, false },
	[GKV_MSG_QP_ADD] = { sizeof(struct gkv_msg_qp_add), 3, 4, false },
	[GKV_MSG_QP_DEL] = { sizeof(struct gkv_msg_id), 0, 0, false },
	[GKV_MSG_QP_RESET] = { sizeof(struct gkv_msg_id), 0, 0, false },
	[GKV_MSG_ADMIN] = { sizeof(struct gkv_msg_admin), 0, 0, false },
	[GKV_MSG_QUERY] = { sizeof(struct gkv_msg_query), 0, 0, false },
	[GKV_MSG_SET] = { sizeof(struct gkv_msg_set), 0, 0, false },
};

/* The head of a message; false when the stream makes no sense and must end. */
static bool head_ok(struct kvb_session *s, const void *msg, size_t size, int nfds)
{
	const struct gkv_msg_hdr *h = msg;
	char text[96];

	if (size < sizeof(*h) || h->magic != GKV_CTL_MAGIC || h->size != size)
		return false;
	s->req = *h;
	s->busy = true;
	if (!h->type || h->type >= sizeof(messages) / sizeof(messages[0])) {
		snprintf(text, sizeof(text), "unknown message type %u", h->type);
		kvb_session_error(s, EOPNOTSUPP, text);
	} else if (h->version != GKV_CTL_VERSION && h->type != GKV_MSG_HELLO) {
		snprintf(text, sizeof(text), "message of version %u, %u was agreed", h->version,
			 GKV_CTL_VERSION);
		kvb_session_error(s, EPROTO, text);
	} else if (h->error || h->rsvd) {
		kvb_session_error(s, EINVAL, "reserved fields of the message head are not 0");
	} else if (size != messages[h->type].size) {
		snprintf(text, sizeof(text), "message type %u of %zu bytes, expected %u", h->type,
			 size, messages[h->type].size);
		kvb_session_error(s, EINVAL, text);
	} else if (nfds < messages[h->type].fds_min || nfds > messages[h->type].fds_max) {
		snprintf(text, sizeof(text), "message type %u with %d descriptors, expected %u to %u",
			 h->type, nfds, messages[h->type].fds_min, messages[h->type].fds_max);
		kvb_session_error(s, EINVAL, text);
	} else if (!s->hello && !messages[h->type].before_hello) {
		kvb_session_error(s, EPROTO, "the first message must be a hello");
	}
	return true;
}

void kvb_session_message(struct kvb_session *s, const void *msg, size_t size, int *fds, int nfds)
{
	const struct gkv_msg_id *id = msg;

	if (!head_ok(s, msg, size, nfds)) {
		kvb_log_client("broken messages", KVB_LOG_WARN,
			       "session %llu (pid %d): not a control message, closing",
			       (unsigned long long)s->id, s->peer.pid);
		kvb_session_close(s);
		goto out;
	}
	if (!s->busy)
		goto out;	/* refused */
	/* Answers may come later; meanwhile nothing more is read. */
	kvb_server_listen_to(s, false);
	switch (s->req.type) {
	case GKV_MSG_HELLO:
		do_hello(s, msg, nfds ? fds[0] : -1);
		break;
	case GKV_MSG_NS_OPEN:
		kvb_session_ns_open(s, msg);
		break;
	case GKV_MSG_REGION_ADD:
		kvb_session_region_add(s, msg, fds[0]);
		break;
	case GKV_MSG_REGION_DEL:
		kvb_session_region_del(s, id);
		break;
	case GKV_MSG_QP_ADD:
		kvb_session_qp_add(s, msg, fds, nfds);
		break;
	case GKV_MSG_QP_DEL:
		kvb_session_qp_del(s, id);
		break;
	case GKV_MSG_QP_RESET:
		kvb_session_qp_reset(s, id);
		break;
	case GKV_MSG_ADMIN:
		do_admin(s, msg);
		break;
	case GKV_MSG_QUERY:
		kvb_session_query(s, msg);
		break;
	case GKV_MSG_SET:
		do_set(s, msg);
		break;
	}
out:
	for (int i = 0; i < nfds; i++)
		kvb_close_foreign(fds[i], s->peer.uid);
}

/* ---- The end ---- */

void kvb_session_close(struct kvb_session *s)
{
	if (s->closing)
		return;
	s->closing = true;
	s->busy = false;
	kvb_server_unwatch(s);
	kvb_close_connection(s->fd, s->peer.uid);
	s->fd = -1;
	kvb_reach_cancel(s);
	kvb_session_drop_qps(s);
	kvb_session_try_free(s);
}

/* Whoever waited for @uuid to drain: the first goes on, others learn of that one. */
static void resume_twins(struct kvb_server *srv, const uint8_t uuid[16])
{
	struct kvb_session *t;

	do {
		for (t = srv->sessions; t; t = t->next) {
			if (t->waiting_for_twin && !t->closing &&
			    !memcmp(t->uuid, uuid, sizeof(t->uuid)))
				break;
		}
		if (t)
			resume_hello(t);
	} while (t && !t->waiting_for_twin);
}

void kvb_session_try_free(struct kvb_session *s)
{
	struct kvb_server *srv = s->srv;

	if (!s->closing || s->buried || s->nqps || s->ndraining || s->old_sets ||
	    s->asking.probe)
		return;
	if (s->nbells) {
		kvb_session_drop_bells(s);
		return;
	}
	kvb_session_drop_regions(s);
	kvb_clientmem_unmap(&s->db, s->peer.uid);
	if (s->prev)
		s->prev->next = s->next;
	else
		srv->sessions = s->next;
	if (s->next)
		s->next->prev = s->prev;
	srv->nsessions--;
	s->buried = true;
	s->next_grave = srv->graves;
	srv->graves = s;
	if (!srv->stopping)
		resume_twins(srv, s->uuid);
}

void kvb_session_free(struct kvb_session *s)
{
	if (s->hello_fd >= 0)
		kvb_close_foreign(s->hello_fd, s->peer.uid);
	free((void *)s->open);
	free(s->open_mem);
	free(s->report);
	free(s);
}
