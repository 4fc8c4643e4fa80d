#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same from Python: /dev/gkv with the standard library only, by packing structs.

Sizes and offsets are those of <gkv/gkvdrv.h>; the module itself confirms them, since it refuses an
argument that is a byte too short.
"""
import errno
import fcntl
import mmap
import os
import struct

ABI = 1
HEAD = struct.Struct("=IIIIQ")            # size, flags, reason, text_len, text
INFO = struct.Struct("=IIQQIIIIQQ")
PROVIDER = struct.Struct("=IIIIIIQQQQ")
ALLOC = struct.Struct("=IiQ")
QP = struct.Struct("=IIiI" + "iIQQQ" * 3)
REPORT = struct.Struct("=IIIIIIQQQIIQ")
REVOKE = struct.Struct("=")
HOST, VRAM, GONE = 1, 2, 3
CARVEOUT = 1
CAP_VRAM = 1


def number(index):
    """_IO(0xb9, index)"""
    return 0xb9 << 8 | index


CMD_INFO, CMD_PROVIDER_INFO, CMD_ALLOC, CMD_QP_CREATE = map(number, (0, 1, 4, 6))
CMD_REPORT, CMD_REVOKE = map(number, (0x40, 0x42))


def call(file, command, layout, *values, short=0):
    """The values that come back. An OSError carries the errno; the reason code is in the head."""
    data = bytearray(HEAD.pack(HEAD.size + layout.size - short, 0, 0, 0, 0) + layout.pack(*values))
    fcntl.ioctl(file, command, data)
    return layout.unpack_from(data, HEAD.size)


def refused(error, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except OSError as what:
        return what.errno == error
    return False


def qp_values(depth, mode, region):
    values = [depth, mode, 0, 0]
    for part in range(3):
        placed = mode >> part & 1
        values += [region if placed else -1, 0, part * 16384 if placed else 0, 0, 0]
    return values


class Results:
    count = failed = 0

    def __call__(self, good, name):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")


def vram_region(gkv):
    """A region of a carve-out, or None."""
    at = 0
    while True:
        try:
            found = call(gkv, CMD_PROVIDER_INFO, PROVIDER, at, *[0] * 9)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        if found[1] == CARVEOUT:
            return call(gkv, CMD_ALLOC, ALLOC, found[0], 0, 65536)[1]
        at = found[0] + 1


def main():
    check = Results()
    gkv = os.open("/dev/gkv", os.O_RDWR | os.O_CLOEXEC)
    info = call(gkv, CMD_INFO, INFO, ABI, *[0] * 9)
    check(info[0] == ABI and info[1] == mmap.PAGESIZE, "the versions agree")
    check(refused(errno.EPROTO, gkv, CMD_INFO, INFO, ABI + 1, *[0] * 9),
          "another version is refused as such")

    region = vram_region(gkv) if info[2] & CAP_VRAM else None
    mode = 7 if region is not None else 0
    values = qp_values(128, mode, region)
    made = call(gkv, CMD_QP_CREATE, QP, *values)
    queue = made[2]
    check([made[8 + 5 * part] for part in range(3)] == [128 * 64, 128 * 16, 8],
          "a queue pair is made, its parts as long as they must be")
    reports = [call(queue, CMD_REPORT, REPORT, part, *[0] * 11) for part in range(3)]
    check([r[1] for r in reports] == [VRAM if mode else HOST] * 3,
          "each part is where it was asked for")

    with mmap.mmap(queue, made[8], offset=made[7]) as ring:
        check(ring[:64] == bytes(64), "the ring is mapped, and zero")
        ring[0:8] = b"NVMe-KV\0"
        check(ring[0:8] == b"NVMe-KV\0", "what is stored is there")

    for command, layout, arguments in ((CMD_INFO, INFO, [ABI] + [0] * 9),
                                       (CMD_PROVIDER_INFO, PROVIDER, [0] * 10),
                                       (CMD_ALLOC, ALLOC, [0] * 3),
                                       (CMD_QP_CREATE, QP, qp_values(8, 0, None))):
        # INFO tells a caller of any version what it is.
        short = layout.size - 3 if command == CMD_INFO else 1
        check(refused(errno.EINVAL, gkv, command, layout, *arguments, short=short),
              f"command {command & 0xff}: a byte less is too little")
    check(refused(errno.EINVAL, queue, CMD_REPORT, REPORT, *[0] * 12, short=1),
          "REPORT: a byte less is too little")

    call(queue, CMD_REVOKE, REVOKE)
    check(call(queue, CMD_REPORT, REPORT, 0, *[0] * 11)[1] == GONE, "it is given up")
    os.close(queue)
    if region is not None:
        os.close(region)
    os.close(gkv)
    print(f"1..{check.count}")
    return 1 if check.failed else 0


raise SystemExit(main())
