/* SPDX-License-Identifier: MIT */
/*
 * Closing descriptors that clients sent. What lies behind one may make close() wait for as
 * long as its owner likes: a file system in user space is asked to flush first, by the kernel,
 * and that wait cannot be interrupted. So a thread of its own closes what is no memfd.
 *
 * When it is stuck, descriptors wait, and those of one user up to KVB_CLOSE_BACKLOG; the server
 * then takes no more from that user. Control thread.
 */
#ifndef KVB_CLOSER_H
#define KVB_CLOSER_H

#include <sys/types.h>

#define KVB_CLOSE_BACKLOG 16u

/* Close @fd, which a client of user @uid sent, now or in a while. */
void kvb_close_foreign(int fd, uid_t uid);

/* How many descriptors of the user are waiting to be closed, or being closed. */
unsigned int kvb_close_backlog(uid_t uid);

#endif
