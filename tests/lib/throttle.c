/* SPDX-License-Identifier: MIT */
/*
 * Block throttling by control group.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "throttle.h"

#define V1 "/sys/fs/cgroup/blkio"
#define V2 "/sys/fs/cgroup"
/* "No limit" of version 1. */
#define V1_NONE 0u

static bool put(const struct throttle *t, const char *file, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", t->group, file);
	f = fopen(path, "we");
	if (!f)
		return false;
	fputs(text, f);
	return fclose(f) == 0;
}

/* The whole disk a partition is part of: limits are set on disks. */
static bool find_disk(struct throttle *t, const char *path)
{
	char link[64], target[512], *part;
	struct stat st;
	ssize_t n;
	FILE *f;

	if (stat(path, &st)) {
		snprintf(t->text, sizeof(t->text), "%.80s: %s", path, strerror(errno));
		return false;
	}
	t->major = major(st.st_dev);
	t->minor = minor(st.st_dev);
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", t->major, t->minor);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0) {
		snprintf(t->text, sizeof(t->text), "%.80s is on no block device", path);
		return false;
	}
	target[n] = '\0';
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u/partition", t->major, t->minor);
	if (access(link, F_OK))
		return true;
	part = strrchr(target, '/');
	if (part)
		*part = '\0';
	part = strrchr(target, '/');
	snprintf(target, sizeof(target), "/sys/class/block/%.64s/dev", part ? strdupa(part + 1) : "");
	f = fopen(target, "re");
	if (!f || fscanf(f, "%u:%u", &t->major, &t->minor) != 2) {
		snprintf(t->text, sizeof(t->text), "cannot tell the disk of %.80s", path);
		if (f)
			fclose(f);
		return false;
	}
	fclose(f);
	return true;
}

bool throttle_set(struct throttle *t, uint64_t bytes)
{
	char text[96];

	if (t->v2) {
		if (bytes)
			snprintf(text, sizeof(text), "%u:%u rbps=%llu wbps=%llu\n", t->major,
				 t->minor, (unsigned long long)bytes, (unsigned long long)bytes);
		else
			snprintf(text, sizeof(text), "%u:%u rbps=max wbps=max\n", t->major,
				 t->minor);
		return put(t, "io.max", text);
	}
	snprintf(text, sizeof(text), "%u:%u %llu\n", t->major, t->minor,
		 bytes ? (unsigned long long)bytes : V1_NONE);
	return put(t, "blkio.throttle.read_bps_device", text) &&
	       put(t, "blkio.throttle.write_bps_device", text);
}

bool throttle_make(struct throttle *t, const char *path, uint64_t bytes)
{
	memset(t, 0, sizeof(*t));
	if (!find_disk(t, path))
		return false;
	if (!access(V1 "/cgroup.procs", F_OK)) {
		snprintf(t->group, sizeof(t->group), V1 "/gkv-test-%d", (int)getpid());
	} else if (!access(V2 "/cgroup.subtree_control", F_OK)) {
		FILE *f = fopen(V2 "/cgroup.subtree_control", "we");

		/* May be on already, or not ours to turn on: making the limit will tell. */
		if (f) {
			fputs("+io\n", f);
			fclose(f);
		}
		t->v2 = true;
		snprintf(t->group, sizeof(t->group), V2 "/gkv-test-%d", (int)getpid());
	} else {
		snprintf(t->text, sizeof(t->text), "no control group of block devices");
		return false;
	}
	if (mkdir(t->group, 0755) && errno != EEXIST) {
		snprintf(t->text, sizeof(t->text), "control group: %s", strerror(errno));
		t->group[0] = '\0';
		return false;
	}
	if (!throttle_set(t, bytes)) {
		snprintf(t->text, sizeof(t->text), "control group: no limit for %u:%u: %s", t->major,
			 t->minor, strerror(errno));
		throttle_free(t);
		return false;
	}
	return true;
}

bool throttle_add(struct throttle *t, pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "%d\n", (int)pid);
	return put(t, "cgroup.procs", text);
}

void throttle_free(struct throttle *t)
{
	if (!t->group[0])
		return;
	/* Dead processes leave a group in their own time. */
	for (int i = 0; i < 200 && rmdir(t->group) && errno == EBUSY; i++)
		usleep(10000);
	t->group[0] = '\0';
}
