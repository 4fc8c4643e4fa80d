/* SPDX-License-Identifier: MIT */
/*
 * Retrieve. Whole logical blocks that land where the device can put them are read straight
 * into client memory; what is left (the tail below a block, pieces that are misaligned)
 * goes through a bounce buffer. With verification the checksum is taken over what arrived.
 *
 * GPU memory is not read back by the CPU. There the client verifies, when its queue pair carries
 * checksums and it gets the whole value; otherwise all of the value goes through bounce buffers
 * and is verified in them, which is counted.
 */
#include <stdlib.h>
#include <string.h>

#include "core/crc.h"
#include "stores/local/local.h"

/* Bytes of a request when there is nothing else to do than to take the checksum meanwhile. */
#define CHECKED_IO (256u << 10)
#define CHECKED_BATCH 2u	/* and how many of those in one turn */

enum phase {
	PH_READ,	/* into client memory; checksum over it */
	PH_REST,	/* through bounce buffers: what is left, or all of it */
	PH_ZERO,	/* take back what cannot be trusted */
};

static void rd_next_phase(struct loc_op *lop);

static void rd_end(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;

	kvb_link_del(&lop->rd_link);
	sh->nreads--;
	free(lop->rdv_copy);
	kvb_op_complete(lop->op, lop->status);
	loc_reads_done(sh);
}

/* ---- Bounce buffers: the reactor's, or a few of our own so that there always is one ---- */

static void *bounce_get(struct loc_shard *sh, size_t len)
{
	void *buf = kvb_buf_alloc(sh->r, len);

	if (!buf && sh->nbounce)
		buf = sh->bounce[--sh->nbounce];
	return buf;
}

static bool bounce_own(const struct loc_shard *sh, const void *buf)
{
	const char *p = buf, *m = sh->bounce_mem;

	return p >= m && p < m + LOC_SPARE_BOUNCE * LOC_BOUNCE;
}

static void bounce_put(struct loc_shard *sh, void *buf)
{
	if (bounce_own(sh, buf))
		sh->bounce[sh->nbounce++] = buf;
	else
		kvb_buf_free(sh->r, buf);
}

void loc_bounce_run(struct loc_shard *sh)
{
	if (!kvb_link_empty(&sh->bounce_wait) && sh->nbounce) {
		struct loc_op *lop = kvb_container(sh->bounce_wait.next, struct loc_op, link);

		kvb_link_del(&lop->link);
		lop->waiting_bounce = false;
		loc_rd_pump(lop);
	}
}

/* ---- Planning ---- */

/* How much of the current segment must bounce before direct reads are possible again. */
static uint32_t plan_bounce(const struct loc_file *f, const char *base, uint64_t off, uint32_t len)
{
	uint32_t skip = -off & (f->lbs - 1);

	if (skip && skip < len && len - skip >= f->lbs && loc_direct_ok(f, base + skip, off + skip))
		return skip;
	return len;
}

static void rd_done(struct kvb_io *kio, int res);

static void rd_issue(struct loc_op *lop, struct loc_io *io)
{
	lop->pend++;
	io->lop = lop;
	io->io.done = rd_done;
	if (!lop->sh->ls->file[io->file].direct)
		atomic_fetch_add_explicit(&lop->sh->ls->buffered_ios, 1, memory_order_relaxed);
	loc_io_read(io);
}

/* Read [@off, @off + @want) of a member through a bounce buffer; false without one. */
static bool rd_bounce(struct loc_op *lop, struct loc_io *io, uint64_t off, uint32_t want)
{
	struct loc_shard *sh = lop->sh;
	uint32_t mask = sh->ls->file[io->file].lbs - 1, head = off & mask;
	uint32_t len = (head + want + mask) & ~mask;
	void *buf = bounce_get(sh, len);

	if (!buf) {
		lop->waiting_bounce = true;
		kvb_link_add(&sh->bounce_wait, &lop->link);
		return false;
	}
	io->buf = buf;
	io->bounced = true;
	io->voff = lop->next_off;
	io->vlen = want;
	io->off = off - head;
	io->len = len;
	rd_issue(lop, io);
	return true;
}

