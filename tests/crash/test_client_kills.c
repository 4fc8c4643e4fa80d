/* SPDX-License-Identifier: MIT */
/* gkv-timeout: 120 */
/*
 * kill -9 of clients at random moments with commands in flight: the daemon stays up, keeps
 * nothing of them, and the keys they were writing are usable at once. Field reports F95,
 * F96, F98, F99, F107. GKV_LONG: 300 kills of each kind.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gkv/control.h>
#include <json-c/json.h>

#include "load.h"
#include "rig.h"
#include "suite.h"

#define SEC 1000000000ull
#define BIG (8u << 20)

static const char conf[] =
	"[daemon]\n"
	"reactors = 3\n"
	"spin_ns = 20us\n"
	"buffer_memory = 256M\n"
	"\n[namespace main]\n"
	"nsid = 1\n"
	"stack = %s\n"
	"deadline = 30s\n"
	"%s";

static struct rig rig;

/* ---- The client that dies ---- */

/* A load of everything, until killed. */
static void __attribute__((noreturn)) client_load(const char *socket)
{
	static const struct load_opts opts = { .threads = 2, .qps = 3, .depth = 32, .busy = 12,
					       .keys = 30, .value_min = 8, .value_max = 200000 };

	load_start(socket, &opts);
	for (;;)
		pause();
}

/* Stores of one large value over and over. */
static void __attribute__((noreturn)) client_store(const char *socket)
{
	struct suite_key key = suite_key("big");
	struct gkv_mem *mem;
	struct gkv_cmd cmd;
	struct gkv_qp *qp;
	struct gkv *g;

	if (gkv_connect(&g, socket, 2, 0) || gkv_ns_open(g, "main", 0, NULL) ||
	    gkv_mem_alloc(g, BIG, &mem) || gkv_qp_create(g, NULL, &qp))
		_exit(1);
	suite_cmd(&cmd, GKV_STORE, 1, &key);
	cmd.buf = gkv_mem_addr(mem);
	cmd.len = BIG;
	for (uint64_t i = 0;; i++) {
		struct gkv_comp c;

		load_value_fill(cmd.buf, BIG, ((uint64_t)getpid() << 32) + i + 1);
		if (gkv_exec(qp, &cmd, &c) || c.status)
			_exit(1);
	}
}

/*
 * Run this program as @client, and kill it @us after it has begun. False when it ended by
 * itself.
 */
static bool kill_one(const char *client, unsigned int us)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return false;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/proc/self/exe", "client", client, rig.socket, (char *)NULL);
		_exit(1);
	}
	usleep(us * rig_slowdown());
	kill(pid, SIGKILL);
	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGKILL;
}

/* ---- What the daemon holds ---- */

struct holdings {
	uint64_t sessions, qps, regions, fds, maps, rss_kib;
};

static unsigned int count_dir(const char *path)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static unsigned int count_lines(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned int n = 0;
	int c;

	while (f && (c = fgetc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static uint64_t rss_of(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kib;
}

static bool look(struct gkv *g, struct holdings *h)
{
	struct json_object *doc, *v;
	char path[64], *text;

	memset(h, 0, sizeof(*h));
	if (gkv_query(g, GKV_QUERY_SESSIONS, &text))
		return false;
	doc = json_tokener_parse(text);
	free(text);
	h->sessions = json_object_array_length(doc);
	for (size_t i = 0; i < h->sessions; i++) {
		struct json_object *s = json_object_array_get_idx(doc, i);

		if (json_object_object_get_ex(s, "qps", &v))
			h->qps += json_object_array_length(v);
		if (json_object_object_get_ex(s, "regions", &v))
			h->regions += json_object_array_length(v);
	}
	json_object_put(doc);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)rig.pid);
	h->fds = count_dir(path);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)rig.pid);
	h->maps = count_lines(path);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)rig.pid);
	h->rss_kib = rss_of(path);
	return true;
}

/* Wait until only our own session is left. */
static bool settle(struct gkv *g, struct holdings *h)
{
	uint64_t end = rig_now() + 10 * SEC * rig_slowdown();

	do {
		if (!look(g, h))
			return false;
		if (h->sessions == 1)
			return true;
		usleep(5000);
	} while (rig_now() < end);
	return false;
}

/* ---- The tests ---- */

