/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * F106, the fence: direct I/O of a killed daemon lands seconds later. Its successor answers only
 * when the last of it has, and from then on nothing lands in client memory or in extents
 * that were given to somebody else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "rig.h"
#include "suite.h"
#include "throttle.h"

#define SEC 1000000000ull
#define VALUE (2u << 20)
#define NVALUES 12u
#define SLOW (6u << 20)		/* bytes a second: four seconds for all values */
#define PAGE 4096u
#define POISON 0xa5		/* of poison() */

static const char conf[] =
	"[daemon]\n"
	"reactors = 2\n"
	"spin_ns = 20us\n"
	"buffer_memory = 256M\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = local\n"
	"deadline = 60s\n"
	"local.path = {dir}/store\n"
	"local.size = 64M\n";

static struct rig rig;
static struct throttle slow;

struct client {
	struct gkv *g;
	struct gkv_qp *qp;
	uint8_t *buf;
};

static void __attribute__((noreturn)) give_up(const char *what)
{
	tap_diag("%s: %s", what, gkv_error());
	rig_show_log(&rig);
	throttle_free(&slow);
	exit(1);
}

static void client_open(struct client *c, uint32_t flags)
{
	struct gkv_ns_info info = { .size = sizeof(info) };
	struct gkv_mem *mem;

	if (gkv_connect(&c->g, rig.socket, 4, flags) || gkv_ns_open(c->g, "main", 0, &info) ||
	    gkv_mem_alloc(c->g, (size_t)NVALUES * VALUE, &mem) ||
	    gkv_qp_create(c->g, NULL, &c->qp))
		give_up("session");
	c->buf = gkv_mem_addr(mem);
}

static void submit_all(struct client *c, uint8_t opcode, const char *prefix)
{
	for (unsigned int i = 0; i < NVALUES; i++) {
		struct suite_key key = suite_key("%s-%u", prefix, i);
		struct gkv_cmd cmd;

		suite_cmd(&cmd, opcode, 1, &key);
		cmd.buf = c->buf + (size_t)i * VALUE;
		cmd.len = VALUE;
		if (gkv_submit(c->qp, &cmd, 1) != 1)
			give_up("submit");
	}
}

/* Take the completions of all; returns how many were successes. */
static unsigned int take_all(struct client *c)
{
	unsigned int ok = 0;

	for (unsigned int i = 0; i < NVALUES; i++) {
		struct gkv_comp comp;

		if (gkv_wait(c->qp, &comp, 1, 60 * SEC) != 1)
			give_up("no completion");
		ok += !comp.status;
	}
	return ok;
}

static void fill(struct client *c, uint64_t seed)
{
	for (unsigned int i = 0; i < NVALUES; i++)
		pattern_fill(c->buf + (size_t)i * VALUE, VALUE, seed + i);
}

static unsigned int whole(struct client *c, uint64_t seed)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < NVALUES; i++)
		n += pattern_check(c->buf + (size_t)i * VALUE, VALUE, seed + i);
	return n;
}

/* Pages that are not poison any more. */
static unsigned int pages_written(const struct client *c)
{
	unsigned int n = 0;

	for (size_t at = 0; at < (size_t)NVALUES * VALUE; at += PAGE) {
		for (size_t i = 0; i < 64; i++) {
			if (c->buf[at + i] == POISON)
				continue;
			n++;
			break;
		}
	}
	return n;
}

/* A daemon with throttled I/O; only it, so that its successor is as fast as can be. */
static void throttled(void)
{
	if (!throttle_set(&slow, SLOW / rig_slowdown()) || !throttle_add(&slow, rig.pid))
		give_up("throttle");
}

/* Bytes that the daemon has asked the disk to read or write so far, done or not. */
static uint64_t asked_for(const char *what)
{
	char path[64], line[128];
	unsigned long long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)rig.pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, what, strlen(what)))
			n = strtoull(line + strlen(what), NULL, 10);
	}
	if (f)
		fclose(f);
	return n;
}

/* Until a good part of all values is on its way; the throttle makes that a second's work. */
static void wait_for_io(const char *what, uint64_t before)
{
	uint64_t start = rig_now(), now;

	do {
		usleep(10000);
		now = rig_now() - start;
	} while (asked_for(what) - before < (uint64_t)NVALUES * VALUE / 4 && now < 60 * SEC);
	tap_diag("%llu KiB on their way after %llu ms",
		 (unsigned long long)(asked_for(what) - before) >> 10,
		 (unsigned long long)(now / 1000000));
}

