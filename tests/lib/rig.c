/* SPDX-License-Identifier: MIT */
/*
 * Test rig: start, watch and stop a kvbridged.
 */
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#include "rig.h"

#define NSEC_PER_SEC 1000000000ull

/* Ends the test program; the runner counts that as a failure. */
static void __attribute__((noreturn)) give_up(struct rig *rig, const char *what)
{
	tap_diag("rig: %s", what);
	rig_show_log(rig);
	if (rig->pid > 0)
		kill(rig->pid, SIGKILL);
	fflush(stdout);
	exit(1);
}

uint64_t rig_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

unsigned int rig_slowdown(void)
{
	const char *san = getenv("GKV_SAN"), *slow = getenv("GKV_SLOW");
	unsigned int n = slow ? (unsigned int)strtoul(slow, NULL, 0) : 1;

	if (san && !strcmp(san, "address"))
		n *= 3;
	if (san && !strcmp(san, "thread"))
		n *= 6;
	return n ? n : 1;
}

static void nap(void)
{
	const struct timespec ts = { .tv_nsec = 5 * 1000 * 1000 };

	nanosleep(&ts, NULL);
}

/* @text to @out with {dir} replaced. */
static void write_expanded(FILE *out, const char *text, const char *dir)
{
	const char *hit;

	while ((hit = strstr(text, "{dir}"))) {
		fwrite(text, 1, (size_t)(hit - text), out);
		fputs(dir, out);
		text = hit + strlen("{dir}");
	}
	fputs(text, out);
}

void rig_init(struct rig *rig, const char *text)
{
	const char *tmp = getenv("TMPDIR");
	const char *section = strstr(text, "[daemon]\n");
	FILE *out;

	memset(rig, 0, sizeof(*rig));
	/* A socket's path is short: fall back where TMPDIR is not. */
	if (!tmp || strlen(tmp) > 32)
		tmp = "/tmp";
	snprintf(rig->dir, sizeof(rig->dir), "%s/gkv-XXXXXX", tmp);
	if (!mkdtemp(rig->dir))
		give_up(rig, strerror(errno));
	snprintf(rig->socket, sizeof(rig->socket), "%s/kvbridged.sock", rig->dir);
	snprintf(rig->config, sizeof(rig->config), "%s/kvbridged.conf", rig->dir);
	snprintf(rig->log, sizeof(rig->log), "%s/kvbridged.log", rig->dir);

	out = fopen(rig->config, "we");
	if (!out)
		give_up(rig, strerror(errno));
	fprintf(out, "[daemon]\nsocket = %s\n", rig->socket);
	if (section) {
		/* What stands before its only [daemon] line would be another section's. */
		if (section != text)
			give_up(rig, "[daemon] must be the first line of the configuration");
		text = section + strlen("[daemon]\n");
	}
	write_expanded(out, text, rig->dir);
	if (fclose(out))
		give_up(rig, strerror(errno));
}

