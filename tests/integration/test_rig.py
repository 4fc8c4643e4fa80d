#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The test rig: a daemon that dies or will not stop fails the test that started it."""
import os
import signal
import subprocess
import sys
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib")


def crash(daemon):
    os.kill(daemon.pid, signal.SIGSEGV)
    gkvtest.wait_for(lambda: daemon.process.poll() is not None, 10, "the daemon dies")


def must_fail(function):
    try:
        function()
    except gkvtest.TestFailure:
        return
    raise gkvtest.TestFailure("the rig did not notice")


@gkvtest.named("F105: the rig notices a daemon that crashed (Python)")
def python_crash():
    def run():
        with gkvtest.Daemon() as daemon:
            crash(daemon)
    must_fail(run)


@gkvtest.named("F105: a crashed daemon is blamed before the assertion it broke (Python)")
def python_crash_and_failure():
    def run():
        with gkvtest.Daemon() as daemon:
            crash(daemon)
            raise ValueError("what the test noticed")
    try:
        run()
    except gkvtest.TestFailure as failure:
        gkvtest.check("kvbridged is gone" in str(failure), "blames something else")
        gkvtest.check("what the test noticed" in str(failure), "hides the first failure")


@gkvtest.named("F105: the rig notices a daemon that was gone before its kill -9 (Python)")
def python_kill():
    daemon = gkvtest.Daemon()
    crash(daemon)
    must_fail(daemon.kill9)
    daemon.remove()


@gkvtest.test
def a_daemon_starts_stops_and_starts_again():
    with gkvtest.Daemon() as daemon:
        daemon.kill9()
        daemon.start()
        daemon.stop()
        daemon.start()


@gkvtest.named("F105: the rig notices a daemon that crashed (shell)")
def shell_crash():
    script = textwrap.dedent(f"""\
        . {LIB}/common.sh
        start_daemon <<-END
        [namespace main]
        nsid = 1
        stack = mem
        END
        pass "nothing wrong so far"
        [ "$1" != crash ] || {{ kill -SEGV "$DAEMON_PID"; sleep 1; }}
        finish
        """)
    for mode, status in (("stay", 0), ("crash", 1)):
        done = subprocess.run(["bash", "-c", script, "test", mode], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False,
                              env=dict(os.environ, GKV_BUILD=gkvtest.BUILD))
        gkvtest.equal(done.returncode, status, f"{mode}: exit status\n{done.stdout.decode()}")


@gkvtest.named("F105: the rig notices a daemon that crashed (C)")
def c_crash():
    for mode, status in (("stay", 0), ("crash", 1), ("kill", 0), ("crash-kill", 1)):
        gkvtest.run_program("tests/integration/rig_crash", mode, status=status)


if __name__ == "__main__":
    gkvtest.main()
