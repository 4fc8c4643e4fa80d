/* SPDX-License-Identifier: MIT */
/*
 * Can the disks below the members do DMA to GPU memory? The module knows what the kernel believes.
 * DMA has been seen to "succeed" with wrong data, so a block whose content is known is read into
 * the memory's first page, with something else put there before, and put back after; and from
 * there, for Stores, to a block that is nobody's. Once for each way (ways.c): the memory that a
 * successor gets is in use.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <gkv/gkvdrv.h>

#include "core/bar.h"
#include "stores/local/local.h"

/* A block that is rewritten meanwhile differs without anybody's fault. */
#define TRIES 3

/* The name below /dev of a block device, as the kernel tells it. */
static bool node_name(dev_t dev, char *name, size_t len)
{
	char path[64], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/uevent", major(dev), minor(dev));
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "DEVNAME=", 8))
			continue;
		line[strcspn(line, "\n")] = '\0';
		found = snprintf(name, len, "/dev/%s", line + 8) < (int)len;
	}
	if (f)
		fclose(f);
	return found;
}

/* The block device that a file lies on, or a negative errno with text. */
static int open_disk(const struct loc_file *f, char *name, size_t len, struct kvb_err *err)
{
	struct stat file, node;
	int fd;

	if (fstat(f->fd, &file))
		return kvb_fail(err, errno, "%s: %s", f->path, strerror(errno));
	if (!major(file.st_dev) || !node_name(file.st_dev, name, len))
		return kvb_fail(err, EXDEV, "%s: its file system lies on no single block device", f->path);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return kvb_fail(err, EXDEV, "%s, below %s: %s", name, f->path, strerror(errno));
	if (fstat(fd, &node) || !S_ISBLK(node.st_mode) || node.st_rdev != file.st_dev) {
		close(fd);
		return kvb_fail(err, EXDEV, "%s is not the block device %u:%u below %s", name,
				major(file.st_dev), minor(file.st_dev), f->path);
	}
	return fd;
}

/* What the kernel believes; *@disk: the block device. */
static int ask(const struct loc_file *f, const struct kvb_reach *to, dev_t *disk,
	       struct kvb_err *err)
{
	char text[GKVDRV_TEXT] = "", name[128];
	struct gkvdrv_reach a = {
		.head = { .size = sizeof(a), .text_len = sizeof(text),
			  .text = (uintptr_t)text },
		.blkdev = f->fd,
	};
	struct stat st;
	int rc = 0;

	if (!f->blkdev)
		a.blkdev = open_disk(f, name, sizeof(name), err);
	if (a.blkdev < 0)
		return a.blkdev;
	if (ioctl(to->fd, GKVDRV_REACH, &a))
		rc = kvb_fail(err, errno, "%s: %s", to->what, text[0] ? text : strerror(errno));
	*disk = fstat(a.blkdev, &st) ? 0 : st.st_rdev;
	if (!f->blkdev)
		close(a.blkdev);
	return rc;
}

/* What is put where @want is to arrive: each bit must change. */
static void invert(char *to, const char *want)
{
	for (size_t i = 0; i < LOC_BLK; i++)
		to[i] = ~want[i];
}

/* Read the block at 0 to the memory. 0, -EAGAIN when it is not what was expected, or refused. */
static int transfer(const struct loc_file *f, const struct kvb_reach *to, const char *want,
		    char *got, struct kvb_err *err)
{
	ssize_t n;

	invert(got, want);
	kvb_bar_write(to->addr, got, LOC_BLK);
	kvb_bar_acquire();
	do
		n = pread(f->fd, to->addr, LOC_BLK, 0);
	while (n < 0 && errno == EINTR);
	if (n != LOC_BLK)
		return kvb_fail(err, EXDEV, "%s: a read of %s into it by DMA failed: %s", to->what,
				f->path, n < 0 ? strerror(errno) : "short");
	kvb_bar_read(got, to->addr, LOC_BLK);
	return memcmp(got, want, LOC_BLK) ? -EAGAIN : 0;
}

static bool stopped(const struct kvb_reach *to)
{
	return atomic_load_explicit(to->stop, memory_order_relaxed);
}

/* Where a try may write: behind the units of a set that has room for it. 0: nowhere. */
static uint64_t scratch_off(const struct loc_file *f, uint32_t unit)
{
	uint64_t off = f->sb.size - 2 * LOC_BLK;

	return f->sb.data_off + f->sb.units * unit <= off ? off : 0;
}

/*
 * The other way: the memory, which holds @want, is written to the disk by DMA. 0, or why Stores
 * must not go that way.
 */
