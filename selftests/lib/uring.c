// SPDX-License-Identifier: MIT
/* An io_uring of eight entries, by system calls: nothing between the test and the kernel. */
#include <sys/syscall.h>
#include <sys/uio.h>

#include "gkvtest.h"

#define ENTRIES 8

static uint32_t *at(void *ring, uint32_t offset)
{
	return (uint32_t *)((char *)ring + offset);
}

int uring_open(struct uring *ring)
{
	struct io_uring_params *p = &ring->params;

	memset(ring, 0, sizeof(*ring));
	ring->fd = syscall(SYS_io_uring_setup, ENTRIES, p);
	if (ring->fd < 0)
		return -errno;
	ring->sq = mmap(NULL, p->sq_off.array + p->sq_entries * 4, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
	ring->cq = mmap(NULL, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe),
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			IORING_OFF_CQ_RING);
	ring->sqes = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	if (ring->sq == MAP_FAILED || ring->cq == MAP_FAILED || ring->sqes == MAP_FAILED)
		return -ENOMEM;
	return 0;
}

void uring_close(struct uring *ring)
{
	struct io_uring_params *p = &ring->params;

	munmap(ring->sq, p->sq_off.array + p->sq_entries * 4);
	munmap(ring->cq, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe));
	munmap(ring->sqes, p->sq_entries * sizeof(struct io_uring_sqe));
	close(ring->fd);
}

int uring_submit(struct uring *ring, uint8_t op, int fd, void *buffer, uint32_t len,
		 uint64_t offset)
{
	struct io_uring_params *p = &ring->params;
	uint32_t *tail = at(ring->sq, p->sq_off.tail);
	uint32_t index = *tail & *at(ring->sq, p->sq_off.ring_mask);
	int rc;

	ring->sqes[index] = (struct io_uring_sqe) {
		.opcode = op,
		.fd = fd,
		.addr = (uintptr_t)buffer,
		.len = len,
		.off = offset,
	};
	at(ring->sq, p->sq_off.array)[index] = index;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	rc = syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0);
	if (rc < 0)
		return -errno;
	return rc == 1 ? 0 : -EAGAIN;
}

int uring_reap(struct uring *ring, bool wait)
{
	struct io_uring_params *p = &ring->params;
	uint32_t *head = at(ring->cq, p->cq_off.head);
	struct io_uring_cqe *cqes = (void *)at(ring->cq, p->cq_off.cqes);
	int res;

	while (*head == __atomic_load_n(at(ring->cq, p->cq_off.tail), __ATOMIC_ACQUIRE)) {
		if (!wait)
			return -EAGAIN;
		if (syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 &&
		    errno != EINTR)
			return -errno;
	}
	res = cqes[*head & *at(ring->cq, p->cq_off.ring_mask)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return res;
}

int uring_io(struct uring *ring, uint8_t op, int fd, void *buffer, uint32_t len, uint64_t offset)
{
	int rc = uring_submit(ring, op, fd, buffer, len, offset);

	return rc ? rc : uring_reap(ring, true);
}

int uring_register_buffer(struct uring *ring, void *buffer, size_t len)
{
	struct iovec iov = { .iov_base = buffer, .iov_len = len };

	return syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &iov, 1) < 0 ?
		-errno : 0;
}
