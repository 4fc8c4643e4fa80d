/* SPDX-License-Identifier: MIT */
#include "fakedrv.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
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
};

struct fakedrv fakedrv;
static struct obj objs[FAKEDRV_OBJS];
static ino_t device;
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
	}
	fakedrv.qp = *a;
	return 0;
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
	return 0;
}

static int alloc(struct gkvdrv_alloc *a)
{
	int ret = a->len % PAGE ? -EINVAL : ask(&a->head, a->provider, true);

	if (!ret)
		a->fd = region(a->len, a->provider);
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
	MUST(!setenv("GKV_DEVICE", fakedrv.path, 1));
}

void fakedrv_fini(void)
{
	for (int i = 0; i < FAKEDRV_OBJS; i++)
		if (objs[i].ino)
			close(objs[i].fd);
	memset(objs, 0, sizeof(objs));
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
	o->gone = true;
	MUST(!ftruncate(o->fd, 0));
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
