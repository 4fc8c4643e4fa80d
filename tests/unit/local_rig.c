/* SPDX-License-Identifier: MIT */
#include "local_rig.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/crc.h"
#include "core/hash.h"
#include "local_media.h"
#include "stores/local/local.h"

extern const struct kvb_store_ops kvb_local_ops;

struct rig rig;
uint64_t kvb_hash_secret[2] = { 0x243f6a8885a308d3ull, 0x13198a2e03707344ull };

/* ---- Reactors ---- */

struct req {
	struct io_uring_sqe sqe;
	struct kvb_io *io;
	struct kvb_reactor *r;
	int res;
	bool ran;
	struct req *next;
};

struct kvb_reactor {
	unsigned int id;
	struct kvb_msg *msgs, **msgs_tail;
	struct kvb_work *works, **works_tail;
	struct kvb_timer *timers[16];
	unsigned int ntimers;
	struct kvb_buf_waiter *waiters, **waiters_tail;
	uint64_t lent;
};

static struct kvb_reactor reactors[KVB_MAX_REACTORS];
static struct req *reqs;	/* issued, not ended */
static unsigned int nreqs;
static struct rig_op *ops;
static uint64_t clock_ns = 1000000000;
static uint64_t rng;
static uint64_t next_id;
static char dir[128];

uint64_t rig_rand(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng * 0x2545f4914f6cdd1dull >> 8;
}

unsigned int kvb_reactor_id(const struct kvb_reactor *r)
{
	return r->id;
}

unsigned int kvb_reactor_count(void)
{
	return rig.reactors;
}

struct kvb_reactor *kvb_reactor_of(uint64_t hash)
{
	return &reactors[(hash >> 32) % rig.reactors];
}

uint64_t kvb_now(const struct kvb_reactor *r)
{
	(void)r;
	return clock_ns;
}

struct io_uring_sqe *kvb_io_get(struct kvb_reactor *r, struct kvb_io *io)
{
	struct req *q = calloc(1, sizeof(*q)), **pp = &reqs;

	CHECK(q);
	q->io = io;
	q->r = r;
	while (*pp)
		pp = &(*pp)->next;
	*pp = q;
	nreqs++;
	return &q->sqe;
}

void kvb_timer_arm(struct kvb_reactor *r, struct kvb_timer *t, uint64_t when)
{
	kvb_timer_cancel(r, t);
	CHECK(r->ntimers < 16);
	t->when = when;
	r->timers[r->ntimers++] = t;
	t->slot = r->ntimers;
}

void kvb_timer_cancel(struct kvb_reactor *r, struct kvb_timer *t)
{
	if (!t->slot)
		return;
	r->timers[t->slot - 1] = r->timers[--r->ntimers];
	r->timers[t->slot - 1]->slot = t->slot;
	t->slot = 0;
}

void kvb_work_add(struct kvb_reactor *r, struct kvb_work *w)
{
	w->next = NULL;
	*r->works_tail = w;
	r->works_tail = &w->next;
}

void kvb_reactor_send(struct kvb_reactor *r, struct kvb_msg *m)
{
	CHECK(r);
	m->next = NULL;
	*r->msgs_tail = m;
	r->msgs_tail = &m->next;
}

void *kvb_buf_alloc(struct kvb_reactor *r, size_t len)
{
	uint64_t *p;

	len = (len + 4095) & ~4095ull;
	if (rig.buf_budget && r->lent + len > rig.buf_budget)
		return NULL;
	p = aligned_alloc(4096, len + 4096);
	CHECK(p);
	p[0] = len;
	memset((char *)p + 4096, 0xd7, len);
	r->lent += len;
	return (char *)p + 4096;
}

size_t kvb_buf_size(const void *buf)
{
	return *(const uint64_t *)((const char *)buf - 4096);
}

void kvb_buf_free(struct kvb_reactor *r, void *buf)
{
	if (!buf)
		return;
	r->lent -= kvb_buf_size(buf);
	free((char *)buf - 4096);
}

void kvb_buf_wait(struct kvb_reactor *r, struct kvb_buf_waiter *w)
{
	w->next = NULL;
	*r->waiters_tail = w;
	r->waiters_tail = &w->next;
}

/* ---- Log and configuration ---- */

