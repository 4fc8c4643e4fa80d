#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A region that another process made and passed on serves as memory of a session, and goes for both
when either gives it up."""
import array
import fcntl
import os
import select
import socket
import struct
from ctypes import byref, c_void_p

import gkvtest
import guest
from gkvlib import Comp, LIB, MODE_DATA, RETRIEVE, STORE, Session, ok

ALLOC, PROVIDER_INFO = 0xb904, 0xb901
LENGTH = 1 << 20


def maker(conn):
    """The other process: as a runtime without libgkv. Passes a region, waits, ends."""
    gkv = os.open("/dev/gkv", os.O_RDWR | os.O_CLOEXEC)
    provider = bytearray(struct.pack("=IIIIQ IIIIII QQQQ", 80, 0, 0, 0, 0, *[0] * 10))
    fcntl.ioctl(gkv, PROVIDER_INFO, provider)
    region = bytearray(struct.pack("=IIIIQ IiQ", 40, 0, 0, 0, 0,
                                   struct.unpack_from("=I", provider, 24)[0], 0, LENGTH))
    fcntl.ioctl(gkv, ALLOC, region)
    fd = struct.unpack_from("=i", region, 28)[0]
    conn.sendmsg([b"r"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    os.close(gkv)


def region_of_another():
    mine, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        code = 1
        try:
            maker(theirs)
            code = 0
        finally:
            os._exit(code)
    theirs.close()
    _, fds, _, _ = socket.recv_fds(mine, 1, 1)
    gkvtest.equal(os.waitpid(child, 0)[1], 0, "status of the process that made it")
    mine.close()
    return fds[0]


@gkvtest.named("F48: a region of another process serves as memory, whatever translates")
def a_region_of_another_process_serves_as_memory():
    guest.need_vram()
    fd = region_of_another()
    at = guest.runs(fd)[0][0] - guest.VRAM_ADDR
    with gkvtest.Daemon(guest.CONFIG) as daemon, Session(daemon, mode=MODE_DATA) as s:
        memory = c_void_p()
        # At an address of its maker's choice.
        iova = 0x700000000000
        ok(LIB.gkv_mem_register(s.handle, fd, 0, LENGTH, iova, byref(memory)))
        gkvtest.equal(LIB.gkv_mem_iova(memory), iova, "IOVA")
        guest.ask("vram-fill", 0x5ead0001, at, LENGTH)
        command = s.cmd(STORE, b"shared", LENGTH)
        command.buf = LIB.gkv_mem_addr(memory)
        ok(LIB.gkv_exec(s.qp, byref(command), None))
        guest.ask("vram-fill", 0x5ead0002, at, LENGTH)
        command.opcode = RETRIEVE
        ok(LIB.gkv_exec(s.qp, byref(command), None))
        guest.ask("vram-has", 0x5ead0001, at, LENGTH)
        os.close(fd)
        guest.ask("vram-fill", 0x5ead0003, at, LENGTH)
        ok(LIB.gkv_exec(s.qp, byref(command), None))
        guest.ask("vram-has", 0x5ead0001, at, LENGTH)


@gkvtest.test
def either_gives_it_up_for_both():
    guest.need_vram()
    fd = region_of_another()
    with gkvtest.Daemon(guest.CONFIG) as daemon, Session(daemon, mode=MODE_DATA) as s:
        memory = c_void_p()
        ok(LIB.gkv_mem_register(s.handle, fd, 0, LENGTH, 0, byref(memory)))
        gkvtest.equal(s.status(STORE, b"key", 4096), 0, "Store")
        poll = select.poll()
        poll.register(LIB.gkv_mem_fd(memory), 0)
        gkvtest.equal(poll.poll(0), [], "events while it is there")
        guest.revoke(fd)
        gkvtest.equal(len(poll.poll(10000)), 1, "the library's descriptor tells")
        command = s.cmd(STORE, b"key", 4096)
        command.buf = LIB.gkv_mem_addr(memory)
        done = Comp()
        gkvtest.check(LIB.gkv_exec(s.qp, byref(command), byref(done)) < 0 or done.status,
                      "a command on what is gone fails")
        gkvtest.equal(s.status(RETRIEVE, b"key", 8192), 0, "one on other memory does not")
        daemon.check_alive()
    os.close(fd)


gkvtest.main()