/*
 * Kill it and start the next at once; returns how long after the kill that one answered, ns.
 * A write that io_uring gave to a worker thread keeps the dead process itself until it is done.
 */
static uint64_t replace(const struct client *c, unsigned int *late_pages)
{
	uint64_t start = rig_now(), took;
	unsigned int before, after;

	rig_kill(&rig);
	before = pages_written(c);
	rig_start(&rig);
	took = rig_now() - start;
	after = pages_written(c);
	if (late_pages)
		*late_pages = after - before;
	return took;
}

static void reads_into_client_memory(void)
{
	struct client dead = { 0 }, next = { 0 };
	uint64_t took, before;
	unsigned int late;

	client_open(&next, 0);
	fill(&next, 100);
	submit_all(&next, GKV_STORE, "read");
	if (take_all(&next) != NVALUES)
		give_up("cannot store");

	client_open(&dead, GKV_CONNECT_NO_RECONNECT);
	poison(dead.buf, (size_t)NVALUES * VALUE);
	throttled();
	before = asked_for("read_bytes:");
	submit_all(&dead, GKV_RETRIEVE, "read");
	wait_for_io("read_bytes:", before);
	took = replace(&dead, &late);
	tap_ok(late > 0, "reads of the dead daemon landed after it was gone");
	tap_diag("%u pages landed late, the successor answered after %llu ms", late,
		 (unsigned long long)(took / 1000000));

	/* This daemon was told nothing of @dead: whatever comes now comes from the dead one. */
	poison(dead.buf, (size_t)NVALUES * VALUE);
	submit_all(&next, GKV_RETRIEVE, "read");
	tap_ok(take_all(&next) == NVALUES && whole(&next, 100) == NVALUES,
	       "the successor serves every value");
	usleep(2000000);
	tap_ok(pages_written(&dead) == 0,
	       "nothing lands in client memory once the successor answers");
	gkv_close(dead.g);
	gkv_close(next.g);
}

static void writes_into_extents(void)
{
	struct client dead = { 0 }, next = { 0 };
	unsigned int old = 0, new = 0, absent = 0;
	uint64_t took, before;

	client_open(&next, 0);
	/* Room for what follows. */
	submit_all(&next, GKV_DELETE, "read");
	take_all(&next);
	client_open(&dead, GKV_CONNECT_NO_RECONNECT);
	fill(&dead, 200);
	throttled();
	before = asked_for("write_bytes:");
	submit_all(&dead, GKV_STORE, "write");
	wait_for_io("write_bytes:", before);
	took = replace(&dead, NULL);
	tap_diag("the successor answered after %llu ms", (unsigned long long)(took / 1000000));
	tap_ok(took > SEC / 2, "the successor waits for writes of the dead daemon");

	/* More than half of the space: some of it is what the dead daemon was writing to. */
	fill(&next, 300);
	submit_all(&next, GKV_STORE, "new");
	tap_ok(take_all(&next) == NVALUES, "the successor stores into the space at once");
	usleep(2000000);
	poison(next.buf, (size_t)NVALUES * VALUE);
	submit_all(&next, GKV_RETRIEVE, "new");
	tap_ok(take_all(&next) == NVALUES && whole(&next, 300) == NVALUES,
	       "no write of the dead daemon lands in a value stored since");

	/* What was being stored is there whole, or not at all. */
	for (unsigned int i = 0; i < NVALUES; i++) {
		struct suite_key key = suite_key("write-%u", i);
		struct gkv_comp comp;
		struct gkv_cmd cmd;

		suite_cmd(&cmd, GKV_RETRIEVE, 1, &key);
		cmd.buf = next.buf;
		cmd.len = VALUE;
		comp = suite_run(next.qp, &cmd);
		if (code(comp.status) == code(GKV_SC_KEY_NOT_FOUND))
			absent++;
		else if (!comp.status && comp.result == VALUE &&
			 pattern_check(next.buf, VALUE, 200 + i))
			new++;
		else
			old++;
	}
	tap_ok(!old && new + absent == NVALUES,
	       "F83: values that were being stored are whole or absent");
	tap_diag("%u whole, %u absent", new, absent);
	gkv_close(dead.g);
	gkv_close(next.g);
}

int main(void)
{
	rig_init(&rig, conf);
	if (!throttle_make(&slow, rig.dir, 0)) {
		tap_skip(slow.text, "the fence holds on a throttled disk");
		rig_fini(&rig);
		return tap_done();
	}
	rig_start(&rig);
	reads_into_client_memory();
	writes_into_extents();
	rig_fini(&rig);
	throttle_free(&slow);
	return tap_done();
}
