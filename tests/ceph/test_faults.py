#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no minutes of waiting for deadlines; test_restart has the same ones
# gkv-timeout: 600
"""F91: whatever goes wrong with a cluster, commands end in time; all is well again by itself."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # pylint: disable=wrong-import-position
from rig import gkvtest  # pylint: disable=wrong-import-position

KIB = 1 << 10
# Few keys, so that commands meet on them; values in one piece, and in slices.
SMALL = {"threads": 2, "busy": 8, "keys": 16, "value_max": 64 * KIB, "pause_us": 2000}
LARGE = {"threads": 1, "qps": 2, "busy": 2, "keys": 6, "value_max": 5 << 20, "pause_us": 5000}
def usable(kvb, ceph, key="99"):
    """The namespace takes and gives values, as the cluster sees them."""
    value = os.urandom(1000)
    # A cluster that has just come back may be slower than the deadline.
    gkvtest.wait_for(lambda: rig.put(kvb, key, value, status=None).returncode == 0, 60,
                     "a Store that succeeds")
    gkvtest.equal(rig.get(kvb, key), value, "value")
    gkvtest.equal(ceph.get("kv", key, ns="tenant"), value, "object")


def under_load(ceph, fault, what, load=None, deadline="3s"):
    """Runs fault(load, kvb) while commands run and looks at all that came of them."""
    with rig.daemon(ceph, deadline=deadline) as kvb:
        with rig.Load(kvb, **(load or SMALL)) as running:
            running.progress(100)
            fault(running, kvb)
            running.recover()
            running.judge(what)
        usable(kvb, ceph)


# ---- OSDs -----------------------------------------------------------------------------------------

@gkvtest.test
def killed_OSDs_of_a_replicated_pool():
    with rig.Cluster(osds=3, size=2) as ceph:
        def fault(load, _):
            for osd in ceph.osds():
                ceph.kill(f"osd.{osd}", tell=False)
                load.progress(100, 60)
                ceph.launch(f"osd.{osd}")
                ceph.wait_clean()
        under_load(ceph, fault, "killed OSDs, size 2")


@gkvtest.test
def a_paused_OSD_of_a_replicated_pool():
    with rig.Cluster(osds=3, size=2) as ceph:
        def fault(load, _):
            ceph.pause("osd.0")
            # Until its peers miss its heartbeats.
            load.progress(300, 60)
            ceph.wait_down(0)
            ceph.cont("osd.0")
            ceph.wait_up(0)
            load.progress(100, 60)
        under_load(ceph, fault, "paused OSD, size 2")


@gkvtest.test
def the_only_OSD_killed_and_paused():
    with rig.Cluster(grace=rig.GRACE) as ceph:
        def fault(load, _):
            # With nobody to serve it, every command ends by its deadline.
            ceph.kill("osd.0")
            load.progress(40, 60)
            ceph.launch("osd.0")
            load.progress(100, 60)
            ceph.pause("osd.0")
            load.progress(40, 60)
            gkvtest.check(load.unknown() > 0, "no outcome is unknown")
            ceph.cont("osd.0")
        under_load(ceph, fault, "the only OSD", deadline="2s")


@gkvtest.test
def the_only_OSD_paused_under_large_values():
    with rig.Cluster(grace=rig.GRACE) as ceph:
        def fault(load, kvb):
            for _ in range(2):
                ceph.pause("osd.0")
                load.progress(6, 60)
                ceph.cont("osd.0")
                load.progress(20, 60)
            kvb.check_alive()
        under_load(ceph, fault, "the only OSD, large values", LARGE, deadline="2s")


@gkvtest.named("F91, R18: each command ends by its deadline while the OSD is paused")
def each_command_ends_by_its_deadline():
    with rig.Cluster(grace=rig.GRACE) as ceph, rig.daemon(ceph, deadline="1s") as kvb:
        usable(kvb, ceph)
        ceph.pause("osd.0")
        commands = (lambda **k: rig.get(kvb, "99", **k), lambda **k: rig.put(kvb, "98", b"x", **k),
                    lambda **k: rig.put(kvb, "97", bytes(8 << 20), **k),
                    lambda **k: kvb.gkvctl("del", "--key-format", "hex", "99", **k),
                    lambda **k: kvb.gkvctl("exist", "--key-format", "hex", "99", **k),
                    lambda **k: kvb.gkvctl("list", **k))
        for command in commands:
            rig.fails_with(command, within=6)
        kvb.check_alive()
        ceph.cont("osd.0")
        usable(kvb, ceph, "96")


@gkvtest.test
def the_daemon_stops_while_the_OSD_is_paused():
    with rig.Cluster(grace=rig.GRACE) as ceph:
        with rig.daemon(ceph, deadline="1s") as kvb:
            usable(kvb, ceph)
            ceph.pause("osd.0")
            rig.fails_with(lambda **k: rig.put(kvb, "97", bytes(8 << 20), **k), within=6)
            begin = time.monotonic()
            # What is still to be sent to it is waited for, but not for ever.
            kvb.stop(75)
            print(f"# stopped in {time.monotonic() - begin:.1f} s")
            ceph.cont("osd.0")
            kvb.start(seconds=30)
            usable(kvb, ceph)


# ---- Monitor --------------------------------------------------------------------------------------

@gkvtest.test
def the_monitor_gone_under_load():
    with rig.Cluster(osds=2, size=2) as ceph:
        def fault(load, kvb):
            ceph.kill("mon.a")
            # What runs goes on: the OSDs have their map.
            load.progress(500, 60)
            gkvtest.check(rig.namespace(kvb)["ready"], "not ready without the monitor")
            ceph.launch("mon.a")
            ceph.pause("mon.a")
            load.progress(500, 60)
            ceph.cont("mon.a")
        under_load(ceph, fault, "no monitor")


@gkvtest.test
def a_cluster_that_comes_later_than_the_daemon():
    with rig.Cluster() as ceph:
        ceph.stop()
        begin = time.monotonic()
        with rig.daemon(ceph, wait="1s", deadline="2s") as kvb:
            gkvtest.check(time.monotonic() - begin < 8 * gkvtest.SLOW, "the start took too long")
            gkvtest.check(not rig.namespace(kvb)["ready"], "ready without a cluster")
            print("#", rig.namespace(kvb)["store"].get("not_ready_because"))
            rig.fails_with(lambda **k: rig.get(kvb, "99", **k), within=6)
            rig.fails_with(lambda **k: rig.put(kvb, "99", b"x", **k), within=6)
            rig.fails_with(lambda **k: kvb.gkvctl("list", **k), within=6)
            ceph.start()
            rig.wait_ready(kvb)
            usable(kvb, ceph)


@gkvtest.test
def a_daemon_that_stops_before_its_cluster_came():
    with rig.Cluster() as ceph:
        ceph.stop()
        with rig.daemon(ceph, wait="0s") as kvb:
            begin = time.monotonic()
            kvb.stop()
            print(f"# stopped in {time.monotonic() - begin:.1f} s")


# ---- Pools ----------------------------------------------------------------------------------------

@gkvtest.test
def a_full_pool():
    with rig.Cluster(osds=2, size=2) as ceph, rig.daemon(ceph, deadline="5s") as kvb:
        big = os.urandom(3 << 20)
        for key in ("01", "02"):
            rig.put(kvb, key, big)
        ceph.full()
        # At once, not by the deadline: nothing is left waiting.
        rig.fails_with(lambda **k: rig.put(kvb, "03", big, **k), within=4, words="capacity")
        gkvtest.check(rig.get(kvb, "01") == big, "Retrieve from a full pool")
        kvb.gkvctl("del", "--key-format", "hex", "02", output=None)
        gkvtest.equal(ceph.ls("kv", ns="tenant"), ["01"], "objects after the Delete")
        ceph.full(False)
        usable(kvb, ceph, "03")


@gkvtest.test
def a_pool_that_is_deleted_and_made_again():
    with rig.Cluster() as ceph, rig.daemon(ceph, deadline="2s") as kvb:
        usable(kvb, ceph)
        ceph.delete_pool("kv")
        # An OSD serves on until it has heard of it.
        gkvtest.wait_for(lambda: rig.get(kvb, "99", status=None).returncode == 1, 8,
                         "a failure of Retrieve")
        # Not "key not found": that would be said of values that are only out of reach.
        rig.fails_with(lambda **k: rig.get(kvb, "99", **k), within=8)
        rig.fails_with(lambda **k: rig.put(kvb, "99", b"x", **k), within=8)
        rig.wait_ready(kvb, False)
        ceph.create_pool("kv")
        rig.wait_ready(kvb)
        gkvtest.equal(rig.keys(kvb), [], "keys of the new pool")
        usable(kvb, ceph)


@gkvtest.test
def a_pool_that_comes_later_than_the_daemon():
    with rig.Cluster(pools=("other",)) as ceph, rig.daemon(ceph, wait="2s") as kvb:
        gkvtest.check(not rig.namespace(kvb)["ready"], "ready without a pool")
        print("#", rig.namespace(kvb)["store"].get("not_ready_because"))
        rig.fails_with(lambda **k: rig.get(kvb, "99", **k), within=8)
        ceph.create_pool("kv")
        rig.wait_ready(kvb)
        usable(kvb, ceph)


# ---- Clients --------------------------------------------------------------------------------------

@gkvtest.test
def a_client_on_the_blocklist():
    with rig.Cluster() as ceph, rig.daemon(ceph, deadline="2s") as kvb:
        usable(kvb, ceph)
        for _ in range(2):
            before = rig.namespace(kvb)["store"]
            address = before["addresses"]
            gkvtest.check(address in ceph.clients(), f"{address} is not a client")
            ceph.blocklist_add(address)
            # The first commands find out; the daemon connects anew.
            statuses = []

            def reconnected(old=address):
                statuses.append(rig.put(kvb, "01", b"x", status=None).returncode)
                return rig.namespace(kvb)["store"]["addresses"] not in ("", old)
            gkvtest.wait_for(reconnected, 30, "another address")
            print("# exit statuses until then:", *statuses)
            rig.wait_ready(kvb)
            usable(kvb, ceph)
        gkvtest.equal(rig.namespace(kvb)["store"]["reconnects"], 2, "reconnects")


@gkvtest.test
def users_without_the_right_to_it():
    with rig.Cluster(cephx=True) as ceph:
        reader = ceph.user("reader", mon="profile rbd", osd="allow r pool=kv")
        stranger = ceph.user("stranger", mon="profile rbd", osd="allow rwx pool=kv namespace=b")
        forger = os.path.join(ceph.dir, "forged")
        with open(forger, "w", encoding="ascii") as file:
            file.write("[client.reader]\n\tkey = " + "A" * 38 + "==\n")
        more = ""
        for nsid, (name, user, keyring) in enumerate((("reader", "reader", reader),
                                                      ("stranger", "stranger", stranger),
                                                      ("forger", "reader", forger)), 2):
            more += (f"[namespace {name}]\nnsid = {nsid}\nstack = rados\nrados.pool = kv\n"
                     f"rados.namespace = tenant\nrados.conf = {ceph.conf}\nrados.id = {user}\n"
                     f"rados.keyring = {keyring}\nrados.connect_wait = 2s\ndeadline = 3s\n")
        with rig.daemon(ceph, more=more) as kvb:
            usable(kvb, ceph)
            value = rig.get(kvb, "99")
            gkvtest.equal(rig.get(kvb, "99", "-n", "reader"), value, "the reader's value")
            rig.fails_with(lambda **k: rig.put(kvb, "01", b"x", "-n", "reader", **k), within=8,
                           words="denied")
            print("#", rig.namespace(kvb, "stranger")["store"].get("not_ready_because"))
            rig.fails_with(lambda **k: rig.get(kvb, "99", "-n", "stranger", **k), within=8)
            rig.fails_with(lambda **k: kvb.gkvctl("list", "-n", "stranger", **k), within=8)
            gkvtest.check(not rig.namespace(kvb, "forger")["ready"], "ready with a wrong key")
            print("#", rig.namespace(kvb, "forger")["store"].get("not_ready_because"))
            rig.fails_with(lambda **k: rig.get(kvb, "99", "-n", "forger", **k), within=8)
            usable(kvb, ceph)


if __name__ == "__main__":
    gkvtest.main()
