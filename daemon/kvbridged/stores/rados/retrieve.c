/* SPDX-License-Identifier: MIT */
/*
 * Retrieve. librados receives into a buffer of its own; its bytes are moved once, by the
 * reactor, to where the client wants them.
 *
 * A value up to rados.slice_min is read in one operation that also tells the object's size,
 * time and attribute. A larger one is read in parallel slices while few such reads are under
 * way: each has the version of the object it saw, and when they do not agree the value is read
 * again, in the end in one piece.
 */
#include <stdlib.h>

#include "core/crc.h"
#include "stores/rados/rados.h"

/* Checksummed at once up to here. */
#define CRC_INLINE (64u << 10)
#define CRC_SLICE (128u << 10)
/* Attempts in slices, after which the value is read in one piece. */
#define SLICED_ATTEMPTS 3u
/* Of eight large reads, so many found the value as long as was asked for. */
#define GUESS_MAX 8u

/* What became of a request: it goes on, waits for something, or is not ours any more. */
enum step { GO_ON, WAIT, GONE };

static void pump(struct rd_req *q);
static void part_came(struct rd_req *q, struct rd_part *p);

/* ---- Asking ---- */

static uint32_t slices_of(const struct rd_req *q)
{
	const struct rd_store *rs = q->sh->rs;

	if (!rs->slice || q->span <= rs->slice_min || q->attempt >= SLICED_ATTEMPTS ||
	    q->sh->large_reads > rs->slice_depth)
		return 1;
	return (q->span + rs->slice - 1) / rs->slice;
}

/* The parts from @first on that hold bytes below @end. */
static int send_parts(struct rd_req *q, uint32_t first, uint32_t end)
{
	int rc = 0;

	for (uint32_t i = first; i < q->nparts && !rc; i++) {
		struct rd_part *p = &q->parts[i];

		if (!p->pending && !p->over && (!i || p->off < end))
			rc = rd_read_send(q, p, !i);
	}
	return rc;
}

static void parts_drop(struct rd_req *q)
{
	for (uint32_t i = 0; i < q->nparts; i++) {
		if (q->parts[i].read)
			rsh_read_free(q->parts[i].read);
	}
	if (q->parts != &q->one)
		free(q->parts);
	q->parts = &q->one;
	memset(&q->one, 0, sizeof(q->one));
	q->nparts = 0;
}

/* When the budget allows: the first time, and again for another attempt. */
static void attempt(struct rd_req *q)
{
	struct rd_shard *sh = q->sh;
	uint32_t n, step;
	int rc;

	if (!q->large && q->span > sh->rs->slice_min) {
		q->large = true;
		sh->large_reads++;
	}
	q->pumping = false;
	parts_drop(q);
	n = slices_of(q);
	step = n > 1 ? sh->rs->slice : q->span;
	q->sliced = n > 1;
	if (n > 1) {
		q->parts = calloc(n, sizeof(*q->parts));
		if (!q->parts) {
			q->parts = &q->one;
			rd_req_end(q, GKV_SC_INTERNAL);
			return;
		}
	}
	q->nparts = n;
	for (uint32_t i = 0; i < n; i++) {
		q->parts[i].off = i * step;
		q->parts[i].len = q->span - i * step < step ? q->span - i * step : step;
	}
	q->known = q->again = false;
	q->next = q->pos = q->crc = 0;
	kvb_count(n > 1 ? &sh->count.sliced : &sh->count.whole, 1);
	/* Slices of a value that proves short are asked for in vain: not if that is usual. */
	rc = send_parts(q, 0, sh->guess > GUESS_MAX / 2 ? q->span : 1);
	if (rc && !q->npending)
		rd_req_end(q, rd_status(q, rc, false));
	else if (rc)
		rd_req_cancel(q);
}

static void begin(struct rd_req *q)
{
	q->over = part_came;
	q->span = q->op->len;
	q->go = attempt;
	attempt(q);
}

/* Once nothing of this attempt is under way. */
static enum step begin_anew(struct rd_req *q)
{
	q->again = true;
	kvb_count(&q->sh->count.rereads, 1);
	if (q->op->late)
		rd_req_cancel(q);
	else if (q->npending)
		return WAIT;
	else
		rd_req_again(q, q->span);
	return GONE;
}

/* ---- Moving ---- */

static void piece_over(struct rd_req *q)
{
	q->busy = false;
	q->src = NULL;
	q->pos += q->src_len;
	pump(q);
}

static void placed(struct kvb_store *st, struct kvb_op *op)
{
	piece_over(rd_op_of(st, op)->req);
}

static void place(struct rd_req *q)
{
	uint32_t off = q->parts[q->next].off + q->pos, len = q->src_len;

	if (off >= q->want) {
		piece_over(q);
		return;
	}
	if (len > q->want - off)
		len = q->want - off;
	if (off + len > q->placed)
		q->placed = off + len;
	kvb_count(&q->sh->count.copied, len);
	kvb_op_copy_out(q->sh->st, q->op, q->src, off, len, placed);
}

static bool crc_slice(struct kvb_work *w)
{
	struct rd_req *q = kvb_container(w, struct rd_req, work);
	uint32_t n = q->src_len - q->src_done;

	if (n > CRC_SLICE)
		n = CRC_SLICE;
	q->crc = kvb_crc32c(q->crc, q->src + q->src_done, n);
	q->src_done += n;
	if (q->src_done < q->src_len)
		return true;
	place(q);
	return false;
}

