#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no measures nothing worth having with a sanitizer
# gkv-san: no the direct client runs librados's threads, which are not instrumented
# gkv-timeout: 180
"""gkv-bench floor rados: a direct client that works on the objects kvbridged works on."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position
from cluster import Cluster  # pylint: disable=wrong-import-position

MIB = 1 << 20
BENCH = os.path.join(gkvtest.BUILD, "gkv-bench")

CONFIG = """
[daemon]
reactors = 2
state_dir = {dir}

[namespace main]
nsid = 1
stack = rados
rados.pool = kv
rados.namespace = ns
rados.conf = %s
deadline = 30s
"""


def floor(ceph, *args, status=0):
    """Runs the floor: its results by name, or what it printed on stderr for status 2."""
    done = subprocess.run([BENCH, "floor", "rados", "--conf", ceph.conf, "--pool", "kv",
                           "--namespace", "ns", "-o", "json", *map(str, args)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60 * gkvtest.SLOW, check=False)
    gkvtest.equal(done.returncode, status, f"exit status\n{done.stdout}\n{done.stderr}")
    if status == 2:
        return done.stderr.decode()
    return {f["name"]: f for f in json.loads(done.stdout)["floors"]}


def run(daemon, *args):
    done = subprocess.run([BENCH, "run", "-q", "-o", "json", *map(str, args)],
                          env=dict(os.environ, GKV_SOCKET=daemon.socket),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60 * gkvtest.SLOW, check=False)
    gkvtest.equal(done.returncode, 0, f"exit status\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout)


def sane(result, size):
    gkvtest.check(0 < result["p50_ns"] <= result["p99_ns"] <= result["p999_ns"]
                  <= result["max_ns"] * 1.01, f"percentiles are not in order: {result}")
    gkvtest.check(result["ops"] > 0 and result["per_s"] > 0 and result["cpu_ns_per_op"] > 0,
                  f"figures are missing: {result}")
    gkvtest.check(abs(result["bytes_per_s"] / result["per_s"] / size - 1) < 0.001,
                  f"bandwidth does not follow from the rate: {result}")


@gkvtest.test
def every_mode_size_and_depth():
    with Cluster(store="memstore") as ceph:
        results = floor(ceph, "--fill", "--mode", "read,slice,write", "--sizes",
                        f"4K,{MIB + 1},{3 * MIB + 5}", "--depth", "1,16", "--keys", 20,
                        "--seconds", "200ms")
        gkvtest.equal(len(results), 18, "results")
        for name, result in results.items():
            size = 4096 if "4 KiB" in name else MIB + 1 if " 1" in name.split(",")[0] \
                else 3 * MIB + 5
            sane(result, size)
        gkvtest.equal(len(ceph.ls("kv", ns="ns")), 20, "objects")
        counted = floor(ceph, "--size", 3 * MIB + 5, "--keys", 20, "--mode", "slice", "--count",
                        37, "--depth", 5)
        gkvtest.equal([r["ops"] for r in counted.values()], [37], "operations counted")


@gkvtest.test
def what_is_not_there_or_has_another_size_is_a_failure():
    with Cluster(store="memstore") as ceph:
        for mode in ("read", "slice"):
            result = list(floor(ceph, "--mode", mode, "--size", "2M", status=1).values())[0]
            gkvtest.check("No such file" in result["failed"], result["failed"])
        floor(ceph, "--fill", "--mode", "write", "--size", "1M", "--keys", 8, "--count", 1)
        for mode in ("read", "slice"):
            result = list(floor(ceph, "--mode", mode, "--size", "2M", "--keys", 8, "--depth", 4,
                                status=1).values())[0]
            gkvtest.check("has 1048576 bytes, not 2097152" in result["failed"], result["failed"])
        for args, what in ((("--pool", "none"), "pool none: No such file"),
                           (("--conf", "/nonexistent"), "configuration /nonexistent"),
                           (("--size", "100M"), "at most 90 MiB"),
                           (("--set", "no_such_option=1"), "option no_such_option")):
            error = floor(ceph, *args, status=2)
            gkvtest.check(what in error, error)


@gkvtest.test
def daemon_and_direct_client_share_objects():
    with Cluster(store="memstore") as ceph, gkvtest.Daemon(CONFIG % ceph.conf) as daemon:
        args = ("--sizes", "3M", "--keys", 12, "--qd", 4)
        run(daemon, "--mix", "store", "--fill", "yes", "--count", 12, *args)
        for result in floor(ceph, "--mode", "read,slice", "--size", "3M", "--keys", 12, "--count",
                            40, "--depth", 4).values():
            sane(result, 3 * MIB)
        # What the direct client stores is not run's pattern, but of the right length.
        floor(ceph, "--mode", "write", "--size", "3M", "--keys", 12, "--fill", "--count", 1)
        result = run(daemon, "--mix", "retrieve", "--fill", "no", "--verify", "off", "--warm",
                     "50ms", "--count", 40, *args)
        gkvtest.equal((result["errors"], result["misses"]), (0, 0), "errors and misses")
        gkvtest.equal(result["by_command"]["retrieve"]["count"], 40, "commands counted")
        gkvtest.check(result["daemon_cpu_ns_per_command"] > 1000, "processor time of the daemon")


@gkvtest.test
def unknown_outcomes_are_tried_again_and_are_no_errors():
    with Cluster(store="memstore") as ceph, gkvtest.Daemon(CONFIG % ceph.conf) as daemon:
        args = [BENCH, "run", "-q", "-o", "json", "--mix", "store:2,retrieve:1,delete:1",
                "--sizes", "64K", "--keys", "100", "--qd", "16", "--time", "6s"]
        retried = 0
        for _ in range(5):
            with subprocess.Popen(args, env=dict(os.environ, GKV_SOCKET=daemon.socket),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as process:
                try:
                    for _ in range(3):
                        time.sleep(1.2)
                        gkvtest.check(process.poll() is None, "the run ended too early")
                        daemon.kill9()
                        daemon.start()
                    out, err = process.communicate(timeout=60 * gkvtest.SLOW)
                finally:
                    process.kill()
            gkvtest.equal(process.returncode, 0, f"exit status\n{out}\n{err}")
            result = json.loads(out)
            gkvtest.equal((result["errors"], result["mismatches"]), (0, 0), "errors, mismatches")
            gkvtest.check("daemon_cpu_ns_per_command" not in result,
                          "the processor time of two daemons was taken for one's")
            retried += result["retried"]
            # A kill finds a Store or Delete on its way, sooner or later.
            if retried:
                return
        raise gkvtest.TestFailure("nothing was tried again after fifteen kills")


if __name__ == "__main__":
    gkvtest.main()
