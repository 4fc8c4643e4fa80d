/* SPDX-License-Identifier: MIT */
/*
 * Which processes use the module: by the names of their descriptors and mappings.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drv.h"

enum drv_fd_kind drv_fd_kind(const char *name)
{
	if (!strcmp(name, GKVDRV_PATH))
		return DRV_FD_DEVICE;
	if (!strcmp(name, "anon_inode:[gkv-region]"))
		return DRV_FD_REGION;
	if (!strcmp(name, "anon_inode:[gkv-qp]"))
		return DRV_FD_QP;
	return DRV_FD_NONE;
}

void drv_comm(int pid, char buf[32])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (drv_read(path, buf, 32))
		snprintf(buf, 32, "?");
}

int drv_mappings(int pid)
{
	char path[64], *line = NULL;
	size_t room = 0;
	int n = 0, err;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	errno = 0;
	while (getline(&line, &room, f) > 0) {
		/* "START-END PERM OFFSET DEV INODE    NAME" */
		const char *name = strstr(line, "anon_inode:[gkv-");

		line[strcspn(line, "\n")] = '\0';
		n += name && drv_fd_kind(name) != DRV_FD_NONE;
	}
	err = ferror(f) ? errno : 0;
	free(line);
	fclose(f);
	return err ? -err : n;
}

/* Counts by kind. */
static int descriptors(int pid, unsigned int count[DRV_FD_QP + 1])
{
	char path[320], name[64];
	struct dirent *e;
	ssize_t n;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
		n = readlink(path, name, sizeof(name) - 1);
		if (n <= 0)
			continue;
		name[n] = '\0';
		count[drv_fd_kind(name)]++;
	}
	closedir(dir);
	return 0;
}

static struct json_object *user(int pid, unsigned int *hidden)
{
	unsigned int count[DRV_FD_QP + 1] = { 0 };
	struct json_object *o;
	char name[32];
	int ret = descriptors(pid, count), maps = ret ? 0 : drv_mappings(pid);

	if (ret == -EACCES || ret == -EPERM || maps == -EACCES || maps == -EPERM)
		++*hidden;
	if (maps < 0)
		maps = 0;
	if (!count[DRV_FD_DEVICE] && !count[DRV_FD_REGION] && !count[DRV_FD_QP] && !maps)
		return NULL;
	drv_comm(pid, name);
	o = json_object_new_object();
	json_object_object_add(o, "pid", json_object_new_int(pid));
	json_object_object_add(o, "name", json_object_new_string(name));
	add_int(o, "device", count[DRV_FD_DEVICE]);
	add_int(o, "regions", count[DRV_FD_REGION]);
	add_int(o, "queue_pairs", count[DRV_FD_QP]);
	add_int(o, "mappings", (uint64_t)maps);
	return o;
}

struct json_object *drv_users(unsigned int *hidden)
{
	struct json_object *a = json_object_new_array(), *o;
	DIR *dir = opendir("/proc");
	struct dirent *e;

	*hidden = 0;
	while (dir && (e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		o = user(atoi(e->d_name), hidden);
		if (o)
			json_object_array_add(a, o);
	}
	if (dir)
		closedir(dir);
	return a;
}
