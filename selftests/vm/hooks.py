# SPDX-License-Identifier: MIT
"""Programs on the host that the guest may start, such as a GPU stand-in on the VRAM's file."""
import os
import shlex
import subprocess

LIMIT = 240


class Hooks:
    """`commands` are "NAME=COMMAND" of vm.py's command line: the guest chooses among these only."""

    def __init__(self, commands, files, say):
        self.commands = {}
        for text in commands:
            name, _, command = text.partition("=")
            self.commands[name] = shlex.split(command)
        # Where a GPU could reach: its memory and, as a bus master, the guest's RAM.
        self.environment = dict(os.environ, **{
            f"GKV_VM_{name.upper()}": path for name, path in files.items()})
        self.running = {}
        self.say = say

    def request(self, text):
        """Runs "start|wait|stop|run NAME ARGUMENT..."; returns None when it went well, else why."""
        verb, name, *arguments = text.split()
        if name not in self.commands:
            return f"no hook {name!r}"
        if verb in ("start", "run"):
            why = self.start(name, arguments)
            return why or (self.wait(name) if verb == "run" else None)
        if name not in self.running:
            return f"{name} was not started"
        return self.wait(name, stop=verb == "stop")

    def start(self, name, arguments):
        if name in self.running:
            return f"{name} runs already"
        try:
            self.running[name] = subprocess.Popen(
                self.commands[name] + arguments, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except OSError as error:
            return str(error)
        return None

    def wait(self, name, stop=False):
        """Its end, asked for or waited for; what it said goes into the diagnostics."""
        process = self.running.pop(name)
        if stop:
            process.terminate()
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += f"\nstill ran after {LIMIT} s"
        lines = output.splitlines()
        for line in lines[-40:]:
            self.say(f"# {name}: {line}")
        if process.returncode == 0 or stop and process.returncode == -15:
            return None
        return f"{name} ended with status {process.returncode}: {(lines or ['no output'])[-1]}"

    def end(self):
        """Ends what still runs; returns its names."""
        left = list(self.running)
        for name in left:
            self.running[name].kill()
            self.wait(name)
        return left
