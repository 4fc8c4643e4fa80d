#!/bin/busybox sh
# SPDX-License-Identifier: MIT
#
# A program as it should be.
echo "KTAP version 1"
echo "1..4"
echo "ok 1 - first"
echo "# $(uname -r), VRAM $GKV_VRAM_BDF at $GKV_VRAM_ADDR, disk $GKV_DISK"
echo "ok 2 second # SKIP not today"
host vram-fill 7 0 4096 && host vram-has 7 0 4096 && echo "ok 3 - the shell may ask the host"
host run echo hello && echo "ok 4 - and start what it offers"
