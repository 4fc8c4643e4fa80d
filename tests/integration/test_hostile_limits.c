/* SPDX-License-Identifier: MIT */
/*
 * What one user may take: sessions, lines of the log, and the control thread's time, when what
 * was sent is a file whose close() waits for the client.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile.h"

#define SECOND	1000000000ull
#define NOBODY	65534u

struct fuse {
	pid_t daemon;			/* whose flushes wait; all others are answered at once */
	_Atomic unsigned int held;	/* flushes that wait */
	_Atomic bool release;
};

static struct fuse *shared;
static int bad_file = -1;

/* A hello's answer: 0 or its errno with @text, -1 without one. The connection in *@sock. */
static int greet(const char *path, int *sock, char text[GKV_CTL_TEXT])
{
	struct gkv_msg_hello_reply reply;
	struct gkv_msg_hello hello;

	*sock = hostile_connect(path);
	hostile_hello(&hello, -1, 0);
	if (*sock < 0 || hostile_send(*sock, &hello, sizeof(hello), NULL, 0) ||
	    hostile_recv(*sock, &reply, sizeof(reply), 10000, NULL, NULL) <= 0)
		return -1;
	snprintf(text, GKV_CTL_TEXT, "%s", reply.r.text);
	return (int)le32toh(reply.r.hdr.error);
}

/* What @fn returns in a process of the user "nobody"; 255 when it is no normal exit. */
static int as_nobody(int (*fn)(struct rig *rig), struct rig *rig)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(setgid(NOBODY) || setuid(NOBODY) ? 254 : fn(rig));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* ---- Sessions ---- */

#define EACH 5

static int some_sessions(struct rig *rig)
{
	char text[GKV_CTL_TEXT];
	int socks[EACH], good = 0;

	for (int i = 0; i < EACH; i++)
		good += !greet(rig->socket, &socks[i], text);
	return good;
}

static void test_sessions(void)
{
	char text[GKV_CTL_TEXT], want[64];
	int socks[EACH + 1], in = 0, error;
	struct rig rig;

	rig_init(&rig, "[daemon]\nsocket_mode = 0666\nmax_sessions = 100\nmax_user_sessions = 5\n"
		       "[namespace main]\nnsid = 1\nstack = mem\n");
	if (chmod(rig.dir, 0755))
		abort();
	rig_start(&rig);
	for (int i = 0; i < EACH; i++)
		in += !greet(rig.socket, &socks[i], text);
	error = greet(rig.socket, &socks[EACH], text);
	snprintf(want, sizeof(want), "uid %u has %d sessions, the limit of a user is %d", geteuid(),
		 EACH, EACH);
	if (!tap_ok(in == EACH && error == EMFILE && !strncmp(text, want, strlen(want)),
		    "F21, F115: a user's sessions: %d, then a refusal that names limit and use", in))
		tap_diag("error %d: %s", error, text);
	if (geteuid())
		tap_skip("needs root to become another user", "another user has a limit of its own");
	else
		tap_ok(as_nobody(some_sessions, &rig) == EACH,
		       "another user has a limit of its own");
	close(socks[EACH]);
	close(socks[0]);
	/* Its end takes the daemon a moment. */
	for (int i = 0; i < 500; i++) {
		error = greet(rig.socket, &socks[0], text);
		if (!error)
			break;
		close(socks[0]);
		hostile_sleep_ms(10);
	}
	tap_ok(!error, "one goes, and there is room for one");
	for (int i = 0; i < EACH; i++)
		close(socks[i]);
	rig_stop(&rig, 20);
	rig_fini(&rig);
}

/* ---- The log ---- */

