/* SPDX-License-Identifier: MIT */
#include "killer.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct killer *killer;
static pid_t pid;
static pthread_t thread;
static bool running, ending, idle, over;

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	nanosleep(&ts, NULL);
}

static int start(void)
{
	pid = fork();
	if (pid)
		return pid < 0 ? -1 : 0;
	/* It ends with the tool, however that ends. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execl("/bin/sh", "sh", "-c", killer->command, (char *)NULL);
	_exit(127);
}

int killer_start(struct killer *k)
{
	killer = k;
	return start();
}

static bool is(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void stall(void)
{
	kill(pid, SIGSTOP);
	sleep_ns(killer->every_ns);
	kill(pid, SIGCONT);
	killer->stalled++;
}

/* In turn, as long as there is something to do; a kill is always followed by a start. */
static void *run(void *arg)
{
	(void)arg;
	while (!is(&ending) && (killer->killed < killer->kills || killer->stalled < killer->stalls)) {
		sleep_ns(killer->every_ns);
		if (killer->stalled < killer->stalls)
			stall();
		if (is(&ending) || killer->killed >= killer->kills)
			continue;
		sleep_ns(killer->every_ns);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		killer->killed++;
		start();
	}
	__atomic_store_n(&idle, true, __ATOMIC_RELEASE);
	/* PR_SET_PDEATHSIG goes by this thread, if the daemon was started by it. */
	while (!is(&over))
		sleep_ns(1000000);
	return NULL;
}

int killer_begin(void)
{
	running = !pthread_create(&thread, NULL, run, NULL);
	return running ? 0 : -1;
}

bool killer_busy(void)
{
	return running && !is(&idle);
}

void killer_end(void)
{
	__atomic_store_n(&ending, true, __ATOMIC_RELEASE);
	while (running && !is(&idle))
		sleep_ns(1000000);
}

void killer_stop(void)
{
	if (pid > 0) {
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
		pid = 0;
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	if (running)
		pthread_join(thread, NULL);
	running = false;
}
