#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The performance goals: gkv beside the machine's own floor, in alternating rounds.

Each row runs its floor and gkv one after the other, round after round, and is judged by the
median of the rounds' ratios, so that what the machine does meanwhile hits both alike. Writes
results.md and results.json to BUILD/bench/.

usage: scripts/bench.sh [ROW...]      GKV_BUILD=dir, QUICK=1 (fewer, shorter rounds),
                                      GKV_BENCH_CEPH=bluestore (the cluster keeps on disk)
"""
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bench_rados
from benchlib import (BUILD, CLIENT_CPU, QUICK, ROUNDS, ROWS, SECONDS, SERVER_CPU, Daemon,
                      Skip, at_least, at_most, command, die_with_parent, figure, floor, row, say)

SIZES = {"4K": 4 << 10, "128K": 128 << 10, "1M": 1 << 20, "4M": 4 << 20}
NAMES = {"4K": "4 KiB", "128K": "128 KiB", "1M": "1 MiB", "4M": "4 MiB"}
# Bytes of values per size on the local store, and of its file: half of it stays free for Stores.
LOCAL_VALUES = 192 << 20 if QUICK else 512 << 20
LOCAL_FILE = 512 << 20 if QUICK else 1280 << 20

CONFIG = """
[daemon]
socket = {dir}/kvbridged.sock
state_dir = {dir}
reactors = 1
cpus = {cpu}
max_qid = 4096
{extra}
[namespace null]
nsid = 1
stack = null
verify = off

[namespace mem]
nsid = 2
stack = mem
mem.capacity = 2G
verify = off

