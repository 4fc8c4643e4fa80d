#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes the Debian root of the VM rig: the kernels to boot, their headers, and the compiler and
# tools that build for them. Two kernels of Debian trixie, resolved now and named nowhere:
# "newest" (of trixie-backports) and "stable" (trixie's own, 6.12). A complete root is kept until
# the distribution has newer kernels, which is looked up once a day.
#
# usage: selftests/vm/root.sh [CACHE]	prints what it does; CACHE/root is then complete
#
# CACHE defaults to $GKV_VM_CACHE, else $GKV_BUILD/vm, else build/vm. In the root, /rig/versions has the lines
# "KERNEL VERSION" and /rig/src the few files taken from the newest kernel's source.
# Packages come from where this machine's own come from. Takes root, and about a minute.
set -euo pipefail

cache=${1:-${GKV_VM_CACHE:-${GKV_BUILD:-build}/vm}}
# For modules and test programs; for the checkers; for kernels; for test programs in Python.
tools="gcc-14,gcc,make,libc6-dev,kmod,dkms,busybox-static,sparse,perl"
tools+=",flex,bison,bc,libelf-dev,xz-utils,python3-minimal,libpython3-stdlib"
# What the rig takes from the kernel's source: headers of the tests, and the checkers that the
# header packages lack.
members="tools/testing/selftests/kselftest.h tools/testing/selftests/kselftest_harness.h
	scripts/checkpatch.pl scripts/spelling.txt scripts/const_structs.checkpatch
	scripts/checker-valid.sh"

say()
{
	echo "vm-root: $*"
}

die()
{
	echo "vm-root: $*" >&2
	exit 1
}

# A change of this script makes a new root, too.
self=$(sha256sum <"$0" | cut -c1-12)

fresh()
{
	grep -q -s " $self\$" "$cache/root/rig/complete" &&
		[ -n "$(find "$cache/checked" -mtime -1 2>/dev/null)" ]
}

! fresh || exit 0
[ "$(uname -m)" = x86_64 ] || die "the rig is for x86_64 only, this is $(uname -m)"
for tool in apt-get dpkg-deb mmdebstrap xz flock unshare; do
	command -v "$tool" >/dev/null || die "$tool is missing: scripts/deps.sh vm"
done
[ "$(id -u)" -eq 0 ] || die "takes root: mmdebstrap and chroot"

mkdir -p "$cache"
cache=$(realpath "$cache")
case $cache in
*[!A-Za-z0-9_./+-]*) die "unusable characters in the path $cache" ;;
esac
# One maker at a time; the next one finds the work done.
exec 9>"$cache/lock"
flock 9
! fresh || exit 0

work=$(mktemp -d "$cache/work-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
log=$cache/root.log

# ---- Which kernels: apt with a state of its own, as the machine may know its own release only ----

mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep '/debian$' | head -n 1 || true)
mirror=${mirror:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e $keyring ] || die "$keyring is missing: install debian-archive-keyring"
chmod 755 "$work"
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/deb"
for suite in trixie trixie-backports; do
	echo "deb [signed-by=$keyring] $mirror $suite main"
done >"$work/apt/sources.list"
apt=(-q -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o Dir::Etc::PreferencesParts=/dev/null -o "Dir::State::Lists=$work/apt/lists"
	-o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root)

# kernel_of SUITE: the version of the kernel that linux-image-amd64 depends on there.
kernel_of()
{
	local record

	record=$(apt-get "${apt[@]}" indextargets --format '$(FILENAME)' "Suite: $1" \
		'Created-By: Packages' | head -n 1)
	[ -n "$record" ] || record=$(apt-get "${apt[@]}" indextargets --format '$(FILENAME)' \
		"Codename: $1" 'Created-By: Packages' | head -n 1)
	/usr/lib/apt/apt-helper cat-file "$record" |
		sed -n '/^Package: linux-image-amd64$/,/^$/p' |
		sed -n 's/^Depends:.*linux-image-\([0-9][^ ,]*\).*/\1/p' | sort -V | tail -n 1
}

if ! apt-get "${apt[@]}" update >"$log" 2>&1; then
	if grep -q -s " $self\$" "$cache/root/rig/complete"; then
		say "could not look for newer kernels; keeping the root that is there (see $log)"
		exit 0
	fi
	tail -n 20 "$log" >&2
	die "apt-get update failed for $mirror"
fi
newest=$(kernel_of trixie-backports)
stable=$(kernel_of trixie)
[ -n "$newest" ] || die "trixie-backports has no linux-image-amd64"
[ -n "$stable" ] || die "trixie has no linux-image-amd64"