static void run(const char *store)
{
	unsigned int kills = getenv("GKV_LONG") ? 300 : 50, ok = 0, usable = 0, whole = 0;
	const uint64_t bound = SEC * 5 * rig_slowdown();
	struct suite_key key = suite_key("big");
	uint64_t seed = rig_now() | 1, slowest = 0;
	struct gkv_ns_info info = { .size = sizeof(info) };
	struct holdings base, end;
	struct gkv_mem *mem;
	struct gkv_cmd cmd;
	struct gkv_comp c;
	struct gkv_qp *qp;
	struct gkv *g;
	char text[512];

	snprintf(text, sizeof(text), conf, store,
		 strcmp(store, "local") ? "" : "local.path = {dir}/store\nlocal.size = 512M\n");
	rig_init(&rig, text);
	rig_start(&rig);
	if (gkv_connect(&g, rig.socket, 2, 0) || gkv_ns_open(g, "main", 0, &info) ||
	    gkv_mem_alloc(g, BIG, &mem) || gkv_qp_create(g, NULL, &qp)) {
		tap_ok(false, "%s: session: %s", store, gkv_error());
		return;
	}
	/* What pools keep of their first use is no leak. */
	for (unsigned int i = 0; i < 10; i++) {
		kill_one("load", 80000);
		kill_one("store", 60000);
	}
	tap_ok(settle(g, &base), "%s: sessions of killed clients end", store);

	for (unsigned int i = 0; i < kills && rig_alive(&rig); i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		/* From before hello to deep in the load. */
		ok += kill_one("load", (unsigned int)(seed % (i % 2 ? 80000 : 5000)));
	}
	tap_ok(ok == kills && rig_alive(&rig),
	       "%s: F95, F107: the daemon outlives %u clients killed with commands in flight", store,
	       ok);

	for (unsigned int i = 0; i < kills && rig_alive(&rig); i++) {
		uint64_t start;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		kill_one("store", 10000 + (unsigned int)(seed % 40000));
		start = rig_now();
		suite_cmd(&cmd, GKV_RETRIEVE, 1, &key);
		cmd.buf = gkv_mem_addr(mem);
		cmd.len = BIG;
		c = suite_run(qp, &cmd);
		whole += code(c.status) == code(GKV_SC_KEY_NOT_FOUND) ||
			 (!c.status && c.result == BIG &&
			  load_value_id(cmd.buf, BIG, BIG, BIG) != 0);
		suite_cmd(&cmd, GKV_STORE, 1, &key);
		cmd.buf = gkv_mem_addr(mem);
		cmd.len = BIG;
		load_value_fill(cmd.buf, BIG, i + 1);
		c = suite_run(qp, &cmd);
		usable += !c.status && rig_now() - start < bound;
		if (rig_now() - start > slowest)
			slowest = rig_now() - start;
	}
	tap_ok(usable == kills, "%s: F96: the key of a Store cut short is usable at once, %u times",
	       store, usable);
	tap_ok(whole == kills, "%s: F71: and holds a whole value or none", store);
	tap_diag("slowest Retrieve and Store after a kill: %llu ms",
		 (unsigned long long)(slowest / 1000000));

	if (tap_ok(settle(g, &end), "%s: F99: nothing of the dead is left in the daemon's lists",
		   store)) {
		tap_ok(end.qps == base.qps && end.regions == base.regions &&
			       end.fds <= base.fds,
		       "%s: F95: queue pairs, regions and descriptors are as before", store);
		/* Heaps and pools breathe a little; a sanitizer's shadow does nothing else. */
		if (rig_slowdown() == 1) {
			tap_ok(end.maps <= base.maps + 64, "%s: F95: mappings are as before",
			       store);
			tap_ok(end.rss_kib < base.rss_kib + 65536,
			       "%s: F98: memory stays flat over %u kills", store, 2 * kills);
		}
		tap_diag("before: %llu descriptors, %llu mappings, %llu KiB; after: %llu, %llu, %llu",
			 (unsigned long long)base.fds, (unsigned long long)base.maps,
			 (unsigned long long)base.rss_kib, (unsigned long long)end.fds,
			 (unsigned long long)end.maps, (unsigned long long)end.rss_kib);
	}
	gkv_close(g);
	rig_fini(&rig);
}

int main(int argc, char **argv)
{
	const char *store;

	if (argc == 3 && !strcmp(argv[1], "load"))
		client_load(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "store"))
		client_store(argv[2]);
	while ((store = suite_next_store()))
		run(store);
	return tap_done();
}
