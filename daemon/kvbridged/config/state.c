/* SPDX-License-Identifier: MIT */
#include "config/state.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int kvb_state_read(const char *path, bool *ednek, struct kvb_err *err)
{
	FILE *f = fopen(path, "re");
	char line[64];
	bool seen = false;
	int v;

	if (!f)
		return errno == ENOENT ? 0 : kvb_fail(err, errno, "%s: %m", path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "ednek = %d", &v) == 1 && (v == 0 || v == 1)) {
			*ednek = v;
			seen = true;
		}
	}
	fclose(f);
	return seen ? 0 : kvb_fail(err, EINVAL, "%s: not a namespace's state file", path);
}

static int write_text(const char *path, const char *text, bool sync)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	size_t len = strlen(text);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len)
		ret = errno ? -errno : -EIO;
	if (!ret && sync && fsync(fd))
		ret = -errno;
	close(fd);
	return ret;
}

static int sync_dir_of(const char *path)
{
	char dir[PATH_MAX];
	int fd, ret = 0;

	snprintf(dir, sizeof(dir), "%s", path);
	fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fsync(fd))
		ret = -errno;
	close(fd);
	return ret;
}

int kvb_state_replace(const char *path, const char *text, bool sync)
{
	char tmp[PATH_MAX];
	int ret;

	if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	errno = 0;
	ret = write_text(tmp, text, sync);
	if (!ret && rename(tmp, path))
		ret = -errno;
	if (!ret && sync)
		ret = sync_dir_of(path);
	return ret;
}

int kvb_state_write(const char *path, bool ednek, struct kvb_err *err)
{
	char dir[PATH_MAX], text[32];
	int ret;

	if (snprintf(dir, sizeof(dir), "%s", path) >= (int)sizeof(dir))
		return kvb_fail(err, ENAMETOOLONG, "%.80s...: path too long", path);
	dirname(dir);
	if (mkdir(dir, 0755) && errno != EEXIST)
		return kvb_fail(err, errno, "%s: %m", dir);
	snprintf(text, sizeof(text), "ednek = %d\n", ednek);
	ret = kvb_state_replace(path, text, true);
	if (ret)
		return kvb_fail(err, -ret, "%s: %s", path, strerror(-ret));
	return 0;
}
