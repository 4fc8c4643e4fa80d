#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no tries the rig alone
# gkv-san: no the rig itself; no program of this build is in it
# gkv-timeout: 300
"""The rig's own test: every kind of cluster starts, keeps an object and takes its faults."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position
from cluster import Cluster, ClusterError, Release  # pylint: disable=wrong-import-position

HERE = os.path.dirname(os.path.abspath(__file__))
VALUE = bytes(range(256)) * 1000 + b"end"


def in_and_out(ceph, pool="kv", ns="tenant", name="00ff"):
    ceph.put(pool, name, VALUE, ns=ns)
    gkvtest.check(ceph.get(pool, name, ns=ns) == VALUE, f"{name}: other bytes came back")
    gkvtest.equal(ceph.size(pool, name, ns=ns), len(VALUE), "size")


def must_fail(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except ClusterError as error:
        return str(error)
    raise gkvtest.TestFailure("was to fail and did not")


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


@gkvtest.test
def objects_go_in_and_out_in_their_namespaces():
    with Cluster() as ceph:
        in_and_out(ceph)
        ceph.put("kv", "empty", b"")
        gkvtest.equal(ceph.ls("kv", ns="tenant"), ["00ff"], "objects of the namespace")
        gkvtest.equal(ceph.ls("kv"), ["empty"], "objects of the default namespace")
        gkvtest.equal(ceph.get("kv", "empty"), b"", "empty object")
        gkvtest.equal(ceph.get("kv", "absent"), None, "absent object")
        ceph.rados("setxattr", "00ff", "user.a", "b", pool="kv", ns="tenant")
        gkvtest.equal(ceph.xattrs("kv", "00ff", ns="tenant"), {"user.a": b"b"}, "attributes")
        ceph.rm("kv", "00ff", ns="tenant")
        gkvtest.equal(ceph.ls("kv", ns="tenant"), [], "objects after the removal")


@gkvtest.test
def memstore_keeps_objects_over_a_stop():
    with Cluster(store="memstore", pools=("kv", "other")) as ceph:
        in_and_out(ceph)
        ceph.stop()
        ceph.start()
        gkvtest.check(ceph.get("kv", "00ff", ns="tenant") == VALUE, "the object changed")
        gkvtest.equal(ceph.ls("other"), [], "objects of the other pool")


@gkvtest.test
def users_may_do_what_their_capabilities_say():
    with Cluster(cephx=True, mode="secure") as ceph:
        ceph.user("tenant", mon="allow r", osd="allow rwx pool=kv namespace=tenant")
        in_and_out(ceph)
        got = ceph.rados("get", "00ff", "-", pool="kv", ns="tenant", name="tenant").stdout
        gkvtest.check(got == VALUE, "the user got other bytes")
        error = must_fail(ceph.rados, "ls", pool="kv", ns="other", name="tenant")
        gkvtest.check("Operation not permitted" in error, error)
        ceph.set_caps("tenant", mon="allow r", osd="allow r pool=kv")
        error = must_fail(ceph.rados, "rm", "00ff", pool="kv", ns="tenant", name="tenant")
        gkvtest.check("Operation not permitted" in error, error)


@gkvtest.test
def a_killed_and_a_paused_OSD_come_back():
    with Cluster(osds=3, size=2) as ceph:
        in_and_out(ceph)
        for osd in ceph.osds():
            ceph.kill(f"osd.{osd}", tell=False)
            ceph.wait_down(osd)
            gkvtest.check(ceph.get("kv", "00ff", ns="tenant") == VALUE, f"without osd.{osd}")
            ceph.launch(f"osd.{osd}")
            ceph.wait_clean()
        ceph.pause("osd.1")
        ceph.wait_down(1)
        in_and_out(ceph, name="01")
        ceph.cont("osd.1")
        ceph.wait_up(1)
        ceph.wait_clean()
        in_and_out(ceph, name="02")


@gkvtest.test
def a_lone_OSD_keeps_its_objects_over_kill_9_and_stalls_while_paused():
    with Cluster() as ceph:
        in_and_out(ceph)
        ceph.kill("osd.0")
        gkvtest.check(not ceph.is_up(0), "the monitor was not told")
        error = must_fail(ceph.rados, "get", "00ff", "-", pool="kv", ns="tenant", seconds=1)
        gkvtest.check("no end" in error, error)
        ceph.launch("osd.0")
        gkvtest.check(ceph.get("kv", "00ff", ns="tenant") == VALUE, "the object changed")
        ceph.pause("osd.0")
        must_fail(ceph.rados, "get", "00ff", "-", pool="kv", ns="tenant", seconds=1)
        ceph.cont("osd.0")
        gkvtest.check(ceph.get("kv", "00ff", ns="tenant") == VALUE, "the object changed")


@gkvtest.test
def the_monitor_goes_and_comes_back():
    with Cluster() as ceph:
        in_and_out(ceph)
        for down in (ceph.kill, ceph.terminate):
            down("mon.a")
            must_fail(ceph.rados, "ls", pool="kv", seconds=1)
            ceph.launch("mon.a")
            in_and_out(ceph)
        ceph.pause("mon.a")
        must_fail(ceph.rados, "ls", pool="kv", seconds=1)
        ceph.cont("mon.a")
        in_and_out(ceph)


@gkvtest.test
def pools_are_made_filled_and_deleted():
    with Cluster(osds=2) as ceph:
        ceph.create_pool("two", size=2, pgs=4)
        in_and_out(ceph, "two")
        ceph.full()
        must_fail(ceph.rados, "create", "01", pool="two", seconds=1)
        ceph.full(False)
        in_and_out(ceph, "two", name="01")
        ceph.delete_pool("two")
        error = must_fail(ceph.rados, "ls", pool="two")
        gkvtest.check("No such file" in error, error)


@gkvtest.test
def a_client_on_the_blocklist_is_shut_out():
    with Cluster() as ceph:
        gkvtest.equal(ceph.blocklist(), [], "blocklist")
        client = ceph.clients()
        gkvtest.check(len(client) == 1, f"the agent is the one client: {client}")
        ceph.blocklist_add("127.0.0.1:0/4711")
        gkvtest.equal(ceph.blocklist(), ["127.0.0.1:0/4711"], "blocklist")
        ceph.blocklist_clear()
        gkvtest.equal(ceph.blocklist(), [], "blocklist")


@gkvtest.test
def a_manager_counts_objects_and_enforces_quotas():
    with Cluster(mgr=True) as ceph:
        in_and_out(ceph)

        def objects():
            pools = ceph.mon("df")["pools"]
            return [p["stats"]["objects"] for p in pools if p["name"] == "kv"] == [1]
        gkvtest.wait_for(objects, 60, "the manager counts one object")
        ceph.mon("osd pool set-quota", pool="kv", field="max_objects", val="1")
        gkvtest.wait_for(
            lambda: any("full" in pool["flags_names"] for pool in ceph.mon("osd dump")["pools"]),
            60, "the pool is full by its quota")


@gkvtest.test
def the_other_Ceph_release_does_all_that_too():
    root = os.environ.get("GKV_CEPH_ROOT")
    gkvtest.check(root, "GKV_CEPH_ROOT does not name a chroot (scripts/ceph-chroot.sh)")
    with Cluster(root=root, osds=2, size=2, cephx=True) as ceph:
        here, there = (release.run("ceph-osd", "--version").stdout.decode().split()[2]
                       for release in (Release("/"), ceph.release))
        print(f"# Ceph {here} here, {there} there")
        gkvtest.check(here.split(".")[0] != there.split(".")[0], "the same release")
        in_and_out(ceph)
        ceph.user("tenant", mon="allow r", osd="allow rwx pool=kv namespace=tenant")
        must_fail(ceph.rados, "ls", pool="kv", ns="other", name="tenant")
        ceph.kill("osd.0", tell=False)
        ceph.wait_down(0)
        ceph.launch("osd.0")
        ceph.wait_clean()
        ceph.pause("osd.1")
        ceph.wait_down(1)
        in_and_out(ceph, name="01")
        ceph.cont("osd.1")
        ceph.wait_up(1)
        ceph.wait_clean()
        ceph.full()
        must_fail(ceph.rados, "create", "02", pool="kv", seconds=1)
        ceph.full(False)
        ceph.blocklist_add("127.0.0.1:0/4711")
        gkvtest.equal(ceph.blocklist(), ["127.0.0.1:0/4711"], "blocklist")
        gkvtest.equal(len(ceph.clients()), 1, "clients")
        ceph.stop()
        ceph.start()
        gkvtest.check(ceph.get("kv", "01", ns="tenant") == VALUE, "the object changed")
    gkvtest.check(not os.path.exists(root + ceph.dir), "the mount point is left")
    with Cluster(root=root, store="memstore") as ceph:
        in_and_out(ceph)


@gkvtest.test
def daemons_end_with_the_program_that_started_them():
    script = ("import sys, time; sys.path.insert(0, sys.argv[1]); from cluster import Cluster; "
              "c = Cluster(sys.argv[2]); print(*(d.pid() for d in c.daemons.values()), "
              "flush=True); time.sleep(600)")
    with gkvtest.tempfile.TemporaryDirectory(prefix="gkv-ceph-") as work:
        program = subprocess.Popen([sys.executable, "-c", script, HERE,
                                    os.path.join(work, "c")], stdout=subprocess.PIPE)
        pids = [int(pid) for pid in program.stdout.readline().split()]
        gkvtest.equal(len(pids), 2, "daemons")
        gkvtest.check(not any(map(gone, pids)), "they run")
        program.kill()
        program.communicate()
        gkvtest.wait_for(lambda: all(map(gone, pids)), 10, "the daemons are gone")


@gkvtest.test
def the_command_makes_a_cluster_that_outlives_it():
    def command(*args):
        done = subprocess.run([sys.executable, os.path.join(HERE, "cluster.py"), *args],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        gkvtest.equal(done.returncode, 0, f"{args}: {done.stdout.decode()}")
        return done.stdout.decode()

    with gkvtest.tempfile.TemporaryDirectory(prefix="gkv-ceph-") as work:
        where = os.path.join(work, "c")
        try:
            begin = time.monotonic()
            conf = command("start", where, "--pools", "kv", "more").strip()
            print(f"# up in {time.monotonic() - begin:.1f} s")
            same = Cluster(where, bound=False, start=False)
            gkvtest.equal(same.conf, conf, "what it printed")
            in_and_out(same, "more")
            command("kill", where, "osd.0")
            gkvtest.check("osd.0    down" in command("status", where), "osd.0 is not down")
            command("launch", where, "osd.0")
            command("stop", where)
            command("start", where)
            gkvtest.check(same.get("more", "00ff", ns="tenant") == VALUE, "the object changed")
        finally:
            command("wipe", where)
        gkvtest.check(not os.path.exists(where), "the directory is still there")


if __name__ == "__main__":
    gkvtest.main()
