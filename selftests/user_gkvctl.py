#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gkvctl tells of the module what the kernel says, loads and unloads it, and explains refusals."""
import ctypes
import fcntl
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile

import gkvlib
import gkvtest
from gkvtest import check, equal

SYSFS = "/sys/class/misc/gkv"
MIB = 1 << 20
VRAM, VRAM2 = os.environ.get("GKV_VRAM_BDF"), os.environ.get("GKV_VRAM2_BDF")
BAR = 2
PR_CAPBSET_DROP, CAP_SYS_MODULE = 24, 16
NOBODY = 65534
# This machine is for refusals that last until it is booted again.
ENFORCE = os.environ.get("GKV_ENFORCE")
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def gkvctl(*args, status=0, output="json", user=0, drop=None):
    """The document, or the text with output="text". gkvctl.error: what stderr says, one line."""
    def become():
        if drop is not None:
            LIBC.prctl(PR_CAPBSET_DROP, drop, 0, 0, 0)
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)

    done = subprocess.run(["gkvctl", "-s", "/nonexistent", "-o", output, *map(str, args)],
                          capture_output=True, text=True, timeout=60, check=False,
                          preexec_fn=become)
    told = f"{args}: exit status {done.returncode}, {done.stdout!r:.500}, {done.stderr!r:.500}"
    equal(done.returncode, status, told)
    equal(done.stderr.count("\n"), 1 if status else 0, told)
    gkvctl.error = done.stderr
    if output == "json":
        return json.loads(done.stdout) if done.stdout else None
    return done.stdout


def refused(*args, **how):
    """What gkvctl says of a refusal; it prints nothing else."""
    equal(gkvctl(*args, status=1, **how) or None, None, f"output of {args}")
    return gkvctl.error


def attr(name):
    with open(f"{SYSFS}/{name}", encoding="ascii") as file:
        return int(file.read())


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def bind(bdf, driver):
    unbind(bdf)
    write(f"/sys/bus/pci/devices/{bdf}/driver_override", driver)
    write("/sys/bus/pci/drivers_probe", bdf)
    equal(os.path.basename(os.readlink(f"/sys/bus/pci/devices/{bdf}/driver")), driver, "driver")


def unbind(bdf):
    if os.path.exists(f"/sys/bus/pci/devices/{bdf}/driver"):
        write(f"/sys/bus/pci/devices/{bdf}/driver/unbind", bdf)
    write(f"/sys/bus/pci/devices/{bdf}/driver_override", "\n")


def has_vram():
    return "vram" in gkvctl("module")["capabilities"]


class Carveout:
    """gkvdrv drives the first VRAM device."""

    def __enter__(self):
        if not has_vram():
            raise gkvtest.Skip("this kernel has no CONFIG_PCI_P2PDMA")
        if not VRAM:
            raise gkvtest.Skip("this machine has no VRAM device")
        bind(VRAM, "gkvdrv")
        return gkvctl("provider")[0]

    def __exit__(self, *_):
        unbind(VRAM)


# ---- The ioctls that make what is looked at -------------------------------------------------------

ALLOC, QP_CREATE, REVOKE = 0xb904, 0xb906, 0xb942


def call(file, command, layout, *values):
    data = bytearray(struct.pack("=IIIIQ", 24 + struct.calcsize(layout), 0, 0, 0, 0) +
                     struct.pack(layout, *values))
    fcntl.ioctl(file, command, data)
    return struct.unpack_from(layout, data, 24)


def device():
    return os.open("/dev/gkv", os.O_RDWR | os.O_CLOEXEC)


def allocate(gkv, provider, length):
    return call(gkv, ALLOC, "=IiQ", provider, 0, length)[1]


def queue_pair(gkv, depth, mode, region=-1):
    """SQ, CQ and doorbells 64 KiB apart in the region, as far as the mode says so."""
    parts = []
    for part in range(3):
        placed = mode >> part & 1
        parts += [region if placed else -1, 0, part << 16 if placed else 0, 0, 0]
    return call(gkv, QP_CREATE, "=IIiI" + "iIQQQ" * 3, depth, mode, 0, 0, *parts)[2]


