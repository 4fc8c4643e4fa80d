#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no test_suites goes the same ways
# gkv-timeout: 300
"""The rados store's objects: what `rados` writes is a value, and a value is what `rados` reads."""
import ctypes
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # pylint: disable=wrong-import-position
from rig import gkvtest  # pylint: disable=wrong-import-position
import gkvlib  # pylint: disable=wrong-import-position

MIB = 1 << 20
# Around the daemon's own borders: nothing, pieces of the first read, slices, many slices.
SIZES = (0, 1, 511, 4096, 65537, MIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 3, 32 * MIB,
         64 * MIB)

TWO_MORE = """
[namespace second]
nsid = 2
stack = rados
rados.conf = {conf}
rados.pool = other
rados.namespace = tenant

[namespace readonly]
nsid = 3
stack = rados
read_only = yes
rados.conf = {conf}
rados.pool = kv
rados.namespace = tenant
"""


def value_of(size):
    return random.Random(size).randbytes(size)


def both_ways(ceph, kvb, sizes=SIZES):
    for number, size in enumerate(sizes):
        value = value_of(size)
        ceph.put("kv", f"a{number:x}0{number:x}", value, ns="tenant")
        rig.put(kvb, f"b{number:x}0{number:x}", value)
    gkvtest.equal(rig.keys(kvb), sorted(f"{c}{n:x}0{n:x}" for c in "ab"
                                        for n in range(len(sizes))), "keys")
    gkvtest.equal(ceph.ls("kv", ns="tenant"), rig.keys(kvb), "objects")
    for number, size in enumerate(sizes):
        value = value_of(size)
        for kind in "ab":
            name = f"{kind}{number:x}0{number:x}"
            gkvtest.check(rig.get(kvb, name) == value, f"key {name}: other bytes ({size})")
            gkvtest.check(ceph.get("kv", name, ns="tenant") == value,
                          f"object {name}: other bytes ({size})")
            gkvtest.equal(ceph.size("kv", name, ns="tenant"), size, f"size of object {name}")


@gkvtest.test
def objects_and_values_are_the_same_both_ways():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph, deadline="60s") as kvb:
        both_ways(ceph, kvb)


@gkvtest.test
def the_same_with_the_other_Ceph_release():
    root = rig.other_release()
    with rig.Cluster(root=root) as ceph, rig.daemon(ceph, deadline="60s") as kvb:
        print("#", ceph.release.run("ceph-osd", "--version").stdout.decode().strip())
        both_ways(ceph, kvb, sizes=(0, 1, 65537, 5 * MIB + 3, 32 * MIB))


@gkvtest.test
def the_same_over_secure_connections_of_a_user_with_few_rights():
    with rig.Cluster(cephx=True, mode="secure") as ceph:
        keyring = ceph.user("gkv", mon='profile rbd',
                            osd="allow rwx pool=kv namespace=tenant")
        with rig.daemon(ceph, deadline="60s",
                        extra=f"rados.id = gkv\nrados.keyring = {keyring}") as kvb:
            both_ways(ceph, kvb, sizes=(0, 1, 65537, 5 * MIB + 3))


@gkvtest.test
def keys_of_every_length_are_their_hex_digits():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph) as kvb:
        names = [bytes(range(n)).hex() for n in range(1, 17)] + ["ff" * 16, "0" * 32]
        for name in names:
            rig.put(kvb, name, name.encode())
        names.sort()
        gkvtest.equal(ceph.ls("kv", ns="tenant"), names, "objects")
        gkvtest.equal(rig.keys(kvb), names, "keys")
        for name in names:
            gkvtest.equal(ceph.get("kv", name, ns="tenant"), name.encode(), f"object {name}")


@gkvtest.test
def names_that_are_no_key_are_left_out():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph) as kvb:
        strange = ["0", "0g", "AB", "00FF", "abc", "00 ", "x", "0" * 34, "rbd_directory",
                   "\u00e4\u00e4", "00.11"]
        for name in strange:
            ceph.put("kv", name, b"not ours", ns="tenant")
        ceph.put("kv", "aa", b"elsewhere", ns="other")
        ceph.put("kv", "aa", b"elsewhere")
        rig.put(kvb, "ab", b"ours")
        gkvtest.equal(rig.keys(kvb), ["ab"], "keys")
        gkvtest.equal(rig.get(kvb, "aa", status=None).returncode, 3, "a key of another namespace")
        kvb.gkvctl("del", "--key-format", "hex", "ab", output=None)
        gkvtest.equal(ceph.ls("kv", ns="tenant"), sorted(strange), "what is left")


