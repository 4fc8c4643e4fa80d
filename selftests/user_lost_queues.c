// SPDX-License-Identifier: MIT
/*
 * Memory that parts of a queue pair lie in goes while the queue is busy: its exporter takes it
 * back, or its provider is unbound. The client is told and goes on with a queue elsewhere; other
 * clients notice nothing; kvbridged, which looks at the queue all the time, lives (F57); and nothing
 * lands in the memory any more: the host has filled it and looks at it from outside.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>

#include <gkv.h>

#include "gkvtest.h"
#include "hostcheck.h"
#include "rig.h"

#define ROUNDS		20u
#define BAR		2
#define SPAN		(16 * MIB)	/* of the foreign provider, from the start of its BAR */
#define LEN		MIB		/* of a client's memory */
#define VALUE		16384u
#define KEYS		8u
#define DEPTH		16u
/* Where in the memory the parts and the buffers are. */
#define SQ_AT		0x10000u
#define CQ_AT		0x21000u
#define DB_AT		0x30028u
#define DATA_AT		0x80000u

enum way { TAKEN_BACK, UNBOUND };

static struct rig rig;
static int gkv, exporter, provider, foreign;
static const char *carveout_bdf, *exporter_bdf;

/* What the processes tell each other. */
static struct shared {
	_Atomic uint64_t bar_offset;	/* of the victim's memory, plus one: it is under way */
	_Atomic uint64_t lost_at;	/* ns: the memory is about to go */
	_Atomic uint64_t told_at;	/* ns: the victim knows */
	_Atomic uint32_t faults;	/* SIGBUS in the victims */
	_Atomic bool stop;		/* neighbours are to end */
	_Atomic uint64_t done[3];	/* exchanges of each neighbour */
} *shared;

/* In a child: says which condition does not hold, and fails. */
#define NEED(condition)								\
do {										\
	if (!(condition)) {							\
		tap_diag("line %d: %s: %s", __LINE__, #condition, gkv_error());	\
		return 1;							\
	}									\
} while (0)

/* ---- A client ---- */

struct client {
	struct gkv *g;
	struct gkv_ns_info ns;
	struct gkv_mem *mem, *data;
	struct gkv_qp *qp;
	char *buffers;
};

/* With @dmabuf its VRAM is imported, else allocated in the carve-out. */
static int client_open(struct client *c, uint32_t mode, int dmabuf)
{
	struct gkv_qp_opts opts = { .size = sizeof(opts), .depth = DEPTH, .mode = mode };

	memset(c, 0, sizeof(*c));
	c->ns.size = sizeof(c->ns);
	NEED(gkv_connect(&c->g, rig.socket, 0, 0) == 0);
	NEED(gkv_ns_open(c->g, "raw", 0, &c->ns) == 0);
	if (mode && dmabuf >= 0)
		NEED(gkv_mem_import(c->g, dmabuf, 0, 0, foreign, 0, &c->mem) == 0);
	else if (mode)
		NEED(gkv_mem_alloc_vram(c->g, provider, LEN, &c->mem) == 0);
	c->data = c->mem;
	if (!(mode & GKV_MODE_DATA))
		NEED(gkv_mem_alloc(c->g, LEN, &c->data) == 0);
	c->buffers = (char *)gkv_mem_addr(c->data) + DATA_AT;
	if (mode & GKV_MODE_SQ)
		opts.sq = (struct gkv_qp_part) { c->mem, SQ_AT };
	if (mode & GKV_MODE_CQ)
		opts.cq = (struct gkv_qp_part) { c->mem, CQ_AT };
	if (mode & GKV_MODE_DB)
		opts.db = (struct gkv_qp_part) { c->mem, DB_AT };
	NEED(gkv_qp_create(c->g, &opts, &c->qp) == 0);
	return 0;
}

static void command(const struct client *c, struct gkv_cmd *cmd, uint8_t opcode, unsigned int key,
		    unsigned int buffer)
{
	*cmd = (struct gkv_cmd) {
		.opcode = opcode, .nsid = c->ns.nsid, .key_len = 12,
		.buf = c->buffers + (size_t)buffer * VALUE, .len = VALUE, .user_data = buffer,
	};
	/* Each process has keys of its own. */
	snprintf((char *)cmd->key, sizeof(cmd->key), "%07d.%04u", getpid(), key);
}

/* A value comes back. */
static int exchange(struct client *c, unsigned int key, uint8_t byte)
{
	struct gkv_cmd cmd;
	struct gkv_comp comp;

	fill_bytes(c->buffers, byte, VALUE);
	command(c, &cmd, GKV_STORE, key, 0);
	NEED(gkv_exec(c->qp, &cmd, &comp) == 0);
	NEED(comp.status == 0 && comp.flags == 0);
	fill_bytes(c->buffers, ~byte, VALUE);
	cmd.opcode = GKV_RETRIEVE;
	NEED(gkv_exec(c->qp, &cmd, &comp) == 0);
	NEED(comp.status == 0 && comp.flags == 0 && comp.result == VALUE);
	NEED(differs(c->buffers, byte, VALUE) == -1);
	return 0;
}

/* ---- Neighbours ---- */

static int neighbour(unsigned int n, uint32_t mode, int dmabuf)
{
	struct client c;
	uint64_t i = 0;

	NEED(client_open(&c, mode, dmabuf) == 0);
	for (; !atomic_load(&shared->stop); i++) {
		NEED(exchange(&c, i % KEYS, i) == 0);
		atomic_fetch_add(&shared->done[n], 1);
	}
	NEED(!gkv_qp_stopped(c.qp) && gkv_reconnects(c.g) == 0);
	gkv_close(c.g);
	return 0;
}

/* ---- The one that loses its memory ---- */

static sigjmp_buf back;
static volatile sig_atomic_t polling;
static bool reads_vram;			/* its completions are there */

/*
 * As a program may handle it: what it wrote goes nowhere, what it reads it does not go on with.
 * A page of zeros would be a CQ full of completions, every other pass.
 */
static void on_sigbus(int number, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)info->si_addr & -4096ul;

	atomic_fetch_add(&shared->faults, 1);
	if (polling && reads_vram)
		siglongjmp(back, 1);
	if (mmap((void *)page, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0) == MAP_FAILED)
		_exit(99);
}

