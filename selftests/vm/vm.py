#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Boots a virtual machine, runs test programs in it, and says in TAP what came of it.

What a program says of itself is not enough: the run is good only if it came to its end, the counts
agree, the kernel's log is clean, the modules unloaded, and everything the programs asked the host
to check holds. See README.md.
"""
import argparse
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # nothing is left in the tree
import ceph
import hooks
import hostcheck
import initramfs
import klog
import machine
import tap
from initramfs import Error

HERE = os.path.dirname(os.path.abspath(__file__))
# Emulation has been seen to break a kernel that patches its own text while it starts: it dies, or
# stands still. That says nothing of what is tested; a death of a kernel that has our module or runs
# our programs does.
BOOTS = 3


class Run:
    """One boot: talks to the guest while it runs, judges what it left."""

    def __init__(self, options, root, writer):
        self.options = options
        self.root = root
        self.writer = writer
        self.secret = "gkv-" + secrets.token_hex(8)
        self.machine = machine.Machine(options)
        self.cluster = ceph.Cluster(self.machine.dir) if options.cluster else None
        self.hooks = hooks.Hooks(options.hook, self.machine.files, writer.out)
        self.host = hostcheck.Host(self.machine.files, self.hooks)
        self.program = None
        self.begun = self.ended = 0
        self.up = self.hung = False
        self.done = None
        self.problems = []
        self.connection = None
        self.started = self.program_started = None

    # ---- The guest's lines ------------------------------------------------------------------------

    def line(self, text):
        if text.startswith(self.secret + " "):
            word, _, rest = text[len(self.secret) + 1:].partition(" ")
            self.marker(word, rest.strip())
        elif text.startswith(("HOST: ", "HOST? ")):
            self.request(text[4] == ":", text[6:].strip())
        elif not text:
            pass
        elif self.program:
            self.program.line(text)
        else:
            self.writer.out(f"# guest: {text}")

    def marker(self, word, rest):
        if word == "begin":
            self.begun += 1
            self.program = tap.Program(rest, self.writer)
            self.program_started = time.monotonic()
        elif word == "end" and self.program:
            self.ended += 1
            self.program.end(int(rest))
            self.writer.out(f"# {self.program.name} took "
                            f"{time.monotonic() - self.program_started:.1f} s")
            self.program = None
        elif word == "problem":
            self.problems.append(rest)
        elif word == "up":
            self.up = True
        elif word == "vram":
            if int(rest) != len(self.machine.vrams):
                self.problems.append(f"the guest sees {rest} VRAM devices")
        elif word == "done":
            self.done = int(rest)
            self.send("bye")
        else:
            self.problems.append(f"unexpected marker {word}")

    def request(self, verdict, text):
        why = self.host.request(text)
        if verdict and (why or not hostcheck.is_action(text)):
            name = f"{self.program.name}: " if self.program else ""
            self.writer.result(why is None, f"{name}host sees {text}", [why] if why else [])
        self.send("yes" if why is None else f"no: {why}")

    def send(self, text):
        self.connection.sendall(text.encode() + b"\n")

    # ---- The machine ------------------------------------------------------------------------------

    def prepare(self):
        options = self.options
        own = [os.path.basename(path).split(".")[0] for path in options.module + options.extra_module]
        rig = {
            "secret": self.secret,
            "program_limit": options.program_limit,
            "guest_limit": max(options.limit - 15, 10),
            "load": " ".join(own[:len(options.module)]),
            "own": " ".join(own),
            "module_arguments": options.module_arguments,
            "disks": len(self.machine.disks),
            "filesystem": options.filesystem or "",
            "network": "yes" if self.cluster else "",
        }
        environment = {
            "GKV_KERNEL": options.kernel,
            "GKV_TOPOLOGY": options.topology,
            "GKV_IOMMU": options.iommu,
            "GKV_CPU": options.cpu,
        }
        if options.user:
            # Where tests/lib looks for programs; and emulation takes its time.
            environment.update(GKV_BUILD="/host", PYTHONPATH="/host/python", GKV_SLOW="6")
        if os.environ.get("GKV_LONG"):
            environment["GKV_LONG"] = "1"
        environment.update(pair.split("=", 1) for pair in options.env)
        modules = options.modules.split(",") + [name for name in [options.filesystem] if name]
        files = list(options.files)
        if self.cluster:
            modules.append(ceph.MODULE)
            files += self.start_cluster(environment)
        data = initramfs.build(self.root, options.kernel, os.path.join(HERE, "init"), rig,
                               environment, modules, options.module + options.extra_module,
                               options.programs, files,
                               options.user_build if options.user else None)
        with open(self.machine.path("initramfs"), "wb") as file:
            file.write(data)

    def start_cluster(self, environment):
        """Files of the guest for it; hooks and the guest's programs get its configuration."""
        self.cluster.start()
        self.hooks.environment["GKV_VM_CEPH_CONF"] = self.cluster.conf
        environment["GKV_CEPH_CONF"] = "/files/ceph.conf"
        with open(self.machine.path("ceph.conf"), "w", encoding="utf-8") as file:
            file.write(self.cluster.guest_conf())
        return [f"{file.name}:files/ceph.conf"]

    def remove(self):
        self.hooks.end()
        if self.cluster:
            self.cluster.remove()
        self.machine.remove()

    def boot(self, accel):
        """Runs the machine to its end or its limit; returns QEMU's status, None for the limit."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.machine.path("control"))
        listener.listen(1)
        command = self.machine.command(accel, self.root.vmlinuz(self.options.kernel),
                                       self.options.append)
        if self.options.verbose:
            self.writer.out("# " + " ".join(command))
        self.started = time.monotonic()
        with open(self.machine.path("qemu"), "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            return self.converse(process, listener, self.started + self.options.limit)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            listener.close()
            if self.connection:
                self.connection.close()

    def converse(self, process, listener, deadline):
        """Until the machine is gone and all it said is read."""
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                self.hung = not self.up and not self.begun and \
                    time.monotonic() > self.started + self.options.boot_limit
                if self.hung:
                    return None
                ready = selector.select(0.2)
                if not ready and process.poll() is not None:
                    break
                for key, _ in ready:
                    if key.fileobj is listener:
                        self.connection = listener.accept()[0]
                        selector.unregister(listener)
                        selector.register(self.connection, selectors.EVENT_READ)
                        continue
                    data = self.connection.recv(65536)
                    if not data:
                        try:
                            return process.wait(max(deadline - time.monotonic(), 1))
                        except subprocess.TimeoutExpired:
                            return None
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        self.line(line.decode(errors="replace").rstrip("\r"))
            return process.poll()

    def stillborn(self, status):
        """What its console says, when the machine ended or hung before anything of ours ran."""
        if status is None and not self.hung or self.up or self.begun:
            return []
        console = self.log("console")
        return [line for _, _, line in klog.trouble(console)][:3] or console[-3:] or ["nothing"]

    def log(self, name):
        try:
            with open(self.machine.path(name), encoding="utf-8", errors="replace") as file:
                return [line.rstrip("\r\n") for line in file]
        except OSError:
            return []

    # ---- Verdicts ---------------------------------------------------------------------------------

    def judge(self, status):
        console, dmesg = self.log("console"), self.log("dmesg")
        complete = bool(dmesg) and dmesg[-1] == f"{self.secret} end of log"
        if self.program:
            self.program.end(None)
        self.problems += [f"hook {name} still ran at the end" for name in self.hooks.end()]
        planned = len(self.options.programs)
        why = []
        if status is None:
            limit = self.options.boot_limit if self.hung else self.options.limit
            why.append(f"the machine ran into its limit of {limit} s")
        elif status:
            why.append(f"{machine.QEMU} ended with status {status}")
        if self.done is None:
            why.append("no end marker came")
        if not (self.done or 0) == self.begun == self.ended == planned:
            why.append(f"of {planned} programs {self.begun} began and {self.ended} ended; "
                       f"the guest counted {self.done}")
        if why:
            why += ["console| " + line for line in console[-40:]]
        self.writer.result(not why, f"the guest ran all {planned} programs and came to its end", why)

        found = klog.trouble(dmesg, self.options.allow)
        why = klog.report("dmesg", dmesg, found)
        if not complete:
            why.append(f"the kernel's log did not come whole ({len(dmesg)} lines)")
        late = klog.trouble(console, self.options.allow)
        if late and not found:
            why += klog.report("console", console, late)
        missing = [text for text in self.options.want
                   if not klog.contains(dmesg + console, text)]
        why += [f"no line matches {text!r}" for text in missing]
        self.writer.result(not why, "the kernel's log holds nothing it must not", why)

        self.writer.result(not self.problems, "the guest found and left everything in order",
                           self.problems)
        for line in self.log("qemu"):
            if "TCG doesn't support requested feature" not in line and line:
                self.writer.out(f"# qemu: {line}")

    def keep(self):
        """Copies the logs where --logs says."""
        if not self.options.logs:
            return
        os.makedirs(self.options.logs, exist_ok=True)
        for name in ("console", "dmesg", "qemu"):
            with open(os.path.join(self.options.logs, name), "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in self.log(name))


def command_run(options):
    machine.qemu()
    root = initramfs.Root(options.cache)
    root.version(options.kernel)
    writer = tap.Writer(options.label, options.first or 1)
    accel, how = options.accel, "asked for"
    if accel == "auto":
        accel, how = machine.choose_accelerator(root, options.cache)
    writer.out(f"# {root.version(options.kernel)}, topology {options.topology}, "
               f"IOMMU {options.iommu}, CPU {options.cpu}, {accel} ({how})")
    for left in reversed(range(BOOTS)):
        run = Run(options, root, writer)
        try:
            run.prepare()
            status = run.boot(accel)
            why = run.stillborn(status)
            if why and left:
                how = "hung" if run.hung else "died"
                writer.out(f"# the kernel {how} before anything of ours ran, and is booted again "
                           f"({BOOTS - left} of {BOOTS - 1}); it said:")
                for line in why:
                    writer.out(f"# console| {line}")
                continue
            run.judge(status)
            writer.out(f"# from start to end {time.monotonic() - run.started:.1f} s")
            run.keep()
            break
        finally:
            run.remove()
    if not options.first:
        writer.out(f"1..{writer.count}")
    return 1 if writer.failed else 0


def command_accel(options):
    answer, how = machine.choose_accelerator(initramfs.Root(options.cache), options.cache)
    print(f"{answer} ({how})")
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    cache = os.environ.get("GKV_VM_CACHE") or os.path.join(
        os.environ.get("GKV_BUILD") or "build", "vm")

    sub = commands.add_parser("accel", help="say whether KVM runs a guest here")
    sub.set_defaults(function=command_accel)
    sub.add_argument("--cache", default=cache)

    sub = commands.add_parser("run", help="boot once and run the programs in order")
    sub.set_defaults(function=command_run)
    add = sub.add_argument
    add("--cache", default=cache, help="what root.sh made (GKV_VM_CACHE, or build/vm)")
    add("--kernel", default="newest", help="newest, stable, debug, or a series such as 6.12")
    add("--topology", default="switch", choices=sorted(machine.TOPOLOGIES))
    add("--iommu", default="off", choices=machine.IOMMUS)
    add("--cpu", default="max", help="QEMU's model, such as max, EPYC or Skylake-Client")
    add("--smp", type=int, default=2)
    add("--memory", default="1G", help="at most 2G: addresses are then offsets in the file")
    add("--vram-size", default="256M")
    add("--vrams", type=int, default=1, choices=(1, 2), help="VRAM devices")
    add("--disk-size", default="1G")
    add("--filesystem", choices=("ext4",),
        help="a second disk with that on it, mounted where GKV_FS says")
    add("--cluster", action="store_true",
        help="a Ceph cluster of the host's, where GKV_CEPH_CONF says")
    add("--user", action="store_true", help="user space, too: kvbridged, gkvctl, libgkv in /host")
    add("--user-build", metavar="DIR", help="what user.sh built (GKV_BUILD/vm-user)",
        default=os.path.join(os.environ.get("GKV_BUILD") or "build", "vm-user"))
    add("--accel", default="auto", choices=("auto", "kvm", "tcg"))
    add("--modules", default="nvme", help="of the distribution, loaded first (nvme)")
    add("--module", action="append", default=[], metavar="KO", help="loaded before the programs, "
        "unloaded after them")
    add("--module-arguments", default="")
    add("--extra-module", action="append", default=[], metavar="KO",
        help="put into /modules, for programs to load")
    add("--files", nargs="+", default=[], metavar="FILE[:PATH]",
        help="put into /files, or at PATH; programs bring their libraries")
    add("--hook", action="append", default=[], metavar="NAME=COMMAND",
        help="a program on the host that the guest may start; GKV_VM_VRAM and so on name the files")
    add("--env", action="append", default=[], metavar="NAME=VALUE")
    add("--append", action="append", default=[], help="to the kernel's command line")
    add("--qemu", action="append", default=[], metavar="ARGUMENT", help="to QEMU's")
    add("--allow", action="append", default=[], metavar="REGEX",
        help="lines of the kernel's log that are no trouble here")
    add("--want", action="append", default=[], metavar="REGEX",
        help="fail unless a line of the kernel's log matches")
    add("--limit", type=int, default=300, help="seconds for the whole (300)")
    add("--boot-limit", type=int, default=240,
        help="seconds until the first of ours runs (240); then it is booted again")
    add("--program-limit", type=int, default=120, help="seconds for each program (120)")
    add("--label", default="", help="goes before the name of each result")
    add("--first", type=int, default=int(os.environ.get("RIG_FIRST", 0)), metavar="N",
        help="number results from N on and print no plan")
    add("--logs", help="directory for the guest's logs")
    add("-v", "--verbose", action="store_true")
    add("programs", nargs="+", metavar="PROGRAM",
        help="static, or a busybox shell script; with arguments as one word")
    return parser.parse_args()


def main():
    # As an interrupt does: the machine ends with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.stdout.reconfigure(line_buffering=True)
    options = parse()
    try:
        if options.command == "run" and machine.size(options.memory) > 2 << 30:
            raise Error("--memory beyond 2G: offsets in the RAM file would not be addresses")
        sys.exit(options.function(options))
    except Error as error:
        print(f"vm: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
