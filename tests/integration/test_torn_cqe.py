#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no builds a daemon of its own, without sanitizers
# gkv-timeout: 300
"""F2, F3, F4: torn completions. A daemon whose completion writer is broken on purpose (the
phase before the result) must be caught by a client, and the real one must not be: with the
reader of libgkv, and with that of device code."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
CONFIG = """
[daemon]
reactors = 1

[namespace main]
nsid = 1
stack = mem
"""
TORN = 3
COMPLETIONS = 200000
NEVER = 10 ** 18


def run(daemon, program, *args, seconds):
    done = gkvtest.run_program("tests/integration/" + program, daemon.socket, *args,
                               status=None, seconds=seconds)
    print("# " + (done.stdout + done.stderr).decode(errors="replace").strip())
    return done.returncode


def client(daemon, seconds):
    return run(daemon, "torn_client", seconds, seconds=seconds + 100)


def device(daemon, completions, seconds=90):
    """The time is a limit: the reader ends with its completions, or when it has seen enough."""
    return run(daemon, "torn_device", completions, seconds, seconds=seconds + 30)


def start_broken():
    """Builds the broken daemon, if need be, and starts it."""
    build = os.path.join(gkvtest.BUILD, "torn")
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD", "SAN")}
    made = subprocess.run(["make", "-C", TOP, "-j2", f"BUILD={build}",
                           "CPPFLAGS=-DKVB_BREAK_CQE_ORDER", f"{build}/kvbridged"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=env, check=False)
    gkvtest.equal(made.returncode, 0, "make\n" + made.stdout.decode(errors="replace")[-2000:])
    normal = gkvtest.BUILD
    daemon = gkvtest.Daemon(CONFIG, start=False)
    try:
        gkvtest.BUILD = build
        daemon.start()
    finally:
        gkvtest.BUILD = normal
    return daemon


@gkvtest.named("F2, F3: no completion of the daemon is torn")
def real_writer():
    with gkvtest.Daemon(CONFIG) as daemon:
        gkvtest.equal(client(daemon, 20 if gkvtest.LONG else 3), 0, "exit status of the client")


@gkvtest.named("F2, F3, R15: nor is one that device code reads")
def real_writer_device():
    with gkvtest.Daemon(CONFIG) as daemon:
        gkvtest.equal(device(daemon, COMPLETIONS * (10 if gkvtest.LONG else 1)), 0,
                      "exit status of the device's reader")


@gkvtest.named("F2, F3: a daemon that writes the phase first is caught")
def broken_writer():
    with start_broken() as daemon:
        gkvtest.equal(client(daemon, 20), TORN, "exit status of the client")


@gkvtest.named("F2, F3, R15: device code catches it, too")
def broken_writer_device():
    with start_broken() as daemon:
        gkvtest.equal(device(daemon, NEVER), TORN, "exit status of the device's reader")


if __name__ == "__main__":
    gkvtest.main()
