# SPDX-License-Identifier: MIT
"""The machine: QEMU's command line for each topology, and which accelerator truly runs a guest."""
import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
import time

import ceph
import initramfs
from initramfs import Error

QEMU = "qemu-system-x86_64"
MIB = 1 << 20

# What stands for VRAM is BAR 2 of an ivshmem-plain device.
TOPOLOGIES = {
    "switch": "VRAM and disk behind one switch: bus addresses",
    "switch-1m": "the same with a BAR too small to be made into pages",
    "root": "VRAM and disk below a root port each: allowed through the host bridge of EPYC only",
    "none": "no VRAM, a disk at the root complex",
}
IOMMUS = ("off", "pt", "translate")


def size(text):
    """Bytes of "256M" and the like."""
    units = {"K": 1 << 10, "M": MIB, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def make_filesystem(kind, path):
    """On the host, where it takes no emulation."""
    tool = shutil.which(f"mkfs.{kind}", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not tool:
        raise Error(f"mkfs.{kind} is missing: scripts/deps.sh vm")
    done = subprocess.run([tool, "-q", "-F", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error(f"mkfs.{kind}: {done.stderr}")


def qemu():
    path = shutil.which(QEMU)
    if not path:
        raise Error(f"{QEMU} is missing: scripts/deps.sh vm")
    return path


def devices(topology, vrams, disks):
    """-device arguments.

    `vrams` names the memory backends of the VRAM devices, `disks` the drives; the first one first.
    """
    leaves = [f"ivshmem-plain,memdev={name}" for name in vrams]
    leaves += [f"nvme,serial=gkv{i},drive={name}" for i, name in enumerate(disks)]
    if topology == "none":
        return leaves
    if topology == "root":
        ports = [f"pcie-root-port,id=rp{i},chassis={i},slot={i}" for i in range(1, len(leaves) + 1)]
        return ports + [f"{leaf},bus=rp{i}" for i, leaf in enumerate(leaves, 1)]
    parts = ["pcie-root-port,id=rp1,chassis=1,slot=1", "x3130-upstream,bus=rp1,id=up"]
    parts += [f"xio3130-downstream,bus=up,id=dn{i},chassis={i + 2},slot={i + 2}"
              for i in range(len(leaves))]
    return parts + [f"{leaf},bus=dn{i}" for i, leaf in enumerate(leaves)]


class Machine:
    """The files of one run, in a directory of its own, and the command that boots it."""

    def __init__(self, options):
        self.options = options
        parent = place(options)
        sweep(parent)
        self.dir = tempfile.mkdtemp(prefix="gkv-vm-", dir=parent)
        # Held as long as this process lives.
        self.lock = open(self.path("lock"), "w", encoding="utf-8")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.files = {"ram": self.make("ram", size(options.memory)),
                      "disk": self.make("disk", size(options.disk_size))}
        self.disks = ["disk"]
        if options.filesystem:
            self.disks.append("disk2")
            self.files["disk2"] = self.make("disk2", size(options.disk_size))
            make_filesystem(options.filesystem, self.files["disk2"])
        vram_size = MIB if options.topology == "switch-1m" else size(options.vram_size)
        self.vrams = {}
        for name in [] if options.topology == "none" else ["vram", "vram2"][:options.vrams]:
            self.vrams[name] = vram_size
            self.files[name] = self.make(name, vram_size)

    def path(self, name):
        return os.path.join(self.dir, name)

    def make(self, name, length):
        """A sparse file of zeros."""
        with open(self.path(name), "wb") as file:
            file.truncate(length)
        return self.path(name)

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        self.lock.close()

    def command(self, accel, kernel, append):
        options, iommu = self.options, self.options.iommu != "off"
        memory = f"memory-backend-file,size={{}},id={{}},mem-path={self.dir}/{{}},share=on"
        command = [qemu(), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                   "-machine", "q35,memory-backend=ram" + (",kernel-irqchip=split" if iommu else ""),
                   *accelerator(accel), "-cpu", options.cpu, "-smp", str(options.smp),
                   "-m", str(size(options.memory) // MIB),
                   "-object", memory.format(size(options.memory), "ram", "ram"),
                   "-kernel", kernel, "-initrd", self.path("initramfs"),
                   # ttyS0: console; ttyS1: the programs and our answers; ttyS2: dmesg.
                   "-serial", f"file:{self.path('console')}",
                   "-chardev", f"socket,id=control,path={self.path('control')}",
                   "-serial", "chardev:control",
                   "-serial", f"file:{self.path('dmesg')}"]
        for name, length in self.vrams.items():
            command += ["-object", memory.format(length, name, name)]
        for name in self.disks:
            command += ["-drive", f"file={self.files[name]},if=none,id={name},format=raw"]
        if iommu:
            command += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
        for device in devices(options.topology, list(self.vrams), self.disks):
            command += ["-device", device]
        if options.cluster:
            command += ceph.NETWORK
        line = "console=ttyS0 loglevel=5 log_buf_len=4M panic=-1 oops=panic"
        if iommu:
            line += " intel_iommu=on" + (" iommu=pt" if options.iommu == "pt" else "")
        return command + ["-append", " ".join([line, *append])] + options.qemu


def place(options):
    """Where the machine's files go: in memory, if there is enough of it."""
    shm = "/dev/shm"
    try:
        free = os.statvfs(shm)
        if free.f_bavail * free.f_frsize > size(options.memory) + (512 << 20):
            return shm
    except OSError:
        pass
    return None


def sweep(parent):
    """Removes what runs left that were killed: memory, mostly."""
    for path in glob.glob(os.path.join(parent or tempfile.gettempdir(), "gkv-vm-*")):
        try:
            if time.time() - os.stat(path).st_mtime < 60:
                continue
            with open(os.path.join(path, "lock"), "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass


def accelerator(name):
    return ["-accel", "kvm" if name == "kvm" else "tcg,thread=multi"]


def choose_accelerator(root, cache):
    """"kvm" when a guest was seen to run under it, else "tcg"; and how that is known.

    An accessible /dev/kvm proves nothing: on some machines a virtual machine can be made and
    nothing runs in it. So the answer is what booting shows; it is kept with what it depends on.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg", "no usable /dev/kvm"
    version = subprocess.run([qemu(), "--version"], capture_output=True, text=True,
                             check=True).stdout.splitlines()[0]
    key = f"{os.uname().release} | {version} | {root.version('newest')}"
    memory = os.path.join(cache, "accelerator")
    try:
        with open(memory, encoding="utf-8") as file:
            answer, known_for = file.read().rstrip("\n").split(" ", 1)
        if known_for == key and answer in ("kvm", "tcg"):
            return answer, "remembered"
    except (OSError, ValueError):
        pass
    answer = "kvm" if kvm_boots(root) else "tcg"
    try:
        with open(memory + ".new", "w", encoding="utf-8") as file:
            file.write(f"{answer} {key}\n")
        os.replace(memory + ".new", memory)
    except OSError:
        pass
    return answer, "probed by booting"


def kvm_boots(root):
    marker = "gkv-kvm-" + os.urandom(8).hex()
    with tempfile.TemporaryDirectory(prefix="gkv-kvm-") as work:
        with open(os.path.join(work, "init"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/busybox sh\n/bin/busybox echo {marker}\n/bin/busybox poweroff -f\n")
        os.chmod(file.name, 0o755)
        with open(os.path.join(work, "initramfs"), "wb") as archive:
            archive.write(initramfs.base_archive(root, file.name).bytes())
        command = [qemu(), "-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35",
                   *accelerator("kvm"), "-cpu", "host", "-m", "512", "-serial", "stdio",
                   "-kernel", root.vmlinuz("newest"), "-initrd", archive.name,
                   "-append", "console=ttyS0 quiet panic=-1"]
        try:
            result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, timeout=20, check=False)
        except subprocess.TimeoutExpired:
            return False
        return marker.encode() in result.stdout
