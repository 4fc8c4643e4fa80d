#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds and checks kernel modules for one of the root's kernels, and test programs for the guest.
#
# usage: selftests/vm/module.sh build KERNEL OUT [DIR]	DIR (kernel/gkvdrv) with W=1; warnings are
#							errors; OUT/NAME.ko and OUT/build.log
#        selftests/vm/module.sh sparse KERNEL OUT	the same sources with C=2, after a build
#        selftests/vm/module.sh dkms KERNEL OUT		as DKMS builds it from what is installed, and
#							as modules_install puts it in place
#        selftests/vm/module.sh checkpatch OUT		checkpatch --strict, less checkpatch.accepted
#        selftests/vm/module.sh m32			the headers of uapi/ as 32-bit programs see them
#        selftests/vm/module.sh libgkv OUT		libgkv.a and libgkv.so.0, with the root's compiler
#        selftests/vm/module.sh programs OUT FILE...	static test programs OUT/NAME; those that
#							include <gkv.h> have libgkv in them,
#							those that include "rig.h" what tests/lib
#							has to start a daemon
#
# KERNEL is newest, stable or debug. A checker that did not truly run is a failure.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
top=$(realpath "$here/../..")
# shellcheck source=selftests/vm/in-root.sh
. "$here/in-root.sh"

# The sources are copied: kbuild writes beside them, and each kernel has its own results. What has
# not changed keeps its time and is not built again; what is gone must not be found.
copy_sources()
{
	local tree=$1 dir=$2 file

	mkdir -p "$tree"
	(cd "$top" && find uapi "$dir" -type f) | while read -r file; do
		cmp -s "$top/$file" "$tree/$file" || install -D -m 644 "$top/$file" "$tree/$file"
	done
	(cd "$tree" && find uapi "$dir" -name '*.[chS]' ! -name '*.mod.c' -o -name Kbuild) |
		while read -r file; do
			[ -e "$top/$file" ] || rm -f "$tree/$file"
		done
}

kbuild()
{
	if [ "$kernel" = debug ]; then
		[ -e "$vm_cache/debug/complete" ] || vm_die "no debug kernel: run debug-kernel.sh"
		VM_OUT=$vm_cache/debug/src vm_in_root "$tree" make -C /media CC=gcc-14 \
			M="/mnt/$dir" "$@" modules 2>&1
		return
	fi
	vm_in_root "$tree" make -C "/lib/modules/$(vm_version "$kernel")/build" \
		M="/mnt/$dir" "$@" modules 2>&1
}

build()
{
	local module

	copy_sources "$tree" "$dir"
	rm -f "$out/$(basename "$dir").ko"
	if ! kbuild W=1 KCFLAGS=-Werror >"$out/build.log"; then
		grep -E -A 8 'error:|ERROR|\*\*\*' "$out/build.log" >&2 || tail -n 30 "$out/build.log" >&2
		vm_die "$dir does not build for $kernel (log: $out/build.log)"
	fi
	# modpost's are not errors.
	if grep -E -i 'warning:' "$out/build.log" >&2; then
		vm_die "$dir builds for $kernel with warnings"
	fi
	module=$(find "$tree/$dir" -maxdepth 1 -name '*.ko')
	[ -n "$module" ] || vm_die "$dir built no module for $kernel"
	# shellcheck disable=SC2086
	cp $module "$out"
}

sparse()
{
	local sources checked

	# Newer kernels first probe sparse, by a script their header packages lack (root.sh puts it
	# there), and go on without checking when it does not know what they need.
	cp "$here/sparse-compat.h" "$tree"
	sources=$(find "$tree/$dir" -maxdepth 1 -name '*.c' ! -name '*.mod.c' -printf x | wc -c)
	kbuild C=2 W=1 CHECK="sparse -include /mnt/sparse-compat.h" >"$out/sparse.log" ||
		vm_die "C=2 failed (log: $out/sparse.log)"
	checked=$(grep -c '^  *CHECK ' "$out/sparse.log" || true)
	# Its warnings name the file; kbuild's own, of a missing vmlinux for BTF, do not.
	if grep -E '\.[ch]:[0-9]+:[0-9]+: (warning|error)' "$out/sparse.log" >&2; then
		vm_die "sparse has complaints"
	fi
	[ "$checked" -ge "$sources" ] ||
		vm_die "sparse checked $checked of $sources files (log: $out/sparse.log)"
	echo "sparse checked $checked files"
}