/* One completion: 1, 0, or -1 when it cannot be seen. */
static int poll_one(struct gkv_qp *qp, struct gkv_comp *comp)
{
	int n;

	comp->user_data = UINT64_MAX;
	if (sigsetjmp(back, 1)) {
		polling = 0;
		/* It was the doorbell that is gone, after the completion was taken. */
		return comp->user_data == UINT64_MAX ? -1 : 1;
	}
	polling = 1;
	n = gkv_poll(qp, comp, 1);
	polling = 0;
	return n;
}

struct load {
	unsigned int free[DEPTH], nfree;	/* buffers */
	uint64_t submitted, completed, lost;
};

static bool is_lost(const struct client *c)
{
	struct pollfd p = { .fd = gkv_mem_fd(c->mem) };

	return poll(&p, 1, 0) == 1 && p.revents == (POLLERR | POLLHUP);
}

/* Keeps the queue full until it is stopped. Returns 0 if it was, and all was well until then. */
static int keep_busy(struct client *c, struct load *l)
{
	uint64_t until = rig_now() + 60ull * 1000000000 * rig_slowdown();
	bool blind = false, announced = false;
	struct gkvdrv_report where;
	struct gkv_comp comp;
	struct gkv_cmd cmd;

	NEED(report(gkv_mem_fd(c->mem), 0, &where) == 0);
	while (!gkv_qp_stopped(c->qp)) {
		NEED(rig_now() < until);
		while (!blind && l->nfree && gkv_qp_room(c->qp)) {
			command(c, &cmd, l->submitted & 1 ? GKV_RETRIEVE : GKV_STORE,
				l->submitted / 2 % KEYS, l->free[l->nfree - 1]);
			if (gkv_submit(c->qp, &cmd, 1) != 1)
				break;
			l->nfree--;
			l->submitted++;
		}
		switch (blind ? 0 : poll_one(c->qp, &comp)) {
		case -1:
			blind = true;
			break;
		case 0:
			sched_yield();
			break;
		default:
			NEED(comp.user_data < DEPTH);
			if (comp.flags & GKV_C_STOPPED) {
				l->lost++;
				break;
			}
			NEED(!comp.flags);
			NEED(!comp.status || is_lost(c));
			l->free[l->nfree++] = comp.user_data;
			l->completed++;
		}
		if (l->completed >= 4 * DEPTH && !announced) {
			atomic_store(&shared->bar_offset, where.bar_offset + 1);
			announced = true;
		}
	}
	atomic_store(&shared->told_at, rig_now());
	return 0;
}

