/* SPDX-License-Identifier: MIT */
#include "control/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "config/settings.h"
#include "control/server.h"
#include "core/link.h"

#define SYSFS "/sys/class/misc/gkv"

/* A file, and what was last seen in it. */
struct attr {
	const char *name;	/* of the setting, too */
	const char *untouched;	/* the module's own default: nobody has set it */
	struct kvb_watch w;
	int fd;			/* -1: not there */
	bool watched;		/* by poll(); else by inotify alone */
	bool seen;
	char value[32];
};

static struct attr attrs[] = {
	{ .name = "poll_interval_ns", .untouched = "1000000", .fd = -1 },
	{ .name = "max_queue_depth", .untouched = "4096", .fd = -1 },
};
#define NATTRS (sizeof(attrs) / sizeof(attrs[0]))

static struct kvb_server *server;
static const char *dir = SYSFS;
/*
 * Nothing in sysfs tells that the module has been loaded, but the device's node does: it
 * comes after the attributes. Tests have the directory itself come and go.
 */
static char node_dir[PATH_MAX] = "/dev";
static struct kvb_watch notice;
static int notice_fd = -1;

static void attr_close(struct attr *a)
{
	if (a->watched)
		kvb_server_unwatch_fd(server, &a->w, a->fd);
	a->watched = false;
	close(a->fd);
	a->fd = -1;
	a->seen = false;
}

static void take_over(struct attr *a, const char *value)
{
	bool first = !a->seen;
	struct kvb_err err;

	if (a->seen && !strcmp(a->value, value))
		return;
	a->seen = true;
	snprintf(a->value, sizeof(a->value), "%s", value);
	/* What a file or an option says stands until somebody sets something else. */
	if (first && !strcmp(value, a->untouched))
		return;
	if (kvb_settings_follow(a->name, value, &err))
		kvb_log(KVB_LOG_WARN, "%s/%s: %s", dir, a->name, err.text);
	else
		kvb_log(KVB_LOG_INFO, "%s set to %s in sysfs", a->name, value);
}

/* Reading also makes poll() wait for the next change. */
static void attr_read(struct attr *a)
{
	char text[sizeof(a->value)];
	ssize_t n = pread(a->fd, text, sizeof(text) - 1, 0);

	if (n < 0) {
		attr_close(a);		/* the module was unloaded */
		return;
	}
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	/* A file that is being written anew, in a test. */
	if (text[0])
		take_over(a, text);
}

static void attr_changed(struct kvb_watch *w)
{
	attr_read(kvb_container(w, struct attr, w));
}

static void attr_open(struct attr *a)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, a->name) >= (int)sizeof(path))
		return;
	a->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (a->fd < 0)
		return;
	/* Read first: an attribute never read has always just changed. */
	attr_read(a);
	a->w.fn = attr_changed;
	/* Of an ordinary file EPERM. */
	if (a->fd >= 0)
		a->watched = !kvb_server_watch_fd(server, &a->w, a->fd, EPOLLPRI);
}

/* Something may have come, gone or changed: look at everything. */
static void look(void)
{
	/* Watching a directory twice is watching it once; an unloaded module's watch is gone. */
	inotify_add_watch(notice_fd, dir, IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_TO);
	for (size_t i = 0; i < NATTRS; i++) {
		struct attr *a = &attrs[i];
		char path[PATH_MAX];

		if (a->fd >= 0)
			attr_read(a);
		/* Open files outlive their names. */
		snprintf(path, sizeof(path), "%s/%s", dir, a->name);
		if (a->fd >= 0 && access(path, F_OK))
			attr_close(a);
		if (a->fd < 0)
			attr_open(a);
	}
}

static void noticed(struct kvb_watch *w)
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	const char *name = strrchr(dir, '/') + 1;
	bool ours = false;
	ssize_t n;

	(void)w;
	/* In /dev much else comes and goes. */
	while ((n = read(notice_fd, buf, sizeof(buf))) > 0) {
		const struct inotify_event *ev;

		for (char *p = buf; p < buf + n; p += sizeof(*ev) + ev->len) {
			ev = (const struct inotify_event *)p;
			ours |= !ev->len || !strcmp(ev->name, name);
			for (size_t i = 0; i < NATTRS; i++)
				ours |= ev->len && !strcmp(ev->name, attrs[i].name);
		}
	}
	if (ours)
		look();
}

void kvb_follow_start(struct kvb_server *srv)
{
	const char *other = getenv("GKV_SYSFS");

	server = srv;
	if (other && strrchr(other, '/') && strlen(other) < sizeof(node_dir)) {
		dir = other;
		snprintf(node_dir, sizeof(node_dir), "%.*s", (int)(strrchr(other, '/') - other),
			 other);
	}
	notice.fn = noticed;
	notice_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (notice_fd < 0 || inotify_add_watch(notice_fd, node_dir, IN_CREATE | IN_DELETE) < 0 ||
	    kvb_server_watch_fd(srv, &notice, notice_fd, EPOLLIN))
		kvb_log(KVB_LOG_WARN, "inotify: %s: settings in sysfs are read only now",
			strerror(errno));
	look();
}

void kvb_follow_stop(struct kvb_server *srv)
{
	for (size_t i = 0; i < NATTRS; i++) {
		if (attrs[i].fd >= 0)
			attr_close(&attrs[i]);
	}
	if (notice_fd < 0)
		return;
	kvb_server_unwatch_fd(srv, &notice, notice_fd);
	close(notice_fd);
	notice_fd = -1;
}
