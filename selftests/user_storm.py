#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whatever happens, in whatever order: a GPU outside drives queues in random memory modes with random
values, while the daemon is killed or hangs, the provider is unbound, the driver of the GPU takes its
memory back. Nothing is lost that was not taken, nothing stays behind, the kernel has nothing to say.

GKV_STORM_SEED repeats the choices, GKV_STORM_SECONDS says how long it takes (15; 600 with GKV_LONG)."""
import os
import random
import signal
import time

import exporter
import gpu
import gkvtest
import guest

SECONDS = int(os.environ.get("GKV_STORM_SECONDS") or (600 if os.environ.get("GKV_LONG") else 15))
SEED = int(os.environ.get("GKV_STORM_SEED") or "0", 0) or int.from_bytes(os.urandom(4), "little")
# The debug kernel knows no file systems.
NAMESPACES = ("raw", "file") if os.environ.get("GKV_FS") else ("raw",)
CONFIG = guest.CONFIG if "file" in NAMESPACES else guest.CONFIG.split("[namespace file]")[0]


def shape(dice):
    """Lanes and values for 4 MiB of memory."""
    longest = 1 << dice.randrange(19)
    text = f"-w {dice.randint(1, 2)} -l {dice.randint(1, 3)} -d {dice.choice((2, 3, 16, 64))} " \
           f"-v {dice.randint(1, longest)} -r 1000000 --may-stop{dice.choice(('', ' --csum'))}" \
           f"{dice.choice(('', '', ' -b 1', ' -b 3'))}"
    if dice.random() < 0.5:
        return f"{text} --prp --offset {dice.randrange(0, 4096, 4)}"
    return f"{text} --offset {dice.choice((0, 512, dice.randrange(4096)))}"


class Round:
    """One queue pair and its GPU; what happens to it."""

    def __init__(self, dice, daemon, driver):
        self.dice, self.daemon, self.driver = dice, daemon, driver
        self.mode = dice.randrange(16)
        self.dmabuf = driver.make(dice.choice((exporter.PLAIN, exporter.REVERSED))) \
            if self.mode and dice.random() < 0.5 else None
        self.what = shape(dice)
        self.namespace = dice.choice(NAMESPACES)
        self.offer = gpu.Offer(daemon, self.mode, self.namespace, self.what, self.dmabuf)
        # The memory that it maps may be taken away.
        self.ends = (0, 1, -signal.SIGBUS)

    def happens(self):
        events = [self.nothing, self.kill, self.stall]
        if self.mode:
            events += [self.revoke] if self.dmabuf is not None else [self.unbind]
        return self.dice.choice(events)

    def nothing(self):
        pass

    def kill(self):
        self.daemon.kill9()
        self.daemon.start()

    def stall(self):
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        time.sleep(self.dice.random() / 2)
        os.kill(self.daemon.process.pid, signal.SIGCONT)

    def revoke(self):
        self.driver.revoke(self.dmabuf)

    @staticmethod
    def unbind():
        guest.unbind()
        guest.bind()

    def run(self):
        try:
            self.go()
        finally:
            # Or what is unloaded next would be in use.
            self.offer.process.kill()
            if self.dmabuf is not None:
                os.close(self.dmabuf)

    def go(self):
        guest.ask("start gpu", *self.offer.arguments())
        said = [f"mode {self.mode:#x}", "imported" if self.dmabuf is not None else "own memory",
                self.namespace, self.what]
        for _ in range(self.dice.randint(1, 3)):
            time.sleep(self.dice.random() / 2)
            event = self.happens()
            said.append(event.__name__)
            event()
        print("# " + ", ".join(said), flush=True)
        time.sleep(self.dice.random() / 2)
        guest.ask("stop gpu")
        self.offer.end(self.ends)


@gkvtest.test
def whatever_happens():
    guest.need_vram()
    gpu.keep_pages()
    print(f"# seed {SEED:#x}, {SECONDS} s", flush=True)
    dice, count = random.Random(SEED), 0
    with exporter.exporter() as driver, gkvtest.Daemon(CONFIG) as daemon:
        end = time.monotonic() + SECONDS
        while count < 3 or time.monotonic() < end:
            Round(dice, daemon, driver).run()
            count += 1
            gkvtest.wait_for(lambda: all(one["used"] == 0 for one in daemon.gkvctl("provider")), 20,
                             "all VRAM is free again")
        daemon.check_alive()
    print(f"# {count} rounds", flush=True)


gkvtest.main()
