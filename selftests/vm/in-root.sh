# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Sourced by the scripts that build in the root: what they share.

vm_cache=${GKV_VM_CACHE:-${GKV_BUILD:-build}/vm}
vm_root=$vm_cache/root
# User space for the guest (user.sh).
vm_user=${GKV_BUILD:-build}/vm-user

vm_die()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

# vm_version KERNEL: the version of "newest" or "stable".
vm_version()
{
	awk -v name="$1" '$1 == name { print $2 }' "$vm_root/rig/versions" | grep . ||
		vm_die "the root has no kernel $1"
}

# vm_in_root DIR COMMAND...: runs it in the root, with DIR mounted at /mnt, its working directory,
# and $VM_OUT, if set, at /media.
# The mounts are in a namespace of their own, so that several may do so at a time.
vm_in_root()
{
	local dir=$1

	shift
	# objtool reads /proc.
	# shellcheck disable=SC2016
	unshare --mount --propagation private sh -euc '
		root=$1
		mount --rbind /proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount --bind "$2" "$root/mnt"
		[ -z "$3" ] || mount --bind "$3" "$root/media"
		shift 3
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \
			TMPDIR=/tmp chroot "$root" sh -c "cd /mnt && exec \"\$@\"" sh "$@"' \
		sh "$vm_root" "$dir" "${VM_OUT:-}" "$@"
}
