/* SPDX-License-Identifier: MIT */
#include "fakedrv.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { perror(#x); abort(); } } while (0)
#define PAGE 4096u

struct obj {
	ino_t ino;
	int fd;				/* a copy */
	bool is_qp, gone;
	uint32_t mode, provider[GKVDRV_PARTS];
	uint64_t len[GKVDRV_PARTS];
	/* A queue pair's doorbells in a region: from what page on, in its descriptor and there. */
	struct obj *region;
	uint64_t db_page, region_page;
};

/* A mapping of such doorbells. */
struct view {
	void *at;			/* NULL: unused */
	size_t len;
	struct obj *qp;
};

struct fakedrv fakedrv;
static struct obj objs[FAKEDRV_OBJS];
static struct view views[2 * FAKEDRV_OBJS];
static ino_t device;
static atomic_bool started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ino_t inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static struct obj *find(int fd)
{
	ino_t ino = inode(fd);

	for (int i = 0; i < FAKEDRV_OBJS; i++)
		if (ino && objs[i].ino == ino)
			return &objs[i];
	return NULL;
}

static struct obj *obj_new(uint64_t len, int *fd)
{
	struct obj *o = NULL;

	for (int i = 0; i < FAKEDRV_OBJS && !o; i++)
		if (!objs[i].ino)
			o = &objs[i];
	MUST(o);
	memset(o, 0, sizeof(*o));
	*fd = memfd_create("fake-gkv", MFD_CLOEXEC);
	MUST(*fd >= 0 && !ftruncate(*fd, (off_t)len));
	o->fd = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
	MUST(o->fd >= 0);
	o->ino = inode(*fd);
	return o;
}

static int refuse(struct gkvdrv_head *h, int err, uint32_t why, const char *text)
{
	h->reason = why;
	if (why && h->text && h->text_len)
		snprintf((char *)(uintptr_t)h->text, h->text_len, "%s", text);
	return -err;
}

static struct fakedrv_provider *provider(uint32_t id)
{
	for (int i = 0; i < FAKEDRV_PROVIDERS; i++)
		if (fakedrv.providers[i].id == id)
			return &fakedrv.providers[i];
	return NULL;
}

/* Whether provider @id serves, and refuses nothing. */
static int ask(struct gkvdrv_head *h, uint32_t id, bool allocate)
{
	struct fakedrv_provider *p = id ? provider(id) : NULL;

	if (!p)
		return refuse(h, ENOENT, GKVDRV_WHY_PROVIDER, "no such provider");
	p->tried++;
	if (allocate && p->kind != GKVDRV_CARVEOUT)
		return refuse(h, EINVAL, GKVDRV_WHY_PROVIDER, "belongs to another driver");
	return p->err ? refuse(h, p->err, p->why, p->text) : 0;
}

static int info(struct gkvdrv_info *a)
{
	uint32_t abi = a->abi;

	a->abi = fakedrv.abi;
	a->page_size = PAGE;
	a->caps = fakedrv.caps;
	return abi == fakedrv.abi ? 0 : refuse(&a->head, EPROTO, GKVDRV_WHY_ABI, "another version");
}

static int provider_info(struct gkvdrv_provider *a)
{
	struct fakedrv_provider *p = NULL;

	for (int i = 0; i < FAKEDRV_PROVIDERS; i++) {
		struct fakedrv_provider *q = &fakedrv.providers[i];

		if (q->id && q->id >= a->id && (!p || q->id < p->id))
			p = q;
	}
	if (!p)
		return -ENOENT;
	a->id = p->id;
	a->kind = p->kind;
	return 0;
}

static int region(uint64_t len, uint32_t id)
{
	struct obj *o;
	int fd;

	o = obj_new(len, &fd);
	o->provider[0] = id;
	o->len[0] = len;
	return fd;
}

static int import(struct gkvdrv_import *a)
{
	int ret;

	fakedrv.import = *a;
	if (fcntl(a->dmabuf, F_GETFD) < 0)
		return -EBADF;
	ret = ask(&a->head, a->provider, false);
	if (ret)
		return ret;
	a->fd = region(a->len ? a->len : fakedrv.dmabuf_len - a->offset, a->provider);
	return 0;
}

static uint64_t part_len(const struct gkvdrv_qp *a, unsigned int i)
{
	if (i == GKVDRV_SQ)
		return a->depth * sizeof(struct gkv_sqe);
	return i == GKVDRV_CQ ? a->depth * sizeof(struct gkv_cqe) : 2ull * (4u << a->dstrd);
}