static unsigned int log_lines(const struct rig *rig, const char *text)
{
	unsigned int n = 0;
	char line[1024];
	FILE *f = fopen(rig->log, "re");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

static void test_log(struct hostile *h)
{
	const unsigned int floods = 3000 / rig_slowdown();
	uint64_t t0 = rig_now(), end;
	unsigned int windows, lines;

	for (unsigned int i = 0; i < floods; i++) {
		int sock = hostile_connect(h->rig.socket);

		hostile_send(sock, "what?", 5, NULL, 0);
		close(sock);
	}
	windows = (unsigned int)((rig_now() - t0) / (10 * SECOND)) + 2;
	tap_ok(hostile_unharmed(h), "%u broken messages", floods);
	lines = log_lines(&h->rig, "not a control message");
	tap_ok(lines && lines <= 10 * windows, "a client's messages fill %u lines of the log", lines);
	/* Told by and by, whether anything more happens or not. */
	end = rig_now() + 25 * SECOND * rig_slowdown();
	while (!log_lines(&h->rig, "more lines about broken messages") && rig_now() < end)
		hostile_sleep_ms(100);
	tap_ok(log_lines(&h->rig, "more lines about broken messages"),
	       "and it says how many were left out");
}

/* ---- A file system in user space: closing its file waits for it ---- */

#define MAX_HELD 256

static void fuse_reply(int dev, uint64_t unique, int error, const void *body, size_t len)
{
	struct {
		struct fuse_out_header head;
		uint8_t body[256];
	} out = { .head = { .len = (uint32_t)(sizeof(out.head) + len), .error = error,
			    .unique = unique } };

	if (len)
		memcpy(out.body, body, len);
	if (write(dev, &out, out.head.len) < 0)
		return;		/* interrupted meanwhile */
}

static bool is_thread_of(pid_t pid, uint32_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%u", (int)pid, tid);
	return !access(path, F_OK);
}

/* One file, which is the root: opened, looked at, and never flushed until it is let go. */
static void fuse_serve(int dev, struct fuse *shared)
{
	static uint64_t buf[(64u << 10) / 8];
	uint64_t waiting[MAX_HELD];

	for (;;) {
		const struct fuse_in_header *in = (const void *)buf;
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
					      .minor = FUSE_KERNEL_MINOR_VERSION,
					      .max_write = 4096 };
		struct fuse_attr_out attr = { .attr_valid = 3600,
					      .attr = { .ino = 1, .mode = S_IFREG | 0666,
							.nlink = 1 } };
		struct fuse_open_out open_out = { .fh = 1 };
		struct pollfd p = { .fd = dev, .events = POLLIN };

		if (shared->release)
			while (shared->held)
				fuse_reply(dev, waiting[--shared->held], 0, NULL, 0);
		if (poll(&p, 1, 20) <= 0)
			continue;
		if (read(dev, buf, sizeof(buf)) < (ssize_t)sizeof(*in)) {
			if (errno == ENODEV)
				return;		/* unmounted */
			continue;
		}
		switch (in->opcode) {
		case FUSE_INIT:
			fuse_reply(dev, in->unique, 0, &init, sizeof(init));
			break;
		case FUSE_GETATTR:
			fuse_reply(dev, in->unique, 0, &attr, sizeof(attr));
			break;
		case FUSE_OPEN:
			fuse_reply(dev, in->unique, 0, &open_out, sizeof(open_out));
			break;
		case FUSE_FLUSH:
			if (!shared->release && is_thread_of(shared->daemon, in->pid) &&
			    shared->held < MAX_HELD)
				waiting[shared->held++] = in->unique;
			else
				fuse_reply(dev, in->unique, 0, NULL, 0);
			break;
		case FUSE_RELEASE:
			fuse_reply(dev, in->unique, 0, NULL, 0);
			break;
		case FUSE_INTERRUPT:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
			break;
		default:
			fuse_reply(dev, in->unique, -ENOSYS, NULL, 0);
		}
	}
}