int kvb_fail(struct kvb_err *err, int errnum, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -errnum;
}

void kvb_log(enum kvb_log_level level, const char *fmt, ...)
{
	va_list ap;

	if (level >= rig.log_level_shown)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

struct kvb_conf {
	const char *pair[32];
	unsigned int n;
};

const char *kvb_conf_get(const struct kvb_conf *c, const char *key)
{
	size_t len = strlen(key);

	for (unsigned int i = c->n; i-- > 0;) {
		if (!strncmp(c->pair[i], key, len) && c->pair[i][len] == '=')
			return c->pair[i] + len + 1;
	}
	return NULL;
}

int kvb_conf_str(const struct kvb_conf *c, const char *key, const char *dflt, const char **out,
		 struct kvb_err *err)
{
	(void)err;
	*out = kvb_conf_get(c, key);
	if (!*out)
		*out = dflt;
	return 0;
}

int kvb_conf_bool(const struct kvb_conf *c, const char *key, bool dflt, bool *out,
		  struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);

	(void)err;
	*out = v ? !strcmp(v, "on") : dflt;
	return 0;
}

int kvb_conf_u64(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		 uint64_t max, uint64_t *out, struct kvb_err *err)
{
	const char *v = kvb_conf_get(c, key);

	*out = v ? strtoull(v, NULL, 0) : dflt;
	return *out < min || *out > max ? kvb_fail(err, ERANGE, "%s", key) : 0;
}

int kvb_conf_size(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		  uint64_t max, uint64_t *out, struct kvb_err *err)
{
	return kvb_conf_u64(c, key, dflt, min, max, out, err);
}

int kvb_conf_time(const struct kvb_conf *c, const char *key, uint64_t dflt, uint64_t min,
		  uint64_t max, uint64_t *out, struct kvb_err *err)
{
	return kvb_conf_u64(c, key, dflt, min, max, out, err);
}

/* ---- Requests ---- */

static bool is_write(const struct io_uring_sqe *s)
{
	return s->opcode == IORING_OP_WRITE || s->opcode == IORING_OP_WRITEV;
}

/* The first @len bytes of a vector; freed by the caller. */
static char *flat(const struct iovec *v, unsigned int nv, size_t len)
{
	char *all = malloc(len), *p = all;

	CHECK(all);
	for (unsigned int i = 0; i < nv && len; i++) {
		size_t n = v[i].iov_len < len ? v[i].iov_len : len;

		memcpy(p, v[i].iov_base, n);
		p += n;
		len -= n;
	}
	CHECK(!len);
	return all;
}

static int run_now(struct req *q)
{
	struct io_uring_sqe *s = &q->sqe;
	struct rig_io io = {
		.file = media_of(s->fd), .off = s->off, .len = s->len, .no = ++rig.ios,
		.write = is_write(s), .sync = s->opcode == IORING_OP_FSYNC,
	};
	struct iovec one, cut[256], *v = &one;
	unsigned int nv = 1;
	int res = RIG_OK;
	bool lie = false;
	ssize_t n;

	CHECK(io.file >= 0);
	if (s->opcode == IORING_OP_READV || s->opcode == IORING_OP_WRITEV) {
		v = (struct iovec *)(uintptr_t)s->addr;
		nv = s->len;
		io.len = 0;
		for (unsigned int i = 0; i < nv; i++)
			io.len += v[i].iov_len;
	} else {
		one = (struct iovec){ (void *)(uintptr_t)s->addr, s->len };
	}
	if (!io.sync) {
		struct loc_store *ls = rig.st.priv;

		io.table = io.off < ls->file[io.file].sb.data_off;
		CHECK(!(io.off % 512) && !(io.len % 512) && io.len);
		CHECK(!io.write || (io.off + io.len <= ls->file[io.file].size && io.off >= 4096));
		if (io.write && !io.table)
			media_check_reuse(&ls->file[io.file], io.file, io.off, io.len);
	}
	if (rig.fault)
		res = rig.fault(&io, rig.fault_arg);
	if (res == RIG_LANDED)
		res = RIG_OK, lie = true;
	if (res != RIG_OK && res < 0)
		return res;
	if (io.sync) {
		media_drain(io.file);
		return 0;
	}
	if (res != RIG_OK && (uint32_t)res < io.len) {
		uint32_t left = res;

		if (!res)
			return 0;
		/* A copy: the vector is the operation's. */
		CHECK(nv <= sizeof(cut) / sizeof(cut[0]));
		memcpy(cut, v, nv * sizeof(*v));
		v = cut;
		for (nv = 0; left; nv++) {
			if (v[nv].iov_len > left)
				v[nv].iov_len = left;
			left -= v[nv].iov_len;
		}
		io.len = res;
	}
	if (io.write) {
		char *all = flat(v, nv, io.len);

		if (s->rw_flags & RWF_DSYNC)
			n = media_write_durable(io.file, all, io.len, io.off);
		else
			n = media_write(io.file, all, io.len, io.off);
		free(all);
	} else {
		CHECK(s->opcode == IORING_OP_READ || s->opcode == IORING_OP_READV);
		n = preadv(s->fd, v, nv, io.off);
	}
	return n < 0 ? -errno : lie ? -EIO : n;
}

