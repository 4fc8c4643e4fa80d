/* SPDX-License-Identifier: MIT */
#include "drv_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "admin/admin.h"
#include "config/config.h"
#include "config/namespace.h"
#include "config/settings.h"
#include "control/clientmem.h"
#include "control/server.h"
#include "core/clock.h"
#include "core/reactor_priv.h"

#define MUST(x) do { if (!(x)) { perror(#x); abort(); } } while (0)

char drv_socket[64];

static char dir[] = "/tmp/gkv-drvd-XXXXXX";
static struct kvb_config cfg;
static struct kvb_ctrl ctrl;
static struct kvb_ns *nss[8];
static struct kvb_store_ops ops[8];
static struct kvb_server srv = { .listen_fd = -1, .lock_fd = -1, .epoll_fd = -1, .wake_fd = -1,
				 .signal_fd = -1, .state_fd = -1, .reserve_fd = -1 };
static pthread_t control;
static int result;
static struct sigaction on_sigbus;

/* ---- What the kernel says of the module's descriptors ---- */

int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (cmd == F_GET_SEALS && fakedrv_is(fd)) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

ssize_t readlink(const char *path, char *buf, size_t len)
{
	const char *name;
	int fd;

	if (sscanf(path, "/proc/self/fd/%d", &fd) != 1 || !fakedrv_is(fd) || len < 32)
		return syscall(SYS_readlinkat, AT_FDCWD, path, buf, len);
	name = fakedrv_is_qp(fd) ? "anon_inode:[gkv-qp]" : "anon_inode:[gkv-region]";
	memcpy(buf, name, strlen(name));
	return (ssize_t)strlen(name);
}

int fstatfs(int fd, struct statfs *sf)
{
	int ret = (int)syscall(SYS_fstatfs, fd, sf);

	if (!ret && fakedrv_is(fd))
		sf->f_type = ANON_INODE_FS_MAGIC;
	return ret;
}

/* A memfd cannot be waited for; so its end is met by whoever touches it first. */
int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (fakedrv_is(fd))
		return 0;
	return (int)syscall(SYS_epoll_ctl, epfd, op, fd, ev);
}

/* ---- The daemon ---- */

static void *control_main(void *arg)
{
	(void)arg;
	result = kvb_server_run(&srv);
	return NULL;
}

static void block_sigterm(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	MUST(!pthread_sigmask(SIG_BLOCK, &set, NULL));
}

static void open_namespaces(int (*reach)(struct kvb_store *st, const struct kvb_reach *to,
					 struct kvb_err *err))
{
	struct kvb_err err;
	int rc;

	for (size_t i = 0; i < cfg.nns; i++) {
		struct kvb_ns *ns = kvb_ns_open(&cfg.ns[i], &cfg, &rc, &err);

		MUST(ns);
		ns->index = srv.nns;
		ops[i] = *ns->bottom->ops;
		ops[i].reach = reach;
		ns->bottom->ops = &ops[i];
		nss[srv.nns++] = ns;
		if (ns->nsid > srv.nn)
			srv.nn = ns->nsid;
	}
	srv.nss = nss;
}

static void start_reactors(void)
{
	struct kvb_err err;

	srv.state_fd = memfd_create("gkv-reactors", MFD_CLOEXEC);
	MUST(srv.state_fd >= 0 && !ftruncate(srv.state_fd, 4096));
	srv.state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, srv.state_fd, 0);
	MUST(srv.state != MAP_FAILED);
	for (unsigned int i = 0; i < cfg.reactors; i++) {
		struct kvb_reactor_conf conf = {
			.id = i, .cpu = -1, .state = &srv.state[i], .buffer_bytes = 1 << 20,
			.max_ops = 256, .nss = nss, .nns = srv.nns,
		};

		MUST(!kvb_reactor_start(&conf, &err));
	}
	MUST(!kvb_reactors_start_stores(&err));
}

void drv_start(const char *conf,
	       int (*reach)(struct kvb_store *st, const struct kvb_reach *to, struct kvb_err *err))
{
	char option[128];
	struct kvb_err err;

	fakedrv_init();
	MUST(mkdtemp(dir));
	snprintf(drv_socket, sizeof(drv_socket), "%s/socket", dir);
	kvb_config_init(&cfg);
	MUST(!kvb_config_text(&cfg, "test.conf", conf, strlen(conf), &err));
	snprintf(option, sizeof(option), "socket=%s", drv_socket);
	MUST(!kvb_config_option(&cfg, option, &err));
	snprintf(option, sizeof(option), "state_dir=%s", dir);
	MUST(!kvb_config_option(&cfg, option, &err));
	MUST(!kvb_config_finish(&cfg, &err));
	kvb_settings_init(&cfg);
	kvb_log_set_level(KVB_LOG_ERR);
	srv.cfg = &cfg;
	block_sigterm();
	MUST(!kvb_clientmem_init(&err) && !kvb_server_mailbox(&srv, &err));
	MUST(!sigaction(SIGBUS, NULL, &on_sigbus));
	MUST(!kvb_reactors_create((unsigned int)cfg.reactors, &err));
	open_namespaces(reach);
	start_reactors();
	ctrl.ns = nss;
	ctrl.nns = srv.nns;
	ctrl.max_qid = (uint32_t)cfg.max_qid;
	ctrl.max_depth = (uint32_t)cfg.max_queue_depth;
	kvb_ctrl_init(&ctrl);
	srv.ctrl = &ctrl;
	MUST(!kvb_server_listen(&srv, &err));
	MUST(!pthread_create(&control, NULL, control_main, NULL));
}

void drv_sigbus(void)
{
	MUST(!sigaction(SIGBUS, &on_sigbus, NULL));
}

int drv_stop(uint64_t *took)
{
	uint64_t start = kvb_clock_ns();

	MUST(!kill(getpid(), SIGTERM));
	MUST(!pthread_join(control, NULL));
	*took = kvb_clock_ns() - start;
	return result;
}

int drv_drain(void)
{
	return kvb_server_run(&srv);
}

void drv_end(void)
{
	char path[128];

	kvb_reactors_stop();
	while (srv.nns) {
		struct kvb_ns *ns = nss[--srv.nns];

		snprintf(path, sizeof(path), "%s/%s.state", dir, ns->name);
		kvb_ns_close(ns);
		unlink(path);
	}
	kvb_server_close(&srv);
	munmap(srv.state, 4096);
	close(srv.state_fd);
	kvb_config_free(&cfg);
	unlink(drv_socket);
	snprintf(path, sizeof(path), "%s.lock", drv_socket);
	unlink(path);
	rmdir(dir);
	fakedrv_fini();
}