/* Checksum and move a piece of the receive buffer; pump() goes on when it is done. */
static void move_piece(struct rd_req *q, const void *src, uint32_t len)
{
	q->busy = true;
	q->src = src;
	q->src_len = len;
	q->src_done = 0;
	if (!q->checked) {
		place(q);
	} else if (len <= CRC_INLINE) {
		q->crc = kvb_crc32c(q->crc, src, len);
		place(q);
	} else {
		q->work.run = crc_slice;
		kvb_op_work(q->op, &q->work);
	}
}

static void cleared(struct kvb_store *st, struct kvb_op *op)
{
	rd_req_end(rd_op_of(st, op)->req, GKV_SC_UNRECOVERED | GKV_DNR);
}

/* Nothing of the value stays with the client. */
static enum step damaged(struct rd_req *q)
{
	if (!atomic_fetch_add(&q->sh->rs->values_bad, 1))
		kvb_log(KVB_LOG_WARN, "rados: %s: object %s: its checksum is wrong",
			q->op->ns->name, q->oid);
	q->op->has_crc = false;
	q->op->result = 0;
	q->busy = true;
	kvb_op_clear_out(q->sh->st, q->op, q->placed, cleared);
	return GONE;
}

/* ---- Going on ---- */

static enum step end(struct rd_req *q, uint16_t status)
{
	rd_req_end(q, status);
	return GONE;
}

/* The first part has come. */
static enum step learn(struct rd_req *q)
{
	const struct rsh_read_result *res = &q->parts[0].res;
	struct rd_shard *sh = q->sh;
	struct kvb_op *op = q->op;
	uint32_t size;
	uint16_t status;
	int rc;

	if (res->rc)
		return end(q, rd_status(q, res->rc, false));
	if (res->size > UINT32_MAX)
		return end(q, GKV_SC_VALUE_SIZE);
	size = (uint32_t)res->size;
	op->result = size;
	op->has_crc = rd_attr_get(&q->attr, res);
	op->value_crc = q->attr.crc;
	q->checked = op->has_crc && op->ns->verify;
	q->version = res->version;
	q->want = op->len < size ? op->len : size;
	q->need = q->checked ? size : q->want;
	if (q->sliced) {
		if (size >= q->span && sh->guess < GUESS_MAX)
			sh->guess++;
		else if (size < q->span && sh->guess)
			sh->guess--;
	}
	if (!q->want)
		return end(q, GKV_SC_SUCCESS);
	if (q->need > q->span) {
		/* The buffer is shorter than the value, and all of it must be checked. */
		q->span = q->need;
		return begin_anew(q);
	}
	if (q->placed > q->want) {
		/* The value has shrunk between two attempts: nothing is written past it. */
		return end(q, GKV_SC_TRANSIENT);
	}
	status = kvb_op_map(op, q->want);
	if (status)
		return end(q, status);
	q->known = true;
	rc = send_parts(q, 1, q->need);
	return rc ? end(q, rd_status(q, rc, false)) : GO_ON;
}

/* Whether a slice belongs to the same value as the first one, and is whole. */
static bool agrees(const struct rd_req *q, const struct rd_part *p, uint32_t len)
{
	return !p->res.rc && p->res.version == q->version && p->res.len >= len;
}

/* Bytes of a part that count. */
static uint32_t part_len(const struct rd_req *q, const struct rd_part *p)
{
	return p->len < q->need - p->off ? p->len : q->need - p->off;
}

/* Move what has come, in order. */
static enum step pump_once(struct rd_req *q)
{
	struct rd_part *p = &q->parts[q->next];
	uint32_t len, n;
	const void *src;

	if (q->known && (q->next == q->nparts || p->off >= q->need)) {
		if (!q->checked || q->crc == q->attr.crc)
			return end(q, GKV_SC_SUCCESS);
		return damaged(q);
	}
	if (!p->over) {
		if (!q->op->late)
			return WAIT;
		/* The deadline passed while a copy kept it from ending this. */
		rd_req_cancel(q);
		return GONE;
	}
	if (!q->known)
		return learn(q);
	len = part_len(q, p);
	if (!q->pos && !agrees(q, p, len)) {
		q->attempt++;
		return begin_anew(q);
	}
	if (q->pos < len) {
		src = rsh_read_piece(p->read, q->pos, &n);
		if (!src)
			return end(q, GKV_SC_INTERNAL);
		move_piece(q, src, n < len - q->pos ? n : len - q->pos);
		return WAIT;
	}
	rsh_read_free(p->read);
	p->read = NULL;
	q->next++;
	q->pos = 0;
	return GO_ON;
}

/* Copies may end inside the call that starts them: they leave it to the one running. */
static void pump(struct rd_req *q)
{
	enum step step;

	if (q->pumping) {
		q->repump = true;
		return;
	}
	q->pumping = true;
	do {
		q->repump = false;
		step = q->busy || q->again ? WAIT : pump_once(q);
		if (step == GONE)
			return;
	} while (step == GO_ON || q->repump);
	q->pumping = false;
}

static void part_came(struct rd_req *q, struct rd_part *p)
{
	(void)p;
	if (!q->again)
		pump(q);
	else if (!q->npending)
		rd_req_again(q, q->span);
}

void rd_retrieve(struct kvb_store *st, struct kvb_op *op)
{
	rd_req_start(st, op, op->len, begin, false);
}
