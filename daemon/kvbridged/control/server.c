/* SPDX-License-Identifier: MIT */
#include "control/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "config/namespace.h"
#include "control/closer.h"
#include "control/follow.h"
#include "control/health.h"
#include "control/hits.h"
#include "control/reach.h"
#include "control/session.h"
#include "core/clock.h"

/* An orderly stop waits this long for commands in flight. */
#define STOP_TIMEOUT_NS 10000000000ull

/* A connection must have said hello by then. */
#define HELLO_TIMEOUT_MS 10000

static struct kvb_mailbox mailbox;
static int mailbox_fd = -1;

/* ---- Mailbox ---- */

void kvb_control_send(struct kvb_msg *m)
{
	uint64_t one = 1;

	if (kvb_mailbox_put(&mailbox, m) && write(mailbox_fd, &one, sizeof(one)) < 0 &&
	    errno != EAGAIN)
		kvb_log(KVB_LOG_ERR, "eventfd: %s", strerror(errno));
}

static void run_mailbox(void)
{
	uint64_t n;

	if (read(mailbox_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		kvb_log(KVB_LOG_ERR, "eventfd: %s", strerror(errno));
	kvb_mailbox_run(&mailbox);
}

int kvb_server_mailbox(struct kvb_server *srv, struct kvb_err *err)
{
	mailbox_fd = srv->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (mailbox_fd < 0)
		return kvb_fail(err, errno, "eventfd: %s", strerror(errno));
	return 0;
}

/* ---- Socket ---- */

int kvb_server_watch(struct kvb_server *srv, int fd, void *ptr)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = ptr };

	return epoll_ctl(srv->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

/* In the loop's eyes a watch is a pointer with its lowest bit set, a session one without. */
static void *tagged(struct kvb_watch *w)
{
	return (void *)((uintptr_t)w | 1);
}

int kvb_server_watch_fd(struct kvb_server *srv, struct kvb_watch *w, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = tagged(w) };

	return epoll_ctl(srv->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

void kvb_server_unwatch_fd(struct kvb_server *srv, struct kvb_watch *w, int fd)
{
	epoll_ctl(srv->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	for (int i = 0; i < srv->nevents; i++) {
		if (srv->events[i].data.ptr == tagged(w))
			srv->events[i].data.ptr = NULL;
	}
}

void kvb_server_listen_to(struct kvb_session *s, bool on)
{
	/* Hang-ups are reported either way. */
	struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.ptr = s };

	if (s->fd >= 0)
		epoll_ctl(s->srv->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev);
}

void kvb_server_unwatch(struct kvb_session *s)
{
	epoll_ctl(s->srv->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
}

/* The lock outlives nothing but its holder, unlike the socket's name. */
static int take_lock(struct kvb_server *srv, struct kvb_err *err)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];

	snprintf(path, sizeof(path), "%s.lock", srv->cfg->socket);
	srv->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (srv->lock_fd < 0)
		return kvb_fail(err, errno, "%s: %s", path, strerror(errno));
	if (flock(srv->lock_fd, LOCK_EX | LOCK_NB))
		return kvb_fail(err, EBUSY, "%s: another kvbridged serves this socket", path);
	return 0;
}

static int set_owner(const struct kvb_config *cfg, struct kvb_err *err)
{
	gid_t gid;
	struct group *gr;
	char *end;

	if (chmod(cfg->socket, (mode_t)cfg->socket_mode))
		return kvb_fail(err, errno, "%s: chmod: %s", cfg->socket, strerror(errno));
	if (!cfg->socket_group)
		return 0;
	gid = (gid_t)strtoul(cfg->socket_group, &end, 10);
	if (*end) {
		gr = getgrnam(cfg->socket_group);
		if (!gr)
			return kvb_fail(err, EINVAL, "socket_group: no group %s",
					cfg->socket_group);
		gid = gr->gr_gid;
	}
	if (chown(cfg->socket, (uid_t)-1, gid))
		return kvb_fail(err, errno, "%s: chown to group %s: %s", cfg->socket,
				cfg->socket_group, strerror(errno));
	return 0;
}

int kvb_server_listen(struct kvb_server *srv, struct kvb_err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const char *path = srv->cfg->socket;
	sigset_t set;
	int rc;

	if (strlen(path) >= sizeof(sa.sun_path))
		return kvb_fail(err, ENAMETOOLONG, "socket path of %zu bytes, the limit is %zu",
				strlen(path), sizeof(sa.sun_path) - 1);
	rc = take_lock(srv, err);
	if (rc)
		return rc;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (unlink(path) && errno != ENOENT)
		return kvb_fail(err, errno, "%s: %s", path, strerror(errno));
	srv->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (srv->listen_fd < 0)
		return kvb_fail(err, errno, "socket: %s", strerror(errno));
	if (bind(srv->listen_fd, (struct sockaddr *)&sa, sizeof(sa)))
		return kvb_fail(err, errno, "%s: %s", path, strerror(errno));
	rc = set_owner(srv->cfg, err);
	if (rc)
		return rc;
	if (listen(srv->listen_fd, 128))
		return kvb_fail(err, errno, "%s: listen: %s", path, strerror(errno));

	kvb_server_limit_sessions(srv);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	srv->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	srv->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (srv->signal_fd < 0 || srv->epoll_fd < 0 ||
	    kvb_server_watch(srv, srv->listen_fd, &srv->listen_fd) ||
	    kvb_server_watch(srv, srv->signal_fd, &srv->signal_fd) ||
	    kvb_server_watch(srv, srv->wake_fd, &srv->wake_fd))
		return kvb_fail(err, errno, "epoll: %s", strerror(errno));
	kvb_follow_start(srv);
	return 0;
}

void kvb_server_close(struct kvb_server *srv)
{
	if (srv->epoll_fd >= 0)
		kvb_follow_stop(srv);
	if (srv->listen_fd >= 0) {
		unlink(srv->cfg->socket);
		close(srv->listen_fd);
	}
	if (srv->signal_fd >= 0)
		close(srv->signal_fd);
	if (srv->epoll_fd >= 0)
		close(srv->epoll_fd);
	if (srv->wake_fd >= 0)
		close(srv->wake_fd);
	if (srv->lock_fd >= 0)
		close(srv->lock_fd);
	if (srv->reserve_fd >= 0)
		close(srv->reserve_fd);
	srv->listen_fd = srv->signal_fd = srv->epoll_fd = srv->wake_fd = srv->lock_fd = -1;
}

/* ---- Sessions ---- */

/* Whether the next message brings descriptors: looking takes none of them. */
static bool brings_fds(const struct kvb_session *s)
{
	struct msghdr msg = { 0 };

	return recvmsg(s->fd, &msg, MSG_PEEK | MSG_DONTWAIT) >= 0 && msg.msg_flags & MSG_CTRUNC;
}

/*
 * May the next message be read? Not while the user's descriptors are closed more slowly than
 * they come; and one that brings more of those that cannot be closed ends its session.
 */
static bool may_receive(struct kvb_session *s)
{
	unsigned int n;

	switch (kvb_close_state(s->peer.uid, &n)) {
	case KVB_CLOSE_IDLE:
		return true;
	case KVB_CLOSE_BUSY:
		kvb_server_listen_to(s, false);
		s->held = true;
		s->srv->held = true;
		return false;
	case KVB_CLOSE_STUCK:
		break;
	}
	if (!brings_fds(s))
		return true;
	kvb_log_client("descriptors that cannot be closed", KVB_LOG_WARN,
		       "session %llu (pid %d): %u descriptors that uid %u sent before are not closed yet, closing",
		       (unsigned long long)s->id, s->peer.pid, n, s->peer.uid);
	kvb_session_close(s);
	return false;
}

/* Look again at the sessions that had to wait. */
static void release_held(struct kvb_server *srv)
{
	if (!srv->held)
		return;
	srv->held = false;
	for (struct kvb_session *s = srv->sessions; s; s = s->next) {
		if (s->held && !s->closing)
			kvb_server_listen_to(s, true);
		s->held = false;
	}
}

static void receive(struct kvb_session *s)
{
	union {
		char buf[sizeof(struct gkv_msg_admin) + 64];
		uint64_t align;
	} m;
	union {
		char buf[CMSG_SPACE(16 * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = { .iov_base = m.buf, .iov_len = sizeof(m.buf) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = ctl.buf,
			      .msg_controllen = sizeof(ctl.buf) };
	int fds[16], nfds = 0;
	ssize_t n;

	n = recvmsg(s->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* Descriptors may come with an empty message, too. */
	if (n >= 0) {
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
			int count;

			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds + nfds, CMSG_DATA(c), (size_t)count * sizeof(int));
			nfds += count;
		}
	}
	if (n <= 0 || msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (int i = 0; i < nfds; i++)
			kvb_close_foreign(fds[i], s->peer.uid);
		kvb_session_close(s);
		return;
	}
	kvb_session_message(s, m.buf, (size_t)n, fds, nfds);
}

struct kvb_ns *kvb_server_ns(const struct kvb_server *srv, uint32_t nsid)
{
	for (unsigned int i = 0; i < srv->nns; i++) {
		if (srv->nss[i]->nsid == nsid)
			return srv->nss[i];
	}
	return NULL;
}

struct kvb_ns *kvb_server_ns_named(const struct kvb_server *srv, const char *name)
{
	for (unsigned int i = 0; i < srv->nns; i++) {
		if (!strcmp(srv->nss[i]->name, name))
			return srv->nss[i];
	}
	return NULL;
}

void kvb_server_totals(const struct kvb_server *srv, struct kvb_totals *t)
{
	*t = srv->gone;
	for (const struct kvb_session *s = srv->sessions; s; s = s->next) {
		for (const struct kvb_session_qp *q = s->qps; q; q = q->next)
			kvb_totals_add(t, &q->qp.count);
	}
}

static void stop(struct kvb_server *srv)
{
	struct kvb_session *s, *next;

	kvb_log(KVB_LOG_INFO, "stopping: %u sessions to drain", srv->nsessions);
	srv->stopping = true;
	/* New clients find nobody, and wait for the next daemon. */
	unlink(srv->cfg->socket);
	close(srv->listen_fd);
	srv->listen_fd = -1;
	for (s = srv->sessions; s; s = next) {
		next = s->next;
		kvb_session_close(s);
	}
}

static void bury(struct kvb_server *srv)
{
	while (srv->graves) {
		struct kvb_session *s = srv->graves;

		srv->graves = s->next_grave;
		kvb_session_free(s);
	}
}

/* Connections that never say hello hold places others could have. */
static void drop_silent(struct kvb_server *srv, uint64_t now)
{
	struct kvb_session *s, *next;

	if (now - srv->silent_check < HELLO_TIMEOUT_MS * 250000ull)
		return;
	srv->silent_check = now;
	for (s = srv->sessions; s; s = next) {
		next = s->next;
		if (!s->hello && !s->closing && !s->busy &&
		    now - s->accepted_ns > HELLO_TIMEOUT_MS * 1000000ull)
			kvb_session_close(s);
	}
}

/* How long nothing has to be looked at, ms. */
static int patience(const struct kvb_server *srv)
{
	int ms = -1, reach = kvb_reach_patience(kvb_clock_ns());

	if (srv->held)
		return 1;
	if (srv->stopping)
		ms = 100;		/* the time limit */
	else if (srv->sessions || kvb_health_unsaved(srv) || srv->log_held)
		ms = HELLO_TIMEOUT_MS / 4;
	return reach >= 0 && (ms < 0 || reach < ms) ? reach : ms;
}

int kvb_server_run(struct kvb_server *srv)
{
	uint64_t give_up = UINT64_MAX, now;

	while (!srv->stopping || srv->sessions) {
		struct epoll_event ev[64];
		int n = epoll_wait(srv->epoll_fd, ev, 64, patience(srv));

		if (n < 0 && errno != EINTR) {
			kvb_log(KVB_LOG_ERR, "epoll_wait: %s", strerror(errno));
			return -errno;
		}
		release_held(srv);
		srv->events = ev;
		srv->nevents = n;
		for (int i = 0; i < n; i++) {
			struct kvb_session *s = ev[i].data.ptr;

			if (!s) {
				/* No longer watched. */
			} else if ((uintptr_t)s & 1) {
				struct kvb_watch *w = (void *)((uintptr_t)s & ~(uintptr_t)1);

				w->fn(w);
			} else if (ev[i].data.ptr == &srv->listen_fd) {
				if (!srv->stopping)
					kvb_server_accept(srv, kvb_clock_ns());
			} else if (ev[i].data.ptr == &srv->signal_fd) {
				struct signalfd_siginfo si;

				if (read(srv->signal_fd, &si, sizeof(si)) == sizeof(si) &&
				    !srv->stopping) {
					stop(srv);
					give_up = kvb_clock_ns() + STOP_TIMEOUT_NS;
				}
			} else if (ev[i].data.ptr == &srv->wake_fd) {
				run_mailbox();
			} else if (s->closing) {
				/* An earlier event ended it. */
			} else if (ev[i].events & EPOLLIN) {
				/* One message each: who talks without pause stops nobody. */
				if (may_receive(s))
					receive(s);
			} else {
				kvb_session_close(s);
			}
		}
		srv->nevents = 0;
		now = kvb_clock_ns();
		drop_silent(srv, now);
		kvb_health_tick(srv, now);
		kvb_hits_tick(srv, now);
		kvb_reach_tick(now);
		srv->log_held = kvb_log_limits_run();
		bury(srv);
		if (now > give_up) {
			kvb_log(KVB_LOG_WARN, "stopping with commands in flight after %llu s",
				STOP_TIMEOUT_NS / 1000000000ull);
			return -ETIMEDOUT;
		}
	}
	return 0;
}
