/* SPDX-License-Identifier: MIT */
/*
 * Forged in-flight records: a queue pair is handed over whose record, completion queue and
 * doorbells are the input, and goes on changing while its commands are taken up. A record
 * that is taken yields at most one completion for each of its commands.
 *
 * Input: one byte depth, one byte flags (bit 0: zeroes instead of a good header, bit 1: the
 * namespaces are not open, bit 2: checksums, bit 3: reset afterwards), the two doorbells as
 * bytes, then records of two bytes offset into the record and completion queue, one byte
 * length and as many bytes to put there. Those that begin at an offset above 0x8000 are put
 * there after the hand-over.
 */
#include "inproc.h"

#define MEM	(64u << 10)
#define CQ_AT	8192u		/* SQ of at most 64 entries before it */
#define REC_AT	12288u
#define DATA_AT	32768u
#define IOVA	0x10000u

static uint8_t *mem;
static int mem_fd;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	void *map;

	(void)argc;
	(void)argv;
	inproc_start();
	mem_fd = inproc_memfd(MEM, F_SEAL_SHRINK | F_SEAL_GROW, &map);
	mem = map;
	return 0;
}

static uint32_t call(int sock, void *msg, uint16_t type, size_t size, unsigned int nfds)
{
	int fds[3] = { mem_fd, mem_fd, mem_fd };
	struct gkv_msg_hdr *h = msg;
	uint64_t reply[64];

	h->magic = htole32(GKV_CTL_MAGIC);
	h->version = htole16(GKV_CTL_VERSION);
	h->type = htole16(type);
	h->size = htole32((uint32_t)size);
	CHECK(inproc_send(sock, msg, size, fds, nfds));
	CHECK(inproc_recv(sock, reply, sizeof(reply)));
	return le32toh(((struct gkv_msg_hdr *)reply)->error);
}

static void overlay(const uint8_t *data, size_t size, bool later)
{
	while (size >= 3) {
		uint32_t at = data[0] | (uint32_t)data[1] << 8;
		size_t len = data[2] < size - 3 ? data[2] : size - 3;

		if ((at >= 0x8000) == later) {
			at = CQ_AT + (at & 0x7fff) % (DATA_AT - CQ_AT);
			for (size_t i = 0; i < len && at + i < DATA_AT; i++)
				__atomic_store_n(&mem[at + i], data[3 + i], __ATOMIC_RELAXED);
		}
		data += 3 + len;
		size -= 3 + len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gkv_msg_hello hello = { .version_min = htole16(GKV_CTL_VERSION),
				       .version_max = htole16(GKV_CTL_VERSION),
				       .features = htole64(GKV_FEATURE_CSUM | GKV_FEATURE_RESUME),
				       .db_offset = htole64(MEM - 4096), .db_len = htole64(4096) };
	struct gkv_msg_region_add region = { .id = htole32(1), .iova = htole64(IOVA),
					     .len = htole64(MEM) };
	struct gkv_msg_qp_add qp = { .qid = htole32(1), .cq_offset = htole64(CQ_AT),
				     .rec_offset = htole64(REC_AT) };
	struct gkv_rec_hdr *hdr = (struct gkv_rec_hdr *)(mem + REC_AT);
	struct gkv_msg_ns_open ns = { .nsid = htole32(1) };
	struct gkv_msg_id id = { .id = htole32(1) };
	uint32_t *doorbells = (uint32_t *)(mem + MEM - 4096);
	uint32_t depth;
	int sock;

	if (size < 4)
		return 0;
	depth = 2 + data[0] % 63;
	memset(mem, 0, MEM);
	if (!(data[1] & 1)) {
		hdr->magic = htole32(GKV_REC_MAGIC);
		hdr->version = htole16(GKV_REC_VERSION);
		hdr->qid = htole16(1);
		hdr->depth = htole32(depth);
		hdr->entry_size = htole32(sizeof(struct gkv_rec_entry));
		hdr->uid = htole64(1);
	}
	overlay(data + 4, size - 4, false);
	doorbells[2] = htole32(data[2]);
	doorbells[3] = htole32(data[3]);

	sock = inproc_connect();
	CHECK(!call(sock, &hello, GKV_MSG_HELLO, sizeof(hello), 1));
	if (!(data[1] & 2)) {
		CHECK(!call(sock, &ns, GKV_MSG_NS_OPEN, sizeof(ns), 0));
		ns.nsid = htole32(3);
		CHECK(!call(sock, &ns, GKV_MSG_NS_OPEN, sizeof(ns), 0));
		ns.nsid = htole32(4);
		CHECK(!call(sock, &ns, GKV_MSG_NS_OPEN, sizeof(ns), 0));
	}
	CHECK(!call(sock, &region, GKV_MSG_REGION_ADD, sizeof(region), 1));
	qp.depth = htole32(depth);
	qp.flags = htole32(GKV_QP_F_RESUME | (data[1] & 4 ? GKV_QP_F_CSUM : 0));
	if (!call(sock, &qp, GKV_MSG_QP_ADD, sizeof(qp), 3)) {
		overlay(data + 4, size - 4, true);
		if (data[1] & 8)
			CHECK(!call(sock, &id, GKV_MSG_QP_RESET, sizeof(id), 0));
		else
			usleep(100);
		CHECK(!call(sock, &id, GKV_MSG_QP_DEL, sizeof(id), 0));
	}
	close(sock);
	return 0;
}
