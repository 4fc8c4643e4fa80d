#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no a sanitizer's runtime cannot be loaded into python
"""libgkv through a foreign-function interface: no macros, no compiler, only the library."""
import ctypes
import os
import sys
import time
from ctypes import byref, c_size_t, c_uint8, c_void_p, sizeof

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position
# pylint: disable-next=wrong-import-position
from gkvlib import (Cmd, Comp, DELETE, EXIST, FLUSH, KEY_EXISTS, KEY_NOT_FOUND, LIB, LIST, NsInfo,
                    PLACE_HOST, Place, QP_CSUM, QP_POLLED, QP_PRP, QpOpts, RETRIEVE, STORE, Seg,
                    Session, ok, place)


@gkvtest.test
def structures_have_the_sizes_of_the_header():
    for kind, size in ((NsInfo, 96), (QpOpts, 80), (Place, 24), (Seg, 16), (Cmd, 64), (Comp, 24)):
        gkvtest.equal(sizeof(kind), size, kind.__name__)
    gkvtest.equal(LIB.gkv_version(), 0x000100, "version")
    gkvtest.equal(LIB.gkv_crc32c(0, b"123456789", 9), 0xE3069283, "check value of crc32c")


@gkvtest.test
def all_commands_work_from_python():
    with gkvtest.Daemon() as daemon:
        for flags in (0, QP_CSUM, QP_PRP, QP_POLLED, QP_CSUM | QP_PRP | QP_POLLED):
            with Session(daemon, flags) as s:
                key, value = bytes([flags]) + b"key", os.urandom(20001)
                gkvtest.equal(s.status(EXIST, key), KEY_NOT_FOUND)
                gkvtest.equal(s.status(RETRIEVE, key, 100), KEY_NOT_FOUND)
                gkvtest.equal(s.store(key, value, options=1), KEY_NOT_FOUND)
                gkvtest.equal(s.store(key, value, options=2), 0)
                gkvtest.equal(s.store(key, value, options=2), KEY_EXISTS)
                gkvtest.equal(s.status(EXIST, key), 0)
                gkvtest.equal(s.retrieve(key), (value, 20001))
                gkvtest.equal(s.store(key, b""), 0)
                gkvtest.equal(s.retrieve(key), (b"", 0))
                gkvtest.equal(s.status(FLUSH), 0)
                gkvtest.equal(s.status(DELETE, key), 0)
                gkvtest.equal(s.status(EXIST, key), KEY_NOT_FOUND)


@gkvtest.named("F7: the length of a value reaches the caller when its buffer is short")
def short_buffer():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        gkvtest.equal(s.store(b"k", b"0123456789"), 0)
        gkvtest.equal(s.retrieve(b"k", 4), (b"0123", 10))
        gkvtest.equal(s.run(RETRIEVE, b"k", 0).result, 10)


@gkvtest.named("F31: batches of every size up to depth - 1")
def batches():
    depth = 33
    with gkvtest.Daemon() as daemon, Session(daemon, depth=depth) as s:
        gkvtest.equal(s.store(b"there", b"x"), 0)
        for size in range(1, depth):
            commands = (Cmd * size)(*[s.cmd(EXIST, b"there", user_data=i) for i in range(size)])
            gkvtest.equal(ok(LIB.gkv_submit(s.qp, commands, size)), size, "commands taken")
            seen, comps = set(), (Comp * depth)()
            while len(seen) < size:
                count = ok(LIB.gkv_wait(s.qp, comps, depth, 5 * 10**9))
                gkvtest.check(count, f"{len(seen)} of {size} completions came")
                for done in comps[:count]:
                    gkvtest.equal((done.status, done.flags), (0, 0), "completion")
                    gkvtest.check(done.user_data not in seen, "a completion came twice")
                    seen.add(done.user_data)


@gkvtest.test
def scattered_values_come_back_in_order():
    with gkvtest.Daemon() as daemon, Session(daemon, max_segs=600) as s:
        value = os.urandom(300000)
        ctypes.memmove(s.addr, value, len(value))
        # Pieces of 500 bytes, back to front: more descriptors than a list page holds.
        starts = range(len(value) - 500, -1, -500)
        segs = (Seg * len(starts))(*[Seg(s.addr + start, 500) for start in starts])
        gkvtest.equal(s.status(STORE, b"seg", len(value), segs=segs, nsegs=len(segs)), 0)
        got, _ = s.retrieve(b"seg", 400000)
        gkvtest.check(got == b"".join(value[start:start + 500] for start in starts),
                      "the value is not its pieces in order")
        ctypes.memset(s.addr, 0, len(value))
        gkvtest.equal(s.run(RETRIEVE, b"seg", len(value), segs=segs, nsegs=len(segs)).result,
                      len(value))
        gkvtest.check(ctypes.string_at(s.addr, len(value)) == value, "scattered wrongly")


