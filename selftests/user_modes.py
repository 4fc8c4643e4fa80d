#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Values go through kvbridged in all sixteen memory modes; those that belong in VRAM go straight
there from the disk, and the host finds them nowhere in the guest's RAM."""
import ctypes
import os
from ctypes import byref

import gkvtest
import guest
from gkvlib import (LIB, MODE_DATA, PLACE_HOST, PLACE_VRAM, QP_PRP, RETRIEVE, STORE, Session,
                    place)

LENGTH = (4 << 20) + 65536
# Bytes of a value, and where in the memory its buffer begins.
SHAPES = [(4096, 0), (65536, 4096), (1 << 20, 0), ((1 << 20) + 512, 8192), (4 << 20, 4096),
          (0, 0), (1, 0), (511, 4096), (4097, 0), (1000003, 4096), (4096, 4), (70000, 12)]
# For modes that differ in where queues are only.
FEW = [((1 << 20) + 512, 8192), (1000003, 4096), (70000, 12), (0, 0)]
BLOCK = 512
seeds = iter(range(0x75000001, 0x76000000))


def check_places(session, mode):
    for part in range(3):
        want = PLACE_VRAM if mode >> part & 1 else PLACE_HOST
        gkvtest.equal(place(LIB.gkv_qp_place, session.qp, part).where, want, f"part {part}")
    want = PLACE_VRAM if mode & MODE_DATA else PLACE_HOST
    gkvtest.equal(place(LIB.gkv_mem_place, session.mem).where, want, "memory")


def ways(mode):
    """[(namespace, flags of the queue pair, shapes)]: all once for each kind of data, else some."""
    both = [("raw", 0), ("file", QP_PRP)]
    if mode & ~MODE_DATA:
        return [(*both[bin(mode).count("1") % 2], FEW)]
    return [(*way, SHAPES) for way in both]


def host_values(session, shapes):
    """Data in host memory: Python may look."""
    for size, offset in shapes:
        value = bytes([size % 251 + 1]) * size
        ctypes.memmove(session.addr + offset, value, size)
        key = b"h%d" % size
        gkvtest.equal(session.status(STORE, key, size, offset), 0, f"Store of {size}")
        gkvtest.equal(session.retrieve(key, LENGTH - 4096), (value, size), f"value of {size} bytes")


def every_size(mode):
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        for name, flags, shapes in ways(mode):
            if not mode & MODE_DATA:
                with Session(daemon, flags, namespace=name, length=LENGTH, mode=mode) as s:
                    check_places(s, mode)
                    host_values(s, shapes)
                continue
            stored = store_from_vram(daemon, flags, name, mode, shapes)
            # What staged the values is gone, and its memory zeroed (init_on_free).
            daemon.stop()
            daemon.start()
            retrieve_into_vram(daemon, flags, name, mode, stored)


def store_from_vram(daemon, flags, name, mode, shapes):
    """[(key, seed, bytes, offset)] of what the host wrote into VRAM."""
    stored = []
    with Session(daemon, flags, namespace=name, length=LENGTH, mode=mode) as s:
        check_places(s, mode)
        at = guest.vram_offset(s.mem)
        for size, offset in shapes:
            key, seed = b"v%d.%d" % (size, offset), next(seeds)
            if size:
                guest.ask("vram-fill", seed, at + offset, size)
            gkvtest.equal(s.status(STORE, key, size, offset), 0, f"Store of {size} bytes")
            stored.append((key, seed, size, offset))
    return stored