def reported():
    """Of this process, by descriptor."""
    return {one["fd"]: one for one in gkvctl("region", "--pid", os.getpid())["descriptors"]}


# ---- Status and settings --------------------------------------------------------------------------

@gkvtest.named("F42, F52: status is what the kernel says, with the option that is missing")
def status_is_what_the_kernel_says():
    told = gkvctl("module")
    equal((told["module"], told["state"], told["error"]), ("gkvdrv", "live", None), "state")
    equal(told["kernel"], os.uname().release, "kernel")
    equal(told["interface"], {"module": attr("abi_version"), "gkvctl": 1}, "interface")
    with open("/sys/module/gkvdrv/version", encoding="ascii") as file:
        equal(told["loaded"]["version"], file.read().strip(), "version")
    equal((told["loaded"]["refcount"], told["loaded"]["holders"]), (0, []), "use")
    equal(told["users"], [], "users")
    check("O" in told["loaded"]["taint"], "it is from outside the kernel's tree")
    equal(told["loaded"]["parameters"], {"carveout_bar": "-1"}, "parameters")
    check(told["installed"]["file"].endswith("/updates/gkvdrv.ko"), told["installed"])
    check(told["installed"]["vermagic"].startswith(os.uname().release + " "), "vermagic")
    equal(told["installed"]["srcversion"], told["loaded"]["srcversion"], "srcversion")
    equal((told["device"]["owner"], told["device"]["group"], told["device"]["mode"]),
          ("root", "root", "0660"), "device node, without udev")
    for name, value in told["settings"].items():
        equal(value, attr(name), name)
    equal(len(told["settings"]), 4, "settings")
    for name in os.listdir(f"{SYSFS}/counters"):
        equal(told["counters"][name], attr(f"counters/{name}"), name)
    # Not by the module's own word.
    with open("/proc/kallsyms", encoding="ascii") as file:
        p2pdma = any(" pci_p2pdma_add_resource" in line for line in file)
    equal(told["capabilities"], ["vram", "import"] if p2pdma else [], "capabilities")
    equal(any("CONFIG_PCI_P2PDMA" in note for note in told["notes"]), not p2pdma, "the note")
    text = gkvctl("module", output="text")
    for word in ("live", "carveout_bar", "max_user_bytes", "sigbus", "note: only root"):
        check(word in text, f"{word} is not in {text}")


@gkvtest.test
def who_may_not_open_the_device_sees_the_rest():
    told = gkvctl("module", user=NOBODY, status=1)
    check("Permission denied" in told["error"] and "group" in told["error"], told["error"])
    equal(told["settings"]["max_queue_depth"], attr("max_queue_depth"), "a setting")
    equal(told["interface"]["module"], attr("abi_version"), "interface version")
    equal(gkvctl("provider", user=NOBODY), [], "providers")
    check("only root" in refused("module", "set", "max_queue_depth", 8, user=NOBODY), gkvctl.error)
    check("group" in refused("region", "--probe", "/dev/null", user=NOBODY), gkvctl.error)
    check("CAP_SYS_MODULE" in refused("module", "unload", user=NOBODY), gkvctl.error)


@gkvtest.test
def settings_are_set_and_refused_with_their_range():
    for name, value, low, high in (("poll_interval_ns", 123456, 1000, 10 ** 9),
                                   ("max_queue_depth", 1024, 2, 65536),
                                   ("max_user_objects", 77, 1, 1 << 20),
                                   ("max_user_bytes", 1 << 30, 0, 2 ** 64 - 1)):
        before = attr(name)
        told = gkvctl("module", "set", name, value)
        equal((told["name"], told["value"], attr(name)), (name, value, value), "what is in force")
        for wrong in (low - 1, high + 1):
            if 0 <= wrong < 2 ** 64:
                text = refused("module", "set", name, wrong)
                check(f"{low} to {high}" in text and str(wrong) in text, text)
        equal(attr(name), value, f"{name} after refusals")
        gkvctl("module", "set", name, before)
    equal(gkvctl("module", "set", "max_queue_depth", "4k", output="text"),
          "max_queue_depth = 4096\n", "text, with a suffix")


