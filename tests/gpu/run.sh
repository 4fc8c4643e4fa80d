#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Kernels against kvbridged on a machine with an NVIDIA GPU. Speaks TAP; the table is in between.
#
#   tests/gpu/run.sh pack DIR   put kvbridged of $GKV_BUILD (build) and all libraries it needs into
#                               DIR, for a machine that has none of them
#   tests/gpu/run.sh [DIR]      run, with the kvbridged of DIR, or else of $GKV_BUILD
#
# To run, it needs nvcc and a C compiler, nothing else: libgkv is built from its sources. A build
# with RADOS=n packs into a few megabytes.
set -euo pipefail

cd "$(dirname "$0")/../.."
BUILD=${GKV_BUILD:-build}

pack()
{
	mkdir -p "$1/lib"
	cp "$BUILD/kvbridged" "$1/"
	strip "$1/kvbridged"
	# "name => /path" and the loader, which has a path only.
	ldd "$BUILD/kvbridged" | sed -n -E 's|^.* => (/[^ ]+) .*|\1|p; s|^\s*(/[^ ]+) .*|\1|p' |
		while read -r library; do
			cp -L "$library" "$1/lib/"
		done
	du -sh "$1"
}

skip()
{
	echo "ok 1 - kernels against kvbridged # SKIP $1"
	echo "1..1"
	exit 0
}

# The loader by name, so that the libraries beside it are used, its own version of libc included.
daemon()
{
	if [ -n "$carried" ]; then
		exec "$carried"/lib/ld-linux-*.so.* --library-path "$carried/lib" \
			"$carried/kvbridged" "$@"
	fi
	exec "$BUILD/kvbridged" "$@"
}

if [ "${1:-}" = pack ]; then
	pack "${2:?DIR}"
	exit
fi
carried=${1:-}
PATH=$PATH:/usr/local/cuda/bin
nvidia-smi -L >/dev/null 2>&1 || skip "no NVIDIA GPU (nvidia-smi -L)"
command -v nvcc >/dev/null || skip "no nvcc"

work=$(mktemp -d)
pid=
end()
{
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT

echo "# $(nvidia-smi -L | head -n 1)"
"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O2 -fPIC -shared -fvisibility=hidden -pthread -Iuapi \
	-Ilib/include -Wl,-soname,libgkv.so.0 -o "$work/libgkv.so.0" lib/src/*.c
# For the GPU of this machine: its compute capability without the dot.
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
nvcc -O3 "-arch=sm_$arch" -std=c++17 -Iuapi -Ilib/include -o "$work/bench" tests/gpu/bench.cu \
	"$work/libgkv.so.0"
"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O2 -pthread -Iuapi -Ilib/include -o "$work/stream" \
	tests/gpu/stream.c "$work/libgkv.so.0" -ldl

export GKV_SOCKET=$work/kvbridged.sock LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cat >"$work/kvbridged.conf" <<END
[daemon]
socket = $GKV_SOCKET
reactors = 4
[namespace main]
nsid = 1
stack = mem
END
(unset LD_LIBRARY_PATH; daemon -c "$work/kvbridged.conf") >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 100); do
	[ -S "$GKV_SOCKET" ] && break
	sleep 0.1
done
status=0
count=0
# SECONDS NAME COMMAND
result()
{
	count=$((count + 1))
	if [ -S "$GKV_SOCKET" ] && timeout "$1" "$3"; then
		echo "ok $count - $2"
		return
	fi
	sed 's/^/# /' "$work/log" | tail -n 20
	echo "not ok $count - $2"
	status=1
}

result 200 "kernels against kvbridged" "$work/bench"
result 60 "commands in the order of a stream" "$work/stream"
echo "1..$count"
exit $status
