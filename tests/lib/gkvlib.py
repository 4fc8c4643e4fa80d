# SPDX-License-Identifier: MIT
"""libgkv through ctypes: its structures and functions, and a session for tests."""
import ctypes
import os
from ctypes import (POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint8, c_uint16,
                    c_uint32, c_uint64, c_void_p, sizeof)

import gkvtest

FLUSH, STORE, RETRIEVE, LIST, DELETE, EXIST = 0x00, 0x01, 0x02, 0x06, 0x10, 0x14
KEY_NOT_FOUND, KEY_EXISTS = 0x87, 0x89
QP_CSUM, QP_PRP, QP_POLLED = 1, 2, 4
C_LOST, C_CRC, C_STOPPED = 4, 8, 16
MODE_SQ, MODE_CQ, MODE_DB, MODE_DATA = 1, 2, 4, 8
PLACE_HOST, PLACE_VRAM, PLACE_GONE = 1, 2, 3
STOPPED_DOORBELL, STOPPED_MEMORY, STOPPED_RECORD = 1, 2, 3


class NsInfo(Structure):
    _fields_ = [("size", c_uint32), ("nsid", c_uint32), ("flags", c_uint32),
                ("key_max", c_uint32), ("value_max", c_uint32), ("block_size", c_uint32),
                ("deadline_ns", c_uint64), ("name", c_char * 64)]


class QpPart(Structure):
    _fields_ = [("mem", c_void_p), ("offset", c_uint64)]


class QpOpts(Structure):
    _fields_ = [("size", c_uint32), ("depth", c_uint32), ("flags", c_uint32),
                ("max_segs", c_uint32), ("timeout_ns", c_uint64), ("mode", c_uint32),
                ("provider", c_uint32), ("sq", QpPart), ("cq", QpPart), ("db", QpPart)]


class Place(Structure):
    _fields_ = [("size", c_uint32), ("where", c_uint32), ("provider", c_uint32),
                ("domain", c_uint32), ("bdf", c_uint32), ("bar", c_uint32)]


class Seg(Structure):
    _fields_ = [("addr", c_void_p), ("len", c_uint64)]


class Cmd(Structure):
    _fields_ = [("opcode", c_uint8), ("options", c_uint8), ("key_len", c_uint8),
                ("rsvd", c_uint8), ("nsid", c_uint32), ("key", c_uint8 * 16), ("buf", c_void_p),
                ("len", c_uint32), ("nsegs", c_uint32), ("segs", POINTER(Seg)),
                ("crc", c_uint32), ("rsvd2", c_uint32), ("user_data", c_uint64)]


class Comp(Structure):
    _fields_ = [("user_data", c_uint64), ("result", c_uint32), ("crc", c_uint32),
                ("status", c_uint16), ("flags", c_uint16), ("rsvd", c_uint32)]


def load():
    lib = ctypes.CDLL(os.path.join(gkvtest.BUILD, "libgkv.so.0"))
    handle = c_void_p
    for name, result, *args in (
            ("gkv_version", c_uint32), ("gkv_error", c_char_p),
            ("gkv_connect", c_int, POINTER(handle), c_char_p, c_uint32, c_uint32),
            ("gkv_close", None, handle), ("gkv_reconnects", c_uint64, handle),
            ("gkv_ns_open", c_int, handle, c_char_p, c_uint32, POINTER(NsInfo)),
            ("gkv_mem_alloc", c_int, handle, c_size_t, POINTER(handle)),
            ("gkv_mem_register", c_int, handle, c_int, c_uint64, c_size_t, c_uint64,
             POINTER(handle)),
            ("gkv_mem_alloc_vram", c_int, handle, c_uint32, c_size_t, POINTER(handle)),
            ("gkv_mem_import", c_int, handle, c_int, c_uint64, c_size_t, c_uint32, c_uint64,
             POINTER(handle)),
            ("gkv_mem_place", c_int, handle, POINTER(Place)),
            ("gkv_mem_fd", c_int, handle), ("gkv_mem_iova", c_uint64, handle),
            ("gkv_mem_len", c_size_t, handle),
            ("gkv_mem_free", c_int, handle), ("gkv_mem_addr", c_void_p, handle),
            ("gkv_qp_create", c_int, handle, POINTER(QpOpts), POINTER(handle)),
            ("gkv_qp_destroy", c_int, handle), ("gkv_qp_reset", c_int, handle),
            ("gkv_qp_place", c_int, handle, c_uint32, POINTER(Place)),
            ("gkv_qp_stopped", c_uint32, handle), ("gkv_qp_outstanding", c_uint32, handle),
            ("gkv_submit", c_int, handle, POINTER(Cmd), c_uint32),
            ("gkv_poll", c_int, handle, POINTER(Comp), c_uint32),
            ("gkv_wait", c_int, handle, POINTER(Comp), c_uint32, c_uint64),
            ("gkv_exec", c_int, handle, POINTER(Cmd), POINTER(Comp)),
            ("gkv_status_name", c_char_p, c_uint16),
            ("gkv_list_next", c_int, c_void_p, c_size_t, POINTER(c_size_t), c_uint8 * 16,
             POINTER(c_uint8)),
            ("gkv_crc32c", c_uint32, c_uint32, c_void_p, c_size_t),
            ("gkv_query", c_int, handle, c_uint32, POINTER(c_void_p))):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, args
    return lib


