/* SPDX-License-Identifier: MIT */
/* Requests and replies on the control socket. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "impl.h"

/* CLOCK_MONOTONIC in ns. */
uint64_t gkvi_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

void gkvi_hdr(struct gkv_msg_hdr *h, uint16_t type, size_t size)
{
	memset(h, 0, size);
	h->magic = htole32(GKV_CTL_MAGIC);
	h->version = htole16(GKV_CTL_VERSION);
	h->type = htole16(type);
	h->size = htole32((uint32_t)size);
}

/*
 * Connect to the daemon. Never blocks: a full backlog is -EAGAIN. Returns a
 * non-blocking descriptor or a negative errno.
 */
int gkvi_socket(const struct sockaddr_un *addr)
{
	int fd, ret;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return gkvi_err(-errno, "cannot make a socket: %s", strerror(errno));
	if (!connect(fd, (const struct sockaddr *)addr, sizeof(*addr)))
		return fd;
	ret = -errno;
	close(fd);
	return gkvi_err(ret, "cannot connect to kvbridged at %s: %s", addr->sun_path,
			strerror(-ret));
}

/* Wait for @events of @fd. -ECANCELED when the session is being closed. */
static int wait_for(struct gkv *g, int fd, short events, uint64_t until)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		int ret;

		if (load_acquire(&g->stop))
			return gkvi_err(-ECANCELED, "the session is being closed");
		if (gkvi_now() >= until)
			return gkvi_err(-ETIMEDOUT, "kvbridged does not answer");
		/* Slices, so that gkv_close() never waits for a daemon that hangs. */
		ret = poll(&p, 1, 50);
		if (ret > 0)
			return 0;
		if (ret < 0 && errno != EINTR)
			return gkvi_err(-errno, "poll: %s", strerror(errno));
	}
}

static int send_msg(struct gkv *g, int sock, const void *buf, size_t len, const int *fds, int n_fds,
		    uint64_t until)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(GKV_CTL_MAX_FDS * sizeof(int))];
	} ctl;
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	int ret;

	if (n_fds) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof(ctl));
		m.msg_control = ctl.buf;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	while (sendmsg(sock, &m, MSG_NOSIGNAL) < 0) {
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return gkvi_err(-errno, "cannot send to kvbridged: %s", strerror(errno));
		ret = wait_for(g, sock, POLLOUT, until);
		if (ret)
			return ret;
	}
	return 0;
}

static void close_all(int *fds, int n)
{
	for (int i = 0; i < n; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Receive one message into @buf. Descriptors land in @fds (GKV_CTL_MAX_FDS of them). */
static ssize_t recv_msg(struct gkv *g, int sock, void *buf, size_t len, int *fds, uint64_t until)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(GKV_CTL_MAX_FDS * sizeof(int))];
	} ctl;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t n;
	int got = 0, ret;
	bool reset = false;

	for (;;) {
		m.msg_control = ctl.buf;
		m.msg_controllen = sizeof(ctl.buf);
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
		if (n >= 0)
			break;
		if (errno == EINTR)
			continue;
		/* Told of the reset first; what the daemon said before it may follow. */
		if (errno == ECONNRESET && !reset) {
			reset = true;
			continue;
		}
		if (errno != EAGAIN)
			return gkvi_err(-errno, "cannot receive from kvbridged: %s",
					strerror(errno));
		ret = wait_for(g, sock, POLLIN, until);
		if (ret)
			return ret;
	}
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		int in[GKV_CTL_MAX_FDS], cnt;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		cnt = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(in, CMSG_DATA(c), (size_t)cnt * sizeof(int));
		for (int i = 0; i < cnt; i++) {
			if (got < GKV_CTL_MAX_FDS)
				fds[got++] = in[i];
			else
				close(in[i]);
		}
	}
	if (!n)
		return gkvi_err(-ECONNRESET, "kvbridged closed the connection");
	if (m.msg_flags & MSG_CTRUNC) {
		close_all(fds, got);
		return gkvi_err(-EMFILE, "no room for descriptors from kvbridged: the process's "
					 "limit of open files (RLIMIT_NOFILE) is reached");
	}
	if (m.msg_flags & MSG_TRUNC) {
		close_all(fds, got);
		return gkvi_err(-EPROTO, "kvbridged sent a message larger than %zu bytes", len);
	}
	return n;
}

/*
 * Send @req and receive its reply of @reply_len bytes with exactly @n_rfds
 * descriptors; a negative @n_rfds allows for none too. Returns 0 or a negative
 * errno: from the daemon, whose text is in gkv_error() then, or with g->broken set
 * because the connection is of no more use. That includes a timeout and a malformed
 * reply, since what the daemon did is not known: the connection is shut down and
 * the keeper starts over. Caller holds g->lock.
 */
