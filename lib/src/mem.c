/* SPDX-License-Identifier: MIT */
/* Registered memory, and finding out in which of it a buffer lies. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "impl.h"

#define HUGE_SIZE	(2ul << 20)

/* ---- Address table ---- */

static void entry_store(struct mem_entry *to, const struct mem_entry *from)
{
	store_relaxed(&to->base, from->base);
	store_relaxed(&to->end, from->end);
	store_relaxed(&to->delta, from->delta);
	store_relaxed(&to->id, from->id);
}

static void table_begin(struct mem_table *t)
{
	store_relaxed(&t->seq, t->seq + 1);
	full_barrier();
}

static void table_end(struct mem_table *t)
{
	full_barrier();
	store_relaxed(&t->seq, t->seq + 1);
}

/* Make room for one entry more. Outgrown tables stay: a reader may be in one. */
static int table_reserve(struct mem_table *t)
{
	uint32_t cap = t->cap ? 2 * t->cap : 64;
	struct mem_entry *e;

	if (t->n < t->cap)
		return 0;
	if (t->n_old == sizeof(t->old) / sizeof(t->old[0]))
		return -ENOMEM;
	e = calloc(cap, sizeof(*e));
	if (!e)
		return -ENOMEM;
	if (t->n)
		memcpy(e, t->ents, t->n * sizeof(*e));
	if (t->ents)
		t->old[t->n_old++] = t->ents;
	store_release(&t->ents, e);
	t->cap = cap;
	return 0;
}

static void table_insert(struct mem_table *t, const struct mem_entry *e)
{
	uint32_t i = t->n;

	table_begin(t);
	for (; i && t->ents[i - 1].base > e->base; i--)
		entry_store(&t->ents[i], &t->ents[i - 1]);
	entry_store(&t->ents[i], e);
	store_release(&t->n, t->n + 1);
	table_end(t);
}

static void table_remove(struct mem_table *t, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < t->n && t->ents[i].id != id; i++)
		;
	if (i == t->n)
		return;
	table_begin(t);
	for (; i + 1 < t->n; i++)
		entry_store(&t->ents[i], &t->ents[i + 1]);
	store_relaxed(&t->n, t->n - 1);
	table_end(t);
}

/*
 * Find the memory that holds @addr. *@seq is the table's version that the answer
 * belongs to. Data path; takes no lock.
 */
bool gkvi_lookup(struct gkv *g, uintptr_t addr, struct mem_entry *out, uint32_t *seq)
{
	struct mem_table *t = &g->table;

	for (;;) {
		uint32_t s = load_acquire(&t->seq), lo = 0, hi;
		const struct mem_entry *ents;

		if (s & 1) {
			cpu_relax();
			continue;
		}
		hi = load_acquire(&t->n);
		/* With @n read first, the table is at least that large. */
		ents = load_acquire(&t->ents);
		while (lo < hi) {
			uint32_t mid = (lo + hi) / 2;

			if (load_relaxed(&ents[mid].base) <= addr)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo) {
			out->base = load_relaxed(&ents[lo - 1].base);
			out->end = load_relaxed(&ents[lo - 1].end);
			out->delta = load_relaxed(&ents[lo - 1].delta);
			out->id = load_relaxed(&ents[lo - 1].id);
		}
		full_barrier();
		if (load_relaxed(&t->seq) != s)
			continue;
		*seq = s;
		return lo && addr < out->end;
	}
}

/* ---- Quarantine ---- */

static void quarantine_id(struct gkv *g, uint32_t id, int delta)
{
	struct list_node *n;

	for (n = g->mems.next; n != &g->mems; n = n->next) {
		struct gkv_mem *m = container_of(n, struct gkv_mem, node);

		if (m->id == id) {
			m->quarantined += (uint32_t)delta;
			return;
		}
	}
}

/*
 * A command of slot @idx goes into quarantine (@delta 1) or leaves it (-1): its
 * memory must not be freed in between. Takes mem_lock.
 */
