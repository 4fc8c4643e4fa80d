# SPDX-License-Identifier: MIT
"""What the rows of the benchmark are made of: programs, daemons, the table of rows."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import time

BUILD = os.path.abspath(os.environ.get("GKV_BUILD", "build"))
QUICK = bool(os.environ.get("QUICK"))
ROUNDS = 3 if QUICK else 10
SECONDS = 0.2 if QUICK else 0.4
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU = CPUS[0]
CLIENT_CPU = CPUS[1] if len(CPUS) > 1 else CPUS[0]


class Skip(Exception):
    """A row that cannot run here, with the reason."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def command(*args, env=None, timeout=300):
    """Runs a program and returns its stdout; raises RuntimeError with its stderr."""
    done = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout, check=False,
                          env=dict(os.environ, **(env or {})))
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: exit status {done.returncode}\n"
                           f"{done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout.decode()


def floor(*names, options=()):
    """Runs gkv-bench floor; returns its results by name."""
    text = command(f"{BUILD}/gkv-bench", "floor", *names, "--cpus", f"{CLIENT_CPU},{SERVER_CPU}",
                   "--time", f"{int(SECONDS * 1000)}ms", "-o", "json", *options)
    results = {f["name"]: f for f in json.loads(text)["floors"]}
    for name, result in results.items():
        if "skipped" in result:
            raise Skip(result["skipped"])
        if "failed" in result:
            raise RuntimeError(f"{name}: {result['failed']}")
    return results


# Loaded here because little may be done between fork and exec.
_libc = ctypes.CDLL(None)


def die_with_parent():
    """In a child: get SIGKILL when the benchmark ends, however it ends."""
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)


class Daemon:
    """A kvbridged with its socket, kvbridged.sock, in a directory."""

    def __init__(self, directory, config):
        self.dir = directory
        self.socket = f"{directory}/kvbridged.sock"
        path = f"{directory}/kvbridged.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        self.log = open(f"{directory}/log", "ab")
        self.process = subprocess.Popen([f"{BUILD}/kvbridged", "-c", path], stdout=self.log,
                                        stdin=subprocess.DEVNULL, stderr=self.log,
                                        preexec_fn=die_with_parent)
        for _ in range(600):
            if os.path.exists(self.socket) or self.process.poll() is not None:
                break
            time.sleep(0.05)
        if self.process.poll() is not None or not os.path.exists(self.socket):
            with open(f"{directory}/log", encoding="utf-8") as file:
                raise RuntimeError("kvbridged did not start:\n" + file.read()[-2000:])

    def bench(self, *args):
        return json.loads(command(f"{BUILD}/gkv-bench", *args, "-o", "json",
                                  env={"GKV_SOCKET": self.socket}))

    def run(self, namespace, mix, seconds=SECONDS, flags=(), **options):
        """One gkv-bench run of one command; its figures. An option that is None is left out."""
        args = ["run", "-q", "--ns", namespace, "--mix", mix, "--verify", "off",
                "--time", f"{int(seconds * 1000)}ms", *flags]
        for name, value in {"cpus": CLIENT_CPU, **options}.items():
            if value is not None:
                args += [f"--{name.replace('_', '-')}", value]
        result = self.bench(*args)
        if result["misses"]:
            raise RuntimeError(f"{result['misses']} values were missing")
        if mix not in result["by_command"]:
            raise RuntimeError(f"no {mix} completed in {seconds} s")
        return dict(result["by_command"][mix],
                    daemon_cpu_ns=result.get("daemon_cpu_ns_per_command"))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        status = self.process.wait()
        self.log.close()
        if status:
            with open(f"{self.dir}/log", encoding="utf-8") as file:
                raise RuntimeError(f"kvbridged ended with status {status}:\n{file.read()[-2000:]}")


# ---- Rows ----------------------------------------------------------------------------------------

ROWS = {}


def row(name, what, unit, goals, conclude=None):
    """Registers a row: a function that measures once and returns (gkv, floor) dictionaries.

    @unit: the figure compared: p50_ns, per_s or bytes_per_s. @goals: list of (text, predicate of
    (ratio, gkv figure)). @conclude: function of (bench, gkv, floor), the lists of all rounds, that
    is called after them, whatever happened; returns (goals as (text, met) pairs, dictionary to
    add to the result).
    """
    def register(function):
        ROWS[name] = {"what": what, "unit": unit, "goals": goals, "measure": function,
                      "conclude": conclude}
        return function
    return register


def at_least(ratio):
    return (f">= {ratio:g} x floor", lambda r, _: r >= ratio)


def at_most(ratio):
    return (f"<= {ratio:g} x floor", lambda r, _: r <= ratio)


def figure(value, unit):
    if unit.endswith("_ns"):
        for limit, div, name in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
            if value < limit:
                return f"{value / div:.3g} {name}"
        return f"{value / 1e9:.3g} s"
    if unit == "bytes_per_s":
        return f"{value / 1e9:.3f} GB/s"
    for limit, div, name in ((1e4, 1, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M")):
        if value < limit:
            return f"{value / div:.4g}{name}/s"
    return f"{value / 1e9:.4g} G/s"
