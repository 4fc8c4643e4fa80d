#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Passes commands to a cluster's monitor, one JSON object a line in and out.

Started by cluster.py with the interpreter that has the rados module, in the chroot of the Ceph
release in question. One process keeps its connection, where each call of `ceph` would make its
own; and whatever hangs in librados hangs here, not in the test.

    in   {"cmd": {...}, "input": "", "timeout": seconds}
    out  {"rc": 0 or a negative errno, "out": text, "err": text}
"""
import json
import sys

import rados


def main():
    conf, seconds = sys.argv[1:]
    cluster = rados.Rados(conffile=conf, name="client.admin")
    cluster.connect(timeout=int(seconds))
    print(json.dumps({"rc": 0, "out": cluster.get_fsid(), "err": ""}), flush=True)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            rc, out, err = cluster.mon_command(json.dumps(request["cmd"]),
                                               request["input"].encode(), request["timeout"])
            reply = {"rc": rc, "out": out.decode(errors="replace"), "err": err}
        except rados.Error as error:
            reply = {"rc": -(error.errno or 5), "out": "", "err": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
