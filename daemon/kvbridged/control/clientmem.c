/* SPDX-License-Identifier: MIT */
#include "control/clientmem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

int kvb_clientmem_init(struct kvb_err *err)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

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

int kvb_clientmem_map(struct kvb_clientmem *m, int fd, uint64_t offset, uint64_t len, bool write,
		      const char *what, _Atomic bool *dead, struct kvb_err *err)
{
	uint64_t span = (len + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	struct guard *g;
	char *map;
	int rc = check_fd(fd, offset, len, what, err);

	*m = (struct kvb_clientmem){ 0 };
	if (rc)
		return rc;
	g = guard_get();
	if (!g)
		return kvb_fail(err, ENOMEM, "%s: out of memory", what);
	/* An inaccessible page on either side turns an overrun into a fault. */
	map = mmap(NULL, span + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		   -1, 0);
	if (map == MAP_FAILED) {
		unused[nunused++] = g;
		return kvb_fail(err, ENOMEM, "%s: cannot reserve %llu bytes of address space: %s",
				what, (unsigned long long)span, strerror(errno));
	}
	atomic_store(dead, false);
	atomic_store(&g->dead, dead);
	atomic_store_explicit(&g->end, (uintptr_t)map + PAGE + span, memory_order_relaxed);
	atomic_store_explicit(&g->start, (uintptr_t)map + PAGE, memory_order_release);
	if (mmap(map + PAGE, span, write ? PROT_READ | PROT_WRITE : PROT_READ,
		 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset) == MAP_FAILED) {
		rc = kvb_fail(err, errno, "%s: cannot map %llu bytes at offset %#llx: %s", what,
			      (unsigned long long)span, (unsigned long long)offset,
			      strerror(errno));
		atomic_store(&g->start, 0);
		munmap(map, span + 2 * PAGE);
		unused[nunused++] = g;
		return rc;
	}
	m->addr = map + PAGE;
	m->len = span;
	m->map = map;
	m->map_len = span + 2 * PAGE;
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
	m->addr = NULL;
}
