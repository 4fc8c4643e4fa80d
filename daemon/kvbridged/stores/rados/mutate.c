/* SPDX-License-Identifier: MIT */
/*
 * Store, Delete and Exist, each one operation on the object. What a successor asks of a mutation
 * that was under way: the attribute names the operation that stored the value. The dead client
 * is fenced by then, so the answer stays true.
 */
#include <time.h>

#include "core/killpoint.h"
#include "stores/rados/rados.h"

static void written(struct rd_req *q, struct rd_part *p)
{
	kvb_killpoint("rados-answered");
	rd_req_end(q, rd_status(q, p->res.rc, true));
}

static void write_send(struct rd_req *q, const struct rsh_write_args *a)
{
	int rc;

	q->over = written;
	kvb_killpoint("rados-send");
	rc = rd_write_send(q, a);
	if (rc)
		rd_req_end(q, rd_status(q, rc, true));
}

/* ---- Store ---- */

static void store_go(struct rd_req *q)
{
	struct kvb_op *op = q->op;
	struct rsh_write_args a = {
		.oid = q->oid,
		.exclusive = op->options & GKV_STORE_MUST_NOT_EXIST,
		.must_exist = op->options & GKV_STORE_MUST_EXIST,
		.len = op->len,
		.attr = RD_ATTR_NAME,
	};
	struct rd_attr attr;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	a.mtime_sec = ts.tv_sec;
	a.mtime_nsec = (uint32_t)ts.tv_nsec;
	rd_attr_make(&attr, op, a.mtime_sec, a.mtime_nsec);
	a.attr_data = &attr;
	a.attr_len = sizeof(attr);
	/* The bytes are ours from here on: a message may refer to them beyond the operation. */
	q->data = kvb_op_take_data(op);
	a.data = q->data;
	write_send(q, &a);
}

/* Neither option can be met together with the other: only which one fails is open. */
static void both_told(struct rd_req *q, struct rd_part *p)
{
	rd_req_end(q, p->res.rc ? rd_status(q, p->res.rc, false) : GKV_SC_KEY_EXISTS);
}

/* Size and time of the object, and no data. */
static void look(struct rd_req *q, void (*over)(struct rd_req *q, struct rd_part *p))
{
	int rc;

	q->over = over;
	q->nparts = 1;
	rc = rd_read_send(q, &q->one, true);
	if (rc)
		rd_req_end(q, rd_status(q, rc, false));
}

static void both_go(struct rd_req *q)
{
	look(q, both_told);
}

void rd_store(struct kvb_store *st, struct kvb_op *op)
{
	const uint8_t both = GKV_STORE_MUST_EXIST | GKV_STORE_MUST_NOT_EXIST;

	if ((op->options & both) == both)
		rd_req_start(st, op, 0, both_go, false);
	else
		rd_req_start(st, op, op->len, store_go, false);
}

/* ---- Delete, Exist ---- */

static void delete_go(struct rd_req *q)
{
	struct rsh_write_args a = { .oid = q->oid, .remove = true };

	write_send(q, &a);
}

void rd_delete(struct kvb_store *st, struct kvb_op *op)
{
	rd_req_start(st, op, 0, delete_go, false);
}

static void exist_told(struct rd_req *q, struct rd_part *p)
{
	rd_req_end(q, rd_status(q, p->res.rc, false));
}

static void exist_go(struct rd_req *q)
{
	look(q, exist_told);
}

void rd_exist(struct kvb_store *st, struct kvb_op *op)
{
	rd_req_start(st, op, 0, exist_go, false);
}

/* ---- After a restart ---- */

static void resolve_told(struct rd_req *q, struct rd_part *p)
{
	struct kvb_op *op = q->op;
	uint16_t status = rd_status(q, p->res.rc, false);
	struct rd_attr a;

	op->outcome = KVB_UNKNOWN;
	if (op->opcode == GKV_OP_STORE) {
		if (!status && rd_attr_get(&a, &p->res) && a.id_uid == op->id.uid &&
		    a.id_seq == op->id.seq)
			op->outcome = KVB_APPLIED;
	} else if (status == GKV_SC_KEY_NOT_FOUND &&
		   !atomic_load_explicit(&op->ns->ednek, memory_order_relaxed)) {
		/* It is gone, by this Delete or before it: the answer is the same. */
		op->outcome = KVB_APPLIED;
	}
	rd_req_end(q, GKV_SC_SUCCESS);
}

static void resolve_go(struct rd_req *q)
{
	look(q, resolve_told);
}

void rd_resolve(struct kvb_store *st, struct kvb_op *op)
{
	/* The connection may not be there yet: in doubt is worth waiting for, to its deadline. */
	rd_req_start(st, op, 0, resolve_go, true);
}