@gkvtest.test
def a_list_of_many_keys_is_complete():
    with rig.Cluster(store="memstore", pgs=32) as ceph, rig.daemon(ceph) as kvb:
        count = 3000
        done = gkvtest.subprocess.run(
            [os.path.join(gkvtest.BUILD, "gkv-bench"), "run", "-q", "--mix", "exist", "--fill",
             "yes", "--keys", str(count), "--sizes", "100", "--qd", "32", "--count", "1"],
            env=dict(os.environ, GKV_SOCKET=kvb.socket), stdout=gkvtest.subprocess.PIPE,
            stderr=gkvtest.subprocess.PIPE, check=False)
        gkvtest.equal(done.returncode, 0, done.stderr.decode())
        listed = rig.keys(kvb)
        gkvtest.equal(len(listed), count, "keys listed")
        gkvtest.check(listed == ceph.ls("kv", ns="tenant"), "List and `rados ls` differ")


@gkvtest.test
def what_rados_overwrites_is_served_not_called_damaged():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph) as kvb:
        for size, other in ((MIB, MIB), (MIB, 10), (10, 3 * MIB), (4 * MIB, 4 * MIB), (5, 0)):
            rig.put(kvb, "aa", value_of(size))
            gkvtest.check(ceph.xattrs("kv", "aa", ns="tenant"), "no attribute was stored")
            new = bytes(255 - byte for byte in value_of(other))
            ceph.put("kv", "aa", new, ns="tenant")
            gkvtest.check(ceph.xattrs("kv", "aa", ns="tenant"), "`rados put` took the attribute")
            gkvtest.check(rig.get(kvb, "aa") == new, f"{size} bytes overwritten with {other}")


# Puts data and attribute in place with a time of whole seconds, which the attribute may name:
# every other way to change an object also changes its time.
FORGE = """
import rados, sys
conf, oid, seconds, size, attr = sys.argv[1:]
with rados.Rados(conffile=conf, name="client.admin") as cluster:
    with cluster.open_ioctx("kv") as io:
        io.set_namespace("tenant")
        with rados.WriteOpCtx() as op:
            op.write_full(sys.stdin.buffer.read(int(size)))
            op.set_xattr("gkv", bytes.fromhex(attr))
            io.operate_write_op(op, oid, int(seconds))
"""


def nothing_of_it_is_left(kvb, key, value):
    """A damaged value was moved before its checksum was known: it must not stay."""
    with gkvlib.Session(kvb, length=8 * MIB) as session:
        ctypes.memset(session.addr, 0xA5, 8 * MIB)
        gkvtest.check(session.status(gkvlib.RETRIEVE, key, 8 * MIB), "the damage went unnoticed")
        left = ctypes.string_at(session.addr, 8 * MIB)
        gkvtest.check(left[:len(value)] in (bytes(len(value)), b"\xA5" * len(value)),
                      f"a part of {len(value)} damaged bytes is left in the client's memory")
        gkvtest.check(left[len(value):] == b"\xA5" * (8 * MIB - len(value)), "beyond the value")


@gkvtest.test
def a_value_that_is_not_that_of_its_checksum_is_reported():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph) as kvb:
        for size in (1, 100000, 5 * MIB):
            value = value_of(size)
            rig.put(kvb, "aa", value)
            attr = ceph.xattrs("kv", "aa", ns="tenant")["gkv"]
            gkvtest.equal(len(attr), 40, "length of the attribute")
            # The time the object is said to have: seconds and nanoseconds before the length.
            attr = attr[:24] + (1700000000).to_bytes(8, "little") + bytes(4) + attr[36:]
            broken = value[:-1] + bytes([value[-1] ^ 1])
            for data, good in ((broken, False), (value, True)):
                ceph.release.run("/usr/bin/python3", "-c", FORGE, ceph.conf, "aa", 1700000000,
                                 size, attr.hex(), stdin=data)
                if good:
                    gkvtest.check(rig.get(kvb, "aa") == value, f"{size} bytes, all right")
                else:
                    text = rig.fails_with(rig.get, kvb, "aa")
                    print("#", text.strip().splitlines()[-1])
                    nothing_of_it_is_left(kvb, bytes.fromhex("aa"), broken)


