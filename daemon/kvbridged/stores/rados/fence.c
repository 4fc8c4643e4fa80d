/* SPDX-License-Identifier: MIT */
#include "stores/rados/fence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stores/rados/pool_priv.h"

/*
 * Seconds on the blocklist. A dead client's write can only wait in a hung OSD or on the way
 * to one, until the monitors call that OSD down: a quarter of an hour, if nobody set it
 * longer. A day leaves room for that and lets the list shrink again.
 */
#define FENCE_SECONDS 86400u

#define DEAD_MAX 1024		/* fenced in one go; the rest at the next */

struct dead {
	int fd;
	char name[NAME_MAX + 1];
};

static void swap_char(char *s, char from, char to)
{
	for (; *s; s++) {
		if (*s == from)
			*s = to;
	}
}

static int open_dir(const char *state_dir, const char *fsid, struct kvb_err *err)
{
	char name[64];
	int fd = -1, parent = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (parent < 0)
		goto fail;
	snprintf(name, sizeof(name), "rados-%s", fsid);
	if (!mkdirat(parent, name, 0700)) {
		if (fsync(parent))
			goto fail;
	} else if (errno != EEXIST) {
		goto fail;
	}
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		goto fail;
	close(parent);
	return fd;
fail:
	kvb_fail(err, errno, "state directory %.100s: %s", state_dir, strerror(errno));
	fd = -errno;
	if (parent >= 0)
		close(parent);
	return fd;
}

