/* SPDX-License-Identifier: MIT */
#include "control/clientmem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PAGE 4096u
#define CHUNK 1024
#define CHUNKS 4096

/* What the handler looks through. Entries are reused, chunks never freed. */
struct guard {
	_Atomic uintptr_t start, end;	/* start 0: unused */
	_Atomic(_Atomic bool *) dead;
};

static _Atomic(struct guard *) chunks[CHUNKS];
static struct guard **unused;		/* control thread's stack of free entries */
static size_t nunused, unused_cap, nchunks;

/*
 * The kernel limits the areas of an address space. Each of these mappings takes three, with
 * its guard pages; what the clients leave is for buffers and the stores.
 */
static size_t nmaps, max_maps = SIZE_MAX;
#define AREAS_RESERVED 8192

static void on_sigbus(int sig, siginfo_t *si, void *ctx)
{
	uintptr_t at = (uintptr_t)si->si_addr;
	int saved = errno;

	(void)ctx;
	for (size_t c = 0; c < CHUNKS; c++) {
		struct guard *g = atomic_load_explicit(&chunks[c], memory_order_acquire);

		if (!g)
			break;
		for (size_t i = 0; i < CHUNK; i++) {
			uintptr_t start = atomic_load_explicit(&g[i].start, memory_order_acquire);
			uintptr_t end = atomic_load_explicit(&g[i].end, memory_order_relaxed);

			if (!start || at < start || at >= end)
				continue;
			/* First the flag: nobody may take a replacement page for data. */
			atomic_store(atomic_load(&g[i].dead), true);
			if (mmap((void *)start, end - start, PROT_READ | PROT_WRITE,
				 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				 0) != MAP_FAILED) {
				errno = saved;
				return;
			}
		}
	}
	/* Not client memory, or no way to go on: die of it. */
	signal(sig, SIG_DFL);
	errno = saved;
}

static void limit_maps(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned long areas;

	if (!f)
		return;
	if (fscanf(f, "%lu", &areas) == 1)
		max_maps = areas > 2 * AREAS_RESERVED ? (areas - AREAS_RESERVED) / 3 : areas / 6;
	fclose(f);
}

int kvb_clientmem_init(struct kvb_err *err)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	limit_maps();
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, &sa, NULL))
		return kvb_fail(err, errno, "sigaction: %s", strerror(errno));
	return 0;
}

static struct guard *guard_get(void)
{
	struct guard *g;

	if (!nunused) {
		size_t cap = unused_cap + CHUNK;
		struct guard **stack;

		if (nchunks == CHUNKS)
			return NULL;
		g = calloc(CHUNK, sizeof(*g));
		stack = realloc(unused, cap * sizeof(*stack));
		if (stack)
			unused = stack;
		if (!g || !stack) {
			free(g);
			return NULL;
		}
		unused_cap = cap;
		for (size_t i = 0; i < CHUNK; i++)
			unused[nunused++] = &g[CHUNK - 1 - i];
		atomic_store_explicit(&chunks[nchunks++], g, memory_order_release);
	}
	return unused[--nunused];
}

static int check_fd(int fd, uint64_t offset, uint64_t len, const char *what, struct kvb_err *err)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return kvb_fail(err, EINVAL, "%s: descriptor is not a memfd", what);
	if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return kvb_fail(err, EPERM,
				"%s: memfd has seals %#x, needs F_SEAL_SHRINK and F_SEAL_GROW (%#x)",
				what, seals, F_SEAL_SHRINK | F_SEAL_GROW);
	if (fstat(fd, &st))
		return kvb_fail(err, errno, "%s: fstat: %s", what, strerror(errno));
	if (offset % PAGE)
		return kvb_fail(err, EINVAL, "%s: offset %#llx is not a multiple of %u", what,
				(unsigned long long)offset, PAGE);
	if (!len || len > (uint64_t)st.st_size || offset > (uint64_t)st.st_size - len)
		return kvb_fail(err, EINVAL,
				"%s: bytes %#llx to %#llx are outside the memfd of %#llx bytes", what,
				(unsigned long long)offset, (unsigned long long)(offset + len),
				(unsigned long long)st.st_size);
	return 0;
}

/* The size of the pages behind a memfd: a huge page is mapped whole and aligned. */
static int page_of(int fd, uint64_t offset, const char *what, uint64_t *page, struct kvb_err *err)
{
	struct statfs sf;

	*page = PAGE;
	if (fstatfs(fd, &sf))
		return kvb_fail(err, errno, "%s: fstatfs: %s", what, strerror(errno));
	if (sf.f_type == HUGETLBFS_MAGIC)
		*page = (uint64_t)sf.f_bsize;
	if (offset % *page)
		return kvb_fail(err, EINVAL,
				"%s: offset %#llx is not a multiple of the memfd's pages of %#llx", what,
				(unsigned long long)offset, (unsigned long long)*page);
	return 0;
}

int kvb_clientmem_map(struct kvb_clientmem *m, int fd, uint64_t offset, uint64_t len, bool write,
		      const char *what, _Atomic bool *dead, struct kvb_err *err)
{
	uint64_t page, span, slack;
	struct guard *g;
	char *map, *at;
	int rc = check_fd(fd, offset, len, what, err);

	*m = (struct kvb_clientmem){ 0 };
	if (!rc)
		rc = page_of(fd, offset, what, &page, err);
	if (rc)
		return rc;
	if (nmaps == max_maps)
		return kvb_fail(err, ENOSPC,
				"%s: daemon has %zu mappings of client memory, the limit is %zu (vm.max_map_count)",
				what, nmaps, max_maps);
	g = guard_get();
	if (!g)
		return kvb_fail(err, ENOMEM, "%s: out of memory", what);
	span = (len + page - 1) & ~(page - 1);
	slack = 2 * PAGE + (page > PAGE ? page : 0);
	/* An inaccessible page on either side turns an overrun into a fault. */
	map = mmap(NULL, span + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		   -1, 0);
	if (map == MAP_FAILED) {
		unused[nunused++] = g;
		return kvb_fail(err, ENOMEM, "%s: cannot reserve %llu bytes of address space: %s",
				what, (unsigned long long)span, strerror(errno));
	}
	at = (char *)(((uintptr_t)map + PAGE + page - 1) & ~(uintptr_t)(page - 1));
	atomic_store(dead, false);
	atomic_store(&g->dead, dead);
	atomic_store_explicit(&g->end, (uintptr_t)at + span, memory_order_relaxed);
	atomic_store_explicit(&g->start, (uintptr_t)at, memory_order_release);
	if (mmap(at, span, write ? PROT_READ | PROT_WRITE : PROT_READ,
		 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset) == MAP_FAILED) {
		rc = kvb_fail(err, errno, "%s: cannot map %llu bytes at offset %#llx: %s", what,
			      (unsigned long long)span, (unsigned long long)offset,
			      strerror(errno));
		atomic_store(&g->start, 0);
		munmap(map, span + slack);
		unused[nunused++] = g;
		return rc;
	}
	nmaps++;
	m->addr = at;
	m->len = span;
	m->map = map;
	m->map_len = span + slack;
	m->guard = g;
	return 0;
}

void kvb_clientmem_unmap(struct kvb_clientmem *m)
{
	struct guard *g = m->guard;

	if (!m->addr)
		return;
	munmap(m->map, m->map_len);
	atomic_store(&g->start, 0);
	unused[nunused++] = g;
	nmaps--;
	m->addr = NULL;
}
