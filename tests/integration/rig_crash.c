/* SPDX-License-Identifier: MIT */
/*
 * What the C rig makes of a daemon's end; run by test_rig.py. Argument: stay, kill (the
 * daemon lives until the rig ends it), crash or crash-kill (it is gone before).
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "rig.h"

int main(int argc, char **argv)
{
	const struct timespec ts = { .tv_nsec = 10 * 1000 * 1000 };
	const char *mode = argc > 1 ? argv[1] : "stay";
	struct rig rig;

	rig_init(&rig, "[namespace main]\nnsid = 1\nstack = mem\n");
	rig_start(&rig);
	if (!strncmp(mode, "crash", 5)) {
		kill(rig.pid, SIGSEGV);
		while (rig_alive(&rig))
			nanosleep(&ts, NULL);
	}
	if (strstr(mode, "kill"))
		rig_kill(&rig);
	tap_ok(true, "got here");
	rig_fini(&rig);
	return tap_done();
}
