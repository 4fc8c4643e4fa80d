# SPDX-License-Identifier: MIT
"""The configuration and the keyring of a throwaway cluster."""
import base64
import os
import struct
import time

TEXT = """# A throwaway cluster of the tests.
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}]
mon initial members = a
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
ms bind msgr1 = false
ms cluster mode = {mode}
ms service mode = {mode}
ms client mode = {mode}
ms mon cluster mode = {mode}
ms mon service mode = {mode}
ms mon client mode = {mode}
auth cluster required = {auth}
auth service required = {auth}
auth client required = {auth}
keyring = {dir}/keyring
log to stderr = false
err to stderr = true

[mon]
mon data = {dir}/mon.a
run dir = {dir}/run
admin socket = {dir}/run/$name.asok
log file = {dir}/log/$name.log
mon cluster log file = {dir}/log/cluster.log
# Every change would wait a second for others to join it.
paxos propose interval = 0.02
paxos min wait = 0.01
# The host's disk may be nearly full; that is no business of this cluster.
mon data avail warn = 2
mon data avail crit = 1
mon allow pool delete = true
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 2000
# One OSD's word is enough, and an OSD that is down stays in.
mon osd min down reporters = 1
mon osd down out interval = 0
mon osd report timeout = 60
osd pool default size = {size}
osd pool default min size = 1
osd pool default pg num = {pgs}
osd pool default pgp num = {pgs}
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0

[mgr]
mgr data = {dir}/mgr.x
run dir = {dir}/run
admin socket = {dir}/run/$name.asok
log file = {dir}/log/$name.log
mgr initial modules =
mgr tick period = 1
mgr stats period = 1

[osd]
osd data = {dir}/osd.$id
run dir = {dir}/run
admin socket = {dir}/run/$name.asok
log file = {dir}/log/$name.log
osd objectstore = {store}
osd heartbeat interval = 1
osd heartbeat grace = {grace}
osd beacon report interval = 2
# A primary that comes back waits until leases for reads ran out: grace times this.
osd pool default read lease ratio = 0.2
osd class load list = *
osd op queue = wpq
osd op num shards = 2
osd op num threads per shard = 1
osd min pg log entries = 100
osd max pg log entries = 200
# The smallest target of the cache's own tuning is 896 MiB.
bluestore cache autotune = false
bluestore cache size = 67108864
bluestore block create = true
bluestore block size = {space}
bluestore fsck on mkfs = false
# Each closing of the block file waits for a thread that sleeps this long (250 by default).
bdev aio poll ms = 10
bdev enable discard = false
memstore device bytes = {space}
# memstore writes its objects out in a slow shutdown only.
osd fast shutdown = {fast}

[client]
log file =
admin socket =
"""


def text(**values):
    values["fast"] = "false" if values["store"] == "memstore" else "true"
    return TEXT.format(**values)


def secret():
    """A new key: type 1 (AES), the time it was made, and 16 random bytes."""
    key = os.urandom(16)
    return base64.b64encode(struct.pack("<HIIH", 1, int(time.time()), 0, len(key)) + key).decode()


def keyring_entry(name, caps):
    lines = [f"[{name}]", f"\tkey = {secret()}"]
    lines += [f'\tcaps {service} = "{cap}"' for service, cap in caps.items()]
    return "\n".join(lines) + "\n"


def keyring(osds):
    """Keys of all the cluster's own; the monitor takes them over when it is made."""
    everything = {"mon": "allow *", "osd": "allow *", "mds": "allow *", "mgr": "allow *"}
    parts = [keyring_entry("mon.", {"mon": "allow *"}), keyring_entry("client.admin", everything),
             keyring_entry("mgr.x", {"mon": "allow profile mgr", "osd": "allow *",
                                     "mds": "allow *"})]
    parts += [keyring_entry(f"osd.{i}", {"mon": "allow profile osd", "osd": "allow *",
                                         "mgr": "allow profile osd"}) for i in range(osds)]
    return "".join(parts)
