#!/bin/busybox sh
# SPDX-License-Identifier: MIT
echo "1..2"
echo "ok 1 - the guest runs programs"
echo "# $(uname -r) $GKV_VRAM_BDF $GKV_VRAM_ADDR $GKV_VRAM_SIZE $GKV_DISK $GKV_NVME_BDF"
echo "ok 2 - second"
