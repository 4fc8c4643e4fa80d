/* SPDX-License-Identifier: MIT */
/* Opening members: files and block devices, the lock, and whether direct I/O works. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/fs.h>

#include "core/clock.h"
#include "stores/local/local.h"

#define LOCK_POLL_NS	20000000ull
#define LOCK_LOG_NS	5000000000ull

static int io_whole(const struct loc_file *f, void *buf, size_t len, uint64_t off, bool write)
{
	while (len) {
		ssize_t n = write ? pwrite(f->fd, buf, len, off) : pread(f->fd, buf, len, off);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		buf = (char *)buf + n;
		len -= n;
		off += n;
	}
	return 0;
}

int loc_pread(const struct loc_file *f, void *buf, size_t len, uint64_t off)
{
	return io_whole(f, buf, len, off, false);
}

int loc_pwrite(const struct loc_file *f, const void *buf, size_t len, uint64_t off)
{
	return io_whole(f, (void *)buf, len, off, true);
}

int loc_sync_all(struct loc_store *ls)
{
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		if (fdatasync(ls->file[i].fd))
			return -errno;
	}
	return 0;
}

int loc_probe_ring(struct kvb_err *err)
{
	static const struct {
		int op;
		const char *name;
	} need[] = {
		{ IORING_OP_READ, "READ" },   { IORING_OP_WRITE, "WRITE" },
		{ IORING_OP_READV, "READV" }, { IORING_OP_FSYNC, "FSYNC" },
	};
	struct io_uring_probe *p = io_uring_get_probe();
	int ret = 0;

	if (!p)
		return kvb_fail(err, ENOSYS, "this kernel offers no io_uring to this process");
	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		if (!io_uring_opcode_supported(p, need[i].op)) {
			ret = kvb_fail(err, EOPNOTSUPP, "io_uring of this kernel lacks %s",
				       need[i].name);
			break;
		}
	}
	io_uring_free_probe(p);
	return ret;
}

/*
 * A daemon that died may still have I/O in flight, which keeps its open file description
 * and so its lock: the lock is free when the last of it has landed.
 */
static int lock_wait(struct loc_store *ls, struct loc_file *f, struct kvb_err *err)
{
	uint64_t start = kvb_clock_ns(), said = 0, now;
	struct timespec nap = { .tv_nsec = LOCK_POLL_NS };

	while (flock(f->fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return kvb_fail(err, errno, "%s: cannot lock: %s", f->path, strerror(errno));
		now = kvb_clock_ns();
		if (now - start >= ls->lock_wait_ns)
			return kvb_fail(err, EBUSY, "%s: locked by another process for %llu s",
					f->path, (unsigned long long)((now - start) / 1000000000));
		if (!said || now - said >= LOCK_LOG_NS) {
			kvb_log(KVB_LOG_INFO, "local: %s: waiting for the lock: another daemon, or "
				"I/O of one that died", f->path);
			said = now;
		}
		nanosleep(&nap, NULL);
	}
	if (said)
		kvb_log(KVB_LOG_INFO, "local: %s: locked", f->path);
	return 0;
}

/* Members open in this process: waiting for our own lock would never end. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_id {
	uint64_t dev, ino;
	struct open_id *next;
} *open_ids;

static int claim(struct loc_file *f, struct kvb_err *err)
{
	struct open_id *id = malloc(sizeof(*id)), *p;

	if (!id)
		return kvb_fail(err, ENOMEM, "out of memory");
	id->dev = f->dev;
	id->ino = f->ino;
	pthread_mutex_lock(&open_lock);
	for (p = open_ids; p; p = p->next) {
		if (p->dev == id->dev && p->ino == id->ino)
			break;
	}
	if (!p) {
		id->next = open_ids;
		open_ids = id;
	}
	pthread_mutex_unlock(&open_lock);
	if (!p)
		return 0;
	free(id);
	f->ino = 0;
	return kvb_fail(err, EBUSY, "%s: already in use by this daemon", f->path);
}

static void unclaim(struct loc_file *f)
{
	pthread_mutex_lock(&open_lock);
	for (struct open_id **pp = &open_ids; *pp; pp = &(*pp)->next) {
		struct open_id *id = *pp;

		if (id->dev != f->dev || id->ino != f->ino)
			continue;
		*pp = id->next;
		free(id);
		break;
	}
	pthread_mutex_unlock(&open_lock);
}

/* Does a read of one sector into memory aligned to one work? */
static bool sector_reads(const struct loc_file *f)
{
	void *buf;
	bool ok;

	if (posix_memalign(&buf, LOC_BLK, LOC_BLK))
		return false;
	ok = pread(f->fd, (char *)buf + 512, 512, 512) == 512;
	free(buf);
	return ok;
}

/* What direct I/O to this file asks of memory and offsets. */
static int alignment(struct loc_file *f, struct kvb_err *err)
{
	uint32_t mem = 0, off = 0;
#ifdef STATX_DIOALIGN
	struct statx sx;

	if (!f->blkdev && !statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) &&
	    (sx.stx_mask & STATX_DIOALIGN)) {
		if (!sx.stx_dio_offset_align)
			return kvb_fail(err, EINVAL, "%s: this file system has no direct I/O "
					"(local.buffered = on goes through the page cache)", f->path);
		mem = sx.stx_dio_mem_align;
		off = sx.stx_dio_offset_align;
	}
#endif
	/* Where the file system does not say, a trial does. */
	if (!f->blkdev && !off)
		mem = off = sector_reads(f) ? 512 : LOC_BLK;
	if (!f->blkdev) {
		f->lbs = off;
		f->mem_mask = mem - 1;
	}
	if (f->lbs > LOC_BLK || f->mem_mask >= LOC_BLK || (f->lbs & (f->lbs - 1)))
		return kvb_fail(err, EINVAL, "%s: alignment %u of offsets, %u of memory; at most %u",
				f->path, f->lbs, f->mem_mask + 1, LOC_BLK);
	if (f->lbs < 512)
		f->lbs = 512;
	return 0;
}

