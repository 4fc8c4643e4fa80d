# SPDX-License-Identifier: MIT
"""What tests of user space share in the machine: VRAM, the host's view of it, stores on both disks.

Test data never passes through Python: the host writes it into VRAM and looks for it, so that
a byte of it in the guest's RAM was put there by what is tested.
"""
import ctypes
import fcntl
import os
import struct

import gkvtest
from gkvlib import LIB, PLACE_VRAM, RETRIEVE, place

SYSFS = "/sys/class/misc/gkv"
PCI = "/sys/bus/pci"
VRAM = os.environ.get("GKV_VRAM_BDF")
VRAM_ADDR = int(os.environ.get("GKV_VRAM_ADDR") or "0", 0)
NEEDS_P2PDMA = "this kernel has no CONFIG_PCI_P2PDMA"
REPORT, REVOKE = 0xb940, 0xb942

# Without "verify = off" a value goes through host memory to be verified there, unless the client does.
CONFIG = f"""
[daemon]
buffer_memory = 64M
[namespace raw]
nsid = 1
stack = local
local.path = {os.environ.get("GKV_DISK")}
verify = off
[namespace file]
nsid = 2
stack = local
local.path = {os.environ.get("GKV_FS")}/gkv
local.size = 256M
verify = off
"""


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def setting(name, value=None):
    """A setting or counter of the module; sets it first if a value is given."""
    if value is not None:
        write(f"{SYSFS}/{name}", str(value))
    with open(f"{SYSFS}/{name}", encoding="ascii") as file:
        return int(file.read())


def has_p2pdma():
    """Not by the module's own word."""
    with open("/proc/kallsyms", encoding="ascii") as file:
        return any(" pci_p2pdma_add_resource" in line for line in file)


def bind(bdf=VRAM, driver="gkvdrv"):
    device = f"{PCI}/devices/{bdf}"
    if os.path.exists(f"{device}/driver"):
        if os.path.basename(os.readlink(f"{device}/driver")) == driver:
            return
        unbind(bdf)
    write(f"{device}/driver_override", driver)
    write(f"{PCI}/drivers_probe", bdf)
    gkvtest.equal(os.path.basename(os.readlink(f"{device}/driver")), driver, "driver")


def unbind(bdf=VRAM):
    write(f"{PCI}/devices/{bdf}/driver/unbind", bdf)


def need_vram():
    """Skips the test where there is none; else the first device is a carve-out afterwards."""
    if not has_p2pdma():
        raise gkvtest.Skip(NEEDS_P2PDMA)
    if not VRAM:
        raise gkvtest.Skip("this machine has no VRAM device")
    bind()


def ask(format_, *args):
    """Has the host do or check something (selftests/vm/README.md); fails when it does not hold."""
    fd = os.open(os.environ["GKV_HOST_PORT"], os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        request = " ".join([format_, *map(str, args)])
        os.write(fd, f"\nHOST? {request}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            answer += os.read(fd, 1)
    finally:
        os.close(fd)
    gkvtest.equal(answer.decode().strip(), "yes", f"the host on {request!r}")


def runs(fd, part=0):
    """[(bus address, bytes)] of a region, or of a part of a queue pair."""
    room = ctypes.create_string_buffer(16 * 256)
    data = bytearray(struct.pack("=IIIIQ IIIIII QQQ II Q", 88, 0, 0, 0, 0, part, 0, 0, 0, 0, 0, 0, 0,
                                 0, 0, 256, ctypes.addressof(room)))
    fcntl.ioctl(fd, REPORT, data)
    count = struct.unpack_from("=I", data, 76)[0]
    return [struct.unpack_from("=QQ", room, 16 * i) for i in range(count)]


def revoke(fd):
    fcntl.ioctl(fd, REVOKE, bytearray(struct.pack("=IIIIQ", 24, 0, 0, 0, 0)))


def vram_offset(mem):
    """Where in the first device's BAR the memory lies, which is in one piece."""
    gkvtest.equal(place(LIB.gkv_mem_place, mem).where, PLACE_VRAM, "place")
    pieces = runs(LIB.gkv_mem_fd(mem))
    gkvtest.equal(len(pieces), 1, "pieces of the region")
    gkvtest.check(pieces[0][0] >= VRAM_ADDR, "it lies in the device's BAR")
    return pieces[0][0] - VRAM_ADDR


def retrieve(session, key, at, size, offset, seed, poison, room=8192):
    """Retrieves a value of the seed's pattern into memory that lies at @at of the BAR; it lands where
    it has to, and nothing lands before it or in @room bytes behind."""
    ask("vram-fill", poison, at, offset + size + room)
    done = session.run(RETRIEVE, key, size + room, offset)
    gkvtest.equal((done.status & 0x7ff, done.result), (0, size), f"Retrieve of {key}")
    if size:
        ask("vram-has", seed, at + offset, size)
    if offset:
        ask("vram-has", poison, at, offset)
    ask("vram-has", poison, at + offset + size, room, offset + size)


def bounced(daemon):
    """Bytes that went through host memory on their way to VRAM."""
    return daemon.gkvctl("status")["counters"]["bounce_bytes"]


def mode_name(mode):
    names = [name for bit, name in enumerate(("SQ", "CQ", "doorbells", "data")) if mode >> bit & 1]
    return f"mode {mode:#x} ({', '.join(names) or 'nothing'} in VRAM)"
