#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rig's own test: whatever way a guest goes wrong, its run fails. Speaks TAP.

What can be judged without a machine is; the rest boots guests that warn, panic, stop early and lie.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # nothing is left in the tree
import hooks
import hostcheck
import klog
import tap

HERE = os.path.dirname(os.path.abspath(__file__))

# As kernels print them; the first ones in a guest's normal boot.
HARMLESS = """\
[    0.04] RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable to RETBleed attacks
[    0.05] DMAR: IOMMU enabled
[    0.06] DMAR: No ATSR found
[    0.07] DMAR: Intel(R) Virtualization Technology for Directed I/O
[    0.08] ** 7.3.4: debugging enabled **
[    0.09] kasan: KernelAddressSanitizer initialized (generic)
[    0.10] clocksource: Watchdog remote CPU 1 read timed out
[    0.11] rcu: RCU restricting CPUs from NR_CPUS=8192 to nr_cpu_ids=2.
[    0.12] tsc: Unable to calibrate against PIT
[    0.13] gkvdrv: loading out-of-tree module taints kernel.
[    0.14] DMAR-IR: Queued invalidation will be enabled to support x2apic and Intr-remapping.
[    0.15] pci 0000:00:01.0: enabling Extended Tags
[    0.16] kmemleak: Kernel memory leak detector initialized (mem pool available: 15679)
""".splitlines()
HARMFUL = """\
[    1.01] ------------[ cut here ]------------
[    1.02] WARNING: CPU: 1 PID: 77 at mm/memremap.c:12 memremap_pages+0x1/0x2 [gkvdrv]
[    1.03] WARNING: mm/memory_hotplug.c:412 at __add_pages+0x12/0x130, CPU#1: insmod/77
[    1.04] WARNING: possible circular locking dependency detected
[    1.05] WARNING: possible recursive locking detected
[    1.06] WARNING: suspicious RCU usage
[    1.07] BUG: kernel NULL pointer dereference, address: 0000000000000008
[    1.08] BUG: KASAN: slab-use-after-free in gkv_region_put+0x12/0x34 [gkvdrv]
[    1.09] BUG: KCSAN: data-race in a / b
[    1.10] UBSAN: array-index-out-of-bounds in mem.c:12:3
[    1.11] Oops: 0002 [#1] SMP NOPTI
[    1.12] Call Trace:
[    1.13] INFO: task rmmod:99 blocked for more than 120 seconds.
[    1.14] DMAR: DRHD: handling fault status reg 2
[    1.15] DMAR: [DMA Write NO_PASID] Request device [04:00.0] fault addr 0xd0000000
[    1.16] invalid error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x4800
[    1.17] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[    1.18] BUG: sleeping function called from invalid context at mm/slab.h:12
[    1.19] Kernel panic - not syncing: sysrq triggered crash
[    1.20] general protection fault, probably for non-canonical address 0xdead
[    1.21] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[    1.22] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!
[    1.23] refcount_t: underflow; use-after-free.
[    1.24] BUG: Bad page state in process p2p  pfn:d0000
[    1.25] list_add corruption. next->prev should be prev
[    1.26] DMA-API: nvme 0000:04:00.0: device driver frees DMA memory it has not allocated
[    1.27] gkvdrv: Unknown symbol pci_p2pdma_add_resource (err -2)
WARNING: at the start of a line without its time
""".splitlines()
# What a program prints, and a word of what must be said of it; None for one that is good.
PROGRAMS = [
    (["1..1", "ok 1 - one"], 0, None),
    (["TAP version 13", "1..2", "ok 1 one", "not ok 2 two"], 1, "not ok 2"),
    (["1..0 # SKIP no device"], 4, None),
    (["1..2", "ok 1 - one"], 0, "planned 2 tests and reported 1"),
    (["1..1", "ok 1 - one", "ok 2 - two"], 0, "planned 1 tests and reported 2"),
    (["1..1", "1..1", "ok 1 - one"], 0, "second plan"),
    (["ok 1 - one"], 0, "no plan"),
    ([], 0, "no plan"),
    (["1..0"], 0, "skipped without a reason"),
    (["1..1", "ok 1 one # SKIP"], 0, "skipped without a reason"),
    (["1..2", "ok 1 - one", "ok 3 - three"], 0, "came as number 2"),
    (["1..1", "ok 1 - one"], 3, "status 3"),
    (["1..1", "ok 1 - one"], 139, "signal 11"),
    (["1..1", "ok 1 - one"], 137, "time limit"),
    (["1..1", "ok 1 - one"], None, "did not end"),
    (["1..1", "not ok 1 - one"], 0, "status 0 in spite"),
    (["1..1", "Bail out! no memory", "ok 1 - one"], 0, "Bail out"),
    (["1..1", "ok 1 - one", "# Totals: pass:0 fail:1 xfail:0 xpass:0 skip:0 error:0"], 0, "totals"),
]


