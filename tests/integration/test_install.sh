#!/bin/bash
# SPDX-License-Identifier: MIT
# gkv-san: no installs the plain build
#
# What "make install" puts down is complete and usable: programs, libraries with their links,
# headers, pkg-config file, man pages; a C and a C++ client build against it and run.
set -uo pipefail
. "$(dirname "$0")/../lib/common.sh"

root=$WORK/root
prefix=$root/opt/gkv

make_install()
{
	# A sub-make of a test must not join the job server of the make that runs the tests.
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS \
		make --no-print-directory install BUILD="$GKV_BUILD" DESTDIR="$root" PREFIX=/opt/gkv
}

# installed PATTERN...: each matches a file under the prefix.
installed()
{
	local pattern missing=0

	for pattern in "$@"; do
		compgen -G "$prefix/$pattern" >/dev/null ||
			{ echo "missing: $pattern"; missing=1; }
	done
	return $missing
}

links_resolve()
{
	[ "$(readlink "$prefix/lib/libgkv.so")" = libgkv.so.0 ] &&
		[ -f "$(readlink -f "$prefix/lib/libgkv.so.0")" ]
}

manual_pages_render()
{
	local page failed=0

	for page in "$prefix"/share/man/man*/*; do
		[ -s "$page" ] || { echo "empty: $page"; failed=1; }
		head -n 10 "$page" | grep -q '^\.\(TH\|Dt\|so\)' || { echo "no title: $page"; failed=1; }
	done
	return $failed
}

nothing_outside()
{
	local outside

	outside=$(find "$root" -type f ! -path "$prefix/*")
	[ -z "$outside" ] || { echo "$outside"; return 1; }
	outside=$(grep -rl -F "$root" "$prefix" || true)
	[ -z "$outside" ] || { echo "names the build's root: $outside"; return 1; }
}

flags()
{
	PKG_CONFIG_PATH=$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root pkg-config "$@" libgkv
}

cat >"$WORK/client.c" <<END
#include <gkv.h>
#include <stdio.h>
int main(void)
{
	printf("%x\n", (unsigned int)gkv_version());
	return gkv_version() ? 0 : 1;
}
END
cp "$WORK/client.c" "$WORK/client.cc"

# client COMPILER SOURCE
client()
{
	# shellcheck disable=SC2046
	"$1" -Wall -Wextra -Werror "$2" -o "$WORK/client" $(flags --cflags) $(flags --libs) &&
		LD_LIBRARY_PATH=$prefix/lib "$WORK/client"
}

check "make install works into an empty root" make_install
check "programs, libraries and headers are there" installed sbin/kvbridged bin/gkvctl bin/gkv-bench \
	lib/libgkv.so lib/libgkv.so.0 lib/libgkv.a lib/pkgconfig/libgkv.pc include/gkv.h \
	include/gkv/nvme_kv.h include/gkv/queue.h include/gkv/control.h include/gkv/assert.h
check "the library's links resolve" links_resolve
check "the module's sources, for DKMS, and its udev rule are there" installed \
	'src/gkv-*/dkms.conf' 'src/gkv-*/Kbuild' 'src/gkv-*/kernel/gkvdrv/Kbuild' \
	'src/gkv-*/kernel/gkvdrv/main.c' 'src/gkv-*/uapi/gkv/gkvdrv.h' \
	lib/udev/rules.d/60-gkv.rules lib/sysusers.d/gkv.conf
check "every program and the library have a manual page" installed \
	'share/man/man8/kvbridged.8' 'share/man/man1/gkvctl.1' 'share/man/man1/gkv-bench.1' \
	'share/man/man[37]/*gkv.[37]'
check "manual pages have titles" manual_pages_render
check "nothing is put or named outside the root" nothing_outside
check "pkg-config knows the version" flags --exists --print-errors "libgkv >= 0.1"
check "a C client builds with pkg-config and runs" client gcc "$WORK/client.c"
check "a C++ client builds with pkg-config and runs" client g++ "$WORK/client.cc"
finish
