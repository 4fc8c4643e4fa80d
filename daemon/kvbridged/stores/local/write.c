/* SPDX-License-Identifier: MIT */
/*
 * What a Store or Delete writes: the value, as far as it has been staged, and the headers
 * beside the last of it, or behind one that comes by DMA from client memory. Until the headers
 * are on their way nothing on disk speaks of the units: a Store whose value fails to arrive just
 * gives them back.
 */
#include <string.h>

#include "stores/local/local.h"

/* The first write of a Store that is alone; the next may be as long as all before. */
#define FIRST_IO (128u << 10)

static void data_done(struct kvb_io *kio, int res)
{
	struct loc_io *io = kvb_container(kio, struct loc_io, io);
	struct loc_op *lop = io->lop;

	if (!loc_io_over(io, &res, true))
		return;
	io->lop = NULL;
	if (res)
		lop->err = res;
	loc_write_data(lop);
	loc_written(lop);
}

/*
 * How much to write next, 0: wait for more. The device works while the rest is copied; when
 * it has others to work for, few large writes cost less.
 */
static uint32_t next_len(const struct loc_op *lop)
{
	const struct kvb_op *op = lop->op;
	uint32_t have = op->staging ? op->staged & ~(LOC_BLK - 1) : lop->want;
	uint32_t n, least = LOC_MAX_IO;

	n = have - lop->next_off;
	if (n > LOC_MAX_IO)
		return LOC_MAX_IO;
	if (!op->staging)
		return n;
	if (lop->alone)
		least = lop->next_off > FIRST_IO ? lop->next_off : FIRST_IO;
	return n < least && n < LOC_MAX_IO ? 0 : n;
}

void loc_write_data(struct loc_op *lop)
{
	struct loc_io *io;
	uint32_t n;

	while (!lop->err && (n = next_len(lop)) && (io = loc_io_idle(lop))) {
		uint64_t len;
		uint32_t file;

		memset(io, 0, sizeof(*io));
		io->off = loc_locate(lop, lop->next_off, &file, &len);
		if (n > len)
			n = len;
		io->lop = lop;
		io->dsync = lop->dsync;
		io->io.done = data_done;
		io->file = file;
		if (lop->op->direct) {
			loc_direct_next(lop, io, n);
		} else {
			io->buf = (char *)lop->op->data + lop->next_off;
			io->len = n;
			lop->next_off += n;
		}
		lop->pend++;
		if (!lop->sh->ls->file[file].direct)
			atomic_fetch_add_explicit(&lop->sh->ls->buffered_ios, 1,
						  memory_order_relaxed);
		loc_io_write(io);
	}
}

static void hdr_done(struct loc_shard *sh, struct loc_hdr *h, int res)
{
	struct loc_op *lop = h->lop;

	(void)sh;
	if (res)
		lop->err = res;
	loc_written(lop);
}

void loc_hdr_fill(struct loc_op *lop, struct loc_hdr *h, loc_pos pos, uint8_t type,
		  uint32_t units, uint32_t part)
{
	struct loc_store *ls = lop->sh->ls;
	const struct kvb_op *op = lop->op;
	struct loc_slot *s = &h->slot;

	memset(h, 0, sizeof(*h));
	h->lop = lop;
	h->home = lop->sh;
	h->ag = loc_ag_of(ls, pos);
	h->idx = loc_pos_unit(pos) - h->ag->first;
	h->done = hdr_done;
	h->put = true;
	h->dsync = lop->dsync;
	s->type = type;
	s->klen = op->klen;
	memcpy(s->key, op->key, op->klen);
	s->seq = htole64(lop->seq);
	s->id_uid = htole64(op->id.uid);
	s->id_seq = htole64(op->id.seq);
	s->units = htole32(units);
	s->part = htole16(part);
	s->nparts = htole16(type == LOC_LIVE ? lop->nexts : 1);
	if (type == LOC_LIVE) {
		s->vlen = htole32(op->len);
		s->vcrc = htole32(op->crc);
	}
	s->crc = htole32(loc_slot_crc(&ls->file[loc_pos_file(pos)], loc_pos_unit(pos), s));
}

void loc_write_headers(struct loc_op *lop)
{
	for (uint32_t i = 0; i < lop->nexts; i++) {
		struct loc_ext *x = loc_ext_at(lop, i);

		loc_hdr_fill(lop, &lop->hdrs[i], x->pos, LOC_LIVE, x->units, i);
		lop->hdrs[i].ag->busy--;
		lop->pend++;
		loc_hdr_submit(lop->sh, &lop->hdrs[i]);
	}
}
