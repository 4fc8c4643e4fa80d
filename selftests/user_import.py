#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a GPU needs: memory that its own driver exports holds queues, doorbells and values, at the
pointers that the GPU has; and when the driver takes it back, the client is told."""
import ctypes
import os
import select
import time
from ctypes import byref, c_void_p, sizeof

import gkvtest
import gpu
import guest
from exporter import (BDF, FAIL_ATTACH, LENGTH, PLAIN, REVERSED, SYSTEM, address,
                      exporter)
from gkvlib import (Comp, LIB, MODE_CQ, MODE_DATA, MODE_DB, MODE_SQ, PLACE_GONE, PLACE_VRAM, QpOpts,
                    QpPart, RETRIEVE, STOPPED_MEMORY, STORE, Session, ok, place)

DEVICE_POINTER = 0x7f4200000000
# Where in the buffer the parts lie: several in one page too.
SQ, CQ, DB, DATA = 0x10000, 0x21000, 0x30028, 0x100000


def import_all(session, dmabuf, iova=DEVICE_POINTER):
    memory = c_void_p()
    ok(LIB.gkv_mem_import(session.handle, dmabuf, 0, 0, 0, iova, byref(memory)))
    return memory


def queue_in(session, memory, mode):
    """A queue pair with those parts that @mode has in VRAM placed in @memory."""
    opts = QpOpts(size=sizeof(QpOpts), depth=64, mode=mode)
    for bit, name, offset in ((MODE_SQ, "sq", SQ), (MODE_CQ, "cq", CQ), (MODE_DB, "db", DB)):
        if mode & bit:
            setattr(opts, name, QpPart(memory, offset))
    qp = c_void_p()
    ok(LIB.gkv_qp_create(session.handle, byref(opts), byref(qp)))
    return qp


def run(session, qp, *args):
    done = Comp()
    ok(LIB.gkv_exec(qp, byref(session.cmd(*args)), byref(done)))
    return done


def values(session, memory, qp, times=80):
    """Values come back from the disk, more of them than the rings have entries."""
    session.addr = LIB.gkv_mem_addr(memory) + DATA
    for i in range(times):
        size = (65536, 4096, 1000)[i % 3]
        value, key = bytes([i + 1]) * size, b"import%d" % i
        ctypes.memmove(session.addr, value, size)
        gkvtest.equal(run(session, qp, STORE, key, size).status, 0, f"Store {i}")
        ctypes.memset(session.addr, 0xA5, 65536 + 64)
        done = run(session, qp, RETRIEVE, key, 65536)
        gkvtest.equal((done.status, done.result), (0, size), f"Retrieve {i}")
        gkvtest.equal(ctypes.string_at(session.addr, size + 64), value + b"\xA5" * 64, f"value {i}")


@gkvtest.named("F47, F48: memory of another driver, in one segment or many, holds queues and values")
def memory_of_another_driver_holds_queues_and_values():
    with exporter() as driver, gkvtest.Daemon(guest.CONFIG) as daemon:
        for layout in (PLAIN, REVERSED):
            dmabuf = driver.make(layout)
            with Session(daemon, namespace="raw") as s:
                memory = import_all(s, dmabuf)
                os.close(dmabuf)
                where = place(LIB.gkv_mem_place, memory)
                gkvtest.equal((where.where, where.provider, where.domain, where.bdf),
                              (PLACE_VRAM, driver.provider, *address(BDF)), "place")
                gkvtest.equal(LIB.gkv_mem_iova(memory), DEVICE_POINTER, "IOVA")
                for mode in range(MODE_DATA, 2 * MODE_DATA):
                    qp = queue_in(s, memory, mode)
                    for part in range(3):
                        if mode >> part & 1:
                            where = place(LIB.gkv_qp_place, qp, part)
                            gkvtest.equal((where.where, where.provider),
                                          (PLACE_VRAM, driver.provider), f"part {part}")
                    values(s, memory, qp, 80 if mode == 0xf else 3)
                    ok(LIB.gkv_qp_destroy(qp))
        daemon.check_alive()


@gkvtest.test
def a_gpu_outside_uses_memory_of_its_driver():
    if os.environ["GKV_IOMMU"] == "translate":
        raise gkvtest.Skip("an IOMMU translates, and the GPU outside does not")
    gpu.keep_pages()
    with exporter() as driver, gkvtest.Daemon(guest.CONFIG) as daemon:
        for mode in range(1, 16):
            dmabuf = driver.make((PLAIN, REVERSED)[mode % 2])
            gpu.use(daemon, mode, "raw", ("-w 2 -l 8 -r 2 -v 70000 --offset 12",
                                          "-w 1 -l 4 -r 2 -v 200000 --prp")[mode // 2 % 2], dmabuf)
            os.close(dmabuf)


@gkvtest.test
def queues_outlive_the_handle_and_the_daemon():
    with exporter() as driver, gkvtest.Daemon(guest.CONFIG) as daemon:
        with Session(daemon, namespace="raw") as s:
            first, second = driver.make(PLAIN), driver.make(PLAIN, LENGTH)
            memory, data = import_all(s, first), import_all(s, second, 0)
            qp = queue_in(s, memory, 0xf)
            ok(LIB.gkv_mem_free(memory))
            values(s, data, qp, 3)
            daemon.kill9()
            daemon.start()
            values(s, data, qp, 70)
            gkvtest.equal(LIB.gkv_reconnects(s.handle), 1, "hand-overs")
            os.close(first)
            os.close(second)
        daemon.check_alive()


@gkvtest.named("F35, F36, R11: a buffer in system memory is refused with the reason")
def a_buffer_in_system_memory():
    with exporter() as driver, gkvtest.Daemon(guest.CONFIG) as daemon, Session(daemon) as s:
        dmabuf, memory = driver.make(SYSTEM, length=65536), c_void_p()
        for provider in (0, driver.provider):
            code = LIB.gkv_mem_import(s.handle, dmabuf, 0, 0, provider, 0, byref(memory))
            gkvtest.equal(code, -121, "EREMOTEIO")
            gkvtest.check(b"system memory" in LIB.gkv_error(), LIB.gkv_error())
        os.close(dmabuf)
        gkvtest.equal(s.store(b"k", b"value"), 0)


@gkvtest.named("F43, F62: a GPU that does no peer-to-peer: the client is told, host memory works")
def a_driver_without_peer_to_peer():
    with exporter() as driver, gkvtest.Daemon(guest.CONFIG) as daemon, Session(daemon) as s:
        dmabuf, memory = driver.make(PLAIN, fail=FAIL_ATTACH), c_void_p()
        for provider in (0, driver.provider):
            code = LIB.gkv_mem_import(s.handle, dmabuf, 0, 0, provider, 0, byref(memory))
            text = LIB.gkv_error().decode()
            gkvtest.equal(code, -5, "the driver's own error, EIO")
            gkvtest.check("does not let" in text and "error -5" in text, text)
        os.close(dmabuf)
        gkvtest.equal(s.store(b"k", b"value"), 0)
        gkvtest.equal(s.retrieve(b"k"), (b"value", 5))


@gkvtest.test
def a_driver_takes_its_memory_back():
    with exporter() as driver, gkvtest.Daemon(guest.CONFIG) as daemon:
        with Session(daemon, namespace="raw") as s, Session(daemon, namespace="raw") as other:
            dmabuf = driver.make(PLAIN)
            memory = import_all(s, dmabuf)
            inside, outside = queue_in(s, memory, 0xf), queue_in(s, memory, MODE_DATA)
            values(s, memory, inside, 3)
            driver.revoke(dmabuf)
            os.close(dmabuf)
            poll = select.poll()
            poll.register(LIB.gkv_mem_fd(memory), 0)
            gkvtest.check(poll.poll(5000), "the memory's descriptor says so")
            gkvtest.equal(place(LIB.gkv_mem_place, memory).where, PLACE_GONE, "place")
            end = time.monotonic() + 10
            while not LIB.gkv_qp_stopped(inside) and time.monotonic() < end:
                time.sleep(0.01)
            gkvtest.equal(LIB.gkv_qp_stopped(inside), STOPPED_MEMORY, "the queue in it")
            gkvtest.equal(LIB.gkv_qp_stopped(outside), 0, "the queue beside it")
            # Nothing of this touches what is gone, which would be SIGBUS.
            command, done = s.cmd(STORE, b"k", 4096), Comp()
            gkvtest.equal(LIB.gkv_submit(inside, byref(command), 1), -19, "ENODEV")
            gkvtest.equal(LIB.gkv_wait(inside, byref(done), 1, 10**9), 0, "nothing to wait for")
            gkvtest.equal(LIB.gkv_qp_reset(inside), -19, "ENODEV")
            ok(LIB.gkv_qp_destroy(inside))
            gkvtest.check(run(s, outside, STORE, b"k", 4096).status, "a Store from it fails")
            fresh = driver.make(PLAIN, LENGTH)
            again = import_all(s, fresh, DEVICE_POINTER + LENGTH)
            os.close(fresh)
            values(s, again, outside, 3)
            ok(LIB.gkv_mem_free(memory))
            gkvtest.equal(other.store(b"k", b"value"), 0)
        daemon.check_alive()


gkvtest.main()
