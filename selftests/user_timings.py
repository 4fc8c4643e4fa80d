#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long commands take in each of the sixteen memory modes, as Markdown tables. In an emulated
machine, where VRAM is memory of the host's: differences are those of the ways through the code.

GKV_TIMING_ROUNDS says how often all modes are measured in turn, and the tables show the median of
the commands in the best of the rounds; without it, there is one short round, which shows no more
than that all modes give figures.
scripts/bench-vm.sh (make bench VM=1) boots a machine for it."""
import json
import os
import subprocess
import time

import gkvtest
import guest

ROUNDS = int(os.environ.get("GKV_TIMING_ROUNDS") or 0)
# Client and reactor have a processor each, and the reactor looks for commands as one does that
# serves a GPU: it is awake when the next one comes, and asleep while the next client starts.
CONFIG = f"""
[daemon]
buffer_memory = 64M
reactors = 1
cpus = 0
spin_ns = 20ms
[namespace mem]
nsid = 1
stack = mem
mem.capacity = 128M
verify = off
[namespace local]
nsid = 2
stack = local
local.path = {os.environ.get("GKV_DISK")}
verify = off
"""


class Shape:
    """Commands of one kind: options of gkv-bench run, and which of its figures are in the table."""

    def __init__(self, options, seconds, columns):
        self.options = options.split()
        self.limit = ["--time", f"{seconds}s"] if ROUNDS else ["--count", "24"]
        # Heading -> (command, figure).
        self.columns = columns

    def measure(self, daemon, namespace, mode):
        """{heading: figure}. Fails on a value that does not match, and on any error."""
        done = gkvtest.run_program(
            "gkv-bench", "run", "--socket", daemon.socket, "--ns", namespace, "--mode", mode,
            "--polled", "--cpus", 1, "-o", "json", "-q", *self.options, *self.limit)
        found = json.loads(done.stdout)["by_command"]
        return {heading: found[command][figure]
                for heading, (command, figure) in self.columns.items() if command in found}


def latency(size, more=""):
    return {f"Retrieve {size}{more}": ("retrieve", "p50_ns"),
            f"Store {size}{more}": ("store", "p50_ns")}


SMALL = Shape("--mix retrieve,store --sizes 4K --keys 8", 0.1, latency("4 KiB"))
LARGE = Shape("--mix retrieve,store --sizes 1M --keys 8", 0.3, latency("1 MiB"))
# The client's processor would have more to do than the daemon's if it compared values, too.
DEEP = Shape("--mix retrieve --sizes 4K --keys 64 --qd 32 --verify off", 0.1,
             {"Retrieves 4 KiB, QD 32": ("retrieve", "per_s")})
CHECKSUMMED = Shape("--mix store --sizes 1M --keys 4 --fill no --csum", 0.2,
                    {"Store 1 MiB, checksummed": ("store", "p50_ns")})
SHAPES = {"mem": [SMALL, LARGE, DEEP], "local": [SMALL, LARGE, CHECKSUMMED, DEEP]}
# What the second one says differs from the first one by chance only.
AGAIN = 16
LINES = [*range(16), AGAIN]


def name_of(line):
    if line == AGAIN:
        return "0x0 again"
    names = ("SQ", "CQ", "doorbells", "values")
    parts = [name for bit, name in enumerate(names) if line >> bit & 1]
    return f"{line:#x} {', '.join(parts) or 'nothing'}"


def show(heading, value):
    if "QD" in heading:
        return f"{value:.0f}/s"
    return f"{value / 1000:.0f} us" if value < 1e6 else f"{value / 1e6:.2f} ms"


def best(rounds, line, heading):
    """Of all rounds: what else runs on the host makes a figure worse, never better."""
    values = [one[line][heading] for one in rounds if heading in one[line]]
    return (max if "QD" in heading else min)(values) if values else None


def cell(rounds, line, heading):
    """The figure, and its ratio to that of mode 0x0."""
    value, base = best(rounds, line, heading), best(rounds, 0, heading)
    if value is None:
        return "-"
    return show(heading, value) + (f", {value / base:.2f}" if line and base else "")


def table(namespace, rounds):
    headings = [heading for shape in SHAPES[namespace] for heading in shape.columns]
    print(f"# | {namespace} | " + " | ".join(headings) + " |")
    print("# " + "|---" * (len(headings) + 1) + "|", flush=True)
    for line in LINES:
        cells = [cell(rounds, line, heading) for heading in headings]
        print(f"# | {name_of(line)} | " + " | ".join(cells) + " |", flush=True)


def measure(daemon, namespace, line):
    """{heading: figure}"""
    mode, figures = line % AGAIN, {}
    # Without rounds, not everything in all modes: emulation takes its time.
    for shape in SHAPES[namespace] if ROUNDS or mode == 15 else [SMALL]:
        figures.update(shape.measure(daemon, namespace, mode))
    gkvtest.check(figures and all(figure > 0 for figure in figures.values()),
                  f"mode {mode:#x} gave figures: {figures}")
    return figures


def every_mode(namespace):
    guest.need_vram()
    rounds, begun = [], time.monotonic()
    with gkvtest.Daemon(CONFIG) as daemon:
        # What runs for the first time is translated first.
        measure(daemon, namespace, 0)
        for i in range(max(ROUNDS, 1)):
            # What changes with time hits first and last alike.
            order = LINES[::-1] if i % 2 else LINES
            rounds.append({line: measure(daemon, namespace, line) for line in order})
            if ROUNDS:
                print("# figures: " + json.dumps(rounds[-1]))
            print(f"# {namespace}: round {i + 1} of {max(ROUNDS, 1)}, "
                  f"{time.monotonic() - begun:.0f} s", flush=True)
        gkvtest.equal(guest.bounced(daemon), 0, "bytes that were to go by DMA and did not")
    table(namespace, rounds)


@gkvtest.test
def values_in_memory():
    every_mode("mem")


@gkvtest.test
def values_on_a_disk():
    every_mode("local")


gkvtest.main()
