/* SPDX-License-Identifier: MIT */
/*
 * Who is let in: new connections, and the limits that they meet.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/closer.h"
#include "control/server.h"
#include "control/session.h"

/*
 * A session takes its socket and a bell on each reactor. Without room for what messages
 * bring, the next client's descriptors would be lost on an old one.
 */
void kvb_server_limit_sessions(struct kvb_server *srv)
{
	const rlim_t spare = 64;
	rlim_t used, room = 1;
	struct rlimit rl;

	srv->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	used = (rlim_t)srv->reserve_fd + 4;
	srv->max_sessions = srv->cfg->max_sessions;
	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur == RLIM_INFINITY)
		return;
	if (rl.rlim_cur > used + spare)
		room = (rl.rlim_cur - used - spare) / (1 + kvb_nreactors);
	if (room >= srv->max_sessions)
		return;
	kvb_log(KVB_LOG_WARN,
		"the limit of %llu open files allows %llu sessions, not max_sessions = %llu",
		(unsigned long long)rl.rlim_cur, (unsigned long long)room,
		(unsigned long long)srv->max_sessions);
	srv->max_sessions = room ? room : 1;
}

static struct kvb_session *session_new(struct kvb_server *srv, int fd, uint64_t now)
{
	struct kvb_session *s = calloc(1, sizeof(*s));
	socklen_t len = sizeof(s->peer);

	if (!s)
		return NULL;
	s->srv = srv;
	s->fd = fd;
	s->hello_fd = -1;
	for (unsigned int i = 0; i < KVB_MAX_REACTORS; i++)
		s->bells[i].fd = -1;
	s->open = calloc(srv->nn ? srv->nn : 1, sizeof(*s->open));
	s->open_mem = calloc(srv->nn ? srv->nn : 1, sizeof(*s->open_mem));
	if (!s->open || !s->open_mem || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &s->peer, &len))
		goto fail;
	len = sizeof(s->groups);
	/* Without the list only the primary group counts. */
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, s->groups, &len))
		s->ngroups = (int)(len / sizeof(gid_t));
	s->admin.uid = s->peer.uid;
	s->admin.gid = s->peer.gid;
	s->admin.groups = s->groups;
	s->admin.ngroups = s->ngroups;
	s->admin.privileged = s->peer.uid == 0 || s->peer.uid == geteuid();
	s->admin.ctx = s;
	kvb_admin_peer_init(&s->admin);
	s->id = ++srv->next_session;
	s->accepted_ns = now;
	if (kvb_server_watch(srv, fd, s))
		goto fail;
	s->next = srv->sessions;
	if (s->next)
		s->next->prev = s;
	srv->sessions = s;
	srv->nsessions++;
	return s;
fail:
	free((void *)s->open);
	free(s->open_mem);
	free(s);
	return NULL;
}

static void tell(int fd, const char *text)
{
	struct gkv_msg_reply r = { .hdr.magic = GKV_CTL_MAGIC, .hdr.version = GKV_CTL_VERSION };

	r.hdr.type = GKV_MSG_HELLO | GKV_MSG_REPLY;
	r.hdr.size = sizeof(r);
	r.hdr.error = EMFILE;
	snprintf(r.text, sizeof(r.text), "%s", text);
	send(fd, &r, sizeof(r), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static unsigned int sessions_of(const struct kvb_server *srv, uid_t uid)
{
	unsigned int n = 0;

	for (const struct kvb_session *s = srv->sessions; s; s = s->next)
		n += s->peer.uid == uid;
	return n;
}

/* Room for one more? If not, the limit that was met is told, and how much of it is in use. */
static bool has_room(const struct kvb_server *srv, uid_t uid, char *why, size_t len)
{
	uint64_t each = srv->cfg->max_user_sessions;
	unsigned int n;

	if (srv->nsessions >= srv->max_sessions) {
		snprintf(why, len, "daemon has %u sessions, the limit is %llu", srv->nsessions,
			 (unsigned long long)srv->max_sessions);
		return false;
	}
	if (kvb_close_state(uid, &n) == KVB_CLOSE_STUCK) {
		snprintf(why, len, "%u descriptors that uid %u sent before cannot be closed", n, uid);
		return false;
	}
	if (srv->nsessions < each)
		return true;
	n = sessions_of(srv, uid);
	if (n < each)
		return true;
	snprintf(why, len, "uid %u has %u sessions, the limit of a user is %llu (max_user_sessions)",
		 uid, n, (unsigned long long)each);
	return false;
}

/* Out of descriptors: without an answer the client would wait, and the loop spin. */
static void refuse_one(struct kvb_server *srv)
{
	char why[GKV_CTL_TEXT];
	int fd;

	close(srv->reserve_fd);
	fd = accept4(srv->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		snprintf(why, sizeof(why), "daemon has %u sessions, and its limit of open files is met",
			 srv->nsessions);
		tell(fd, why);
		kvb_close_connection_now(fd);
	}
	srv->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void kvb_server_accept(struct kvb_server *srv, uint64_t now)
{
	char why[GKV_CTL_TEXT];

	for (int i = 0; i < 64; i++) {
		struct ucred peer = { .uid = (uid_t)-1 };
		socklen_t len = sizeof(peer);
		int fd = accept4(srv->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if ((errno == EMFILE || errno == ENFILE) && srv->reserve_fd >= 0) {
				refuse_one(srv);
				continue;
			}
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				kvb_log_client("new connections", KVB_LOG_WARN, "accept: %s", strerror(errno));
			return;
		}
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
		if (has_room(srv, peer.uid, why, sizeof(why))) {
			if (!session_new(srv, fd, now))
				kvb_close_connection(fd, peer.uid);
			continue;
		}
		tell(fd, why);
		kvb_close_connection(fd, peer.uid);
	}
}