static void step_io(void)
{
	unsigned int pick = rig.fifo ? 0 : rig_below(nreqs);
	struct req **pp = &reqs, *q;
	struct kvb_io *io;
	int res;

	while (pick--)
		pp = &(*pp)->next;
	q = *pp;
	if (!q->ran) {
		q->res = run_now(q);
		q->ran = true;
		/* What the device has done is sometimes reported later. */
		if (!rig.fifo && rig_below(4) == 0)
			return;
	}
	*pp = q->next;
	nreqs--;
	io = q->io;
	res = q->res;
	free(q);
	io->done(io, res);
}

static bool step_msg(struct kvb_reactor *r)
{
	struct kvb_msg *m = r->msgs;

	if (!m)
		return false;
	r->msgs = m->next;
	if (!r->msgs)
		r->msgs_tail = &r->msgs;
	m->fn(m);
	return true;
}

static bool step_work(struct kvb_reactor *r)
{
	struct kvb_work *w = r->works;

	if (!w)
		return false;
	r->works = w->next;
	if (!r->works)
		r->works_tail = &r->works;
	if (w->run(w))
		kvb_work_add(r, w);
	return true;
}

static bool step_timer(struct kvb_reactor *r)
{
	for (unsigned int i = 0; i < r->ntimers; i++) {
		struct kvb_timer *t = r->timers[i];

		if (t->when > clock_ns)
			continue;
		kvb_timer_cancel(r, t);
		t->fn(t);
		return true;
	}
	return false;
}

static bool step_buf(struct kvb_reactor *r)
{
	struct kvb_buf_waiter *w = r->waiters;

	if (!w || (rig.buf_budget && r->lent + w->len > rig.buf_budget))
		return false;
	r->waiters = w->next;
	if (!r->waiters)
		r->waiters_tail = &r->waiters;
	w->fn(w);
	return true;
}

bool rig_step(void)
{
	unsigned int first = rig_below(rig.reactors), kind = rig_below(4);

	if (nreqs && (kind == 0 || rig_below(2))) {
		step_io();
		return true;
	}
	for (unsigned int i = 0; i < rig.reactors; i++) {
		struct kvb_reactor *r = &reactors[(first + i) % rig.reactors];

		for (unsigned int k = 0; k < 4; k++) {
			switch ((kind + k) % 4) {
			case 0:
				if (step_msg(r))
					return true;
				break;
			case 1:
				if (step_work(r))
					return true;
				break;
			case 2:
				if (step_timer(r))
					return true;
				break;
			default:
				if (step_buf(r))
					return true;
			}
		}
	}
	if (nreqs) {
		step_io();
		return true;
	}
	return false;
}

void rig_run(void)
{
	while (rig_step())
		;
}

void rig_advance(uint64_t ns)
{
	clock_ns += ns;
}

static bool next_timer(void)
{
	uint64_t when = UINT64_MAX;

	for (unsigned int i = 0; i < rig.reactors; i++) {
		for (unsigned int j = 0; j < reactors[i].ntimers; j++) {
			if (reactors[i].timers[j]->when < when)
				when = reactors[i].timers[j]->when;
		}
	}
	if (when == UINT64_MAX)
		return false;
	if (clock_ns < when)
		clock_ns = when;
	return true;
}

