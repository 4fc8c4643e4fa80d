# SPDX-License-Identifier: MIT
"""The GPU outside the machine, with nothing but its memory (selftests/vm/gpu.sh)."""
import os
import subprocess

import gkvtest
import guest

PROGRAM = os.path.join(gkvtest.BUILD, "gkv-gpusim")
seeds = iter(range(1, 10000))


def keep_pages():
    """Pages that are locked still move, for room; those of the GPU must not."""
    path = "/proc/sys/vm/compact_unevictable_allowed"
    if os.path.exists(path):
        guest.write(path, "0")


class Offer:
    """A queue pair for the GPU: the process that has made it, and waits.

    shape are gkv-gpusim's options: how many lanes, and of which size, where and how described
    values are. What is in VRAM lies in dmabuf, if one is given.
    """

    def __init__(self, daemon, mode, namespace, shape, dmabuf=None):
        self.shape = f"{shape} -S {next(seeds)}".split()
        more = [] if dmabuf is None else ["--dmabuf", str(dmabuf)]
        self.process = subprocess.Popen(
            [PROGRAM, "--offer", "-s", daemon.socket, "-n", namespace, "-m", str(mode), *more,
             *self.shape], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            pass_fds=[] if dmabuf is None else [dmabuf])
        self.address = self.process.stdout.readline().strip()
        gkvtest.check(self.address, "gkv-gpusim offers a queue pair")

    def arguments(self):
        bars = [os.environ[name] for name in ("GKV_VRAM_ADDR", "GKV_VRAM2_ADDR") if name in os.environ]
        return [",".join(bars) or "-", self.address, *self.shape]

    def end(self, expected=(0,)):
        self.process.communicate(timeout=60 * gkvtest.SLOW)
        gkvtest.check(self.process.returncode in expected,
                      f"gkv-gpusim --offer ended with status {self.process.returncode}")


def use(daemon, mode, namespace, shape, dmabuf=None):
    offer = Offer(daemon, mode, namespace, shape, dmabuf)
    guest.ask("run gpu", *offer.arguments())
    offer.end()


def served(daemon):
    """Commands that this daemon has completed."""
    return daemon.gkvctl("status")["counters"]["posted"]


def through_a_restart(daemon, mode, namespace, kills=3,
                      shape="-w 2 -l 8 -r 1000000 -v 20000"):
    """The daemon is killed and started again under the GPU, which notices only delay."""
    offer = Offer(daemon, mode, namespace, shape)
    guest.ask("start gpu", *offer.arguments())
    for _ in range(kills):
        gkvtest.wait_for(lambda: served(daemon) > 200, 20, "the GPU is served")
        daemon.kill9()
        daemon.start()
    gkvtest.wait_for(lambda: served(daemon) > 200, 20, "the GPU is served")
    guest.ask("stop gpu")
    offer.end()