key="$newest $stable $self"
if [ "$(cat "$cache/root/rig/complete" 2>/dev/null)" = "$key" ]; then
	touch "$cache/checked"
	exit 0
fi

# ---- The root ------------------------------------------------------------------------------------

root=$work/root
series=$(grep -o '^[0-9]*\.[0-9]*' <<<"$newest")
say "making $cache/root: kernels $newest and $stable, from $mirror (log: $log)"

make_root()
{
	local options=() file

	# How this machine reaches its mirror: proxies, certificates, checks of dates.
	while read -r file; do
		options+=("--aptopt=$file")
	done < <(grep -l -s -E '^ *Acquire' /etc/apt/apt.conf /etc/apt/apt.conf.d/* || true)
	# It can be made again: no need to wait for the disk, nor for documentation.
	# The kernel's binary and modules are named, not its metapackage: no initramfs, no hooks.
	mmdebstrap --variant=minbase --mode=root --skip=cleanup/apt/lists "${options[@]}" \
		--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--include="linux-base/trixie-backports,linux-modules-$newest,linux-binary-$newest" \
		--include="linux-headers-$newest,linux-headers-$stable,linux-libc-dev/trixie-backports" \
		--include="$tools" trixie "$root" \
		"deb [signed-by=$keyring] $mirror trixie main" \
		"deb [signed-by=$keyring] $mirror trixie-backports main"
	rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/boot/*
}

# The image of the stable kernel wants an initramfs tool when it is installed: only unpack it.
unpack_stable()
{
	(cd "$work/deb" && apt-get "${apt[@]}" download "linux-image-$stable")
	dpkg-deb -x "$work"/deb/linux-image-"$stable"_*.deb "$work/stable"
	mkdir -p "$root/usr/lib/modules/$stable"
	cp -a "$work"/stable/usr/lib/modules/"$stable"/. "$root/usr/lib/modules/$stable"
	cp "$work/stable/boot/vmlinuz-$stable" "$root/usr/lib/modules/$stable/vmlinuz"
	chroot "$root" depmod "$stable"
	chroot "$root" depmod "$newest"
}

# The source stays in the cache, for debug kernels.
unpack_source()
{
	local archive member list=()

	(cd "$work/deb" && apt-get "${apt[@]}" download "linux-source-$series")
	for member in $members; do
		list+=("linux-source-$series/$member")
	done
	mkdir -p "$root/rig/src"
	archive=$cache/linux-source.tar.xz
	dpkg-deb --fsys-tarfile "$work"/deb/linux-source-"$series"_*.deb |
		tar -xO "./usr/src/linux-source-$series.tar.xz" >"$archive.new"
	mv "$archive.new" "$archive"
	xz -dc -T0 "$archive" | tar -x --strip-components=1 -C "$root/rig/src" "${list[@]}"
	# Its absence makes C=2 check nothing.
	cp "$root/rig/src/scripts/checker-valid.sh" \
		"$root/usr/src/linux-headers-${newest%-amd64}-common/scripts/"
}

check_root()
{
	local version member

	for version in "$newest" "$stable"; do
		test -s "$root/usr/lib/modules/$version/vmlinuz"
		test -s "$root/usr/lib/modules/$version/modules.dep"
		test -e "$root/usr/lib/modules/$version/build/Makefile"
		find "$root/usr/lib/modules/$version/" -name 'nvme.ko*' | grep -q .
	done
	for member in $members; do
		test -s "$root/rig/src/$member"
	done
	for member in bin/busybox bin/gcc-14 bin/sparse bin/perl bin/python3 sbin/dkms; do
		test -x "$root/usr/$member"
	done
	printf 'newest %s\nstable %s\n' "$newest" "$stable" >"$root/rig/versions"
	echo "$key" >"$root/rig/complete"
}

start=$SECONDS
# Not `make_root || ...`: errexit does not hold inside a function whose status is looked at.
set +e
(
	set -ex
	make_root
	unpack_stable
	unpack_source
	check_root
) >>"$log" 2>&1 </dev/null
status=$?
set -e
if [ "$status" -ne 0 ]; then
	tail -n 20 "$log" >&2
	die "could not make $cache/root"
fi
rm -rf --one-file-system "$cache/root"
mv "$root" "$cache/root"
touch "$cache/checked"
say "made in $((SECONDS - start)) s, $(du -shx "$cache/root" | cut -f1)"
