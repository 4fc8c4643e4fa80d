#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The hook "watch": does anything write to these bytes of the VRAM's file, if only for a moment?

usage: watch.py OFFSET LENGTH		until it is told to stop; status 1 if so
"""
import mmap
import os
import signal
import sys

stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
offset, length = (int(word, 0) for word in sys.argv[1:3])
with open(os.environ["GKV_VM_VRAM"], "rb") as file, \
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
    before = view[offset:offset + length]
    looks = 0
    while not stop:
        looks += 1
        if view[offset:offset + length] != before:
            sys.exit(f"the bytes at {offset:#x} changed")
print(f"looked {looks} times")
