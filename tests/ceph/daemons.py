# SPDX-License-Identifier: MIT
"""One Ceph daemon of a throwaway cluster: a process found again by its pid file."""
import os
import signal
import subprocess
import time

from launch import ClusterError


class Daemon:
    """mon.a, mgr.x or osd.N, running or not."""

    def __init__(self, name, directory, release, bound):
        self.name = name
        self.kind, _, self.id = name.partition(".")
        self.dir = directory
        self.release = release
        self.bound = bound
        self.conf = os.path.join(directory, "ceph.conf")
        self.pid_path = os.path.join(directory, "run", name + ".pid")
        self.asok = os.path.join(directory, "run", name + ".asok")
        self.output = os.path.join(directory, "log", name + ".out")
        self.process = None

    def pid(self):
        """The pid, or None when it does not run: never that of a process of somebody else."""
        if self.process is not None:
            return None if self.process.poll() is not None else self.process.pid
        try:
            with open(self.pid_path, encoding="ascii") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = self.conf.encode() in file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                dead = file.read().rpartition(b")")[2].split()[0] == b"Z"
        except (OSError, ValueError):
            return None
        return pid if ours and not dead else None

    def start(self):
        if self.pid():
            return
        for path in (self.asok, self.pid_path):
            if os.path.lexists(path):
                os.unlink(path)
        with open(self.output, "ab") as output:
            self.process = self.release.spawn(
                f"ceph-{self.kind}", "-f", "-i", self.id, "-c", self.conf, bound=self.bound,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        with open(self.pid_path, "w", encoding="ascii") as file:
            file.write(f"{self.process.pid}\n")

    def check(self):
        """Raises when the daemon is gone."""
        if not self.pid():
            raise ClusterError(f"{self.name} is gone; its log ends:\n{self.log()}")

    def log(self, lines=15):
        text = []
        for path in (self.output, os.path.join(self.dir, "log", self.name + ".log")):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text += file.read().splitlines()[-lines:]
            except OSError:
                pass
        return "\n".join(text)

    def send(self, number):
        pid = self.pid()
        if not pid:
            raise ClusterError(f"{self.name} does not run")
        os.kill(pid, number)

    def ask_to_end(self, number=signal.SIGTERM):
        """Sends the signal. Once: a second SIGTERM ends an OSD before it has written all out."""
        pid = self.pid()
        if pid:
            os.kill(pid, number)
            if number != signal.SIGKILL:
                # A paused one cannot follow the request.
                os.kill(pid, signal.SIGCONT)

    def wait_end(self, seconds=20):
        """Waits until it is gone; one that does not follow the signal is killed."""
        deadline = time.monotonic() + seconds
        while pid := self.pid():
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += seconds
            time.sleep(0.01)
        if self.process is not None:
            self.process.wait()
            self.process = None
        for path in (self.asok, self.pid_path):
            if os.path.lexists(path):
                os.unlink(path)

    def end(self, number=signal.SIGTERM):
        """Ends it and waits until it is gone."""
        self.ask_to_end(number)
        self.wait_end()