# ---- Loading and unloading ------------------------------------------------------------------------

@gkvtest.test
def unloading_names_who_uses_it_and_loading_works_again():
    gkv = device()
    text = refused("module", "unload")
    check(f"(pid {os.getpid()})" in text and "1 reference)" in text, text)
    users = gkvctl("module")["users"]
    equal([(one["pid"], one["device"]) for one in users], [(os.getpid(), 1)], "users")
    queue = queue_pair(gkv, 8, 0)
    os.close(gkv)
    # Python's own mmap keeps a descriptor; of this only the mapping is left.
    at = LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, queue, 0)
    check(at not in (None, ctypes.c_void_p(-1).value), "mmap")
    os.close(queue)
    users = gkvctl("module")["users"]
    equal([(one["pid"], one["queue_pairs"], one["mappings"]) for one in users],
          [(os.getpid(), 0, 1)], "users")
    check(f"(pid {os.getpid()})" in refused("module", "unload"), gkvctl.error)
    equal(LIBC.munmap(at, 4096), 0, "munmap")
    equal(gkvctl("module", "load")["already"], True, "load what is loaded")
    for more in (["carveout_bar=2"], ["--file", "/modules/gkvdrv.ko"]):
        check("loaded already" in refused("module", "load", *more), gkvctl.error)

    equal(gkvctl("module", "unload")["state"], "not loaded", "state")
    check(not os.path.exists("/sys/module/gkvdrv"), "it is gone")
    check("not loaded" in refused("module", "unload"), gkvctl.error)
    told = gkvctl("module", status=1)
    equal((told["state"], told["loaded"]), ("not loaded", None), "state")
    check("gkvctl module load" in told["error"] and told["installed"]["version"], told)
    for args in (["provider"], ["module", "set", "max_queue_depth", 8], ["region", "--pid", 1],
                 ["region", "--probe", os.environ["GKV_DISK"]]):
        check("gkvctl module load" in refused(*args), gkvctl.error)

    gkvctl("module", "load", "nonsense=1", status=2)
    check('"nonsense"' in gkvctl.error, gkvctl.error)
    check("parameter" in refused("module", "load", "carveout_bar=x"), gkvctl.error)
    check("CAP_SYS_MODULE" in refused("module", "load", drop=CAP_SYS_MODULE), gkvctl.error)
    told = gkvctl("module", "load", "carveout_bar=2")
    equal((told["state"], told["already"], told["loaded"]["parameters"]),
          ("live", False, {"carveout_bar": "2"}), "loaded with a parameter")
    equal(gkvctl("module", "unload", output="text"), "gkvdrv unloaded\n", "text")
    told = gkvctl("module", "load", "--file", "/modules/gkvdrv.ko")
    equal((told["file"], told["state"]), ("/modules/gkvdrv.ko", "live"), "by its file")
    gkvctl("module", "unload")
    check("loaded from /lib/modules/" in gkvctl("module", "load", output="text"), "text")


@gkvtest.named("F51: files that the kernel cannot load are explained")
def files_that_the_kernel_cannot_load_are_explained():
    release = os.uname().release
    other = "9" + release[1:]
    with open("/modules/gkvdrv.ko", "rb") as file:
        good = file.read()
    # With symbol versions the kernel passes over the release, but not over what follows it.
    magic, wrong = f"vermagic={release} SMP".encode(), f"vermagic={other} UMP".encode()
    equal(good.count(magic), 1, "vermagic in the file")
    gkvctl("module", "unload")
    try:
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "gkvdrv.ko")
            for data, words in (
                    (good.replace(magic, wrong), (f"built for kernel {other}", release)),
                    (good[:5000], ("is no module that this kernel",)),
                    (b"", ("is no module",))):
                with open(path, "wb") as file:
                    file.write(data)
                text = refused("module", "load", "--file", path)
                check(path in text and all(word in text for word in words), text)
        # Not in the index of modules.
        index = [f"/lib/modules/{release}/modules.dep{end}" for end in ("", ".bin")]
        for path in index:
            os.rename(path, path + ".away")
        try:
            check("modules.dep is missing" in refused("module", "load"), gkvctl.error)
            write(index[0], "")
            check(f"not installed for kernel {release}" in refused("module", "load"), gkvctl.error)
            check("not installed" in gkvctl("module", status=1)["error"], gkvctl.error)
        finally:
            for path in index:
                os.rename(path + ".away", path)
    finally:
        gkvctl("module", "load")