@gkvtest.test
def attributes_of_others_are_no_checksums():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph) as kvb:
        rig.put(kvb, "aa", value_of(5 * MIB))
        for junk in (b"x", b"gkv1" + b"y" * 36, b"z" * 5000):
            ceph.rados("setxattr", "aa", "gkv", pool="kv", ns="tenant", stdin=junk)
            gkvtest.check(rig.get(kvb, "aa") == value_of(5 * MIB), f"attribute {junk[:4]}")
        ceph.rados("rmxattr", "aa", "gkv", pool="kv", ns="tenant")
        gkvtest.check(rig.get(kvb, "aa") == value_of(5 * MIB), "without an attribute")


@gkvtest.test
def an_object_its_OSD_cannot_read_is_an_error():
    extra = "[osd]\nbluestore debug inject read err = true\n"
    with rig.Cluster(extra=extra) as ceph, rig.daemon(ceph) as kvb:
        rig.put(kvb, "aa", value_of(100000))
        rig.put(kvb, "bb", b"good")
        ceph.asok("osd.0", "injectdataerr", pool="kv", objname="tenant/aa")
        text = rig.fails_with(rig.get, kvb, "aa", within=10)
        print("#", text.strip().splitlines()[-1])
        gkvtest.equal(rig.get(kvb, "bb"), b"good", "another key")


@gkvtest.test
def objects_deleted_behind_the_daemons_back_are_gone():
    with rig.Cluster(store="memstore") as ceph, rig.daemon(ceph) as kvb:
        for name in ("aa", "bb"):
            rig.put(kvb, name, b"value")
        ceph.rm("kv", "aa", ns="tenant")
        gkvtest.equal(rig.get(kvb, "aa", status=None).returncode, 3, "Retrieve")
        gkvtest.equal(rig.keys(kvb), ["bb"], "keys")
        rig.put(kvb, "aa", b"again")
        gkvtest.equal(ceph.get("kv", "aa", ns="tenant"), b"again", "object")


@gkvtest.test
def namespaces_pools_and_clusters_are_apart():
    with rig.Cluster(store="memstore", pools=("kv", "other")) as ceph, \
         rig.Cluster(store="memstore", cephx=True) as second:
        more = TWO_MORE.format(conf=ceph.conf) + f"""
[namespace far]
nsid = 4
stack = rados
rados.conf = {second.conf}
rados.pool = kv
"""
        with rig.daemon(ceph, more=more) as kvb:
            for name in ("main", "second", "far"):
                rig.put(kvb, "aa", name.encode(), "-n", name)
            gkvtest.equal(ceph.get("kv", "aa", ns="tenant"), b"main", "pool kv")
            gkvtest.equal(ceph.get("other", "aa", ns="tenant"), b"second", "pool other")
            gkvtest.equal(second.get("kv", "aa"), b"far", "the second cluster")
            gkvtest.equal(rig.get(kvb, "aa", "-n", "readonly"), b"main", "read-only namespace")
            gkvtest.equal(put_status(kvb, "readonly"), 1, "a Store into a read-only namespace")
            gkvtest.equal(ceph.get("kv", "aa", ns="tenant"), b"main", "after the refusal")


def put_status(kvb, name):
    return rig.put(kvb, "aa", b"x", "-n", name, status=None).returncode


@gkvtest.test
def the_largest_value_is_what_the_cluster_takes():
    extra = "[osd]\nosd max object size = 1048576\nosd max write size = 1\n"
    with rig.Cluster(store="memstore", extra=extra) as ceph, rig.daemon(ceph) as kvb:
        rig.put(kvb, "aa", value_of(MIB))
        gkvtest.check(rig.get(kvb, "aa") == value_of(MIB), "1 MiB")
        rig.fails_with(rig.put, kvb, "bb", value_of(MIB + 1))
        gkvtest.equal(rig.keys(kvb), ["aa"], "keys")


if __name__ == "__main__":
    gkvtest.main()