/* What it is told, and what it can do. */
static int told(struct client *c, struct load *l, int event)
{
	struct gkv_comp comp;
	uint64_t count = 0;
	struct gkv_cmd cmd;

	NEED(gkv_qp_stopped(c->qp) == GKV_STOPPED_MEMORY);
	NEED(is_lost(c));
	NEED(read(event, &count, sizeof(count)) == sizeof(count) && count == 1);
	command(c, &cmd, GKV_EXIST, 0, 0);
	NEED(gkv_submit(c->qp, &cmd, 1) == -ENODEV);
	/* Each command is reported once, as completed or as lost. */
	while (gkv_wait(c->qp, &comp, 1, 1000000000) == 1) {
		if (comp.flags & GKV_C_STOPPED)
			l->lost++;
		else
			l->completed++;
	}
	if (l->completed + l->lost != l->submitted)
		tap_diag("%llu submitted, %llu completed, %llu lost",
			 (unsigned long long)l->submitted, (unsigned long long)l->completed,
			 (unsigned long long)l->lost);
	NEED(l->completed + l->lost == l->submitted);
	NEED(gkv_qp_reset(c->qp) == -ENODEV);
	NEED(gkv_qp_destroy(c->qp) == 0);
	if (c->data != c->mem)
		NEED(gkv_mem_free(c->data) == 0);
	NEED(gkv_mem_free(c->mem) == 0);
	/* The session is as good as before. */
	NEED(gkv_mem_alloc(c->g, LEN, &c->data) == 0);
	NEED(gkv_qp_create(c->g, NULL, &c->qp) == 0);
	c->buffers = gkv_mem_addr(c->data);
	NEED(exchange(c, 0, 0x3c) == 0);
	NEED(gkv_reconnects(c->g) == 0);
	return 0;
}

static int victim(uint32_t mode, int dmabuf)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
	int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct load load = { .nfree = DEPTH - 1 };
	struct client c;

	reads_vram = mode & GKV_MODE_CQ;
	NEED(sigaction(SIGBUS, &action, NULL) == 0);
	NEED(client_open(&c, mode, dmabuf) == 0);
	NEED(gkv_notify(gkv_mem_fd(c.mem), event) == 0);
	for (unsigned int i = 0; i < DEPTH - 1; i++)
		load.free[i] = i;
	for (unsigned int i = 0; i < KEYS; i++)
		NEED(exchange(&c, i, i) == 0);
	NEED(keep_busy(&c, &load) == 0);
	NEED(told(&c, &load, event) == 0);
	gkv_close(c.g);
	return 0;
}

/* ---- Rounds ---- */

/* The victim, or neighbour @n; a process of its own. */
static pid_t start(int n, uint32_t mode, int dmabuf)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int rc = n < 0 ? victim(mode, dmabuf) : neighbour(n, mode, dmabuf);

		fflush(stdout);
		_exit(rc);
	}
	return pid;
}

/* Its status once it has ended, -1 while it has not. */
static int status_of(pid_t pid, int flags)
{
	int status;

	return waitpid(pid, &status, flags) == pid ? status : -1;
}

static bool within(uint64_t ms, bool (*holds)(void *), void *arg)
{
	uint64_t until = now_ms() + ms * rig_slowdown();

	while (!holds(arg)) {
		if (now_ms() > until)
			return false;
		sleep_ms(2);
	}
	return true;
}

static bool under_way(void *arg)
{
	return atomic_load(&shared->bar_offset) != 0;
}

struct progress {
	unsigned int n;
	uint64_t from[3];
};

static bool all_went_on(void *arg)
{
	struct progress *p = arg;

	for (unsigned int i = 0; i < p->n; i++)
		if (atomic_load(&shared->done[i]) < p->from[i] + 3)
			return false;
	return true;
}

static bool lose(enum way way, int dmabuf)
{
	return way == UNBOUND ? pci_unbind(carveout_bdf) == 0 :
				ioctl(exporter, EXPORTER_REVOKE, dmabuf) == 0;
}

static bool one_round(enum way way, uint32_t mode, unsigned int round, struct progress *p,
		      uint64_t *slowest)
{
	static uint64_t seed = 0x10570000;
	const char *target = way == UNBOUND ? "vram" : "vram2";
	unsigned long long at;
	int status, dmabuf = -1;
	pid_t pid;
	bool good;

	/* Its values lie in what goes, too, or in host memory. */
	if (round % 2)
		mode |= GKV_MODE_DATA;
	if (way == TAKEN_BACK)
		dmabuf = exporter_make(exporter, EXPORTER_PLAIN, (4 + round % 8) * MIB, LEN);
	atomic_store(&shared->bar_offset, 0);
	atomic_store(&shared->told_at, 0);
	pid = start(-1, mode, dmabuf);
	if (!within(20000, under_way, NULL)) {
		tap_diag("round %u: the client does not get under way: %#x", round,
			 status_of(pid, WNOHANG));
		kill(pid, SIGKILL);
		status_of(pid, 0);
		return false;
	}
	at = atomic_load(&shared->bar_offset) - 1;
	sleep_ms(round * 7 % 31);
	atomic_store(&shared->lost_at, rig_now());
	good = lose(way, dmabuf);
	if (!good)
		tap_diag("round %u: the memory does not go: errno %d", round, errno);
	/* It is somebody else's from here on. */
	good &= gkv_host_ask("%s-fill %#llx %#llx %#lx", target, (unsigned long long)++seed, at,
			     LEN) == 0;
	for (unsigned int i = 0; i < p->n; i++)
		p->from[i] = atomic_load(&shared->done[i]);
	status = status_of(pid, 0);
	if (status) {
		tap_diag("round %u: the client ends with status %#x", round, status);
		good = false;
	} else {
		uint64_t ns = atomic_load(&shared->told_at) - atomic_load(&shared->lost_at);

		*slowest = ns > *slowest ? ns : *slowest;
	}
	if (!within(20000, all_went_on, p)) {
		tap_diag("round %u: others do not go on", round);
		good = false;
	}
	good &= gkv_host_ask("%s-has %#llx %#llx %#lx", target, (unsigned long long)seed, at,
			     LEN) == 0;
	good &= rig_alive(&rig);
	if (way == UNBOUND) {
		provider = vram_provider(gkv);
		good &= provider > 0;
	} else {
		close(dmabuf);
	}
	return good;
}