void rig_spawn(struct rig *rig, const char *env)
{
	const char *build = getenv("GKV_BUILD");
	pid_t parent = getpid();
	char program[512];
	char *env_copy = env ? strdup(env) : NULL;

	snprintf(program, sizeof(program), "%s/kvbridged", build ? build : "build");
	fflush(NULL);
	rig->pid = fork();
	if (rig->pid < 0)
		give_up(rig, strerror(errno));
	if (rig->pid == 0) {
		int log = open(rig->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
		int null = open("/dev/null", O_RDONLY);

		/* Never outlive the test, however that ends. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(126);
		if (env_copy)
			putenv(env_copy);
		if (log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
			_exit(126);
		execl(program, "kvbridged", "-c", rig->config, (char *)NULL);
		dprintf(2, "cannot run %s: %s\n", program, strerror(errno));
		_exit(127);
	}
	free(env_copy);
}

static bool takes_connection(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	ok = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;
	close(fd);
	return ok;
}

void rig_start_env(struct rig *rig, const char *env)
{
	uint64_t end = rig_now() + 20 * rig_slowdown() * NSEC_PER_SEC;

	rig_spawn(rig, env);
	while (!takes_connection(rig->socket)) {
		if (!rig_alive(rig))
			give_up(rig, "kvbridged ended at start");
		if (rig_now() > end)
			give_up(rig, "kvbridged does not listen");
		nap();
	}
}

void rig_start(struct rig *rig)
{
	rig_start_env(rig, NULL);
}

bool rig_alive(struct rig *rig)
{
	siginfo_t info = { 0 };

	if (rig->pid <= 0)
		return false;
	/* WNOWAIT: leave it to be reaped by whoever judges how it ended. */
	if (waitid(P_PID, (id_t)rig->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
		return false;
	return info.si_pid == 0;
}

/* Reap the daemon within @seconds: its wait status, or -1. */
static int reap(struct rig *rig, unsigned int seconds)
{
	uint64_t end = rig_now() + (uint64_t)seconds * rig_slowdown() * NSEC_PER_SEC;
	int status;

	for (;;) {
		pid_t pid = waitpid(rig->pid, &status, WNOHANG);

		if (pid == rig->pid) {
			rig->pid = 0;
			return status;
		}
		if (pid < 0 && errno != EINTR)
			give_up(rig, strerror(errno));
		if (rig_now() > end)
			return -1;
		nap();
	}
}

static void describe(char *buf, size_t len, int status)
{
	if (WIFSIGNALED(status))
		snprintf(buf, len, "killed by signal %d", WTERMSIG(status));
	else
		snprintf(buf, len, "exit status %d", WEXITSTATUS(status));
}

/* Fails when the daemon ended before the test wanted it to. */
static void insist_alive(struct rig *rig)
{
	char how[64], what[128];

	if (rig->pid <= 0)
		give_up(rig, "no kvbridged is running");
	if (rig_alive(rig))
		return;
	describe(how, sizeof(how), reap(rig, 1));
	snprintf(what, sizeof(what), "kvbridged ended by itself: %s", how);
	give_up(rig, what);
}

void rig_stop(struct rig *rig, unsigned int seconds)
{
	char how[64], what[128];
	int status;

	insist_alive(rig);
	kill(rig->pid, SIGTERM);
	status = reap(rig, seconds);
	if (status == -1)
		give_up(rig, "kvbridged does not stop");
	if (status != 0) {
		describe(how, sizeof(how), status);
		snprintf(what, sizeof(what), "kvbridged did not exit cleanly: %s", how);
		give_up(rig, what);
	}
}

void rig_kill(struct rig *rig)
{
	insist_alive(rig);
	kill(rig->pid, SIGKILL);
	if (reap(rig, 60) == -1)
		give_up(rig, "kvbridged outlives SIGKILL");
}

bool rig_wait_killed(struct rig *rig, unsigned int seconds)
{
	char how[64], what[128];
	int status;

	if (rig->pid <= 0)
		give_up(rig, "no kvbridged is running");
	status = reap(rig, seconds);
	if (status == -1)
		return false;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		describe(how, sizeof(how), status);
		snprintf(what, sizeof(what), "kvbridged was to be killed: %s", how);
		give_up(rig, what);
	}
	return true;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void rig_fini(struct rig *rig)
{
	if (rig->pid > 0)
		rig_stop(rig, 20);
	if (rig->dir[0])
		nftw(rig->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void rig_show_log(const struct rig *rig)
{
	char lines[40][256];
	unsigned int n = 0;
	FILE *in = rig->log[0] ? fopen(rig->log, "re") : NULL;

	if (!in)
		return;
	while (fgets(lines[n % 40], sizeof(lines[0]), in))
		n++;
	fclose(in);
	for (unsigned int i = n > 40 ? n - 40 : 0; i < n; i++) {
		char *line = lines[i % 40];

		line[strcspn(line, "\n")] = '\0';
		tap_diag("kvbridged: %s", line);
	}
}