void rig_settle(void)
{
	/* A superseded extent takes two flushes, a tombstone behind it one more. */
	for (int i = 0; i < 64; i++) {
		rig_run();
		if (!next_timer())
			return;
	}
	CHECK(!"timers never end");
}

bool rig_wait(struct rig_op *ro)
{
	for (uint64_t n = 0; !ro->done; n++) {
		if (n > 50000000)
			return false;
		if (!rig_step() && !next_timer())
			return false;
	}
	return true;
}

/* ---- Operations ---- */

static struct rig_op *ro_of(struct kvb_op *op)
{
	struct rig_op *ro;

	/* Behind the store's bytes. */
	memcpy(&ro, op->priv + kvb_local_ops.op_size, sizeof(ro));
	return ro;
}

void kvb_op_complete(struct kvb_op *op, uint16_t status)
{
	struct rig_op *ro = ro_of(op);

	CHECK(!ro->done);
	if (op->staging) {
		/* As the core does: whoever copies the value ends it. */
		CHECK(!op->answered && status);
		op->answered = true;
		op->status = status;
		return;
	}
	if (ro->prev)
		ro->prev->next = ro->next;
	else
		ops = ro->next;
	if (ro->next)
		ro->next->prev = ro->prev;
	ro->done = true;
	ro->op = NULL;
	ro->status = status;
	ro->result = op->result;
	ro->has_crc = op->has_crc;
	ro->crc = op->value_crc;
	ro->outcome = op->outcome;
	ro->direct = op->direct_bytes;
	ro->tail = op->tail_bytes;
	ro->copied = op->copy_bytes;
	ro->bounced = op->bounce_bytes;
	/* Whoever still reads it is found out. */
	if (op->data) {
		memset(op->data, 0xee, kvb_buf_size(op->data));
		kvb_buf_free(op->r, op->data);
	}
	for (unsigned int i = 0; ro->from && i < ro->niov; i++)
		memset(ro->iov[i].iov_base, 0xee, ro->iov[i].iov_len);
	free(ro->from);
	ro->from = NULL;
	memset(op->priv, 0xbb, kvb_local_ops.op_size);
	free(op);
	if (ro->fn)
		ro->fn(ro, ro->arg);
}

uint16_t kvb_op_map(struct kvb_op *op, uint32_t len)
{
	struct rig_op *ro = ro_of(op);
	uint32_t left = len;

	CHECK(len <= op->len && !op->segs);
	op->segs = calloc(ro->niov, sizeof(*op->segs));
	CHECK(op->segs);
	for (unsigned int i = 0; i < ro->niov && left; i++) {
		op->segs[i] = ro->iov[i];
		if (op->segs[i].iov_len > left)
			op->segs[i].iov_len = left;
		left -= op->segs[i].iov_len;
		op->nsegs++;
	}
	CHECK(!left);
	ro->data = op->segs;	/* freed when the rig_op is used again */
	return 0;
}

struct copy {
	struct kvb_work work;
	struct kvb_store *st;
	struct kvb_op *op;
	const char *src;
	uint32_t off, len;
	kvb_op_fn done;
};

static bool copy_run(struct kvb_work *w)
{
	struct copy c = *(struct copy *)w;
	uint64_t at = 0;

	free(w);
	for (uint32_t i = 0; i < c.op->nsegs; i++) {
		const struct iovec *v = &c.op->segs[i];
		uint64_t a = at > c.off ? at : c.off, b = at + v->iov_len;

		if (b > c.off + c.len)
			b = c.off + c.len;
		if (a < b && v->iov_base) {
			char *p = (char *)v->iov_base + (a - at);

			if (c.src)
				memcpy(p, c.src + (a - c.off), b - a);
			else
				memset(p, 0, b - a);
		}
		at += v->iov_len;
	}
	CHECK(c.off + c.len <= at);
	c.done(c.st, c.op);
	return false;
}

static void copy_start(struct copy c)
{
	struct copy *p = malloc(sizeof(*p));

	CHECK(p);
	*p = c;
	p->work.run = copy_run;
	if (rig.defer_copies && rig_below(2))
		kvb_work_add(c.op->r, &p->work);
	else
		copy_run(&p->work);
}