# dkms: from the sources that users get, with the distribution's default compiler and dkms.
dkms()
{
	local version module

	version=$(vm_version "$kernel")
	rm -rf "$out/dkms"
	mkdir -p "$out/dkms/tree" "$out/dkms/place"
	make -s -C "$top" install-dkms DESTDIR="$out/dkms" DKMSDIR=/src/gkv-rig VERSION=rig \
		INSTALL=install >"$out/dkms.log" 2>&1 || vm_die "install-dkms failed (log: $out/dkms.log)"
	if ! vm_in_root "$out/dkms" dkms build gkv/rig -k "$version" --dkmstree /mnt/tree \
		--sourcetree /mnt/src >>"$out/dkms.log" 2>&1; then
		cat "$out/dkms"/tree/gkv/rig/build/make.log >>"$out/dkms.log" 2>/dev/null || true
		tail -n 30 "$out/dkms.log" >&2
		vm_die "dkms does not build it for $kernel (log: $out/dkms.log)"
	fi
	module=$(find "$out/dkms/tree/gkv/rig/$version" -name 'gkvdrv.ko*')
	[ -n "$module" ] || vm_die "dkms built no module for $kernel (log: $out/dkms.log)"
	vm_in_root "$out/dkms" modinfo -F vermagic "${module/#$out\/dkms//mnt}" | grep -q "^$version " ||
		vm_die "what dkms built is not for $version"

	# Debian's headers have no System.map: depmod is left out, which modules_install says.
	# Where it was built: kbuild notes absolute paths.
	VM_OUT=$out/dkms vm_in_root "$tree" make -C "/lib/modules/$version/build" \
		"M=/mnt/$dir" INSTALL_MOD_PATH=/media/place modules_install >>"$out/dkms.log" 2>&1 ||
		vm_die "modules_install failed (log: $out/dkms.log)"
	find "$out/dkms/place/lib/modules/$version" -name 'gkvdrv.ko*' | grep -q . ||
		vm_die "modules_install put nothing in place (log: $out/dkms.log)"
	rm -rf "$out/dkms"
}

