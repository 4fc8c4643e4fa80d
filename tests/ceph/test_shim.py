#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no test_suites goes the same ways
# gkv-timeout: 240
"""The store's access to librados below everything else: shim_probe.c and list_probe.c on
throwaway clusters, the order and completeness of List beside the `rados` command."""
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../lib")]
import gkvtest  # pylint: disable=wrong-import-position
from cluster import Cluster  # pylint: disable=wrong-import-position

# Escaped in the text of a cursor; the command line takes no other.
NAMESPACES = ("tenant", "odd:n/s%25 é")


def command(program, ceph, ns, *args):
    return [os.path.join(gkvtest.BUILD, "tests/ceph", program), ceph.conf, "kv", ns,
            *map(str, args)]


def probe(ceph, ns, *args, lines=None):
    """Runs shim_probe with the lines as its input and returns its output."""
    done = subprocess.run(command("shim_probe", ceph, ns, *args), check=False,
                          input="\n".join(lines) + "\n" if lines else "",
                          stdout=subprocess.PIPE, text=True, timeout=100 * gkvtest.SLOW)
    gkvtest.equal(done.returncode, 0, "shim_probe " + " ".join(map(str, args)) + "\n"
                  + "\n".join(line for line in done.stdout.splitlines()
                              if not line.startswith("ok "))[-2000:])
    return done.stdout


def passed(output):
    """How many checks of a probe there were; all of them must have been made."""
    lines = output.splitlines()
    good = sum(line.startswith("ok ") for line in lines)
    gkvtest.equal(lines[-1], f"1..{good}", "the probe's plan")
    print(f"# {good} checks")
    return good


@gkvtest.named("reads and writes of all sizes, options, attributes, times")
def values():
    with Cluster() as ceph:
        gkvtest.check(passed(probe(ceph, "tenant", "values")) > 100)
        # And what was written is what others read.
        gkvtest.equal(len(ceph.get("kv", "g4097", ns="tenant")), 4097, "size")
        gkvtest.equal(len(ceph.xattrs("kv", "attr", ns="tenant")["probe.attr"]), 128, "attribute")


@gkvtest.named("a cancelled write's data stays in use until its message has left")
def cancel():
    with Cluster(grace=60) as ceph:
        with subprocess.Popen(command("shim_probe", ceph, "tenant", "cancel"), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
            output = ""
            for line in run.stdout:
                output += line
                if line in ("pause\n", "continue\n"):
                    (ceph.pause if line == "pause\n" else ceph.cont)("osd.0")
                    run.stdin.write("done\n")
                    run.stdin.flush()
            gkvtest.equal(run.wait(60), 0, "shim_probe cancel\n" + output)
        gkvtest.equal(passed(output), 11, "checks")


def random_key(rand):
    return rand.randbytes(rand.randint(1, 16)).hex()


def lists(ceph, ns, page, starts):
    output = probe(ceph, ns, "names", page, lines=starts).splitlines()
    result = [[]]
    for line in output:
        if line:
            result[-1].append(line)
        else:
            result.append([])
    gkvtest.equal(len(result) - 1, len(starts), "lists")
    return result[:-1]


def by_command(ceph, ns):
    """Names as `rados ls` has them, in the cluster's order."""
    lines = ceph.rados("ls", pool="kv", ns=ns).stdout.decode().splitlines()
    return [line for line in lines if "\t" not in line]


@gkvtest.named("List: exact from any name on, present or not, in pages of any size")
def order():
    rand = random.Random(7)
    foreign = ["FOREIGN", "abc", "00FF", "with space", "colon:percent%slash/", "é"]
    with Cluster(store="memstore", pgs=16) as ceph:
        for ns, count in zip(NAMESPACES, (3000, 1000)):
            probe(ceph, ns, "put", lines=[random_key(rand) for _ in range(count)] + foreign)
        ceph.rados("--object-locator", "elsewhere", "put", "aabbcc", ceph.conf, pool="kv",
                   ns="tenant")
        for ns in NAMESPACES:
            names = by_command(ceph, ns)
            there = set(names)
            present = rand.sample(names, 40) + foreign + [names[0], names[-1]]
            absent = [key for key in (random_key(rand) for _ in range(60)) if key not in there]
            got = {}
            for page in (7, 100, 1024, 100000):
                starts = ["-"] if page == 7 else ["-"] + present + absent
                for start, found in zip(starts, lists(ceph, ns, page, starts)):
                    gkvtest.equal(found, got.setdefault(start, found),
                                  f"in pages of {page}, from {start}")
            gkvtest.equal(got["-"], names, "the whole list")
            for start in present:
                gkvtest.equal(got[start], names[names.index(start):], f"from {start}")
            # Where an absent one belongs is seen when it is there.
            probe(ceph, ns, "put", lines=absent)
            full = by_command(ceph, ns)
            for start in absent:
                gkvtest.equal(got[start], [name for name in full[full.index(start):]
                                           if name in there], f"from {start}, absent")
        gkvtest.equal(lists(ceph, "empty", 100, ["-", "00"]), [[], []], "an empty namespace")


@gkvtest.named("List on the helper thread: complete, bounded, let go of at any moment")
def lister():
    rand = random.Random(8)
    with Cluster(store="memstore") as ceph:
        probe(ceph, "tenant", "put", lines=[random_key(rand) for _ in range(3000)] + ["other"])
        probe(ceph, "", "put", lines=[random_key(rand) for _ in range(500)])
        done = subprocess.run(command("list_probe", ceph, "tenant"), check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              timeout=100 * gkvtest.SLOW)
        gkvtest.equal(done.returncode, 0, "list_probe\n" + done.stdout[-2000:])
        passed(done.stdout)


if __name__ == "__main__":
    gkvtest.main()
