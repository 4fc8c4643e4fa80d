# SPDX-License-Identifier: MIT
"""Test helper: TAP output, a kvbridged in a temporary directory, gkvctl.

    import gkvtest

    @gkvtest.test
    def value_survives():
        with gkvtest.Daemon() as daemon:
            daemon.gkvctl("put", "key", "-", stdin=b"value")
            gkvtest.equal(daemon.gkvctl("get", "key", "-", output=None), b"value")

    gkvtest.main()

A Daemon that ends in any way but the one the test asked for fails the test, and
so does one that will not stop: a crash never hides behind a passed assertion
(field report F105). Standard library only.
"""
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.path.abspath(os.environ.get("GKV_BUILD", "build"))
SAN = os.environ.get("GKV_SAN", "")
LONG = bool(os.environ.get("GKV_LONG"))
# Time limits that depend on the daemon's speed are multiplied by this.
SLOW = {"": 1, "address": 3, "thread": 6}[SAN] * int(os.environ.get("GKV_SLOW", 1))

MEM_CONFIG = """
[daemon]
reactors = 2

[namespace main]
nsid = 1
stack = mem
"""


class TestFailure(Exception):
    """What a failed check raises."""


class Skip(Exception):
    """Raise with a reason to have the running test counted as skipped."""


def check(condition, message="check failed"):
    if not condition:
        raise TestFailure(message)


def equal(got, want, what="value"):
    if got != want:
        raise TestFailure(f"{what}: got {got!r:.300}, want {want!r:.300}")


def wait_for(condition, seconds, what):
    """Polls until condition() is true; returns what it returned."""
    end = time.monotonic() + seconds * SLOW
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise TestFailure(f"waited {seconds * SLOW} s in vain: {what}")
        time.sleep(0.01)


# ---- Control socket -------------------------------------------------------------------------------

CTL_MAGIC = 0x43564B47
CTL_VERSION = 1
MSG_HELLO = 1
HDR = struct.Struct("<IHHIIII")


def hello(path, timeout=5.0):
    """Says hello on the socket; returns the open connection, or raises OSError."""
    conn = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        conn.settimeout(timeout)
        conn.connect(path)
        body = struct.pack("<HHIQ16sQQ64s", CTL_VERSION, CTL_VERSION, 0, 0,
                           secrets.token_bytes(16), 0, 0, b"test")
        conn.send(HDR.pack(CTL_MAGIC, CTL_VERSION, MSG_HELLO, HDR.size + len(body), 1, 0, 0) + body)
        reply, fds, _, _ = socket.recv_fds(conn, 8192, 4)
        for fd in fds:
            os.close(fd)
        if len(reply) < HDR.size:
            raise ConnectionError("no reply to hello")
        error = HDR.unpack_from(reply)[5]
        if error:
            raise OSError(error, "hello was refused")
        return conn
    except BaseException:
        conn.close()
        raise


# ---- Daemon ---------------------------------------------------------------------------------------

_daemons = []
# Loaded here because little may be done between fork and exec.
_libc = ctypes.CDLL(None)


def _die_with_parent():
    """In the child: get SIGKILL when the test program ends, however it ends."""
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)


