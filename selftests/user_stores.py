#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""User space runs in the machine as it was built outside: kvbridged with a store on a raw disk and
one in a filesystem, a client in host memory, gkvctl. What others build on."""
import os

import gkvtest
from gkvlib import RETRIEVE, Session

CONFIG = """
[daemon]
buffer_memory = 64M
[namespace raw]
nsid = 1
stack = local
local.path = {disk}
[namespace file]
nsid = 2
stack = local
local.path = {fs}/gkv-user
local.size = 256M
"""


def config():
    return CONFIG.replace("{disk}", os.environ["GKV_DISK"]).replace("{fs}", os.environ["GKV_FS"])


def check_values(daemon, name, first):
    """Values of all kinds of sizes; only looks for them if they are there already."""
    with Session(daemon, length=(4 << 20) + 8192, namespace=name) as s:
        for size in (0, 1, 511, 512, 4095, 4096, 4097, 65536, 1000003, 4 << 20):
            key, value = b"v%d" % size, bytes([size % 251 + 1]) * size
            if first:
                gkvtest.equal(s.store(key, value), 0)
            gkvtest.equal(s.retrieve(key, (4 << 20) + 4096), (value, size))
        gkvtest.equal(s.status(RETRIEVE, b"none", 4096), 0x87)


@gkvtest.test
def values_on_a_raw_disk_and_in_a_filesystem_outlive_the_daemon():
    with gkvtest.Daemon(config()) as daemon:
        check_values(daemon, "raw", True)
        check_values(daemon, "file", True)
        daemon.stop()
        daemon.start()
        check_values(daemon, "raw", False)
        check_values(daemon, "file", False)
        daemon.kill9()
        daemon.start()
        check_values(daemon, "raw", False)
        check_values(daemon, "file", False)


@gkvtest.test
def gkvctl_stores_and_shows():
    with gkvtest.Daemon(config()) as daemon:
        daemon.gkvctl("put", "-n", "file", "key", "-", stdin=b"value", output=None)
        gkvtest.equal(daemon.gkvctl("get", "-n", "file", "key", "-", output=None), b"value")


gkvtest.main()
