#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no builds a daemon of its own, without sanitizers
# gkv-timeout: 200
"""F2, F3, F4: torn completions. A daemon whose completion writer is broken on purpose (the
phase before the result) must be caught by a client, and the real one must not be."""
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


def client(daemon, seconds):
    done = gkvtest.run_program("tests/integration/torn_client", daemon.socket, seconds, status=None)
    print("# " + (done.stdout + done.stderr).decode(errors="replace").strip())
    return done.returncode


@gkvtest.named("F2, F3: no completion of the daemon is torn")
def real_writer():
    with gkvtest.Daemon(CONFIG) as daemon:
        gkvtest.equal(client(daemon, 20 if gkvtest.LONG else 3), 0, "exit status of the client")


@gkvtest.named("F2, F3: a daemon that writes the phase first is caught")
def broken_writer():
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
    with daemon:
        gkvtest.equal(client(daemon, 20), TORN, "exit status of the client")


if __name__ == "__main__":
    gkvtest.main()
