// SPDX-License-Identifier: MIT
/*
 * Nothing that a holder of /dev/gkv does in whatever order breaks the kernel, and when all is
 * closed all is free. Seeded sequences of calls, good and bad, by several processes at once, while
 * the function is unbound and bound under them. GKV_FUZZ_SEED repeats a run, GKV_FUZZ_SECONDS says
 * how long it takes (10).
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#include <sys/prctl.h>

#define WORKERS	3
#define FDS	24
#define MAPS	16

struct worker {
	uint64_t random;
	int gkv, disk, exporter;
	int fds[FDS];
	struct {
		char *at;
		size_t len;
	} maps[MAPS];
	uint64_t calls, good;
};

static uint64_t next(struct worker *w)
{
	/* xorshift64*: the sequence is the seed's alone. */
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return w->random * 0x2545f4914f6cdd1dull;
}

static uint64_t below(struct worker *w, uint64_t n)
{
	return next(w) % n;
}

static bool often(struct worker *w, unsigned int in_a_hundred)
{
	return below(w, 100) < in_a_hundred;
}

/* A number that somebody may not have thought of. */
static uint64_t number(struct worker *w)
{
	static const uint64_t edges[] = {
		0, 1, 2, 3, 4095, 4096, 4097, 65535, 65536, MIB, 1ull << 31, 1ull << 32, 1ull << 63,
		-1ull, -4096ull, 0x7fffffff, 0xffffffff,
	};

	switch (below(w, 4)) {
	case 0:	return edges[below(w, sizeof(edges) / sizeof(edges[0]))];
	case 1:	return below(w, 64) * 4096;
	case 2: return below(w, 16);
	default: return next(w) >> below(w, 64);
	}
}

static int any_fd(struct worker *w)
{
	if (often(w, 5))
		return (int)number(w);
	return often(w, 10) ? w->gkv : w->fds[below(w, FDS)];
}

static void keep_fd(struct worker *w, int fd)
{
	int *slot = &w->fds[below(w, FDS)];

	if (fd < 0)
		return;
	w->good++;
	if (*slot >= 0)
		close(*slot);
	*slot = fd;
}

static uint32_t some_provider(struct worker *w)
{
	struct gkvdrv_provider p = { };
	uint32_t id = 1;

	if (often(w, 10))
		return number(w);
	/* Any of them, the later ones less often. */
	while (gkv_call(w->gkv, GKVDRV_PROVIDER_INFO, &p) == 0) {
		id = p.id;
		if (often(w, 50))
			break;
		p.id = id + 1;
	}
	return id;
}

static void do_qp(struct worker *w)
{
	struct gkvdrv_qp qp;

	qp_init(&qp, often(w, 80) ? below(w, 300) : number(w), below(w, often(w, 90) ? 16 : 32));
	qp.dstrd = often(w, 90) ? below(w, 4) : number(w);
	for (int i = 0; i < (int)GKVDRV_PARTS; i++) {
		if (!(qp.mode & 1u << i) && !often(w, 5))
			continue;
		if (often(w, 50)) {
			qp.parts[i].region = any_fd(w);
			qp.parts[i].offset = often(w, 80) ? below(w, 32) * 4096 : number(w);
		} else {
			qp.parts[i].provider = some_provider(w);
		}
	}
	if (gkv_call(w->gkv, GKVDRV_QP_CREATE, &qp) == 0)
		keep_fd(w, qp.fd);
}

static void do_import(struct worker *w)
{
	struct exporter_make how = {
		.offset = below(w, 64) * 65536, .len = (below(w, 16) + 2) * 4096,
		.layout = below(w, 6), .piece = 4096, .fail = often(w, 20) ? below(w, 5) : 0,
	};
	int buf;

	if (w->exporter < 0)
		return;
	buf = exporter_make_as(w->exporter, &how);
	keep_fd(w, region_import(w->gkv, some_provider(w), buf, often(w, 70) ? 0 : number(w),
				 often(w, 70) ? 0 : number(w)));
	if (often(w, 10))
		ioctl(w->exporter, often(w, 50) ? EXPORTER_REVOKE : EXPORTER_MOVE, buf);
	if (buf >= 0)
		close(buf);
}

