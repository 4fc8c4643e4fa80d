# SPDX-License-Identifier: MIT
"""The rows of the RADOS store: gkv beside a direct librados client, on a throwaway cluster.

GKV_BENCH_CEPH=memstore (default) or bluestore: what the cluster's one OSD keeps its objects in.
GKV_BENCH_DAEMON="spin_ns = 20000; cpus = 3": daemon settings to try instead of spin_ns = 0.
"""
import json
import os
import re
import shutil
import statistics

from benchlib import BUILD, QUICK, Daemon, Skip, at_least, command, figure, row, say

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/ceph/cluster.py")
STORE = os.environ.get("GKV_BENCH_CEPH", "memstore")
POOL = "kv"

# Name, bytes, objects to choose from, seconds of a measurement.
SIZES = (("4K", 4 << 10, 4096, 1), ("64K", 64 << 10, 1024, 1), ("1M", 1 << 20, 128, 1.5),
         ("4M", 4 << 20, 64, 2), ("32M", 32 << 20, 16, 3))
NAMES = {"4K": "4 KiB", "64K": "64 KiB", "1M": "1 MiB", "4M": "4 MiB", "32M": "32 MiB"}

# Nothing is bound to a processor: see NOTES.
CONFIG = """
[daemon]
socket = {dir}/kvbridged.sock
state_dir = {dir}
reactors = 1
buffer_memory = 2G
{extra}
[namespace bench]
nsid = 1
stack = rados
rados.pool = {pool}
rados.namespace = {nspace}
rados.conf = {conf}
rados.inflight = 1G
value_max = 64M
deadline = 60s
verify = off
"""

NOTES = (
    "One OSD ({store}) and one monitor on the same machine; nothing is bound to a processor: "
    "librados adds 12 threads to kvbridged and to the floor alike, and with a cluster beside "
    "them no processor is free for one of them alone. For the same reason nobody spins: both "
    "clients sleep while they wait (gkv-bench run --no-spin; the floor blocks in poll), and so "
    "does the reactor (spin_ns = 0): what it would burn the OSD would miss.",
    "A measurement lasts 1 to 3 s by size (QUICK: a quarter); "
    "rados.inflight and buffer_memory allow 16 values of 32 MiB at once, as the floor does.",
    "The floor of a read is the better of whole reads and parallel 1 MiB slices, round by round.",
    "Allocator of kvbridged and, by LD_PRELOAD, of the floor: {allocator}.",
    "Added p50: kvbridged's own stamps over the row, from fetching the command to handing it to "
    "librados plus from librados's callback to the completion. CPU is that of the whole process, "
    "librados's threads included.",
)


def tcmalloc_of(pid):
    """The path of the tcmalloc that a process uses, or None."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        found = re.search(r"(/\S*libtcmalloc\S*\.so\S*)", file.read())
    return found.group(1) if found else None


class Rados:
    """The cluster, started on first use, and the daemon of the row in hand."""

    def __init__(self, directory):
        self.dir = directory
        self.cluster = os.path.join(directory, "ceph")
        self.conf = None
        self.daemon = None
        self.tcmalloc = None

    def start(self):
        if self.conf:
            return
        if STORE not in ("memstore", "bluestore"):
            raise RuntimeError(f"GKV_BENCH_CEPH={STORE}: must be memstore or bluestore")
        libraries = command("ldd", f"{BUILD}/kvbridged")
        if "librados" not in libraries:
            raise Skip("this kvbridged was built without librados (RADOS=n)")
        for program, package in (("ceph-mon", "ceph-mon"), ("ceph-osd", "ceph-osd")):
            if not shutil.which(program):
                raise Skip(f"{program} is not installed (Debian package {package})")
        # By Debian's own interpreter: the rig needs its python3-rados.
        self.conf = command("/usr/bin/python3", TOOL, "start", self.cluster, "--store", STORE,
                            "--space", 10 << 30, "--pools", POOL).strip()

    def serve(self, name):
        """The daemon of a row, with the row's size as RADOS namespace; one row at a time."""
        if self.daemon:
            return self.daemon
        directory = os.path.join(self.dir, name)
        os.mkdir(directory)
        extra = os.environ.get("GKV_BENCH_DAEMON", "spin_ns = 0").replace(";", "\n")
        self.daemon = Daemon(directory, CONFIG.format(dir=directory, pool=POOL, conf=self.conf,
                                                      nspace=name.split("-")[2], extra=extra))
        self.tcmalloc = tcmalloc_of(self.daemon.process.pid)
        return self.daemon

    def floor(self, size, *options):
        """A gkv-bench floor rados on the objects of a size; returns its results."""
        env = {"LD_PRELOAD": self.tcmalloc} if self.tcmalloc else {}
        try:
            text = command(f"{BUILD}/gkv-bench", "floor", "rados", "--conf", self.conf, "--pool",
                           POOL, "--namespace", size[0], "--sizes", size[1], "--keys", size[2],
                           "-o", "json", *options, env=env)
        except RuntimeError as problem:
            raise RuntimeError(str(problem)[-500:]) from problem
        return json.loads(text)["floors"]

    def added(self, command_name):
        """p50 and p99 of what kvbridged added by its own stamps, ns; None: not reported."""
        report = json.loads(command(f"{BUILD}/gkvctl", "--socket", self.daemon.socket, "-o", "json",
                                    "namespaces"))
        store = report[0].get("store", {})
        return [store.get(f"{command_name}_added_{p}_ns") for p in ("p50", "p99")]

    def end_row(self):
        if self.daemon:
            daemon, self.daemon = self.daemon, None
            daemon.stop()

    def stop(self):
        try:
            self.end_row()
        finally:
            if self.conf:
                command("/usr/bin/python3", TOOL, "wipe", self.cluster)


