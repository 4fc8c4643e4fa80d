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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <gkv/queue.h>

#include "control/closer.h"

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

/* Those of the module hold a descriptor each, which sessions and stores need, too. */
static size_t nfds, max_fds = SIZE_MAX;

/* First the flag: nobody may take a replacement page for data. */
static int replace(uintptr_t start, uintptr_t end, _Atomic bool *dead)
{
	atomic_store(dead, true);
	return mmap((void *)start, end - start, PROT_READ | PROT_WRITE,
		    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		    0) == MAP_FAILED ? -1 : 0;
}

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
			if (!replace(start, end, atomic_load(&g[i].dead))) {
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
	struct rlimit rl;

	limit_maps();
	if (!getrlimit(RLIMIT_NOFILE, &rl) && rl.rlim_cur != RLIM_INFINITY)
		max_fds = rl.rlim_cur / 4;
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

/* ---- What it is ---- */

static int check_memfd(const struct kvb_memreq *q, int seals, struct kvb_err *err)
{
	struct stat st;

	if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return kvb_fail(err, EPERM,
				"%s: memfd has seals %#x, needs F_SEAL_SHRINK and F_SEAL_GROW (%#x)",
				q->what, seals, F_SEAL_SHRINK | F_SEAL_GROW);
	if (fstat(q->fd, &st))
		return kvb_fail(err, errno, "%s: fstat: %s", q->what, strerror(errno));
	if (q->offset % PAGE)
		return kvb_fail(err, EINVAL, "%s: offset %#llx is not a multiple of %u", q->what,
				(unsigned long long)q->offset, PAGE);
	if (!q->len || q->len > (uint64_t)st.st_size ||
	    q->offset > (uint64_t)st.st_size - q->len)
		return kvb_fail(err, EINVAL,
				"%s: bytes %#llx to %#llx are outside the memfd of %#llx bytes",
				q->what, (unsigned long long)q->offset,
				(unsigned long long)(q->offset + q->len),
				(unsigned long long)st.st_size);
	return 0;
}

/* The size of the pages behind a memfd: a huge page is mapped whole and aligned. */
static int page_of(const struct kvb_memreq *q, uint64_t *page, struct kvb_err *err)
{
	struct statfs sf;

	if (fstatfs(q->fd, &sf))
		return kvb_fail(err, errno, "%s: fstatfs: %s", q->what, strerror(errno));
	if (sf.f_type == HUGETLBFS_MAGIC)
		*page = (uint64_t)sf.f_bsize;
	if (q->offset % *page)
		return kvb_fail(err, EINVAL,
				"%s: offset %#llx is not a multiple of the memfd's pages of %#llx",
				q->what, (unsigned long long)q->offset, (unsigned long long)*page);
	return 0;
}

static bool is_part(enum kvb_memuse use)
{
	return use <= KVB_MEM_DB;
}

/* A part's bit in the memory mode. */
static bool wants_vram(const struct kvb_memreq *q)
{
	static const uint32_t bits[] = { GKV_MODE_SQ, GKV_MODE_CQ, GKV_MODE_DB };

	return is_part(q->use) && q->mode & bits[q->use];
}

static int check_gkv(struct kvb_clientmem *m, const struct kvb_memreq *q, enum kvb_gkvfd kind,
		     struct kvb_err *err)
{
	const char *is = kind == KVB_GKVFD_QP ? "queue pair" : "region";
	struct kvb_gkvpart p;
	char text[64];
	int rc;

	if (q->use == KVB_MEM_OWN || (kind == KVB_GKVFD_QP) != is_part(q->use))
		return kvb_fail(err, EINVAL, "%s: descriptor is of a %s of /dev/gkv, needs %s",
				q->what, is,
				q->use == KVB_MEM_OWN ? "a memfd" :
				is_part(q->use)	      ? "a memfd or a queue pair" :
							"a memfd or a region");
	rc = kvb_gkvfd_part(q->fd, is_part(q->use) ? (uint32_t)q->use : 0, q->what, &p, err);
	if (rc)
		return rc;
	if (p.at.place == GKVDRV_GONE)
		return kvb_fail(err, ENODEV, "%s: the %s of /dev/gkv is revoked", q->what, is);
	if (is_part(q->use) && (p.at.place == GKVDRV_VRAM) != wants_vram(q))
		return kvb_fail(err, EINVAL, "%s: memory mode %#x wants it in %s, it is in: %s",
				q->what, q->mode, wants_vram(q) ? "VRAM" : "host memory",
				kvb_place_text(&p.at, text, sizeof(text)));
	if (q->offset % PAGE)
		return kvb_fail(err, EINVAL, "%s: offset %#llx is not a multiple of %u", q->what,
				(unsigned long long)q->offset, PAGE);
	/* A ring starts where its part does. Doorbells do so somewhere in the first page. */
	if (q->offset < p.start || q->offset - p.start > p.pages || !q->len ||
	    q->len > p.pages - (q->offset - p.start) ||
	    (q->use <= KVB_MEM_CQ && (q->offset != p.start || q->len > p.len)))
		return kvb_fail(err, EINVAL,
				"%s: bytes %#llx to %#llx are not those of the %s of /dev/gkv, %#llx to %#llx",
				q->what, (unsigned long long)q->offset,
				(unsigned long long)(q->offset + q->len), is,
				(unsigned long long)p.start,
				(unsigned long long)(p.start + p.pages));
	m->at = p.at;
	/* A part has one number; of a page further on it says nothing. */
	m->page_id = q->offset == p.start ? p.page_id : 0;
	return 0;
}

static int check_fd(struct kvb_clientmem *m, const struct kvb_memreq *q, uint64_t *page,
		    struct kvb_err *err)
{
	int seals = fcntl(q->fd, F_GET_SEALS), rc;
	enum kvb_gkvfd kind;

	*page = PAGE;
	if (seals >= 0) {
		if (wants_vram(q))
			return kvb_fail(err, EINVAL, "%s: memory mode %#x wants it in VRAM, it is in a memfd",
					q->what, q->mode);
		m->at.place = GKVDRV_HOST;
		rc = check_memfd(q, seals, err);
		return rc ? rc : page_of(q, page, err);
	}
	kind = kvb_gkvfd_kind(q->fd);
	if (kind == KVB_GKVFD_NOT)
		return kvb_fail(err, EINVAL, "%s: descriptor is not a memfd%s", q->what,
				q->use == KVB_MEM_OWN ? "" : ", nor of /dev/gkv");
	rc = check_gkv(m, q, kind, err);
	if (rc)
		return rc;
	if (nfds >= max_fds)
		return kvb_fail(err, ENOSPC,
				"%s: daemon holds %zu descriptors of /dev/gkv, the limit is %zu (a quarter of RLIMIT_NOFILE)",
				q->what, nfds, max_fds);
	m->fd = fcntl(q->fd, F_DUPFD_CLOEXEC, 0);
	if (m->fd < 0)
		return kvb_fail(err, errno, "%s: %s", q->what, strerror(errno));
	nfds++;
	return 0;
}

static void close_fd(struct kvb_clientmem *m, uid_t uid)
{
	if (m->fd < 0)
		return;
	kvb_close_foreign(m->fd, uid);
	m->fd = -1;
	nfds--;
}

/* ---- Mapping ---- */

static int map_it(struct kvb_clientmem *m, const struct kvb_memreq *q, uint64_t page,
		  struct kvb_err *err)
{
	uint64_t span = (q->len + page - 1) & ~(page - 1);
	uint64_t slack = 2 * PAGE + (page > PAGE ? page : 0);
	struct guard *g;
	char *map, *at;
	int rc;

	if (nmaps == max_maps)
		return kvb_fail(err, ENOSPC,
				"%s: daemon has %zu mappings of client memory, the limit is %zu (vm.max_map_count)",
				q->what, nmaps, max_maps);
	g = guard_get();
	if (!g)
		return kvb_fail(err, ENOMEM, "%s: out of memory", q->what);
	/* An inaccessible page on either side turns an overrun into a fault. */
	map = mmap(NULL, span + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		   -1, 0);
	if (map == MAP_FAILED) {
		unused[nunused++] = g;
		return kvb_fail(err, ENOMEM, "%s: cannot reserve %llu bytes of address space: %s",
				q->what, (unsigned long long)span, strerror(errno));
	}
	at = (char *)(((uintptr_t)map + PAGE + page - 1) & ~(uintptr_t)(page - 1));
	atomic_store(q->dead, false);
	atomic_store(&g->dead, q->dead);
	atomic_store_explicit(&g->end, (uintptr_t)at + span, memory_order_relaxed);
	atomic_store_explicit(&g->start, (uintptr_t)at, memory_order_release);
	if (mmap(at, span, q->write ? PROT_READ | PROT_WRITE : PROT_READ,
		 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, q->fd, (off_t)q->offset) == MAP_FAILED) {
		rc = kvb_fail(err, errno, "%s: cannot map %llu bytes at offset %#llx: %s", q->what,
			      (unsigned long long)span, (unsigned long long)q->offset,
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
	m->dead = q->dead;
	return 0;
}

int kvb_clientmem_map(struct kvb_clientmem *m, const struct kvb_memreq *q, struct kvb_err *err)
{
	uint64_t page;
	int rc;

	*m = (struct kvb_clientmem){ .fd = -1 };
	rc = check_fd(m, q, &page, err);
	if (!rc)
		rc = map_it(m, q, page, err);
	/* The client's own descriptor stays: closing the copy ends nothing. */
	if (rc && m->fd >= 0) {
		close(m->fd);
		m->fd = -1;
		nfds--;
	}
	return rc;
}

void kvb_clientmem_gone(struct kvb_clientmem *m)
{
	if (m->addr && replace((uintptr_t)m->addr, (uintptr_t)m->addr + m->len, m->dead))
		kvb_log(KVB_LOG_ERR, "replacing revoked memory: %s", strerror(errno));
	m->at.place = GKVDRV_GONE;
}

void kvb_clientmem_unmap(struct kvb_clientmem *m, uid_t uid)
{
	struct guard *g = m->guard;

	if (!m->addr)
		return;
	munmap(m->map, m->map_len);
	atomic_store(&g->start, 0);
	unused[nunused++] = g;
	nmaps--;
	m->addr = NULL;
	close_fd(m, uid);
}
