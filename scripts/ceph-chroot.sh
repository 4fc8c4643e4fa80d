#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes a chroot with the Ceph of a Debian release, for tests/ceph/cluster.py --root. Nothing
# else of the machine changes, and nothing is started in it. A chroot that is there is kept.
#
# usage: scripts/ceph-chroot.sh DIR RELEASE         such as build/ceph-trixie trixie
#
# Packages come from where this machine's own come from. Takes root and a few minutes.
set -euo pipefail

packages="ceph-mon ceph-osd ceph-common python3-rados"

die()
{
	echo "ceph-chroot: $*" >&2
	exit 1
}

[ $# -eq 2 ] || die "usage: scripts/ceph-chroot.sh DIR RELEASE"
dir=$1
release=$2
[ ! -e "$dir/complete" ] || exit 0
[ "$(id -u)" -eq 0 ] || die "takes root: debootstrap and chroot"
command -v debootstrap >/dev/null || die "debootstrap is missing: scripts/deps.sh ceph"
case $(realpath -m "$dir") in
*[!A-Za-z0-9_./+-]*) die "unusable characters in the path of $dir" ;;
esac

mkdir -p "$(dirname "$dir")"
# One maker at a time; the next one finds the work done.
exec 9>"$dir.lock"
flock 9
[ ! -e "$dir/complete" ] || exit 0

mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep '/debian$' | head -n 1 || true)
mirror=${mirror:-http://deb.debian.org/debian}
work=$dir.new
log=$dir.log
rm -rf --one-file-system "$work"
echo "ceph-chroot: making $dir: $packages of $release from $mirror (log: $log)"

# in_chroot COMMAND...: with /proc and /dev, in a mount namespace of its own.
in_chroot()
{
	# shellcheck disable=SC2016
	unshare --mount --propagation private sh -euc '
		root=$1
		shift
		mount --rbind /proc "$root/proc"
		mount --rbind /dev "$root/dev"
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
			LC_ALL=C.UTF-8 chroot "$root" "$@"' sh "$work" "$@"
}

make_chroot()
{
	debootstrap --variant=minbase "$release" "$work" "$mirror"
	# How this machine reaches its mirror: proxies, certificates, checks of dates.
	# grep fails for a file that is not there, whatever it finds in the others.
	{ grep -l -s -E '^ *Acquire' /etc/apt/apt.conf /etc/apt/apt.conf.d/* || true; } |
		xargs -r cp -t "$work/etc/apt/apt.conf.d"
	printf '#!/bin/sh\nexit 101\n' >"$work/usr/sbin/policy-rc.d"
	chmod 755 "$work/usr/sbin/policy-rc.d"
	# It can be made again: no need to wait for the disk, nor for documentation.
	printf 'force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n' \
		>"$work/etc/dpkg/dpkg.cfg.d/throwaway"
	in_chroot apt-get update -q
	# shellcheck disable=SC2086
	in_chroot apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 $packages
	in_chroot apt-get clean
	rm -rf "$work"/var/lib/apt/lists/*
	in_chroot ceph-osd --version
}

# Not `make_chroot || ...`: errexit does not hold inside a function whose status is looked at.
set +e
(
	set -e
	make_chroot
) >"$log" 2>&1 </dev/null
status=$?
set -e
if [ "$status" -ne 0 ] || ! tail -n 1 "$log" | grep -q '^ceph version'; then
	tail -n 20 "$log" >&2
	die "could not make $dir"
fi
: >"$work/complete"
rm -rf --one-file-system "$dir"
mv "$work" "$dir"
echo "ceph-chroot: $(tail -n 1 "$log")"