/* One request into client memory; false when it has to wait. */
static bool rd_one(struct loc_op *lop, struct loc_io *io)
{
	struct loc_store *ls = lop->sh->ls;
	const struct kvb_op *op = lop->op;
	const struct iovec *v = &op->segs[lop->seg];
	const struct loc_file *f;
	uint64_t avail, off;
	uint32_t file, len, n;
	char *base;

	memset(io, 0, sizeof(*io));
	off = loc_locate(lop, lop->next_off, &file, &avail);
	f = &ls->file[file];
	io->file = file;
	if (avail > lop->want - lop->next_off)
		avail = lop->want - lop->next_off;
	if (avail > lop->io_max)
		avail = lop->io_max;
	len = v->iov_len - lop->seg_off < avail ? v->iov_len - lop->seg_off : avail;
	if (!v->iov_base) {		/* bit bucket */
		loc_seg_advance(lop, len);
		return true;
	}
	base = (char *)v->iov_base + lop->seg_off;
	if (!loc_direct_ok(f, base, off) || len < f->lbs) {
		len = plan_bounce(f, base, off, len);
		if (len > LOC_BOUNCE / 2)
			len = LOC_BOUNCE / 2;
		if (!rd_bounce(lop, io, off, len))
			return false;
		loc_seg_advance(lop, len);
		return true;
	}
	io->off = off;
	if (!lop->seg_off && len == v->iov_len && len < avail) {
		io->len = loc_plan_vector(lop, f, off, avail, &n);
		if (n > 1) {
			io->seg = lop->seg;
			io->nsegs = n;
		}
	}
	if (!io->nsegs) {
		io->len = len & ~(f->lbs - 1);
		io->buf = base;
	}
	io->voff = lop->next_off;
	len = io->len;
	rd_issue(lop, io);
	loc_seg_advance(lop, len);
	return true;
}

/* ---- Going on ---- */

static void rd_copied(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op);
	struct loc_io *io = lop->copying;

	lop->copying = NULL;
	lop->copy_busy = false;
	if (io) {
		/* Tails are counted apart from copies of whole values. */
		op->copy_bytes -= io->vlen;
		*(lop->bounce ? &op->bounce_bytes : &op->tail_bytes) += io->vlen;
		bounce_put(lop->sh, io->buf);
		io->lop = NULL;
	}
	loc_rd_pump(lop);
}

/* A bounced block has come: hand its bytes on. */
static void rd_bounced(struct loc_op *lop, struct loc_io *io)
{
	const char *p;
	uint32_t mask = lop->sh->ls->file[io->file].lbs - 1;
	uint64_t base;
	uint32_t file;

	/* Where the wanted bytes begin in the buffer. */
	base = loc_locate(lop, io->voff, &file, &(uint64_t){ 0 });
	p = (const char *)io->buf + (base & mask);
	if (lop->phase == PH_REST) {
		lop->crc = kvb_crc32c(lop->crc, p, io->vlen);
		if (io->voff < lop->want) {
			uint32_t n = lop->want - io->voff;

			/* Bit buckets: client memory alone does not hold the value. */
			io->vlen = n < io->vlen ? n : io->vlen;
		} else {
			bounce_put(lop->sh, io->buf);
			io->lop = NULL;
			return;
		}
	}
	lop->copying = io;
	lop->copy_busy = true;
	kvb_op_copy_out(lop->sh->ls->st, lop->op, p, io->voff, io->vlen, rd_copied);
}

