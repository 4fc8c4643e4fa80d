#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that the disks of a namespace cannot reach is refused with the reason, or served through
host memory where the configuration allows it; counted, and never with wrong data."""
import os
from ctypes import byref, c_void_p

import gkvtest
import guest
from gkvlib import LIB, MODE_DATA, RETRIEVE, STORE, Session

EXDEV = 18
LENGTH = 1 << 20


def reachable():
    """What the machine was made for (selftests/vm/README.md)."""
    if os.environ["GKV_TOPOLOGY"] == "root":
        return os.environ["GKV_CPU"] == "EPYC"
    return os.environ["GKV_IOMMU"] != "translate"


def host_bridge():
    """As lspci -n has it."""
    def of(name):
        with open(f"/sys/bus/pci/devices/0000:00:00.0/{name}", encoding="ascii") as file:
            return file.read().strip().removeprefix("0x")
    return f"{of('vendor')}:{of('device')}"


@gkvtest.named("F38, F55, F56: what no disk reaches is refused with the reason, before it is used")
def what_no_disk_reaches():
    guest.need_vram()
    if reachable():
        raise gkvtest.Skip("the disks of this machine reach VRAM")
    with gkvtest.Daemon(guest.CONFIG) as daemon, Session(daemon, namespace="raw") as s:
        memory = c_void_p()
        gkvtest.equal(LIB.gkv_mem_alloc_vram(s.handle, 0, LENGTH, byref(memory)), -EXDEV, "errno")
        text = LIB.gkv_error().decode()
        gkvtest.check("raw" in text and guest.VRAM.removeprefix("0000:") in text,
                      f"the text names namespace and function: {text}")
        if os.environ["GKV_TOPOLOGY"] == "root":
            gkvtest.check(f"host bridge {host_bridge()} " in text, f"the text names it: {text}")
        else:
            gkvtest.check("iommu=pt" in text, f"the text says what helps: {text}")
        # And the session is as it was.
        gkvtest.equal(s.store(b"key", b"value"), 0, "Store")
        gkvtest.equal(s.retrieve(b"key"), (b"value", 5), "Retrieve")


@gkvtest.named("F44, F55: what is allowed to bounce is right and counted")
def what_is_allowed_to_bounce():
    guest.need_vram()
    config = guest.CONFIG.replace("stack = local", "stack = local\nallow_bounce = on")
    with gkvtest.Daemon(config) as daemon:
        for number, name in enumerate(("raw", "file")):
            with Session(daemon, namespace=name, mode=MODE_DATA, length=LENGTH) as s:
                at, seed = guest.vram_offset(s.mem), 0xb0c0 + 2 * number
                guest.ask("vram-fill", seed, at, LENGTH)
                gkvtest.equal(s.status(STORE, b"key", LENGTH), 0, "Store")
                guest.ask("vram-fill", seed + 1, at, LENGTH)
                before = guest.bounced(daemon)
                done = s.run(RETRIEVE, b"key", LENGTH)
                gkvtest.equal((done.status, done.result), (0, LENGTH), "Retrieve")
                guest.ask("vram-has", seed, at, LENGTH)
                gkvtest.equal(guest.bounced(daemon) - before, 0 if reachable() else LENGTH,
                              "bytes that went through host memory")


gkvtest.main()
