/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 150 */
/*
 * The daemon goes and comes back; clients see delay and nothing else, whatever their
 * threads are doing meanwhile. Field reports F75, F99, F100.
 */
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"
#include "suite.h"

#define SEC 1000000000ull
#define MAX_CLIENTS 3
#define NQPS 3
#define LEN 10000u

static const char conf[] =
	"[daemon]\n"
	"socket = %s\n"
	"reactors = %u\n"
	"spin_ns = 20us\n"
	"state_dir = %s\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = %s\n"
	"deadline = 30s\n"
	"%s%s"
	"\n[namespace slow]\n"
	"nsid = 2\n"
	"stack = delay,mem\n"
	"deadline = 30s\n"
	"delay.exist = 700ms\n";

static struct rig rig;
static const char *store;

struct client {
	struct gkv *g;
	struct gkv_qp *qp[NQPS];
	uint8_t *buf;
};

static void __attribute__((noreturn)) give_up(const char *what)
{
	tap_diag("%s: %s", what, gkv_error());
	rig_show_log(&rig);
	exit(1);
}

static void write_conf(unsigned int reactors)
{
	bool local = !strcmp(store, "local");
	FILE *f = fopen(rig.config, "we");
	char path[128] = "";

	if (!f)
		give_up(rig.config);
	if (local)
		snprintf(path, sizeof(path), "local.path = %s/store\n", rig.dir);
	fprintf(f, conf, rig.socket, reactors, rig.dir, store, path,
		local ? "local.size = 64M\n" : "");
	if (fclose(f))
		give_up(rig.config);
}

static void begin(unsigned int reactors)
{
	rig_init(&rig, "");
	write_conf(reactors);
	rig_start(&rig);
}

static void client_open(struct client *c, uint32_t flags)
{
	struct gkv_qp_opts qo = { .size = sizeof(qo), .depth = 32, .flags = flags };
	struct gkv_mem *mem;

	if (gkv_connect(&c->g, rig.socket, NQPS, 0) || gkv_ns_open(c->g, "main", 0, NULL) ||
	    gkv_ns_open(c->g, "slow", 0, NULL) || gkv_mem_alloc(c->g, 1 << 20, &mem))
		give_up("session");
	for (unsigned int i = 0; i < NQPS; i++) {
		if (gkv_qp_create(c->g, &qo, &c->qp[i]))
			give_up("queue pair");
	}
	c->buf = gkv_mem_addr(mem);
}

static struct gkv_cmd command(struct client *c, uint8_t opcode, const struct suite_key *key)
{
	struct gkv_cmd cmd;

	suite_cmd(&cmd, opcode, 1, key);
	cmd.buf = c->buf;
	cmd.len = LEN;
	return cmd;
}

static uint16_t run(struct client *c, unsigned int qp, uint8_t opcode, const struct suite_key *key)
{
	struct gkv_cmd cmd = command(c, opcode, key);

	return suite_run(c->qp[qp], &cmd).status;
}

static bool reconnected(struct client *c, uint64_t times)
{
	uint64_t end = rig_now() + 20 * SEC * rig_slowdown();

	while (gkv_reconnects(c->g) < times || !gkv_connected(c->g)) {
		if (rig_now() > end)
			return false;
		usleep(1000);
	}
	return true;
}

static unsigned int own_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* ---- Again and again ---- */

