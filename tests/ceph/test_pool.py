#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no waits for clusters; test_restart and test_suites go the same ways
# gkv-timeout: 600
"""Connections to a cluster that come and go, and the fence (stores/rados/pool.c), driven through
pool_probe on throwaway clusters."""
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../lib")]
import gkvtest  # pylint: disable=wrong-import-position
from cluster import Cluster  # pylint: disable=wrong-import-position

MIB = 1 << 20
FENCING = 'allow r, allow command "osd blocklist"'


class Probe:
    """A running pool_probe; its methods are its commands and return what it answers."""

    def __init__(self, ceph, state, user="admin", keyring="-", fence=True, env=None, conf=None):
        self.log_path = os.path.join(state, "log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(gkvtest.BUILD, "tests/ceph/pool_probe"), conf or ceph.conf, user,
                 keyring, state, "on" if fence else "off"], env=dict(os.environ, **(env or {})),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.end()
        else:
            self.kill()

    def __getattr__(self, verb):
        def command(slot, *args):
            self.process.stdin.write(" ".join(map(str, (verb, slot, *args))) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            gkvtest.check(line, f"pool_probe is gone at {verb}:\n{self.log()[-2000:]}")
            return json.loads(line)
        return command

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ready(self, slot=0, seconds=20):
        status = self.wait(slot, seconds)
        gkvtest.check(status["ready"], f"not ready: {status}\n{self.log()[-2000:]}")
        return status

    def until(self, what, slot=0, seconds=20):
        """Waits until the reason for not being ready contains @what; returns the status."""
        def condition():
            status = self.status(slot)
            return status if not status["ready"] and what in status["why"] else None
        return gkvtest.wait_for(condition, seconds, f'reason "{what}", not {self.status(slot)}')

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        """An orderly end; the slots are closed already."""
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        gkvtest.equal(self.process.wait(60), 0, "exit status; " + self.log()[-2000:])
        gkvtest.equal(rest, "", "more output")


class State:
    """A state directory, and what is recorded there."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="gkv-pool-")
        return self

    def __exit__(self, kind, value, trace):
        shutil.rmtree(self.path)

    def addresses(self):
        found = []
        for directory in os.scandir(self.path):
            if directory.is_dir():
                gkvtest.check(re.fullmatch(r"rados-[0-9a-f-]{36}", directory.name), directory.name)
                found += [name.replace("_", "/") for name in os.listdir(directory)]
        return sorted(found)


@gkvtest.named("ready, objects under their names in the namespace; an orderly stop leaves nothing")
def simple():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "tenant", 30)
            status = probe.ready()
            gkvtest.equal(state.addresses(), [status["addrs"]], "recorded addresses")
            gkvtest.equal(status["value_max"], 90 * MIB - 4096, "value_max")
            gkvtest.equal(probe.put(0, "00ff", "value")["rc"], 0, "put")
            gkvtest.equal(probe.get(0, "00ff")["value"], "value", "get")
            gkvtest.equal(ceph.get("kv", "00ff", ns="tenant"), b"value", "the object")
            gkvtest.equal(probe.told(0)["generations"], [1, 1], "what reactors hold")
            gkvtest.check(status["addrs"] in ceph.clients(), "address in the monitor's words")
            took = probe.close(0)["ms"]
            gkvtest.check(took < 2000, f"closing took {took} ms")
        gkvtest.equal(state.addresses(), [], "recorded addresses")
        gkvtest.equal(ceph.blocklist(), [], "blocklist")


@gkvtest.named("a cluster that is not up: one line in the log, and ready when it is there")
def unreachable():
    with State() as state, Cluster() as ceph:
        ceph.stop()
        # librados obeys these variables, over the configuration file, but for what we do.
        foreign = {"CEPH_ARGS": "--mon-host=192.0.2.1", "CEPH_KEYRING": "/nonexistent"}
        with Probe(ceph, state.path, env=foreign) as probe:
            start = time.monotonic()
            gkvtest.equal(probe.open(0, "kv", "-", 30)["rc"], 0, "open")
            gkvtest.check(time.monotonic() - start < 2, "open waited")
            gkvtest.check(not probe.wait(0, 0)["ready"], "ready without a cluster")
            probe.until("no monitor answered")
            gkvtest.equal(probe.told(0)["generations"], [0, 0], "what reactors hold")
            # More than one further attempt.
            time.sleep(14)
            gkvtest.equal(probe.log().count("no monitor answered"), 1, "lines in the log")
            ceph.start()
            probe.ready()
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            probe.close(0)
        # And a stop while it is away again ends in time.
        ceph.stop()
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 30)
            took = probe.close(0)["ms"]
            gkvtest.check(took < 8000, f"closing took {took} ms")


@gkvtest.named("a stop while the monitor is away leaves the daemon able to end")
def monitor_lost():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 30)
            probe.ready()
            ceph.kill("mon.a")
            # What is connected keeps working.
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            took = probe.close(0)["ms"]
            gkvtest.check(took < 8000, f"closing took {took} ms")
        gkvtest.equal(state.addresses(), [], "recorded addresses")


@gkvtest.named("wrong key, no key, unknown configuration: reasons; the right key mends it")
def keys():
    with State() as state, Cluster(cephx=True) as ceph:
        keyring = ceph.user("kv", mon=FENCING, osd="allow rw pool=kv")
        with open(keyring, encoding="utf-8") as file:
            good = file.read()
        bad = os.path.join(state.path, "keyring")
        with Probe(ceph, state.path, "kv", bad) as probe:
            probe.open(0, "kv", "-", 30)
            probe.until("No such file")
            with open(bad, "w", encoding="utf-8") as file:
                file.write(re.sub(r"key = .*", "key = AQBLlBZoAAAAABAAEFp2mDjSkpwyaj6WJOYVbg==",
                                  good))
            probe.until("the monitors refuse client.kv")
            with open(bad, "w", encoding="utf-8") as file:
                file.write(good)
            probe.ready()
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            probe.close(0)
        with Probe(ceph, state.path, "kv", conf="/nonexistent/ceph.conf") as probe:
            answer = probe.open(0, "kv", "-", 30)
            gkvtest.equal(answer["rc"], -errno.ENOENT, "open")
            gkvtest.check("/nonexistent/ceph.conf" in answer["why"], answer["why"])


@gkvtest.named("no pool, pool made, pool deleted and made again")
def pools():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "later", "-", 30)
            probe.open(1, "kv", "-", 30)
            probe.ready(1)
            probe.until("no pool later")
            ceph.create_pool("later")
            probe.ready(0)
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            # Both are one client of the cluster.
            gkvtest.equal(probe.status(0)["addrs"], probe.status(1)["addrs"], "address")
            # Absent objects do not make it go away.
            for _ in range(20):
                gkvtest.equal(probe.get(0, "absent")["rc"], -errno.ENOENT, "get")
            time.sleep(0.5)
            gkvtest.equal(probe.told(0)["generations"], [1, 1], "what reactors hold")
            ceph.delete_pool("later")
            gkvtest.wait_for(lambda: probe.put(0, "02", "x")["rc"] == -errno.ENOENT
                             or not probe.status(0)["ready"], 20, "put fails")
            probe.until("was deleted", seconds=5)
            gkvtest.wait_for(lambda: probe.told(0)["generations"] == [0, 0], 5, "told")
            gkvtest.equal(probe.put(1, "03", "x")["rc"], 0, "put into the other pool")
            ceph.create_pool("later")
            status = probe.ready(0)
            gkvtest.equal((status["generation"], status["reconnects"]), (2, 0), "generation")
            gkvtest.wait_for(lambda: probe.told(0)["generations"] == [2, 2], 5, "told")
            gkvtest.equal(probe.get(0, "01")["rc"], -errno.ENOENT, "get from the new pool")
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            probe.close(0)
            gkvtest.equal(probe.put(1, "04", "x")["rc"], 0, "put")
            probe.close(1)
        gkvtest.equal(state.addresses(), [], "recorded addresses")


@gkvtest.named("blocklisted: a new connection, the old one fenced for long and drained")
def blocklisted():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 30)
            probe.open(1, "kv", "other", 30)
            first = probe.ready()
            probe.ready(1)
            probe.keep(0)
            ceph.mon("osd blocklist", blocklistop="add", addr=first["addrs"], expire=5.0)
            gkvtest.wait_for(lambda: probe.get(0, "01")["rc"] == -errno.ESHUTDOWN
                             or probe.status(0)["generation"] == 2, 20, "get fails")
            gkvtest.wait_for(lambda: probe.status(0)["generation"] == 2, 20, "second generation")
            second = probe.ready()
            gkvtest.equal((second["reconnects"], second["fenced"]), (1, 1), "counters")
            gkvtest.check(second["addrs"] != first["addrs"], "the address is the same")
            gkvtest.equal(state.addresses(), [second["addrs"]], "recorded addresses")
            gkvtest.wait_for(lambda: probe.told(0)["generations"] == [2, 2], 5, "told")
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            probe.ready(1)
            gkvtest.equal(probe.put(1, "01", "x")["rc"], 0, "put")
            # The old connection is there as long as someone holds it.
            gkvtest.check(first["addrs"] in ceph.clients(), "it is gone")
            probe.letgo(0)
            gkvtest.wait_for(lambda: first["addrs"] not in ceph.clients(), 20, "it goes away")
            # It would have expired.
            time.sleep(6)
            gkvtest.equal(ceph.blocklist(), [first["addrs"]], "blocklist")
            gkvtest.check("is on the cluster's blocklist" in probe.log(), "nothing in the log")
            probe.close(0)
            probe.close(1)
        gkvtest.equal(state.addresses(), [], "recorded addresses")


@gkvtest.named("all addresses blocklisted: no storm of connections, and back when it is cleared")
def range_blocklisted():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as probe:
            ceph.blocklist_add("127.0.0.1:0/0")
            probe.open(0, "kv", "-", 30)
            probe.until("blocklist")
            time.sleep(5)
            gkvtest.check(not probe.status(0)["ready"], "ready")
            gkvtest.equal(probe.log().count("holds this client off"), 1, "lines in the log")
            gkvtest.check(probe.status(0)["reconnects"] < 12, f"{probe.status(0)}")
            gkvtest.equal(probe.status(0)["fenced"], 0, "fenced, though nothing was done")
            ceph.blocklist_clear()
            probe.ready()
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            probe.close(0)


@gkvtest.named("kill -9: the successor fences, several if there were several; nobody else")
def killed():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as bystander:
            bystander.open(0, "kv", "other", 30)
            alive = bystander.ready()["addrs"]
            dead = []
            probe = Probe(ceph, state.path)
            probe.open(0, "kv", "-", 30)
            dead.append(probe.ready()["addrs"])
            probe.kill()
            gkvtest.equal(state.addresses(), sorted([alive, *dead]), "recorded addresses")
            gkvtest.equal(ceph.blocklist(), [], "blocklist")
            # One more dies before it could fence the first: as if left by a third.
            directory = next(e.path for e in os.scandir(state.path) if e.is_dir())
            with open(os.path.join(directory, "127.0.0.1:0_12345"), "w", encoding="utf-8"):
                dead.append("127.0.0.1:0/12345")
            # And what was never used, or is none of ours.
            with open(os.path.join(directory, ".127.0.0.1:0_1"), "w", encoding="utf-8"):
                pass
            with open(os.path.join(directory, "README"), "w", encoding="utf-8"):
                pass
            with Probe(ceph, state.path) as probe:
                probe.open(0, "kv", "-", 30)
                status = probe.ready()
                gkvtest.equal(status["fenced"], 2, "fenced")
                gkvtest.equal(sorted(ceph.blocklist()), sorted(dead), "blocklist")
                gkvtest.equal(state.addresses(), sorted(["README", alive, status["addrs"]]),
                              "recorded addresses")
                probe.close(0)
            gkvtest.equal(bystander.put(0, "01", "x")["rc"], 0, "put of a live one")
            bystander.close(0)
        gkvtest.equal(state.addresses(), ["README"], "recorded addresses")
        expiry = ceph.agent.ask({"prefix": "osd blocklist ls", "format": "json"}, "", 30)["out"]
        print("# " + expiry.replace("\n", " "))


@gkvtest.named("a mutation that was given up is fenced even after an orderly stop")
def doubt():
    with State() as state, Cluster() as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 30)
            first = probe.ready()["addrs"]
            probe.failed(0, errno.ETIMEDOUT)
            probe.close(0)
            gkvtest.equal(state.addresses(), [first], "recorded addresses")
            probe.open(0, "kv", "-", 30)
            probe.ready()
            gkvtest.equal(ceph.blocklist(), [first], "blocklist")
            probe.close(0)
        gkvtest.equal(state.addresses(), [], "recorded addresses")


@gkvtest.named("a dead client's write, held by a hung OSD, never follows its successor's")
def late_write():
    # A lone OSD that was paused beyond its lease for reads (a fifth of the grace) may keep
    # operations "waiting for readable" for ever: Ceph 16.2.15.
    with State() as state, Cluster(grace=60) as ceph:
        probe = Probe(ceph, state.path)
        probe.open(0, "kv", "-", 60)
        first = probe.ready()["addrs"]
        gkvtest.equal(probe.put(0, "01", "before")["rc"], 0, "put")
        ceph.pause("osd.0")
        # It is on its way when the writer dies.
        probe.process.stdin.write("put 0 01 late\n")
        probe.process.stdin.flush()
        time.sleep(1)
        probe.kill()
        with Probe(ceph, state.path) as successor:
            successor.open(0, "kv", "-", 60)
            status = successor.ready()
            gkvtest.equal(status["fenced"], 1, "fenced")
            gkvtest.equal(ceph.blocklist(), [first], "blocklist")
            successor.process.stdin.write("put 0 01 mine\n")
            successor.process.stdin.flush()
            time.sleep(0.5)
            ceph.cont("osd.0")
            gkvtest.equal(json.loads(successor.process.stdout.readline())["rc"], 0, "put")
            for _ in range(10):
                gkvtest.equal(successor.get(0, "01")["value"], "mine", "the value")
                time.sleep(0.1)
            successor.close(0)


@gkvtest.named("capabilities: without the blocklist, without the pool, and when they are given")
def capabilities():
    with State() as state, Cluster(cephx=True) as ceph:
        keyring = ceph.user("kv", mon="allow r", osd="allow rw pool=kv")
        with Probe(ceph, state.path, "kv", keyring, fence=False) as probe:
            probe.open(0, "kv", "-", 30)
            probe.ready()
            gkvtest.equal(state.addresses(), [], "recorded addresses")
            probe.close(0)
        with Probe(ceph, state.path, "kv", keyring) as probe:
            probe.open(0, "kv", "-", 30)
            status = probe.until("may not use the blocklist")
            gkvtest.check("osd blocklist" in status["why"] and "rados.fence = off" in status["why"],
                          status["why"])
            gkvtest.equal(state.addresses(), [], "recorded addresses")
            for caps in (FENCING, "profile rbd", "profile simple-rados-client-with-blocklist"):
                ceph.set_caps("kv", mon=caps, osd="allow rw pool=kv")
                status = probe.ready()
                gkvtest.equal(status["value_max"], 90 * MIB - 4096, "value_max with " + caps)
                probe.close(0)
                # A successor of a killed one can do all it has to.
                other = Probe(ceph, state.path, "kv", keyring)
                other.open(0, "kv", "-", 30)
                dead = other.ready()["addrs"]
                other.kill()
                probe.open(0, "kv", "-", 30)
                probe.ready()
                gkvtest.check(dead in ceph.blocklist(), "not on the blocklist with " + caps)
            probe.close(0)
        # The OSD refuses: said, and found out when it no longer does.
        ceph.set_caps("kv", mon=FENCING, osd="allow rw pool=elsewhere")
        with Probe(ceph, state.path, "kv", keyring) as probe:
            probe.open(0, "kv", "-", 30)
            probe.until("may not read pool kv")
            ceph.set_caps("kv", mon=FENCING, osd="allow rw pool=kv namespace=tenant")
            probe.open(1, "kv", "tenant", 30)
            probe.ready(1, seconds=30)
            probe.close(1)
            ceph.set_caps("kv", mon=FENCING, osd="allow rw pool=kv")
            probe.ready(0, seconds=30)
            probe.close(0)


@gkvtest.named("the largest value follows the cluster's configuration")
def value_max():
    with State() as state, Cluster() as ceph:
        ceph.mon("config set", who="osd", name="osd_max_write_size", value="32")
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 30)
            gkvtest.equal(probe.ready()["value_max"], 32 * MIB - 4096, "value_max")
            probe.close(0)
            ceph.mon("config set", who="osd", name="osd_max_object_size", value=str(8 * MIB))
            probe.open(0, "kv", "-", 30)
            gkvtest.equal(probe.ready()["value_max"], 8 * MIB - 4096, "value_max")
            probe.close(0)


@gkvtest.named("submission never waits, however much is in flight to a hung OSD")
def never_blocks():
    with State() as state, Cluster(grace=60) as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 30)
            probe.ready()
            gkvtest.equal(probe.put(0, "flood", "x")["rc"], 0, "put")
            ceph.pause("osd.0")
            # librados's own limits are 1,024 operations and 100 MiB.
            for count, size in ((3000, 4096), (100, 32 * MIB)):
                answer = probe.flood(0, count, size)
                gkvtest.equal(answer["rc"], 0, "submission")
                gkvtest.check(answer["us"] < 1000000 * gkvtest.SLOW, f"{answer}")
                print(f"# {count} x {size}: the longest submission took {answer['us']} us")
            ceph.cont("osd.0")
            probe.close(0)


@gkvtest.named("librados's own timeout is the longest that a pool asked for")
def backstop():
    with State() as state, Cluster(grace=60) as ceph:
        with Probe(ceph, state.path) as probe:
            probe.open(0, "kv", "-", 1)
            probe.ready()
            gkvtest.equal(probe.put(0, "01", "x")["rc"], 0, "put")
            ceph.pause("osd.0")
            start = time.monotonic()
            gkvtest.equal(probe.put(0, "01", "y")["rc"], -errno.ETIMEDOUT, "put")
            gkvtest.check(0.8 < time.monotonic() - start < 3, "after a second")
            ceph.cont("osd.0")
            probe.open(1, "kv", "other", 4)
            probe.ready(1)
            ceph.pause("osd.0")
            start = time.monotonic()
            gkvtest.equal(probe.put(0, "01", "z")["rc"], -errno.ETIMEDOUT, "put")
            gkvtest.check(3.8 < time.monotonic() - start < 6, "after four seconds")
            ceph.cont("osd.0")
            probe.close(0)
            probe.close(1)


gkvtest.main()