# ---- Providers ------------------------------------------------------------------------------------

@gkvtest.test
def a_carve_out_is_listed_with_its_use():
    equal(gkvctl("provider"), [], "providers")
    check("no provider" in gkvctl("provider", output="text"), "text")
    with Carveout() as provider:
        size = int(os.environ["GKV_VRAM_SIZE"])
        want = {"kind": "carve-out", "function": VRAM, "bar": BAR, "offset": 0, "size": size,
                "used": 0, "available": size, "objects": 0,
                "bus": int(os.environ["GKV_VRAM_ADDR"], 0)}
        equal({name: provider[name] for name in want}, want, "provider")
        gkv = device()
        region = allocate(gkv, provider["id"], 3 * MIB)
        now = gkvctl("provider")[0]
        equal((now["used"], now["available"], now["objects"]), (3 * MIB, size - 3 * MIB, 1), "use")
        told = gkvctl("module")
        equal((told["use"]["providers"], told["use"]["user_bytes"], told["use"]["user_objects"]),
              (1, 3 * MIB, 1), "use of the user")
        # What everybody may see, and no more.
        seen = gkvctl("provider", user=NOBODY)[0]
        equal((seen["used"], "bus" in seen, "objects" in seen), (3 * MIB, False, False), "nobody's")
        text = gkvctl("provider", output="text")
        check(VRAM in text and "256.0 MiB" in text and "3.0 MiB" in text, text)
        os.close(region)
        os.close(gkv)
        check("no foreign provider" in refused("provider", "del", provider["id"]), gkvctl.error)
    equal(gkvctl("provider"), [], "providers after unbinding")


@gkvtest.named("F64: a foreign span is added and withdrawn; one of the whole BAR gets a warning")
def a_foreign_span_is_added_and_withdrawn():
    if not has_vram():
        text = refused("provider", "add", "0000:00:00.0", 0, 0, "2m")
        check("(p2pdma)" in text, text)
        raise gkvtest.Skip("this kernel has no CONFIG_PCI_P2PDMA; that was the answer")
    if not VRAM2 or not os.path.exists("/modules/exporter.ko"):
        raise gkvtest.Skip("no second VRAM device, or no test exporter to drive it")
    check("has no driver" in refused("provider", "add", VRAM2, BAR, 0, "2m"), gkvctl.error)
    subprocess.run(["insmod", "/modules/exporter.ko"], check=True)
    bind(VRAM2, "gkv-exporter")
    try:
        for span, word in (((BAR, 4096, "2m"), "(align)"), ((BAR, 0, "1g"), "(size)"),
                           ((5, 0, "2m"), "(bar)")):
            check(word in refused("provider", "add", VRAM2, *span), gkvctl.error)
        refused("provider", "add", "00ff:1f:1f.7", BAR, 0, "2m")
        check("no PCI function 00ff:1f:1f.7" in gkvctl.error, gkvctl.error)
        added = gkvctl("provider", "add", VRAM2, BAR, "4m", "8m")
        told = gkvctl("provider")
        equal([(one["id"], one["kind"], one["function"], one["offset"], one["size"])
               for one in told], [(added["id"], "foreign", VRAM2, 4 * MIB, 8 * MIB)], "providers")
        check("(overlap)" in refused("provider", "add", VRAM2, BAR, "4m", "2m"), gkvctl.error)
        told = gkvctl("region", "--probe", os.environ["GKV_DISK"])["providers"]
        equal([(one["kind"], one["reached"]) for one in told], [("foreign", None)], "not asked")
        equal(gkvctl("provider", "del", added["id"], output="text"),
              f"provider {added['id']} withdrawn\n", "text")
        equal(gkvctl("provider"), [], "providers")
        check("(provider)" in refused("provider", "del", added["id"]), gkvctl.error)
        check("note" not in added, f"of a slice nothing is to be said: {added}")
        unbind(VRAM2)
        bind(VRAM2, "gkv-exporter")
        size = int(os.environ["GKV_VRAM2_SIZE"])
        whole = gkvctl("provider", "add", VRAM2, BAR, 0, size)
        check("whole BAR" in whole["note"] and "peermem" in whole["note"], whole)
        gkvctl("provider", "del", whole["id"])
        text = gkvctl("provider", "add", VRAM2, BAR, 0, size, output="text")
        check("\nnote: this is the whole BAR" in text, text)
    finally:
        unbind(VRAM2)
        subprocess.run(["rmmod", "exporter"], check=True)


