// SPDX-License-Identifier: MIT
/* Time, accesses that may fault, other processes. */
#include <grp.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "gkvtest.h"

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

void sleep_ms(unsigned int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

ssize_t differs(const void *at, uint8_t byte, size_t len)
{
	const volatile uint64_t *word = at;
	uint64_t want = byte * 0x0101010101010101ull;

	for (size_t i = 0; i < len / 8; i++)
		if (word[i] != want)
			return i * 8;
	return -1;
}

void fill_bytes(void *at, uint8_t byte, size_t len)
{
	volatile uint64_t *word = at;

	for (size_t i = 0; i < len / 8; i++)
		word[i] = byte * 0x0101010101010101ull;
}

/* ---- Accesses that may fault ---- */

static sigjmp_buf out;

static void caught(int signal)
{
	siglongjmp(out, signal);
}

static bool attempt(volatile void *at, bool write)
{
	struct sigaction action = { .sa_handler = caught }, bus, segv;
	volatile bool good = false;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	if (sigsetjmp(out, 1) == 0) {
		if (write)
			*(volatile uint8_t *)at = 0x5a;
		else
			(void)*(volatile uint8_t *)at;
		good = true;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return good;
}

bool can_read(const volatile void *at)
{
	return attempt((volatile void *)at, false);
}

bool can_write(volatile void *at)
{
	return attempt(at, true);
}

/* ---- Other processes ---- */

int in_child(uid_t uid, int (*fn)(void *), void *arg)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
			_exit(127);
		status = fn(arg);
		fflush(stdout);
		_exit(status);
	}
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int send_fd(int socket, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { };
	char byte = 0;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.room),
	};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(socket, &msg, 0) < 0 ? -errno : 0;
}

int receive_fd(int socket)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { };
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.room),
	};
	ssize_t got = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	int fd;

	if (got < 0)
		return -errno;
	if (got == 0 || msg.msg_controllen < CMSG_LEN(sizeof(int)))
		return -EPIPE;
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}