void kvb_op_copy_out(struct kvb_store *st, struct kvb_op *op, const void *src, uint32_t off,
		     uint32_t len, kvb_op_fn done)
{
	op->copy_bytes += len;
	copy_start((struct copy){ .st = st, .op = op, .src = src, .off = off, .len = len,
				  .done = done });
}

void kvb_op_clear_out(struct kvb_store *st, struct kvb_op *op, uint32_t len, kvb_op_fn done)
{
	copy_start((struct copy){ .st = st, .op = op, .len = len, .done = done });
}

bool kvb_list_add(struct kvb_op *op, const uint8_t *key, uint8_t klen)
{
	struct rig_op *ro = ro_of(op);

	if (ro->nkeys == ro->max_keys)
		return false;
	ro->keys[ro->nkeys][0] = klen;
	memset(&ro->keys[ro->nkeys][1], 0, 16);
	memcpy(&ro->keys[ro->nkeys++][1], key, klen);
	return true;
}

static struct kvb_op *op_new(struct rig_op *ro, uint8_t opcode, const void *key, uint8_t klen)
{
	struct kvb_op *op = calloc(1, sizeof(*op) + kvb_local_ops.op_size + sizeof(ro));

	CHECK(op && klen <= 16);
	memset(op->priv, 0xaa, kvb_local_ops.op_size);
	op->opcode = opcode;
	op->klen = klen;
	if (klen)
		memcpy(op->key, key, klen);
	op->ns = &rig.ns;
	op->hash = kvb_hash_key(op->key, klen);
	op->r = kvb_reactor_of(op->hash);
	op->id = (struct kvb_opid){ .uid = 0x1234, .seq = ++next_id };
	op->start_ns = clock_ns;
	op->vram = rig.vram;
	op->client_verifies = rig.client_verifies;
	op->bounce = rig.bounce;
	memcpy(op->priv + kvb_local_ops.op_size, &ro, sizeof(ro));
	ro->done = false;
	free(ro->data);
	ro->data = NULL;
	ro->op = op;
	ro->prev = NULL;
	ro->next = ops;
	if (ops)
		ops->prev = ro;
	ops = ro;
	return op;
}

struct kvb_opid rig_last_id(void)
{
	return (struct kvb_opid){ .uid = 0x1234, .seq = next_id };
}

/* A value on its way from the client, a few bytes or many at a time. */
struct stage {
	struct kvb_work work;
	struct kvb_op *op;
	bool fails;
	unsigned char value[];
};

static bool stage_run(struct kvb_work *w)
{
	struct stage *s = (struct stage *)w;
	struct kvb_op *op = s->op;
	uint32_t left = op->len - op->staged, n = left > 8192 ? 1 + rig_below(left) : left;

	if (op->answered || (s->fails && rig_below(4) == 0))
		goto over;
	memcpy((char *)op->data + op->staged, s->value + op->staged, n);
	op->staged += n;
	if (op->staged < op->len) {
		kvb_local_ops.staged(&rig.st, op);
		return true;
	}
over:
	op->staging = false;
	if (s->fails || op->staged < op->len)
		op->stage_status = GKV_SC_DATA_TRANSFER;
	else
		op->crc = kvb_crc32c(0, s->value, op->len);
	free(s);
	if (op->answered)
		kvb_op_complete(op, op->status);
	else
		kvb_local_ops.staged(&rig.st, op);
	return false;
}

static void stage_start(struct kvb_op *op, const void *data)
{
	struct stage *s = malloc(sizeof(*s) + op->len);

	CHECK(s);
	s->work.run = stage_run;
	s->op = op;
	s->fails = rig.stage_fail && rig_below(rig.stage_fail) == 0;
	memcpy(s->value, data, op->len);
	/* What is not there yet must not be written as if it were. */
	memset(op->data, 0x99, op->len);
	op->crc = 0x99999999;
	op->staged = rig_below(op->len);
	memcpy(op->data, data, op->staged);
	op->staging = true;
	kvb_work_add(op->r, &s->work);
}

/* The core waits for these before the store sees the operation. */
static void buf_new(struct kvb_op *op, uint32_t len)
{
	uint64_t budget = rig.buf_budget;

	rig.buf_budget = 0;
	op->data = kvb_buf_alloc(op->r, len);
	rig.buf_budget = budget;
}

