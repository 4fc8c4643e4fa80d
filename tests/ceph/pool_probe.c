/* SPDX-License-Identifier: MIT */
/*
 * stores/rados/pool.c driven by hand: opens pools, holds the connections that reactors are
 * told of, and answers each line on stdin with one of JSON.
 *
 *   pool_probe CONF ID KEYRING STATE_DIR on|off      KEYRING "-": as CONF says; fence
 *
 *   open N POOL NS TIMEOUT   slot N, seconds; attached on every reactor
 *   wait N SECONDS           status N
 *   told N                   generation that each reactor holds, 0: none
 *   put N OID TEXT           get N OID        failures are reported to the pool
 *   failed N ERRNO           report one
 *   keep N                   letgo N          a reference beside the reactors'
 *   flood N COUNT BYTES      reads in flight: how long the longest submission took
 *   close N
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/settings.h"
#include "core/reactor_priv.h"
#include "stores/rados/pool.h"

#define REACTORS 2u
#define SLOTS 8u
#define FLOOD_MAX 8192u

struct slot {
	struct rd_pool *pool;
	struct rd_io *kept;
	struct seat {
		struct rd_sub sub;
		struct slot *slot;
		struct rd_io *io;	/* the reactor's own */
		unsigned int calls;
	} seats[REACTORS];
};

static struct slot slots[SLOTS];
static struct rd_pool_conf conf = { .ops = 4096, .bytes = 1ull << 30 };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "pool_probe: %s\n", what);
	exit(1);
}

/* ---- On the reactors ---- */

struct call {
	struct kvb_call c;
	struct slot *slot;
	const char *oid, *text;
	char out[256];
	unsigned int count;
	size_t bytes;
	uint64_t value;
	int err, rc;
};

static struct seat *seat_of(struct kvb_call *c)
{
	return &((struct call *)c)->slot->seats[kvb_reactor_id(c->r)];
}

static void changed(struct rd_sub *sub, struct rd_io *io)
{
	struct seat *seat = (struct seat *)sub;

	seat->calls++;
	if (seat->io)
		rd_io_put(seat->slot->pool, seat->io);
	seat->io = io;
}

static void do_attach(struct kvb_call *c)
{
	struct seat *seat = seat_of(c);

	seat->sub.changed = changed;
	rd_pool_attach(seat->slot->pool, c->r, &seat->sub);
}

static void do_detach(struct kvb_call *c)
{
	struct seat *seat = seat_of(c);

	rd_pool_detach(&seat->sub);
	if (seat->io)
		rd_io_put(seat->slot->pool, seat->io);
	/* Whoever still touches it does so in vain, and is seen. */
	memset(seat, 0xa5, sizeof(*seat));
}

static void do_told(struct kvb_call *c)
{
	struct seat *seat = seat_of(c);

	((struct call *)c)->value = seat->io ? seat->io->generation : 0;
}

static void do_keep(struct kvb_call *c)
{
	struct seat *seat = seat_of(c);

	seat->slot->kept = seat->io;
	seat->io = NULL;
}

static void do_failed(struct kvb_call *c)
{
	struct seat *seat = seat_of(c);

	if (seat->io)
		rd_pool_failed(seat->slot->pool, seat->io, ((struct call *)c)->err);
}

static void do_put(struct kvb_call *c)
{
	struct call *call = (struct call *)c;
	struct seat *seat = seat_of(c);

	call->rc = -ENOTCONN;
	if (!seat->io)
		return;
	call->rc = rados_write_full(seat->io->ioctx, call->oid, call->text, strlen(call->text));
	if (call->rc)
		rd_pool_failed(seat->slot->pool, seat->io, call->rc);
}

static void do_get(struct kvb_call *c)
{
	struct call *call = (struct call *)c;
	struct seat *seat = seat_of(c);

	call->rc = -ENOTCONN;
	if (!seat->io)
		return;
	call->rc = rados_read(seat->io->ioctx, call->oid, call->out, sizeof(call->out) - 1, 0);
	if (call->rc < 0)
		rd_pool_failed(seat->slot->pool, seat->io, call->rc);
	else
		call->out[call->rc] = '\0';
}