/* Some file systems take the flag and refuse, or mishandle, the I/O: try one. */
static int probe_direct(struct loc_file *f, struct kvb_err *err)
{
	void *buf;
	ssize_t n;

	if (posix_memalign(&buf, LOC_BLK, LOC_BLK))
		return kvb_fail(err, ENOMEM, "out of memory");
	n = pread(f->fd, buf, LOC_BLK, 0);
	free(buf);
	if (n == LOC_BLK)
		return 0;
	return kvb_fail(err, n < 0 ? errno : EIO, "%s: direct read failed: %s "
			"(local.buffered = on goes through the page cache)", f->path,
			n < 0 ? strerror(errno) : "short");
}

static int grow(struct loc_store *ls, struct loc_file *f, uint64_t have, struct kvb_err *err)
{
	if (!ls->size || have >= ls->size)
		return 0;
	if (!fallocate(f->fd, 0, 0, ls->size))
		return 0;
	if (errno == EOPNOTSUPP && !ftruncate(f->fd, ls->size)) {
		kvb_log(KVB_LOG_WARN, "local: %s: this file system cannot reserve space; it may run "
			"out later", f->path);
		return 0;
	}
	return kvb_fail(err, errno, "%s: cannot grow to %llu bytes: %s", f->path,
			(unsigned long long)ls->size, strerror(errno));
}

