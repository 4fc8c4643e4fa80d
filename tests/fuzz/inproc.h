/* SPDX-License-Identifier: MIT */
/*
 * A daemon inside the fuzzer's process: reactors, stores and the control thread run as they
 * do in kvbridged, and the fuzzer is a client on a real socket. Include in one file of a
 * program, which calls inproc_start() once.
 */
#ifndef INPROC_H
#define INPROC_H

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gkv/control.h>

#include "admin/admin.h"
#include "config/config.h"
#include "config/namespace.h"
#include "config/settings.h"
#include "control/clientmem.h"
#include "control/server.h"
#include "core/reactor_priv.h"
#include "fdmsg.h"

#define CHECK(c) \
	do { \
		if (!(c)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
			abort(); \
		} \
	} while (0)

/* No answer within this time is a hang. */
#define INPROC_PATIENCE_MS 30000

#define INPROC_REACTORS 2u

static const char inproc_conf[] =
	"[daemon]\nreactors = 2\nspin_ns = 0\nbuffer_memory = 8M\nmax_qid = 8\n"
	"max_queue_depth = 64\nmax_regions = 8\nmax_sessions = 64\n"
	"[namespace a]\nnsid = 1\nstack = mem\nmem.capacity = 4M\nvalue_max = 1M\n"
	"[namespace b]\nnsid = 3\nstack = delay, mem\ndelay.store = 100us\nvalue_max = 1M\n"
	"[namespace c]\nnsid = 4\nstack = null\nvalue_max = 1M\nread_only = yes\n";

static struct kvb_config inproc_cfg;
static struct kvb_server inproc_srv = { .listen_fd = -1, .lock_fd = -1, .epoll_fd = -1,
					.wake_fd = -1, .signal_fd = -1, .state_fd = -1,
					.reserve_fd = -1 };
static struct kvb_ctrl inproc_ctrl;
static char inproc_dir[] = "/tmp/gkv-fuzz-XXXXXX";
static char inproc_socket[64];

static void *inproc_control(void *arg)
{
	(void)arg;
	kvb_server_run(&inproc_srv);
	return NULL;
}

static void inproc_clean(void)
{
	char lock[80];

	unlink(inproc_socket);
	snprintf(lock, sizeof(lock), "%s.lock", inproc_socket);
	unlink(lock);
	for (unsigned int i = 0; i < inproc_srv.nns; i++) {
		snprintf(lock, sizeof(lock), "%s/%s.state", inproc_dir, inproc_srv.nss[i]->name);
		unlink(lock);
	}
	rmdir(inproc_dir);
}

static void inproc_start(void)
{
	static struct kvb_ns *nss[8];
	char option[128];
	struct kvb_err err;
	pthread_t thread;
	int rc;

	CHECK(mkdtemp(inproc_dir));
	snprintf(inproc_socket, sizeof(inproc_socket), "%s/socket", inproc_dir);
	kvb_config_init(&inproc_cfg);
	CHECK(!kvb_config_text(&inproc_cfg, "fuzz.conf", inproc_conf, strlen(inproc_conf), &err));
	snprintf(option, sizeof(option), "socket=%s", inproc_socket);
	CHECK(!kvb_config_option(&inproc_cfg, option, &err));
	snprintf(option, sizeof(option), "state_dir=%s", inproc_dir);
	CHECK(!kvb_config_option(&inproc_cfg, option, &err));
	CHECK(!kvb_config_finish(&inproc_cfg, &err));
	kvb_settings_init(&inproc_cfg);
	inproc_srv.cfg = &inproc_cfg;
	CHECK(!kvb_clientmem_init(&err) && !kvb_server_mailbox(&inproc_srv, &err));
	CHECK(!kvb_reactors_create(INPROC_REACTORS, &err));
	inproc_srv.nss = nss;
	for (size_t i = 0; i < inproc_cfg.nns; i++) {
		nss[i] = kvb_ns_open(&inproc_cfg.ns[i], &inproc_cfg, &rc, &err);
		CHECK(nss[i]);
		nss[i]->index = inproc_srv.nns++;
		if (nss[i]->nsid > inproc_srv.nn)
			inproc_srv.nn = nss[i]->nsid;
	}
	inproc_srv.state_fd = memfd_create("gkv-reactors", MFD_CLOEXEC);
	CHECK(inproc_srv.state_fd >= 0 && !ftruncate(inproc_srv.state_fd, 4096));
	inproc_srv.state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
				inproc_srv.state_fd, 0);
	CHECK(inproc_srv.state != MAP_FAILED);
	for (unsigned int i = 0; i < INPROC_REACTORS; i++) {
		struct kvb_reactor_conf rc_conf = {
			.id = i, .cpu = -1, .state = &inproc_srv.state[i],
			.buffer_bytes = inproc_cfg.buffer_memory / INPROC_REACTORS,
			.max_ops = 256, .nss = nss, .nns = inproc_srv.nns,
		};

		CHECK(!kvb_reactor_start(&rc_conf, &err));
	}
	CHECK(!kvb_reactors_start_stores(&err));
	inproc_ctrl.ns = nss;
	inproc_ctrl.nns = inproc_srv.nns;
	inproc_ctrl.max_qid = 8;
	inproc_ctrl.max_depth = 64;
	kvb_ctrl_init(&inproc_ctrl);
	inproc_srv.ctrl = &inproc_ctrl;
	/* Its warnings would fill the disk. */
	kvb_log_set_level(KVB_LOG_ERR);
	CHECK(!kvb_server_listen(&inproc_srv, &err));
	CHECK(!pthread_create(&thread, NULL, inproc_control, NULL));
	pthread_detach(thread);
	atexit(inproc_clean);
}

static int inproc_memfd(size_t len, int seals, void **map)
{
	int fd = memfd_create("gkv-fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)len) && !fcntl(fd, F_ADD_SEALS, seals));
	if (map) {
		*map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(*map != MAP_FAILED);
	}
	return fd;
}

static int inproc_connect(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", inproc_socket);
	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&sa, sizeof(sa)));
	return fd;
}

static bool inproc_send(int sock, const void *msg, size_t len, const int *fds, unsigned int nfds)
{
	return !fdmsg_send(sock, msg, len, fds, nfds, MSG_DONTWAIT);
}

/* A reply's bytes, or 0 when the connection is over. Checks what every reply promises. */
static size_t inproc_recv(int sock, void *reply, size_t len)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct gkv_msg_reply *r = reply;
	int flags;
	ssize_t n;

	/* The fuzzer's timer interrupts. */
	do {
		n = poll(&p, 1, INPROC_PATIENCE_MS);
	} while (n < 0 && errno == EINTR);
	CHECK(n == 1);
	n = fdmsg_recv(sock, reply, len, NULL, NULL, &flags);
	if (n <= 0)
		return 0;
	CHECK((size_t)n >= sizeof(*r) && !(flags & (MSG_TRUNC | MSG_CTRUNC)));
	CHECK(le32toh(r->hdr.magic) == GKV_CTL_MAGIC && le32toh(r->hdr.size) == (uint32_t)n);
	CHECK(le16toh(r->hdr.type) & GKV_MSG_REPLY && !r->hdr.rsvd);
	CHECK(memchr(r->text, 0, sizeof(r->text)));
	CHECK(!r->hdr.error == !r->text[0]);
	CHECK(!r->hdr.error || n == sizeof(*r));
	return (size_t)n;
}

#endif