LIB = load()


def ok(result):
    gkvtest.check(result >= 0, f"{result}: {LIB.gkv_error().decode()}")
    return result


def place(call, *args):
    """Where it is, as gkv_mem_place or gkv_qp_place, which is @call, tells."""
    where = Place(size=sizeof(Place))
    ok(call(*args, byref(where)))
    return where


class Session:
    """A session with one namespace, memory of @length bytes and one queue pair.

    With a memory mode, parts of the queue pair and the memory lie in VRAM of @provider."""

    def __init__(self, daemon, flags=0, depth=0, max_segs=0, length=1 << 20, namespace=None,
                 mode=0, provider=0):
        self.handle, self.mem, self.qp = c_void_p(), c_void_p(), c_void_p()
        self.info = NsInfo(size=sizeof(NsInfo))
        ok(LIB.gkv_connect(byref(self.handle), daemon.socket.encode(), 0, 0))
        ok(LIB.gkv_ns_open(self.handle, namespace and namespace.encode(), 0, byref(self.info)))
        if mode & MODE_DATA:
            ok(LIB.gkv_mem_alloc_vram(self.handle, provider, length, byref(self.mem)))
        else:
            ok(LIB.gkv_mem_alloc(self.handle, length, byref(self.mem)))
        opts = QpOpts(sizeof(QpOpts), depth, flags, max_segs, 0, mode, provider)
        ok(LIB.gkv_qp_create(self.handle, byref(opts), byref(self.qp)))
        self.addr = LIB.gkv_mem_addr(self.mem)
        self.csum = flags & QP_CSUM

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.gkv_close(self.handle)

    def cmd(self, opcode, key=b"", length=0, offset=0, **more):
        command = Cmd(opcode=opcode, key_len=len(key), nsid=self.info.nsid,
                      buf=self.addr + offset, len=length, **more)
        ctypes.memmove(command.key, key, len(key))
        return command

    def run(self, *args, **kwargs):
        done = Comp()
        ok(LIB.gkv_exec(self.qp, byref(self.cmd(*args, **kwargs)), byref(done)))
        return done

    def status(self, *args, **kwargs):
        return self.run(*args, **kwargs).status & 0x7FF

    def store(self, key, value, **more):
        ctypes.memmove(self.addr, value, len(value))
        crc = LIB.gkv_crc32c(0, value, len(value)) if self.csum else 0
        return self.status(STORE, key, len(value), crc=crc, **more)

    def retrieve(self, key, length=65536):
        ctypes.memset(self.addr, 0xA5, length + 64)
        done = self.run(RETRIEVE, key, length)
        gkvtest.equal(LIB.gkv_status_name(done.status), b"Success", "status")
        got = min(done.result, length)
        gkvtest.equal(ctypes.string_at(self.addr + got, length + 64 - got),
                      b"\xA5" * (length + 64 - got), "what lies behind the value")
        value = ctypes.string_at(self.addr, got)
        if self.csum:
            gkvtest.equal(done.flags, C_CRC, "flags")
            gkvtest.equal(done.crc, LIB.gkv_crc32c(0, value, len(value)), "crc32c")
        return value, done.result