static int open_one(struct loc_store *ls, struct loc_file *f, struct kvb_err *err)
{
	int flags = O_RDWR | O_CLOEXEC | (ls->buffered ? 0 : O_DIRECT);
	struct stat sb;
	int ret;

	if (!stat(f->path, &sb) && S_ISBLK(sb.st_mode))
		flags |= O_EXCL;	/* refuses what is mounted or otherwise claimed */
	else
		flags |= ls->size ? O_CREAT : 0;
	f->fd = open(f->path, flags, 0600);
	if (f->fd < 0 && errno == EINVAL && !ls->buffered)
		return kvb_fail(err, EINVAL, "%s: direct I/O refused (local.buffered = on goes "
				"through the page cache)", f->path);
	if (f->fd < 0 && errno == EBUSY)
		return kvb_fail(err, EBUSY, "%s: in use (mounted, swap, RAID or another opener)",
				f->path);
	if (f->fd < 0)
		return kvb_fail(err, errno, "%s: %s%s", f->path, strerror(errno),
				errno == ENOENT ? " (local.size creates it)" : "");
	if (fstat(f->fd, &sb))
		return kvb_fail(err, errno, "%s: %s", f->path, strerror(errno));
	f->blkdev = S_ISBLK(sb.st_mode);
	if (!f->blkdev && !S_ISREG(sb.st_mode))
		return kvb_fail(err, EINVAL, "%s: neither a regular file nor a block device", f->path);
	f->dev = f->blkdev ? UINT64_MAX : sb.st_dev;
	f->ino = f->blkdev ? sb.st_rdev : sb.st_ino;
	ret = claim(f, err);
	if (ret)
		return ret;
	ret = lock_wait(ls, f, err);
	if (ret)
		return ret;
	f->direct = !ls->buffered;
	f->vcache = true;
	if (f->blkdev) {
		ret = loc_blkdev_vet(f, err);
	} else if (fstat(f->fd, &sb)) {		/* again: now nobody else changes it */
		ret = kvb_fail(err, errno, "%s: %s", f->path, strerror(errno));
	} else {
		f->size = sb.st_size;
		ret = grow(ls, f, f->size, err);
		if (!ret && f->size < ls->size)
			f->size = ls->size;
	}
	if (ret)
		return ret;
	f->size &= ~(uint64_t)(LOC_BLK - 1);
	if (f->size < 16 * LOC_BLK)
		return kvb_fail(err, EINVAL, "%s: %llu bytes are too few (local.size sets them)", f->path,
				(unsigned long long)f->size);
	if (ls->buffered) {
		f->lbs = f->blkdev ? f->lbs : 512;
		f->mem_mask = 0;
		return 0;
	}
	ret = alignment(f, err);
	return ret ? ret : probe_direct(f, err);
}

/* What suits all of them; none if one of them is not direct. */
static void common_alignment(struct loc_store *ls)
{
	ls->block = 0;
	ls->mem_mask = 0;
	for (unsigned int i = 0; i < ls->nfiles && ls->file[i].direct; i++) {
		const struct loc_file *f = &ls->file[i];

		if (f->lbs > ls->block)
			ls->block = f->lbs;
		ls->mem_mask |= f->mem_mask;
	}
}

int loc_dev_open(struct loc_store *ls, const char *paths, struct kvb_err *err)
{
	char *copy = strdup(paths), *save = NULL, *p;
	int ret = 0;

	if (!copy)
		return kvb_fail(err, ENOMEM, "out of memory");
	for (p = strtok_r(copy, " \t,", &save); p && !ret; p = strtok_r(NULL, " \t,", &save)) {
		struct loc_file *f = &ls->file[ls->nfiles];

		if (ls->nfiles == LOC_MAX_FILES) {
			ret = kvb_fail(err, E2BIG, "local.path: at most %u members", LOC_MAX_FILES);
			break;
		}
		f->fd = -1;
		f->path = strdup(p);
		ls->nfiles++;
		ret = f->path ? open_one(ls, f, err) : kvb_fail(err, ENOMEM, "out of memory");
		ls->vcache |= f->vcache;
	}
	if (!ret)
		common_alignment(ls);
	free(copy);
	if (!ret && !ls->nfiles)
		ret = kvb_fail(err, EINVAL, "local.path: no file or device given");
	if (!ret && ls->buffered)
		kvb_log(KVB_LOG_WARN, "local: %s: buffered I/O: through the page cache, counted",
			ls->file[0].path);
	if (ret)
		loc_dev_close(ls);
	return ret;
}

void loc_dev_close(struct loc_store *ls)
{
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		struct loc_file *f = &ls->file[i];

		if (f->fd >= 0)
			close(f->fd);
		if (f->ino)
			unclaim(f);
		free(f->path);
		memset(f, 0, sizeof(*f));
		f->fd = -1;
	}
	ls->nfiles = 0;
}
