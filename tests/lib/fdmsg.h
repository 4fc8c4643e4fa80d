/* SPDX-License-Identifier: MIT */
/*
 * Messages with descriptors, for tests that speak the control protocol by themselves. Header
 * only: fuzzers link nothing else of tests/lib.
 */
#ifndef TESTS_FDMSG_H
#define TESTS_FDMSG_H

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define FDMSG_MAX 64u

/* Send @len bytes as they are; @flags: MSG_*. 0 or a negative errno. */
static inline int fdmsg_send(int sock, const void *msg, size_t len, const int *fds,
			     unsigned int nfds, int flags)
{
	union {
		struct cmsghdr hdr;
		char buf[CMSG_SPACE(FDMSG_MAX * sizeof(int))];
	} ctl = { 0 };
	struct iovec iov = { .iov_base = (void *)msg, .iov_len = len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		mh.msg_control = ctl.buf;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		ctl.hdr.cmsg_level = SOL_SOCKET;
		ctl.hdr.cmsg_type = SCM_RIGHTS;
		ctl.hdr.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&ctl.hdr), fds, nfds * sizeof(int));
	}
	return sendmsg(sock, &mh, MSG_NOSIGNAL | flags) < 0 ? -errno : 0;
}

/*
 * One message of at most @len bytes: how many, 0 at the end, or a negative errno; *@flags as
 * recvmsg() has them. Up to *@nfds descriptors go to @fds, the rest is closed; @nfds may be NULL.
 */
static inline ssize_t fdmsg_recv(int sock, void *msg, size_t len, int *fds, unsigned int *nfds,
				 int *flags)
{
	union {
		struct cmsghdr hdr;
		char buf[CMSG_SPACE(FDMSG_MAX * sizeof(int))];
	} ctl;
	struct iovec iov = { .iov_base = msg, .iov_len = len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };
	unsigned int room = nfds ? *nfds : 0;
	ssize_t n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);

	/* A reset is reported before the reply that came ahead of it. */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
	if (nfds)
		*nfds = 0;
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int got[FDMSG_MAX];

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(got, CMSG_DATA(c), count * sizeof(int));
		for (size_t i = 0; i < count; i++) {
			if (nfds && *nfds < room)
				fds[(*nfds)++] = got[i];
			else
				close(got[i]);
		}
	}
	if (flags)
		*flags = mh.msg_flags;
	return n;
}

#endif
