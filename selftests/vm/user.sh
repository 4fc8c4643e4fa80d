#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds what of user space runs in the guest into $GKV_BUILD/vm-user: kvbridged, gkvctl, gkv-bench,
# gkv-gpusim as this machine builds them. Their linker and libraries come along to /host of the guest
# (initramfs.py), since the root may be of another release, so that their paths are those. libgkv for
# programs of the root is built there, in guest/.
#
# usage: selftests/vm/user.sh
set -euo pipefail

here=$(dirname "$(realpath "$0")")
top=$(realpath "$here/../..")
# shellcheck source=selftests/vm/in-root.sh
. "$here/in-root.sh"

mkdir -p "$vm_user"
build=$(realpath "$vm_user")
log=$build/make.log
# A path that dependencies of libraries follow, too.
ldflags="-Wl,--dynamic-linker=/host/lib/ld.so -Wl,--disable-new-dtags,-rpath,/host/lib"
# Nothing of a make above this one: neither its job server nor its variables.
env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES -u CFLAGS -u CPPFLAGS -u SAN \
	make -C "$top" --no-print-directory -j"$(nproc)" BUILD="$build" LDFLAGS="$ldflags" \
	all >"$log" 2>&1 || {
	grep -E -A 8 'error:|Error ' "$log" >&2 || tail -n 30 "$log" >&2
	vm_die "user space does not build (log: $log)"
}
"$here/module.sh" libgkv "$vm_user/guest"