# ---- Regions --------------------------------------------------------------------------------------

@gkvtest.test
def parts_in_host_memory_are_told_as_such():
    gkv = device()
    queue = queue_pair(gkv, 100, 0)
    told = reported()
    equal(list(told), [queue], "descriptors; not the device itself")
    equal((told[queue]["kind"], told[queue]["mode"]), ("queue pair", 0), "kind and mode")
    equal([(one["part"], one["place"], one["len"], one["pages"]) for one in told[queue]["parts"]],
          [("sq", "host", 6400, 2), ("cq", "host", 1600, 1), ("db", "host", 8, 1)],
          "parts")
    text = gkvctl("region", "--pid", os.getpid(), output="text")
    check(text.count("  host ") == 3 and "queue pair" in text, text)
    os.close(queue)
    os.close(gkv)
    equal(reported(), {}, "after closing")


@gkvtest.test
def parts_in_vram_are_where_the_bar_is():
    address = int(os.environ.get("GKV_VRAM_ADDR", "0"), 0)
    with Carveout() as provider:
        gkv = device()
        region = allocate(gkv, provider["id"], MIB)
        queue = queue_pair(gkv, 1024, 0x5, region)
        told = reported()
        equal(sorted(told), sorted([region, queue]), "descriptors")
        data = told[region]["parts"][0]
        equal((told[region]["kind"], data["part"], data["place"], data["len"], data["pages"]),
              ("region", "data", "vram", MIB, 256), "the region")
        equal((data["function"], data["bar"], data["provider"]), (VRAM, BAR, provider["id"]),
              "the region's provider")
        equal(sum(run["len"] for run in data["runs"]), MIB, "bytes in its runs")
        equal(data["runs"][0]["bus"], address + data["bar_offset"], "first bus address")
        parts = {one["part"]: one for one in told[queue]["parts"]}
        equal(told[queue]["mode"], 5, "mode")
        equal({name: one["place"] for name, one in parts.items()},
              {"sq": "vram", "cq": "host", "db": "vram"}, "places")
        equal(parts["db"]["bar_offset"], data["bar_offset"] + 0x20000, "where the doorbells are")
        check("runs" not in parts["cq"] and "function" not in parts["cq"], "host memory has none")
        text = gkvctl("region", "--pid", os.getpid(), output="text")
        check(f"{data['runs'][0]['bus']:#x}" in text and VRAM in text, text)
        # What is gone, and that nobody may look.
        call(region, REVOKE, "=")
        told = reported()
        equal([one["place"] for one in told[region]["parts"] + told[queue]["parts"]],
              ["gone"] * 4, "after revoking")
        refused("region", "--pid", os.getpid(), user=NOBODY)
        check("may not be looked into" in gkvctl.error, gkvctl.error)
        for fd in (region, queue, gkv):
            os.close(fd)
    check("No such process" in refused("region", "--pid", 4000000), gkvctl.error)


