#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The hook "objects": what is in the cluster, by the host's own tool.

usage: objects.py put NAMESPACE OBJECT SEED LENGTH	stores the pattern's bytes
       objects.py has NAMESPACE OBJECT SEED LENGTH	they are what is stored
       objects.py list NAMESPACE			prints the first ones
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # nothing is left in the tree
import ceph
import hostcheck


def rados(namespace, *args):
    return subprocess.run(["rados", "-c", os.environ["GKV_VM_CEPH_CONF"], "-p", ceph.POOL,
                           "-N", namespace, *args], capture_output=True, check=True).stdout


def main(verb, namespace, *args):
    if verb == "list":
        names = sorted(rados(namespace, "ls").decode().split())
        print(f"{len(names)} objects")
        for name in names[:5]:
            print(rados(namespace, "stat", name).decode().strip())
        return
    name, seed, length = args[0], int(args[1], 0), int(args[2], 0)
    with tempfile.NamedTemporaryFile() as file:
        if verb == "put":
            file.write(hostcheck.pattern(seed, 0, length))
            file.flush()
            rados(namespace, "put", name, file.name)
        elif verb == "has":
            rados(namespace, "get", name, file.name)
            size = os.path.getsize(file.name)
            if size != length:
                sys.exit(f"{name} has {size} bytes, not {length}")
            at = hostcheck.first_difference(file.name, seed, 0, length)
            if at is not None:
                sys.exit(f"{name} differs at byte {at}")
        else:
            sys.exit(__doc__)


main(*sys.argv[1:])