void gkvi_quarantine(struct gkv_qp *qp, uint32_t idx, int delta)
{
	const struct slot *s = &qp->slots[idx];
	struct gkv *g = qp->g;

	if (!s->n_mem)
		return;
	pthread_mutex_lock(&g->mem_lock);
	quarantine_id(g, s->mem, delta);
	if (s->n_mem > 1) {
		const uint32_t *more = &qp->seg_mem[(size_t)idx * qp->max_segs];

		for (uint32_t i = 0; i < qp->max_segs && more[i]; i++)
			quarantine_id(g, more[i], delta);
	}
	pthread_mutex_unlock(&g->mem_lock);
}

/* ---- Registration ---- */

/* Register on @sock, or with the session's daemon if @sock is negative. Under g->lock. */
int gkvi_region_add(struct gkv *g, int sock, const struct gkv_mem *m)
{
	struct gkv_msg_region_add msg;
	struct gkv_msg_reply r;

	gkvi_hdr(&msg.hdr, GKV_MSG_REGION_ADD, sizeof(msg));
	msg.id = htole32(m->id);
	msg.flags = htole32(m->flags);
	msg.iova = htole64(m->iova);
	msg.len = htole64(m->len);
	msg.offset = htole64(m->offset);
	if (sock < 0)
		return gkvi_call(g, &msg.hdr, sizeof(msg), &m->fd, 1, &r, sizeof(r), NULL, 0);
	return gkvi_exchange(g, sock, &msg.hdr, sizeof(msg), &m->fd, 1, &r, sizeof(r), NULL, 0,
			     30 * NSEC_PER_SEC);
}

static void mem_release(struct gkv_mem *m)
{
	if (!m->borrowed) {
		if (m->resv)
			munmap(m->resv, m->resv_len);
		if (m->fd >= 0)
			close(m->fd);
	}
	free(m);
}

static struct gkv_mem *mem_new(struct gkv *g)
{
	struct gkv_mem *m = calloc(1, sizeof(*m));

	if (!m) {
		gkvi_err(-ENOMEM, "out of memory");
		return NULL;
	}
	list_init(&m->node);
	m->g = g;
	m->fd = -1;
	return m;
}

/*
 * Map @len bytes of m->fd between two pages that fault: an overrun must not reach a
 * neighbour. Long ones are aligned for huge pages.
 */
