# SPDX-License-Identifier: MIT
"""A kvbridged in front of a throwaway cluster, and a load that runs while faults are made."""
import os
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position
from cluster import Cluster, ClusterError  # pylint: disable=wrong-import-position,unused-import

# The chroot with the other Ceph release, made by `make check-ceph`.
OTHER_ROOT = os.environ.get("GKV_CEPH_ROOT")

CONFIG = """[daemon]
reactors = 2
state_dir = {{dir}}
{daemon}

[namespace main]
nsid = 1
stack = rados
deadline = {deadline}
rados.conf = {conf}
rados.pool = {pool}
rados.namespace = {ns}
rados.connect_wait = {wait}
{extra}
{more}
"""
# A lone OSD that is paused beyond its lease for reads, a fifth of this, may keep all operations of a
# placement group waiting after it goes on: none of ours to judge.
GRACE = 60


def other_release():
    """The chroot of the other Ceph release; that it is missing is a failure."""
    gkvtest.check(OTHER_ROOT, "GKV_CEPH_ROOT does not name a chroot (scripts/ceph-chroot.sh)")
    return OTHER_ROOT


def config(ceph, pool="kv", ns="tenant", deadline="5s", wait="5s", extra="", daemon="", more=""):
    return CONFIG.format(conf=ceph.conf, pool=pool, ns=ns, deadline=deadline, wait=wait,
                         extra=extra, daemon=daemon, more=more)


def daemon(ceph, **options):
    """A kvbridged whose namespace main is on the cluster; see gkvtest.Daemon and config()."""
    own = {name: options.pop(name) for name in ("env", "args", "start") if name in options}
    return gkvtest.Daemon(config(ceph, **options), **own)


def namespace(kvb, name="main"):
    return next(entry for entry in kvb.gkvctl("namespaces") if entry["name"] == name)


def wait_ready(kvb, ready=True, seconds=60, name="main"):
    gkvtest.wait_for(lambda: namespace(kvb, name)["ready"] == ready, seconds,
                     f"namespace {name} ready: {ready}")


def put(kvb, key, value, *args, **kwargs):
    return kvb.gkvctl("put", "--key-format", "hex", key, "-", *args, stdin=value, output=None,
                      **kwargs)


def get(kvb, key, *args, **kwargs):
    return kvb.gkvctl("get", "--key-format", "hex", key, "-", *args, output=None, **kwargs)


def keys(kvb, *args):
    listing = kvb.gkvctl("list", "--key-format", "hex", *args)
    return sorted(entry["hex"] for entry in listing["keys"])


def fails_with(function, *args, within=None, words=""):
    """Runs a command of this file that must fail, within so many seconds; returns stderr."""
    begin = time.monotonic()
    done = function(*args, status=None)
    took = time.monotonic() - begin
    text = done.stderr.decode(errors="replace")
    gkvtest.check(done.returncode == 1, f"exit status {done.returncode}, want 1: {text}")
    gkvtest.check(words.lower() in text.lower(), f"does not speak of {words!r}: {text}")
    if within:
        limit = within * gkvtest.SLOW
        gkvtest.check(took < limit, f"took {took:.1f} s, more than {limit} s")
    return text


class Load:
    """rig_load (which see) on a daemon; every check of it that fails raises."""

    def __init__(self, kvb, **options):
        command = [os.path.join(gkvtest.BUILD, "tests/ceph/rig_load"), kvb.socket]
        command += [f"{name}={int(value)}" for name, value in options.items()]
        # gkv-bench and libgkv report on stderr; it belongs into the test's diagnostics.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.read(60)

    def read(self, seconds):
        """The lines up to the answer, which must not be "no"."""
        lines = []
        end = time.monotonic() + seconds * gkvtest.SLOW
        while True:
            left = end - time.monotonic()
            if left < 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise gkvtest.TestFailure("the load does not answer: " + "\n".join(lines))
            line = self.read_line()
            if line.startswith("= "):
                break
            lines.append(line)
        if line.startswith("= no"):
            raise gkvtest.TestFailure(f"the load: {line[2:]}")
        return line[2:], lines

    def read_line(self):
        # One byte at a time: select() must not be fooled by what is buffered here.
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                raise gkvtest.TestFailure(f"the load ended: {self.process.wait()}")
            line += byte
        return line.decode(errors="replace").rstrip()

    def ask(self, command, seconds=30):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        return self.read(seconds)

    def done(self):
        return int(self.ask("done")[0])

    def unknown(self):
        return int(self.ask("unknown")[0])

    def progress(self, count, seconds=30):
        """Waits for @count more completions."""
        self.ask(f"progress {count} {seconds}", seconds + 5)

    def recover(self, seconds=60):
        """Waits until commands have outcomes again."""
        def certain():
            before = self.unknown()
            self.progress(30, seconds)
            return self.unknown() == before
        gkvtest.wait_for(certain, seconds, "commands with an outcome")

    def judge(self, what, seconds=200):
        """Ends the load: exactly one completion each, no error, all views agree, linearizable."""
        unknown = self.unknown()
        total, lines = self.done(), self.ask("judge " + what, seconds)[1]
        print(f"# {what}: {total} completions, {unknown} of them unknown", flush=True)
        bad = [line for line in lines if line.startswith("not ok")]
        if bad:
            raise gkvtest.TestFailure("\n".join(lines[-60:]))
        gkvtest.equal(len([line for line in lines if line.startswith("ok")]), 4, "verdicts")

    def close(self):
        self.process.kill()
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()
