#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""In the guest, for `make demo VM=1`: everything in VRAM, on a local disk and on a Ceph cluster."""
import os
import subprocess

import gkvtest
import gpu
import guest
from gkvlib import LIB, QP_CSUM, RETRIEVE, STORE, Session

MODE = 0xf
LENGTH = 4 << 20
VALUE = 1 << 20
CONFIG = f"""
[daemon]
buffer_memory = 64M
[namespace local]
nsid = 1
stack = local
local.path = {os.environ["GKV_DISK"]}
# With it, values would pass through host memory to be verified there.
verify = off
[namespace objects]
nsid = 2
stack = rados
rados.conf = {os.environ["GKV_CEPH_CONF"]}
rados.pool = kv
rados.namespace = demo
deadline = 60s
"""
seeds = iter(range(0x77000001, 0x78000000))


def say(text=""):
    print(text, flush=True)


def show(*command):
    """What a program prints, indented."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    for line in done.stdout.splitlines():
        say(f"     {line}")
    gkvtest.equal(done.returncode, 0, f"status of {command[0]}")


def gkvctl(daemon, *args):
    show(os.path.join(gkvtest.BUILD, "gkvctl"), "-s", daemon.socket, *args)


def trace(daemon, namespace):
    say("   a trace of production requests, SQ, CQ, doorbells and values in VRAM (times are those of")
    say("   an emulated machine):")
    show(os.path.join(gkvtest.BUILD, "gkv-bench"), "trace", "/files/trace.jsonl", "--socket",
         daemon.socket, "--ns", namespace, "--mode", str(MODE), "--value-size", "64K",
         "--limit", "24", "--qd", "16", "--quiet")


def outside(daemon, namespace):
    say("   a GPU outside the machine, which has nothing but its bus, stores and fetches by key:")
    gpu.use(daemon, MODE, namespace, "-w 2 -l 16 -r 3 -v 70000 --csum")


def stored(daemon):
    """Bytes that a disk fetched from VRAM."""
    return daemon.gkvctl("status")["counters"]["store_direct_bytes"]


def ready():
    guest.need_vram()
    daemon = gkvtest.Daemon(CONFIG)
    gkvtest.wait_for(lambda: all(ns["ready"] for ns in daemon.gkvctl("namespaces")), 20,
                     "both namespaces are ready")
    return daemon


@gkvtest.named("values on a local disk go to VRAM and nowhere else")
def local():
    say("1. A local disk")
    with ready() as daemon:
        trace(daemon, "local")
        outside(daemon, "local")
        seed = next(seeds)
        with Session(daemon, QP_CSUM, namespace="local", length=LENGTH, mode=MODE) as s:
            say("   where everything is (gkvctl region):")
            gkvctl(daemon, "region")
            at = guest.vram_offset(s.mem)
            guest.ask("vram-fill", seed, at, VALUE)
            before = stored(daemon)
            crc = LIB.gkv_crc32c(0, s.addr, VALUE)
            gkvtest.equal(s.status(STORE, b"proof", VALUE, crc=crc), 0, "Store")
            guest.ask("ram-lacks", seed)
            guest.ask("vram-fill", next(seeds), at, VALUE)
            done = s.run(RETRIEVE, b"proof", VALUE)
            gkvtest.equal((done.status & 0x7ff, done.result), (0, VALUE), "Retrieve")
            gkvtest.equal(done.crc, crc, "checksum")
            guest.ask("vram-has", seed, at, VALUE)
            guest.ask("ram-lacks", seed)
            say(f"   the proof: {VALUE} bytes that the host made up were fetched from the BAR's file at {at:#x}")
            say("   by the disk, and brought back there, and not a line of them is in the file that is")
            say(f"   this machine's RAM. Stored by DMA: {stored(daemon) - before} bytes; retrieved through RAM: "
                f"{guest.bounced(daemon)}")


@gkvtest.named("values are objects of a Ceph cluster")
def objects():
    say("2. A Ceph cluster")
    with ready() as daemon:
        trace(daemon, "objects")
        outside(daemon, "objects")
        seed, other = next(seeds), next(seeds)
        with Session(daemon, namespace="objects", length=LENGTH, mode=MODE) as s:
            at = guest.vram_offset(s.mem)
            guest.ask("vram-fill", seed, at, VALUE)
            gkvtest.equal(s.status(STORE, b"proof", VALUE), 0, "Store")
            guest.ask("run objects has demo", b"proof".hex(), seed, VALUE)
            guest.ask("run objects put demo", b"other".hex(), other, VALUE)
            gkvtest.equal(s.status(RETRIEVE, b"other", VALUE), 0, "Retrieve")
            guest.ask("vram-has", other, at, VALUE)
        say(f"   the proof: {VALUE} bytes that the host wrote into the BAR's file are what `rados get`")
        say("   gives; as many that `rados put` stored are in the BAR's file. The objects:")
        guest.ask("run objects list demo")


gkvtest.main()