/* Does submission wait when more is in flight than librados allows by default? */
static void do_flood(struct kvb_call *c)
{
	struct call *call = (struct call *)c;
	struct seat *seat = seat_of(c);
	static rados_completion_t ops[FLOOD_MAX];
	char *buf = mmap(NULL, call->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	call->rc = -ENOTCONN;
	if (!seat->io || buf == MAP_FAILED)
		return;
	for (unsigned int i = 0; i < call->count; i++) {
		uint64_t start = now_ns();

		rados_aio_create_completion2(NULL, NULL, &ops[i]);
		call->rc = rados_aio_read(seat->io->ioctx, "flood", ops[i], buf, call->bytes, 0);
		if (now_ns() - start > call->value)
			call->value = now_ns() - start;
	}
	for (unsigned int i = 0; i < call->count; i++)
		rados_aio_cancel(seat->io->ioctx, ops[i]);
	for (unsigned int i = 0; i < call->count; i++) {
		rados_aio_wait_for_complete_and_cb(ops[i]);
		rados_aio_release(ops[i]);
	}
	munmap(buf, call->bytes);
}

static void on(unsigned int reactor, struct call *call, void (*fn)(struct kvb_call *c))
{
	kvb_reactor_call(kvb_reactors[reactor], &call->c, fn);
}

/* ---- Commands ---- */

static void print_status(struct rd_pool *p, uint64_t took)
{
	struct rd_pool_status s;

	rd_pool_status(p, &s);
	for (char *c = s.why; *c; c++) {
		if (*c == '"' || *c == '\\')
			*c = '\'';
	}
	printf("{\"ready\": %s, \"why\": \"%s\", \"value_max\": %u, \"generation\": %llu, "
	       "\"reconnects\": %llu, \"fenced\": %llu, \"addrs\": \"%s\", \"ms\": %llu}\n",
	       s.ready ? "true" : "false", s.why, s.value_max, (unsigned long long)s.generation,
	       (unsigned long long)s.reconnects, (unsigned long long)s.fenced, s.addrs,
	       (unsigned long long)took / 1000000);
}

static void open_slot(struct slot *s, char **arg)
{
	struct kvb_err err = { 0 };
	int rc;

	conf.pool = arg[2];
	conf.ns = !strcmp(arg[3], "-") ? "" : arg[3];
	conf.op_timeout_ns = strtoull(arg[4], NULL, 10) * 1000000000u;
	rc = rd_pool_open(&conf, &s->pool, &err);
	for (unsigned int i = 0; i < REACTORS && !rc; i++) {
		s->seats[i] = (struct seat){ .slot = s };
		on(i, &(struct call){ .slot = s }, do_attach);
	}
	printf("{\"rc\": %d, \"why\": \"%s\"}\n", rc, err.text);
}

static void close_slot(struct slot *s)
{
	uint64_t start = now_ns();

	for (unsigned int i = 0; i < REACTORS; i++)
		on(i, &(struct call){ .slot = s }, do_detach);
	if (s->kept)
		rd_io_put(s->pool, s->kept);
	rd_pool_close(s->pool);
	*s = (struct slot){ 0 };
	printf("{\"ms\": %llu}\n", (unsigned long long)(now_ns() - start) / 1000000);
}

static void told(struct slot *s)
{
	printf("{\"generations\": [");
	for (unsigned int i = 0; i < REACTORS; i++) {
		struct call call = { .slot = s };

		on(i, &call, do_told);
		printf("%s%llu", i ? ", " : "", (unsigned long long)call.value);
	}
	printf("]}\n");
}

static void command(char **arg)
{
	struct slot *s = &slots[strtoul(arg[1], NULL, 10) % SLOTS];
	struct call call = { .slot = s, .oid = arg[2], .text = arg[3] };
	const char *verb = arg[0];
	uint64_t start = now_ns();

	if (!strcmp(verb, "open")) {
		open_slot(s, arg);
	} else if (!s->pool) {
		die("slot is not open");
	} else if (!strcmp(verb, "wait")) {
		rd_pool_wait(s->pool, strtoull(arg[2], NULL, 10) * 1000000000u);
		print_status(s->pool, now_ns() - start);
	} else if (!strcmp(verb, "status")) {
		print_status(s->pool, 0);
	} else if (!strcmp(verb, "told")) {
		told(s);
	} else if (!strcmp(verb, "put")) {
		on(0, &call, do_put);
		printf("{\"rc\": %d}\n", call.rc);
	} else if (!strcmp(verb, "get")) {
		on(1, &call, do_get);
		printf("{\"rc\": %d, \"value\": \"%s\"}\n", call.rc, call.out);
	} else if (!strcmp(verb, "failed")) {
		call.err = -atoi(arg[2]);
		on(0, &call, do_failed);
		printf("{}\n");
	} else if (!strcmp(verb, "keep")) {
		on(0, &call, do_keep);
		printf("{}\n");
	} else if (!strcmp(verb, "letgo")) {
		rd_io_put(s->pool, s->kept);
		s->kept = NULL;
		printf("{}\n");
	} else if (!strcmp(verb, "flood")) {
		call.count = (unsigned int)strtoul(arg[2], NULL, 10);
		call.bytes = strtoull(arg[3], NULL, 10);
		if (call.count > FLOOD_MAX)
			die("flood: too many");
		on(0, &call, do_flood);
		printf("{\"rc\": %d, \"us\": %llu}\n", call.rc,
		       (unsigned long long)call.value / 1000);
	} else if (!strcmp(verb, "close")) {
		close_slot(s);
	} else {
		die("what?");
	}
	fflush(stdout);
}

static void start_reactors(void)
{
	static struct kvb_config cfg;
	struct gkv_reactor_state *state;
	struct kvb_err err = { 0 };

	kvb_config_init(&cfg);
	kvb_settings_init(&cfg);
	kvb_log_set_level(KVB_LOG_INFO);
	state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (state == MAP_FAILED || kvb_reactors_create(REACTORS, &err))
		die("no reactors");
	for (unsigned int i = 0; i < REACTORS; i++) {
		const struct kvb_reactor_conf rc = {
			.id = i, .cpu = -1, .state = &state[i], .buffer_bytes = 1 << 20,
			.max_ops = 16,
		};

		if (kvb_reactor_start(&rc, &err))
			die(err.text);
	}
}

int main(int argc, char **argv)
{
	char line[512];

	if (argc != 6)
		die("see the source");
	conf.conf = argv[1];
	conf.id = argv[2];
	conf.keyring = !strcmp(argv[3], "-") ? NULL : argv[3];
	conf.state_dir = argv[4];
	conf.fence = !strcmp(argv[5], "on");
	start_reactors();
	while (fgets(line, sizeof(line), stdin)) {
		char *arg[6] = { 0 }, *save = NULL, *word = strtok_r(line, " \n", &save);

		for (unsigned int i = 0; i < 5 && word; i++) {
			arg[i] = word;
			word = strtok_r(NULL, " \n", &save);
		}
		if (!arg[1])
			die("which slot?");
		command(arg);
	}
	kvb_reactors_stop();
	for (unsigned int i = 0; i < SLOTS; i++) {
		if (slots[i].pool)
			die("a slot is still open");
	}
	return 0;
}