/* Any command with any bytes behind a head that is mostly right. */
static void do_bytes(struct worker *w)
{
	static const unsigned int cmds[] = {
		GKVDRV_INFO, GKVDRV_PROVIDER_INFO, GKVDRV_ALLOC, GKVDRV_IMPORT, GKVDRV_QP_CREATE,
		GKVDRV_REPORT, GKVDRV_NOTIFY, GKVDRV_REACH,
	};
	static const uint32_t sizes[] = { 24, 28, 32, 40, 56, 80, 88, 136, 200 };
	union {
		uint64_t words[64];
		struct gkvdrv_head head;
		struct gkvdrv_alloc alloc;
		struct gkvdrv_import import;
		struct gkvdrv_qp qp;
	} arg;
	unsigned int cmd = cmds[below(w, sizeof(cmds) / sizeof(cmds[0]))];

	for (int i = 0; i < 64; i++)
		arg.words[i] = often(w, 60) ? 0 : number(w);
	arg.head.size = often(w, 90) ? sizes[below(w, sizeof(sizes) / sizeof(sizes[0]))] : number(w);
	arg.head.flags = often(w, 95) ? 0 : number(w);
	arg.head.text = often(w, 50) ? 0 : often(w, 90) ? (uintptr_t)why.text : number(w);
	arg.head.text_len = often(w, 80) ? below(w, sizeof(why.text)) : 0;
	if (ioctl(any_fd(w), cmd, &arg) == 0) {
		w->good++;
		/* Where a command returns a descriptor it is not kept: it is known by its number. */
		if (cmd == GKVDRV_ALLOC)
			close(arg.alloc.fd);
		else if (cmd == GKVDRV_IMPORT)
			close(arg.import.fd);
		else if (cmd == GKVDRV_QP_CREATE)
			close(arg.qp.fd);
	}
}

static void do_report(struct worker *w)
{
	struct gkvdrv_run runs[8];
	struct gkvdrv_report r = {
		.part = below(w, 4), .runs = often(w, 50) ? (uintptr_t)runs : 0,
		.nr_runs = below(w, 9),
	};

	w->good += gkv_call(any_fd(w), GKVDRV_REPORT, &r) == 0;
}

static void do_reach(struct worker *w)
{
	struct gkvdrv_reach a = { .blkdev = often(w, 70) ? w->disk : any_fd(w) };

	w->good += gkv_call(any_fd(w), GKVDRV_REACH, &a) == 0;
}

static void do_notify(struct worker *w)
{
	int event = often(w, 70) ? eventfd(0, 0) : -1;

	w->good += gkv_notify(any_fd(w), event >= 0 ? event : any_fd(w)) == 0;
	keep_fd(w, event);
}

static void do_map(struct worker *w)
{
	unsigned int slot = below(w, MAPS);
	size_t len = (below(w, often(w, 90) ? 4 : 64) + 1) * 4096;
	int prot = often(w, 80) ? PROT_READ | PROT_WRITE : (int)below(w, 8);
	char *at;

	if (w->maps[slot].at)
		munmap(w->maps[slot].at, w->maps[slot].len);
	at = mmap(NULL, len, prot, often(w, 95) ? MAP_SHARED : MAP_PRIVATE, any_fd(w),
		  often(w, 60) ? 0 : number(w) & ~4095ull);
	w->maps[slot].at = at == MAP_FAILED ? NULL : at;
	w->maps[slot].len = len;
	w->good += at != MAP_FAILED;
}

static void do_access(struct worker *w)
{
	unsigned int slot = below(w, MAPS);
	char *at = w->maps[slot].at, *place;

	if (!at)
		return;
	place = at + below(w, w->maps[slot].len);
	switch (below(w, 8)) {
	case 0:
		munmap(at, w->maps[slot].len);
		w->maps[slot].at = NULL;
		break;
	case 1:
		madvise(at, w->maps[slot].len, below(w, 26));
		break;
	case 2:
		mprotect(at, 4096, below(w, 8));
		break;
	case 3:
		at = mremap(at, w->maps[slot].len, w->maps[slot].len, MREMAP_MAYMOVE);
		if (at != MAP_FAILED)
			w->maps[slot].at = at;
		break;
	case 4:
		if (pread(w->disk, at, 4096, below(w, 1000) * 4096) < 0 && errno == EIO)
			printf("# EIO\n");
		break;
	case 5:
		can_read(place);
		break;
	default:
		can_write(place);
		break;
	}
}

static void do_file(struct worker *w)
{
	int fd = any_fd(w);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t word;

	switch (below(w, 8)) {
	case 0: poll(&p, 1, 0); break;
	case 1: posix_fadvise(fd, 0, 4096, below(w, 8)); break;
	case 2: readahead(fd, 0, 4096); break;
	case 3: (void)!pread(fd, &word, 8, 0); break;
	case 4: (void)!pwrite(fd, &word, 8, 0); break;
	case 5: lseek(fd, number(w), below(w, 5)); break;
	case 6: fsync(fd); break;
	default: (void)!ftruncate(fd, number(w)); break;
	}
}

