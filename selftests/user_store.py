#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stores from VRAM, with the checksum that the client sends along: the disk fetches whole blocks by
DMA, and the host finds them nowhere in the guest's RAM."""
import gkvtest
import gpu
import guest
from gkvlib import LIB, MODE_DATA, QP_CSUM, QP_PRP, STORE, Session

LENGTH = (4 << 20) + 65536
BLOCK = 512
# Bytes of a value, and where in the memory it begins.
SHAPES = [(4096, 0), (512, 4096), (65536, 4096), (1 << 20, 0), ((1 << 20) + 512, 8192),
          (4 << 20, 4096), (4097, 0), (1000003, 4096), (70000, 512), (511, 0), (0, 0), (70001, 7)]
# Where a command is when the daemon dies (tests/crash/test_killpoints finds them in the sources).
POINTS = ["fetched", "record-before-fetched", "record-fetched", "record-handed", "local-landed",
          "local-commit", "record-before-done", "record-done", "post-before-cqe", "post-after-cqe",
          "post-free"]
seeds = iter(range(0x76000001, 0x77000000))


def counted(daemon):
    """(by DMA, tails) of what was stored."""
    counters = daemon.gkvctl("status")["counters"]
    return counters["store_direct_bytes"], counters["store_tail_bytes"]


def store(session, at, key, size, offset):
    """Returns the seed of the value."""
    seed = next(seeds)
    if size:
        guest.ask("vram-fill", seed, at + offset, size)
    crc = LIB.gkv_crc32c(0, session.addr + offset, size)
    gkvtest.equal(session.status(STORE, key, size, offset, crc=crc), 0, f"Store of {size} bytes")
    return seed


def every_shape(namespace, flags, mode):
    with gkvtest.Daemon(guest.CONFIG) as daemon, \
            Session(daemon, QP_CSUM | flags, namespace=namespace, length=LENGTH, mode=mode) as s:
        at = guest.vram_offset(s.mem)
        for size, offset in SHAPES:
            key, before = b"s%d.%d" % (size, offset), counted(daemon)
            if flags & QP_PRP and offset % 4:
                continue
            seed = store(s, at, key, size, offset)
            direct, tail = (a - b for a, b in zip(counted(daemon), before))
            whole = size // BLOCK * BLOCK
            if whole and not offset % BLOCK:
                gkvtest.equal((direct, tail), (whole, size - whole), f"{size} bytes at {offset}")
                guest.ask("ram-lacks", seed, whole)
            elif not whole:
                gkvtest.equal((direct, tail), (0, 0), f"{size} bytes at {offset}")
            guest.retrieve(s, key, at, size, offset, seed, next(seeds))


def a_way(namespace, flags, mode):
    def run():
        guest.need_vram()
        every_shape(namespace, flags, mode)
    return run


for name, how, where in (("raw", 0, 0x8), ("raw", QP_PRP, 0xf), ("file", QP_PRP, 0x8), ("file", 0, 0xf)):
    gkvtest.named(f"{name}, {'PRPs' if how else 'SGLs'}, {guest.mode_name(where)}")(a_way(name, how, where))


@gkvtest.test
def without_a_checksum_the_processor_takes_it():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        with Session(daemon, namespace="raw", length=LENGTH, mode=MODE_DATA) as s:
            at = guest.vram_offset(s.mem)
            seed = store(s, at, b"key", 65536, 0)
            gkvtest.equal(counted(daemon), (0, 0), "bytes by DMA")
            # And is found out: the search for traces works.
            try:
                guest.ask("ram-lacks", seed, 65536)
            except gkvtest.TestFailure:
                pass
            else:
                raise gkvtest.TestFailure("no trace of what the processor took")
            guest.retrieve(s, b"key", at, 65536, 0, seed, next(seeds))


@gkvtest.test
def a_successor_knows_the_way_back():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon, \
            Session(daemon, QP_CSUM, namespace="raw", length=LENGTH, mode=MODE_DATA) as s:
        at = guest.vram_offset(s.mem)
        daemon.kill9()
        daemon.start()
        gkvtest.wait_for(lambda: LIB.gkv_reconnects(s.handle) == 1, 20, "the session is handed over")
        seed = store(s, at, b"key", 1 << 20, 0)
        gkvtest.equal(counted(daemon), (1 << 20, 0), "bytes by DMA")
        guest.retrieve(s, b"key", at, 1 << 20, 0, seed, next(seeds))


@gkvtest.test
def a_gpu_outside_computes_and_verifies():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        for mode, namespace, shape in ((0x8, "raw", "-w 2 -l 8 -r 3 -v 70000"),
                                       (0xa, "file", "-w 1 -l 4 -r 2 -v 1000003 --prp"),
                                       (0xf, "raw", "-w 1 -l 8 -b 15 -d 16 -r 3 -v 50000 --offset 511")):
            gpu.use(daemon, mode, namespace, f"{shape} --csum")
        direct, _ = counted(daemon)
        gkvtest.check(direct > 0, "some went by DMA")
        gkvtest.equal(guest.bounced(daemon), 0, "bytes that were to go by DMA and did not")


@gkvtest.test
def the_daemon_is_killed_while_disks_fetch():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        gpu.through_a_restart(daemon, 15, "raw", shape="-w 2 -l 4 -r 1000000 -v 200000 --csum")
        gkvtest.check(counted(daemon)[0] > 0, "some went by DMA")


@gkvtest.test
def the_daemon_dies_at_each_point_of_a_command():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        offer = gpu.Offer(daemon, 15, "raw", "-w 2 -l 4 -r 1000000 -v 50000 --csum")
        guest.ask("start gpu", *offer.arguments())
        for point in POINTS:
            gkvtest.wait_for(lambda: gpu.served(daemon) > 20, 20, "the GPU is served")
            daemon.kill9()
            daemon.spawn({"GKV_KILLPOINT": f"{point}:7"})
            daemon.wait_killed()
            daemon.start()
        gkvtest.wait_for(lambda: gpu.served(daemon) > 20, 20, "the GPU is served")
        guest.ask("stop gpu")
        offer.end()


gkvtest.main()
