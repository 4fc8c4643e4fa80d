/* SPDX-License-Identifier: MIT */
/*
 * The victim of hostile tests, and what they need beyond rawclient.h.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fdmsg.h"
#include "gkv.h"
#include "hostile.h"
#include "suite.h"

#define SECOND		1000000000ull
/* A command of the victim, or one of its requests, takes no longer on a loaded machine... */
#define LATENCY_MAX	(2 * SECOND)
/*
 * ... but for the time a disk takes that others may be using too. Buffer memory is one pool
 * for all sessions, so a Store may have to wait for another's disk.
 */
#define DISK_LATENCY_MAX (25 * SECOND)
#define VICTIM_KEYS	24u
#define VICTIM_BUF	(512u << 10)
/* Pools, caches and allocators keep some memory; a leak of an attack's size stands out. */
#define RSS_SLACK_KB	(192u << 10)

/*
 * What the victim's waits depend on: the daemon alone; the disk, or buffers that others'
 * commands hold until the disk has answered; the control thread.
 */
enum { VICTIM_CPU, VICTIM_DISK, VICTIM_REQUEST, VICTIM_KINDS };

struct victim_stats {
	_Atomic bool stop;
	_Atomic uint64_t commands, requests, errors;
	/* Latencies since the last look, and of all. */
	_Atomic uint64_t max_ns[VICTIM_KINDS];
	uint64_t longest_ns[VICTIM_KINDS];
	_Atomic uint64_t seen;				/* commands at the last look */
	char error[256];				/* the first */
};

static const char conf[] =
	"[daemon]\n"
	"reactors = 2\n"
	"state_dir = {dir}\n"
	"socket_mode = 0666\n"
	"max_queue_depth = 1024\n"
	"max_qid = 64\n"
	"max_sessions = 1100\n"
	"max_user_sessions = 1100\n"
	"max_regions = 64\n"
	"max_region_bytes = 256M\n"
	"buffer_memory = 32M\n"
	"[namespace mem]\nnsid = 1\nstack = mem\nmem.capacity = 256M\nvalue_max = 4M\n"
	"deadline = 30s\naccess = *:rw\n"
	"[namespace local]\nnsid = 2\nstack = local\nlocal.path = {dir}/local\nlocal.size = 512M\n"
	"value_max = 4M\ndeadline = 30s\naccess = *:rw\n"
	"[namespace slow]\nnsid = 3\nstack = delay, mem\ndelay.retrieve = 300ms\n"
	"delay.store = 300ms\ndelay.exist = 300ms\nvalue_max = 4M\ndeadline = 30s\n"
	"access = *:rw\n"
	"[namespace faulty]\nnsid = 4\nstack = fault, local\nlocal.path = {dir}/faulty\n"
	"local.size = 256M\nvalue_max = 1M\ndeadline = 1s\naccess = *:rw\n"
	"fault.rules = *:eio:p=0.05 *:lost:p=0.01 *:lost-after:p=0.01 *:slow=5ms:p=0.1\n"
	"[namespace victim-mem]\nnsid = 5\nstack = mem\nvalue_max = 4M\ndeadline = 30s\n"
	"[namespace victim-local]\nnsid = 6\nstack = local\nlocal.path = {dir}/victim\n"
	"local.size = 256M\nvalue_max = 4M\ndeadline = 30s\n"
	"[namespace private]\nnsid = 7\nstack = null\nvalue_max = 4M\naccess = uid:0:rw\n"
	"[namespace frozen]\nnsid = 8\nstack = mem\nvalue_max = 4M\naccess = uid:0:rw *:ro\n";

void hostile_sleep_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

uint64_t hostile_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* ---- The victim ---- */

static void __attribute__((format(printf, 2, 3))) victim_error(struct victim_stats *st,
							       const char *fmt, ...)
{
	va_list ap;

	if (st->errors++)
		return;
	va_start(ap, fmt);
	vsnprintf(st->error, sizeof(st->error), fmt, ap);
	va_end(ap);
}

static void at_most(_Atomic uint64_t *max, uint64_t ns)
{
	if (ns > *max)
		*max = ns;
}