[namespace mem-verify]
nsid = 3
stack = mem
mem.capacity = 2G
verify = on
"""

LOCAL_NS = """
[namespace local-{name}]
nsid = {nsid}
stack = local
local.path = {path}
local.size = {size}
local.format = yes
durability = {durability}
"""


class Bench:
    """What rows share: a directory on a disk, daemons by configuration."""

    def __init__(self):
        self.dir = self.pick_dir()
        self.daemons = {}
        self.files = {}
        self.valkey = None
        self.rados = bench_rados.Rados(self.dir)

    @staticmethod
    def pick_dir():
        for parent in (os.environ.get("TMPDIR", "/tmp"), "/var/tmp", BUILD):
            kind = subprocess.run(["stat", "-f", "-c", "%T", parent], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, check=False).stdout.decode().strip()
            if kind not in ("", "tmpfs", "ramfs") and shutil.disk_usage(parent).free > 9 << 30:
                return tempfile.mkdtemp(prefix="gkv-bench-", dir=parent)
        raise SystemExit("bench: needs a directory on a disk with 9 GiB free: set TMPDIR")

    def daemon(self, name="main"):
        """The daemon of a configuration, started on first use."""
        if name not in self.daemons:
            directory = f"{self.dir}/{name}"
            os.mkdir(directory)
            if name == "local":
                self.start(name, directory, "", self.local_namespaces())
                self.fill_local()
            elif name == "slow-poll":
                self.start(name, directory, "poll_interval_ns = 1000000\n")
            else:
                # Spins while there is work, and soon stops when the floor's turn comes.
                self.start(name, directory, "spin_ns = 2000000\n")
        return self.daemons[name]

    def start(self, name, directory, extra, namespaces=""):
        config = CONFIG.format(dir=directory, cpu=SERVER_CPU, extra=extra) + namespaces
        self.daemons[name] = Daemon(directory, config)

    def written_file(self, path, size):
        """A file whose blocks are all written: unwritten extents would flatter reads."""
        chunk = os.urandom(8 << 20)
        with open(path, "wb") as file:
            left = size
            while left > 0:
                part = chunk[left % 4093:][:left]
                file.write(part)
                left -= len(part)
            file.flush()
            os.fsync(file.fileno())
        return path

    def local_namespaces(self):
        text = ""
        for i, name in enumerate(SIZES):
            self.files[name] = self.written_file(f"{self.dir}/store-{name}", LOCAL_FILE)
            text += LOCAL_NS.format(name=name, nsid=10 + i, path=self.files[name], size=LOCAL_FILE,
                                    durability="async")
        path = self.written_file(f"{self.dir}/store-4K-sync", LOCAL_FILE)
        text += LOCAL_NS.format(name="4K-sync", nsid=20, path=path, size=LOCAL_FILE,
                                durability="sync")
        # fio's own file to write to: writing to the store's would destroy it.
        self.files["fio"] = self.written_file(f"{self.dir}/fio", LOCAL_FILE)
        return text

    @staticmethod
    def keys(name):
        return LOCAL_VALUES // SIZES[name.split("-")[0]]

    def fill_local(self):
        for name in [*SIZES, "4K-sync"]:
            say(f"  fill local-{name}")
            self.daemons["local"].bench("run", "-q", "--ns", f"local-{name}", "--mix", "exist",
                                        "--fill", "yes", "--qd", "32", "--count", "1",
                                        "--keys", self.keys(name), "--cpus", CLIENT_CPU,
                                        "--sizes", name.split("-")[0])

    def close(self):
        problems = []
        for part in (*self.daemons.values(), self.rados):
            try:
                part.stop()
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                problems.append(str(problem))
        if self.valkey:
            self.valkey.terminate()
            self.valkey.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
        return problems


# ---- Valkey --------------------------------------------------------------------------------

def valkey_socket(bench):
    """A Valkey of its own on a Unix socket; starts on first use."""
    path = f"{bench.dir}/valkey.sock"
    if bench.valkey:
        return path
    if not shutil.which("valkey-server") or not shutil.which("valkey-benchmark"):
        raise Skip("Valkey is not installed (Debian package valkey-server; backports on Debian 12)")
    bench.valkey = subprocess.Popen(
        ["valkey-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no",
         "--dir", bench.dir], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: (die_with_parent(), os.sched_setaffinity(0, [SERVER_CPU])))
    for _ in range(200):
        try:
            with socket.socket(socket.AF_UNIX) as conn:
                conn.connect(path)
            return path
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("Valkey did not start")


def valkey(bench, what, size, keys, pipeline, requests):
    """One valkey-benchmark of SET or GET; returns (requests/s, p50 in ns)."""
    path = valkey_socket(bench)
    text = command("taskset", "-c", CLIENT_CPU, "valkey-benchmark", "-s", path, "-t", what,
                   "-d", size, "-r", keys, "-c", 1, "-P", pipeline, "-n", requests, "--csv",
                   "--precision", 3)
    rows = [line for line in text.splitlines() if line.startswith(f'"{what.upper()}"')]
    if not rows:
        raise RuntimeError(f"valkey-benchmark printed no {what}: {text[-500:]}")
    fields = [field.strip('"') for field in rows[0].split(",")]
    return float(fields[1]), float(fields[4]) * 1e6


# ---- Rows ----------------------------------------------------------------------------------

@row("null", "null store, QD 1, spinning reactor: p50", "p50_ns",
     [at_most(2), ("<= 1 us", lambda _, v: v <= 1000)])
def _null(bench):
    base = floor("ring")["bare ring, QD 1"]
    return bench.daemon().run("null", "exist", fill="no"), base


@row("mem-exist", "Exist from mem, deep queue, one reactor", "per_s",
     [at_least(0.25), (">= 5 M/s", lambda _, v: v >= 5e6)])
def _mem_exist(bench):
    base = floor("ring")["bare ring, deep"]
    return bench.daemon().run("mem", "exist", qd=256, sizes="64", keys=4096), base


@row("mem-retrieve-4K", "4 KiB Retrieve from mem, deep queue, one reactor", "per_s",
     [at_least(0.6)])
def _mem_4k(bench):
    base = floor("ring-copy")["bare ring + 4 KiB copy, deep"]
    return bench.daemon().run("mem", "retrieve", qd=256, sizes="4K", keys=4096), base


@row("mem-retrieve-4K-verify", "the same with crc32c verified on every Retrieve", "per_s", [])
def _mem_4k_verify(bench):
    base = floor("ring-copy")["bare ring + 4 KiB copy, deep"]
    return bench.daemon().run("mem-verify", "retrieve", qd=256, sizes="4K", keys=4096), base


@row("mem-retrieve-32M", "32 MiB Retrieve from mem", "bytes_per_s", [at_least(0.9)])
def _mem_32m(bench):
    base = floor("memcpy")["memcpy 32 MiB"]
    return bench.daemon().run("mem", "retrieve", qd=2, sizes="32M", keys=4), base


def local_rows():
    """Retrieve and Store on local against fio, by size and queue depth."""
    def define_retrieve(name, qd):
        values = f"{NAMES[name]}, QD {qd}"

        @row(f"local-retrieve-{name}-qd{qd}", f"local Retrieve {values}", "bytes_per_s",
             [at_least(0.95)])
        def _retrieve(bench):
            daemon = bench.daemon("local")
            base = floor("fio", options=("--file", bench.files[name], "--file-size", LOCAL_VALUES,
                                         "--sizes", name, "--qds", qd))
            return (daemon.run(f"local-{name}", "retrieve", fill="no", qd=qd, sizes=name,
                               keys=bench.keys(name)), base[f"fio read {values}"])

    def define_store(name, qd):
        values = f"{NAMES[name]}, QD {qd}"

        @row(f"local-store-{name}-qd{qd}", f"local Store {values}", "bytes_per_s",
             [at_least(0.9 if name == "4K" else 0.95)])
        def _store(bench):
            daemon = bench.daemon("local")
            base = floor("fio", options=("--file", bench.files["fio"], "--file-size", LOCAL_VALUES,
                                         "--sizes", name, "--qds", qd, "--write-only"))
            return (daemon.run(f"local-{name}", "store", fill="no", qd=qd, sizes=name,
                               keys=bench.keys(name)), base[f"fio write {values}"])

    def define_sync(qd):
        values = f"4 KiB, QD {qd}"

        @row(f"local-store-4K-sync-qd{qd}", f"local Store {values}, durability = sync",
             "bytes_per_s", [at_least(0.9)])
        def _sync(bench):
            daemon = bench.daemon("local")
            base = floor("fio", options=("--file", bench.files["fio"], "--file-size", LOCAL_VALUES,
                                         "--sizes", "4K", "--qds", qd, "--write-only", "--sync"))
            return (daemon.run("local-4K-sync", "store", fill="no", qd=qd, sizes="4K",
                               keys=bench.keys("4K")), base[f"fio sync write {values}"])

    # Stores move the values about in the file: Retrieves come first, while they lie where fio
    # reads.
    for name in SIZES:
        for qd in (1, 32):
            define_retrieve(name, qd)
    for name in SIZES:
        for qd in (1, 32):
            define_store(name, qd)
    for qd in (1, 32):
        define_sync(qd)


local_rows()
bench_rados.define_rows()


@row("idle-qps", "1,024 idle GPU-style queue pairs beside one busy: busy p50", "p50_ns",
     [at_most(2)])
def _idle_qps(bench):
    daemon = bench.daemon()
    alone = daemon.run("mem", "exist", qd=1, sizes="64", keys=1000)
    return daemon.run("mem", "exist", qd=1, sizes="64", keys=1000, idle_qps=1024), alone


@row("valkey-4K", "4 KiB: Retrieve rate at QD 16 over Valkey's GET at pipeline 16", "per_s",
     [at_least(8)])
def _valkey_4k(bench):
    first = not bench.valkey
    valkey_socket(bench)
    if first:
        valkey(bench, "set", 4096, 4096, 16, 40000)
    rate, p50 = valkey(bench, "get", 4096, 4096, 16, 20000 if QUICK else 60000)
    return (bench.daemon().run("mem", "retrieve", qd=16, sizes="4K", keys=4096),
            {"per_s": rate, "p50_ns": p50})


@row("valkey-4K-latency", "4 KiB: Retrieve p50 at QD 1 over Valkey's GET at depth 1", "p50_ns",
     [("<= 1/20 x floor", lambda r, _: r <= 0.05)])
def _valkey_latency(bench):
    valkey(bench, "set", 4096, 4096, 16, 20000)
    rate, p50 = valkey(bench, "get", 4096, 4096, 1, 5000 if QUICK else 10000)
    return (bench.daemon().run("mem", "retrieve", qd=1, sizes="4K", keys=4096),
            {"per_s": rate, "p50_ns": p50})


@row("valkey-1M", "1 MiB: Retrieve rate over the better of Valkey's GET at pipelines 1 and 16",
     "per_s", [at_least(5)])
def _valkey_1m(bench):
    valkey(bench, "set", 1 << 20, 64, 4, 300)
    results = [valkey(bench, "get", 1 << 20, 64, p, 600 if QUICK else 1000) for p in (1, 16)]
    rate, p50 = max(results)
    return (bench.daemon().run("mem", "retrieve", qd=16, sizes="1M", keys=64),
            {"per_s": rate, "p50_ns": p50})


# ---- Rows without a floor ------------------------------------------------------------------

def idle_memory(bench):
    # One that has had no queue pairs yet: memory it took for earlier ones would not count again.
    daemon = bench.daemon("fresh")
    result = daemon.bench("idle", "--ns", "mem", "--qps", 1024, "--depth", 1024, "--time", "100ms")
    beyond = result["beyond_rings_bytes_per_qp"]
    parts = [result["daemon_private_bytes"] / 1024, result["client_private_bytes"] / 1024,
             result["shared_bytes"] / 1024 - result["ring_bytes_per_qp"]]
    parts = ", ".join(f"{name} {part / 1024:.1f}" for name, part in
                      zip(("daemon", "client", "record"), parts))
    return {"row": "idle-memory",
            "what": "memory per idle queue pair of depth 1,024 beyond the rings",
            "gkv": f"{beyond / 1024:.1f} KiB ({parts})", "floor": "", "ratio": "",
            "goal": "<= 128 KiB", "verdict": "PASS" if beyond <= 128 << 10 else "MISS",
            "detail": result}


def idle_cpu(bench):
    daemon = bench.daemon("slow-poll")
    base, cores = [], []
    for _ in range(3 if QUICK else 5):
        base.append(floor("sleep")["sleep 1 ms, repeatedly"]["cores"])
        cores.append(daemon.bench("idle", "--ns", "mem", "--qps", 1,
                                  "--time", "500ms" if QUICK else "1s")["daemon_cores"])
    share, least = 100 * statistics.median(cores), 100 * statistics.median(base)
    return {"row": "idle-cpu", "what": "idle daemon, one GPU-style queue pair, 1 ms interval; "
            "floor: a thread that sleeps 1 ms again and again", "gkv": f"{share:.2f} % of a core",
            "floor": f"{least:.2f} %", "ratio": f"{share / least:.3g}", "goal": "<= 1 % of a core",
            "verdict": "PASS" if share <= 1 else "MISS", "detail": {"gkv": cores, "floor": base}}


SINGLE = {"idle-memory": idle_memory, "idle-cpu": idle_cpu}


# ---- Report --------------------------------------------------------------------------------

def percentiles(rounds):
    """Medians over the rounds of p50, p99 and p99.9."""
    parts = []
    for name in ("p50_ns", "p99_ns", "p999_ns"):
        values = [r[name] for r in rounds if r.get(name)]
        parts.append(figure(statistics.median(values), name) if values else "-")
    return " / ".join(parts)


def run_row(bench, name):
    spec = ROWS[name]
    unit = spec["unit"]
    gkv, base, ratios = [], [], []
    more, extra = [], {}
    try:
        for i in range(ROUNDS):
            g, f = spec["measure"](bench)
            gkv.append(g)
            base.append(f)
            ratios.append(g[unit] / f[unit])
            say(f"  {name} {i + 1}/{ROUNDS}: gkv {figure(g[unit], unit)}, "
                f"floor {figure(f[unit], unit)}, ratio {ratios[-1]:.3g}")
    except BaseException:
        if spec["conclude"]:
            spec["conclude"](bench, [], [])
        raise
    if spec["conclude"]:
        more, extra = spec["conclude"](bench, gkv, base)
    ratio = statistics.median(ratios)
    value = statistics.median(g[unit] for g in gkv)
    passed = all(check(ratio, value) for _, check in spec["goals"]) and all(m for _, m in more)
    goals = [text for text, _ in [*spec["goals"], *more]]
    return {"row": name, "what": spec["what"], "gkv": figure(value, unit),
            "floor": figure(statistics.median(f[unit] for f in base), unit),
            "ratio": f"{ratio:.3g}", "spread": f"{min(ratios):.3g} - {max(ratios):.3g}",
            "percentiles": percentiles(gkv), "floor_percentiles": percentiles(base),
            "goal": ", ".join(goals) or "none (for information)", **extra,
            "verdict": ("PASS" if passed else "MISS") if spec["goals"] else "-",
            "detail": {"gkv": gkv, "floor": base, "ratios": ratios}}


def write_results(results):
    out = f"{BUILD}/bench"
    os.makedirs(out, exist_ok=True)
    lines = ["| row | what | gkv | floor | ratio (range) | gkv p50 / p99 / p99.9 "
             "| floor p50 / p99 / p99.9 | goal | |", "|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        if "why" in r:
            what = "skipped" if r["verdict"] == "SKIP" else "FAILED"
            why = r["why"].splitlines()[0]
            lines.append(f"| {r['row']} | {r['what']} | | | | | | {r['goal']} | {what}: {why} |")
            continue
        spread = f" ({r['spread']})" if r.get("spread") else ""
        lines.append(f"| {r['row']} | {r['what']} | {r['gkv']} | {r['floor']} "
                     f"| {r['ratio']}{spread} | {r.get('percentiles', '')} "
                     f"| {r.get('floor_percentiles', '')} | {r['goal']} | {r['verdict']} |")
    lines += bench_rados.table(results)
    cpu = re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo", encoding="utf-8").read())
    head = (f"{cpu.group(1) if cpu else os.uname().machine}, {os.cpu_count()} processors, Linux "
            f"{os.uname().release}; {ROUNDS} alternating rounds of {SECONDS} s a row, medians.\n")
    with open(f"{out}/results.md", "w", encoding="utf-8") as file:
        file.write(head + "\n" + "\n".join(lines) + "\n")
    with open(f"{out}/results.json", "w", encoding="utf-8") as file:
        json.dump({"machine": head.strip(), "rows": results}, file, indent=1)
    print(head)
    for r in results:
        note = r["why"].splitlines()[0] if "why" in r else \
            f"{r['gkv']}{' against ' + r['floor'] if r['floor'] else ''}" \
            f"{', ratio ' + r['ratio'] if r['ratio'] else ''} (goal {r['goal']})"
        print(f"{r['verdict']:4}  {r['row']:26} {note}")
    counts = {v: sum(r["verdict"] == v for r in results) for v in ("PASS", "MISS", "SKIP", "FAIL")}
    print("\n" + ", ".join(f"{n} {v.lower()}" for v, n in counts.items()) + f"; {out}/results.md")
    return counts


def choose(args):
    """Rows whose names begin with an argument; all without one."""
    names = [*ROWS, *SINGLE]
    if not args:
        return names
    chosen = [n for n in names if any(n == a or n.startswith(a + "-") for a in args)]
    unknown = [a for a in args if not any(n == a or n.startswith(a + "-") for n in names)]
    if unknown or "--help" in args:
        print(__doc__.strip() + "\n\nrows:\n  " + "\n  ".join(names))
        sys.exit(2 if unknown and "--help" not in args else 0)
    return chosen


def main():
    chosen = choose(sys.argv[1:])
    results = []
    bench = Bench()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    problems = []
    try:
        for name in chosen:
            say(f"{name} ({time.monotonic() - start:.0f} s)")
            spec = ROWS.get(name)
            what = spec["what"] if spec else name
            goal = ", ".join(text for text, _ in spec["goals"]) if spec else ""
            try:
                results.append(run_row(bench, name) if spec else SINGLE[name](bench))
            except Skip as reason:
                results.append({"row": name, "what": what, "goal": goal, "verdict": "SKIP",
                                "why": str(reason)})
            except (RuntimeError, subprocess.TimeoutExpired, KeyError) as problem:
                say(f"  FAILED: {problem}")
                results.append({"row": name, "what": what, "goal": goal, "verdict": "FAIL",
                                "why": str(problem)[:500]})
    finally:
        problems = bench.close()
    counts = write_results(results)
    for problem in problems:
        say(problem)
    # A goal that is missed is a result; something that did not run is a failure.
    sys.exit(1 if problems or counts["FAIL"] else 0)


if __name__ == "__main__":
    main()