static void many_restarts(void)
{
	unsigned int restarts = 100, served = 0, kept = 0, fds = 0, n;
	struct suite_key key = suite_key("kept");
	bool persists = !strcmp(store, "local");
	struct client c[MAX_CLIENTS] = { { 0 } };
	uint64_t start = rig_now();

	begin(2);
	for (unsigned int i = 0; i < MAX_CLIENTS; i++)
		client_open(&c[i], i == 2 ? GKV_QP_POLLED : 0);
	pattern_fill(c[0].buf, LEN, 5);
	if (run(&c[0], 0, GKV_STORE, &key))
		give_up("store");
	for (n = 1; n <= restarts; n++) {
		bool ok = true;

		/* Both ways of going. */
		if (n % 3)
			rig_kill(&rig);
		else
			rig_stop(&rig, 20);
		rig_start(&rig);
		for (unsigned int i = 0; i < MAX_CLIENTS; i++) {
			uint16_t st;

			ok = ok && reconnected(&c[i], n);
			memset(c[i].buf, 0, LEN);
			st = run(&c[i], n % NQPS, GKV_RETRIEVE, &key);
			if (persists)
				kept += !st && pattern_check(c[i].buf, LEN, 5);
			else
				kept += code(st) == code(GKV_SC_KEY_NOT_FOUND);
		}
		served += ok;
		if (n == 3)
			fds = own_fds();
	}
	tap_ok(served == restarts, "%s: F99: %u restarts, every session is handed over each time",
	       store, served);
	tap_ok(kept == restarts * MAX_CLIENTS, "%s: F75: what was stored is %s", store,
	       persists ? "there after each" : "gone after each, and that is said");
	tap_ok(own_fds() == fds, "%s: F100: clients' descriptors stay as they were", store);
	tap_diag("%llu ms each", (unsigned long long)((rig_now() - start) / 1000000 / restarts));
	for (unsigned int i = 0; i < MAX_CLIENTS; i++)
		gkv_close(c[i].g);
	rig_fini(&rig);
}

/* ---- While it is away ---- */

static void comes_back_late(void)
{
	struct suite_key key = suite_key("late");
	struct client c = { 0 };
	struct gkv_comp comp;
	struct gkv_cmd cmd;
	uint64_t start;

	begin(2);
	client_open(&c, 0);
	rig_kill(&rig);
	pattern_fill(c.buf, LEN, 6);
	cmd = command(&c, GKV_STORE, &key);
	tap_ok(gkv_submit(c.qp[0], &cmd, 1) == 1, "%s: F89: submission does not wait for a daemon",
	       store);
	usleep(2000000);
	tap_ok(!gkv_connected(c.g), "%s: the client knows that the daemon is away", store);
	start = rig_now();
	rig_start(&rig);
	tap_ok(gkv_wait(c.qp[0], &comp, 1, 20 * SEC * rig_slowdown()) == 1 && !comp.status &&
		       !comp.flags,
	       "%s: a command submitted while it was away succeeds 2 s later", store);
	tap_diag("%llu ms after the start", (unsigned long long)((rig_now() - start) / 1000000));
	memset(c.buf, 0, LEN);
	tap_ok(!run(&c, 1, GKV_RETRIEVE, &key) && pattern_check(c.buf, LEN, 6),
	       "%s: and has stored its value", store);
	gkv_close(c.g);
	rig_fini(&rig);
}

static void other_reactors(void)
{
	static const unsigned int counts[] = { 4, 1, 3, 2 };
	unsigned int n = sizeof(counts) / sizeof(counts[0]), ok = 0;
	bool persists = !strcmp(store, "local");
	struct client c = { 0 };

	begin(1);
	client_open(&c, 0);
	for (unsigned int i = 0; i < n; i++) {
		unsigned int good = 0;

		for (unsigned int k = 0; k < 40; k++) {
			struct suite_key key = suite_key("key-%u-%u", i, k);

			pattern_fill(c.buf, LEN, i * 100 + k);
			good += !run(&c, k % NQPS, GKV_STORE, &key);
		}
		rig_kill(&rig);
		write_conf(counts[i]);
		rig_start(&rig);
		for (unsigned int k = 0; k < 40 && persists; k++) {
			struct suite_key key = suite_key("key-%u-%u", i, k);

			memset(c.buf, 0, LEN);
			good += !run(&c, k % NQPS, GKV_RETRIEVE, &key) &&
				pattern_check(c.buf, LEN, i * 100 + k);
		}
		ok += good == (persists ? 80 : 40) && reconnected(&c, i + 1);
	}
	tap_ok(ok == n, "%s: the next daemon may have more reactors or fewer", store);
	gkv_close(c.g);
	rig_fini(&rig);
}