/* The file gets its name when it is locked: nobody finds it unlocked while we live. */
static int record(struct rd_fence *f, const char *addr, struct kvb_err *err)
{
	char tmp[NAME_MAX + 1];
	int rc;

	if ((size_t)snprintf(f->name, sizeof(f->name) - 1, "%s", addr) >= sizeof(f->name) - 1)
		return kvb_fail(err, ENAMETOOLONG, "client address %.100s: too long", addr);
	swap_char(f->name, '/', '_');
	tmp[0] = '.';
	strcpy(tmp + 1, f->name);
	f->fd = openat(f->dir, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (f->fd < 0 || flock(f->fd, LOCK_EX | LOCK_NB) || fsync(f->fd) ||
	    renameat(f->dir, tmp, f->dir, f->name) || fsync(f->dir)) {
		rc = kvb_fail(err, errno, "cannot record client %.60s in the state directory: %s",
			      addr, strerror(errno));
		unlinkat(f->dir, tmp, 0);
		return rc;
	}
	return 0;
}

/*
 * Lock @name if its client is dead. Shared: others of this process may be about to fence it
 * as well, and must not take it for a live one. Returns the descriptor, or -1.
 */
static int lock_dead(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* A client that died before its file had a name was never used. */
static void remove_unnamed(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(dir, name, 0);
	if (fd >= 0)
		close(fd);
}

static ssize_t find_dead(const struct rd_fence *f, struct dead *dead, struct kvb_err *err)
{
	int fd = openat(f->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	ssize_t n = 0;

	if (!d) {
		int rc = kvb_fail(err, errno, "state directory: %s", strerror(errno));

		if (fd >= 0)
			close(fd);
		return rc;
	}
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    !strcmp(e->d_name, f->name))
			continue;
		if (e->d_name[0] == '.') {
			remove_unnamed(f->dir, e->d_name);
			continue;
		}
		if (n == DEAD_MAX)
			break;
		dead[n].fd = lock_dead(f->dir, e->d_name);
		if (dead[n].fd < 0)
			continue;
		snprintf(dead[n].name, sizeof(dead[n].name), "%s", e->d_name);
		n++;
	}
	closedir(d);
	return n;
}

static int blocklist(rados_t cluster, struct dead *dead, struct kvb_err *err)
{
	char addr[NAME_MAX + 1];
	int rc;

	strcpy(addr, dead->name);
	swap_char(addr, '_', '/');
	rc = rados_blocklist_add(cluster, addr, FENCE_SECONDS);
	if (rc == -EINVAL) {
		/* Not of our making: leave it alone. */
		kvb_log(KVB_LOG_WARN, "%.100s in the state directory is no client's address",
			dead->name);
		close(dead->fd);
		dead->fd = -1;
		return 0;
	}
	if (rc)
		return kvb_fail(err, -rc, "cannot put dead client %.60s on the blocklist: %s", addr,
				strerror(-rc));
	kvb_log(KVB_LOG_INFO, "rados: dead client %s is on the blocklist", addr);
	return 0;
}

static int fence_dead(const struct rd_fence *f, rados_t cluster, unsigned int *fenced,
		      struct kvb_err *err)
{
	struct dead *dead = malloc(DEAD_MAX * sizeof(*dead));
	unsigned int done = 0, before;
	ssize_t n, rc = 0;

	if (!dead)
		return kvb_fail(err, ENOMEM, "out of memory");
	do {
		before = done;
		n = find_dead(f, dead, err);
		if (n < 0)
			rc = n;
		for (ssize_t i = 0; i < n && !rc; i++)
			rc = blocklist(cluster, &dead[i], err);
		/* In any case: a predecessor may have got so far, and died. */
		if (!rc) {
			rc = rados_wait_for_latest_osdmap(cluster);
			if (rc)
				kvb_fail(err, (int)-rc, "cannot get the latest map: %s",
					 strerror((int)-rc));
		}
		for (ssize_t i = 0; i < n; i++) {
			if (dead[i].fd < 0)
				continue;
			if (!rc && !unlinkat(f->dir, dead[i].name, 0))
				done++;
			close(dead[i].fd);
		}
	} while (!rc && n == DEAD_MAX && done > before);
	/* Should these files come back after a crash, then they are fenced once more. */
	if (done)
		fsync(f->dir);
	*fenced += done;
	free(dead);
	return (int)rc;
}

/*
 * May the user add to the blocklist? The monitors look at that before they look at the
 * address, and this is none. Found out now, not by the successor of one that crashed.
 */
static int check_capability(rados_t cluster, const char *id, struct kvb_err *err)
{
	int rc = rd_mon_command(cluster, "{\"prefix\": \"osd blocklist\", \"blocklistop\": \"add\", "
				"\"addr\": \"kvbridged/0\"}", NULL, 0);

	if (rc == -EINVAL || !rc)
		return 0;
	if (rc == -EACCES || rc == -EPERM)
		return kvb_fail(err, -rc,
				"client.%.40s may not use the blocklist: give it mon 'allow r, allow "
				"command \"osd blocklist\"', or set rados.fence = off", id);
	return kvb_fail(err, -rc, "cannot ask the monitors for the blocklist: %s", strerror(-rc));
}

int rd_fence_enter(struct rd_fence *f, rados_t cluster, const char *id, const char *state_dir,
		   const char *fsid, const char *addr, unsigned int *fenced,
		   struct kvb_err *err)
{
	int rc;

	*f = RD_FENCE_NONE;
	rc = check_capability(cluster, id, err);
	if (rc)
		return rc;
	f->dir = open_dir(state_dir, fsid, err);
	if (f->dir < 0)
		return f->dir;
	rc = record(f, addr, err);
	if (!rc)
		rc = fence_dead(f, cluster, fenced, err);
	if (rc)
		rd_fence_leave(f, true);
	return rc;
}

void rd_fence_leave(struct rd_fence *f, bool clean)
{
	if (f->fd >= 0) {
		if (clean && (unlinkat(f->dir, f->name, 0) || fsync(f->dir)))
			kvb_log(KVB_LOG_WARN, "rados: cannot forget client %s: %s", f->name,
				strerror(errno));
		close(f->fd);
	}
	if (f->dir >= 0)
		close(f->dir);
	*f = RD_FENCE_NONE;
}
