/* SPDX-License-Identifier: MIT */
/*
 * Stores from GPU memory that the disk fetches by itself: when they do, and that the processor
 * then reads nothing but the tail. The daemon runs in this process, on a file, its accessors
 * built to tell of every access; the kernel module is played.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gkv.h>

#define KVB_TRACE_ACCESS
#include "core/reactor_priv.h"
#include "drv_daemon.h"
#include "rig.h"

#define MEM	(2u << 20)
#define TAIL	100u
#define VALUE	((256u << 10) + TAIL)

/* ---- What is seen ---- */

static struct {
	atomic_bool on;
	atomic_bool revoke;		/* the memory, when it is read the first time */
	const char *mem;		/* where the daemon has it */
	uint64_t loaded;		/* bytes of it */
	int fd;
} seen;

void kvb_trace(enum kvb_access what, const volatile void *at, size_t len)
{
	const char *p = (const char *)(uintptr_t)at;

	if (!atomic_load(&seen.on) || what != KVB_ACCESS_LOAD || p < seen.mem ||
	    p >= seen.mem + MEM)
		return;
	seen.loaded += len;
	if (atomic_exchange(&seen.revoke, false))
		fakedrv_revoke(seen.fd);
}

/* ---- The disk ---- */

static bool disk_fetches = true;

static int reach(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err)
{
	(void)st;
	(void)err;
	*to->fetch = disk_fetches;
	seen.fd = to->fd;
	return 0;
}

/*
 * The only queue pair: in its place since its creation was answered, though the reactor may put
 * it there again.
 */
__attribute__((no_sanitize("thread"))) static const struct kvb_qp *the_qp(void)
{
	assert_int_equal(kvb_reactors[0]->nqps, 1);
	return kvb_reactors[0]->qps[0];
}

/* ---- A client ---- */

struct client {
	struct gkv *g;
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	unsigned char *at;
	uint32_t nsid;
};

static void open_client(struct client *c, const char *ns, uint32_t flags)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = 8, .mode = GKV_MODE_DATA,
				 .flags = GKV_QP_POLLED | flags };
	struct gkv_ns_info info = { .size = sizeof(info) };
	int ret = gkv_connect(&c->g, drv_socket, 0, 0);

	if (!ret)
		ret = gkv_ns_open(c->g, ns, 0, &info);
	if (!ret)
		ret = gkv_mem_alloc_vram(c->g, 0, MEM, &c->mem);
	if (!ret)
		ret = gkv_qp_create(c->g, &o, &c->qp);
	if (ret)
		print_error("%s\n", gkv_error());
	assert_int_equal(ret, 0);
	c->at = gkv_mem_addr(c->mem);
	c->nsid = info.nsid;
	seen.mem = the_qp()->regions->tbl->spans[0].addr;
}

static void close_client(struct client *c)
{
	gkv_qp_destroy(c->qp);
	gkv_close(c->g);
}

static uint16_t run(const struct client *c, const struct gkv_cmd *cmd)
{
	struct gkv_comp done;

	assert_int_equal(gkv_submit(c->qp, cmd, 1), 1);
	assert_int_equal(gkv_wait(c->qp, &done, 1, 20000000000ull * rig_slowdown()), 1);
	return done.status;
}

static void fill(unsigned char *p, uint32_t n, unsigned int seed)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 7 + i / 256 * 11 + seed);
}

static uint16_t store(const struct client *c, unsigned int seed)
{
	struct gkv_cmd cmd = { .opcode = GKV_STORE, .nsid = c->nsid, .key_len = 1, .key = "k",
			       .buf = c->at, .len = VALUE };
	uint16_t status;

	fill(c->at, VALUE, seed);
	cmd.crc = gkv_crc32c(0, c->at, VALUE);
	seen.loaded = 0;
	atomic_store(&seen.on, true);
	status = run(c, &cmd);
	atomic_store(&seen.on, false);
	return status;
}

