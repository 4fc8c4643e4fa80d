#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A GPU outside the machine, with nothing but its memory, drives kvbridged's queues inside: in all
sixteen memory modes it builds entries, rings, polls, and verifies the values it gets."""
import os
import subprocess

import gkvtest
import guest

PROGRAM = os.path.join(gkvtest.BUILD, "gkv-gpusim")
# Of which size, where and how described values are; how many lanes.
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

seeds = iter(range(1, 10000))


class Offer:
    """A queue pair for the GPU: the process that has made it, and waits."""

    def __init__(self, daemon, mode, namespace, shape):
        self.shape = shape.split()
        self.process = subprocess.Popen(
            [PROGRAM, "--offer", "-s", daemon.socket, "-n", namespace, "-m", str(mode), *self.shape],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        gkvtest.check(self.address, "gkv-gpusim offers a queue pair")

    def arguments(self):
        return [f"{guest.VRAM_ADDR:#x}" if guest.VRAM_ADDR else "-", self.address, *self.shape]

    def end(self):
        self.process.communicate(timeout=60 * gkvtest.SLOW)
        gkvtest.equal(self.process.returncode, 0, "status of gkv-gpusim --offer")


def use(daemon, mode, namespace, shape):
    offer = Offer(daemon, mode, namespace, f"{shape} -S {next(seeds)}")
    guest.ask("run gpu", *offer.arguments())
    offer.end()


def every_shape(mode):
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        for i, shape in enumerate(SHAPES):
            use(daemon, mode, ("raw", "file")[(i + mode) % 2], shape)
        if mode in LARGEST:
            use(daemon, mode, "raw", LARGEST[mode])
        gkvtest.equal(guest.bounced(daemon), 0, "bytes that were to go by DMA and did not")


def in_vram(mode):
    def run():
        guest.need_vram()
        every_shape(mode)
    return run


@gkvtest.test
def everything_in_host_memory():
    # Pages that are locked still move, for room.
    guest.write("/proc/sys/vm/compact_unevictable_allowed", "0")
    every_shape(0)


for each in range(1, 16):
    gkvtest.named(guest.mode_name(each))(in_vram(each))


def served(daemon):
    """Commands that this daemon has completed."""
    return daemon.gkvctl("status")["counters"]["posted"]


def through_a_restart(mode):
    """The daemon is killed and started again under the GPU, which notices only delay."""
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        offer = Offer(daemon, mode, "raw", "-w 2 -l 8 -r 1000000 -v 20000")
        guest.ask("start gpu", *offer.arguments())
        for _ in range(3):
            gkvtest.wait_for(lambda: served(daemon) > 200, 20, "the GPU is served")
            daemon.kill9()
            daemon.start()
        gkvtest.wait_for(lambda: served(daemon) > 200, 20, "the GPU is served")
        guest.ask("stop gpu")
        offer.end()


@gkvtest.test
def the_daemon_is_killed_with_everything_in_host_memory():
    through_a_restart(0)


@gkvtest.test
def the_daemon_is_killed_with_everything_in_vram():
    guest.need_vram()
    through_a_restart(15)


gkvtest.main()
