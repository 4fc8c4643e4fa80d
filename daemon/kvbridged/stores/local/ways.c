/* SPDX-License-Identifier: MIT */
/*
 * Ways from disks to GPU memory on which a transfer has arrived, since the machine was booted. A
 * successor must know: it is given memory that the device is using, where nothing may be tried.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "config/state.h"
#include "stores/local/local.h"

/* More are not kept: who has them asks the disk again. */
#define WAYS_MAX	256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* By which bridges a device is reached is in its place in sysfs. */
int loc_way(char *way, size_t len, const char *function, dev_t disk)
{
	char link[64], from[PATH_MAX], to[PATH_MAX], bdf[32] = "";
	int n;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(disk), minor(disk));
	if (!realpath(link, from))
		return -errno;
	sscanf(function, "%31s", bdf);
	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", bdf);
	if (!realpath(link, to))
		return -errno;
	n = snprintf(way, len, "%s to %s, %s", from, to, function);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* The first line of @path that begins with @word. */
static bool line_of(const char *path, const char *word, char *line, size_t len)
{
	FILE *f = fopen(path, "re");
	bool found = false;

	while (f && !found && fgets(line, (int)len, f))
		found = !strncmp(line, word, strlen(word)) && strchr(line, '\n');
	if (f)
		fclose(f);
	return found;
}

/* Tells this boot from others. A kernel without sysctls has the time of its start only. */
static bool boot_id(char *id, size_t len)
{
	return line_of("/proc/sys/kernel/random/boot_id", "", id, len) ||
	       line_of("/proc/stat", "btime ", id, len);
}

static void path_of(const struct kvb_ns *ns, char *path)
{
	snprintf(path, PATH_MAX, "%s/%s.ways", ns->state_dir, ns->name);
}

/* What the file says, if it is of this boot: *@text ends with a newline. Whether @way is in it. */
static bool look(const struct kvb_ns *ns, const char *way, char **text)
{
	char path[PATH_MAX], id[64], *line = NULL;
	size_t size = 0, len = 0;
	bool found = false;
	unsigned int n = 0;
	FILE *in, *out = open_memstream(text, &len);

	if (!out)
		return false;
	if (!boot_id(id, sizeof(id)))
		id[0] = '\0';
	fputs(id, out);
	path_of(ns, path);
	in = fopen(path, "re");
	if (in && id[0] && getline(&line, &size, in) > 0 && !strcmp(line, id)) {
		while (getline(&line, &size, in) > 0 && n++ < WAYS_MAX) {
			fputs(line, out);
			line[strcspn(line, "\n")] = '\0';
			found |= !strcmp(line, way);
		}
	}
	if (in)
		fclose(in);
	free(line);
	fclose(out);
	return found;
}

bool loc_way_known(const struct kvb_ns *ns, const char *way)
{
	char *text = NULL;
	bool found;

	pthread_mutex_lock(&lock);
	found = look(ns, way, &text);
	pthread_mutex_unlock(&lock);
	free(text);
	return found;
}

void loc_way_learn(const struct kvb_ns *ns, const char *way)
{
	char path[PATH_MAX], *text = NULL, *more = NULL;
	bool known;
	int ret;

	pthread_mutex_lock(&lock);
	known = look(ns, way, &text);
	if (!text || !*text) {
		kvb_log(KVB_LOG_WARN, "%s: nothing tells this boot of the machine from others: a "
			"successor will ask the disks again", ns->name);
	} else if (!known && asprintf(&more, "%s%s\n", text, way) > 0) {
		path_of(ns, path);
		/* Enough for a successor on this boot. */
		ret = kvb_state_replace(path, more, false);
		if (ret)
			kvb_log(KVB_LOG_WARN, "%s: %s: a successor will ask the disks again", path,
				strerror(-ret));
		free(more);
	}
	pthread_mutex_unlock(&lock);
	free(text);
}
