/* SPDX-License-Identifier: MIT */
/* Memory of GPUs: regions of /dev/gkv, allocated, imported, and where memory is. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "provider.h"

/* Does the daemon take memory of /dev/gkv? Caller holds g->lock. */
int gkvi_need_vram(const struct gkv *g)
{
	if (le64toh(g->hello.features) & GKV_FEATURE_VRAM)
		return 0;
	return gkvi_err(-EOPNOTSUPP, "kvbridged does not take memory of /dev/gkv: it was built "
				     "before that, or runs without the module");
}

static int need_vram(struct gkv *g)
{
	int ret;

	pthread_mutex_lock(&g->lock);
	ret = gkvi_need_vram(g);
	pthread_mutex_unlock(&g->lock);
	return ret;
}

/* Map and register the region @m->fd, @len bytes long. Owns @m. */
static int region_finish(struct gkv_mem *m, size_t len, uint64_t iova, struct gkv_mem **mem)
{
	int ret = gkvi_mem_map(m, len);

	if (ret) {
		gkvi_mem_release(m);
		return ret;
	}
	m->iova = iova ? iova : (uintptr_t)m->addr;
	return gkvi_mem_finish(m->g, m, mem);
}

/* A gkv_mem for a region that is to be made, and the device to make it with. */
static int region_new(struct gkv *g, uint64_t caps, struct gkv_mem **m, int *drv)
{
	int ret = need_vram(g);

	if (ret)
		return ret;
	*drv = gkvi_drv_open(caps);
	if (*drv < 0)
		return *drv;
	*m = gkvi_mem_new(g);
	if (!*m) {
		close(*drv);
		return -ENOMEM;
	}
	(*m)->vram = true;
	return 0;
}

static int alloc_from(int drv, uint32_t id, void *arg, uint32_t *reason)
{
	struct gkvdrv_alloc *a = arg;
	uint64_t len = a->len;
	int ret;

	memset(a, 0, sizeof(*a));
	a->provider = id;
	a->len = len;
	ret = gkvi_drv_call(drv, GKVDRV_ALLOC, a, sizeof(*a), "cannot allocate GPU memory");
	*reason = a->head.reason;
	return ret;
}

int gkv_mem_alloc_vram(struct gkv *g, uint32_t provider, size_t len, struct gkv_mem **mem)
{
	size_t page = gkvi_page_size();
	struct gkvdrv_alloc a = { 0 };
	struct gkv_mem *m;
	int drv, ret;

	ret = gkvi_mem_check(g, mem, len);
	if (ret)
		return ret;
	if (len > SIZE_MAX / 2)
		return gkvi_err(-ENOMEM, "%zu bytes do not fit the address space", len);
	ret = region_new(g, GKVDRV_CAP_VRAM, &m, &drv);
	if (ret)
		return ret;
	a.len = (len + page - 1) & ~(page - 1);
	len = a.len;
	ret = gkvi_each_provider(drv, provider, false, alloc_from, &a);
	close(drv);
	if (ret) {
		gkvi_mem_release(m);
		return ret;
	}
	m->fd = a.fd;
	return region_finish(m, len, 0, mem);
}

static int import_from(int drv, uint32_t id, void *arg, uint32_t *reason)
{
	struct gkvdrv_import *a = arg, in = *a;
	int ret;

	memset(a, 0, sizeof(*a));
	a->provider = id;
	a->dmabuf = in.dmabuf;
	a->offset = in.offset;
	a->len = in.len;
	ret = gkvi_drv_call(drv, GKVDRV_IMPORT, a, sizeof(*a), "cannot import the dma-buf");
	*reason = a->head.reason;
	return ret;
}

int gkv_mem_import(struct gkv *g, int dmabuf, uint64_t offset, size_t len, uint32_t provider,
		   uint64_t iova, struct gkv_mem **mem)
{
	struct gkvdrv_import a = { .dmabuf = dmabuf, .offset = offset, .len = len };
	size_t page = gkvi_page_size();
	struct gkvdrv_report r;
	struct gkv_mem *m;
	int drv, ret;

	/* Its length is the module's to find out. */
	ret = gkvi_mem_check(g, mem, len ? len : page);
	if (ret)
		return ret;
	if (iova & (page - 1))
		return gkvi_err(-EINVAL, "IOVA 0x%llx must be a multiple of the page size of 0x%zx "
					 "bytes", (unsigned long long)iova, page);
	ret = region_new(g, GKVDRV_CAP_VRAM | GKVDRV_CAP_IMPORT, &m, &drv);
	if (ret)
		return ret;
	ret = gkvi_each_provider(drv, provider, true, import_from, &a);
	close(drv);
	if (!ret) {
		m->fd = a.fd;
		ret = gkvi_drv_report(m->fd, 0, &r);
	}
	if (!ret && r.len > SIZE_MAX / 2)
		ret = gkvi_err(-ENOMEM, "%llu bytes do not fit the address space",
			       (unsigned long long)r.len);
	if (!ret && iova + r.len < iova)
		ret = gkvi_err(-EINVAL, "IOVA 0x%llx with length 0x%llx wraps",
			       (unsigned long long)iova, (unsigned long long)r.len);
	if (ret) {
		gkvi_mem_release(m);
		return ret;
	}
	return region_finish(m, r.len, iova, mem);
}

/* ---- Where it is ---- */

_Static_assert(GKV_PLACE_HOST == GKVDRV_HOST && GKV_PLACE_VRAM == GKVDRV_VRAM &&
	       GKV_PLACE_GONE == GKVDRV_GONE, "places are the module's");
_Static_assert(GKV_PART_SQ == GKVDRV_SQ && GKV_PART_CQ == GKVDRV_CQ && GKV_PART_DB == GKVDRV_DB,
	       "parts are the module's");

static int place_put(struct gkv_place *place, const struct gkvdrv_report *r)
{
	struct gkv_place p = { 0 };

	p.size = place->size;
	p.where = r->place;
	p.provider = r->provider;
	p.domain = r->domain;
	p.bdf = r->bdf;
	p.bar = r->bar;
	memcpy(place, &p, place->size < sizeof(p) ? place->size : sizeof(p));
	return 0;
}

static int place_of(int fd, uint32_t part, struct gkv_place *place)
{
	struct gkvdrv_report r = { .place = GKVDRV_HOST };
	int ret = 0;

	if (!place || place->size < sizeof(uint32_t))
		return gkvi_err(-EINVAL, "struct gkv_place: size is not set");
	/* What is not the module's is a memfd. */
	if (fd >= 0)
		ret = gkvi_drv_report(fd, part, &r);
	return ret ? ret : place_put(place, &r);
}

int gkv_mem_place(const struct gkv_mem *m, struct gkv_place *place)
{
	return place_of(m->vram ? m->fd : -1, 0, place);
}

int gkv_mem_fd(const struct gkv_mem *m)
{
	return m->fd;
}

int gkv_qp_place(const struct gkv_qp *qp, uint32_t part, struct gkv_place *place)
{
	if (part >= GKVDRV_PARTS)
		return gkvi_err(-EINVAL, "part %u of a queue pair, there are %u", part,
				GKVDRV_PARTS);
	return place_of(qp->vram[part].map ? qp->drv_fd : -1, part, place);
}