@gkvtest.named("F56: a disk is probed before anything uses it")
def a_disk_is_probed():
    disk = os.environ["GKV_DISK"]
    check("no block device" in refused("region", "--probe", "/dev/null"), gkvctl.error)
    check("No such file" in refused("region", "--probe", "/dev/nothing"), gkvctl.error)
    check("no provider" in refused("region", "--probe", disk), gkvctl.error)
    with Carveout() as provider:
        gkv = device()
        region = allocate(gkv, provider["id"], 4096)
        queue = queue_pair(gkv, 8, 0)
        told = gkvctl("region", "--probe", disk)
        equal([(one["provider"], one["function"], one["reached"], one["map"])
               for one in told["providers"]], [(provider["id"], VRAM, True, "bus")], "carve-outs")
        check(told["providers"][0]["distance"] > 0, "distance")
        told = gkvctl("region", "--pid", os.getpid(), "--probe", disk)["descriptors"]
        equal({one["fd"]: one.get("reached") for one in told}, {region: True, queue: None}, "which")
        check("by bus address" in gkvctl("region", "--probe", disk, output="text"), "text")
        call(region, REVOKE, "=")
        told = gkvctl("region", "--pid", os.getpid(), "--probe", disk, status=1)["descriptors"]
        equal([(one["reached"], one["reason"]) for one in told if one["fd"] == region],
              [(False, "revoked")], "what is revoked")
        check(f"{disk} cannot do DMA to 1 of 1" in gkvctl.error, gkvctl.error)
        for fd in (region, queue, gkv):
            os.close(fd)


@gkvtest.named("F35, F44: the daemon tells where each part of its sessions is")
def the_daemon_tells_of_its_sessions():
    with Carveout() as provider, gkvtest.Daemon() as daemon:
        with gkvlib.Session(daemon, mode=0xf, provider=provider["id"]):
            session = [one for one in daemon.gkvctl("region") if one["pid"] == os.getpid()][0]
            queue, region = session["qps"][0], session["regions"][0]
            equal(queue["mode"], 0xf, "mode")
            for name, place in [*queue["placement"].items(), ("region", region["placement"])]:
                check(place.startswith("vram"), f"{name}: {place}")
            check(VRAM in queue["placement"]["sq"] and VRAM in region["placement"], "function")
            for report in ("region", "sessions"):
                text = daemon.gkvctl(report, output=None).decode()
                check(f"provider {provider['id']} {VRAM} bar {BAR}" in text, text)
            # Its own descriptors, which the module tells of.
            told = gkvctl("region", "--pid", daemon.pid)["descriptors"]
            places = {(one["kind"], part["place"]) for one in told for part in one["parts"]}
            equal(places, {("region", "vram"), ("queue pair", "vram")}, "the daemon's descriptors")
            check(f"kvbridged (pid {daemon.pid})" in refused("module", "unload"), gkvctl.error)


def a_kernel_that_takes_signed_modules_only_is_told_apart():
    subprocess.run(["mount", "-t", "securityfs", "securityfs", "/sys/kernel/security"], check=True)
    gkvctl("module", "unload")
    with open("/modules/gkvdrv.ko", "rb") as file:
        data = file.read()
    path = "/tmp/gkvdrv.ko"
    with open(path, "wb") as file:
        file.write(data.replace(b"\0misc_register\0", b"\0misc_registes\0"))
    text = refused("module", "load", "--file", path)
    check("uses symbols that this kernel does not have" in text, text)
    write("/sys/kernel/security/lockdown", "integrity")
    text = refused("module", "load")
    check("locked down (integrity)" in text and "sign it" in text, text)
    write("/sys/module/module/parameters/sig_enforce", "1")
    text = refused("module", "load")
    check("signature" in text and "enrolled key" in text, text)
    write("/proc/sys/kernel/modules_disabled", "1")
    text = refused("module", "load")
    check("modules_disabled" in text, text)


if ENFORCE:
    gkvtest.named("F51: a kernel that takes signed modules only is told apart")(
        a_kernel_that_takes_signed_modules_only_is_told_apart)
    sys.argv.append("signed modules only")
for function in filter(None, (VRAM, VRAM2)):
    unbind(function)
gkvtest.main()