static bool fuse_mount(struct hostile *h, char *place, size_t len, pid_t *server)
{
	char opts[128];
	pid_t parent = getpid();
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC), at;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared->daemon = h->rig.pid;
	snprintf(place, len, "%s/file", h->rig.dir);
	at = open(place, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	close(at);
	snprintf(opts, sizeof(opts), "fd=%d,rootmode=100000,user_id=0,group_id=0,allow_other", dev);
	if (dev < 0 || at < 0 || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("gkv-test", place, "fuse.gkv-test", MS_NOSUID | MS_NODEV, opts)) {
		close(dev);
		return false;
	}
	fflush(NULL);
	*server = fork();
	if (*server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			fuse_serve(dev, shared);
		_exit(0);
	}
	close(dev);
	bad_file = open(place, O_RDWR | O_CLOEXEC);
	return bad_file >= 0;
}

/* Send @fd in @n messages, each on a connection of its own; how many were answered. */
static unsigned int send_file(struct rig *rig, int fd, unsigned int n)
{
	unsigned int answered = 0;

	for (unsigned int i = 0; i < n; i++) {
		struct gkv_msg_region_add m = { .id = htole32(1), .len = htole64(4096) };
		struct gkv_msg_reply reply;
		char text[GKV_CTL_TEXT];
		int sock;

		if (greet(rig->socket, &sock, text))
			continue;
		hostile_head(&m, GKV_MSG_REGION_ADD, sizeof(m));
		hostile_send(sock, &m, sizeof(m), &fd, 1);
		answered += hostile_recv(sock, &reply, sizeof(reply), 5000, NULL, NULL) > 0 &&
			    le32toh(reply.hdr.error) == EINVAL;
		close(sock);
	}
	return answered;
}

static int attack(struct rig *rig)
{
	return (int)send_file(rig, bad_file, 100);
}

/* Another user's region, for comparison. */
static int good_file(struct rig *rig)
{
	struct raw r;
	int ret;

	if (raw_open(&r, rig->socket))
		return 1;
	ret = raw_data(&r, 0x1000) ? 2 : 0;
	raw_close(&r);
	return ret;
}

static void test_slow_close(struct hostile *h)
{
	static const char name[] = "descriptors whose close() waits for the client";
	char place[160], text[GKV_CTL_TEXT];
	pid_t server = 0;
	struct vitals v;
	int taken, sock, error, null;
	uint64_t t0;

	if (geteuid() || !fuse_mount(h, place, sizeof(place), &server)) {
		tap_skip("needs root and FUSE", "%s", name);
		return;
	}
	taken = as_nobody(attack, &h->rig);
	for (int i = 0; i < 500 && !shared->held; i++)
		hostile_sleep_ms(10);
	tap_ok(shared->held == 1, "a file system holds up a close(): %u", shared->held);
	vitals_read(&h->rig, &v);
	/* A connection counts, too. What one message brings may go beyond the limit, and no more. */
	tap_ok(taken >= 8 && taken <= 32 && v.fds < h->before.fds + 40,
	       "%d of 100 such descriptors are taken from one user, %u wait to be closed", taken,
	       v.fds - h->before.fds);
	t0 = rig_now();
	error = greet(h->rig.socket, &sock, text);
	t0 = rig_now() - t0;
	tap_ok(!error && t0 < 2 * SECOND * rig_slowdown(), "a new client is greeted in %llu us",
	       (unsigned long long)t0 / 1000);
	close(sock);
	tap_ok(!good_file(&h->rig), "and may register memory");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	tap_ok(send_file(&h->rig, null, 40) == 40, "descriptors of others are closed meanwhile");
	close(null);
	tap_ok(as_nobody(good_file, &h->rig) == 1, "the user who did it may not, for now");
	tap_ok(hostile_unharmed(h), "others unharmed by it");
	tap_ok(log_lines(&h->rig, "are not closed yet") > 0, "the log has the reason");
	shared->release = true;
	for (int i = 0; i < 500 && as_nobody(good_file, &h->rig); i++)
		hostile_sleep_ms(10);
	tap_ok(!as_nobody(good_file, &h->rig), "when they are closed, it may again");
	close(bad_file);
	umount2(place, MNT_DETACH);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	unlink(place);
}

int main(void)
{
	struct hostile h;

	test_sessions();
	hostile_start(&h);
	test_log(&h);
	test_slow_close(&h);
	hostile_finish(&h);
	return tap_done();
}