struct victim {
	struct victim_stats *st;
	struct gkv *g;
	struct gkv_qp *qp;
	struct gkv_mem *mem;
	uint8_t *buf;
	uint32_t nsids[2];
	uint64_t random;
	uint32_t len[2][VICTIM_KEYS];	/* 0: absent */
	uint64_t seed[2][VICTIM_KEYS];
};

static struct gkv_comp victim_cmd(struct victim *v, int ns, unsigned int k, uint8_t opcode,
				  uint32_t len)
{
	struct suite_key key = suite_key("victim%u", k);
	struct gkv_comp comp = { .status = SUITE_NO_STATUS };
	struct gkv_cmd cmd;
	uint64_t t0 = rig_now();

	suite_cmd(&cmd, opcode, v->nsids[ns], &key);
	cmd.buf = v->buf;
	cmd.len = len;
	if (gkv_exec(v->qp, &cmd, &comp))
		victim_error(v->st, "opcode %#x: %s", opcode, gkv_error());
	at_most(&v->st->max_ns[ns || opcode == GKV_STORE ? VICTIM_DISK : VICTIM_CPU],
		rig_now() - t0);
	v->st->commands++;
	return comp;
}

static void victim_store(struct victim *v, int ns, unsigned int k)
{
	uint64_t r = hostile_random(&v->random);
	uint32_t len = 1 + (uint32_t)(r % (r & 1u << 20 ? VICTIM_BUF : 9000));
	struct gkv_comp c;

	pattern_fill(v->buf, len, r);
	c = victim_cmd(v, ns, k, GKV_STORE, len);
	if (c.status)
		victim_error(v->st, "store of %u bytes: status %#x, flags %#x", len, c.status,
			     c.flags);
	v->len[ns][k] = len;
	v->seed[ns][k] = r;
}

static void victim_retrieve(struct victim *v, int ns, unsigned int k)
{
	struct gkv_comp c;

	poison(v->buf, v->len[ns][k] + 64);
	c = victim_cmd(v, ns, k, GKV_RETRIEVE, VICTIM_BUF);
	if (!v->len[ns][k]) {
		if (code(c.status) != GKV_SC_KEY_NOT_FOUND)
			victim_error(v->st, "retrieve of no key: status %#x", c.status);
		return;
	}
	if (c.status || c.result != v->len[ns][k])
		victim_error(v->st, "retrieve: status %#x, %u bytes, not %u", c.status, c.result,
			     v->len[ns][k]);
	else if (!pattern_check(v->buf, c.result, v->seed[ns][k]) ||
		 !poisoned(v->buf + c.result, 64))
		victim_error(v->st, "retrieve of %u bytes: wrong data", c.result);
}

/* What a client asks for now and then: the control thread must answer in time, too. */
static void victim_requests(struct victim *v)
{
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	struct gkv_mem *mem = NULL;
	uint64_t t0 = rig_now();

	if (gkv_mem_alloc(v->g, 65536, &mem))
		victim_error(v->st, "memory: %s", gkv_error());
	else if (gkv_mem_free(mem))
		victim_error(v->st, "freeing memory: %s", gkv_error());
	if (gkv_ns_open(v->g, "victim-mem", 0, &ns))
		victim_error(v->st, "namespace: %s", gkv_error());
	at_most(&v->st->max_ns[VICTIM_REQUEST], rig_now() - t0);
	v->st->requests++;
}

static int victim_main(struct victim_stats *st, const char *socket_path)
{
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	struct victim v = { .st = st, .random = 1 };
	const struct timespec pause = { .tv_nsec = 300000 };

	if (gkv_connect(&v.g, socket_path, 4, GKV_CONNECT_NO_RECONNECT) ||
	    gkv_mem_alloc(v.g, VICTIM_BUF + 4096, &v.mem) || gkv_qp_create(v.g, NULL, &v.qp)) {
		victim_error(st, "set-up: %s", gkv_error());
		return 1;
	}
	v.buf = gkv_mem_addr(v.mem);
	for (int i = 0; i < 2; i++) {
		if (gkv_ns_open(v.g, i ? "victim-local" : "victim-mem", 0, &ns)) {
			victim_error(st, "namespace: %s", gkv_error());
			return 1;
		}
		v.nsids[i] = ns.nsid;
	}
	for (unsigned int i = 0; !st->stop; i++) {
		unsigned int k = (unsigned int)(hostile_random(&v.random) % VICTIM_KEYS);
		int where = (int)(i % 2);

		switch (hostile_random(&v.random) % 8) {
		case 0:
		case 1:
			victim_store(&v, where, k);
			break;
		case 2:
			victim_cmd(&v, where, k, GKV_DELETE, 0);
			v.len[where][k] = 0;
			break;
		default:
			victim_retrieve(&v, where, k);
		}
		if (i % 64 == 0)
			victim_requests(&v);
		nanosleep(&pause, NULL);
	}
	/* And at last everything it has. */
	for (unsigned int k = 0; k < VICTIM_KEYS; k++) {
		victim_retrieve(&v, 0, k);
		victim_retrieve(&v, 1, k);
	}
	gkv_close(v.g);
	return st->errors != 0;
}

