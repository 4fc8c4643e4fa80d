#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no a sanitizer's runtime cannot be loaded into python
"""What the local store needs of kernel and file system is found at start, not by its first command.

A filter of system calls (seccomp) makes this kernel one that refuses it.
"""
import ctypes
import os
import platform
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position
from gkvlib import Session  # pylint: disable=wrong-import-position

KVBRIDGED = os.path.join(gkvtest.BUILD, "kvbridged")
OPENAT = {"x86_64": 257, "aarch64": 56}[platform.machine()]
IO_URING_SETUP, IO_URING_REGISTER, REGISTER_PROBE = 425, 427, 8
EINVAL, ENOSYS, EOPNOTSUPP = 22, 38, 95
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO = 0x7fff0000, 0x00050000
LIBC = ctypes.CDLL(None, use_errno=True)

CONFIG = """
[daemon]
buffer_memory = 16M
[namespace main]
nsid = 1
stack = local
value_max = 1M
local.path = {dir}/store
local.size = 64M
"""


def refuse(call, error, argument=None, compare=EQUAL, value=0):
    """In this process and its children: the system call fails, always or with such an argument."""
    body = [(LOAD, 0, 0, 0), (EQUAL, 0, 3 if argument is not None else 1, call)]
    if argument is not None:
        body += [(LOAD, 0, 0, 16 + 8 * argument), (compare, 0, 1, value)]
    body += [(RETURN, 0, 0, ERRNO | error), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in body))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(body), ctypes.addressof(code)))
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
            LIBC.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def start(*how):
    """Status and standard error of a daemon that is expected not to start."""
    with tempfile.TemporaryDirectory(prefix="gkv-") as place:
        conf = os.path.join(place, "conf")
        with open(conf, "w", encoding="ascii") as file:
            file.write(CONFIG.replace("{dir}", place))
        done = subprocess.run([KVBRIDGED, "-c", conf, "-o", f"socket={place}/socket"],
                              stderr=subprocess.PIPE, text=True, timeout=30 * gkvtest.SLOW,
                              preexec_fn=lambda: refuse(*how), check=False)
        return done.returncode, done.stderr


@gkvtest.named("F84: a file system that refuses O_DIRECT is told at start, with the way out")
def no_direct_io():
    status, text = start(OPENAT, EINVAL, 2, ANY_BIT, os.O_DIRECT)
    gkvtest.check(status > 0 and "direct I/O refused" in text and "local.buffered = on" in text,
                  f"{status}: {text}")


@gkvtest.named("F84: through the page cache is a choice, told in the log, and values are right")
def buffered():
    child = os.fork()
    if not child:
        code = 1
        try:
            refuse(OPENAT, EINVAL, 2, ANY_BIT, os.O_DIRECT)
            with gkvtest.Daemon(CONFIG + "local.buffered = on\n") as daemon:
                with Session(daemon) as s:
                    gkvtest.equal(s.store(b"key", b"value" * 5000), 0, "Store")
                    gkvtest.equal(s.retrieve(b"key"), (b"value" * 5000, 25000), "Retrieve")
                gkvtest.check("buffered I/O" in daemon.log(), "the log says so")
            code = 0
        except gkvtest.TestFailure as failure:
            print(f"# {failure}", flush=True)
        finally:
            os._exit(code)
    gkvtest.equal(os.waitpid(child, 0)[1], 0, "status")


@gkvtest.named("F85: a kernel without io_uring, or that hides its operations, is told at start")
def no_io_uring():
    for how in ((IO_URING_SETUP, ENOSYS), (IO_URING_REGISTER, EINVAL, 1, EQUAL, REGISTER_PROBE)):
        status, text = start(*how)
        gkvtest.check(status > 0 and "io_uring" in text, f"{how}: {status}: {text}")


@gkvtest.named("without a filter the same daemon starts")
def nothing_refused():
    with gkvtest.Daemon(CONFIG) as daemon:
        gkvtest.check("buffered" not in daemon.log(), "the log does not speak of it")


gkvtest.main()