static void rd_done(struct kvb_io *kio, int res)
{
	struct loc_io *io = kvb_container(kio, struct loc_io, io);
	struct loc_op *lop = io->lop;

	if (!loc_io_over(io, &res, false))
		return;
	lop->pend--;
	if (res && !lop->err)
		lop->err = res;
	if (!io->bounced) {
		lop->op->direct_bytes += res ? 0 : io->len;
		io->lop = NULL;
	} else if (res) {
		bounce_put(lop->sh, io->buf);
		io->lop = NULL;
	} else {
		io->next = NULL;
		*lop->copyq_tail = io;
		lop->copyq_tail = &io->next;
	}
	loc_rd_pump(lop);
}

/* A checksum is over the whole value, however little of it is wanted. */
static uint32_t rest_end(const struct loc_op *lop)
{
	return lop->verify ? lop->vlen : lop->want;
}

/* The rest of the value, or all of it, in order, one chunk at a time. */
static void rest_pump(struct loc_op *lop)
{
	struct loc_io *io = &lop->io[0];
	uint64_t avail, off;
	uint32_t file, n = rest_end(lop) - lop->next_off;

	if (lop->pend || lop->copy_busy || lop->copyq || io->lop || lop->err ||
	    lop->next_off >= rest_end(lop))
		return;
	memset(io, 0, sizeof(*io));
	off = loc_locate(lop, lop->next_off, &file, &avail);
	io->file = file;
	if (n > avail)
		n = avail;
	if (n > LOC_BOUNCE / 2)
		n = LOC_BOUNCE / 2;
	if (rd_bounce(lop, io, off, n))
		lop->next_off += n;
}

static bool rd_phase_over(const struct loc_op *lop)
{
	if (lop->pend || lop->copy_busy || lop->crc_busy || lop->copyq || lop->waiting_bounce)
		return false;
	switch (lop->phase) {
	case PH_READ:
		if (lop->verify && lop->crc_off < lop->want)
			return lop->err;
		return lop->err || lop->next_off >= lop->want;
	case PH_REST:
		return lop->err || lop->next_off >= rest_end(lop);
	default:
		return true;
	}
}

static void rd_pump_once(struct loc_op *lop)
{
	struct loc_io *io;

	while (lop->copyq && !lop->copy_busy) {
		io = lop->copyq;
		lop->copyq = io->next;
		if (!lop->copyq)
			lop->copyq_tail = &lop->copyq;
		rd_bounced(lop, io);
	}
	if (lop->waiting_bounce)
		return;
	if (lop->phase == PH_READ) {
		unsigned int n = 0;

		while (!lop->err && lop->next_off < lop->want && (io = loc_io_idle(lop))) {
			/* The kernel would merge more, and all would arrive at once. */
			if (lop->io_max < LOC_MAX_IO && n++ == CHECKED_BATCH) {
				loc_crc_kick(lop);
				break;
			}
			if (!rd_one(lop, io))
				break;
		}
		if (lop->verify)
			loc_crc_run(lop);
	} else if (lop->phase == PH_REST) {
		rest_pump(lop);
	}
}

/* Callbacks may come while this runs: they leave it to the one running. */
void loc_rd_pump(struct loc_op *lop)
{
	struct loc_shard *sh = lop->sh;

	if (lop->pumping) {
		lop->repump = true;
		return;
	}
	lop->pumping = true;
	do {
		lop->repump = false;
		rd_pump_once(lop);
	} while (lop->repump);
	lop->pumping = false;
	if (rd_phase_over(lop))
		rd_next_phase(lop);
	loc_bounce_run(sh);
}

static bool has_bucket(const struct kvb_op *op)
{
	for (uint32_t i = 0; i < op->nsegs; i++) {
		if (!op->segs[i].iov_base)
			return true;
	}
	return false;
}

static void rd_check(struct loc_op *lop)
{
	struct loc_store *ls = lop->sh->ls;

	if (lop->crc == lop->vcrc) {
		rd_end(lop);
		return;
	}
	if (!atomic_fetch_add(&ls->values_bad, 1))
		kvb_log(KVB_LOG_WARN, "local: %s: a value's checksum is wrong", ls->file[0].path);
	lop->op->has_crc = false;
	lop->op->result = 0;
	lop->status = GKV_SC_UNRECOVERED | GKV_DNR;
	lop->phase = PH_ZERO;
	lop->copy_busy = true;
	kvb_op_clear_out(ls->st, lop->op, lop->want, rd_copied);
}