int gkvi_exchange(struct gkv *g, int sock, struct gkv_msg_hdr *req, size_t len, const int *fds,
		  int n_fds, void *reply, size_t reply_len, int *rfds, int n_rfds,
		  uint64_t timeout_ns)
{
	uint64_t until = gkvi_now() + timeout_ns;
	int got[GKV_CTL_MAX_FDS] = { -1, -1, -1, -1 };
	struct gkv_msg_reply *r = reply;
	bool optional = n_rfds < 0;
	unsigned int err;
	ssize_t n;
	int ret;

	if (optional)
		n_rfds = -n_rfds;
	g->broken = false;
	req->seq = htole32(++g->seq);
	ret = send_msg(g, sock, req, len, fds, n_fds, until);
	if (ret)
		goto broken;
	do {
		close_all(got, GKV_CTL_MAX_FDS);
		n = recv_msg(g, sock, reply, reply_len, got, until);
		if (n < 0) {
			ret = (int)n;
			goto broken;
		}
		if ((size_t)n < sizeof(*r) || le32toh(r->hdr.magic) != GKV_CTL_MAGIC ||
		    le32toh(r->hdr.size) != (size_t)n) {
			ret = gkvi_err(-EPROTO, "kvbridged sent a malformed reply of %zd bytes", n);
			goto broken;
		}
	} while (r->hdr.seq != req->seq);

	if (le16toh(r->hdr.type) != (le16toh(req->type) | GKV_MSG_REPLY)) {
		ret = gkvi_err(-EPROTO, "kvbridged answered message type %u with type 0x%x",
			       le16toh(req->type), le16toh(r->hdr.type));
		goto broken;
	}
	err = le32toh(r->hdr.error);
	if (err) {
		close_all(got, GKV_CTL_MAX_FDS);
		r->text[sizeof(r->text) - 1] = 0;
		if (err > 4095)
			err = EPROTO;
		if (r->text[0])
			gkvi_err_text(r->text);
		else
			gkvi_err(0, "kvbridged refused: %s", strerror((int)err));
		return -(int)err;
	}
	if ((size_t)n != reply_len) {
		ret = gkvi_err(-EPROTO, "kvbridged sent a reply of %zd bytes instead of %zu", n,
			       reply_len);
		goto broken;
	}
	for (int i = 0; i < GKV_CTL_MAX_FDS; i++) {
		if (optional && i < n_rfds)
			continue;
		if ((got[i] >= 0) != (i < n_rfds)) {
			ret = gkvi_err(-EPROTO,
				       "kvbridged sent a reply to message type %u without exactly "
				       "%d descriptors",
				       le16toh(req->type), n_rfds);
			goto broken;
		}
	}
	for (int i = 0; i < n_rfds; i++)
		rfds[i] = got[i];
	return 0;
broken:
	close_all(got, GKV_CTL_MAX_FDS);
	g->broken = true;
	shutdown(sock, SHUT_RDWR);
	return ret;
}

/* Wait for a daemon to serve the session. Caller holds g->lock. */
static int wait_up(struct gkv *g, uint64_t until)
{
	struct timespec ts = { .tv_sec = (time_t)(until / NSEC_PER_SEC),
			       .tv_nsec = (long)(until % NSEC_PER_SEC) };

	while (!load_relaxed(&g->up)) {
		if (g->dead)
			return gkvi_err(-ENOTCONN,
					"kvbridged is gone and the session does not reconnect");
		if (pthread_cond_timedwait(&g->back, &g->lock, &ts) == ETIMEDOUT &&
		    !load_relaxed(&g->up) && !g->dead)
			return gkvi_err(-ENOTCONN, "kvbridged has been away for %llu s",
					AWAY_CALL_NS / NSEC_PER_SEC);
	}
	return 0;
}

/*
 * A request on the session's connection, repeated when the daemon is restarted
 * meanwhile: its successor knows nothing of a request that got no reply. Arguments
 * and result as gkvi_exchange(); -ENOTCONN when no daemon came back. Caller holds
 * g->lock, which is given up while waiting for one.
 */
int gkvi_call(struct gkv *g, struct gkv_msg_hdr *req, size_t len, const int *fds, int n_fds,
	      void *reply, size_t reply_len, int *rfds, int n_rfds)
{
	uint64_t until = gkvi_now() + AWAY_CALL_NS;
	uint64_t timeout;
	int ret;

	for (;;) {
		ret = wait_up(g, until);
		if (ret)
			return ret;
		/* Removal drains, which takes as long as a command may. */
		timeout = 2 * le64toh(g->hello.max_deadline_ns) + 30 * NSEC_PER_SEC;
		ret = gkvi_exchange(g, g->fd, req, len, fds, n_fds, reply, reply_len, rfds, n_rfds,
				    timeout);
		if (!g->broken)
			return ret;
		store_release(&g->up, 0);
		if (!g->has_keeper)
			g->dead = true;
		if (ret != -ECONNRESET && ret != -EPIPE && ret != -ENOTCONN)
			return ret;
	}
}
