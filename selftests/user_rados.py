#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Values between VRAM and objects of a Ceph cluster: what the host has put there arrives in the BAR,
what the host has written into the BAR is an object, and a GPU outside the machine does both."""
import os

import gkvtest
import gpu
import guest
from gkvlib import MODE_DATA, QP_PRP, STORE, Session

CONFIG = f"""
[daemon]
buffer_memory = 64M
[namespace objects]
nsid = 1
stack = rados
rados.conf = {os.environ.get("GKV_CEPH_CONF")}
rados.pool = kv
rados.namespace = guest
deadline = 60s
"""
LENGTH = (4 << 20) + 65536
# Bytes of a value, and where in the memory its buffer begins.
SHAPES = [(4096, 0), ((1 << 20) + 512, 8192), (4 << 20, 4096), (0, 0), (1, 0), (1000003, 4096), (70000, 12)]
seeds = iter(range(0x76000001, 0x77000000))


def start():
    if not os.environ.get("GKV_CEPH_CONF"):
        raise gkvtest.Skip("this machine has no Ceph cluster")
    daemon = gkvtest.Daemon(CONFIG)
    gkvtest.wait_for(lambda: daemon.gkvctl("namespaces")[0]["ready"], 20, "the cluster is connected")
    return daemon


def between_vram_and_objects(flags):
    with start() as daemon, Session(daemon, flags, namespace="objects", length=LENGTH,
                                    mode=MODE_DATA) as s:
        at = guest.vram_offset(s.mem)
        for size, offset in SHAPES:
            key, seed = b"o%d.%d" % (size, offset), next(seeds)
            if size:
                guest.ask("vram-fill", seed, at + offset, size)
            gkvtest.equal(s.status(STORE, key, size, offset), 0, f"Store of {size} bytes")
            guest.ask("run objects has guest", key.hex(), seed, size)
            seed = next(seeds)
            guest.ask("run objects put guest", key.hex(), seed, size)
            guest.retrieve(s, key, at, size, offset, seed, next(seeds))


@gkvtest.test
def values_between_vram_and_objects_by_sgl():
    guest.need_vram()
    between_vram_and_objects(0)


@gkvtest.test
def values_between_vram_and_objects_by_prp():
    guest.need_vram()
    between_vram_and_objects(QP_PRP)


def by_the_gpu(modes):
    with start() as daemon:
        for mode in modes:
            for shape in ("-w 2 -l 8 -r 2 -v 70000 --offset 12", "-w 1 -l 4 -r 2 -v 1000003 --prp"):
                gpu.use(daemon, mode, "objects", shape)
        gpu.use(daemon, modes[-1], "objects", "-w 1 -l 1 -r 1 -v 67108864")


@gkvtest.test
def a_gpu_with_everything_in_host_memory():
    gpu.keep_pages()
    by_the_gpu([0])


@gkvtest.test
def a_gpu_in_the_other_modes():
    guest.need_vram()
    by_the_gpu(range(1, 16))


@gkvtest.test
def the_daemon_is_killed_under_the_gpu():
    guest.need_vram()
    with start() as daemon:
        gpu.through_a_restart(daemon, 15, "objects", kills=2)


gkvtest.main()