static int mem_map(struct gkv_mem *m, size_t len)
{
	size_t page = gkvi_page_size();
	size_t align = len >= HUGE_SIZE ? HUGE_SIZE : page;
	int prot = PROT_READ | PROT_WRITE;
	uintptr_t at;
	void *p;

	if (len > SIZE_MAX / 2)
		return gkvi_err(-ENOMEM, "%zu bytes do not fit the address space", len);
	m->resv_len = len + align + 2 * page;
	p = mmap(NULL, m->resv_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return gkvi_err(-errno, "cannot reserve %zu bytes of address space: %s",
				m->resv_len, strerror(errno));
	m->resv = p;
	at = ((uintptr_t)p + page + align - 1) & ~(uintptr_t)(align - 1);
	p = mmap((void *)at, len, prot, MAP_SHARED | MAP_FIXED, m->fd, (off_t)m->offset);
	if (p == MAP_FAILED && (errno == EPERM || errno == EACCES)) {
		m->flags |= GKV_REGION_F_RDONLY;
		p = mmap((void *)at, len, PROT_READ, MAP_SHARED | MAP_FIXED, m->fd,
			 (off_t)m->offset);
	}
	if (p == MAP_FAILED)
		return gkvi_err(-errno, "cannot map %zu bytes at offset 0x%llx: %s", len,
				(unsigned long long)m->offset, strerror(errno));
	if (len >= HUGE_SIZE)
		madvise(p, len, MADV_HUGEPAGE);
	m->addr = p;
	m->len = len;
	return 0;
}

/* Have the daemon forget @m. Caller holds g->lock. */
static int mem_unregister(struct gkv *g, const struct gkv_mem *m)
{
	struct gkv_msg_reply r;
	struct gkv_msg_id msg;
	int ret;

	if (g->dead)
		return 0;
	gkvi_hdr(&msg.hdr, GKV_MSG_REGION_DEL, sizeof(msg));
	msg.id = htole32(m->id);
	ret = gkvi_call(g, &msg.hdr, sizeof(msg), NULL, 0, &r, sizeof(r), NULL, 0);
	/* A restarted daemon may have refused to take it over. */
	return ret == -ENOENT || g->dead ? 0 : ret;
}

/* Register @m and make it known. Caller holds g->lock; owns @m still if this fails. */
static int mem_publish(struct gkv *g, struct gkv_mem *m, bool lookup)
{
	struct mem_entry e = {
		.base = (uintptr_t)m->addr,
		.end = (uintptr_t)m->addr + m->len,
		.delta = m->iova - (uintptr_t)m->addr,
	};
	int ret;

	pthread_mutex_lock(&g->mem_lock);
	ret = table_reserve(&g->table);
	pthread_mutex_unlock(&g->mem_lock);
	if (ret)
		return gkvi_err(ret, "out of memory");
	m->id = g->next_region++;
	ret = gkvi_region_add(g, -1, m);
	if (ret)
		return ret;
	e.id = m->id;
	pthread_mutex_lock(&g->mem_lock);
	/* g->lock may have been given up meanwhile, so look again. */
	ret = lookup ? table_reserve(&g->table) : 0;
	if (!ret) {
		list_add_tail(&m->node, &g->mems);
		if (lookup)
			table_insert(&g->table, &e);
	}
	pthread_mutex_unlock(&g->mem_lock);
	if (ret) {
		mem_unregister(g, m);
		return gkvi_err(ret, "out of memory");
	}
	return 0;
}

static void mem_unlink(struct gkv *g, struct gkv_mem *m)
{
	pthread_mutex_lock(&g->mem_lock);
	table_remove(&g->table, m->id);
	list_del(&m->node);
	pthread_mutex_unlock(&g->mem_lock);
}

/*
 * Register a part of a queue pair's memory that commands refer to but that no
 * buffer may lie in. NULL on failure, with *@ret set. Caller holds g->lock.
 */
struct gkv_mem *gkvi_mem_internal(struct gkv *g, int fd, uint64_t offset, size_t len, void *addr,
				  int *ret)
{
	struct gkv_mem *m = mem_new(g);

	if (!m) {
		*ret = -ENOMEM;
		return NULL;
	}
	m->borrowed = true;
	m->fd = fd;
	m->offset = offset;
	m->len = len;
	m->addr = addr;
	m->iova = (uintptr_t)addr;
	m->flags = GKV_REGION_F_RDONLY;
	*ret = mem_publish(g, m, false);
	if (*ret) {
		mem_release(m);
		return NULL;
	}
	return m;
}

/* The reverse. Caller holds g->lock. @m is gone even if the daemon did not answer. */
void gkvi_mem_internal_free(struct gkv *g, struct gkv_mem *m)
{
	if (load_relaxed(&g->up))
		mem_unregister(g, m);
	mem_unlink(g, m);
	mem_release(m);
}

void gkvi_mem_free_all(struct gkv *g)
{
	while (g->mems.next != &g->mems) {
		struct gkv_mem *m = container_of(g->mems.next, struct gkv_mem, node);

		list_del(&m->node);
		mem_release(m);
	}
	for (uint32_t i = 0; i < g->table.n_old; i++)
		free(g->table.old[i]);
	free(g->table.ents);
}

/* ---- Public ---- */

static int mem_check(const struct gkv *g, struct gkv_mem **mem, size_t len)
{
	if (!mem)
		return gkvi_err(-EINVAL, "no place for the memory handle");
	*mem = NULL;
	if (!len)
		return gkvi_err(-EINVAL, "a length of 0 bytes");
	if (g->flags & GKV_CONNECT_CONTROL)
		return gkvi_err(-EINVAL, "a control session (GKV_CONNECT_CONTROL) has no memory");
	return 0;
}

static int mem_finish(struct gkv *g, struct gkv_mem *m, struct gkv_mem **mem)
{
	int ret;

	pthread_mutex_lock(&g->lock);
	ret = mem_publish(g, m, true);
	pthread_mutex_unlock(&g->lock);
	if (ret)
		mem_release(m);
	else
		*mem = m;
	return ret;
}

int gkv_mem_alloc(struct gkv *g, size_t len, struct gkv_mem **mem)
{
	size_t page = gkvi_page_size();
	struct gkv_mem *m;
	int ret;

	ret = mem_check(g, mem, len);
	if (ret)
		return ret;
	if (len > SIZE_MAX / 2)
		return gkvi_err(-ENOMEM, "%zu bytes do not fit the address space", len);
	len = (len + page - 1) & ~(page - 1);
	m = mem_new(g);
	if (!m)
		return -ENOMEM;
	m->fd = gkvi_memfd("gkv-mem", len);
	ret = m->fd < 0 ? m->fd : mem_map(m, len);
	if (ret) {
		mem_release(m);
		return ret;
	}
	m->iova = (uintptr_t)m->addr;
	return mem_finish(g, m, mem);
}

int gkv_mem_register(struct gkv *g, int fd, uint64_t offset, size_t len, uint64_t iova,
		     struct gkv_mem **mem)
{
	size_t page = gkvi_page_size();
	struct gkv_mem *m;
	int ret;

	ret = mem_check(g, mem, len);
	if (ret)
		return ret;
	if ((offset | len | iova) & (page - 1))
		return gkvi_err(-EINVAL, "offset 0x%llx, length 0x%zx and IOVA 0x%llx must be "
					 "multiples of the page size of 0x%zx bytes",
				(unsigned long long)offset, len, (unsigned long long)iova, page);
	if (offset > INT64_MAX || iova + len < iova)
		return gkvi_err(-EINVAL, "offset 0x%llx or IOVA 0x%llx with length 0x%zx wraps",
				(unsigned long long)offset, (unsigned long long)iova, len);
	m = mem_new(g);
	if (!m)
		return -ENOMEM;
	m->offset = offset;
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ret = m->fd < 0 ? gkvi_err(-errno, "descriptor %d: %s", fd, strerror(errno)) :
			  mem_map(m, len);
	if (ret) {
		mem_release(m);
		return ret;
	}
	m->iova = iova ? iova : (uintptr_t)m->addr;
	return mem_finish(g, m, mem);
}

int gkv_mem_free(struct gkv_mem *m)
{
	struct gkv *g;
	uint32_t held;
	int ret;

	if (!m)
		return 0;
	g = m->g;
	pthread_mutex_lock(&g->lock);
	pthread_mutex_lock(&g->mem_lock);
	held = m->quarantined;
	pthread_mutex_unlock(&g->mem_lock);
	if (held)
		ret = gkvi_err(-EBUSY, "memory at %p, 0x%zx bytes, holds buffers of %u commands "
				       "that timed out and may still be written",
			       m->addr, m->len, held);
	else
		ret = mem_unregister(g, m);
	if (!ret)
		mem_unlink(g, m);
	pthread_mutex_unlock(&g->lock);
	if (!ret)
		mem_release(m);
	return ret;
}

void *gkv_mem_addr(const struct gkv_mem *m)
{
	return m->addr;
}

uint64_t gkv_mem_iova(const struct gkv_mem *m)
{
	return m->iova;
}

size_t gkv_mem_len(const struct gkv_mem *m)
{
	return m->len;
}
