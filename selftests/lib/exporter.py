# SPDX-License-Identifier: MIT
"""The test exporter of dma-bufs (selftests/exporter) on the second VRAM device: what a GPU's driver is."""
import contextlib
import ctypes
import fcntl
import os
import struct

import gkvtest
import guest

ADD, DEL = 0xb902, 0xb903
MAKE, REVOKE = 0xc028ba00, 0xba02
PLAIN, REVERSED, SYSTEM = 0, 1, 3
FAIL_ATTACH = 1
BDF = os.environ.get("GKV_VRAM2_BDF")
SPAN = 16 << 20
LENGTH = 4 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


def address(bdf):
    domain, bus, rest = bdf.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)


class Exporter:
    """The driver of the second device, whose memory is a foreign provider."""

    def __init__(self):
        fd = os.open("/modules/exporter.ko", os.O_RDONLY)
        code = LIBC.syscall(313, fd, b"", 0)  # finit_module
        os.close(fd)
        gkvtest.check(code == 0 or ctypes.get_errno() == 17, f"load: errno {ctypes.get_errno()}")
        guest.bind(BDF, "gkv-exporter")
        self.fd = os.open("/dev/gkv-exporter", os.O_RDWR | os.O_CLOEXEC)
        self.gkv = os.open("/dev/gkv", os.O_RDWR | os.O_CLOEXEC)
        data = bytearray(struct.pack("=4IQ 6I4Q", 80, 0, 0, 0, 0, 0, 0, *address(BDF), 2, 0, 0, SPAN,
                                     0, 0))
        fcntl.ioctl(self.gkv, ADD, data)
        self.provider = struct.unpack_from("=I", data, 24)[0]

    def make(self, layout, offset=0, length=LENGTH, fail=0):
        data = bytearray(struct.pack("=QQ4IiI", offset, length, layout, 65536, fail,
                                     os.O_RDWR | os.O_CLOEXEC, -1, 0))
        fcntl.ioctl(self.fd, MAKE, data)
        return struct.unpack_from("=i", data, 32)[0]

    def revoke(self, dmabuf):
        fcntl.ioctl(self.fd, REVOKE, dmabuf)

    def close(self):
        fcntl.ioctl(self.gkv, DEL, bytearray(struct.pack("=4IQ 6I4Q", 80, 0, 0, 0, 0, self.provider,
                                                         *[0] * 9)))
        os.close(self.gkv)
        os.close(self.fd)
        guest.unbind(BDF)
        # What was closed a moment ago may not be gone yet.
        gkvtest.wait_for(lambda: LIBC.syscall(176, b"exporter", os.O_NONBLOCK) == 0, 10,
                         "the exporter is unloaded")  # delete_module


@contextlib.contextmanager
def exporter():
    guest.need_vram()
    if not BDF:
        raise gkvtest.Skip("this machine has one VRAM device")
    one = Exporter()
    try:
        yield one
    finally:
        one.close()
