#!/bin/busybox sh
# SPDX-License-Identifier: MIT
#
# Ends the machine with a panic, after claiming that all was well. QEMU's status is 0 even so.
echo "1..1"
echo "ok 1 - all is well"
sleep 0.2
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