uint16_t kvb_op_direct_over(const struct kvb_op *op)
{
	struct rig_op *ro;

	memcpy(&ro, op->priv + kvb_local_ops.op_size, sizeof(ro));
	return ro->over;
}

static bool store_direct(struct rig_op *ro, const void *key, uint8_t klen, uint32_t len,
			 uint8_t options, uint32_t crc)
{
	struct kvb_op *op = op_new(ro, GKV_OP_STORE, key, klen);
	uint32_t rest;

	op->options = options;
	op->len = len;
	op->crc = crc;
	op->vram = true;
	CHECK(!kvb_op_map(op, len));
	if (!kvb_local_ops.direct(&rig.st, op, 65536, &rest)) {
		ops = ro->next;
		if (ops)
			ops->prev = NULL;
		ro->op = NULL;
		free(op);
		return false;
	}
	if (rest) {
		buf_new(op, rest);
		memset(op->data, 0x99, kvb_buf_size(op->data));
	}
	op->direct = true;
	op->staged = len;
	kvb_local_ops.store(&rig.st, op);
	return true;
}

bool rig_store_iov(struct rig_op *ro, const void *key, uint8_t klen, uint32_t len, uint32_t crc,
		   uint16_t over)
{
	ro->over = over;
	return store_direct(ro, key, klen, len, 0, crc);
}

/* Lay a value out in pieces, some of them such as a device can fetch. */
static void scatter(struct rig_op *ro, const char *data, uint32_t len)
{
	char *at = aligned_alloc(4096, ((size_t)len + 4095 + 16 * 4096) & ~(size_t)4095);

	CHECK(at);
	ro->from = at;
	for (ro->niov = 0; len; ro->niov++) {
		uint32_t n = ro->niov == 15 ? len : 1 + (uint32_t)rig_below(len);

		at = (char *)(((uintptr_t)at + 511) & ~(uintptr_t)511);
		if (rig_below(4) == 0)
			at += rig_below(512);
		else if (n > 512 && n < len && rig_below(4))
			n &= ~511u;
		memcpy(at, data, n);
		ro->iov[ro->niov] = (struct iovec){ at, n };
		at += n;
		data += n;
		len -= n;
	}
}

void rig_store(struct rig_op *ro, const void *key, uint8_t klen, const void *data, uint32_t len,
	       uint8_t options)
{
	struct kvb_op *op;

	if (rig.direct && len && rig_below(rig.direct) == 0) {
		scatter(ro, data, len);
		ro->over = rig.stage_fail && rig_below(rig.stage_fail) == 0 ?
				   GKV_SC_DATA_TRANSFER : 0;
		if (store_direct(ro, key, klen, len, options, kvb_crc32c(0, data, len)))
			return;
		free(ro->from);
		ro->from = NULL;
	}
	op = op_new(ro, GKV_OP_STORE, key, klen);
	op->options = options;
	op->len = len;
	if (len) {
		buf_new(op, len);
		memset(op->data, 0, kvb_buf_size(op->data));
		memcpy(op->data, data, len);
		op->crc = kvb_crc32c(0, data, len);
		op->staged = len;
		if (rig.stage && len > 4096 && rig_below(rig.stage) == 0)
			stage_start(op, data);
	}
	kvb_local_ops.store(&rig.st, op);
}

void rig_retrieve_iov(struct rig_op *ro, const void *key, uint8_t klen, uint32_t len)
{
	struct kvb_op *op = op_new(ro, GKV_OP_RETRIEVE, key, klen);

	op->len = len;
	kvb_local_ops.retrieve(&rig.st, op);
}

void rig_retrieve(struct rig_op *ro, const void *key, uint8_t klen, void *buf, uint32_t len)
{
	ro->iov[0] = (struct iovec){ buf, len };
	ro->niov = 1;
	rig_retrieve_iov(ro, key, klen, len);
}

void rig_delete(struct rig_op *ro, const void *key, uint8_t klen)
{
	kvb_local_ops.delete(&rig.st, op_new(ro, GKV_OP_DELETE, key, klen));
}

void rig_exist(struct rig_op *ro, const void *key, uint8_t klen)
{
	kvb_local_ops.exist(&rig.st, op_new(ro, GKV_OP_EXIST, key, klen));
}

