#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A GPU outside the machine, with nothing but its memory, drives kvbridged's queues inside: in all
sixteen memory modes it builds entries, rings (F25: one doorbell for many commands, in VRAM too),
polls, and verifies the values it gets."""
import gkvtest
import gpu
import guest
from gkvlib import LIB, MODE_DATA, STORE, Session

SHAPES = [
    "-w 2 -l 8 -r 3 -v 70000",
    "-w 2 -l 8 -r 3 -v 70000 --prp --offset 12",
    "-w 1 -l 4 -r 2 -v 1048576 --offset 512",
    "-w 1 -l 4 -r 2 -v 1000003 --prp",
    "-w 1 -l 8 -b 15 -d 16 -r 3 -v 5000 --offset 511",
]
# In some modes only: emulation takes its time.
LARGEST = {0x0: "-w 1 -l 1 -r 1 -v 67108864", 0x7: "-w 1 -l 1 -r 1 -v 67108863 --prp --offset 4",
           0x8: "-w 1 -l 1 -r 1 -v 67108863 --prp --offset 4", 0xf: "-w 1 -l 1 -r 1 -v 67108864"}


def every_shape(mode):
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        for i, shape in enumerate(SHAPES):
            gpu.use(daemon, mode, ("raw", "file")[(i + mode) % 2], shape)
        if mode in LARGEST:
            gpu.use(daemon, mode, "raw", LARGEST[mode])
        gkvtest.equal(guest.bounced(daemon), 0, "bytes that were to go by DMA and did not")


@gkvtest.test
def everything_in_host_memory():
    gpu.keep_pages()
    every_shape(0)


def in_vram(mode):
    def run():
        guest.need_vram()
        every_shape(mode)
    return run


for each in range(1, 16):
    gkvtest.named(guest.mode_name(each))(in_vram(each))


@gkvtest.test
def the_daemon_is_killed_with_everything_in_host_memory():
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        gpu.through_a_restart(daemon, 0, "raw")


@gkvtest.test
def the_daemon_is_killed_with_everything_in_vram():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        gpu.through_a_restart(daemon, 15, "raw")


@gkvtest.test
def a_successor_leaves_memory_alone_that_is_in_use():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon, \
            Session(daemon, namespace="raw", length=65536, mode=MODE_DATA) as s:
        at = guest.vram_offset(s.mem)
        guest.ask("vram-fill", next(gpu.seeds), at, 16384)
        guest.ask("start watch", at, 16384)
        daemon.kill9()
        daemon.start()
        gkvtest.wait_for(lambda: LIB.gkv_reconnects(s.handle) == 1, 20, "the session is handed over")
        gkvtest.equal(s.status(STORE, b"key", 4096, 32768), 0, "Store")
        guest.ask("stop watch")


gkvtest.main()
