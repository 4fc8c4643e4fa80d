/* SPDX-License-Identifier: MIT */
/*
 * Closing descriptors that clients sent, and sockets on which unread ones may wait. What lies
 * behind one may make close() wait for as long as its owner likes: a file system in user space
 * is asked to flush first, by the kernel, and that wait cannot be interrupted. So threads of
 * their own close what is neither a memfd nor of /dev/gkv, one for each user that has something
 * to be closed.
 *
 * When one is stuck, that user's descriptors wait; the server then takes no more of them.
 * Control thread.
 */
#ifndef KVB_CLOSER_H
#define KVB_CLOSER_H

#include <sys/types.h>

enum kvb_closing {
	KVB_CLOSE_IDLE,		/* nothing waits, or not much */
	KVB_CLOSE_BUSY,		/* much, but it gets less: wait */
	KVB_CLOSE_STUCK,	/* much, and one close has taken a second so far */
};

/* Close @fd, which a client of user @uid sent, now or in a while. */
void kvb_close_foreign(int fd, uid_t uid);

/*
 * Close @sock, a connection to a client of user @uid. The peer can read what was sent to it,
 * and then sees the end, now; what it sent itself and nobody read goes in a while. When that
 * user's closing is stuck already, it goes at once: connections must not pile up.
 */
void kvb_close_connection(int sock, uid_t uid);

/* The same, and all of it before this returns: for who needs the descriptor back. It may wait. */
void kvb_close_connection_now(int sock);

/* How closing goes for the user; @n, if not NULL: how many descriptors are left to close. */
enum kvb_closing kvb_close_state(uid_t uid, unsigned int *n);

#endif
