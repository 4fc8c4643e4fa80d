#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes what a machine with the newest kernel, the module and user space is booted from: in
# $GKV_BUILD/vm-user and $GKV_BUILD/vm-out/newest. Says what it does and how long that took; what
# a step prints is shown if it fails. Takes root.
#
# usage: selftests/vm/prepare.sh
set -euo pipefail

cd "$(dirname "$0")/../.."
export GKV_BUILD=${GKV_BUILD:-build}
vm=selftests/vm

die()
{
	echo "prepare: $*" >&2
	exit 1
}

# step TEXT COMMAND...
step()
{
	local log start=$SECONDS

	echo "   $1 ..."
	log=$("${@:2}" 2>&1) || { tail -n 40 <<<"$log" >&2; die "failed: $1"; }
	echo "   $1: $((SECONDS - start)) s"
}

[ "$(id -u)" -eq 0 ] || die "needs root, to make the virtual machine's Debian (chroot, mmdebstrap)"
step "Debian with the newest kernel (minutes, the first time)" "$vm/root.sh"
step "the module gkvdrv for it" "$vm/module.sh" build newest "$GKV_BUILD/vm-out/newest"
step "kvbridged and its tools for it" "$vm/user.sh"
