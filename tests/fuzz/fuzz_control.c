/* SPDX-License-Identifier: MIT */
/*
 * Control messages: any messages in any order, with any descriptors, on two connections at
 * once, which may be of one session; the shared memory changes between them. Every message
 * gets a well-formed answer or the end of its connection, in time.
 *
 * Input: records of one byte "what", one byte "how", one byte length and as many bytes.
 *   what & 15	0: write the bytes to the shared memory, at 64 * how
 *		1 to 10: a message of that type, zeroes overlaid with the bytes from its body on
 *		11: the bytes as a message
 *		12: hang up and connect again
 *		13: a right head, type how, then the bytes
 *		14, 15: set the doorbell number how to the first byte
 *   what & 16	which connection
 *   what & 32	do not wait for the answer yet
 *   what & 64	in a body: bytes are overlaid from its start rather than after 8 of zero
 *   how		messages: low 3 bits the number of descriptors, next 3 their kind
 */
#include <sys/eventfd.h>

#include "inproc.h"

#define MEM (64u << 10)

static uint8_t *mem;
static int fds_of[8];

static const uint16_t sizes[] = {
	[GKV_MSG_HELLO] = sizeof(struct gkv_msg_hello),
	[GKV_MSG_NS_OPEN] = sizeof(struct gkv_msg_ns_open),
	[GKV_MSG_REGION_ADD] = sizeof(struct gkv_msg_region_add),
	[GKV_MSG_REGION_DEL] = sizeof(struct gkv_msg_id),
	[GKV_MSG_QP_ADD] = sizeof(struct gkv_msg_qp_add),
	[GKV_MSG_QP_DEL] = sizeof(struct gkv_msg_id),
	[GKV_MSG_QP_RESET] = sizeof(struct gkv_msg_id),
	[GKV_MSG_ADMIN] = sizeof(struct gkv_msg_admin),
	[GKV_MSG_QUERY] = sizeof(struct gkv_msg_query),
	[GKV_MSG_SET] = sizeof(struct gkv_msg_set),
};

struct conn {
	int fd;
	unsigned int owed;	/* answers */
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	void *map;

	(void)argc;
	(void)argv;
	inproc_start();
	fds_of[0] = fds_of[1] = inproc_memfd(MEM, F_SEAL_SHRINK | F_SEAL_GROW, &map);
	mem = map;
	fds_of[2] = inproc_memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW, NULL);
	fds_of[3] = inproc_memfd(MEM, 0, NULL);
	fds_of[4] = open("/dev/null", O_RDWR | O_CLOEXEC);
	fds_of[5] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fds_of[6] = eventfd(0, EFD_CLOEXEC);
	fds_of[7] = inproc_memfd(MEM, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, NULL);
	return 0;
}

static void hang_up(struct conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->owed = 0;
}

static void collect(struct conn *c, struct conn *other)
{
	static uint64_t reply[5000 / 8];

	while (c->fd >= 0 && c->owed) {
		struct gkv_msg_hdr *h = (struct gkv_msg_hdr *)reply;

		if (!inproc_recv(c->fd, reply, sizeof(reply))) {
			hang_up(c);
			break;
		}
		/* The other connection's session ends with it; what waits for that goes on. */
		if (le32toh(h->error) == EMFILE)
			hang_up(other);
		c->owed--;
	}
}

static void message(struct conn *c, uint16_t type, uint8_t what, uint8_t how, const uint8_t *data,
		    size_t len)
{
	static union {
		uint8_t bytes[sizeof(struct gkv_msg_admin)];
		struct gkv_msg_hdr hdr;
	} m;
	size_t size = type < sizeof(sizes) / sizeof(sizes[0]) && sizes[type] ? sizes[type]
									      : 24 + len;
	size_t at = sizeof(m.hdr) + (what & 64 ? 0 : 8);
	unsigned int nfds = how & 7;
	int fds[8];

	if (at > size)
		at = size;
	if (len > size - at)
		len = size - at;
	memset(m.bytes, 0, size);
	memcpy(m.bytes + at, data, len);
	m.hdr.magic = htole32(GKV_CTL_MAGIC);
	m.hdr.version = htole16(GKV_CTL_VERSION);
	m.hdr.type = htole16(type);
	m.hdr.size = htole32((uint32_t)size);
	if (type == GKV_MSG_HELLO && !(what & 64)) {
		struct gkv_msg_hello *h = (struct gkv_msg_hello *)m.bytes;

		h->version_min = h->version_max = htole16(GKV_CTL_VERSION);
	}
	for (unsigned int i = 0; i < 8; i++)
		fds[i] = fds_of[i ? how >> 3 & 7 ? (how >> 3 & 7) : 0 : how >> 3 & 7];
	if (inproc_send(c->fd, m.bytes, size, fds, nfds))
		c->owed++;
	else if (errno != EAGAIN)
		hang_up(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conn conns[2] = { { .fd = -1 }, { .fd = -1 } };

	memset(mem, 0, MEM);
	while (size >= 3) {
		uint8_t what = data[0], how = data[1];
		size_t len = data[2] < size - 3 ? data[2] : size - 3;
		struct conn *c = &conns[what >> 4 & 1], *other = &conns[!(what >> 4 & 1)];
		const uint8_t *p = data + 3;

		data += 3 + len;
		size -= 3 + len;
		if (c->fd < 0) {
			c->fd = inproc_connect();
			c->owed = 0;
		}
		switch (what & 15) {
		case 0:
			memcpy(mem + how * 64u, p, len);
			continue;
		case 11:
			if (inproc_send(c->fd, p, len, fds_of, how & 7))
				c->owed++;
			break;
		case 12:
			hang_up(c);
			continue;
		case 13:
			message(c, how, what, 0, p, len);
			break;
		case 14:
		case 15:
			if (len)
				__atomic_store_n((uint32_t *)mem + how % 64, p[0],
						 __ATOMIC_RELEASE);
			continue;
		default:
			message(c, what & 15, what, how, p, len);
		}
		if (!(what & 32))
			collect(c, other);
	}
	/* One at a time: the second may wait for the first to go. */
	collect(&conns[0], &conns[1]);
	hang_up(&conns[0]);
	collect(&conns[1], &conns[0]);
	hang_up(&conns[1]);
	return 0;
}
