#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds the debug kernel (debug.config) from the newest kernel's source, in the root that root.sh
# made. It is kept in CACHE/debug until the kernel or the configuration changes.
#
# usage: selftests/vm/debug-kernel.sh	takes root, 3 GB and, on two cores, about eight minutes
#
# CACHE/debug/bzImage is the kernel, CACHE/debug/src the tree to build modules against.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
# shellcheck source=selftests/vm/in-root.sh
. "$here/in-root.sh"
jobs=${GKV_VM_JOBS:-$(nproc)}

[ -e "$vm_root/rig/complete" ] || vm_die "no complete root in $vm_cache: run root.sh"
vm_cache=$(realpath "$vm_cache")
vm_root=$vm_cache/root
exec 9>"$vm_cache/debug.lock"
flock 9
dir=$vm_cache/debug
key="$(vm_version newest) $(cat "$here/debug.config" "$0" | sha256sum | cut -c1-12)"
[ "$(cat "$dir/complete" 2>/dev/null)" != "$key" ] || exit 0

work=$vm_cache/debug.new
log=$vm_cache/debug.log
mapfile -t names < <(grep -v '^#' "$here/debug.config" | tr -s ' \n' '\n' | grep .)
echo "debug-kernel: building $(vm_version newest) with ${#names[@]} options (log: $log)"
rm -rf --one-file-system "$work"
mkdir -p "$work/src"

in_tree()
{
	vm_in_root "$work/src" make -j"$jobs" CC=gcc-14 HOSTCC=gcc-14 "$@" >>"$log" 2>&1
}

start=$SECONDS
: >"$log"
if ! { xz -dc -T0 "$vm_cache/linux-source.tar.xz" | tar -x --strip-components=1 -C "$work/src"; }; then
	vm_die "the source does not unpack"
fi
printf 'CONFIG_%s=y\n' "${names[@]}" >"$work/src/wanted.config"
in_tree KCONFIG_ALLCONFIG=wanted.config allnoconfig || vm_die "no configuration (log: $log)"
missing=$(grep -v -x -F -f "$work/src/.config" "$work/src/wanted.config" || true)
[ -z "$missing" ] || vm_die "these do not survive:" $missing
if ! in_tree bzImage modules; then
	tail -n 20 "$log" >&2
	vm_die "the debug kernel does not build"
fi
cp "$work/src/arch/x86/boot/bzImage" "$work"
# Modules need the headers, scripts and Module.symvers; what was linked is of no more use.
find "$work/src" -path "$work/src/tools" -prune -o -path "$work/src/scripts" -prune -o \
	\( -name '*.o' -o -name '*.a' -o -name '.*.cmd' \) -type f -print0 | xargs -0 rm -f
echo "$key" >"$work/complete"
rm -rf --one-file-system "$dir"
mv "$work" "$dir"
echo "debug-kernel: built in $((SECONDS - start)) s, $(du -sh "$dir" | cut -f1)"
