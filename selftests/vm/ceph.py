# SPDX-License-Identifier: MIT
"""A throwaway Ceph cluster on the host, for machines that store objects (vm.py --cluster)."""
import os
import subprocess
import sys

from initramfs import Error

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/ceph/cluster.py")
POOL = "kv"
# Its daemons are on the host's loopback, and tell everyone so. The guest reaches that through
# QEMU's gateway, to which its own 127.0.0.1 is routed (init).
NETWORK = ["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile="]
MODULE = "virtio_net"


class Cluster:
    def __init__(self, directory):
        self.dir = os.path.join(directory, "ceph")
        self.conf = None

    def command(self, verb, *options):
        done = subprocess.run([sys.executable, TOOL, verb, self.dir, *options], text=True,
                              capture_output=True, check=False)
        if done.returncode:
            raise Error(f"cluster.py {verb}: {(done.stderr or done.stdout).strip()}")
        return done.stdout.strip()

    def start(self):
        self.conf = self.command("start", "--store", "memstore", "--pools", POOL)

    def guest_conf(self):
        """What a client in the guest needs of the configuration: the first section, no key."""
        with open(self.conf, encoding="utf-8") as file:
            text = file.read().split("\n[mon]")[0]
        return "\n".join(line for line in text.splitlines() if not line.startswith("keyring")) + "\n"

    def remove(self):
        if os.path.exists(self.dir):
            self.command("wipe")
