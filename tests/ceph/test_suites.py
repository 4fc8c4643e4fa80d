#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-timeout: 900
"""The suites that run on `mem` and `local` too, on a cluster: commands, consistency, kills."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # pylint: disable=wrong-import-position
from rig import gkvtest  # pylint: disable=wrong-import-position

PROGRAMS = ("integration/test_conformance_keys", "integration/test_conformance_values",
            "integration/test_conformance_list", "integration/test_conformance_queues",
            "integration/test_linearizability", "crash/test_killpoints")


def run(program, env, first):
    """Runs a TAP program and passes its results on, numbered from @first; returns how many."""
    count = failed = 0
    with subprocess.Popen([os.path.join(gkvtest.BUILD, "tests", program)], env=env,
                          stdout=subprocess.PIPE, text=True, errors="replace") as child:
        for line in child.stdout:
            found = re.match(r"(not ok|ok)\s+\d+\s+-?\s*(.*)", line)
            if found:
                print(f"{found[1]} {first + count} - {found[2]}", flush=True)
                count += 1
                failed += found[1] != "ok"
            elif not line.startswith("1.."):
                print(line, end="", flush=True)
    # A failure it told of has been counted; any other end before its own is one more.
    if not count or child.returncode < 0 or (child.returncode and not failed):
        print(f"not ok {first + count} - {program}: ended with {child.returncode} after "
              f"{count} results", flush=True)
        count += 1
    return count


def main():
    total = 0
    # Size 2: what is acknowledged has been replicated.
    with rig.Cluster(store="memstore", osds=2, size=2) as ceph:
        env = dict(os.environ, GKV_STORES="rados", GKV_CEPH_CONF=str(ceph.conf),
                   GKV_CEPH_POOL="kv")
        for program in PROGRAMS:
            if gkvtest.SLOW > 1 and program == "crash/test_killpoints" and not gkvtest.LONG:
                total += 1
                print(f"ok {total} - {program} # SKIP minutes with a sanitizer; the long run has it")
                continue
            total += run(program, env, total + 1)
    print(f"1..{total}")


main()
