#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-timeout: 400
"""A killed daemon and what it left with the cluster: its late writes never follow newer ones."""
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # pylint: disable=wrong-import-position
from rig import gkvtest  # pylint: disable=wrong-import-position

KIB = 1 << 10
LOAD = {"threads": 2, "busy": 8, "keys": 16, "value_max": 64 * KIB, "pause_us": 2000}
ROUNDS = 10 if gkvtest.LONG else 3
BENCH = ("run", "-q", "--keys", "64", "--sizes", "4K", "--fill", "no")


def bench(kvb, *args):
    return subprocess.Popen([os.path.join(gkvtest.BUILD, "gkv-bench"), *BENCH, *args],
                            env=dict(os.environ, GKV_SOCKET=kvb.socket),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def finish(process, seconds=60):
    output = b"".join(process.communicate(timeout=seconds * gkvtest.SLOW))
    gkvtest.equal(process.returncode, 0, output.decode(errors="replace"))


def address(kvb):
    return rig.namespace(kvb)["store"]["addresses"]


def stores(kvb):
    return kvb.gkvctl("status")["counters"]["commands"]["store"]


@gkvtest.test
def killed_under_load_nothing_acknowledged_is_lost():
    with rig.Cluster(osds=2, size=2) as ceph, rig.daemon(ceph, wait="60s") as kvb:
        dead = []
        with rig.Load(kvb, **LOAD) as load:
            for _ in range(ROUNDS):
                load.progress(150, 60)
                dead.append(address(kvb))
                kvb.kill9()
                kvb.start(seconds=60)
            load.recover()
            load.judge("killed under load")
        gkvtest.equal(sorted(ceph.blocklist()), sorted(dead), "blocklist")
        gkvtest.equal(rig.namespace(kvb)["store"]["fenced"], 1, "fenced by the last daemon")


@gkvtest.test
def killed_under_load_while_the_OSD_is_paused():
    with rig.Cluster(grace=rig.GRACE) as ceph, rig.daemon(ceph, wait="60s", deadline="4s") as kvb:
        dead = []
        with rig.Load(kvb, **LOAD) as load:
            for turn in range(ROUNDS):
                load.progress(100, 60)
                dead.append(address(kvb))
                ceph.pause("osd.0")
                time.sleep(0.3)
                kvb.kill9()
                # The dead one's writes are with the OSD, and land while the next one starts.
                timer = threading.Timer(0.3 + 0.5 * turn, ceph.cont, ["osd.0"])
                timer.start()
                kvb.start(seconds=60)
                timer.join()
            load.recover()
            load.judge("killed while the OSD is paused")
        gkvtest.equal(sorted(ceph.blocklist()), sorted(dead), "blocklist")


@gkvtest.test
def writes_of_a_dead_daemon_do_not_follow_those_of_the_next():
    with rig.Cluster(grace=rig.GRACE) as ceph, rig.daemon(ceph, wait="60s", deadline="20s") as kvb:
        for turn in range(ROUNDS):
            dead = address(kvb)
            before = stores(kvb)
            ceph.pause("osd.0")
            late = bench(kvb, "--mix", "store", "--qd", "64", "--seed", "100", "--count", "10000")
            gkvtest.wait_for(lambda: stores(kvb) >= before + 64, 20, "64 Stores are under way")
            time.sleep(0.2)
            kvb.kill9()
            # Its client goes, too: nothing is to be run again.
            late.kill()
            late.communicate()
            timer = threading.Timer(0.2 + 0.4 * turn, ceph.cont, ["osd.0"])
            timer.start()
            kvb.start(seconds=60)
            rig.wait_ready(kvb)
            timer.join()
            gkvtest.check(dead in ceph.blocklist(), f"{dead} is not on the blocklist")
            # All 64 keys anew, and then whatever was late had its time.
            finish(bench(kvb, "--mix", "exist", "--fill", "yes", "--count", "1", "--seed",
                         str(turn + 1)))
            for _ in range(2):
                finish(bench(kvb, "--mix", "retrieve", "--qd", "16", "--count", "512", "--seed",
                             str(turn + 1), "--verify", "on"))
                time.sleep(0.7)


@gkvtest.test
def an_orderly_stop_leaves_nobody_fenced():
    with rig.Cluster() as ceph, rig.daemon(ceph) as kvb:
        for _ in range(2):
            rig.put(kvb, "aa", b"value")
            kvb.stop()
            kvb.start()
        gkvtest.equal(ceph.blocklist(), [], "blocklist")
        gkvtest.equal(rig.namespace(kvb)["store"]["fenced"], 0, "fenced")
        gkvtest.equal(rig.get(kvb, "aa"), b"value", "value")


@gkvtest.test
def without_the_right_to_fence_the_namespace_waits_for_it():
    with rig.Cluster(cephx=True) as ceph:
        keyring = ceph.user("gkv", mon="allow r", osd="allow rwx pool=kv")
        user = f"rados.id = gkv\nrados.keyring = {keyring}"
        with rig.daemon(ceph, wait="3s", extra=user) as kvb:
            why = rig.namespace(kvb)["store"].get("not_ready_because", "")
            print("#", why)
            gkvtest.check("blocklist" in why, "does not name what is missing")
            rig.fails_with(lambda **k: rig.put(kvb, "aa", b"x", **k), within=8)
            ceph.set_caps("gkv", mon="profile rbd", osd="allow rwx pool=kv")
            rig.wait_ready(kvb)
            rig.put(kvb, "aa", b"value")
            kvb.kill9()
            kvb.start()
            rig.wait_ready(kvb)
            gkvtest.equal(rig.get(kvb, "aa"), b"value", "value")
            gkvtest.equal(len(ceph.blocklist()), 1, "blocklist")
        ceph.set_caps("gkv", mon="allow r", osd="allow rwx pool=kv")
        # Where no second daemon could ever write, one may do without.
        with rig.daemon(ceph, extra=user + "\nrados.fence = off") as kvb:
            gkvtest.equal(rig.get(kvb, "aa"), b"value", "value without a fence")


if __name__ == "__main__":
    gkvtest.main()
