#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The SMART / Health log tells the truth, over orderly stops and over kills."""
import glob
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import gkvtest  # noqa: E402
from gkvtest import Daemon, check, equal  # noqa: E402

CONFIG = """
[daemon]
reactors = 2
state_dir = {dir}
[namespace kv0]
nsid = 1
stack = local
local.path = {dir}/store
local.size = 16M
"""


def smart(daemon):
    return daemon.gkvctl("log", "smart")


def expect(daemon, **fields):
    log = smart(daemon)
    for name, want in fields.items():
        equal(log[name], want, name)


def health_file(daemon):
    files = glob.glob(os.path.join(daemon.dir, "*.health"))
    equal(len(files), 1, "health files")
    return files[0]


@gkvtest.test
def starts_and_kills_are_counted():
    with Daemon(CONFIG) as daemon:
        expect(daemon, power_cycles=1, unsafe_shutdowns=0)
        daemon.stop()
        daemon.start()
        expect(daemon, power_cycles=2, unsafe_shutdowns=0)
        daemon.kill9()
        daemon.start()
        expect(daemon, power_cycles=3, unsafe_shutdowns=1)
        daemon.stop()
        daemon.start()
        expect(daemon, power_cycles=4, unsafe_shutdowns=1)


@gkvtest.test
def counts_outlive_the_daemon():
    with Daemon(CONFIG) as daemon:
        daemon.gkvctl("put", "k", output=None, stdin=b"x" * 600000)
        for _ in range(3):
            daemon.gkvctl("get", "k", output=None)
        before = smart(daemon)
        check(before["host_reads"] >= 3 and before["host_writes"] == 1, f"{before}")
        check(before["data_units_written"] == 2, f"{before}")
        daemon.stop()
        daemon.start()
        after = smart(daemon)
        for name in ("host_reads", "host_writes", "data_units_written", "data_units_read"):
            equal(after[name], before[name], name)


def flip_value(daemon, pattern):
    path = os.path.join(daemon.dir, "store")
    with open(path, "r+b") as file:
        at = file.read().find(pattern)
        check(at >= 0, "the value is in the file")
        file.seek(at + 100)
        file.write(b"\0")


@gkvtest.test
def bad_values_are_media_errors_even_of_a_daemon_that_is_killed_later():
    with Daemon(CONFIG) as daemon:
        daemon.gkvctl("put", "good", output=None, stdin=b"g" * 5000)
        daemon.gkvctl("put", "bad", output=None, stdin=b"b" * 5000)
        daemon.gkvctl("flush", output=None)
        expect(daemon, media_errors=0)
        flip_value(daemon, b"b" * 1000)
        for count in (1, 2):
            done = daemon.gkvctl("get", "bad", output=None, status=None)
            check(done.returncode == 1 and b"88h" in done.stderr, f"{done}")
            expect(daemon, media_errors=count)
        daemon.gkvctl("get", "good", output=None)
        done = daemon.gkvctl("get", "missing", output=None, status=None)
        equal(done.returncode, 3, "exit status of a miss")
        expect(daemon, media_errors=2)

        def saved():
            with open(health_file(daemon), encoding="ascii") as file:
                return "media_errors = 2\n" in file.read()
        # Without a client: the daemon has nothing else to wake up for.
        gkvtest.wait_for(saved, 20, "the file has the media errors")
        daemon.kill9()
        daemon.start()
        expect(daemon, media_errors=2, unsafe_shutdowns=1)
        daemon.stop()
        daemon.start()
        expect(daemon, media_errors=2, unsafe_shutdowns=1, power_cycles=3)


@gkvtest.test
def a_second_daemon_on_the_socket_counts_nothing():
    with Daemon(CONFIG) as daemon:
        second = Daemon(CONFIG.replace("{dir}/store", "{dir}/other"), directory=daemon.dir,
                        start=False)
        second.spawn()
        check(second.process.wait(20 * gkvtest.SLOW) != 0, "the second daemon refuses to start")
        second.remove()
        daemon.stop()
        daemon.start()
        expect(daemon, power_cycles=2, unsafe_shutdowns=0)


@gkvtest.test
def what_is_no_health_file_is_replaced_and_said():
    with Daemon(CONFIG) as daemon:
        path = health_file(daemon)
        texts = ("", "clean = 1\n", "power_cycles = 99\nnonsense\n", "\0" * 5000)
        for count, text in enumerate(texts, 1):
            daemon.stop()
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            daemon.start()
            equal(daemon.log().count("not a health file"), count, "warnings")
            expect(daemon, power_cycles=1, unsafe_shutdowns=0)


@gkvtest.test
def without_a_state_directory_counts_are_of_this_daemon():
    with Daemon(CONFIG.replace("state_dir = {dir}", "state_dir = {dir}/none")) as daemon:
        for _ in range(2):
            expect(daemon, power_cycles=1, unsafe_shutdowns=0)
            daemon.stop()
            daemon.start()
        check(not glob.glob(os.path.join(daemon.dir, "*.health*")), "no file")


gkvtest.main()