checkpatch()
{
	local files count ran found accepted bad=""

	mapfile -t files < <(cd "$top" && find kernel uapi selftests/vm/selftest/p2pbar \
		-name '*.[ch]' ! -name '*.mod.c' | sort)
	count=${#files[@]}
	vm_in_root "$top" perl /rig/src/scripts/checkpatch.pl --no-tree --strict --show-types \
		-f "${files[@]}" >"$out/checkpatch.log" 2>&1 || true
	ran=$(grep -c '^total: .* [1-9][0-9]* lines checked$' "$out/checkpatch.log" || true)
	[ "$ran" -eq "$count" ] ||
		vm_die "checkpatch checked $ran of $count files (log: $out/checkpatch.log)"

	# "FILE TYPE LINE: MESSAGE"; then "FILE TYPE", each once.
	awk '/^(CHECK|WARNING|ERROR):/ { split($1, part, ":"); text = $0 }
		/^#[0-9]+: FILE: / { split($3, at, ":"); print at[1], part[2], at[2] ": " text }' \
		"$out/checkpatch.log" >"$out/checkpatch.found"
	found=$(cut -d ' ' -f 1,2 "$out/checkpatch.found" | sort -u)
	accepted=$(awk '!/^#/ && NF { print $1, $2 }' "$here/checkpatch.accepted" | sort -u)
	while read -r file type; do
		grep "^$file $type " "$out/checkpatch.found" >&2
		bad=yes
	done < <(comm -23 <(echo "$found") <(echo "$accepted") | grep .)
	while read -r file type; do
		echo "$file: $type is accepted and does not occur" >&2
		bad=yes
	done < <(comm -13 <(echo "$found") <(echo "$accepted") | grep .)
	[ -z "$bad" ] || vm_die "checkpatch has complaints (log: $out/checkpatch.log)"
	echo "checkpatch checked $count files; $(wc -l <<<"$accepted") kinds of findings are accepted"
}

# m32: their assertions of sizes and offsets hold without 64-bit alignment. There is no 32-bit libc.
m32()
{
	local header count=0
	local -a compile=(gcc-14 -m32 -std=gnu11 -Wall -Wextra -Werror -ffreestanding -fsyntax-only
		-Iuapi -idirafter /usr/include/x86_64-linux-gnu -x c -)

	for header in "$top"/uapi/gkv/*.h; do
		header=gkv/$(basename "$header")
		echo "#include <$header>" | vm_in_root "$top" "${compile[@]}" ||
			vm_die "$header does not suit 32-bit programs"
		count=$((count + 1))
	done
	# Were it not for the assertions, that would say little.
	if echo "#include <gkv/gkvdrv.h>
		GKV_ASSERT_SIZE(gkvdrv_qp, 132);" | vm_in_root "$top" "${compile[@]}" 2>/dev/null; then
		vm_die "a wrong size is not noticed"
	fi
	echo "$count headers"
}

newer_than()
{
	local target=$1

	shift
	[ ! -e "$target" ] || [ -n "$(find "$@" -name '*.[ch]' -newer "$target" -print -quit)" ]
}

libgkv()
{
	newer_than "$out/libgkv.a" "$top/uapi" "$top/lib" || return 0
	rm -rf "$out/obj"
	mkdir -p "$out/obj"
	# shellcheck disable=SC2016
	VM_OUT=$out vm_in_root "$top" sh -ec '
		cd /media/obj
		gcc-14 -c -std=gnu11 -D_GNU_SOURCE -DGKV_BUILD_VERSION="\"rig\"" -O2 -g -Wall -Wextra \
			-Werror -fPIC -fvisibility=hidden -pthread -I/mnt/uapi -I/mnt/lib/include \
			/mnt/lib/src/*.c
		gcc-14 -shared -pthread -Wl,-soname,libgkv.so.0 -Wl,--version-script=/mnt/lib/libgkv.map \
			-o ../libgkv.so.0 *.o
		rm -f ../libgkv.a
		ar rcs ../libgkv.a *.o'
}

# helpers NAME DIR FILE...: an archive in $out of the files, which include those of DIR, once;
# prints its name, or nothing if there are none.
helpers()
{
	local dir=$2 archive=helpers-$1.a files

	shift 2
	# shellcheck disable=SC2086,SC2068
	files=$(cd "$top" && ls $@ 2>/dev/null) || return 0
	if newer_than "$out/$archive" "$top/uapi" "$top/$dir" "$here"; then
		rm -rf "$out/obj" "${out:?}/$archive"
		mkdir -p "$out/obj"
		# shellcheck disable=SC2016
		VM_OUT=$out vm_in_root "$top" sh -ec 'archive=$1 files=$2; shift 2
			for file in $files; do
				"$@" -c -o "/media/obj/$(basename "$file" .c).o" "$file"
			done
			ar rcs "/media/$archive" /media/obj/*.o' sh \
			"$archive" "$files" "${compile[@]}" -I"$dir" || return 1
	fi
	echo "$archive"
}

# What of tests/lib needs uapi/ only: a daemon of a test's own, TAP, a client without libgkv.
rig_sources="tests/lib/rig.c tests/lib/tap.c tests/lib/rawclient.c"

# programs: each C file is one program; a lib directory beside it is linked into each, what is
# needed of tests/lib into those that include "rig.h".
programs()
{
	local file name dir archive="" last="" bad="" user="" library rig
	local -a inputs compile=(gcc-14 -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror
		-Wno-unused-parameter -pthread -Iuapi -Ilib/include -Iselftests/vm
		-I/rig/src/tools/testing/selftests)

	if grep -q -s -E '^#include ["<]gkv\.h[">]' "$@"; then
		mkdir -p "$vm_user/guest"
		user=$(realpath "$vm_user/guest")
		(out=$user && libgkv) || vm_die "libgkv does not build in the root"
	fi
	for file in "$@"; do
		name=$(basename "$file" .c)
		dir=$(realpath --relative-to="$top" "$(dirname "$(realpath "$file")")")
		file=$dir/$(basename "$file")
		if [ "$dir" != "$last" ]; then
			archive=$(helpers "${dir//\//-}" "$dir" "$dir/lib/*.c") ||
				vm_die "$dir/lib does not compile"
			last=$dir
		fi
		inputs=("$top/uapi" "$top/$dir" "$here")
		library=""
		if grep -q -E '^#include ["<]gkv\.h[">]' "$top/$file"; then
			inputs+=("$top/lib")
			library=libgkv.a
			cp -u "$user/$library" "$out"
		fi
		rig=""
		if grep -q '^#include "rig\.h"' "$top/$file"; then
			inputs+=("$top/tests/lib")
			# shellcheck disable=SC2086
			rig=$(helpers rig tests/lib $rig_sources) || vm_die "tests/lib does not compile"
		fi
		newer_than "$out/$name" "${inputs[@]}" || continue
		VM_OUT=$out vm_in_root "$top" "${compile[@]}" -static -I"$dir" ${rig:+-Itests/lib} \
			-o "/media/$name" "$file" ${archive:+"/media/$archive"} ${rig:+"/media/$rig"} \
			${library:+"/media/$library"} || bad+=" $file"
	done
	[ -z "$bad" ] || vm_die "these do not compile:$bad"
}

usage()
{
	sed -n 's/^# usage: /usage: /p; s/^#        selftests/       selftests/p' "$0" >&2
	exit 2
}

[ $# -ge 2 ] || [ "${1:-}" = m32 ] || usage
[ "$(id -u)" -eq 0 ] || vm_die "takes root: chroot"
[ -e "$vm_root/rig/complete" ] || vm_die "no complete root in $vm_cache: run root.sh"
command=$1
shift
case $command in
build|sparse|dkms)
	[ $# -ge 2 ] || usage
	kernel=$1
	mkdir -p "$2"
	out=$(realpath "$2")
	dir=${3:-kernel/gkvdrv}
	tree=$out/tree
	$command
	;;
checkpatch)
	mkdir -p "$1"
	out=$(realpath "$1")
	checkpatch
	;;
m32)
	m32
	;;
libgkv)
	mkdir -p "$1"
	out=$(realpath "$1")
	libgkv
	;;
programs)
	[ $# -ge 2 ] || usage
	mkdir -p "$1"
	out=$(realpath "$1")
	shift
	programs "$@"
	;;
*)	usage ;;
esac
