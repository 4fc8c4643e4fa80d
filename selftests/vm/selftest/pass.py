#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program in Python as it should be: what a test of an ABI needs is there."""
import ctypes
import fcntl
import mmap
import os
import struct

print("1..1")
libc = ctypes.CDLL(None, use_errno=True)
assert libc.getpid() == os.getpid()
assert struct.calcsize("<Q") == 8 and fcntl.ioctl and mmap.mmap(-1, 4096)
print("ok 1 - Python runs in the guest")
