#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kvbridged follows the module's settings while it runs, tells where a setting comes from, and goes on
when the module comes and goes."""
import subprocess
from ctypes import byref, c_void_p, sizeof

import gkvtest
import guest
from gkvlib import LIB, QpOpts, Session

DEFAULTS = {"poll_interval_ns": 1000000, "max_queue_depth": 4096}


def in_force(daemon, name):
    """(value, origin)."""
    one = next(one for one in daemon.gkvctl("settings") if one["name"] == name)
    return one["value"], one["origin"]


def follows(daemon, name, value):
    gkvtest.wait_for(lambda: in_force(daemon, name) == (value, "sysfs"), 5,
                     f"{name} = {value} is followed; it is {in_force(daemon, name)}")


def create(session, depth):
    made = c_void_p()
    opts = QpOpts(size=sizeof(QpOpts), depth=depth)
    code = LIB.gkv_qp_create(session.handle, byref(opts), byref(made))
    return code, LIB.gkv_error().decode()


def restored(test):
    """With the module's defaults before and after."""
    def run():
        try:
            test()
        finally:
            for name, value in DEFAULTS.items():
                guest.setting(name, value)
    return run


@gkvtest.named("poll_interval_ns and max_queue_depth are followed live")
@restored
def live():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        for value in (123456, 5000000):
            guest.setting("poll_interval_ns", value)
            follows(daemon, "poll_interval_ns", value)
        guest.setting("max_queue_depth", 64)
        follows(daemon, "max_queue_depth", 64)
        code, text = create(s, 65)
        gkvtest.check(code < 0 and "64" in text, f"a refusal names the limit: {code}, {text}")
        gkvtest.equal(create(s, 64)[0], 0, "one as deep as allowed")
        # What is there already stays as it is.
        gkvtest.equal(s.store(b"key", b"value"), 0, "Store on a deeper one")
        guest.setting("max_queue_depth", 8192)
        follows(daemon, "max_queue_depth", 8192)
        # Limits are told when a session begins.
        with Session(daemon) as later:
            gkvtest.equal(create(later, 8192)[0], 0, "a deeper one")


@gkvtest.named("a daemon that starts later takes over what was set")
@restored
def at_start():
    guest.setting("poll_interval_ns", 777777)
    with gkvtest.Daemon() as daemon:
        follows(daemon, "poll_interval_ns", 777777)


@gkvtest.named("the command line has precedence")
@restored
def command_line():
    with gkvtest.Daemon(args=["-o", "poll_interval_ns=222222"]) as daemon:
        guest.setting("poll_interval_ns", 333333)
        guest.setting("max_queue_depth", 32)
        follows(daemon, "max_queue_depth", 32)
        gkvtest.equal(in_force(daemon, "poll_interval_ns"), (222222, "command line"), "in force")


@gkvtest.named("the module comes and goes under a running daemon")
@restored
def module_goes():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        subprocess.run(["rmmod", "gkvdrv"], check=True)
        gkvtest.equal(s.store(b"key", b"value"), 0, "Store without the module")
        subprocess.run(["insmod", "/modules/gkvdrv.ko"], check=True)
        guest.setting("max_queue_depth", 128)
        follows(daemon, "max_queue_depth", 128)


gkvtest.main()