def retrieve_into_vram(daemon, flags, name, mode, stored):
    with Session(daemon, flags, namespace=name, length=LENGTH, mode=mode) as s:
        at = guest.vram_offset(s.mem)
        for key, seed, size, offset in stored:
            guest.retrieve(s, key, at, size, offset, seed, next(seeds))
            # Whole blocks go by DMA where the buffer's place allows it.
            if offset % BLOCK == 0 and size >= BLOCK:
                guest.ask("ram-lacks", seed, size // BLOCK * BLOCK)
        gkvtest.equal(guest.bounced(daemon), 0, "bytes that were to go by DMA and did not")


@gkvtest.test
def queue_pairs_in_host_memory():
    every_size(0)


def in_vram(mode):
    def run():
        guest.need_vram()
        every_size(mode)
    return run


for each in range(1, 16):
    gkvtest.named(guest.mode_name(each))(in_vram(each))


@gkvtest.test
def what_nobody_else_verifies_goes_through_host_memory_and_is_counted():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG.replace("verify = off", "verify = on")) as daemon:
        with Session(daemon, namespace="raw", length=LENGTH, mode=MODE_DATA) as s:
            at, seed = guest.vram_offset(s.mem), next(seeds)
            guest.ask("vram-fill", seed, at, 1 << 20)
            gkvtest.equal(s.status(STORE, b"verified", 1 << 20), 0, "Store")
            guest.ask("vram-fill", next(seeds), at, 1 << 20)
            gkvtest.equal(s.status(RETRIEVE, b"verified", 1 << 20), 0, "Retrieve")
            guest.ask("vram-has", seed, at, 1 << 20)
            gkvtest.equal(guest.bounced(daemon), 1 << 20, "bytes counted")


@gkvtest.named("F44, F45: each queue pair tells how its values went: with nothing in between")
def each_way_is_told():
    guest.need_vram()
    # Neither does the daemon have the device for itself, nor does anybody hand it through.
    gkvtest.check(not os.path.exists("/dev/vfio"), "there is no vfio in this machine")
    blocks, tail = 1 << 20, 100
    with gkvtest.Daemon(guest.CONFIG) as daemon, \
            Session(daemon, namespace="raw", length=LENGTH, mode=MODE_DATA) as vram, \
            Session(daemon, namespace="raw", length=LENGTH, mode=0) as host:
        seed = next(seeds)
        guest.ask("vram-fill", seed, guest.vram_offset(vram.mem), blocks + tail)
        gkvtest.equal(vram.status(STORE, b"way", blocks + tail), 0, "Store")
        for session, times in ((vram, 1), (host, 2)):
            for _ in range(times):
                gkvtest.equal(session.status(RETRIEVE, b"way", blocks + tail), 0, "Retrieve")
        told = {one["qps"][0]["mode"]: one for one in daemon.gkvctl("sessions") if one["qps"]}
        for mode, place, times in ((MODE_DATA, "vram", 1), (0, "host", 2)):
            queue, region = told[mode]["qps"][0], told[mode]["regions"][0]
            gkvtest.equal(queue["placement"]["data"], place, "where values must be")
            gkvtest.check(region["placement"].startswith(place), region["placement"])
            gkvtest.equal({name: queue["counters"][name + "_bytes"] for name in
                           ("retrieve", "direct", "tail", "copy", "bounce")},
                          {"retrieve": times * (blocks + tail), "direct": times * blocks,
                           "tail": times * tail, "copy": 0, "bounce": 0}, f"mode {mode:#x}")


@gkvtest.test
def the_bit_for_data_is_binding():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        with Session(daemon, mode=0) as low, Session(daemon, mode=MODE_DATA) as high:
            for session, other in ((low, high), (high, low)):
                memory = ctypes.c_void_p()
                make = LIB.gkv_mem_alloc_vram if session is low else None
                if make:
                    code = make(session.handle, 0, 65536, byref(memory))
                else:
                    code = LIB.gkv_mem_alloc(session.handle, 65536, byref(memory))
                gkvtest.equal(code, 0, "more memory")
                command = session.cmd(STORE, b"key", 4096)
                command.buf = LIB.gkv_mem_addr(memory)
                gkvtest.equal(LIB.gkv_submit(session.qp, byref(command), 1), -22, "a wrong place")
                gkvtest.equal(session.status(STORE, b"key", 4096), 0, "the right one")
                gkvtest.equal(other.status(STORE, b"key", 4096), 0, "the other session")


gkvtest.main()