class Suite:
    def __init__(self, first):
        self.writer = tap.Writer("rig", first or 1)

    def check(self, name, problems):
        problems = list(problems)
        self.writer.result(not problems, name, problems)

    # ---- Without a machine ------------------------------------------------------------------------

    def logs(self):
        found = {line for _, _, line in klog.trouble(HARMLESS + HARMFUL)}
        self.check("every kind of trouble in a kernel's log is found",
                   [f"missed: {line}" for line in HARMFUL if line not in found])
        self.check("the lines of a normal boot are none",
                   [f"taken for trouble: {line}" for line in HARMLESS if line in found])
        left = klog.trouble(HARMFUL, ["invalid error, dev nvme0n1", "^WARNING"])
        self.check("only what is expected is passed over",
                   [] if len(left) == len(HARMFUL) - 2 else [f"{len(left)} of {len(HARMFUL)} left"])

    def programs(self):
        problems = []
        for lines, status, want in PROGRAMS:
            said = []
            writer = tap.Writer(out=said.append)
            program = tap.Program("program", writer)
            for line in lines:
                program.line(line)
            program.end(status)
            text = "\n".join(said)
            if (want is None) != (writer.failed == 0) or (want or "") not in text:
                problems += [f"{lines}, status {status}: want {want!r}"] + said
        self.check("every way a program's results can be wrong is noticed", problems)

    def patterns(self):
        problems = []
        whole = hostcheck.pattern(5, 0, 4096)
        if hostcheck.pattern(5, 1000, 100) != whole[1000:1100]:
            problems.append("a part is not that part of the whole")
        if len({whole[i:i + 8] for i in range(0, 4096, 8)}) != 1 + 4096 // 64 * 7:
            problems.append("words repeat")
        with tempfile.NamedTemporaryFile() as file:
            host = hostcheck.Host({"ram": file.name})
            file.truncate(64 << 20)
            for request, good in (
                    ("ram-lacks 5", True), ("ram-holds 5 4096", False),
                    ("ram-fill 5 12340 8192", True), ("ram-has 5 12340 8192", True),
                    ("ram-has 5 12341 8192", False), ("ram-has 6 12340 8192", False),
                    ("ram-holds 5 8192", True), ("ram-holds 5 16384", False),
                    ("ram-lacks 5", False), ("ram-lacks 6", True),
                    # One line in the wrong place, as a misdirected write leaves it.
                    ("ram-fill 8 50000000 64 640", True), ("ram-lacks 8", False),
                    ("ram-lacks 8 640", True), ("ram-has 8 50000000 64", False),
                    ("ram-bytes 12341 " + whole[1:6].hex(), True),
                    ("ram-bytes 12341 " + whole[2:6].hex(), False),
                    ("ram-bytes 12341", False), ("ram-bytes 12341 xy", False),
                    ("ram-bytes 67108863 0000", False), ("vram-bytes 0 00", False),
                    ("ram-fill 5 67108864 1", False), ("ram-has 5 0 0", False),
                    ("vram-has 5 0 64", False), ("ram-eats 5", False), ("ram-has", False),
                    ("ram-has x 0 64", False), ("ram-has 5 -64 64", False), ("", False)):
                why = host.request(request)
                if (why is None) != good:
                    problems.append(f"{request!r}: {why}")
        self.check("the host finds the pattern where it is and nowhere else", problems)

    def hooks(self):
        problems, said = [], []
        with tempfile.NamedTemporaryFile() as file:
            programs = hooks.Hooks(["good=sh -c 'echo $GKV_VM_VRAM $0' ", "bad=false",
                                    "long=sleep 100"], {"vram": file.name}, said.append)
            host = hostcheck.Host({}, programs)
            for request, good in (("run good x", True), ("run bad", False), ("run ugly", False),
                                  ("wait good", False), ("start long", True),
                                  ("start long", False), ("stop long", True),
                                  ("start long", True)):
                why = host.request(request)
                if (why is None) != good:
                    problems.append(f"{request!r}: {why}")
            if said[:1] != [f"# good: {file.name} x"]:
                problems.append(f"the program said {said}")
            if programs.end() != ["long"]:
                problems.append("one that still runs is not named")
        self.check("programs on the host run for the guest", problems)

    # ---- With one ---------------------------------------------------------------------------------

    def boot(self, name, programs, want, good=False, options=(), path=None):
        """The run must end as said and hold every line (a part of it) of `want`."""
        command = [sys.executable, os.path.join(HERE, "vm.py"), "run", *options,
                   *(os.path.join(HERE, "selftest", program) for program in programs)]
        env = {name: value for name, value in os.environ.items() if name != "RIG_FIRST"}
        if path:
            env["PATH"] = path + ":" + env["PATH"]
        result = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        lines = result.stdout.splitlines()
        problems = []
        if result.returncode != (0 if good else 1):
            problems.append(f"exit status {result.returncode}")
        for text in want:
            if not any(text in line for line in lines):
                problems.append(f"no line with: {text}")
        if problems:
            problems += ["| " + line for line in lines + result.stderr.splitlines()]
        self.check(name, problems)

    def machines(self):
        self.boot("a good run is good", ["pass.sh", "pass.py"], [
            "ok 1 - pass.sh: first", "ok 2 - pass.sh: second # SKIP", "pass.sh: host sees vram-has 7",
            "ok 5 - pass.sh: host sees run echo hello", "# echo: hello", "ok 7 - pass.py:",
            "ok 8 - the guest ran all 2 programs", "ok 9 - ", "ok 10 - ", "1..10"],
                  good=True, options=["--hook", "echo=echo"])
        liars = ["few", "many", "none", "planless", "silent", "renumber", "status", "denies",
                 "totals", "killed", "hangs", "absent", "forges"]
        self.boot("guests that lie about their results fail, each for its own reason",
                  [f"liar.sh {how}" for how in liars] + ["kmsg.sh"], [
                      "- liar.sh few: the program", "- liar.sh many: the program",
                      "- liar.sh none: the program",
                      "- liar.sh planless: the program", "- liar.sh silent: the program",
                      "- liar.sh renumber: the program", "- liar.sh status: the program",
                      "- liar.sh denies: the program", "- liar.sh totals: the program",
                      "- liar.sh killed: the program", "- liar.sh hangs: the program",
                      "- liar.sh absent: host sees vram-has 99 0 4096",
                      "was killed, or ran into its time limit", "was ended by signal 11",
                      "- the guest ran all 14 programs and came to its end",
                      "# dmesg: warning:"], options=["--program-limit", "3"])
        self.boot("a panic fails, though QEMU ends with status 0", ["panic.sh"], [
            "panic.sh: the program", "# did not end", "# no end marker came",
            "# console: panic: "])
        self.boot("a guest that ends before its end marker fails", ["poweroff.sh", "pass.sh"], [
            "# no end marker came", "of 2 programs 1 began and 0 ended",
            "the kernel's log did not come whole"])

    def stillborn(self):
        """A kernel without a first process panics: once, and then each time."""
        dead = ["# the kernel died before anything of ours ran, and is booted again (1 of 2)",
                "# console| ", "Kernel panic"]
        # Of two -append the last one counts. -S: its processors do not run.
        for name, arguments, want, options in (
                ("dies", '-append "console=ttyS0 panic=-1 rdinit=/nowhere"', dead, []),
                ("hangs", "-S", ["# the kernel hung before anything of ours ran, and is booted again "
                                 "(1 of 2)"], ["--boot-limit", "40"])):
            with tempfile.TemporaryDirectory() as folder:
                stub = os.path.join(folder, "qemu-system-x86_64")
                with open(stub, "w", encoding="utf-8") as file:
                    file.write(f"""#!/bin/sh
case $* in *control*) ;; *) exec {shutil.which("qemu-system-x86_64")} "$@" ;; esac
[ -e {folder}/once ] || set -- "$@" {arguments}
: >{folder}/once
exec {shutil.which("qemu-system-x86_64")} "$@"
""")
                os.chmod(stub, 0o755)
                self.boot(f"a kernel that {name} before anything of ours ran is booted again, and it "
                          f"is said", ["pass.sh"], want + ["- the guest ran all 1 programs"],
                          good=True, path=folder, options=["--hook", "echo=echo"] + options)
        self.boot("one that dies each time fails", ["pass.sh"],
                  dead + ["is booted again (2 of 2)", "# no end marker came"],
                  options=["--append", "rdinit=/nowhere"])

    def warning(self, module):
        name = "a true WARN fails: pages of a BAR that is too small for them"
        if not module:
            self.writer.result(True, f"{name} # SKIP no --p2pbar given")
            return
        self.boot(name, ["pass.sh"], ["# dmesg: warning:", "# dmesg: stack trace:",
                                      "ok 3 - pass.sh: "],
                  options=["--topology", "switch-1m", "--module", module])

    def arguments(self):
        command = [sys.executable, os.path.join(HERE, "vm.py"), "run"]
        problems = []
        for extra, path, want in (
                (["--kernel", "2.6", "/bin/true"], None, "no kernel 2.6"),
                (["/nonexistent"], None, "no file /nonexistent"),
                (["--memory", "4G", "/bin/true"], None, "--memory beyond 2G"),
                (["--modules", "nosuch", "/bin/true"], None, "no module nosuch"),
                (["--cache", "/nonexistent", "/bin/true"], None, "no complete root"),
                (["--accel", "tcg", "/bin/true"], "/nonexistent", "qemu-system-x86_64 is missing")):
            env = dict(os.environ, PATH=path or os.environ["PATH"])
            result = subprocess.run(command + extra, capture_output=True, text=True, env=env,
                                    check=False)
            if result.returncode != 2 or want not in result.stderr:
                problems += [f"{extra}: {result.returncode}", result.stdout, result.stderr]
        # root.sh asks these first; nothing is made.
        for stub, want in (("mmdebstrap", "mmdebstrap is missing"), ("id", "takes root")):
            with tempfile.TemporaryDirectory() as folder:
                self.path_without(folder, stub)
                result = subprocess.run(["bash", os.path.join(HERE, "root.sh"),
                                         os.path.join(folder, "cache")], env={"PATH": folder},
                                        capture_output=True, text=True, check=False)
                if result.returncode == 0 or want not in result.stderr or \
                        os.path.exists(os.path.join(folder, "cache")):
                    problems += [f"root.sh: {result.returncode}", result.stdout, result.stderr]
        self.check("what is missing is named", problems)

    @staticmethod
    def path_without(folder, name):
        """A folder for PATH with all that root.sh needs but this one, or with an "id" of a user."""
        for tool in ("bash", "uname", "apt-get", "dpkg-deb", "mmdebstrap", "xz", "flock", "unshare",
                     "id", "sha256sum", "cut", "grep", "find"):
            if tool != name:
                os.symlink(shutil.which(tool) or "/bin/true", os.path.join(folder, tool))
        if name == "id":
            with open(os.path.join(folder, "id"), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho 1000\n")
            os.chmod(file.name, 0o755)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-boot", action="store_true", help="only what needs no machine")
    parser.add_argument("--p2pbar", help="the rig's module, built for the newest kernel")
    options = parser.parse_args()
    first = int(os.environ.get("RIG_FIRST", 0))
    sys.stdout.reconfigure(line_buffering=True)
    suite = Suite(first)
    suite.logs()
    suite.programs()
    suite.patterns()
    suite.hooks()
    if not options.no_boot:
        suite.arguments()
        suite.machines()
        suite.stillborn()
        suite.warning(options.p2pbar)
    if not first:
        suite.writer.out(f"1..{suite.writer.count}")
    sys.exit(suite.writer.failed > 0)


if __name__ == "__main__":
    main()
