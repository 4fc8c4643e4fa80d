#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A throwaway Ceph cluster on loopback, in one directory, up in about two seconds.

    with Cluster(osds=3, size=2, cephx=True) as ceph:
        keyring = ceph.user("gkv", mon="allow r", osd="allow rwx pool=kv")
        ceph.put("kv", "00ff", b"value", ns="tenant")
        ceph.kill("osd.0")
        ceph.launch("osd.0")

The daemons end with the thread that started them, unless the cluster is not bound to it, as
when this file is used as a command (see --help). Only processes of the cluster are signalled.

memstore is the quickest, but an OSD that is killed has lost its objects: bluestore, the
default, is for tests of faults. Without a manager (mgr=True) there are no statistics of pools,
quotas are not enforced and the status commands that ask it do not end.
"""
import atexit
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import conf as configuration  # pylint: disable=wrong-import-position
from daemons import Daemon  # pylint: disable=wrong-import-position
from launch import ClusterError, Release  # pylint: disable=wrong-import-position

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 1 << 30
# A path of a Unix socket has 107 bytes at most, and the sockets are below the directory.
PATH_MAX = 85
DEFAULTS = {"osds": 1, "store": "bluestore", "cephx": False, "mode": "crc", "size": 1, "pgs": 8,
            "mgr": False, "root": None, "space": 10 * GIB, "grace": 5, "extra": ""}


def poll(condition, seconds, what):
    """Waits until condition() is true and returns what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.02)


