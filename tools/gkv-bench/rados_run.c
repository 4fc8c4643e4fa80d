/* SPDX-License-Identifier: MIT */
/* The data path of gkv-bench floor rados. */
#include "floor_rados.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "keydist.h"
#include "pattern.h"
#include "util.h"

const char *const rados_mode_names[N_RADOS_MODES] = { "read", "slice", "write" };

#define MAX_SLICES 128

struct client;

/* One operation outstanding. */
struct op {
	struct client *client;
	uint64_t start;			/* ticks */
	uint64_t end;
	rados_handle read_op;
	rados_handle parts[MAX_SLICES];	/* completions; all but a slice's use one */
	uint32_t n_parts;
	_Atomic uint32_t left;		/* parts that have not completed */
	uint64_t obj_size;
	size_t got;
	int stat_rval;
	int read_rval;
	char *buf;
	char oid[33];
};

struct client {
	const struct rados_job *job;
	struct rados_outcome *out;
	struct op *ops;
	uint32_t *idle;			/* operations not in use */
	uint32_t n_idle;
	uint64_t submitted;
	uint64_t rng;
	bool measured;			/* false while warming up */
	/* The ring has room for every operation, so a push always finds a place. */
	_Atomic(struct op *) *ring;
	uint32_t mask;
	uint32_t tail;
	int efd;
	_Atomic uint32_t head __attribute__((aligned(64)));
	_Atomic bool sleeping;
};

/* On a thread of librados: push, and wake the other only if it sleeps. */
static void part_done(rados_handle completion, void *arg)
{
	struct op *op = arg;
	struct client *c = op->client;
	const uint64_t one = 1;
	uint32_t at;

	(void)completion;
	if (atomic_fetch_sub_explicit(&op->left, 1, memory_order_acq_rel) != 1)
		return;
	op->end = ticks();
	at = atomic_fetch_add_explicit(&c->head, 1, memory_order_relaxed);
	atomic_store(&c->ring[at & c->mask], op);
	if (atomic_load(&c->sleeping) && write(c->efd, &one, sizeof(one)) != sizeof(one))
		abort();
}

static struct op *pop(struct client *c)
{
	struct op *op = atomic_load(&c->ring[c->tail & c->mask]);

	if (op)
		atomic_store(&c->ring[c->tail++ & c->mask], NULL);
	return op;
}

/* The next operation that is over; sleeps for it. NULL when none came in time. */
static struct op *reap(struct client *c)
{
	struct pollfd pfd = { .fd = c->efd, .events = POLLIN };
	int timeout = (int)(c->job->limit_ns / 1000000);
	struct op *op;
	uint64_t n;

	for (;;) {
		op = pop(c);
		if (op)
			return op;
		atomic_store(&c->sleeping, true);
		op = pop(c);
		if (!op && poll(&pfd, 1, timeout) == 0)
			timeout = -1;
		atomic_store(&c->sleeping, false);
		if (op)
			return op;
		if (timeout < 0)
			return NULL;
		if (read(c->efd, &n, sizeof(n)) < 0 && errno != EAGAIN)
			return NULL;
	}
}

static bool failed(struct client *c, const struct op *op, int err, const char *what)
{
	snprintf(c->out->why, sizeof(c->out->why), "%s of object %s: %s", what, op->oid,
		 strerror(-err));
	return false;
}

static bool wrong_size(struct client *c, const struct op *op, uint64_t len)
{
	snprintf(c->out->why, sizeof(c->out->why),
		 "object %s has %" PRIu64 " bytes, not %" PRIu64, op->oid, len, c->job->size);
	return false;
}

static uint64_t next_key(struct client *c)
{
	if (c->job->in_order)
		return c->submitted % c->job->keys;
	return below(rng_next(&c->rng), c->job->keys);
}

static void name_object(struct op *op, uint64_t key)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t bytes[16];

	key_bytes(key, bytes);
	for (int i = 0; i < 16; i++) {
		op->oid[2 * i] = digits[bytes[i] >> 4];
		op->oid[2 * i + 1] = digits[bytes[i] & 15];
	}
}

static int submit_slices(struct client *c, struct op *op)
{
	const struct rados_job *job = c->job;
	const struct rados_api *r = job->api;

	for (uint32_t i = 0; i < op->n_parts; i++) {
		uint64_t off = (uint64_t)i * RADOS_SLICE_LEN;
		uint64_t len = job->size - off < RADOS_SLICE_LEN ? job->size - off
								 : RADOS_SLICE_LEN;
		int err = r->aio_read(job->ioctx, op->oid, op->parts[i], op->buf + off, len, off);

		if (err)
			return err;
	}
	return 0;
}

static int submit_one(struct client *c, struct op *op)
{
	const struct rados_job *job = c->job;
	const struct rados_api *r = job->api;

	if (job->mode == RADOS_WRITE)
		return r->aio_write_full(job->ioctx, op->oid, op->parts[0], op->buf, job->size);
	op->read_op = r->create_read_op();
	if (!op->read_op)
		return -ENOMEM;
	r->read_op_stat(op->read_op, &op->obj_size, NULL, &op->stat_rval);
	r->read_op_read(op->read_op, 0, job->size, op->buf, &op->got, &op->read_rval);
	return r->aio_read_op_operate(op->read_op, job->ioctx, op->parts[0], op->oid, 0);
}

