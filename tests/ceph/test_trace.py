#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no test_suites goes the same ways
# gkv-timeout: 300
"""A production trace replayed against the cluster: as many hits as in memory, the same objects."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # pylint: disable=wrong-import-position
from rig import gkvtest  # pylint: disable=wrong-import-position

FIXTURE = "tests/data/conversation-slice.jsonl"
MEM = """
[namespace mem]
nsid = 2
stack = mem
mem.capacity = 2G
"""


def trace(kvb, store, *args):
    done = gkvtest.run_program("gkv-bench", "trace", FIXTURE, "-o", "json", "-q", "--ns", store,
                               *args, seconds=200, env=dict(os.environ, GKV_SOCKET=kvb.socket))
    result = json.loads(done.stdout)
    for what in ("errors", "mismatches"):
        gkvtest.equal(result[what], 0, f"{store}: {what}")
    return result


def replay(ceph, kvb, *args):
    results = {store: trace(kvb, store, *args) for store in ("mem", "main")}
    for what in ("hit_ratio", "blocks", "stored_bytes", "retrieved_bytes"):
        gkvtest.equal(results["main"][what], results["mem"][what], what)
    gkvtest.check(results["main"]["hit_ratio"] > 0.02, "hardly a hit")
    print(f"# {args}: hit ratio {results['main']['hit_ratio']:.4f}, "
          f"{results['main']['stored_bytes'] / 1e6:.0f} MB stored in "
          f"{results['main']['seconds']:.1f} s")
    objects = ceph.ls("kv", ns="tenant")
    gkvtest.check(objects == rig.keys(kvb, "-n", "mem"), "other keys than in memory")
    gkvtest.check(objects == rig.keys(kvb, "-n", "main"), "other keys than `rados ls` shows")
    for name in objects[::max(1, len(objects) // 20)]:
        gkvtest.check(ceph.get("kv", name, ns="tenant") == rig.get(kvb, name, "-n", "mem"),
                      f"object {name} has other bytes than in memory")
    # Once more: now all of it is there.
    again = trace(kvb, "main", *args)
    gkvtest.equal(again["hit_ratio"], 1.0, "hit ratio the second time")


@gkvtest.test
def the_trace_hits_as_often_as_in_memory():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph, deadline="30s", more=MEM) as kvb:
        replay(ceph, kvb, "--value-size", 5000, "--qd", 16)


@gkvtest.test
def so_does_one_of_large_values_from_several_clients():
    with rig.Cluster(osds=2, size=2) as ceph, rig.daemon(ceph, deadline="60s", more=MEM) as kvb:
        replay(ceph, kvb, "--skip", 250, "--limit", 20, "--value-size", "1M", "--clients", 2, "--qd", 4)


@gkvtest.test
def and_on_the_other_Ceph_release():
    with rig.Cluster(root=rig.other_release()) as ceph, \
         rig.daemon(ceph, deadline="30s", more=MEM) as kvb:
        replay(ceph, kvb, "--limit", 20, "--value-size", 100000, "--qd", 16)


if __name__ == "__main__":
    gkvtest.main()
