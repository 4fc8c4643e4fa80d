/* SPDX-License-Identifier: MIT */
/*
 * Commands and data pointers from a hostile client. The input is an SQE followed by an
 * image of the client's memory, laid over four regions that are surrounded by poisoned
 * bytes: ASan sees every access outside. What the walker returns is read or written as a
 * store would do it.
 *
 * Input: 1 byte flags (bit 0: checksums negotiated, bit 1: a region dies, bit 2: small
 * steps, bit 3: lists without end are followed to the limit), 64 bytes SQE, then the image, repeated until the regions are full.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sanitizer/asan_interface.h>

#include "core/crc.h"
#include "core/decode.h"
#include "core/dptr.h"
#include "core/op.h"

#define PG	4096u
#define NREG	4
#define GUARD	PG
#define MAX_STEPS 1500u	/* keeps a run short; bit 3 lifts it */

static const struct {
	uint64_t iova;
	uint32_t pages;
	uint32_t flags;
} layout[NREG] = {
	{ 0x10000, 4, 0 },
	{ 0x14000, 2, 0 },			/* follows the first */
	{ 0x20000, 2, KVB_SPAN_RDONLY },
	{ 0 - 2ull * PG, 2, 0 },		/* ends at 2^64 */
};

static uint8_t *mem[NREG], *shadow;	/* @shadow: what the read-only one held */
static struct kvb_region owners[NREG];
static struct kvb_regions *table;

static const struct kvb_ns_open rw = { (struct kvb_ns *)8, 1 << 20, 16, false };
static const struct kvb_ns_open ro = { (struct kvb_ns *)16, 1 << 20, 16, true };
static const struct kvb_ns_open *_Atomic opened[4] = { &rw, &ro };

static size_t size_of(int i)
{
	return (size_t)layout[i].pages * PG;
}

static void setup(void)
{
	struct kvb_span spans[NREG];

	for (int i = 0; i < NREG; i++) {
		uint8_t *p = aligned_alloc(PG, size_of(i) + 2 * GUARD);

		assert(p);
		ASAN_POISON_MEMORY_REGION(p, GUARD);
		ASAN_POISON_MEMORY_REGION(p + GUARD + size_of(i), GUARD);
		mem[i] = p + GUARD;
		spans[i] = (struct kvb_span){
			.iova = layout[i].iova,
			.len = size_of(i),
			.addr = mem[i],
			.flags = layout[i].flags,
			.owner = &owners[i],
		};
	}
	shadow = malloc(size_of(2));
	table = kvb_regions_build(spans, NREG);
	assert(shadow && table);
}

/* The image over and over, through all regions in a row. */
static void load_image(const uint8_t *data, size_t size)
{
	static uint8_t flat[10 * PG];
	size_t at = size < sizeof(flat) ? size : sizeof(flat);

	if (!at) {
		memset(flat, 0, sizeof(flat));
		at = sizeof(flat);
	} else {
		memcpy(flat, data, at);
	}
	while (at < sizeof(flat)) {
		size_t n = at < sizeof(flat) - at ? at : sizeof(flat) - at;

		memcpy(flat + at, flat, n);
		at += n;
	}
	at = 0;
	for (int i = 0; i < NREG; i++) {
		memcpy(mem[i], flat + at, size_of(i));
		at += size_of(i);
	}
}

static int region_at(const uint8_t *p)
{
	for (int i = 0; i < NREG; i++)
		if ((uintptr_t)p - (uintptr_t)mem[i] < size_of(i))
			return i;
	return -1;
}

static void use(const struct kvb_segs *segs, const struct kvb_op *op, uint64_t left, bool dead)
{
	bool to_client = op->opcode != GKV_OP_STORE;
	static uint8_t bounce[8 * PG];
	uint64_t sum = 0;
	uint32_t crc = 0;

	for (uint32_t i = 0; i < segs->n; i++) {
		uint8_t *p = segs->v[i].iov_base;
		size_t len = segs->v[i].iov_len;
		int r;

		assert(len);
		sum += len;
		if (!p) {
			assert(to_client);
			continue;
		}
		r = region_at(p);
		assert(r >= 0 && len <= size_of(r) - (size_t)(p - mem[r]));
		assert(!dead || r != 1);
		assert(!to_client || !(layout[r].flags & KVB_SPAN_RDONLY));
		if (to_client)
			memset(p, 0x5a, len);
		else
			crc = kvb_copy_crc32c(bounce, p, len, crc);
	}
	assert(left <= op->len && sum == op->len - left);
	assert(kvb_regions_alive(table, segs->v, segs->n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvb_decode_env env = { 4, false, opened };
	struct iovec first[2];
	struct kvb_segs segs;
	struct gkv_sqe sqe;
	struct kvb_dptr w;
	struct kvb_op op;
	uint32_t budget;
	uint16_t status;
	bool dead;

	if (!table)
		setup();
	if (size < 1 + sizeof(sqe))
		return 0;
	env.csum = data[0] & 1;
	dead = data[0] & 2;
	memcpy(&sqe, data + 1, sizeof(sqe));
	load_image(data + 1 + sizeof(sqe), size - 1 - sizeof(sqe));
	memcpy(shadow, mem[2], size_of(2));

	memset(&op, 0xa5, sizeof(op));
	status = kvb_decode(&sqe, &env, &op);
	if (status) {
		status = kvb_status_finish(status);
		assert(status == (GKV_DNR | GKV_STATUS_CODE(status)));
		return 0;
	}
	assert(op.klen <= 16 && (op.opcode == GKV_OP_LIST || op.opcode == GKV_OP_FLUSH || op.klen));
	for (int i = op.klen; i < 16; i++)
		assert(!op.key[i]);
	if (op.opcode != GKV_OP_STORE && op.opcode != GKV_OP_RETRIEVE && op.opcode != GKV_OP_LIST)
		return 0;

	atomic_store(&owners[1].dead, dead);
	kvb_segs_init(&segs, first, 2);
	kvb_dptr_init(&w, &sqe, table, op.len, op.opcode != GKV_OP_STORE);
	budget = data[0] & 8 ? UINT32_MAX : MAX_STEPS;
	do {
		uint32_t steps = data[0] & 4 ? 1 : budget;

		status = kvb_dptr_next(&w, &segs, steps);
		budget -= steps;
	} while (!status && w.left && budget);
	use(&segs, &op, w.left, dead);
	assert(!status || w.left);
	kvb_segs_free(&segs);
	atomic_store(&owners[1].dead, false);
	/* Nothing was written where only reading is allowed. */
	assert(!memcmp(shadow, mem[2], size_of(2)));
	return 0;
}