/* ---- Vital signs ---- */

static unsigned int count_fds(pid_t pid)
{
	char path[64];
	unsigned int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static unsigned int count_memfds(pid_t pid)
{
	char path[64], line[512];
	unsigned int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "/memfd:") != NULL;
	if (f)
		fclose(f);
	return n;
}

static uint64_t read_rss(pid_t pid)
{
	char path[64], line[256];
	uint64_t kb = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "VmRSS:", 6))
			kb = strtoull(line + 6, NULL, 10);
	}
	if (f)
		fclose(f);
	return kb;
}

static unsigned int count_sessions(const char *socket_path)
{
	static const char field[] = "\"sessions\":";
	unsigned int n = 0;
	struct gkv *g;
	char *json, *at;

	if (gkv_connect(&g, socket_path, 0, GKV_CONNECT_CONTROL | GKV_CONNECT_NO_RECONNECT))
		return 0;
	if (!gkv_query(g, GKV_QUERY_STATUS, &json)) {
		at = strstr(json, field);
		n = at ? (unsigned int)strtoul(at + strlen(field), NULL, 10) : 0;
		free(json);
	}
	gkv_close(g);
	return n;
}

void vitals_read(struct rig *rig, struct vitals *v)
{
	v->sessions = count_sessions(rig->socket);
	/* Its session is over once the daemon has seen the connection close. */
	hostile_sleep_ms(20);
	v->fds = count_fds(rig->pid);
	v->memfds = count_memfds(rig->pid);
	v->rss_kb = read_rss(rig->pid);
}

/* ---- Beginning and end ---- */