static int qp_create(struct gkvdrv_qp *a)
{
	uint64_t at = 0;
	struct obj *o;
	int ret = 0;

	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		struct gkvdrv_part *p = &a->parts[i];
		struct obj *in = p->region >= 0 ? find(p->region) : NULL;
		uint64_t in_page = in ? p->offset % PAGE : 0;
		bool vram = a->mode & (1u << i);

		if ((!vram && (p->region != -1 || p->provider || p->offset)) ||
		    (p->region >= 0 && (!in || p->provider || p->offset % (i == GKVDRV_DB ? 8 : PAGE))))
			return refuse(&a->head, EINVAL, GKVDRV_WHY_MODE, "contradicts the mode");
		if (vram && !in)
			ret = ask(&a->head, p->provider, true);
		if (ret)
			return ret;
		if (in && fakedrv.overlaps) {
			fakedrv.overlaps--;
			return refuse(&a->head, EBUSY, GKVDRV_WHY_OVERLAP, "in a queue pair");
		}
		p->len = part_len(a, i);
		p->map_offset = at;
		at += (in_page + p->len + PAGE - 1) / PAGE * PAGE;
	}
	o = obj_new(at, &a->fd);
	o->is_qp = true;
	o->mode = a->mode;
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		struct obj *in = a->parts[i].region >= 0 ? find(a->parts[i].region) : NULL;

		o->provider[i] = in ? in->provider[0] : a->parts[i].provider;
		o->len[i] = a->parts[i].len;
		if (in && i == GKVDRV_DB) {
			char zero[PAGE] = { 0 };

			MUST(a->parts[i].len <= PAGE);
			MUST(pwrite(in->fd, zero, a->parts[i].len, (off_t)a->parts[i].offset) ==
			     (ssize_t)a->parts[i].len);
			o->region = in;
			o->db_page = a->parts[i].map_offset / PAGE;
			o->region_page = a->parts[i].offset / PAGE;
		}
	}
	fakedrv.qp = *a;
	return 0;
}

/* That of no other page. */
static uint64_t page_id(const struct obj *o, uint32_t part)
{
	if (part == GKVDRV_DB && o->region)
		return o->region->ino << 20 | (o->region_page + 1);
	return o->ino << 20 | (0x80000 + part);
}

static int report(struct obj *o, struct gkvdrv_report *a)
{
	if (a->part >= (o->is_qp ? GKVDRV_PARTS : 1))
		return refuse(&a->head, EINVAL, GKVDRV_WHY_SIZE, "no such part");
	a->len = o->len[a->part];
	a->nr_pages = (a->len + PAGE - 1) / PAGE;
	a->mode = o->mode;
	a->place = o->gone ? GKVDRV_GONE : o->provider[a->part] ? GKVDRV_VRAM : GKVDRV_HOST;
	if (a->place != GKVDRV_VRAM)
		return 0;
	a->provider = o->provider[a->part];
	a->domain = 1;
	a->bdf = 0x0300 + a->provider;
	a->bar = 2;
	a->page_id = page_id(o, a->part);
	return 0;
}

static int alloc(struct gkvdrv_alloc *a)
{
	int ret = a->len % PAGE ? -EINVAL : ask(&a->head, a->provider, true);

	if (!ret) {
		a->fd = region(a->len, a->provider);
		fakedrv.regions++;
	}
	return ret;
}

static int on_device(unsigned long cmd, void *arg)
{
	switch (cmd) {
	case GKVDRV_INFO:
		fakedrv.opened++;
		return info(arg);
	case GKVDRV_PROVIDER_INFO:
		return provider_info(arg);
	case GKVDRV_ALLOC:
		return alloc(arg);
	case GKVDRV_IMPORT:
		return import(arg);
	case GKVDRV_QP_CREATE:
		return qp_create(arg);
	}
	return -ENOTTY;
}

int ioctl(int fd, unsigned long cmd, ...)
{
	struct gkvdrv_head *h;
	struct obj *o;
	void *arg;
	va_list ap;
	int ret;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if ((cmd >> 8 & 0xff) != GKVDRV_IOC)
		return (int)syscall(SYS_ioctl, fd, cmd, arg);
	h = arg;
	pthread_mutex_lock(&lock);
	o = find(fd);
	if (h->flags || h->size < sizeof(*h))
		ret = -EINVAL;
	else if (o)
		ret = cmd == GKVDRV_REPORT ? report(o, arg) : -ENOTTY;
	else
		ret = device && inode(fd) == device ? on_device(cmd, arg) : -ENOTTY;
	pthread_mutex_unlock(&lock);
	if (!ret)
		return 0;
	errno = -ret;
	return -1;
}

/* ---- Mappings ---- */

/* ThreadSanitizer calls mmap() and munmap() before it is there itself; later it must know of them. */
#define EARLY __attribute__((no_sanitize("thread")))

static void *(*next_mmap)(void *addr, size_t len, int prot, int flags, int fd, off_t off);
static int (*next_munmap)(void *addr, size_t len);