static bool submit(struct client *c)
{
	const struct rados_job *job = c->job;
	struct op *op = &c->ops[c->idle[--c->n_idle]];
	int err;

	name_object(op, next_key(c));
	op->obj_size = op->got = 0;
	op->stat_rval = op->read_rval = 0;
	op->start = ticks();
	atomic_store_explicit(&op->left, op->n_parts, memory_order_relaxed);
	for (uint32_t i = 0; i < op->n_parts; i++) {
		err = job->api->aio_create_completion2(op, part_done, &op->parts[i]);
		if (err)
			return failed(c, op, err, "completion");
	}
	err = job->mode == RADOS_SLICE ? submit_slices(c, op) : submit_one(c, op);
	if (err)
		return failed(c, op, err, "submission");
	c->submitted++;
	return true;
}

/* Check how @op ended and put it back. */
static bool finish(struct client *c, struct op *op)
{
	const struct rados_job *job = c->job;
	uint64_t len = 0;
	int err = 0;

	for (uint32_t i = 0; i < op->n_parts; i++) {
		int rc = job->api->aio_get_return_value(op->parts[i]);

		if (rc < 0)
			err = rc;
		else
			len += (uint64_t)rc;
		job->api->aio_release(op->parts[i]);
	}
	if (op->read_op) {
		job->api->release_read_op(op->read_op);
		op->read_op = NULL;
		len = op->got;
		if (!err)
			err = op->stat_rval ? op->stat_rval : op->read_rval;
		if (!err && op->obj_size != job->size)
			return wrong_size(c, op, op->obj_size);
	}
	if (err)
		return failed(c, op, err, rados_mode_names[job->mode]);
	if (job->mode != RADOS_WRITE && len != job->size)
		return wrong_size(c, op, len);
	if (c->measured) {
		hist_add(&c->out->hist, op->end - op->start);
		c->out->ops++;
	}
	c->idle[c->n_idle++] = (uint32_t)(op - c->ops);
	return true;
}

/* Submit until @count operations or @end, and see all of them through. */
static bool pump(struct client *c, uint64_t count, uint64_t end)
{
	bool more = true;

	for (;;) {
		struct op *op;

		while (more && c->n_idle) {
			if (!count-- || now_ns() >= end)
				more = false;
			else if (!submit(c))
				return false;
		}
		if (c->n_idle == c->job->depth)
			return true;
		op = reap(c);
		if (!op) {
			snprintf(c->out->why, sizeof(c->out->why),
				 "nothing completed for %" PRIu64 " s", c->job->limit_ns / 1000000000u);
			return false;
		}
		do {
			if (!finish(c, op))
				return false;
			op = pop(c);
		} while (op);
	}
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

static void set_up(struct client *c)
{
	const struct rados_job *job = c->job;
	uint64_t stride = (job->size + 4095) & ~4095ull;
	uint32_t room = 1;
	char *mem;

	while (room < job->depth)
		room *= 2;
	c->mask = room - 1;
	c->ring = calloc(room, sizeof(*c->ring));
	c->ops = calloc(job->depth, sizeof(*c->ops));
	c->idle = calloc(job->depth, sizeof(*c->idle));
	mem = mmap(NULL, stride * job->depth, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	c->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!c->ring || !c->ops || !c->idle || mem == MAP_FAILED || c->efd < 0)
		die("floor: out of memory");
	c->rng = mix64(now_ns());
	for (uint32_t i = 0; i < job->depth; i++) {
		struct op *op = &c->ops[i];

		op->client = c;
		op->buf = mem + stride * i;
		op->n_parts = 1;
		if (job->mode == RADOS_SLICE)
			op->n_parts = (uint32_t)((job->size + RADOS_SLICE_LEN - 1) /
						 RADOS_SLICE_LEN);
		/* Neither zeros nor the same bytes everywhere. */
		pattern_fill(op->buf, job->size, mix64(i));
		c->idle[c->n_idle++] = job->depth - 1 - i;
	}
}

static void tear_down(struct client *c)
{
	munmap(c->ops[0].buf, ((c->job->size + 4095) & ~4095ull) * c->job->depth);
	close(c->efd);
	free(c->ring);
	free(c->ops);
	free(c->idle);
}

bool rados_run(const struct rados_job *job, struct rados_outcome *out)
{
	struct client *c = aligned_alloc(64, sizeof(*c));
	uint64_t start, cpu;
	bool ok = true;

	if (!c)
		die("floor: out of memory");
	memset(c, 0, sizeof(*c));
	memset(out, 0, sizeof(*out));
	hist_init(&out->hist);
	c->job = job;
	c->out = out;
	if (job->size > (uint64_t)MAX_SLICES * RADOS_SLICE_LEN)
		die("floor: objects of more than %u MiB", MAX_SLICES);
	set_up(c);
	/* Connections are made and buffers faulted in by the first operations. */
	if (!job->in_order)
		ok = pump(c, 2 * job->depth + 8, UINT64_MAX);
	c->measured = true;
	cpu = cpu_ns();
	start = now_ns();
	if (ok)
		ok = pump(c, job->count ? job->count : UINT64_MAX,
			  job->count ? UINT64_MAX : start + job->time_ns);
	out->spent_ns = now_ns() - start;
	out->cpu_ns = cpu_ns() - cpu;
	/* After a failure callbacks may still come: leave them their memory. */
	if (ok) {
		tear_down(c);
		free(c);
	}
	return ok;
}