void rig_flush(struct rig_op *ro)
{
	struct kvb_op *op = op_new(ro, GKV_OP_FLUSH, NULL, 0);

	op->r = &reactors[0];
	kvb_local_ops.flush(&rig.st, op);
}

void rig_resolve(struct rig_op *ro, const void *key, uint8_t klen, struct kvb_opid id)
{
	struct kvb_op *op = op_new(ro, GKV_OP_STORE, key, klen);

	op->id = id;
	op->run = (uint16_t)(rig.st.ns->run - 1);
	kvb_local_ops.resolve(&rig.st, op);
}

bool rig_cancel(struct rig_op *ro)
{
	return ro->op && kvb_local_ops.cancel(&rig.st, ro->op);
}

static int key_order(const void *a, const void *b)
{
	const uint8_t *x = a, *y = b;

	return kvb_key_cmp(x + 1, x[0], y + 1, y[0]);
}

void rig_list(struct rig_op *ro, const void *key, uint8_t klen)
{
	unsigned int max = ro->max_keys, total = 0;
	uint8_t (*all)[17] = calloc((size_t)max * rig.reactors + 1, 17), (*out)[17] = ro->keys;

	CHECK(all);
	for (unsigned int i = 0; i < rig.reactors; i++) {
		struct kvb_op *op = op_new(ro, GKV_OP_LIST, key, klen);

		op->r = &reactors[i];
		ro->keys = all + total;
		ro->nkeys = 0;
		kvb_local_ops.list(&rig.st, op);
		while (!ro->done)
			CHECK(rig_step());
		for (unsigned int j = 1; j < ro->nkeys; j++)
			CHECK(key_order(ro->keys[j - 1], ro->keys[j]) < 0);
		total += ro->nkeys;
	}
	qsort(all, total, 17, key_order);
	ro->nkeys = total < max ? total : max;
	ro->keys = out;
	memcpy(out, all, (size_t)ro->nkeys * 17);
	free(all);
}

struct kvb_store_info rig_info(void)
{
	struct kvb_store_info info;

	kvb_local_ops.info(&rig.st, &info);
	return info;
}

void rig_space(uint64_t *total, uint64_t *free_units, uint64_t *old, uint64_t *lost)
{
	struct loc_store *ls = rig.st.priv;

	*total = ls->total_units;
	*free_units = atomic_load(&ls->free_units);
	*old = atomic_load(&ls->old_units);
	*lost = atomic_load(&ls->lost_units);
}

/* ---- Life ---- */