def free_port():
    """A port nobody listens on, outside the range that connections are given."""
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Agent:
    """The process of agent.py: a connection to the cluster with all rights."""

    def __init__(self, release, conf):
        self.release = release
        self.conf = conf
        self.process = None

    def open(self, seconds=60):
        # The agent is read by this interpreter, so that a chroot needs no copy of it.
        with open(os.path.join(HERE, "agent.py"), encoding="utf-8") as file:
            source = file.read()
        self.process = self.release.spawn(
            "/usr/bin/python3", "-c", source, self.conf, seconds, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.reply(seconds + 5)

    def reply(self, seconds):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self.close()
            raise ClusterError(f"no answer from the cluster in {seconds} s")
        line = self.process.stdout.readline()
        if not line:
            error = self.process.stderr.read().decode(errors="replace")
            self.close()
            raise ClusterError(f"the connection to the cluster ended:\n{error[-2000:]}")
        return json.loads(line)

    def ask(self, cmd, data, timeout):
        if self.process is None:
            self.open()
        request = {"cmd": cmd, "input": data, "timeout": timeout}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return self.reply(timeout + 10)

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


class Cluster:
    """See above; @options are those of DEFAULTS. An existing directory's own are kept."""

    def __init__(self, directory=None, pools=("kv",), bound=True, start=True, **options):
        unknown = set(options) - set(DEFAULTS)
        if unknown:
            raise ClusterError(f"unknown options: {' '.join(unknown)}")
        self.dir = os.path.realpath(directory or tempfile.mkdtemp(prefix="gkv-ceph-"))
        if len(self.dir) > PATH_MAX:
            raise ClusterError(f"the path has more than {PATH_MAX} bytes: {self.dir}")
        self.bound = bound
        self.pools = pools
        self.conf = os.path.join(self.dir, "ceph.conf")
        self.keyring = os.path.join(self.dir, "keyring")
        self.state = os.path.join(self.dir, "cluster.json")
        self.created = os.path.exists(self.state)
        self.opt = dict(DEFAULTS, **options)
        if self.created:
            with open(self.state, encoding="utf-8") as file:
                self.opt = json.load(file)
        self.release = Release(self.dir, self.opt["root"])
        names = ["mon.a", *(["mgr.x"] if self.opt["mgr"] else []),
                 *(f"osd.{i}" for i in range(self.opt["osds"]))]
        self.daemons = {name: Daemon(name, self.dir, self.release, bound) for name in names}
        self.agent = Agent(self.release, self.conf)
        if bound:
            atexit.register(self.wipe)
        if start:
            self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.wipe()

    # ---- The whole cluster ----

    def start(self):
        """Makes the cluster, or starts again what was stopped; returns when all PGs are clean."""
        try:
            if self.created:
                for name in self.daemons:
                    self.launch(name, wait=False)
            else:
                self._create()
            for osd in self.osds():
                self.wait_up(osd)
            self.wait_clean()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        """Ends all daemons, the monitor last."""
        self.agent.close()
        running = [d for name, d in self.daemons.items() if name != "mon.a" and d.pid()]
        for daemon in running:
            # All at once: each takes its time.
            daemon.ask_to_end()
        for daemon in running:
            daemon.wait_end()
        self.daemons["mon.a"].end()

    def wipe(self):
        """Ends all daemons at once and removes the directory."""
        atexit.unregister(self.wipe)
        self.agent.close()
        for daemon in self.daemons.values():
            daemon.end(signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.release.forget()

    def _create(self):
        os.makedirs(self.dir, exist_ok=True)
        if os.listdir(self.dir):
            raise ClusterError(f"{self.dir} is not empty")
        opt = self.opt
        fsid, port = uuid.uuid4(), free_port()
        for name in ("run", "log", *self.daemons):
            os.mkdir(os.path.join(self.dir, name))
        self._write("ceph.conf", configuration.text(
            dir=self.dir, fsid=fsid, port=port, auth="cephx" if opt["cephx"] else "none",
            mode=opt["mode"], store=opt["store"], size=opt["size"], pgs=opt["pgs"],
            space=opt["space"], grace=opt["grace"]) + opt["extra"])
        self._write("keyring", configuration.keyring(opt["osds"]))
        monmap = os.path.join(self.dir, "monmap")
        self.release.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a",
                         f"[v2:127.0.0.1:{port}]", monmap)
        common = ["-c", self.conf, "--monmap", monmap]
        # An OSD needs the monitor's map, not the monitor: all are made at the same time.
        uuids = {osd: str(uuid.uuid4()) for osd in self.osds()}
        making = [self.release.spawn("ceph-osd", "-i", osd, "--mkfs", *common, "--osd-uuid",
                                     uuids[osd], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                  for osd in self.osds()]
        self.release.run("ceph-mon", "-i", "a", "--mkfs", *common, "--keyring", self.keyring)
        self.launch("mon.a", wait=False)
        self.agent.open()
        for osd in self.osds():
            self.mon("osd new", uuid=uuids[osd], id=osd)
        for pool in self.pools:
            self.create_pool(pool, wait=False)
        for osd, process in zip(self.osds(), making):
            error = process.communicate(timeout=60)[1]
            if process.returncode != 0:
                raise ClusterError(f"osd.{osd} was not made:\n{error.decode()[-2000:]}")
        for name in self.daemons:
            self.launch(name, wait=False)
        self._write("cluster.json", json.dumps(self.opt))
        self.created = True

    def _write(self, name, text):
        with open(os.path.join(self.dir, name), "w", encoding="utf-8") as file:
            file.write(text)

    # ---- Its daemons ----

    def osds(self):
        return range(self.opt["osds"])

    def launch(self, name, wait=True):
        """Starts one daemon. @wait: until the cluster knows that it is there."""
        self.daemons[name].start()
        if wait and name.startswith("osd."):
            self.wait_up(int(name[4:]))
        elif wait:
            self.mon("status" if name == "mon.a" else "mgr stat")

    def kill(self, name, tell=True):
        """kill -9. @tell: nobody else may notice that an OSD is down, so the monitor is told."""
        self.daemons[name].check()
        self.daemons[name].end(signal.SIGKILL)
        if tell and name.startswith("osd."):
            self.mon("osd down", ids=[name[4:]])

    def terminate(self, name):
        """Ends one daemon in an orderly way."""
        self.daemons[name].check()
        self.daemons[name].end()

    def pause(self, name):
        """Stops one daemon's processes where they are, until cont()."""
        self.daemons[name].send(signal.SIGSTOP)

    def cont(self, name):
        self.daemons[name].send(signal.SIGCONT)

    def is_up(self, osd):
        return any(entry["osd"] == osd and entry["up"] for entry in self.mon("osd dump")["osds"])

    def wait_up(self, osd, seconds=60):
        def up():
            self.daemons[f"osd.{osd}"].check()
            return self.is_up(osd)
        poll(up, seconds, f"osd.{osd} up")

    def wait_down(self, osd, seconds=60):
        poll(lambda: not self.is_up(osd), seconds, f"osd.{osd} down")

    def clean_pgs(self):
        """How many PGs are active and clean, as their primary OSDs say."""
        pgs = self.pgs()
        clean = 0
        for osd in self.osds():
            name = f"osd.{osd}"
            for pg in pgs if self.daemons[name].pid() else ():
                # Of one that is starting, or is not the PG's primary: an error, or no answer.
                reply = self.asok(name, "query", pgid=pg, check=False, seconds=2)
                clean += isinstance(reply, dict) and reply.get("state") == "active+clean"
        return clean

    def pgs(self):
        return [f"{pool['pool']}.{number:x}" for pool in self.mon("osd dump")["pools"]
                for number in range(pool["pg_num"])]

    def wait_clean(self, seconds=90):
        def clean():
            for daemon in self.daemons.values():
                if daemon.process is not None:
                    daemon.check()
            return self.clean_pgs() == len(self.pgs())
        poll(clean, seconds, "all PGs active and clean")

    # ---- Commands to the monitor ----

    def mon(self, prefix, data="", timeout=30, **args):
        """Runs a monitor command: its JSON reply, or the text where it gives none."""
        reply = self.agent.ask(dict(args, prefix=prefix, format="json"), data, timeout)
        if reply["rc"] != 0:
            raise ClusterError(f"{prefix}: {reply['err']} ({reply['rc']})")
        try:
            return json.loads(reply["out"])
        except ValueError:
            return reply["out"]

    def create_pool(self, name, size=None, pgs=None, wait=True):
        pgs = pgs or self.opt["pgs"]
        self.mon("osd pool create", pool=name, pg_num=pgs, pgp_num=pgs, pool_type="replicated")
        if size:
            self.set_pool(name, "size", size)
        self.mon("osd pool application enable", pool=name, app="kvbridged")
        if wait:
            self.wait_clean()

    def set_pool(self, name, key, value):
        sure = {"yes_i_really_mean_it": True} if (key, str(value)) == ("size", "1") else {}
        self.mon("osd pool set", pool=name, var=key, val=str(value), **sure)

    def delete_pool(self, name):
        self.mon("osd pool delete", pool=name, pool2=name,
                 yes_i_really_really_mean_it=True)

    def full(self, full=True):
        """Sets or clears the flag "full" of all pools, as a full OSD does."""
        self.asok("osd.0", "injectfull", type="full" if full else "none")
        poll(lambda: all(("full" in pool["flags_names"].split(",")) == full
                         for pool in self.mon("osd dump")["pools"]), 60, f"pools full: {full}")
        self.wait_map()

    def wait_map(self, seconds=60):
        """Waits until all OSDs that run have the monitor's map: what it says is in force then."""
        epoch = self.mon("osd dump")["epoch"]
        for osd in self.osds():
            name = f"osd.{osd}"
            if self.daemons[name].pid():
                poll(lambda n=name: self.asok(n, "status")["newest_map"] >= epoch, seconds,
                     f"{name} has map {epoch}")

    def user(self, name, **caps):
        """Makes client.@name with the capabilities; returns the path of its keyring."""
        flat = [text for pair in caps.items() for text in pair]
        entry = self.mon("auth get-or-create", entity="client." + name, caps=flat)[0]
        path = os.path.join(self.dir, f"client.{name}.keyring")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"[{entry['entity']}]\n\tkey = {entry['key']}\n")
        return path

    def set_caps(self, name, **caps):
        self.mon("auth caps", entity="client." + name,
                 caps=[text for pair in caps.items() for text in pair])

    def blocklist(self):
        """The addresses of the clients that may do nothing any more."""
        # Behind the list of addresses comes one of ranges.
        text = self.agent.ask({"prefix": "osd blocklist ls", "format": "json"}, "", 30)["out"]
        return [entry["addr"] for entry in json.JSONDecoder().raw_decode(text)[0]]

    def blocklist_add(self, addr):
        self.mon("osd blocklist", blocklistop="add", addr=addr)
        self.wait_map()

    def blocklist_clear(self):
        self.mon("osd blocklist clear")

    def clients(self, name="client.admin"):
        """Addresses (as the blocklist wants them) of connected clients of this name."""
        output = self.asok("mon.a", "sessions")
        found = []
        for session in output:
            if session["entity_name"] == name:
                found += [f"{a['addr']}/{a['nonce']}" for a in session["addrs"]["addrvec"]]
        return found

    def asok(self, name, prefix, check=True, seconds=30, **args):
        """Asks a daemon through its administration socket; None for what is no JSON."""
        data = b""
        try:
            with socket.socket(socket.AF_UNIX) as conn:
                conn.settimeout(seconds)
                conn.connect(self.daemons[name].asok)
                conn.sendall(json.dumps(dict(args, prefix=prefix, format="json")).encode() + b"\0")
                while chunk := conn.recv(1 << 16):
                    data += chunk
        except OSError as error:
            if check:
                raise ClusterError(f"{name}: {prefix}: {error}") from None
        if check and data[4:].startswith(b"ERROR"):
            raise ClusterError(f"{name}: {prefix}: {data[4:].decode(errors='replace')}")
        try:
            return json.loads(data[4:])
        except ValueError:
            return None

    # ---- Objects, by the command line tool ----

    def rados(self, *args, pool=None, ns=None, stdin=None, seconds=60, check=True, name=None):
        """Runs the command `rados`: a subprocess.CompletedProcess."""
        command = ["rados", "-c", self.conf]
        command += ["-p", pool] if pool else []
        command += ["-N", ns] if ns else []
        if name:
            command += ["-n", f"client.{name}", "-k",
                        os.path.join(self.dir, f"client.{name}.keyring")]
        return self.release.run(*command, *args, stdin=stdin, seconds=seconds, check=check)

    def put(self, pool, oid, value, ns=None):
        # From a file: what comes through a pipe is stored in many pieces.
        with tempfile.NamedTemporaryFile(dir=self.dir) as file:
            file.write(value)
            file.flush()
            self.rados("put", oid, file.name, pool=pool, ns=ns)

    def get(self, pool, oid, ns=None):
        """The object's bytes, or None when there is none."""
        done = self.rados("get", oid, "-", pool=pool, ns=ns, check=False)
        if done.returncode == 0:
            return done.stdout
        if b"No such file" in done.stderr:
            return None
        raise ClusterError(f"rados get {oid}: {done.stderr.decode(errors='replace')}")

    def ls(self, pool, ns=None):
        """Names of the objects in one namespace, sorted."""
        return sorted(self.rados("ls", pool=pool, ns=ns).stdout.decode().splitlines())

    def rm(self, pool, oid, ns=None):
        self.rados("rm", oid, pool=pool, ns=ns)

    def size(self, pool, oid, ns=None):
        text = self.rados("stat", oid, pool=pool, ns=ns).stdout.decode()
        return int(text.rsplit("size ", 1)[1])

    def xattrs(self, pool, oid, ns=None):
        """Extended attributes of an object by name."""
        names = self.rados("listxattr", oid, pool=pool, ns=ns).stdout.decode().split()
        return {name: self.rados("getxattr", oid, name, pool=pool, ns=ns).stdout
                for name in names}


if __name__ == "__main__":
    import command
    command.main()