class Daemon:
    """A kvbridged of its own directory, socket and configuration.

    In the configuration text {dir} stands for the directory and {socket} for the
    socket; a missing "socket =" is added. The directory goes away with the test.
    """

    def __init__(self, config=MEM_CONFIG, env=None, args=(), directory=None, start=True):
        self.own_dir = directory is None
        self.dir = directory or tempfile.mkdtemp(prefix="gkv-")
        self.socket = os.path.join(self.dir, "kvbridged.sock")
        self.config_path = os.path.join(self.dir, "kvbridged.conf")
        self.log_path = os.path.join(self.dir, "kvbridged.log")
        self.env = dict(env or {})
        self.args = list(args)
        self.process = None
        self.write_config(config)
        _daemons.append(self)
        if start:
            self.start()

    def write_config(self, config):
        text = config.replace("{dir}", self.dir).replace("{socket}", self.socket)
        if "\nsocket" not in "\n" + text:
            line = f"[daemon]\nsocket = {self.socket}\n"
            text = text.replace("[daemon]\n", line, 1) if "[daemon]\n" in text else line + text
        with open(self.config_path, "w", encoding="utf-8") as file:
            file.write(text)

    def spawn(self, env=None):
        """Starts the process without waiting for its socket."""
        check(self.process is None, "the daemon is running already")
        log = open(self.log_path, "ab")
        with log:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "kvbridged"), "-c", self.config_path, *self.args],
                env=dict(os.environ, **self.env, **(env or {})), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, preexec_fn=_die_with_parent)

    def start(self, env=None, seconds=10):
        """Starts the process and waits until its socket answers a hello."""
        self.spawn(env)

        def answers():
            if self.process.poll() is not None:
                raise TestFailure(f"kvbridged ended at start: {self.how_it_ended()}")
            try:
                hello(self.socket).close()
                return True
            except OSError:
                return False
        try:
            wait_for(answers, seconds, "kvbridged answers on its socket")
        except TestFailure as failure:
            if self.process.poll() is not None:
                raise
            raise TestFailure(f"{failure}; its log ends:\n{self.log_end()}") from None
        return self

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def how_it_ended(self):
        status = self.process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return how + "; its log ends:\n" + self.log_end()

    def log_end(self):
        return "\n".join(self.log().splitlines()[-40:])

    def check_alive(self):
        if self.process.poll() is not None:
            raise TestFailure(f"kvbridged is gone: {self.how_it_ended()}")

    def stop(self, seconds=20):
        """Asks the daemon to stop; fails unless it was alive and exits with 0."""
        if self.process is None:
            return
        try:
            self.check_alive()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds * SLOW)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGABRT)
                raise TestFailure(f"kvbridged did not stop within {seconds * SLOW} s") from None
            if self.process.returncode != 0:
                raise TestFailure(f"kvbridged did not exit cleanly: {self.how_it_ended()}")
        finally:
            self._reap()

    def kill9(self):
        """Kills the daemon as the test's own doing; fails if it was gone before."""
        try:
            self.check_alive()
            self.process.kill()
            self.process.wait()
        finally:
            self._reap()

    def wait_killed(self, seconds=30):
        """Waits for a kill the daemon does to itself (GKV_KILLPOINT)."""
        try:
            self.process.wait(seconds * SLOW)
            if self.process.returncode != -signal.SIGKILL:
                raise TestFailure(f"kvbridged was to be killed: {self.how_it_ended()}")
        except subprocess.TimeoutExpired:
            raise TestFailure(f"kvbridged was not killed within {seconds * SLOW} s") from None
        finally:
            self._reap()

    def _reap(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
        self.process = None

    def remove(self):
        self._reap()
        if self.own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)
        if self in _daemons:
            _daemons.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.stop()
            elif self.process is not None and self.process.poll() is not None:
                # The likelier cause of whatever the test stumbled over.
                raise TestFailure(f"{value}\nkvbridged is gone: {self.how_it_ended()}")
        finally:
            self.remove()

    def gkvctl(self, *args, output="json", stdin=None, status=0, seconds=60):
        """Runs gkvctl: returns parsed JSON, or stdout as bytes with output=None.

        Fails unless the exit status is @status (None: any, returns the whole
        subprocess.CompletedProcess).
        """
        command = [os.path.join(BUILD, "gkvctl"), "-s", self.socket]
        if output:
            command += ["-o", output]
        done = subprocess.run(command + [str(arg) for arg in args], input=stdin,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=seconds * SLOW, check=False)
        if status is None:
            return done
        if done.returncode != status:
            raise TestFailure(f"gkvctl {' '.join(map(str, args))}: exit status {done.returncode}, "
                              f"want {status}\n{done.stderr.decode(errors='replace')}")
        if output == "json":
            return json.loads(done.stdout) if done.stdout.strip() else None
        return done.stdout


def run_program(*command, seconds=120, status=0, **kwargs):
    """Runs a program of the build directory (first argument: its path there)."""
    done = subprocess.run([os.path.join(BUILD, command[0]), *map(str, command[1:])],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=seconds * SLOW, check=False, **kwargs)
    if status is not None and done.returncode != status:
        raise TestFailure(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                          f"{done.stdout.decode(errors='replace')[-2000:]}\n"
                          f"{done.stderr.decode(errors='replace')[-2000:]}")
    return done


# ---- TAP ------------------------------------------------------------------------------------------

_tests = []


def test(function):
    """Decorator: registers a test; its name, underscores as spaces, is what TAP shows."""
    _tests.append((function.__name__.replace("_", " "), function))
    return function


def named(name):
    """Like @test, with a name of its own (such as one that carries a field report's number)."""
    def register(function):
        _tests.append((name, function))
        return function
    return register


def _finish_daemons():
    """Ends daemons a test left behind; returns what was wrong with them."""
    problems = []
    for daemon in list(_daemons):
        try:
            daemon.stop()
        except TestFailure as failure:
            problems.append(str(failure))
        daemon.remove()
    return problems


def main():
    """Runs the registered tests (or those whose names contain an argument)."""
    chosen = [(name, function) for name, function in _tests
              if len(sys.argv) < 2 or any(word in name for word in sys.argv[1:])]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for number, (name, function) in enumerate(chosen, 1):
        problem = skip = None
        try:
            function()
        except Skip as reason:
            skip = str(reason)
        except TestFailure as failure:
            problem = f"{failure}\n{traceback.format_exc(limit=-2)}"
        except Exception:  # pylint: disable=broad-except
            problem = traceback.format_exc()
        left = _finish_daemons()
        if left:
            problem = "\n".join(filter(None, [problem, *left]))
        if problem:
            failed += 1
            print(f"not ok {number} - {name}")
            print("\n".join("# " + line for line in problem.splitlines()), flush=True)
        elif skip is not None:
            print(f"ok {number} - {name} # SKIP {skip}", flush=True)
        else:
            print(f"ok {number} - {name}", flush=True)
    sys.exit(1 if failed else 0)