void rig_begin(void)
{
	const char *tmp = getenv("TMPDIR");

	rng = rig.seed * 0x9e3779b97f4a7c15ull + 0x1234567;
	rng = rng ? rng : 1;
	if (!rig.reactors)
		rig.reactors = 1;
	if (!rig.files)
		rig.files = 1;
	snprintf(dir, sizeof(dir), "%s/gkv-local-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(dir));
	for (unsigned int i = 0; i < rig.files; i++) {
		snprintf(rig.paths[i], sizeof(rig.paths[i]), "%s/m%u", dir, i);
		media_begin(i, rig.paths[i]);
	}
}

static void reactors_reset(void)
{
	memset(reactors, 0, sizeof(reactors));
	for (unsigned int i = 0; i < KVB_MAX_REACTORS; i++) {
		reactors[i].id = i;
		reactors[i].msgs_tail = &reactors[i].msgs;
		reactors[i].works_tail = &reactors[i].works;
		reactors[i].waiters_tail = &reactors[i].waiters;
	}
}

int rig_open(const char *const *extra)
{
	static char path[RIG_MAX_FILES * 256 + 8], unit[64];
	struct kvb_conf c = { .n = 0 };
	int ret;

	CHECK(!rig.open);
	reactors_reset();
	snprintf(path, sizeof(path), "path=%s", rig.paths[0]);
	for (unsigned int i = 1; i < rig.files; i++) {
		strcat(path, " ");
		strcat(path, rig.paths[i]);
	}
	snprintf(unit, sizeof(unit), "unit=%llu",
		 (unsigned long long)(rig.unit ? rig.unit : 4096));
	c.pair[c.n++] = path;
	c.pair[c.n++] = unit;
	c.pair[c.n++] = "buffered=on";
	c.pair[c.n++] = "lock_wait=0";
	while (extra && *extra)
		c.pair[c.n++] = *extra++;
	memset(&rig.st, 0, sizeof(rig.st));
	memset(&rig.ns, 0, sizeof(rig.ns));
	rig.ns.sync = rig.sync;
	rig.ns.verify = rig.verify;
	atomic_store(&rig.ns.vwc, !rig.sync);
	rig.st.ops = &kvb_local_ops;
	rig.st.ns = &rig.ns;
	media_opening();
	kvb_hash_secret[0] = rig_rand();	/* another in every process */
	ret = kvb_local_ops.open(&rig.st, &c, &rig.err);
	if (ret)
		return ret;
	if (rig.align) {
		/* As if the files were open for direct I/O, which not every file system has. */
		struct loc_store *ls = rig.st.priv;

		ls->block = 512;
		ls->mem_mask = rig.align - 1;
		for (unsigned int i = 0; i < ls->nfiles; i++)
			ls->file[i].mem_mask = rig.align - 1;
	}
	for (unsigned int i = 0; i < rig.reactors; i++)
		CHECK(!kvb_local_ops.start(&rig.st, &reactors[i], &rig.err));
	rig.open = true;
	return 0;
}

void rig_close(void)
{
	CHECK(rig.open);
	rig_run();
	CHECK(!ops);
	for (unsigned int i = 0; i < rig.reactors; i++)
		kvb_local_ops.stop(&rig.st, &reactors[i]);
	rig_run();
	kvb_local_ops.close(&rig.st);
	rig.open = false;
	for (unsigned int i = 0; i < rig.reactors; i++) {
		CHECK(!reactors[i].ntimers);
		CHECK(!reactors[i].lent);
	}
}

static void **graves;
static size_t ngraves, graves_cap;

static void bury(void *p)
{
	if (ngraves == graves_cap) {
		graves_cap = graves_cap ? 2 * graves_cap : 256;
		graves = realloc(graves, graves_cap * sizeof(*graves));
		CHECK(graves);
	}
	graves[ngraves++] = p;
}

static void forget(bool cut)
{
	struct loc_store *ls = rig.st.priv;
	struct rig_op *ro;

	CHECK(rig.open);
	/* What was issued lands whole, or, with the power gone, in part. */
	while (reqs) {
		struct req *q = reqs;
		struct io_uring_sqe *s = &q->sqe;
		int file = media_of(s->fd);

		if (!q->ran && is_write(s)) {
			struct iovec one = { (void *)(uintptr_t)s->addr, s->len }, *v = &one;
			unsigned int nv = 1;
			uint32_t len = 0;
			char *all;

			if (s->opcode == IORING_OP_WRITEV) {
				v = (struct iovec *)(uintptr_t)s->addr;
				nv = s->len;
			}
			for (unsigned int i = 0; i < nv; i++)
				len += v[i].iov_len;
			all = flat(v, nv, len);
			if (cut)
				media_maybe_keep(file, s->off, all, len);
			else if (rig_below(2))
				CHECK(media_write(file, all, len, s->off) == (ssize_t)len);
			free(all);
		}
		reqs = q->next;
		free(q);
		nreqs--;
	}
	while ((ro = ops)) {
		struct kvb_op *op = ro->op;

		ops = ro->next;
		ro->op = NULL;
		bury(ro->from);
		ro->from = NULL;
		if (op->data)
			kvb_buf_free(op->r, op->data);
		bury(op);
	}
	/* A dead process's memory just goes: here it stays where the leak checker sees it. */
	for (unsigned int i = 0; i < rig.reactors; i++) {
		bury(reactors[i].msgs);
		bury(reactors[i].works);
	}
	loc_dev_close(ls);
	for (unsigned int i = 0; i < ls->nshards; i++) {
		free(ls->sh[i]->tbuf_mem);
		free(ls->sh[i]->bounce_mem);
	}
	free(ls->fl.mark_buf);
	bury(ls);
	rig.open = false;
}

void rig_kill(void)
{
	forget(false);
}

void rig_power_cut(void)
{
	if (rig.open)
		forget(true);
	media_cut();
}

void rig_end(void)
{
	if (rig.open)
		rig_close();
	media_end();
	for (unsigned int i = 0; i < rig.files; i++)
		unlink(rig.paths[i]);
	rmdir(dir);
}