static void rd_next_phase(struct loc_op *lop)
{
	struct kvb_op *op = lop->op;

	if (lop->err) {
		op->has_crc = false;
		op->result = 0;
		lop->status = loc_status(lop->err, false);
		rd_end(lop);
		return;
	}
	switch (lop->phase) {
	case PH_READ:
		if (!lop->verify) {
			rd_end(lop);
			return;
		}
		if (lop->next_off < lop->vlen) {
			lop->phase = PH_REST;
			loc_rd_pump(lop);
			return;
		}
		rd_check(lop);
		return;
	case PH_REST:
		if (lop->verify)
			rd_check(lop);
		else
			rd_end(lop);
		return;
	default:
		rd_end(lop);
	}
}

/* Straight into client memory or through buffers of ours, and who verifies. */
static void plan_way(struct loc_op *lop)
{
	const struct kvb_op *op = lop->op;

	lop->verify = op->ns->verify;
	lop->bounce = op->bounce;
	if (op->vram && lop->verify && !lop->bounce) {
		if (op->client_verifies && lop->want == lop->vlen && !has_bucket(op))
			lop->verify = false;
		else
			lop->bounce = true;
	}
	lop->phase = lop->bounce || (lop->verify && has_bucket(op)) ? PH_REST : PH_READ;
}

void loc_retrieve_op(struct kvb_store *st, struct kvb_op *op)
{
	struct loc_op *lop = loc_op_of(st, op);
	struct loc_key key = loc_key_make(op->key, op->klen);
	struct loc_shard *sh = ((struct loc_store *)st->priv)->sh[kvb_reactor_id(op->r)];
	struct loc_ent *e = loc_bt_find(&sh->index, &key);
	uint32_t want;
	uint16_t status;

	if (!e || (e->flags & LOC_ENT_PENDING)) {
		kvb_op_complete(op, GKV_SC_KEY_NOT_FOUND);
		return;
	}
	op->result = e->vlen;
	op->has_crc = true;
	op->value_crc = e->vcrc;
	want = op->len < e->vlen ? op->len : e->vlen;
	if (!want) {			/* a probe for the length, or nothing to read */
		kvb_op_complete(op, GKV_SC_SUCCESS);
		return;
	}
	status = kvb_op_map(op, want);
	if (status) {
		kvb_op_complete(op, status);
		return;
	}
	loc_op_init(st, op, lop);
	lop->state = LOC_RUN;
	lop->vlen = e->vlen;
	lop->vcrc = e->vcrc;
	lop->want = want;
	lop->copyq_tail = &lop->copyq;
	if (e->flags & LOC_ENT_MULTI) {
		size_t size = sizeof(*e->extv) + e->extv->n * sizeof(e->extv->e[0]);

		/* The entry may change while this reads on. */
		lop->rdv_copy = malloc(size);
		if (!lop->rdv_copy) {
			kvb_op_complete(op, GKV_SC_INTERNAL);
			return;
		}
		memcpy(lop->rdv_copy, e->extv, size);
		lop->rdv = lop->rdv_copy;
	} else {
		lop->rd1 = (struct loc_ext){ .pos = e->pos, .units = loc_units(sh->ls, e->vlen) };
	}
	lop->rd_no = sh->rd_next++;
	kvb_link_add(&sh->reads, &lop->rd_link);
	sh->nreads++;
	/* The device is kept busy either way; alone, its checksum would be time lost. */
	plan_way(lop);
	lop->io_max = lop->verify && sh->nreads == 1 ? CHECKED_IO : LOC_MAX_IO;
	loc_rd_pump(lop);
}