@gkvtest.named("F26: a value of 64 MiB, in PRPs with chained lists and in one SGL block")
def large_values():
    size = 64 << 20
    with gkvtest.Daemon() as daemon:
        for flags in (0, QP_PRP):
            with Session(daemon, flags, length=2 * size + 65536) as s:
                value = os.urandom(1 << 16) * (size >> 16)
                ctypes.memmove(s.addr + 4, value, size)
                gkvtest.equal(s.status(STORE, b"large", size, offset=4), 0)
                done = s.run(RETRIEVE, b"large", size, offset=size + 4096)
                gkvtest.equal((done.status, done.result), (0, size))
                gkvtest.check(ctypes.string_at(s.addr + size + 4096, size) == value,
                              "the value differs")


@gkvtest.test
def lists_are_walked_to_the_end():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        want = {bytes([i]) * (1 + i % 16) for i in range(100)}
        for key in want:
            gkvtest.equal(s.store(key, b"v"), 0)
        got, start = set(), b""
        while True:
            gkvtest.equal(s.status(LIST, start, 256), 0)
            page, pos = [], c_size_t(0)
            key, length = (c_uint8 * 16)(), c_uint8(0)
            while ok(LIB.gkv_list_next(s.addr, 256, byref(pos), key, byref(length))):
                page.append(bytes(key)[:length.value])
            if not set(page) - got:
                break
            got |= set(page)
            start = page[-1]
        gkvtest.equal(got, want, "keys")


@gkvtest.test
def errors_say_what_and_why():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        qp, mem, opts = c_void_p(), c_void_p(), QpOpts(sizeof(QpOpts), 1 << 20, 0, 0, 0)
        gkvtest.check(LIB.gkv_qp_create(s.handle, byref(opts), byref(qp)) < 0, "depth 2^20")
        gkvtest.check(b"1048576" in LIB.gkv_error(), LIB.gkv_error())
        gkvtest.check(LIB.gkv_ns_open(s.handle, b"nosuch", 0, None) < 0, "namespace nosuch")
        gkvtest.check(b"nosuch" in LIB.gkv_error(), LIB.gkv_error())
        gkvtest.check(LIB.gkv_mem_alloc(s.handle, 0, byref(mem)) < 0, "no bytes")
        outside = s.cmd(RETRIEVE, b"k", 4096, offset=1 << 20)
        gkvtest.check(LIB.gkv_submit(s.qp, byref(outside), 1) < 0, "a buffer outside")
        gkvtest.check(b"0x1000 bytes" in LIB.gkv_error(), LIB.gkv_error())


@gkvtest.test
def without_the_module_memory_of_gpus_is_refused_and_says_so():
    os.environ["GKV_DEVICE"] = "/dev/gkv-that-is-not-there"
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        mem, qp = c_void_p(), c_void_p()
        for call in (lambda: LIB.gkv_mem_alloc_vram(s.handle, 0, 4096, byref(mem)),
                     lambda: LIB.gkv_mem_import(s.handle, 0, 0, 0, 0, 0, byref(mem)),
                     lambda: LIB.gkv_qp_create(
                         s.handle, byref(QpOpts(size=sizeof(QpOpts), mode=7)), byref(qp))):
            gkvtest.check(call() < 0, "refused")
            gkvtest.check(b"/dev/gkv" in LIB.gkv_error(), LIB.gkv_error())
        gkvtest.equal(place(LIB.gkv_mem_place, s.mem).where, PLACE_HOST, "memory")
        gkvtest.equal(place(LIB.gkv_qp_place, s.qp, 0).where, PLACE_HOST, "queue")
        gkvtest.equal(LIB.gkv_qp_stopped(s.qp), 0, "stopped")
        gkvtest.equal(s.store(b"k", b"value"), 0)


@gkvtest.test
def a_restarted_daemon_is_noticed_as_delay_only():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        for times in range(1, 4):
            daemon.kill9()
            commands = (Cmd * 20)(*[s.cmd(EXIST, b"k", user_data=i) for i in range(20)])
            gkvtest.equal(ok(LIB.gkv_submit(s.qp, commands, 20)), 20, "commands taken")
            daemon.start()
            seen, comps = [], (Comp * 20)()
            while len(seen) < 20:
                count = ok(LIB.gkv_wait(s.qp, comps, 20, 10 * 10**9))
                gkvtest.check(count, f"{len(seen)} of 20 completions came")
                seen += [(done.user_data, done.status & 0x7FF) for done in comps[:count]]
            gkvtest.equal(sorted(seen), [(i, KEY_NOT_FOUND) for i in range(20)])
            # Answers may come before the hand-over is complete.
            gkvtest.wait_for(lambda n=times: LIB.gkv_reconnects(s.handle) == n, 10,
                             f"reconnect number {times}")


@gkvtest.test
def an_idle_client_does_not_spin():
    with gkvtest.Daemon() as daemon, Session(daemon) as s:
        before, comps = time.process_time(), (Comp * 1)()
        gkvtest.equal(ok(LIB.gkv_wait(s.qp, comps, 1, 10**9)), 0, "completions")
        time.sleep(1)
        gkvtest.check(time.process_time() - before < 0.2, "an idle second cost more than 0.2 s")


gkvtest.main()