def define(mix, size, depth):
    """One row: @mix is retrieve or store."""
    kind = "read" if mix == "retrieve" else "write"
    name = f"rados-{kind}-{size[0]}-{depth}"
    seconds = size[3] / 4 if QUICK else size[3]
    modes = ("read,slice" if size[1] > 1 << 20 else "read") if mix == "retrieve" else "write"
    small = size[1] <= 64 << 10

    def first(rados):
        daemon = rados.serve(name)
        if mix == "retrieve":
            # Stored by gkv, read by both.
            daemon.run("bench", "store", fill="yes", count=1, qd=4, sizes=size[0], keys=size[2],
                       cpus=None)
        else:
            rados.floor(size, "--fill", "--mode", "write", "--count", 1)
        daemon.run("bench", mix, seconds=seconds, fill="no", qd=depth, sizes=size[0], keys=size[2],
                   flags=("--no-spin",), cpus=None)

    def measure(bench):
        rados = bench.rados
        rados.start()
        if not rados.daemon:
            first(rados)
        floors = rados.floor(size, "--mode", modes, "--depth", depth, "--seconds", seconds)
        best = max(floors, key=lambda f: f["per_s"])
        gkv = rados.daemon.run("bench", mix, seconds=seconds, fill="no", qd=depth, sizes=size[0],
                               keys=size[2], warm="100ms", flags=("--no-spin",), cpus=None)
        return gkv, best

    def conclude(bench, gkv, base):
        rados = bench.rados
        try:
            # What went wrong in a round is told by that, not by what it broke here.
            added = rados.added(mix) if gkv else None
        finally:
            rados.end_row()
        if not gkv:
            return [], {}
        floor_p50 = statistics.median(f["p50_ns"] for f in base)
        limit = 5000 if small else 0.05 * floor_p50
        goal = "added p50 <= 5 us" if small else "added p50 <= 5 % of the floor's p50"
        met = added[0] is not None and added[0] <= limit
        if added[0] is None:
            goal += " (not reported)"
        cpu = [g["daemon_cpu_ns"] for g in gkv if g["daemon_cpu_ns"]]
        extra = {"rados": {
            "added_p50_ns": added[0], "added_p99_ns": added[1], "floor_p50_ns": floor_p50,
            "cpu_ns": statistics.median(cpu) if cpu else None,
            "floor_cpu_ns": statistics.median(f["cpu_ns_per_op"] for f in base),
            "floor_mode": statistics.mode(f["name"].split()[1] for f in base),
            "allocator": rados.tcmalloc or "the C library's"}}
        say(f"  {name}: added p50 {text(added[0])}, CPU {text(extra['rados']['cpu_ns'])} beside "
            f"{text(extra['rados']['floor_cpu_ns'])}")
        return [(goal, met)], extra

    row(name, f"RADOS {mix.capitalize()} {NAMES[size[0]]}, QD {depth}", "per_s", [at_least(0.97)],
        conclude)(measure)


def define_rows():
    for size in SIZES:
        for mix in ("retrieve", "store"):
            for depth in (1, 16):
                define(mix, size, depth)


def text(nanoseconds):
    return "not reported" if nanoseconds is None else figure(nanoseconds, "_ns")


def table(results):
    """Markdown lines on the RADOS rows among @results."""
    rows = [r for r in results if "rados" in r]
    if not rows:
        return []
    lines = ["", "| RADOS row | added p50 / p99, daemon's stamps | of the floor's p50 "
             "| CPU of kvbridged per command | CPU of the direct client per operation "
             "| floor's mode |", "|---|---|---|---|---|---|"]
    for r in rows:
        x = r["rados"]
        share = "" if x["added_p50_ns"] is None else \
            f"{100 * x['added_p50_ns'] / x['floor_p50_ns']:.2g} % of {text(x['floor_p50_ns'])}"
        lines.append(f"| {r['row']} | {text(x['added_p50_ns'])} / {text(x['added_p99_ns'])} "
                     f"| {share} | {text(x['cpu_ns'])} | {text(x['floor_cpu_ns'])} "
                     f"| {x['floor_mode']} |")
    allocator = os.path.basename(rows[0]["rados"]["allocator"])
    lines += [""] + [f"- {note.format(store=STORE, allocator=allocator)}" for note in NOTES]
    return lines
