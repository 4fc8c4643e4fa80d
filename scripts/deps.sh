#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes sure that the Debian packages for the named groups are there: as root installs what is
# missing and says so, as another user prints the command and fails.
#
# usage: scripts/deps.sh GROUP...     groups: build test bench ceph vm
set -euo pipefail

# PACKAGE, or PACKAGE:COMMAND where any provider of the command will do.
declare -A packages=(
	# g++ and librados-dev serve the rados store; libgoogle-perftools-dev is tcmalloc.
	[build]="gcc:gcc libc6-dev binutils:ld pkg-config:pkg-config liburing-dev libinih-dev
		libjson-c-dev libkmod-dev libnvme-dev libisal-dev uuid-dev g++:g++ librados-dev
		libradospp-dev libgoogle-perftools-dev"
	# libclang-rt-dev has the fuzzer runtime.
	[test]="libcmocka-dev clang:clang libclang-rt-dev python3:python3 fio:fio
		util-linux:setarch"
	[bench]="fio:fio python3:python3 valkey-server:valkey-server"
	# A throwaway cluster; debootstrap makes the chroot with the newer Ceph.
	[ceph]="ceph-mon:ceph-mon ceph-osd:ceph-osd ceph-mgr:ceph-mgr ceph-common:rados
		python3-rados debootstrap:debootstrap"
	# The virtual machine that tests the kernel module, and the root it boots from.
	[vm]="qemu-system-x86:qemu-system-x86_64 mmdebstrap:mmdebstrap python3:python3
		xz-utils:xz util-linux:unshare e2fsprogs"
)
# Units that those packages bring, themselves or through what they depend on.
units="valkey-server ceph.target ceph-mon.target ceph-osd.target ceph-mgr.target ceph-crash rbdmap
	smartmontools uuidd.socket nvmf-autoconnect nvmefc-boot-connections lvm2-monitor
	lvm2-lvmpolld.socket dm-event.socket"

die()
{
	echo "deps: $*" >&2
	exit 1
}

have()
{
	case $1 in
	*:*)	command -v "${1#*:}" >/dev/null ;;
	*)	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ;;
	esac
}

# The packages of the named groups that are not there, one a line.
missing_packages()
{
	local group package

	for group in "$@"; do
		for package in ${packages[$group]}; do
			have "$package" || echo "${package%%:*}"
		done
	done | sort -u
}

apt_update()
{
	apt-get update -q >/dev/null || { sleep 5; apt-get update -q >/dev/null; }
}

apt_install()
{
	apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 "$@" |
		{ grep --line-buffered -E '^(Need to get|Setting up|E:|W:)' || true; }
}

# Debian 12 has Valkey in its backports only.
enable_backports()
{
	local codename uri list=/etc/apt/sources.list.d/gkv-backports.list

	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	[ "$codename" = bookworm ] || return 0
	! apt-cache show valkey-server >/dev/null 2>&1 || return 0
	# From the mirror this machine already uses, whatever the format of its sources.
	uri=$(apt-get indextargets --format '$(SITE)' | grep -v -m 1 security || true)
	echo "deps: adding $codename-backports in $list"
	echo "deb ${uri:-http://deb.debian.org/debian} $codename-backports main" >"$list"
	apt_update
}

# A test's dependency must not leave a server running here, now or after a reboot.
install_without_services()
{
	local policy=/usr/sbin/policy-rc.d made="" unit new=()

	if [ -d /run/systemd/system ]; then
		for unit in $units; do
			# What was here before stays as its owner set it.
			systemctl cat -- "$unit" >/dev/null 2>&1 || new+=("$unit")
		done
	fi

	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		made=1
	fi
	apt_install "$@" || { [ -z "$made" ] || rm -f $policy; return 1; }
	[ -z "$made" ] || rm -f $policy
	for unit in "${new[@]}"; do
		! systemctl cat -- "$unit" >/dev/null 2>&1 || systemctl disable -q "$unit" || true
	done
}

[ $# -gt 0 ] || die "usage: scripts/deps.sh GROUP...   (build, test, bench, ceph, vm)"
for group in "$@"; do
	[ -n "${packages[$group]:-}" ] || die "unknown group $group (build, test, bench, ceph, vm)"
done
command -v dpkg-query >/dev/null ||
	die "not a Debian system; install what corresponds to: ${packages[*]}"

mapfile -t missing < <(missing_packages "$@")
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "deps: Debian packages are missing; as root run:" >&2
	echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
	[[ " ${missing[*]} " != *" valkey-server "* ]] ||
		echo "deps: (on Debian 12 valkey-server is in bookworm-backports)" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
echo "deps: running as root, installing with apt-get: ${missing[*]}"
if ! find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' 2>/dev/null | grep -q .; then
	echo "deps: apt-get update"
	apt_update
fi
[[ " ${missing[*]} " != *" valkey-server "* ]] || enable_backports
if ! install_without_services "${missing[@]}"; then
	echo "deps: that failed; once more after apt-get update"
	apt_update
	install_without_services "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
fi
mapfile -t missing < <(missing_packages "$@")
[ ${#missing[@]} -eq 0 ] || die "still missing: ${missing[*]}"