/* ---- Threads that are blocked ---- */

struct waiter {
	struct client *c;
	struct gkv_comp comp;
	int n;
};

static void *wait_thread(void *arg)
{
	struct waiter *w = arg;

	w->n = gkv_wait(w->c->qp[0], &w->comp, 1, 60 * SEC);
	return NULL;
}

static void blocked_in_wait(void)
{
	struct suite_key key = suite_key("slow");
	struct client c = { 0 };
	struct waiter w = { .c = &c };
	struct gkv_qp_stats stats = { .size = sizeof(stats) };
	struct gkv_cmd cmd;
	pthread_t t;

	begin(2);
	client_open(&c, 0);
	suite_cmd(&cmd, GKV_EXIST, 2, &key);
	if (gkv_submit(c.qp[0], &cmd, 1) != 1 || pthread_create(&t, NULL, wait_thread, &w))
		give_up("submit");
	/* Asleep by now: the command takes 700 ms. */
	usleep(200000);
	rig_kill(&rig);
	usleep(200000);
	rig_start(&rig);
	pthread_join(t, NULL);
	gkv_qp_stats(c.qp[0], &stats);
	tap_ok(w.n == 1 && code(w.comp.status) == code(GKV_SC_KEY_NOT_FOUND) && !w.comp.flags &&
		       stats.sleeps > 0,
	       "%s: a thread asleep in gkv_wait() gets its completion from the next daemon", store);
	gkv_close(c.g);
	rig_fini(&rig);
}

struct blocked {
	struct client c;
	sem_t ready, go;
	bool stored, found;
};

/* The application's only thread that touches the library. */
static void *blocked_thread(void *arg)
{
	struct suite_key key = suite_key("blocked");
	struct blocked *b = arg;
	struct gkv_comp comp;
	struct gkv_cmd cmd;

	client_open(&b->c, GKV_QP_POLLED);
	sem_post(&b->ready);
	sem_wait(&b->go);
	/* The daemon is gone now. As GPU code would: ring, and look at memory. */
	pattern_fill(b->c.buf, LEN, 7);
	cmd = command(&b->c, GKV_STORE, &key);
	b->stored = gkv_submit(b->c.qp[0], &cmd, 1) == 1;
	sem_post(&b->ready);
	sem_wait(&b->go);
	b->found = gkv_poll(b->c.qp[0], &comp, 1) == 1 && !comp.status;
	return NULL;
}

static void all_threads_blocked(void)
{
	struct blocked b = { 0 };
	uint64_t end;
	pthread_t t;

	sem_init(&b.ready, 0, 0);
	sem_init(&b.go, 0, 0);
	begin(2);
	if (pthread_create(&t, NULL, blocked_thread, &b))
		give_up("thread");
	sem_wait(&b.ready);
	rig_kill(&rig);
	sem_post(&b.go);
	sem_wait(&b.ready);
	rig_start(&rig);
	end = rig_now() + 20 * SEC * rig_slowdown();
	while (!gkv_reconnects(b.c.g) && rig_now() < end)
		usleep(1000);
	/* Time for the command; nobody calls the library meanwhile. */
	usleep(300000 * rig_slowdown());
	sem_post(&b.go);
	pthread_join(t, NULL);
	tap_ok(b.stored && b.found,
	       "%s: with every thread blocked, the session is handed over and its commands run",
	       store);
	gkv_close(b.c.g);
	rig_fini(&rig);
	sem_destroy(&b.ready);
	sem_destroy(&b.go);
}

int main(void)
{
	while ((store = suite_next_store())) {
		many_restarts();
		comes_back_late();
		other_reactors();
		blocked_in_wait();
		all_threads_blocked();
	}
	return tap_done();
}