static void rounds(enum way way, uint32_t mode, const char *part, struct progress *p)
{
	unsigned int bad = 0, i;
	uint64_t slowest = 0, start = now_ms();

	atomic_store(&shared->faults, 0);
	for (i = 0; i < ROUNDS && bad < 3; i++)
		bad += !one_round(way, mode, i, p, &slowest);
	tap_ok(!bad, "%s in memory that %s, under load: %u times", part,
	       way == UNBOUND ? "its provider's unbinding ends" : "its exporter takes back", i);
	tap_diag("told after %llu us at most; %u SIGBUS in clients; %llu ms in all",
		 (unsigned long long)slowest / 1000, atomic_load(&shared->faults),
		 (unsigned long long)(now_ms() - start));
}

static void every_part(enum way way)
{
	/* In host memory, in memory of the exporter's, and in the carve-out where that stays. */
	struct progress p = { .n = way == UNBOUND ? 2 : 3 };
	int dmabuf = exporter_make(exporter, EXPORTER_PLAIN, 0, LEN), bad = 0;
	pid_t pids[3];

	atomic_store(&shared->stop, false);
	for (unsigned int i = 0; i < p.n; i++)
		pids[i] = start(i, i ? GKV_MODE_MASK : 0, i == 1 ? dmabuf : -1);
	rounds(way, GKV_MODE_SQ, "an SQ", &p);
	rounds(way, GKV_MODE_CQ, "a CQ", &p);
	rounds(way, GKV_MODE_DB, "doorbells", &p);
	rounds(way, GKV_MODE_SQ | GKV_MODE_CQ | GKV_MODE_DB, "all of a queue pair", &p);
	atomic_store(&shared->stop, true);
	for (unsigned int i = 0; i < p.n; i++)
		bad += status_of(pids[i], 0) != 0;
	tap_ok(!bad, "no other client has lost anything");
	close(dmabuf);
	tap_ok(wait_used(gkv, provider, 0) == 0 && wait_used(gkv, foreign, 0) == 0,
	       "all VRAM is free again");
}

static bool set_up(void)
{
	gkv = gkv_open();
	carveout_bdf = getenv("GKV_VRAM_BDF");
	provider = vram_provider(gkv);
	exporter = exporter_start(&exporter_bdf);
	foreign = exporter < 0 ? exporter : provider_add(gkv, exporter_bdf, BAR, 0, SPAN);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return tap_ok(gkv >= 0 && provider > 0 && exporter >= 0 && foreign > 0 &&
		      shared != MAP_FAILED, "a carve-out, and memory of another driver");
}

int main(void)
{
	char conf[256];

	if (!kernel_has_p2pdma()) {
		tap_skip("this kernel has no CONFIG_PCI_P2PDMA", "queues in memory that goes");
		return tap_done();
	}
	if (!set_up())
		return tap_done();
	snprintf(conf, sizeof(conf),
		 "[daemon]\nreactors = 2\nbuffer_memory = 128M\n"
		 "[namespace raw]\nnsid = 1\nstack = local\nlocal.path = %s\nverify = off\n",
		 getenv("GKV_DISK"));
	rig_init(&rig, conf);
	rig_start(&rig);
	every_part(TAKEN_BACK);
	every_part(UNBOUND);
	tap_ok(rig_alive(&rig), "kvbridged lives");
	rig_fini(&rig);
	provider_del(gkv, foreign);
	tap_ok(exporter_stop(exporter, exporter_bdf) == 0, "the exporter has all its memory back");
	close(gkv);
	return tap_done();
}