EARLY static void *map(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	if (next_mmap)
		return next_mmap(addr, len, prot, flags, fd, off);
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

EARLY static int unmap(void *addr, size_t len)
{
	return next_munmap ? next_munmap(addr, len) : (int)syscall(SYS_munmap, addr, len);
}

static struct view *view_new(void)
{
	for (unsigned int i = 0; i < 2 * FAKEDRV_OBJS; i++)
		if (!views[i].at)
			return &views[i];
	MUST(!"room for a mapping");
	return NULL;
}

EARLY void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	struct obj *o;
	void *p;

	/* Handlers of signals come here as well. */
	if (fd < 0 || !started)
		return map(addr, len, prot, flags, fd, off);
	pthread_mutex_lock(&lock);
	o = find(fd);
	if (o && o->region && !o->gone && (uint64_t)off / PAGE >= o->db_page) {
		off_t to = (off_t)((o->region_page - o->db_page) * PAGE);
		struct view *v = view_new();

		p = map(addr, len, prot, flags, o->region->fd, off + to);
		if (p != MAP_FAILED)
			*v = (struct view){ p, len, o };
	} else {
		p = map(addr, len, prot, flags, fd, off);
	}
	pthread_mutex_unlock(&lock);
	return p;
}

EARLY int munmap(void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr;
	int ret;

	if (!started)
		return unmap(addr, len);
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < 2 * FAKEDRV_OBJS; i++)
		if ((uintptr_t)views[i].at >= start && (uintptr_t)views[i].at < start + len)
			views[i].at = NULL;
	ret = unmap(addr, len);
	pthread_mutex_unlock(&lock);
	return ret;
}

/* ---- For the test ---- */

void fakedrv_init(void)
{
	int fd;

	memset(&fakedrv, 0, sizeof(fakedrv));
	fakedrv.abi = GKVDRV_ABI;
	fakedrv.caps = GKVDRV_CAP_VRAM | GKVDRV_CAP_IMPORT;
	fakedrv.dmabuf_len = 1 << 20;
	strcpy(fakedrv.dir, "/tmp/gkv-fakedrv-XXXXXX");
	MUST(mkdtemp(fakedrv.dir));
	snprintf(fakedrv.path, sizeof(fakedrv.path), "%s/gkv", fakedrv.dir);
	fd = open(fakedrv.path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	MUST(fd >= 0);
	device = inode(fd);
	close(fd);
	next_mmap = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
	next_munmap = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
	MUST(next_mmap && next_munmap);
	started = true;
	MUST(!setenv("GKV_DEVICE", fakedrv.path, 1));
}

void fakedrv_fini(void)
{
	started = false;
	for (int i = 0; i < FAKEDRV_OBJS; i++)
		if (objs[i].ino)
			close(objs[i].fd);
	memset(objs, 0, sizeof(objs));
	memset(views, 0, sizeof(views));
	device = 0;
	unlink(fakedrv.path);
	rmdir(fakedrv.dir);
	unsetenv("GKV_DEVICE");
}

void fakedrv_provider(unsigned int i, uint32_t id, uint32_t kind)
{
	fakedrv.providers[i] = (struct fakedrv_provider){ .id = id, .kind = kind };
}

static void take_away(struct obj *o)
{
	if (o->gone)
		return;
	o->gone = true;
	MUST(!ftruncate(o->fd, 0));
	/* Nothing of the file is there any more. */
	for (unsigned int i = 0; i < 2 * FAKEDRV_OBJS; i++)
		if (views[i].at && views[i].qp == o)
			MUST(map(views[i].at, views[i].len, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_FIXED, o->fd, 0) == views[i].at);
	for (int i = 0; i < FAKEDRV_OBJS; i++)
		if (objs[i].ino && objs[i].region == o)
			take_away(&objs[i]);
}

void fakedrv_revoke(int fd)
{
	pthread_mutex_lock(&lock);
	MUST(find(fd));
	take_away(find(fd));
	pthread_mutex_unlock(&lock);
}

void fakedrv_revoke_all_qps(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < FAKEDRV_OBJS; i++)
		if (objs[i].ino && objs[i].is_qp)
			take_away(&objs[i]);
	pthread_mutex_unlock(&lock);
}

bool fakedrv_is(int fd)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = find(fd);
	pthread_mutex_unlock(&lock);
	return is;
}

bool fakedrv_is_qp(int fd)
{
	struct obj *o;
	bool is;

	pthread_mutex_lock(&lock);
	o = find(fd);
	is = o && o->is_qp;
	pthread_mutex_unlock(&lock);
	return is;
}

int fakedrv_region_of(uint32_t provider, uint64_t len)
{
	int fd;

	pthread_mutex_lock(&lock);
	fd = region(len, provider);
	pthread_mutex_unlock(&lock);
	return fd;
}

int fakedrv_region(uint64_t len)
{
	return fakedrv_region_of(1, len);
}
