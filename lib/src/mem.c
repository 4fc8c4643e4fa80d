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

void gkvi_mem_release(struct gkv_mem *m)
{
	if (!m->borrowed) {
		if (m->resv)
			munmap(m->resv, m->resv_len);
		if (m->fd >= 0)
			close(m->fd);
	}
	free(m);
}

struct gkv_mem *gkvi_mem_new(struct gkv *g)
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
int gkvi_mem_map(struct gkv_mem *m, size_t len)
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
	if (len >= HUGE_SIZE && !m->vram)
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
		.vram = m->vram,
	};
	int ret;

	ret = m->vram ? gkvi_need_vram(g) : 0;
	if (ret)
		return ret;
	pthread_mutex_lock(&g->mem_lock);
	ret = gkvi_table_reserve(&g->table);
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
	ret = lookup ? gkvi_table_reserve(&g->table) : 0;
	if (!ret) {
		list_add_tail(&m->node, &g->mems);
		if (lookup)
			gkvi_table_insert(&g->table, &e);
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
	gkvi_table_remove(&g->table, m->id);
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
	struct gkv_mem *m = gkvi_mem_new(g);

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
		gkvi_mem_release(m);
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
	gkvi_mem_release(m);
}

void gkvi_mem_free_all(struct gkv *g)
{
	while (g->mems.next != &g->mems) {
		struct gkv_mem *m = container_of(g->mems.next, struct gkv_mem, node);

		list_del(&m->node);
		gkvi_mem_release(m);
	}
	for (uint32_t i = 0; i < g->table.n_old; i++)
		free(g->table.old[i]);
	free(g->table.ents);
}

/* ---- Public ---- */

int gkvi_mem_check(const struct gkv *g, struct gkv_mem **mem, size_t len)
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

int gkvi_mem_finish(struct gkv *g, struct gkv_mem *m, struct gkv_mem **mem)
{
	int ret;

	pthread_mutex_lock(&g->lock);
	ret = mem_publish(g, m, true);
	pthread_mutex_unlock(&g->lock);
	if (ret)
		gkvi_mem_release(m);
	else
		*mem = m;
	return ret;
}

int gkv_mem_alloc(struct gkv *g, size_t len, struct gkv_mem **mem)
{
	size_t page = gkvi_page_size();
	struct gkv_mem *m;
	int ret;

	ret = gkvi_mem_check(g, mem, len);
	if (ret)
		return ret;
	if (len > SIZE_MAX / 2)
		return gkvi_err(-ENOMEM, "%zu bytes do not fit the address space", len);
	len = (len + page - 1) & ~(page - 1);
	m = gkvi_mem_new(g);
	if (!m)
		return -ENOMEM;
	m->fd = gkvi_memfd("gkv-mem", len);
	ret = m->fd < 0 ? m->fd : gkvi_mem_map(m, len);
	if (ret) {
		gkvi_mem_release(m);
		return ret;
	}
	m->iova = (uintptr_t)m->addr;
	return gkvi_mem_finish(g, m, mem);
}

/* Is @fd, which @m has a copy of, a region of /dev/gkv? What else it may be is the daemon's. */
static int look_at_fd(struct gkv_mem *m, int fd, size_t len)
{
	struct gkvdrv_report r;

	if (gkvi_drv_report(m->fd, 0, &r))
		return 0;
	if (r.mode || r.place == GKVDRV_HOST)
		return gkvi_err(-EINVAL, "descriptor %d is a queue pair of /dev/gkv, not a region",
				fd);
	if (r.place == GKVDRV_GONE)
		return gkvi_err(-ENODEV, "descriptor %d: the region is revoked", fd);
	if (m->offset > r.len || len > r.len - m->offset)
		return gkvi_err(-EINVAL, "0x%zx bytes at offset 0x%llx are not within the region of "
					 "0x%llx bytes", len, (unsigned long long)m->offset,
				(unsigned long long)r.len);
	m->vram = true;
	return 0;
}

int gkv_mem_register(struct gkv *g, int fd, uint64_t offset, size_t len, uint64_t iova,
		     struct gkv_mem **mem)
{
	size_t page = gkvi_page_size();
	struct gkv_mem *m;
	int ret;

	ret = gkvi_mem_check(g, mem, len);
	if (ret)
		return ret;
	if ((offset | len | iova) & (page - 1))
		return gkvi_err(-EINVAL, "offset 0x%llx, length 0x%zx and IOVA 0x%llx must be "
					 "multiples of the page size of 0x%zx bytes",
				(unsigned long long)offset, len, (unsigned long long)iova, page);
	if (offset > INT64_MAX || iova + len < iova)
		return gkvi_err(-EINVAL, "offset 0x%llx or IOVA 0x%llx with length 0x%zx wraps",
				(unsigned long long)offset, (unsigned long long)iova, len);
	m = gkvi_mem_new(g);
	if (!m)
		return -ENOMEM;
	m->offset = offset;
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ret = m->fd < 0 ? gkvi_err(-errno, "descriptor %d: %s", fd, strerror(errno)) :
			  look_at_fd(m, fd, len);
	if (!ret)
		ret = gkvi_mem_map(m, len);
	if (ret) {
		gkvi_mem_release(m);
		return ret;
	}
	m->iova = iova ? iova : (uintptr_t)m->addr;
	return gkvi_mem_finish(g, m, mem);
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
				       "that timed out or were stopped and may still be written",
			       m->addr, m->len, held);
	else
		ret = mem_unregister(g, m);
	if (!ret)
		mem_unlink(g, m);
	pthread_mutex_unlock(&g->lock);
	if (!ret)
		gkvi_mem_release(m);
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