/* A child with copies of all descriptors, that ends well or is killed. */
static void do_fork(struct worker *w)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (unsigned int i = 0; i < 5; i++) {
			char *at = map_shared(any_fd(w), 0, 4096);

			if (at != MAP_FAILED)
				can_write(at);
		}
		if (often(w, 50))
			kill(getpid(), SIGKILL);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void step(struct worker *w)
{
	uint64_t what = below(w, 1000);
	unsigned int slot = below(w, FDS);

	w->calls++;
	if (what < 150)
		keep_fd(w, region_alloc(w->gkv, some_provider(w),
					often(w, 90) ? (below(w, 64) + 1) * 4096 : number(w)));
	else if (what < 300)
		do_qp(w);
	else if (what < 350)
		do_import(w);
	else if (what < 450)
		do_bytes(w);
	else if (what < 500)
		do_report(w);
	else if (what < 520)
		do_reach(w);
	else if (what < 560)
		do_notify(w);
	else if (what < 700)
		do_map(w);
	else if (what < 880)
		do_access(w);
	else if (what < 930)
		do_file(w);
	else if (what < 935)
		do_fork(w);
	else if (what < 960)
		keep_fd(w, dup(w->fds[slot]));
	else if (what < 985 && w->fds[slot] >= 0)
		close(w->fds[slot]), w->fds[slot] = -1;
	else
		gkv_revoke(any_fd(w));
}

static void work(struct worker *w, uint64_t until)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < FDS; i++)
		w->fds[i] = -1;
	while (w->calls <= 100 || now_ms() < until)
		step(w);
	printf("# %llu calls, %llu of them good\n", (unsigned long long)w->calls,
	       (unsigned long long)w->good);
	fflush(stdout);
	/* A run of refusals would show nothing. */
	_exit(w->good > w->calls / 100 ? 0 : 1);
}

FIXTURE(fuzz) {
	int gkv, exporter;
	const char *bdf, *bdf2;
};

FIXTURE_SETUP(fuzz)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->exporter = -1;
	if (!kernel_has_p2pdma())
		return;
	self->bdf = getenv("GKV_VRAM_BDF");
	ASSERT_GT(vram_provider(self->gkv), 0);
	if (getenv("GKV_VRAM2_BDF")) {
		self->exporter = exporter_start(&self->bdf2);
		ASSERT_GE(self->exporter, 0);
		ASSERT_GT(provider_add(self->gkv, self->bdf2, 2, 0, 4 * MIB), 0);
	}
}

FIXTURE_TEARDOWN(fuzz)
{
	if (self->exporter >= 0)
		EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf2));
	close(self->gkv);
}

TEST_F_TIMEOUT(fuzz, sequences, 600)
{
	const char *env = getenv("GKV_FUZZ_SEED"), *seconds = getenv("GKV_FUZZ_SECONDS");
	uint64_t seed = env ? strtoull(env, NULL, 0) : now_ms() * 2654435761u + getpid();
	uint64_t until = now_ms() + (seconds ? atoi(seconds) : 10) * 1000;
	struct worker w = { .gkv = self->gkv, .exporter = self->exporter };
	struct gkvdrv_info a = { .abi = GKVDRV_ABI };
	pid_t pids[WORKERS];
	char path[32];
	int status;

	printf("# seed %#llx\n", (unsigned long long)seed);
	w.disk = disk_path("gkv0", path, sizeof(path)) ? -1 : open(path, O_RDONLY | O_DIRECT);
	for (int i = 0; i < WORKERS; i++) {
		w.random = (seed + i) * 0x9e3779b97f4a7c15ull | 1;
		fflush(stdout);
		pids[i] = fork();
		ASSERT_GE(pids[i], 0);
		if (pids[i] == 0)
			work(&w, until);
	}
	while (self->bdf && now_ms() < until) {
		sleep_ms(300);
		ASSERT_EQ(0, pci_unbind(self->bdf));
		ASSERT_EQ(0, pci_bind(self->bdf, "gkvdrv"));
		if (self->exporter >= 0 && now_ms() % 4 == 0) {
			ASSERT_EQ(0, pci_unbind(self->bdf2));
			ASSERT_EQ(0, pci_bind(self->bdf2, "gkv-exporter"));
			ASSERT_GT(provider_add(self->gkv, self->bdf2, 2, 0, 4 * MIB), 0);
		}
	}
	for (int i = 0; i < WORKERS; i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		EXPECT_EQ(0, status) {
			TH_LOG("worker %d of seed %#lx", i, seed);
		}
	}
	/* Nothing is left of any of it. */
	EXPECT_TRUE(eventually(gkv_call(self->gkv, GKVDRV_INFO, &a) == 0 && !a.user_objects));
	EXPECT_EQ(0ull, a.user_bytes);
	for (struct gkvdrv_provider p = { }; gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p) == 0;
	     p.id++) {
		EXPECT_EQ(0ull, p.used);
		EXPECT_EQ(0u, p.nr_objects);
	}
}

TEST_HARNESS_MAIN