static void is_stored(unsigned int seed)
{
	unsigned char *want = malloc(VALUE);
	struct client c;
	struct gkv_cmd cmd = { .opcode = GKV_RETRIEVE, .nsid = 1, .key_len = 1, .key = "k",
			       .len = MEM };

	assert_non_null(want);
	fill(want, VALUE, seed);
	open_client(&c, "plain", GKV_QP_CSUM);
	memset(c.at, 0, MEM);
	cmd.buf = c.at;
	assert_int_equal(run(&c, &cmd), 0);
	assert_memory_equal(c.at, want, VALUE);
	assert_int_equal(c.at[VALUE], 0);
	close_client(&c);
	free(want);
}

static uint64_t direct_bytes(void)
{
	return kvb_counted(&the_qp()->count.store_direct_bytes);
}

static uint64_t tail_bytes(void)
{
	return kvb_counted(&the_qp()->count.store_tail_bytes);
}

static void test_ways(void **state)
{
	/* Whether a checksum travels with the values, whether the disk can, what is then direct. */
	static const struct { uint32_t flags; bool fetches, direct; } cases[] = {
		{ GKV_QP_CSUM, true, true },
		{ 0, true, false },
		{ GKV_QP_CSUM, false, false },
	};

	(void)state;
	drv_sigbus();
	for (unsigned int i = 0; i < 3; i++) {
		struct client c;

		disk_fetches = cases[i].fetches;
		open_client(&c, "plain", cases[i].flags);
		assert_int_equal(store(&c, 0x21 + i), 0);
		assert_int_equal(seen.loaded, cases[i].direct ? TAIL : VALUE);
		assert_int_equal(direct_bytes(), cases[i].direct ? VALUE - TAIL : 0);
		assert_int_equal(tail_bytes(), cases[i].direct ? TAIL : 0);
		close_client(&c);
		is_stored(0x21 + i);
	}
	disk_fetches = true;
}

/* What filters are to see must be in memory. */
static void test_filters(void **state)
{
	struct client c;

	(void)state;
	drv_sigbus();
	open_client(&c, "filtered", GKV_QP_CSUM);
	assert_int_equal(store(&c, 0x41), 0);
	assert_int_equal(seen.loaded, VALUE);
	assert_int_equal(direct_bytes(), 0);
	close_client(&c);
}

/* The memory goes while it is read: the value before stays. */
static void test_revoked(void **state)
{
	struct client c;

	(void)state;
	drv_sigbus();
	open_client(&c, "plain", GKV_QP_CSUM);
	assert_int_equal(store(&c, 0x51), 0);
	atomic_store(&seen.revoke, true);
	assert_int_equal(store(&c, 0x61) & ~GKV_DNR, GKV_SC_DATA_TRANSFER);
	assert_false(atomic_load(&seen.revoke));
	close_client(&c);
	is_stored(0x51);
}

static char dir[] = "/var/tmp/gkv-direct-XXXXXX";

static void remove_files(void)
{
	char path[64];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%d", dir, i);
		unlink(path);
	}
	rmdir(dir);
}

static int start(void **state)
{
	char conf[1024];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(conf, sizeof(conf),
		 "[daemon]\nreactors = 1\nmax_queue_depth = 64\n"
		 "[namespace plain]\nnsid = 1\nstack = local\nlocal.path = %s/0\nlocal.size = 64M\n"
		 "value_max = 2M\n"
		 "[namespace filtered]\nnsid = 2\nstack = fault, local\nlocal.path = %s/1\n"
		 "local.size = 64M\nvalue_max = 2M\n", dir, dir);
	drv_start(conf, reach);
	fakedrv_provider(0, 5, GKVDRV_CARVEOUT);
	return 0;
}

static int end(void **state)
{
	uint64_t took;

	(void)state;
	drv_stop(&took);
	drv_end();
	remove_files();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_ways),
					     cmocka_unit_test(test_filters),
					     cmocka_unit_test(test_revoked) };

	return cmocka_run_group_tests(tests, start, end);
}