static int fetch(const struct loc_file *f, const struct kvb_reach *to, uint64_t off,
		 const char *want, char *got, struct kvb_err *err)
{
	ssize_t n;
	int rc;

	invert(got, want);
	rc = loc_pwrite(f, got, LOC_BLK, off);
	if (rc)
		return kvb_fail(err, -rc, "%s: %s", f->path, strerror(-rc));
	do
		n = pwrite(f->fd, to->addr, LOC_BLK, (off_t)off);
	while (n < 0 && errno == EINTR);
	if (n != LOC_BLK)
		return kvb_fail(err, EXDEV, "%s: a write of it to %s by DMA failed: %s", to->what,
				f->path, n < 0 ? strerror(errno) : "short");
	rc = loc_pread(f, got, LOC_BLK, off);
	if (rc)
		return kvb_fail(err, -rc, "%s: %s", f->path, strerror(-rc));
	if (memcmp(got, want, LOC_BLK))
		return kvb_fail(err, EXDEV, "%s: data written by DMA is not what it holds (%s)",
				to->what, f->path);
	return 0;
}

static bool may_fetch(struct loc_store *ls, const struct loc_file *f, const struct kvb_reach *to,
		      const char *want, char *got)
{
	uint64_t off = scratch_off(f, ls->unit);
	struct kvb_err why;
	int rc;

	if (stopped(to))
		return false;
	if (!off) {
		kvb_log(KVB_LOG_INFO, "%s: no block to try Stores by DMA with: they go by the CPU",
			f->path);
		return false;
	}
	pthread_mutex_lock(&ls->scratch);
	rc = fetch(f, to, off, want, got, &why);
	pthread_mutex_unlock(&ls->scratch);
	if (rc)
		kvb_log(KVB_LOG_WARN, "%s; Stores from it go by the CPU", why.text);
	return !rc;
}

/* One transfer, and, if it arrived and *@from, one back: does that, too? */
static int probe(struct loc_store *ls, const struct loc_file *f, const struct kvb_reach *to,
		 bool *from, struct kvb_err *err)
{
	char *want, *got, *saved;
	int rc = -EAGAIN;
	void *mem;

	if (posix_memalign(&mem, LOC_BLK, 3 * LOC_BLK))
		return kvb_fail(err, ENOMEM, "out of memory");
	want = mem;
	got = want + LOC_BLK;
	saved = got + LOC_BLK;
	kvb_bar_read(saved, to->addr, LOC_BLK);
	for (int i = 0; i < TRIES && rc == -EAGAIN && !stopped(to); i++) {
		rc = loc_pread(f, want, LOC_BLK, 0);
		if (rc)
			kvb_fail(err, -rc, "%s: %s", f->path, strerror(-rc));
		else
			rc = transfer(f, to, want, got, err);
	}
	*from = !rc && *from && may_fetch(ls, f, to, want, got);
	kvb_bar_write(to->addr, saved, LOC_BLK);
	free(mem);
	if (rc == -EAGAIN)
		rc = kvb_fail(err, EXDEV, "%s: data read by DMA is not what the disk holds (%s)",
			      to->what, f->path);
	return rc;
}

/*
 * What the kernel believes, and one transfer as long as none has arrived on that way. Clears
 * *@from unless one was seen to arrive on the way back.
 */
static int reach_file(struct loc_store *ls, const struct loc_file *f, const struct kvb_reach *to,
		      bool *from, struct kvb_err *err)
{
	const struct kvb_ns *ns = ls->st->ns;
	char way[2 * PATH_MAX] = "", back[sizeof(way) + sizeof(", back")];
	bool named;
	dev_t disk;
	int rc;

	rc = ask(f, to, &disk, err);
	if (rc)
		return rc;
	named = !loc_way(way, sizeof(way), to->function, disk);
	snprintf(back, sizeof(back), "%s, back", way);
	if (named && loc_way_known(ns, way)) {
		*from = *from && loc_way_known(ns, back);
		return 0;
	}
	rc = probe(ls, f, to, from, err);
	if (rc || !named)
		return rc;
	if (*from)
		loc_way_learn(ns, back);
	loc_way_learn(ns, way);
	return 0;
}

int loc_reach(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err)
{
	struct loc_store *ls = st->priv;
	bool from = ls->block && !st->ns->read_only;
	int rc = 0;

	*to->fetch = false;
	for (unsigned int i = 0; i < ls->nfiles && !rc; i++) {
		const struct loc_file *f = &ls->file[i];

		if (stopped(to))
			return kvb_fail(err, ECANCELED, "nobody waits for the answer");
		/* Through the page cache: the CPU copies. */
		if (!f->direct)
			continue;
		rc = reach_file(ls, f, to, &from, err);
	}
	*to->fetch = !rc && from;
	return rc;
}
