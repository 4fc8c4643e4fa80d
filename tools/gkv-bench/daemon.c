/* SPDX-License-Identifier: MIT */
#include "daemon.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gkv.h>

pid_t daemon_pid(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct ucred cred = {};
	socklen_t len = sizeof(cred);
	int fd, err = 0;

	if (!path)
		path = getenv("GKV_SOCKET");
	if (!path)
		path = GKV_SOCKET_DEFAULT;
	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		err = -errno;
	close(fd);
	return err ? err : cred.pid;
}

uint64_t daemon_cpu_ns(pid_t pid)
{
	char path[64], name[400];
	struct dirent *e;
	uint64_t sum = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	if (!d)
		return 0;
	while ((e = readdir(d))) {
		uint64_t ns;
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		/* In nanoseconds, where stat counts in ticks of 10 ms. */
		snprintf(name, sizeof(name), "%s/%s/schedstat", path, e->d_name);
		f = fopen(name, "re");
		if (!f)
			continue;
		if (fscanf(f, "%" SCNu64, &ns) == 1)
			sum += ns;
		fclose(f);
	}
	closedir(d);
	return sum;
}