void hostile_start(struct hostile *h)
{
	pid_t parent = getpid();

	memset(h, 0, sizeof(*h));
	h->stats = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (h->stats == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	rig_init(&h->rig, conf);
	/* Attackers of another user must reach the socket. */
	if (chmod(h->rig.dir, 0755)) {
		perror(h->rig.dir);
		exit(1);
	}
	rig_start(&h->rig);
	fflush(NULL);
	h->pid = fork();
	if (h->pid < 0) {
		perror("fork");
		exit(1);
	}
	if (h->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(126);
		_exit(victim_main(h->stats, h->rig.socket));
	}
	while (h->stats->requests < 2 && !h->stats->errors)
		hostile_sleep_ms(10);
	vitals_read(&h->rig, &h->before);
}

static void note_latency(struct victim_stats *st)
{
	unsigned long long us[VICTIM_KINDS];

	for (int i = 0; i < VICTIM_KINDS; i++) {
		uint64_t ns = atomic_exchange(&st->max_ns[i], 0);

		us[i] = ns / 1000;
		if (ns > st->longest_ns[i])
			st->longest_ns[i] = ns;
	}
	tap_diag("the victim waited %llu us for the daemon, %llu us for the disk, %llu us for requests",
		 us[VICTIM_CPU], us[VICTIM_DISK], us[VICTIM_REQUEST]);
}

bool hostile_unharmed(struct hostile *h)
{
	uint64_t end = rig_now() + DISK_LATENCY_MAX * rig_slowdown();
	uint64_t seen = h->stats->commands;

	while (h->stats->commands == seen && rig_now() < end)
		hostile_sleep_ms(5);
	if (!rig_alive(&h->rig)) {
		tap_diag("the daemon is gone");
		rig_show_log(&h->rig);
		return false;
	}
	note_latency(h->stats);
	if (h->stats->errors)
		tap_diag("the victim: %s", h->stats->error);
	if (h->stats->commands == seen)
		tap_diag("the victim stands still");
	return !h->stats->errors && h->stats->commands != seen;
}

static bool same(const struct vitals *a, const struct vitals *b)
{
	return a->fds == b->fds && a->memfds == b->memfds && a->sessions == b->sessions;
}

void hostile_finish(struct hostile *h)
{
	uint64_t end = rig_now() + 20 * rig_slowdown() * SECOND;
	const struct vitals *b = &h->before;
	struct vitals now;
	int status = -1;
	bool ok;

	do {
		hostile_sleep_ms(50);
		vitals_read(&h->rig, &now);
	} while (!same(&now, b) && rig_now() < end);
	ok = tap_ok(same(&now, b),
		    "F69, F95, F98: descriptors, mappings and sessions are back where they were");
	if (!ok)
		tap_diag("descriptors %u -> %u, memfd mappings %u -> %u, sessions %u -> %u", b->fds,
			 now.fds, b->memfds, now.memfds, b->sessions, now.sessions);
	/* Sanitizers hold freed memory back on purpose. */
	if (rig_slowdown() > 1)
		tap_skip("a sanitizer delays frees", "F98: the daemon's memory is back");
	else
		tap_ok(now.rss_kb < b->rss_kb + RSS_SLACK_KB,
		       "F98: the daemon's memory is back: %llu KiB, was %llu",
		       (unsigned long long)now.rss_kb, (unsigned long long)b->rss_kb);

	h->stats->stop = true;
	waitpid(h->pid, &status, 0);
	tap_ok(WIFEXITED(status) && !WEXITSTATUS(status) && !h->stats->errors,
	       "the victim saw no error and no wrong byte in %llu commands",
	       (unsigned long long)h->stats->commands);
	if (h->stats->errors)
		tap_diag("%llu errors: %s", (unsigned long long)h->stats->errors, h->stats->error);
	note_latency(h->stats);
	tap_ok(h->stats->longest_ns[VICTIM_CPU] < LATENCY_MAX * rig_slowdown() &&
	       h->stats->longest_ns[VICTIM_REQUEST] < LATENCY_MAX * rig_slowdown() &&
	       h->stats->longest_ns[VICTIM_DISK] < DISK_LATENCY_MAX * rig_slowdown(),
	       "F90: the victim waited at most %llu us for the daemon, %llu us for the disk or buffers, %llu us for requests",
	       (unsigned long long)h->stats->longest_ns[VICTIM_CPU] / 1000,
	       (unsigned long long)h->stats->longest_ns[VICTIM_DISK] / 1000,
	       (unsigned long long)h->stats->longest_ns[VICTIM_REQUEST] / 1000);
	rig_stop(&h->rig, 30);
	tap_ok(true, "F23: the daemon stops cleanly");
	rig_fini(&h->rig);
	munmap(h->stats, 4096);
}

/* ---- Raw messages ---- */

int hostile_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

int hostile_send(int sock, const void *msg, size_t len, const int *fds, unsigned int nfds)
{
	return fdmsg_send(sock, msg, len, fds, nfds, MSG_DONTWAIT);
}

int hostile_recv(int sock, void *reply, size_t len, unsigned int ms, int *fds, unsigned int *nfds)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, (int)(ms * rig_slowdown())) <= 0) {
		if (nfds)
			*nfds = 0;
		return -ETIMEDOUT;
	}
	n = fdmsg_recv(sock, reply, len, fds, nfds, NULL);
	return n > 0 ? (int)n : 0;
}

void hostile_head(void *msg, uint16_t type, size_t size)
{
	struct gkv_msg_hdr *h = msg;

	h->magic = htole32(GKV_CTL_MAGIC);
	h->version = htole16(GKV_CTL_VERSION);
	h->type = htole16(type);
	h->size = htole32((uint32_t)size);
}

void hostile_hello(struct gkv_msg_hello *m, int db_fd, size_t db_len)
{
	memset(m, 0, sizeof(*m));
	hostile_head(m, GKV_MSG_HELLO, sizeof(*m));
	m->version_min = m->version_max = htole16(GKV_CTL_VERSION);
	if (db_fd >= 0)
		m->db_len = htole64(db_len);
	snprintf(m->name, sizeof(m->name), "hostile");
	if (getrandom(m->session, sizeof(m->session), 0) != sizeof(m->session))
		abort();
}
